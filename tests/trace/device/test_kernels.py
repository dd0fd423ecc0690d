from __future__ import annotations

import pytest

from tfperf.trace.device.kernels import (
    Bits,
    KernelDetails,
    are_integers,
    bits_of_inputs,
    bits_of_name,
    is_op_eligible,
    is_product,
    names_integers,
    occupancy,
    parse_copy,
    parse_kernel,
    short_name,
    tensorflow_kernel,
    tensorflow_op,
    uses_tensor_cores,
)

# --- details ---


@pytest.mark.parametrize(
    ("text", "details"),
    [
        pytest.param(
            "regs:32 static_shared:1024 dynamic_shared:2048 grid:8,2,1 block:256,1,1 occ_pct:62.5",
            KernelDetails((8, 2, 1), (256, 1, 1), 32, 1024, 2048, 3072, 62.5),
            id="of today",
        ),
        pytest.param(
            "regs:128 shm:5376 grid:900,1,1 block:64,1,1",
            KernelDetails((900, 1, 1), (64, 1, 1), 128, None, None, 5376, None),
            id="of 2020, with one number for shared memory",
        ),
        pytest.param(
            " grid:16,18,1 block:256,1,1 private_mem:0 group_mem:65408 occ_pct:0",
            KernelDetails((16, 18, 1), (256, 1, 1), None, None, None, 65408, None),
            id="of AMD, without registers and occupancy",
        ),
    ],
)
def test_details(text: str, details: KernelDetails) -> None:
    assert parse_kernel(text) == details


@pytest.mark.parametrize(
    "text",
    ["", "\0\xff garbage", "regs:-1 grid:1,1 block:a,b,c", "regs:1:2", "regs: grid:0,0,0", "occ_pct:nan", "occ_pct:101",
     "regs:" + "9" * 5000, "regs:٣ occ_pct:٣", "block:1,2,3,4", "grid:,1,2,3", "occ_pct:-1"],
)  # fmt: skip
def test_what_cannot_be_true_is_not_known(text: str) -> None:
    assert parse_kernel(text) == KernelDetails()


def test_copies_in_three_spellings() -> None:
    now = parse_copy("kind_src:pageable kind_dst:device size:4096 dest:0 async:1")
    assert now == (4096, "pageable", "device", True)
    assert parse_copy("size:112 dest:4 async:0") == (112, "", "", False)
    assert parse_copy("kind:Unknown size:0 dest:0 async:0") == (None, "", "", False)  # 0 bytes take no time
    assert parse_copy("kind:Device num_bytes:256 async:1") == (256, "", "", True)
    assert parse_copy("size:-5 async:7") == (None, "", "", None)


# --- occupancy ---


def launch(threads: int, registers: int, shared: int) -> KernelDetails:
    return KernelDetails((1, 1, 1), (threads, 1, 1), registers, None, None, shared)


@pytest.mark.parametrize(
    ("capability", "details", "percent"),
    [
        ((7, 0), launch(256, 32, 0), 100.0),  # 8 blocks of 8 warps
        ((7, 0), launch(256, 128, 0), 25.0),  # 4 096 registers a warp: 4 warps in each quarter
        ((7, 0), launch(1024, 64, 0), 50.0),
        ((7, 0), launch(32, 16, 0), 50.0),  # 32 blocks of a warp, no more
        ((7, 0), launch(256, 16, 40 * 1024), 25.0),  # 2 blocks in 96 KiB
        ((7, 5), launch(1024, 32, 12288), 100.0),
        ((8, 0), launch(128, 128, 81920), 12.5),  # 81 KiB with the system's own: 2 blocks in 164 KiB
        ((8, 0), launch(256, 16, 163 * 1024), 12.5),  # just fits
        ((8, 6), launch(1024, 32, 0), 100.0 * 32 / 48),
        ((8, 9), launch(64, 32, 0), 100.0),  # 24 blocks of 2 warps
        ((9, 0), launch(384, 168, 227 * 1024), 100.0 * 12 / 64),
        ((7, 0), launch(96, 255, 0), 100.0 * 6 / 64),  # 8 160 registers a warp: 2 in each quarter
    ],
)
def test_occupancy(capability: tuple[int, int], details: KernelDetails, percent: float) -> None:
    assert occupancy(details, capability) == pytest.approx(percent)


