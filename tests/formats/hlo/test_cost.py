"""What instructions compute and move, each formula by hand."""

from __future__ import annotations

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
from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.formats.hlo.model import ConvolutionDims, DotDims, Module, ProgramError, WindowDim

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
    with pytest.raises(ProgramError, match=r"^instruction 'r' lacks what a [a-z-]+ needs$"):
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
