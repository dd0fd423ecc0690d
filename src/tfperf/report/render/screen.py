"""Properties of stdout: size, colors, whether a person reads it, and whether a pager may open.

Only this module derives a report's appearance from environment variables and terminals: `screen_of` is pure, `screen`
reads this process.

Long reports open the user's pager. click's `echo_via_pager` differs between versions: some print nothing if PAGER
cannot be started.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, TextIO

from msgspec import Struct

from tfperf.report.palette import Colours

if TYPE_CHECKING:
    from collections.abc import Iterator

PIPE_WIDTH = 80
"""Width for files, pipes and CI logs."""
PIPE_HEIGHT = 24
NARROWEST, WIDEST = 40, 200
"""Limits on the width of reports; at 60 columns or more, nothing is cut."""
Colour = Literal["auto", "always", "never"]
_MANY_COLOURS = ("truecolor", "24bit")
_DRAWS_LINKS = ("iTerm.app", "WezTerm", "vscode", "Hyper", "ghostty", "Tabby", "mintty", "rio")
"""Values of TERM_PROGRAM of terminals with links (OSC 8) and all colors."""
_DRAWING_TERMS = ("xterm-kitty", "xterm-ghostty", "alacritty", "foot", "foot-extra", "wezterm")
_LINK = re.compile("\x1b]8;;[^\x1b]*\x1b\\\\")
_FIRST_VTE_WITH_LINKS = 5000
_DRAWN = "─█…"
"""Characters used in reports for people, if the terminal's encoding has them."""


class Terminal(Struct, frozen=True):
    """State of a process: which streams are terminals, and the window size (0: unknown)."""

    stdin: bool = False
    stdout: bool = False
    columns: int = 0
    lines: int = 0
    encoding: str = "utf-8"


class Screen(Struct, frozen=True):
    """Appearance of a report on stdout. `interactive`: for a person, so long names may be cut in the middle."""

    width: int = PIPE_WIDTH
    height: int = PIPE_HEIGHT
    colour: bool = False
    interactive: bool = False
    colours: Colours = "16"
    links: bool = False
    """Whether text may be a link (OSC 8)."""
    pages: bool = False
    """Whether a report longer than the window may open a pager."""


def screen_of(
    environment: Mapping[str, str], terminal: Terminal, *, colour: Colour = "auto", pager: bool = True
) -> Screen:
    """Return the appearance of a report; `colour` and `pager` are the user's options."""
    is_dumb = environment.get("TERM") == "dumb"
    columns = _positive(environment.get("COLUMNS")) or (terminal.columns if terminal.stdout else 0) or PIPE_WIDTH
    return Screen(
        width=min(max(columns, NARROWEST), WIDEST),
        height=_positive(environment.get("LINES")) or terminal.lines or PIPE_HEIGHT,
        colour=_shows_colour(environment, terminal, is_dumb) if colour == "auto" else colour == "always",
        interactive=terminal.stdout and _can_draw(terminal.encoding),
        colours=_colours(environment),
        links=_has_links(environment, terminal, is_dumb),
        pages=pager and terminal.stdin and terminal.stdout and not is_dumb and not environment.get("CI"),
    )


def screen(*, colour: Colour = "auto", pager: bool = True) -> Screen:
    """Return the appearance of a report on this process's stdout."""
    terminal = Terminal(stdin=_is_terminal(sys.stdin))
    if _is_terminal(sys.stdout):
        try:
            columns, lines = os.get_terminal_size(sys.stdout.fileno())
        except (OSError, ValueError):
            columns, lines = 0, 0
        terminal = Terminal(terminal.stdin, True, columns, lines, sys.stdout.encoding or "utf-8")
    return screen_of(os.environ, terminal, colour=colour, pager=pager)


def _shows_colour(environment: Mapping[str, str], terminal: Terminal, is_dumb: bool) -> bool:
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    # The old Windows console prints escape codes; Windows Terminal sets WT_SESSION.
    return terminal.stdout and not is_dumb and (os.name != "nt" or "WT_SESSION" in environment)


def _colours(environment: Mapping[str, str]) -> Colours:
    forced: dict[str, Colours] = {"2": "256", "3": "truecolor"}
    if (chosen := forced.get(environment.get("FORCE_COLOR", ""))) is not None:
        return chosen
    term = environment.get("TERM", "")
    if (
        environment.get("COLORTERM") in _MANY_COLOURS
        or "WT_SESSION" in environment
        or environment.get("TERM_PROGRAM") in _DRAWS_LINKS
        or term in _DRAWING_TERMS
        or term.endswith("-direct")
    ):
        return "truecolor"
    return "256" if "256color" in term else "16"


def _has_links(environment: Mapping[str, str], terminal: Terminal, is_dumb: bool) -> bool:
    """Return whether the terminal is known to draw links; others may print the escape codes."""
    if (forced := environment.get("FORCE_HYPERLINK")) is not None:
        return forced not in ("", "0")
    if not terminal.stdout or is_dumb or environment.get("CI") or {"TMUX", "STY"} & environment.keys():
        return False
    return (
        bool({"WT_SESSION", "KITTY_WINDOW_ID", "DOMTERM"} & environment.keys())
        or environment.get("TERM_PROGRAM") in _DRAWS_LINKS
        or environment.get("TERM") in _DRAWING_TERMS
        or _positive(environment.get("VTE_VERSION")) >= _FIRST_VTE_WITH_LINKS
    )


def without_links(text: str) -> str:
    """Return the text without links, which older pagers print as escape codes."""
    return _LINK.sub("", text)


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
"""Exit codes of shells for a program that cannot be started."""


def pager_command(environment: Mapping[str, str]) -> list[str]:
    """Return the user's pager, else `less` if it exists; empty: no pager."""
    chosen = environment.get("PAGER")
    if chosen is None:
        return ["less"] if shutil.which("less") else []
    try:
        words = shlex.split(chosen)
    except ValueError:
        return []
    return [] if words == ["cat"] else words


def show_in_pager(text: str, environment: Mapping[str, str]) -> bool:
    """Show the text in the pager until the user leaves it, with Ctrl-C too; return whether the pager started."""
    command = pager_command(environment)
    if not command:
        return False
    import subprocess

    # Like git: colors are shown, short text is not held, and text stays on the screen.
    variables = {"LESS": "FRX", "LV": "-c", **environment}
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=variables)
    except (OSError, ValueError):
        return False
    with _ctrl_c_is_for_the_pager(), suppress(OSError):
        process.communicate(without_links(text).encode("utf-8", errors="backslashreplace"))
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
    """Return whether a text needs more lines than a window has besides the prompt."""
    from tfperf.report.render.text_table import cells

    lines = without_links(text).splitlines()
    return len(lines) >= height or sum(max(-(-cells(line) // width), 1) for line in lines) >= height
