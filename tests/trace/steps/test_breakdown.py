"""The nine categories of a step, on traces small enough to add up by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import STEPS_LINE, Event, Plane, event, host, host_of, line, logdir_of, plane, results_of, space, trace_of

import tfperf
from tfperf.sections.steps import build
from tfperf.trace.steps import breakdown as steps_breakdown
from tfperf.trace.steps.breakdown import NO_DEVICE, Breakdown, CountedSteps, why_unknown
from tfperf.trace.steps.categories import CATEGORIES
from tfperf.trace.steps.find_steps import find_steps

US = 1_000_000


def corrected(tmp_path: Path, *planes: Plane) -> Breakdown:
    trace = trace_of(tmp_path, *planes)
    return steps_breakdown.attribute(trace, find_steps(trace))


def as_tensorflow(tmp_path: Path, *planes: Plane) -> Breakdown:
    return steps_breakdown.as_tensorflow(trace_of(tmp_path, *planes, links=True, instants=True))


def times(breakdown: Breakdown, step: int = 0) -> dict[str, float]:
    """Non-zero categories of a step, in microseconds."""
    keys = (*CATEGORIES, "input_wait", "host_to_device")
    return {key: breakdown.time_ps[key][step] / US for key in keys if breakdown.time_ps[key][step]}


def test_cpu_step_is_wait_compute_and_the_rest(tmp_path: Path) -> None:
    """Step 0-100: fetch 10-40; op 20-70 on a worker (waiting has priority); nothing 70-90; runtime 90-95."""
    made = plane(
        "/host:CPU",
        line("python", event("train", 0, 100, step_num=0), event("IteratorGetNextOp::DoCompute", 10, 30)),
        line("worker", event("MatMul:MatMul", 20, 50), event("ExecutorState::Process", 90, 5)),
    )
    breakdown = corrected(tmp_path, made)
    assert times(breakdown) == {"input": 30, "input_wait": 30, "host_compute": 35, "all_others": 35}
    assert not breakdown.has_device


def gpu_trace() -> tuple[Plane, Plane]:
    """One grouped step, 0-100 us, with copies spelled as CUPTI does."""
    grouped = {"group_id": 0}
    cpu = plane(
        "/host:CPU",
        line("python", event("train", 0, 100, step_num=0, step_name="train 0", **grouped)),
        line("worker", event("ExecutorState::Process", 0, 50, **grouped),
             event("IteratorGetNext/_2:_Send", 10, 20, **grouped)),
        line("fetch", event("IteratorGetNextOp::DoCompute", 5, 5, **grouped)),
    )  # fmt: skip
    gpu = plane(
        "/device:GPU:0",
        line("Stream #1(Compute)", event("kernel_half", 60, 10, correlation_id=1, **grouped),
             event("kernel", 70, 10, correlation_id=2, **grouped),
             event("ncclAllReduce", 80, 5, correlation_id=3, **grouped), id=1),
        line("Stream #2(MemcpyH2D)", event("MemcpyH2D", 15, 10, correlation_id=4, **grouped), id=2),
        line("Stream #3(MemcpyD2H)", event("MemcpyD2H", 85, 5, correlation_id=5, **grouped), id=3),
        line("Steps", event("0", 0, 95, **grouped), id=STEPS_LINE),
        line("TensorFlow Ops", event("op", 0, 95, **grouped), id=STEPS_LINE + 3),
    )  # fmt: skip
    return cpu, gpu


def test_gpu_step_corrected(tmp_path: Path) -> None:
    """Copies are copies, above host states; staging the batch is not waiting for tf.data."""
    breakdown = corrected(tmp_path, *gpu_trace())
    assert times(breakdown) == {
        "input": 25,  # wait 5-10, staging 10-15 and 25-30, copy 15-25
        "input_wait": 5,
        "host_to_device": 20,
        "kernel_launch": 25,  # 0-5 and 30-50
        "device_compute": 20,
        "device_collectives": 5,
        "output": 5,
        "all_others": 20,  # 50-60 and 90-100
    }
    precision_ps = breakdown.compute_16_ps, breakdown.compute_32_ps, breakdown.compute_unknown_ps
    assert precision_ps == (10 * US, 0, 10 * US)  # `kernel` says nothing


def test_gpu_step_as_tensorflow_reported(tmp_path: Path) -> None:
    """TensorFlow does not know the spelling `MemcpyH2D`: copies are compute. All `IteratorGetNext…` is waiting."""
    breakdown = as_tensorflow(tmp_path, *gpu_trace())
    assert times(breakdown) == {
        "input": 15,  # 5-15 and 25-30
        "input_wait": 15,
        "kernel_launch": 25,
        "device_compute": 35,
        "device_collectives": 5,
        "all_others": 20,
    }
    assert (breakdown.compute_16_ps, breakdown.compute_32_ps) == (10 * US, 25 * US)
    assert breakdown.steps.names == ("train 0",)


def test_an_empty_device_plane_is_a_device_for_tensorflow_only(tmp_path: Path) -> None:
    mark = event("train", 0, 100, step_num=0, step_name="train 0", group_id=0)
    cpu, gpu = host(mark, event("MatMul:MatMul", 10, 50, group_id=0)), plane("/device:GPU:0")
    assert len(as_tensorflow(tmp_path, cpu, gpu).steps) == 0
    breakdown = corrected(tmp_path, cpu, gpu)
    assert times(breakdown) == {"host_compute": 50, "all_others": 50}


@pytest.mark.parametrize(("instant", "compute"), [(40, 80), (25, 40)])
def test_an_instant_stretches_into_idle_time_for_tensorflow_only(
    tmp_path: Path, instant: float, compute: float
) -> None:
    """Ops run 10-30 and 80-100 of a step 0-100. An instant at 40 makes 40-80 compute; one inside an op does nothing."""
    cpu = plane(
        "/host:CPU",
        line("python", event("train", 0, 100, step_num=0, step_name="train 0", group_id=0)),
        line("worker", event("A:A", 10, 20, group_id=0), event("B:B", 80, 20, group_id=0)),
        line("other", event("ThreadpoolListener::Record", instant, 0, group_id=0)),
    )
    assert times(as_tensorflow(tmp_path, cpu))["host_compute"] == compute
    assert times(corrected(tmp_path, cpu))["host_compute"] == 40


def test_worker_threads_reach_the_step_through_their_links(tmp_path: Path) -> None:
    """Without stored groups TensorFlow follows producer and consumer ids; unlinked work is in no step."""
    made = plane(
        "/host:CPU",
        line("python", event("train", 0, 100, step_num=5, _r=1), event("FunctionRun", 10, 20, _pt=2, _p=2**64 - 1)),
        line("worker", event("ExecutorState::Process", 40, 30, _ct=2, _c=2**64 - 1), event("A:A", 45, 10)),
        line("stranger", event("B:B", 75, 20)),
    )
    breakdown = as_tensorflow(tmp_path, made)
    assert breakdown.steps.names == ("train 5",)
    assert times(breakdown) == {"host_compute": 30, "all_others": 70}


def test_roots_below_a_root_lead_no_step(tmp_path: Path) -> None:
    """A nested marker belongs to the outer step; a root of a higher level leads before it."""
    nested = host(event("train", 0, 100, step_num=0, _r=1), event("inner", 10, 50, step_num=9, _r=1))
    assert as_tensorflow(tmp_path, nested).steps.names == ("train 0",)
    marks = event("outer", 0, 100, step_num=0, _r=1), event("inner", 10, 50, step_num=9, _r=2)
    assert as_tensorflow(tmp_path, host(*marks, event("A:A", 20, 10))).steps.names == ("inner 9",)


def test_function_runs_alone_are_no_steps_for_tensorflow(tmp_path: Path) -> None:
    made = host(event("FunctionRun", 0, 100, _r=1, id=1), event("A:A", 20, 10))
    breakdown = as_tensorflow(tmp_path, made)
    assert len(breakdown.steps) == 0
    assert "corrected" in breakdown.steps.explanation


def test_first_and_last_of_more_than_five_are_left_out_as_today(tmp_path: Path) -> None:
    """The current converter does so for files without stored groups."""
    marks = (event("train", 100 * n, 90, step_num=n, _r=1) for n in range(7))
    ops = (event("A:A", 100 * n + 10, 50) for n in range(7))
    breakdown = as_tensorflow(tmp_path, host(*marks, *ops))
    assert breakdown.averaged.tolist() == [False, *[True] * 5, False]
    assert breakdown.steps.headline.tolist() == breakdown.averaged.tolist()


def tpu(number: int, *ops: tuple[str, float, float]) -> Plane:
    steps = line("Steps", event("0", 0, 100), event("1", 100, 100), id=1)
    categories = {name: {"hlo_category": name} for name, *_ in ops}
    return plane(
        f"/device:TPU:{number}", steps, line("XLA Ops", *(event(*op) for op in ops), id=2), name_stats=categories
    )


def test_tpu_steps_are_averaged_over_cores(tmp_path: Path) -> None:
    """Core 0: a loop 0-60 with an infeed 10-30 inside, all-reduce 60-80. Core 1: convolution 0-40, outfeed 40-50."""
    first = tpu(0, ("while", 0, 60), ("infeed", 10, 20), ("all-reduce", 60, 20))
    second = tpu(1, ("convolution", 0, 40), ("outfeed", 40, 10))
    breakdown = corrected(tmp_path, first, second)
    assert times(breakdown) == {
        "input": 10, "input_wait": 10, "device_compute": 40, "device_collectives": 10, "output": 5, "all_others": 35,
    }  # fmt: skip
    assert breakdown.compute_ps == 0  # HLO categories do not tell the precision
    assert breakdown.unknown == {"compilation", "kernel_launch", "host_compute"}


def test_a_tpu_tells_its_steps_and_has_one_attribution(tmp_path: Path) -> None:
    """Even where the host marks steps; idle time of the TPU while the host fetches is input."""
    core = tpu(0, ("convolution", 0, 40))
    breakdown = as_tensorflow(tmp_path, core)
    assert times(breakdown) == {"device_compute": 40, "all_others": 60}
    assert "both attributions" in breakdown.steps.notes[-1]
    marked = [event("train", 0, 100, step_num=0), event("train", 100, 100, step_num=1)]
    breakdown = corrected(tmp_path, host(*marked, event("IteratorGetNextOp::DoCompute", 30, 50)), core)
    assert breakdown.steps.source == "device steps"
    assert times(breakdown) == {"input": 40, "input_wait": 40, "device_compute": 40, "all_others": 20}


def test_input_of_a_tpu_is_visible_by_an_infeed_of_any_core_or_a_fetch(tmp_path: Path) -> None:
    fed, other = tpu(0, ("infeed", 0, 10)), tpu(1, ("convolution", 0, 40))
    assert not corrected(tmp_path, other).input_visible
    assert corrected(tmp_path, fed, other).input_visible
    assert corrected(tmp_path, host(event("IteratorGetNextOp::DoCompute", 30, 50)), other).input_visible


WRAPPERS = ["EagerExecute", "FunctionRun", "$train.py:12 step", "ThreadpoolListener::Region"]


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ([event(name, 10, 50 - i) for i, name in enumerate(WRAPPERS)], {"all_others": 100}),
        (
            [event("tf.function-graph_building", 10, 60), event("A:A", 80, 10)],
            {"compilation": 60, "host_compute": 10, "all_others": 30},
        ),
    ],
    ids=["frames and wrappers are no work", "tracing a function is compilation"],
)
def test_what_host_events_are(tmp_path: Path, inside: list[Event], expected: dict[str, float]) -> None:
    assert times(corrected(tmp_path, host(event("train", 0, 100, step_num=0), *inside))) == expected


def test_input_that_is_not_in_the_trace_is_unknown(tmp_path: Path) -> None:
    made = host(event("train", 0, 100, step_num=0), event("A:A", 10, 60))
    assert not corrected(tmp_path, made).input_visible
    (table,) = build(results_of(trace_of(tmp_path, made), sections=["steps"])).tables
    assert {column.key: column.level for column in table.columns}["input_ms"] == "data", "people see no 0"


def test_hosts_are_averaged_step_by_step(tmp_path: Path) -> None:
    """Matched by the program's own step numbers: host b lost step 0."""

    def one(first: int, wait: float) -> Breakdown:
        events = []
        for n in range(first, 4):
            events += [event("train", 100 * n, 100, step_num=n), event("IteratorGetNextOp::DoCompute", 100 * n, wait)]
        return corrected(tmp_path, host(*events))

    breakdown = steps_breakdown.combine([one(0, 10), one(1, 30)])
    assert breakdown.steps.numbers.tolist() == [1, 2, 3]
    assert breakdown.steps.notes == ("hosts have up to 4 steps; only the 3 that all hosts have are combined",)
    assert (breakdown.time_ps["input"] / US).tolist() == [20, 20, 20]


