"""Traces as Arrow tables: over the same memory, with the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import event, host, line, logdir_of, plane, ref, space, u64
from export.query.asking import ask
from hypothesis import given
from hypothesis import strategies as st

from tfperf.base.errors import TfperfError
from tfperf.export.query import arrow_tables as recorded_module
from tfperf.export.query.arrow_tables import by_index, listed, numbers, recorded, words
from tfperf.export.query.sources import source_of
from tfperf.export.query.sql_tables import RECORDED, SqlTable
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host

MOST = 2**64 - 1


def whole_trace(path: Path, data: bytes) -> HostTrace:
    path.write_bytes(data)
    return read_host(path, path.stem.split(".")[0], everything=True)


def address(values: np.ndarray[Any, Any]) -> int:
    return int(values.__array_interface__["data"][0])


def addresses(table: Any, column: str) -> list[int]:
    """Where the data of each chunk lies; of a dictionary, its indices."""
    chunks = table.column(column).chunks
    return [(chunk.indices if hasattr(chunk, "indices") else chunk).buffers()[1].address for chunk in chunks]


@pytest.fixture
def two_hosts(tmp_path: Path) -> list[HostTrace]:
    """Two hosts with three events and three stats each."""
    plane = host(event("a", 0, 5, id=1, x=2.5), event("b", 1, 2), event("a", 9, 1, text="t"))
    return [whole_trace(tmp_path / f"{name}.xplane.pb", space(plane)) for name in ("h1", "h2")]


def test_numbers_are_not_copied(two_hosts: list[HostTrace]) -> None:
    events, stats = recorded("events", two_hosts, "r"), recorded("stats", two_hosts, "r")
    assert addresses(events, "start_ps") == [address(trace.start_ps) for trace in two_hosts]
    assert addresses(events, "duration_ps") == [address(trace.duration_ps) for trace in two_hosts]
    assert addresses(events, "name") == [address(trace.name) for trace in two_hosts]
    for column in ("host", "plane", "kind", "line", "line_name", "derived"):
        assert addresses(events, column) == [address(trace.line_of) for trace in two_hosts]
    rows = [trace.every_stat for trace in two_hosts if trace.every_stat is not None]
    assert len(rows) == 2
    for column in ("bits", "unsigned", "real", "text"):
        assert addresses(stats, column) == [address(stat_rows.value) for stat_rows in rows]
    assert addresses(stats, "name") == [address(stat_rows.key) for stat_rows in rows]
    assert addresses(stats, "code") == addresses(stats, "kind") == [address(stat_rows.kind) for stat_rows in rows]
    # One count runs over the events of all hosts, so stats of the second host have other numbers than in its file.
    assert addresses(stats, "event")[0] == address(rows[0].event)


def test_hosts_are_chunks_and_each_name_is_held_once(two_hosts: list[HostTrace]) -> None:
    events = recorded("events", two_hosts, "r")
    assert events.column("start_ps").num_chunks == 2
    assert events.column("event").to_pylist() == [0, 1, 2, 3, 4, 5]
    assert events.column("name").chunk(1).dictionary.to_pylist().count("a") == 1
    assert recorded("stats", two_hosts, "r").column("event").to_pylist() == [0, 0, 2, 3, 3, 5]


def rows_of(tmp_path: Path, query: str, **hosts: bytes) -> list[tuple[Any, ...]]:
    """The rows of the answer to a query about a run."""
    return list(zip(*ask(source_of(logdir_of(tmp_path, **hosts)), query).columns, strict=True))


def test_every_kind_of_stat_keeps_its_value(tmp_path: Path) -> None:
    expected = [
        (-5, "int", -5, None, None),
        (2**63 - 1, "int", 2**63 - 1, None, None),
        (u64(2**63), "unsigned", 2**63, None, None),
        (u64(MOST), "unsigned", MOST, None, None),
        (u64(0), "unsigned", 0, None, None),
        (-0.5, "real", None, -0.5, None),
        ("words", "text", None, None, "words"),
        (ref("shared"), "text", None, None, "shared"),
        ("", "text", None, None, ""),
    ]
    stats = {f"stat {number}": value for number, (value, *_) in enumerate(expected)}
    query = "select kind, int_value, real_value, text_value from stats order by name"
    assert rows_of(tmp_path, query, a=space(host(event("e", 0, 1, **stats)))) == [row[1:] for row in expected]


def test_ids_of_64_bits_are_compared_and_added_exactly(tmp_path: Path) -> None:
    plane = host(event("producer", 0, 1, _p=u64(MOST)), event("consumer", 2, 1, _c=u64(MOST)), event("c", 4, 1, _c=-1))
    query = """select e.name from stats p join stats c on p.int_value = c.int_value and p.name = '_p' and c.name = '_c'
               join events e on e.event = c.event"""
    assert rows_of(tmp_path, query, a=space(plane)) == [("consumer",)]
    total = "select sum(int_value) from stats where name in ('_p', '_c') and int_value > 0"
    assert rows_of(tmp_path, total, a=space(plane)) == [(2 * MOST,)]


def test_events_of_two_hosts_join_only_stats_of_their_host(tmp_path: Path) -> None:
    data = {"a": space(host(event("x", 0, 1, n=1))), "b": space(host(event("y", 0, 1), event("x", 5, 1, n=2)))}
    query = "select e.host, s.host, e.name, int_value from events e join stats s using (event) order by 1"
    assert rows_of(tmp_path, query, **data) == [("a", "a", "x", 1), ("b", "b", "x", 2)]
    lines = "select e.event, l.host, l.events from events e join lines l using (line) order by 1"
    assert rows_of(tmp_path, lines, **data) == [(0, "a", 1), (1, "b", 2), (2, "b", 2)]


def test_planes_lines_and_hosts(tmp_path: Path) -> None:
    gpu = plane("/device:GPU:0", line("Stream #7", event("gemm", 3, 2), id=7), stats={"cores": 80, "model": "V"})
    other = plane("/host:metadata", line("x", event("odd", 0, 1)))
    data = space(host(event("op", 1, 2), event("instant", 2, 0)), gpu, plane("/device:GPU:1"), other)
    assert rows_of(tmp_path, "select plane, kind, is_device, events from planes order by plane_id", a=data) == [
        ("/host:CPU", "host", False, 2),
        ("/device:GPU:0", "gpu", True, 1),
        ("/device:GPU:1", "gpu", False, 0),
        ("/host:metadata", "other", False, 1),
    ]
    assert rows_of(tmp_path, "select plane, line_name, line_id, derived, events from lines order by line", a=data) == [
        ("/host:CPU", "python", 1, False, 2),
        ("/device:GPU:0", "Stream #7", 7, False, 1),
        ("/host:metadata", "x", 1, False, 1),
    ]
    assert rows_of(tmp_path, "select name, int_value, text_value from plane_stats order by 1", a=data) == [
        ("cores", 80, None),
        ("model", None, "V"),
    ]
    assert rows_of(tmp_path, "select host, events, start_ps, end_ps, errors from host_files", a=data) == [
        ("a", 4, 0, 5_000_000, None)
    ]
    query = (
        "select name, start_ps, duration_ps, end_ps, start_ms, duration_us, duration_ms from events where kind='gpu'"
    )
    assert rows_of(tmp_path, query, a=data) == [("gemm", 3_000_000, 2_000_000, 5_000_000, 0.003, 2.0, 0.002)]


def test_stats_of_event_names(tmp_path: Path) -> None:
    ops = plane("/device:TPU:0", line("XLA Ops", event("fusion.1", 0, 1)), name_stats={"fusion.1": {"tf_op": "a/b"}})
    query = "select event_name, name, int_value, text_value from name_stats"
    assert rows_of(tmp_path, query, a=space(ops)) == [("fusion.1", "tf_op", None, "a/b")]


def test_names_of_any_kind_are_kept(tmp_path: Path) -> None:
    odd = ["", "a\tb\x1b[31m", "'; drop table events; --", "x" * 100_000, "\udcff", "\U0001f600"]
    data = space(host(*(event(name, n, 1) for n, name in enumerate(odd))), hostname="'h'")
    names = [row[0] for row in rows_of(tmp_path, "select name from events order by start_ps", a=data)]
    assert names[:4] == odd[:4]
    assert names[5] == odd[5]
    assert len(names) == 6


def test_an_empty_host_has_empty_tables(tmp_path: Path) -> None:
    data = space(plane("/host:CPU"))
    for table in RECORDED:
        count = rows_of(tmp_path, f"select count(*) from {table.name}", a=data)
        assert count == [(1,)] if table.name in ("planes", "hosts") else [(0,)]
    assert rows_of(tmp_path, "select start_ps from host_files", a=data) == [(None,)]


def test_more_events_than_an_int32_can_number_are_an_error(
    two_hosts: list[HostTrace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_module, "MOST_EVENTS", 5)
    with pytest.raises(TfperfError, match="--host"):
        recorded("events", two_hosts, "r")


@pytest.mark.parametrize("table", RECORDED, ids=lambda table: table.name)
def test_tables_have_the_columns_that_are_declared(table: SqlTable, tmp_path: Path) -> None:
    """`describe` is answered from the declaration, so it must be what a query of the real table gives."""
    query = f"select column_name, column_type from (describe from {table.name})"
    rows = rows_of(tmp_path, query, a=space(host(event("op", 1, 2, id=7))))
    assert rows == [(column.name, column.type) for column in table.columns]


WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
REAL = st.floats(width=64)
SMALL = st.integers(-(1 << 53) + 1, (1 << 53) - 1)


def lists(*values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.one_of(st.none(), *values))


@pytest.mark.parametrize(
    ("kind", "values"),
    [(pa.int64(), lists(WHOLE)), (pa.float64(), lists(REAL, SMALL)), (pa.bool_(), lists(st.booleans()))],
    ids=str,
)
def test_lists(kind: Any, values: st.SearchStrategy[list[Any]]) -> None:
    @given(values)
    def same(some: list[Any]) -> None:
        found = listed(some, kind)
        found.validate(full=True)
        assert found.equals(pa.array(some, kind, from_pandas=True))

    same()


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [True, None], pa.bool_()),
        (pa.float64(), ["a", None], pa.string()),
        (pa.float64(), [], pa.float64()),
        (pa.float64(), [None], pa.float64()),
        (pa.int64(), np.array([1, 2]), pa.int64()),
        (pa.int64(), (1, 2), pa.int64()),
    ],
    ids=str,
)
def test_what_does_not_fit_has_its_own_type(kind: Any, values: Any, expected: Any) -> None:
    found = listed(values, kind)
    assert found.type == expected
    assert found.to_pylist() == list(values)


@given(lists(st.text()))
def test_texts(texts: list[str | None]) -> None:
    found = words(texts)
    found.validate(full=True)
    assert found.equals(pa.array(texts, pa.large_string()))


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    assert words(["a\ud800", None, "b"]).to_pylist() == ["a\ufffd", None, "b"]


@given(st.lists(st.tuples(WHOLE, st.booleans())))
def test_numbers_that_are_missing_are_null(rows: list[tuple[int, bool]]) -> None:
    values = np.array([value for value, _ in rows], np.int64)
    missing = np.array([is_missing for _, is_missing in rows], np.bool_)
    assert numbers(values, missing=missing).equals(pa.array(values, mask=missing))
    assert numbers(values).equals(pa.array(values))
    bits = numbers(values, "uint64", missing=missing)
    assert bits.equals(pa.array(values.view(np.uint64), mask=missing))


def test_names_are_held_once() -> None:
    column = by_index(numbers(np.array([1, 0, 1], np.int32), missing=np.array([False, False, True])), words(["a", "b"]))
    assert column.to_pylist() == ["b", "a", None]
    assert len(column.dictionary) == 2
