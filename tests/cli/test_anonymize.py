"""`tfperf anonymize`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Run = Callable[..., Result]


def test_it_says_what_it_wrote_and_that_people_should_look(samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    result = run_tfperf("anonymize", samples / "input_bound", "-o", tmp_path / "copy")
    assert result.exit_code == 0
    first, second = result.stderr.splitlines()
    assert first.startswith(f"wrote 1 host to {tmp_path / 'copy' / 'plugins' / 'profile'}")
    assert "words of names replaced" in first
    assert second.startswith("look at it before you send it")
    assert run_tfperf("analyze", tmp_path / "copy").exit_code == 0


def test_an_existing_copy_is_replaced_with_force_only(samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    arguments = ("anonymize", samples / "input_bound", "-o", tmp_path / "copy")
    assert run_tfperf(*arguments).exit_code == 0
    again = run_tfperf(*arguments)
    assert (again.exit_code, "pass --force" in again.stderr) == (1, True)
    assert run_tfperf(*arguments, "--force").exit_code == 0


def test_errors_are_one_line(tmp_path: Path, run_tfperf: Run) -> None:
    (tmp_path / "a.xplane.pb").write_bytes(b"no profile")
    result = run_tfperf("anonymize", tmp_path, "-o", tmp_path / "copy")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
