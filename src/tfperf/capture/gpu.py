"""Why a trace lacks the part of the GPU, and the exact fix.

A job that uses no GPU lacks nothing. That it does use one is seen from what the profiler reported as failed, from
events of the host that only occur with a GPU, and, if this process is the job, from the devices that it has open.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tfperf.capture.listeners import find_listener
from tfperf.capture.machine import Machine

if TYPE_CHECKING:
    from tfperf.wire.contents import Contents

PLANE = "/device:GPU:"

PERMISSION_FIX = (
    "on the host, put the line `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into "
    "/etc/modprobe.d/nvidia-profiling.conf, run `update-initramfs -u` (Red Hat: `dracut -f`) and reboot; or start the "
    "container with --cap-add=SYS_ADMIN (Kubernetes: securityContext: capabilities: add: [SYS_ADMIN])"
)
LIBRARY_FIX = (
    'in the job\'s environment, `pip install "tensorflow[and-cuda]"` (or nvidia-cuda-cupti-cu12), or add '
    "extras/CUPTI/lib64 of the CUDA toolkit to LD_LIBRARY_PATH; then start the job anew"
)
_OTHER_PROFILER_FIX = "end the other one (nsys, ncu, or `dcgmi profile --pause` for DCGM) and try again"
_ROCM_FIX = "install the roctracer and rocprofiler packages of the job's ROCm version and start the job anew"
_DOCTOR = "`tfperf doctor` in the job's environment looks for both"

_REPORTS = (
    # What the profiler reports (any of these words), what that means, and what helps.
    (
        r"insufficient.?privilege|root permission|nvgpuctrperm",
        "the driver lets only administrators profile",
        PERMISSION_FIX,
    ),
    (
        r"\b(?:failed|unable|not|cannot)\b.*\b(?:load|open|find)\b.*cupti|cupti.*\b(?:not|cannot)\b.*\b(?:load|open|found)",
        "the job cannot load libcupti",
        LIBRARY_FIX,
    ),
    (
        r"multiple.?subscribers|cupti.*\b(?:already|another)\b",
        "another profiler holds it, and there can be one only",
        _OTHER_PROFILER_FIX,
    ),
    ("roctracer|rocprof", "ROCm's tracer failed", _ROCM_FIX),
    ("cupti", "NVIDIA's tracer (CUPTI) failed", _DOCTOR.replace("both", "the cause")),
)
_NVIDIA_WORK = r"^cu(?:da)?(?:Launch|Memcpy|Memset|Stream|Event|Graph)[A-Z]?\w*$"
_ROCM_WORK = re.compile(r"^hip(?:Ext)?(?:Module)?(?:Launch|Memcpy|Memset|Stream|Event|Graph)\w*$")
_GPU_WORK = re.compile(
    "|".join(
        (
            # What the GPU's tracer writes into the part of the host, which may come although the device's does not.
            _NVIDIA_WORK, _ROCM_WORK.pattern, r"^Memcpy(?:H2D|D2H|D2D|P2P)$",
            # What TensorFlow and XLA write by themselves. A GPU of another task is not this one's.
            r"^_Send input \d+ from (/job:\S+)/device:CPU:\d+ to \1/device:GPU:\d+$",
            r"^GpuExecutable::", r":XLA GPU module$", r":_?Nccl\w+$",
        )
    )
)  # fmt: skip


class MissingGpu(NamedTuple):
    """Why the part of the GPU is not there, and what helps."""

    why: str
    fix: str

    def __str__(self) -> str:
        """Return both on one line."""
        return f"the part of the GPU is missing: {self.why}; {self.fix}"


def missing_gpu_message(contents: Contents, *, here: bool, port: int = 0) -> str:
    """Return what to do about a missing GPU part; empty if nothing is missing.

    `here`: the job runs on this machine; it is the process that listens on `port`, or without a port this one.
    """
    machine = Machine() if here else None
    process: int | str = "self"
    if machine and port:
        listener = find_listener(machine, port) if machine.nvidia_devices() or machine.has_rocm() else None
        process = listener.process if listener and listener.process is not None else "unknown"
    return str(missing_gpu(contents, machine, process) or "")


def missing_gpu(contents: Contents, machine: Machine | None, process: int | str = "self") -> MissingGpu | None:
    """Return why the GPU part is missing, None if it is there or the job uses no GPU.

    `machine` is the one that the job runs on, None if it is out of reach; `process` is the job, if it can be told.
    """
    if gpu_event_count(contents):
        return None
    for report in (*contents.errors, *contents.warnings):
        for pattern, meaning, fix in _REPORTS:
            if re.search(pattern, report, re.IGNORECASE):
                return MissingGpu(f'{meaning} ("{_short(report)}")', fix)
    if any(_ROCM_WORK.match(name) for name in contents.event_names):
        return MissingGpu("the job used it, but ROCm's tracer gave no events", _ROCM_FIX)
    if any(_GPU_WORK.search(name) for name in contents.event_names):
        return MissingGpu("the job used it, but its tracer gave no events", _silent_fix(machine, process))
    if machine and machine.uses_gpu(process) and not has_gpu_plane(contents):
        # A tracer that runs makes a plane for each GPU, also for an idle one.
        fix = _silent_fix(machine, process) if machine.nvidia_devices() else _ROCM_FIX
        return MissingGpu("the job has one open, but its tracer did not start", fix)
    return None


def gpu_event_count(contents: Contents) -> int:
    """Return how many events happened on GPUs."""
    return sum(count for plane, count in contents.events_by_plane.items() if plane.startswith(PLANE))


def has_gpu_plane(contents: Contents) -> bool:
    """Whether the tracer of the GPU ran, be it that the GPU did nothing."""
    return any(plane.startswith(PLANE) for plane in contents.events_by_plane)


def _silent_fix(machine: Machine | None, process: int | str) -> str:
    """Return what helps where nothing tells the cause: either of the two that are usual."""
    if machine and machine.profiling_is_restricted() and not machine.may_profile(process):
        return f"the driver of this machine lets only administrators profile: {PERMISSION_FIX}"
    return f"either libcupti is not found ({LIBRARY_FIX}) or the driver refuses ({PERMISSION_FIX}); {_DOCTOR}"


def _short(report: str) -> str:
    line = " ".join(report.split())
    return line if len(line) <= 150 else line[:149] + "…"
