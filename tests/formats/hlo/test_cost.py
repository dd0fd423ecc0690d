"""What instructions compute and move, each formula by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hlo_modules import ADD, NHWC, module, of_one, op, scalar
from hlo_modules import computation as named
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tfperf.formats.hlo.cost import Cost, Counting, cost_of
from tfperf.formats.hlo.cost_rules import (
    Attention,
    Product,
    is_attention,
    kernel_product,
    off_multiple,
    product_by_shapes,
    product_of,
    rounded_up,
    sizes_of,
    valid_pairs,
    vmem_bytes,
)
from tfperf.formats.hlo.model import (
    ConvolutionDims,
    DotDims,
    FoundInstruction,
    Module,
    OpMetadata,
    ProgramError,
    WindowDim,
)

KERNEL_GRADIENT = ConvolutionDims(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
SAME, SECOND = WindowDim(3, low=1, high=1), WindowDim(3, stride=2, high=1)
MATRIX = "f32[256,512]", "f32[512,128]"
BIG, ROW = "f32[128,1000]", "f32[1000]"
WORDS, TAKEN = "f32[50000,256]", "f32[512,256]"
BOTH: tuple[Counting, ...] = ("xla", "corrected")
BODY = named("body", op("p", "parameter", "f32[9]"), op("q", "add", "f32[9]", "p", "p"))
OTHER = named("other", op("p", "parameter", "f32[9]"), op("q", "tanh", "f32[9]", "p"))


def root(made: Module, counting: Counting = "xla") -> Cost:
    return cost_of(made, counting).instructions[made.entry_at][made.entry.root]


def numbers(made: Module, counting: Counting = "xla") -> tuple[int | None, int | None, int | None]:
    cost = root(made, counting)
    return cost.flops, cost.transcendentals, cost.bytes


def reducing(opcode: str, result: str, *operands: str, by: str = "add", **fields: Any) -> Module:
    return of_one(opcode, result, *operands, calls=[ADD], called=[scalar(ADD, by)], **fields)


ROWS = {
    # flops, transcendentals, bytes
    "one per element": (of_one("add", "f32[1000]", *["f32[1000]"] * 2), (1000, 0, 12_000)),
    "a comparison has small results": (of_one("compare", "pred[1000]", *["f32[1000]"] * 2), (1000, 0, 9000)),
    "functions are apart": (of_one("tanh", "f32[1000]", "f32[1000]"), (0, 1000, 8000)),
    "random numbers too": (of_one("rng", "f32[1000]", "f32[]", "f32[]"), (0, 1000, 4008)),
    "a state of random numbers counts": (of_one("rng-bit-generator", "(u64[2],u32[1000])", "u64[2]"), (0, 1002, 4032)),
    "a copy moves twice": (of_one("copy", BIG, BIG), (0, 0, 1_024_000)),
    "a transpose too": (of_one("transpose", "f32[9,2]", "f32[2,9]"), (0, 0, 144)),
    "a broadcast reads the small one": (of_one("broadcast", BIG, ROW), (0, 0, 516_000)),
    "a slice reads what it takes": (of_one("slice", "f32[64,1000]", BIG), (0, 0, 512_000)),
    "and one index": (of_one("dynamic-slice", "f32[64,9]", "f32[128,9]", "s32[]", "s32[]"), (0, 0, 2 * 2304 + 4)),
    "an update writes what it changes": (
        of_one("dynamic-update-slice", "f32[128,9]", "f32[128,9]", "f32[64,9]", "s32[]", "s32[]"), (0, 0, 2 * 2304 + 4)
    ),
    "a gather reads rows": (of_one("gather", TAKEN, WORDS, "s32[512,1]"), (0, 0, 1_050_624)),
    "a scatter reads and writes rows": (
        reducing("scatter", WORDS, WORDS, "s32[512,1]", TAKEN), (512 * 256, 0, 3 * 524_288 + 2048)
    ),
    "n log n comparisons": (of_one("sort", BIG, BIG), (128_000 * 17, 0, 1_024_000)),
    "a tuple is a table of pointers": (of_one("tuple", "(f32[9],f32[9])", "f32[9]", "f32[9]"), (0, 0, 16)),
    "nothing": (of_one("bitcast", "s32[9]", "f32[9]"), (0, 0, 0)),
    "a collective only moves": (of_one("all-gather", "f32[4000]", "f32[1000]"), (0, 0, 20_000)),
    "a sum of two": (of_one("all-reduce", "(f32[10],f32[5])", "f32[10]", "f32[5]"), (15, 0, 120)),
    "a third of a cube": (of_one("cholesky", "f32[4,64,64]", "f32[4,64,64]"), (4 * 64**3 // 3, 0, 65_536)),
    "half of a matrix": (
        of_one("triangular-solve", "f32[4,64,32]", "f32[4,64,64]", "f32[4,64,32]"), (2 * 64 * 4 * 64 * 32, 0, 98_304)
    ),
    "a dot adds and multiplies": (
        of_one("dot", "f32[256,128]", *MATRIX, dot=DotDims((1,), (0,))),
        (2 * 256 * 128 * 512, 0, 4 * (256 * 512 + 512 * 128 + 256 * 128)),
    ),
    "a reduction, for all but the results": (reducing("reduce", "f32[128]", BIG, "f32[]"), (128 * 999, 0, 512_516)),
    "by a function": (reducing("reduce", "f32[128]", BIG, "f32[]", by="power"), (0, 128 * 999, 512_516)),
    "a Fourier transform": (
        of_one("fft", "c64[128,1024]", "c64[128,1024]", fft_length=(1024,)),
        (8 * 10 * 128 * 1024, 0, 2 * 8 * 128 * 1024),
    ),
    "a call": (of_one("call", "f32[9]", "f32[9]", calls=["body"], called=[BODY]), (9, 0, 108)),
    "the largest branch": (
        of_one("conditional", "f32[9]", "pred[]", calls=["body", "other"], called=[BODY, OTHER]), (9, 9, 108)
    ),
    "an unknown opcode has bytes": (of_one("frobnicate", "f32[9]", "f32[9]"), (None, None, 72)),
}  # fmt: skip


@pytest.mark.parametrize(("made", "wanted"), ROWS.values(), ids=ROWS.keys())
def test_rules(made: Module, wanted: tuple[int, int, int]) -> None:
    assert numbers(made) == numbers(made, "corrected") == wanted


def convolution(result: str, image: str, kernel: str, *window: WindowDim, **fields: Any) -> Module:
    fields = {"convolution": NHWC, **fields}
    return of_one("convolution", result, image, kernel, window=window, **fields)


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
WINDOW = [WindowDim(), WindowDim(2, 2), WindowDim(2, 2), WindowDim()]
FLOPS = {
    "a batched dot": (
        of_one("dot", "bf16[8,4,2]", "bf16[8,4,5]", "bf16[8,5,2]", dot=DotDims((2,), (1,), (0,), (0,))),
        2 * 8 * 4 * 2 * 5,
    ),
    "a window, for each result": (
        reducing("reduce-window", "f32[8,16,16,16]", IMAGE, "f32[]", window=WINDOW), 3 * 8 * 16 * 16 * 16
    ),
    "a running sum is no window of the whole": (
        reducing(
            "reduce-window", "f32[8,100]", "f32[8,100]", "f32[]", window=[WindowDim(), WindowDim(199, low=99, high=99)]
        ),
        8 + 99,
    ),
    "the gradient of a pooling compares and adds": (
        of_one(
            "select-and-scatter", IMAGE, IMAGE, "f32[8,16,16,16]", "f32[]", calls=["ge", ADD], window=WINDOW,
            called=[scalar("ge", "compare"), scalar(ADD, "add")],
        ),
        8 * 16 * 16 * 16 * (3 + 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "flops"), FLOPS.values(), ids=FLOPS.keys())
def test_flops(made: Module, flops: int) -> None:
    assert root(made).flops == flops


@pytest.mark.parametrize(("made", "flops"), PASSES.values(), ids=PASSES.keys())
def test_a_convolution_multiplies_where_the_window_meets_the_image(made: Module, flops: int) -> None:
    """2 * channels in * channels out * images * pairs in each direction, without padding."""
    assert (root(made).flops, root(made).matrix_flops) == (flops, flops)


TEST = named("test", op("p", "parameter", "f32[9]"), op("c", "constant", "pred[]"))


def loop(config: str = "") -> Module:
    return of_one("while", "f32[9]", "f32[9]", calls=["body", "test"], called=[BODY, TEST], backend_config=config)


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


GEMM = (
    '{"gemm_backend_config":{"beta":0,"dot_dimension_numbers":'
    '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
)


@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$mx"])
def test_a_matrix_product_of_a_library(target: str) -> None:
    """XLA does not know it. The second result is workspace."""
    result = "(f32[256,128],s8[1000])"
    made = of_one("custom-call", result, *MATRIX, target=target, backend_config=GEMM)
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
    fields: dict[str, Any] = {"target": target, "window": (SECOND, SECOND), "convolution": NHWC}
    made = of_one("custom-call", f"({result},u8[1024])", *operands, **fields)
    moved = 4 * (8 * 32 * 32 * 16 + 9 * 16 * 64 + 8 * 16 * 16 * 64)
    assert numbers(made, "corrected") == (2 * 16 * 64 * 8 * 47**2, 0, moved)


@pytest.mark.parametrize(
    ("target", "config"),
    [("my_kernel", ""), ("__cublas$gemm", "{}"), ("__cublas$gemm", GEMM.replace('"1"', '"x"')), ("TopK", "")],
)
def test_an_unknown_call_stays_unknown(target: str, config: str) -> None:
    made = of_one("custom-call", "f32[9]", "f32[9]", "f32[9]", target=target, backend_config=config)
    assert numbers(made, "corrected") == numbers(made) == (None, None, None)
    whole = cost_of(made).entry
    assert (whole.flops, whole.bytes, whole.work.unknown_flops) == (None, None, 1)


def test_what_has_a_start_and_an_end_moves_its_data_once() -> None:
    """XLA counts the result of the start, in which the operand is once more, and that of the end."""
    start = op("s", "all-gather-start", "(f32[8],f32[16])", "a")
    parameter, done = op("a", "parameter", "f32[8]"), op("d", "all-gather-done", "f32[16]", "s")
    made = module(named("main", parameter, start, done))
    assert cost_of(made).entry.bytes == 32 + 64
    assert cost_of(made, "xla").entry.bytes == (32 + 32 + 64) + (16 + 64)
    start, done = op("s", "copy-start", "(f32[8],f32[8],u32[])", "a"), op("d", "copy-done", "f32[8]", "s")
    assert cost_of(module(named("main", parameter, start, done))).entry.bytes == 32 + 32


def test_what_is_open_is_unknown() -> None:
    assert numbers(of_one("add", "f32[9]", "f32[?]", "f32[9]")) == (None, None, None)


@pytest.mark.parametrize(
    "made",
    [
        of_one("dot", "f32[9]", "f32[9]", "f32[9]"),
        of_one("dot", "f32[9]", "f32[9]", "f32[9]", dot=DotDims((7,), (0,))),
        of_one("dot", "f32[9]", "f32[9]", "f32[9]", dot=DotDims((-1,), (0,))),
        of_one("convolution", "f32[9]", "f32[9]", "f32[9]"),
        convolution("f32[9]", "f32[9]", "f32[9]", SAME, SAME),
        convolution("f32[8,32,32,64]", IMAGE, KERNEL, SAME),
        of_one("reduce", "f32[]", "f32[9]", "f32[]"),
        of_one("gather", "f32[9]"),
        of_one("fusion", "f32[9]", "f32[9]"),
        of_one("while", "f32[9]", "f32[9]"),
        of_one("conditional", "f32[9]", "f32[9]"),
        of_one("scatter", "f32[9]", "f32[9]"),
        of_one("cholesky", "f32[]", "f32[]"),
        of_one("collective-permute-start", "f32[9]", "f32[9]"),
        of_one("reduce", "()", "f32[9]", "f32[]", calls=()),
    ],
)
def test_an_instruction_without_what_it_needs_is_one_line(made: Module) -> None:
    with pytest.raises(ProgramError, match=r"^instruction 'r' has too little data for its opcode [a-z-]+$"):
        cost_of(made)


def test_huge_numbers_are_exact() -> None:
    huge = f"f32[{2**62},{2**62}]"
    made = of_one("dot", huge, huge, huge, dot=DotDims((1,), (0,)))
    assert root(made).flops == 2 * 2**186


def test_calls_that_double_at_each_level_take_no_time() -> None:
    """Each of 500 computations calls the next one twice, so that the last runs 2^499 times."""
    parts = [named("c0", op("p", "iota", "f32[8]"), op("s", "add", "f32[8]", "p", "p"))]
    for at in range(1, 500):
        parts.append(named(f"c{at}", *(op(name, "call", "f32[8]", calls=[f"c{at - 1}"]) for name in "xy")))
    assert cost_of(module(*parts)).entry.flops == 8 * 2**499


OPCODES = "add dot convolution reduce scatter sort fft gather while fusion custom-call tuple cholesky all-reduce"
SHAPES = "f32[]", "f32[3,4]", "s32[2]", "(f32[2],f32[])"


@given(st.sampled_from(OPCODES.split()), st.lists(st.sampled_from(SHAPES), max_size=4), st.sampled_from(BOTH))
def test_any_operands_give_a_cost_or_one_line(opcode: str, operands: list[str], counting: Counting) -> None:
    try:
        text = str(root(of_one(opcode, "f32[3,4]", *operands), counting).flops)
    except ProgramError as error:
        text = str(error)
    assert "\n" not in text


def fusion(result: str, operands: list[str], *inside: FoundInstruction) -> Module:
    """A fusion of these instructions; its parameters inside are p0, p1, ..."""
    parameters = [op(f"p{at}", "parameter", each, parameter=at) for at, each in enumerate(operands)]
    fused = named("fused", *parameters, *inside)
    return of_one("fusion", result, *operands, calls=["fused"], called=[fused], fusion_kind="kLoop")


def moved(made: Module, counting: Counting = "xla") -> int | None:
    return cost_of(made, counting).by_name["r"].bytes


UPDATE = op("u", "dynamic-update-slice", BIG, "p0", "p1", "p2", "p2")
GATHER = op("x", "gather", TAKEN, "p0", "p1")
FUSED = {
    "results inside stay inside": (
        fusion(ROW, [ROW, ROW], op("x", "add", ROW, "p0", "p1"), op("y", "multiply", ROW, "x", "p0")), 12_000, 12_000
    ),
    "a slice reads what it takes": (
        fusion("f32[9,9]", [BIG], op("x", "slice", "f32[9,9]", "p0"), op("y", "negate", "f32[9,9]", "x")), 648, 648
    ),
    "for each broadcast, and once for all others": (
        fusion(
            f"({BIG},{BIG})", [ROW], *(op(name, "broadcast", BIG, "p0") for name in ("x", "y")),
            op("n", "negate", ROW, "p0"), op("m", "tanh", ROW, "p0"), op("t", "tuple", f"({BIG},{BIG})", "x", "y"),
        ),
        2 * 512_000 + 3 * 4000, 2 * 512_000 + 3 * 4000,
    ),
    "an update writes what it changes": (fusion(BIG, [BIG, "f32[8,1000]", "s32[]"], UPDATE), 64_004, 64_004),
    "several results and an update among them": (
        fusion(
            f"({BIG},{ROW})", [BIG, ROW, "s32[]"], UPDATE, op("n", "negate", ROW, "p1"),
            op("t", "tuple", f"({BIG},{ROW})", "u", "n"),
        ),
        (4000 + 4000) + (4000 + 4), (4000 + 4000) + (4000 + 4),
    ),
    "XLA counts the whole table of a gather": (
        fusion(TAKEN, [WORDS, "s32[512,1]"], GATHER, op("y", "negate", TAKEN, "x")),
        51_200_000 + 524_288 + 2048, 2 * 524_288 + 2048,
    ),
    "a table that something else reads too": (
        fusion(WORDS, [WORDS, "s32[512,1]"], GATHER, op("n", "negate", WORDS, "p0")),
        2 * 51_200_000 + 2048, 2 * 51_200_000 + 2048,
    ),
    "a table is converted where it is read": (
        fusion(
            TAKEN, [WORDS.replace("f32", "bf16"), "s32[512,1]"], op("c", "convert", WORDS, "p0"),
            op("b", "bitcast", WORDS, "c"), op("x", "gather", TAKEN, "b", "p1"), op("y", "negate", TAKEN, "x"),
        ),
        25_600_000 + 524_288 + 2048, 262_144 + 524_288 + 2048,
    ),
    "a slice of another view": (
        fusion(
            "f32[9,9]", [BIG], op("b", "bitcast", "f32[1000,128]", "p0"), op("x", "slice", "f32[9,9]", "b"),
            op("y", "negate", "f32[9,9]", "x"),
        ),
        512_000 + 324, 648,
    ),
    "a scatter reads and writes rows in place": (
        of_one(
            "fusion", WORDS, WORDS, "s32[512,1]", TAKEN, fusion_kind="kLoop", calls=["fused"],
            called=[scalar(ADD, "add"), named(
                "fused", op("p0", "parameter", WORDS), op("p1", "parameter", "s32[512,1]", parameter=1),
                op("p2", "parameter", TAKEN, parameter=2),
                op("x", "scatter", WORDS, "p0", "p1", "p2", calls=[ADD]),
            )],
        ),
        2 * 51_200_000 + 2048 + 524_288, 2 * 524_288 + 2048 + 524_288,
    ),
    "a parameter that is the result": (fusion(ROW, [ROW]), 4000, 8000),
    "a tuple is read by its parts": (
        fusion(ROW, [f"({ROW},{BIG})"], op("x", "get-tuple-element", ROW, "p0"), op("y", "negate", ROW, "x")),
        8000, 8000,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "xla", "corrected"), FUSED.values(), ids=FUSED.keys())
def test_bytes_that_a_fusion_moves(made: Module, xla: int, corrected: int) -> None:
    assert [moved(made, each) for each in BOTH] == [xla, corrected]


def test_a_fusion_computes_what_is_in_it() -> None:
    assert cost_of(FUSED["results inside stay inside"][0]).by_name["r"].flops == 2000


@pytest.mark.parametrize(("elements", "xla", "corrected"), [(1, 0, 0), (2, 8, 0), (8, 32, 0), (9, 36, 36)])
def test_constants_are_read_if_they_are_large(elements: int, xla: int, corrected: int) -> None:
    shape = f"f32[{elements}]"
    made = fusion(shape, [shape], op("k", "constant", shape), op("y", "add", shape, "k", "p0"))
    assert [(moved(made, each) or 0) - 8 * elements for each in BOTH] == [xla, corrected]


def test_fusions_inside_of_fusions_read_through() -> None:
    parameters = op("a", "parameter", BIG), op("b", "parameter", ROW, parameter=1)
    inner = named("inner", *parameters, op("s", "slice", ROW, "a"))
    outer = named("outer", *parameters, op("f", "fusion", ROW, "a", "b", calls=["inner"]))
    assert moved(of_one("fusion", ROW, BIG, ROW, calls=["outer"], called=[inner, outer])) == 4000 + 4000


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


def test_huge_sizes_take_no_time() -> None:
    assert valid_pairs(1 << 62, 1 << 61, 1 << 62, WindowDim(stride=1, low=0)) == (1 << 61) * (1 << 62) - (
        (1 << 61) * ((1 << 61) - 1) // 2
    )
    assert valid_pairs(1 << 62, 1 << 62, 1 << 62, WindowDim(stride=3, base_dilation=1 << 40)) is None


def test_nothing_meets_nothing() -> None:
    assert valid_pairs(0, 3, 5, WindowDim(3)) == 0
    assert valid_pairs(5, 3, 5, WindowDim(3, stride=0)) == 0


HALF_IMAGE, HALF_KERNEL, MADE = "f16[8,32,32,3]", "f16[3,3,3,64]", "f16[8,32,32,64]"
FORWARD = "__cudnn$convForward"


def sizes(opcode: str, result: str, *operands: str, **fields: Any) -> Mapping[str, int]:
    inside = of_one(opcode, result, *operands, **fields).entry
    made = inside.root_instruction
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
        ("custom-call", {"target": "__cublas$gemm", "backend_config": GEMM}),
    ],
)
def test_a_product_in_a_program(opcode: str, fields: dict[str, Any]) -> None:
    assert sizes(opcode, "f16[100,7]", "f16[100,33]", "f16[33,7]", **fields) == {"M": 100, "N": 7, "K": 33}


@pytest.mark.parametrize(
    ("kind", "result", "operands"),
    [
        ("Forward", MADE, (HALF_IMAGE, HALF_KERNEL)),
        ("BackwardInput", HALF_IMAGE, (MADE, HALF_KERNEL)),
        ("BackwardFilter", HALF_KERNEL, (HALF_IMAGE, MADE)),
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
        ("custom-call", ("f16[9]", "f16[9]"), {"target": FORWARD, "convolution": NHWC}),
        ("custom-call", (IMAGE, KERNEL), {"target": FORWARD, "convolution": replace(NHWC, input_feature=-9)}),
        ("custom-call", ("f16[9]",), {"target": FORWARD, "convolution": NHWC}),
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
    facts: dict[str, Any] = {"name": name, "target": target, "metadata": OpMetadata(op_name=op_name)}
    inside = of_one("custom-call", result, "f32[8,5]", "f32[5,3]", **facts).entry
    call = inside.root_instruction
    found = kernel_product(call, [operand.shape for operand in inside.operands_of(call)])
    assert found == (Product(8, 3, 5) if is_product else None)


def test_the_vector_memory_of_a_program_is_that_of_the_instruction_that_works_in_most() -> None:
    config = (
        '{"scoped_memory_configs":[{"memory_space":"0","offset":"0","size":"67108864"}],'
        '"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"%d"}]}'
    )
    adds = [of_one("add", "f32[8]", "f32[8]", "f32[8]", backend_config=config % size) for size in (300, 4000)]
    instructions = [each.entry.root_instruction for each in adds]
    assert vmem_bytes(instructions) == 4000
    assert vmem_bytes([replace(each, backend_config="") for each in instructions]) is None


# --- attention and products of groups ---

QUERY, CACHE = "bf16[2,8,4,64]", "bf16[2,12,2,64]"
"""Two examples, 8 queries and 12 keys, 4 heads of queries and 2 of keys, width 64."""


def fmha(mask: str = "NO_MASK", keys: int = 8, **changes: Any) -> str:
    """Return the configuration of cuDNN's attention with 8 queries, as JAX writes it."""
    config = {
        "intermediate_tensor_shape": {"element_type": "BF16", "dimensions": ["2", "4", "8", str(keys)]},
        "is_flash_attention": True,
        "mask_type": mask,
        "sliding_window_length": 0,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
    }
    return msgspec.json.encode({"cudnn_fmha_backend_config": {**config, **changes}}).decode()


