"""The checks of `tfperf doctor`: this machine, its packages, the logdir, and jobs (real ones are in test_remote.py)."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import grpc
import pytest
from builders import event, host, line, plane, space
from capture.double import Answer, refuse, replies, serving, writes_on_its_disk
from capture.made import Made, by_name

from tfperf.capture.address import Address
from tfperf.capture.doctor import (
    gpu_checks,
    job_checks,
    logdir_checks,
    port_check,
    run_checks,
    software_checks,
    space_check,
)
from tfperf.capture.machine import Machine
from tfperf.capture.outcomes import Check
from tfperf.cli.doctor import doctor_report
from tfperf.report.render import RenderOptions, render

# --- GPUs ---


def test_a_machine_without_a_gpu(made: Made) -> None:
    assert [(check.status, check.found) for check in gpu_checks(made.machine)] == [
        ("ok", "none on this machine"),
        ("ok", "not needed without an NVIDIA GPU"),
        ("ok", "not needed without an NVIDIA GPU"),
    ]


def test_a_machine_with_gpus_and_all_they_need(made: Made) -> None:
    made.gpu(0)
    made.gpu(1)
    made.restrict(restricted=False)
    library = made.packages / "nvidia" / "cuda_cupti" / "lib" / "libcupti.so.12"
    library.parent.mkdir(parents=True)
    library.touch()
    assert gpu_checks(made.machine) == [
        Check("GPU", "ok", "2 x NVIDIA H200"),
        Check("libcupti", "ok", str(library)),
        Check("driver's permission", "ok", "all users can profile"),
    ]


def test_a_container_without_the_gpu_of_its_machine(made: Made) -> None:
    for number, model in enumerate(("NVIDIA H200", "NVIDIA T4", "NVIDIA H200")):
        made.gpu(number, model=model, visible=False)
    check = made.gpu_check("GPU")
    assert check.status == "warn"
    assert check.found == "2 x NVIDIA H200, 1 x NVIDIA T4 installed, but not accessible here"
    assert "--gpus all" in check.fix


@pytest.mark.parametrize(("value", "status"), [("", "warn"), ("-1", "warn"), ("0", "ok"), ("GPU-4f2,1", "ok")])
def test_a_variable_that_hides_gpus(made: Made, value: str, status: str) -> None:
    made.gpu()
    made.environment["CUDA_VISIBLE_DEVICES"] = value
    check = made.gpu_check("GPU")
    assert check.status == status
    assert check.fix == ("unset CUDA_VISIBLE_DEVICES in the environment of the job" if status == "warn" else "")


def test_a_tensorflow_that_cannot_use_the_gpu(made: Made) -> None:
    made.gpu()
    made.install("tensorflow-cpu", "2.21.0")
    check = made.gpu_check("GPU")
    assert (check.status, "tensorflow[and-cuda]" in check.fix) == ("warn", True)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo 'NVIDIA RTX 5000'", "1 x NVIDIA RTX 5000"),
        *((failing, "none on this machine") for failing in ("exit 9", "echo 'None' >&2; exit 6", "printf '\\377'", "")),
    ],
)
def test_a_gpu_that_only_the_driver_s_tool_knows(made: Made, tmp_path: Path, script: str, found: str) -> None:
    """As on Windows, and on Linux below it."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    made.environment["PATH"] = str(tmp_path)
    assert made.gpu_check("GPU").found == found
    assert ("not checked on this system" in made.gpu_check("driver's permission").found) == ("RTX" in found)


def test_an_amd_gpu(made: Made) -> None:
    made.file("dev/kfd")
    assert made.gpu_check("GPU") == Check("GPU", "ok", "1 x AMD GPU (ROCm)")
    made.environment["HIP_VISIBLE_DEVICES"] = "-1"
    assert "HIP_VISIBLE_DEVICES" in made.gpu_check("GPU").fix


def test_other_systems_are_not_accused(made: Made) -> None:
    made.system = "darwin"
    assert {check.status for check in gpu_checks(made.machine)} == {"ok"}
    assert "not checked on this system" in made.gpu_check("GPU").found
    assert port_check(made.machine, 6009).found == "not checked on this system"


@pytest.mark.parametrize(("packages", "status"), [(["tensorflow"], "fail"), ([], "warn")])
def test_no_libcupti(made: Made, packages: list[str], status: str) -> None:
    """Without TensorFlow here, jobs may run in another environment."""
    made.gpu()
    for name in packages:
        made.install(name, "2.21.0")
    check = made.gpu_check("libcupti")
    assert check.status == status
    assert "nvidia-cuda-cupti-cu12" in check.fix
    assert "extras/CUPTI/lib64" in check.fix


