"""The live view in Textual without a terminal: what keys do, and that it fits any window."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from live.views import EVIL, WIDTHS, gone, measured, sample

from tfperf.capture.address import Address
from tfperf.live.board import Board, TopRequest
from tfperf.live.sample import FirstCause
from tfperf.report.render.screen import Screen
from tfperf.report.render.text_table import cells

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from tfperf.live.app import LiveApp

pytestmark = pytest.mark.skipif(find_spec("textual") is None, reason="the live view is optional")


class FakeWatch:
    """What the view does with workers; the test adds their samples."""

    def __init__(self, count: int) -> None:
        self.request = TopRequest(workers=[Address("w0", 7000 + number) for number in range(count)])
        self.board = Board(self.request.workers)
        self.is_done, self.chosen = False, Address("", 0)
        self.done: list[object] = []

    def choose(self, address: Address) -> None:
        self.chosen = address

    def pause(self, is_paused: bool) -> None:
        self.done.append(is_paused)

    def record(self, address: Address) -> None:
        self.done.append(address)

    def open_page(self, address: Address) -> None:
        self.done.append(("page", address))

    def add(self, place: int = 0, **fields: Any) -> None:
        number = self.board.views()[place].samples + 1
        taken = sample(measured(**fields), number=number, time_s=time.time())
        self.board.add(self.request.workers[place], taken)


def texts(app: LiveApp) -> list[str]:
    """Return the lines of the screen."""
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


Act: TypeAlias = "Callable[[Pilot[None], LiveApp], Awaitable[None]]"


def act(watch: FakeWatch, act: Act, *, size: tuple[int, int] = (80, 24), interactive: bool = True) -> LiveApp:
    """Run the view, and what a test does with it."""
    from tfperf.live.app import LiveApp  # which takes long, so not while tests are collected

    app = LiveApp(watch, threading.Event(), Screen(colour=True, interactive=interactive))  # type: ignore[arg-type]

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await act(pilot, app)

    # Other tests of this process may leave an event loop running in this thread.
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(run())).result()
    return app


async def pressed(pilot: Pilot[None], app: LiveApp, *keys: str) -> list[str]:
    """Return the screen after some keys."""
    await pilot.press(*keys)
    app._redraw(app._watch.board.note)
    await pilot.pause()
    return texts(app)


def test_one_worker_has_advice_graphs_and_keys() -> None:
    watch = FakeWatch(1)
    for step_ms in (20.0, 21.0, 22.0):
        watch.add(step_ms=step_ms)

    async def look(pilot: Pilot[None], app: LiveApp) -> None:
        lines = texts(app)
        assert len(lines) == 24
        assert lines[0].startswith("tfperf top: 1 worker ")
        assert lines[3].startswith("> w0:7000")
        assert any("over 3 train samples, stable for 0 s: a fix saves 60%" in line for line in lines)
        assert any("try: add .cache()" in line for line in lines)
        assert any(line.startswith("step ms") and "step by cause in %" in line for line in lines)
        assert lines[-1].startswith("q quit  ? help  Enter step  b mark  o page")
        assert watch.chosen == watch.request.workers[0]

    act(watch, look)


def test_moving_selects_another_worker_and_all_are_reachable() -> None:
    watch = FakeWatch(40)
    for place in range(40):
        watch.add(place, step_ms=100.0 - 2 * place)

    async def look(pilot: Pilot[None], app: LiveApp) -> None:
        assert watch.chosen.port == 7000
        assert any("more workers; 1 of 40 selected" in line for line in texts(app))
        for keys, port in ((["down"], 7001), (["j", "k", "up"], 7000), (["end"], 7039), (["home"], 7000)):
            lines = await pressed(pilot, app, *keys)
            assert watch.chosen.port == port
            (marked,) = [line for line in lines if line.startswith("> ")]
            assert f"w0:{port}" in marked, "the selected worker is always in sight"

    act(watch, look)


def test_sorting_and_pausing() -> None:
    watch = FakeWatch(3)
    for place, step_ms in enumerate((10.0, 30.0, 20.0)):
        watch.add(place, step_ms=step_ms)

    async def look(pilot: Pilot[None], app: LiveApp) -> None:
        assert [line[5:9] for line in texts(app)[3:6]] == ["7001", "7002", "7000"]
        lines = await pressed(pilot, app, "s")
        assert [line[5:9] for line in lines[3:6]] == ["7000", "7001", "7002"]
        assert lines[-1].endswith("s sort: name")
        assert "PAUSED" in (await pressed(pilot, app, "p"))[0]
        assert "PAUSED" not in (await pressed(pilot, app, "space"))[0]

    act(watch, look)
    assert watch.done == [True, False]


def test_a_mark_is_the_baseline_of_later_samples() -> None:
    watch = FakeWatch(1)

    async def look(pilot: Pilot[None], app: LiveApp) -> None:
        assert (await pressed(pilot, app, "b"))[-1].startswith("no step time to mark yet")
        watch.add(step_ms=25.0)
        assert (await pressed(pilot, app, "b"))[-1].startswith("marked 1 worker at ")
        watch.add(step_ms=20.5)
        lines = await pressed(pilot, app)
        assert "MARK" in lines[2]
        assert "-18%" in lines[3]

    act(watch, look)


def test_enter_opens_the_step_of_a_sample_and_arrows_those_of_others() -> None:
    watch = FakeWatch(1)
    watch.add(step_kind="eval")
    watch.add()

    async def look(pilot: Pilot[None], app: LiveApp) -> None:
        await pilot.press("enter")
        await pilot.pause()
        assert "kind train, 2 of 2 kept samples" in texts(app)[0]
        assert any("Waiting for input, a fix saves 12.0 ms" in line for line in texts(app))
        watch.add(step_kind="test")
        await pilot.press("left")
        await pilot.pause()
        assert "kind eval, 1 of 2 kept samples" in texts(app)[0], "the page stays as it is while samples come"
        await pilot.press("escape")
        assert (await pressed(pilot, app))[0].startswith("tfperf top: ")

    act(watch, look)


def test_help_record_and_page() -> None:
    watch = FakeWatch(1)
    watch.add()

    async def look(pilot: Pilot[None], app: LiveApp) -> None:
        await pilot.press("question_mark")
        await pilot.pause()
        assert any("mark a baseline" in line for line in texts(app))
        await pilot.press("escape", "r", "o")
        await pilot.pause()

    act(watch, look)
    worker = watch.request.workers[0]
    assert watch.done == [worker, ("page", worker)]


def test_the_screen_fits_any_window() -> None:
    watch = FakeWatch(12)
    for place in range(10):
        watch.add(place)
    watch.board.add(watch.request.workers[10], gone().last)  # type: ignore[arg-type]

    async def look(pilot: Pilot[None], app: LiveApp) -> None:
        for width in (20, 40, *WIDTHS):
            for height in (1, 3, 10, 60):
                await pilot.resize_terminal(width, height)
                lines = await pressed(pilot, app)
                assert len(lines) == height
                assert max(map(cells, lines)) <= width, (width, height)
                assert lines[0].startswith("tfperf"), (width, height)

    act(watch, look)


def test_hostile_names_are_plain_text_and_ascii_where_the_terminal_has_no_more() -> None:
    watch = FakeWatch(1)
    cause = FirstCause(EVIL, f"[red]{EVIL}", EVIL, EVIL, 60.0)
    watch.add(causes=(cause,), headline=EVIL, step_kind=EVIL)

    async def look(pilot: Pilot[None], app: LiveApp) -> None:
        lines = texts(app)
        await pilot.press("enter")
        await pilot.pause()
        lines += texts(app)
        assert all(line.isprintable() for line in lines)
        assert any("[red]" in line for line in lines), "no markup"

    act(watch, look, size=(120, 40), interactive=False)


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+backslash"])
def test_keys_that_end_it(key: str) -> None:
    watch = FakeWatch(1)

    async def look(pilot: Pilot[None], app: LiveApp) -> None:
        await pilot.press(key)
        await pilot.pause()
        assert not app.is_running or app._exit

    act(watch, look)


def test_it_ends_with_the_last_sample() -> None:
    watch = FakeWatch(1)

    async def look(pilot: Pilot[None], app: LiveApp) -> None:
        watch.is_done = True
        app._redraw()
        assert app._exit

    act(watch, look)
