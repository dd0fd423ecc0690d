from __future__ import annotations

from pathlib import Path

from builders import event, host, line, plane, trace_of
from msgspec.structs import replace

from tfperf.formats.hlo.messages import XLA
from tfperf.trace.host.host_ops import EAGER, FUNCTION, UNKNOWN, HostOps, host_ops
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.eager import run_from_python

US = 1_000_000


def flags(summed: HostOps) -> dict[str, int]:
    """How the ops that occur were run."""
    return {summed.ops[at].name: int(summed.eager[at]) for at in range(len(summed.ops)) if summed.count[at]}


def test_an_op_inside_an_eager_execution_is_eager(tmp_path: Path) -> None:
    made = plane(
        "/host:CPU",
        line(
            "python",
            event("EagerExecute", 0, 20, is_func=0, eager_op="Tanh"),
            event("EagerKernelExecute", 5, 10),
            event("Tanh:Tanh", 6, 5),
            event("EagerExecute", 30, 20, is_func=1),
            event("f/MatMul:MatMul", 35, 5),
        ),
        line("executor", event("ExecutorState::Process", 0, 9), event("f/Add:Add", 1, 5)),
    )
    assert flags(host_ops(trace_of(tmp_path, made))) == {"Tanh": EAGER, "f/MatMul": FUNCTION, "f/Add": FUNCTION}


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
    trace = trace_of(
        tmp_path,
        host(
            event("EagerExecute: __inference_f_1", 0, 20),
            event("f/Add:Add", 5, 5),
            event("EagerExecute: LogicalAnd", 30, 9),
            event("LogicalAnd:LogicalAnd", 32, 5),
        ),
    )
    assert flags(host_ops(trace)) == {"f/Add": FUNCTION, "LogicalAnd": EAGER}


def test_what_the_profiler_noted_comes_first(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        host(
            event("A:A", 0, 9, is_eager=1),
            event("A:A", 10, 9, is_eager=0),
            event("B:B", 20, 9, is_eager=0),
            event("C:C", 30, 9),
        ),
    )
    assert flags(host_ops(trace)) == {"A": EAGER, "B": FUNCTION, "C": UNKNOWN}


def test_nothing_is_known_without_events_of_running_ops(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("A:A", 0, 9)))
    assert run_from_python(trace) is None
    assert flags(host_ops(trace)) == {"A": UNKNOWN}


def test_odd_values_of_is_func_are_no_eager_op(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("EagerExecute", 0, 9, is_func=-5), event("A:A", 1, 5)))
    assert flags(host_ops(trace)) == {"A": FUNCTION}


def compiled_trace(tmp_path: Path) -> HostTrace:
    """Two programs; `fusion` is in both and comes from different ops, `copy` comes from none, 9 is no program."""
    trace = trace_of(
        tmp_path,
        host(
            event("m/dense:__inference", 0, 100),
            event("fusion", 1, 10, hlo_op="fusion", program_id=4),
            event("fusion", 21, 20, hlo_op="fusion", program_id=5),
            event("copy", 50, 5, hlo_op="copy", program_id=4),
            event("fusion", 60, 30, hlo_op="fusion", program_id=9),
        ),
    )
    return replace(
        trace,
        hlo_protos={
            4: program("first", fusion=("fusion", "m/dense/MatMul", "MatMul"), copy=("copy", "", "")),
            5: program("second", fusion=("fusion", "m/out/Add", "AddV2")),
        },
    )


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
