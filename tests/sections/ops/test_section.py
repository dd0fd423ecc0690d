from __future__ import annotations

from pathlib import Path

import pytest
from builders import Plane, event, gpu, host, results_of, rows_of, trace_of

from tfperf.analysis.load import assemble
from tfperf.analysis.registry import By, Results, View
from tfperf.base.patterns import Pattern
from tfperf.report.model import BarChart, FlameChart, Section
from tfperf.report.shown import Detail, shown
from tfperf.sections.ops import DEVICE_OP_PATTERNS, DEVICE_OPS, HOST_OP_PATTERNS, HOST_OPS, OP_LAYERS, OPS, TABLES
from tfperf.sections.ops.section import build
from tfperf.trace.host.activities import Attribution

KERNELS = gpu(
    event("volta_h884gemm", 0, 30, tf_op="m/a/MatMul:MatMul"),
    event("k", 40, 10, tf_op="gradient_tape/m/a/MatMul/MatMul:MatMul"),
    event("k", 50, 10, tf_op="m/b/Add:Add"),
)
CALLS = host(event("d/Cast:Cast", 0, 20), event("d/Mul:Mul", 80, 20))


def results_on(tmp_path: Path, *planes: Plane, attribution: Attribution = "corrected") -> Results:
    trace = trace_of(tmp_path, *planes, links=True, instants=True)
    return results_of(trace, sections=["ops"], attribution=attribution)


def example(tmp_path: Path) -> Results:
    """Three device ops and two host ops."""
    return results_on(tmp_path, KERNELS, CALLS)


def matching(results: Results, *patterns: str, by: By = "op") -> Results:
    return results.seen(View(by, tuple(Pattern(pattern, ignore_case=True) for pattern in patterns)))


def in_whole_report(results: Results, top: int | None = None) -> Section:
    """The section as a whole report shows it to people."""
    return shown(assemble(results, ["ops"]), Detail("brief", "brief", top=top)).sections[0]


def alone(results: Results, top: int | None = None) -> Section:
    """The section as `-s ops` shows it."""
    return shown(assemble(results, ["ops"]), Detail("full", "full", top=top)).sections[0]


def names(section: Section) -> list[str]:
    return [table.name for table in section.tables]


def titles(section: Section) -> list[str]:
    return [table.title for table in section.tables]


def columns(section: Section, table: int = 0) -> list[str]:
    return [column.key for column in section.tables[table].columns]


def cells(section: Section, table: str, *keys: str) -> list[tuple[object, ...]]:
    """The values of these columns in one table."""
    (wanted,) = [other for other in section.tables if other.name == table]
    return rows_of(wanted.data, *keys)


# --- for programs ---


def test_everything_is_there_for_files(tmp_path: Path) -> None:
    section = build(example(tmp_path))
    assert names(section) == ["device_ops", "host_ops", "op_types", "op_scopes", "op_layers"]
    assert cells(section, "device_ops", "rank", "op_name", "self_ms", "tensor_core_percent") == [
        (1, "m/a/MatMul", 0.03, 100),
        (2, "gradient_tape/m/a/MatMul/MatMul", 0.01, 0),
        (3, "m/b/Add", 0.01, 0),
    ]
    assert cells(section, "op_types", "side", "rank", "group", "self_percent") == [
        ("device", 1, "MatMul", 80),
        ("device", 2, "Add", 20),
        ("host", 1, "Cast", 50),
        ("host", 2, "Mul", 50),
    ]
    assert cells(section, "op_layers", "group", "forward_self_ms", "backward_self_ms")[:2] == [
        ("a", 0.03, 0.01),
        ("b", 0.01, 0),
    ]


def test_idle_is_said_and_of_what(tmp_path: Path) -> None:
    facts = {fact.key: (fact.value, fact.note) for fact in build(example(tmp_path)).facts}
    assert facts == {
        "device_op_time": (0.05, "3 ops, summed over streams and devices"),
        "device_idle": (50, "0.050 of 0.100 ms: the capture on 1 device"),
        "host_op_time": (0.04, "2 ops, summed over 1 thread"),
        "host_idle": (60, "0.060 of 0.100 ms: between the first and the last op of each thread"),
    }


