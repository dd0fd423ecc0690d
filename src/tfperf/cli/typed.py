"""Values as people type them: durations, sizes, steps, sections, paths."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from tfperf.base.errors import TfperfError, TraceNotFoundError
from tfperf.base.storage.remote_path import located
from tfperf.base.units import DURATIONS, SIZES, converted, did_you_mean, split_quantity

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tfperf.trace.steps.steps import WhichStep

ANONYMOUS, ENDPOINT = "tfperf.anonymous", "tfperf.endpoint_url"
"""Where the options that say how addresses are reached leave their values (`Context.meta`)."""


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
    from tfperf.base.patterns import pattern

    try:
        return pattern(text).text
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def step_range(text: str) -> tuple[int, int]:
    """Return the first and the last number, both included, of `3..5` or `3`."""
    numbers = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", text.strip(), re.ASCII)
    if not numbers:
        raise click.BadParameter(f"{text!r} is not a range of steps: write 3..5, or 3")
    first, last = int(numbers[1]), int(numbers[2] or numbers[1])
    if first > last:
        raise click.BadParameter(f"{text!r} ends before it starts: write {last}..{first}")
    return first, last


class _WhichStep(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The number of a step, or which of them by its duration."""

    name = "step"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> WhichStep:
        text = str(value).strip()
        if text in ("median", "slowest"):
            return text  # type: ignore[return-value]
        if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
            self.fail(f"{value!r} is not a step: write its number, median or slowest", param, ctx)
        return int(text)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(word) for word in ("median", "slowest") if word.startswith(incomplete)]


class _Section(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The name of a section; the list is made when it is needed, for other packages may add to it."""

    name = "section"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(self.choices)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            parts = str(value).split(",")
            if len(parts) > 1 and all(part.strip() in self.choices for part in parts):
                typed = " ".join(f"-s {part.strip()}" for part in parts)
                self.fail(f"{value!r} is several sections: write {typed}", param, ctx)
            known = did_you_mean(str(value), self.choices) or f"choose one of {', '.join(self.choices)}"
            self.fail(f"{value!r} is not a section: {known}", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return completions(self.choices, incomplete)

    @property
    def choices(self) -> tuple[str, ...]:
        from tfperf.analysis.registry import section_names

        return section_names()


def completions(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the names that begin as what was typed, for a shell."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class Integer(click.IntRange):
    """A whole number; help and messages call it so, and not `integer range`."""

    name = "integer"


class NonEmptyPath(click.Path):
    """A path; an empty one, as an unset variable of a shell leaves it, is not the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not os.fspath(value):
            self.fail("the path is empty (a variable that is not set?); for the current folder give .", param, ctx)
        return super().convert(value, param, ctx)


class _PathOrAddress(NonEmptyPath):
    """A path, or an address such as s3://bucket/report.json."""

    def __init__(self, *, is_read: bool) -> None:
        super().__init__(path_type=Path, readable=False)
        self._is_read = is_read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a Path, or a RemotePath that is reached as the options of the command say."""
        try:
            path = located(value)
            if isinstance(path, Path):
                return super().convert(value, param, ctx)
            meta = ctx.meta if ctx else {}
            # A report on a public profile goes to a place of the user's own.
            path = replace(path, anonymous=self._is_read and meta.get(ANONYMOUS, False))
            takes_endpoint = self._is_read or bool(path.scheme.endpoint)
            return replace(path, endpoint_url=meta.get(ENDPOINT)) if takes_endpoint else path
        except TfperfError as error:
            self.fail(str(error), param, ctx)


class _TracePath(_PathOrAddress):
    """The path or address of a profile; a whole file system is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from tfperf.trace.logdir import refuse_broad

        path = super().convert(value, param, ctx)
        try:
            refuse_broad(path)
        except TraceNotFoundError as error:
            self.fail(str(error), param, ctx)
        except OSError:
            pass  # What opens it says why it cannot be read.
        return path


SECTION = _Section()
WHICH_STEP = _WhichStep()
PATH = NonEmptyPath(path_type=Path, readable=False)
"""Whether a file can be read is found when it is opened."""
DEFAULT_LOGDIR = "logs"
SUMMARY = _PathOrAddress(is_read=True)
"""A baseline."""
OUTPUT = _PathOrAddress(is_read=False)
TRACE_PATH = _TracePath(is_read=True)
STATISTIC = click.Choice(("mean", "median", "p95"))
COUNT, AT_LEAST_ONE = Integer(0), Integer(1)
