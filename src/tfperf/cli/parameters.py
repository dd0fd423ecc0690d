"""Values as people type them, parsed once: `2s`, `50ms`, `64MB`, `3..5`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

from tfperf.quantities import DURATIONS, SIZES, converted, split_quantity


class _Quantity(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A positive number with a unit; a number without one is refused, since it could mean anything."""

    def __init__(self, name: str, units: Mapping[str, int], per: int, example: str) -> None:
        self.name, self._units, self._per, self._example = name, units, per, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        quantity = split_quantity(str(value))
        if not quantity or quantity[1] not in self._units:
            self.fail(f"{value!r} is not a {self.name}: write {self._example}", param, ctx)
        amount = converted(quantity[0], self._units[quantity[1]], self._per)
        if not amount:
            self.fail(f"{value!r} is zero: write {self._example}", param, ctx)
        return amount


DURATION = _Quantity("duration", DURATIONS, DURATIONS["s"], "2s, 500ms or 1.5m")
"""Seconds."""
SIZE = _Quantity("size", SIZES, 1, "500MB or 2GiB")
"""Bytes."""


def regex(text: str) -> str:
    """Return a regular expression, still as text."""
    try:
        re.compile(text)
    except re.error as error:
        hint = "write \\ before ( ) [ ] * + ? . that are text"
        raise click.BadParameter(f"{text!r} is not a regular expression: {error}; {hint}") from error
    return text


def step_range(text: str) -> tuple[int, int]:
    """Return the first and the last number, both included, of `3..5` or `3`."""
    numbers = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", text.strip(), re.ASCII)
    if not numbers:
        raise click.BadParameter(f"{text!r} is not a range of steps: write 3..5, or 3")
    first, last = int(numbers[1]), int(numbers[2] or numbers[1])
    if first > last:
        raise click.BadParameter(f"{text!r} ends before it starts: write {last}..{first}")
    return first, last


class _Section(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The name of a section; the list is made when it is needed, for other packages may add to it."""

    name = "section"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(_section_names())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in _section_names():
            self.fail(f"{value!r} is not a section: choose one of {', '.join(_section_names())}", param, ctx)
        return str(value)


def _section_names() -> tuple[str, ...]:
    from tfperf.sections.registry import section_names

    return section_names()


SECTION = _Section()
