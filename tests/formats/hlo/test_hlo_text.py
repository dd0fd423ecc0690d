"""Programs from the text that XLA prints: the same as from protobuf; what is not so is named with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hlo_builders import F32, computation, instruction, program, shape
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict
from places import SHARED

from tfperf.formats.hlo.cost import cost_of
from tfperf.formats.hlo.hlo_text import read_program, read_text
from tfperf.formats.hlo.model import ConvolutionDims, DotDims, Frame, Module, ProgramError, Shape, WindowDim

RULES = SHARED / "tfprof" / "tpu_rules"
"""Programs of other people in both forms, which are no part of the project."""
TWINS = {
    "cnn_hlo.txt": "cnn_hlo_serialized.pb",
    "cnn_optimized_hlo.txt": "cnn_optimized_hlo_serialized.pb",
    "conv_train_optimized_hlo.txt": "conv_train_optimized_hlo_proto.pb",
}

STEP = """HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (1, {}, may-alias) }

FileNames
1 "train.py"

FunctionNames
1 "main"
2 "loss"

FileLocations
1 {file_name_id=1 function_name_id=1 line=80 end_line=80 column=30 end_column=50}
2 {file_name_id=1 function_name_id=2 line=12 end_line=12 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}


%add.f32 (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

ENTRY %main.1 (a.1: f32[8,4], b.1: f32[4,2]) -> f32[8] {
  %a.1 = f32[8,4]{1,0:T(8,128)} parameter(0), metadata={op_name="a"}
  %b.1 = f32[4,2]{1,0} parameter(1), sharding={replicated}
  %dot.2 = f32[8,2]{1,0} dot(%a.1, f32[4,2]{1,0} %b.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_type="dot_general" op_name="jit(step)/dot \\"q\\", x" stack_frame_id=2}
  %zero = f32[] constant(0), metadata={op_name="zero" source_file="old.py" source_line=7}
  ROOT %out.1 = f32[8]{0} reduce(%dot.2, %zero), dimensions={1}, to_apply=%add.f32 /* a comment, } */
}
"""


def test_a_program() -> None:
    read = read_text(STEP)
    assert (read.name, read.entry.name, read.aliased_parameters) == ("jit_step", "main.1", frozenset({1}))
    a, b, dot, zero, out = read.entry.instructions
    assert a.shape == Shape("f32", (8, 4), (1, 0), ((8, 128),))
    assert (a.parameter, b.parameter) == (0, 1)
    assert (dot.operands, dot.dot, out.operands, out.dimensions) == ((0, 1), DotDims((1,), (0,)), (2, 3), (1,))
    assert [read.computations[call].name for call in out.calls] == ["add.f32"]
    assert (dot.metadata.op_type, dot.metadata.op_name) == ("dot_general", 'jit(step)/dot "q", x')
    assert dot.metadata.stack == (Frame("train.py", 12, "loss"), Frame("train.py", 80, "main"))
    assert str(zero.metadata.source) == "old.py:7"
    assert cost_of(read).entry.flops == 2 * 8 * 2 * 4 + 8


def test_a_caller_may_be_numbered_as_it_is() -> None:
    """XLA prints the number of the calling frame plus one; 0 for none would say that a version does not."""
    plain = STEP.replace("parent_frame_id=1}", "parent_frame_id=0}").replace("parent_frame_id=2}", "parent_frame_id=1}")
    assert read_text(plain).entry.instructions[2].metadata == read_text(STEP).entry.instructions[2].metadata


def one(line: str, *operands: str, more: str = "") -> Any:
    parameters = "".join(f"  {chr(97 + at)} = {each} parameter({at})\n" for at, each in enumerate(operands))
    return read_text(f"HloModule m\n{more}ENTRY e {{\n{parameters}  ROOT r = {line}\n}}\n").entry.root_instruction


def test_a_window_and_its_labels() -> None:
    window = "window={size=3x5 stride=1x2 pad=-1_1x0_2 lhs_dilate=2x1 rhs_dilate=1x3 rhs_reversal=1x0}"
    labels = "dim_labels=bf01_01io->01bf, feature_group_count=4"
    read = one(f"f32[1] convolution(a, b), {window}, {labels}", "f32[1]", "f32[1]")
    assert read.window == (WindowDim(3, 1, -1, 1, 1, 2, True), WindowDim(5, 2, 0, 2, 3, 1, False))
    assert read.convolution == ConvolutionDims(0, 1, (2, 3), 2, 3, (0, 1), 2, 3, (0, 1))
    assert read.feature_groups == 4


def test_slices_paddings_and_numbers() -> None:
    assert one("f32[4] slice(a), slice={[0:4], [1:9:2]}", "f32[9]").slices == ((0, 4, 1), (1, 9, 2))
    assert one("f32[9] pad(a, b), padding=-1_0x2_24_1", "f32[9]", "f32[]").padding == ((-1, 0, 0), (2, 24, 1))
    assert one("s32[9] iota(), iota_dimension=0").dimensions == (0,)
    assert one("c64[9] fft(a), fft_type=FFT, fft_length={9}", "c64[9]").fft_length == (9,)
    assert one("f32[9] rng(a, b), distribution=rng_normal", "f32[]", "f32[]").distribution == "normal"
    assert one("f32[] get-tuple-element(a), index=1", "(f32[], f32[])").tuple_index == 1
    assert one("pred[] compare(a, a), direction=LT", "f32[]").direction == "LT"


def test_constants_are_passed_over() -> None:
    assert one("f32[2,2] constant({ { 1, -inf }, { nan, 2e+3 } })").operands == ()
    assert one('u8[3] constant("a)}\\"b")').opcode == "constant"


def test_a_call_of_a_library() -> None:
    config = '{"gemm":{"dims":["1"]},"note":"} \\" ,"}'
    call = '(f32[9]{0}, /*index=1*/s8[4]{0}) custom-call(a), custom_call_target="__cublas$gemm"'
    read = one(f"{call}, backend_config={config}", "f32[9]")
    assert (read.target, read.backend_config, len(read.shape.parts)) == ("__cublas$gemm", config, 2)


def test_quoted_texts_lose_their_escapes() -> None:
    read = one(r'''f32[] custom-call(), custom_call_target="a\\b\"\n\047", backend_config="{\"x\":1}"''')
    assert (read.target, read.backend_config) == ("a\\b\"\n'", '{"x":1}')


def test_shapes_of_all_kinds() -> None:
    for text in ("f32[]", "bf16[8,128]{1,0:T(8,128)(2,1)S(1)}", "s4[7]{0:E(4)}", "token[]", "f32[<=8,16]", "f32[?,4]"):
        assert str(one(f"({text}, ({text}, ())) custom-call()").shape) == f"({text}, ({text}, ()))"


def test_groups_of_devices_are_passed_over() -> None:
    for groups in ("{{0,1},{2,3}}", "[2,4]<=[8]T(1,0)", "mesh['axis_0'=4,'axis_1'=1] {'axis_0'}"):
        assert one(f"f32[9] all-gather(a), replica_groups={groups}, dimensions={{0}}", "f32[9]").dimensions == (0,)


def test_called_computations_are_in_the_order_of_xla() -> None:
    more = "t { ROOT x = f32[] parameter(0) }\nf { ROOT y = f32[] parameter(0) }\n"
    text = "HloModule m\n{}ENTRY e {{\n p = pred[] parameter(0)\n a = f32[] parameter(1)\n ROOT r = f32[] {}\n}}"
    for line in (
        "conditional(p, a, a), true_computation=t, false_computation=f",
        "conditional(p, a, a), branch_computations={%t, %f}",
        "while(a), condition=f, body=t",
        "select-and-scatter(a, a, a), select=%t, scatter=%f",
    ):
        read = read_text(text.format(more, line))
        assert [read.computations[call].name for call in read.entry.root_instruction.calls] == ["t", "f"]


def test_the_last_instruction_is_the_result_unless_another_is() -> None:
    assert read_text("HloModule m\ne { a = f32[] parameter(0)\n b = f32[] copy(a) }").entry.root_instruction.name == "b"
    text = "HloModule m\ne { ROOT a = f32[] parameter(0)\n b = f32[] copy(a) }"
    assert read_text(text).entry.root_instruction.name == "a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 of the program text: expected HloModule and a name, found 'the end of the text'"),
        ("HloModule m\n", "one computation with ENTRY"),
        ("HloModule m\n\nwhat is this", "line 3 of the program text: expected '{', found 'is this'"),
        ("HloModule m\ne {\n  a = f32[2 parameter(0)\n}", "line 3 of the program text: expected a shape"),
        ("HloModule m\ne {\n  a = f99[2] parameter(0)\n}", "line 3 of .*'f99' is unknown"),
        ("HloModule m\ne {\n  a = f32[2] parameter(x)\n}", "line 3 of .*the number of the parameter"),
        ("HloModule m\ne {\n  a = f32[2]\n}", "line 4 of .*an opcode"),
        ("HloModule m\ne {\n  a = f32[2] iota(), iota_dimension=\n}", "line 4 of .*a value for iota_dimension"),
        ("HloModule m\ne {\n  a = f32[2] pad(), padding=0_0\n  b = f32[] rng(), window={size=axb}\n}", "line 4 of"),
        ("HloModule m\ne {\n  a = f32[2] constant({1, 2)\n}", "line 3 of .*balanced brackets"),
        ("HloModule m\ne {\n  a = f32[2] add(b)\n}", "refers to 'b', which does not exist"),
        ("HloModule m\ne {\n  a = f32[2] copy(a)\n}", "depend on each other in a cycle"),
        ("HloModule m\ne {\n  a = f32[1] iota()\n  a = f32[1] iota()\n}", "two instructions in computation 'e'"),
        ("HloModule m\ne {\n}", "an instruction in the computation"),
        ("HloModule m\ne {\n a = f32[] iota()", "line 3 of .*an instruction such as"),
        (f"HloModule m\ne {{\n a = {'(' * 5000}f32[]", "nested too deep"),
        (f"HloModule m\ne {{\n a = f32[{'9' * 5000}] iota() }}", "is not a size"),
        (f"HloModule m\ne {{\n a = f32[] iota(), dimensions={{{'9' * 5000}}} }}", "a number is too long"),
        ("HloModule m\nENTRY e { a = f32[] iota() }\nENTRY f { a = f32[] iota() }", "one computation with ENTRY"),
    ],
)  # fmt: skip
def test_what_is_not_so_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message) as caught:
        read_text(text)
    assert "\n" not in str(caught.value)


def outcome(text: str) -> str:
    try:
        module = read_text(text)
        return f"{module.name.split()} {cost_of(module).entry.flops}"
    except ProgramError as error:
        return str(error)


LONG = 100_000


@pytest.mark.parametrize(
    "text",
    [
        '"' * LONG,
        '\\"' * LONG,
        "/*" * LONG,
        "a" * LONG,
        "HloModule m\ne { a = f32[] iota(), metadata={" + "a" * LONG + "} }",
        'HloModule m\ne { a = f32[] iota(), metadata={a="' + '\\"' * LONG + "} }",
        "HloModule m\ne { a = f32[] iota(), replica_groups=" + "[" * LONG,
        "HloModule m\ne { a = f32[] iota(), window={size=" + "1x" * LONG + "} }",
        "HloModule m\ne { a = " + "f32[{" * LONG,
        "HloModule m\ne { a = f32[]{0:" + "T(1)" * LONG + "? iota() }",
        "HloModule m\n" + "FileNames\n" * LONG,
        "HloModule m, " + "a=" * LONG,
        "HloModule m\ne { a = f32[] add(" + "(" * LONG,
    ],
    ids=range(13),
)  # fmt: skip
def test_long_lines_take_no_longer_than_they_are(text: str) -> None:
    """A pattern that tries again at each character would take many minutes."""
    assert "\n" not in outcome(text)


@given(st.integers(0, len(STEP)), st.integers(0, 30), st.text('{}()[]",=%>/*\\ \n-1a', max_size=4))
def test_any_change_is_a_program_or_one_line(at: int, left_out: int, put_in: str) -> None:
    assert "\n" not in outcome(STEP[:at] + put_in + STEP[at + left_out :])


def by_name(module: Module) -> dict[str, Any]:
    """All instructions by name, with the names of what they refer to; XLA writes its configuration in two ways."""
    rows = {}
    for each_computation in module.computations:
        for each_instruction in each_computation.instructions:
            row = asdict(each_instruction) | {"backend_config": "", "computation": each_computation.name}
            row["operands"] = [each.name for each in each_computation.operands_of(each_instruction)]
            row["calls"] = [module.computations[call].name for call in each_instruction.calls]
            rows[each_instruction.name] = row | {"is_root": each_computation.root_instruction is each_instruction}
    return rows


@pytest.mark.skipif(not RULES.exists(), reason="the programs of other people are not here")
@pytest.mark.parametrize(("text", "proto"), TWINS.items())
def test_the_same_program_in_both_forms(text: str, proto: str) -> None:
    one, other = read_program(RULES / text), read_program(RULES / proto)
    assert (one.name, one.entry.name) == (other.name, other.entry.name)
    assert by_name(one) == by_name(other)
    assert cost_of(one).entry == cost_of(other).entry


TEXT = "// by hand\nHloModule jit_step\nENTRY main { r = f32[8] iota(), iota_dimension=0 }\n"


def test_the_format_is_told_from_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT)
    (tmp_path / "proto").write_bytes(program(computation("main", instruction(1, "r", "iota", shape(F32, 8)))))
    text, proto = (read_program(tmp_path / name) for name in ("text", "proto"))
    assert (text.name, text.entry.root_instruction.shape) == (proto.name, proto.entry.root_instruction.shape)


@pytest.mark.parametrize("data", [b"", b"hello", b"HloModule m\n{", b"\x00" * 99])
def test_the_error_names_the_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "step.hlo").write_bytes(data)
    with pytest.raises(ProgramError, match=r"step\.hlo: ") as caught:
        read_program(tmp_path / "step.hlo")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "gone", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ProgramError, match=f"cannot read {path}: {why}"):
            read_program(path)
