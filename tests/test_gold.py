"""Each sample trace, and a synthetic one of two GPUs, in each format, against files that a person has read.

`make docs` writes the files anew; read the diff before you keep it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import logdir_of
from click.testing import Result
from synthetic_gpu import synthetic_gpu

SAMPLES = ("custom_loop", "input_bound", "input_fixed", "retracing")
SUFFIXES = {"table": "txt", "json": "json", "csv": "csv", "markdown": "md"}
_LONG_NUMBER = re.compile(r"-?\d+\.\d{7,}(?:e[+-]?\d+)?")
_VERSION = re.compile(r'"tfperf_version": "[^"]*"')


def settled(text: str) -> str:
    """Drop what may differ between machines and releases: the last digits of numbers, the version."""
    text = _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.9g}", text)
    return _VERSION.sub('"tfperf_version": "VERSION"', text)


def test_every_sample_has_gold_files(samples: Path) -> None:
    assert {path.name for path in samples.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(SAMPLES)


@pytest.mark.parametrize("format_name", SUFFIXES)
@pytest.mark.parametrize(
    ("sample", "attribution"), [*((name, "corrected") for name in SAMPLES), ("custom_loop", "tensorflow")]
)
def test_report(
    sample: str,
    attribution: str,
    format_name: str,
    root: Path,
    run_tfperf: Callable[..., Result],
    compare_gold: Callable[[Path, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(root)  # so that the paths in a report are the same everywhere
    result = run_tfperf(
        "analyze", f"sample_traces/{sample}", "--attribution", attribution, "--format", format_name, "--top", 10
    )
    assert (result.exit_code, result.stderr) == (0, "")
    name = sample if attribution == "corrected" else f"{sample}.{attribution}"
    compare_gold(root / "tests" / "gold" / f"{name}.{SUFFIXES[format_name]}", settled(result.stdout))


@pytest.mark.parametrize("format_name", ["table", "json", "markdown"])
def test_report_of_two_gpus(
    format_name: str,
    root: Path,
    tmp_path: Path,
    run_tfperf: Callable[..., Result],
    compare_gold: Callable[[Path, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logdir_of(tmp_path, synthetic=synthetic_gpu())
    monkeypatch.chdir(tmp_path)
    result = run_tfperf("analyze", "logs", "--format", format_name, "--top", 10)
    assert (result.exit_code, result.stderr) == (0, "")
    compare_gold(root / "tests" / "gold" / f"synthetic_gpu.{SUFFIXES[format_name]}", settled(result.stdout))
