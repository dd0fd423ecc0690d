"""Each cause on a trace that can be checked by hand: steps of 100 us, of which it costs a known part."""

from __future__ import annotations

import math
import re
from pathlib import Path
from unittest.mock import ANY

import pytest
from builders import Event, Line, Plane, event, host, line, marks, plane, ref, repeat, results_of, trace_of
from builders import iterator_call as call
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sections.diagnosis.made import (
    CALL,
    FETCH,
    LAUNCH,
    OP,
    Case,
    actions_of,
    bounds,
    cause_of,
    causes_of,
    codes_of,
    diagnosis,
    eagerly,
    gpu,
    in_each_step,
    steps,
)  # fmt: skip
from sections.tfdata.made_pipelines import keras_arrays, training_and_evaluation, waiting_job

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.sections.diagnosis.case import Ledger, ledger_of
from tfperf.sections.diagnosis.catalogue import ADVICE
from tfperf.sections.diagnosis.cause import Cause, Range
from tfperf.sections.diagnosis.diagnose import NEEDS, diagnose, sentence_of
from tfperf.sections.diagnosis.section import build
from tfperf.sections.overview.summary import Summary
from tfperf.sections.tfdata.whatif import FASTEST

CALLED = {"tf_function_call": ref("notTraced-nonXla")}
TRACED = in_each_step(("tf.function-graph_building", 0, 50))


def allocation(at: float, in_use: int) -> Event:
    same = dict.fromkeys(("bytes_allocated", "peak_bytes_in_use", "requested_bytes", "allocation_bytes"), in_use)
    where = {"allocator_name": "GPU_0_bfc", "addr": 64, "fragmentation": 0.0, "bytes_available": 1000 - in_use}
    return event("MemoryAllocation", at, 0, **where, **same)


def work(mode: str, count: int = 1) -> list[Event]:
    """Calls of a function that fill each step."""
    return repeat(5, event("work", 0, 100, tf_function_call=ref(mode), tracing_count=count))


def on_host(*parts: tuple[str, float], more: list[Event] | None = None) -> tuple[Plane, ...]:
    return (host(*steps(*parts), *(more or [])),)


KERAS_EAGERLY = ("IteratorGetNext", "MatMul", "Relu", "ReluGrad", "Mul", "OptionalFromValue", "OptionalHasValue")
COMPILED = in_each_step(("CpuCompiler::RunBackend", 10, 60))
MADE_IN_EACH_STEP = [
    *eagerly("TensorDataset", "MakeIterator", size=20),
    *in_each_step(("tf.function-graph_building", 40, 60), (OP, 81, 89)),
    *repeat(5, event("one_step_on_data_distributed", 80, 10, **CALLED)),
]
EIGHTY_MB = {"allocator_name": "cpu", "requested_bytes": 80_000_000, "allocation_bytes": 80_000_000}
ALLOCATED = repeat(5, event("MemoryAllocation", 20, 0, **EIGHTY_MB))
CONVERTED = repeat(5, event("train_step", 0, 90, **CALLED), event("tf.constant", 10, 60))
WAITING = in_each_step((CALL, 0, 100), ("cuStreamSynchronize", 60, 100))
HARDLY_WORKING = in_each_step((CALL, 0, 100), (LAUNCH, 0, 25), ("cuStreamSynchronize", 30, 100))

