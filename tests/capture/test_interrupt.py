"""The first Ctrl-C stops, a later one interrupts."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from tfperf.capture.remote import stop_on_signal


def test_the_first_signal_stops_and_a_later_one_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        time.sleep(0.6)  # Signals within half a second count as one.
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_cannot_catch_signals_and_is_left_alone() -> None:
    stops: list[bool] = []

    def run() -> None:
        with stop_on_signal() as stop:
            stops.append(stop.is_set())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert stops == [False]