def test_occupancy_is_unknown_rather_than_guessed() -> None:
    fine = launch(256, 32, 0)
    lacking = [fine._replace(**{name: None}) for name in ("registers", "shared_bytes", "block")]
    too_large = [launch(2048, 32, 0), launch(1024, 255, 0), launch(32, 32, 1 << 40)]
    assert [occupancy(details, (7, 0)) for details in lacking + too_large] == [None] * 6
    assert [occupancy(fine, capability) for capability in ((12, 0), (0, 0))] == [None] * 2


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("volta_sgemm_128x64_nt", "volta_sgemm_128x64_nt"),
        (
            "void tensorflow::functor::RowReduceKernel<float const*, float*, cub::Max>(float const*, int)",
            "RowReduceKernel",
        ),
        (
            "void tensorflow::(anonymous namespace)::GenerateNormalizedProb<float, float, 4>(float const*, bool)",
            "GenerateNormalizedProb",
        ),
        ("cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)", "computeOffsetsKernel"),
        ("void cub::DeviceReduceKernel<cub::Policy<float>::Policy600, (Mode)0>(float const*)", "DeviceReduceKernel"),
        (
            "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<Eigen::TensorMap<"
            "Eigen::Tensor<Eigen::half, 1, 1, int>, 16, Eigen::MakePointer>, Eigen::TensorCwiseUnaryOp<"
            "Eigen::internal::scalar_left<Eigen::half, Eigen::half, Eigen::internal::scalar_product_op<Eigen::half> > "
            "> >, Eigen::GpuDevice>, int>(int)",
            "EigenMetaKernel<half, scalar_product_op>",
        ),
        (
            "void Eigen::internal::EigenMetaKernel<Eigen::TensorMap<Eigen::Tensor<float, 1, 1, long>, 16>, long>(int)",
            "EigenMetaKernel<float>",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_nt_align4>(cutlass_80_tensorop::Params)",
            "cutlass_80_tensorop_s1688gemm_128x128_nt_align4",
        ),
        (
            "Cijk_Ailk_Bljk_BBS_BH_MT128x32x64_MI16x16x16x1_SN_1LDSB0_APM1_ISA942",
            "Cijk_Ailk_Bljk_BBS_BH_MT128x32x64_MI16x16x16x1",
        ),
        ("gemm_fusion_dot_general_1.kd", "gemm_fusion_dot_general_1"),
        ("void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaFwdKernel<P<float>, E> >(K)", "FmhaFwdKernel"),
        ("void ck_tile::kentry<1>(int)", "kentry"),
        ("loop_add_fusion_3", "loop_add_fusion_3"),
        ("void at::f<int>::operator()(int) const", "operator"),
        ("", ""),
        ("<", "<"),
        ("void ", "void"),
        (">>>(", ">>>("),
        ("a<b", "a"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


def test_a_huge_name_takes_no_time() -> None:
    for part in ("<", "Cijk_", "Eigen::internal::EigenMetaKernel<", "a::", "(", "Eigen::Tensor<"):
        assert len(short_name(part * 100_000)) <= 4096


# --- in which precision a kernel computes; most names are those of real kernels ---

_PHILOX = (
    "void tensorflow::functor::FillPhiloxRandomKernelLaunch<tensorflow::random::UniformDistribution<"
    "tensorflow::random::PhiloxRandom, Eigen::half> >(unsigned long long const*, unsigned long long const*)"
)
_CAST = (
    "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<Eigen::TensorMap<Eigen::Tensor<"
    "float, 1, 1, long>, 16, Eigen::MakePointer>, Eigen::TensorConversionOp<float, Eigen::TensorMap<Eigen::Tensor<"
    "Eigen::half const, 1, 1, long>, 16, Eigen::MakePointer> const> const> const, Eigen::GpuDevice>, long>(int)"
)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        (_PHILOX, 16),
        (_CAST, 16),
        (_CAST.replace("Eigen::half", "int"), 32),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<__half2, float, 512>(float)", 16),
        ("AddV2_GPU_DT_HALF_DT_HALF_kernel", 16),
        ("AddV2_GPU_DT_FLOAT_DT_FLOAT_kernel", 32),
        ("_ZN5Eigen8internal15EigenMetaKernelINS_4halfEEE", 16),
        ("volta_h884gemm_64x64_ldg8_nn", 16),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn", 16),
        ("ampere_s16816gemm_bf16_128x64_ldg8_stages_64x3_tn", 16),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64", 16),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x8", 32),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_32x6_nn_align4>(Params)", 32),
        ("void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64>(Params)", 16),
        ("void flash_fwd_kernel<Traits<64, 128, cutlass::bfloat16_t> >(Params)", 16),
        ("void gemm<cutlass::float_e4m3_t, float>(int)", 16),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_TNN", 16),
        ("nvjet_tst_128x160_64x5_2x1_v_bz_TNT", 16),
        ("nvjet_sm90_tst_128x160_64x5_2x1_v_bz_TNT", 16),
        ("nvjet_sss_64x64", 0),
        ("volta_sgemm_128x64_nn", 32),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", 32),
        ("volta_cgemm_32x32_tn", 32),
        ("void fft2d_r2c_16x16<float>(float2*, float const*, int)", 32),
        ("void tensorflow::functor::ApplyAdamKernel<double>(int, double*)", 32),
        ("void Swap<unsigned short, 256, 32>(unsigned short const*)", 16),
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN", 16),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x64", 16),
        ("Cijk_Ailk_Bljk_SB_MT128x64x16_SE_K1", 32),
        ("Cijk_Alik_Bljk_S_B_Bias_HA_S_SAV_MT64x16x16", 32),
        ("input_transpose_fusion.kd", 0),
        ("behalf_shortcut_floating_point", 0),
        ("", 0),
    ],
)
def test_bits_by_the_name_of_the_kernel(name: str, bits: Bits) -> None:
    assert bits_of_name(name) == bits


