"""Mutants of synthetic jobs and of a sample: none passes a limit that the whole job breaches, if a rule can tell it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from builders import logdir_of
from hostile import soundness
from synthetic_gpu import synthetic_gpu
from synthetic_tpu import offload_tpu

LOST = {"lost planes", "lost spans", "lost threads", "lost tf.data", "dropped steps"}


def test_no_mutant_of_a_synthetic_job_passes(tmp_path: Path) -> None:
    tried: Counter[str] = Counter()
    for name, data in (("gpu", synthetic_gpu()), ("tpu", offload_tpu())):
        found = [*soundness.silent_passes(name, {"host": data}, [], tmp_path / name, tried)]
        untold = {(silent.kind, silent.mutant) for silent in found if silent.untold}
        # The thread of tf.data alone fetches, and tasks have no numbers.
        assert untold <= {("lost threads", "without thread 1"), ("lost tf.data", "without every other event")}
        assert not [silent for silent in found if not silent.untold]
    assert tried.keys() == LOST | {"early clock", "late clock", "doubled steps"}


def test_no_mutant_of_a_real_job_passes(samples: Path, tmp_path: Path) -> None:
    """Some events of a stretch of time, of a thread, of tf.data and of steps are missing."""
    tried: Counter[str] = Counter()
    data = next((samples / "custom_loop").rglob("*.xplane.pb")).read_bytes()
    assert not [*soundness.silent_passes("custom_loop", {"host": data}, [], tmp_path, tried)]
    assert tried.keys() == LOST - {"lost planes"} | {"doubled steps"}


def test_the_whole_job_breaches_its_limits(tmp_path: Path) -> None:
    path = logdir_of(tmp_path, host=synthetic_gpu())
    limits = soundness.limited(path, 1)
    assert [limit.split()[0] for limit in limits] == ["input_bound", "all_others"]
    assert {judged.status for judged in soundness.judged_of(path, limits)} == {"breach"}
