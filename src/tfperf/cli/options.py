"""Parameter types, shared options, and their conversion to a loaded trace or addresses."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from tfperf.base.errors import CaptureError, OutputError, TfperfError, TraceNotFoundError
from tfperf.base.storage.remote_path import Location, RemotePath, located
from tfperf.base.units import DURATIONS, SIZES, converted, counted, did_you_mean, split_quantity, without_middle
from tfperf.capture.address import check_workers, parse_address, workers_in, workers_of_cluster, workers_of_file
from tfperf.cli import manners, shows_progress, stdout_options, stdout_screen
from tfperf.cli import say as say
from tfperf.report.render import FORMATS, STDOUT, RenderOptions, format_of_file, render, write

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from rich.progress import Progress

    from tfperf.analysis.load import Analysis
    from tfperf.capture.address import Address
    from tfperf.capture.outcomes import TracerOptions
    from tfperf.report.model import Report
    from tfperf.trace.steps.step_range import StepRange
    from tfperf.trace.steps.steps import WhichStep


ANONYMOUS, ENDPOINT = "tfperf.anonymous", "tfperf.endpoint_url"
"""Keys of the address options in `Context.meta`."""


class _Quantity(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A positive number with a unit; a number without one is refused as ambiguous."""

    def __init__(self, name: str, units: Mapping[str, int], per: int, example: str, usual: tuple[str, ...]) -> None:
        self.name, self._units, self._per, self._example, self._usual = name, units, per, example, usual

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        quantity = split_quantity(str(value))
        if quantity and not quantity[1]:
            self.fail(f"{value!r} has no unit: use {' or '.join(f'{value}{unit}' for unit in self._usual)}", param, ctx)
        if not quantity or quantity[1] not in self._units:
            self.fail(f"{value!r} is not a {self.name}: use {self._example}", param, ctx)
        amount = converted(quantity[0], self._units[quantity[1]], self._per)
        if not amount:
            self.fail(f"{value!r} is zero: use {self._example}", param, ctx)
        return amount


DURATION = _Quantity("duration", DURATIONS, DURATIONS["s"], "2s, 500ms or 1.5m", ("s", "ms"))
"""Seconds."""
SIZE = _Quantity("size", SIZES, 1, "500MB or 2GiB", ("MB", "GB"))
"""Bytes."""


def regex(text: str) -> str:
    """Return a valid regular expression as text."""
    from tfperf.base.patterns import pattern

    try:
        return pattern(text).text
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _step_number(text: str) -> int:
    """Return the number of a step in digits; raises BadParameter for one that no profile can contain."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    digits = digits.lstrip("0") or "0"
    if len(digits) > len(str(1 << 63)) or not -(1 << 63) <= int(sign + digits) < 1 << 63:
        shown = without_middle(text, 30)
        raise click.BadParameter(f"{shown} is not the number of a step, which has at most 64 bits (-2^63 to 2^63 - 1)")
    return int(sign + digits)


def step_range(text: str) -> StepRange:
    """Return the first and the last number of `3..5`, `3..`, `..5` or `3`, inclusive; None: without this limit."""
    numbers = re.fullmatch(r"(-?\d+)?(\.\.)?(-?\d+)?", text.strip(), re.ASCII)
    if not numbers or not (numbers[1] or numbers[3]) or (numbers[3] and not numbers[2]):
        raise click.BadParameter(f"{text!r} is not a range of steps: use 3..5, 3.., ..5 or 3")
    first, last = (None if each is None else _step_number(each) for each in (numbers[1], numbers[3]))
    if not numbers[2]:
        last = first
    if first is not None and last is not None and first > last:
        raise click.BadParameter(f"{text!r} ends before it starts: use {last}..{first}")
    return first, last


class _WhichStep(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The number of a step, or its rank by duration."""

    name = "step"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> WhichStep:
        text = str(value).strip()
        if text in ("median", "slowest"):
            return text  # type: ignore[return-value]
        if not re.fullmatch(r"-?\d+", text, re.ASCII):
            self.fail(f"{value!r} is not a step: use a step number, median or slowest", param, ctx)
        return _step_number(text)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(word) for word in ("median", "slowest") if word.startswith(incomplete)]


