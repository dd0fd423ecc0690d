"""Tables as they travel in the page: coded, packed, cut to the room that there is."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfperf.report.model import Column, Table
from tfperf.report.render.page.data import PackedTable, fit, pack, plain_items

COLUMNS = (
    Column("name", "Name", str),
    Column("self_ms", "Self", float, "ms"),
    Column("size", "Size", int, "bytes", level="data"),
)


def ops(names: Sequence[Any], times: Sequence[Any], sizes: Sequence[Any] = ()) -> Table:
    data: dict[str, Sequence[Any]] = {"name": names, "self_ms": times, "size": sizes or [None] * len(names)}
    return Table("ops", "Ops", COLUMNS, data, len(names))


def unpacked(table: Table) -> dict[str, Any]:
    """Return what the page's scripts read of the table."""
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(pack(table).base64)))
    return data


def test_tables_travel_as_columns_with_texts_once() -> None:
    data = unpacked(ops(["a", "b", "a", None], [1.5, None, float("nan"), np.float32(2)]))
    assert data["depths"] is None
    assert data["columns"][0] == {
        "title": "Name",
        "unit": "",
        "main": True,
        "tree": False,
        "whole": None,
        "kind": "text",
        "words": ["a", "b"],
        "places": [0, 1, 0, -1],
    }
    assert data["columns"][1]["title"] == "Self (ms)"
    assert data["columns"][1]["values"] == [1.5, None, None, 2.0]
    assert [column["main"] for column in data["columns"]] == [True, True, False]


def test_a_short_name_knows_the_column_of_the_whole() -> None:
    columns = (Column("short", "Short", str, whole_key="name"), Column("name", "Name", str, level="data"))
    data = unpacked(Table("t", "T", columns, {"short": ["k"], "name": ["void k()"]}, 1))
    assert [column["whole"] for column in data["columns"]] == [1, None]


def test_a_tree_travels_with_its_depths() -> None:
    columns = (Column("stage", "Stage", str, depth_key="depth"), Column("calls", "Calls", int, "count"))
    values: dict[str, Any] = {"stage": ["Root", "Map"], "calls": [1, 2], "depth": np.array([0, 1])}
    data = unpacked(Table("t", "T", columns, values, 2))
    assert data["depths"] == [0, 1]
    assert [column["tree"] for column in data["columns"]] == [True, False]


def test_what_is_neither_number_nor_text_travels_as_what_people_see() -> None:
    columns = tuple(Column(key, key, str) for key in ("flag", "huge", "mixed", "nothing"))
    values: dict[str, list[Any]] = {
        "flag": [True, False],
        "huge": [2**64, 1],
        "mixed": ["a", 1.5],
        "nothing": [None, None],
    }
    words = [column.get("words") for column in unpacked(Table("t", "T", columns, values, 2))["columns"]]
    assert words == [["yes", "no"], ["18446744073709551616", "1"], ["a", "1.5"], []]


def test_short_tables_keep_all_digits_and_long_ones_six() -> None:
    for rows, expected in ((10, 1.23456789), (3_000, 1.23457)):
        assert unpacked(ops(["a"] * rows, [1.23456789] * rows))["columns"][1]["values"][0] == expected


def test_values_become_plain() -> None:
    column: Any = np.array([1.5, np.nan])
    assert plain_items(column) == [1.5, None]
    assert plain_items([np.int64(3), np.str_("a"), None]) == [3, "a", None]


def test_two_pages_of_one_report_are_the_same() -> None:
    assert pack(ops(["a"], [1.0])) == pack(ops(["a"], [1.0]))


def test_other_columns_go_before_rows() -> None:
    noise = [float(value) for value in np.random.default_rng(1).random(1_000)]
    whole = pack(ops(["a"] * 1_000, [1.0] * 1_000, noise))
    assert whole.has_all_columns
    assert fit([whole], 10**6) == [whole]
    (fitted,) = fit([whole], len(whole.base64) // 2)
    assert not fitted.has_all_columns
    assert len(fitted.table) == 1_000
    assert len(fit([whole], 0)[0].table) == 0


def test_the_largest_table_gives_way_first() -> None:
    texts = list(map(str, np.random.default_rng(1).integers(0, 10**12, 2_000)))
    small, large = pack(ops(["a"] * 10, [1.0] * 10)), pack(ops(texts, [1.0] * 2_000))
    fitted = fit([small, large], 5_000)
    assert fitted[0] == small
    assert 0 < len(fitted[1].table) < 2_000
    assert sum(len(table.base64) for table in fitted) <= 5_000


def test_a_table_that_could_never_fit_is_packed_without_other_columns() -> None:
    count = 700_000
    packed: PackedTable = pack(ops(["a"] * count, [1] * count, range(count)))
    assert not packed.has_all_columns
    assert len(packed.table) == count
