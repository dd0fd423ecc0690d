"""What is shown of the chosen worker."""

from __future__ import annotations

import pytest
from live.views import EVIL, NOW_S, WIDTHS, frame, gone, measured, sample, worker

from tfperf.live.board import WorkerView
from tfperf.live.sample import FirstCause, RankedTime
from tfperf.live.screen import detail_lines
from tfperf.report.render.text_table import plain_text, width_of


def texts(of: WorkerView, height: int = 40, *, is_whole: bool = False) -> list[str]:
    return [plain_text(line) for line in detail_lines(of, frame(), height, is_whole=is_whole)]


def test_all_that_is_known() -> None:
    assert texts(worker(6009, sample(measured())), 12) == [
        "w0:6009: 3 samples, the last 2 s ago",
        "step 20.0 ms over 24 whole steps, median 19.0, slowest 31.0",
        "I" * 40 + "h" * 14 + "." * 6,
        "I Input 66.0%   h Host compute 24.0%   . All others 10.0%",
        "!! Waiting for tf.data takes 66.0% of the step: the stage waited for is Map.",
        "   try: put .cache() behind map()",
        "input 66.0%, costs 66-78%   50 steps/s   1,600 examples/s in batches of 32",
        "device busy 12.5%   memory 3.00 GB of 4.00 GB (GPU_0_bfc)",
        "sample of 123 kB came in 0.6 s",
        " TIME  ms IN SAMPLE  HOST OPS",
        " 50.0%         9.00  layer_1/MatMul",
        " 25.0%         4.50  layer_2/MatMul",
    ]


def test_details_have_all_causes_and_the_history() -> None:
    other = FirstCause("kernel_launch", "Launching", "Launching takes 9.0% of the step.", "", 5.0)
    lines = texts(worker(6009, sample(measured(causes=(*measured().causes, other)))), is_whole=True)
    assert lines[1].startswith("step ms in the last 1 min, 10.0 to 20.0: ▅")
    assert "!! Launching takes 9.0% of the step." in lines


def test_a_worker_that_is_gone_shows_no_old_figure_as_a_new_one() -> None:
    lines = texts(gone())
    assert lines == ["w0:6009: 3 samples, 4 without an answer", "nothing listens on w0:6009; check the port"]
    known = worker(6009, gone().last, known=sample(measured(), time_s=NOW_S - 61))
    assert texts(known)[-1] == "step 20.0 ms, 61 s ago"


def test_a_server_that_takes_its_time() -> None:
    assert texts(worker(asked_s=75.2))[0].endswith("answering for 75 s")
    assert texts(worker(asked_s=0.2))[0].endswith("sampling now")


def test_a_sample_without_steps_says_why() -> None:
    lines = texts(worker(6009, sample(measured(step_ms=None, why="no step was found"))))
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


@pytest.mark.parametrize("height", range(12))
def test_no_more_lines_than_there_is_room_for(height: int) -> None:
    assert len(texts(worker(6009, sample(measured())), height)) <= height
