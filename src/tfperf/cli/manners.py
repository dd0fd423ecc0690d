"""How every command behaves towards whoever reads its output: the options that all commands have, and notes.

They may stand before the name of the command or after it; the later one counts.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import click

from tfperf.render.screen import Colour, Screen, screen

if TYPE_CHECKING:
    from tfperf.render import RenderOptions

INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a shell."""
_KEY = "tfperf.manners"


class Manners(NamedTuple):
    """What the user asked for, whatever the command."""

    color: Colour = "auto"
    no_pager: bool = False
    quiet: bool = False


def manners() -> Manners:
    """Return what the user asked for; the usual outside of a command."""
    context = click.get_current_context(silent=True)
    asked: Manners = context.meta.get(_KEY, Manners()) if context else Manners()
    return asked


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta[_KEY] = context.meta.get(_KEY, Manners())._replace(**{str(parameter.name): value})


def _option(*names: str, help: str, **attributes: Any) -> click.Option:
    return click.Option(names, help=help, expose_value=False, callback=_remember, **attributes)


OPTIONS = (
    _option("--color", type=click.Choice(get_args(Colour)), help="Colours in reports on stdout.  [default: auto]"),
    _option("--no-pager", is_flag=True, help="Print long reports without a pager."),
    _option("-q", "--quiet", is_flag=True, help="Print the report and errors only, no notes."),
)


def with_manners(command: click.Command) -> click.Command:
    """Give a command the options that all have, last in its help."""
    command.params = [*command.params, *(option for option in OPTIONS if option not in command.params)]
    return command


def stdout_screen() -> Screen:
    """Return how a report on stdout looks."""
    asked = manners()
    return screen(colour=asked.color, pager=not asked.no_pager)


def stdout_options() -> RenderOptions:
    """Return what suits a report on stdout."""
    from tfperf.render import options_for

    return options_for(stdout_screen())


def say(line: str, *, always: bool = False) -> None:
    """Tell the user something on stderr that is no part of the report; with --quiet, only what is `always` told.

    If the reader of stderr has left, nothing is told, and the exit code stays.
    """
    if manners().quiet and not always:
        return
    from tfperf.render.values import for_people, without_commands

    try:
        click.echo(without_commands(for_people(line)), err=True)
    except OSError:
        from tfperf.render import discard

        discard(sys.stderr)


def shows_progress() -> bool:
    """Tell whether a bar on stderr is of use: a person's terminal that can move its cursor."""
    import os

    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not manners().quiet