def te(mask: int, queries: int, keys: int, **changes: int) -> str:
    """Return the attributes of Transformer Engine's attention, as XLA prints them."""
    numbers = {
        "attn_heads": 4, "input_batch": 2, "kv_max_seqlen": keys, "mask_type": mask, "max_segments_per_seq": 1,
        "num_gqa_groups": 2, "q_max_seqlen": queries, "qk_head_dim": 64, "v_head_dim": 32, "window_size_left": -1,
        "window_size_right": -1,
    }  # fmt: skip
    texts = ", ".join(f"{key} = {number} : i64" for key, number in {**numbers, **changes}.items())
    return f"{{{texts}, deterministic = false, dropout_probability = 1.000000e-01 : f64}}"


def aiter(*, causal: bool, left: int = -1, right: int = -1) -> str:
    window = f"window_size_left = {left} : i32, window_size_right = {right} : i32"
    return f"{{is_causal = {str(causal).lower()}, {window}, softmax_scale = 0.125 : f32}}"


def attention(target: str, config: str, *operands: str, result: str = "(bf16[2,4,8,64],u8[256])") -> Cost:
    return root(of_one("custom-call", result, *operands, target=target, backend_config=config), "corrected")


HEADS = 2 * 4
FORWARD_CALL, BACKWARD_CALL = "__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"


