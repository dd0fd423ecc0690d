"""The live view in a terminal, built on Textual: it reads keys, handles windows, and restores the terminal.

Only this module imports Textual, which is optional.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import ClassVar, TextIO

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.driver import Driver
from textual.screen import Screen as AppScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from tfperf.base.units import counted
from tfperf.capture.address import Address
from tfperf.live.board import WorkerView
from tfperf.live.screen import (
    ORDERS,
    Frame,
    Order,
    detail_lines,
    head_lines,
    ordered,
    sample_lines,
    table_lines,
    worst_of,
)
from tfperf.live.watcher import Watch
from tfperf.report.palette import ROLES
from tfperf.report.render import discard
from tfperf.report.render.screen import Screen
from tfperf.report.render.text_table import Line, line_of, wrap
from tfperf.report.render.values import for_people

_LOOK_S = 0.2
"""Interval between checks for samples and signals."""
_REDRAW_S = 1.0
_LEAST_DETAILS = 13
"""Minimum number of lines for the details, if the window is large enough."""
_KEYS = "q quit  ? help  Enter step  b mark  o page  r record  p pause  s sort:"

HELP = (
    ("q, Ctrl-C", "end"),
    ("up, down, k, j", "select a worker (also Page Up, Page Down, Home, End)"),
    ("Enter", "open the step of the latest sample; left and right: earlier and later samples; Escape: back"),
    ("b", "mark a baseline: from then on, show by how much steps became longer or shorter"),
    ("o", "write the HTML report of the latest sample into the logdir, and open it"),
    ("r", "record the latest sample of the selected worker to the logdir"),
    ("s", "sort: worst first, by name, by step time, by input share"),
    ("p, space", "pause or resume sampling"),
    ("?, h", "show or hide this help"),
    ("Ctrl-Z", "suspend; `fg` resumes"),
)
_ABOUT = (
    "STEP ms is the mean of the whole steps in the last sample, MARK its change since the baseline. INPUT is the share "
    "of the step spent on waiting for input and copying it; COSTS also includes CPU contention with pipeline threads. "
    "DEVICE is the share of the steps in which devices are busy, MEMORY the peak use of the fullest allocator. CAUSE "
    "is the first cause over the last samples. TIME ms and SHARE of ops are sums over the sample. A dash means unknown."
)


class _Terminal:
    """A stream to a terminal. If the terminal is closed, it calls `closed`, and discards everything."""

    def __init__(self, stream: TextIO, closed: Callable[[], object]) -> None:
        self._stream, self._closed, self.fileno = stream, closed, stream.fileno

    def write(self, text: str) -> None:
        """Write a text, at the latest with `flush`."""
        try:
            self._stream.write(text)
        except OSError:
            self._lose()

    def flush(self) -> None:
        """Write what is left."""
        try:
            self._stream.flush()
        except OSError:
            self._lose()

    def _lose(self) -> None:
        discard(self._stream)
        self._closed()


def _driver() -> type[Driver] | None:
    """Return Textual's driver, drawing on stdout as other programs do, not on stderr; None: the usual one."""
    if sys.platform == "win32":
        return None
    from textual.drivers.linux_driver import LinuxDriver

    class StdoutDriver(LinuxDriver):
        def __init__(self, app: App[object], **options: object) -> None:
            super().__init__(app, **options)  # type: ignore[arg-type]
            # Characters outside the terminal's encoding become escapes.
            if sys.__stdout__ is not None and hasattr(sys.__stdout__, "reconfigure"):
                sys.__stdout__.reconfigure(errors="backslashreplace")
                self._file = _Terminal(sys.__stdout__, self._leave)  # type: ignore[assignment]

        def _leave(self) -> None:
            self._app.call_later(self._app.exit)

        def _sigcont_application(self, *signals: object) -> None:
            # After SIGSTOP, the input thread still runs: next to a second one, it would never end.
            if self._auto_restart and not self._must_signal_resume:
                self.suspend_application_mode()
            super()._sigcont_application(*signals)

        def run_input_thread(self) -> None:
            try:
                super().run_input_thread()
            except OSError:  # The terminal is closed.
                self._leave()

    return StdoutDriver


_BASIC = {f"{each.ink} on {each.colour}": f"black on {each.basic}" for each in ROLES.values()}
"""Looks of roles on a terminal with 16 colors."""


def _text_of(lines: Iterable[Line], app: App[None]) -> Text:
    text = Text(no_wrap=True, overflow="crop", end="")
    looks = _BASIC if app.console.color_system == "standard" else {}
    for number, line in enumerate(lines):
        text.append("\n" if number else "")
        for part in line:
            text.append(part.text, looks.get(part.style, part.style) or None)
    return text


