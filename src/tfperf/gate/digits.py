"""Two numbers as text that compares as the numbers do: what is printed never contradicts a result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal

from tfperf.render.values import cell_text
from tfperf.units import Unit

_MOST_DIGITS = 17
_CLOSE = Decimal("1e-9")
_PREFIXES = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_BYTES: Mapping[str, int] = {"B": 1, **{prefix: 1024 ** (at + 1) for at, prefix in enumerate(_PREFIXES)}}


def shown_together(measured: float, bound: float, unit: Unit) -> tuple[str, str]:
    """Return both as text in the usual form, or with as many more digits as it takes to compare them correctly.

    Sizes include their unit; ms, us and % are added by the caller. A bound is shown as it was written, except for
    sizes, which may be written in other units.
    """
    if not (math.isfinite(measured) and math.isfinite(bound)):
        return cell_text(measured, unit), cell_text(bound, unit)
    side = side_of(Decimal(measured), Decimal(bound))
    for texts in _pairs(measured, bound, unit):
        read = _number(texts[0]), _number(texts[1])
        if side_of(*read) == side and (unit == "bytes" or _is_same(read[1], Decimal(bound))):
            break
    return texts


def _pairs(measured: float, bound: float, unit: Unit) -> Iterator[tuple[str, str]]:
    """Yield both as text with more and more digits; the last pair is exact."""
    yield cell_text(measured, unit), cell_text(bound, unit)
    name = _prefix(max(abs(measured), abs(bound))) if unit == "bytes" else ""
    mark = f" {name}" if name else ""
    for digits in range(1, _MOST_DIGITS + 1):
        left, right = (f"{value / _BYTES.get(name, 1):,.{digits}f}{mark}" for value in (measured, bound))
        yield left, right
    exact = " B" if name else ""
    yield f"{Decimal(measured):f}{exact}", f"{Decimal(bound):f}{exact}"


def _prefix(size: float) -> str:
    return next((name for name in reversed(_PREFIXES) if size >= _BYTES[name]), "B")


def _number(text: str) -> Decimal:
    """Return the number that a reader sees; `<` and `>` put it just below or above."""
    parts = text.replace(",", "").split()
    digits = parts[0].lstrip("<>")
    number = Decimal(digits) * _BYTES.get(parts[1] if parts[1:] else "", 1)
    nudge = Decimal("1e-9")
    return number - nudge if text.startswith("<") else number + nudge if text.startswith(">") else number


def _is_same(read: Decimal, bound: Decimal) -> bool:
    return abs(read - bound) <= _CLOSE * abs(bound)


def side_of(left: float | Decimal, right: float | Decimal) -> int:
    """Return on which side of the right number the left one lies: -1, 0 or 1."""
    return (left > right) - (left < right)
