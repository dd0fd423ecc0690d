"""Each sample trace, and a synthetic one of two GPUs, in each format, against files that a person has read.

`make docs` writes the files anew; read the diff before you keep it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from unittest.mock import patch

import pytest
from builders import logdir_of
from click.testing import Result
from printed import load_once
from synthetic_gpu import synthetic_gpu

SAMPLES = ("custom_loop", "input_bound", "input_fixed", "retracing")
ON_GPU = ("gpu_input_in_loop", "gpu_odd_channels", "gpu_results_each_step", "gpu_tiny_kernels", "gpu_transformer")
"""Samples with many kernels and gaps, whose data formats would be large."""
SUFFIXES = {"table": "txt", "json": "json", "csv": "csv", "markdown": "md"}
_LONG_NUMBER = re.compile(r"-?\d+\.\d{7,}(?:e[+-]?\d+)?")
_VERSION = re.compile(r'"tfperf_version": "[^"]*"')


def settled(text: str) -> str:
    """Drop what may differ between machines and releases: the last digits of numbers, the version."""
    text = _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.9g}", text)
    return _VERSION.sub('"tfperf_version": "VERSION"', text)


def test_every_sample_has_gold_files(samples: Path) -> None:
    assert {path.name for path in samples.iterdir() if (path / "plugins").is_dir()} == {*SAMPLES, *ON_GPU}


@pytest.fixture(scope="module", autouse=True)
def _analyze_once() -> Iterator[None]:
    with patch("tfperf.analysis.load.load", load_once()):
        yield


@pytest.fixture
def compare_report(
    root: Path,
    run_tfperf: Callable[..., Result],
    compare_gold: Callable[[Path, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., None]:
    """Compare the report of a logdir with a gold file; run in its folder, so that paths are the same everywhere."""

    def compare(folder: Path, logdir: str, format_name: str, *options: str, name: str) -> None:
        monkeypatch.chdir(folder)
        result = run_tfperf("analyze", logdir, "--format", format_name, "--top", "10", *options)
        assert (result.exit_code, result.stderr) == (0, "")
        compare_gold(root / "tests" / "gold" / f"{name}.{SUFFIXES[format_name]}", settled(result.stdout))

    return compare


@pytest.mark.parametrize("sample", [*SAMPLES, *ON_GPU])
def test_whole_report(sample: str, root: Path, compare_report: Callable[..., None]) -> None:
    compare_report(root, f"sample_traces/{sample}", "table", "--full", name=f"{sample}.full")


@pytest.mark.parametrize(
    ("sample", "format_name"), [*product(SAMPLES, SUFFIXES), *product(ON_GPU, ("table", "markdown"))]
)
def test_report(sample: str, format_name: str, root: Path, compare_report: Callable[..., None]) -> None:
    compare_report(root, f"sample_traces/{sample}", format_name, name=sample)


@pytest.mark.parametrize("format_name", SUFFIXES)
def test_report_as_tensorflow_attributes_time(
    format_name: str, root: Path, compare_report: Callable[..., None]
) -> None:
    options = ("--attribution", "tensorflow")
    compare_report(root, "sample_traces/custom_loop", format_name, *options, name="custom_loop.tensorflow")


@pytest.mark.parametrize("format_name", ["table", "json", "markdown"])
def test_report_of_two_gpus(format_name: str, tmp_path: Path, compare_report: Callable[..., None]) -> None:
    logdir_of(tmp_path, synthetic=synthetic_gpu())
    compare_report(tmp_path, "logs", format_name, name="synthetic_gpu")
    if format_name == "table":
        compare_report(tmp_path, "logs", format_name, "--full", name="synthetic_gpu.full")
