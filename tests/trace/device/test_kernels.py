from __future__ import annotations

import pytest

from tfperf.trace.device.kernels import KernelDetails, occupancy, parse_copy, parse_kernel, short_name

# --- details ---


def test_details_of_today() -> None:
    details = parse_kernel("regs:32 static_shared:1024 dynamic_shared:2048 grid:8,2,1 block:256,1,1 occ_pct:62.5")
    assert details == KernelDetails((8, 2, 1), (256, 1, 1), 32, 1024, 2048, 3072, 62.5)


def test_details_of_2020_have_one_number_for_shared_memory() -> None:
    details = parse_kernel("regs:128 shm:5376 grid:900,1,1 block:64,1,1")
    assert details == KernelDetails((900, 1, 1), (64, 1, 1), 128, None, None, 5376, None)


def test_details_of_amd_have_no_registers_and_no_occupancy() -> None:
    details = parse_kernel(" grid:16,18,1 block:256,1,1 private_mem:0 group_mem:65408 occ_pct:0")
    assert details == KernelDetails((16, 18, 1), (256, 1, 1), None, None, None, 65408, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0\xff garbage",
        "regs:-1 grid:1,1 block:a,b,c",
        "regs:1:2",
        "regs: grid:0,0,0",
        "occ_pct:nan",
        "occ_pct:101",
        "regs:" + "9" * 5000,
        "regs:٣ occ_pct:٣",
        "block:1,2,3,4",
        "grid:,1,2,3",
        "occ_pct:-1",
    ],
)
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
    assert occupancy(fine, (12, 0)) is None
    assert occupancy(fine, (0, 0)) is None
    assert occupancy(fine._replace(registers=None), (7, 0)) is None
    assert occupancy(fine._replace(shared_bytes=None), (7, 0)) is None
    assert occupancy(fine._replace(block=None), (7, 0)) is None
    assert occupancy(launch(2048, 32, 0), (7, 0)) is None
    assert occupancy(launch(1024, 255, 0), (7, 0)) is None  # does not run
    assert occupancy(launch(32, 32, 1 << 40), (7, 0)) is None


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
