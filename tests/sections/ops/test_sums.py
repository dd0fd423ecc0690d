"""Sums of ops by function, in the capture and in steps: those over functions are the op tables."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import Event, Plane, event, gpu, host, line, plane, read_back, results_of, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_gpu import synthetic_gpu
from synthetic_tpu import offload_tpu, synthetic_tpu

from tfperf.analysis.load import assemble
from tfperf.analysis.registry import UNREPORTED, Results, section_names
from tfperf.sections.ops.analysis import OTHERS, OpKey, OpTable
from tfperf.sections.ops.sums import OpOfFunction, OpSum, OpSums, Sums, of_function, shorten
from tfperf.trace.host.host_ops import NO_FUNCTION

US = 1_000_000
SECTIONS = ["ops", "op_sums"]


def by_op(sums: Sums, field: str) -> dict[OpKey, float]:
    found = Counter[OpKey]()
    for key, value in sums.items():
        found[key.op] += getattr(value, field)
    return dict(found)


def check_tables(results: Results) -> None:
    """Compare the sums with the rows of the op tables."""
    sums, ops = results["op_sums"], results["ops"]
    for mine, table in ((sums.host, ops.host), (sums.device, ops.device)):
        assert by_op(mine, "self_ps") == dict(zip(table.keys, table.self_ps.tolist(), strict=True))
        assert by_op(mine, "calls") == pytest.approx(dict(zip(table.keys, table.occurrences.tolist(), strict=True)))


def steps(*events: Event) -> Plane:
    """Three steps of 100 us, of which the last ends at 300, and what else runs on the thread."""
    marks = [event("train", 100 * number, 100, step_num=number, _r=1) for number in range(3)]
    return host(*marks, *events)


def sums_of(folder: Path, *planes: Plane) -> OpSums:
    sums: OpSums = results_of(trace_of(folder, *planes, links=True), sections=SECTIONS)["op_sums"]
    return sums


def test_time_in_steps_is_cut_at_their_edges_and_runs_count_where_they_start(tmp_path: Path) -> None:
    """An op of 40 us in step 1, one of 50 that reaches 20 us into nothing, one behind the steps; 5 us are inside."""
    inside = (event("m/a:Op", 110, 40), event("m/b:Op", 120, 5), event("m/a:Op", 270, 50), event("m/a:Op", 400, 10))
    sums = sums_of(tmp_path, steps(*inside))
    assert sums.step_count == 3
    assert sums.host == {
        of_function(OpKey("m/a", "Op")): OpSum(3, 95 * US, 2, 65 * US, 0),
        of_function(OpKey("m/b", "Op")): OpSum(1, 5 * US, 1, 5 * US, 0),
    }


def test_what_xla_compiled_is_of_the_function_of_its_program() -> None:
    names = {"a_inference_train_step_97__XlaMustCompile_true_.5": "train_step", "jit_loss": "loss", "module": "module"}
    for module, function in names.items():
        assert of_function(OpKey("op", "Op", "fusion", module)).function == function
    assert of_function(OpKey("op", "Op", "fusion", "jit_loss"), "g").function == "g"
    assert of_function(OpKey("op", "Op")).function == NO_FUNCTION


def test_an_op_of_several_functions_has_a_sum_for_each(tmp_path: Path) -> None:
    python = line(
        "python",
        event("EagerLocalExecute: __inference_f_1", 0, 50),
        event("FunctionRun", 1, 40, id=1),
        event("EagerLocalExecute: __inference_g_2", 60, 50),
        event("FunctionRun", 61, 40, id=2),
    )
    worker = line(
        "worker",
        event("ExecutorState::Process", 5, 30, id=1),
        event("m/a:Op", 10, 20),
        event("ExecutorState::Process", 65, 30, id=2),
        event("m/a:Op", 70, 5),
    )
    sums = sums_of(tmp_path, plane("/host:CPU", python, worker))
    assert {key.function: value.self_ps for key, value in sums.host.items()} == {"f": 20 * US, "g": 5 * US}


def test_kernels_are_of_the_function_that_launched_them(tmp_path: Path) -> None:
    """Two kernels for each run: an op with two runs, one for each of two functions."""
    calls: list[Event] = []
    kernels: list[Event] = []
    for number, function in enumerate("fg"):
        start = 100 * number
        calls += [
            event(f"EagerLocalExecute: __inference_{function}_1", start, 50),
            event("m/a:Op", start + 5, 20),
            event("cuLaunchKernel", start + 6, 2, correlation_id=2 * number + 1),
            event("cuLaunchKernel", start + 9, 2, correlation_id=2 * number + 2),
        ]
        kernels += [
            event("k", start + 20 + 10 * at, 8, correlation_id=2 * number + 1 + at, tf_op="m/a:Op") for at in (0, 1)
        ]
    sums = sums_of(tmp_path, host(*calls), gpu(*kernels))
    assert {key.function: (value.calls, value.self_ps) for key, value in sums.device.items()} == {
        "f": (1, 16 * US),
        "g": (1, 16 * US),
    }


@pytest.mark.parametrize("made", [synthetic_gpu, synthetic_tpu])
def test_devices_have_the_sums_of_their_tables(made: Callable[[], bytes], tmp_path: Path) -> None:
    results = results_of(read_back(tmp_path, made()), sections=SECTIONS)
    check_tables(results)
    sums = results["op_sums"]
    assert sums.has_device
    assert sum(value.step_self_ps for value in sums.device.values()) > 0


def test_ops_of_a_tpu_are_of_the_functions_of_their_programs(tmp_path: Path) -> None:
    sums = results_of(read_back(tmp_path, offload_tpu()), sections=["op_sums"])["op_sums"]
    assert {key.function for key in sums.device} == {"f", "_psum", "broadcast_in_dim"}
    assert sums.device_count == 2


def test_ops_beyond_those_kept_are_one() -> None:
    names = ("small", "large", "middle")
    sums = {
        OpOfFunction(OpKey(name, name), "train"): OpSum(1.0, time, 1.0, time - 1, 0)
        for name, time in zip(names, (2, 9, 5), strict=True)
    }
    whole = OpSums(host=sums, device={}, has_device=False, step_count=4)
    assert shorten(whole, 3).host is sums
    short = shorten(whole, 1)
    assert (short.device, short.step_count) == ({}, 4)
    assert short.host == {
        OpOfFunction(OpKey("large", "large"), "train"): OpSum(1.0, 9, 1.0, 8, 0),
        OpOfFunction(OTHERS, NO_FUNCTION): OpSum(2.0, 7, 2.0, 5, 0),
    }


def test_hosts_are_added_up(tmp_path: Path) -> None:
    one = trace_of(tmp_path, steps(event("m/a:Op", 110, 40)), links=True)
    two = trace_of(tmp_path, steps(event("m/a:Op", 110, 7), event("m/b:Op", 130, 2)), links=True)
    results = results_of(one, two, sections=SECTIONS)
    check_tables(results)
    assert results["op_sums"].step_count == 6


def test_no_report_has_them_and_no_list_of_sections(tmp_path: Path) -> None:
    assert not set(UNREPORTED) & set(section_names())
    report = assemble(results_of(trace_of(tmp_path, steps()), sections=[*SECTIONS, *UNREPORTED]))
    names = {section.name for section in report.sections}
    assert "ops" in names
    assert not set(UNREPORTED) & names


NAMES = ("m/layer_1/a:Op", "m/layer_2/a:Op", "loss:Sum", "Iterator::Root::Map", "FunctionRun", "f/g/h:Mul")
EVENTS = st.lists(
    st.builds(event, st.sampled_from(NAMES), st.integers(0, 300), st.integers(1, 120)), min_size=1, max_size=12
)
KERNELS = st.lists(
    st.tuples(
        st.sampled_from(("k1", "k2", "MemcpyH2D")),
        st.integers(0, 300),
        st.integers(1, 50),
        st.sampled_from(("", "m/a:Op", "b:Mul")),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=3), KERNELS)
def test_the_sums_of_any_trace_are_those_of_the_tables(
    threads: list[list[Event]], kernels: list[tuple[str, int, int, str]]
) -> None:
    lines = [line(f"thread {number}", *events) for number, events in enumerate(threads)]
    planes = [plane("/host:CPU", *lines)]
    if kernels:
        planes.append(gpu(*(_kernel(*kernel) for kernel in kernels)))
    with tempfile.TemporaryDirectory() as folder:
        results = results_of(trace_of(Path(folder), *planes, links=True), sections=SECTIONS)
    check_tables(results)
    host_table: OpTable = results["ops"].host
    assert sum(value.self_ps for value in results["op_sums"].host.values()) == int(host_table.self_ps.sum())


def _kernel(name: str, start: int, duration: int, op: str) -> Event:
    return event(name, start, duration, **({"tf_op": op} if op else {}))