@pytest.mark.parametrize(
    ("shapes", "bits", "integers"),
    [
        ("(half[4,384,1024];half[])", 16, False),
        ("(bfloat16[4];int32[])", 16, False),
        ("(half[4];float[4])", 16, False),
        ("(float[4];int32[2])", 32, False),
        ("(double[])", 32, False),
        ("(int32[3])", 0, True),
        ("(bool[16])", 0, True),
        ("", 0, False),
        ("unknown", 0, False),
    ],
)
def test_bits_by_the_inputs_of_the_op(shapes: str, bits: Bits, integers: bool) -> None:
    assert (bits_of_inputs(shapes), are_integers(shapes)) == (bits, integers)


@pytest.mark.parametrize(
    ("name", "integers"),
    [
        ("void Swap<unsigned int, 256, 32>(unsigned int const*)", True),
        ("void Eigen::internal::EigenMetaKernel<Eigen::Tensor<long long, 1, 1, long> >(int)", True),
        ("Add_GPU_DT_INT64_DT_INT64_kernel", True),
        ("void (anonymous namespace)::Fill<int>(int)", True),
        ("void Sizes(int, long)", False),
        ("void Kernel<(int)128, (bool)1>(float)", False),
        ("fusion_3", False),
    ],
)
def test_integers_are_template_arguments_and_sizes_are_not(name: str, integers: bool) -> None:
    assert names_integers(name) is integers


# --- names of kernels as NVIDIA's and AMD's libraries, XLA and TensorFlow write them, and what they tell ---