class _Page(AppScreen[None]):
    """Text in place of the view, until Escape."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "back")]

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="text")

    def on_mount(self) -> None:
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        width = max(self.size.width - 1, 20)
        self.query_one("#text", Static).update(_text_of(self.lines(width), self.app))

    def lines(self, width: int) -> list[Line]:
        """Return the lines of the page."""
        raise NotImplementedError


class HelpPage(_Page):
    """The keys, and the meaning of the columns."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,h,q,enter", "app.pop_screen", "back")]

    def lines(self, width: int) -> list[Line]:
        """Return the lines of the page."""
        lines: list[Line] = [line_of("Keys", "bold")]
        for keys, meaning in HELP:
            texts = wrap(meaning, max(width - 20, 20))
            lines += [line_of(f"{'' if number else keys:18}{text}") for number, text in enumerate(texts)]
        return [*lines, line_of(""), *map(line_of, wrap(for_people(_ABOUT), width))]


class StepPage(_Page):
    """The step of one of the last samples of a worker, which stays while new samples come."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q", "app.pop_screen", "back"),
        Binding("left", "move(-1)", "earlier"),
        Binding("right", "move(1)", "later"),
    ]

    def __init__(self, worker: WorkerView, screen: Screen) -> None:
        super().__init__()
        self._worker, self._look = worker, screen
        self._place = len(worker.kept) - 1

    def action_move(self, by: int) -> None:
        """Show an earlier or a later sample."""
        self._place = min(max(self._place + by, 0), len(self._worker.kept) - 1)
        self.draw()

    def lines(self, width: int) -> list[Line]:
        """Return the lines of the page."""
        count = len(self._worker.kept)
        place = f"{self._place + 1} of {counted(count, 'kept sample')}"
        frame = Frame(width, time.time(), self._look.interactive)
        lines = sample_lines(self._worker, self._worker.kept[self._place], place, frame)
        return [*lines, line_of(""), line_of("left, right: other samples   Escape: back", "reverse")]


class LiveApp(App[None]):
    """All workers, the details of the selected one, and its graphs, until the user quits or `stop` is set."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    * { scrollbar-size: 0 0; background: ansi_default; color: ansi_default; }
    Static { width: 100%; height: auto; }
    OptionList { border: none; padding: 0; height: auto; background: ansi_default; }
    OptionList:focus { border: none; background-tint: initial; }
    OptionList > .option-list--option { padding: 0; }
    OptionList > .option-list--option-highlighted, OptionList:focus > .option-list--option-highlighted {
        background: ansi_default; color: ansi_default; text-style: none;
    }
    OptionList > .option-list--option-hover { background: ansi_default; }
    VerticalScroll { height: 1fr; }
    #details { height: 1fr; overflow: hidden hidden; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,Q,ctrl+c,ctrl+backslash", "quit", "quit", priority=False),
        Binding("ctrl+z", "suspend_process", "suspend"),
        Binding("question_mark,h", "explain", "help"),
        Binding("k", "move('up')", "up"),
        Binding("j", "move('down')", "down"),
        Binding("s", "sort", "sort"),
        Binding("p,space", "pause", "pause"),
        Binding("b", "mark", "mark"),
        Binding("o", "page", "page"),
        Binding("r", "record", "record"),
    ]

    def __init__(self, watch: Watch, stop: threading.Event, screen: Screen) -> None:
        if not screen.colour:
            os.environ["NO_COLOR"] = "1"  # Textual takes it from there.
        super().__init__(driver_class=_driver(), ansi_color=True)
        self._watch, self._stop, self._look = watch, stop, screen
        self._order: Order = "worst"
        self._is_paused = False
        self._chosen: Address | None = None
        self._shown: list[WorkerView] = []
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """Return the widgets from top to bottom."""
        yield Static(id="head")
        yield OptionList(id="workers", markup=False)
        yield Static(id="hidden")
        yield Static(id="details")
        yield Static(id="foot")

    def on_mount(self) -> None:
        """Start to draw."""
        self.theme = "ansi-dark"
        self.query_one(OptionList).focus()
        self._refresh_if_changed()
        self.set_interval(_LOOK_S, self._refresh_if_changed)

    def on_resize(self) -> None:
        """Draw for the new size of the window."""
        self._drawn = ()
        self._refresh_if_changed()

    def _refresh_if_changed(self) -> None:
        board = self._watch.board
        if self._stop.is_set() or self._watch.is_done or board.failure is not None:
            self.exit()
            return
        now = (self.size, board.version, int(time.monotonic() / _REDRAW_S))
        if now != self._drawn and len(self.screen_stack) == 1:
            self._drawn = now
            self._draw()

    def _draw(self) -> None:
        board, request = self._watch.board, self._watch.request
        # The last cell stays free, because writing it makes some terminals scroll.
        width, height = max(self.size.width - 1, 20), self.size.height
        frame = Frame(width, time.time(), self._look.interactive)
        self._shown = workers = ordered(board.views(), self._order)
        worst = worst_of(workers)
        chosen = next((worker for worker in workers if worker.address == self._chosen), worst)
        if chosen is None:
            return
        self._watch.choose(chosen.address)
        heading, *rows = table_lines(workers, chosen, frame)
        head = [*head_lines(workers, request, chosen, frame, ", PAUSED" if self._is_paused else ""), heading]
        self._show("#head", head)
        # The foot, the number of hidden workers or a blank line.
        most = max(height - len(head) - 2 - _LEAST_DETAILS, 1)
        shown = min(len(rows), most)
        self._show_rows(rows, workers.index(chosen), shown)
        below, place = len(workers) - shown, workers.index(chosen) + 1
        hidden = f"  {counted(below, 'more worker')}; {place} of {len(workers)} selected" if below > 0 else ""
        self._show("#hidden", [line_of(hidden, "dim")])
        room = max(height - len(head) - shown - 2, 0)
        self._show("#details", detail_lines(chosen, frame, room, has_graphs=True)[:room])
        foot = frame.begin(board.note or f"{_KEYS} {self._order}", width)
        self._show("#foot", [line_of(foot, "reverse")])

    def _show(self, name: str, lines: Iterable[Line]) -> None:
        self.screen_stack[0].query_one(name, Static).update(_text_of(lines, self))

    def _show_rows(self, rows: list[Line], place: int, shown: int) -> None:
        table = self.screen_stack[0].query_one(OptionList)
        texts = [_text_of([row], self) for row in rows]
        with self.prevent(OptionList.OptionHighlighted):
            if table.option_count != len(texts):
                table.clear_options()
                table.add_options([Option(text) for text in texts])
            else:
                for number, text in enumerate(texts):
                    if table.get_option_at_index(number).prompt != text:
                        table.replace_option_prompt_at_index(number, text)
            table.styles.height = shown
            table.highlighted = place

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the details of another worker."""
        if event.option_index < len(self._shown):
            chosen = self._shown[event.option_index].address
            shown = worst_of(self._shown)
            # Until the user moves, the worst worker is shown.
            if self._chosen is not None or shown is None or chosen != shown.address:
                self._chosen = chosen
            self._redraw()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the step of the latest sample."""
        worker = self._selected()
        if worker is None or not worker.kept:
            self._watch.board.tell("no sample with a step time yet")
        else:
            self.push_screen(StepPage(worker, self._look))

    def _selected(self) -> WorkerView | None:
        place = self.query_one(OptionList).highlighted
        return self._shown[place] if place is not None and place < len(self._shown) else None

    def _redraw(self, note: str = "") -> None:
        self._watch.board.note = note
        self._drawn = ()
        self._refresh_if_changed()

    def action_move(self, way: str) -> None:
        """Select the worker above or below."""
        table = self.query_one(OptionList)
        table.action_cursor_up() if way == "up" else table.action_cursor_down()

    def action_sort(self) -> None:
        """Sort by the next key."""
        self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
        self._redraw()

    def action_pause(self) -> None:
        """Pause or resume sampling."""
        self._is_paused = not self._is_paused
        self._watch.pause(self._is_paused)
        self._redraw()

    def action_explain(self) -> None:
        """Show the help."""
        self.push_screen(HelpPage())

    def action_mark(self) -> None:
        """Make the step times of now the baseline."""
        self._watch.board.mark()

    def action_record(self) -> None:
        """Record the latest sample of the selected worker."""
        if (worker := self._selected()) is not None:
            self._watch.record(worker.address)

    def action_page(self) -> None:
        """Write and open the report of the latest sample of the selected worker."""
        if (worker := self._selected()) is not None:
            self._watch.open_page(worker.address)


def run(watch: Watch, stop: threading.Event, screen: Screen) -> None:
    """Show the workers until the user quits; the mouse stays with the terminal, so that text can be copied."""
    app = LiveApp(watch, stop, screen)
    app.run(mouse=False)
    if app.return_code:
        raise RuntimeError("the live view has failed")  # Textual has printed where.
