"""Ranges that must be known, for tests of the diagnosis."""

from __future__ import annotations

from tfperf.sections.diagnosis.cause import Cause, Range


def bounds(found: Range | None) -> tuple[float, float]:
    """The least and the most of a range."""
    assert found is not None
    return found.low, found.high


def most(cause: Cause) -> float:
    """What a cause costs of the step at most, in percent."""
    return bounds(cause.cost_percent)[1]
