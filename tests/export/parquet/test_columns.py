"""docs/parquet.md: its tables are generated, and its questions have answers."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from builders import event, host, logdir_of, marks, space
from places import ROOT, SAMPLES

from tfperf.analysis.load import load
from tfperf.export.parquet import reading_ahead, write_parquet
from tfperf.export.query.arrow_tables import NestedTrace, with_nesting
from tfperf.export.query.sql_tables import EVENTS, HOST_FILES, STAT_TABLE
from tfperf.trace.logdir import HostFile
from tfperf.trace.read import read_host

PAGE = ROOT / "docs" / "parquet.md"
TEXT = PAGE.read_text(encoding="utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
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


@pytest.mark.parametrize("query", QUERIES)
def test_queries_have_answers(query: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    assert duckdb.execute(query).fetchall()


STEPS = space(host(*marks(3), event("instant", 5, 0)))
STATS = frozenset(("step_num",))


class Reader:
    """Reads, and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, file: HostFile, **more: Any) -> NestedTrace:
        self.count += 1
        return with_nesting(read_host(file.path, file.host, stats=STATS, instants=True, **more))


def host_file(logdir: Path, name: str = "a") -> HostFile:
    (path,) = logdir.rglob(f"{name}.xplane.pb")
    return HostFile(name, path)


def test_a_single_host_is_read_once_and_nested_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logdir, read, threads = logdir_of(tmp_path, a=STEPS), Reader(), []

    def noted(trace: object) -> NestedTrace:
        threads.append(threading.current_thread().name)
        return with_nesting(trace)  # type: ignore[arg-type]

    monkeypatch.setattr("tfperf.export.parquet.with_nesting", noted)
    with reading_ahead(read, STATS) as (ahead, begin):
        analysis = load(logdir, sections=["steps"], beside=begin)
        assert len(ahead.of(host_file(logdir)).trace.name) == 4
    assert len(analysis["steps"].steps) == 3
    assert read.count == 0
    assert [name.startswith("tfperf-read-ahead") for name in threads] == [True]


def test_several_hosts_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    logdir, read = logdir_of(tmp_path, a=STEPS, b=STEPS), Reader()
    with reading_ahead(read, STATS) as (ahead, begin):
        load(logdir, sections=["steps"], beside=begin, jobs=2)
        assert len(ahead.of(host_file(logdir, "b")).trace.name) == 4
    assert read.count == 1
    with reading_ahead(read, STATS) as (ahead, begin):
        load(logdir, sections=["steps"], hosts=["b"], beside=begin)
        assert len(ahead.of(host_file(logdir, "b")).trace.name) == 4
    assert read.count == 1


@pytest.mark.parametrize("asked", ["large", "other"])
def test_a_large_host_and_another_file_are_read_again(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logdir, other, read = logdir_of(tmp_path, a=STEPS), logdir_of(tmp_path / "other", a=STEPS), Reader()
    if asked == "large":
        monkeypatch.setattr("tfperf.export.parquet._LARGEST_BYTES", len(STEPS) - 1)
    with reading_ahead(read, STATS) as (ahead, begin):
        load(logdir, sections=["steps"], beside=begin)
        ahead.of(host_file(logdir if asked == "large" else other))
    assert read.count == 1


def test_an_error_of_the_thread_comes_where_the_events_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> NestedTrace:
        raise MemoryError

    monkeypatch.setattr("tfperf.export.parquet.with_nesting", fails)
    logdir = logdir_of(tmp_path, a=STEPS)
    with reading_ahead(Reader(), STATS) as (ahead, begin):
        load(logdir, sections=["steps"], beside=begin)
        with pytest.raises(MemoryError):
            ahead.of(host_file(logdir))


def test_the_thread_ends_when_nobody_waits(tmp_path: Path) -> None:
    """The reader tells how far it is until it is stopped."""
    logdir, begun = logdir_of(tmp_path, a=STEPS), threading.Event()

    def read_for_ever(_: HostFile, progress: Any) -> NestedTrace:
        while True:
            begun.set()
            progress(1, 2)

    def interrupted() -> None:
        with reading_ahead(read_for_ever, None) as (_, begin):
            begin(host_file(logdir))
            assert begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not any(thread.name.startswith("tfperf-read-ahead") for thread in threading.enumerate())
