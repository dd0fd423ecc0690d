"""A query in a separate process, which can be killed at any time.

DuckDB computes constants while it plans (`repeat('x', 1500000000)`), also for PREPARE, and then ignores its memory
limit and interruptions. So this process monitors the time and memory of the other, and kills it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tfperf.analysis.parallel.worker_pool import WorkerDiedError, WorkerProcess
from tfperf.base.errors import TfperfError, TfperfWarning
from tfperf.base.process import resident_bytes
from tfperf.base.storage.remote_path import Location
from tfperf.export.query.engine import ADVICE, MOST_ROWS, Answer, QueryLimits, begin, check, fetch, read

if TYPE_CHECKING:
    import pandas as pd

    from tfperf.analysis.load import Analysis

_LOOK_S = 0.05  # polling interval for the other process, and for Ctrl-C


def ask(
    profile: str | Location | Analysis, sql: str, limits: QueryLimits | None = None, **options: Any
) -> tuple[Answer, Mapping[str, Any]]:
    """Return the answer to one SELECT about a profile, and the description of the source for reports.

    Only the tables whose names occur in the SQL are read. `profile` and `options` are passed to `source_of`. Raises the
    errors of `Query`, and TfperfError if DuckDB is missing or the query exceeds its time or memory limit.
    """
    if find_spec("duckdb") is None:
        raise TfperfError("queries require DuckDB: pip install 'tfperf[sql]'")
    limits = limits or QueryLimits()
    watched = _Watched(limits)
    try:
        described: Mapping[str, Any] = watched.call(begin, profile, sql, limits, options)
        answer = watched.call(check, memory_bytes=limits.memory_bytes)
        if answer is None:
            watched.call(read)
            answer = watched.call(fetch, memory_bytes=2 * limits.memory_bytes)
    finally:
        watched.end()
    return answer, described


class _Watched:
    """The process of a query, monitored from outside."""

    def __init__(self, limits: QueryLimits) -> None:
        self._limits, self._left_s = limits, limits.timeout_s
        self._process = WorkerProcess(may_fork=True)

    def end(self) -> None:
        self._process.ask_to_end()
        self._process.end()

    def call(self, function: Callable[..., Any], *arguments: Any, memory_bytes: float | None = None) -> Any:
        """Call a function in the process; `memory_bytes` limits its memory, and its time to the rest of the timeout."""
        start_s, start_bytes = time.monotonic(), resident_bytes(self._process.id)
        with ThreadPoolExecutor(1) as pool:
            called = pool.submit(self._process.call, function, *arguments)
            try:
                # A timeout, because a thread that waits without one does not always receive Ctrl-C.
                while not called.done():
                    wait([called], timeout=_LOOK_S)
                    if memory_bytes is not None:
                        taken_s = time.monotonic() - start_s
                        taken_bytes = resident_bytes(self._process.id) - start_bytes
                        if taken_s > self._left_s:
                            asked = f"the query was stopped after {self._limits.timeout_s:g} s"
                            raise TfperfError(f"{asked}: select less data, or allow more time with --timeout")
                        if taken_bytes > memory_bytes:
                            raise TfperfError(f"the query exceeds its memory limit: {ADVICE}")
            except BaseException:
                self.end()
                raise
        if memory_bytes is not None:
            self._left_s -= time.monotonic() - start_s
        try:
            value, warned = called.result()
        except WorkerDiedError as error:
            raise TfperfError(f"DuckDB crashed during the query: {error}") from error
        for text in warned:
            warnings.warn_explicit(text, TfperfWarning, "tfperf", 1)
        return value


def sql(path: str | Location | Analysis, query: str, *, max_rows: int = MOST_ROWS, **options: Any) -> pd.DataFrame:
    """Return the answer to one SELECT about a profile: `tfperf.sql("logs", "select name from events limit 3")`.

    `path` is a logdir, a run folder, a `*.xplane.pb` file, a dataset, or a result of `tfperf.load`; `options` are those
    of `tfperf.load` that select and read hosts, and `strict` (missing hosts are an error). docs/sql.md lists the
    tables. Integers stay exact: a column with missing values has the dtype Int64, one with numbers beyond 64 bits holds
    Python ints. An answer with more than `max_rows` rows is refused. DuckDB runs in a separate process. Raises
    TfperfError.
    """
    import pandas as pd

    answer, _ = ask(path, query, QueryLimits(max_rows=max_rows), **options)
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
