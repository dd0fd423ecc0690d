"""What stdout is: how wide and high, whether a person reads it, whether it shows colours, whether a pager may open.

The one place where environment variables and terminals decide how a report looks: `screen_of` decides, `screen` asks.

Long reports go through the user's pager. click's `echo_via_pager` differs between the allowed versions of click: some
print nothing where PAGER cannot be started.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, TextIO

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

PIPE_WIDTH = 80
"""Width of text that no person's window decides: files, pipes, CI logs."""
PIPE_HEIGHT = 24
NARROWEST, WIDEST = 40, 200
"""Reports are laid out between these widths; windows of 60 columns and more lose nothing."""
Colour = Literal["auto", "always", "never"]
_DRAWN = "─█…"
"""What reports for a person are drawn with, where the encoding of the terminal has it."""


class Terminal(Struct, frozen=True):
    """What a process finds: which of its streams are terminals, and the size of the window (0: unknown)."""

    stdin: bool = False
    stdout: bool = False
    columns: int = 0
    lines: int = 0
    encoding: str = "utf-8"


class Screen(Struct, frozen=True):
    """How a report on stdout looks. `interactive`: a person reads it, so long names may lose their middle."""

    width: int = PIPE_WIDTH
    height: int = PIPE_HEIGHT
    colour: bool = False
    interactive: bool = False
    pages: bool = False
    """Whether a report that is longer than the window may open a pager."""


def screen_of(
    environment: Mapping[str, str], terminal: Terminal, *, colour: Colour = "auto", pager: bool = True
) -> Screen:
    """Return how a report looks; `colour` and `pager` are what the user asked for."""
    is_dumb = environment.get("TERM") == "dumb"
    columns = _positive(environment.get("COLUMNS")) or (terminal.columns if terminal.stdout else 0) or PIPE_WIDTH
    return Screen(
        width=min(max(columns, NARROWEST), WIDEST),
        height=_positive(environment.get("LINES")) or terminal.lines or PIPE_HEIGHT,
        colour=_shows_colour(environment, terminal, is_dumb) if colour == "auto" else colour == "always",
        interactive=terminal.stdout and _can_draw(terminal.encoding),
        pages=pager and terminal.stdin and terminal.stdout and not is_dumb and not environment.get("CI"),
    )


def screen(*, colour: Colour = "auto", pager: bool = True) -> Screen:
    """Return how a report on the stdout of this process looks."""
    return screen_of(os.environ, _terminal(), colour=colour, pager=pager)


def _shows_colour(environment: Mapping[str, str], terminal: Terminal, is_dumb: bool) -> bool:
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    # The old Windows console prints escape codes as they are; Windows Terminal announces itself.
    return terminal.stdout and not is_dumb and (os.name != "nt" or "WT_SESSION" in environment)


def _terminal() -> Terminal:
    if not _is_terminal(sys.stdout):
        return Terminal(stdin=_is_terminal(sys.stdin))
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        columns, lines = 0, 0
    return Terminal(_is_terminal(sys.stdin), True, columns, lines, sys.stdout.encoding or "utf-8")


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _positive(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else 0


def _can_draw(encoding: str) -> bool:
    try:
        _DRAWN.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


_NOT_STARTED = (126, 127)
"""Exit codes by which shells say that there is no such program."""


def pager_command(environment: Mapping[str, str]) -> list[str]:
    """Return the pager that the user chose, else `less` where it is; empty: no pager."""
    chosen = environment.get("PAGER")
    if chosen is None:
        return ["less"] if shutil.which("less") else []
    try:
        words = shlex.split(chosen)
    except ValueError:
        return []
    return [] if words == ["cat"] else words


def show_in_pager(text: str, environment: Mapping[str, str]) -> bool:
    """Show the text in the pager and wait until the user leaves it; return whether there was one.

    A user who leaves early, or presses Ctrl-C in the pager, is no error.
    """
    command = pager_command(environment)
    if not command:
        return False
    # As for git: colours are shown, a text that fits is not held, and what was read stays on the screen.
    variables = {"LESS": "FRX", "LV": "-c", **environment}
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=variables)
    except (OSError, ValueError):
        return False
    with _ctrl_c_is_for_the_pager(), suppress(OSError):
        process.communicate(text.encode("utf-8", errors="backslashreplace"))
    return process.wait() not in _NOT_STARTED


@contextmanager
def _ctrl_c_is_for_the_pager() -> Iterator[None]:
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # Only the main thread may do that.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def is_longer(text: str, width: int, height: int) -> bool:
    """Tell whether a text needs more lines than a window has, beside the one of the prompt."""
    from tfperf.report.render.text_table import cells

    lines = text.splitlines()
    return len(lines) >= height or sum(max(-(-cells(line) // width), 1) for line in lines) >= height
