"""What shows that a capture lost events between its start and its end (the rest is in test_soundness.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Line, event, line, plane, trace_of

from tfperf.trace.flaw import Flaw
from tfperf.trace.soundness import lost_events

FETCH = "IteratorGetNextOp::DoCompute"


def lost(tmp_path: Path, *lines: Line, **stats: int) -> list[Flaw]:
    planes = [plane("Task Environment", stats=stats)] * bool(stats)
    return list(lost_events(trace_of(tmp_path, plane("/host:CPU", *lines), *planes)))


def marked(*numbers: int, name: str = "train") -> Line:
    return line(name, *(event(name, 100 * place, 50, step_num=number) for place, number in enumerate(numbers)))


@pytest.mark.parametrize(
    ("numbers", "missing"),
    [
        ((7, 8, 9, 10), ""),
        ((7, 8, 11, 12), "2, in 1 place"),
        ((0, 2, 3, 5, 6, 8), "3, in 3 places"),
        ((0, 1, 1, 2, 2), ""),
        ((8, 9, 0, 1, 2), ""),  # an epoch ends
        ((0, 4, 8, 9, 0, 4, 8, 9), ""),  # four steps in one execution, and the rest of the epoch
        ((0, 4, 8, 16, 20), "1, in 1 place"),
        ((3, 9), ""),  # two markers tell nothing
    ],
)
def test_steps_whose_numbers_are_left_out(tmp_path: Path, numbers: tuple[int, ...], missing: str) -> None:
    text = f"the numbers of steps leave out {missing}: events may be missing"
    assert lost(tmp_path, marked(*numbers)) == [Flaw("missing_steps", text, "doubtful")] * bool(missing)


def test_numbers_of_steps_are_those_of_a_marker_and_a_thread(tmp_path: Path) -> None:
    assert not lost(tmp_path, marked(0, 1, 2), marked(10, 11, 12, name="test"))
    both = [event("train", 100 * n, 50, step_num=n) for n in range(3)]
    other = [event("train", 100 * n, 50, step_num=n) for n in range(20, 23)]
    assert not lost(tmp_path, line("one", *both), line("other", *other, id=9))


START_NS = 1_700_000_000_000_000_000


def handed_over(made: int, taken: int, first: int = 0) -> tuple[Line, Line]:
    """Return how a thread makes elements, and another one takes elements, one every 100 us; they are called by time."""

    def each(kind: str, at_us: float, begin: int, stop: int) -> list[Event]:
        return [
            event(f"Prefetch{kind}", 100 * n + at_us, 20, element_id=START_NS + 100_000 * n) for n in range(begin, stop)
        ]

    return line("producer", event("w", -1_000, 1), *each("Produce", 0, first, first + made)), line(
        "consumer", *each("Consume", 40, 0, taken), event("w", 10_000, 1), id=2
    )


@pytest.mark.parametrize(
    ("made", "taken", "first", "level"),
    [(20, 20, 0, ""), (20, 10, 0, ""), (18, 20, 2, ""), (17, 20, 3, "unsound"), (40, 40, 3, "doubtful")],
)
def test_elements_that_are_taken_but_never_made(tmp_path: Path, made: int, taken: int, first: int, level: str) -> None:
    found = lost(tmp_path, *handed_over(made, taken, first), profile_start_time=START_NS)
    assert [flaw.level for flaw in found] == [level] * bool(level)
    for flaw in found:
        assert flaw.code == "unmade_elements"
        assert flaw.text == f"3 of {taken} elements that stages of tf.data take are never made: events are missing"
    later = lost(tmp_path, *handed_over(made, taken, first), profile_start_time=START_NS + 10**9)
    assert not later, "elements from before the capture"
    assert not lost(tmp_path, *handed_over(made, taken, first)), "when the capture began is unknown"


def fetch(number: int, *, with_root: bool = True, with_map: bool = True) -> list[Event]:
    inside = [event("Iterator::Root", 100 * number + 5, 40)] * with_root
    return [event(FETCH, 100 * number, 50), *inside, *[event("Iterator::Root::Map", 100 * number + 6, 30)] * with_map]


def test_stages_that_ask_for_no_input(tmp_path: Path) -> None:
    def found(without: int) -> list[Flaw]:
        calls = [fetch(n, with_root=n >= without, with_map=n >= without) for n in range(10)]
        return lost(tmp_path, line("python", *(each for call in calls for each in call)))

    assert found(0) == found(2) == found(10) == []
    text = "3 of 17 calls of tf.data stages ask for no input, though the others do: events may be missing"
    assert found(3) == [Flaw("calls_without_input", text, "doubtful")]


def test_stages_that_need_not_ask(tmp_path: Path) -> None:
    """A shuffle buffer is full, a cache has all elements."""
    for stage in ("Shuffle", "Cache", "Prefetch", "FlatMap", "Zip", "Rebatch", "ForeverRepeat"):
        calls = [event(f"Iterator::{stage}", 100 * n, 50) for n in range(10)]
        asks = [event(f"Iterator::{stage}::Map", 100 * n + 5, 20) for n in range(6)]
        assert not lost(tmp_path, line("python", *sorted([*calls, *asks], key=lambda each: each.start_us))), stage


@pytest.mark.parametrize("name", ["Run", "RunWithBorrowedArgs"])
def test_functions_of_tf_data_that_no_stage_runs(tmp_path: Path, name: str) -> None:
    def found(without: int, name: str, others: str = "") -> list[Flaw]:
        stages = [event("Iterator::Root::Map", 100 * n, 50) for n in range(without, 10)]
        stages += [event(others, 100 * n, 50) for n in range(without)] if others else []
        runs = [event(f"InstantiatedCapturedFunction::{name}", 100 * n + 5, 30) for n in range(10)]
        return lost(tmp_path, line("python", *sorted([*stages, *runs], key=lambda each: each.start_us)))

    assert found(0, name) == found(3, name) == [], "the capture may start in three stages that are in each other"
    text = "4 of 10 function calls of tf.data are outside the stage that runs them: events may be missing"
    assert found(4, name) == found(4, name, "Iterator::Root::Batch") == [Flaw("unasked_functions", text, "doubtful")]
    assert found(4, name, "Iterator::Root::FlatMap") == []
    assert found(4, "RunAsync") == [], "a parallel map runs them on other threads"


def test_a_silence_of_all_threads(tmp_path: Path) -> None:
    def found(*, pause_us: float, calls: int = 4, others_us: float = 20, **stats: int) -> list[Flaw]:
        each_us = 100 + others_us
        before = [event("FunctionRun", each_us * n, 100, id=n, **stats) for n in range(4)]
        after = [
            event("FunctionRun", 4 * each_us + pause_us + each_us * n, 100, id=9 + n, **stats) for n in range(calls)
        ]
        return lost(tmp_path, line("python", *before, *after))

    text = "nothing happens on any thread for 0.3 ms, and never else for so long: events may be missing"
    assert found(pause_us=300) == [Flaw("silence", text, "doubtful")]
    assert not found(pause_us=50), "the others are more than a quarter of it"
    assert not found(pause_us=300, others_us=120), "nor is it many times as long"
    assert not found(pause_us=300, calls=2), "the program does something else afterwards"
    assert not found(pause_us=300, step_num=1), "numbers of steps tell more"


def test_a_silence_in_which_something_runs(tmp_path: Path) -> None:
    calls = [event("FunctionRun", 120 * n + 600 * (n > 3), 100, id=n) for n in range(8)]
    assert lost(tmp_path, line("python", *calls))
    assert not lost(tmp_path, line("python", *calls), line("other", event("work", 400, 700), id=2))
