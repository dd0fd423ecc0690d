"""DuckDB in its sandbox: it answers queries, and does nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import duckdb
import pytest
from builders import event, host, logdir_of, marks, space, u64
from export.query.asking import ask
from packaging.version import Version

import tfperf
from tfperf.base.errors import TfperfError, TraceFormatError
from tfperf.export.query.apart import sql
from tfperf.export.query.engine import Answer, QueryError, QueryLimits
from tfperf.export.query.sources import Source, source_of
from tfperf.export.query.sql_tables import SqlTable, every_table

pytestmark = pytest.mark.usefixtures("asked_here")


def profile_of(path: Path | tfperf.Analysis) -> Source:
    source = source_of(path)
    assert isinstance(source, Source)
    return source


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return profile_of(logdir_of(tmp_path, a=space(host(*marks(3, 10), event("op", 1, 2, id=7)))))


def rows(answer: Answer) -> list[tuple[Any, ...]]:
    return list(zip(*answer.columns, strict=True))


class Unreadable(Source, frozen=True):
    """A source that must not be read."""

    def tables(self, names: Collection[str]) -> dict[str, Any]:
        raise AssertionError(f"read {sorted(names)}")


# --- what is answered ---


@pytest.mark.parametrize(
    "query",
    [
        "select name, duration_us from events where name = 'op'",
        "SELECT name, duration_us FROM events WHERE name = 'op';",
        "-- which\nfrom events select name, duration_us where name = 'op' -- op",
        "with ops as (from events where name = 'op') select name, duration_us from ops",
        'select "name", duration_us from "EVENTS" where name = \'op\'',
        "from query('select name, duration_us from events') where name = 'op'",
    ],
)
def test_a_select_in_any_form(source: Source, query: str) -> None:
    assert rows(ask(source, query)) == [("op", 2.0)]


def test_statements_that_name_no_columns(source: Source) -> None:
    assert rows(ask(source, "values (1, 'a'), (2, 'b')")) == [(1, "a"), (2, "b")]
    assert "events" in ask(source, "show tables").columns[0]
    assert ask(source, "describe events").columns[0][:2] == ("run", "event")
    summary = ask(source, "summarize select duration_us from events")
    assert rows(summary)[0][:4] == ("duration_us", "DOUBLE", "2.0", "10.0")


def test_recorded_tables_join_with_those_of_sections(source: Source) -> None:
    query = """select s.step, count(*) from host_steps s join events e on e.host = s.host
               and e.start_ps >= s.start_ps and e.start_ps < s.end_ps group by all order by 1"""
    assert rows(ask(source, query)) == [(0, 2), (1, 1), (2, 1)]
    assert rows(ask(source, "select step, step_time_ms from steps")) == [(0, 0.01), (1, 0.01), (2, 0.01)]


def test_ops_of_both_sides_are_one_table(tmp_path: Path) -> None:
    data = space(host(event("a:MatMul", 0, 3), event("b:Add", 5, 1)))
    query = "select side, op_type, self_ms from ops order by self_ms desc"
    found = rows(ask(source_of(logdir_of(tmp_path, a=data)), query))
    assert found == [("host", "MatMul", 0.003), ("host", "Add", 0.001)]


def test_names_that_occur_twice_are_numbered(source: Source) -> None:
    answer = ask(source, "select 1 as n, 2 as n, 3 as n_2, 4 as n")
    assert answer.names == ("n", "n_2", "n_2_2", "n_3")
    assert rows(answer) == [(1, 2, 3, 4)]


def test_values_are_plain_python(source: Source) -> None:
    query = """select 1.5, 170141183460469231731687303715884105727, '\\xAB'::blob, [1.5, 2.5], {'a': 0.5}, null,
               12345678901234567890::decimal(38,0)"""
    assert rows(ask(source, query)) == [(1.5, 2**127 - 1, "ab", [1.5, 2.5], {"a": 0.5}, None, 12345678901234567890)]


# --- what is read ---


@pytest.mark.parametrize("query", ["select 1", "show tables", "describe stats", "describe select name from events"])
def test_only_what_is_asked_for_is_read(tmp_path: Path, query: str) -> None:
    """The file is not a trace: reading it fails."""
    source = source_of(logdir_of(tmp_path, a=b"not a trace"))
    assert len(ask(source, query))
    for table in ("events", "steps"):
        with pytest.raises(TraceFormatError):
            ask(source, f"select count(*) from {table}")


@pytest.mark.parametrize("query", ["select nme from events", "selec", "from evnts", "select sum(name) from events"])
def test_mistakes_are_reported_before_anything_is_read(source: Source, query: str) -> None:
    with pytest.raises(QueryError, match="--schema"):
        ask(Unreadable(source.run, source.analyze), query)


@pytest.mark.parametrize(
    ("query", "near"),
    [
        ("from evnts", "events"),
        ("from events join host_step using (host)", "host_steps"),
        ("from query('from evnts')", "events"),
        ("describe evnts", "events"),
    ],
)
def test_a_table_with_a_near_name_is_named(source: Source, query: str, near: str) -> None:
    """Also one that the query does not name: then there is no empty table of it at first."""
    with pytest.raises(QueryError, match=f'does not exist! Did you mean "{near}"'):
        ask(Unreadable(source.run, source.analyze), query)


@pytest.mark.parametrize(
    ("query", "made"), [("select 1", 0), ("from Events", 1), ("from events e, steps", 2), ("show tables", None)]
)
def test_only_the_tables_that_a_query_names_are_made(
    source: Source, monkeypatch: pytest.MonkeyPatch, query: str, made: int | None
) -> None:
    names = []
    ddl = SqlTable.ddl

    def noted(table: SqlTable) -> str:
        names.append(table.name)
        return ddl(table)

    monkeypatch.setattr(SqlTable, "ddl", noted)
    ask(source, query)
    assert len(names) == (len(every_table()) if made is None else made)


# --- what is refused ---


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the current folder that DuckDB could read."""
    monkeypatch.chdir(tmp_path)
    for name in ("secret.csv", ":memory:"):
        (tmp_path / name).write_text("a,b\n1,2\n")
    return tmp_path / "secret.csv"