def test_a_host_without_steps_does_not_take_part(tmp_path: Path) -> None:
    empty = corrected(tmp_path, host(event("A:A", 0, 5)))
    full = corrected(tmp_path, host(event("train", 0, 100, step_num=0)))
    assert steps_breakdown.combine([empty, full]).steps.names == ("train 0",)
    assert len(steps_breakdown.combine([empty, empty]).steps) == 0


def test_columns_add_up(tmp_path: Path) -> None:
    table = corrected(tmp_path, *gpu_trace()).table
    assert list(table["step_time_ms"]) == [0.1]
    total = sum(table[f"{key}_ms"] for key in CATEGORIES)
    assert np.allclose(total, table["step_time_ms"])


# --- why a trace cannot show a category: what is missing in it, and what to try ---

MARKS = [event("train", 100 * number, 100, step_num=number) for number in range(4)]
GPU = plane("/device:GPU:0", line("Stream #1(Compute)", *(event("gemm", 100 * n, 10) for n in range(4))))
TPU = plane("/device:TPU:0", line("Steps", *(event(str(n), 100 * n, 100) for n in range(4)), id=STEPS_LINE))


@pytest.mark.parametrize(
    ("planes", "category", "reason"),
    [
        ((host(*MARKS),), "kernel_launch", NO_DEVICE),
        ((host(*MARKS),), "host_to_device", NO_DEVICE),
        ((host(*MARKS),), "input", "the profile does not show the source of the input"),
        ((host(*MARKS), GPU), "host_to_device", "the profile does not show the source of the input"),
        ((TPU,), "compilation", "the steps are TPU core steps"),
    ],
)
def test_the_reason_is_what_is_missing(tmp_path: Path, planes: tuple[Plane, ...], category: str, reason: str) -> None:
    breakdown = host_of(trace_of(tmp_path, *planes), "steps")["steps"]
    assert category in breakdown.unknown
    assert why_unknown(breakdown, category).startswith(reason)


