"""Ctrl-C that ends a capture in good order."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

_SAME_SIGNAL_SECONDS = 0.5


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Set an event at the first SIGINT or SIGTERM; a later one acts as it did before.

    Signals within half a second count as one: `timeout` and shells send them to the process and to its group. Outside
    the main thread, which alone can handle signals, the event stays unset.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    first_s: list[float] = []
    with ExitStack() as earlier_handlers:

        def note(number: int, frame: FrameType | None) -> None:
            now = time.monotonic()
            first_s.append(now)
            stop.set()
            if now - first_s[0] > _SAME_SIGNAL_SECONDS:
                earlier_handlers.close()
                signal.raise_signal(number)

        for kind in (signal.SIGINT, signal.SIGTERM):
            earlier = signal.getsignal(kind)
            earlier_handlers.callback(signal.signal, kind, signal.SIG_DFL if earlier is None else earlier)
            signal.signal(kind, note)
        yield stop