FIRST: dict[str, Case] = {
    "input": Case(
        on_host((FETCH, 64), (OP, 36)), "input_wait", 64, "use_tf_data", "Waiting for input takes 64.0% of the step: "
    ),
    # Each of them is traced for the first time; one function would count its tracings.
    "a function made in a loop": Case(
        on_host((OP, 100), more=[*work("traced-nonXla"), *TRACED]), "compilation", 50, "create_function_once",
        "work was traced in 5 of 5 calls, as a new tf.function each time",
    ),
    "XLA compiles for each shape whatever is traced": Case(
        on_host((OP, 100), more=[*work("notTraced-xla"), *COMPILED]), "compilation", ANY, "pad_shapes",
        "XLA compiled work in 5 of 5 calls; every run is a first run, and first runs take longer",
    ),
    "a GPU that the job does not use": Case(
        (*on_host((OP, 100)), plane("/device:GPU:0")), "idle_devices", None, "find_device",
        "1 of 1 device is unused",
    ),
    "ops one by one": Case(on_host(*[("EagerExecute: Add", 9.0)] * 9), "eager_ops", 100, "use_function"),
    "Keras calls no function": Case(
        on_host((FETCH, 1), more=eagerly(*KERAS_EAGERLY)), "run_eagerly", 58, "omit_run_eagerly",
        "compile(run_eagerly=True)",
    ),
    # The call of the function says so.
    "tf.config.run_functions_eagerly(True)": Case(
        on_host(
            (OP, 0), more=[
                *eagerly(*["MatMul"] * 10), *work("eager"), *in_each_step(("EagerLocalExecute: MatMul", 0, 8)),
            ],
        ), "eager_ops", ANY, "omit_run_functions_eagerly",
    ),
    # `predict` of single images: all but the function of 10 us.
    "a pipeline made in each step": Case(
        on_host((OP, 0), more=MADE_IN_EACH_STEP), "iterator_per_step", 90, "one_iterator"
    ),
    "arrays that are converted in each step": Case(
        on_host((OP, 0), more=[*CONVERTED, *ALLOCATED]), "numpy_conversion", 60, "convert_once",
        "1 array of 1 MB or more per step, up to 80.0 MB, in calls of train_step",
    ),
    "saving": Case(
        on_host((OP, 0), more=eagerly("ReadVariableOp", "SaveV2")), "checkpointing", ANY, "save_less_often",
        "in 5 of 5 steps",
    ),
    "reading": Case(
        on_host((OP, 0), more=eagerly("ReadVariableOp", "Identity", "ReadVariableOp", "Identity")),
        "fetch_results", ANY, "fetch_less_often", "in 5 of 5 steps",
    ),
    "summaries": Case(
        on_host((OP, 0), more=eagerly("WriteHistogramSummary", "FlushSummaryWriter", "_EagerConst")),
        "fetch_results", ANY, "fetch_less_often", "in 5 of 5 steps",
    ),
    # The whole step is one call, of which the last 40 us are waiting: nobody works then.
    "waiting for results": Case(
        (*on_host(more=WAITING), gpu(("volta_sgemm", 0, 60))), "waiting_for_results", 40, "fetch_less_often"
    ),
    "waiting is no fixed overhead though the device works little": Case(
        (*on_host(more=HARDLY_WORKING), gpu(("volta_sgemm", 20, 10))), "waiting_for_results", 70, "fetch_less_often"
    ),
    # The op is inside the call, so that of each step of 20 ms, 8 ms are in neither: too much for a framework.
    "Python between calls": Case(
        (host(*marks(5, 20_000), *repeat(5, event(CALL, 0, 12_000), event(OP, 1_000, 11_000), every=20_000)),),
        "python_between_steps", 40, "record_python",
    ),
    "memory that is nearly full": Case(
        on_host((OP, 100), more=[allocation(5, 950)]), "memory_pressure", None, "use_less_memory share_device_memory",
        "GPU_0_bfc reaches 950 B, 95.0% of its capacity",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST)
def test_the_first_cause(tmp_path: Path, name: str) -> None:
    found = diagnosis(tmp_path, *FIRST[name].planes)
    FIRST[name].check(found)
    if name == "a pipeline made in each step":
        assert "optimizer" not in str(found)
        assert "compilation" not in codes_of(found.causes)


def shared_cores(*, consumer: str = OP, read_us: float = 100) -> tuple[Line, Line]:
    """On two cores: steps that wait for 2 us and then compute, beside one thread of the pipeline that works."""
    asked = repeat(5, call("Root", 0, 2, 1, cpu_budget=2), call("Root::Prefetch", 0, 2, 2, 1))
    reader = repeat(5, event("PrefetchProduce", 0, read_us), call("Root::Prefetch::TFRecord", 0, read_us, 3, 2))
    return line("python", *steps((FETCH, 2), (consumer, 98)), *asked), line("tf_data_1", *reader, id=2)


def test_threads_of_the_pipeline_slow_the_step(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, plane("/host:CPU", *shared_cores()))
    cause = found.causes[0]
    assert cause.code == "input_contention"
    assert cause.detail == "1.0 pipeline threads compete with the step for 2 cores"
    # Of 98 us: alone they would take 98 / (1 + 0.25 / 2) at most, and 98 / (1 + 1.2 / 2) at least, less 0 to 1.6 %
    # after waiting for 2 % of the step; the squares of what both leave open add up.
    spread = math.hypot(math.log(1.6 / 1.125) / 2, math.log(1 / 0.984) / 2)
    low, high = bounds(cause.cost_percent)
    assert low == pytest.approx(98 * (1 - 1 / 1.125))
    assert high == pytest.approx(98 - 98 * 0.992 / math.sqrt(1.125 * 1.6) / math.exp(spread))
    assert "less_work" in actions_of(cause)
    waits = cause_of(found, "input_wait")
    assert waits.cost_percent == Range(2.0, 2.0)
    assert waits.actions == (), "what makes its threads work less is given once"


def test_a_pipeline_that_hardly_works_or_is_beside_a_device_slows_nothing(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, plane("/host:CPU", *shared_cores(read_us=5)))
    assert codes_of(found.causes) == ["input_wait"]
    device = plane("/device:GPU:0", line("Stream #1", event("gemm", 499, 1)))
    assert "input_contention" not in causes_of(tmp_path, plane("/host:CPU", *shared_cores()), device)


@pytest.mark.parametrize(
    ("cores", "clause"),
    [
        (1, "; 1.0 of 1 core is busy, so more parallelism cannot help"),
        (2, ""),
        (8, "; only 1.0 of 8 cores are busy, as far as the profile shows"),
    ],
)
def test_waiting_says_whether_the_cores_have_nothing_to_do_or_are_full(tmp_path: Path, cores: int, clause: str) -> None:
    # One thread runs the map while the step waits.
    job = plane("/host:CPU", *waiting_job("Map", op="DecodeJpeg"))
    found = diagnosis(tmp_path, job, plane(CAPTURE_PLANE, stats={"cpu_affinity": cores}))
    cause = cause_of(found, "input_wait")
    assert cause.detail == f"the blocking tf.data stage is Map{clause}"
    assert ("host_cpu_full" in actions_of(cause)) == (cores == 1)


def test_little_waiting_does_not_speak_of_cores(tmp_path: Path) -> None:
    job = plane("/host:CPU", *waiting_job("Map", busy_us=9, op="DecodeJpeg"))
    found = diagnosis(tmp_path, job, plane(CAPTURE_PLANE, stats={"cpu_affinity": 8}))
    assert "cores" not in cause_of(found, "input_wait").detail


def test_the_first_batch_of_an_epoch_calls_for_no_change_of_the_pipeline(tmp_path: Path) -> None:
    own = [*steps((FETCH, 2), (OP, 30)), event(FETCH, 110, 50), event("EagerLocalExecute: MakeIterator", 95, 4)]
    waits = [(0, 2, 1), (110, 50, 2), (200, 2, 2), (300, 2, 2), (400, 2, 2)]
    asked = [call("Root", start, us, root) for start, us, root in waits]
    asked += [call("Root::Prefetch", start, us, 10 + root, root) for start, us, root in waits]
    found = diagnosis(tmp_path, plane("/host:CPU", line("python", *own, *asked)))
    cause = cause_of(found, "input_wait")
    assert cause.detail.startswith("mostly in the first step of each epoch")
    assert cause.actions == ()


def test_nothing_worth_fixing_says_what_the_step_is(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, host(*steps((FETCH, 1), (OP, 98))))
    assert found.causes == ()
    assert found.headline == (
        "No cause worth fixing: the step is host compute 98.0%, input 1.0%, all others 1.0%; largest: MatMul 98.0%."
    )


def traced(events: list[Event], first: int, last: int) -> list[Event]:
    """Make the calls of `work` in these steps trace for 50 us each; in the others they only call."""
    modes = ["traced-nonXla" if first <= n < last else "notTraced-nonXla" for n in range(5)]
    calls = [event("work", 100 * n, 100, tf_function_call=ref(mode), tracing_count=n) for n, mode in enumerate(modes)]
    return [*events, *calls, *TRACED[first:last]]


def test_compilation_names_the_function_and_how_often(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, host(*traced(steps((OP, 100)), 0, 5)))
    assert found.headline == "Compilation takes 50.0% of the step: work was traced in 5 of 5 calls."
    # At best, what is left gets faster, too.
    assert bounds(found.causes[0].actions[0].step_ms) == pytest.approx((0.05 * (1 - 0.8 * 0.5), 0.055))


@pytest.mark.parametrize(
    ("version", "condition"),
    [("2.21.0", ""), ("2.8.4", " (TensorFlow 2.9 or later)"), ("", " (TensorFlow 2.9 or later)")],
)
def test_advice_names_a_version_that_the_job_may_not_have(tmp_path: Path, version: str, condition: str) -> None:
    facts = [plane(CAPTURE_PLANE, stats={"tensorflow_version": version})] if version else []
    found = diagnosis(tmp_path, host(*traced(steps((OP, 100)), 0, 5)), *facts)
    assert found.causes[0].actions[0].text.startswith(f"set input_signature or reduce_retracing=True{condition}, and")


def test_first_calls_that_trace_are_warm_up(tmp_path: Path) -> None:
    # Only two steps are without a flag, so all of them count: 3 of 5 trace for half of their time.
    found = diagnosis(tmp_path, host(*traced(steps((OP, 100)), 0, 3)))
    cause = found.causes[0]
    assert (cause.code, cause.actions[0].code) == ("warm_up", "profile_later")
    assert cause.cost_percent == Range(30.0, 30.0)


def test_waiting_for_input_gets_no_faster_without_another_cause(tmp_path: Path) -> None:
    """Eager ops take most of the step, and it waits for 20 us."""
    ops = repeat(5, *(event(CALL, 20 + 10 * n, 8, is_func=0, eager_op=ref("MatMul")) for n in range(8)))
    found = diagnosis(tmp_path, host(*steps((FETCH, 20)), *ops))
    waits, eager = cause_of(found, "input_wait"), cause_of(found, "eager_ops")
    assert waits.cost_percent == Range(20.0, 20.0)
    (action,) = [each for each in eager.actions if each.code == "use_function"]
    assert action.rest_ms is not None
    rest_us = 1000 * action.rest_ms.low
    assert bounds(action.step_ms)[0] * 1000 == pytest.approx(20 + FASTEST * (rest_us - 20))


def test_time_inside_a_call_is_not_python(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, host(*in_each_step((CALL, 0, 100)), *steps((OP, 85))))
    assert codes_of(found.causes) == ["waiting_in_calls"]
    assert found.headline.startswith("No cause worth fixing")


@pytest.mark.parametrize(("in_use", "text"), [(100, ": 64 may fit in memory"), (401, "")])
def test_a_larger_batch_is_named_if_it_fits(tmp_path: Path, in_use: int, text: str) -> None:
    facts = plane(CAPTURE_PLANE, stats={"batch_size": 16})
    found = diagnosis(tmp_path, host(*steps((OP, 40), (LAUNCH, 30)), allocation(5, in_use)), facts)
    actions = {each.code: each.text for each in found.causes[0].actions}
    assert actions["larger_batch"] == f"use a larger batch{text}"


def test_what_a_step_costs_whatever_its_size(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, host(*steps((OP, 40), (LAUNCH, 30))))
    (cause,) = found.causes
    assert (cause.code, cause.cost_percent) == ("small_work_per_step", Range(60.0, 60.0))
    assert cause.detail == "ops run for only 40.0% of it"
    after = {each.code: (each.step_ms.low, each.step_ms.high) for each in cause.actions if each.step_ms is not None}
    # 40 to 70 % of it for the same number of examples, in batches twice as large.
    assert after["larger_batch"] == pytest.approx((0.1 - 0.7 * 0.06, 0.1 - 0.4 * 0.06))
    # In one call: half of the Python between calls at least, and at most 95 % of all of it; what is left gets faster.
    assert after["loop_in_function"] == pytest.approx(((0.1 - 0.95 * 0.06) * (1 - 0.8 * 0.57), 0.1 - 0.5 * 0.03))
    assert cause.gain == pytest.approx((0.95 * 0.6 + 0.5 * 0.3) / 2), "only what a change takes away decides the rank"


def test_steps_that_another_process_sends_wait_for_it_and_inside_for_others(tmp_path: Path) -> None:
    """Of 100 us, a call takes 70 and its op 40; a parameter server may take the other 30 of the call."""
    request = in_each_step(("EagerService:Enqueue", 0, 70), (CALL, 0, 70))
    found = diagnosis(tmp_path, host(*request, *steps((OP, 40), (LAUNCH, 30))))
    causes = {each.code: each for each in found.causes}
    assert {code: each.cost_percent for code, each in causes.items()} == {
        "small_work_per_step": Range(30.0, 30.0),
        "python_between_steps": Range(30.0, 30.0),
    }
    inside, between = causes["small_work_per_step"], causes["python_between_steps"]
    assert inside.detail.endswith("; the rest includes waiting for other tasks, such as parameter servers")
    assert actions_of(inside) == ["larger_batch"], "a loop in a call waits for them as often"
    assert (between.title, between.detail[:27]) == ("Time between requests", "waiting for the coordinator")
    assert actions_of(between) == ["loop_in_function"]


@pytest.mark.parametrize(
    ("long_ms", "other_ms", "is_overhead"),
    [
        (3.0, 1.5, False),  # one op takes most of 4.5 ms: the rest of the step waits for a core
        (2.4, 2.2, True),
        (3.0, 2.9, False),  # ops take half of the step, and long
        (2.0, 0.9, True),  # ops take less than half of it
    ],
)
def test_what_is_left_of_steps_with_long_ops_is_no_fixed_overhead(
    tmp_path: Path, long_ms: float, other_ms: float, *, is_overhead: bool
) -> None:
    ops = [event(LAUNCH, 0, 8_000), event("svd:Svd", 0, 1_000 * long_ms)]
    ops += [event(f"op_{n}:Relu", 4_000 + 2_000 * n, 500 * other_ms) for n in range(2)]
    found = causes_of(tmp_path, host(*marks(5, 8_000), *repeat(5, *ops, every=8_000)))
    assert ("small_work_per_step" in found) == is_overhead


def test_a_gpu_that_has_little_to_do(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, host(*steps((LAUNCH, 80.0))), gpu(("volta_sgemm", 80, 10)))
    costs = {cause.code: cause.cost_percent for cause in found.causes}
    assert costs["small_work_per_step"] == Range(90.0, 90.0)
    assert "launch_bound" not in costs, "no part of a step is blamed twice"


def test_ops_of_keras_own_loop_are_no_cause(tmp_path: Path) -> None:
    """Its functions are called, so the ops beside them are a callback's, or its own."""
    for of_user, codes in (((), []), ((("EagerExecute: Add", 9.0), ("EagerExecute: Sub", 9.0)), ["eager_ops"])):
        parts = [("multi_step_on_iterator", 1.0), *of_user, *[("EagerExecute: OptionalHasValue", 9.0)] * 6]
        found = diagnosis(tmp_path, host(*steps(*parts)))
        assert [cause.code for cause in found.causes if cause.code == "eager_ops"] == codes
        assert "run_eagerly" not in str(found)


def test_a_function_leaves_the_time_of_kernels(tmp_path: Path) -> None:
    ops = eagerly(*["MatMul"] * 10)
    kernels = [event("EagerKernelExecute", each.start_us + 1, 5) for each in ops]
    first = diagnosis(tmp_path, host(*steps((OP, 0)), *ops, *kernels)).causes[0]
    assert first.detail.endswith("; kernels take 50.0%")
    low, high = bounds(first.cost_percent)
    # Kernels take 50 of 98 us. A function saves 85 to 98 % of the rest, and up to 80 % of the kernels' time.
    cost_ms, part = high / 1000, 50 / 98
    most, least = 0.98 * (1 - part) + 0.8 * part, 0.85 * (1 - part)
    assert 1 - 0.8 * cost_ms * most / 0.1 < FASTEST
    faster = FASTEST
    expected = ((0.1 - cost_ms * most) * faster, 0.1 - cost_ms * least)
    assert bounds(first.actions[0].step_ms) == pytest.approx(expected, rel=0.05)
    assert low == pytest.approx(high * (1 - part), rel=0.01), "kernels may remain"


def test_how_large_converted_arrays_are_is_told_by_an_allocation(tmp_path: Path) -> None:
    assert "numpy_conversion" not in causes_of(tmp_path, *on_host((OP, 0), more=CONVERTED))


def test_a_gpu_that_is_launched_for_and_copied_to(tmp_path: Path) -> None:
    launching = host(*steps((LAUNCH, 50.0)))
    found = diagnosis(tmp_path, launching, gpu(("MemcpyH2D", 0, 20), ("volta_sgemm", 50, 50)))
    costs = {cause.code: cause.cost_percent for cause in found.causes}
    assert costs["input_copy"] == Range(20.0, 20.0)
    assert costs["launch_bound"] == Range(30.0, 30.0)


def test_launches_are_those_of_the_device_that_works_in_the_steps(tmp_path: Path) -> None:
    """GPU:1 runs more kernels, after the steps."""
    late = plane("/device:GPU:1", line("Stream #1", *(event("volta_sgemm", 10_000 + 10 * n, 5) for n in range(90))))
    found = diagnosis(tmp_path, host(*steps((LAUNCH, 50.0))), gpu(("volta_sgemm", 50, 50)), late)
    assert cause_of(found, "launch_bound").detail == "1 kernel per step on GPU:0"


@pytest.mark.parametrize(("is_of_arrays", "action"), [(False, "prefetch_to_device"), (True, "arrays_to_device")])
def test_arrays_that_keras_batches_need_a_dataset_first(tmp_path: Path, is_of_arrays: bool, action: str) -> None:
    """Keras makes the pipeline, so there is none in the program to append to."""
    keras = event("__inference_train_function_1", 0, 1)
    fed = keras_arrays() if is_of_arrays else [call("Root", 1, 6, 1), call("Root::Map", 2, 5, 2, 1)]
    batches = line("pool", *fed, id=7)
    python = line("python", *steps((LAUNCH, 50.0)), keras, id=8)
    planes = plane("/host:CPU", python, batches), gpu(("MemcpyH2D", 0, 20), ("volta_sgemm", 50, 50))
    copied = cause_of(diagnosis(tmp_path, *planes), "input_copy")
    assert sorted(actions_of(copied)) == sorted(["smaller_types", action])


def test_one_used_device_of_several_shares_its_work(tmp_path: Path) -> None:
    used, unused = gpu(("volta_sgemm", 0, 90)), plane("/device:GPU:1")
    assert actions_of(causes_of(tmp_path, *on_host((LAUNCH, 5.0)), used, unused)["idle_devices"]) == ["use_all_devices"]


def test_memory_is_judged_without_steps_too(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, host(event(OP, 0, 10), allocation(5, 950)))
    assert found.headline.startswith("No step time was measured: ")
    assert codes_of(found.causes) == ["memory_pressure"]


def test_a_full_memory_is_on_the_first_screen(tmp_path: Path) -> None:
    """Its gain is unknown, so it is the last cause."""
    results = results_of(trace_of(tmp_path, host(event(OP, 0, 10), allocation(5, 950))))
    found = results["diagnosis"]
    others = (replace(found.causes[0], code=code) for code in ("host_ops", "input_wait", "launch_bound"))
    results._combined["diagnosis"] = replace(found, causes=(*others, *found.causes))
    brief = [finding.code for finding in build(results).findings if finding.level == "brief"]
    assert brief == ["nothing", "host_ops", "memory_pressure"]


def test_ops_on_the_host_that_a_device_waits_for(tmp_path: Path) -> None:
    # An op runs for 30 us and launches nothing; then the device works for 60 us.
    cause = causes_of(tmp_path, host(*steps(("Cast:Cast", 30))), gpu(("volta_sgemm", 30, 60)))["host_ops"]
    assert cause.cost_percent == Range(30.0, 30.0)
    assert [(action.code, action.step_ms) for action in cause.actions] == [("move_ops", None)]


def test_a_part_of_a_category_says_of_how_much(tmp_path: Path) -> None:
    # Of 50 us in which the host launches, 10 are ops that Python runs one by one.
    launching = host(*steps(("EagerExecute: Add", 10.0), (LAUNCH, 40.0)))
    found = diagnosis(tmp_path, launching, gpu(("volta_sgemm", 50, 50)))
    cause = cause_of(found, "launch_bound")
    assert cause.cost_percent == Range(30.0, 30.0)
    assert cause.detail.endswith("part of 40.0% in total")
    assert [str(quantity) for quantity in cause.quantities][-1:] == ["40.0%"]


def test_evaluation_has_causes_of_its_own(tmp_path: Path) -> None:
    events = [*steps((OP, 100)), *steps((FETCH, 80), (OP, 20), kind="eval", start=500.0)]
    found = diagnosis(tmp_path, host(*events))
    assert [(cause.code, cause.kind) for cause in found.causes] == [("evaluation", "train"), ("input_wait", "eval")]
    assert found.headline.startswith("Evaluation takes 50.0%"), "the headline is about training"


def test_evaluation_is_judged_by_its_own_figures(tmp_path: Path) -> None:
    """Train steps are in a call for all of their 20 ms, eval steps for 12 of them."""
    evals = [event("eval", 20_000 * n, 20_000, step_num=n) for n in range(5, 10)]
    called = [event(name, 20_000 * n, 20_000 if n < 5 else 12_000) for n in range(10) for name in (CALL, OP)]
    found = diagnosis(tmp_path, host(*marks(5, 20_000), *evals, *called))
    cause = next(cause for cause in found.causes if cause.kind == "eval")
    assert (cause.code, cause.kind, cause.title) == ("python_between_steps", "eval", "Python between calls")
    assert cause.cost_percent == Range(40.0, 40.0)


@pytest.mark.parametrize(
    ("stage", "root", "stage_waited_for", "first", "has_estimate"),
    [
        ("Filter", 11, "the blocking tf.data stage is Filter", "cache", True),
        ("Map", 1, "the blocking tf.data stage is Map", "prefetch", False),
        ("", 1, "the profile does not show the source of the batches", "look_at_stages", False),
    ],
)
def test_evaluation_has_the_changes_of_its_own_pipeline(
    tmp_path: Path, stage: str, root: int, stage_waited_for: str, first: str, *, has_estimate: bool
) -> None:
    job = plane("/host:CPU", training_and_evaluation(eval_stage=stage, eval_root=root))
    cause = next(each for each in diagnosis(tmp_path, job).causes if each.kind == "eval")
    assert (cause.code, cause.cost_percent) == ("input_wait", Range(60.0, 60.0))
    assert cause.detail == stage_waited_for
    assert (cause.actions[0].code, cause.actions[0].step_ms is not None) == (first, has_estimate)


def test_a_device_that_does_nothing(tmp_path: Path) -> None:
    working = gpu(("volta_sgemm", 0, 100))
    found = diagnosis(tmp_path, host(*steps((OP, 10))), working, plane("/device:GPU:1"))
    cause = cause_of(found, "idle_devices")
    assert cause.title == "1 of 2 devices are unused"
    assert cause.detail == "they appear in the profile but run nothing, or only copies outside of the steps"
    assert (cause.cost_ms, cause.cost_percent) == (None, None)


@settings(max_examples=min(60, settings().max_examples), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from([FETCH, OP, CALL, LAUNCH, "tf.function-graph_building", "EagerExecute: Add"]),
            st.floats(0, 60),
        ),
        max_size=8,
    ),
    st.lists(
        st.tuples(
            st.sampled_from(["MemcpyH2D", "MemcpyD2H", "sgemm", "ncclAllReduce"]), st.floats(0, 100), st.floats(0, 100)
        ),
        max_size=6,
    ),
)
def test_the_costs_of_a_step_never_exceed_it(
    tmp_path: Path, on_host: list[tuple[str, float]], on_gpu: list[tuple[str, float, float]]
) -> None:
    planes = [host(*steps(*on_host))] + ([gpu(*on_gpu)] if on_gpu else [])
    causes = diagnosis(tmp_path, *planes).causes
    assert sum(cause.cost_percent.high for cause in causes if cause.cost_percent) <= 100.0 + 1e-6
    for cause in causes:
        check(cause)
    gains = [cause.gain for cause in causes]
    assert gains == sorted(gains, reverse=True)


