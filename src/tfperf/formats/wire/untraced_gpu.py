"""Detect GPU events missing from a profile although the job uses a GPU, with the cause and the fix.

The evidence is errors reported by the profiler, and host events and threads that occur only with a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

PERMISSION_FIX = (
    "on the host, put the line `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into "
    "/etc/modprobe.d/nvidia-profiling.conf, run `update-initramfs -u` (Red Hat: `dracut -f`) and reboot; or start the "
    "container with --cap-add=SYS_ADMIN (Kubernetes: securityContext: capabilities: add: [SYS_ADMIN])"
)
LIBRARY_FIX = (
    'in the job\'s environment, `pip install "tensorflow[and-cuda]"` (or nvidia-cuda-cupti-cu12; for JAX, '
    '`pip install "jax[cuda13]"`), or add '
    "extras/CUPTI/lib64 of the CUDA toolkit to LD_LIBRARY_PATH; then restart the job"
)
_OTHER_PROFILER_FIX = "stop the other profiler (nsys, ncu, or `dcgmi profile --pause` for DCGM) and try again"
ROCM_FIX = "install the roctracer and rocprofiler packages of the job's ROCm version and restart the job"
SILENT_FIX = (
    f"either libcupti is not found ({LIBRARY_FIX}), or the driver does not allow profiling ({PERMISSION_FIX}); run "
    "`tfperf doctor` in the job's environment to check both"
)
"""The fix if the profile does not show which of the two usual causes applies."""

_REPORTS = (
    # (pattern of the profiler's message, cause, fix).
    (
        r"insufficient.?privilege|root permission|nvgpuctrperm",
        "the driver allows only administrators to profile",
        PERMISSION_FIX,
    ),
    (
        r"\b(?:failed|unable|not|cannot)\b.*\b(?:load|open|find)\b.*cupti|cupti.*\b(?:not|cannot)\b.*\b(?:load|open|found)",
        "the job cannot load libcupti",
        LIBRARY_FIX,
    ),
    (
        r"multiple.?subscribers|cupti.*\b(?:already|another)\b",
        "another profiler is using the GPU, and only one profiler can",
        _OTHER_PROFILER_FIX,
    ),
    ("roctracer|rocprof", "ROCm's tracer failed", ROCM_FIX),
    ("cupti", "NVIDIA's tracer (CUPTI) failed", "run `tfperf doctor` in the job's environment to find the cause"),
)
_ROCM_WORK = r"^hip(?:Ext)?(?:Module)?(?:Launch|Memcpy|Memset|Stream|Event|Graph)\w*$"
_GPU_WORK = "|".join(
    (
        # Written into the host plane by the GPU tracer, even if the device plane is missing.
        r"^cu(?:da)?(?:Launch|Memcpy|Memset|Stream|Event|Graph)[A-Z]?\w*$",
        _ROCM_WORK,
        r"^Memcpy(?:H2D|D2H|D2D|P2P)$",
        # Written by TensorFlow and XLA. A GPU of another task does not count.
        r"^_Send input \d+ from (/job:\S+)/device:CPU:\d+ to \1/device:GPU:\d+$",
        r"^GpuExecutable::",
        r":XLA GPU module$",
        r":_?Nccl\w+$",
    )
)
_GPU_THREAD = r"^tf_(?:gpu_private_\d+|GPU_Event_Manager)/"
"""Threads that TensorFlow starts only with GPUs."""


class MissingGpu(Struct, frozen=True):
    """Why the GPU events are missing, and the fix."""

    cause: str
    fix: str


def report_of_failure(reports: Iterable[str]) -> tuple[str, MissingGpu] | None:
    """Return the first profiler message with the cause of a missing GPU, and its meaning."""
    for report in reports:
        for pattern, meaning, fix in _REPORTS:
            if re.search(pattern, report, re.IGNORECASE):
                words = " ".join(report.split())
                quoted = words if len(words) <= 150 else f"{words[:149]}…"
                return report, MissingGpu(f'{meaning} ("{quoted}")', fix)
    return None


def missing_gpu_work(
    event_names: Iterable[str], threads: Iterable[str] = (), *, has_launches: bool = False
) -> MissingGpu | None:
    """Return why a GPU's events are missing, or None; `threads` have events, `has_launches`: some have launch ids."""
    work = [name for name in event_names if re.search(_GPU_WORK, name)]
    if any(re.match(_ROCM_WORK, name) for name in work):
        return MissingGpu("the job used a GPU, but ROCm's tracer recorded no events", ROCM_FIX)
    if work or has_launches or any(re.search(_GPU_THREAD, name) for name in threads):
        return MissingGpu("the job used a GPU, but its tracer recorded no events", SILENT_FIX)
    return None
