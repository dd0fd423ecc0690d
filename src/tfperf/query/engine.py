"""DuckDB in a sandbox: it sees the tables of a profile and nothing else, and it changes nothing.

A query is checked against empty tables first, in a transaction that is taken back, so that mistakes are reported
before anything is read. Only the tables that it names are made: all of them would take longer than many a query.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tfperf.analysis import Analysis
from tfperf.errors import TfperfError
from tfperf.query.dataset import Dataset
from tfperf.query.sources import Source, source_of
from tfperf.query.sql_tables import SqlTable
from tfperf.storage.remote_path import Location

if TYPE_CHECKING:
    import pandas as pd

HINT = "tfperf query --schema shows tables and columns"
_ALLOWED = "SELECT (or WITH, VALUES, FROM, DESCRIBE, SHOW, SUMMARIZE)"
_CLOSED = (
    "temp_directory = ''",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "allow_community_extensions = false",
    "python_enable_replacements = false",
    "enable_external_access = false",
)
_CLOSED_SINCE_1_2 = ("allowed_paths = []", "allowed_directories = []")
"""Unknown to older versions; newer ones allow files of the database itself without them."""

_ABOUT_TABLES = re.compile(r"\s*(show|describe|desc)\b", re.IGNORECASE)
"""Statements with the same answer for empty tables."""

_AGAIN_S = 0.05
"""How long to wait for a query before checking for Ctrl-C, or stopping it again: before it runs, it ignores that."""


MOST_ROWS = 1_000_000
"""An answer with more rows is refused, unless it is asked for: as Python values, so many may take 1 GB."""
MEMORY_BYTES = 2_000_000_000
TIMEOUT_S = 60.0
_CHUNK_ROWS = 1 << 14


class QueryLimits(Struct, frozen=True):
    """What a query may take. `top`: fetch only so many rows, without a limit on how many these may be."""

    max_rows: int = MOST_ROWS
    memory_bytes: float = MEMORY_BYTES
    timeout_s: float = TIMEOUT_S
    top: int | None = None


class QueryError(TfperfError):
    """The SQL is wrong, or does more than read the profile: wrong usage."""


class Answer(Struct, frozen=True):
    """What a query returned: column names, all different, and the values of each column as plain Python."""

    names: tuple[str, ...]
    columns: tuple[Sequence[Any], ...]
    is_cut: bool = False
    """Whether there are more rows, which `top` left unfetched."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.columns[0]) if self.columns else 0


def ask(source: Source | Dataset, sql: str, limits: QueryLimits | None = None) -> Answer:
    """Return the answer to one SELECT about a profile.

    Only the tables whose names occur in the SQL are read. Raises QueryError if the SQL is wrong or refused, TfperfError
    if DuckDB is missing, if the query exceeds a limit or if the profile lacks a table, TraceNotFoundError and
    TraceFormatError.
    """
    limits = limits or QueryLimits()
    declared = source.declared
    connection = _connect(limits.memory_bytes)
    with _our_errors():
        _refuse_all_but_select(connection, sql)
    named = set(re.findall(r"\w+", sql.lower())) & declared.keys()
    is_about_tables = _ABOUT_TABLES.match(sql) is not None
    with _our_errors():
        _check(connection, sql, declared, declared.keys() if is_about_tables else named)
        if is_about_tables:
            return _fetch(connection, sql, limits)
    connection.execute("ROLLBACK")
    tables = source.tables(named)
    for name, table in tables.items():
        if name in source.views:
            connection.register(f"_{name}", table)
            connection.execute(f"CREATE VIEW {name} AS {source.views[name]} FROM _{name}")
        else:
            connection.register(name, table)
    lacks = "this profile has no table {}: --schema lists those that it has"
    with _our_errors({name: source.omitted.get(name, lacks.format(name)) for name in named - tables.keys()}):
        return _fetch_unless_stopped(connection, sql, limits)


def sql(path: str | Location | Analysis, query: str, *, max_rows: int = MOST_ROWS, **options: Any) -> pd.DataFrame:
    """Return the answer to one SELECT about a profile: `tfperf.sql("logs", "select name from events limit 3")`.

    `path` is a logdir, a run folder, a `*.xplane.pb` file, a dataset, or what `tfperf.load` returned; `options` are
    those of `tfperf.load` (`run`, `hosts`, `attribution`, `step_marker`). docs/sql.md lists the tables. Integers stay
    exact: a column with missing values has the dtype Int64, one with numbers beyond 64 bits holds Python ints. An
    answer of more than `max_rows` is refused. Raises TfperfError.
    """
    import pandas as pd

    answer = ask(source_of(path, **options), query, QueryLimits(max_rows=max_rows))
    return pd.DataFrame(
        {name: _series(values) for name, values in zip(answer.names, answer.columns, strict=True)},
        index=range(len(answer)),
    )


def _series(values: Sequence[Any]) -> pd.Series[Any]:
    import pandas as pd

    kinds = set(map(type, values))
    if kinds == {int, type(None)}:
        try:
            return pd.Series(values, dtype="Int64")
        except OverflowError:
            return pd.Series(values, dtype=object)
    return pd.Series(values)


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise TfperfError("queries need DuckDB: pip install 'tfperf[sql]'") from error
    return duckdb


def _connect(memory_bytes: float) -> Any:
    """Return a database in memory that reaches no file, no network, and no variable of this program."""
    duckdb = _duckdb()
    connection = duckdb.connect(":memory:")
    for setting in _CLOSED_SINCE_1_2:
        try:
            connection.execute(f"SET {setting}")
        except duckdb.CatalogException:
            continue
    for setting in _CLOSED:
        connection.execute(f"SET {setting}")
    connection.execute(f"SET memory_limit = '{int(memory_bytes)}B'")
    connection.execute("SET lock_configuration = true")
    return connection