def check(cause: Cause) -> None:
    assert cause.code in NEEDS, "what it takes to judge a cause is declared"
    assert sentence_of(cause).endswith(".")
    if cause.cost_percent is not None:
        assert 0.0 <= cause.cost_percent.low <= cause.cost_percent.high
    for action in cause.actions:
        assert action.url.startswith("https://")
        if action.step_ms is not None:
            assert 0.0 <= action.step_ms.low <= action.step_ms.high <= cause.step_ms * (1 + 1e-9)


def test_jobs_of_jax_get_pages_about_jax() -> None:
    pages = {code: advice.page("jax", is_tpu=False) for code, advice in ADVICE.items() if "jax" in advice.texts}
    others = {code for code, page in pages.items() if re.search(r"tensorflow\.org|keras\.io", page)}
    assert others == {"look_at_stages", "smaller_layer"}, "tf.data and Keras serve JAX, too"


def test_without_steps_compilation_in_most_of_the_capture_is_the_cause(tmp_path: Path) -> None:
    """Two threads compile from 0 to 60 us and from 40 to 90 us of 100: 90 %."""
    threads = [event("CompileToBackendResult", 0, 60)], [event("CompileModuleToLlvmIr", 40, 50), event("end", 99, 1)]
    pool = [line(f"compile/{number}", *events, id=number) for number, events in enumerate(threads, 1)]
    diagnosis = diagnose(results_of(trace_of(tmp_path, plane("/host:CPU", *pool))))
    (cause,) = diagnosis.causes
    assert (cause.code, cause.cost_percent, cause.actions[0].code) == ("compilation", None, "profile_later")
    assert "XLA compiles during 90.0% of the capture" in sentence_of(cause)


