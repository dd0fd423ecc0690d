"""What came of a capture, and what a trace lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Plane, event, host, known, line, plane, space
from msgspec.structs import replace
from places import TRACES

from tfperf.base.errors import CaptureError, Reason
from tfperf.capture.machine import Machine
from tfperf.capture.outcomes import Captured, Check, missing_gpu, missing_gpu_message
from tfperf.formats.wire.contents import Contents, look_into

TRACE = Captured(worker="w:1", path=Path("/l/w.xplane.pb"), size_bytes=1_250_000, event_count=70_000)


@pytest.mark.parametrize(
    ("captured", "words"),
    [
        (TRACE, "wrote /l/w.xplane.pb (1.25 MB, 70,000 events)"),
        (replace(TRACE, overhead_percent=0.4), "70,000 events, profiling did not slow steps down)"),
        (replace(TRACE, overhead_percent=12.6), "profiling made steps 13% longer)"),
        (Captured(worker="w:1", reason="idle", message="it sleeps"), "no profile was captured: it sleeps"),
    ],
)
def test_a_result_in_one_line(captured: Captured, words: str) -> None:
    assert captured.describe().endswith(words)


@pytest.mark.parametrize(("reason", "status"), [("busy", "warn"), ("written_remotely", "warn"), ("died", "fail")])
def test_an_error_as_a_check(reason: Reason, status: str) -> None:
    check = Check.of_error("profiler", CaptureError(reason, "something is wrong; try this; then that"))
    assert (check.name, check.status, check.found) == ("profiler", status, "something is wrong")
    assert check.fix == "try this; then that"


EMPTY_GPU = plane("/device:GPU:0")
SEND = "_Send input 0 from /job:localhost/replica:0/task:0/device:CPU:0 to /job:localhost/replica:0/task:0/device:GPU:0"


def contents(folder: Path, *planes: Plane, errors: tuple[str, ...] = ()) -> Contents:
    path = folder / "made.xplane.pb"
    path.write_bytes(space(*planes, errors=errors))
    return look_into(path)


def cpu_only(*names: str) -> Plane:
    return host(*(event(name, 10 * number, 5) for number, name in enumerate(("FunctionRun", *names))))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            "vm: Insufficient privilege to run libcupti (you need root permission).",
            ["administrators", "NVreg_RestrictProfilingToAdminUsers=0", "/etc/modprobe.d/", "--cap-add=SYS_ADMIN"],
        ),
        ("cuptiSubscribe: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", ["NVreg_RestrictProfilingToAdminUsers=0"]),
        (
            "vm: Failed to load libcupti (is it installed and accessible?)",
            ["cannot load libcupti", "extras/CUPTI/lib64", "LD_LIBRARY_PATH", "nvidia-cuda-cupti-cu12"],
        ),
        ("CUPTI could not be loaded or symbol could not be found.", ["cannot load libcupti"]),
        ("libcupti.so.12: cannot open shared object file", ["cannot load libcupti"]),
        ("cuptiSubscribe: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", ["another profiler", "nsys", "dcgmi"]),
        ("cuptiActivityEnable failed: CUPTI_ERROR_UNKNOWN", ["CUPTI", "tfperf doctor"]),
        ("roctracer_enable_callback failed", ["ROCm", "roctracer"]),
    ],
)
def test_what_the_profiler_reports_has_an_exact_fix(tmp_path: Path, error: str, words: list[str]) -> None:
    message = missing_gpu_message(contents(tmp_path, cpu_only(), errors=(error,)), is_here=False)
    assert message.startswith("the trace has no GPU events: ")
    assert [word for word in [*words, error] if word not in message] == []
    assert "\n" not in message


def test_what_a_report_does_not_matter_for(tmp_path: Path) -> None:
    device = plane("/device:GPU:1", line("Stream #7(Compute)", event("gemm", 0, 5)))
    trace = contents(tmp_path, cpu_only(SEND), EMPTY_GPU, device, errors=("cupti: CUPTI_ERROR_UNKNOWN",))
    assert missing_gpu_message(trace, is_here=False) == "", "there are events of a GPU"
    # The second is what a TensorFlow with GPU support reports on a machine without one.
    trace = contents(tmp_path, cpu_only(), errors=("the disk is full", "vm: No GPU detected."))
    assert missing_gpu_message(trace, is_here=False) == ""


@pytest.mark.parametrize(
    "name",
    [
        SEND,
        "cuLaunchKernel",
        "cudaMemcpyAsync",
        "cuStreamSynchronize",
        "MemcpyH2D",
        "GpuExecutable::ExecuteThunks",
        "jit_dot:XLA GPU module",
        "replica_1/all_reduce:NcclAllReduce",
        "hipModuleLaunchKernel",
    ],
)
def test_work_for_a_gpu_without_gpu_events(tmp_path: Path, name: str) -> None:
    message = missing_gpu_message(contents(tmp_path, cpu_only(name), EMPTY_GPU), is_here=False)
    assert "the job used a GPU" in message
    fixes = ["roctracer"] if name.startswith("hip") else ["libcupti", "NVreg_RestrictProfilingToAdminUsers=0"]
    assert [fix for fix in fixes if fix not in message] == []


@pytest.mark.parametrize(
    "name",
    [
        "MatMul",
        "EagerCopyToDevice",
        "cumsum",
        "cutout",
        "$train.py:7 cuLaunchKernel",
        "model/MemcpyH2D:Identity",
        # A coordinator without a GPU that sends work to workers with one.
        "RemoteCall: Run: __inference_step_7 on /job:worker/replica:0/task:0/device:GPU:0",
        "_Send input 0 from /job:chief/replica:0/task:0/device:CPU:0 to /job:worker/replica:0/task:0/device:GPU:0",
    ],
)
def test_a_job_on_the_cpu_lacks_nothing(tmp_path: Path, name: str) -> None:
    # TensorFlow writes an empty plane for a GPU that the job leaves alone.
    assert missing_gpu_message(contents(tmp_path, cpu_only(name), EMPTY_GPU), is_here=False) == ""


def machine(folder: Path, *, opened: str = "/dev/nvidia0", restricted: int = 0, capabilities: int = 0) -> Machine:
    for name in ("proc/7/fd", "proc/driver/nvidia", "dev"):
        (folder / name).mkdir(parents=True)
    (folder / "dev/nvidia0").touch()
    (folder / "proc/7/fd/3").symlink_to(opened)
    (folder / "proc/7/status").write_text(f"Name:\tpython\nCapEff:\t{capabilities:016x}\n")
    (folder / "proc/driver/nvidia/params").write_text(f"ModifyDeviceFiles: 1\nRmProfilingAdminOnly: {restricted}\n")
    return Machine(folder, {}, "linux", ())


def test_a_job_that_has_a_gpu_open_but_no_plane_for_it(tmp_path: Path) -> None:
    missing = known(missing_gpu(contents(tmp_path, cpu_only()), machine(tmp_path), 7))
    assert missing.cause == "the job uses a GPU, but the GPU tracer did not start"
    assert "libcupti" in missing.fix


@pytest.mark.parametrize(
    ("capabilities", "fix", "other"),
    [
        pytest.param(
            0, "the driver of this machine allows only administrators to profile", "LD_LIBRARY_PATH", id="all"
        ),
        pytest.param(1 << 21, "LD_LIBRARY_PATH", "the driver of this machine", id="administrators"),
    ],
)
def test_the_restriction_of_this_machine_is_named(capabilities: int, fix: str, other: str, tmp_path: Path) -> None:
    restricted = machine(tmp_path, restricted=1, capabilities=capabilities)
    missing = known(missing_gpu(contents(tmp_path, cpu_only(SEND)), restricted, 7))
    assert (fix in missing.fix, other in missing.fix) == (True, False)


def test_a_job_that_has_a_gpu_open_and_leaves_it_alone(tmp_path: Path) -> None:
    assert missing_gpu(contents(tmp_path, cpu_only(), EMPTY_GPU), machine(tmp_path), 7) is None


def test_a_job_that_has_no_gpu_open(tmp_path: Path) -> None:
    # The control device alone: whoever asks the driver for its version opens it.
    assert missing_gpu(contents(tmp_path, cpu_only()), machine(tmp_path, opened="/dev/nvidiactl"), 7) is None


def test_an_amd_gpu_that_is_open(tmp_path: Path) -> None:
    presented = machine(tmp_path, opened="/dev/kfd")
    (tmp_path / "dev/nvidia0").unlink()
    assert "roctracer" in known(missing_gpu(contents(tmp_path, cpu_only()), presented, 7)).fix


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
def test_no_real_trace_lacks_anything() -> None:
    """Five of them are from jobs that left the GPU alone; in the others with a GPU, it has events."""
    paths = [path for path in TRACES.rglob("*.xplane.pb") if "corrupt" not in str(path)]
    assert [path for path in paths if missing_gpu_message(look_into(path), is_here=False)] == []


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
@pytest.mark.parametrize("folder", ["keras_rtx5000", "keras_t4/2022_11_04_21_26_12", "gpu_8xV100_worker", "jax_mi300x"])
def test_real_gpu_jobs_whose_device_events_are_taken_away(folder: str) -> None:
    for path in (TRACES / folder).rglob("*.xplane.pb"):
        whole = look_into(path)
        planes = {name: 0 if "GPU" in name else count for name, count in whole.events_by_plane.items()}
        left = Contents(whole.size_bytes, planes, whole.event_names, (), ())
        assert "the job used a GPU" in missing_gpu_message(left, is_here=False), path
