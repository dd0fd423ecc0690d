"""The checks of `tfperf doctor`: this machine, its packages, the logdir."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from capture.made import Made

from tfperf.capture.doctor import gpu_checks, logdir_checks, port_check, run_checks, software_checks, space_check
from tfperf.capture.machine import Machine
from tfperf.capture.outcomes import Check
from tfperf.cli.doctor import doctor_report
from tfperf.report.render import RenderOptions, render


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


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


def test_a_gpu_that_only_the_driver_s_tool_knows(made: Made, tmp_path: Path) -> None:
    """As on Windows, and on Linux below it."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA RTX 5000'\n")
    tool.chmod(0o755)
    made.environment["PATH"] = str(tmp_path)
    assert made.gpu_check("GPU").found == "1 x NVIDIA RTX 5000"
    assert made.gpu_check("driver's permission").found == "not checked on this system"


@pytest.mark.parametrize("script", ["exit 9", "echo 'No devices were found' >&2; exit 6", "printf '\\377'", ""])
def test_a_driver_s_tool_that_fails(made: Made, tmp_path: Path, script: str) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    made.environment["PATH"] = str(tmp_path)
    assert made.gpu_check("GPU").found == "none on this machine"


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


def test_no_libcupti(made: Made) -> None:
    made.gpu()
    made.install("tensorflow", "2.21.0")
    check = made.gpu_check("libcupti")
    assert check.status == "fail"
    assert "nvidia-cuda-cupti-cu12" in check.fix
    assert "extras/CUPTI/lib64" in check.fix


def test_no_libcupti_and_no_job_in_this_environment(made: Made) -> None:
    made.gpu()
    assert made.gpu_check("libcupti").status == "warn"


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


def test_the_driver_s_restriction(made: Made) -> None:
    made.gpu()
    made.restrict(restricted=True)
    check = made.gpu_check("driver's permission")
    assert check.status == "warn"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in check.fix
    assert "--cap-add=SYS_ADMIN" in check.fix


@pytest.mark.parametrize("bit", [21, 38])
def test_the_driver_s_restriction_does_not_concern_administrators(made: Made, bit: int) -> None:
    made.gpu()
    made.restrict(restricted=True, capabilities=1 << bit)
    assert made.gpu_check("driver's permission").status == "ok"


# --- ports and folders ---


def test_a_port_and_who_has_it(made: Made) -> None:
    made.listen(6009, 4711, 123, "/job/bin/python3.11", "/job/train.py", "--token=secret")
    check = port_check(made.machine, 6009)
    assert (check.status, check.found) == ("ok", "python3.11 train.py (pid 123) listens on 6009")
    assert check.fix == "if this is the job, run tfperf doctor --port 6009"
    assert port_check(made.machine, 6010).found == "6010 is free"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["python", "-m", "pkg.train", "--token=x"], "python -m pkg.train"),
        (["python", "-c", "secret"], "python"),
        ([], "a process"),
    ],
)
def test_how_a_process_is_named(made: Made, words: list[str], shown: str) -> None:
    made.listen(6009, 4711, 9, *words)
    assert port_check(made.machine, 6009).found == f"{shown} (pid 9) listens on 6009"


def test_a_port_of_somebody_else(made: Made) -> None:
    made.listen(6009, 4711, None)
    assert port_check(made.machine, 6009).found == "process of another user or container listens on 6009"


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


def test_a_log_folder_is_not_made(tmp_path: Path) -> None:
    folder, disk = logdir_checks(tmp_path / "a" / "logs")
    assert folder == Check("log folder", "ok", f"{tmp_path / 'a' / 'logs'} can be created")
    assert disk.found.endswith("B free")
    assert list(tmp_path.iterdir()) == []


def test_a_log_folder_that_is_there(tmp_path: Path) -> None:
    assert next(logdir_checks(tmp_path)).found == f"{tmp_path} is writable"
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
    software = ["Python", "tfperf", "TensorFlow", "Keras", "protobuf", "grpcio"]
    machine = ["GPU", "libcupti", "driver's permission", "port", "log folder", "disk space"]
    assert [check.name for check in checks] == software + machine
    assert max(map(len, text.splitlines())) <= 80
    assert "tfperf doctor --port 6009" in " ".join(text.split())


