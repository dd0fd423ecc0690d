"""Which packages are installed, and whether they get along: folders of package metadata."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture.made import Made

from tfperf.capture.doctor import software_checks
from tfperf.capture.outcomes import Check


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


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
