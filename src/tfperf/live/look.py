"""The state of the screen that the user controls, and the effect of each key on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tfperf.capture.address import Address
from tfperf.live.board import WorkerView

Order = Literal["worst", "name", "step", "input"]
ORDERS: tuple[Order, ...] = ("worst", "name", "step", "input")

_SEQUENCES = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\r": "enter",
    b"\n": "enter",
}
_LETTERS = {b"k": "up", b"j": "down", b"q": "quit", b"Q": "quit", b"s": "sort", b"p": "pause", b" ": "pause"}
_LETTERS |= {b"r": "record", b"?": "help", b"h": "help"}
_LONGEST_SEQUENCE = 8
_MOVES: Mapping[str, int] = {"up": -1, "down": 1, "page up": -10, "page down": 10, "home": -(10**6), "end": 10**6}

HELP = (
    ("q, Ctrl-C", "end"),
    ("up, down, k, j", "select a worker (also Page Up, Page Down, Home, End)"),
    ("Enter", "show or hide details of the selected worker"),
    ("s", "sort: worst first, by name, by step time, by input share"),
    ("p, space", "pause or resume sampling"),
    ("r", "record the latest sample of the selected worker to the logdir"),
    ("?, h", "show or hide this help"),
)


class Look(Struct, frozen=True, kw_only=True):
    """The state of the display. `chosen` is the worker with details below the table."""

    chosen: Address | None = None
    order: Order = "worst"
    is_paused: bool = False
    shows_details: bool = False
    shows_help: bool = False
    is_ended: bool = False
    records: Address | None = None
    """The worker whose sample is to be recorded now."""


def keys_in(data: bytes) -> tuple[list[str], bytes]:
    """Return the names of the keys in the bytes of a terminal, and the bytes of an incomplete key."""
    names: list[str] = []
    while data:
        sequence = next((each for each in _SEQUENCES if data.startswith(each)), b"")
        if sequence:
            names.append(_SEQUENCES[sequence])
            data = data[len(sequence) :]
        elif data[:1] == b"\x1b":
            if any(each.startswith(data) for each in _SEQUENCES):
                return names, data
            # An unused key; Escape alone is one byte.
            ends = (place for place, byte in enumerate(data[2:_LONGEST_SEQUENCE], 3) if 0x40 <= byte <= 0x7E)
            end = next(ends, len(data)) if data[1:2] in (b"[", b"O") else 1
            names += ["escape"] * (end == 1)
            data = data[end:]
        else:
            if name := _LETTERS.get(data[:1]):
                names.append(name)
            data = data[1:]
    return names, b""


def pressed(look: Look, key: str, workers: Sequence[WorkerView]) -> Look:
    """Return the look after a key; `workers` are in display order."""
    if key in _MOVES:
        addresses = [worker.address for worker in workers]
        if not addresses:
            return look
        place = addresses.index(look.chosen) if look.chosen in addresses else 0
        return replace(look, chosen=addresses[min(max(place + _MOVES[key], 0), len(addresses) - 1)])
    if key == "quit":
        return replace(look, is_ended=True)
    if key == "escape":
        return replace(look, shows_help=False, shows_details=False)
    if key == "sort":
        return replace(look, order=ORDERS[(ORDERS.index(look.order) + 1) % len(ORDERS)])
    if key == "record":
        return replace(look, records=look.chosen)
    flags = {"enter": "shows_details", "help": "shows_help", "pause": "is_paused"}
    name = flags[key]
    return replace(look, **{name: not getattr(look, name)})


def ordered(workers: Sequence[WorkerView], order: Order) -> list[WorkerView]:
    """Return the sorted workers: unknown values come last, and failing workers count as the worst."""
    return sorted(workers, key=_KEYS[order])


def _by_name(worker: WorkerView) -> tuple[object, ...]:
    return (worker.name, worker.address.port)


def _step_ms(worker: WorkerView) -> float | None:
    return worker.shown.measured.step_ms if worker.shown is not None and worker.shown.measured is not None else None


def _input_percent(worker: WorkerView) -> float:
    measured = worker.shown.measured if worker.shown is not None else None
    return -1.0 if measured is None or measured.input_percent is None else measured.input_percent


def _by_trouble(worker: WorkerView) -> tuple[object, ...]:
    """Return a sort key: no answer, long steps, input share. Steps within 10% are equal, so the order is stable."""
    step_ms = _step_ms(worker)
    has_problem = worker.last is not None and worker.last.measured is None and worker.last.reason != "idle"
    size = -round(7 * math.log2(step_ms)) if step_ms else 0
    share = round(_input_percent(worker) / 10)
    return (not has_problem, not worker.is_gone, step_ms is None, size, -share, *_by_name(worker))


_KEYS: Mapping[Order, Callable[[WorkerView], tuple[object, ...]]] = {
    "worst": _by_trouble,
    "name": _by_name,
    "step": lambda worker: (_step_ms(worker) is None, -(_step_ms(worker) or 0.0), *_by_name(worker)),
    "input": lambda worker: (-_input_percent(worker), *_by_name(worker)),
}
