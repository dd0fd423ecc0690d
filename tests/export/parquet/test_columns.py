"""docs/parquet.md: its tables are generated, and its questions have answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from places import ROOT, SAMPLES

from tfperf.export.parquet import write_parquet
from tfperf.export.query.sql_tables import EVENTS, HOST_FILES, STAT_TABLE

PAGE = ROOT / "docs" / "parquet.md"
TEXT = PAGE.read_text(encoding="utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
_TABLES = re.compile(r"(?<=<!-- parquet tables -->\n).*(?=<!-- end parquet tables -->)", re.DOTALL)


def table_list() -> str:
    parts = []
    for table in (EVENTS, STAT_TABLE, HOST_FILES):
        rows = [f"| `{column.name}` | {column.type} | {column.unit} | {column.meaning} |" for column in table.columns]
        head = [f"### {table.name}", "", f"{table.meaning[0].upper()}{table.meaning[1:]}.", ""]
        parts += [*head, "| column | type | unit | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(parts)


def test_the_page_has_every_column(compare_gold: Callable[[Path, str], None]) -> None:
    compare_gold(PAGE, _TABLES.sub(lambda _: table_list(), TEXT))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    write_parquet(SAMPLES / "input_bound", folder / "dataset")
    return folder


def test_there_are_five_questions() -> None:
    assert len(QUERIES) + len(PROGRAMS) == 5, "those in Python are run by tests/test_docs.py"


@pytest.mark.parametrize("query", QUERIES)
def test_queries_have_answers(query: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    assert duckdb.execute(query).fetchall()
