"""Bounds as people write them, made into the unit of what they bound: `10%`, `50ms`, `10GiB`, `500`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal

from tfperf.gate.errors import as_written
from tfperf.quantities import DURATIONS, SIZES, converted, split_quantity
from tfperf.units import Unit

EXAMPLES: Mapping[Unit, str] = {
    "%": "10%", "ms": "50ms", "us": "500us", "bytes": "10GiB or 500MB", "count": "3", "": "3",
}  # fmt: skip
UNIT_NAMES: Mapping[Unit, str] = {
    "%": "a percentage", "ms": "in ms", "us": "in us", "bytes": "in bytes", "count": "a count", "": "a plain number",
}  # fmt: skip
_KNOWN = {"", "%", *DURATIONS, *SIZES}


def read_bound(text: str, unit: Unit, *, bare: bool, signed: bool = False) -> float:
    """Return the number that a text says, in `unit`.

    `bare` allows a number without a unit where there is one, `signed` a minus. Raises ValueError, with what is wrong.
    """
    text = text.strip()
    negative = text.startswith("-")
    found = split_quantity(text[1:] if negative else text)
    if found is None:
        raise ValueError(f"{as_written(text)!r} is no number; write {EXAMPLES[unit]}")
    if negative and not signed:
        raise ValueError(f"{as_written(text)!r} is negative, which this never is; write {EXAMPLES[unit]}")
    value = _in_unit(text, found, unit, bare=bare)
    return -value if negative else value


def as_fraction(percent: float) -> float:
    """Return a percentage as a share: the float that is nearest to it, so that 5 % is 0.05."""
    return float(Decimal(repr(percent)) / 100)


def bound_text(value: float, unit: Unit) -> str:
    """Return a bound as `read_bound` takes it."""
    number = format(Decimal(repr(value)), "f")
    marks: Mapping[Unit, str] = {"%": "%", "ms": "ms", "us": "us", "bytes": "B"}
    return (number[:-2] if number.endswith(".0") else number) + marks.get(unit, "")


def _in_unit(text: str, found: tuple[Decimal, str], unit: Unit, *, bare: bool) -> float:
    number, mark = found
    if mark not in _KNOWN:
        raise ValueError(f"{mark!r} in {as_written(text)!r} is no unit; write {EXAMPLES[unit]}")
    if unit == "%" and not mark and 0 < number < 1:
        percent = format((100 * number).normalize(), "f")
        raise ValueError(f"{text!r} may mean {percent}% or {text}%: write which")
    if not mark and (bare or unit in ("%", "count", "")):
        return float(number)
    if not mark:
        raise ValueError(f"{as_written(text)!r} has no unit; write {EXAMPLES[unit]}")
    units = _units(unit)
    if mark not in units:
        raise ValueError(f"{as_written(text)!r} is given where the value is {UNIT_NAMES[unit]}; write {EXAMPLES[unit]}")
    value = converted(number, units[mark], units.get(unit, 1))
    if not math.isfinite(value):
        raise ValueError(f"{as_written(text)!r} is too large")
    return value


def _units(unit: Unit) -> Mapping[str, int]:
    if unit in ("ms", "us"):
        return DURATIONS
    return SIZES if unit == "bytes" else {"%": 1} if unit == "%" else {}
