"""Keys, and what they do; the order of workers."""

from __future__ import annotations

import pytest
from live.views import gone, measured, sample, worker
from msgspec.structs import replace

from tfperf.live.board import WorkerView
from tfperf.live.look import ORDERS, Look, Order, keys_in, ordered, pressed


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"q", ["quit"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (b"jk?sp r\r", ["down", "up", "help", "sort", "pause", "pause", "record", "enter"]),
        (b"\x1b[6~\x1b[5~", ["page down", "page up"]),
        (b"\x1b[3~\x1b[1;5Cq", ["quit"]),  # Delete and Ctrl-Right mean nothing
        (b"\x1bq", ["escape", "quit"]),
        ("öx\x00".encode(), []),
        (b"", []),
    ],
)
def test_what_a_terminal_sends(sent: bytes, keys: list[str]) -> None:
    assert keys_in(sent) == (keys, b"")


def test_a_key_may_come_in_pieces() -> None:
    for end in (1, 2):
        names, rest = keys_in(b"s" + b"\x1b[A"[:end])
        assert names == ["sort"]
        assert keys_in(rest + b"\x1b[A"[end:]) == (["up"], b"")


def test_moves_stay_within_the_workers() -> None:
    workers = [worker(port) for port in (1, 2, 3)]
    look = Look(chosen=workers[0].address)
    for key, port in (("down", 2), ("up", 1), ("up", 1), ("page down", 3), ("home", 1), ("end", 3), ("down", 3)):
        look = pressed(look, key, workers)
        assert look.chosen is not None
        assert look.chosen.port == port
    assert pressed(Look(), "down", []) == Look()


def test_keys_turn_things_on_and_off() -> None:
    chosen = worker().address
    look = Look(chosen=chosen)
    for key, name in (("enter", "shows_details"), ("help", "shows_help"), ("pause", "is_paused")):
        assert getattr(pressed(look, key, []), name)
        assert pressed(pressed(look, key, []), key, []) == look
    assert pressed(pressed(look, "help", []), "escape", []) == look
    assert pressed(look, "quit", []).is_ended
    assert pressed(look, "record", []).records == chosen
    orders: list[Order] = []
    for _ in ORDERS:
        orders.append(look.order)
        look = pressed(look, "sort", [])
    assert tuple(orders) == ORDERS
    assert look.order == ORDERS[0]


def of(port: int, step_ms: float | None, input_percent: float | None = 0.0) -> WorkerView:
    return worker(port, sample(replace(measured(), step_ms=step_ms, input_percent=input_percent)))


def ports(order: Order, *workers: WorkerView) -> list[int]:
    return [each.address.port for each in ordered(workers, order)]


def test_the_worst_come_first() -> None:
    idle, waiting = worker(5, sample(None, reason="idle")), worker(6)
    slow, other, no_steps = of(1, 40.0), of(2, 20.0), of(3, None)
    assert ports("worst", other, no_steps, waiting, slow, idle, gone(4)) == [4, 1, 2, 3, 5, 6]


def test_steps_that_differ_by_noise_keep_their_order() -> None:
    """Of workers with nearly the same step time, the one that waits longer for input comes first, then by name."""
    assert ports("worst", of(1, 20.0), of(2, 20.2), of(3, 20.1, 50.0)) == [3, 1, 2]


def test_other_orders() -> None:
    workers = of(3, 10.0, 50.0), of(1, 30.0, 20.0), of(2, 20.0, None), gone(4)
    assert ports("name", *workers) == [1, 2, 3, 4]
    assert ports("step", *workers) == [1, 2, 3, 4]
    assert ports("input", *workers) == [3, 1, 2, 4]
