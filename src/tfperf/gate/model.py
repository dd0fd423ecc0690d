"""A limit, and what became of it: plain values between the parts of the gate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tfperf.compare.model import Comparison
    from tfperf.report.model import Finding, Report
    from tfperf.units import Unit

Relation = Literal["<", "<=", ">", ">="]
Status = Literal["pass", "breach", "unknown"]
"""unknown: it could not be judged."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Keeps rows of a table: `name~nccl`. `value` is text, or a number in the unit of the column."""

    column: str
    relation: Literal["~", "!~", "=", "!=", "<", "<=", ">", ">="]
    value: str | float


@dataclass(frozen=True, slots=True)
class Metric:
    """What is measured: a named metric (`table` is empty), or a column of a table of the report.

    `function` is one of sum, max, min, mean, median, p95, count; empty for a column: each row by itself.
    """

    name: str
    """Of the metric, or of the column."""
    table: str = ""
    function: str = ""
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Limit:
    """`metric` `relation` `bound` must hold. `text` is how the user wrote it, `origin` where (command line, a file)."""

    text: str
    metric: Metric
    relation: Relation
    bound: float
    """In the unit of what is measured: ms, us, % (0 to 100), bytes, count."""
    origin: str = "command line"


@dataclass(frozen=True, slots=True)
class Judged:
    """One limit, judged: on the host that is worst for it."""

    limit: Limit
    status: Status
    title: str
    """What was measured, in words: `Input-bound`, `Step time (p95)`, `sum of kernels.total_us[name~nccl]`."""
    measured: float | None
    """In the unit of the limit; None if it could not be measured."""
    unit: Unit
    host: str
    """The worst host; empty where there is one host only, or none was measured."""
    why: str = ""
    """For unknown: what is missing and what to try. For others: what the number rests on; may be empty."""
    evidence: tuple[Finding, ...] = ()
    """For a breach: the sentences of the report that explain it, with the first advice."""
    comparison: Comparison | None = None
    """For a limit on the regression against a baseline."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A gate, judged: what became of each limit, and what was looked at.

    `exit_code` is 3 if a limit is breached, else 1 if one could not be judged (or there is none), else 0.
    """

    judged: tuple[Judged, ...]
    run: str
    folder: str
    hosts: tuple[str, ...]
    step_count: int
    """Whole steps judged, of the host that has fewest."""
    notes: tuple[str, ...] = field(default=())

    @property
    def breached(self) -> tuple[Judged, ...]:
        """Return the limits that do not hold."""
        return tuple(one for one in self.judged if one.status == "breach")

    @property
    def unknown(self) -> tuple[Judged, ...]:
        """Return the limits that could not be judged."""
        return tuple(one for one in self.judged if one.status == "unknown")

    def report(self) -> Report:
        """Return the report of `tfperf check`, ready for a renderer."""
        from tfperf.gate.report import check_report

        return check_report(self)

    @property
    def exit_code(self) -> int:
        """Return 0 if every limit holds, 3 if one is breached, 1 if it cannot be told."""
        if self.breached:
            return 3
        return 1 if self.unknown or not self.judged else 0