class _Section(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The name of a section; the list is built on demand, because other packages may add sections."""

    name = "section"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(self.choices)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            parts = str(value).split(",")
            if len(parts) > 1 and all(part.strip() in self.choices for part in parts):
                typed = " ".join(f"-s {part.strip()}" for part in parts)
                self.fail(f"{value!r} lists several sections: use {typed}", param, ctx)
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
    """Return the names that start with the typed text, for a shell."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class Integer(click.IntRange):
    """An integer; help and messages call it a whole number, not an `integer range`."""

    name = "integer"


class NonEmptyPath(click.Path):
    """A path; an empty one, for example from an unset shell variable, is an error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not os.fspath(value):
            self.fail("the path is empty (unset variable?); use . for the current folder", param, ctx)
        return super().convert(value, param, ctx)


class _PathOrAddress(NonEmptyPath):
    """A path, or an address such as s3://bucket/report.json."""

    def __init__(self, *, is_read: bool) -> None:
        super().__init__(path_type=Path, readable=False)
        self._is_read = is_read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a Path, or a RemotePath with the address options of the command."""
        try:
            path = located(value)
            if isinstance(path, Path):
                return super().convert(value, param, ctx)
            meta = ctx.meta if ctx else {}
            # A report on a public profile is written to the user's own storage.
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
            pass  # The code that opens it reports why it cannot be read.
        return path


SECTION = _Section()
WHICH_STEP = _WhichStep()
PATH = NonEmptyPath(path_type=Path, readable=False)
"""Readability is checked when the file is opened."""
DEFAULT_LOGDIR = "logs"
SUMMARY = _PathOrAddress(is_read=True)
OUTPUT = _PathOrAddress(is_read=False)
TRACE_PATH = _TracePath(is_read=True)
STATISTIC = click.Choice(("mean", "median", "p95"))
DIFF_SECTIONS = (
    "change",
    "overview",
    "categories",
    "steps",
    "ops",
    "kernels",
    "tfdata",
    "functions",
    "memory",
    "environment",
)
COUNT, AT_LEAST_ONE = Integer(0), Integer(1)
Decorator = Callable[[Any], Any]


def together(*decorators: Decorator) -> Decorator:
    """Return a decorator that adds several options to a command, in this order in its help."""

    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def _step_marker(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and context.params.get("attribution") == "tensorflow":
        raise click.UsageError("--step-marker cannot be used with --attribution tensorflow, which has its own steps")
    return value


def _steps(context: click.Context, _parameter: click.Parameter, value: StepRange | None) -> StepRange | None:
    if value is not None and context.params.get("attribution") == "tensorflow":
        raise click.UsageError("--steps cannot be used with --attribution tensorflow, which covers the whole capture")
    return value


def _or_logs(context: click.Context, _parameter: click.Parameter, path: Location | None) -> Location | None:
    if path is not None or context.resilient_parsing:
        return path
    if not Path(DEFAULT_LOGDIR).is_dir():
        raise click.UsageError(
            f"no PATH given, and ./{DEFAULT_LOGDIR} (the default of tfperf run and capture) does not exist: pass a "
            "logdir, a run folder or a *.xplane.pb file"
        )
    say(f"no PATH given: reading ./{DEFAULT_LOGDIR}")
    return Path(DEFAULT_LOGDIR)


PROFILE = click.argument("path", type=TRACE_PATH)
PROFILE_OR_LOGS = click.argument("path", type=TRACE_PATH, required=False, callback=_or_logs)
"""Reports default to `logs`; a gate does not, because it must not judge an unrelated profile."""
HOST = click.option("--host", "hosts", metavar="NAME", multiple=True, help="Read only this host (repeatable).")
STEP_MARKER = click.option(
    "--step-marker", metavar="NAME", callback=_step_marker, help="Use events with this name as steps (* is a wildcard)."
)
STEPS = click.option(
    "--steps",
    metavar="A..B",
    type=step_range,
    callback=_steps,
    help="Cover only these steps, inclusive: 10..20, 10.., ..20 or 12.",
)
FORCE = click.option("--force", is_flag=True, help="Replace existing files.")
TOP = click.option(
    "--top", type=AT_LEAST_ONE, help="Maximum rows of ranked tables (default: 10 in table and markdown, otherwise all)."
)


def run_option(verb: str) -> Decorator:
    """Return the option that selects a run; `verb` is the action of the command."""
    text = f"{verb} this run instead of the newest (repeatable: their hosts are merged into one run)."

    def one_or_several(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> Any:
        return names if len(names) > 1 else next(iter(names), None)

    return click.option("--run", metavar="NAME", multiple=True, callback=one_or_several, help=text)


def logdir_option(help: str) -> Decorator:
    """Return the option for the output folder of traces."""
    return click.option("--logdir", type=PATH, default=DEFAULT_LOGDIR, show_default=True, help=help)


def _kept(key: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that stores an option for paths, which are converted after it."""

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
        callback=_kept(ANONYMOUS),
        help="Read s3://, gs:// or az:// without credentials (public buckets).",
    ),
    click.option(
        "--endpoint-url",
        metavar="URL",
        is_eager=True,
        expose_value=False,
        callback=_kept(ENDPOINT),
        help="Server for s3:// or gs://, if not Amazon's or Google's.",
    ),
)
"""How to reach an address. Parameter types read these options, so commands need not pass them on."""

