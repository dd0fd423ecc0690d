"""In which precision a kernel computes; most names are those of real kernels."""

from __future__ import annotations

import pytest

from tfperf.trace.device.kernels import Bits, are_integers, bits_of_inputs, bits_of_name, names_integers

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
        ("volta_s884gemm_fp16_128x64_ldg8_f2f_nn", 16),
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
        ("cudnn::gemm::computeOffsetsKernel(cudnn::gemm::ComputeOffsetsParams)", 0),
        ("input_transpose_fusion.kd", 0),
        ("triton_softmax", 0),
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
