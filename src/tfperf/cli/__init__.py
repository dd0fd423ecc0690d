"""The command line. A command parses options, calls one library function and passes the result to the writer.

This module also contains the behavior common to all commands: global options, which are allowed before and after the
name of the command (the later one counts), notes, errors and exit codes.

Heavy modules are imported inside commands, so that `tfperf --help` is fast.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.exceptions import Exit
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base import __version__
from tfperf.base.errors import TfperfError, TfperfWarning
from tfperf.base.process import keep_freed_memory, lacks_memory, shortage
from tfperf.base.units import did_you_mean
from tfperf.report.render import options_for, whole_stdout
from tfperf.report.render.screen import Colour, Screen, screen

if TYPE_CHECKING:
    from tfperf.report.render import RenderOptions

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in a shell."""
_MANNERS = "tfperf.manners"


class Manners(Struct, frozen=True):
    """Values of the options common to all commands."""

    color: Colour = "auto"
    no_pager: bool = False
    quiet: bool = False


def manners() -> Manners:
    """Return the values of the common options; defaults outside of a command."""
    context = click.get_current_context(silent=True)
    asked: Manners = context.meta.get(_MANNERS, Manners()) if context else Manners()
    return asked


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta[_MANNERS] = replace(context.meta.get(_MANNERS, Manners()), **{str(parameter.name): value})


def _option(*names: str, help: str, **attributes: Any) -> click.Option:
    return click.Option(names, help=help, expose_value=False, callback=_remember, **attributes)


OPTIONS = (
    _option("--color", type=click.Choice(get_args(Colour)), help="Colors in reports on stdout.  [default: auto]"),
    _option("--no-pager", is_flag=True, help="Do not use a pager for long reports."),
    _option("-q", "--quiet", is_flag=True, help="Print only the report and errors, no notes."),
)


def with_manners(command: click.Command) -> click.Command:
    """Add the common options to a command, last in its help."""
    command.params = [*command.params, *(option for option in OPTIONS if option not in command.params)]
    return command


def stdout_screen() -> Screen:
    """Return the colors, characters and width for a report on stdout."""
    asked = manners()
    return screen(colour=asked.color, pager=not asked.no_pager)


def stdout_options() -> RenderOptions:
    """Return the rendering options for a report on stdout."""
    return options_for(stdout_screen())


def say(line: str, *, always: bool = False) -> None:
    """Print a note to stderr, ignoring a closed stream; with --quiet, only if `always` is true."""
    if manners().quiet and not always:
        return
    from tfperf.report.render.values import for_people, without_commands

    try:
        click.echo(without_commands(for_people(line)), err=True)
    except OSError:
        from tfperf.report.render import discard

        discard(sys.stderr)


def shows_progress() -> bool:
    """Return whether to show a progress bar on stderr: only on a terminal with cursor control."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not manners().quiet


class _Commands(click.Group):
    """Converts errors into a line on stderr and an exit code, and finds commands by name."""

    names = (
        "run",
        "capture",
        "top",
        "doctor",
        "analyze",
        "check",
        "lint",
        "diff",
        "export-csv",
        "export-parquet",
        "timeline",
        "flamegraph",
        "anonymize",
        "query",
        "mcp",
        "xla",
        "tfprof",
        "explain",
        "completion",
    )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from importlib import import_module

        if cmd_name not in self.names:
            return None
        return with_manners(import_module(f"tfperf.cli.{cmd_name.replace('-', '_')}").command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.names and not ctx.resilient_parsing:
            from tfperf.report.render.values import for_people

            shown = for_people(name)
            if Path(name).exists():
                ctx.fail(f"'{shown}' is not a command; to read this profile: tfperf analyze {shown}")
            ctx.fail(f"no such command '{shown}': {did_you_mean(name, self.names)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except (click.ClickException, Exit):
            raise
        except Exception as error:
            if lacks_memory(error):
                raise click.ClickException(shortage()) from error
            if not isinstance(error, TfperfError):
                raise
            from tfperf.report.render.values import for_people, without_commands

            raise click.ClickException(without_commands(for_people(str(error)))) from error
        except KeyboardInterrupt:
            # A terminal prints ^C at the cursor.
            click.echo("\n" * (sys.stderr is not None and sys.stderr.isatty()) + "Interrupted", err=True)
            raise Exit(INTERRUPTED) from None


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, TfperfWarning):
        say(f"Warning: {message}")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, *where[:2]))


@click.group(
    "tfperf", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "-V", "--version", prog_name="tfperf")
def main() -> None:
    """Profile TensorFlow and JAX jobs, and report where step time goes and what to change.

    \b
    Example:
      tfperf run train.py
      tfperf capture --port 6009 --duration 2s
      tfperf analyze logs/
      tfperf check logs/ --max-input-bound 10%
      tfperf export-csv logs/ -o tables/
      tfperf timeline logs/ -o trace.pftrace
      tfperf flamegraph logs/ -o flame.html
      tfperf anonymize logs/ -o anonymous/
      tfperf query logs/ "select op_type, self_ms from host_ops limit 5"
      tfperf explain input-bound

    Exit codes: 0 success, 1 tfperf failed, 2 wrong usage, 3 a limit was breached, 130 Ctrl-C.
    """


with_manners(main)


own_variables: dict[str, str] = {}
"""Environment variables for libraries of this process, but not for a script that it runs."""


def run() -> None:
    """Run the command line; the entry point of the console script."""
    # numpy would start threads for linear algebra, which tfperf does not use: a sixth of the time of a short run. Arrow
    # would start one for an unused allocator, and a process with threads cannot fork safely.
    for name, value in (("OPENBLAS_NUM_THREADS", "1"), ("JE_ARROW_MALLOC_CONF", "background_thread:false")):
        if name not in os.environ:
            os.environ[name] = own_variables[name] = value
    # The collector skips arrays, and its runs over permanent classes take a sixteenth of the time of a short run.
    gc.set_threshold(100_000, 20, 100)
    exit_codes: list[int] = []
    atexit.register(_leave, exit_codes)  # registered first, called last
    keep_freed_memory()

    def terminate(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    for name in ("SIGTERM", "SIGHUP", "SIGQUIT"):
        number = getattr(signal, name, None)
        # An exception lets temporary files be removed. Signals that `nohup` ignores stay ignored.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, terminate)
    whole_stdout()
    try:
        main(prog_name="tfperf")
    except TfperfError as error:  # printing before any command runs, for example --help
        say(f"Error: {error}", always=True)
        exit_codes.append(1)
        sys.exit(1)
    except SystemExit as error:
        if isinstance(error.code, int):
            exit_codes.append(error.code)
        raise


def _leave(exit_codes: Sequence[int]) -> None:
    """End the process, if its exit code is known, without freeing each object (a sixteenth of a short run).

    All threads have ended by now, and temporary files are gone.
    """
    if not exit_codes:
        return
    with suppress(OSError, ValueError):  # the interpreter reports it with its own exit code
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(exit_codes[0])
