"""Which package a function of Python is part of, as far as the name of its file tells.

The Python tracer writes `$FILE:LINE FUNCTION` for a function in Python, with the last part of its path only, and
`$MODULE FUNCTION` for one in C. `package_files.txt` lists the files of TensorFlow, Keras, numpy, Python and tfperf.
Names that programs give to files of their own too (`model.py`, `trainer.py`, `utils.py`) are left out, so that nobody's
code counts as that of a package. A file of several packages counts for the first of them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("tensorflow", "keras", "numpy", "python", "typing_extensions", "tfperf")
NO_MODULE = "C methods"
"""Stands for the package of methods in C, of which the tracer does not know the module."""
_IN_PYTHON = re.compile(r"\$(.+):(\d+) (.+)", re.DOTALL)
_IN_C = re.compile(r"\$(\S+) (.+)", re.DOTALL)


class PythonFunction(NamedTuple):
    """A function of Python: `file` and `line` (where it starts) are empty and 0 for one in C.

    `package` is one of `PACKAGES` or `NO_MODULE`; empty for a function of the program, or of a package that is not
    listed.
    """

    shown: str
    package: str
    file: str = ""
    line: int = 0
    name: str = ""


def python_functions(frames: Sequence[str]) -> list[PythonFunction]:
    """Return the functions of the frames of a profile.

    Without a call into TensorFlow's C++, no file is one of TensorFlow or Keras: JAX has files of the same names.
    """
    functions = [python_function(frame) for frame in frames]
    if any(frame.startswith("$tensorflow.") for frame in frames):
        return functions
    return [each._replace(package="") if each.package in ("tensorflow", "keras") else each for each in functions]


def python_function(frame: str) -> PythonFunction:
    """Return the function of a frame of the Python tracer, its package as the frame alone tells."""
    in_python = _IN_PYTHON.fullmatch(frame)
    if in_python:
        file, line, name = in_python.groups()
        return PythonFunction(frame[1:], _package_of_file(file), file, int(line[:18]), name)
    in_c = _IN_C.fullmatch(frame)
    if not in_c:
        return PythonFunction(frame[1:], "", name=frame[1:])
    module, name = in_c.groups()
    if module == "<unknown>":
        return PythonFunction(name, NO_MODULE, name=name)
    return PythonFunction(f"{module}.{name}", _package_of_module(module), name=name)


def is_file_of_package(file: str) -> bool:
    """Tell whether a file, by its name alone, is one of a package (`PACKAGES`) and not of the program."""
    return bool(_package_of_file(file))


def _package_of_file(file: str) -> str:
    if file.startswith("<frozen "):
        return "python"
    return _files().get(file.removesuffix(".py"), "") if file.endswith(".py") else ""


def _package_of_module(module: str) -> str:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "python"
    return top if top in PACKAGES else ""


@cache
def _files() -> dict[str, str]:
    """Return the package of each file of a package, without its suffix."""
    text = Path(__file__).with_name("package_files.txt").read_text(encoding="utf-8")
    packages: dict[str, str] = {}
    for line in text.splitlines():
        package, *names = line.split()
        for name in names:
            packages.setdefault(name, package)
    return packages
