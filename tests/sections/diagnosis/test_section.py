"""The first screen: what stands on it for every trace, and that its figures are those of the whole report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import tfperf
from tfperf.render import render
from tfperf.render.text_table import cells
from tfperf.report.model import Report
from tfperf.units import format_percent

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "traces"
PARTS = {
    "Input": ("input_wait", "input_copy"),
    "Compilation": ("compilation",),
    "Kernel launch": ("launch_bound",),
    "Output": ("output_copy",),
}
"""Categories, and the causes that are parts of them."""


def every_trace(root: Path) -> list[Path]:
    """Return the run folders of the sample traces, and of the test input where it lies beside this checkout."""
    files = [*(root / "sample_traces").rglob("*.xplane.pb"), *SHARED.rglob("*.xplane.pb")]
    return sorted({file.parent for file in files if file.parent.name != "corrupt_tpu"})


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def reports() -> list[tuple[Path, Report]]:
    """The report of every trace."""
    return [(path, tfperf.load(path).report()) for path in every_trace(ROOT)]


def test_the_first_screen_of_every_trace_fits(reports: list[tuple[Path, Report]]) -> None:
    for path, report in reports:
        lines = render(report, "table").splitlines()
        assert len(lines) <= 24, path
        assert max(map(cells, lines)) <= 80, path
        assert "tfperf analyze PATH" in lines[-1], path


def test_one_thing_has_one_number(reports: list[tuple[Path, Report]]) -> None:
    """Shares of causes, bars of categories, the line of input and the JSON document say the same."""
    for path, report in reports:
        screen = render(report, "table")
        costs = {
            cause["code"]: cause["cost_percent"]["high"]
            for cause in report.documents["diagnosis"]["causes"]
            if cause["kind"] == report.summary["step_kind"] and cause["cost_percent"]["high"] is not None
        }
        assert sum(costs.values()) <= 100.0 + 1e-6, path
        bars = dict(re.findall(r"^ *([A-Z][a-z ]+?) #+ +([<>]?[\d.]+%)$", screen, re.MULTILINE))
        for category, codes in PARTS.items():
            parts = [costs[code] for code in codes if code in costs]
            if category in bars and len(parts) == len(codes) == 1:
                assert bars[category] == f"{format_percent(parts[0])}%", path
        if report.summary["input_percent"] is not None:
            assert f"Input {format_percent(report.summary['input_percent'])}%" in " ".join(screen.split()), path


def test_what_a_cause_rests_on_is_there(reports: list[tuple[Path, Report]]) -> None:
    """Each cause names rows of tables, by which its number can be looked up."""
    for path, report in reports:
        tables = {(section.name, table.name): table for section in report.sections for table in section.tables}
        for cause in report.documents["diagnosis"]["causes"]:
            for evidence in cause["rests_on"]:
                table = tables[evidence["section"], evidence["table"]]
                assert any(evidence["row"] in values for values in table.data.values()), (path, cause["code"], evidence)


@pytest.mark.parametrize("sample", ["custom_loop", "input_bound", "input_fixed", "retracing"])
def test_the_first_sentence_is_the_headline(sample: str, samples: Path, run_tfperf: Callable[..., Result]) -> None:
    headline = document(run_tfperf("analyze", samples / sample, "--format", "json"))["diagnosis"]["headline"]
    screen = " ".join(run_tfperf("analyze", samples / sample).stdout.split())
    assert screen.index(headline) < 60


def test_all_sections_are_shown_when_asked_for(samples: Path, run_tfperf: Callable[..., Result]) -> None:
    whole = run_tfperf("analyze", samples / "retracing", "--full").stdout
    assert whole.index("Diagnosis\n=") < whole.index("Overview\n=") < whole.index("tf.functions\n=")
    refused = run_tfperf("analyze", samples / "retracing", "--full", "-s", "steps")
    assert (refused.exit_code, "--full" in refused.stderr) == (2, True)
