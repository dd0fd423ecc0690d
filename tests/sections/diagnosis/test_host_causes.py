"""Python between calls: steps of 20 ms, of which a call takes the first 12; and hosts that a TPU waits for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import Event, Line, Plane, event, host, known, line, marks, plane, read_back, ref, repeat, trace_of
from jax_builders import OTHER, call, programs
from sections.diagnosis.made import actions_of, bounds, codes_of, found_in, most
from tpu_twin import tpu_twin

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.sections.diagnosis.cause import Cause, Diagnosis, Range

STEP_US, CALL_US, COUNT = 20_000, 12_000, 5


def in_each_step(*events: Event) -> list[Event]:
    return repeat(COUNT, *events, every=STEP_US)


def job(*inside: Event, call_us: float = CALL_US, function: str = "") -> Plane:
    """Steps with one call at their start, in which an op runs, and these events in each."""
    called = [event("EagerExecute", 0, call_us), event("MatMul:MatMul", 10, call_us - 30)]
    called += [event(function, 5, call_us - 20, is_func=1)] if function else []
    return host(*marks(COUNT, STEP_US), *in_each_step(*called, *inside))


def cpu(outside: float, *, queued: float = 0.0) -> Line:
    """The CPU time of the thread: all the time in calls, and this share of the time outside of them."""
    rest = STEP_US - CALL_US
    times = {"cpu_ns": round(outside * rest * 1000), "queued_ns": round(queued * rest * 1000)}
    inside = event("CPU time", 0, CALL_US, cpu_ns=CALL_US * 1000, queued_ns=0)
    pieces = in_each_step(inside, event("CPU time", CALL_US, rest, **times))
    return line("CPU time of thread 7", *pieces, id=7)


def pauses(*times: tuple[float, float], place: str = "train.py:12 clean", generation: int = 2) -> Line:
    """Runs of the garbage collector: start and duration."""
    stats = {"thread": 7, "generation": generation, "collected": 0, "place": place}
    return line("Garbage collection", *(event("garbage collection", *each, **stats) for each in times))


def diagnosis(tmp_path: Path, made: Plane, *recorded: Line) -> Diagnosis:
    return found_in(trace_of(tmp_path, made, *([plane(CAPTURE_PLANE, *recorded)] if recorded else [])))


def cause_of(found: Diagnosis, code: str = "python_between_steps") -> Cause:
    return next(cause for cause in found.causes if cause.code == code)


@pytest.mark.parametrize(
    ("recorded", "title", "action"),
    [
        (cpu(0.9), "Python between calls, which computes,", "input_in_python"),
        (cpu(0.1), "Python between calls, which waits,", "wait_in_threads"),
        # It could have run: another program had the cores.
        (cpu(0.1, queued=0.8), "Python between calls, which computes,", "input_in_python"),
    ],
)
def test_cpu_time_tells_whether_python_computes(tmp_path: Path, recorded: Line, title: str, action: str) -> None:
    cause = cause_of(diagnosis(tmp_path, job(), recorded))
    assert cause.title == title
    assert cause.cost_percent == Range(40.0, 40.0)
    assert cause.detail.startswith("the thread needs the CPU for ")
    assert actions_of(cause) == [action, "record_python"], "which function it is, frames would tell"
    low, high = bounds(cause.actions[0].step_ms)
    assert low == pytest.approx(12.0 * (1 - 0.8 * 0.4)), "the call remains, and is faster"
    assert high < 20.0


def test_a_piece_that_is_half_in_a_call_proves_nothing(tmp_path: Path) -> None:
    pieces = in_each_step(event("CPU time", 0, STEP_US, cpu_ns=12_000_000, queued_ns=0))
    cause = cause_of(diagnosis(tmp_path, job(), line("CPU time of thread 7", *pieces)))
    # It ran for 12 of 20 ms: all of it may have been in the call, or 8 of it outside.
    assert cause.title == "Python between calls"
    assert actions_of(cause) == ["record_python"]


def test_frames_name_the_function(tmp_path: Path) -> None:
    frames = event("$labels.py:5 get", CALL_US, 8_000), event("$<unknown> recv_into", CALL_US + 100, 7_800)
    cause = cause_of(diagnosis(tmp_path, job(*frames)))
    assert cause.title == "Python between calls, which waits,"
    assert cause.detail == "100.0% of it in labels.py:5 get, most in recv_into"
    assert actions_of(cause) == ["wait_in_threads"]


KERAS_FRAMES = (
    event("$tensorflow.python._pywrap_tfe TFE_Py_Execute", 0, CALL_US),
    event("$callback_list.py:168 on_train_batch_end", CALL_US, 8_000),
)
KERAS_STEP = "__inference_multi_step_on_iterator_7"


def test_a_callback_of_keras_is_to_be_called_less_often(tmp_path: Path) -> None:
    callback = event("$train.py:15 on_train_batch_end", CALL_US + 10, 7_900)
    cause = cause_of(diagnosis(tmp_path, job(*KERAS_FRAMES, callback, function=KERAS_STEP)))
    assert actions_of(cause) == ["callback_less_often"]
    assert "train.py:15 on_train_batch_end, a callback" in cause.detail


@pytest.mark.parametrize(
    ("function", "codes"),
    [
        (KERAS_STEP, ["steps_per_execution"]),
        ("__inference_one_step_on_data_7", []),  # train_on_batch ignores it
        ("__inference_step_7", ["loop_in_function"]),
    ],
)
def test_several_steps_in_one_call_are_for_what_a_framework_does_itself(
    tmp_path: Path, function: str, codes: list[str]
) -> None:
    assert actions_of(cause_of(diagnosis(tmp_path, job(*KERAS_FRAMES, function=function)))) == codes


def callback_job(read_us: float) -> Plane:
    """Steps of 20 ms: a function takes the first 8, and a callback the next 10, which reads two variables."""
    frames = [event("$tensorflow.python._pywrap_tfe TFE_Py_Execute", 0, 8_000)]
    frames += [event("$callback_list.py:168 on_train_batch_end", 8_000, 10_500)]
    frames += [event("$train.py:15 on_train_batch_end", 8_000, 10_000)]
    stats = {"is_func": 0, "eager_op": ref("ReadVariableOp")}
    reads = [event("EagerExecute", start, read_us, **stats) for start in (8_000, 8_500 + read_us)]
    return job(*frames, *reads, call_us=8_000, function=KERAS_STEP)


@pytest.mark.parametrize(
    ("read_us", "code", "cost", "words"),
    [
        (3_000, "fetch_results", 50.0, "2 variables each time.*, including the rest of the callback$"),
        # 12 ms of the step are in no call of a function, and in these the callback reads for 0.8 ms.
        (400, "python_between_steps", 60.0, "train.py:15 on_train_batch_end, a callback"),
    ],
)
def test_a_callback_is_one_cause_whether_it_mostly_reads_or_computes(
    tmp_path: Path, read_us: float, code: str, cost: float, words: str
) -> None:
    found = diagnosis(tmp_path, callback_job(read_us))
    cause = found.causes[0]
    assert most(cause) == pytest.approx(cost, abs=0.1)
    assert {"fetch_results", "python_between_steps"} & {*codes_of(found.causes)} == {cause.code} == {code}
    assert re.search(words, cause.detail)


def test_collections_in_each_step(tmp_path: Path) -> None:
    recorded = pauses(*((STEP_US * n + CALL_US + 1_000, 6_000) for n in range(COUNT)))
    found = diagnosis(tmp_path, job(), recorded)
    cause = cause_of(found, "garbage_collection")
    assert cause.cost_percent == Range(30.0, 30.0)
    assert cause.detail == "5 collections in 5 steps, the longest 6.00 ms; most of it in train.py:12 clean"
    assert actions_of(cause) == ["collect_less_often", "freeze_objects"]
    assert cause_of(found).cost_percent == Range(10.0, 10.0), "no time is blamed twice"


def test_one_collection_that_holds_most_of_the_cause(tmp_path: Path) -> None:
    times = ((1, 2_000), (2, 2_000), (3, 7_000), (4, 100))
    runs = ((STEP_US * step + CALL_US, length) for step, length in times)
    cause = cause_of(diagnosis(tmp_path, job(), pauses(*runs, generation=1)), "garbage_collection")
    assert "4 collections in 5 steps, the longest 7.00 ms; 1 step has at least half of that time" in cause.detail
    assert actions_of(cause) == ["freeze_objects"], "Python collects by itself now and then"


@pytest.mark.parametrize(
    ("steps", "rare"),
    [
        ((3,), "1 of 5 steps"),
        # Of that period, steps 0, 1 and 2 had none.
        ((3, 4), "2 of 5 steps"),
        ((1, 4), ""),
        ((0, 2, 4), ""),
    ],
)
def test_what_is_collected_once_calls_for_no_change(tmp_path: Path, steps: tuple[int, ...], rare: str) -> None:
    found = diagnosis(tmp_path, job(), pauses(*((STEP_US * step + CALL_US, 7_000) for step in steps)))
    cause = cause_of(found, "garbage_collection")
    assert (f"nearly all of that time in {rare or 'none'}" in cause.detail) == bool(rare)
    assert (cause.actions == ()) == bool(rare)
    assert (cause.gain == 0.0) == bool(rare)
    assert found.causes[0] != cause or not rare


def steps_with_pauses(*long: int, count: int = 12) -> tuple[Plane, Line]:
    """Steps of 20 ms, of which a call takes 12; those of `long` take 220 ms, 200 of them in a garbage collection."""
    events, times, begin = [], [], 0
    for n in range(count):
        more = 200_000 if n in long else 0
        events += [event("train", begin, STEP_US + more, step_num=n), event("EagerExecute", begin, CALL_US)]
        events += [event("MatMul:MatMul", begin + 10, CALL_US - 30)]
        times += [(begin + CALL_US, more)] if more else []
        begin += STEP_US + more
    return host(*events), pauses(*times)


@pytest.mark.parametrize("long", [(7,), (3, 10)])
def test_a_step_that_is_a_rare_collection_is_in_no_average(tmp_path: Path, long: tuple[int, ...]) -> None:
    count = 12 * len(long)
    found = diagnosis(tmp_path, *steps_with_pauses(*long, count=count))
    assert known(found.summary.step_time_ms).average == pytest.approx(20.0)
    assert found.summary.averaged_count == count - len(long)
    assert cause_of(found).cost_percent == Range(40.0, 40.0), "of steps as most are"
    cause = cause_of(found, "garbage_collection")
    assert cause.of == "wall"
    assert most(cause) == pytest.approx(100 * 200 / 440)
    assert f"in {len(long)} of {count} steps (not in the averages)" in cause.detail
    assert (cause.actions, cause.gain) == ((), 0.0), "what comes once need not come again"


@pytest.mark.parametrize(("long", "count"), [((2, 8), 12), ((4,), 5), ((3, 14), 20), ((2, 5, 9), 40)])
def test_collections_of_some_steps_are_averaged(tmp_path: Path, long: tuple[int, ...], count: int) -> None:
    """There are many of them for so few steps, or they come again at their distance."""
    found = diagnosis(tmp_path, *steps_with_pauses(*long, count=count))
    assert found.summary.averaged_count == count
    assert cause_of(found, "garbage_collection").of == "step"


def test_a_collection_beside_other_work_may_cost_nothing(tmp_path: Path) -> None:
    # The op on the same thread lasts from 10 us to 11,980 us; 6 of 10 ms of the pause lie in it.
    recorded = pauses(*((STEP_US * n + 5_980, 10_000) for n in range(COUNT)))
    low, high = bounds(cause_of(diagnosis(tmp_path, job(), recorded), "garbage_collection").cost_percent)
    assert (round(low), round(high)) == (20, 50)


def test_calls_of_the_collector_are_seen_in_frames_too(tmp_path: Path) -> None:
    cause = cause_of(diagnosis(tmp_path, job(event("$gc collect", CALL_US, 6_000))), "garbage_collection")
    assert most(cause) == pytest.approx(30.0)


def test_where_nothing_of_collections_is_recorded_they_cannot_be_judged(tmp_path: Path) -> None:
    assert "garbage_collection" in diagnosis(tmp_path, job()).unjudged
    assert "garbage_collection" not in diagnosis(tmp_path, job(), pauses()).unjudged


def test_cpu_time_tells_what_calls_do_of_which_nothing_is_recorded(tmp_path: Path) -> None:
    calls = in_each_step(event("EagerExecute", 0, STEP_US), event("MatMul:MatMul", 0, CALL_US))
    pieces = line("CPU time of thread 7", *in_each_step(event("CPU time", 0, STEP_US, cpu_ns=1_000_000, queued_ns=0)))
    cause = cause_of(diagnosis(tmp_path, host(*marks(COUNT, STEP_US), *calls), pieces), "waiting_in_calls")
    assert cause.title == "Waiting inside calls, without recorded events,"
    assert "for at most 5.0% of its time in calls: it waits" in cause.detail


def jax_job(run_us: float, *inside: Event, more_runs: Sequence[Event] = ()) -> Plane:
    """Steps with a call of 1 ms, whose run goes on beside Python for so long, and what Python does in each step."""
    python = in_each_step(event("PjitFunction(step)", 0, 1_000), *inside)
    runs = in_each_step(event("ThunkExecutor::Execute (wait for completion)", 1_000, run_us), *more_runs)
    threads = line("python", *marks(COUNT, STEP_US), *python), line("tf_XLAEigen/7", *runs, id=2)
    return plane("/host:CPU", *threads)


def test_many_small_arrays_of_jax_are_copied_one_by_one(tmp_path: Path) -> None:
    """Twenty copies of 100 us, one each 500 us: 9.6 of 20 ms with the Python between them. One copy saves half."""
    copies = repeat(20, event("shard_args", 2_000, 100), event("DevicePutWithSharding", 2_010, 50), every=500)
    cause = cause_of(diagnosis(tmp_path, jax_job(500, *copies)), "numpy_conversion")
    assert most(cause) == pytest.approx(48.0)
    assert cause.detail.startswith("20 arrays per step are copied to the device one by one")
    assert bounds(cause.actions[0].step_ms)[1] == pytest.approx(20.0 - 4.8)
    few = diagnosis(tmp_path, jax_job(500, *copies[:8]))
    assert "numpy_conversion" not in codes_of(few.causes)


def test_what_a_callback_copies_and_reads_belongs_to_it(tmp_path: Path) -> None:
    """The same copies, and as many reads, in a callback of the program, as `jax.debug.print` makes them."""
    copies = repeat(20, event("shard_args", 2_000, 100), event("np.asarray(jax.Array)", 2_200, 100), every=500)
    alone = {*codes_of(diagnosis(tmp_path, jax_job(500, *copies)).causes)}
    inside = {*codes_of(diagnosis(tmp_path, jax_job(500, event("debug_print.3", 1_900, 12_000), *copies)).causes)}
    assert {"numpy_conversion", "fetch_results"} <= alone
    assert {"numpy_conversion", "fetch_results"}.isdisjoint(inside)


def test_a_large_batch_of_jax_is_copied_at_best_beside_the_rest_of_the_step(tmp_path: Path) -> None:
    """The copy takes 12 of 20 ms: constant, it saves all; new, at least half of the other 8 ms."""
    cause = cause_of(diagnosis(tmp_path, jax_job(500, event("DevicePut", 2_000, 12_000))), "numpy_conversion")
    assert most(cause) == pytest.approx(60.0)
    assert bounds(cause.actions[0].rest_ms) == pytest.approx((8.0, 16.0))


def test_python_beside_a_run_of_jax_may_be_what_the_step_waits_for(tmp_path: Path) -> None:
    cost = cause_of(diagnosis(tmp_path, jax_job(8_000))).cost_percent
    # Of 20 ms, 11 with nothing else; the run has ended long before the next call, which ends the time of the last step.
    assert bounds(cost) == pytest.approx((55.0, 55.0 + 40.0 * (COUNT - 1) / COUNT))


def test_a_function_that_goes_on_after_runs_computes_whatever_others_await(tmp_path: Path) -> None:
    # A run of 8 ms that argsort goes on beside, for 14 ms; then come several waits that end with short runs.
    sort = event("$fromnumeric.py:1100 argsort", 1_000, 14_000)
    awaits = repeat(4, event("$numpy asarray", 15_500, 500), every=1_000)
    short = repeat(4, event("ThunkExecutor::Execute", 15_500, 499), every=1_000)
    cost = cause_of(diagnosis(tmp_path, jax_job(8_000, sort, *awaits, more_runs=short))).cost_percent
    assert bounds(cost)[0] >= 30.0, "the 6 of 20 ms in argsort without a run"


@pytest.mark.parametrize("usual_us", [18_900, 12_000])
def test_a_frame_around_a_run_that_it_awaits_without_an_event_is_not_python(tmp_path: Path, usual_us: float) -> None:
    # block_until_ready of an array leaves no event: the thread goes on when the run has ended, but for the last step,
    # where it gets a core 7 ms later. Python that always goes on for 7 ms computes.
    python, runs = jax_job(usual_us, event("$train.py:14 step", 1, STEP_US - 2)).lines
    last = event("ThunkExecutor::Execute", STEP_US * (COUNT - 1) + 1_000, 12_000)
    job = plane("/host:CPU", python, line("tf_XLAEigen/7", *runs.events[:-1], last, id=2))
    assert ("python_between_steps" in codes_of(diagnosis(tmp_path, job).causes)) == (usual_us == 12_000)


@pytest.mark.parametrize("frame", ["$api.py:2479 block_until_ready", "$api.py:2490 try_to_block", "$data.py:3 load"])
def test_python_that_waits_for_a_result_is_not_between_calls(tmp_path: Path, frame: str) -> None:
    # The run takes 8 ms of 20, and the thread gets a core 11 ms later.
    codes = codes_of(diagnosis(tmp_path, jax_job(8_000, event(frame, 1_001, 18_900))).causes)
    assert ("python_between_steps" in codes) == ("load" in frame)
    assert ("waiting_in_calls" in codes) == ("load" not in frame)


@pytest.mark.parametrize("job", [jax_job(18_900), jax_job(8_000, event("CommonPjRtBuffer::Await", 9_001, 1))])
def test_python_that_waits_for_the_run_is_not_counted_beside_it(tmp_path: Path, job: Plane) -> None:
    causes = {cause.code: cause.cost_percent for cause in diagnosis(tmp_path, job).causes}
    low, high = bounds(causes.get("python_between_steps", Range(0.0, 0.0)))
    assert low == high


TPU_STEPS = 6


def tpu_diagnosis(
    tmp_path: Path, *, call_us: float, run_us: float, wait_us: float = 0, python_us: float = 0
) -> Diagnosis:
    """Of steps that consist of a call, waiting, and Python; the run begins with the end of the call."""
    python, runs = list[Event](), list[Event]()
    every = call_us + wait_us + python_us
    for nth in range(TPU_STEPS):
        begin = every * nth
        python += call("f", begin, call_us, event("DoEnqueueProgram", begin + 1, 1, _p=nth, _pt=12))
        runs.append(event("jit_f(1)", begin + call_us, run_us, _c=nth, _ct=12))
    python += repeat(TPU_STEPS, event("np.asarray(jax.Array)", call_us, wait_us), every=every) if wait_us else []
    ops = line("XLA Ops", *repeat(TPU_STEPS, event("fusion.1", call_us, run_us), every=every), id=3)
    modules, facts = line("XLA Modules", *runs, id=2), {"fusion.1": {"hlo_category": "loop fusion"}}
    chip = plane("/device:TPU:0", modules, ops, name_stats=facts)
    known = programs({1: ("jit_f", (OTHER, OTHER))})
    return found_in(trace_of(tmp_path, chip, plane("/host:CPU", line("python", *python)), known))


def causes_of(found: Diagnosis) -> dict[str, Cause]:
    return {cause.code: cause for cause in found.causes if cause.code != "warm_up"}


def test_waiting_costs_what_a_step_takes_beyond_the_longer_of_its_run_and_the_rest_of_the_host(tmp_path: Path) -> None:
    """Of 100 us, 30 are the run, and 20 calls and Python: without waiting, a step takes 30."""
    found = causes_of(tpu_diagnosis(tmp_path, call_us=10, wait_us=80, python_us=10, run_us=30))
    assert found.keys() == {"waiting_for_results"}
    cause = found["waiting_for_results"]
    assert most(cause) == pytest.approx(70)
    assert cause.detail == "np.asarray(jax.Array); the TPU is idle for 0.070 ms of 0.100 ms"
    (action,) = cause.actions
    assert bounds(action.step_ms) == pytest.approx((0.030, 0.037))
    assert "a call takes 0.010 ms" in action.assumption


def test_what_waiting_does_not_hide_is_the_time_of_calls_and_of_python(tmp_path: Path) -> None:
    """Of 100 us, 60 are the host's own: 40 in calls and 20 in Python. The TPU works for 15 and could wait for 45."""
    found = causes_of(tpu_diagnosis(tmp_path, call_us=40, wait_us=40, python_us=20, run_us=15))
    costs = {code: most(cause) for code, cause in found.items()}
    assert costs == pytest.approx({"waiting_for_results": 40, "launch_bound": 30, "python_between_steps": 15})
    assert found["launch_bound"].detail == "calling f takes 0.040 ms on the host, and the TPU 0.015 ms"
    assert actions_of(found["launch_bound"]) == ["loop_in_function", "larger_batch"]


