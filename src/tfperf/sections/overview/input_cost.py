"""What input costs a step: waiting for batches, copying them, and what the pipeline's threads take from the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from tfperf.analysis.results import Results
from tfperf.report.model import Finding, Quantity
from tfperf.sections.overview.quantities import of_steps

if TYPE_CHECKING:
    from tfperf.sections.overview.summary import Overview
    from tfperf.sections.tfdata.analysis import TfData
    from tfperf.sections.tfdata.whatif import Outlook

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
    def is_more_than_waiting(self) -> bool:
        """Tell whether it is more than the category Input, by what is worth saying."""
        return self.slowed_low >= _LEAST_PERCENT

    def quantities(self, of: str) -> tuple[Quantity, Quantity, Quantity]:
        """Return the least and the most, and the category Input."""
        low, high = Quantity("input_cost, at least", self.low, of=of), Quantity("input_cost", self.high, of=of)
        return low, high, Quantity("input", self.waiting, of=of)


def cost_finding(results: Results) -> tuple[Finding, ...]:
    """Say what input costs, and its parts, where that is more than the category Input."""
    cost = input_cost(results)
    if cost is None or not cost.is_more_than_waiting:
        return ()
    low, high, waiting = quantities = cost.quantities(whose_input(results))
    text = (
        f"Input costs {from_to(low, high)} of the step: {waiting} waiting, the rest because its threads use the cores "
        "that the step needs."
    )
    return (Finding("input_cost", "hint", text, causes=("input_contention",), quantities=quantities),)


def from_to(low: Quantity, high: Quantity) -> str:
    """Return a range of shares as text: `8.9 to 36.4%`."""
    return f"{str(low).removesuffix('%')} to {high}"


def whose_input(results: Results) -> str:
    """Return whose the share of input is: of several hosts, the one that waits longest."""
    overview: Overview = results["overview"]
    worst = overview.worst_host
    return of_steps(overview.kind, "" if worst is None else results.hosts[worst].host)


def outlook_of(results: Results) -> Outlook | None:
    """Return what is known of the pipeline that the steps of these results wait for; None if that is unknown."""
    tfdata: TfData = results["tfdata"]
    if results.is_other_kind:
        return tfdata.of_kinds.get(results["overview"].kind)
    return tfdata.outlook


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
    outlook = outlook_of(results)
    if why_unknown_slowed(results):
        return None
    return (0.0, 0.0) if outlook is None else outlook.slowed_percent


def why_unknown_slowed(results: Results) -> str:
    """Say why it is unknown how much the threads of the pipelines slow the step; empty if it is known."""
    tfdata: TfData = results["tfdata"]
    if tfdata.main is None or results.has_device:
        return ""
    outlook = outlook_of(results)
    if outlook is None:
        return "no call of the pipeline starts in the averaged steps"
    if outlook.slowed_percent is None:
        return "the number of cores is not recorded"
    return ""
