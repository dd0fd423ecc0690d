"""A short run of the fuzzer, and that it finds what it looks for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import mutants
import pytest
from hostile import fuzz, soundness
from hypothesis import settings
from synthetic_gpu import synthetic_gpu
from synthetic_tpu import offload_tpu

FEW = min(40, 2 * settings().max_examples)
"""CI goes on with the next ones: see `.ci/run`."""


@pytest.mark.usefixtures("asked_here")
def test_damaged_profiles_end_well(tmp_path: Path) -> None:
    attempts, faults = fuzz.fuzz(FEW, 1, tmp_path)
    assert faults == []
    assert sum(attempts.exit_codes.values()) == 2 * FEW
    tried = {name.split()[0] for name in attempts.exit_codes}
    assert tried == {"check", *(command[0] for command in fuzz.COMMANDS.values())}
    assert attempts.limits_judged["breach"] > attempts.limits_judged["pass"]


def test_a_pass_by_damage_without_a_word_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = fuzz.Fuzz(tmp_path)
    slow, fast = (next(i for i, path in enumerate(attempts.paths) if name in str(path)) for name in ("bound", "fixed"))
    monkeypatch.setattr(mutants, "make", lambda *_: mutants.Mutant(slow, ("as if",), attempts.samples[fast]))
    assert {fault.kind for fault in attempts.attempt(1)} == {"silent pass"}


# --- mutants of synthetic jobs and of a sample ---


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