ON_TENSOR_CORES = [
    # Volta
    "volta_h884gemm_256x64_ldg8_nn",
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
    # Turing
    "turing_h1688gemm_128x128_ldg8_nn",
    "turing_fp16_s1688gemm_fp16_256x64_sliced1x2_ldg8_f2f_nn",
    "turing_int8_i8816cudnn_int8_256x64_ldg16_relu_singleBuffer_medium_nt_v1",
    "void xmma_new::gemm::kernel<xmma_new::implicit_gemm::fprop::Kernel_traits<xmma_new::Turing_hmma_fp32_traits, 1> >",
    # Ampere
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn",
    "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x6_tn",
    "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x64_stage3_warpsize2x2x1_tensor16x8x8_kernel",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4>(cutlass_80_tensorop_s1688gemm::Params)",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8>(int)",
    "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_7_64x64x64_4x1x1_kernel0_0",
    "void cutlass::device_kernel<cutlass::gemm::device::Gemm<float, cutlass::arch::OpClassTensorOp> >(int)",
    "void kernel<cute::MMA_Atom<cute::SM80_16x8x16_F32BF16BF16F32_TN> >(int)",
    # Hopper
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT",
    "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3i_64x256x256_4x1x1_cga1x1x1_kernel0_0",
    # Blackwell
    "nvjet_sm100_hsh_mma_128x256x64_8_64x128x64_2x1_2cta_v_bz_NNT",
    "void cutlass::device_kernel<cute::MMA_Atom<cute::SM100_MMA_F16BF16_SS<float, 128, 128> > >(int)",
    # AMD
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x64_MI16x16x16x1_SN_1LDSB0_APM1_ISA942_IU1_K1",
    "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x256x32_wt32x32x8_ws2x2_wr2x2",
    "void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<ck::GridwiseGemmMultipleABD_xdl_cshuffle<float> >(int)",
]
NOT_ON_TENSOR_CORES = [
    "maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt",
    "volta_sgemm_128x64_nt",
    "volta_cgemm_32x32_tn",
    "volta_dgemm_64x64_nn",
    "ampere_sgemm_128x64_nn",
    "volta_hgemm_128x64_nn",
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel",
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
    "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)",
    "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)",
    "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(int)",
    "void tensorflow::DepthwiseConv2dGPUKernelNHWC<float, 3, 3, 1>(tensorflow::DepthwiseArgs, float const*)",
    "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorConversionOp<float> > >(int)",
    "gemm_k1_kernel<float>",
    "loop_convert_fusion_3",
    "fusion_16816",
    "triton_softmax_2",
    "",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
]
NAMES_DO_NOT_TELL = [
    "gemm_fusion_dot_general_1.kd",
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [(name, True) for name in ON_TENSOR_CORES]
    + [(name, False) for name in NOT_ON_TENSOR_CORES]
    + [(name, None) for name in NAMES_DO_NOT_TELL],
)
def test_names_tell_whether_tensor_cores_are_used(name: str, expected: bool | None) -> None:
    assert uses_tensor_cores(name) is expected


def test_a_huge_name_takes_no_time_of_tensor_cores() -> None:
    parts = {"s16816": True, "Cijk_": None, "gemm": None, "a" * 7 + "_": False, "sm90_": False, "tensor1x1x": False}
    assert {part: uses_tensor_cores(part * 200_000) for part in parts} == parts


PRODUCTS = ("Conv2D", "Conv2DBackpropFilter", "Conv3DBackpropInputV2", "BatchMatMulV2", "BatchMatMulV3", "_FusedConv2D",
            "_FusedMatMul", "CudnnRNNV3", "DepthwiseConv2dNativeBackpropInput")  # fmt: skip


@pytest.mark.parametrize(
    ("op", "eligible"),
    [
        (("MatMul", "MatMul"), True),  # also at the top scope
        (("a/MatMul_1", "MatMul"), True),
        *((("a/b", op_type), True) for op_type in PRODUCTS),
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
    assert not any(map(is_product, ("abc,cd", "a,b,c->abc", "a,b->c->d")))


@pytest.mark.parametrize(
    ("name", "old", "expected"),
    [
        ("volta_fp16_s884gemm_fp16_128x128", True, True),
        ("turing_fp16_s884gemm_fp16_64x128", True, False),
        ("turing_fp16_s884gemm_fp16_64x128", False, True),
        ("void xmma::kernel", True, True),
        ("nvjet_hsh_128x256_64x4", False, False),
        ("ampere_fp16_s16816gemm", True, False),
    ],
)
def test_what_tensorflow_says_of_kernels(name: str, *, old: bool, expected: bool) -> None:
    assert tensorflow_kernel(name, old=old) is expected


def test_what_tensorflow_says_of_ops() -> None:
    assert all(map(tensorflow_op, ("model/dense/MatMul", "a/BatchMatMulV2_3")))
    assert not any(map(tensorflow_op, ("MatMul", "model/dense/MatMul_1", "model/conv")))
