from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Event, event, gpu, host, line, plane, programs, ref, result_of, trace_of
from hlo_builders import F32, computation, instruction, program, scheduled, shape
from protobytes import field

from tfperf.trace.device.device_work import device_work
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.known_stats import HLO_OPS
from tfperf.trace.read import AlsoRead, read_host_twice

VECTOR = shape(F32, 64, 64)
DOT = field(30, field(1, 1) + field(2, 0))


def fused(number: int, opcode: str) -> bytes:
    """A fused computation: `parameter opcode parameter`."""
    one = instruction(100 * number, f"p.{number}", "parameter", VECTOR)
    extra = DOT if opcode == "dot" else b""
    root = instruction(100 * number + 1, f"r.{number}", opcode, VECTOR, [100 * number] * 2, extra=extra)
    return computation(f"fused.{number}", one, root, number=number, root=100 * number + 1)


def fusion(number: int, name: str, before: int, calls: int, op_name: str = "") -> bytes:
    extra = field(11, b"kLoop") + (field(7, field(2, op_name.encode())) if op_name else b"")
    return instruction(number, name, "fusion", VECTOR, [before, before], [calls], extra)


def call(number: int, name: str, before: int) -> bytes:
    return instruction(number, name, "custom-call", VECTOR, [before], extra=field(28, b"__cublas$lt$matmul"))


PROGRAM = program(
    computation(
        "main",
        instruction(1, "x", "parameter", VECTOR),
        # Not in the order of the schedule.
        fusion(5, "gemm_fusion_dot.9", 4, 3, "jit(f)/layer_2/dot"),
        fusion(2, "add_fusion.1", 1, 2, "jit(f)/layer_1/add"),
        call(3, "custom-call.7", 2),
        fusion(4, "add_fusion.2", 3, 4, "jit(f)/layer_2/add"),
        root=5,
    ),
    fused(2, "add"),
    fused(3, "dot"),
    fused(4, "add"),
    extra=scheduled(c1=[1, 2, 3, 4, 5]),
)
KERNELS = ("add_fusion_1", "Memset 0", "nvjet_sm90", "add_fusion_1", "gemm_fusion_dot_9")
OPS = ["add_fusion.1", "custom-call.7", "custom-call.7", "add_fusion.2", "gemm_fusion_dot.9"]


def launch(number: int, at: float, *kernels: str, op: str = "command_buffer_1", program_id: int = 7) -> list[Event]:
    """A graph launch, or kernels of another op."""
    stats = {"hlo_op": ref(op), "hlo_module": ref("jit_f"), "program_id": program_id, "correlation_id": number}
    return [event(kernel, at + 10 * n, 5, **stats) for n, kernel in enumerate(kernels)]


def ops_of(trace: HostTrace) -> list[str]:
    work = device_work(trace)
    return [work.ops[op].hlo_op for op in work.op.tolist()]


def test_kernels_have_the_ops_of_the_schedule(tmp_path: Path) -> None:
    made = gpu(*launch(3, 0, *KERNELS), *launch(4, 100, *KERNELS))
    trace = trace_of(tmp_path, made, programs(id_7=PROGRAM))
    assert ops_of(trace) == OPS * 2
    assert trace.graph_ops.rows.tolist() == list(range(10))
    assert trace.graph_ops.run.tolist() == [0, 1, 1, 3, 4, 5, 6, 6, 8, 9]
    work = device_work(trace)
    assert [work.ops[op].name for op in work.op[:5].tolist()] == [
        "jit(f)/layer_1/add",
        "custom-call.7",
        "custom-call.7",
        "jit(f)/layer_2/add",
        "jit(f)/layer_2/dot",
    ]


def test_runs_and_work_of_the_ops_are_known(tmp_path: Path) -> None:
    """Two launches: each op runs twice, also that of two kernels; 64 x 64 x 64 products are 2 x 64^3 operations."""
    made = gpu(*launch(3, 0, *KERNELS), *launch(4, 100, *KERNELS))
    ops = {op.op: op for op in result_of(tmp_path, "xla", made, programs(id_7=PROGRAM)).ops}
    assert {name: (op.runs, op.events, op.is_estimated) for name, op in ops.items()} == {
        "add_fusion.1": (2, 2, False),
        "custom-call.7": (2, 4, False),
        "add_fusion.2": (2, 2, False),
        "gemm_fusion_dot.9": (2, 2, False),
    }
    assert ops["gemm_fusion_dot.9"].matrix_flops == 2 * 64**3


