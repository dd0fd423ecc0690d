"""Options that several commands share, and how they become a loaded trace."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tfperf.render.formats import FORMATS, format_of_file

if TYPE_CHECKING:
    from tfperf.analysis import Analysis
    from tfperf.render import RenderOptions
    from tfperf.report.model import Report

Command = TypeVar("Command", bound=Callable[..., Any])

ATTRIBUTIONS = ("corrected", "tensorflow")


def trace_options(command: Command) -> Command:
    """Add the options that choose what is read and how it is attributed."""
    path = click.argument("path", type=click.Path(path_type=Path))
    run = click.option("--run", metavar="NAME", help="Analyze this run instead of the newest.")
    return decorated(command, (path, run, read_options))


def read_options(command: Command) -> Command:
    """Add the options that say how a run is read, whichever it is."""
    return decorated(command, (
        click.option("--host", "hosts", metavar="NAME", multiple=True, help="Only this host (repeatable)."),
        click.option(
            "--attribution", type=click.Choice(ATTRIBUTIONS), default="corrected", show_default=True,
            help="corrected, or exactly what TensorFlow's own profiler concludes.",
        ),
        click.option(
            "--step-marker", metavar="NAME", help="Events of this name are the steps (* is a wildcard).",
        ),
    ))  # fmt: skip


FORCE = click.option("--force", is_flag=True, help="Replace files that exist.")


def report_options(command: Command) -> Command:
    """Add the options that say how a report is shown, and where."""
    decorators = (
        click.option(
            "--format",
            "format_name",
            type=click.Choice(list(FORMATS)),
            help="Default: by the suffix of -o, else table.",
        ),
        click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file instead of stdout."),
        FORCE,
    )
    return decorated(command, decorators)


LEVELS = ("host_tracer_level", "device_tracer_level", "python_trace")
"""Names of the parameters that `tracer_options` adds."""


def tracer_options(command: Command) -> Command:
    """Add the options that say what to record."""
    return decorated(command, (
        click.option("--host-tracer-level", type=click.IntRange(0, 3), default=2, show_default=True,
                     help="0 off, 1 the program's own marks, 2 ops, 3 everything."),
        click.option("--device-tracer-level", type=click.IntRange(0, 1), default=1, show_default=True,
                     help="0 off, 1 on."),
        click.option("--python-trace", is_flag=True, help="Record every Python call (slows the job down a lot)."),
    ))  # fmt: skip


def say(line: str) -> None:
    """Tell the user something on stderr that is no part of the report."""
    from tfperf.render.safe_text import safe

    click.echo(safe(line), err=True)


def decorated(command: Command, decorators: Sequence[Callable[[Any], Any]]) -> Command:
    """Return the command with options that appear in this order in its help."""
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def chosen_format(format_name: str | None, output: Path | None) -> str:
    """Return the format that was asked for, in so many words or by the suffix of the file."""
    return format_name or (format_of_file(output) if output else None) or "table"


def refuse_existing(output: Path | None, *, force: bool) -> None:
    """Raise OutputError if the report could not be written for what is there: before the work, not after."""
    from tfperf.render.output import STDOUT
    from tfperf.render.output import refuse_existing as refuse

    if output is not None and output != STDOUT:
        refuse([output], force=force)


def suitable_for(output: Path | None) -> RenderOptions:
    """Return the width and so on of a report on stdout, or in this file."""
    from tfperf.render import RenderOptions, options_for_stdout

    return RenderOptions() if output else options_for_stdout()


def show(report: Report, format_name: str, output: Path | None, *, force: bool, **options: Any) -> None:
    """Render a report and write it to a file or to stdout; `options` are fields of `RenderOptions`."""
    from tfperf.render import render
    from tfperf.render.output import write

    for line in report.omitted:
        say(line)
    write(render(report, format_name, suitable_for(output)._replace(**options)), output, force=force)


def load_analysis(path: Path, **options: Any) -> Analysis:
    """Load a profile, with a progress bar on stderr if that takes over a second and stderr is a terminal.

    `options` are those of `tfperf.load`.
    """
    from tfperf.analysis import load

    if options["attribution"] == "tensorflow" and options.get("step_marker") is not None:
        raise click.UsageError("--step-marker has no meaning with --attribution tensorflow, which has its own steps")
    if sys.stderr is None or not sys.stderr.isatty():
        return load(path, **options)
    with _ProgressBar() as bar:
        return load(path, progress=bar.update, **options)


class _ProgressBar:
    """A bar that stays away for the first second."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> _ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int) -> None:
        """Show how far reading has come."""
        if self._bar is None:
            if time.monotonic() - self._started < 1:
                return
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            columns = TextColumn("reading"), BarColumn(), TaskProgressColumn()
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("reading", total=total)
        self._bar.update(self._task, completed=done, total=total)
