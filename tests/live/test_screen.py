"""The whole screen: it fits the window, and 64 workers stay readable."""

from __future__ import annotations

import pytest
from live.views import WIDTHS, frame, gone, measured, request, sample, worker
from msgspec.structs import replace

from tfperf.live.board import WorkerView
from tfperf.live.look import Look
from tfperf.live.screen import Seen, chosen_of, screen_lines, text_lines
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
    assert lines[1] == "500 ms every 5 s: 10.0% of the time is profiled; what that costs is unknown"
    assert lines[3].startswith("> w0:6009")
    assert any("try: put .cache()" in line for line in lines)
    assert lines[-1].startswith("q quit  ? help")


def test_what_samples_cost_is_said_where_it_was_measured() -> None:
    lines = texts(seen(worker(6009, sample(measured(), slowdown_percent=12.0))))
    said = "500 ms every 5 s: 10.0% of the time is profiled, with steps 12% longer: that costs 1.2%"
    assert " ".join(lines[1:3]) == said


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