def test_without_steps_ops_that_run_one_by_one_are_judged_over_the_capture(tmp_path: Path) -> None:
    ops = [event("EagerExecute", at, 30, is_func=0, eager_op=ref(op)) for at, op in ((0, "MatMul"), (70, "Add"))]
    diagnosis = diagnose(results_of(trace_of(tmp_path, host(*ops))))
    (cause,) = diagnosis.causes
    assert (cause.code, cause.cost_percent, cause.actions[0].code) == ("eager_ops", None, "mark_steps")
    assert "2 ops outside any function take 60.0% of the capture (top: Add, MatMul)" in sentence_of(cause)
    assert "No step time was measured" in diagnosis.headline
    few = [ops[0], event("end", 200, 1)]
    assert diagnose(results_of(trace_of(tmp_path, host(*few)))).causes == ()


def test_a_loop_of_another_thread_is_named_on_the_first_screen(tmp_path: Path) -> None:
    first = line("python", *repeat(8, event("train_a", 0, 90, **CALLED)), id=1)
    second = line("python", *repeat(11, event("train_b", 0, 60, **CALLED), every=70), id=2)
    notes = build(results_of(trace_of(tmp_path, plane("/host:CPU", first, second)))).notes
    assert notes[0].startswith(
        "Another thread runs a separate loop at the same time (train_b: 11 times, median 0.06 ms)"
    )