read_options = together(
    HOST,
    click.option(
        "--attribution",
        type=click.Choice(("corrected", "tensorflow")),
        default="corrected",
        show_default=True,
        is_eager=True,
        help="How to attribute time; tensorflow: exactly as TensorFlow's own profiler.",
    ),
    STEP_MARKER,
    STEPS,
    address_options,
)

HOSTS = click.option(
    "--hosts",
    "host_patterns",
    metavar="GLOB",
    multiple=True,
    help="Read only matching hosts, for example worker-* (repeatable).",
)
JOBS = click.option(
    "--jobs",
    type=AT_LEAST_ONE,
    metavar="N",
    help="Number of processes that read hosts.  [default: one per core, if that is faster]",
)
STRICT = click.option("--strict", is_flag=True, help="Fail if a host cannot be read, instead of omitting it.")
host_options = together(
    HOSTS,
    click.option(
        "--sample-hosts", type=AT_LEAST_ONE, metavar="N", help="Analyze only N hosts, sampled evenly within each role."
    ),
    JOBS,
    click.option(
        "--cluster", metavar="ADDRESS", help="Analyze hosts on this dask cluster, for example tcp://scheduler:8786."
    ),
    STRICT,
)
trace_options = together(run_option("Analyze"), read_options, host_options)
READING = (
    "run",
    "hosts",
    "attribution",
    "step_marker",
    "steps",
    "host_patterns",
    "sample_hosts",
    "jobs",
    "cluster",
    "strict",
)
"""Parameter names of `trace_options`."""

report_options = together(
    click.option(
        "--format",
        "format_name",
        type=click.Choice(list(FORMATS)),
        help="Default: from the suffix of -o, otherwise table.",
    ),
    click.option("-o", "--output", type=OUTPUT, help="Write to this file (or address) instead of stdout."),
    FORCE,
)

CI_FORMATS = ("junit", "github")
"""Formats of CI systems, of commands with a verdict."""
gate_report_options = together(
    click.option(
        "--format",
        "format_name",
        type=click.Choice([*FORMATS, *CI_FORMATS]),
        help="Default: from the suffix of -o, otherwise table.",
    ),
    click.option("-o", "--output", type=OUTPUT, help="Write to this file (or address) instead of stdout."),
    FORCE,
)


def typed(path: Location, values: Mapping[str, Any]) -> str:
    """Return a profile and the options that select and read it, as typed in a shell after a command."""
    run = values.get("run")
    words: list[tuple[str, Any]] = [("--run", name) for name in ((run,) if isinstance(run, str) else run or ())]
    words += [("--host", name) for name in values.get("hosts") or ()]
    words += [("--hosts", pattern) for pattern in values.get("host_patterns") or ()]
    words += [("--attribution", "tensorflow")] if values.get("attribution") == "tensorflow" else []
    words += [("--step-marker", values["step_marker"])] if values.get("step_marker") else []
    if values.get("steps"):
        from tfperf.trace.steps.step_range import range_text

        words.append(("--steps", range_text(values["steps"])))
    return shlex.join([str(path), *(word for pair in words for word in pair)])


