"""`tfperf export-parquet`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result


def test_it_says_what_it_wrote_and_keeps_what_is_there(
    run_tfperf: Callable[..., Result], samples: Path, tmp_path: Path, asked_here: None
) -> None:
    target = tmp_path / "dataset"
    done = run_tfperf("export-parquet", samples / "input_bound", "-o", target)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("wrote 8,980 events and ")
    again = run_tfperf("export-parquet", samples / "input_bound", "-o", target)
    assert again.exit_code == 1
    assert "pass --force to replace it" in again.stderr
    assert run_tfperf("export-parquet", samples / "input_bound", "-o", target, "--force").exit_code == 0
    asked = run_tfperf("query", target, "select count(*) as n from events", "--format", "csv")
    assert asked.stdout.split() == ["n", "8980"]
    assert run_tfperf("query", target, "--schema").exit_code == 0


def test_a_folder_with_something_else_is_refused_at_once(
    run_tfperf: Callable[..., Result], samples: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    done = run_tfperf("export-parquet", samples / "input_bound", "-o", tmp_path)
    assert (done.exit_code, done.stderr) == (
        1,
        f"Error: {tmp_path} exists and is not a dataset of tfperf; name a new folder\n",
    )
