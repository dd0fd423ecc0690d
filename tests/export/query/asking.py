"""Ask a profile in this process: what the process of a query does, without the process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tfperf.export.query import engine
from tfperf.export.query.engine import Answer, Query, QueryLimits
from tfperf.export.query.sources import Dataset, Source


def ask(source: Source | Dataset, sql: str, limits: QueryLimits | None = None) -> Answer:
    """Return the answer to a query."""
    query = Query(source, sql, limits)
    if (answer := query.check()) is not None:
        return answer
    query.read()
    return query.fetch()


class ThisProcess:
    """What stands for the process of a query where that is not what is tested: it takes a second to start."""

    id = os.getpid()

    def __init__(self, *, may_fork: bool) -> None:
        engine._queries.clear()

    def call(self, function: Callable[..., Any], *arguments: Any) -> tuple[Any, tuple[str, ...]]:
        return function(*arguments), ()

    def ask_to_end(self) -> None:
        pass

    def end(self) -> None:
        pass
