from __future__ import annotations

import pytest

from tfperf.trace.kernel_names import short_name


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