def test_a_program_that_does_not_wait_may_still_call_too_late(tmp_path: Path) -> None:
    found = causes_of(tpu_diagnosis(tmp_path, call_us=70, python_us=30, run_us=20))
    assert {code: most(cause) for code, cause in found.items()} == pytest.approx(
        {"launch_bound": 56, "python_between_steps": 24}
    )


def test_a_busy_tpu_waits_for_nobody(tmp_path: Path) -> None:
    assert not causes_of(tpu_diagnosis(tmp_path, call_us=1, wait_us=99, run_us=98.5)).keys() - {"memory_bound"}


def test_such_causes_are_judged_on_a_tpu_only_where_calls_come_when_it_is_done(tmp_path: Path) -> None:
    codes = {"waiting_for_results", "launch_bound", "python_between_steps"}
    assert not codes & tpu_diagnosis(tmp_path, call_us=10, wait_us=80, run_us=30).unjudged.keys()
    ahead = [each for nth in range(6) for each in call("f", nth, 0.5)]
    runs = [event("jit_f(1)", 100 + 100 * nth, 80) for nth in range(6)]
    trace = trace_of(
        tmp_path, plane("/device:TPU:0", line("XLA Modules", *runs)), plane("/host:CPU", line("python", *ahead))
    )
    assert codes <= found_in(trace).unjudged.keys()


def test_the_twin_waits_for_each_result(tmp_path: Path) -> None:
    found = found_in(read_back(tmp_path, tpu_twin()))
    (action,) = found.causes[0].actions
    assert bounds(action.step_ms)[0] == pytest.approx(0.076, abs=5e-4)
    assert "a call takes 0.034 ms" in action.assumption
    warm_up = cause_of(found, "warm_up")
    assert warm_up.actions[0].assumption == "later calls reuse the compiled and loaded program"
