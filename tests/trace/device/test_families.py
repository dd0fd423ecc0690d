"""Families of kernels, by name, op and program."""

from __future__ import annotations

import pytest

from tfperf.trace.device.families import Family, family_of_kernel, family_of_opcodes


def eigen(work: str) -> str:
    result = "Eigen::TensorMap<Eigen::Tensor<float, 1, 1, long>, 16>"
    assigned = f"Eigen::TensorAssignOp<{result}, Eigen::{work}<Eigen::array<int, 1>, X> const>"
    evaluator = f"Eigen::TensorEvaluator<{assigned}, Eigen::GpuDevice>"
    return f"void Eigen::internal::EigenMetaKernel<{evaluator}, long>({evaluator}, long)"


@pytest.mark.parametrize(
    ("family", "kernels"),
    [
        (
            "attention",
            [
                "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1",
                "void ck_tile::kentry<2, ck_tile::FmhaBwdDQDKDVKernel<ck_tile::P>, A>(B)",
                "_attn_fwd", "void flash_fwd_kernel<Traits>(Flash_fwd_params)", "compute_dot_do_o_specialized",
            ],
        ),
        (
            "product",
            [
                "nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT", "gemm_fusion_dot_33", "volta_sgemm_128x32_nn",
                "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32", "void splitKreduce_kernel<32, 16>(int)",
                "Cijk_Ailk_Bljk_BBS_BH_MT128x32x64_MI16x16x16x1_SN_1LDSB0",
                "void cutlass::device_kernel<cutlass3x_sm90_tensorop_s64x128x16gemm_bf16>(P)",
                "void ck::kernel_gemm_xdl_cshuffle_v3<P>(A)", "matmul_kernel",
            ],
        ),
        (
            "convolution",
            [
                "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", "winogradForwardData4x4",
                "sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16", "void ck::kernel_grouped_conv_fwd_xdl<P>(A)",
                "volta_scudnn_128x64_relu_interior_nn_v1", "Im3d2Col", "miopenSp3AsmConv_v30_2_2",
            ],
        ),
        ("normalization", ["triton_softmax_3", "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>(int)", "RMSNormKernel"]),
        (
            "reduction",
            ["input_reduce_fusion_1", "ColumnReduceKernel", "pooling_fw_4d_kernel", eigen("TensorReductionOp")],
        ),
        (
            "elementwise",
            ["loop_add_multiply_fusion_7", "wrapped_convert_3", "ApplyAdamKernel", "convertKernel",
             eigen("TensorConversionOp")],
        ),
        (
            "copy",
            [
                "nchwToNhwcKernel", "loop_slice_fusion_21", "loop_dynamic_update_slice_fusion", "wrapped_transpose",
                "__amd_rocclr_fillBufferAligned.kd", "batched_transpose_32x32_half",
                eigen("TensorBroadcastingOp"),
            ],
        ),
        ("collective", ["ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "rcclGenericKernel<1>"]),
        ("sort, gather, scatter", ["void cub::DeviceRadixSortKernel<P>(A)", "input_scatter_fusion", "wrapped_gather"]),
        ("other", ["FillPhiloxRandomKernelLaunch", "RedzoneAllocatorKernelImpl", "fusion_12", ""]),
    ],
)  # fmt: skip
def test_names_show_the_family(family: Family, kernels: list[str]) -> None:
    assert {kernel: family_of_kernel(kernel) for kernel in kernels} == dict.fromkeys(kernels, family)


def test_the_op_decides_where_a_library_runs_several_kernels() -> None:
    assert family_of_kernel("volta_sgemm_128x64_nn", "Conv2D") == "convolution"
    assert family_of_kernel("RowReduceKernel", "BiasAddGrad") == "reduction"
    assert family_of_kernel("unknown_kernel", "Softmax") == "normalization"
    assert family_of_kernel("kentry", "", "te_fused_attn_forward_ffi.10") == "attention"
    assert family_of_kernel("fft2d_r2c_32x32", "", "cudnn-conv-bw-input.3") == "convolution"
    assert family_of_kernel("kernel_1", "dot_general", "custom-call.5", "product") == "product"


def test_a_kernel_that_only_moves_data_is_a_copy_whatever_its_op() -> None:
    assert family_of_kernel("nhwcToNchwKernel", "Conv2D") == "copy"
    assert family_of_kernel("nhwcAddPaddingKernel", "", "cudnn-conv.4", "convolution") == "copy"


def test_the_program_decides_what_a_name_does_not_show() -> None:
    assert family_of_kernel("fusion_12", "dot_general", "fusion.12", "reduction") == "reduction"
    assert family_of_kernel("fusion_12", "dot_general", "fusion.12") == "other"  # a cast fused with a product, perhaps


@pytest.mark.parametrize(
    ("opcodes", "root", "target", "family"),
    [
        (["fusion", "parameter", "convert", "dot"], "dot", "", "product"),
        (["fusion", "convolution", "add"], "add", "", "convolution"),
        (["fusion", "parameter", "transpose", "bitcast"], "transpose", "", "copy"),
        (["fusion", "parameter", "transpose", "add"], "transpose", "", "elementwise"),
        (["fusion", "multiply", "reduce"], "reduce", "", "reduction"),
        (["fusion", "subtract", "exponential", "reduce", "divide"], "divide", "", "normalization"),
        (["fusion", "exponential", "reduce"], "tuple", "", "reduction"),
        (["fusion", "gather", "add"], "add", "", "sort, gather, scatter"),
        (["all-reduce-start"], "", "", "collective"),
        (["all-reduce-done"], "", "", "collective"),
        (["reduce-window"], "", "", "reduction"),
        (["rng-bit-generator"], "", "", "other"),
        (["while"], "", "", None),
        (["custom-call"], "", "__cudnn$fmhaSoftmax", "attention"),
        (["custom-call"], "", "__cudnn$convForward", "convolution"),
        (["custom-call"], "", "__cublas$lt$matmul$f8", "product"),
        (["custom-call"], "", "te_norm_forward_ffi", "normalization"),
        (["custom-call"], "", "__cub$DeviceRadixSort", "sort, gather, scatter"),
        (["custom-call"], "", "my_kernel", None),
    ],
)
def test_what_a_program_says(opcodes: list[str], root: str, target: str, family: Family | None) -> None:
    assert family_of_opcodes(frozenset(opcodes), root, target) == family
