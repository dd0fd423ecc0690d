from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, line, plane, trace_of
from jax_builders import FORWARD, GRADIENT, OTHER, call, jax_trace, program, programs, run
from msgspec.structs import replace

from tfperf.formats.hlo.messages import read_names
from tfperf.trace.event_names import canonical
from tfperf.trace.jax import CLASSES, JaxCalls, find_jax_calls, find_runs, program_class
from tfperf.trace.read import read_host

US = 1_000_000


def classes(calls: JaxCalls) -> list[str]:
    return [CLASSES[kind] for kind in calls.kind.tolist()]


def test_a_call_is_counted_once_though_it_is_noted_twice(tmp_path: Path) -> None:
    inner = call("add", 12, 3)
    trace = jax_trace(tmp_path, {}, [*call("step", 0, 5), *call("step", 10, 8, *inner), *call("add", 20, 2)], [])
    calls = find_jax_calls(trace)
    assert calls is not None
    assert [calls.names[name] for name in calls.name.tolist()] == ["step", "step", "add"]
    assert (calls.start / US).tolist() == [0, 10, 20]
    assert classes(calls) == ["unknown"] * 3


def test_calls_without_what_they_run_are_left_alone(tmp_path: Path) -> None:
    trace = jax_trace(tmp_path, {}, call("step", 0, 5), [])
    assert find_jax_calls(replace(trace, hlo_protos=None)) is None
    assert find_jax_calls(replace(trace, read_stats=trace.read_stats - {"run_id"})) is None


def test_a_trace_without_calls_has_none_and_decodes_no_program(tmp_path: Path) -> None:
    made = plane("/host:CPU", line("python", event("train", 0, 10, run_id=4)))
    trace = trace_of(tmp_path, programs({1: ("jit_f", (GRADIENT,))}), made)
    assert find_jax_calls(trace) is None
    bare = read_host(trace.path, stats=frozenset())
    assert bare.hlo_protos is None
    assert "run_id" not in bare.read_stats


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ((OTHER, GRADIENT), "gradient"),
        ((OTHER, ("fusion", "gradient_tape/dense/MatMul")), "gradient"),
        ((OTHER, FORWARD), "forward"),
        ((("custom-call", "jit(f)/dot_general"),), "forward"),
        ((("custom-call", "jit(f)/conv_general_dilated"),), "forward"),
        ((("custom-call", "jit(f)/top_k"),), "other"),
        ((("custom-call", "jit(f)/pallas_call"),), "unknown"),
        ((FORWARD, ("custom-call", "jit(f)/pallas_call")), "forward"),
        ((("transpose", "jit(f)/transpose"),), "other"),
    ],
)
def test_the_class_of_a_program(instructions: tuple[tuple[str, str], ...], expected: str) -> None:
    parsed = read_names(program("jit_f", *instructions))
    assert parsed is not None
    assert program_class(parsed) == expected


@pytest.mark.parametrize(
    ("function", "module"), [("<lambda>", "jit__lambda"), ("<lambda>", "jit__lambda_"), ("f.g", "jit_f_g"), ("f", "f")]
)
def test_a_function_and_its_program_have_one_canonical_name(function: str, module: str) -> None:
    assert canonical(function) == canonical(module)


def test_runs_belong_to_calls_in_order_and_those_called_before_the_capture_to_none(tmp_path: Path) -> None:
    trace = jax_trace(
        tmp_path,
        {7: ("jit_step", (GRADIENT,))},
        [*call("step", 10, 2), *call("step", 20, 2), *call("step", 90, 2)],
        [*run(-5, 7, 4, 10), *run(-6, 7, 14, 16), *run(-7, 7, 30, 20)],
    )
    calls = find_jax_calls(trace)
    assert calls is not None
    assert len(find_runs(trace).start) == 3
    assert [(start, end) for start, end in zip(calls.work.start.tolist(), calls.work.end.tolist(), strict=True)] == [
        (14 * US, 30 * US),
        (30 * US, 50 * US),
        (-1, -1),
    ]


def test_a_run_on_several_devices_may_begin_with_an_event_that_only_waits(tmp_path: Path) -> None:
    waits = event("ThunkExecutor::Execute (wait for completion)", 11, 2, run_id=4)
    trace = jax_trace(tmp_path, {7: ("jit_f", (GRADIENT,))}, call("f", 10, 20), [waits, *run(4, 7, 14, 6)])
    assert find_runs(trace).program.tolist() == [7]
    calls = find_jax_calls(trace)
    assert calls is not None
    assert (calls.work.start[0] / US, calls.work.end[0] / US) == (11, 20)


