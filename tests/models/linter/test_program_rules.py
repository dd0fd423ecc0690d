"""All rules on a program: which parts of it are judged, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from hlo_modules import NHWC, computation, module, op
from hlo_rule_builders import MAX, SQUARE, SUM, ZERO, dotted, found_in, judged, named, parameter, rules_in

from tfperf.formats.hlo.model import DotDims, FoundInstruction, Shape, WindowDim


def test_bodies_of_loops_are_judged_too() -> None:
    scatter = op("s", "select-and-scatter", "f32[8]", "p", metadata=named("f/pool"))
    body = computation("body", parameter("p", "f32[8]"), scatter)
    condition = computation("condition", parameter("p", "pred[]"))
    loop = op("w", "while", "f32[8]", "x", calls=["body", "condition"])
    program = module(body, condition, computation("main", parameter("x", "f32[8]"), loop))
    assert found_in(program) == [("TPU-PL-2", "f/pool")]


def test_a_finding_has_the_name_of_the_instruction_where_there_is_no_op() -> None:
    scatter = op("s", "select-and-scatter", "f32[8]", "x")
    assert found_in(module(computation("main", parameter("x", "f32[8]"), scatter))) == [("TPU-PL-2", "s")]


def test_open_dimensions_are_not_evaluable() -> None:
    made = op("d", "negate", "f32[8]", "x")
    made.fields["shape"] = Shape("f32", (-1, 8))
    ledger = judged(module(computation("main", parameter("x", "f32[8]"), made)))
    assert [*ledger.unknown] == ["d"]


def cut(limit: int, name: str = "jit(f)/slice", size: int = 1024) -> list[FoundInstruction]:
    piece = op("s", "slice", f"f32[{size},{limit}]", "x", slices=((0, size, 1), (0, limit, 1)), metadata=named(name))
    return [parameter("x", f"f32[{size},1024]"), piece]


@pytest.mark.parametrize(
    ("instructions", "rules"),
    [(cut(100), ["TPU-CS-1"]), (cut(128), []), (cut(100, name=""), []), (cut(100, size=8), [])],
)
def test_cuts_that_matter_are_large_and_of_the_program(instructions: list[FoundInstruction], rules: list[str]) -> None:
    assert rules_in(*instructions) == rules


def test_concatenations_have_boundaries_too() -> None:
    parts = [parameter("a", "f32[1024,100]"), parameter("b", "f32[1024,300]", 1)]
    whole = op("c", "concatenate", "f32[1024,400]", "a", "b", dimensions=(1,), metadata=named("jit(f)/concat"))
    assert rules_in(*parts, whole) == ["TPU-CS-1"]


@pytest.mark.parametrize(
    ("shape", "result", "rules"),
    [
        ("f32[32,32,32,3]", "f32[1]", ["TPU-RS-2"]),
        ("f32[32,32,32,3]", "f32[32,32,32,3]", []),  # a result takes it over
        ("f32[200000,3]", "f32[1]", []),  # weights have two dimensions
        (f"f32[{2**62},{2**62},100]", "f32[1]", []),  # 104 for 100 is little, however large the rest
    ],
)
def test_inputs_are_judged_and_weights_are_not(shape: str, result: str, rules: list[str]) -> None:
    assert rules_in(parameter("x", shape), op("n", "negate", result, "x")) == rules


def test_random_numbers_are_told_once_for_each_scope() -> None:
    names = ("drop/jit(_threefry)/add", "drop/jit(_threefry)/while/xor", "other/jit(_threefry)/add")
    draws = [op(name, "add", "u32[8]", "x", "x", metadata=named(f"jit(f)/{name}")) for name in names]
    normal = op("r", "rng", "f32[8]", "x", "x", distribution="normal", metadata=named("noise/random_bits"))
    assert rules_in(parameter("x", "u32[8]"), *draws, normal) == ["TPU-RN-3", "TPU-RN-3", "TPU-RN-2"]


@pytest.mark.parametrize(("tiles", "name", "rules"), [
    (((8, 128),), "jit(f)/transpose", ["TPU-TR-1"]),
    ((), "jit(f)/transpose", []),  # the layout of a CPU or GPU
    (((8, 128),), "", []),
    (((8, 128),), "jit(f)/conv_general_dilated", []),  # the compiler's, with an inherited name
])  # fmt: skip
def test_transposes_need_the_layouts_of_a_tpu(tiles: Any, name: str, rules: list[str]) -> None:
    made = op("t", "transpose", "f32[1024,1024]", "x", metadata=named(name))
    made.fields["shape"] = Shape("f32", (1024, 1024), (1, 0), tiles)
    assert rules_in(SQUARE, made) == rules


def test_padding_counts_where_it_is_large() -> None:
    shape = "f32[1000,100,100]"
    batched = dotted(shape, shape, shape, DotDims((2,), (1,), (0,), (0,)))
    assert rules_in(*batched) == ["TPU-MM-3"]
    # 12.8 or 1.6 times as large, and small.
    assert rules_in(*dotted("f32[2048,2048]", "f32[2048,10]", "f32[2048,10]")) == []


WINDOW = tuple(WindowDim(size=size) for size in (1, 2, 2, 1))


@pytest.mark.parametrize(("window", "name", "rules"), [
    (WINDOW, "jit(f)/reduce_window_max", ["TPU-PL-1"]),
    (WINDOW, "", []),  # made by the compiler
    ((WindowDim(), WindowDim(), WindowDim(5), WindowDim()), "jit(f)/cumsum", []),
])  # fmt: skip
def test_pooling_is_what_a_program_asks_for(window: Any, name: str, rules: list[str]) -> None:
    facts: dict[str, Any] = {"calls": ["max"], "window": window, "metadata": named(name)}
    pooled = op("p", "reduce-window", IMAGE, "i", "zero", **facts)
    image = op("i", "broadcast", IMAGE, "x")
    assert rules_in(parameter("x", "f32[1]"), image, ZERO, pooled, called=[MAX]) == rules


def test_gradients_of_maxima_are_known_by_their_names_too() -> None:
    name = "jit(f)/transpose(jvp())/select_and_scatter_add"
    for op_name, found in ((name, [("TPU-PL-2", name)]), ("jit(f)/at_set", [])):
        scatter = op("s", "scatter", "f32[8]", "x", metadata=named(op_name))
        assert found_in(module(computation("main", parameter("x", "f32[8]"), scatter))) == found


IMAGE, KERNEL = "f32[32,32,32,16]", "f32[3,3,16,16]"


def convolved(of: str = IMAGE, name: str = "jit(f)/conv", op_type: str = "", **fields: Any) -> list[FoundInstruction]:
    made: dict[str, Any] = {"window": (WindowDim(3),) * 2, "convolution": NHWC, "metadata": named(name, op_type)}
    operands = [op(key, "broadcast", shape, "x") for key, shape in (("i", IMAGE), ("k", KERNEL))]
    return [parameter("x", "f32[1]"), *operands, op("c", "convolution", of, "i", "k", **{**made, **fields})]


@pytest.mark.parametrize(
    ("instructions", "rules"),
    [
        (convolved(), ["TPU-CV-1"]),
        (convolved(name=""), []),
        (convolved(name="jit(f)/transpose(jvp())/conv"), []),
        (convolved(op_type="Conv2DBackpropFilter"), []),
        (convolved(window=(WindowDim(3, base_dilation=2), WindowDim(3))), []),
    ],
)
def test_forward_convolutions_are_judged(instructions: list[FoundInstruction], rules: list[str]) -> None:
    assert rules_in(*instructions) == rules


def reduced(name: str, of: str, operand: str, kind: str = "sum", scope: str = "f") -> FoundInstruction:
    return op(name, "reduce", of, operand, "zero", calls=[kind], metadata=named(f"{scope}/{name}"))


def test_a_softmax_is_no_chain() -> None:
    steps = [
        SQUARE, ZERO, reduced("m", "f32[1024]", "x", "max"), op("b", "broadcast", "f32[1024,1024]", "m"),
        op("d", "subtract", "f32[1024,1024]", "x", "b"), op("e", "exponential", "f32[1024,1024]", "d"),
        reduced("s", "f32[1024]", "e"),
    ]  # fmt: skip
    assert rules_in(*steps, called=[SUM, MAX]) == []


@pytest.mark.parametrize(
    ("scope", "after", "rules"),
    [
        ("jit(f)/std", "jit(f)/std", ["TPU-RD-2"]),
        ("jit(f)/jvp(bn)", "jit(f)/transpose(jvp(bn))", []),  # forward and backward
        ("batch_normalization_1/moments", "batch_normalization_1/moments", ["TPU-BN-1"]),
    ],
)
def test_a_variance_that_waits_for_its_mean(scope: str, after: str, rules: list[str]) -> None:
    steps = [
        SQUARE, ZERO, reduced("m", "f32[1024]", "x", scope=scope), op("b", "broadcast", "f32[1024,1024]", "m"),
        op("d", "subtract", "f32[1024,1024]", "x", "b"), op("q", "multiply", "f32[1024,1024]", "d", "d"),
        reduced("v", "f32[1024]", "q", scope=after),
    ]  # fmt: skip
    assert rules_in(*steps, called=[SUM]) == rules


@pytest.mark.parametrize(("own", "rules"), [("f", ["TPU-RD-1"]), ("", [])])
def test_sums_one_after_the_other_are_of_the_program(own: str, rules: list[str]) -> None:
    second = op("t", "reduce", "f32[]", "s", "zero", calls=["sum"], metadata=named(own and f"{own}/t"))
    assert rules_in(SQUARE, ZERO, reduced("s", "f32[1024]", "x"), second, called=[SUM]) == rules


def test_a_factor_in_the_same_fusion_is_no_finding() -> None:
    large, inside = "f32[1024,1024]", "f32[4,1024,1024]"
    sums = [parameter("p", inside), ZERO, reduced("s", large, "p"), op("m", "multiply", large, "s", "s")]
    assert rules_in(*sums, called=[SUM]) == ["TPU-RD-3"]
    fused = computation("fused", *sums)
    fusion = op("fusion", "fusion", large, "x", calls=["fused"])
    assert rules_in(parameter("x", inside), fusion, called=[SUM, fused]) == []