def test_libcupti_where_nobody_looks(made: Made) -> None:
    made.gpu()
    folder = made.file("usr/local/cuda-12.5/extras/CUPTI/lib64/libcupti.so.12").parent
    check = made.gpu_check("libcupti")
    assert (check.status, check.fix) == ("warn", f"export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH")
    made.environment["LD_LIBRARY_PATH"] = f"/nowhere:{folder}"
    assert made.gpu_check("libcupti").status == "ok"


def test_libcupti_known_to_the_loader(made: Made) -> None:
    made.gpu()
    made.file(
        "etc/ld.so.cache", "glibc-ld.so.cache1.1\0libc.so.6\0/lib/libc.so.6\0libcupti.so.12\0/opt/x/libcupti.so.12\0"
    )
    assert made.gpu_check("libcupti") == Check("libcupti", "ok", "/opt/x/libcupti.so.12")


@pytest.mark.parametrize(("capabilities", "status"), [(0, "warn"), (1 << 21, "ok"), (1 << 38, "ok")])
def test_the_driver_s_restriction_concerns_all_but_administrators(made: Made, capabilities: int, status: str) -> None:
    made.gpu()
    made.restrict(restricted=True, capabilities=capabilities)
    check = made.gpu_check("driver's permission")
    assert check.status == status
    for fix in ("NVreg_RestrictProfilingToAdminUsers=0", "--cap-add=SYS_ADMIN"):
        assert (fix in check.fix) == (status == "warn")


# --- ports and folders ---


def test_a_port_and_who_has_it(made: Made) -> None:
    made.listen(6009, 4711, 123, "/job/bin/python3.11", "/job/train.py", "--token=secret")
    check = port_check(made.machine, 6009)
    assert (check.status, check.found) == ("ok", "python3.11 train.py (pid 123) listens on 6009")
    assert check.fix == "if this is the job, run tfperf doctor --port 6009"
    assert port_check(made.machine, 6010).found == "6010 is free"


@pytest.mark.parametrize(
    ("process", "words", "shown"),
    [
        (9, ["python", "-m", "pkg.train", "--token=x"], "python -m pkg.train (pid 9)"),
        (9, ["python", "-c", "secret"], "python (pid 9)"),
        (9, [], "a process (pid 9)"),
        (None, [], "a process of another user or container"),
    ],
)
def test_how_a_process_is_named(made: Made, process: int | None, words: list[str], shown: str) -> None:
    made.listen(6009, 4711, process, *words)
    assert port_check(made.machine, 6009).found == f"{shown} listens on 6009"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
@pytest.mark.parametrize("place", ["127.0.0.1", "::1"])
def test_a_real_port(place: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in place else socket.AF_INET) as server:
        try:
            server.bind((place, 0))
        except OSError:
            pytest.skip("no IPv6 here")
        server.listen()
        port = server.getsockname()[1]
        assert f"(pid {os.getpid()}) listens on {port}" in port_check(Machine(), port).found
    assert port_check(Machine(), port).found == f"{port} is free"


@pytest.mark.parametrize(("path", "words"), [("a/logs", "can be created"), (".", "is writable")])
def test_a_log_folder_is_not_made(tmp_path: Path, path: str, words: str) -> None:
    folder, disk = logdir_checks(tmp_path / path)
    assert folder == Check("log folder", "ok", f"{tmp_path / path} {words}")
    assert disk.found.endswith("B free")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("path", "words"), [("file/logs", "is a file"), ("gs://bucket/logs", "local folder")])
def test_what_can_be_no_log_folder(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "file").touch()
    (check,) = logdir_checks(Path(path) if ":" in path else tmp_path / path)
    assert (check.status, words in f"{check.found} {check.fix}") == ("fail", True)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux")
def test_a_log_folder_that_refuses_files() -> None:
    (check,) = logdir_checks(Path("/proc/self"))
    assert check.status == "fail"
    assert "choose another" in check.fix


@pytest.mark.parametrize(
    ("free", "status", "found"),
    [(76 << 30, "ok", "81.6 GB free"), (900 << 20, "warn", "944 MB free"), (5 << 10, "fail", "5.12 kB free")],
)
def test_space(free: int, status: str, found: str) -> None:
    check = space_check(free)
    assert (check.status, check.found) == (status, found)
    assert ("--logdir" in check.fix) == (status != "ok")


# --- all together ---


