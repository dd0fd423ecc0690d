"""What this machine, and a running job, can deliver: `tfperf doctor`. It looks, and changes nothing."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tfperf.capture.address import Address
from tfperf.capture.gpu import LIBRARY_FIX, PERMISSION_FIX
from tfperf.capture.listeners import can_tell, find_listener
from tfperf.capture.machine import Machine
from tfperf.capture.software import has_gpu_tensorflow, software_checks
from tfperf.capture.store import local_folder
from tfperf.errors import CaptureError
from tfperf.outcomes import Check, Status

USUAL_PORT = 6009
NOT_CHECKED = "not checked on this system"
_NVIDIA_SMI_SECONDS = 5.0
_SCARCE_BYTES, _TOO_FEW_BYTES = 10**9, 10**8
_HIDING = {"NVIDIA": ("CUDA_VISIBLE_DEVICES",), "AMD": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")}


@dataclass(frozen=True, slots=True)
class Question:
    """What the doctor is asked: the job to look at (None: only the machine), and where traces shall go."""

    logdir: Path = Path("logs")
    job: Address | None = None
    tls_ca: Path | None = None
    machine: Machine = field(default_factory=Machine)


def examine(question: Question) -> list[Check]:
    """Return what was found, in the order in which it was looked at."""
    checks = [*software_checks(question.machine), *gpu_checks(question.machine)]
    if question.job is None:
        checks.append(port_check(question.machine, USUAL_PORT))
    else:
        from tfperf.capture.doctor_job import job_checks

        checks += job_checks(question.job, question.machine, tls_ca=question.tls_ca)
    return [*checks, *logdir_checks(question.logdir)]


def gpu_checks(machine: Machine) -> list[Check]:
    """Look for GPUs, and for what their tracer needs."""
    maker, gpus = _gpus(machine)
    return [_gpu(machine, maker, gpus), _cupti(machine, maker), _restriction(machine, maker)]


def _gpus(machine: Machine) -> tuple[str, list[str]]:
    """Return the maker and the models of the GPUs that programs can use here."""
    devices, models = machine.nvidia_devices(), machine.nvidia_models()
    if devices:
        return "NVIDIA", models if len(models) == len(devices) else ["NVIDIA GPU"] * len(devices)
    if machine.has_rocm():
        return "AMD", ["AMD GPU (ROCm)"]
    # Other systems, and Linux below Windows, have no such devices, but may have the driver's own tool.
    models = [] if models else _ask_nvidia_smi(machine)
    return ("NVIDIA", models) if models else ("", [])


def _ask_nvidia_smi(machine: Machine) -> list[str]:
    program = shutil.which("nvidia-smi", path=machine.environment.get("PATH", ""))
    if program is None:
        return []
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def _gpu(machine: Machine, maker: str, gpus: list[str]) -> Check:
    if not gpus:
        return _no_gpu(machine)
    names = ", ".join(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus))
    if hidden := _hidden_by(machine, maker):
        return Check(
            "GPU", "warn", f"{names}, hidden by {hidden}", f"unset {hidden.partition('=')[0]} where the job is started"
        )
    if maker == "NVIDIA" and has_gpu_tensorflow(machine) is False:
        found = f"{names}; this TensorFlow is built without GPU support"
        return Check("GPU", "warn", found, 'pip uninstall -y tensorflow-cpu; pip install "tensorflow[and-cuda]"')
    return Check("GPU", "ok", names)


def _no_gpu(machine: Machine) -> Check:
    if models := machine.nvidia_models():
        return Check(
            "GPU", "warn", f"{len(models)} x {models[0]} in the machine, but none can be opened here",
            "start the container with --gpus all (Kubernetes: limits: nvidia.com/gpu: 1); without a container, run "
            "`nvidia-smi` once as root",
        )  # fmt: skip
    return Check("GPU", "ok", "none on this machine" if machine.is_linux else f"none found; {NOT_CHECKED} in full")


def _hidden_by(machine: Machine, maker: str) -> str:
    """Return the variable and value that hide all GPUs from programs that are started here."""
    for name in _HIDING[maker]:
        value = machine.environment.get(name)
        if value is not None and value.strip() in ("", "-1", "NoDevFiles"):
            return f"{name}={value}"
    return ""


def _cupti(machine: Machine, maker: str) -> Check:
    if maker != "NVIDIA":
        return Check("libcupti", "ok", "not needed without an NVIDIA GPU")
    if not machine.is_linux:
        return Check("libcupti", "ok", NOT_CHECKED)
    if loaded := machine.loaded_cupti():
        return Check("libcupti", "ok", loaded)
    if unused := machine.unused_cupti():
        return Check(
            "libcupti", "warn", f"{unused}, where programs do not look for it",
            f"export LD_LIBRARY_PATH={Path(unused).parent}:$LD_LIBRARY_PATH",
        )  # fmt: skip
    # It may be that jobs run in another environment than this.
    status: Status = "fail" if has_gpu_tensorflow(machine) else "warn"
    return Check("libcupti", status, "not found here: traces may lack the part of the GPU", LIBRARY_FIX)


def _restriction(machine: Machine, maker: str) -> Check:
    name = "driver's permission"
    if maker != "NVIDIA":
        return Check(name, "ok", "not needed without an NVIDIA GPU")
    restricted = machine.profiling_is_restricted()
    if restricted is None:
        return Check(name, "ok", NOT_CHECKED)
    if not restricted:
        return Check(name, "ok", "everybody may profile")
    if machine.may_profile():
        return Check(name, "ok", "only administrators may profile, as this user may")
    # Since CUDA 10.2 this restriction concerns counters, on most machines, which TensorFlow's tracer does not use.
    return Check(name, "warn", "only administrators may profile: the GPU part may be refused", PERMISSION_FIX)


def port_check(machine: Machine, port: int) -> Check:
    """Look whether a port is free."""
    if not can_tell(machine):
        return Check("port", "ok", NOT_CHECKED)
    listener = find_listener(machine, port)
    if listener is None:
        return Check("port", "ok", f"{port} is free")
    return Check("port", "ok", f"{listener} listens on {port}", f"if that is the job: tfperf doctor --port {port}")


def logdir_checks(logdir: Path) -> Iterator[Check]:
    """Look whether a trace can be written, and how large it may get; nothing is left behind."""
    try:
        folder = local_folder(logdir)
        existing = next(path for path in (folder, *folder.parents) if path.is_dir())
        with tempfile.TemporaryFile(dir=existing):
            pass
        free = shutil.disk_usage(existing).free
    except CaptureError as error:
        found, _, fix = str(error).partition("; ")
        yield Check("log folder", "fail", found, fix)
        return
    except OSError as error:
        yield Check("log folder", "fail", f"cannot write to {existing}: {error.strerror}", "name another --logdir")
        return
    yield Check("log folder", "ok", f"{folder} {'is writable' if existing == folder else 'can be made'}")
    yield space_check(free)


def space_check(free_bytes: int) -> Check:
    """Judge the space that is left for traces."""
    found = f"{free_bytes / 1e9:,.1f} GB free" if free_bytes >= _SCARCE_BYTES else f"{free_bytes / 1e6:,.0f} MB free"
    if free_bytes >= _SCARCE_BYTES:
        return Check("disk space", "ok", found)
    fix = "make room, or name another --logdir; a trace takes 1 to 500 MB"
    return Check("disk space", "fail" if free_bytes < _TOO_FEW_BYTES else "warn", found, fix)
