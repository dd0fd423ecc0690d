"""What instructions compute and move, each formula by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hlo_builders import F32, computation, instruction, program
from hlo_builders import shape as serialized
from hlo_modules import ADD, module, of_one, op, scalar
from hlo_modules import computation as named
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tfperf.formats.hlo.cost import Cost, Counting, cost_of
from tfperf.formats.hlo.cost_rules import (
    Product,
    kernel_product,
    off_multiple,
    product_by_shapes,
    product_of,
    rounded_up,
    sizes_of,
    valid_pairs,
    vmem_bytes,
)
from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.formats.hlo.model import (
    ConvolutionDims,
    DotDims,
    FoundInstruction,
    Module,
    OpMetadata,
    ProgramError,
    WindowDim,
)

NHWC = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
KERNEL_GRADIENT = ConvolutionDims(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
SAME, SECOND = WindowDim(3, low=1, high=1), WindowDim(3, stride=2, high=1)
MATRIX = "f32[256,512]", "f32[512,128]"


def root(made: Module, counting: Counting = "xla") -> Cost:
    return cost_of(made, counting).instructions[made.entry_at][made.entry.root]


def numbers(made: Module, counting: Counting = "xla") -> tuple[int | None, int | None, int | None]:
    cost = root(made, counting)
    return cost.flops, cost.transcendentals, cost.bytes


def simple(opcode: str, result: str, *operands: str, **fields: Any) -> Module:
    names = [chr(97 + at) for at in range(len(operands))]
    return of_one(op("r", opcode, result, *names, **fields), *operands)


def reducing(opcode: str, result: str, *operands: str, by: str = "add", **fields: Any) -> Module:
    names = [chr(97 + at) for at in range(len(operands))]
    called = [scalar(ADD, by)]
    return of_one(op("r", opcode, result, *names, calls=[ADD], **fields), *operands, called=called)


ROWS = {
    # (opcode, result, operands, fields): flops, transcendentals, bytes
    "one per element": (("add", "f32[1000]", ["f32[1000]"] * 2), (1000, 0, 12_000)),
    "a comparison has small results": (("compare", "pred[1000]", ["f32[1000]"] * 2), (1000, 0, 9000)),
    "functions are apart": (("tanh", "f32[1000]", ["f32[1000]"]), (0, 1000, 8000)),
    "random numbers too": (("rng", "f32[1000]", ["f32[]", "f32[]"]), (0, 1000, 4008)),
    "a state of random numbers counts": (("rng-bit-generator", "(u64[2],u32[1000])", ["u64[2]"]), (0, 1002, 4032)),
    "a copy moves twice": (("copy", "f32[128,1000]", ["f32[128,1000]"]), (0, 0, 1_024_000)),
    "a transpose too": (("transpose", "f32[9,2]", ["f32[2,9]"]), (0, 0, 144)),
    "a broadcast reads the small one": (("broadcast", "f32[128,1000]", ["f32[1000]"]), (0, 0, 516_000)),
    "a slice reads what it takes": (("slice", "f32[64,1000]", ["f32[128,1000]"]), (0, 0, 512_000)),
    "and one index": (("dynamic-slice", "f32[64,9]", ["f32[128,9]", "s32[]", "s32[]"]), (0, 0, 2 * 2304 + 4)),
    "an update writes what it changes": (
        ("dynamic-update-slice", "f32[128,9]", ["f32[128,9]", "f32[64,9]", "s32[]", "s32[]"]),
        (0, 0, 2 * 2304 + 4),
    ),
    "a gather reads rows": (("gather", "f32[512,256]", ["f32[50000,256]", "s32[512,1]"]), (0, 0, 1_050_624)),
    "n log n comparisons": (("sort", "f32[128,1000]", ["f32[128,1000]"]), (128_000 * 17, 0, 1_024_000)),
    "a tuple is a table of pointers": (("tuple", "(f32[9],f32[9])", ["f32[9]", "f32[9]"]), (0, 0, 16)),
    "nothing": (("bitcast", "s32[9]", ["f32[9]"]), (0, 0, 0)),
    "a collective only moves": (("all-gather", "f32[4000]", ["f32[1000]"]), (0, 0, 20_000)),
    "a sum of two": (("all-reduce", "(f32[10],f32[5])", ["f32[10]", "f32[5]"]), (15, 0, 120)),
    "a third of a cube": (("cholesky", "f32[4,64,64]", ["f32[4,64,64]"]), (4 * 64**3 // 3, 0, 65_536)),
    "half of a matrix": (
        ("triangular-solve", "f32[4,64,32]", ["f32[4,64,64]", "f32[4,64,32]"]),
        (2 * 64 * 4 * 64 * 32, 0, 98_304),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "wanted"), ROWS.values(), ids=ROWS.keys())
def test_rules(given: tuple[str, str, list[str]], wanted: tuple[int, int, int]) -> None:
    opcode, result, operands = given
    made = simple(opcode, result, *operands)
    assert numbers(made) == numbers(made, "corrected") == wanted


def test_a_dot_adds_and_multiplies_for_each_contracted_element() -> None:
    made = simple("dot", "f32[256,128]", *MATRIX, dot=DotDims((1,), (0,)))
    assert numbers(made) == (2 * 256 * 128 * 512, 0, 4 * (256 * 512 + 512 * 128 + 256 * 128))
    assert root(made).matrix_flops == 33_554_432


def test_a_batched_dot() -> None:
    made = simple("dot", "bf16[8,4,2]", "bf16[8,4,5]", "bf16[8,5,2]", dot=DotDims((2,), (1,), (0,), (0,)))
    assert numbers(made)[0] == 2 * 8 * 4 * 2 * 5


def convolution(result: str, image: str, kernel: str, *window: WindowDim, **fields: Any) -> Module:
    fields = {"convolution": NHWC, **fields}
    return simple("convolution", result, image, kernel, window=window, **fields)


IMAGE, KERNEL = "f32[8,32,32,16]", "f32[3,3,16,64]"
PASSES = {
    "valid": (convolution("f32[32,26,26,8]", "f32[32,28,28,1]", "f32[3,3,1,8]", WindowDim(3), WindowDim(3)), 3_115_008),
    "same": (convolution("f32[8,32,32,64]", IMAGE, KERNEL, SAME, SAME), 2 * 16 * 64 * 8 * 94**2),
    "strided": (convolution("f32[8,16,16,64]", IMAGE, KERNEL, SECOND, SECOND), 2 * 16 * 64 * 8 * 47**2),
    "depthwise": (
        convolution(IMAGE, IMAGE, "f32[3,3,1,16]", SAME, SAME, feature_groups=16), 2 * 16 * 8 * 94**2,
    ),
    "input gradient": (
        convolution("f32[8,32,32,16]", "f32[8,16,16,64]", "f32[3,3,64,16]", *[WindowDim(3, 1, 2, 1, 1, 2)] * 2),
        2 * 16 * 64 * 8 * 47**2,
    ),
    "kernel gradient": (
        convolution(
            "f32[3,3,16,64]", IMAGE, "f32[8,32,32,64]", *[WindowDim(32, low=1, high=1)] * 2,
            convolution=KERNEL_GRADIENT,
        ),
        2 * 16 * 64 * 8 * 94**2,
    ),
    "groups of the batch": (
        convolution("f32[4,30,30,16]", "f32[64,32,32,8]", "f32[3,3,8,16]", *[WindowDim(3)] * 2, batch_groups=16),
        2 * 8 * 16 * 4 * 90**2,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "flops"), PASSES.values(), ids=PASSES.keys())
def test_a_convolution_multiplies_where_the_window_meets_the_image(made: Module, flops: int) -> None:
    """2 * channels in * channels out * images * pairs in each direction, which padding is no part of."""
    assert (root(made).flops, root(made).matrix_flops) == (flops, flops)


def test_a_reduction_runs_its_computation_for_all_but_the_results() -> None:
    made = reducing("reduce", "f32[128]", "f32[128,1000]", "f32[]")
    assert numbers(made) == (128 * 999, 0, 512_516)
    assert numbers(reducing("reduce", "f32[128]", "f32[128,1000]", "f32[]", by="power"))[:2] == (0, 128 * 999)


def test_a_window_is_reduced_for_each_result() -> None:
    pooled = [WindowDim(), WindowDim(2, 2), WindowDim(2, 2), WindowDim()]
    made = reducing("reduce-window", "f32[8,16,16,16]", "f32[8,32,32,16]", "f32[]", window=pooled)
    assert numbers(made)[0] == 3 * 8 * 16 * 16 * 16


def test_a_running_sum_is_no_window_of_the_whole() -> None:
    whole = [WindowDim(), WindowDim(199, low=99, high=99)]
    made = reducing("reduce-window", "f32[8,100]", "f32[8,100]", "f32[]", window=whole)
    assert numbers(made)[0] == 8 + 99


def test_the_gradient_of_a_pooling_compares_and_adds() -> None:
    window = [WindowDim(), WindowDim(2, 2), WindowDim(2, 2), WindowDim()]
    called = [scalar("ge", "compare"), scalar(ADD, "add")]
    gradient = op("r", "select-and-scatter", IMAGE, "a", "b", "c", calls=["ge", ADD], window=window)
    made = of_one(gradient, IMAGE, "f32[8,16,16,16]", "f32[]", called=called)
    assert numbers(made)[0] == 8 * 16 * 16 * 16 * (3 + 1)


def test_a_scatter_reads_and_writes_at_its_indices() -> None:
    made = reducing("scatter", "f32[50000,256]", "f32[50000,256]", "s32[512,1]", "f32[512,256]")
    assert numbers(made) == (512 * 256, 0, 3 * 524_288 + 2048)


def test_a_fourier_transform() -> None:
    made = simple("fft", "c64[128,1024]", "c64[128,1024]", fft_length=(1024,))
    assert numbers(made) == (8 * 10 * 128 * 1024, 0, 2 * 8 * 128 * 1024)


BODY = named("body", op("p", "parameter", "f32[9]"), op("q", "add", "f32[9]", "p", "p"))
TEST = named("test", op("p", "parameter", "f32[9]"), op("c", "constant", "pred[]"))


def loop(config: str = "") -> Module:
    turn = op("r", "while", "f32[9]", "a", calls=["body", "test"], backend_config=config)
    return of_one(turn, "f32[9]", called=[BODY, TEST])


def test_a_loop_runs_as_often_as_the_compiler_knows() -> None:
    made = loop('{"known_trip_count":{"n":"10"}}')
    assert numbers(made) == (9, 0, 108)
    assert numbers(made, "corrected") == (90, 0, 1080)


@pytest.mark.parametrize(
    "config", ["", "{}", "[" * 100_000, '{"known_trip_count":{"n":"-1"}}', "\ud800", '{"n":1e999}']
)
def test_a_loop_of_unknown_length_is_unknown_but_for_one_turn(config: str) -> None:
    assert numbers(loop(config), "corrected") == (None, None, None)
    assert root(loop(config), "corrected").work.flops == 9
    assert numbers(loop(config)) == (9, 0, 108)


def test_a_condition_costs_what_its_largest_branch_costs() -> None:
    other = named("other", op("p", "parameter", "f32[9]"), op("q", "tanh", "f32[9]", "p"))
    made = of_one(op("r", "conditional", "f32[9]", "a", calls=["body", "other"]), "pred[]", called=[BODY, other])
    assert numbers(made) == numbers(made, "corrected") == (9, 9, 108)


def test_a_call_costs_what_it_calls() -> None:
    made = of_one(op("r", "call", "f32[9]", "a", calls=["body"]), "f32[9]", called=[BODY])
    assert numbers(made) == (9, 0, 108)
    assert cost_of(made).entry.flops == 9


GEMM = '{"gemm_backend_config":{"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}'


@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul"])
def test_a_matrix_product_of_a_library(target: str) -> None:
    """XLA does not know it. The second result is workspace."""
    result = "(f32[256,128],s8[1000])"
    made = simple("custom-call", result, *MATRIX, target=target, backend_config=GEMM)
    assert numbers(made) == (None, None, None)
    moved = 4 * (256 * 512 + 512 * 128 + 256 * 128)
    assert numbers(made, "corrected") == (33_554_432, 0, moved)
    assert root(made, "corrected").matrix_flops == 33_554_432


CALLS = {
    "__cudnn$convForward": ("f32[8,16,16,64]", [IMAGE, KERNEL]),
    "__cudnn$convBackwardInput": (IMAGE, ["f32[8,16,16,64]", KERNEL]),
    "__cudnn$convBackwardFilter": (KERNEL, [IMAGE, "f32[8,16,16,64]"]),
}  # fmt: skip


@pytest.mark.parametrize("target", CALLS)
def test_passes_of_a_convolution_in_a_library(target: str) -> None:
    """All three multiply the same pairs, whichever of image, kernel and output is the result."""
    result, operands = CALLS[target]
    fields = {"target": target, "window": (SECOND, SECOND), "convolution": NHWC}
    made = simple("custom-call", f"({result},u8[1024])", *operands, **fields)
    moved = 4 * (8 * 32 * 32 * 16 + 9 * 16 * 64 + 8 * 16 * 16 * 64)
    assert numbers(made, "corrected") == (2 * 16 * 64 * 8 * 47**2, 0, moved)


@pytest.mark.parametrize(
    ("target", "config"),
    [("my_kernel", ""), ("__cublas$gemm", "{}"), ("__cublas$gemm", GEMM.replace('"1"', '"x"')), ("TopK", "")],
)
def test_an_unknown_call_stays_unknown(target: str, config: str) -> None:
    made = simple("custom-call", "f32[9]", "f32[9]", "f32[9]", target=target, backend_config=config)
    assert numbers(made, "corrected") == numbers(made) == (None, None, None)
    whole = cost_of(made).entry
    assert (whole.flops, whole.bytes, whole.work.unknown_flops) == (None, None, 1)


def test_an_unknown_opcode_has_bytes_but_no_flops() -> None:
    assert numbers(simple("frobnicate", "f32[9]", "f32[9]")) == (None, None, 72)


def test_what_has_a_start_and_an_end_moves_its_data_once() -> None:
    """XLA counts the result of the start, in which the operand is once more, and that of the end."""
    start = op("s", "all-gather-start", "(f32[8],f32[16])", "a")
    parameter, done = op("a", "parameter", "f32[8]"), op("d", "all-gather-done", "f32[16]", "s")
    made = module(named("main", parameter, start, done))
    assert cost_of(made).entry.bytes == 32 + 64
    assert cost_of(made, "xla").entry.bytes == (32 + 32 + 64) + (16 + 64)
    copied = module(
        named(
            "main", parameter, op("s", "copy-start", "(f32[8],f32[8],u32[])", "a"), op("d", "copy-done", "f32[8]", "s")
        )
    )
    assert cost_of(copied).entry.bytes == 32 + 32


def test_what_is_open_is_unknown() -> None:
    made = simple("add", "f32[9]", "f32[9]", "f32[9]")
    entry = made.entry
    opened = replace(entry.instructions[0], shape=replace(entry.instructions[0].shape, dims=(-1,)))
    computations = (replace(entry, instructions=(opened, *entry.instructions[1:])),)
    assert numbers(replace(made, computations=computations)) == (None, None, None)


@pytest.mark.parametrize(
    "made",
    [
        simple("dot", "f32[9]", "f32[9]", "f32[9]"),
        simple("dot", "f32[9]", "f32[9]", "f32[9]", dot=DotDims((7,), (0,))),
        simple("dot", "f32[9]", "f32[9]", "f32[9]", dot=DotDims((-1,), (0,))),
        simple("convolution", "f32[9]", "f32[9]", "f32[9]"),
        convolution("f32[9]", "f32[9]", "f32[9]", SAME, SAME),
        convolution("f32[8,32,32,64]", IMAGE, KERNEL, SAME),
        simple("reduce", "f32[]", "f32[9]", "f32[]"),
        simple("gather", "f32[9]"),
        simple("fusion", "f32[9]", "f32[9]"),
        simple("while", "f32[9]", "f32[9]"),
        simple("conditional", "f32[9]", "f32[9]"),
        simple("scatter", "f32[9]", "f32[9]"),
        simple("cholesky", "f32[]", "f32[]"),
        simple("collective-permute-start", "f32[9]", "f32[9]"),
        simple("reduce", "()", "f32[9]", "f32[]", calls=()),
    ],
)
def test_an_instruction_without_what_it_needs_is_one_line(made: Module) -> None:
    with pytest.raises(ProgramError, match=r"^instruction 'r' has too little data for its opcode [a-z-]+$"):
        cost_of(made)


def test_huge_numbers_are_exact() -> None:
    huge = f"f32[{2**62},{2**62}]"
    made = simple("dot", huge, huge, huge, dot=DotDims((1,), (0,)))
    assert root(made).flops == 2 * 2**186


def test_calls_that_double_at_each_level_take_no_time() -> None:
    """Each of 500 computations calls the next one twice, so that the last runs 2^499 times."""
    vector = serialized(F32, 8)
    last = computation(
        "last", instruction(1, "r", "iota", vector), instruction(2, "s", "add", vector, [1, 1]), number=500, root=2
    )
    twice = [
        computation(
            f"c{at}",
            instruction(1, "x", "call", vector, calls=[at + 1]),
            instruction(2, "y", "call", vector, calls=[at + 1]),
            number=at,
        )
        for at in range(1, 500)
    ]
    assert cost_of(read_proto(program(*twice, last))).entry.flops == 8 * 2**499


OPCODES = (
    "add dot convolution reduce scatter sort fft gather while fusion custom-call tuple cholesky all-reduce copy-start"
)
SHAPES = "f32[]", "f32[3,4]", "s32[2]", "(f32[2],f32[])"


COUNTINGS: tuple[Counting, ...] = ("xla", "corrected")


@given(st.sampled_from(OPCODES.split()), st.lists(st.sampled_from(SHAPES), max_size=4), st.sampled_from(COUNTINGS))
def test_any_operands_give_a_cost_or_one_line(opcode: str, operands: list[str], counting: Counting) -> None:
    try:
        text = str(root(simple(opcode, "f32[3,4]", *operands), counting).flops)
    except ProgramError as error:
        text = str(error)
    assert "\n" not in text


BIG, ROW = "f32[128,1000]", "f32[1000]"
BOTH: tuple[Counting, ...] = ("xla", "corrected")


def fusion(result: str, operands: list[str], *inside: FoundInstruction) -> Module:
    """A fusion of these instructions; its parameters inside are p0, p1, ..."""
    parameters = [op(f"p{at}", "parameter", each, parameter=at) for at, each in enumerate(operands)]
    names = [chr(97 + at) for at in range(len(operands))]
    fused = op("r", "fusion", result, *names, calls=["fused"], fusion_kind="kLoop")
    return of_one(fused, *operands, called=[named("fused", *parameters, *inside)])


def moved(made: Module, counting: Counting = "xla") -> int | None:
    return cost_of(made, counting).by_name["r"].bytes


def test_results_inside_stay_inside() -> None:
    made = fusion(ROW, [ROW, ROW], op("x", "add", ROW, "p0", "p1"), op("y", "multiply", ROW, "x", "p0"))
    assert (moved(made), cost_of(made).by_name["r"].flops) == (12_000, 2000)


def test_a_slice_reads_what_it_takes() -> None:
    inside = op("x", "slice", "f32[64,1000]", "p0"), op("y", "negate", "f32[64,1000]", "x")
    assert moved(fusion("f32[64,1000]", [BIG], *inside)) == 2 * 256_000


def test_a_parameter_is_read_for_each_broadcast_and_once_for_all_others() -> None:
    inside = [op(name, "broadcast", BIG, "p0") for name in ("x", "y")]
    inside += [op("n", "negate", ROW, "p0"), op("m", "tanh", ROW, "p0"), op("t", "tuple", f"({BIG},{BIG})", "x", "y")]
    assert moved(fusion(f"({BIG},{BIG})", [ROW], *inside)) == 2 * 512_000 + 3 * 4000


def test_an_update_writes_only_what_it_changes() -> None:
    update = op("r0", "dynamic-update-slice", BIG, "p0", "p1", "p2", "p2")
    assert moved(fusion(BIG, [BIG, "f32[8,1000]", "s32[]"], update)) == 2 * 32_000 + 4


def test_several_results_and_an_update_among_them() -> None:
    update = op("u", "dynamic-update-slice", BIG, "p0", "p1", "p2", "p2")
    inside = update, op("n", "negate", ROW, "p1"), op("t", "tuple", f"({BIG},{ROW})", "u", "n")
    assert moved(fusion(f"({BIG},{ROW})", [BIG, ROW, "s32[]"], *inside)) == (4000 + 4000) + (4000 + 4)


@pytest.mark.parametrize(("elements", "xla", "corrected"), [(1, 0, 0), (2, 8, 0), (8, 32, 0), (9, 36, 36)])
def test_constants_are_read_if_they_are_large(elements: int, xla: int, corrected: int) -> None:
    shape = f"f32[{elements}]"
    made = fusion(shape, [shape], op("k", "constant", shape), op("y", "add", shape, "k", "p0"))
    assert [(moved(made, each) or 0) - 8 * elements for each in BOTH] == [xla, corrected]


WORDS, TAKEN = "f32[50000,256]", "f32[512,256]"


def test_a_gather_reads_the_rows_that_it_takes() -> None:
    """XLA counts the whole table, which the corrected counting does not."""
    inside = op("x", "gather", TAKEN, "p0", "p1"), op("y", "negate", TAKEN, "x")
    made = fusion(TAKEN, [WORDS, "s32[512,1]"], *inside)
    assert [moved(made, each) for each in BOTH] == [51_200_000 + 524_288 + 2048, 2 * 524_288 + 2048]


def test_a_table_that_something_else_reads_too_is_read_whole() -> None:
    inside = op("x", "gather", TAKEN, "p0", "p1"), op("n", "negate", WORDS, "p0")
    made = fusion(WORDS, [WORDS, "s32[512,1]"], *inside)
    assert moved(made, "corrected") == 2 * 51_200_000 + 2048


def test_a_parameter_that_is_the_result_is_read() -> None:
    made = fusion(ROW, [ROW])
    assert [moved(made, each) for each in BOTH] == [4000, 8000]


def test_a_tuple_is_read_by_its_parts() -> None:
    pair = f"({ROW},{BIG})"
    first = op("x", "get-tuple-element", ROW, "p0")
    assert moved(fusion(ROW, [pair], first, op("y", "negate", ROW, "x"))) == 8000


def test_fusions_inside_of_fusions_read_through() -> None:
    inner = named(
        "inner", op("q0", "parameter", BIG), op("q1", "parameter", ROW, parameter=1), op("s", "slice", ROW, "q0")
    )
    outer = named(
        "outer",
        op("p0", "parameter", BIG),
        op("p1", "parameter", ROW, parameter=1),
        op("f", "fusion", ROW, "p0", "p1", calls=["inner"]),
    )
    parameters = op("a", "parameter", BIG), op("b", "parameter", ROW, parameter=1)
    made = module(inner, outer, named("main", *parameters, op("r", "fusion", ROW, "a", "b", calls=["outer"])))
    assert moved(made) == 4000 + 4000


FEW = st.integers(1, 12)


def counted(size: int, window: int, output: int, dim: WindowDim) -> int:
    positions = [
        place * dim.stride + k * dim.window_dilation - dim.low for place in range(output) for k in range(window)
    ]
    return sum(at % dim.base_dilation == 0 and 0 <= at // dim.base_dilation < size for at in positions)


@given(
    st.tuples(FEW, FEW, FEW),
    st.builds(
        WindowDim,
        stride=st.integers(1, 5),
        low=st.integers(-6, 9),
        window_dilation=st.integers(1, 5),
        base_dilation=st.integers(1, 6),
    ),
)
def test_as_if_counted(sizes: tuple[int, int, int], dim: WindowDim) -> None:
    assert valid_pairs(*sizes, dim) == counted(*sizes, dim)


def test_a_window_of_three_at_the_edges() -> None:
    """Same padding: the first and the last output miss one place each."""
    assert valid_pairs(32, 3, 32, WindowDim(3, low=1, high=1)) == 3 * 32 - 2
    assert valid_pairs(28, 3, 26, WindowDim(3)) == 3 * 26


def test_an_input_gradient_multiplies_as_often_as_its_forward_pass() -> None:
    forward = valid_pairs(32, 3, 16, WindowDim(3, stride=2, low=0, high=1))
    backward = valid_pairs(16, 3, 32, WindowDim(3, low=2, high=1, base_dilation=2))
    assert forward == backward == 3 * 16 - 1


def test_huge_sizes_take_no_time() -> None:
    assert valid_pairs(1 << 62, 1 << 61, 1 << 62, WindowDim(stride=1, low=0)) == (1 << 61) * (1 << 62) - (
        (1 << 61) * ((1 << 61) - 1) // 2
    )
    assert valid_pairs(1 << 62, 1 << 62, 1 << 62, WindowDim(stride=3, base_dilation=1 << 40)) is None


def test_nothing_meets_nothing() -> None:
    assert valid_pairs(0, 3, 5, WindowDim(3)) == 0
    assert valid_pairs(5, 3, 5, WindowDim(3, stride=0)) == 0


IMAGE, KERNEL, MADE = "f16[8,32,32,3]", "f16[3,3,3,64]", "f16[8,32,32,64]"
GEMM_COST_RULES = (
    '{"gemm_backend_config":{"dot_dimension_numbers":'
    '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
)


def sizes(opcode: str, result: str, *operands: str, **fields: Any) -> Mapping[str, int]:
    names = [chr(97 + at) for at in range(len(operands))]
    inside = of_one(op("r", opcode, result, *names, **fields), *operands).entry
    made = inside.instructions[inside.root]
    return sizes_of(made, [operand.shape for operand in inside.operands_of(made)])


def test_a_product_has_three_sizes_and_a_batch() -> None:
    """M = 4 x 7 rows of the left, N = 9 columns of the right, K = 5; twice, for the batch."""
    dims = DotDims((3,), (1,), (0,), (0,))
    assert product_of((2, 4, 7, 5), (2, 5, 9), dims) == Product(28, 9, 5, 2)
    assert Product(28, 9, 5, 2).flops == 2 * 28 * 9 * 5 * 2


def test_dimensions_that_an_operand_does_not_have() -> None:
    assert product_of((4, 5), (5, 9), DotDims((2,), (0,), (), ())) is None
    assert product_of((4, 5), (5, 9), DotDims((), (), (), ())) is None
    assert product_of((4, 5), (5, 9), DotDims((-100,), (0,), (), ())) is None
    assert product_of((4, 5), (5, 9), DotDims((1,), (0,), (), (-100,))) is None


@pytest.mark.parametrize(
    ("opcode", "fields"),
    [
        ("dot", {"dot": DotDims((1,), (0,), (), ())}),
        ("custom-call", {"target": "__cublas$gemm", "backend_config": GEMM_COST_RULES}),
    ],
)
def test_a_product_in_a_program(opcode: str, fields: dict[str, Any]) -> None:
    assert sizes(opcode, "f16[100,7]", "f16[100,33]", "f16[33,7]", **fields) == {"M": 100, "N": 7, "K": 33}


@pytest.mark.parametrize(
    ("kind", "result", "operands"),
    [
        ("Forward", MADE, (IMAGE, KERNEL)),
        ("BackwardInput", IMAGE, (MADE, KERNEL)),
        ("BackwardFilter", KERNEL, (IMAGE, MADE)),
    ],
)
def test_a_convolution_and_its_gradients_have_the_same_channels(
    kind: str, result: str, operands: tuple[str, str]
) -> None:
    fields = {"target": f"__cudnn$conv{kind}", "convolution": NHWC, "window": (WindowDim(3), WindowDim(3))}
    found = sizes("custom-call", f"({result},u8[1024])", *operands, **fields)
    assert found == {"input channels": 3, "output channels": 64}


@pytest.mark.parametrize(
    ("opcode", "operands", "fields"),
    [
        ("add", ("f16[9]", "f16[9]"), {}),
        ("custom-call", ("f16[9]", "f16[9]"), {"target": "__cublas$gemm"}),  # which dimensions is not said
        ("custom-call", ("f16[9]", "f16[9]"), {"target": "__cudnn$convForward", "convolution": NHWC}),
        (
            "custom-call",
            (IMAGE, KERNEL),
            {"target": "__cudnn$convForward", "convolution": replace(NHWC, input_feature=-9)},
        ),
        ("custom-call", ("f16[9]",), {"target": "__cudnn$convForward", "convolution": NHWC}),
    ],
)
def test_what_has_no_sizes(opcode: str, operands: tuple[str, ...], fields: dict[str, Any]) -> None:
    assert sizes(opcode, "f16[9]", *operands, **fields) == {}


def test_sizes_off_a_multiple_and_the_next_one() -> None:
    assert off_multiple({"M": 1, "N": 8, "K": 33}, 8) == {"K": 33}
    assert (rounded_up(33, 8), rounded_up(40, 8)) == (40, 40)


@pytest.mark.parametrize(
    ("left", "right", "result", "product"),
    [
        ((8, 5), (5, 3), (8, 3), Product(8, 3, 5)),
        ((5, 8), (5, 3), (8, 3), Product(8, 3, 5)),
        ((8, 5), (3, 5), (8, 3), Product(8, 3, 5)),
        ((4, 4), (4, 4), (4, 4), Product(4, 4, 4)),
        ((8, 5), (5, 3), (3, 8), None),
        ((8, 5), (5,), (8,), None),
        ((8, 5), (8, 5), (8, 5), None),
    ],
)
def test_shapes_tell_a_product(
    left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...], product: Product | None
) -> None:
    assert product_by_shapes(left, right, result) == product


@pytest.mark.parametrize(
    ("name", "op_name", "target", "result", "is_product"),
    [
        ("matmul_optimized.1", "", "tpu_custom_call", "f32[8,3]", True),
        ("call.1", "jit(f)/gemm_kernel", "tpu_custom_call", "f32[8,3]", True),
        ("call.1", "jit(matmul)/pallas_call", "tpu_custom_call", "f32[8,3]", False),  # the function, not the kernel
        ("command.1", "", "tpu_custom_call", "f32[8,3]", False),
        ("matmul.1", "", "Cholesky", "f32[8,3]", False),
        ("matmul.1", "", "tpu_custom_call", "f32[8,5]", False),
        ("matmul.1", "", "tpu_custom_call", "s32[8,3]", False),
    ],
)
def test_a_kernel_is_a_product_only_if_its_name_and_shapes_say_so(
    name: str, op_name: str, target: str, result: str, is_product: bool
) -> None:
    """The kernel is not square: a sum of two square arrays has the shapes of a product, too."""
    made = op(name, "custom-call", result, "a", "b", target=target, metadata=OpMetadata(op_name=op_name))
    inside = of_one(made, "f32[8,5]", "f32[5,3]").entry
    call = inside.instructions[inside.root]
    found = kernel_product(call, [operand.shape for operand in inside.operands_of(call)])
    assert found == (Product(8, 3, 5) if is_product else None)


def test_the_vector_memory_of_a_program_is_that_of_the_instruction_that_works_in_most() -> None:
    config = (
        '{"scoped_memory_configs":[{"memory_space":"0","offset":"0","size":"67108864"}],'
        '"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"%d"}]}'
    )
    calls = [op(f"c{size}", "add", "f32[8]", "a", "b", backend_config=config % size) for size in (300, 4000)]
    instructions = [of_one(call, "f32[8]", "f32[8]").entry.root_instruction for call in calls]
    assert vmem_bytes(instructions) == 4000
    assert vmem_bytes([replace(each, backend_config="") for each in instructions]) is None
