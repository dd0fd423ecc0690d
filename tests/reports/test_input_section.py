"""The section about input says what the trace shows of it, and why the rest is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Line, Plane, event, host, line, logdir_of, plane, ref, space

import tfperf
from tfperf.report.model import Section, StepChart


def section(tmp_path: Path, *hosts: list[Plane], top: int | None = None, alone: bool = True) -> Section:
    written = {name: space(*planes) for name, planes in zip("ab", hosts, strict=False)}
    report = tfperf.load(logdir_of(tmp_path, **written)).report(["input"] if alone else [], top)
    return next(found for found in report.sections if found.name == "input")


def job(wait: float, *more: Line, count: int = 4) -> Plane:
    """Steps of 100 us that wait for input, then compute."""
    events = [e for n in range(count) for e in (event("train", 100 * n, 100, step_num=n),
              event("IteratorGetNextOp::DoCompute", 100 * n, wait + n),
              event("A:A", 100 * n + wait + n, 100 - wait - n))]  # fmt: skip
    return plane("/host:CPU", line("python", *events), *more)


def reader(name: str = "a", begin: float = 0) -> Line:
    """A thread that reads for 40 us and prepares for 160 us of a capture of 400 us."""
    return line(
        name, event("Iterator::Root::Map", begin, 200), event("Iterator::Root::Map::TFRecord", begin, 40),
        event("Iterator::Root", 399, 1),
    )  # fmt: skip


def gpu(copy: float) -> Plane:
    copies = [event("MemcpyH2D", 100 * n + 60, copy) for n in range(4)]
    kernels = [event("gemm", 100 * n + 60 + copy, 40 - copy) for n in range(4)]
    return plane("/device:GPU:0", line("Stream #1", *copies, *kernels))


def data(found: Section, name: str) -> dict[str, list[Any]]:
    return {key: list(values) for key, values in next(t for t in found.tables if t.name == name).data.items()}


def codes(found: Section) -> list[str]:
    return [finding.code for finding in found.findings]


def test_each_step_has_its_wait(tmp_path: Path) -> None:
    found = section(tmp_path, [job(20, reader())])
    steps = data(found, "input_steps")
    assert steps["input_wait_ms"] == pytest.approx([0.020, 0.021, 0.022, 0.023])
    assert steps["input_percent"] == pytest.approx([20, 21, 22, 23])
    assert steps["host_to_device_ms"] == [None] * 4  # no device, so nobody knows
    (chart,) = found.charts
    assert isinstance(chart, StepChart)
    assert list(chart.series) == ["Input wait", "Host to device", "Rest of the step"]
    assert [sum(values) for values in zip(*chart.series.values(), strict=True)] == pytest.approx([0.1] * 4)


def test_statistics_are_over_steps(tmp_path: Path) -> None:
    found = data(section(tmp_path, [job(20, reader())]), "input_statistics")
    assert found["statistic"] == [
        "Average", "Standard deviation", "Minimum", "Maximum", "Median", "95th percentile",
    ]  # fmt: skip
    assert found["input_ms"] == pytest.approx([0.0215, 0.00129099, 0.020, 0.023, 0.0215, 0.02285], rel=1e-4)
    assert found["input_percent"][0] == pytest.approx(21.5)


def test_waiting_and_handing_over_stand_apart(tmp_path: Path) -> None:
    found = section(tmp_path, [job(20, reader()), gpu(copy=30)])
    facts = {fact.key: fact.value for fact in found.facts}
    assert facts["input_wait_per_step"] == pytest.approx(0.0215)
    assert facts["host_to_device_per_step"] == pytest.approx(0.030)
    assert codes(found) == ["input_high", "input_enqueue"]  # less waiting would not help


def test_classes_have_sums_and_wall_time(tmp_path: Path) -> None:
    found = section(tmp_path, [job(20, reader(), reader("b", begin=100))])
    classes = data(found, "input_classes")
    assert classes["part"] == [
        "On-demand file read", "Advanced file read", "Preprocessing", "Enqueue to device", "Other",
    ]  # fmt: skip
    assert classes["self_ms"] == [pytest.approx(0.08), None, pytest.approx(0.322), None, None]
    assert classes["wall_percent"] == [pytest.approx(20), None, pytest.approx(65.25), None, None]
    assert next(t for t in found.tables if t.name == "input_classes").note.startswith(
        "Self is summed over threads (up to 2 ran the same op)"
    )


def test_there_is_advice_for_what_takes_time(tmp_path: Path) -> None:
    found = section(tmp_path, [job(20, reader())])
    assert codes(found) == ["input_high", "input_on_demand_read", "input_preprocessing"]
    assert [finding.text for finding in found.findings[1:]] == [
        "On-demand file read: 19.9% of the self time of input ops.",
        "Preprocessing: 80.1% of the self time of input ops.",
    ]


def test_who_does_not_wait_gets_no_advice(tmp_path: Path) -> None:
    assert codes(section(tmp_path, [job(1, reader())])) == ["input_none"]


def test_hosts_stand_side_by_side(tmp_path: Path) -> None:
    found = section(tmp_path, [job(20, reader())], [job(1)])
    by_host = data(found, "input_hosts")
    assert by_host["host"] == ["a", "b"]
    assert by_host["input_percent"] == pytest.approx([21.5, 2.5])
    assert by_host["part"] == ["Preprocessing", None]
    assert by_host["wall_percent"] == [pytest.approx(40.25), None]
    assert data(found, "input_classes")["wall_percent"][2] == pytest.approx(40.25 / 2)
    assert "on host a" in found.findings[0].text


# --- what is missing ---


def test_without_tf_data_a_sentence_says_so(tmp_path: Path) -> None:
    found = section(tmp_path, [host(*(event("train", 10 * n, 10, step_num=n) for n in range(4)))])
    assert (found.tables, found.charts, found.facts) == ((), (), ())
    unknown, no_ops = found.notes
    assert unknown.startswith("Input per step is unknown, not 0")
    assert no_ops.startswith("The trace holds no op of tf.data.")


def test_a_host_that_shows_no_input_leaves_the_average_open(tmp_path: Path) -> None:
    marked = host(*(event("train", 100 * n, 100, step_num=n) for n in range(4)))
    found = section(tmp_path, [job(20, reader())], [marked])
    assert data(found, "input_hosts")["input_percent"] == [pytest.approx(21.5), None]
    assert found.notes[0].startswith("There is no average over hosts: the traces of 1 of them")
    assert found.charts == ()


def test_without_host_threads_a_sentence_says_so(tmp_path: Path) -> None:
    kernels = line("Stream #1", event("gemm", 0, 10, tf_op=ref("d/MatMul:MatMul")))
    found = section(tmp_path, [plane("/device:GPU:0", kernels)])
    assert found.notes[-1].startswith("What the host does for input is not in the trace")
    assert found.tables == ()


def test_without_steps_the_host_is_shown_and_the_rest_is_unknown(tmp_path: Path) -> None:
    found = section(tmp_path, [host(event("Iterator::Root::Map", 0, 10))])
    assert codes(found)[0] == "input_unknown"
    assert [table.name for table in found.tables] == ["input_classes", "input_ops"]
    assert found.charts == ()


# --- in a whole report ---


def test_for_people_a_whole_report_has_a_brief_section(tmp_path: Path) -> None:
    found = section(tmp_path, [job(20, reader())], top=10, alone=False)
    assert (found.findings, found.charts) == ((), ())
    (classes,) = found.tables
    assert classes.data["part"] == ["On-demand file read", "Preprocessing"]
    assert found.notes == ("More: -s input.",)


def test_a_whole_report_for_programs_has_all_tables(tmp_path: Path) -> None:
    found = section(tmp_path, [job(20, reader())], alone=False)
    assert [table.name for table in found.tables] == [
        "input_statistics", "input_steps", "input_classes", "input_ops",
    ]  # fmt: skip


def test_top_cuts_the_ops_and_leaves_steps_to_the_chart(tmp_path: Path) -> None:
    found = section(tmp_path, [job(20, reader())], top=2)
    assert [(table.name, len(table)) for table in found.tables][-1] == ("input_ops", 2)
    assert "input_steps" not in [table.name for table in found.tables]
