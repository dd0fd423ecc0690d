"""Each formula worked by hand. The shapes are small, so that the numbers can be checked with a pencil."""

from __future__ import annotations

import pytest

from tfperf.formats.hlo.cost_rules import Product
from tfperf.sections.roofline.analysis import Layers, OpShapes, OpWork, parse_shapes, work_of


def op(kind: str, shapes: str, *kernels: str, name: str = "model/layer/op", equation: str = "") -> OpShapes:
    inputs = parse_shapes(shapes)
    assert inputs is not None
    return OpShapes(name, kind, inputs, equation, kernels)


def work(kind: str, shapes: str, *kernels: str, equation: str = "") -> OpWork | None:
    made = op(kind, shapes, *kernels, equation=equation)
    return work_of(made, Layers([made]))


def numbers(found: OpWork | None) -> tuple[int, int | None] | None:
    return None if found is None else (found.flops, found.bytes)


# --- products ---


def test_a_product_has_two_operations_for_each_pair() -> None:
    """64 x 128 by 128 x 32: 2 * 64 * 32 * 128 operations; 4 bytes for 8192 + 4096 + 2048 elements."""
    found = work("MatMul", "(float[64,128];float[128,32])")
    assert found == OpWork(
        flops=524_288, matrix_flops=524_288, bytes=57_344, precision="fp32", product=Product(64, 32, 128)
    )


def test_the_only_dimension_that_both_have_is_summed_over() -> None:
    """The gradient of the kernel of a dense layer: x [64,128] and dy [64,32] give 128 x 32, summed over 64."""
    found = work("MatMul", "(half[64,128];half[64,32])")
    assert found is not None
    assert (found.product, found.precision, found.bytes) == (Product(128, 32, 64), "fp16", 2 * (8192 + 2048 + 4096))


def test_a_square_matrix_leaves_no_doubt_where_every_way_gives_the_same() -> None:
    found = work("MatMul", "(half[64,128];half[128,128])")
    assert found is not None
    assert found.product == Product(64, 128, 128)


@pytest.mark.parametrize(
    ("kernel", "product"),
    [
        ("volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_nt", Product(128, 128, 64)),
        ("ampere_sgemm_64x64_tn", Product(64, 64, 128)),
        ("ampere_sgemm_64x64_nn", None),  # 128 and 64 cannot be summed over
        ("gemm_kernel", None),
    ],
)
def test_two_ways_are_told_apart_by_the_kernel(kernel: str, product: Product | None) -> None:
    """Both operands are 64 x 128: a transposed gives 128 x 128, b transposed 64 x 64."""
    found = work("MatMul", "(half[64,128];half[64,128])", kernel)
    assert (found and found.product) == product


def test_products_of_a_batch_count_each() -> None:
    """4 * 16 products of 384 x 64 by 64 x 384; the batch of one operand may be 1."""
    found = work("BatchMatMulV2", "(half[4,16,384,64];half[1,16,64,384])", "turing_h1688gemm_128x128_nn")
    assert found is not None
    assert found.product == Product(384, 384, 64, 64)
    assert found.flops == 2 * 384 * 384 * 64 * 64
    assert found.bytes == 2 * (4 * 16 * 384 * 64 + 16 * 64 * 384 + 64 * 384 * 384)


def test_a_bias_that_is_fused_is_read() -> None:
    assert numbers(work("_FusedMatMul", "(float[2,3];float[3,4];float[4])")) == (48, 4 * (6 + 12 + 4 + 8))


def test_the_peak_of_tf32_counts_where_the_kernel_says_so() -> None:
    found = work("MatMul", "(float[2,3];float[3,4])", "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n")
    assert found is not None
    assert found.precision == "tf32"


def test_einsum_says_what_is_summed_over() -> None:
    """abc,acd->abd: 2 products of 3 x 5 by 5 x 7."""
    found = work("Einsum", "(float[2,3,5];float[2,5,7])", equation="abc,acd->abd")
    assert found is not None
    assert found.product == Product(3, 7, 5, 2)
    assert numbers(found) == (420, 4 * (30 + 70 + 42))


@pytest.mark.parametrize("equation", ["", "ab,bc", "aab,bc->ac", "...ab,bc->...ac", "ab,bc->a", "ab,bc->acd", "ab->ba"])
def test_other_equations_are_unknown(equation: str) -> None:
    assert work("Einsum", "(float[3,5];float[5,7])", equation=equation) is None


