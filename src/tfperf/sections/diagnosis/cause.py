"""What a diagnosis consists of: causes with what they cost, and actions with what they bring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from tfperf.analysis.registry import Tabular
from tfperf.report.model import Quantity
from tfperf.sections.overview.summary import Summary

Confidence = Literal["high", "medium", "low"]
Whole = Literal["step", "wall"]
"""The average step; or the wall time from the first step to the last one, per step."""


class Range(Struct, frozen=True):
    """From the least to the most that something is likely to be."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Return the value halfway."""
        return (self.low + self.high) / 2

    def scaled(self, factor: float) -> Range:
        """Return the range in another unit."""
        return Range(self.low * factor, self.high * factor)


class Action(Struct, frozen=True, kw_only=True):
    """A change of the program, in the words of the API that it uses."""

    code: str
    text: str
    step_ms: Range | None
    """The step time after the change; None: nothing in the trace tells it."""
    assumption: str
    """What the estimate rests on."""
    url: str
    """A public page that explains the change."""
    rest_ms: Range | None = None
    """The same if what is left of the step takes as long as now; None: `step_ms` counts on that already."""
    is_per_examples: bool = False
    """Whether `step_ms` is the time of as many examples as a step has now, which then are a part of a larger step."""

    @property
    def likely_ms(self) -> float | None:
        """Return the step time by which actions are ranked: halfway, if what is left takes as long as now."""
        after = self.rest_ms or self.step_ms
        return None if after is None else after.middle


class Evidence(Struct, frozen=True):
    """Where the number of a cause stands: a section, one of its tables, and the row by its name."""

    section: str
    table: str
    row: str


class Cause(Struct, frozen=True, kw_only=True):
    """One thing that costs time in each step of a kind, or that wastes the machine.

    `cost_ms` is per step; `cost_percent` its share of the step time. Both are None where the cost is not a part of the
    step: devices that do nothing, memory that is nearly full.
    """

    code: str
    title: str
    kind: str
    """The kind of step, such as `train` or `eval`."""
    cost_ms: Range | None
    cost_percent: Range | None
    detail: str
    """What shows it, as a clause with its numbers."""
    confidence: Confidence
    rests_on: tuple[Evidence, ...]
    actions: tuple[Action, ...]
    """The one with the largest likely gain first."""
    gain_ms: float
    """What fixing it likely takes off a step of this kind: causes are ranked by its share of the step.

    That is the gain of the first action; of an action without an estimate, half of the cost, if that is more."""
    step_ms: float
    """The step time of this kind today; of a cause of the wall time, the wall time per step."""
    quantities: tuple[Quantity, ...] = ()
    """The numbers that `detail` states."""
    host: str = ""
    """The host whose steps these are; empty: averages over hosts."""
    of: Whole = "step"
    """What the cost and the estimates are of: the average step, or the wall time of training per step."""
    wall_share: float = 1.0
    """How much of the wall time of training the time in `of` is, from 0 to 1."""
    is_aside: bool = False
    """Whether it only adds to another cause, which has the cost: the first screen leaves it out."""
    are_alternatives: bool = False
    """Whether its actions are alternatives: the first screen then shows all of them."""

    @property
    def gain_percent(self) -> float | None:
        """Return the share of the step that the first action likely takes away; None where it has no estimate."""
        after_ms = self.actions[0].likely_ms if self.actions else None
        return None if after_ms is None or not self.step_ms else 100.0 * (1.0 - after_ms / self.step_ms)

    @property
    def gain(self) -> float:
        """Return what causes are ranked by, as a share of the wall time of training, from 0 to 1."""
        return self.wall_share * self.gain_ms / self.step_ms if self.step_ms else 0.0


class Computed(Struct, frozen=True):
    """A layer or an op that computes, with its share of the step and how near it comes to the roofline, in percent."""

    name: str
    percent: float
    roofline_percent: float | None
    """None: unknown, as for all ops of a host."""


class Diagnosis(Tabular, frozen=True):
    """The causes found, the one that is best fixed first; `headline` says the first, or that there is none."""

    home = ("diagnosis", "causes")

    headline: str
    causes: tuple[Cause, ...]
    summary: Summary
    """The average step that was judged: that of `host`, or the average over hosts."""
    unknown: frozenset[str] = frozenset()
    """Categories that the trace cannot show."""
    host: str = ""
    """The host that sets the pace of the others; empty: there is none, or there is one host."""
    unjudged: Mapping[str, str] = {}
    """Codes of causes that the trace does not let anyone judge for these steps, or not wholly, and why."""
    computed: tuple[Computed, ...] = ()
    """What computes most, if computing takes most of the step: layers or ops, the largest first."""
    input_cost_percent: Range | None = None
    """What input costs of the step: waiting and copying, without what its threads take from others. None: unknown."""

    def named(self, code: str) -> tuple[Cause, ...]:
        """Return the causes of this code for the kind of steps that the headline is about."""
        return tuple(cause for cause in self.causes if (cause.code, cause.kind) == (code, self.summary.kind))