def test_idle_as_tensorflow_counts_it_is_named_so(tmp_path: Path) -> None:
    facts = build(results_on(tmp_path, KERNELS, attribution="tensorflow")).facts
    assert facts[1].note == "0.010 of 0.060 ms: 1 device, first to last event, minus the sum of ops"


# --- for people ---


def test_a_whole_report_shows_the_device_ops(tmp_path: Path) -> None:
    section = in_whole_report(example(tmp_path))
    assert titles(section) == ["Device ops by self time"]
    assert columns(section) == ["rank", "self_percent", "cumulative_self_percent", "op_type", "op_name"]
    assert (section.facts, section.charts) == ((), ())
    assert section.notes[-1] == "More: -s ops, --by op, type, scope or layer."


def test_a_whole_report_shows_the_ten_host_ops_that_take_most_if_there_is_no_device(tmp_path: Path) -> None:
    results = results_on(tmp_path, host(*(event(f"o{n}:X", n, 1) for n in range(12))))
    (table,) = in_whole_report(results).tables
    assert (table.name, len(table), table.total_rows) == ("host_ops", 10, 12)


def test_the_section_alone_shows_both_sides_with_counts_and_times(tmp_path: Path) -> None:
    section = alone(example(tmp_path))
    assert titles(section) == ["Device ops by self time", "Host ops by self time"]
    counts = ["occurrences", "total_ms", "self_ms"]
    brief = ["rank", "self_percent", "cumulative_self_percent", "op_type", "op_name"]
    assert columns(section, 0) == [*brief, *counts, "tensor_core_percent"]
    assert columns(section, 1) == [*brief, *counts]
    assert len(section.facts) == 4
    assert len(section.notes) == 2
    assert any(note.startswith("For 3 of 3 device ops, the count is of kernels and copies") for note in section.notes)


def test_nothing_is_said_about_counts_of_runs(tmp_path: Path) -> None:
    thread = host(event("m/b/Add:Add", 0, 9), event("launch", 1, 1, correlation_id=1))
    kernels = gpu(event("k", 20, 5, tf_op="m/b/Add:Add", correlation_id=1))
    assert len(alone(results_on(tmp_path, kernels, thread)).notes) == 1
    of_kernels = results_on(tmp_path, KERNELS, host(event("x", 0, 9)), attribution="tensorflow")
    assert len(alone(of_kernels).notes) == 1


def test_the_hlo_op_takes_the_room_of_the_running_sum(tmp_path: Path) -> None:
    results = results_on(tmp_path, gpu(event("k", 0, 5, hlo_op="dot.1", tf_op="a/B:B")))
    assert columns(in_whole_report(results)) == ["rank", "self_percent", "op_type", "op_name", "hlo_op"]
    assert "hlo_op" in columns(alone(results))
    assert "cumulative_self_percent" not in columns(alone(results))


def test_types_and_ops_are_drawn_and_on_a_page_also_scopes_and_layers(tmp_path: Path) -> None:
    charts = alone(example(tmp_path)).charts
    assert charts[0] == BarChart("Device op time by type", "%", ("MatMul", "Add"), (80.0, 20.0), level="full")
    for shown_charts, groups in (
        (charts, ("type", "op")),
        (build(example(tmp_path)).charts, ("type", "op", "name scope", "layer")),
    ):
        assert [chart.title for chart in shown_charts if isinstance(chart, BarChart)] == [
            f"{side} op time by {group}" for side in ("Device", "Host") for group in groups
        ]


def test_scopes_are_a_tree_for_those_who_ask_for_them_and_on_a_page(tmp_path: Path) -> None:
    results = example(tmp_path)
    assert not [chart for chart in alone(results).charts if isinstance(chart, FlameChart)]
    for charts in (alone(results.seen(View("scope"))).charts, build(results).charts):
        device, host_chart = (chart for chart in charts if isinstance(chart, FlameChart))
        assert device.title == "Device op time by name scope, as a tree"
        assert host_chart.title == "Host op time by name scope, as a tree"
        for chart, table in ((device, results["ops"].device), (host_chart, results["ops"].host)):
            assert chart.widths[0] == pytest.approx(table.all_self_ps / 1e9)
            assert sum(chart.own) == pytest.approx(chart.widths[0])
    filtered = matching(results, "MatMul", by="scope")
    assert alone(filtered).charts == ()


