"""Values as people type them, made into numbers once: `2s`, `50ms`, `64MB`."""

from __future__ import annotations

import re
from typing import Any

import click

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)")


class _Quantity(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A positive number with one of the units; a bare number is refused, since it might mean anything."""

    def __init__(self, name: str, units: dict[str, float], example: str) -> None:
        self.name, self._units, self._example = name, units, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        found = _QUANTITY.fullmatch(str(value).strip())
        unit = found[2].lower() if found else ""
        if not found or unit not in self._units:
            self.fail(f"{value!r} is no {self.name}; write {self._example}", param, ctx)
        amount = float(found[1]) * self._units[unit]
        if not amount:
            self.fail(f"{value!r} is nothing; write {self._example}", param, ctx)
        return amount


DURATION = _Quantity("duration", _SECONDS, "2s, 500ms or 1.5m")
"""Seconds."""
SIZE = _Quantity("size", {key: float(value) for key, value in _BYTES.items()}, "500MB or 2GiB")
"""Bytes."""


class _Regex(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A regular expression, kept as the text it is."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            re.compile(str(value))
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}; write \\ before ( ) [ ] * + ? .", param, ctx)
        return str(value)


REGEX = _Regex()


class _StepRange(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`3..5`, both included, or one number."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        first, dots, last = str(value).partition("..")
        try:
            found = int(first), int(last if dots else first)
        except ValueError:
            self.fail(f"{value!r} is no range of steps; write 3..5, or 3", param, ctx)
        if found[0] > found[1]:
            self.fail(f"{value!r} ends before it begins; write {found[1]}..{found[0]}", param, ctx)
        return found


STEP_RANGE = _StepRange()
"""First and last number."""