REFUSED = (
    "copy (select 1) to 'out.csv'",
    "copy events from 'secret.csv'",
    "export database 'out'",
    "attach 'out.db'",
    "attach ':memory:' as other",
    "install httpfs",
    "pragma database_list",
    "set enable_external_access = true",
    "create temp table t as select 1",
    "create secret s (type s3)",
    "insert into events values (1)",
    "alter table events rename to e",
    "call pragma_version()",
    "checkpoint",
    "prepare p as select 1",
    "explain analyze copy (select 1) to 'out.csv'",
    "select 1; select 2",
    "select 1; copy (select 1) to 'out.csv'",
    "pivot events on name",
    "select * from read_csv('secret.csv')",
    "select * from read_csv('{}')",
    "select * from 'secret.csv'",
    "select * from read_text('{}')",
    "select * from read_text(':memory:')",
    "select * from ':memory:'",
    "select * from read_blob('*')",
    "select * from read_json('secret.csv')",
    "select * from parquet_metadata('/etc/passwd')",
    "select * from glob('*')",
    "select * from sniff_csv('secret.csv')",
    "select * from read_csv('https://127.0.0.1:9/x.csv')",
    "select getenv('HOME')",
    "from enable_logging(storage_path='out')",
    "with t as (insert into events values (1) returning 1) from t",
    "select * from captured",
    "select * from sys.modules",
    "",
    "-- nothing",
    "select $1",
    "select 'a\0b",
    "select '\ud800'",
)


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_reads_the_profile_and_nothing_else(source: Source, secret: Path, query: str) -> None:
    captured = [1, 2, 3]
    before = sorted(secret.parent.rglob("*"))
    with pytest.raises(QueryError) as raised:
        ask(source, query.format(secret) if "{}" in query else query)
    assert sorted(secret.parent.rglob("*")) == before
    assert captured == [1, 2, 3]
    assert "\n" not in str(raised.value)
    assert "1,2" not in str(raised.value)


def test_the_settings_of_the_sandbox_are_final(source: Source) -> None:
    query = """select name, value from duckdb_settings() where name in ('enable_external_access', 'lock_configuration',
               'python_enable_replacements', 'temp_directory', 'autoload_known_extensions') order by name"""
    assert rows(ask(source, query)) == [
        ("autoload_known_extensions", "false"),
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
        ("python_enable_replacements", "false"),
        ("temp_directory", ""),
    ]


def test_a_table_whose_name_is_computed_is_an_error_and_not_empty(source: Source) -> None:
    with pytest.raises(QueryError, match="does not exist"):
        ask(source, "select count(*) from query_table('eve' || 'nts')")


# --- what goes wrong ---


def test_a_table_that_the_profile_lacks(tmp_path: Path) -> None:
    with pytest.raises(TfperfError, match="this profile has no table host_steps: --schema lists") as raised:
        ask(source_of(logdir_of(tmp_path / "2", a=space(host(event("op", 1, 2))))), "select count(*) from host_steps")
    assert not isinstance(raised.value, QueryError)


def test_a_word_that_is_also_a_table_is_allowed(source: Source) -> None:
    assert rows(ask(source, "select 'kernels' as copies from events limit 1")) == [("kernels",)]