def test_concurrent_kernels_are_in_the_order_of_their_nodes(tmp_path: Path) -> None:
    """On two streams, the second kernel begins before the first; those of libraries are left to the graph."""
    nodes = (1, 9, 10, 3, 4)
    events = [
        event(kernel.name, kernel.start_us, kernel.duration_us, **kernel.stats, cuda_graph_node_id=node)
        for kernel, node in zip(launch(3, 0, *KERNELS), nodes, strict=True)
    ]
    first, fill, dot, second, last = events
    late = event(first.name, 45, 5, **first.stats)
    streams = line("Stream #1", fill, dot, second, id=1), line("Stream #2", last, late, id=2)
    trace = trace_of(tmp_path, plane("/device:GPU:0", *streams), programs(id_7=PROGRAM))
    assert dict(zip([trace.names[name] for name in trace.name], ops_of(trace), strict=True)) == {
        "Memset 0": "command_buffer_1",
        "nvjet_sm90": "command_buffer_1",
        "add_fusion_1": "add_fusion.1",
        "gemm_fusion_dot_9": "gemm_fusion_dot.9",
    }


def test_devices_launch_apart(tmp_path: Path) -> None:
    """The numbers of launches are those of the process; here two devices have kernels of one launch number."""
    devices = [gpu(*launch(3, at, *KERNELS), number=number) for number, at in enumerate((0, 3))]
    assert ops_of(trace_of(tmp_path, *devices, programs(id_7=PROGRAM))) == OPS * 2


@pytest.mark.parametrize(
    ("other", "number", "program_id"),
    [
        (PROGRAM, 3, 8),
        (PROGRAM, 0, 7),
        (b"no program", 3, 7),
        (program(computation("main", instruction(1, "x", "parameter", VECTOR))), 3, 7),
    ],
)
def test_unknown_ops_keep_the_graph(tmp_path: Path, other: bytes, number: int, program_id: int) -> None:
    """The program is missing, the launch has no number, or the program is another or none."""
    trace = trace_of(tmp_path, gpu(*launch(number, 0, *KERNELS, program_id=program_id)), programs(id_7=other))
    assert ops_of(trace) == ["command_buffer_1"] * 5
    assert (trace.graph_ops.run == -1).all()


def test_other_kernels_are_not_touched(tmp_path: Path) -> None:
    """Those outside graphs, and derived lines."""
    derived = line("XLA Ops", event("command_buffer_1", 0, 90, hlo_op="command_buffer_1"), id=-559038734)
    alone = event("add_fusion_1", 200, 5, hlo_op=ref("add_fusion.2"), program_id=7, correlation_id=9)
    streams = line("Stream #1", *launch(3, 0, *KERNELS), alone, id=1)
    trace = trace_of(tmp_path, plane("/device:GPU:0", streams, derived), programs(id_7=PROGRAM))
    stat = trace.stat("hlo_op").by_event()
    assert sorted(stat.values()) == sorted([*OPS, "add_fusion.2", "command_buffer_1"])
    assert len(trace.graph_ops.rows) == 5


def test_a_trace_without_graphs_stays_as_it_is(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, gpu(*launch(3, 0, *KERNELS, op="fusion.1")), programs(id_7=PROGRAM))
    assert not len(trace.graph_ops.rows)


def test_both_traces_of_a_file_have_the_ops(tmp_path: Path) -> None:
    path = trace_of(tmp_path, host(event("f", 0, 5)), gpu(*launch(3, 0, *KERNELS)), programs(id_7=PROGRAM)).path
    received: list[HostTrace] = []
    read_host_twice(path, stats=HLO_OPS, also=AlsoRead(HLO_OPS, received.append))
    assert [*received[0].stat("hlo_op").by_event().values()] == OPS


def test_a_capture_begins_in_a_launch(tmp_path: Path) -> None:
    launches = [kernel for n in range(1, 200) for kernel in launch(n, 100 * n, *KERNELS)]
    trace = trace_of(tmp_path, gpu(*launch(500, 0, *KERNELS[3:]), *launches), programs(id_7=PROGRAM))
    assert ops_of(trace) == OPS[3:] + OPS * 199
    assert len(np.unique(trace.graph_ops.run)) == 2 + 4 * 199
