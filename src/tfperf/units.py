"""Units: how durations, sizes and shares are converted and shown.

Inside tfperf durations are integer picoseconds (`_ps`), sizes bytes, shares 0 to 1. Only names ending in another
unit (`_ms`, `_percent`) hold anything else.
"""

from __future__ import annotations

PS_PER_MS = 1e9
"""Picoseconds in a millisecond."""


def format_ms(value: float | None) -> str:
    """Show milliseconds: 0.012, 1.23, 45.6, 1234; never 0.000 unless it is exactly that."""
    if value is None:
        return "-"
    magnitude = abs(value)
    if 0 < magnitude < 0.0005:
        return "<0.001"
    digits = 0 if magnitude >= 1000 else 1 if magnitude >= 10 else 2 if magnitude >= 1 else 3
    return f"{value:.{digits}f}"


def format_percent(value: float | None) -> str:
    """Show a percentage with one digit; never 0.0 or 100.0 unless it is exactly that."""
    if value is None:
        return "-"
    text = f"{value:.1f}"
    if text == "0.0" and value > 0:
        return "<0.1"
    if text == "100.0" and value < 100:
        return ">99.9"
    return text