def test_an_answer_that_takes_too_much_memory(source: Source) -> None:
    """Not DuckDB's memory: that of the Python values."""
    with pytest.raises(TfperfError, match=r"the result exceeds .* of memory: select fewer .* --memory-limit"):
        ask(source, "select repeat('x', 100000) from range(2000)", QueryLimits(memory_bytes=100e6))


@pytest.mark.parametrize("value", ["repeat('x', 60 * {})", "list_value('a', repeat('x', 60 * {})::blob)", "range({})"])
def test_a_value_that_is_too_large(source: Source, value: str) -> None:
    with pytest.raises(TfperfError, match=r"a value in the result has more than 16.8 MB: select a part of it"):
        ask(source, f"select {value.format(300_000)}")
    assert len(ask(source, f"select {value.format(100)}")) == 1


def test_the_line_of_a_mistake_is_that_of_the_query(source: Source) -> None:
    with pytest.raises(QueryError, match=r"in line 3 \("):
        ask(source, "select name\nfrom events\nwhere nme = 1")


def test_a_time_with_a_zone_is_shown_or_says_what_to_write(logdir: Path, source: Source) -> None:
    """DuckDB 1 needs pytz for it, and keeps it once it has had it: hence a process without. DuckDB 2 needs nothing."""
    script = (
        "import sys\nsys.modules['pytz'] = None\nfrom tfperf.export.query.engine import *\n"
        "begin(sys.argv[1], 'select now() t', QueryLimits(), {})\n"
        "try:\n    check(), read()\n    print(fetch().columns[0][0].year)\n"
        "except QueryError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(logdir)], capture_output=True, text=True, timeout=100, check=False
    )
    ((now,),) = ask(source, "select now()::TIMESTAMP").columns
    assert now.year > 2000
    if Version(duckdb.__version__).major < 2:
        assert "cast it, as in now()::TIMESTAMP" in done.stdout, done.stderr
    else:
        assert int(done.stdout) in (now.year - 1, now.year, now.year + 1), done.stderr


def test_what_top_leaves_out(source: Source) -> None:
    for count, is_cut in ((3, True), (4, False), (5, False)):
        cut = ask(source, "from range(4)", QueryLimits(top=count))
        assert (len(cut), cut.is_cut) == (min(count, 4), is_cut)


def test_errors_from_the_data_are_reported(source: Source) -> None:
    with pytest.raises(QueryError, match="Could not convert string"):
        ask(source, "select name::int from events")


# --- from Python: DataFrames ---


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    counted = host(event("a", 0, 1, n=2**62 + 1), event("b", 1, 1), event("c", 2, 1, n=u64(2**64 - 1)))
    return logdir_of(tmp_path, a=space(counted), b=space(host(event("d", 0, 1))))


def test_the_frame_has_the_columns_of_the_query(logdir: Path) -> None:
    frame = sql(logdir, "select name, duration_us, event from events order by event")
    assert frame["name"].tolist() == ["a", "b", "c", "d"]
    assert [str(kind) for kind in frame.dtypes[1:]] == ["float64", "int64"]


def test_integers_stay_exact_where_some_are_missing(logdir: Path) -> None:
    query = "select e.name, int_value from events e left join stats using (event) where e.name {} order by 1"
    small = sql(logdir, query.format("< 'c'"))["int_value"]
    assert (str(small.dtype), small[0]) == ("Int64", 2**62 + 1)
    large = sql(logdir, query.format("< 'd'"))["int_value"]
    assert large.tolist() == [2**62 + 1, None, 2**64 - 1]


def test_hosts_are_chosen(logdir: Path) -> None:
    assert sql(logdir, "select name from events", hosts=["b"])["name"].tolist() == ["d"]


def test_an_analysis_is_used_as_it_is(logdir: Path) -> None:
    analysis = tfperf.load(logdir, step_marker="a", hosts=["a"])
    assert profile_of(analysis).analyze(["steps"]) is analysis
    assert sql(analysis, "select count(*) as n from host_steps")["n"].tolist() == [len(analysis["steps"].steps)]


def test_sections_that_an_analysis_lacks_are_analyzed(tmp_path: Path) -> None:
    analysis = tfperf.load(logdir_of(tmp_path, a=space(host(*marks(3)))), sections=["steps"])
    assert "environment" not in analysis.sections
    assert sql(analysis, "select count(*) as n from environment")["n"].tolist() == [1]


def test_a_newer_run_does_not_change_the_source(logdir: Path) -> None:
    source = profile_of(logdir)
    newer = logdir / "plugins" / "profile" / "2027_01_01_00_00_00"
    newer.mkdir()
    (newer / "z.xplane.pb").write_bytes(space(host(event("z", 0, 1))))
    assert source.analyze(["steps"]).run == source.run
