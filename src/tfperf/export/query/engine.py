"""DuckDB in a sandbox: read-only access to the tables of a profile and nothing else.

It runs in a separate process (`apart`). The calling process imports this module too, so slow imports are deferred.

A query is first checked against empty tables in a transaction that is rolled back, so that mistakes are reported before
data is read. Only the tables named in the query are built: building all of them would take longer than most queries.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tfperf.base.errors import TfperfError
from tfperf.base.process import end_with_parent
from tfperf.base.storage.remote_path import Location
from tfperf.base.units import format_bytes

if TYPE_CHECKING:
    from tfperf.analysis.load import Analysis
    from tfperf.export.query.sources import Dataset, Source
    from tfperf.export.query.sql_tables import SqlTable

HINT = "tfperf query --schema lists tables and columns"
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
"""Unknown to older versions; without them, newer versions allow files of the database itself."""

_ABOUT_TABLES = re.compile(r"\s*(show|describe|desc)\b", re.IGNORECASE)
"""Statements with the same answer for empty tables."""

MOST_ROWS = 1_000_000  # default maximum of rows in an answer; more are refused
MOST_CELL_BYTES = 1 << 24
MEMORY_BYTES = 2_000_000_000
TIMEOUT_S = 60.0
_CHUNK_ROWS = 1 << 13
_VALUE_BYTES = 64  # approximate bytes of a Python object and its reference in a column
_CONVERTED = {Decimal, bytes, bytearray, list, dict, tuple}
_LONG = {str, bytes, bytearray, list, dict, tuple}  # types of unbounded size
_TEXTS = {str, bytes, bytearray, type(None)}
ADVICE = "select fewer rows or columns, or allow more with --memory-limit"


class QueryLimits(Struct, frozen=True):
    """Limits of a query: `memory_bytes` for DuckDB, and the same again for the answer unless `answer_bytes` is set.

    `timeout_s` limits DuckDB's time. `top` fetches only that many rows, without a limit on `top`.
    """

    max_rows: int = MOST_ROWS
    memory_bytes: float = MEMORY_BYTES
    timeout_s: float = TIMEOUT_S
    top: int | None = None
    answer_bytes: float | None = None


class QueryError(TfperfError):
    """Invalid SQL, or a statement that does more than read the profile; a usage error."""


class Answer(Struct, frozen=True):
    """The result of a query: unique column names, and each column's values as plain Python."""

    names: tuple[str, ...]
    columns: tuple[Sequence[Any], ...]
    is_cut: bool = False  # whether there are more rows than `top`

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.columns[0]) if self.columns else 0


class Query:
    """One SELECT about a profile: `check` it, `read` its tables, `fetch` the answer.

    The steps are separate so that the watching process can limit the time of DuckDB but not of reading. Raises
    QueryError if the SQL is invalid or refused, TfperfError if the query exceeds a limit or the profile lacks a table,
    TraceNotFoundError and TraceFormatError.
    """

    def __init__(self, source: Source | Dataset, sql: str, limits: QueryLimits | None = None) -> None:
        self._source, self._sql, self._limits = source, sql, limits or QueryLimits()
        self._connection = _connect(self._limits.memory_bytes)
        self._named: set[str] = set()
        self._absent: dict[str, str] = {}

    def check(self) -> Answer | None:
        """Check the query against empty tables; return the answer if it does not depend on their rows."""
        connection, declared = self._connection, self._source.declared
        with _our_errors():
            _refuse_all_but_select(connection, self._sql)
        self._named = set(re.findall(r"\w+", self._sql.lower())) & declared.keys()
        is_about_tables = _ABOUT_TABLES.match(self._sql) is not None
        with _our_errors():
            _check(connection, self._sql, declared, declared.keys() if is_about_tables else self._named)
            if is_about_tables:
                return _fetch(connection, self._sql, self._limits)
        connection.execute("ROLLBACK")
        return None

    def read(self) -> None:
        """Read the tables whose names occur in the SQL."""
        tables = self._source.tables(self._named)
        for name, table in tables.items():
            if name in self._source.views:
                self._connection.register(f"_{name}", table)
                self._connection.execute(f"CREATE VIEW {name} AS {self._source.views[name]} FROM _{name}")
            else:
                self._connection.register(name, table)
        lacks = "this profile has no table {}: --schema lists its tables"
        absent = self._named - tables.keys()
        self._absent = {name: self._source.omitted.get(name, lacks.format(name)) for name in absent}

    def fetch(self) -> Answer:
        """Run the query."""
        with _our_errors(self._absent):
            try:
                return _fetch(self._connection, self._sql, self._limits)
            finally:
                self._source.check_unchanged()


_queries: list[Query] = []  # the query, in its process


def begin(profile: str | Location | Analysis, sql: str, limits: QueryLimits, options: Mapping[str, Any]) -> Any:
    """Open the profile and the database, in the query's process."""
    end_with_parent()
    from tfperf.export.query.sources import source_of

    source = source_of(profile, **options)
    _queries.append(Query(source, sql, limits))
    return source.described


def check() -> Answer | None:
    """Run `Query.check` in the query's process."""
    return _queries[0].check()


def read() -> None:
    """Run `Query.read` in the query's process."""
    _queries[0].read()


def fetch() -> Answer:
    """Run `Query.fetch` in the query's process."""
    return _queries[0].fetch()


