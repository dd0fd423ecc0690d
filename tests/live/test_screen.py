"""The lines of the view: the table of workers, and the details of one."""

from __future__ import annotations

import pytest
from live.views import EVIL, NOW_S, WIDTHS, frame, gone, measured, request, sample, worker
from msgspec.structs import replace

from tfperf.capture.address import Address
from tfperf.live.board import Point, WorkerView
from tfperf.live.sample import FirstCause, RankedTime
from tfperf.live.screen import (
    Order,
    cost_text,
    detail_lines,
    history_text,
    ordered,
    sample_lines,
    state_of,
    table_lines,
    text_lines,
)
from tfperf.live.verdict import Mark, judged
from tfperf.report.render.text_table import plain_text, width_of

MANY = [
    *(worker(port, sample(measured(step_ms=10.0 * 1.2 ** (port % 7)))) for port in range(7000, 7060)),
    *map(gone, range(7060, 7064)),
]


def texts(*workers: WorkerView, width: int = 80) -> list[str]:
    return [plain_text(line) for line in text_lines(workers, request(*workers), frame(width, interactive=False))]


def test_one_screen_as_text_has_every_worker() -> None:
    text = texts(*MANY)
    assert text[0].startswith("tfperf top: 64 workers, 4 gone")
    assert sum(line.startswith("  w0:") for line in text) == 64
    assert all(line.isascii() for line in text)
    assert not any("q quit" in line for line in text)
    steps = [line.split()[1] for line in text if line.startswith("  w0:")]
    assert steps[4:] == sorted(steps[4:], key=float, reverse=True)


def test_what_samples_cost_is_said_where_it_was_measured() -> None:
    assert texts(worker(6009, sample(measured())))[1] == (
        "500 ms every 5 s: profiling 10.0% of the time; overhead unknown"
    )
    lines = texts(worker(6009, sample(measured(), slowdown_percent=12.0)))
    expected = "500 ms every 5 s: profiling 10.0% of the time, with steps 12% longer: 1.2% overhead"
    assert " ".join(lines[1:3]) == expected


MARK = Mark(NOW_S - 30, "train", 25.0)


def test_a_mark_shows_how_much_longer_or_shorter_steps_became() -> None:
    marked = worker(6009, sample(measured()), mark=MARK)
    assert table_texts(marked)[1].split()[1:3] == ["20.0", "-20%"]
    assert any("since mark" in line and "25.0 to 20.0 ms, -20%" in line for line in detail_texts(marked))
    later = replace(marked, mark=replace(MARK, time_s=NOW_S))
    assert table_texts(later)[1].split()[2] == "-"
    assert any(line.endswith("no sample yet") or "no sample yet " in line for line in detail_texts(later))


def table_texts(*workers: WorkerView, width: int = 80, interactive: bool = True) -> list[str]:
    return [plain_text(line) for line in table_lines(workers, None, frame(width, interactive=interactive))]


def test_a_row_at_80_columns() -> None:
    assert table_texts(worker(6009, sample(measured()))) == [
        "  WORKER   STEP ms  LAST MIN   STEPS/s   INPUT  BY CAUSE     CAUSE",
        "  w0:6009     20.0  ▅▅▅▅    █       50   66.0%  CCCCIIIIIII  Waiting for input",
    ]


def test_wider_windows_tell_more() -> None:
    titles = [
        set(table_texts(worker(6009, sample(measured())), width=width)[0].split()) for width in (60, 80, 120, 160)
    ]
    assert titles[0] < titles[1] < titles[2] <= titles[3]
    assert {"STEP", "LAST", "INPUT", "CAUSE", "WORKER"} <= titles[0]
    assert {"STEPS/s", "EX/s", "DEVICE", "COSTS", "MEMORY", "BY"} <= titles[3]


def test_all_figures_are_there_in_a_wide_window() -> None:
    (_, row) = table_texts(worker(6009, sample(measured())), width=160)
    for figure in ("20.0", "50", "1,600", "66.0%", "66-78%", "12.5%", "75.0%", "Waiting for input"):
        assert f" {figure}" in row


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("interactive", [True, False])
def test_no_line_is_wider_than_the_window(width: int, interactive: bool) -> None:
    long = worker(address=Address("a-host-with-a-long-name.of.a.cluster.example", 60009), last=sample(measured()))
    evil = worker(7, sample(measured(causes=(replace(measured().causes[0], title=EVIL),))), mark=MARK)
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
    assert history_text(worker(history=(Point(NOW_S),)), frame(), 12) == ""


def test_a_range_in_whole_percent() -> None:
    assert cost_text(66.0, 78.4) == "66-78%"
    assert cost_text(66.1, 66.3) == "66%"