@pytest.mark.parametrize(
    ("config", "keys", "scores"),
    [
        (fmha(), QUERY, 64),
        (fmha(keys=12), CACHE, 96),
        (fmha("CAUSAL"), QUERY, 36),  # 1 + 2 + ... + 8
        (fmha("CAUSAL", 12), CACHE, 36),  # the first query reads the first key
        (fmha("CAUSAL", sliding_window_length=3), QUERY, 1 + 2 + 6 * 3),
        (fmha("NO_MASK", is_causal_mask=True), QUERY, 36),  # as XLA wrote it once
    ],
)
def test_attention_counts_the_scores_that_its_mask_keeps(config: str, keys: str, scores: int) -> None:
    """Two products of 64 numbers per score: 4 x 64 x scores. The last result is workspace."""
    found = attention(FORWARD_CALL, config, QUERY, keys, keys)
    assert (found.flops, found.matrix_flops) == (HEADS * scores * 4 * 64,) * 2
    key_bytes = 2 * 2 * (8 * 4 if keys == QUERY else 12 * 2) * 64
    assert found.bytes == 2 * (2 * 2 * 8 * 4 * 64) + 2 * key_bytes


def test_the_backward_pass_of_attention_has_five_products() -> None:
    operands = [QUERY] * 3 + ["f32[2,4,8]"] + [QUERY] * 2
    found = attention(BACKWARD_CALL, fmha("CAUSAL"), *operands, result="(bf16[2,4,8,64],bf16[2,4,8,64],u8[9])")
    assert found.flops == HEADS * 36 * 10 * 64