@pytest.mark.parametrize(
    "shapes", ["(float[2,3];float[4,5])", "(float[3];float[3,2])", "(float[2,3])", "(;float[2,3])"]
)
def test_products_that_do_not_fit_are_unknown(shapes: str) -> None:
    assert work("MatMul", shapes) is None


# --- convolutions: an image of 8 x 16 x 16 x 3, a kernel of 3 x 3 x 3 x 5, stride 2, so a result of 8 x 8 x 8 x 5 ---

FORWARD = op("Conv2D", "(float[8,16,16,3];float[3,3,3,5])", name="model/conv/Conv2D")
OF_INPUT = op(
    "Conv2DBackpropInput",
    "(int32[4];float[3,3,3,5];float[8,8,8,5])",
    name="gradient_tape/model/conv/Conv2D/Conv2DBackpropInput",
)
OF_KERNEL = op(
    "Conv2DBackpropFilter",
    "(float[8,16,16,3];int32[4];float[8,8,8,5])",
    name="gradient_tape/model/conv/Conv2D/Conv2DBackpropFilter",
)
FLOPS = 2 * 2560 * 27  # 8 * 8 * 8 * 5 elements, each from 3 * 3 * 3
BYTES = 4 * (6144 + 135 + 2560)


def test_a_layer_tells_what_each_of_its_convolutions_does() -> None:
    layers = Layers([FORWARD, OF_INPUT, OF_KERNEL])
    for each in (FORWARD, OF_INPUT, OF_KERNEL):
        found = work_of(each, layers)
        assert numbers(found) == (FLOPS, BYTES)
        assert found is not None
        assert found.matrix_flops == FLOPS


def test_one_convolution_alone_does_not_tell_its_stride() -> None:
    assert work_of(FORWARD, Layers([FORWARD])) is None
    assert work_of(OF_KERNEL, Layers([OF_KERNEL])) is None


def test_the_gradient_of_the_input_tells_its_operations_and_not_its_bytes() -> None:
    assert numbers(work_of(OF_INPUT, Layers([OF_INPUT]))) == (FLOPS, None)


def test_convolutions_of_the_first_layer_and_of_graphs_go_together_too() -> None:
    assert numbers(work_of(FORWARD, Layers([FORWARD, OF_KERNEL]))) == (FLOPS, BYTES)
    old = OF_KERNEL._replace(name="gradients/model/conv/Conv2D_grad/Conv2DBackpropFilter")
    assert numbers(work_of(FORWARD, Layers([FORWARD, old]))) == (FLOPS, BYTES)


def test_layers_that_ran_with_two_sizes_of_result_are_not_mixed() -> None:
    """Of two gradients for one image, nothing says which the forward op has; those of other images do not count."""
    inputs = parse_shapes("(float[8,16,16,3];int32[4];float[8,16,16,5])")
    assert inputs is not None
    assert work_of(FORWARD, Layers([FORWARD, OF_KERNEL, OF_KERNEL._replace(inputs=inputs)])) is None
    smaller = parse_shapes("(float[2,16,16,3];int32[4];float[2,8,8,5])")
    assert smaller is not None
    layers = Layers([FORWARD, OF_KERNEL, OF_KERNEL._replace(inputs=smaller)])
    assert numbers(work_of(FORWARD, layers)) == (FLOPS, BYTES)


def test_another_layer_does_not_tell() -> None:
    assert work_of(FORWARD._replace(name="model/conv_2/Conv2D"), Layers([FORWARD, OF_KERNEL])) is None


def test_groups_read_some_of_the_channels_only() -> None:
    """4 groups: each of 8 results of 2 x 2 is from 3 x 3 x 1 elements."""
    made = op("Conv2DBackpropInput", "(int32[4];float[3,3,1,8];float[1,2,2,8])")
    assert numbers(work_of(made, Layers([made]))) == (2 * 32 * 9, None)


