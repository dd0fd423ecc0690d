"""Python stacks: those that functions have, with the sums of the table of functions."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from builders import Event, event, host, line, plane, results_of, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tfperf.sections.python.analysis import OTHERS, Frame, PythonStacks, StackSum, shorten_stacks

US = 1_000_000
MAIN, LOAD, WALK = (Frame(f"train.py:{number} {name}", "") for number, name in ((1, "main"), (9, "load"), (20, "walk")))


def test_stacks_have_calls_and_own_time_in_the_capture_and_in_steps(tmp_path: Path) -> None:
    """Steps of 100 us from 0 to 300; `load` runs in two of them, and once behind them, outside of `main`."""
    marks = [event("train", 100 * number, 100, step_num=number, _r=1) for number in range(3)]
    frames = [
        event("$train.py:1 main", 0, 300),
        event("$train.py:9 load", 10, 30),
        event("$train.py:9 load", 110, 20),
        event("$train.py:20 walk", 200, 40),
        event("$train.py:20 walk", 210, 10),
        event("$train.py:9 load", 400, 5),
    ]
    trace = trace_of(tmp_path, host(*marks, *frames), links=True)
    results = results_of(trace, sections=["python", "python_stacks"])
    stacks: PythonStacks = results["python_stacks"]
    assert stacks.step_count == 3
    assert stacks.sums == {
        (MAIN,): StackSum(1, 210 * US, 1, 210 * US),
        (MAIN, LOAD): StackSum(2, 50 * US, 2, 50 * US),
        (MAIN, WALK): StackSum(1, 30 * US, 1, 30 * US),
        (MAIN, WALK, WALK): StackSum(1, 10 * US, 1, 10 * US),
        (LOAD,): StackSum(1, 5 * US, 0, 0),
    }
    in_steps = {time.function: (time.step_calls, time.step_self_ps) for time in results["python"].functions}
    assert in_steps == {
        "train.py:1 main": (1, 210 * US),
        "train.py:9 load": (2, 50 * US),
        "train.py:20 walk": (2, 40 * US),
    }


def test_without_frames_there_are_none(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("m/a:Op", 0, 5)))
    assert results_of(trace, sections=["python_stacks"])["python_stacks"] == PythonStacks(sums={}, step_count=0)


def test_stacks_beyond_those_kept_are_one() -> None:
    sums = {(MAIN,): StackSum(1, 5, 1, 4), (MAIN, LOAD): StackSum(2, 9, 1, 2), (MAIN, WALK): StackSum(3, 7, 0, 0)}
    whole = PythonStacks(sums=sums, step_count=3)
    assert shorten_stacks(whole, 3) is whole
    short = shorten_stacks(whole, 1)
    assert short.step_count == 3
    assert short.sums == {(MAIN, LOAD): StackSum(2, 9, 1, 2), OTHERS: StackSum(4, 12, 1, 4)}


def test_hosts_are_added_up(tmp_path: Path) -> None:
    traces = []
    for name, time in (("a", 10), ("b", 7)):
        (tmp_path / name).mkdir()
        traces.append(trace_of(tmp_path / name, host(event("$train.py:9 load", 0, time))))
    sums = results_of(*traces, sections=["python_stacks"])["python_stacks"].sums
    assert sums == {(LOAD,): StackSum(2, 17 * US, 0, 0)}


FRAMES = st.lists(
    st.builds(
        event, st.sampled_from(("$a.py:1 f", "$a.py:2 g", "$time sleep")), st.integers(0, 100), st.integers(1, 60)
    ),
    min_size=1,
    max_size=15,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(FRAMES, min_size=1, max_size=2))
def test_the_sums_of_stacks_are_those_of_functions(threads: list[list[Event]]) -> None:
    lines = [line(f"thread {number}", *events) for number, events in enumerate(threads)]
    with tempfile.TemporaryDirectory() as folder:
        results = results_of(trace_of(Path(folder), plane("/host:CPU", *lines)), sections=["python", "python_stacks"])
    self_ps, calls = Counter[str](), Counter[str]()
    for stack, value in results["python_stacks"].sums.items():
        self_ps[stack[-1].function] += value.self_ps
        calls[stack[-1].function] += value.calls
    table = results["python"].functions
    assert self_ps == Counter({time.function: time.self_ps for time in table})
    assert calls == Counter({time.function: time.calls for time in table})
