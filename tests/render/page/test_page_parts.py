"""What the templates are given: ids, bars of tables, first rows."""

from __future__ import annotations

from typing import Any

from tfperf.render.page.page_parts import page_parts
from tfperf.report.model import BarChart, Column, Section, Sparkline, Table

COLUMNS = (Column("name", "Name", str), Column("self_ms", "Self", float, "ms"))
LINE = Sparkline(title="Memory", times=(0.0, 1.0), values=(1.0, 2.0), low=0.0, high=2.0)
BARS = BarChart("Types", "%", ("a", "b"), (60.0, 40.0))


def ops(count: int) -> Table:
    data: dict[str, list[Any]] = {"name": [f"op{row}" for row in range(count)], "self_ms": list(range(1, count + 1))}
    return Table("ops", "Ops", COLUMNS, data, 99, bar_key="self_ms")


def test_ids_count_through_the_page() -> None:
    sections = Section("a", "A", charts=(LINE,), tables=(ops(2), ops(2))), Section("b", "B", tables=(ops(3),))
    first, second = page_parts(sections)
    assert [chart.id for chart in first.all_charts()] == ["chart-0", "chart-1", "chart-2"]
    assert [table.id for table in first.tables] == ["table-0", "table-1"]
    assert (second.id, second.tables[0].id) == ("section-1", "table-2")
    assert [chart.id for chart in second.all_charts()] == ["chart-3"]


def test_a_section_with_bars_draws_none_for_its_tables() -> None:
    (section,) = page_parts([Section("a", "A", charts=(BARS,), tables=(ops(2),))])
    assert [chart.title for chart in section.all_charts()] == ["Types"]


def test_bars_have_their_numbers_beside_them() -> None:
    (section,) = page_parts([Section("a", "A", charts=(LINE, BARS))])
    assert [chart.has_numbers for chart in section.charts] == [False, True]


def test_a_table_has_its_first_rows_and_says_how_many_there_are() -> None:
    (section,) = page_parts([Section("a", "A", tables=(ops(12),))])
    assert [row[0] for row in section.tables[0].first_rows.rows] == [f"op{row}" for row in range(10)]
    assert section.tables[0].cut_note == "showing 12 of 99; --top 99 shows all"