def test_depthwise_convolutions_read_one_channel() -> None:
    """A kernel of 3 x 3, 4 channels, 2 for each: 8 channels of 5 x 5 in the result."""
    made = op("DepthwiseConv2dNativeBackpropInput", "(int32[4];float[3,3,4,2];float[1,5,5,8])")
    assert numbers(work_of(made, Layers([made]))) == (2 * 200 * 9, None)
    forward = op("DepthwiseConv2dNative", "(float[1,5,5,4];float[3,3,4,2])", name="m/d/depthwise")
    of_kernel = op(
        "DepthwiseConv2dNativeBackpropFilter",
        "(float[1,5,5,4];int32[4];float[1,5,5,8])",
        name="gradient_tape/m/d/depthwise/DepthwiseConv2dNativeBackpropFilter",
    )
    assert numbers(work_of(forward, Layers([forward, of_kernel]))) == (3600, 4 * (100 + 72 + 200))


def test_a_gradient_without_the_channels_of_the_kernel_is_unknown() -> None:
    assert work("Conv2DBackpropInput", "(int32[4];float[3,3,3,5];float[8,8,8,6])") is None


# --- other ops ---

HALF_TO_FLOAT = "EigenMetaKernel<TensorAssignOp<TensorMap<Tensor<float>>, Eigen::TensorConversionOp<float, half const>>"
FLOAT_TO_HALF = "void EigenMetaKernel<Eigen::TensorConversionOp<Eigen::half, Eigen::TensorMap<Eigen::Tensor<float const"


@pytest.mark.parametrize(
    ("kind", "shapes", "kernel", "expected"),
    [
        ("Relu", "(float[2,3])", "", (6, 48)),
        ("Tanh", "(float[2,3])", "", (0, 48)),
        ("AddV2", "(half[4,1];half[3])", "", (12, 2 * (4 + 3 + 12))),
        ("Mul", "(half[4,16,384,384];half[])", "", (9_437_184, 2 * (2 * 9_437_184 + 1))),
        ("GreaterEqual", "(half[10];half[])", "", (10, 20 + 2 + 10)),
        ("SelectV2", "(bool[10];float[10];float[])", "", (10, 10 + 40 + 4 + 40)),
        ("Cast", "(half[10])", HALF_TO_FLOAT, (10, 20 + 40)),
        ("Cast", "(float[30522,1024])", FLOAT_TO_HALF, (31_254_528, 6 * 31_254_528)),
        ("Cast", "(float[10])", "Cast_GPU_DT_FLOAT_DT_HALF_kernel", (10, 40 + 20)),
        ("Cast", "(float[10])", "some_kernel", None),
        ("BiasAdd", "(float[8,4,4,3];float[3])", "", (384, 4 * (384 + 3 + 384))),
        ("BiasAdd", "(float[8,4];float[3])", "", None),
        ("SquaredDifference", "(float[5];float[5])", "", (10, 60)),
        ("TanhGrad", "(float[5];float[5])", "", (15, 60)),
        ("AddN", "(float[5];float[5];float[5])", "", (10, 80)),
        ("AddN", "(float[5];float[6])", "", None),
        ("Softmax", "(float[2,5])", "", (40, 80)),
        ("Transpose", "(half[2,5];int32[2])", "", (0, 20 + 8 + 20)),
        # x and y of 40 elements, scale, offset, and two empty ones for what runs along
        ("FusedBatchNormV3", "(float[2,2,2,5];float[5];float[5];float[0];float[0])", "", (240, 4 * (40 + 10 + 40))),
        ("FusedBatchNormV3", "(float[2,2,2,5];float[5];float[5];float[5];float[5])", "", None),
        (
            "FusedBatchNormGradV3",
            "(float[2,2,2,5];float[2,2,2,5];float[5];float[5];float[5];float[])",
            "",
            (360, 4 * (40 + 40 + 15 + 1 + 40)),
        ),
        ("RandomUniform", "(int32[4])", "", None),
        ("Sum", "(float[4,5];int32[1])", "", None),
        ("ResourceApplyAdam", "(;;;float[];float[4])", "", None),
        ("GatherV2", "(float[4,5];int32[3];int32[])", "", None),
    ],
)
def test_other_ops(kind: str, shapes: str, kernel: str, expected: tuple[int, int] | None) -> None:
    assert numbers(work(kind, shapes, kernel)) == expected


def test_float64_has_a_peak_of_its_own() -> None:
    found = work("Mul", "(double[4];double[4])")
    assert found is not None
    assert found.precision == "fp64"