def _refuse_all_but_select(connection: Any, sql: str) -> None:
    """Raise QueryError unless the text is one statement that only reads."""
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise QueryError("the query is not UTF-8 text") from error
    statements = connection.extract_statements(sql)
    if not statements:
        raise QueryError(f"the query is empty: write one {_ALLOWED}")
    if len(statements) > 1:
        raise QueryError(f"the query has {len(statements)} statements: write one {_ALLOWED}")
    kind = statements[0].type.name
    if kind == "MULTI":
        raise QueryError("this takes several statements: give a PIVOT its values, as in PIVOT ... ON x IN (...)")
    if kind != "SELECT":
        raise QueryError(f"{kind} is refused, because a query only reads: write one {_ALLOWED}")


def _check(connection: Any, sql: str, declared: Mapping[str, SqlTable], names: Collection[str]) -> None:
    """Let DuckDB check the query against these tables, empty, in a transaction that stays open.

    The others are made only for the message about a table that does not exist, which says what name is near.
    """
    try:
        _explain(connection, sql, [table for name, table in declared.items() if name in names])
    except _duckdb().CatalogException:
        connection.execute("ROLLBACK")
        _explain(connection, sql, declared.values())


def _explain(connection: Any, sql: str, tables: Iterable[SqlTable]) -> None:
    connection.execute(";".join(("BEGIN", *(table.ddl() for table in tables))))
    connection.execute(f"EXPLAIN\n{sql}")


def _fetch_unless_stopped(connection: Any, sql: str, limits: QueryLimits) -> Answer:
    """Return the answer; Ctrl-C and time end it. DuckDB checks for that now and then, so it runs on another thread."""
    end_s = time.monotonic() + limits.timeout_s
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(_fetch, connection, sql, limits)
        try:
            # With a timeout: a thread that waits without one does not always get Ctrl-C.
            while not answer.done() and time.monotonic() < end_s:
                wait([answer], timeout=_AGAIN_S)
        except KeyboardInterrupt:
            _interrupt(connection, answer)
            raise
        if not answer.done():
            _interrupt(connection, answer)
            raise TfperfError(
                f"the query was stopped after {limits.timeout_s:g} s: select less, or allow more time with --timeout"
            )
        return answer.result()


def _interrupt(connection: Any, answer: Future[Answer]) -> None:
    while not answer.done():
        connection.interrupt()
        wait([answer], timeout=_AGAIN_S)


def _fetch(connection: Any, sql: str, limits: QueryLimits) -> Answer:
    """Fetch the rows, but not many more than are allowed or asked for."""
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.description]
    most = limits.max_rows if limits.top is None else limits.top
    rows: list[tuple[Any, ...]] = []
    while len(rows) <= most and (more := cursor.fetchmany(min(_CHUNK_ROWS, most + 1 - len(rows)))):
        rows += more
    is_cut = len(rows) > most
    if is_cut and limits.top is None:
        raise TfperfError(
            f"the answer has more than {limits.max_rows:,} rows: add LIMIT or --top, or allow more with --max-rows"
        )
    columns = []
    for values in zip(*rows[:most], strict=True) if rows else ((),) * len(names):
        kinds = set(map(type, values))
        converted = kinds & {Decimal, bytes, bytearray, list, dict, tuple}
        columns.append([_plain(value) for value in values] if converted else values)
    return Answer(_different(names), tuple(columns), is_cut)


def _different(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, with numbers for those that occur again: `n`, `n_2`."""
    different: dict[str, None] = {}
    for name in names:
        number, numbered = 1, name
        while numbered in different:
            number += 1
            numbered = f"{name}_{number}"
        different[numbered] = None
    return tuple(different)


def _plain(value: Any) -> Any:
    """Return decimals as numbers (whole ones exactly) and bytes as hexadecimal digits, also inside lists."""
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@contextmanager
def _our_errors(absent: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turn DuckDB's errors into ours; `absent` says of tables that exist why this profile does not have them."""
    duckdb = _duckdb()
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        advice = "select fewer rows or columns, or allow more with --memory-limit"
        raise TfperfError(f"the query needs more memory than it may take: {advice}") from error
    except duckdb.PermissionException as error:
        raise QueryError(f"refused, because a query reads only the profile: {_sentence(error)}") from error
    except duckdb.CatalogException as error:
        for name, reason in sorted((absent or {}).items()):
            if re.search(rf"\bname {name}\b", str(error), re.IGNORECASE):
                raise TfperfError(reason) from error
        raise QueryError(f"{_sentence(error)} ({HINT})") from error
    except duckdb.Error as error:
        if "pytz" in str(error):
            raise QueryError("a time with a time zone cannot be shown: cast it, as in now()::TIMESTAMP") from error
        raise QueryError(f"{_sentence(error)} ({HINT})") from error


def _sentence(error: Exception) -> str:
    """Return DuckDB's message on one line, without its excerpt of the SQL and without a Python traceback."""
    text = re.split(r"\n+LINE \d+:|\nTraceback", str(error))[0]
    line = re.search(r"\nLINE (\d+):", str(error))
    # The check puts a line above the query.
    where = f" in line {int(line[1]) - 1}" if line and int(line[1]) > 2 else ""
    return " ".join(text.split()).rstrip(".") + where
