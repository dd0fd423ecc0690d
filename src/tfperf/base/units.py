"""Parse and format quantities."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Literal

Unit = Literal["", "ps", "us", "ms", "%", "count", "bytes"]

_DIGITS = re.compile("[0-9]+")
PS_PER_MS = 1e9
PS_PER_US = 1e6


# Digits follow docs/reading.md: three significant digits or all digits of a whole number; shares have one decimal.


def _digits(magnitude: float) -> int:
    """Return the number of decimals for three significant digits: 0 for at least 100, up to 3."""
    return 0 if magnitude >= 99.95 else 1 if magnitude >= 9.995 else 2 if magnitude >= 0.9995 else 3


def format_ms(value: float | None) -> str:
    """Format a time with three digits: 0.012, 1.23, 45.6, 1234; 0.000 only if it is exactly 0."""
    if value is None:
        return "-"
    magnitude = abs(value)
    if 0 < magnitude < 0.0005:
        return "<0.001" if value > 0 else ">-0.001"
    return f"{value + 0.0:.{_digits(magnitude)}f}"


def format_range(low: float, high: float) -> str:
    """Format two times with three digits, once if they look the same: `12.1 to 57.8`, `784`."""
    return " to ".join(dict.fromkeys((format_ms(low), format_ms(high))))


def format_number(value: float | None) -> str:
    """Format a number without a unit, or a rate, with three digits: `0.0025`, `4.16`, `52,571`."""
    if value is None:
        return "-"
    return f"{value + 0.0:,.0f}" if abs(value) >= 99.95 else f"{value + 0.0:.3g}"


def format_percent(value: float | None) -> str:
    """Format a percentage with one decimal; 0.0 and 100.0 only if exact."""
    if value is None:
        return "-"
    magnitude, sign = abs(value), "-" if value < 0 else ""
    text = f"{magnitude:.1f}"
    if text == "0.0" and magnitude > 0:
        return ">-0.1" if sign else "<0.1"
    if text == "100.0" and magnitude < 100:
        return "<-99.9" if sign else ">99.9"
    return sign + text


def format_bytes(value: float | None) -> str:
    """Format a size with three digits and a suitable unit: `512 B`, `1.50 kB`, `14.4 GB`; 1 kB is 1,000 bytes."""
    if value is None:
        return "-"
    size, unit = float(value), 0
    while abs(size) >= 999.5 and unit < len(BYTE_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    if not unit and size.is_integer():
        return f"{size + 0.0:.0f} B"
    return f"{size:.{min(_digits(abs(size)), 2)}f} {BYTE_UNITS[unit]}"


BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 step`, `2,345 steps`, `3 batches`; pass irregular plurals as `plural`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(texts: Sequence[str], most: int = 5) -> str:
    """Return the first texts and the number of others: `a, b, c and 12 more`."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more:,} more" if more > 0 else "")


DURATIONS: Mapping[str, int] = {
    "us": 10**6,
    "ms": 10**9,
    "s": 10**12,
    "m": 60 * 10**12,
    "min": 60 * 10**12,
    "h": 3600 * 10**12,
}
"""Picoseconds per unit of time."""
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
"""Bytes per unit of size."""

_QUANTITY = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z%]*)"
_LONGEST = 100


def split_quantity(text: str) -> tuple[Decimal, str] | None:
    """Return number and unit (lower case, possibly empty), or None if the text is not a quantity.

    Signs, exponents, `nan` and `inf` are not allowed. The number is exact, so equal quantities give equal floats.
    """
    match = re.fullmatch(_QUANTITY, text.strip()) if len(text) <= _LONGEST else None
    return (Decimal(match[1]), match[2].lower()) if match else None


def converted(number: Decimal, factor: int, per: int) -> float:
    """Convert `number` between units that are `factor` and `per` base units."""
    return float(number * factor / per)


def natural(text: str) -> tuple[tuple[str, int, str], ...]:
    """Return a sort key that orders `worker-2` before `worker-10`."""
    texts, numbers = _DIGITS.split(text), [*(digits.lstrip("0") for digits in _DIGITS.findall(text)), ""]
    return tuple((before, len(number), number) for before, number in zip(texts, numbers, strict=True))


def without_middle(text: str, limit: int, mark: str = "...") -> str:
    """Shorten text to `limit` characters, keeping twice as much of its end, because op names differ there."""
    if len(text) <= limit:
        return text
    head = limit // 3
    return text[:head] + mark + text[head + len(mark) - limit :]


_AS_CLOSE = 0.8


def did_you_mean(word: str, known: Iterable[str], shown_as: Mapping[str, str] | None = None) -> str:
    """Return similar known names as a question, or all if few; `shown_as` maps a name to its displayed form."""
    import difflib

    names = list(known)
    shown = shown_as or {name: name for name in names}
    word_in_lower = word.lower()[:100]
    close = difflib.get_close_matches(word_in_lower, names, n=3, cutoff=0.5)
    # Drop the others if one is much closer.
    alike = [difflib.SequenceMatcher(None, name, word_in_lower).ratio() for name in close]
    close = [name for name, ratio in zip(close, alike, strict=True) if ratio >= _AS_CLOSE * max(alike)]
    close += [name for name in names if word and word.lower() in name and name not in close][: 3 - len(close)]
    if close:
        *others, last = (shown[name] for name in close)
        return f"did you mean {' or '.join(filter(None, (', '.join(others), last)))}?"
    return f"choose one of {', '.join(map(shown.__getitem__, names))}" if len(names) <= 20 else ""


def percent(part: float, whole: float) -> float | None:
    """Return a share in percent, or None if the whole is 0."""
    return 100.0 * part / whole if whole else None
