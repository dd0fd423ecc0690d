"""Limits as options and files name them, and how those of both are put together."""

from __future__ import annotations

from collections.abc import Sequence

from tfperf.gate.bounds import as_fraction, read_bound
from tfperf.gate.catalogue import did_you_mean
from tfperf.gate.errors import LimitError
from tfperf.gate.grammar import check_bound, read_limit
from tfperf.gate.model import Limit, Metric
from tfperf.gate.named import NAMED, NamedLimit

__all__ = ["NAMED", "NamedLimit", "merged", "named_limit", "parse_limit", "regression_tolerance"]


def parse_limit(text: str, origin: str = "command line") -> Limit:
    """Return the limit that `--limit` says; `tfperf.gate.grammar` has the grammar. Raises LimitError."""
    return read_limit(text, origin)


def named_limit(name: str, value: str, origin: str = "command line") -> Limit:
    """Return the limit that an option or key sets, such as `max-input-bound` and `10%`. Raises LimitError."""
    name = name.replace("_", "-")
    if name not in NAMED:
        raise LimitError(f"{origin}: there is no limit {name[:80]!r}: {did_you_mean(name, NAMED)}")
    named = NAMED[name]
    try:
        bound = read_bound(value, named.unit, bare=False)
        check_bound(bound, named.figure, named.relation)
    except ValueError as error:
        raise LimitError(f"{origin}: {name}: {error}") from None
    return Limit(f"{name} {value.strip()}", Metric(named.figure), named.relation, bound, origin)


def regression_tolerance(value: str, origin: str = "command line") -> float:
    """Return what `--max-regression` says as a share: 5% is 0.05. Raises LimitError."""
    try:
        return as_fraction(read_bound(value, "%", bare=False))
    except ValueError as error:
        raise LimitError(f"{origin}: max-regression: {error}") from None


def merged(of_file: Sequence[Limit], own: Sequence[Limit]) -> tuple[Limit, ...]:
    """Return the limits of a file and of the command line, which replace those of the file on the same figure.

    The same figure is the same metric in the same direction; every limit of the command line stays.
    """
    said = {_key(limit) for limit in own}
    return (*(limit for limit in of_file if _key(limit) not in said), *own)


def _key(limit: Limit) -> tuple[Metric, str]:
    return limit.metric, limit.relation[0]
