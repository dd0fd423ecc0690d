"""A short run of the fuzzer, and that it finds what it looks for."""

from __future__ import annotations

from pathlib import Path
from random import Random

import mutants
import pytest
from hostile import fuzz
from hypothesis import settings

FEW = min(40, 2 * settings().max_examples)
"""CI goes on with the next ones: see `.ci/run`."""


def test_damaged_profiles_end_well(tmp_path: Path) -> None:
    attempts, faults = fuzz.fuzz(FEW, 1, tmp_path)
    assert faults == []
    assert sum(attempts.exit_codes.values()) == 2 * FEW
    tried = {name.split()[0] for name in attempts.exit_codes}
    assert tried == {"check", *(command[0] for command in fuzz.COMMANDS.values())}
    assert attempts.limits_judged["breach"] > attempts.limits_judged["pass"]


def test_samples_breach_limits_that_they_are_checked_by(tmp_path: Path) -> None:
    attempts = fuzz.Fuzz(tmp_path)
    for path, limits in zip(attempts.paths, attempts.limits, strict=True):
        assert "--max-step-time" in limits
        checked = fuzz.invoke(("check", str(path), "--no-config", *limits, "--format", "json"))
        assert {row["result"] for row in fuzz.limit_rows(checked)} == {"breach"}


def test_every_operator_changes_a_sample(tmp_path: Path) -> None:
    samples = fuzz.Fuzz(tmp_path).samples
    seen = {name for seed in range(300) for name in mutants.make(Random(seed), samples).operators}
    assert seen == {*mutants.ON_BYTES, *mutants.ON_CONTENTS}
    assert seen > mutants.LOSSES
    for name, operator in mutants.ON_BYTES.items():
        assert any(operator(Random(seed), samples[0], samples) != samples[0] for seed in range(20)), name


def test_a_pass_by_damage_without_a_word_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = fuzz.Fuzz(tmp_path)
    slow, fast = (next(i for i, path in enumerate(attempts.paths) if name in str(path)) for name in ("bound", "fixed"))
    monkeypatch.setattr(mutants, "make", lambda *_: mutants.Mutant(slow, ("as if",), attempts.samples[fast]))
    assert {fault.kind for fault in attempts.attempt(1)} == {"silent pass"}


@pytest.mark.parametrize(("error", "kind"), [(ZeroDivisionError, "traceback"), (fuzz.Stalled, "stall")])
def test_what_a_command_raises_is_a_fault(
    error: type[BaseException], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = fuzz.Fuzz(tmp_path)

    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("tfperf.analysis.load.flaw_checks", broken)
    monkeypatch.setattr(mutants, "make", lambda *_: mutants.Mutant(0, ("nothing",), attempts.samples[0]))
    assert {fault.kind for fault in attempts.attempt(0)} == {kind}
