"""Quantities as people type them: a number and a unit, `50ms`, `1.5 GiB`, `10%`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

DURATIONS: Mapping[str, int] = {
    "us": 10**6,
    "ms": 10**9,
    "s": 10**12,
    "m": 60 * 10**12,
    "min": 60 * 10**12,
    "h": 3600 * 10**12,
}
"""Picoseconds in each unit of time."""
SIZES: Mapping[str, int] = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
"""Bytes in each unit of size."""

_QUANTITY = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z%]*)"
_LONGEST = 100


def split_quantity(text: str) -> tuple[Decimal, str] | None:
    """Return number and unit (in lower case, empty if there is none); None if the text is not a quantity.

    Signs, exponents, `nan` and `inf` are not allowed. The number is exact, so that the same quantity in another
    unit is the same float.
    """
    match = re.fullmatch(_QUANTITY, text.strip()) if len(text) <= _LONGEST else None
    return (Decimal(match[1]), match[2].lower()) if match else None


def converted(number: Decimal, factor: int, per: int) -> float:
    """Return `number` of a unit that holds `factor`, in units that hold `per`."""
    return float(number * factor / per)