def test_no_package_at_all(made: Made) -> None:
    assert made.software_check("Python").status == "ok"
    assert made.software_check("TensorFlow").status == "warn"
    assert "pip install tensorflow" in made.software_check("TensorFlow").fix
    assert made.software_check("protobuf") == Check("protobuf", "fail", "not installed", "pip install protobuf")
    assert made.software_check("grpcio") == Check("grpcio", "fail", "not installed", "pip install grpcio")


def test_packages_that_get_along(made: Made) -> None:
    made.install("tensorflow", "2.21.0", "protobuf<8.0.0,>=6.31.1", "keras>=3.12.0", 'grpcio>=9 ; extra == "odd"')
    made.install("keras", "3.15.1")
    made.install("protobuf", "6.31.1")
    made.install("grpcio", "1.85.1")
    made.install("tfperf", "0.1.0")
    checks = software_checks(made.machine)
    assert {check.status for check in checks} == {"ok"}
    assert [check.found for check in checks[1:]] == ["0.1.0", "tensorflow 2.21.0", "keras 3.15.1", "6.31.1", "1.85.1"]


def test_two_tensorflows(made: Made) -> None:
    made.install("tensorflow", "2.21.0")
    made.install("tensorflow-cpu", "2.20.0")
    check = made.software_check("TensorFlow")
    assert (check.status, "overwrite" in check.found) == ("warn", True)
    assert check.fix.startswith("pip uninstall -y tensorflow tensorflow-cpu")


def test_a_part_of_tensorflow_is_no_rival(made: Made) -> None:
    made.install("tensorflow", "2.15.0")
    made.install("tensorflow-intel", "2.15.0")
    assert made.software_check("TensorFlow").status == "ok"


def test_an_old_tensorflow(made: Made) -> None:
    made.install("tf-nightly", "2.9.0.dev20220101")
    check = made.software_check("TensorFlow")
    assert (check.status, check.fix) == ("warn", 'pip install "tensorflow>=2.13"')


@pytest.mark.parametrize(
    ("tensorflow", "keras", "fix"),
    [
        ("2.21.0", "2.15.0", 'pip install "keras>=3"'),
        ("2.15.0", "3.1.0", 'pip install "keras<3"'),
        ("2.15.1", "2.15.0", ""),
    ],
)
def test_keras_must_fit(made: Made, tensorflow: str, keras: str, fix: str) -> None:
    made.install("tensorflow", tensorflow)
    made.install("keras", keras)
    assert made.software_check("Keras").fix == fix


def test_keras_is_missing(made: Made) -> None:
    made.install("tensorflow", "2.21.0")
    assert made.software_check("Keras").fix == "pip install keras"


def test_legacy_keras_is_asked_for(made: Made) -> None:
    made.install("tensorflow", "2.21.0")
    made.install("keras", "3.15.1")
    made.environment["TF_USE_LEGACY_KERAS"] = "1"
    assert made.software_check("Keras").fix == "pip install tf_keras"


@pytest.mark.parametrize(("version", "status"), [("5.29.1", "warn"), ("6.31.1", "ok"), ("8", "warn"), ("7.1rc1", "ok")])
def test_what_tensorflow_wants_of_protobuf(made: Made, version: str, status: str) -> None:
    made.install("tensorflow", "2.21.0", "protobuf (>=6.31.1,<8.0.0)")
    made.install("protobuf", version)
    check = made.software_check("protobuf")
    assert check.status == status
    assert check.fix == ('pip install "protobuf<8.0.0,>=6.31.1"' if status == "warn" else "")


def test_an_old_grpcio(made: Made) -> None:
    made.install("grpcio", "1.48.2")
    assert made.software_check("grpcio").fix == 'pip install "grpcio>=1.60"'