def detail_texts(of: WorkerView, height: int = 40, *, has_graphs: bool = False) -> list[str]:
    return [plain_text(line) for line in detail_lines(of, frame(), height, has_graphs=has_graphs)]


def test_all_that_is_known() -> None:
    assert detail_texts(worker(6009, sample(measured())), 13) == [
        "w0:6009: 3 samples, last 2 s ago",
        "step 20.0 ms over 24 whole train steps, median 19.0, slowest 31.0",
        "20.0 ms " + "C" * 24 + "I" * 4 + "/" * 44,
        "C Computing 34.0%   I Waiting for input 66.0%   / removed by the fix",
        "!! Waiting for input takes 66.0% of the step: the blocking tf.data stage is Map.",
        "   over 1 train sample: a fix saves 60% of the time",
        "   try: add .cache() after map()",
        "input 66.0%, costs 66-78%   50 steps/s   1,600 examples/s (batch size 32)",
        "device busy 12.5%   memory 3.00 GB of 4.00 GB (GPU_0_bfc)",
        "sample of 123 kB received in 0.6 s",
        " SHARE      TIME ms  HOST OPS",
        " 50.0%         9.00  layer_1/MatMul",
        " 25.0%         4.50  layer_2/MatMul",
    ]


def test_ops_below_one_percent_are_left_out() -> None:
    ranked = (RankedTime("large", "", 1.0, 1.0), RankedTime("small", "", 0.99, 1.0))
    lines = detail_texts(worker(6009, sample(measured(ranked=ranked))))
    assert lines[-1].endswith("large")


def test_the_advice_says_on_how_many_samples_it_rests() -> None:
    kept = [sample(measured(), number=number, time_s=NOW_S - 42 + 10 * number) for number in range(1, 5)]
    verdict = judged(None, kept[:1])
    for count in range(2, 5):
        verdict = judged(verdict, kept[:count])
    lines = detail_texts(worker(6009, kept[-1], kept=tuple(kept), verdict=verdict))
    assert "   over 4 train samples, stable for 30 s: a fix saves 60% of the time" in lines


@pytest.mark.parametrize("height", [1, 5, 10, 24, 60])
@pytest.mark.parametrize("width", [20, 40, *WIDTHS])
def test_details_with_graphs_fit_any_window(width: int, height: int) -> None:
    for each in (worker(), worker(6009, sample(measured()), mark=MARK), gone()):
        lines = detail_lines(each, frame(width), height, has_graphs=True)
        assert len(lines) <= height
        if width >= 60:
            assert max(map(width_of, lines)) <= width


def test_graphs_have_axes_beside_each_other() -> None:
    lines = detail_texts(worker(6009, sample(measured())), 30, has_graphs=True)
    (title,) = [line for line in lines if line.startswith("step ms")]
    assert "step by cause in %" not in title, "no sample of the history has causes"
    assert any(line.startswith("  20.0 |") for line in lines)


def test_one_sample_in_full() -> None:
    other = FirstCause("kernel_launch", "Launching", "Launching takes 9.0% of the step.", "", 5.0)
    of = worker(6009, sample(measured(causes=(*measured().causes, other)), number=7))
    lines = [plain_text(line) for line in sample_lines(of, of.kept[0], "1 of 1 kept sample", frame())]
    assert lines[0].startswith("w0:6009: sample 7 at ")
    assert lines[0].endswith("kind train, 1 of 1 kept sample")
    assert "   13.2    66.0%  Waiting for input, a fix saves 12.0 ms" in lines
    assert "steps, 18.0 to 31.0 ms: ▅▅█" in lines
    assert "!! Launching takes 9.0% of the step." in lines
    assert lines[-1].endswith("layer_8/MatMul")


def test_a_worker_that_is_gone_keeps_its_last_good_sample_and_says_how_old_it_is() -> None:
    lines = detail_texts(gone())
    assert lines == ["w0:6009: 3 samples, 4 failed", "no server listens on w0:6009; check the port"]
    good = sample(measured(), time_s=NOW_S - 61)
    lines = detail_texts(replace(gone(), known=good, kept=(good,), verdict=judged(None, (good,))))
    assert lines[3] == "the last good sample, 61 s ago:"
    assert lines[4].startswith("step 20.0 ms over 24 whole train steps")
    assert any("try: add .cache()" in line for line in lines)


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
        of = worker(6009, sample(each, message=EVIL))
        lines = [
            *detail_lines(of, frame(width), 60, has_graphs=True),
            *sample_lines(of, sample(each), "", frame(width)),
        ]
        assert all(part.text.isprintable() for line in lines for part in line)
        assert max(map(width_of, lines)) <= width


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