PARTS = ("compilation", "input_wait", "kernel_launch", "host_compute", "all_others")


def test_a_claim_takes_what_is_left() -> None:
    ledger = Ledger(20.0, {"kernel_launch": 30.0, "host_compute": 50.0})
    assert ledger.claim("kernel_launch", "host_compute", most=40.0) == Range(40.0, 40.0)
    assert (ledger.left("kernel_launch"), ledger.left("host_compute")) == (0.0, 40.0)
    assert ledger.claim("host_compute", most=90.0, least=10.0) == Range(10.0, 40.0)
    assert ledger.left("host_compute") == 0.0


def test_what_is_unknown_is_blamed_on_nothing() -> None:
    ledger = Ledger(20.0, {"input_wait": 30.0}, frozenset({"input_wait"}))
    assert ledger.claim("input_wait") == Range(0.0, 0.0)


def test_without_steps_there_is_no_ledger() -> None:
    with pytest.raises(ValueError, match="steps"):
        ledger_of(Summary(kind="train", step_count=0, averaged_count=0), frozenset())


@given(
    st.lists(st.floats(0, 20), min_size=5, max_size=5),
    st.lists(st.tuples(st.lists(st.sampled_from(PARTS), min_size=1), st.none() | st.floats(0, 200)), max_size=8),
)
def test_claims_never_exceed_the_step(shares: list[float], claims: list[tuple[list[str], float | None]]) -> None:
    ledger = Ledger(10.0, dict(zip(PARTS, shares, strict=True)))
    claimed = sum(ledger.claim(*parts, most=most).high for parts, most in claims)
    assert claimed <= sum(shares) + 1e-6
    assert ledger.left(*PARTS) >= 0.0
