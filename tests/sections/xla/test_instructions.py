"""Instructions and programs: what is known of them, by the program or by the trace."""

from __future__ import annotations

from pathlib import Path

from builders import Event, event, host, host_of, line, plane, programs, ref, trace_of
from hlo_builders import F32, computation, instruction, layout, program, shape
from protobytes import field, message

from tfperf.sections.xla.analysis import Xla
from tfperf.sections.xla.instructions import HloModule, HloOp

MATRIX = shape(F32, 8, 4, layout=layout(1, 0))
SWAPPED = shape(F32, 4, 8, layout=layout(1, 0))
METADATA = message(field(1, b"Transpose"), field(2, b"model/dense/transpose"), field(3, b"train.py"), field(4, 12))
PROGRAM = program(
    computation(
        "main",
        instruction(1, "p", "parameter", MATRIX),
        instruction(2, "t.1", "transpose", SWAPPED, [1], extra=field(7, METADATA)),
        instruction(3, "c.2", "custom-call", MATRIX, [2], extra=field(28, b"__cudnn$convForward")),
        instruction(4, "g.3", "custom-call", MATRIX, [3], extra=field(28, b"__cublas$gemm")),
        root=4,
    )
)


def run(name: str, start: float, duration: float, program_id: int = 7) -> Event:
    return event(name, start, duration, hlo_op=ref(name), hlo_module=ref("jit_step"), program_id=program_id)


def xla_of(tmp_path: Path, *events: Event, program_bytes: bytes = PROGRAM) -> Xla:
    gpu = plane("/device:GPU:0", line("s", *events))
    xla: Xla = host_of(trace_of(tmp_path, gpu, programs(id_7=program_bytes)), "xla")["xla"]
    return xla


def of_name(xla: Xla, name: str) -> HloOp:
    return next(op for op in xla.ops if op.op == name)


def test_an_instruction_has_its_shapes_its_op_and_its_line(tmp_path: Path) -> None:
    op = of_name(xla_of(tmp_path, run("t.1", 0, 5)), "t.1")
    assert (op.module, op.opcode, op.category) == ("jit_step", "transpose", "data formatting")
    assert (op.shape, op.operands) == ("f32[4,8]{1,0}", "f32[8,4]{1,0}")
    assert (op.framework_op, op.layer, op.source) == ("model/dense/transpose", "dense", "train.py:12")


def test_calls_into_libraries_have_the_category_of_what_they_do(tmp_path: Path) -> None:
    xla = xla_of(tmp_path, run("c.2", 0, 5), run("g.3", 5, 5))
    assert of_name(xla, "c.2").category == "convolution"
    assert (of_name(xla, "g.3").category, of_name(xla, "g.3").target) == ("dot", "__cublas$gemm")


def test_a_product_has_the_sizes_that_tiles_cover(tmp_path: Path) -> None:
    dims = field(30, message(field(1, b"\x01"), field(2, b"\x00")))  # rows of the left, columns of the right
    left, right = shape(F32, 8, 5), shape(F32, 5, 3)
    parameters = (instruction(1, "a", "parameter", left), instruction(2, "b", "parameter", right))
    dot = instruction(3, "dot.1", "dot", shape(F32, 8, 3), [1, 2], extra=dims)
    xla = xla_of(tmp_path, run("dot.1", 0, 5), program_bytes=program(computation("main", *parameters, dot, root=3)))
    assert of_name(xla, "dot.1").sizes == {"M": 8, "N": 3, "K": 5}


def test_a_program_ran_as_often_as_its_most_frequent_instruction(tmp_path: Path) -> None:
    (module,) = xla_of(tmp_path, run("t.1", 0, 5), run("t.1", 10, 5), run("c.2", 5, 5)).modules
    assert (module.module, module.runs, module.instructions, module.time_ps) == ("jit_step", 2, 4, 15_000_000)
    assert module.memory is None


def test_a_program_that_is_not_there_or_damaged_leaves_only_times(tmp_path: Path) -> None:
    for xla in (
        xla_of(tmp_path, run("t.1", 0, 5, program_id=9)),
        xla_of(tmp_path, run("t.1", 0, 5), program_bytes=b"\x0a\xff damaged"),
    ):
        (op,) = xla.ops
        assert (op.module, op.shape, op.opcode, op.time_ps) == ("jit_step", "", "", 5_000_000)
        assert [module.instructions for module in xla.lost] == [None]


def test_an_instruction_that_its_program_does_not_have_leaves_only_times(tmp_path: Path) -> None:
    op = of_name(xla_of(tmp_path, run("absent", 0, 5)), "absent")
    assert (op.opcode, op.runs) == ("", 1)


def test_a_tpu_writes_what_an_instruction_is_beside_its_name(tmp_path: Path) -> None:
    text = "%fusion.2 = bf16[8] fusion(bf16[8] %p)"
    stats = {
        "program_id": 9,
        "hlo_category": "convolution fusion",
        "tf_op": "jit(f)/net/dot_general:",
        "source": "train.py:3",
        "shape_with_layout": "bf16[8]{0}",
        "deduplicated_name": "fusion.1",
    }
    core = plane("/device:TPU:0", line("XLA Ops", event(text, 0, 5)), name_stats={text: stats})
    (op,) = host_of(trace_of(tmp_path, core), "xla")["xla"].ops
    assert (op.op, op.category, op.framework_op) == ("fusion.2", "convolution fusion", "jit(f)/net/dot_general")
    assert (op.source, op.shape, op.stands_for, op.program_id) == ("train.py:3", "bf16[8]{0}", "fusion.1", 9)


def test_rows_of_several_hosts_are_known_by_their_keys() -> None:
    op = HloOp(module="m", program_id=7, op="a", runs=1, is_estimated=False, events=1, devices=1, time_ps=1, least_ps=0)
    assert op.key == ("m", 7, "a", "")
    assert HloModule(module="m", program_id=7, runs=1, is_estimated=False, time_ps=1).key == ("m", 7)


def test_a_host_without_programs_has_nothing(tmp_path: Path) -> None:
    assert host_of(trace_of(tmp_path, host(event("a", 0, 1)), programs(id_7=PROGRAM)), "xla")["xla"] == Xla()
