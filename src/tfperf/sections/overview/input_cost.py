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
    if overview.input_percent is None or "tfdata" not in results.sections:
        return None
    tfdata: TfData = results["tfdata"]
    low, high = (0.0, 0.0) if tfdata.outlook is None else tfdata.outlook.slowed_percent
    rest = 100.0 - overview.input_percent
    return InputCost(overview.input_percent, min(low, rest), min(high, rest))
