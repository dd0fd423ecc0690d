"""The live view: a screen that renews itself, one screen as text, or a line of JSON for each sample."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address
from tfperf.capture.remote import stop_on_signal
from tfperf.live.board import TopRequest
from tfperf.live.look import Look, ordered, pressed
from tfperf.live.openmetrics import metrics_served, metrics_text
from tfperf.live.sample import Sample
from tfperf.live.sample_json import sample_line
from tfperf.live.screen import Frame, Seen, chosen_of, screen_lines, text_lines
from tfperf.live.watcher import Watch

if TYPE_CHECKING:
    from tfperf.live.terminal import LiveTerminal
    from tfperf.report.render.screen import Screen

_LOOK_S = 0.2
"""How often to look for keys, samples and signals."""
_REDRAW_S = 1.0


@contextlib.contextmanager
def _watching(watch: Watch, metrics_port: int | None) -> Iterator[threading.Event]:
    """Watch all workers, and serve metrics if a port is given; gives an event that Ctrl-C and SIGTERM set."""
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_signal())
        if metrics_port is not None:
            stack.enter_context(metrics_served(metrics_port, lambda: metrics_text(watch.board.views())))
        stack.enter_context(watch)
        yield stop


def show_live(request: TopRequest, screen: Screen, metrics_port: int | None = None) -> None:
    """Show all workers on the terminal until somebody ends it, or all samples that were asked for have come."""
    from tfperf.live.terminal import LiveTerminal

    watch, look = Watch(request), Look()
    # The terminal is given back first: ending takes a moment.
    with _watching(watch, metrics_port) as stop, LiveTerminal(colour=screen.colour) as terminal:
        drawn: tuple[object, ...] = ()
        with contextlib.suppress(OSError):  # The terminal is gone, and its user with it.
            while not stop.is_set() and not look.is_ended and not watch.is_done:
                now = (look, terminal.size, watch.board.version, int(time.monotonic() / _REDRAW_S))
                if now != drawn:
                    drawn = now
                    _draw(watch, look, terminal, interactive=screen.interactive)
                for key in terminal.keys(_LOOK_S):
                    look = _after(look, key, watch)
                _raise_failure(watch)


def _draw(watch: Watch, look: Look, terminal: LiveTerminal, *, interactive: bool) -> None:
    columns, lines = terminal.size
    seen = Seen(watch.board.views(), watch.request, watch.board.note)
    chosen = chosen_of(seen, look)
    if chosen is not None:
        watch.choose(chosen.address)
    # The last cell stays free: some terminals go to the next line when it is written.
    terminal.draw(screen_lines(seen, look, Frame(max(columns - 1, 20), time.time(), interactive), lines))


def _after(look: Look, key: str, watch: Watch) -> Look:
    """Return the look after a key, and do what the key asks for."""
    watch.board.note = ""
    seen = Seen(watch.board.views(), watch.request)
    workers, chosen = ordered(seen.workers, look.order), chosen_of(seen, look)
    # What is below the table is what keys are about, also if nobody has chosen it yet.
    after = pressed(replace(look, chosen=chosen.address if chosen else None), key, workers)
    if after.records is not None:
        watch.record(after.records)
        after = replace(after, records=None)
    if after.is_paused != look.is_paused:
        watch.pause(after.is_paused)
    has_moved = after.chosen != (chosen.address if chosen else None)
    return after if has_moved or look.chosen is not None else replace(after, chosen=None)


def show_once(request: TopRequest, screen: Screen) -> str:
    """Take one sample of each worker; return one screen as text. Raises CaptureError if no worker gives any."""
    from tfperf.report.render.text_table import joined

    watch = Watch(replace(request, samples=1))
    with _watching(watch, None) as stop:
        while not watch.is_done and not stop.wait(_LOOK_S / 4):
            _raise_failure(watch)
        seen = Seen(watch.board.views(), watch.request)
    _raise_failure(watch)
    if stop.is_set():
        raise KeyboardInterrupt
    failed = [worker.last for worker in seen.workers if worker.last is not None and worker.last.reason]
    if len(failed) == len(seen.workers):
        more = f" (and {len(failed) - 1} more workers gave none)" if len(failed) > 1 else ""
        raise CaptureError(failed[0].reason or "bad_reply", failed[0].message + more)
    frame = Frame(screen.width, time.time(), screen.interactive)
    return joined(text_lines(seen, frame), colour=screen.colour)


def write_lines(request: TopRequest, metrics_port: int | None = None) -> bool:
    """Write each sample as a line of JSON to stdout until Ctrl-C, or until all have come; return whether any is known.

    A reader that leaves ends it.
    """
    from tfperf.report.render import discard

    samples: queue.SimpleQueue[tuple[Address, Sample]] = queue.SimpleQueue()
    watch, has_any = Watch(request, lambda address, sample: samples.put((address, sample))), False
    with _watching(watch, metrics_port) as stop:
        try:
            while not stop.is_set():
                is_done = watch.is_done
                with contextlib.suppress(queue.Empty):
                    while True:
                        address, sample = samples.get(timeout=0.0 if is_done else _LOOK_S)
                        has_any = has_any or sample.measured is not None
                        sys.stdout.write(sample_line(address, sample))
                        sys.stdout.flush()
                _raise_failure(watch)
                if is_done:
                    break
        except BrokenPipeError:
            discard(sys.stdout)
    return has_any


def _raise_failure(watch: Watch) -> None:
    """Raise what ended a thread that should not have ended."""
    if watch.board.failure is not None:
        raise watch.board.failure
