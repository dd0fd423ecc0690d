"""Frames of the Python tracer are named as functions, and told apart by package."""

from __future__ import annotations

import contextlib
import inspect
import json.decoder
import threading
from pathlib import Path

import pytest

from tfperf.trace.host.python_frames import PACKAGES, PythonFunction, python_function, python_functions


@pytest.mark.parametrize(
    ("frame", "function"),
    [
        ("$train.py:12 step", PythonFunction("train.py:12 step", "", "train.py", 12, "step")),
        (
            "$polymorphic_function.py:805 __call__",
            PythonFunction(
                "polymorphic_function.py:805 __call__", "tensorflow", "polymorphic_function.py", 805, "__call__"
            ),
        ),
        (
            "$<frozen abc>:117 __instancecheck__",
            PythonFunction("<frozen abc>:117 __instancecheck__", "python", "<frozen abc>", 117, "__instancecheck__"),
        ),
        ("$<string>:1 <lambda>", PythonFunction("<string>:1 <lambda>", "", "<string>", 1, "<lambda>")),
        ("$my file.py:3 f", PythonFunction("my file.py:3 f", "", "my file.py", 3, "f")),
        ("$time sleep", PythonFunction("time.sleep", "python", name="sleep")),
        ("$numpy.core._multiarray dot", PythonFunction("numpy.core._multiarray.dot", "numpy", name="dot")),
        ("$pandas._libs.lib infer", PythonFunction("pandas._libs.lib.infer", "", name="infer")),
        ("$<unknown> astype", PythonFunction("astype", "C methods", name="astype")),
        ("$odd", PythonFunction("odd", "", name="odd")),
    ],
)
def test_frames(frame: str, function: PythonFunction) -> None:
    assert python_function(frame) == function


@pytest.mark.parametrize("module", [inspect, contextlib, threading, json.decoder])
def test_files_of_python_are_known(module: object) -> None:
    name = Path(inspect.getfile(module)).name  # type: ignore[arg-type]
    # A decoder may be anybody's.
    assert python_function(f"${name}:1 f").package == ("" if name == "decoder.py" else "python")


@pytest.mark.parametrize(
    "name", ["model", "trainer", "utils", "train", "__init__", "data", "callbacks", "main", "ops2"]
)
def test_names_that_programs_use_are_of_no_package(name: str) -> None:
    assert python_function(f"${name}.py:1 f").package == ""


def test_the_list_names_each_file_once() -> None:
    from tfperf.trace.host import python_frames as python_packages

    text = Path(python_packages.__file__).with_name("package_files.txt").read_text(encoding="utf-8")
    rows = [row.split() for row in text.splitlines()]
    names = [name for _, *names in rows for name in names]
    assert len(names) == len(set(names)) > 1000
    assert {package for package, *_ in rows} == {*PACKAGES}


def test_jax_has_files_of_the_same_names() -> None:
    frames = ["$dispatch.py:81 apply_primitive", "$inspect.py:9 bind"]
    assert [each.package for each in python_functions(frames)] == ["", "python"]
    with_tensorflow = [*frames, "$tensorflow.python._pywrap_tfe TFE_Py_Execute"]
    assert [each.package for each in python_functions(with_tensorflow)] == ["tensorflow", "python", "tensorflow"]
