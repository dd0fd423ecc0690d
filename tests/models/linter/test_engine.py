"""Each rule on a small graph that it is about, and on one that looks like it and is fine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lint_builders import HALF, IMAGE, REFERENCE, fed, graph, ints, linted, op, rules_in

from tfperf.models.linter.engine import LintError, LintOptions, LintResult, lint_model, lint_path
from tfperf.models.linter.padding import LEVELS
from tfperf.models.linter.rules import RULES

Nodes = list[dict[str, Any]]
SQUARE = (1024, 1024)


def convolved(batch: int, features: int, outputs: int, *, name: str = "c", dtype: int = 1, **attrs: Any) -> Nodes:
    """A convolution of images, its input and its kernel."""
    return [
        fed(f"{name}/x", batch, 56, 56, features, dtype=dtype),
        fed(f"{name}/k", 3, 3, features, outputs, dtype=dtype),
        op(name, "Conv2D", f"{name}/x", f"{name}/k", out=(batch, 56, 56, outputs), dtype=dtype, **attrs),
    ]


def transposed(source: str, perm: tuple[int, ...], out: tuple[int, ...], name: str = "t") -> Nodes:
    return [ints(f"{name}/perm", *perm), op(name, "Transpose", source, f"{name}/perm", out=out)]


def normed(axes: tuple[int, ...], variance: tuple[int, ...]) -> Nodes:
    """A norm of images over some axes, written as many ops."""
    return [
        fed("x", *IMAGE),
        ints("bn/axes", *axes),
        op("bn/mean", "Mean", "x", "bn/axes", out=variance),
        op("bn/difference", "SquaredDifference", "x", "bn/mean", out=IMAGE),
        op("bn/variance", "Mean", "bn/difference", "bn/axes", out=variance),
        op("bn/epsilon", "Const", out=()),
        op("bn/add", "AddV2", "bn/variance", "bn/epsilon", out=variance),
        op("bn/Rsqrt", "Rsqrt", "bn/add", out=variance),
        op("bn/mul", "Mul", "x", "bn/Rsqrt", out=IMAGE),
    ]


PRODUCT = [fed("a", *SQUARE), fed("b", *SQUARE), op("m", "MatMul", "a", "b", out=SQUARE)]
BIASED = [*PRODUCT, fed("v", 1024), op("bias", "BiasAdd", "m", "v", out=SQUARE), op("act", "Relu", "bias", out=SQUARE)]
X = fed("x", *IMAGE)
WIDE = fed("w", 64, 256, 256)

FIRES: dict[str, Nodes] = {
    "TPU-MM-1": [*transposed("a", (1, 0), SQUARE), *PRODUCT[:2], op("m", "MatMul", "t", "b", out=SQUARE)],
    "TPU-MM-2": [*BIASED, op("cut", "TopKV2", "bias", out=SQUARE)],
    "TPU-MM-3": [
        fed("a", 1000, 100, 100), fed("b", 1000, 100, 100), op("m", "BatchMatMulV2", "a", "b", out=(1000, 100, 100)),
    ],
    "TPU-CV-1": convolved(100, 64, 64),
    "TPU-CV-2": convolved(60, 64, 64),
    "TPU-CV-3": [
        fed("x", 64, 56, 56, 128), *transposed("x", (3, 1, 2, 0), (128, 56, 56, 64)), fed("k", 3, 3, 64, 128),
        op("c", "Conv2D", "t", "k", out=(128, 56, 56, 128)),
    ],
    "TPU-CV-4": [*convolved(128, 64, 64), op("act", "Relu", "c", out=(128, 56, 56, 64))],
    "TPU-PL-1": [X, op("p", "MaxPool", "x", out=(30, 14, 14, 20))],
    "TPU-PL-2": [X, op("g", "MaxPoolGrad", "x", "x", "x", out=IMAGE)],
    "TPU-CS-1": [WIDE, ints("axis", -1), op("c", "Split", "axis", "w", out=(64, 256, 64), num_split=4)],
    "TPU-CS-2": [WIDE, ints("axis", -1), op("c", "ConcatV2", "w", "axis", out=(64, 256, 256))],
    "TPU-TR-1": [X, *transposed("x", (0, 3, 1, 2), (30, 20, 28, 28))],
    "TPU-TR-2": [
        X, *transposed("x", (0, 3, 1, 2), (30, 20, 28, 28)), op("r", "Relu", "t", out=(30, 20, 28, 28)),
        *transposed("r", (0, 2, 3, 1), IMAGE, "u"),
    ],
    "TPU-BS-1": [X, op("s", "SpaceToDepth", "x", out=(30, 14, 14, 80))],
    "TPU-RS-1": [X, ints("to", 30, -1), op("r", "Reshape", "x", "to", out=(30, 15680))],
    "TPU-RS-2": [op("x", "Placeholder", out=IMAGE), op("r", "Relu", "x", out=IMAGE)],
    "TPU-RN-1": [op("r", "Multinomial", out=(4, 3))],
    "TPU-RN-2": [op("r", "TruncatedNormal", out=(4, 3))],
    "TPU-RN-3": [op("r", "StatelessRandomUniformV2", out=(4, 3))],
    "TPU-RD-1": [X, ints("i", 3), op("s", "Sum", "x", "i", out=(30, 28, 28)), op("e", "Sum", "s", "i", out=(30, 28))],
    "TPU-RD-2": [
        X, ints("i", 1, 2), op("m", "Mean", "x", "i", out=(30, 1, 1, 20)),
        op("d", "SquaredDifference", "x", "m", out=IMAGE), op("v", "Mean", "d", "i", out=(30, 1, 1, 20)),
    ],
    "TPU-RD-3": [X, ints("i", 3), op("s", "Sum", "x", "i", out=(30, 28, 28)), fed("y"), op("m", "Mul", "s", "y")],
    "TPU-BN-1": normed((0, 1, 2), (1, 1, 1, 20)),
    "TPU-OP-1": [X, op("p", "Print", "x", out=IMAGE)],
    "GPU-MM-1": [fed("a", 1024, 1023), fed("b", 1023, 1024), op("m", "MatMul", "a", "b", out=SQUARE)],
    "GPU-CV-1": convolved(32, 6, 64),
    "GPU-CV-2": convolved(32, 3, 64),
    "GPU-LY-1": [
        fed("x", 32, 64, 56, 56), fed("k", 3, 3, 64, 64),
        op("c", "Conv2D", "x", "k", out=(32, 64, 56, 56), dtype=HALF, data_format="NCHW"),
    ],
    "GPU-LY-2": [*convolved(32, 64, 64), *transposed("c", (0, 3, 1, 2), (32, 64, 56, 56))],
    "GPU-LY-3": convolved(32, 64, 64, data_format="NHWC"),
    "GPU-BT-1": convolved(1, 64, 64),
}  # fmt: skip

FINE: dict[str, Nodes] = {
    # The transpose is read by something else too.
    "TPU-MM-1": [*FIRES["TPU-MM-1"], op("other", "TopKV2", "t", out=SQUARE)],
    # Nothing follows the product that could be fused.
    "TPU-MM-2": [*PRODUCT, op("cut", "TopKV2", "m", out=SQUARE)],
    # A head of ten classes is mostly padding, and small.
    "TPU-MM-3": [fed("a", 128, 1024), fed("b", 1024, 10), op("m", "MatMul", "a", "b", out=(128, 10))],
    "TPU-CV-1": convolved(128, 64, 64),
    "TPU-CV-2": convolved(128, 64, 64),
    # Height and width are exchanged too.
    "TPU-CV-3": [
        fed("x", 64, 56, 56, 128), *transposed("x", (3, 2, 1, 0), (128, 56, 56, 64)), fed("k", 3, 3, 64, 128),
        op("c", "Conv2D", "t", "k", out=(128, 56, 56, 128)),
    ],
    "TPU-CV-4": [*convolved(128, 64, 64), op("act", "Softmax", "c", out=(128, 56, 56, 64))],
    "TPU-PL-1": [fed("x", 128, 56, 56, 128), op("p", "MaxPool", "x", out=(128, 28, 28, 128))],
    "TPU-PL-2": [X, ints("s", *IMAGE), op("g", "AvgPoolGrad", "s", "x", out=IMAGE)],
    "TPU-CS-1": [WIDE, ints("axis", -1), op("c", "Split", "axis", "w", out=(64, 256, 128), num_split=2)],
    "TPU-CS-2": [WIDE, ints("axis", -1), op("c", "ConcatV2", "w", "w", "axis", out=(64, 256, 512))],
    # Only dimensions of size 1 move.
    "TPU-TR-1": [fed("x", 30, 1, 28, 20), *transposed("x", (0, 2, 1, 3), (30, 28, 1, 20))],
    # What is between them is read elsewhere too.
    "TPU-TR-2": [*FIRES["TPU-TR-2"], op("other", "TopKV2", "r", out=IMAGE)],
    # The usual remedy for images of three channels.
    "TPU-BS-1": [fed("x", 32, 224, 224, 3), op("s", "SpaceToDepth", "x", out=(32, 112, 112, 12))],
    # The last two dimensions stay.
    "TPU-RS-1": [X, ints("to", 840, 28, 20), op("r", "Reshape", "x", "to", out=(840, 28, 20))],
    "TPU-RS-2": [op("x", "Placeholder", out=(30, 15680)), op("r", "Relu", "x", out=(30, 15680))],
    "TPU-RN-1": [op("r", "RandomUniform", out=(4, 3))],
    "TPU-RN-2": [op("r", "RandomUniform", out=(4, 3))],
    "TPU-RN-3": [op("r", "RandomStandardNormal", out=(4, 3))],
    "TPU-RD-1": [X, ints("i", 3), op("s", "Sum", "x", "i", out=(30, 28, 28)), op("e", "Max", "s", "i", out=(30, 28))],
    # A softmax: the sum waits for the maximum, which is of another kind.
    "TPU-RD-2": [
        X, ints("i", 3), op("m", "Max", "x", "i", out=(30, 28, 28, 1)), op("d", "Sub", "x", "m", out=IMAGE),
        op("e", "Exp", "d", out=IMAGE), op("s", "Sum", "e", "i", out=(30, 28, 28, 1)),
        op("q", "RealDiv", "e", "s", out=IMAGE),
    ],
    # The sum divides, which does not distribute.
    "TPU-RD-3": [X, ints("i", 3), op("s", "Sum", "x", "i", out=(30, 28, 28)), fed("y"), op("m", "RealDiv", "y", "s")],
    # A layer norm: each example has a variance of its own.
    "TPU-BN-1": normed((3,), (30, 28, 28, 1)),
    "TPU-OP-1": PRODUCT,
    "GPU-MM-1": PRODUCT,
    "GPU-CV-1": convolved(32, 8, 64),
    "GPU-CV-2": convolved(32, 6, 64),
    "GPU-LY-1": convolved(32, 64, 64, dtype=HALF, data_format="NHWC"),
    "GPU-LY-2": [fed("x", 32, 56, 56, 64), *transposed("x", (0, 3, 1, 2), (32, 64, 56, 56))],
    "GPU-LY-3": [
        fed("x", 32, 64, 56, 56), fed("k", 3, 3, 64, 64),
        op("c", "Conv2D", "x", "k", out=(32, 64, 56, 56), data_format="NCHW"),
    ],
    "GPU-BT-1": convolved(8, 64, 64),
}  # fmt: skip
WITHOUT_GRAPH = {"TPU-BN-2"}


def of(rule: str, nodes: Nodes) -> LintResult:
    return linted(*nodes, device=rule[:3].lower())


@pytest.mark.parametrize("rule", FIRES)
def test_a_rule_finds_what_it_is_about(rule: str) -> None:
    found = [each for each in of(rule, FIRES[rule]).violations if each.rule == rule]
    assert found
    assert all(each.level in RULES[rule].level.split(", ") for each in found)
    assert all(each.what and each.advice and each.unless and each.ops for each in found)


@pytest.mark.parametrize("rule", FINE)
def test_a_rule_leaves_its_counter_example_alone(rule: str) -> None:
    result = of(rule, FINE[rule])
    assert rule not in rules_in(result)
    assert result.evaluated


def test_every_rule_has_an_example_and_a_counter_example() -> None:
    assert FIRES.keys() == FINE.keys() == RULES.keys() - WITHOUT_GRAPH


def test_rules_are_declared_whole() -> None:
    for rule in RULES.values():
        assert {*rule.level.split(", ")} <= {*LEVELS}
        assert all((rule.title, rule.needs, rule.when, rule.advice, rule.unless, rule.says, rule.source)), rule.id


def test_padding_of_a_convolution_is_that_of_its_tensors() -> None:
    (found,) = (each for each in linted(*convolved(100, 64, 64)).violations if each.rule == "TPU-CV-1")
    activation, result, kernel = found.tensors
    assert (activation.least.padded, round(activation.least.ratio, 2)) == ((128, 56, 56, 64), 1.28)
    assert result.least.padded == (128, 56, 56, 64)
    assert (kernel.least.padded, kernel.most.padded) == ((3, 3, 64, 128), (3, 3, 128, 64))
    assert found.level == "medium"
    assert "100x56x56x64 becomes 128x56x56x64" in found.what


def test_gradients_of_kernels_are_padded_the_other_way_round() -> None:
    nodes = [
        *convolved(128, 3, 64), ints("shape", 3, 3, 3, 64),
        op("g", "Conv2DBackpropFilter", "c/x", "shape", "c", out=(3, 3, 3, 64)),
    ]  # fmt: skip
    (found,) = (each for each in linted(*nodes).violations if each.ops == ("g",))
    assert found.tensors[0].least.padded == (128, 56, 56, 128)
    (forward,) = (each for each in linted(*nodes).violations if each.ops == ("c",))
    assert forward.tensors[0].least.padded == (128, 56, 56, 8)
    assert "space-to-depth" in forward.advice


def test_of_equally_usual_batch_sizes_the_larger_counts() -> None:
    result = linted(*convolved(32, 64, 64, name="a"), *convolved(128, 64, 64, name="b"))
    (found,) = (each for each in result.violations if each.rule == "TPU-CV-2")
    assert "32 in 1, 128 in 1" in found.what
    (padded,) = (each for each in result.violations if each.rule == "TPU-CV-1")
    assert (padded.ops, padded.tensors[0].least.padded) == (("a",), (128, 56, 56, 64))


def test_channels_first_have_their_features_elsewhere() -> None:
    nodes = [fed("x", 100, 64, 56, 56), fed("k", 3, 3, 64, 60)]
    conv = op("c", "Conv2D", "x", "k", out=(100, 60, 56, 56), data_format="NCHW")
    (found,) = (each for each in linted(*nodes, conv).violations if each.rule == "TPU-CV-1")
    assert found.tensors[1].least.padded == (128, 64, 56, 56)


def test_pooling_has_the_layout_of_the_convolution_after_it_too() -> None:
    pool = [fed("x", 128, 112, 112, 3), op("c/x", "MaxPool", "x", out=(128, 56, 56, 3))]
    conv = [fed("k", 3, 3, 3, 64), op("c", "Conv2D", "c/x", "k", out=(128, 56, 56, 64))]
    (found,) = (each for each in linted(*pool, *conv).violations if each.rule == "TPU-PL-1")
    assert found.tensors[0].least == found.tensors[0].most
    (alone,) = (each for each in linted(*pool).violations if each.rule == "TPU-PL-1")
    assert alone.tensors[0].least != alone.tensors[0].most


def test_what_is_fused_into_the_next_product_does_not_block() -> None:
    nodes = [*BIASED, fed("w", *SQUARE), op("next", "MatMul", "bias", "w", out=SQUARE)]
    (found,) = (each for each in linted(*nodes).violations if each.rule == "TPU-MM-2")
    assert found.level == "info"


def test_both_halves_of_a_separable_convolution_are_judged() -> None:
    nodes = [
        fed("x", 100, 56, 56, 20), fed("d", 3, 3, 20, 1), fed("p", 1, 1, 20, 60),
        op("depth", "DepthwiseConv2dNative", "x", "d", out=(100, 56, 56, 20)),
        op("point", "Conv2D", "depth", "p", out=(100, 56, 56, 60)),
    ]  # fmt: skip
    assert {each.ops[0] for each in linted(*nodes).violations if each.rule == "TPU-CV-1"} == {"depth", "point"}


@pytest.mark.parametrize(
    ("begin", "end", "masks", "rules"),
    [
        ((0, 0, 0), (0, 0, 128), {"begin_mask": 7, "end_mask": 3}, set()),
        ((0, 0, 0), (0, 0, 100), {"begin_mask": 7, "end_mask": 3}, {"TPU-CS-1"}),
        ((0, 100), (0, 0), {"ellipsis_mask": 1, "end_mask": 2}, {"TPU-CS-1"}),
        ((0, 128), (0, 0), {"ellipsis_mask": 1, "end_mask": 2}, set()),
        ((0, -128), (0, 0), {"ellipsis_mask": 1, "end_mask": 2}, set()),
        ((3,), (4,), {"shrink_axis_mask": 1}, set()),
        ((0, 0, 3), (0, 0, 4), {"begin_mask": 3, "end_mask": 3, "shrink_axis_mask": 4}, {"TPU-CS-1"}),
        ((0, 0, 0, 100), (0, 0, 0, 0), {"new_axis_mask": 1, "begin_mask": 7, "end_mask": 15}, {"TPU-CS-1"}),
    ],
)
def test_slices_as_python_writes_them(
    begin: tuple[int, ...], end: tuple[int, ...], masks: dict[str, Any], rules: set[str]
) -> None:
    nodes = [WIDE, ints("b", *begin), ints("e", *end), ints("s", *(1 for _ in begin))]
    result = linted(*nodes, op("cut", "StridedSlice", "w", "b", "e", "s", **masks))
    assert (rules_in(result), result.unknown) == (rules, {"w": result.unknown["w"]})


def test_a_slice_that_takes_out_what_was_put_in() -> None:
    both = [WIDE, fed("v", 64, 256, 256), ints("axis", 2), op("c", "ConcatV2", "w", "v", "axis", out=(64, 256, 512))]
    cut = [ints("b", 0, 0, 256), ints("n", -1, -1, -1), op("s", "Slice", "c", "b", "n", out=(64, 256, 256))]
    assert [each.ops for each in linted(*both, *cut).violations if each.rule == "TPU-CS-2"] == [("s",)]


def test_cuts_of_shapes_are_not_looked_at() -> None:
    shape = op("shape", "Shape", "x", out=(4,))
    result = linted(X, shape, ints("o", 1), op("s", "StridedSlice", "shape", "o", "o", "o"))
    assert (result.evaluated, [*result.unknown]) == (0, ["x"])


def test_random_numbers_are_told_once_for_each_scope() -> None:
    draws = [op(f"{scope}/r{n}", "RandomUniform", out=(2,)) for scope in ("a", "b") for n in range(3)]
    assert [len(each.ops) for each in linted(*draws).violations] == [3, 3]


def test_first_values_of_variables_are_drawn_once() -> None:
    result = linted(op("kernel/Initializer/random_uniform", "RandomUniform", out=(2,)))
    assert (result.violations, result.evaluated) == ((), 1)


def test_a_transpose_that_is_undone_is_told_once() -> None:
    assert [each.rule for each in linted(*FIRES["TPU-TR-2"]).violations] == ["TPU-TR-2"]


def test_reductions_of_one_tensor_are_parallel() -> None:
    reductions = [op(name, kind, "x", "i", out=(30,)) for name, kind in (("s", "Sum"), ("m", "Max"))]
    (found,) = linted(X, ints("i", 1, 2, 3), *reductions).violations
    assert (found.rule, found.level, found.ops) == ("TPU-RD-2", "info", ("s", "m"))


def test_open_dimensions_are_counted_and_are_never_findings() -> None:
    nodes = [fed("x", -1, 56, 56, 20), fed("k", 3, 3, 20, 60), op("c", "Conv2D", "x", "k", out=(-1, 56, 56, 60))]
    result = linted(*nodes)
    assert (result.violations, result.evaluated, [*result.unknown]) == ((), 0, ["c", "x", "k"])
    assert result.is_empty
    assert "3 not evaluable because a tensor dimension is unknown" in result.headline
    judged = linted(*nodes, batch=100)
    assert rules_in(judged) == {"TPU-CV-1"}
    assert "c" not in judged.unknown


def test_computed_permutations_are_not_evaluable() -> None:
    result = linted(X, fed("perm", 4), op("t", "Transpose", "x", "perm", out=IMAGE))
    assert result.unknown["t"] == "the permutation is computed at run time"


def test_rules_are_chosen_and_ignored() -> None:
    nodes = FIRES["TPU-CV-2"]
    assert rules_in(linted(*nodes)) == {"TPU-CV-1", "TPU-CV-2"}
    assert rules_in(linted(*nodes, rules=("tpu-cv-2",))) == {"TPU-CV-2"}
    assert "TPU-CV-2" not in rules_in(linted(*nodes, ignore=("TPU-CV-2",)))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rules": ("TPU-CV-11",)}, "is not a rule: did you mean TPU-CV-"),
        ({"rules": ("GPU-CV-1",), "device": "tpu"}, "no TPU rule remains"),
    ],
)
def test_what_means_nothing_is_an_error(options: dict[str, Any], why: str) -> None:
    with pytest.raises(LintError, match=why):
        linted(X, **options)


def test_the_device_is_that_of_the_graph() -> None:
    placed = {**op("r", "Relu", "x", out=IMAGE), "device": b"/job:worker/device:GPU:0"}
    auto = LintOptions()
    assert lint_model(graph(X, placed), auto).device == "gpu"
    assert lint_model(graph(X), auto).device == "tpu"
    assert lint_model(graph(X), auto).notes
    assert lint_model(graph(X), LintOptions(rules=("GPU-CV-1",))).device == "gpu"


def test_ops_that_a_list_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "ops.txt"
    path.write_text("# supported\nRelu\n* `tf.raw_ops.MatMul`\n\n")
    nodes = [*PRODUCT, op("r", "Relu", "m", out=SQUARE), *(op(name, "Where", "r", out=SQUARE) for name in "st")]
    (found,) = (each for each in linted(*nodes, supported_ops=path).violations if each.rule == "TPU-OP-1")
    assert (found.op_type, found.ops, found.level) == ("Where", ("s", "t"), "high")
    path.write_text("\n# none\n")
    with pytest.raises(LintError, match="has no ops"):
        linted(*nodes, supported_ops=path)


def found_by(rule: str, *nodes: dict[str, Any]) -> list[tuple[str, tuple[str, ...], str]]:
    """Level, ops and text of the findings of a rule."""
    return [(each.level, each.ops, each.what) for each in linted(*nodes).violations if each.rule == rule]


def test_ops_on_inputs_are_fused_into_products_and_convolutions() -> None:
    """relu(a) is read by a product only; that of a kernel by something else too; a bias belongs to its product."""
    relu = op("r", "Relu", "a", out=SQUARE)
    product = op("m", "MatMul", "r", "b", out=SQUARE)
    assert found_by("TPU-MM-2", *PRODUCT[:2], relu, product) == [
        ("info", ("m", "r"), "Relu will be fused into the input of MatMul")
    ]
    assert not found_by("TPU-MM-2", *PRODUCT[:2], relu, product, op("cut", "TopKV2", "r", out=SQUARE))
    image, kernel, _ = convolved(128, 64, 64)
    squared = op("q", "Square", "c/k", out=(3, 3, 64, 64))
    convolution = op("c", "Conv2D", "c/x", "q", out=(128, 56, 56, 64))
    assert found_by("TPU-CV-4", image, kernel, squared, convolution) == [
        ("info", ("c", "q"), "Square will be fused into the input of Conv2D")
    ]
    after = [fed("w", *SQUARE), op("next", "MatMul", "act", "w", out=SQUARE)]
    assert [ops for _, ops, _ in found_by("TPU-MM-2", *BIASED, *after)] == [("m", "bias", "act")]
    scaled = [op("s", "Square", "act", out=SQUARE), fed("w", *SQUARE), op("next", "MatMul", "s", "w", out=SQUARE)]
    assert [ops for _, ops, _ in found_by("TPU-MM-2", *BIASED, *scaled)] == [("m", "bias", "act")]


@pytest.mark.parametrize(("order", "is_needless"), [(("s", "s:1"), True), (("s:1", "s"), False), (("s", "s"), False)])
def test_pieces_of_a_split_that_are_joined_again(order: tuple[str, str], is_needless: bool) -> None:
    split = op("s", "Split", "axis", "w", out=(64, 256, 128), num_split=2)
    split["attr"][1]["value"]["list"]["shape"] *= 2
    nodes = [WIDE, ints("axis", -1), split, op("c", "ConcatV2", *order, "axis", out=(64, 256, 256))]
    expected = [("low", ("c",), "all 2 pieces of s are concatenated in the same order")]
    assert found_by("TPU-CS-2", *nodes) == (expected if is_needless else [])


@pytest.mark.parametrize(("sizes", "is_needless"), [((128, 256), True), ((256, 128), False)])
def test_a_concatenation_that_is_split_into_its_inputs(sizes: tuple[int, int], is_needless: bool) -> None:
    nodes = [
        fed("a", 64, 256, 128),
        fed("b", 64, 256, 256),
        ints("axis", 2),
        ints("sizes", *sizes),
        op("c", "ConcatV2", "a", "b", "axis", out=(64, 256, 384)),
        op("s", "SplitV", "c", "sizes", "axis", out=(64, 256, sizes[0]), num_split=2),
    ]
    expected = [("low", ("s",), "it splits c into its inputs")]
    assert found_by("TPU-CS-2", *nodes) == (expected if is_needless else [])


def test_a_variance_waits_for_its_mean_with_and_without_kept_dimensions() -> None:
    """As tf.math.reduce_variance is written; a mean over other dimensions is another matter."""
    nodes = [
        fed("x", 64, 64),
        ints("i", 1),
        ints("j", 0),
        op("m", "Mean", "x", "i", out=(64, 1)),
        op("d", "Sub", "x", "m", out=(64, 64)),
        op("q", "Square", "d", out=(64, 64)),
    ]
    text = "one Mean of 64x64 depends on the other: two passes over it"
    assert found_by("TPU-RD-2", *nodes, op("v", "Mean", "q", "i", out=(64,))) == [("low", ("m", "v"), text)]
    assert not found_by("TPU-RD-2", *nodes, op("v", "Mean", "q", "j", out=(64,)))


@pytest.mark.parametrize("kept", [True, False])
def test_means_of_means(kept: bool) -> None:
    """Without kept dimensions, or with a reshape that removes them."""
    between = (30, 28, 28, 1) if kept else (30, 28, 28)
    nodes = [X, ints("i", 3), ints("j", 2), op("m", "Mean", "x", "i", out=between)]
    if kept:
        nodes.append(op("flat", "Squeeze", "m", out=(30, 28, 28)))
    nodes.append(op("n", "Mean", "flat" if kept else "m", "j", out=(30, 28)))
    ((level, ops, what),) = found_by("TPU-RD-1", *nodes)
    assert (level, ops) == ("low", ("m", "n"))
    assert what.startswith("Mean after Mean, sequentially: 30x28x28x20 to")


def logsumexp(name: str, given: str, dims: tuple[int, ...], out: tuple[int, ...]) -> Nodes:
    """The ops of tf.reduce_logsumexp over the last dimension, without kept dimensions."""
    kept = (*dims[:-1], 1)
    return [
        ints(f"{name}/axis", len(dims) - 1),
        op(f"{name}/max", "Max", given, f"{name}/axis", out=kept),
        op(f"{name}/finite", "IsFinite", f"{name}/max", out=kept),
        op(f"{name}/zeros", "ZerosLike", f"{name}/max", out=kept),
        op(f"{name}/select", "SelectV2", f"{name}/finite", f"{name}/max", f"{name}/zeros", out=kept),
        op(f"{name}/stop", "StopGradient", f"{name}/select", out=kept),
        op(f"{name}/sub", "Sub", given, f"{name}/stop", out=dims),
        op(f"{name}/exp", "Exp", f"{name}/sub", out=dims),
        op(f"{name}/sum", "Sum", f"{name}/exp", f"{name}/axis", out=out),
        op(f"{name}/log", "Log", f"{name}/sum", out=out),
        ints(f"{name}/shape", *out),
        op(f"{name}/reshape", "Reshape", f"{name}/stop", f"{name}/shape", out=out),
        op(name, "AddV2", f"{name}/log", f"{name}/reshape", out=out),
    ]


def test_logsumexp_of_logsumexp() -> None:
    one, two = logsumexp("one", "x", IMAGE, IMAGE[:3]), logsumexp("two", "one", IMAGE[:3], IMAGE[:2])
    what = "reduce_logsumexp after reduce_logsumexp, sequentially: 30x28x28x20 to 30x28x28 to 30x28"
    assert found_by("TPU-RD-1", X, *one, *two) == [("low", ("one/sum", "two/sum"), what)]
    assert not found_by("TPU-RD-1", X, *one, *two, op("cut", "TopKV2", "one", out=IMAGE[:3]))
    assert not found_by("TPU-RD-1", X, *one)


def test_convolutions_in_float32_are_told_once() -> None:
    nodes = [*convolved(32, 64, 64), *convolved(32, 64, 64, name="d")]
    (found,) = (each for each in linted(*nodes, device="gpu").violations if each.rule == "GPU-LY-3")
    assert (found.ops, found.level, found.certainty) == (("c", "d"), "low", "weak")


def test_ops_that_tensorflow_names_as_unsupported(tmp_path: Path) -> None:
    """A given list replaces these names."""
    nodes = [*PRODUCT, op("p", "Print", "m", out=SQUARE)]
    assert found_by("TPU-OP-1", *nodes) == [("low", ("p",), "Print is one that XLA does not support (1 node)")]
    path = tmp_path / "ops.txt"
    path.write_text("MatMul\nPrint\n")
    assert "TPU-OP-1" not in rules_in(linted(*nodes, supported_ops=path))


def test_what_is_no_model_is_an_error() -> None:
    with pytest.raises(LintError, match="is not a model that can be checked"):
        lint_model(3.5)


@pytest.mark.skipif(not REFERENCE.exists(), reason="the graphs of the reference are not here")
@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("conv_maxpool_train", {"TPU-CV-1", "TPU-CV-4", "TPU-PL-1", "TPU-PL-2"}),
        ("fused_bn", set()),
        ("keras3_bn_infer", {"TPU-BN-1"}),
        ("keras3_bn_train", {"TPU-BN-1"}),
        ("nn_bn", {"TPU-BN-1"}),
        ("reduce_chain", {"TPU-RD-1"}),
        ("reduce_mul", {"TPU-RD-3"}),
        ("reduce_parallel", {"TPU-RD-2"}),
        ("rng", {"TPU-RN-1", "TPU-RN-2", "TPU-RN-3"}),
        ("s2b", {"TPU-BS-1"}),
        ("slices", {"TPU-CS-1", "TPU-CS-2"}),
        ("transposes", {"TPU-CV-1", "TPU-CV-3", "TPU-MM-1", "TPU-TR-1"}),
    ],
)
def test_graphs_of_the_reference(name: str, rules: set[str]) -> None:
    result = lint_path(REFERENCE / f"{name}.graph.pb")
    assert rules_in(result) == rules
    assert result.evaluated
