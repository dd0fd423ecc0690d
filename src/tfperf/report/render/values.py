"""Format values as text, and make text safe to display."""

from __future__ import annotations

import math
import re
from typing import Any

from tfperf.base.units import format_bytes, format_ms, format_number, format_percent, listed, without_middle
from tfperf.report.model import Fact, Report

ELLIPSIS = "…"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """Replace lone surrogates by U+FFFD, so that text can be written as UTF-8."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def safe(text: str) -> str:
    r"""Return text with every unprintable character as a visible escape: `\n`, `\x1b`, `\u202e`, `\udc80`.

    Unprintable is defined by `str.isprintable`: control characters, bidi overrides and other invisible formatting, line
    separators, lone surrogates, unusual spaces. The result is one line without effect on terminals.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


COMMAND_LINE = re.compile(r"(?m)^([^\S\n]*)::")
COMMAND_MARK = re.compile(r"##(?=\w*\[)")


def without_commands(text: str) -> str:
    r"""Escape text from any source that CI runners would interpret as commands.

    GitHub's runner interprets each line that starts with blanks and `::`, and `##[...]` anywhere in a line; Azure's
    `##vso[...]`, TeamCity `##teamcity[...]`. A backslash breaks them: `\::`, `#\#[`.
    """
    return COMMAND_MARK.sub(r"#\\#", COMMAND_LINE.sub(r"\1\\::", text))


_LONG_NAME = re.compile(r"\S{401,}")
_LONGEST_NAME, _LONGEST_SENTENCE = 400, 4000


def for_people(text: str) -> str:
    """Return a message, sentence or cell as one safe, readable line; long names and long texts lose their middle."""
    if len(text) > _LONGEST_NAME:
        text = _LONG_NAME.sub(lambda name: without_middle(name[0], _LONGEST_NAME, ELLIPSIS), text)
        text = without_middle(text, _LONGEST_SENTENCE, ELLIPSIS)
    return safe(text)


def brief(text: str, limit: int) -> str:
    """Return text on one safe line of at most `limit` characters (not cells, which are slow to measure)."""
    return without_middle(safe(text), limit, ELLIPSIS)


Plain = float | int | str | bool | None

UNKNOWN = "-"

_LISTED_ITEMS = 4


def plain(value: Any) -> Plain:
    """Convert a numpy scalar to a Python value; NaN and infinities are unknown: None."""
    item = value.item() if hasattr(value, "item") else value
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    return item if item is None or isinstance(item, (bool, int, str)) else str(item)


def cell_text(value: Any, unit: str) -> str:
    """Format one value without its unit, on one safe line."""
    item = plain(value)
    if item is None:
        return UNKNOWN
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, str):
        return for_people(item)
    if unit in ("ms", "us"):
        return format_ms(item)
    if unit == "%":
        return format_percent(item)
    if unit == "bytes":
        return format_bytes(item)
    if isinstance(item, float) and item.is_integer() and abs(item) < 1e15:
        item = int(item)
    # Of whole numbers, only counts have thousands separators; ids and step numbers do not.
    if isinstance(item, int):
        return f"{item:,}" if unit == "count" else str(item)
    return format_number(item) if unit == "count" or abs(item) < 1e6 else f"{item:.3g}"


def measure_text(value: Any, unit: str) -> str:
    """Format one value with its unit: `15.9 ms`, `63.4%`, `1,234`."""
    text = cell_text(value, unit)
    return text if text == UNKNOWN else text + unit_mark(unit)


def unit_mark(unit: str) -> str:
    """Return the unit after a number: ` ms`, `%`; empty if the number has no unit or contains it."""
    if unit in ("", "count", "bytes"):
        return ""
    return "%" if unit == "%" else f" {unit}"


_MICROSECONDS = re.compile(r"(?<=\d )us\b|(?<=\()us(?=\))")
_ARROW = re.compile(r"(?<= )->(?= )")


def typeset(text: str) -> str:
    """Return prose with the signs that terminals spell in ASCII: `10 us -> 5 us` is `10 µs → 5 µs`."""
    if "us" in text:
        text = _MICROSECONDS.sub("µs", text)
    return _ARROW.sub("→", text) if "->" in text else text


def source_facts(report: Report) -> tuple[Fact, ...]:
    """Return the source as facts with titles from its keys: `run_name` is `Run name`."""
    facts = []
    for key, value in report.source.items():
        if (key, value) == ("attribution", "corrected"):
            continue  # as always, unless somebody asks for TensorFlow's
        if isinstance(value, (list, tuple)):
            if not value or isinstance(value[0], dict):
                continue  # objects are for programs
            shown: Plain = listed([cell_text(item, "") for item in value], _LISTED_ITEMS) or None
        elif isinstance(value, dict) or value == "":
            continue
        else:
            shown = plain(value)
        facts.append(Fact(key, key.replace("_", " ").capitalize(), shown))
    return tuple(facts)
