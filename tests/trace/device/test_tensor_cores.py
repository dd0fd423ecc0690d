"""Names of kernels as NVIDIA's and AMD's libraries, XLA and TensorFlow write them, and what they tell."""

from __future__ import annotations

import pytest

from tfperf.trace.device.kernels import is_op_eligible, is_product, tensorflow_kernel, tensorflow_op, uses_tensor_cores

ON_TENSOR_CORES = [
    # Volta
    "volta_h884gemm_256x64_ldg8_nn",
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
    "volta_s884gemm_fp16_64x128_nt",
    "volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
    # Turing
    "turing_h1688gemm_128x128_ldg8_nn",
    "turing_fp16_s1688gemm_fp16_256x64_sliced1x2_ldg8_f2f_nn",
    "turing_fp16_s884gemm_fp16_64x128_ldg8_f2f_nn",
    "turing_fp16_s1688cudnn_fp16_256x64_ldg8_relu_f2f_small_nhwc_tn_v1",
    "turing_int8_i8816cudnn_int8_256x64_ldg16_relu_singleBuffer_medium_nt_v1",
    "void xmma_new::gemm::kernel<xmma_new::implicit_gemm::fprop::Kernel_traits<xmma_new::Turing_hmma_fp32_traits, 1> >",
    # Ampere
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn",
    "ampere_h16816gemm_256x128_ldg8_stages_32x3_tn",
    "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x6_tn",
    "ampere_s16816gemm_fp16_64x64_ldg8_nn",
    "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x64_stage3_warpsize2x2x1_tensor16x8x8_kernel",
    "sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16_stage4_warpsize2x2x1_tensor8x8x4_kernel",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x16_stage4_warpsize2x2x1_g1_"
    "tensor16x8x8_kernel_cudnn",
    "sm86_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage4_warpsize2x2x1_g1_"
    "tensor16x8x16_kernel_cudnn",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4>(cutlass_80_tensorop_s1688gemm::Params)",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8>(int)",
    "void cutlass_cudnn::Kernel<cutlass_tensorop_f16_s16816wgrad_optimized_f16_64x64_64x5_nhwc_align8>(int)",
    "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_7_64x64x64_4x1x1_kernel0_0",
    "void cutlass::device_kernel<cutlass::gemm::device::Gemm<float, cutlass::arch::OpClassTensorOp> >(int)",
    "void kernel<cute::MMA_Atom<cute::SM80_16x8x16_F32BF16BF16F32_TN> >(int)",
    # Hopper
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT",
    "nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNN",
    "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_2x1x1_0_tnn_align8_warpspecialized",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3i_64x256x256_4x1x1_cga1x1x1_kernel0_0",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::MainloopSm90TmaGmma"
    "WarpSpecialized<7, cute::tuple<cute::C<2> > >, cute::SM90_64x128x16_F32BF16BF16_SS<0> > >(int)",
    # Blackwell
    "nvjet_sm100_hsh_mma_128x256x64_8_64x128x64_2x1_2cta_v_bz_NNT",
    "cutlass3x_sm100_tensorop_s256x256x16gemm_f16_f16_f32_f16_f16_256x256x64_0_tnn_align8_2sm",
    "void cutlass::device_kernel<cute::MMA_Atom<cute::SM100_MMA_F16BF16_SS<float, 128, 128> > >(int)",
    # AMD
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x64_MI16x16x16x1_SN_1LDSB0_APM1_ISA942_IU1_K1",
    "Cijk_Alik_Bljk_HHS_BH_Bias_AS_SAV_UserArgs_MT256x256x64_MI32x32x1_SN_LDSB1",
    "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x256x32_wt32x32x8_ws2x2_wr2x2",
    "void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<ck::GridwiseGemmMultipleABD_xdl_cshuffle<float> >(int)",
]
NOT_ON_TENSOR_CORES = [
    "maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt",
    "volta_sgemm_128x64_nt",
    "volta_cgemm_32x32_tn",
    "volta_scudnn_128x64_relu_interior_nn_v1",
    "volta_dgemm_64x64_nn",
    "ampere_sgemm_128x64_nn",
    "ampere_scudnn_128x64_relu_medium_nn_v1",
    "volta_hgemm_128x64_nn",
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel",
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize64x64x8_stage3_warpsize1x4x1_g1_ffma_kernel",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(cutlass_80_simt_sgemm_128x128_8x4::Params)",
    "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<float, cutlass::arch::OpClassSimt> >(int)",
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, true, false, true>(int, int, int)",
    "void cudnn::detail::explicit_convolve_sgemm<float, int, 1024, 5, 5, 3, 3, 3, 0, true>(int, int, int)",
    "void cudnn::cnn::wgrad_alg0_engine<float, 512, 6, 5, 3, 3, 3, false, 512>(int)",
    "im2col4d_kernel",
    "Im3d2Col.kd",
    "void cudnn::cnn::conv2d_grouped_direct_kernel<float, float, float>(cudnnTensorStruct, float const*)",
    "void gemmSN_NN_kernel<float, 256, 4, 2, 8, 4, 4, cublasGemvTensorStridedBatched<float const> >(int)",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(int)",
    "void splitKreduce_kernel<float, float, float>(cublasSplitKParams<float>, float const*)",
    "void cublasLt::splitKreduce_kernel<32, 16, int, __half, __half, float, __half>(int)",
    "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)",
    "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)",
    "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(int)",
    "void tensorflow::DepthwiseConv2dGPUKernelNHWC<float, 3, 3, 1>(tensorflow::DepthwiseArgs, float const*)",
    "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorConversionOp<float> > >(int)",
    "gemm_k1_kernel<float>",
    "void tensorflow::functor::BroadcastDimMax<float>(int)",
    "loop_convert_fusion_3",
    "input_reduce_fusion",
    "fusion_1688",
    "fusion_16816",
    "wrapped_broadcast.kd",
    "triton_softmax_2",
    "memset32_kernel",
    "",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void cub::DeviceReduceKernel<cub::DeviceReducePolicy<float>::Policy600>(float const*)",
]
NAMES_DO_NOT_TELL = [
    "gemm_fusion_dot_general_1.kd",
    "gemm_fusion_dot_12",
    "triton_gemm_dot_3",
    "matmul_kernel",
    "_attn_fwd",
    "void fmha_v2_flash_attention_fp16_64_128_S_80_sm80_kernel_nl(bert::Fused_multihead_attention_params_v2)",
    "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32",
    "ampere_dgemm_64x64_nn",
    "cudnn_generated_fort_native_conv",
    "Cijk_Ailk_Bljk_SB_MT64x64x8_SE_K1",
    "mosaic_gpu_kernel",
]


