"""What input costs a step: waiting for batches, copying them, and what the pipeline's threads take from the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from tfperf.sections.results import Results
from tfperf.units import format_percent

if TYPE_CHECKING:
    from tfperf.sections.overview.summary import Overview
    from tfperf.sections.tfdata.analysis import TfData

_LEAST_PERCENT = 1.0
"""What the pipeline's threads must at least take from the step to be named."""


class InputCost(Struct, frozen=True):
    """Shares of the step, in percent."""

    waiting: float
    """Waiting for batches and copying them: the category Input."""
    slowed_low: float
    """What the threads of the pipeline add to the step's own work, at least and at most."""
    slowed_high: float

    @property
    def low(self) -> float:
        """Return what input costs at least."""
        return self.waiting + self.slowed_low

    @property
    def high(self) -> float:
        """Return what it costs at most."""
        return self.waiting + self.slowed_high

    @property
    def sentence(self) -> str:
        """Return the cost and its parts as a sentence; empty where it is no more than the category Input."""
        if self.slowed_low < _LEAST_PERCENT:
            return ""
        return (
            f"Input costs {format_percent(self.low)} to {format_percent(self.high)}% of the step: "
            f"{format_percent(self.waiting)}% waiting, the rest because its threads use the cores that the step needs."
        )


def input_cost(results: Results) -> InputCost | None:
    """Return what input costs the step of the overview; None if it is unknown, or tf.data was not analyzed."""
    overview: Overview = results["overview"]
    if overview.input_percent is None or "tfdata" not in results.sections or "input" in results["steps"].unknown:
        return None
    slowed = slowed_percent(results)
    if slowed is None:
        return None
    rest = 100.0 - overview.input_percent
    return InputCost(overview.input_percent, min(slowed[0], rest), min(slowed[1], rest))


def slowed_percent(results: Results) -> tuple[float, float] | None:
    """Return what the threads of the pipelines add to the step's own work, as shares of the step; None: unknown."""
    tfdata: TfData = results["tfdata"]
    if why_unknown_slowed(results):
        return None
    return (0.0, 0.0) if tfdata.outlook is None else tfdata.outlook.slowed_percent


def why_unknown_slowed(results: Results) -> str:
    """Say why it is unknown how much the threads of the pipelines slow the step; empty if it is known."""
    tfdata: TfData = results["tfdata"]
    if tfdata.main is None or results.has_device:
        return ""
    if results.is_other_kind:
        return "how much the threads of the pipeline slow these steps is estimated for the main kind of steps only"
    if tfdata.outlook is None:
        return "no call of the pipeline starts in the averaged steps"
    if tfdata.outlook.slowed_percent is None:
        return "the number of cores is not recorded"
    return ""