@pytest.mark.parametrize(
    ("target", "config", "flops"),
    [
        ("te_fused_attn_forward_ffi", te(0, 8, 12), HEADS * 96 * 2 * (64 + 32)),
        ("te_fused_attn_forward_ffi", te(2, 8, 8), HEADS * 36 * 2 * (64 + 32)),
        ("te_fused_attn_backward_ffi", te(2, 8, 8), HEADS * 36 * 2 * (3 * 64 + 2 * 32)),
        ("te_fused_attn_forward_ffi", te(4, 1, 12), HEADS * 12 * 2 * (64 + 32)),  # one more token reads all keys
        ("te_fused_attn_forward_ffi", te(4, 8, 12), HEADS * (36 + 8 * 4) * 2 * (64 + 32)),
        ("te_fused_attn_forward_ffi", te(0, 8, 8, window_size_left=1, window_size_right=1), HEADS * 22 * 2 * 96),
        ("te_fused_attn_forward_ffi", te(2, 8, 8).replace("qk_head_dim", "head_dim"), HEADS * 36 * 2 * 96),
    ],
)
def test_attention_of_transformer_engine(target: str, config: str, flops: int) -> None:
    result = "(bf16[2,8,4,32],f32[2,4,8,1],u32[2,4],u8[1])"
    assert attention(target, config, "bf16[2,8,3,4,64]", result=result).flops == flops


