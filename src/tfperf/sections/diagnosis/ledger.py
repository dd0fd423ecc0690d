"""The time of an average step, of which every part is blamed once.

The nine categories of the step table add up to the step. A cause claims a part of a category; what one cause has
claimed, no other one can. Claims are therefore never more than the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfperf.sections.diagnosis.cause import Range

if TYPE_CHECKING:
    from tfperf.sections.overview.summary import Summary

_PARTS = (
    "compilation",
    "output",
    "input_wait",
    "host_to_device",
    "kernel_launch",
    "host_compute",
    "device_collectives",
    "device_to_device",
    "device_compute",
    "all_others",
)


class Ledger:
    """The step time of one kind by category, in percent, and what of it is not blamed on any cause yet."""

    def __init__(self, step_ms: float, percent: Mapping[str, float], unknown: frozenset[str] = frozenset()) -> None:
        self.step_ms = step_ms
        self.of_ops, self.of_exchanges = 0.0, 0.0
        """The shares of Host compute that causes have claimed in which ops run, and in which replicas exchange data."""
        self.of_kernels = 0.0
        """The share of Host compute of kernels that Python runs one by one, where running them so costs little."""
        self._left = {part: percent.get(part, 0.0) for part in _PARTS if part not in unknown}

    def left(self, *parts: str) -> float:
        """Return the share of categories that nothing is blamed for yet, in percent."""
        return sum(self._left.get(part, 0.0) for part in set(parts))

    def claim(self, *parts: str, most: float | None = None, least: float | None = None) -> Range:
        """Blame what is left of the categories, or at most so much of it, in percent; return the range in percent.

        `least` is the low end of a cost that is known as a range only; the whole range is taken.
        """
        share = self.left(*parts) if most is None else min(most, self.left(*parts))
        rest = share
        for part in parts:
            taken = min(self._left.get(part, 0.0), rest)
            if part in self._left:
                self._left[part] -= taken
            rest -= taken
        return Range(share if least is None else min(least, share), share)

    def ms(self, percent: Range) -> Range:
        """Return a share of the step in milliseconds."""
        return percent.scaled(self.step_ms / 100.0)


def ledger_of(summary: Summary, unknown: frozenset[str]) -> Ledger:
    """Return the ledger of the average step of a kind; the summary must have steps."""
    if summary.step_time_ms is None:
        raise ValueError("a ledger needs steps")
    return Ledger(summary.step_time_ms.average, summary.percent, unknown)
