from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders import Plane, event, host, line, plane, trace_of

from tfperf.analyzers import ops
from tfperf.sections.ops.analysis import Ops
from tfperf.render.csv_file import csv_files
from tfperf.render.render_options import RenderOptions
from tfperf.render.terminal import render_terminal
from tfperf.report.model import BarChart, Report, Section
from tfperf.sections.ops.section import brief_ops_section, ops_section
from tfperf.reports.profile import View


def gpu() -> Plane:
    return plane("/device:GPU:0", line(
        "Stream #1", event("volta_h884gemm", 0, 30, tf_op="m/a/MatMul:MatMul"),
        event("k", 40, 10, tf_op="gradient_tape/m/a/MatMul/MatMul:MatMul"),
        event("k", 50, 10, tf_op="m/b/Add:Add"), id=1,
    ))  # fmt: skip


def found_in(tmp_path: Path) -> Ops:
    return ops.analyze(trace_of(tmp_path, gpu(), host(event("d/Cast:Cast", 0, 20), event("d/Mul:Mul", 80, 20))))


def cells(section: Section, table: str, *keys: str) -> list[tuple[object, ...]]:
    """The values of these columns in one table."""
    (wanted,) = [own for own in section.tables if own.name == table]
    return list(zip(*(wanted.data[key] for key in keys), strict=True))


def test_everything_is_there_for_files(tmp_path: Path) -> None:
    section = ops_section(found_in(tmp_path))
    assert [table.name for table in section.tables] == [
        "device_ops", "host_ops", "op_types", "op_scopes", "op_layers",
    ]  # fmt: skip
    assert cells(section, "device_ops", "rank", "op_name", "self_ms", "tensor_core_percent") == [
        (1, "m/a/MatMul", 0.03, 100), (2, "gradient_tape/m/a/MatMul/MatMul", 0.01, 0), (3, "m/b/Add", 0.01, 0),
    ]  # fmt: skip
    assert cells(section, "op_types", "side", "rank", "group", "self_percent") == [
        ("device", 1, "MatMul", 80), ("device", 2, "Add", 20), ("host", 1, "Cast", 50), ("host", 2, "Mul", 50),
    ]  # fmt: skip
    assert cells(section, "op_layers", "group", "forward_self_ms", "backward_self_ms")[:2] == [
        ("a", 0.03, 0.01), ("b", 0.01, 0),
    ]  # fmt: skip
    assert not section.charts


def test_idle_is_said_and_of_what(tmp_path: Path) -> None:
    facts = {fact.key: (fact.value, fact.note) for fact in ops_section(found_in(tmp_path), View(10)).facts}
    assert facts == {
        "device_op_time": (0.05, "3 ops, summed over streams and devices"),
        "device_idle": (50, "0.050 of 0.100 ms: 1 device without kernels and copies"),
        "host_op_time": (0.04, "2 ops, summed over 1 thread"),
        "host_idle": (60, "0.060 of 0.100 ms: between the first and the last op of each thread"),
    }


def test_four_distributions(tmp_path: Path) -> None:
    charts: tuple[object, ...] = ops_section(found_in(tmp_path), View(10)).charts
    assert charts[0] == BarChart("Device op time by type", "%", ("MatMul", "Add"), (80.0, 20.0))
    assert [chart.title for chart in charts if isinstance(chart, BarChart)] == [
        "Device op time by type", "Device op time by op", "Host op time by type", "Host op time by op",
    ]  # fmt: skip


def test_of_many_types_the_rest_is_one_bar(tmp_path: Path) -> None:
    made = host(*(event(f"s/Op{chr(65 + at)}:Op{chr(65 + at)}", 10 * at, 10) for at in range(10)))
    chart = ops_section(ops.analyze(trace_of(tmp_path, made)), View(10)).charts[0]
    assert isinstance(chart, BarChart)
    assert (len(chart.labels), chart.labels[-1]) == (8, "3 others")
    assert chart.values[-1] == pytest.approx(30)


