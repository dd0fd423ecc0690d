"""The terminal as a screen: drawn on its alternate page, without echo, and always restored."""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tfperf.live.look import keys_in
from tfperf.report.render.text_table import Line

_SENT_AT_ONCE = 1024


class LiveTerminal:
    """Draws lines, and reads keys. `with` restores the terminal: its first page, cursor and echo."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour
        self._stack = contextlib.ExitStack()
        self._rest = b""
        self._has_keys = self._is_stopping = False

    def __enter__(self) -> LiveTerminal:
        self._take()

        def note(number: int, frame: FrameType | None) -> None:
            self._is_stopping = True

        self._leaving = contextlib.ExitStack()
        self._leaving.enter_context(_handled("SIGTSTP", note))
        return self

    def __exit__(self, *error: object) -> None:
        self._leaving.close()
        # A closed terminal cannot be restored.
        with contextlib.suppress(OSError):
            self._stack.close()

    @property
    def size(self) -> tuple[int, int]:
        """Return columns and lines of the window."""
        size = self._console.size
        return max(size.width, 1), max(size.height, 1)

    def draw(self, lines: Sequence[Line]) -> None:
        """Draw lines from the top; raises OSError if the terminal is closed."""
        text = Text(no_wrap=True, overflow="crop", end="")
        for number, line in enumerate(lines):
            text.append("\n" if number else "")
            for part in line:
                text.append(part.text, part.style if self._colour else None)
        self._live.update(text, refresh=True)

    def keys(self, seconds: float) -> list[str]:
        """Wait at most `seconds` for keys; return their names."""
        if self._is_stopping:
            # Stop as Ctrl-Z requires: restore the terminal, and take it again when the shell continues this process.
            self._is_stopping = False
            self._stack.close()
            with _handled("SIGTSTP", signal.SIG_DFL):
                signal.raise_signal(signal.SIGTSTP)
            self._take()
        if not self._has_keys:
            select.select([], [], [], seconds)
            return []
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], seconds)
        if not ready:
            # No other key follows, so it was Escape alone.
            names, self._rest = (["escape"] if self._rest == b"\x1b" else []), b""
            return names
        data = os.read(sys.stdin.fileno(), _SENT_AT_ONCE)
        if not data:
            self._has_keys = False  # The terminal of the keys was closed.
        names, self._rest = keys_in(self._rest + data)
        return names

    def _take(self) -> None:
        # Characters outside the terminal's encoding become escapes.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        # Otherwise rich would read colors and width from the environment again.
        self._console = Console(
            file=sys.stdout, force_terminal=True, highlight=False, markup=False, emoji=False, no_color=not self._colour
        )
        self._has_keys = self._stack.enter_context(_keys_at_once())
        live = Live(
            Text(""),
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live = self._stack.enter_context(live)


@contextlib.contextmanager
def _keys_at_once() -> Iterator[bool]:
    """Read single keys without echo; yield whether there are any. Ctrl-C stays a signal."""
    try:
        import termios
        import tty

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError, AttributeError, termios.error):
        yield False
        return
    tty.setcbreak(descriptor, termios.TCSANOW)
    try:
        yield True
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _handled(name: str, handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """Handle a signal, if the system has it, until the end of the block."""
    number = getattr(signal, name, None)
    if number is None:
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
