"""Programs as text: what is written is read back as the same program."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from places import SHARED

from tfperf.formats.hlo.hlo_print import instruction_text, module_text
from tfperf.formats.hlo.hlo_text import read_program, read_text
from tfperf.formats.hlo.model import Instruction, Module, OpMetadata

RULES = SHARED / "tfprof" / "tpu_rules"
STEP = """HloModule jit_step

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y), metadata={op_type="Add" op_name="a/\\"q\\"" source_file="train.py" source_line=7}
}

%wrapped {
  %p = f32[8,4]{1,0:T(8,128)S(1)} parameter(0)
  ROOT %t = f32[4,8]{0,1} transpose(%p), dimensions={1,0}
}

%cond {
  %c = (s32[], f32[8,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant(5)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

%body {
  ROOT %b = (s32[], f32[8,4]{1,0}) parameter(0)
}

ENTRY %main {
  %a = f32[8,4]{1,0:T(8,128)S(1)} parameter(0)
  %one = s32[] constant(1)
  %w = f32[3,3,4,4]{3,2,1,0} parameter(1)
  %image = f32[1,8,8,4]{3,2,1,0} parameter(2)
  %conv = f32[1,4,4,4]{3,2,1,0} convolution(%image, %w), window={size=3x3 stride=2x2 pad=0_1x0_1 rhs_dilate=1x2}, \
dim_labels=b01f_01io->b01f, feature_group_count=2
  %fusion.1 = f32[4,8]{0,1} fusion(%a), kind=kLoop, calls=%wrapped
  %dot = f32[8,8]{1,0} dot(%a, %fusion.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
operand_precision={default,highest}
  %dot.1 = f32[8,8]{1,0} dot(%a, %fusion.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
algorithm=dot_tf32_tf32_f32
  %slice = f32[4,4]{1,0} slice(%a), slice={[0:8:2], [0:4]}
  %zero = f32[] constant(0)
  %padded = f32[11,4]{1,0} pad(%a, %zero), padding=1_1_0x0_0
  %iota = s32[8]{0} iota(), iota_dimension=0
  %part = f32[2,4]{1,0} dynamic-slice(%a, %one, %one), dynamic_slice_sizes={2,4}
  %start = (s32[], f32[8,4]{1,0}) tuple(%one, %a)
  %loop = (s32[], f32[8,4]{1,0}) while(%start), condition=%cond, body=%body
  %call = f32[8]{0} custom-call(%a), custom_call_target="f$x", backend_config="{\\"k\\": \\"v\\"}"
  ROOT %out = f32[8]{0} reduce(%a, %zero), dimensions={1}, to_apply=%add
}
"""


def plain(module: Module) -> list[tuple[str, list[tuple[Instruction, list[str], list[str]]], str]]:
    """All but positions: computations by name; sources without functions, which the text does not have."""

    def kept(each: Instruction) -> Instruction:
        stack = tuple(replace(frame, function="") for frame in each.metadata.stack[:1])
        whole = each.metadata
        metadata = OpMetadata(whole.op_type, whole.op_name, stack, whole.deduplicated_name)
        return replace(each, metadata=metadata, operands=(), calls=())

    return sorted(
        (
            computation.name,
            [
                (
                    kept(each),
                    [operand.name for operand in computation.operands_of(each)],
                    [module.computations[at].name for at in each.calls],
                )
                for each in computation.instructions
            ],
            computation.root_instruction.name,
        )
        for computation in module.computations
    )


def test_a_text_is_read_back_as_the_same_program() -> None:
    module = read_text(STEP)
    text = module_text(module)
    assert plain(read_text(text)) == plain(module)
    assert read_text(text).entry.name == "main"
    assert module_text(read_text(text)) == text


def test_an_instruction_in_one_line() -> None:
    module = read_text(STEP)
    at, place = module.by_name["fusion.1"]
    assert instruction_text(module, module.computations[at], place) == (
        "%fusion.1 = f32[4,8]{0,1} fusion(f32[8,4]{1,0:T(8,128)S(1)} %a), kind=kLoop, calls=%wrapped"
    )


@pytest.mark.skipif(not RULES.exists(), reason="needs the programs of others")
@pytest.mark.parametrize("name", ["cnn_hlo_serialized.pb", "cnn_optimized_hlo_serialized.pb"])
def test_real_programs_are_read_back(name: str) -> None:
    path = Path(RULES, name)
    module = read_program(path)
    assert plain(read_text(module_text(module))) == plain(module)