def test_a_cut_table_says_of_how_many(tmp_path: Path) -> None:
    table = ops_section(found_in(tmp_path), View(2)).tables[0]
    assert (len(table), table.total_rows) == (2, 3)


def test_groups_replace_the_ops(tmp_path: Path) -> None:
    section = ops_section(found_in(tmp_path), View(10, "layer"))
    assert [table.name for table in section.tables] == ["device_op_layers", "host_op_layers"]
    assert cells(section, "device_op_layers", "group", "ops", "self_percent") == [("a", 2, 80), ("b", 1, 20)]
    assert not section.charts


def test_a_filter_keeps_ranks_and_shares_and_says_how_many_match(tmp_path: Path) -> None:
    section = ops_section(found_in(tmp_path), View(10, filters=(re.compile("/b/"), re.compile("cast", re.IGNORECASE))))
    assert cells(section, "device_ops", "rank", "op_name", "self_percent") == [(3, "m/b/Add", 20)]
    assert cells(section, "host_ops", "rank", "op_name", "self_percent") == [(1, "d/Cast", 50)]
    assert section.notes[0] == (
        "Only what /b/ or cast is found in, in name, type or HLO op: 1 of 3 device ops and 1 of 2 host ops. "
        "Shares stay of all ops."
    )


def test_a_filter_may_match_nothing(tmp_path: Path) -> None:
    section = ops_section(found_in(tmp_path), View(filters=(re.compile("nothing"),)))
    assert [len(table) for table in section.tables] == [0] * 5
    assert "0 of 3 device ops and 0 of 2 host ops" in section.notes[0]


def test_the_whole_report_has_the_ten_that_take_most(tmp_path: Path) -> None:
    section = brief_ops_section(found_in(tmp_path), 10)
    assert [table.name for table in section.tables] == ["device_ops"]
    twelve = host(*(event(f"o{n}:X", n, 1) for n in range(12)))
    only_host = brief_ops_section(ops.analyze(trace_of(tmp_path, twelve)), 10)
    assert [(table.name, len(table), table.total_rows) for table in only_host.tables] == [("host_ops", 10, 12)]


def test_without_ops_a_sentence(tmp_path: Path) -> None:
    nothing = ops.analyze(trace_of(tmp_path, host(event("no op", 0, 9))))
    for section in (ops_section(nothing, View(10)), ops_section(nothing), brief_ops_section(nothing, 10)):
        assert (section.tables, section.notes) == ((), ("The trace holds no ops.",))


def test_idle_as_tensorflow_counts_it_is_named_so(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, gpu(), links=True, instants=True)
    facts = ops_section(ops.analyze(trace, "tensorflow"), View(10), attribution="tensorflow").facts
    assert facts[1].note == "0.010 of 0.060 ms: 1 device, first to last event, less the sum of ops"


def test_it_fits_80_columns_and_goes_to_csv(tmp_path: Path) -> None:
    long = "model/" + "a_rather_long_scope/" * 20 + "Op"
    made = plane("/device:GPU:0", line(
        "Stream #1", event("k\x1b" * 50, 0, 30, tf_op=f"{long}:Op", hlo_op="fusion." + "1" * 300), id=1,
    ))  # fmt: skip
    found = ops.analyze(trace_of(tmp_path, made, host(event("x", 0, 50))))
    for section in (
        ops_section(found, View(10, "layer")), ops_section(found, View(10, "scope")), brief_ops_section(found, 10),
        ops_section(found),
    ):  # fmt: skip
        report = Report({}, {}, (section,))
        shown = render_terminal(report, RenderOptions(80, interactive=True))
        assert max(map(len, shown.splitlines())) <= 80
    assert f",{long}," in csv_files(report)["device_ops.csv"]


def test_a_page_shows_the_groups_of_each_side_apart(tmp_path: Path) -> None:
    names = [table.name for table in ops_section(found_in(tmp_path), View(page=True)).tables]
    assert names[2:] == [f"{side}_op_{by}s" for side in ("device", "host") for by in ("type", "scope", "layer")]
