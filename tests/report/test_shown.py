"""What a reader is shown: rows of ranked tables, the worst of many hosts and percentiles, and whole tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import event, host, logdir_of, space
from jax_builders import three_steps
from msgspec.structs import replace
from real_runs import analysis_of
from sections.hosts.jobs import host_of_job
from synthetic_gpu import synthetic_gpu
from synthetic_tpu import core_with_work, offload_tpu
from tpu_twin import tpu_twin

from tfperf.analysis.registry import TableSpec, all_tables
from tfperf.report.model import Column, Ranked, Report, Section, Table, table_of
from tfperf.report.shown import EVERYTHING, MOST_EACH, Detail, shown, sorted_by

LATE = [20_000.0] * 4
BRIEF, ALONE = Detail("brief", "brief"), Detail("full", "full")
PAGE = Detail("data", "data", for_people=False)
COLUMNS = (
    Column("host", "Host", str),
    Column("step_ms", "Step", float, "ms"),
    Column("steps", "Steps", int, "count"),
    Column("kind", "Kind", str),
)


def hosts(*step_ms: float | None, ranked: Ranked | None = None, **attributes: Any) -> Table:
    """A table with a row for each host, in the order of their numbers."""
    count = len(step_ms)
    data: dict[str, Any] = {
        "host": [f"w{number}" for number in range(count)],
        "step_ms": list(step_ms),
        "steps": list(range(count)),
        "kind": ["H2D", "D2H"] * (count // 2) + ["H2D"] * (count % 2),
    }
    return table_of("t", "By host", COLUMNS, data, ranked=ranked or Ranked("step_ms", each="hosts"), **attributes)


def seen(table: Table, detail: Detail = BRIEF) -> tuple[Table, ...]:
    return shown(Report({}, {}, (Section("s", "S", tables=(table,)),)), detail).sections[0].tables


def rows(table: Table, *keys: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table.data[key] for key in keys), strict=True))


# --- hosts and devices ---


def test_five_hosts_are_all_shown_in_their_order() -> None:
    (table,) = seen(hosts(1, 5, 2, 4, 3))
    assert table.data["host"] == ["w0", "w1", "w2", "w3", "w4"]


@pytest.mark.parametrize("detail", [BRIEF, ALONE, PAGE])
def test_of_ten_hosts_the_worst_five_and_percentiles(detail: Detail) -> None:
    """Nearest rank: half of 10 hosts take 5 ms or less, nine of them 9 or less."""
    worst, percentiles = seen(hosts(3, 8, 1, 10, 5, 2, 9, 7, 4, 6), detail)
    assert rows(worst, "host", "step_ms") == [("w3", 10), ("w6", 9), ("w1", 8), ("w7", 7), ("w9", 6)]
    assert (len(worst), worst.total_rows) == (5, 10)
    assert percentiles.title == "By host: percentiles of all hosts"
    assert [column.key for column in percentiles.columns] == ["percentile", "step_ms", "steps"]
    expected = [("p50 of 10", 5, 4), ("p90 of 10", 9, 8), ("max of 10", 10, 9)]
    assert rows(percentiles, "percentile", "step_ms", "steps") == expected
    assert percentiles.note == "Each column separately."


def test_where_the_least_is_worst_so_are_the_percentiles() -> None:
    worst, percentiles = seen(hosts(*range(20), ranked=Ranked("step_ms", each="hosts", least_is_worst=True)))
    assert worst.data["step_ms"] == [0, 1, 2, 3, 4]
    assert rows(percentiles, "percentile", "step_ms") == [("p50 of 20", 9), ("p10 of 20", 1), ("min of 20", 0)]


def test_who_asks_for_more_hosts_gets_them_and_nobody_gets_fewer() -> None:
    table = hosts(*range(10))
    assert [len(seen(table, replace(BRIEF, top=top))[0]) for top in (1, 7, 99)] == [5, 7, 10]


def test_programs_get_every_host() -> None:
    table = hosts(*range(10))
    assert seen(table, replace(EVERYTHING, top=3)) == (table,)


def test_a_host_whose_rank_is_unknown_ranks_as_0_and_counts_in_no_percentile() -> None:
    worst, percentiles = seen(hosts(None, None, 1, 2, 3, 4, 5, None))
    assert worst.data["step_ms"] == [5, 4, 3, 2, 1]
    assert rows(percentiles, "percentile", "step_ms") == [("p50 of 5", 3), ("p90 of 5", 5), ("max of 5", 5)]
    assert percentiles.note == "Each column separately. Omitted because their rank is unknown: 3."
    least, _ = seen(hosts(None, None, 1, 2, 3, 4, 5, ranked=Ranked("step_ms", each="hosts", least_is_worst=True)))
    assert least.data["step_ms"] == [None, None, 1, 2, 3]


def test_a_column_with_an_unknown_value_has_no_percentiles() -> None:
    table = hosts(None, *range(9), ranked=Ranked("steps", each="hosts"))
    _, percentiles = seen(table)
    assert rows(percentiles, "step_ms", "steps") == [(None, 4), (None, 8), (None, 9)]


def test_where_all_ranks_are_unknown_other_columns_have_percentiles() -> None:
    worst, percentiles = seen(hosts(*[None] * 8))
    assert worst.data["host"] == ["w0", "w1", "w2", "w3", "w4"]
    assert rows(percentiles, "percentile", "step_ms", "steps")[0] == ("p50 of 8", None, 3)
    assert percentiles.note == "Each column separately."


def test_kinds_of_rows_have_percentiles_of_their_own() -> None:
    """Even numbers are H2D, odd ones D2H; those of H2D come first."""
    worst, percentiles = seen(hosts(*range(12), ranked=Ranked("step_ms", each="hosts", apart="kind")))
    assert rows(worst, "kind", "step_ms") == [("H2D", 10), ("H2D", 8), ("H2D", 6), ("H2D", 4), ("H2D", 2)]
    assert rows(percentiles, "group", "percentile", "step_ms") == [
        ("H2D", "p50 of 6", 4),
        ("H2D", "p90 of 6", 10),
        ("H2D", "max of 6", 10),
        ("D2H", "p50 of 6", 5),
        ("D2H", "p90 of 6", 11),
        ("D2H", "max of 6", 11),
    ]
    (few,) = seen(hosts(*range(10), ranked=Ranked("step_ms", each="hosts", apart="kind")))
    assert len(few) == 10, "five hosts, with two rows each"


def test_a_table_without_rows_is_as_it_is() -> None:
    for apart in ("", "kind"):
        (table,) = seen(hosts(ranked=Ranked("step_ms", each="hosts", apart=apart)))
        assert len(table) == 0


# --- ranked tables ---


def test_the_first_rows_of_a_ranked_table() -> None:
    (table,) = seen(hosts(*range(30, 0, -1), ranked=Ranked("step_ms", top=20)))
    assert (len(table), table.total_rows, table.data["step_ms"][-1]) == (20, 30, 11)
    assert [len(seen(table, replace(detail, top=3))[0]) for detail in (BRIEF, ALONE, PAGE, EVERYTHING)] == [3] * 4
    assert len(seen(table, EVERYTHING)[0]) == 20


def test_parts_that_are_ranked_by_themselves_are_cut_by_themselves() -> None:
    """Even rows are H2D, odd ones D2H: two of each stay, for programs too."""
    for detail in (BRIEF, EVERYTHING):
        table = hosts(*range(30, 0, -1), ranked=Ranked("step_ms", apart="kind"))
        (cut,) = seen(table, replace(detail, top=2))
        assert (cut.data["step_ms"], cut.total_rows) == ([30, 28, 29, 27], 30)


# --- lists over time ---


def test_a_whole_report_has_the_first_rows_of_a_list_and_the_section_all() -> None:
    table = replace(hosts(*range(30)), ranked=None, brief_rows=10)
    (brief,), (alone,), (data,) = (seen(table, replace(detail, top=3)) for detail in (BRIEF, ALONE, EVERYTHING))
    assert (len(brief), brief.total_rows, brief.all_rows_in) == (10, 30, "-s s")
    assert len(alone) == len(data) == 30


# --- every table that is registered ---


def made(spec: TableSpec, count: int = 40) -> Table:
    """A table of this declaration: numbers fall from row to row, texts differ."""
    fill = {int: range(count, 0, -1), float: [float(n) for n in range(count, 0, -1)], bool: [True] * count}
    texts = [f"t{n}" for n in range(count)]
    data: dict[str, Any] = {column.key: fill.get(column.dtype, texts) for column in spec.columns}
    if spec.ranked is not None and spec.ranked.apart:
        data[spec.ranked.apart] = ["one kind"] * count
    columns = tuple(replace(column, level="brief") for column in spec.columns)
    return table_of(spec.name, spec.title, columns, data, ranked=spec.ranked, brief_rows=spec.brief_rows)


@pytest.mark.parametrize("spec", all_tables(), ids=lambda spec: str(spec.name))
def test_people_cut_only_ranked_tables(spec: TableSpec) -> None:
    ranked, table = spec.ranked, made(spec)
    for detail in (BRIEF, ALONE, PAGE):
        cut = seen(table, replace(detail, top=3))[0]
        if ranked is None:
            assert len(cut) == len(seen(table, detail)[0])
        elif ranked.each:
            assert len(cut) == MOST_EACH
        else:
            assert len(cut) == 3
    assert len(seen(table, ALONE)[0]) == (40 if ranked is None else MOST_EACH if ranked.each else ranked.top)
    if ranked is not None:
        by = next(column for column in spec.columns if column.key == ranked.by)
        assert by.dtype in (int, float)
        assert not ranked.apart or ranked.apart in {column.key for column in spec.columns}


def test_a_row_for_each_host_or_device_is_declared_so() -> None:
    """A table that names the host of each row, or the device, is about each of them, unless its rows are ranked."""
    about = {spec.name for spec in all_tables() if spec.name_key in ("host", "device") and spec.in_report}
    about.discard("stragglers")  # a row for each step
    declared = {spec.name for spec in all_tables() if spec.ranked is not None and spec.ranked.each}
    assert not about - declared, "declare `ranked=Ranked(COLUMN, each=...)` for these tables"


def test_ranked_tables_are_in_that_order(tmp_path: Path, samples: Path) -> None:
    """Of the samples, of two GPUs, of Python and of XLA: each table, or each part that is ranked by itself."""
    logdir = logdir_of(tmp_path / "gpus", synthetic=synthetic_gpu())
    sleeps = host(event("$train.py:9 load", 0, 9), event("$time sleep", 1, 5), event("$hash.py:1 f", 20, 3))
    python = logdir_of(tmp_path / "python", synthetic=space(sleeps))
    xla = [logdir_of(tmp_path / "jax", a=three_steps()), logdir_of(tmp_path / "tpu", a=space(core_with_work()))]
    xla += [logdir_of(tmp_path / "offload", a=offload_tpu()), logdir_of(tmp_path / "twin", a=tpu_twin())]
    late = logdir_of(tmp_path / "late", a=host_of_job([0] * 4, LATE), b=host_of_job(LATE, LATE))
    found = set()
    for path in (logdir, python, late, *xla, *(path for path in samples.iterdir() if (path / "plugins").exists())):
        for table in shown(analysis_of(path).report(), replace(ALONE, parts="data", top=10**9)).tables():
            ranked = table.ranked
            if ranked is None or ranked.each:
                continue
            found.add(table.name)
            parts = table.data[ranked.apart] if ranked.apart else [""] * len(table)
            for part in set(parts):
                values = zip(table.data[ranked.by], parts, strict=True)
                ranks = [value or 0 for value, other in values if other == part]
                assert ranks == sorted(ranks, reverse=True), table.name
    declared = {spec.name for spec in all_tables() if spec.ranked and not spec.ranked.each and spec.in_report}
    assert declared - found == {"host_op_patterns"}, "in these profiles, no op repeats"


def test_an_answer_says_where_the_rest_is_unless_that_follows() -> None:
    lead, other = Section("a", "A", pointer="More: --full", is_lead=True), Section("b", "B", pointer="More: -s b")
    report = Report({}, {}, (lead, other))
    answer, whole = shown(report, Detail("brief", "brief", only_leads=True)), shown(report, BRIEF)
    assert [section.notes for section in answer.sections] == [("More: --full",)]
    assert [section.notes for section in whole.sections] == [(), ("More: -s b",)]


def test_a_column_sorts_tables_with_unknown_values_last() -> None:
    columns = (Column("name", "Name", str), Column("ms", "Time", float, "ms", level="data"))
    table = Table("t", "T", columns, {"name": ["b", "c", "a"], "ms": [1.0, None, 3.0]}, 7)
    by_time, by_name = sorted_by(table, "ms"), sorted_by(table, "name")
    assert (by_time.data["name"], by_time.total_rows) == (["a", "b", "c"], 7)
    assert [column.level for column in by_time.columns] == ["brief", "brief"]
    assert by_name.data["ms"] == [3.0, 1.0, None]
    assert sorted_by(table, "other") is table


def test_rows_for_people_and_their_note_are_for_people_only() -> None:
    table = Table(
        "t", "T", (Column("host", "Host", str),), {"host": ["a", "b"]}, 2,
        note="N.", rows_for_people=(1,), note_for_people="Only b.",
    )  # fmt: skip
    report = Report({}, {}, (Section("s", "S", tables=(table,)),))
    (of_people,) = shown(report, ALONE).sections[0].tables
    assert (list(of_people.data["host"]), of_people.note) == (["b"], "N. Only b.")
    (of_programs,) = shown(report, PAGE).sections[0].tables
    assert (list(of_programs.data["host"]), of_programs.note) == (["a", "b"], "N.")
    assert (table.head(1).rows_for_people, table.only([1]).rows_for_people) == ((), None)