@pytest.mark.parametrize(
    ("target", "config", "flops"),
    [
        ("MhaFwdUnifiedJA", aiter(causal=True), HEADS * 36 * 4 * 64),
        ("MhaFwdUnifiedJA", aiter(causal=False, left=1, right=1), HEADS * 22 * 4 * 64),
        ("MhaBwdJA", aiter(causal=False), HEADS * 64 * 10 * 64),
    ],
)
def test_attention_of_aiter(target: str, config: str, flops: int) -> None:
    assert attention(target, config, *[QUERY] * 4, "s32[0]").flops == flops


@pytest.mark.parametrize(
    ("target", "config", "operands"),
    [
        (FORWARD_CALL, "", [QUERY] * 3),
        (FORWARD_CALL, fmha("PADDING_CAUSAL"), [QUERY] * 3),  # lengths are data
        (FORWARD_CALL, fmha("ALIBI"), [QUERY] * 3),
        (FORWARD_CALL, fmha(max_seg_per_batch=2), [QUERY] * 3),
        (FORWARD_CALL, fmha(is_paged_attention=True), [QUERY] * 3),
        (FORWARD_CALL, fmha(is_flash_attention=False), [QUERY] * 3),
        (FORWARD_CALL, fmha(sliding_window_length=3), [QUERY] * 3),
        (FORWARD_CALL, fmha(mask_type=[7]), [QUERY] * 3),
        (FORWARD_CALL, fmha(intermediate_tensor_shape={"dimensions": ["2", "4", "8"]}), [QUERY] * 3),
        (FORWARD_CALL, fmha(), [QUERY]),
        (FORWARD_CALL, fmha(), ["bf16[2,9,4,64]"] * 3),  # not 8 queries
        (FORWARD_CALL, fmha(), ["bf16[64]"] * 3),
        ("te_fused_attn_forward_ffi", te(1, 8, 8), [QUERY]),  # padding
        ("te_fused_attn_forward_ffi", te(2, 8, 8, max_segments_per_seq=4), [QUERY]),
        ("te_fused_attn_forward_ffi", te(0, 8, 12, window_size_left=1), [QUERY]),  # from which end is not said
        ("te_fused_attn_forward_ffi", te(0, 0, 8), [QUERY]),
        ("te_fused_attn_forward", "opaque", [QUERY]),
        ("MhaFwdUnifiedJA", aiter(causal=True), [QUERY, CACHE, CACHE]),  # from which end is not said
        ("MhaFwdUnifiedJA", aiter(causal=True), [QUERY] * 3 + ["s32[3]"]),
        ("MhaFwdUnifiedJA", "{}", [QUERY] * 3),
        ("MhaVarlenFwdJA", aiter(causal=True), ["bf16[16,4,64]"] * 3),
    ],
)
def test_attention_with_a_mask_that_depends_on_data_is_unknown(target: str, config: str, operands: list[str]) -> None:
    assert is_attention(target)
    assert attention(target, config, *operands).flops is None


