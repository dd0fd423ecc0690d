"""Options that several commands share, and how they become a loaded trace."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tfperf.session import Trace

Command = TypeVar("Command", bound=Callable[..., Any])

ATTRIBUTIONS = ("corrected", "tensorflow")


def trace_options(command: Command) -> Command:
    """Add the options that choose what is read and how it is attributed."""
    decorators = (
        click.argument("path", type=click.Path(path_type=Path)),
        click.option("--run", metavar="NAME", help="Analyze this run instead of the newest."),
        click.option("--host", "hosts", metavar="NAME", multiple=True, help="Only this host (repeatable)."),
        click.option(
            "--attribution", type=click.Choice(ATTRIBUTIONS), default="corrected", show_default=True,
            help="corrected, or exactly what TensorFlow's own profiler concludes.",
        ),
        click.option(
            "--step-marker", metavar="NAME", help="Events of this name are the steps (* is a wildcard).",
        ),
        click.option("--force", is_flag=True, help="Replace files that exist."),
    )  # fmt: skip
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def load_trace(path: Path, **options: Any) -> Trace:
    """Load a trace, with a progress bar on stderr if that takes over a second and stderr is a terminal."""
    from tfperf.session import load

    if options["attribution"] == "tensorflow" and options.get("step_marker") is not None:
        raise click.UsageError("--step-marker has no meaning with --attribution tensorflow, which takes its own steps")
    if not sys.stderr.isatty():
        return load(path, **options)
    with _ProgressBar() as bar:
        return load(path, progress=bar.update, **options)


class _ProgressBar:
    """A bar that stays away for the first second."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> _ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int) -> None:
        """Show how far reading has come."""
        if self._bar is None:
            if time.monotonic() - self._begin < 1:
                return
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            columns = TextColumn("reading"), BarColumn(), TaskProgressColumn()
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("reading", total=total)
        self._bar.update(self._task, completed=done, total=total)
