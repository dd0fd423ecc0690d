"""The section about input says what the trace shows of it, and why the rest is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Line, Plane, event, host, known, line, marks, plane, ref, results_of, trace_of
from builders import gpu as stream
from msgspec.structs import replace
from sections.views import BY_NAME, WHOLE_REPORT, codes, names, seen

from tfperf.report.model import Section, StepChart
from tfperf.sections.input import INPUT_CLASSES, INPUT_HOSTS, INPUT_STEPS, TABLES, build


def section(tmp_path: Path, *hosts: list[Plane]) -> Section:
    """The section about a run of these hosts, a and b, as programs get it."""
    traces = [replace(trace_of(tmp_path, *planes), host=name) for name, planes in zip("ab", hosts, strict=False)]
    return build(results_of(*traces, sections=["input"]))


def job(wait: float, *more: Line, count: int = 4) -> Plane:
    """Steps of 100 us that wait for input, then compute."""
    fetches = [event("IteratorGetNextOp::DoCompute", 100 * step, wait + step) for step in range(count)]
    ops = [event("A:A", 100 * step + wait + step, 100 - wait - step) for step in range(count)]
    return plane("/host:CPU", line("python", *marks(count), *fetches, *ops), *more)


def reader(name: str = "a", start: float = 0) -> Line:
    """A thread that reads for 40 us and prepares for 160 us of a capture of 400 us."""
    return line(
        name,
        event("Iterator::Root::Map", start, 200),
        event("Iterator::Root::Map::TFRecord", start, 40),
        event("Iterator::Root", 399, 1),
    )


def gpu(copy: float) -> Plane:
    copies = [event("MemcpyH2D", 100 * step + 60, copy) for step in range(4)]
    return stream(*copies, *(event("gemm", 100 * step + 60 + copy, 40 - copy) for step in range(4)))


def data(section: Section, name: str) -> dict[str, list[Any]]:
    (table,) = (table for table in section.tables if table.name == name)
    return {key: list(values) for key, values in table.data.items()}


def test_each_step_has_its_wait(tmp_path: Path) -> None:
    result = section(tmp_path, [job(20, reader())])
    steps = data(result, "input_steps")
    assert steps["input_wait_ms"] == pytest.approx([0.020, 0.021, 0.022, 0.023])
    assert steps["input_percent"] == pytest.approx([20, 21, 22, 23])
    assert steps["host_to_device_ms"] == [None] * 4, "no device, so nobody knows"
    (chart,) = result.charts
    assert isinstance(chart, StepChart)
    assert list(chart.series) == ["Input wait", "Host to device", "Rest of the step"]
    assert [sum(values) for values in zip(*chart.series.values(), strict=True)] == pytest.approx([0.1] * 4)


def test_waiting_and_copying_stand_apart(tmp_path: Path) -> None:
    result = section(tmp_path, [job(20, reader()), gpu(copy=30)])
    facts = {fact.key: fact.value for fact in result.facts}
    assert facts["input_wait_per_step"] == pytest.approx(0.0215)
    assert facts["host_to_device_per_step"] == pytest.approx(0.030)
    assert codes(result) == ["input_high", "input_enqueue"], "less waiting would not help"


def test_what_the_host_works_at_is_named(tmp_path: Path) -> None:
    result = section(tmp_path, [job(20, reader())])
    assert codes(result) == ["input_high", "input_on_demand_read", "input_preprocessing"]
    assert [finding.text for finding in result.findings[1:]] == [
        "On-demand file read is active for 10.0% of the capture.",
        "Preprocessing is active for 40.2% of the capture.",
    ]
    assert {(finding.action, finding.causes) for finding in result.findings[1:]} == {
        ("", ("input_wait", "input_contention"))
    }, "the diagnosis says what to do"


def test_where_no_step_waits_nothing_is_named(tmp_path: Path) -> None:
    assert codes(section(tmp_path, [job(1, reader())])) == ["input_none"]


def test_hosts_stand_side_by_side(tmp_path: Path) -> None:
    result = section(tmp_path, [job(20, reader())], [job(1)])
    by_host = data(result, "input_hosts")
    assert by_host["host"] == ["a", "b"]
    assert by_host["input_percent"] == pytest.approx([21.5, 2.5])
    assert by_host["input_wait_percent"] == pytest.approx([21.5, 2.5])
    assert by_host["host_to_device_percent"] == [None, None], "no device, so nobody knows"
    assert by_host["input_class"] == ["high", "none"]
    assert by_host["part"] == ["Preprocessing", None]
    assert by_host["wall_percent"] == [pytest.approx(40.25), None]
    assert data(result, "input_classes")["wall_percent"][2] == pytest.approx(40.25 / 2)
    assert result.tables[0].title == "Input per step (average over hosts)"
    assert "on host a" in result.findings[0].text


# --- what is missing ---
def test_without_tf_data_a_sentence_says_so(tmp_path: Path) -> None:
    result = section(tmp_path, [host(*marks(4))])
    assert (result.tables, result.charts, result.facts, result.detail_notes) == ((), (), (), ())
    unknown, no_ops = result.notes
    assert unknown.startswith("Input per step is unknown, not 0")
    assert no_ops.startswith("The profile has no tf.data ops")


def test_a_host_that_shows_no_input_leaves_the_average_open(tmp_path: Path) -> None:
    result = section(tmp_path, [job(20, reader())], [host(*marks(4))])
    assert data(result, "input_hosts")["input_percent"] == [pytest.approx(21.5), None]
    assert result.notes[0].startswith("No mean over hosts: the traces of 1 of them")
    assert result.charts == ()


def test_without_host_threads_a_sentence_says_so(tmp_path: Path) -> None:
    result = section(tmp_path, [stream(event("gemm", 0, 10, tf_op=ref("d/MatMul:MatMul")))])
    assert result.notes[-1].startswith("Host input work is unknown: the profile has no host thread events")
    assert result.tables == ()


def test_without_steps_the_host_is_shown_and_the_rest_is_unknown(tmp_path: Path) -> None:
    result = section(tmp_path, [host(event("Iterator::Root::Map", 0, 10))])
    assert codes(result)[0] == "input_unknown"
    assert result.notes[0].startswith("Input per step is unknown: no step time was measured")
    assert names(result) == ["input_classes", "input_ops"]
    assert result.charts == ()


def test_in_a_whole_report_the_section_is_brief(tmp_path: Path) -> None:
    """The verdict and the steps have sections of their own there."""
    brief = seen(section(tmp_path, [job(20, reader())]), WHOLE_REPORT)
    assert (brief.findings, brief.charts) == ((), ())
    assert [fact.key for fact in brief.facts] == ["input_per_step", "input_wait_per_step", "largest_part"]
    (classes,) = brief.tables
    assert classes.data["part"] == ["On-demand file read", "Preprocessing"], "without classes that have no ops"
    assert "scaled_ms" not in [column.key for column in classes.columns], "nothing was scaled"
    assert brief.notes == ("More: -s input.",)


def test_by_name_people_see_all_but_the_table_of_steps(tmp_path: Path) -> None:
    """The chart shows the steps."""
    whole = section(tmp_path, [job(20, reader())])
    full = seen(whole)
    assert codes(full) == ["input_high", "input_on_demand_read", "input_preprocessing"]
    assert len(full.charts) == 1
    assert names(full) == ["input_statistics", "input_classes", "input_ops"]
    columns = " ".join(column.key for column in full.tables[0].columns)
    assert columns == "statistic step_time_ms input_ms input_wait_ms input_percent", "no copies without a device"
    assert len(full.notes) == 2
    assert [len(table) for table in seen(whole, replace(BY_NAME, top=2)).tables] == [6, 2, 2]


def test_a_class_without_ops_has_no_times(tmp_path: Path) -> None:
    """Its work may merely not be recorded."""
    results = results_of(trace_of(tmp_path, host(event("Iterator::Root::Map", 0, 10))), sections=["input"])
    data = known(INPUT_CLASSES.data(results))
    assert list(data["ops"]) == [0, 0, 1, 0, 0]
    assert list(data["wall_percent"]) == [None, None, 100, None, None]
    assert list(data["scaled_ms"]) == [None, None, 0.01, None, None]


def test_what_a_profile_does_not_show_has_no_table(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(event("train", 0, 10))), sections=["input"])
    assert [table.data(results) for table in TABLES] == [None] * len(TABLES)


def test_hosts_are_compared_where_there_are_several(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(*marks(4)))
    assert INPUT_HOSTS.data(results_of(trace, sections=["input"])) is None
    both = results_of(trace, trace, sections=["input"])
    assert list(known(INPUT_HOSTS.data(both))["input_percent"]) == [None, None]
    assert INPUT_STEPS.data(both) is None, "no step shows its input"