@pytest.mark.parametrize("name", ON_TENSOR_CORES)
def test_names_of_tensor_core_kernels(name: str) -> None:
    assert uses_tensor_cores(name) is True


@pytest.mark.parametrize("name", NOT_ON_TENSOR_CORES)
def test_names_of_other_kernels(name: str) -> None:
    assert uses_tensor_cores(name) is False


@pytest.mark.parametrize("name", NAMES_DO_NOT_TELL)
def test_where_the_name_does_not_tell_nothing_is_claimed(name: str) -> None:
    assert uses_tensor_cores(name) is None


def test_a_huge_name_takes_no_time() -> None:
    parts = {"s16816": True, "Cijk_": None, "gemm": None, "a" * 7 + "_": False, "sm90_": False, "tensor1x1x": False}
    assert {part: uses_tensor_cores(part * 200_000) for part in parts} == parts


@pytest.mark.parametrize(
    ("op", "eligible"),
    [
        (("MatMul", "MatMul"), True),  # also at the top scope
        (("a/MatMul_1", "MatMul"), True),
        (("a/conv", "Conv2D"), True),
        (("a/conv", "Conv2DBackpropFilter"), True),
        (("a/conv", "Conv3DBackpropInputV2"), True),
        (("a/b", "BatchMatMulV2"), True),
        (("a/b", "BatchMatMulV3"), True),
        (("a/b", "_FusedConv2D"), True),
        (("a/b", "_FusedMatMul"), True),
        (("a/rnn", "CudnnRNNV3"), True),
        (("a/d", "DepthwiseConv2dNativeBackpropInput"), True),
        (("a/MatMul", "Cast"), False),  # the type counts, not the name
        (("a/b", "SparseTensorDenseMatMul"), False),
        (("a/b", "BiasAdd"), False),
        (("a/b", "Unknown"), None),
        (("", ""), None),
        (("a/e", "Einsum"), None),
        (("a/e", "Einsum", "", "", "ab,bc->ac"), True),
        (("a/e", "Einsum", "", "", "ab->ba"), False),
        (("jit(f)/dot_general", "custom-call", "custom-call.1", "custom-call"), True),
        (("jit(f)/dot_general", "fusion", "gemm_fusion_dot_general.1", "fusion"), True),
        (("jit(f)/conv_general_dilated", "fusion", "input_transpose_fusion", "fusion"), False),
        (("jit(f)/conv_general_dilated", "custom-call", "cudnn-conv.1", "custom-call"), True),
        (("model/MatMul", "MatMul", "dot.4", "dot"), True),
        (("model/MatMul", "MatMul", "loop_add_fusion.2", "fusion"), False),
        (("model/x", "HLO op", "custom-call.7", "custom-call"), None),
        (("loop_convert_fusion", "HLO op", "loop_convert_fusion", ""), False),
        (("cublas-gemm.3", "HLO op", "cublas-gemm.3", ""), True),
    ],
)
def test_ops_are_eligible_by_type(op: tuple[str, ...], eligible: bool | None) -> None:
    assert is_op_eligible(*op) is eligible


def test_an_einsum_of_two_inputs_is_a_product() -> None:
    assert is_product("abc,cd->abd")
    assert not is_product("abc,cd")
    assert not is_product("a,b,c->abc")
    assert not is_product("a,b->c->d")


def test_what_tensorflow_says_of_kernels() -> None:
    assert tensorflow_kernel("volta_fp16_s884gemm_fp16_128x128", old=True)
    assert not tensorflow_kernel("turing_fp16_s884gemm_fp16_64x128", old=True)
    assert tensorflow_kernel("turing_fp16_s884gemm_fp16_64x128", old=False)
    assert tensorflow_kernel("void xmma::kernel", old=True)
    assert not tensorflow_kernel("nvjet_hsh_128x256_64x4", old=False)
    assert not tensorflow_kernel("ampere_fp16_s16816gemm", old=True)


def test_what_tensorflow_says_of_ops() -> None:
    assert tensorflow_op("model/dense/MatMul")
    assert not tensorflow_op("MatMul")
    assert not tensorflow_op("model/dense/MatMul_1")
    assert tensorflow_op("a/BatchMatMulV2_3")
    assert not tensorflow_op("model/conv")
