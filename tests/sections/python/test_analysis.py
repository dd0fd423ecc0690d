"""How long functions of Python run, on a trace small enough to check by hand."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import Event, event, host, line, marks, plane, repeat, results_of, rows_of, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tfperf.sections.python import PYTHON_FUNCTIONS, PYTHON_PACKAGE_FUNCTIONS, PYTHON_PACKAGES
from tfperf.sections.python.analysis import (
    OTHERS,
    BetweenCalls,
    Frame,
    PythonStacks,
    PythonTime,
    PythonTimes,
    StackSum,
    shorten_stacks,
)
from tfperf.sections.python.section import NO_FRAMES, build
from tfperf.trace.host_trace import HostTrace

US = 1_000_000
EXECUTE = "tensorflow.python._pywrap_tfe.TFE_Py_Execute"


def step(number: int) -> tuple[Event, ...]:
    """A step of 100 us: 30 in `load`, 50 in TensorFlow (an op for 20 of them), 10 in a function that calls itself."""
    at = 100 * number
    return (
        event("train", at, 100, step_num=number, _r=1),
        event("$train.py:9 load", at, 30),
        event("$time sleep", at + 10, 20),
        event("$polymorphic_function.py:805 __call__", at + 40, 50),
        event("$tensorflow.python._pywrap_tfe TFE_Py_Execute", at + 50, 40),
        event("EagerExecute: __inference_f_1", at + 50, 35, is_func=1),
        event("MatMul:MatMul", at + 60, 20),
        event("$train.py:20 walk", at + 90, 10),
        event("$train.py:20 walk", at + 92, 4),
    )


def job(folder: Path, *others: Any) -> HostTrace:
    steps = [each for number in range(3) for each in step(number)]
    python = line("python", event("$train.py:1 main", 0, 300), *steps)
    return trace_of(folder, plane("/host:CPU", python, *others), links=True)


def times_of(trace: HostTrace) -> PythonTimes:
    times: PythonTimes = results_of(trace, sections=["python"])["python"]
    return times


def per_step(time: PythonTime) -> tuple[float, float, float, float]:
    """Return calls, and self time, total time and time alone in us, of a step."""
    times = (time.step_self_ps, time.step_total_ps, time.others_ps)
    return (time.step_calls / 3, *(value / 3_000_000 for value in times))  # type: ignore[return-value]


def test_functions_of_the_program(tmp_path: Path) -> None:
    times = times_of(job(tmp_path))
    assert (times.step_count, times.step_ps) == (3, 300_000_000)
    own = [time for time in times.functions if not time.package]
    found = {time.function: per_step(time) for time in own}
    assert found == {
        "train.py:1 main": (pytest.approx(1 / 3), 10, 100, 10),
        "train.py:9 load": (1, 10, 30, 10),
        # What calls itself counts once.
        "train.py:20 walk": (2, 10, 10, 10),
    }
    assert [time.function for time in own] == [*found]
    walk = own[2]
    assert (walk.calls, walk.self_ps, walk.total_ps) == (6, 30_000_000, 30_000_000)


def test_functions_of_packages_are_one_row(tmp_path: Path) -> None:
    times = times_of(job(tmp_path))
    found = {time.package: per_step(time) for time in times.packages}
    # __call__ and what it calls: 50 us, 20 of them in an op, which is in a category of its own.
    assert found == {"tensorflow": (2, 50, 50, 30), "python": (1, 20, 20, 20)}
    folded = {time.function: per_step(time) for time in times.functions if time.package}
    assert folded == {
        "polymorphic_function.py:805 __call__": (1, 10, 50, 10),
        EXECUTE: (1, 40, 40, 20),
        "time.sleep": (1, 20, 20, 20),
    }


def test_all_others_is_that_of_the_breakdown_and_functions_fill_it(tmp_path: Path) -> None:
    results = results_of(job(tmp_path), sections=["python"])
    times, breakdown = results["python"], results["steps"]
    assert times.all_others_ps == breakdown.time_ps["all_others"].sum() == 240_000_000
    assert times.others_percent == 100


def test_time_without_a_frame_is_not_of_python(tmp_path: Path) -> None:
    steps = [each for number in range(3) for each in step(number)]
    times = times_of(trace_of(tmp_path, host(*steps)))
    # Between frames: 10 of 80 us.
    assert times.others_percent == pytest.approx(87.5)


def test_other_threads_fill_no_time_of_the_step(tmp_path: Path) -> None:
    waiting = line("worker", event("$threading.py:300 wait", 0, 300), event("$train.py:50 produce", 50, 100))
    times = times_of(job(tmp_path, waiting))
    found = {time.function: time for time in times.functions}
    assert per_step(found["threading.py:300 wait"]) == pytest.approx((1 / 3, 200 / 3, 100, 0))
    assert found["train.py:50 produce"].others_ps == 0
    assert times.others_percent == 100


def test_steps_that_do_not_count_are_left_out(tmp_path: Path) -> None:
    steps = [each for number in range(5) for each in step(number)]
    usual = [event(each.name, each.start_us + 900, each.duration_us, **each.stats) for each in steps]
    early = (event("train", 0, 900, step_num=9, _r=1), event("$train.py:9 load", 0, 900))
    times = times_of(trace_of(tmp_path, host(*early, *usual)))
    load = next(time for time in times.functions if time.function == "train.py:9 load")
    assert times.step_count == 5, "the first step is slow, and flagged"
    assert (load.calls, load.step_calls) == (6, 5)
    assert load.step_total_ps == 5 * 30_000_000
    assert load.total_ps == (900 + 5 * 30) * 1_000_000


def test_hosts_are_added_up(tmp_path: Path) -> None:
    one, two = job(tmp_path), trace_of(tmp_path, host(event("$train.py:9 load", 0, 7), event("f", 0, 9)))
    times = results_of(one, two, sections=["python"])["python"]
    load = next(time for time in times.functions if time.function == "train.py:9 load")
    assert (load.calls, load.total_ps, load.step_total_ps) == (4, 97_000_000, 90_000_000)
    assert times.all_others_ps is None, "the second host does not tell"


def test_tensorflows_groups_have_no_time_without_a_category(tmp_path: Path) -> None:
    results = results_of(job(tmp_path), sections=["python"], attribution="tensorflow")
    assert results["python"].all_others_ps is None
    tables = [table.name for table in build(results).tables]
    assert tables == ["python_functions", "python_packages", "python_package_functions"]


def test_section(tmp_path: Path) -> None:
    results = results_of(job(tmp_path), sections=["python"])
    section = build(results)
    assert (section.level, [table.level for table in section.tables]) == ("brief", ["brief", "brief", "full"])
    calls, others = section.facts
    assert (calls.value, calls.note) == (19, "of 6 functions")
    assert others.value == 100
    assert others.note == f"of it in these functions; most in {EXECUTE}, time.sleep, train.py:1 main"
    assert rows_of(PYTHON_PACKAGES.data(results), "package", "functions", "most_self", "self_percent") == [
        ("tensorflow", 2, EXECUTE, pytest.approx(50)),
        ("python", 1, "time.sleep", pytest.approx(20)),
    ]
    assert rows_of(PYTHON_FUNCTIONS.data(results), "total_percent", "all_others_ms") == [
        (pytest.approx(percent), pytest.approx(0.01)) for percent in (100, 30, 10)
    ]


def test_without_steps_the_capture_is_shown(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(event("$train.py:9 load", 0, 7))), sections=["python"])
    own = build(results).tables[0]
    brief = [column.key for column in own.columns if column.level == "brief"]
    assert brief == ["function", "calls", "self_ms", "total_ms"]
    assert own.data["total_ms"] == [0.007]
    assert own.data["total_per_step_ms"] == [None]
    assert PYTHON_PACKAGES.data(results) is None
    assert PYTHON_PACKAGE_FUNCTIONS.data(results) is None


def test_a_profile_without_frames_says_how_to_get_some(tmp_path: Path) -> None:
    section = build(results_of(trace_of(tmp_path, host(event("MatMul:MatMul", 0, 7))), sections=["python"]))
    assert (section.level, section.notes, section.tables) == ("full", (NO_FRAMES,), ())
    assert "--python-trace" in NO_FRAMES


# --- frames between calls, in steps of 100 us of which a call takes the first 20: who holds the other 80 ---


def between(
    tmp_path: Path, *frames: tuple[str, float, float], call: str = "EagerExecute", outside_us: int = 80
) -> BetweenCalls:
    """Return what is found of five steps with these frames: name, start and duration in the step."""
    in_step = [(call, 0, 20), *frames]
    events = [event(name, 100 * n + start, duration) for n in range(5) for name, start, duration in in_step]
    found: BetweenCalls | None = results_of(trace_of(tmp_path, host(*marks(5), *events)))["python"].between
    assert found is not None
    assert found.total_ps == 5 * outside_us * 1_000_000
    return found


TENSORFLOW = ("$tensorflow.python._pywrap_tfe TFE_Py_Execute", 0, 20)


def test_the_innermost_function_of_the_program_that_holds_half_is_named(tmp_path: Path) -> None:
    found = between(
        tmp_path,
        ("$train.py:9 epoch", 20, 80),
        ("$data.py:3 load", 30, 60),
        ("$<unknown> std", 35, 50),
        ("$data.py:20 shuffled", 85, 5),
    )
    assert (found.function, found.callee) == ("data.py:3 load", "std")
    assert found.share == pytest.approx(60 / 80)
    assert found.callee_share == pytest.approx(50 / 80)
    assert found.waiting_share == 0.0
    assert found.computing_share == pytest.approx(1.0)


def test_what_waits_is_named_however_deep_it_is(tmp_path: Path) -> None:
    found = between(
        tmp_path, ("$labels.py:5 get", 20, 80), ("$socket.py:706 readinto", 22, 76), ("$<unknown> recv_into", 24, 72)
    )
    assert (found.function, found.callee) == ("labels.py:5 get", "recv_into")
    assert found.waiting_share == pytest.approx(72 / 80)


def test_a_comprehension_is_part_of_its_function(tmp_path: Path) -> None:
    found = between(
        tmp_path, ("$train.py:9 batch", 20, 80), ("$train.py:10 <listcomp>", 20, 70), ("$<unknown> astype", 20, 60)
    )
    assert (found.function, found.callee) == ("train.py:9 batch", "astype")


def test_a_callback_is_of_the_program_and_what_keras_does_besides_of_keras(tmp_path: Path) -> None:
    found = between(
        tmp_path,
        TENSORFLOW,
        ("$callback_list.py:168 on_train_batch_end", 20, 70),
        ("$trainer.py:15 on_train_batch_end", 25, 60),
        ("$core.py:76 numpy", 30, 50),
    )
    assert found.function == found.callback == "trainer.py:15 on_train_batch_end"
    assert found.share == pytest.approx(60 / 80)
    assert found.framework_share == pytest.approx(10 / 80)


def test_what_a_callback_calls_is_named_with_it(tmp_path: Path) -> None:
    found = between(
        tmp_path,
        TENSORFLOW,
        ("$callback_list.py:168 on_train_batch_end", 20, 80),
        ("$train.py:15 on_train_batch_end", 20, 80),
        ("$store.py:8 send", 30, 70),
        ("$time sleep", 30, 60),
    )
    assert (found.function, found.callee) == ("store.py:8 send", "time.sleep")
    assert found.callback == "train.py:15 on_train_batch_end"


def test_what_fit_calls_is_of_keras_though_the_program_called_fit(tmp_path: Path) -> None:
    found = between(
        tmp_path,
        TENSORFLOW,
        ("$train.py:9 main", 20, 80),
        ("$trainer.py:300 fit", 20, 80),
        ("$callback_list.py:168 on_train_batch_end", 20, 70),
    )
    assert found.function == ""
    assert found.framework_share == pytest.approx(1.0)


def test_a_loop_outside_of_functions_calls_what_takes_the_time(tmp_path: Path) -> None:
    found = between(tmp_path, ("$gc collect", 20, 76))
    assert (found.function, found.callee) == ("", "gc.collect")
    assert found.collecting_share == found.callee_share == pytest.approx(76 / 80)


def test_waiting_for_a_run_of_jax_is_a_call_and_numpy_may_wait_too(tmp_path: Path) -> None:
    frames = ("$api.py:2490 try_to_block", 20, 50), ("$numpy asarray", 70, 30)
    found = between(tmp_path, *frames, call="PjitFunction(step)", outside_us=30)
    assert (found.framework_share, found.waiting_share, found.computing_share) == (0.0, 0.0, 0.0)


def test_of_several_hosts_the_one_with_most_time_between_calls_counts(tmp_path: Path) -> None:
    traces = []
    for name, python_us in (("a", 30), ("b", 80), ("c", 10)):
        in_step = event("EagerExecute", 0, 100 - python_us), event(f"${name}.py:1 f", 100 - python_us, python_us)
        (tmp_path / name).mkdir()
        traces.append(trace_of(tmp_path / name, host(*marks(5), *repeat(5, *in_step))))
    found: PythonTimes = results_of(*traces)["python"]
    assert found.between is not None
    assert (found.between.function, found.between.total_ps) == ("b.py:1 f", 5 * 80 * US)


def test_without_frames_nothing_is_known(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(*marks(1), event("EagerExecute", 0, 20)))
    assert results_of(trace)["python"].between is None


# --- stacks, with the sums of the table of functions ---


MAIN, LOAD, WALK = (Frame(f"train.py:{number} {name}", "") for number, name in ((1, "main"), (9, "load"), (20, "walk")))


def test_stacks_have_calls_and_own_time_in_the_capture_and_in_steps(tmp_path: Path) -> None:
    """Steps of 100 us from 0 to 300; `load` runs in two of them, and once behind them, outside of `main`."""
    frames = [
        event("$train.py:1 main", 0, 300),
        event("$train.py:9 load", 10, 30),
        event("$train.py:9 load", 110, 20),
        event("$train.py:20 walk", 200, 40),
        event("$train.py:20 walk", 210, 10),
        event("$train.py:9 load", 400, 5),
    ]
    trace = trace_of(tmp_path, host(*marks(3), *frames), links=True)
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


def test_without_frames_there_are_no_stacks(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("m/a:Op", 0, 5)))
    assert results_of(trace, sections=["python_stacks"])["python_stacks"] == PythonStacks(sums={}, step_count=0)


def test_stacks_beyond_those_kept_are_one() -> None:
    sums = {(MAIN,): StackSum(1, 5, 1, 4), (MAIN, LOAD): StackSum(2, 9, 1, 2), (MAIN, WALK): StackSum(3, 7, 0, 0)}
    whole = PythonStacks(sums=sums, step_count=3)
    assert shorten_stacks(whole, 3) is whole
    short = shorten_stacks(whole, 1)
    assert short.step_count == 3
    assert short.sums == {(MAIN, LOAD): StackSum(2, 9, 1, 2), OTHERS: StackSum(4, 12, 1, 4)}


def test_stacks_of_hosts_are_added_up(tmp_path: Path) -> None:
    traces = [trace_of(tmp_path, host(event("$train.py:9 load", 0, time))) for time in (10, 7)]
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
