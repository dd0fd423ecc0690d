"""What values say about themselves: one line, whatever they hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import fetching, logdir_of
from msgspec import Struct

import tfperf
from tfperf.analysis.registry import default_sections, find_section, section_names
from tfperf.base.display import Shown, cut
from tfperf.report.model import Report


class Thing(Shown, Struct):
    name: str
    rows: tuple[int, ...] = ()
    size: int | None = None
    inner: Shown | None = None


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (Thing("a"), "Thing(name='a')"),
        (Thing("", (1, 2)), "Thing(rows=<2>)"),
        (Thing("a", size=0, inner=Thing("b")), "Thing(name='a', size=0, inner=<Thing>)"),
        (Thing("x" * 61), f"Thing(name='{'x' * 57}...')"),
        (Thing("a\nb\x1b"), r"Thing(name='a\nb\x1b')"),
    ],
)
def test_a_line_says_what_is_there(value: Thing, line: str) -> None:
    assert repr(value) == line


def test_a_long_line_is_cut_and_what_does_not_print_is_escaped() -> None:
    assert cut("a\n\u202e") == r"a\n\u202e"
    assert len(cut("x" * 1000)) == len(cut("\n" * 1000)) == 160


def lines_of(analysis: tfperf.Analysis) -> dict[str, str]:
    """Return the line of everything public that an analysis leads to."""
    report = analysis.report()
    specs = [find_section(name) for name in section_names()]
    values: list[object] = [
        *(analysis, *analysis.hosts, report, tfperf.check(analysis, max_input_bound="10%")),
        *(analysis[name] for name in default_sections() if name != "gaps"),
        *(
            part
            for section in report.sections
            for part in (section, *section.facts, *section.findings, *section.tables)
        ),
        *(part for spec in specs for part in (spec, *spec.tables, *(table.ranked for table in spec.tables))),
        *(column for spec in specs for table in spec.tables for column in table.columns),
        tfperf.Sampled(Path("logs"), (tfperf.Captured(worker="a"),)),
        tfperf.Captured(worker="a", path=Path("x")),
    ]
    return {f"{number} {type(value).__name__}": repr(value) for number, value in enumerate(values)}


def test_everything_public_says_one_short_line(samples: Path) -> None:
    lines = lines_of(tfperf.load(samples / "input_bound"))
    assert {key: line for key, line in lines.items() if "\n" in line or len(line) > 160} == {}
    assert {"Analysis", "HostResults", "Finding", "Column", "Ranked"} <= {key.split()[1] for key in lines}


def test_an_analysis_says_what_it_found(samples: Path) -> None:
    line = repr(tfperf.load(samples / "input_bound"))
    assert line == "<Analysis of 2026_11_21_12_00_00: 19 steps, mean 19.4 ms, input 64.4%; 1 host>"


def test_the_input_of_several_hosts_is_that_of_the_worst(tmp_path: Path) -> None:
    line = repr(tfperf.load(logdir_of(tmp_path, a=fetching(10), b=fetching(30))))
    assert line.endswith("input 30.0% on the host with the longest wait; 2 hosts>")


def test_a_report_names_its_sections() -> None:
    assert repr(Report({}, {}, (tfperf.Section("a", "A"), tfperf.Section("b", "B")))) == "<Report of 2 sections: a, b>"