@given(*[st.integers(1, 12)] * 2, *[st.integers(0, 15)] * 2, st.integers(0, 12))
def test_scores_are_the_pairs_inside_the_band(queries: int, keys: int, left: int, right: int, shift: int) -> None:
    found = Attention(1, queries, keys, 1, 1, left, right, shift, is_backward=False)
    pairs = [(i, j) for i in range(queries) for j in range(keys) if -left <= j - i - shift <= right]
    assert found.scores == len(pairs)


@pytest.mark.parametrize(
    ("dims", "shapes", "flops"),
    [
        # rows of a group: 64 tokens, 4 experts of 8 x 16
        (DotDims((1,), (1,), (), (), (0,)), ("f32[64,8]", "f32[4,8,16]", "f32[64,16]"), 2 * 64 * 8 * 16),
        # the gradient of the experts: the groups divide the summed dimension
        (DotDims((0,), (0,)), ("f32[64,8]", "f32[64,16]", "f32[4,8,16]"), 2 * 64 * 8 * 16),
        (DotDims((2,), (2,), (0,), (1,), (0,)), ("f32[3,64,8]", "f32[4,3,8,16]", "f32[3,64,16]"), 3 * 2 * 64 * 8 * 16),
    ],
)
def test_a_product_of_groups_multiplies_each_row_once(dims: DotDims, shapes: tuple[str, str, str], flops: int) -> None:
    left, right, result = shapes
    assert numbers(of_one("ragged-dot", result, left, right, "s32[4]", dot=dims))[0] is None
    assert root(of_one("ragged-dot", result, left, right, "s32[4]", dot=dims), "corrected").matrix_flops == flops
    texts = {
        f"{side}_{kind}_dimensions": [str(at) for at in getattr(dims, f"{side}_{kind}")]
        for side in ("lhs", "rhs")
        for kind in ("contracting", "batch")
    }
    stated = {"dot_dimension_numbers": texts, "rhs_group_dimensions": [str(at) for at in dims.rhs_group]}
    config = {"grouped_gemm_backend_config": {"ragged_dot_dimension_numbers": stated}}
    fields: dict[str, Any] = {
        "target": "__cublas$lt$groupedMatmul",
        "backend_config": msgspec.json.encode(config).decode(),
    }
    call = of_one("custom-call", f"({result},s8[784])", left, right, "s32[4]", **fields)
    assert root(call, "corrected").flops == flops


