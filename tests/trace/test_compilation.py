from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import PS_PER_US, Event, event, host, line, plane, ref, trace_of

from tfperf.base.arrays import Intervals
from tfperf.trace.host.activities import Activity, busy_times, tracing_calls, xla_compilations
from tfperf.trace.steps.step_calls import find_calls
from tfperf.trace.steps.steps import label_kinds

LOCAL = "EagerLocalExecute: __inference_work_7"


def microseconds(times: Intervals) -> list[tuple[int, int]]:
    return list(zip((times.start // PS_PER_US).tolist(), (times.end // PS_PER_US).tolist(), strict=True))


def call(mode: str, *inside: Event) -> tuple[Event, ...]:
    return (event("work", 0, 100, tf_function_call=ref(mode), tracing_count=1), *inside)


def test_a_call_that_traces_compiles_but_for_its_run(tmp_path: Path) -> None:
    run = event(LOCAL, 50, 50), event("EagerKernelExecute", 80, 18)
    building = event("tf.function-graph_building", 5, 40)
    trace = trace_of(tmp_path, host(*call("traced-nonXla", building, *run)))
    assert microseconds(tracing_calls(trace)) == [(0, 80), (98, 100)]
    assert microseconds(busy_times(trace)[Activity.COMPILE]) == [(0, 80), (98, 100)]


def test_a_call_that_only_runs_does_not_compile(tmp_path: Path) -> None:
    run = event(LOCAL, 50, 50), event("EagerKernelExecute", 80, 18)
    trace = trace_of(tmp_path, host(*call("notTraced-nonXla", *run)))
    assert microseconds(tracing_calls(trace)) == []


def test_where_the_run_is_not_in_the_trace_only_building_the_graph_counts(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(*call("traced-nonXla", event("tf.function-graph_building", 5, 40))))
    assert microseconds(busy_times(trace)[Activity.COMPILE]) == [(5, 45)]


def test_xla_compiles_until_the_program_runs(tmp_path: Path) -> None:
    """What it folds meanwhile is an op with the name of a gradient: that alone does not make a training step."""
    folded = event("ExecutorState::Process", 12, 3), event("gradient_tape/Tile:Tile", 13, 1)
    backend, runs = event("CpuCompiler::RunBackend", 30, 20), event("CpuExecutable::ExecuteAsyncOnStream", 60, 30)
    run = event("__inference_work_7:__inference_work_7", 10, 85), *folded, backend, runs
    trace = trace_of(tmp_path, host(*call("notTraced-xla", *run)))
    assert microseconds(xla_compilations(trace)) == [(10, 60)]
    assert find_calls(trace).traced.tolist() == [True]
    assert label_kinds(trace, np.array([0]), np.array([100 * PS_PER_US]), ["work"]) == ("step",)


def test_on_a_thread_of_an_executor_xla_compiles_from_the_end_of_the_op_before(tmp_path: Path) -> None:
    executor = event("ExecutorState::Process", 0, 100), event("x:MatMul", 5, 5), event("y:Add", 12, 3)
    compiled = event("simplification", 30, 5), event("GpuCompiler::RunBackend", 40, 20)
    runs = event("GpuExecutable::ExecuteAsyncOnStream", 70, 20), event("z:Add", 92, 2)
    trace = trace_of(tmp_path, plane("/host:CPU", line("tf_Compute", *executor, *compiled, *runs)))
    assert microseconds(xla_compilations(trace)) == [(15, 70)]


def test_what_the_trace_does_not_surround_is_only_the_backend(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("$f.py:1 f", 0, 50), event("CpuCompiler::RunBackend", 10, 20)))
    assert microseconds(xla_compilations(trace)) == [(10, 30)]
