from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import PS_PER_US, Line, event, host, line, plane, trace_of
from msgspec.structs import replace

from tfperf.formats.hlo.messages import XLA
from tfperf.trace.host.host_ops import (
    EAGER,
    EAGERLY,
    FUNCTION,
    OF_INPUT,
    UNKNOWN,
    HostOps,
    OpEvents,
    device_op_events,
    function_calls,
    host_op_events,
    host_ops,
)
from tfperf.trace.host_trace import HostTrace

US = 1_000_000


def flags(summed: HostOps) -> dict[str, int]:
    """How the ops that occur were run."""
    return {summed.ops[at].name: int(summed.eager[at]) for at in range(len(summed.ops)) if summed.count[at]}


def test_an_op_inside_an_eager_execution_is_eager(tmp_path: Path) -> None:
    python = line(
        "python",
        event("EagerExecute", 0, 20, is_func=0, eager_op="Tanh"),
        event("EagerKernelExecute", 5, 10),
        event("Tanh:Tanh", 6, 5),
        event("EagerExecute", 30, 20, is_func=1),
        event("f/MatMul:MatMul", 35, 5),
    )
    executor = line("executor", event("ExecutorState::Process", 0, 9), event("f/Add:Add", 1, 5))
    assert flags(host_ops(trace_of(tmp_path, plane("/host:CPU", python, executor)))) == {
        "Tanh": EAGER,
        "f/MatMul": FUNCTION,
        "f/Add": FUNCTION,
    }


def test_the_innermost_decides(tmp_path: Path) -> None:
    """An eager fetch runs the pipeline's graph; the graph runs Python, and that an op."""
    made = host(
        event("EagerExecute", 0, 90, is_func=0, eager_op="IteratorGetNext"),
        event("IteratorGetNext:IteratorGetNext", 1, 80),
        event("Iterator::Root::Map", 2, 70),
        event("ExecutorState::Process", 5, 60),
        event("map/Cast:Cast", 6, 10),
        event("EagerExecute", 20, 20, is_func=0, eager_op="Mul"),
        event("inner/Mul:Mul", 22, 10),
    )
    assert flags(host_ops(trace_of(tmp_path, made))) == {
        "IteratorGetNext": EAGER,
        "Iterator::Root::Map": UNKNOWN,
        "map/Cast": FUNCTION,
        "inner/Mul": EAGER,
    }


def test_old_names_say_what_is_run(tmp_path: Path) -> None:
    made = host(
        event("EagerExecute: __inference_f_1", 0, 20),
        event("f/Add:Add", 5, 5),
        event("EagerExecute: LogicalAnd", 30, 9),
        event("LogicalAnd:LogicalAnd", 32, 5),
    )
    assert flags(host_ops(trace_of(tmp_path, made))) == {"f/Add": FUNCTION, "LogicalAnd": EAGER}


def test_what_the_profiler_noted_comes_first(tmp_path: Path) -> None:
    noted = event("A:A", 0, 9, is_eager=1), event("A:A", 10, 9, is_eager=0), event("B:B", 20, 9, is_eager=0)
    trace = trace_of(tmp_path, host(*noted, event("C:C", 30, 9)))
    assert flags(host_ops(trace)) == {"A": EAGER, "B": FUNCTION, "C": UNKNOWN}


def test_nothing_is_known_without_events_of_running_ops(tmp_path: Path) -> None:
    assert flags(host_ops(trace_of(tmp_path, host(event("A:A", 0, 9))))) == {"A": UNKNOWN}
    trace = trace_of(tmp_path, host(event("EagerExecute", 0, 9, is_func=-5), event("A:A", 1, 5)))
    assert flags(host_ops(trace)) == {"A": FUNCTION}, "an odd value is no eager op"


def compiled_trace(tmp_path: Path) -> HostTrace:
    """Two programs; `fusion` is in both and comes from different ops, `copy` comes from none, 9 is no program."""
    ops = ("fusion", 1, 10, 4), ("fusion", 21, 20, 5), ("copy", 50, 5, 4), ("fusion", 60, 30, 9)
    made = (event(name, at, lasts, hlo_op=name, program_id=id) for name, at, lasts, id in ops)
    known = {
        4: program("first", fusion=("fusion", "m/dense/MatMul", "MatMul"), copy=("copy", "", "")),
        5: program("second", fusion=("fusion", "m/out/Add", "AddV2")),
    }
    return replace(trace_of(tmp_path, host(event("m/dense:__inference", 0, 100), *made)), hlo_protos=known)


