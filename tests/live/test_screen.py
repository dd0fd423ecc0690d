"""The lines of the screen: the table of workers, the chosen one, and what keys do."""

from __future__ import annotations

import pytest
from builders import known
from live.views import EVIL, NOW_S, WIDTHS, frame, gone, measured, request, sample, worker
from msgspec.structs import replace

from tfperf.capture.address import Address
from tfperf.live.board import WorkerView
from tfperf.live.look import ORDERS, Look, Order, keys_in, ordered, pressed
from tfperf.live.sample import FirstCause, RankedTime
from tfperf.live.screen import (
    Seen,
    chosen_of,
    cost_text,
    detail_lines,
    history_text,
    screen_lines,
    state_of,
    table_lines,
    text_lines,
)
from tfperf.report.render.text_table import plain_text, width_of

MANY = [
    *(worker(port, sample(measured(step_ms=10.0 * 1.2 ** (port % 7)))) for port in range(7000, 7060)),
    *map(gone, range(7060, 7064)),
]


def seen(*workers: WorkerView, note: str = "") -> Seen:
    return Seen(workers, request(*workers), note)


def texts(of: Seen, look: Look = Look(), *, width: int = 80, height: int = 24) -> list[str]:  # noqa: B008 - immutable
    return [plain_text(line) for line in screen_lines(of, look, frame(width), height)]


def test_one_worker() -> None:
    lines = texts(seen(worker(6009, sample(measured()))))
    assert len(lines) == 24
    assert lines[0].startswith("tfperf top: 1 worker ")
    assert lines[1] == "500 ms every 5 s: profiling 10.0% of the time; overhead unknown"
    assert lines[3].startswith("> w0:6009")
    assert any("try: add .cache()" in line for line in lines)
    assert lines[-1].startswith("q quit  ? help")


def test_what_samples_cost_is_said_where_it_was_measured() -> None:
    lines = texts(seen(worker(6009, sample(measured(), slowdown_percent=12.0))))
    expected = "500 ms every 5 s: profiling 10.0% of the time, with steps 12% longer: 1.2% overhead"
    assert " ".join(lines[1:3]) == expected


def test_64_workers_have_the_worst_first_and_a_count_of_the_others() -> None:
    lines = texts(seen(*MANY))
    assert lines[0].startswith("tfperf top: 64 workers, 4 gone")
    rows = [line for line in lines if line[2:].startswith("w0:")]
    steps = [line.split()[1 + line.startswith(">")] for line in rows]
    assert len(rows) >= 8
    assert steps[:4] == ["-"] * 4
    assert steps[4:] == sorted(steps[4:], key=float, reverse=True)
    assert f"  {64 - len(rows)} workers below" in lines
    assert any(line.startswith("!! ") for line in lines), "the first worker with figures has its details below"


def test_the_chosen_worker_is_always_in_sight() -> None:
    for each in MANY:
        lines = texts(seen(*MANY), Look(chosen=each.address, order="name"))
        (marked,) = [line for line in lines if line.startswith("> ")]
        assert f"{each.address} " in marked


@pytest.mark.parametrize("width", [20, 40, *WIDTHS])
@pytest.mark.parametrize("height", [1, 2, 5, 10, 24, 60])
def test_the_screen_fits_any_window(width: int, height: int) -> None:
    for look in (Look(), Look(shows_details=True), Look(shows_help=True)):
        for workers in ([worker()], [worker(6009, sample(measured()))], MANY):
            lines = screen_lines(seen(*workers), look, frame(width), height)
            assert len(lines) <= height
            if width >= 60:
                assert max(map(width_of, lines), default=0) <= width


def test_a_pause_a_note_and_help() -> None:
    of = seen(worker(6009, sample(measured())), note="recorded: logs/x")
    assert "PAUSED" in texts(of, Look(is_paused=True))[0]
    assert texts(of)[-1] == "recorded: logs/x"
    assert any("record the latest sample" in line for line in texts(of, Look(shows_help=True)))


def test_one_screen_as_text_has_every_worker() -> None:
    text = [plain_text(line) for line in text_lines(seen(*MANY), frame(80, interactive=False))]
    assert sum(line.startswith("  w0:") for line in text) == 64
    assert all(line.isascii() for line in text)
    assert not any("q quit" in line for line in text)


def test_a_worker_that_is_no_longer_there_is_not_chosen() -> None:
    first = replace(worker(6009, sample(measured())))
    assert chosen_of(seen(first), Look(chosen=gone(1).address)) == first
    assert chosen_of(seen(), Look()) is None


def table_texts(*workers: WorkerView, width: int = 80, interactive: bool = True) -> list[str]:
    return [plain_text(line) for line in table_lines(workers, None, frame(width, interactive=interactive))]


def test_a_row_at_80_columns() -> None:
    assert table_texts(worker(6009, sample(measured()))) == [
        "  WORKER   STEP ms  LAST MIN   STEPS/s   INPUT  CATEGORIES   CAUSE",
        "  w0:6009     20.0  ▅▅▅▅    █       50   66.0%  IIIIIIIhhh.  Waiting for input",
    ]


def test_wider_windows_tell_more() -> None:
    titles = [
        set(table_texts(worker(6009, sample(measured())), width=width)[0].split()) for width in (60, 80, 120, 160)
    ]
    assert titles[0] < titles[1] < titles[2] <= titles[3]
    assert {"STEP", "LAST", "INPUT", "CAUSE", "WORKER"} <= titles[0]
    assert {"STEPS/s", "EX/s", "DEVICE", "COSTS", "MEMORY", "CATEGORIES"} <= titles[3]


