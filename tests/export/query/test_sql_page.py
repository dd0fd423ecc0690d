"""docs/sql.md: its list of tables is generated from their declarations, and its queries are run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import event, host, line, logdir_of, plane, space
from export.query.asking import ask
from places import ROOT

from tfperf.analysis.registry import all_tables
from tfperf.export.query.sources import source_of
from tfperf.export.query.sql_tables import RECORDED, SqlColumn, SqlTable, analyzed_tables, every_table

PAGE = ROOT / "docs" / "sql.md"
QUERIES = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
_TABLES = re.compile(r"(?<=<!-- sql tables -->\n).*(?=<!-- end sql tables -->)", re.DOTALL)


def table_list() -> str:
    """One heading for the tables with the same columns."""
    same: dict[tuple[SqlColumn, ...], list[SqlTable]] = {}
    for table in every_table().values():
        same.setdefault(table.columns, []).append(table)
    return "\n".join(part(tables, columns) for columns, tables in same.items())


def part(tables: list[SqlTable], columns: tuple[SqlColumn, ...]) -> str:
    meanings = [f"- `{table.name}`: {table.meaning}" for table in tables]
    rows = [f"| `{column.name}` | {column.type} | {column.unit} | {column.meaning} |" for column in columns]
    head = f"### {', '.join(table.name for table in tables)}"
    return "\n".join([head, "", *meanings, "", "| column | type | unit | meaning |", "|---|---|---|---|", *rows, ""])


def test_the_page_has_every_table_and_column(compare_gold: Callable[[Path, str], None]) -> None:
    compare_gold(PAGE, _TABLES.sub(lambda _: table_list(), PAGE.read_text(encoding="utf-8")))


@pytest.fixture
def gpu_logdir(tmp_path: Path) -> Path:
    kernels = line("Stream #1", event("gemm", 500, 300), event("gemm", 1500, 300), event("relu", 1900, 50))
    steps = host(*(event("train", 1000 * n, 1000, step_num=n) for n in range(2)))
    return logdir_of(tmp_path, a=space(steps, plane("/device:GPU:0", kernels)))


@pytest.mark.parametrize("query", QUERIES)
def test_queries_of_the_page_have_an_answer(query: str, samples: Path, gpu_logdir: Path) -> None:
    path = gpu_logdir if "'gpu'" in query else samples / "input_bound"
    assert len(ask(source_of(path), query))


def test_top_kernels_by_step(gpu_logdir: Path) -> None:
    answer = ask(source_of(gpu_logdir), QUERIES[0])
    assert list(zip(*answer.columns, strict=True)) == [
        (0, "gemm", 1, 300.0),
        (1, "gemm", 1, 300.0),
        (1, "relu", 1, 50.0),
    ]


def test_busy_threads_count_time_once(tmp_path: Path) -> None:
    """Outer 0-10 holds inner 2-5; then 20-30 of a capture of 40: 20 of 40. The other thread is busy 10 of 40."""
    busy = line("busy", event("outer", 0, 10), event("inner", 2, 3), event("later", 20, 10), id=1)
    lazy = line("lazy", event("last", 30, 10), id=2)
    logdir = logdir_of(tmp_path, a=space(plane("/host:CPU", busy, lazy)))
    answer = ask(source_of(logdir), next(query for query in QUERIES if "busy_percent" in query))
    assert list(zip(*answer.columns, strict=True)) == [("busy", 50.0), ("lazy", 25.0)]


def test_every_table_has_one_name_and_its_aliases() -> None:
    names = [table.name for table in RECORDED]
    names += [name for table in all_tables() for name in (table.name, *table.aliases)]
    assert list(every_table()) == names
    assert len(set(names)) == len(names)


def test_an_alias_has_the_same_columns() -> None:
    aliases = {alias: table.name for table in all_tables() for alias in table.aliases}
    assert aliases == {"functions": "tf_functions", "iterators": "tfdata_stages"}
    for alias, name in aliases.items():
        assert analyzed_tables()[alias].columns == analyzed_tables()[name].columns
        assert analyzed_tables()[alias].meaning == f"the same as {name}"


@pytest.mark.parametrize("name", every_table())
def test_every_column_has_a_meaning_and_its_unit_in_its_name(name: str) -> None:
    for column in every_table()[name].columns:
        assert column.meaning, column.name
        assert f"_{column.name}".endswith(f"_{column.unit}") or column.unit not in ("ps", "us", "ms"), column.name
