"""Bounds as people write them: `10%`, `50ms`, `10GiB`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from tfperf.base.units import DURATIONS, SIZES, converted, split_quantity

if TYPE_CHECKING:
    from tfperf.base.units import Unit

_LONGEST_QUOTE = 80

EXAMPLES: Mapping[Unit, str] = {
    "%": "10%",
    "ms": "50ms",
    "us": "500us",
    "ps": "500us",
    "bytes": "10GiB or 500MB",
    "count": "3",
    "": "3",
}
_FACTORS: Mapping[str, Mapping[str, int]] = {
    "bytes": SIZES,
    "%": {"%": 1},
    **dict.fromkeys(("ms", "us", "ps"), DURATIONS),
}


def read_bound(text: str, unit: Unit, *, bare: bool, signed: bool = False) -> float:
    """Return the number in a text, in `unit`.

    `bare` allows a number without its unit, `signed` a minus sign. Raises ValueError, which says what is wrong.
    """
    text = text.strip()
    negative = text.startswith("-")
    quantity = split_quantity(text[1:] if negative else text)
    if quantity is None:
        raise ValueError(f"{quoted(text)} is not a number: write {EXAMPLES[unit]}")
    if negative and not signed:
        raise ValueError(f"{quoted(text)} is negative, which the value never is: write {EXAMPLES[unit]}")
    value = _in_unit(text, *quantity, unit=unit, bare=bare)
    return -value if negative else value


def _in_unit(text: str, number: Decimal, mark: str, *, unit: Unit, bare: bool) -> float:
    factors = _FACTORS.get(unit, {})
    if mark not in {"", "%", *DURATIONS, *SIZES}:
        raise ValueError(f"{mark!r} in {quoted(text)} is not a unit: write {EXAMPLES[unit]}")
    if unit == "%" and not mark and 0 < number < 1:
        percent = format((100 * number).normalize(), "f")
        raise ValueError(f"{text!r} may mean {percent}% or {text}%: add the unit")
    if not mark and (bare or unit in ("%", "count", "")):
        return float(number)
    if not mark:
        raise ValueError(f"{quoted(text)} has no unit: write {EXAMPLES[unit]}")
    if mark not in factors:
        kind = {"%": "a percentage", "count": "a count", "": "a plain number"}.get(unit, f"in {unit}")
        raise ValueError(f"{quoted(text)} has the wrong unit: the value is {kind}, for example {EXAMPLES[unit]}")
    value = converted(number, factors[mark], factors.get(unit, 1))
    if not math.isfinite(value):
        raise ValueError(f"{quoted(text)} is too large")
    return value


def check_bound(value: float, unit: Unit, relation: str, *, is_share: bool) -> None:
    """Raise ValueError for a bound that every value of a figure holds, or none; a share is at most 100 %."""
    if is_share and value > 100:
        verdict = "never be breached" if relation.startswith("<") else "never hold"
        raise ValueError(f"a share is at most 100%, so {value:g}% could {verdict}")
    if not value and unit in ("ms", "bytes"):
        raise ValueError(f"a bound of 0 has no meaning here: write {'50ms' if unit == 'ms' else '10GiB'}")


def bound_text(value: float, unit: Unit) -> str:
    """Return a bound as `read_bound` takes it."""
    number = format(Decimal(repr(value)), "f")
    marks: Mapping[Unit, str] = {"%": "%", "ms": "ms", "us": "us", "bytes": "B"}
    return number.removesuffix(".0") + marks.get(unit, "")


def quoted(text: str) -> str:
    """Return what a user wrote as messages quote it: cut if it is long."""
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}...")