def test_a_machine_with_all_that_can_be_wrong(made: Made, tmp_path: Path) -> None:
    made.gpu()
    made.restrict(restricted=True)
    made.listen(6009, 4711, 123, "python", "train.py")
    checks = run_checks(tmp_path / "logs", machine=made.machine)
    text = render(doctor_report(checks), "table", RenderOptions(width=80))
    software = ["Python", "tfperf", "TensorFlow", "JAX", "Keras", "protobuf", "grpcio"]
    machine = ["GPU", "libcupti", "driver's permission", "port", "log folder", "disk space"]
    assert [check.name for check in checks] == software + machine
    assert max(map(len, text.splitlines())) <= 80
    assert "tfperf doctor --port 6009" in " ".join(text.split())


TENSORFLOW = "tensorflow 2.21.0"
JAX = ["jax 0.10.2 jaxlib (<=0.10.2,>=0.10.1)", "jaxlib 0.10.2"]
WITH_PROTOBUF = f"{TENSORFLOW} protobuf (>=6.31.1,<8.0.0)"


@pytest.mark.parametrize(
    ("installed", "name", "status", "fix"),
    [
        ([], "Python", "ok", ""),
        ([], "TensorFlow", "warn", "pip install tensorflow, or jax, if jobs use this environment"),
        ([], "JAX", "ok", ""),
        (JAX, "TensorFlow", "ok", ""),
        (JAX, "JAX", "ok", ""),
        (JAX[:1], "JAX", "fail", "pip install jax==0.10.2"),
        ([JAX[0], "jaxlib 0.9.0"], "JAX", "warn", "pip install jax==0.10.2"),
        ([*JAX, "jax-cuda13-plugin 0.10.2"], "JAX", "ok", ""),
        ([*JAX, "jax-cuda13-plugin 0.10.1"], "JAX", "warn", 'pip install "jax-cuda13-plugin[with-cuda]==0.10.2"'),
        ([], "protobuf", "fail", "pip install protobuf"),
        ([], "grpcio", "fail", "pip install grpcio"),
        ([TENSORFLOW, "tensorflow-cpu 2.20.0"], "TensorFlow", "warn", "pip uninstall -y tensorflow tensorflow-cpu"),
        (["tensorflow 2.15.0", "tensorflow-intel 2.15.0"], "TensorFlow", "ok", ""),
        (["tf-nightly 2.9.0.dev20220101"], "TensorFlow", "warn", 'pip install "tensorflow>=2.13"'),
        ([TENSORFLOW, "keras 2.15.0"], "Keras", "warn", 'pip install "keras>=3"'),
        (["tensorflow 2.15.0", "keras 3.1.0"], "Keras", "warn", 'pip install "keras<3"'),
        (["tensorflow 2.15.1", "keras 2.15.0"], "Keras", "ok", ""),
        ([TENSORFLOW], "Keras", "warn", "pip install keras"),
        ([WITH_PROTOBUF, "protobuf 5.29.1"], "protobuf", "warn", 'pip install "protobuf<8.0.0,>=6.31.1"'),
        ([WITH_PROTOBUF, "protobuf 6.31.1"], "protobuf", "ok", ""),
        ([WITH_PROTOBUF, "protobuf 7.1rc1"], "protobuf", "ok", ""),
        ([WITH_PROTOBUF, "protobuf 8"], "protobuf", "warn", 'pip install "protobuf<8.0.0,>=6.31.1"'),
        (["grpcio 1.48.2"], "grpcio", "warn", 'pip install "grpcio>=1.60"'),
    ],
)
def test_a_package(made: Made, installed: list[str], name: str, status: str, fix: str) -> None:
    for package in installed:
        made.install(*package.split(" ", 2))
    check = made.software_check(name)
    assert (check.status, check.fix.partition(", then")[0]) == (status, fix)
    assert ("overwrite" in check.found) == ("uninstall" in fix)


def test_legacy_keras_is_asked_for(made: Made) -> None:
    made.install("tensorflow", "2.21.0")
    made.install("keras", "3.15.1")
    made.environment["TF_USE_LEGACY_KERAS"] = "1"
    assert made.software_check("Keras").fix == "pip install tf_keras"


def test_packages_that_get_along(made: Made) -> None:
    made.install("tensorflow", "2.21.0", "protobuf<8.0.0,>=6.31.1", "keras>=3.12.0", 'grpcio>=9 ; extra == "odd"')
    for name, version in (("keras", "3.15.1"), ("protobuf", "6.31.1"), ("grpcio", "1.85.1"), ("tfperf", "0.1.0")):
        made.install(name, version)
    checks = software_checks(made.machine)
    assert {check.status for check in checks} == {"ok"}
    found = [check.found for check in checks[1:]]
    assert found == ["0.1.0", "tensorflow 2.21.0", "not installed", "keras 3.15.1", "6.31.1", "1.85.1"]


