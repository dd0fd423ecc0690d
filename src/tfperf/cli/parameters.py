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


class _Regex(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A regular expression, kept as text."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            re.compile(str(value))
        except re.error as error:
            self.fail(
                f"{value!r} is not a regular expression: {error}; write \\ before ( ) [ ] * + ? . that are text",
                param,
                ctx,
            )
        return str(value)


REGEX = _Regex()


class _StepRange(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`3..5`, both included, or one number."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        numbers = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", str(value).strip(), re.ASCII)
        if not numbers:
            self.fail(f"{value!r} is not a range of steps: write 3..5, or 3", param, ctx)
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
        if first > last:
            self.fail(f"{value!r} ends before it starts: write {last}..{first}", param, ctx)
        return first, last


STEP_RANGE = _StepRange()
"""First and last number, both included."""


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