# --- times of each step, of which other steps count afterwards ---


def four_steps() -> CountedSteps:
    """Steps of 10, 20, 30 and 40 ps, of which the first does not count."""
    starts, counted = np.array([0, 10, 30, 60]), np.array([False, True, True, True])
    return CountedSteps(starts, np.array([10, 20, 30, 40]), counted)


def test_shares_are_of_the_steps_that_count() -> None:
    steps = four_steps()
    assert (steps.count, steps.total_ps) == (3, 90)
    assert (steps.sum(np.array([9, 1, 2, 6])), steps.percent(np.array([9, 1, 2, 6]))) == (9, 10.0)
    nothing = CountedSteps(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_))
    assert (nothing.count, nothing.percent(np.zeros(0, np.int64))) == (0, None)
    both = CountedSteps.joined([four_steps(), four_steps()])
    assert (both.count, both.total_ps) == (6, 180)


def test_other_steps_count_afterwards(tmp_path: Path) -> None:
    """Steps 2 and 3 of four, of 100 us each."""
    breakdown = host_of(trace_of(tmp_path, host(*MARKS)), "steps")["steps"]
    steps = CountedSteps.of(breakdown.steps)
    assert steps.counted.tolist() == [True] * 4
    after = breakdown.only(np.array([2, 3]))
    assert steps.counting(after).counted.tolist() == [False, False, True, True]
    assert steps.counting(after).counting(breakdown).counted.tolist() == [True] * 4