def test_bars_of_ops_with_one_name_have_their_types(tmp_path: Path) -> None:
    chart = alone(results_on(tmp_path, host(event("s/x:Add", 0, 20), event("s/x:Mul", 20, 10)))).charts[1]
    assert isinstance(chart, BarChart)
    assert chart.labels == ("s/x (Add)", "s/x (Mul)")


def test_without_layers_there_is_no_chart_of_them(tmp_path: Path) -> None:
    charts = build(results_on(tmp_path, host(event("x:Add", 0, 20)))).charts
    assert "Host op time by type" in [chart.title for chart in charts]
    assert "Host op time by layer" not in [chart.title for chart in charts]


def test_of_many_types_the_rest_is_one_bar(tmp_path: Path) -> None:
    ops = (event(f"s/Op{chr(65 + n)}:Op{chr(65 + n)}", 10 * n, 10) for n in range(10))
    chart = alone(results_on(tmp_path, host(*ops))).charts[0]
    assert isinstance(chart, BarChart)
    assert (len(chart.labels), chart.labels[-1]) == (8, "3 others")
    assert chart.values[-1] == pytest.approx(30)


def test_a_cut_table_says_of_how_many(tmp_path: Path) -> None:
    table = alone(example(tmp_path), top=2).tables[0]
    assert (len(table), table.total_rows) == (2, 3)


# --- ops of replicas and repeated layers ---


def layers(tmp_path: Path) -> Results:
    """Three layers on a device, of which the first takes half; on the host, ops that do not repeat."""
    kernels = [event("k", 20 * n, 10 if n else 20, tf_op=f"m/layer_{n}/MatMul:MatMul") for n in range(3)]
    return results_on(tmp_path, gpu(*kernels), CALLS)


def test_ops_that_repeat_each_other_are_one_row(tmp_path: Path) -> None:
    for section in (in_whole_report(layers(tmp_path)), alone(layers(tmp_path))):
        table = section.tables[0]
        assert table.title == "Device ops by self time, one row per repeated layer"
        assert columns(section)[:6] == ["rank", "self_percent", "cumulative_self_percent", "ops", "op_type", "op_name"]
        assert cells(section, "device_op_patterns", "op_name", "ops", "self_percent") == [("m/layer_*/MatMul", 3, 100)]
        assert table.note.endswith("(--by op lists each op).")
    assert names(alone(layers(tmp_path))) == ["device_op_patterns", "host_ops"], "on the host, no op repeats"
    bars = alone(layers(tmp_path)).charts[1]
    assert isinstance(bars, BarChart)
    assert bars.labels == ("m/layer_*/MatMul",)


def test_by_op_shows_each(tmp_path: Path) -> None:
    section = alone(layers(tmp_path).seen(View("op")))
    assert names(section) == ["device_ops", "host_ops"]
    found = cells(section, "device_ops", "op_name", "self_percent")
    assert found == [("m/layer_0/MatMul", 50), ("m/layer_1/MatMul", 25), ("m/layer_2/MatMul", 25)]
    bars = section.charts[1]
    assert isinstance(bars, BarChart)
    assert len(bars.labels) == 3


@pytest.mark.parametrize("by", ["pattern", "op", "layer"])
def test_programs_get_single_ops_and_patterns_whatever_people_see(tmp_path: Path, by: By) -> None:
    section = build(layers(tmp_path).seen(View(by)))
    assert names(section)[:3] == ["device_op_patterns", "device_ops", "host_ops"]
    assert len(cells(section, "device_ops", "op_name")) == 3


