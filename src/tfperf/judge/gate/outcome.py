"""What a gate came to: the result of each limit, and the exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tfperf.base.display import Shown, cut
from tfperf.base.units import Unit
from tfperf.judge.gate.limits import Limit, Status
from tfperf.report.model import Finding

if TYPE_CHECKING:
    from tfperf.judge.compare.regression import StepComparison
else:  # help(Judged) looks the name up
    StepComparison = Any


class Judged(Shown, Struct, frozen=True, kw_only=True):
    """One limit, judged on the worst host for it."""

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
    """If unknown: what is missing, and what to try. Else: what the number rests on; may be empty."""
    evidence: tuple[Finding, ...] = ()
    """For a breach: the sentences of the report that explain it, with the first advice."""
    comparison: StepComparison | None = None
    """For a limit on the regression against a baseline."""
    doubt: str = ""
    """What makes the figure doubtful, if it was judged all the same because doubt is allowed."""


class Outcome(Shown, Struct, frozen=True, kw_only=True):
    """A gate, judged: the result of each limit, and which profile it is about.

    `exit_code` is 3 if a limit is breached, else 1 if one could not be judged (or there is none), else 0.
    """

    judged: tuple[Judged, ...]
    run: str = ""
    folder: str = ""
    config_file: str = ""
    """Where limits and settings come from, besides the command line; empty: from nowhere else."""
    hosts: tuple[str, ...] = ()
    step_count: int = 0
    """Whole steps judged, of the host that has fewest."""
    step_kind: str = ""
    """Their kind; empty if nothing was judged."""
    other_kinds: Mapping[str, int] = {}
    """Whole steps of other kinds, which figures leave out: of each kind, of the host that has most."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return cut(super().__repr__().replace("(", f"(exit_code={self.exit_code}, ", 1))

    @property
    def breached(self) -> tuple[Judged, ...]:
        """Return the limits that do not hold."""
        return tuple(judged for judged in self.judged if judged.status == "breach")

    @property
    def unknown(self) -> tuple[Judged, ...]:
        """Return the limits that could not be judged."""
        return tuple(judged for judged in self.judged if judged.status == "unknown")

    @property
    def despite_doubt(self) -> tuple[Judged, ...]:
        """Return the limits that were judged although their figures are doubtful."""
        return tuple(judged for judged in self.judged if judged.doubt)

    @property
    def exit_code(self) -> int:
        """Return 0 if every limit holds, 3 if one is breached, 1 if that is unknown."""
        if self.breached:
            return 3
        return 1 if self.unknown or not self.judged else 0


def not_judged(limits: Sequence[Limit], reason: str) -> Outcome:
    """Return the outcome of a gate that got no profile to judge: every limit is unknown."""
    return Outcome(
        judged=tuple(
            Judged(limit=limit, status="unknown", title=limit.metric.name, measured=None, unit="", host="", why=reason)
            for limit in limits
        )
    )
