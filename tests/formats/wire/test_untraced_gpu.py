"""Why a profile has no events of the GPU, from what the profiler reports and from host events."""

from __future__ import annotations

import pytest
from builders import known

from tfperf.formats.wire.untraced_gpu import LIBRARY_FIX, ROCM_FIX, SILENT_FIX, missing_gpu_work, report_of_failure


def test_the_first_report_about_the_tracer_counts() -> None:
    library = f"vm: Failed to load libcupti\n({'x' * 200})"
    report, missing = known(report_of_failure(["the disk is full", library, "CUPTI_ERROR_UNKNOWN"]))
    assert (report, missing.fix) == (library, LIBRARY_FIX)
    assert missing.cause.startswith('the job cannot load libcupti ("vm: Failed to load libcupti (xxx')
    assert len(missing.cause) < 200


def test_a_machine_without_a_gpu_is_no_failure() -> None:
    assert report_of_failure(["vm: No GPU detected."]) is None


@pytest.mark.parametrize(
    ("names", "threads", "fix"),
    [
        (["jit_step:XLA GPU module"], [], SILENT_FIX),
        (["hipModuleLaunchKernel", "jit_step:XLA GPU module"], [], ROCM_FIX),
        (["MatMul:MatMul"], ["tf_GPU_Event_Manager/12"], SILENT_FIX),
        (["MatMul:MatMul"], ["tf_gpu_private_0/7"], SILENT_FIX),
        (["MatMul:MatMul"], ["tf_Compute/1"], None),
    ],
)
def test_work_for_a_gpu_is_recognized(names: list[str], threads: list[str], fix: str | None) -> None:
    missing = missing_gpu_work(names, threads)
    assert (missing and missing.fix) == fix