def usage_error(error: Exception) -> click.UsageError:
    """Return the error as a usage error."""
    from tfperf.report.render.values import for_people

    return click.UsageError(for_people(str(error)))


def chosen_format(format_name: str | None, output: Location | None) -> str:
    """Return the format from the option, or from the suffix of the file."""
    return format_name or (format_of_file(output) if output else None) or "table"


def check_output(output: Location | None, format_name: str | None, *, force: bool, made: Path | None = None) -> None:
    """Raise an error before the work if the report cannot be written; the command creates the folder `made`."""
    check_suffix(output, format_name)
    refuse_existing(output, force=force, made=made)


def check_suffix(output: Location | None, format_name: str | None) -> None:
    """Raise an error if neither the suffix of a file nor an option selects a format."""
    if output and output.suffix and not format_name and format_of_file(output) is None:
        known, suffix = ", ".join(each.suffixes[0] for each in FORMATS.values()), output.suffix
        raise click.UsageError(f"{output.name}: unknown suffix {suffix}; use {known}, or pass --format")


def refuse_existing(output: Location | None, *, force: bool, made: Path | None = None) -> None:
    """Raise OutputError if a file cannot be written; `made` is as in `check_output`."""
    from tfperf.base import files

    if output is not None and output != STDOUT:
        files.refuse_existing([output], force=force)
        # The command creates its folder later.
        if (
            made is None
            or isinstance(output, RemotePath)
            or made.exists()
            or output.absolute().parent != made.absolute()
        ):
            files.refuse_unwritable(output)


def suitable_for(output: Location | None) -> RenderOptions:
    """Return the width and other options of a report on stdout, or in this file."""
    return stdout_options() if output in (None, STDOUT) else RenderOptions()


def show(
    report: Report, format_name: str | None, output: Location | None, *, force: bool, pager: bool = True, **options: Any
) -> None:
    """Render a report to a file, or to stdout with a pager if it is long; `options` are of `RenderOptions`."""
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
    """Write a report unattended, without a pager; if its file cannot be written, print it and return False."""
    try:
        show(report, format_name, output, force=force, pager=False, **options)
    except OutputError as error:
        if output in (None, STDOUT):
            raise
        say(f"Error: {error}; printing the report here", always=True)
        show(report, "table" if format_name == "html" else format_name, None, force=False, pager=False, **options)
        return False
    return True


def load_analysis(path: Location, *, strict: bool = False, **options: Any) -> Analysis:
    """Load a profile, with a progress bar on a terminal if that takes over a second.

    `options` are the options of `tfperf.load`. Missing hosts are printed; if `strict`, they raise TfperfError.
    """
    from tfperf.analysis.load import load

    if options.get("cluster") and options.get("jobs"):
        raise click.UsageError("--jobs (local processes) cannot be used with --cluster")
    if not shows_progress():
        analysis = load(path, **options)
    else:
        with ExitStack() as closing:
            bar = _Bar(closing)
            analysis = load(path, progress=bar.bytes_done, host_progress=bar.hosts_done, **options)
    if analysis.missing:
        say_missing(analysis.missing_text, strict=strict)
    return analysis


def say_missing(missing: str, *, strict: bool) -> None:
    """Print a sentence on missing hosts, which may be empty; raise it as TfperfError if `strict`."""
    if missing and strict:
        raise TfperfError(f"{missing} (omit --strict to continue without them)")
    if missing:
        say(f"Warning: {missing}", always=True)


class _Bar:
    """A progress bar for reading, hidden in the first second."""

    def __init__(self, closing: ExitStack) -> None:
        self._started, self._closing, self._hosts = time.monotonic(), closing, "reading"
        self._bar: Progress | None = None

    def hosts_done(self, done: int, total: int) -> None:
        self._hosts = f"{done:,} of {counted(total, 'host')}"

    def bytes_done(self, done: int, total: int) -> None:
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


