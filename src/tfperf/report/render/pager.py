"""Long reports go through the user's pager.

click's `echo_via_pager` differs between the allowed versions of click: some print nothing where PAGER cannot be
started.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
