"""Rules on compiled programs: what they find, and the false alarms that they must not give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hlo_modules import computation, module, op, scalar, shape

from tfperf.linter import hlo_graph
from tfperf.linter.catalogue import RULES
from tfperf.linter.hlo_graph import HloGraph, graphs_of_program
from tfperf.linter.hlo_rules import check_program
from tfperf.linter.rule import Ledger
from tfperf.programs.link import FoundComputation, FoundInstruction
from tfperf.programs.model import ConvolutionDims, DotDims, Module, OpMetadata, ProgramError, Shape, WindowDim

SUM, MAX = scalar("sum", "add"), scalar("max", "maximum")
WINDOW = tuple(WindowDim(size=size) for size in (1, 2, 2, 1))
NHWC = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
IMAGE, KERNEL = "f32[32,32,32,16]", "f32[3,3,16,16]"


def named(name: str, op_type: str = "") -> OpMetadata:
    return OpMetadata(op_type, name)


def parameter(name: str, of: str, at: int = 0) -> FoundInstruction:
    return op(name, "parameter", of, parameter=at)


def found(*instructions: FoundInstruction, called: Iterable[FoundComputation] = ()) -> list[tuple[str, str]]:
    """Return the rules that find something in a program, each with the op."""
    return found_in(module(*called, computation("main", *instructions)))


def found_in(program: Module) -> list[tuple[str, str]]:
    ledger = Ledger(RULES)
    check_program(program, ledger)
    return [(each.rule, each.ops[0]) for each in ledger.violations]


def reduced(name: str, of: str, operand: str, kind: str = "sum", scope: str = "f") -> FoundInstruction:
    return op(name, "reduce", of, operand, "zero", calls=[kind], metadata=named(f"{scope}/{name}"))


ZERO = op("zero", "constant", "f32[]")
X = parameter("x", "f32[1024,1024]")


def convolved(of: str = IMAGE, name: str = "jit(f)/conv", op_type: str = "", **fields: Any) -> list[FoundInstruction]:
    made: dict[str, Any] = {
        "window": (WindowDim(3), WindowDim(3)),
        "convolution": NHWC,
        "metadata": named(name, op_type),
    }
    return [
        parameter("x", "f32[1]"),
        op("i", "broadcast", IMAGE, "x"),
        op("k", "broadcast", KERNEL, "x"),
        op("c", "convolution", of, "i", "k", **{**made, **fields}),
    ]


PLAIN = DotDims((1,), (0,))


def dotted(left: str, right: str, of: str, dims: DotDims = PLAIN) -> list[FoundInstruction]:
    operands = [parameter("a", left), parameter("b", right, 1)]
    return [*operands, op("d", "dot", of, "a", "b", dot=dims, metadata=named("jit(f)/dot"))]


@pytest.mark.parametrize(
    ("instructions", "rules"),
    [
        (
            dotted("f32[1000,100,100]", "f32[1000,100,100]", "f32[1000,100,100]", DotDims((2,), (1,), (0,), (0,))),
            ["TPU-MM-3"],
        ),
        (dotted("f32[2048,2048]", "f32[2048,10]", "f32[2048,10]"), []),  # 12.8 or 1.6 times as large, and small
        (convolved(), ["TPU-CV-1"]),
        (convolved(name=""), []),
        (convolved(name="jit(f)/transpose(jvp())/conv"), []),
        (convolved(op_type="Conv2DBackpropFilter"), []),
        (convolved(window=(WindowDim(3, base_dilation=2), WindowDim(3))), []),
        ([parameter("x", "f32[32,32,32,3]"), op("n", "negate", "f32[1]", "x")], ["TPU-RS-2"]),
        # A result takes it over; weights have two dimensions.
        ([parameter("x", "f32[32,32,32,3]"), op("n", "negate", "f32[32,32,32,3]", "x")], []),
        ([parameter("x", "f32[200000,3]"), op("n", "negate", "f32[1]", "x")], []),
    ],
)
def test_sizes(instructions: list[FoundInstruction], rules: list[str]) -> None:
    assert [rule for rule, _ in found(*instructions)] == rules


@pytest.mark.parametrize(("window", "name", "rules"), [
    (WINDOW, "jit(f)/reduce_window_max", ["TPU-PL-1"]),
    (WINDOW, "", []),  # made by the compiler
    ((WindowDim(), WindowDim(), WindowDim(5), WindowDim()), "jit(f)/cumsum", []),
])  # fmt: skip
def test_pooling_is_what_a_program_asks_for(window: Any, name: str, rules: list[str]) -> None:
    pooled = op(
        "p", "reduce-window", "f32[32,32,32,16]", "i", "zero", calls=["max"], window=window, metadata=named(name)
    )
    image = op("i", "broadcast", "f32[32,32,32,16]", "x")
    assert [rule for rule, _ in found(parameter("x", "f32[1]"), image, ZERO, pooled, called=[MAX])] == rules


def test_gradients_of_maxima_are_known_by_their_names_too() -> None:
    scatter = op("s", "scatter", "f32[8]", "x", metadata=named("jit(f)/transpose(jvp())/select_and_scatter_add"))
    assert found(parameter("x", "f32[8]"), scatter) == [("TPU-PL-2", "jit(f)/transpose(jvp())/select_and_scatter_add")]
    assert found(parameter("x", "f32[8]"), op("s", "scatter", "f32[8]", "x", metadata=named("jit(f)/at_set"))) == []


def test_a_softmax_is_no_chain() -> None:
    steps = [
        X, ZERO, reduced("m", "f32[1024]", "x", "max"), op("b", "broadcast", "f32[1024,1024]", "m"),
        op("d", "subtract", "f32[1024,1024]", "x", "b"), op("e", "exponential", "f32[1024,1024]", "d"),
        reduced("s", "f32[1024]", "e"),
    ]  # fmt: skip
    assert found(*steps, called=[SUM, MAX]) == []


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
        X, ZERO, reduced("m", "f32[1024]", "x", scope=scope), op("b", "broadcast", "f32[1024,1024]", "m"),
        op("d", "subtract", "f32[1024,1024]", "x", "b"), op("q", "multiply", "f32[1024,1024]", "d", "d"),
        reduced("v", "f32[1024]", "q", scope=after),
    ]  # fmt: skip
    assert [rule for rule, _ in found(*steps, called=[SUM])] == rules


@pytest.mark.parametrize(("own", "rules"), [("f", ["TPU-RD-1"]), ("", [])])
def test_sums_one_after_the_other_are_of_the_program(own: str, rules: list[str]) -> None:
    second = op("t", "reduce", "f32[]", "s", "zero", calls=["sum"], metadata=named(own and f"{own}/t"))
    assert [rule for rule, _ in found(X, ZERO, reduced("s", "f32[1024]", "x"), second, called=[SUM])] == rules


def test_a_factor_in_the_same_fusion_is_no_finding() -> None:
    large, inside = "f32[1024,1024]", "f32[4,1024,1024]"
    sums = [parameter("p", inside), ZERO, reduced("s", large, "p"), op("m", "multiply", large, "s", "s")]
    assert [rule for rule, _ in found(*sums, called=[SUM])] == ["TPU-RD-3"]
    fused = computation("fused", *sums)
    fusion = op("fusion", "fusion", large, "x", calls=["fused"])
    assert found(parameter("x", inside), fusion, called=[SUM, fused]) == []


def cut(limit: int, name: str = "jit(f)/slice", size: int = 1024) -> list[FoundInstruction]:
    piece = op("s", "slice", f"f32[{size},{limit}]", "x", slices=((0, size, 1), (0, limit, 1)), metadata=named(name))
    return [parameter("x", f"f32[{size},1024]"), piece]


@pytest.mark.parametrize(
    ("instructions", "rules"),
    [(cut(100), ["TPU-CS-1"]), (cut(128), []), (cut(100, name=""), []), (cut(100, size=8), [])],
)
def test_cuts_that_matter_are_large_and_of_the_program(instructions: list[FoundInstruction], rules: list[str]) -> None:
    assert [rule for rule, _ in found(*instructions)] == rules


def test_concatenations_have_boundaries_too() -> None:
    parts = [parameter("a", "f32[1024,100]"), parameter("b", "f32[1024,300]", 1)]
    whole = op("c", "concatenate", "f32[1024,400]", "a", "b", dimensions=(1,), metadata=named("jit(f)/concat"))
    assert [rule for rule, _ in found(*parts, whole)] == ["TPU-CS-1"]


@pytest.mark.parametrize(("tiles", "name", "rules"), [
    (((8, 128),), "jit(f)/transpose", ["TPU-TR-1"]),
    ((), "jit(f)/transpose", []),  # the layout of a CPU or GPU
    (((8, 128),), "", []),
    (((8, 128),), "jit(f)/conv_general_dilated", []),  # the compiler's, with an inherited name
])  # fmt: skip
def test_transposes_need_the_layouts_of_a_tpu(tiles: Any, name: str, rules: list[str]) -> None:
    made = op("t", "transpose", "f32[1024,1024]", "x", metadata=named(name))
    made.fields["shape"] = Shape("f32", (1024, 1024), (1, 0), tiles)
    assert [rule for rule, _ in found(X, made)] == rules


def test_random_numbers_are_told_once_for_each_scope() -> None:
    names = [
        "jit(f)/drop/jit(_threefry)/add",
        "jit(f)/drop/jit(_threefry)/while/xor",
        "jit(f)/other/jit(_threefry)/add",
    ]
    draws = [op(f"n{at}", "add", "u32[8]", "x", "x", metadata=named(name)) for at, name in enumerate(names)]
    normal = op("r", "rng", "f32[8]", "x", "x", distribution="normal", metadata=named("noise/random_bits"))
    assert [rule for rule, _ in found(parameter("x", "u32[8]"), *draws, normal)] == ["TPU-RN-3", "TPU-RN-3", "TPU-RN-2"]


# --- the graph of a program ---


def test_fusions_calls_and_tuples_are_put_in() -> None:
    fused = computation("fused", parameter("p", "f32[8]"), op("n", "negate", "f32[8]", "p"))
    called = computation("called", parameter("q", "f32[8]"), op("f", "fusion", "f32[8]", "q", calls=["fused"]))
    steps = [
        parameter("x", "f32[8]"), op("c", "call", "f32[8]", "x", calls=["called"]),
        op("t", "tuple", "(f32[8],f32[8])", "x", "c"),
        op("g", "get-tuple-element", "f32[8]", "t", tuple_index=1), op("e", "exponential", "f32[8]", "g"),
    ]  # fmt: skip
    (graph,) = graphs_of_program(module(fused, called, computation("main", *steps)))
    nodes = {node.instruction.name: node for node in graph.nodes}
    assert {*nodes} == {"x", "n", "t", "e"}
    assert graph.nodes[nodes["e"].operands[0]].instruction.name == "n"
    assert (nodes["n"].runs_in, nodes["n"].is_fused, nodes["e"].runs_in) == ("f", True, "e")


def test_bodies_of_loops_are_judged_too() -> None:
    body = computation(
        "body", *dotted("f32[1000,100,100]", "f32[1000,100,100]", "f32[1000,100,100]", DotDims((2,), (1,), (0,), (0,)))
    )
    condition = computation("condition", parameter("p", "pred[]"))
    loop = op("w", "while", "f32[8]", "x", calls=["body", "condition"])
    assert [rule for rule, _ in found(parameter("x", "f32[8]"), loop, called=[body, condition])] == ["TPU-MM-3"]


def test_programs_that_unfold_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty levels of calls, two each, are 2 to the power of 40 instructions; the limit is lowered to be quick."""
    monkeypatch.setattr(hlo_graph, "_MOST_NODES", 10_000)
    parts = [computation("c0", parameter("p0", "f32[]"))]
    for level in range(1, 40):
        calls = [op(f"a{level}{at}", "call", "f32[]", f"p{level}", calls=[f"c{level - 1}"]) for at in range(2)]
        result = op(f"r{level}", "add", "f32[]", f"a{level}0", f"a{level}1")
        parts.append(computation(f"c{level}", parameter(f"p{level}", "f32[]"), *calls, result))
    with pytest.raises(ProgramError, match="instructions with its fusions put in"):
        found_in(module(*parts))


def test_huge_dimensions_are_exact() -> None:
    huge = f"f32[{2**62},{2**62},100]"
    assert [rule for rule, _ in found(parameter("x", huge), op("n", "negate", "f32[1]", "x"))] == []
    assert shape(huge).dims[0] == 2**62


def test_open_dimensions_are_not_evaluable() -> None:
    made = op("d", "negate", "f32[8]", "x")
    made.fields["shape"] = Shape("f32", (-1, 8))
    ledger = Ledger(RULES)
    check_program(module(computation("main", parameter("x", "f32[8]"), made)), ledger)
    assert [*ledger.unknown] == ["d"]


def test_a_graph_has_readers_through_what_leaves_values_as_they_are() -> None:
    steps = [parameter("x", "f32[8]"), op("b", "bitcast", "f32[8]", "x"), op("n", "negate", "f32[8]", "b")]
    graph = HloGraph(module(computation("main", *steps)), 0, is_entry=True)
    assert [graph.nodes[reader].instruction.name for reader in graph.readers(0)] == ["n"]