def test_on_a_tpu_the_work_is_that_of_the_runs_on_all_chips(tmp_path: Path) -> None:
    """Each chip works for 10 us, one 2 us later than the other; the second call ran on one chip only."""
    runs = (("jit_f(1)", 20, 10), ("jit_f(1)", 50, 10))
    chips = [
        plane(f"/device:TPU:{late}", line("XLA Modules", *(event(name, at + late, us) for name, at, us in runs[late:])))
        for late in (0, 1)
    ]
    python = [*call("f", 12, 5), *call("f", 42, 5)]
    trace = trace_of(tmp_path, *chips, plane("/host:CPU", line("python", *python)), programs({1: ("jit_f", (OTHER,))}))
    calls = find_jax_calls(trace)
    assert calls is not None
    assert (calls.work.start / US).tolist() == [20, 50]
    assert (calls.work.end / US).tolist() == [30, 61]
    assert (calls.work.each_ps / US).tolist() == [10, 10]
    assert calls.work.program.tolist() == [1, 1]
    assert calls.work.known.all()


def test_a_call_on_a_tpu_compiles_until_xla_is_done(tmp_path: Path) -> None:
    python = line("python", *call("f", 10, 90, event("backend_compile", 15, 20)), *call("f", 110, 5))
    made = plane("/device:TPU:0", line("XLA Modules", event("jit_f(1)", 95, 10)))
    calls = find_jax_calls(trace_of(tmp_path, made, plane("/host:CPU", python), programs({})))
    assert calls is not None
    assert (calls.compile_ps / US).tolist() == [25, 0]


def test_functions_of_one_name_are_told_apart_by_the_program_that_ran(tmp_path: Path) -> None:
    trace = jax_trace(
        tmp_path,
        {1: ("jit_loss", (GRADIENT,)), 2: ("jit_loss", (FORWARD,))},
        [*call("loss", 0, 2), *call("loss", 20, 2)],
        [*run(1, 1, 3, 10), *run(2, 2, 23, 10)],
    )
    calls = find_jax_calls(trace)
    assert calls is not None
    assert classes(calls) == ["gradient", "forward"]
    assert len(set(calls.token.tolist())) == 2


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ((("parameter", ""), ("multiply", "jit(multiply)/mul"), ("fusion", "jit(multiply)/mul")), True),
        ((("multiply", "jit(f)/mul"), ("add", "jit(f)/add")), False),
        ((("add", "jit(f)/add"), ("add", "jit(f)/add")), False),  # a tree of arrays
        ((("add", ""),), False),  # nothing says what it comes from
    ],
)
def test_a_program_of_one_op(tmp_path: Path, instructions: tuple[tuple[str, str], ...], expected: bool) -> None:
    calls = find_jax_calls(jax_trace(tmp_path, {1: ("jit_f", instructions)}, call("f", 0, 5), []))
    assert calls is not None
    assert calls.is_op.tolist() == [expected]


def test_on_a_gpu_the_work_is_what_was_launched_during_the_call_on_any_thread(tmp_path: Path) -> None:
    python = line("python", *call("step", 0, 10), *call("step", 20, 10), id=1)
    launches = [event("hipModuleLaunchKernel", at, 1, correlation_id=n) for n, at in enumerate((3, 5, 22, 40), 1)]
    kernels = [
        event("k.kd", at, 4, correlation_id=n, hlo_op="k", program_id=6) for n, at in enumerate((8, 13, 30, 50), 1)
    ]
    trace = trace_of(
        tmp_path,
        programs({6: ("jit_step", (FORWARD,))}),
        plane("/device:GPU:0", line("Stream #1(Kernel)", *kernels)),
        plane("/host:CPU", python, line("Host Threads/9", *launches, id=9)),
    )
    calls = find_jax_calls(trace)
    assert calls is not None
    assert (calls.work.start // US).tolist() == [8, 30]
    assert (calls.work.end // US).tolist() == [17, 34]
    assert calls.work.program.tolist() == [6, 6]


def test_a_call_that_compiles_says_so(tmp_path: Path) -> None:
    compiling = event("backend_compile_and_load", 21, 5)
    trace = jax_trace(tmp_path, {}, [*call("step", 0, 10), *call("step", 20, 10, compiling)], [])
    calls = find_jax_calls(trace)
    assert calls is not None
    assert calls.compiles.tolist() == [False, True]
