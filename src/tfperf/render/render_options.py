"""How a report is to be shown: everything a renderer may know besides the report."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

PIPE_WIDTH = 80
"""Width of text that no person's window decides: files, pipes, CI logs."""


class RenderOptions(NamedTuple):
    """Width in cells, whether to colour, and who reads."""

    width: int = PIPE_WIDTH
    colour: bool = False
    interactive: bool = False
    """A person's terminal: long names are cut in the middle. Files and pipes lose nothing."""
    is_whole: bool = True
    """A whole report: people see its brief form. False: they asked for these sections, and see them in full."""
    top: int | None = None
    """How many rows of a table people see; None: as many as the table says."""


def options_for_stdout(*, colour: bool | None = None) -> RenderOptions:
    """Return what suits the current stdout; `colour` overrides the guess (a terminal without NO_COLOR)."""
    interactive = sys.stdout is not None and sys.stdout.isatty()
    width = PIPE_WIDTH
    if interactive:
        # Importing shutil takes 4 ms, which a pipe need not wait for.
        from shutil import get_terminal_size

        width = get_terminal_size((PIPE_WIDTH, 24)).columns
    if colour is None:
        colour = interactive and _environment_allows_colour()
    return RenderOptions(width=width, colour=colour, interactive=interactive)


def _environment_allows_colour() -> bool:
    """Tell whether the environment lets a terminal be coloured."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    # The old Windows console prints escape codes as they are; Windows Terminal announces itself.
    return os.name != "nt" or "WT_SESSION" in os.environ