def _connect(memory_bytes: float) -> Any:
    """Return an in-memory database without access to files, network, and variables of this program."""
    import duckdb

    connection: Any = duckdb.connect(":memory:")
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
    """Raise QueryError unless the text is a single read-only statement."""
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise QueryError("the query is not UTF-8 text") from error
    statements = connection.extract_statements(sql)
    if not statements:
        raise QueryError(f"the query is empty: use one {_ALLOWED}")
    if len(statements) > 1:
        raise QueryError(f"the query has {len(statements)} statements: use one {_ALLOWED}")
    kind = statements[0].type.name
    if kind == "MULTI":
        raise QueryError("this requires several statements: list the values of PIVOT, as in PIVOT ... ON x IN (...)")
    if kind != "SELECT":
        raise QueryError(f"{kind} is not allowed, because queries are read-only: use one {_ALLOWED}")
    if statements[0].named_parameters:
        raise QueryError("the query has parameters: replace each parameter, such as $1, by a value")


def _check(connection: Any, sql: str, declared: Mapping[str, SqlTable], names: Collection[str]) -> None:
    """Check the query against these tables, empty, in a transaction that stays open.

    The other tables are created only for DuckDB's suggestion of a similar name if a table does not exist.
    """
    import duckdb

    try:
        _prepare(connection, sql, [table for name, table in declared.items() if name in names])
    except duckdb.CatalogException:
        connection.execute("ROLLBACK")
        _prepare(connection, sql, declared.values())


def _prepare(connection: Any, sql: str, tables: Iterable[SqlTable]) -> None:
    """Let DuckDB plan the query. EXPLAIN would also render the plan: seconds for a constant of megabytes."""
    connection.execute(";".join(("BEGIN", *(table.ddl() for table in tables))))
    connection.execute(f"PREPARE checked AS\n{sql}")


def _fetch(connection: Any, sql: str, limits: QueryLimits) -> Answer:
    """Fetch at most slightly more rows than the limit or `top`."""
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.description]
    columns: list[list[Any]] = [[] for _ in names]
    most, count, size = limits.max_rows if limits.top is None else limits.top, 0, 0
    while rows := cursor.fetchmany(min(_CHUNK_ROWS, most + 1 - count)):
        count += len(rows)
        if count > most:
            if limits.top is None:
                advice = "add LIMIT or --top, or allow more with --max-rows"
                raise TfperfError(f"the result has more than {limits.max_rows:,} rows: {advice}")
            rows.pop()
        for column, values in zip(columns, zip(*rows, strict=True), strict=False):
            kinds = {*map(type, values)}
            size += len(values) * _VALUE_BYTES + (_long_bytes(values, kinds) if kinds & _LONG else 0)
            column += map(_plain, values) if kinds & _CONVERTED else values
        if size > (most_bytes := limits.answer_bytes or limits.memory_bytes):
            raise TfperfError(f"the result exceeds {format_bytes(most_bytes)} of memory: {ADVICE}")
        if count > most:
            break
    return Answer(_different(names), tuple(map(tuple, columns)), count > most)


def _long_bytes(values: Sequence[Any], kinds: set[type]) -> int:
    """Return the total length of texts and lists; raises TfperfError for one that is too long."""
    # No Python loop for texts: there may be millions.
    sizes = [*map(len if kinds <= _TEXTS else _text_bytes, filter(None, values))]
    if sizes and max(sizes) > MOST_CELL_BYTES:
        most = format_bytes(MOST_CELL_BYTES)
        raise TfperfError(
            f"a value in the result has more than {most}: select a part of it, for example with left(name, 1000)"
        )
    return sum(sizes)


def _text_bytes(value: Any) -> int:
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if isinstance(value, dict):
        value = (*value, *value.values())
    is_long = isinstance(value, (list, tuple))
    return _VALUE_BYTES * len(value) + sum(map(_text_bytes, value)) if is_long else 0


def _different(names: Sequence[str]) -> tuple[str, ...]:
    """Return unique names: repeated ones get numbers, as in `n`, `n_2`."""
    different: dict[str, None] = {}
    for name in names:
        number, numbered = 1, name
        while numbered in different:
            number += 1
            numbered = f"{name}_{number}"
        different[numbered] = None
    return tuple(different)


def _plain(value: Any) -> Any:
    """Return decimals as numbers (integers exactly) and bytes as hexadecimal digits, also inside lists."""
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@contextmanager
def _our_errors(absent: Mapping[str, str] | None = None) -> Iterator[None]:
    """Convert DuckDB's errors; `absent` gives reasons why this profile lacks an existing table."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise TfperfError(f"the query exceeds its memory limit: {ADVICE}") from error
    except duckdb.PermissionException as error:
        raise QueryError(f"not allowed, because a query can read only the profile: {_sentence(error)}") from error
    except duckdb.CatalogException as error:
        for name, reason in sorted((absent or {}).items()):
            if re.search(rf"\bname {name}\b", str(error), re.IGNORECASE):
                raise TfperfError(reason) from error
        raise QueryError(f"{_sentence(error)} ({HINT})") from error
    except duckdb.Error as error:
        if "pytz" in str(error):
            raise QueryError("times with a time zone are not supported: cast them, as in now()::TIMESTAMP") from error
        raise QueryError(f"{_sentence(error)} ({HINT})") from error


def _sentence(error: Exception) -> str:
    """Return DuckDB's message on one line, without its excerpt of the SQL and without a Python traceback."""
    text = re.split(r"\n+LINE \d+:|\nTraceback", str(error))[0]
    line = re.search(r"\nLINE (\d+):", str(error))
    # The check adds a line before the query.
    where = f" in line {int(line[1]) - 1}" if line and int(line[1]) > 2 else ""
    return " ".join(text.split()).rstrip(".") + where