TE_GEMM = "{collective_op = 0 : i64, lhs_axis_boundary = 2 : i64, scaling_mode = 1 : i64}"
SCALE, LEFT_8, RIGHT_8 = "f32[1]", "f8e4m3fn[4,16,8]", "f8e4m3fn[32,8]"


@pytest.mark.parametrize(
    ("target", "config", "operands", "flops"),
    [
        ("te_gemm_ffi", TE_GEMM, (LEFT_8, SCALE, RIGHT_8, SCALE, "bf16[0]"), 2 * 64 * 32 * 8),
        ("te_gemm_v2_ffi", f"{{config = {TE_GEMM}}}", (LEFT_8, SCALE, RIGHT_8, SCALE), 2 * 64 * 32 * 8),
        ("te_grouped_gemm_ffi", "{K = 8 : i64, M = 64 : i64, N = 32 : i64}", (LEFT_8, SCALE, RIGHT_8), 2 * 64 * 32 * 8),
        # Unknown: a collective gathers the left matrix, sizes that are not of a product, none
        ("te_gemm_ffi", TE_GEMM.replace("collective_op = 0", "collective_op = 1"), (LEFT_8, SCALE, RIGHT_8), None),
        ("te_gemm_ffi", TE_GEMM, (LEFT_8, SCALE, "f8e4m3fn[31,8]"), None),
        ("te_gemm_ffi", TE_GEMM, (LEFT_8,), None),
        ("te_grouped_gemm_ffi", "{}", (LEFT_8, SCALE, RIGHT_8), None),
    ],
)
def test_a_product_of_transformer_engine(
    target: str, config: str, operands: tuple[str, ...], flops: int | None
) -> None:
    """4 x 16 rows of 8 numbers, times 32 columns: 2 M N K is twice the root of M K x K N x M N."""
    made = of_one("custom-call", "(bf16[4,16,32],u8[99])", *operands, target=target, backend_config=config)
    assert root(made, "corrected").matrix_flops == flops


def test_a_product_of_groups_without_its_dimensions_is_unknown() -> None:
    call: dict[str, Any] = {"target": "__cublas$lt$groupedMatmul", "backend_config": "{}"}
    for made in (
        of_one("ragged-dot", "f32[64,16]", "f32[64,8]", "f32[4,8,16]", "s32[4]"),
        of_one("ragged-dot", "f32[64,16]", "f32[64,8]", dot=DotDims((1,), (1,))),
        of_one("custom-call", "f32[64,16]", "f32[64,8]", "f32[4,8,16]", "s32[4]", **call),
    ):
        assert root(made, "corrected").flops is None