def program(module: str, **instructions: tuple[str, str, str]) -> bytes:
    """An HLO module; an instruction is its opcode, and name and type of the framework's op."""
    proto = XLA.message_class("NamedProto")()
    proto.hlo_module.name = module.encode()
    computation = proto.hlo_module.computations.add()
    for name, (opcode, op_name, op_type) in instructions.items():
        made = computation.instructions.add()
        made.name, made.opcode = name.encode(), opcode.encode()
        made.metadata.op_name, made.metadata.op_type = op_name.encode(), op_type.encode()
    data: bytes = proto.SerializeToString()
    return data


def test_an_event_that_xla_compiled_is_the_op_that_it_was_made_from(tmp_path: Path) -> None:
    summed = host_ops(compiled_trace(tmp_path))
    rows = {
        summed.hlo[at]: (summed.ops[at].name, summed.ops[at].type, int(summed.self_ps[at]) // US)
        for at in summed.hlo
        if summed.count[at]
    }
    assert rows == {
        ("fusion", "first"): ("m/dense/MatMul", "MatMul", 10),
        ("fusion", "second"): ("m/out/Add", "AddV2", 20),
        ("copy", "first"): ("copy", "copy", 5),
        ("fusion", ""): ("fusion", "HLO op", 30),
    }
    assert {int(summed.eager[at]) for at in summed.hlo} == {FUNCTION}


def test_tensorflow_knows_no_compiled_ops_on_the_host(tmp_path: Path) -> None:
    assert host_ops(compiled_trace(tmp_path), "tensorflow").hlo == {}


# --- which function an op runs for: by what is around it, on its thread or through the id of a run ---


def functions(folder: Path, *lines: Line) -> dict[str, str]:
    """Return the function of each event by its name, of those that have one."""
    trace = trace_of(folder, plane("/host:CPU", *lines))
    calls = function_calls(trace)
    found = calls.of(np.arange(len(trace.name)))
    names = [trace.names[name] for name in trace.name.tolist()]
    return {name: calls.names[index] for name, index in zip(names, found.tolist(), strict=True) if index >= 0}


def test_executors_work_for_the_function_whose_run_has_their_id(tmp_path: Path) -> None:
    python = line(
        "python",
        event("EagerLocalExecute: __inference_train_step_12", 0, 100),
        event("FunctionRun", 10, 80, id=7),
        event("EagerLocalExecute: MatMul", 200, 10),
        event("eager:MatMul", 201, 5),
        event("none:Add", 300, 5),
    )
    worker = line(
        "worker",
        event("ExecutorState::Process", 20, 50, id=7),
        event("a/MatMul:MatMul", 30, 10),
        event("ExecutorState::Process", 80, 10, id=99),
        event("unknown:Relu", 81, 5),
    )
    found = functions(tmp_path, python, worker)
    assert found["a/MatMul:MatMul"] == found["FunctionRun"] == "train_step"
    assert found["eager:MatMul"] == EAGERLY
    assert "none:Add" not in found
    assert "unknown:Relu" not in found


def test_functions_of_tf_data_have_no_name_of_their_own(tmp_path: Path) -> None:
    data = line("tf_data", event("InstantiatedCapturedFunction::Run", 0, 50, id=3))
    worker = line("worker", event("ExecutorState::Process", 5, 30, id=3), event("DecodeJpeg:DecodeJpeg", 6, 20))
    assert functions(tmp_path, data, worker)["DecodeJpeg:DecodeJpeg"] == OF_INPUT


def test_the_innermost_call_counts(tmp_path: Path) -> None:
    calls = event("PjitFunction(outer)", 0, 100), event("PjitFunction(inner)", 10, 50)
    found = functions(tmp_path, line("python", *calls, event("dot:", 20, 10), event("add:", 70, 10)))
    assert (found["dot:"], found["add:"]) == ("inner", "outer")


def test_rows_may_be_asked_for_in_any_order_and_none(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, plane("/host:CPU", line("python", event("PjitFunction(f)", 0, 9), event("dot:", 1, 2))))
    calls = function_calls(trace)
    assert calls.of(np.array([1, -1, 0, 1])).tolist() == [0, -1, 0, 0]
    assert calls.of(np.array([], np.int64)).tolist() == []


# --- ops one by one, on threads and devices, with the time that each took itself ---


def rows(events: OpEvents) -> list[tuple[str, str, float, float]]:
    """Return name, type, start and own time (us) of each event."""
    starts, times = (events.start / PS_PER_US).tolist(), (events.self_ps / PS_PER_US).tolist()
    return [(*events.ops[op], start, time) for op, start, time in zip(events.op.tolist(), starts, times, strict=True)]


def job(folder: Path) -> HostTrace:
    ops = (
        event("net/call:PartitionedCall", 0, 100),
        event("net/dense/MatMul:_FusedMatMul", 10, 40),
        event("Iterator::Root", 60, 10, id=1),
        event("$train.py:1 f:Op", 70, 5),
        event("FunctionRun", 80, 10),
    )
    other = line("other", event("net/dense/MatMul:_FusedMatMul", 20, 7))
    return trace_of(folder, plane("/host:CPU", line("python", *ops), other))


def test_own_time_is_without_ops_inside(tmp_path: Path) -> None:
    # Elements of a pipeline are ops too, but none of a graph; frames of Python are none.
    assert rows(host_op_events(job(tmp_path))) == [
        ("net/call", "PartitionedCall", 0, 50),
        ("net/dense/MatMul", "_FusedMatMul", 10, 40),
        ("net/dense/MatMul", "_FusedMatMul", 20, 7),
    ]


def test_sums_are_those_of_the_table_of_ops(tmp_path: Path) -> None:
    trace = job(tmp_path)
    events, table = host_op_events(trace), host_ops(trace)
    for index, (name, kind) in enumerate(events.ops):
        mine = [place for place, op in enumerate(table.ops) if (op.name, op.type) == (name, kind)]
        of_op = events.op == index
        assert int(events.self_ps[of_op].sum()) == sum(int(table.self_ps[place]) for place in mine)
        assert int(of_op.sum()) == sum(int(table.count[place]) for place in mine)


def test_a_kernel_counts_when_it_was_launched(tmp_path: Path) -> None:
    launch = host(event("cuLaunchKernel", 10, 5, correlation_id=7))
    kernels = line(
        "Stream #1",
        event("gemm", 500, 30, correlation_id=7, tf_op="net/MatMul:MatMul"),
        event("relu", 600, 9, tf_op="net/Relu:Relu"),
        event("unknown", 700, 9),
    )
    events = device_op_events(trace_of(tmp_path, launch, plane("/device:GPU:0", kernels)))
    assert rows(events) == [("net/MatMul", "MatMul", 10, 30), ("net/Relu", "Relu", 600, 9)]
    assert (events.begin / PS_PER_US).tolist() == [500, 600]
    assert {*events.plane.tolist()} == {1}


def test_ops_of_a_tpu_core_without_a_name_of_the_framework_keep_their_own(tmp_path: Path) -> None:
    ops = line("XLA Ops", event("while.1", 0, 100), event("fusion.2", 10, 30), event("copy.3", 50, 5))
    names = {"while.1": {"tf_op": "net/while:While"}, "fusion.2": {"tf_op": "net/dense/MatMul:MatMul"}}
    core = plane("/device:TPU:0", ops, name_stats=names)
    # The loop is without what is in it, named or not.
    assert rows(device_op_events(trace_of(tmp_path, core))) == [
        ("net/while", "While", 0, 65),
        ("net/dense/MatMul", "MatMul", 10, 30),
        ("(no framework op)/copy.3", "", 50, 5),
    ]


def test_a_trace_without_ops(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("train", 0, 9)))
    assert rows(host_op_events(trace)) == rows(device_op_events(trace)) == []
