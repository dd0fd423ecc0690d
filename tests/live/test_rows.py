"""The table of workers: at any width, readable and whole."""

from __future__ import annotations

import pytest
from live.views import EVIL, NOW_S, WIDTHS, frame, gone, measured, sample, worker
from msgspec.structs import replace

from tfperf.capture.address import Address
from tfperf.live.board import WorkerView
from tfperf.live.screen import cost_text, history_text, state_of, table_lines
from tfperf.report.render.text_table import plain_text, width_of


def texts(*workers: WorkerView, width: int = 80, interactive: bool = True) -> list[str]:
    return [plain_text(line) for line in table_lines(workers, None, frame(width, interactive=interactive))]


def test_a_row_at_80_columns() -> None:
    assert texts(worker(6009, sample(measured()))) == [
        "  WORKER   STEP ms  LAST MIN   STEPS/s   INPUT  CATEGORIES   CAUSE",
        "  w0:6009     20.0  ▅▅▅▅    █       50   66.0%  IIIIIIIhhh.  Waiting for tf.data",
    ]


def test_wider_windows_tell_more() -> None:
    titles = [set(texts(worker(6009, sample(measured())), width=width)[0].split()) for width in (60, 80, 120, 160)]
    assert titles[0] < titles[1] < titles[2] <= titles[3]
    assert {"STEP", "LAST", "INPUT", "CAUSE", "WORKER"} <= titles[0]
    assert {"STEPS/s", "EX/s", "DEVICE", "COSTS", "MEMORY", "CATEGORIES"} <= titles[3]


def test_all_figures_are_there_in_a_wide_window() -> None:
    (_, row) = texts(worker(6009, sample(measured())), width=160)
    for figure in ("20.0", "50", "1,600", "66.0%", "66-78%", "12.5%", "75.0%", "Waiting for tf.data"):
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
    (_, row) = texts(worker(6009, sample(replace(measured(), step_ms=None, input_percent=None))), width=80)
    assert row.split()[:2] == ["w0:6009", "-"]
    assert " 0" not in row
    assert row.endswith("no steps")


def test_why_there_are_no_figures() -> None:
    assert state_of(gone()) == ("gone: not listening", "red")
    assert state_of(worker()) == ("waiting for its first sample", "dim")
    assert state_of(worker(1, sample(None, reason="idle"))) == ("idle", "dim")
    assert state_of(worker(1, sample(None, reason="bad_reply")))[0] == "bad reply"
    assert state_of(worker(1, sample(measured()), asked_s=12.2))[0] == "answering for 12 s", "the figures are old"
    assert state_of(worker(1, sample(measured()), asked_s=2.2))[0] == "Waiting for tf.data"
    assert state_of(worker(1, sample(measured(causes=()))))[0] == "nothing worth fixing"


def test_the_line_of_step_times_begins_at_zero_and_has_gaps() -> None:
    """Twelve cells of five seconds; the value holds until the next sample; the middle sample gave none."""
    assert history_text(worker(), frame(), 12) == "▅▅▅▅▅▅     █"
    assert history_text(worker(), frame(interactive=False), 12) == "======     #"
    assert history_text(worker(history=()), frame(), 12) == ""
    assert history_text(worker(history=((NOW_S, None),)), frame(), 12) == ""


def test_a_range_in_whole_percent() -> None:
    assert cost_text(66.0, 78.4) == "66-78%"
    assert cost_text(66.1, 66.3) == "66%"
