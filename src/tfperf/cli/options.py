"""Options that several commands share, and how they become a loaded trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from tfperf.base.errors import TfperfError
from tfperf.base.storage.remote_path import Location, RemotePath
from tfperf.base.units import counted
from tfperf.cli import manners, shows_progress, stdout_options, stdout_screen, typed
from tfperf.cli import say as say
from tfperf.cli.typed import AT_LEAST_ONE, DEFAULT_LOGDIR, PATH, TRACE_PATH
from tfperf.report.render import FORMATS, STDOUT, format_of_file

if TYPE_CHECKING:
    from rich.progress import Progress

    from tfperf.analysis.load import Analysis
    from tfperf.report.model import Report
    from tfperf.report.render import RenderOptions

Decorator = Callable[[Any], Any]


def together(*decorators: Decorator) -> Decorator:
    """Return what adds several options to a command, in this order in its help."""

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def _step_marker(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and context.params.get("attribution") == "tensorflow":
        raise click.UsageError("--step-marker has no meaning with --attribution tensorflow, which has its own steps")
    return value


def _or_logs(context: click.Context, _parameter: click.Parameter, path: Location | None) -> Location | None:
    """Return the path that was given, else the folder where `tfperf run` and `tfperf capture` write."""
    if path is not None or context.resilient_parsing:
        return path
    if not Path(DEFAULT_LOGDIR).is_dir():
        raise click.UsageError(
            f"no PATH is given, and the folder {DEFAULT_LOGDIR}, where tfperf run and capture write, is not here: "
            "name a logdir, a run folder or a *.xplane.pb file"
        )
    say(f"no PATH is given: reading {DEFAULT_LOGDIR}")
    return Path(DEFAULT_LOGDIR)


PROFILE = click.argument("path", type=TRACE_PATH)
"""A logdir, a run folder or a file."""
PROFILE_OR_LOGS = click.argument("path", type=TRACE_PATH, required=False, callback=_or_logs)
"""Reports look in `logs`; a gate does not, for it must judge no stray profile."""
HOST = click.option("--host", "hosts", metavar="NAME", multiple=True, help="Only this host (repeatable).")
STEP_MARKER = click.option(
    "--step-marker", metavar="NAME", callback=_step_marker, help="Events of this name are the steps (* is a wildcard)."
)
FORCE = click.option("--force", is_flag=True, help="Replace existing files.")
TOP = click.option(
    "--top", type=AT_LEAST_ONE, help="Rows of ranked tables to show (default: 10 in table and markdown, else all)."
)


def run_option(verb: str) -> Decorator:
    """Return the option that chooses a run; `verb` is what the command does with it."""
    text = f"{verb} this run instead of the newest (repeatable: their hosts count as those of one run)."
    return click.option("--run", metavar="NAME", multiple=True, callback=_one_or_several, help=text)


def _one_or_several(
    _context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]
) -> str | tuple[str, ...] | None:
    return names if len(names) > 1 else next(iter(names), None)


def logdir_option(help: str) -> Decorator:
    """Return the option that says where traces go."""
    return click.option("--logdir", type=PATH, default=DEFAULT_LOGDIR, show_default=True, help=help)


def _kept(key: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return what keeps the value of an option for paths, which are read after it."""

    def keep(context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        if value:
            context.meta[key] = value
        return value

    return keep


address_options = together(
    click.option(
        "--anonymous",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_kept(typed.ANONYMOUS),
        help="Read s3://, gs:// or az:// without credentials (public buckets).",
    ),
    click.option(
        "--endpoint-url",
        metavar="URL",
        is_eager=True,
        expose_value=False,
        callback=_kept(typed.ENDPOINT),
        help="Server for s3:// or gs://, if it is not that of Amazon or Google.",
    ),
)
"""How an address is reached. The types of paths ask for them, so that no command need know."""

read_options = together(
    HOST,
    click.option(
        "--attribution",
        type=click.Choice(("corrected", "tensorflow")),
        default="corrected",
        show_default=True,
        is_eager=True,
        help="How time is attributed; tensorflow: exactly as TensorFlow's own profiler does.",
    ),
    STEP_MARKER,
    address_options,
)
"""How a run is read, whichever it is."""
host_options = together(
    click.option(
        "--hosts",
        "host_patterns",
        metavar="GLOB",
        multiple=True,
        help="Only hosts that match, as worker-* (repeatable).",
    ),
    click.option(
        "--sample-hosts", type=AT_LEAST_ONE, metavar="N", help="Only so many hosts, some of each role, evenly spread."
    ),
    click.option(
        "--jobs", type=AT_LEAST_ONE, metavar="N", help="Processes for hosts.  [default: one for each core, if it pays]"
    ),
    click.option(
        "--cluster", metavar="ADDRESS", help="Analyze hosts on this cluster of dask, as tcp://scheduler:8786."
    ),
    click.option("--strict", is_flag=True, help="Fail if any host cannot be read, instead of leaving it out."),
)
"""Which hosts of many are read, and where."""
trace_options = together(run_option("Analyze"), read_options, host_options)
"""What is read below a path, and how it is attributed."""
READING = ("run", "hosts", "attribution", "step_marker", "host_patterns", "sample_hosts", "jobs", "cluster", "strict")
"""Names of the parameters of `trace_options`."""

report_options = together(
    click.option(
        "--format", "format_name", type=click.Choice(list(FORMATS)), help="Default: by the suffix of -o, else table."
    ),
    click.option("-o", "--output", type=typed.OUTPUT, help="Write to this file (or address) instead of stdout."),
    FORCE,
)
"""How a report is shown, and where."""


def usage_error(error: Exception) -> click.UsageError:
    """Return the error as one of usage."""
    from tfperf.report.render.values import for_people

    return click.UsageError(for_people(str(error)))


def chosen_format(format_name: str | None, output: Location | None) -> str:
    """Return the format that was asked for, in so many words or by the suffix of the file."""
    return format_name or (format_of_file(output) if output else None) or "table"


def check_output(output: Location | None, format_name: str | None, *, force: bool, made: Path | None = None) -> None:
    """Raise an error if the report cannot be written as it is asked for: before the work, not after.

    `made` is a folder that the command makes if it is not there.
    """
    check_suffix(output, format_name)
    refuse_existing(output, force=force, made=made)


def check_suffix(output: Location | None, format_name: str | None) -> None:
    """Raise an error if the suffix of a file asks for no format, and nothing else does."""
    if output and output.suffix and not format_name and format_of_file(output) is None:
        known, suffix = ", ".join(each.suffixes[0] for each in FORMATS.values()), output.suffix
        raise click.UsageError(f"{output.name}: no format has the suffix {suffix}; end it in {known}, or pass --format")


def refuse_existing(output: Location | None, *, force: bool, made: Path | None = None) -> None:
    """Raise OutputError if a file could not be written; `made` as for `check_output`."""
    from tfperf.base import files

    if output is not None and output != STDOUT:
        files.refuse_existing([output], force=force)
        if not _is_in_new_folder(output, made):
            files.refuse_unwritable(output)


def _is_in_new_folder(output: Location, made: Path | None) -> bool:
    """Tell whether a file goes into a folder that the command makes later."""
    if made is None or isinstance(output, RemotePath):
        return False
    return not made.exists() and output.absolute().parent == made.absolute()


def suitable_for(output: Location | None) -> RenderOptions:
    """Return the width and so on of a report on stdout, or in this file."""
    from tfperf.report.render import RenderOptions

    return stdout_options() if output in (None, STDOUT) else RenderOptions()


def show(
    report: Report, format_name: str | None, output: Location | None, *, force: bool, pager: bool = True, **options: Any
) -> None:
    """Render a report and write it to a file or to stdout, in a pager if need be; `options` are of `RenderOptions`."""
    from tfperf.report.render import render, write
    from tfperf.report.render.values import without_commands

    for line in report.omitted:
        say(line, always=True)
    name = chosen_format(format_name, output)
    text = render(report, name, replace(suitable_for(output), **options))
    is_file = output not in (None, STDOUT)
    write(text if is_file else without_commands(text), output, force=force, screen=stdout_screen() if pager else None)
    if is_file:
        say(f"wrote {output}: report ({name})")


def show_surely(report: Report, format_name: str, output: Location | None, *, force: bool, **options: Any) -> bool:
    """Show a report that cannot be made again: if its file cannot be written, on stdout; then return False.

    What took long may run unattended: no pager waits at its end.
    """
    from tfperf.base.errors import OutputError

    try:
        show(report, format_name, output, force=force, pager=False, **options)
    except OutputError as error:
        if output in (None, STDOUT):
            raise
        say(f"Error: {error}; the report follows here", always=True)
        show(report, "table" if format_name == "html" else format_name, None, force=False, pager=False, **options)
        return False
    return True


def load_analysis(path: Location, *, strict: bool = False, **options: Any) -> Analysis:
    """Load a profile, with a progress bar on stderr if that takes over a second and stderr is a terminal.

    `options` are those of `tfperf.load`. Says which hosts are missing; raises TfperfError for them if it is `strict`.
    """
    from tfperf.analysis.load import load

    if options.get("cluster") and options.get("jobs"):
        raise click.UsageError("--jobs is about this machine, --cluster about others: omit one of them")
    if not shows_progress():
        analysis = load(path, **options)
    else:
        with _progress_bar() as bar:
            analysis = load(path, progress=bar.bytes_done, host_progress=bar.hosts_done, **options)
    if analysis.missing:
        missing = analysis.missing_text
        if strict:
            raise TfperfError(f"{missing} (omit --strict to go on without)")
        say(f"Warning: {missing}", always=True)
    return analysis


class _Bar:
    """A bar that says how far reading has come; it stays away for the first second."""

    def __init__(self, closing: ExitStack) -> None:
        self._started, self._closing, self._hosts = time.monotonic(), closing, "reading"
        self._bar: Progress | None = None

    def hosts_done(self, done: int, total: int) -> None:
        """Say how many hosts are done."""
        self._hosts = f"{done:,} of {counted(total, 'host')}"

    def bytes_done(self, done: int, total: int) -> None:
        """Say how many bytes are done."""
        if self._bar is None:
            if time.monotonic() - self._started < 1:
                return
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TaskProgressColumn,
                TextColumn,
                TimeRemainingColumn,
            )

            no_color = True if manners().color == "never" else None
            text = TextColumn("{task.description}")
            columns = text, BarColumn(), TaskProgressColumn(), DownloadColumn(), TimeRemainingColumn()
            console = Console(stderr=True, no_color=no_color)
            self._bar = self._closing.enter_context(Progress(*columns, console=console, transient=True))
            self._bar.add_task(self._hosts, total=total)
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, description=self._hosts)


@contextmanager
def _progress_bar() -> Iterator[_Bar]:
    """Give what shows how far reading has come, and takes it away at the end."""
    with ExitStack() as closing:
        yield _Bar(closing)
