"""Ctrl-C that ends a capture in good order."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

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
    before = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}
    first_s: list[float] = []

    def note(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        first_s.append(now)
        stop.set()
        if now - first_s[0] > _SAME_SIGNAL_SECONDS:
            _restore(before)
            signal.raise_signal(number)

    for kind in before:
        signal.signal(kind, note)
    try:
        yield stop
    finally:
        _restore(before)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for kind, handler in handlers.items():
        signal.signal(kind, handler if handler is not None else signal.SIG_DFL)