def test_a_jax_that_cannot_use_the_devices_of_the_machine(made: Made) -> None:
    made.install("jax", "0.10.2")
    made.install("jaxlib", "0.10.2")
    made.gpu()
    check = made.gpu_check("GPU")
    assert (check.status, check.found) == ("warn", "1 x NVIDIA H200; this JAX has no CUDA plugin")
    assert check.fix.startswith('pip install -U "jax[cuda13]"')
    made.install("jax-cuda13-plugin", "0.10.2")
    assert made.gpu_check("GPU").status == "ok"
    network, chips = ("0x1ae0", "0x0042"), [("0x1ae0", "0x006f")] * 4
    for number, (vendor, device) in enumerate([network, *chips, ("0x10de", "0x006f")]):
        made.file(f"sys/bus/pci/devices/0000:00:0{number}.0/vendor", f"{vendor}\n")
        made.file(f"sys/bus/pci/devices/0000:00:0{number}.0/device", f"{device}\n")
    check = made.software_check("JAX")
    assert (check.status, check.fix) == ("warn", 'pip install "jax[tpu]==0.10.2"')
    assert check.found == "0.10.2, jax-cuda13-plugin 0.10.2, 4 TPU chips, but libtpu is not installed"
    made.install("libtpu", "0.0.42")
    found = "0.10.2, jax-cuda13-plugin 0.10.2, libtpu 0.0.42, 4 TPU chips"
    assert made.software_check("JAX") == Check("JAX", "ok", found)


def test_the_libcupti_that_jax_loads(made: Made) -> None:
    """That of the CUDA version of the plugin: another one does not serve."""
    made.gpu()
    for name in ("jax", "jaxlib", "jax-cuda13-plugin"):
        made.install(name, "0.10.2")
    folder = made.packages / "nvidia"
    (folder / "cuda_cupti/lib").mkdir(parents=True)
    (folder / "cuda_cupti/lib/libcupti.so.12").touch()
    check = made.gpu_check("libcupti")
    assert (check.status, check.fix) == ("fail", 'pip install "jax-cuda13-plugin[with-cuda]==0.10.2"')
    assert check.found == "libcupti.so.13, which jax-cuda13-plugin loads, not found: traces may have no GPU events"
    (folder / "cu13/lib").mkdir(parents=True)
    (folder / "cu13/lib/libcupti.so.13").touch()
    assert made.gpu_check("libcupti") == Check("libcupti", "ok", str(folder / "cu13/lib/libcupti.so.13"))
    made.install("tensorflow", "2.21.0")
    both = f"{folder / 'cu13/lib/libcupti.so.13'}, {folder / 'cuda_cupti/lib/libcupti.so.12'}"
    assert made.gpu_check("libcupti").found == both


# --- jobs: a double of a server ---


TRAIN = host(event("train", 0, 5))
GPU = plane("/device:GPU:0", line("Stream #7(Compute)", event("gemm", 0, 5)))
NO_CUPTI = ("Failed to load libcupti (is it installed and accessible?)",)


def ask(port: int, machine: Machine | None = None) -> dict[str, Check]:
    return by_name(job_checks(Address("localhost", port), machine or Machine()))


@pytest.mark.parametrize(
    ("answer", "name", "status", "words"),
    [
        pytest.param(
            refuse(grpc.StatusCode.INTERNAL, "Another profiling session active."),
            *("profiler", "warn", "already being profiled"),
            id="profiled already",
        ),
        pytest.param(writes_on_its_disk(space(TRAIN)), "trace of the job", "ok", "1 event", id="old, on this disk"),
        pytest.param(replies(), "profiler", "warn", "its own disk", id="old, on another disk"),
        pytest.param(replies(b"<html>"), "profiler", "fail", "", id="no trace"),
        pytest.param(replies(space(TRAIN, GPU)), "job's GPU", "ok", "1 event", id="GPU"),
        pytest.param(replies(space(TRAIN, errors=NO_CUPTI)), "job's GPU", "fail", "libcupti", id="GPU is not traced"),
    ],
)
def test_a_job(answer: Answer, name: str, status: str, words: str) -> None:
    with serving({"Profile": answer}) as port:
        check = ask(port)[name]
    assert (check.status, words in check.found) == (status, True)
    assert ("LD_LIBRARY_PATH" in check.fix) == (words == "libcupti")


def test_a_job_that_cannot_be_seen_has_not_the_rights_of_this_process(made: Made) -> None:
    made.gpu()
    made.restrict(restricted=True, capabilities=1 << 21)
    with serving({"Profile": replies(space(host(event("cuLaunchKernel", 0, 5))))}) as port:
        check = ask(port, made.machine)["job's GPU"]
    assert check.fix.startswith("the driver of this machine allows only administrators to profile")