PORT = Integer(1, 65535)
TLS_CA = click.option(
    "--tls-ca", metavar="FILE", type=PATH, help="Use TLS, and trust the certificates in this PEM file."
)


def run_name_option(default: str) -> Decorator:
    """Return the option that names the run for new traces."""
    text = f"Name of the run; an existing run is extended (default: {default})."

    def checked(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
        from tfperf.capture.run_folder import check_run_name

        try:
            return None if name is None else check_run_name(name)
        except TfperfError as error:
            raise click.BadParameter(str(error)) from error

    return click.option("--run", metavar="NAME", callback=checked, help=text)


_OF_ENVIRONMENT = "TF_CONFIG"
"""Placeholder for no file, because click requires a value."""
_HOST_LEVELS = "0 off, 1 user annotations, 2 ops, 3 everything."


def _advanced(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Return the values by name: true and false are bools, digits a number, and all other values text."""
    options: dict[str, Any] = {}
    for text in values:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, for example gpu_max_activity_api_events=4000000")
        number = int(value) if re.fullmatch(r"-?\d{1,18}", value, re.ASCII) else value
        options[name] = {"true": True, "false": False}.get(value, number)
    return options


tracer_options = together(
    click.option("--host-tracer-level", type=Integer(0, 3), default=2, show_default=True, help=_HOST_LEVELS),
    click.option("--device-tracer-level", type=Integer(0, 1), default=1, show_default=True, help="0 off, 1 on."),
    click.option("--python-trace", is_flag=True, help="Record every Python call (makes the job much slower)."),
    click.option(
        "--profiler-option",
        "advanced",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_advanced,
        help="Option of JAX's profiler: an entry of ProfileOptions.advanced_configuration.",
    ),
)


def take_tracer_options(options: dict[str, Any]) -> TracerOptions:
    """Return the values of `tracer_options`, and remove them from the command's options."""
    from tfperf.capture.outcomes import TracerOptions

    names = ("host_tracer_level", "device_tracer_level", "python_trace")
    host, device, python = (int(options.pop(name)) for name in names)
    return TracerOptions(host, device, python, options.pop("advanced"))


LISTS = together(
    click.option(
        "--workers", "worker_list", metavar="A,B,...", help="Comma-separated list of workers, each as in --worker."
    ),
    click.option(
        "--workers-file", type=PATH, metavar="FILE", help="File with one worker per line; # starts a comment."
    ),
    click.option(
        "--cluster-spec",
        is_flag=False,
        flag_value=_OF_ENVIRONMENT,
        type=PATH,
        metavar="[FILE]",
        help="All tasks of the cluster in this file, in the format of TF_CONFIG (default: TF_CONFIG).",
    ),
)


def take_addresses(options: dict[str, Any]) -> list[Address]:
    """Return the distinct addresses of --port, --worker and `LISTS`, and remove these options."""
    names = ("port", "workers", "worker_list", "workers_file", "cluster_spec")
    port, workers, text, file, spec = (options.pop(name) for name in names)
    ways = {"--worker": workers, "--workers": text, "--workers-file": file, "--cluster-spec": spec}
    given = [name for name, value in ways.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"{given[0]} cannot be used with {given[1]}: pass all workers with one option")
    try:
        if text is not None:
            addresses = workers_in(text, port)
        elif file is not None:
            addresses = workers_of_file(file, port)
        elif spec is not None:
            addresses = workers_of_cluster(None if str(spec) == _OF_ENVIRONMENT else spec, port)
        else:
            addresses = parse_addresses(port, workers)
        check_workers(addresses)
    except CaptureError as error:
        raise click.UsageError(str(error)) from error
    return addresses


def parse_addresses(port: int | None, workers: Sequence[str]) -> list[Address]:
    """Return the addresses that --port and --worker name."""
    try:
        return [parse_address(text) for text in ([f"localhost:{port}"] if port else []) + [*workers]]
    except CaptureError as error:
        raise click.UsageError(str(error)) from error