# --- steps of several hosts: which belong together, and how that is known ---

START_NS = 1_795_314_224_000_000_000


def calls(count: int) -> Plane:
    """Steps without markers: calls of one function, of 100 us each."""
    name = "EagerLocalExecute: __inference_f_9"
    return host(*(event(name, 100 * n, 100, tf_function_call="notTraced") for n in range(count)))


def session(start_us: float) -> Plane:
    return plane("Task Environment", stats={"profile_start_time": START_NS + int(1000 * start_us)})


def steps_of(tmp_path: Path, *planes: tuple[Plane, ...]) -> tuple[list[int], str]:
    files = {name: space(*of_host) for name, of_host in zip("ab", planes, strict=True)}
    steps = tfperf.load(logdir_of(tmp_path, **files), sections=("steps",))["steps"].steps
    return steps.numbers.tolist(), " ".join(steps.notes)


def test_steps_that_ran_at_the_same_time_belong_together(tmp_path: Path) -> None:
    """The capture of b starts 210 us later: its first step is the third one of a."""
    numbers, notes = steps_of(tmp_path, (calls(6), session(0)), (calls(6), session(210)))
    assert numbers == [2, 3, 4, 5]
    assert "so steps were matched by time" in notes


def test_without_clocks_they_are_matched_in_order(tmp_path: Path) -> None:
    numbers, notes = steps_of(tmp_path, (calls(6), session(0)), (calls(4),))
    assert numbers == [0, 1, 2, 3]
    assert "only the 4 that all hosts have are combined" in notes


def test_clocks_that_never_meet_leave_the_order(tmp_path: Path) -> None:
    numbers, _ = steps_of(tmp_path, (calls(6), session(0)), (calls(6), session(1_000_000)))
    assert numbers == [0, 1, 2, 3, 4, 5]


def test_numbers_come_before_time(tmp_path: Path) -> None:
    marked = [host(*(event("train", 100 * n, 100, step_num=n + first) for n in range(5))) for first in (0, 2)]
    numbers, _ = steps_of(tmp_path, (marked[0], session(0)), (marked[1], session(0)))
    assert numbers == [2, 3, 4]
