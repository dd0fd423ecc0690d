"""Elements of a diagnosis: causes with costs, and actions with estimates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from tfperf.analysis.registry import Tabular
from tfperf.base.display import Plotted
from tfperf.report.model import Quantity
from tfperf.sections.overview.summary import Summary

Confidence = Literal["high", "medium", "low"]
Whole = Literal["step", "wall"]
"""The average step; or the wall time per step, from the first step to the last one."""
_ROUNDING = 1e-6


class Range(Struct, frozen=True):
    """Lowest and highest likely value."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Return the midpoint."""
        return (self.low + self.high) / 2

    def scaled(self, factor: float) -> Range:
        """Return the range in another unit."""
        return Range(self.low * factor, self.high * factor)


class Action(Struct, frozen=True, kw_only=True):
    """A change of the program, in terms of its API."""

    code: str
    text: str
    step_ms: Range | None
    """Step time after the change; None if the trace does not show it."""
    assumption: str
    url: str
    rest_ms: Range | None = None
    """Step time if the rest of the step takes as long as now; None if `step_ms` assumes that already."""
    snippet: str = ""
    """Code to type, as in `tfperf.report.model.Change`."""
    is_per_examples: bool = False
    """Whether `step_ms` is for the current number of examples, which are then a part of a larger step."""

    @property
    def likely_ms(self) -> float | None:
        """Return the step time that ranks actions: the midpoint, if the rest takes as long as now."""
        after = self.rest_ms or self.step_ms
        return None if after is None else after.middle


class Evidence(Struct, frozen=True):
    """Source of a cause's number: a section, one of its tables, and the row by name."""

    section: str
    table: str
    row: str


class Cause(Struct, frozen=True, kw_only=True):
    """A reason for time in each step of a kind, or for unused resources.

    `cost_ms` is per step; `cost_percent` is its share of the step time. Both are None if the cost is not a part of the
    step: unused devices, memory that is nearly full.
    """

    code: str
    title: str
    kind: str
    """Kind of step, such as `train` or `eval`."""
    cost_ms: Range | None
    cost_percent: Range | None
    detail: str
    """The evidence, as a clause with its numbers."""
    confidence: Confidence
    rests_on: tuple[Evidence, ...]
    actions: tuple[Action, ...]
    """The action with the largest likely gain comes first."""
    gain_ms: float
    """Likely saving per step of this kind: the gain of the first action (without an estimate, half of the cost if
    more)."""
    step_ms: float
    """Current step time of this kind; for a cause of wall time, the wall time per step."""
    quantities: tuple[Quantity, ...] = ()
    """Numbers in `detail`."""
    host: str = ""
    """Host whose steps these are; empty for averages over hosts."""
    of: Whole = "step"
    """Whole of the cost and the estimates: the average step, or the wall time of training per step."""
    wall_share: float = 1.0
    """Share of the wall time of training that the time in `of` makes up, from 0 to 1."""
    is_aside: bool = False
    """Whether it only explains another cause, which has the cost. The first screen leaves it out."""
    are_alternatives: bool = False
    """Whether its actions are alternatives. The first screen then shows all of them."""

    @property
    def gain_percent(self) -> float | None:
        """Return the part of the cost that the first action likely saves, in percent of the step.

        None without an estimate. Time outside the cost does not count, although it may get shorter, too.
        """
        after_ms = self.actions[0].likely_ms if self.actions else None
        if after_ms is None or not self.step_ms:
            return None
        saved = 100.0 * (1.0 - after_ms / self.step_ms)
        return saved if self.cost_percent is None else min(saved, self.cost_percent.high)

    def unless_rest_gets_faster(self, action: Action) -> float | None:
        """Return the step time without the whole cost, if the estimate of the action is less at best; else None."""
        after, cost = action.step_ms, self.cost_ms
        if after is None or cost is None or action.is_per_examples or after.high > self.step_ms:
            return None
        rest_ms = self.step_ms - cost.high
        return rest_ms if after.low <= rest_ms - _ROUNDING * self.step_ms else None

    @property
    def gain(self) -> float:
        """Return the gain that ranks causes, as a share of the wall time of training, from 0 to 1."""
        return self.wall_share * self.gain_ms / self.step_ms if self.step_ms else 0.0


class Computed(Struct, frozen=True):
    """A layer or op with its share of the step and of the roofline, in percent."""

    name: str
    percent: float
    roofline_percent: float | None
    """None if unknown, as for all ops of a host."""
    place: str = ""
    """Layer of an HLO op, else its source line or framework op; empty if unknown, and for names that contain it."""


class Part(Struct, frozen=True):
    """A part of a whole: the time of a cause, or of a category that no cause explains, in percent.

    Without a cause and a category, it is wall time outside the averaged steps that no cause explains.
    """

    cause: str
    category: str
    percent: float
    taken: Mapping[str, float] = {}
    """The categories that the time of the cause belongs to, in percent of the whole."""


class Diagnosis(Plotted, Tabular, frozen=True):
    """The causes, best to fix first; `headline` is the first one, or states that there is none."""

    home = ("diagnosis", "causes")

    headline: str
    causes: tuple[Cause, ...]
    summary: Summary
    """The diagnosed average step: of `host`, or over hosts."""
    unknown: frozenset[str] = frozenset()
    """Categories that the trace does not show."""
    host: str = ""
    """Host that sets the pace of the others; empty if there is none, or with a single host."""
    unjudged: Mapping[str, str] = {}
    """Codes of causes that cannot be evaluated, or only partly, for these steps, with the reasons."""
    computed: tuple[Computed, ...] = ()
    """Layers or ops with most compute time, largest first, if compute takes most of the step."""
    parts: tuple[Part, ...] = ()
    """The whole step, without overlaps; empty if categories are unknown because of missing events."""
    wall_parts: tuple[Part, ...] = ()
    """The wall time of training per step, `wall_ms`, likewise; empty if it is nearly the same as the step."""
    wall_ms: float | None = None
    input_cost_percent: Range | None = None
    """Input cost of the step: waiting and copying, without CPU contention. None if unknown."""

    def named(self, code: str) -> tuple[Cause, ...]:
        """Return the causes with this code for the kind of steps in the headline."""
        return tuple(cause for cause in self.causes if (cause.code, cause.kind) == (code, self.summary.kind))