def test_all_figures_are_there_in_a_wide_window() -> None:
    (_, row) = table_texts(worker(6009, sample(measured())), width=160)
    for figure in ("20.0", "50", "1,600", "66.0%", "66-78%", "12.5%", "75.0%", "Waiting for input"):
        assert f" {figure}" in row


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("interactive", [True, False])
def test_no_line_is_wider_than_the_window(width: int, interactive: bool) -> None:
    long = worker(address=Address("a-host-with-a-long-name.of.a.cluster.example", 60009), last=sample(measured()))
    evil = worker(7, sample(measured(causes=(replace(measured().causes[0], title=EVIL),))))
    lines = table_lines([long, evil, gone(), worker(8)], long, frame(width, interactive=interactive))
    assert max(map(width_of, lines)) <= width
    assert all(part.text.isprintable() for line in lines for part in line)
    if not interactive:
        assert all(part.text.isascii() for line in lines for part in line)


def test_what_is_unknown_is_a_dash_and_never_zero() -> None:
    (_, row) = table_texts(worker(6009, sample(replace(measured(), step_ms=None, input_percent=None))), width=80)
    assert row.split()[:2] == ["w0:6009", "-"]
    assert " 0" not in row
    assert row.endswith("no steps")


def test_why_there_are_no_figures() -> None:
    assert state_of(gone()) == ("gone: not listening", "red")
    assert state_of(worker()) == ("waiting for the first sample", "dim")
    assert state_of(worker(1, sample(None, reason="idle"))) == ("idle", "dim")
    assert state_of(worker(1, sample(None, reason="bad_reply")))[0] == "bad reply"
    assert state_of(worker(1, sample(measured()), asked_s=12.2))[0] == "no reply for 12 s", "the figures are old"
    assert state_of(worker(1, sample(measured()), asked_s=2.2))[0] == "Waiting for input"
    assert state_of(worker(1, sample(measured(causes=()))))[0] == "no cause worth fixing"


def test_the_line_of_step_times_begins_at_zero_and_has_gaps() -> None:
    """Twelve cells of five seconds; the value holds until the next sample; the middle sample gave none."""
    assert history_text(worker(), frame(), 12) == "▅▅▅▅▅▅     █"
    assert history_text(worker(), frame(interactive=False), 12) == "======     #"
    assert history_text(worker(history=()), frame(), 12) == ""
    assert history_text(worker(history=((NOW_S, None),)), frame(), 12) == ""


def test_a_range_in_whole_percent() -> None:
    assert cost_text(66.0, 78.4) == "66-78%"
    assert cost_text(66.1, 66.3) == "66%"


def detail_texts(of: WorkerView, height: int = 40, *, is_whole: bool = False) -> list[str]:
    return [plain_text(line) for line in detail_lines(of, frame(), height, is_whole=is_whole)]


def test_all_that_is_known() -> None:
    assert detail_texts(worker(6009, sample(measured())), 12) == [
        "w0:6009: 3 samples, last 2 s ago",
        "step 20.0 ms over 24 whole steps, median 19.0, slowest 31.0",
        "I" * 40 + "h" * 14 + "." * 6,
        "I Input 66.0%   h Host compute 24.0%   . All others 10.0%",
        "!! Waiting for input takes 66.0% of the step: the blocking tf.data stage is Map.",
        "   try: add .cache() after map()",
        "input 66.0%, costs 66-78%   50 steps/s   1,600 examples/s (batch size 32)",
        "device busy 12.5%   memory 3.00 GB of 4.00 GB (GPU_0_bfc)",
        "sample of 123 kB received in 0.6 s",
        " TIME  ms IN SAMPLE  HOST OPS",
        " 50.0%         9.00  layer_1/MatMul",
        " 25.0%         4.50  layer_2/MatMul",
    ]


def test_details_have_all_causes_and_the_history() -> None:
    other = FirstCause("kernel_launch", "Launching", "Launching takes 9.0% of the step.", "", 5.0)
    lines = detail_texts(worker(6009, sample(measured(causes=(*measured().causes, other)))), is_whole=True)
    assert lines[1].startswith("step time (ms), last 1 min, 10.0 to 20.0: ▅")
    assert "!! Launching takes 9.0% of the step." in lines


def test_a_worker_that_is_gone_shows_no_old_figure_as_a_new_one() -> None:
    lines = detail_texts(gone())
    assert lines == ["w0:6009: 3 samples, 4 failed", "no server listens on w0:6009; check the port"]
    known = worker(6009, gone().last, known=sample(measured(), time_s=NOW_S - 61))
    assert detail_texts(known)[-1] == "step 20.0 ms, 61 s ago"


def test_a_server_that_takes_its_time() -> None:
    assert detail_texts(worker(asked_s=75.2))[0].endswith("no reply for 75 s")
    assert detail_texts(worker(asked_s=0.2))[0].endswith("sampling now")


def test_a_sample_without_steps_says_why() -> None:
    lines = detail_texts(worker(6009, sample(measured(step_ms=None, why="no step was found"))))
    assert lines[1] == "no step was found"
    assert not any(line.startswith("!!") for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_names_are_safe_and_no_line_is_too_wide(width: int) -> None:
    evil = measured(
        headline=EVIL,
        causes=(FirstCause(EVIL, EVIL, EVIL, EVIL, 60.0),),
        ranked=(RankedTime(EVIL * 20, EVIL, 50.0, 1.0),),
        step_kind=EVIL,
        why=EVIL,
    )
    for each in (evil, measured(step_ms=None, why=EVIL)):
        lines = detail_lines(worker(6009, sample(each, message=EVIL)), frame(width), 60, is_whole=True)
        assert all(part.text.isprintable() for line in lines for part in line)
        assert max(map(width_of, lines)) <= width


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
        assert known(look.chosen).port == port
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