def test_a_filter_chooses_ops_before_they_are_added_up(tmp_path: Path) -> None:
    section = in_whole_report(matching(layers(tmp_path), "layer_[12]", by="pattern"))
    assert cells(section, "device_op_patterns", "op_name", "ops", "self_percent") == [("m/layer_*/MatMul", 2, 50)]
    assert section.notes[0].startswith("Only ops with layer_[12] in their name, type or HLO op: 2 of 3 device ops")


# --- grouped, and filtered ---


def test_groups_replace_the_ops_of_each_side(tmp_path: Path) -> None:
    results = example(tmp_path).seen(View("layer"))
    for section in (in_whole_report(results), alone(results)):
        assert titles(section) == ["Ops by layer: device", "Ops by layer: host"]
        assert rows_of(section.tables[0].data, "group", "ops", "self_percent") == [("a", 2, 80), ("b", 1, 20)]
        assert columns(section)[-2:] == ["self_ms", "backward_self_ms"]
        assert "side" not in columns(section)
        assert not section.charts
        assert len(section.facts) == 4


def test_types_are_drawn_too(tmp_path: Path) -> None:
    section = alone(example(tmp_path).seen(View("type")))
    assert titles(section) == ["Ops by type: device", "Ops by type: host"]
    assert len(section.charts) == 4


def test_a_filter_keeps_ranks_and_shares_and_says_how_many_match(tmp_path: Path) -> None:
    results = matching(example(tmp_path), "/b/", "cast")
    section = build(results)
    assert cells(section, "device_ops", "rank", "op_name", "self_percent") == [(3, "m/b/Add", 20)]
    assert cells(section, "host_ops", "rank", "op_name", "self_percent") == [(1, "d/Cast", 50)]
    assert section.notes[0] == (
        "Only ops with /b/ or cast in their name, type or HLO op: 1 of 3 device ops and 1 of 2 host ops. "
        "Shares are of all ops."
    )
    assert not section.charts
    assert names(in_whole_report(results)) == ["device_ops", "host_ops"]


def test_a_filter_may_match_nothing(tmp_path: Path) -> None:
    section = build(matching(example(tmp_path), "nothing"))
    assert [len(table) for table in section.tables] == [0] * 5
    assert "0 of 3 device ops and 0 of 2 host ops" in section.notes[0]


def test_without_ops_a_sentence(tmp_path: Path) -> None:
    results = results_on(tmp_path, host(event("no op", 0, 9)))
    for section in (build(results), in_whole_report(results), alone(results)):
        assert (section.tables, section.notes) == ((), ("The profile has no ops.",))
    assert [table.data(results) for table in TABLES] == [None] * len(TABLES)


# --- tables ---


def test_ops_are_those_of_both_sides(tmp_path: Path) -> None:
    assert rows_of(OPS.data(example(tmp_path)), "side", "rank", "op_name")[2:] == [
        ("device", 3, "m/b/Add"),
        ("host", 1, "d/Cast"),
        ("host", 2, "d/Mul"),
    ]
    assert not OPS.in_report
    of_host = results_on(tmp_path, CALLS)
    assert (DEVICE_OPS.data(of_host) is None, HOST_OPS.data(of_host) is None) == (True, False)


def test_filters_hold_in_every_table(tmp_path: Path) -> None:
    results = matching(example(tmp_path), "Cast")
    for table, rows in ((DEVICE_OPS, 0), (HOST_OPS, 1), (OPS, 1), (OP_LAYERS, 1)):
        assert len(rows_of(table.data(results), "rank")) == rows


def test_patterns_are_there_only_if_ops_repeat(tmp_path: Path) -> None:
    calls = host(*(event(f"m/layer_{n}/MatMul:MatMul", 40 * n, 20) for n in range(2)))
    for spec, results in ((DEVICE_OP_PATTERNS, layers(tmp_path)), (HOST_OP_PATTERNS, results_on(tmp_path, calls))):
        assert spec.data(example(tmp_path)) is None
        found = rows_of(spec.data(results), "op_name", "ops")
        assert found == [("m/layer_*/MatMul", 2 if spec is HOST_OP_PATTERNS else 3)]
