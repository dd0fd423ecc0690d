"""Mutants of synthetic jobs: none passes a limit that the whole job breaches, except where its GPU is late."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from builders import logdir_of
from hostile import soundness
from synthetic_gpu import synthetic_gpu
from synthetic_tpu import offload_tpu


def test_no_mutant_of_a_synthetic_job_passes(tmp_path: Path) -> None:
    tried: Counter[str] = Counter()
    for name, data in (("gpu", synthetic_gpu()), ("tpu", offload_tpu())):
        found = soundness.silent_passes(name, {"host": data}, [], tmp_path / name, tried)
        assert {silent.kind for silent in found} <= {"late clock"}
    assert set(tried) == {"lost planes", "early clock", "late clock"}


def test_the_whole_job_breaches_its_limits(tmp_path: Path) -> None:
    path = logdir_of(tmp_path, host=synthetic_gpu())
    limits = soundness.limited(path, 1)
    assert [limit.split()[0] for limit in limits] == ["input_bound", "all_others"]
    assert {judged.status for judged in soundness.judged_of(path, limits)} == {"breach"}
