"""Ask a profile in this process: what the process of a query does, without the process."""

from __future__ import annotations

from tfperf.query.dataset import Dataset
from tfperf.query.engine import Answer, Query, QueryLimits
from tfperf.query.sources import Source


def ask(source: Source | Dataset, sql: str, limits: QueryLimits | None = None) -> Answer:
    """Return the answer to a query."""
    query = Query(source, sql, limits)
    if (answer := query.check()) is not None:
        return answer
    query.read()
    return query.fetch()
