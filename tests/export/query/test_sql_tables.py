"""What SQL sees of the tables: recorded ones, and those of the sections."""

from __future__ import annotations

import pytest

from tfperf.analysis.registry import all_tables
from tfperf.export.query.sql_tables import RECORDED, SqlColumn, SqlTable, analyzed_tables, every_table


def test_a_table_says_how_it_is_made() -> None:
    table = SqlTable(
        "t", "things", (SqlColumn("n", "BIGINT", "count", "how many"), SqlColumn("name", "VARCHAR", "", ""))
    )
    assert table.ddl() == 'CREATE TABLE "t" ("n" BIGINT, "name" VARCHAR)'


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
