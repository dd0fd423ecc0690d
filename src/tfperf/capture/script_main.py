"""Run a script or a module as `python` itself would, in a process that has started otherwise."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from types import ModuleType, TracebackType
from typing import Any

_HIDDEN_FILES = (__file__, runpy.__file__, "<string>", "<frozen runpy>")
_HIDDEN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120 - compared with code names


def run_as_main(command: Sequence[str], *, is_module: bool) -> None:
    """Do what `python COMMAND...` or `python -m COMMAND...` does, except for flags of the interpreter.

    What the program raises is raised here; a traceback that is shown for it has no frames of tfperf.
    """
    sys.argv[:] = command
    try:
        if is_module:
            _run_module(command[0])
        elif os.path.isfile(command[0]) and not command[0].endswith(".pyc") and not _is_zip(command[0]):  # noqa: PTH113
            _run_script(command[0])
        else:
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit:
        raise
    except BaseException:
        # Only now: the program may have set a hook of its own.
        sys.excepthook = _without_frames_of_tfperf(sys.excepthook)
        raise


def _is_zip(path: str) -> bool:
    with io.open_code(os.path.abspath(path)) as file:  # noqa: PTH100 - strings, as Python does it
        return file.read(2) == b"PK"


def _run_module(name: str) -> None:
    _put_first(os.getcwd())  # noqa: PTH109
    if find_spec(name) is None:
        sys.exit(f"{sys.executable}: No module named {name}")
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run_script(path: str) -> None:
    """Execute a file as the module `__main__`, which stays there: runpy would remove it when the file has run."""
    _put_first(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    file = os.path.abspath(path)  # noqa: PTH100
    main = ModuleType("__main__")
    details: dict[str, Any] = {
        "__file__": file,
        "__cached__": None,
        "__builtins__": builtins,
        "__loader__": SourceFileLoader("__main__", file),
    }
    vars(main).update(details)
    sys.modules["__main__"] = main
    with io.open_code(file) as opened:
        code = compile(opened.read(), file, "exec", dont_inherit=True)
    exec(code, vars(main))


def _put_first(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)


def _without_frames_of_tfperf(show: Any) -> Any:
    """Return a hook for uncaught exceptions whose traceback starts at the program's own code."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and _is_hidden(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        show(kind, error.with_traceback(trace), trace)

    return hook


def _is_hidden(file: str) -> bool:
    return file in _HIDDEN_FILES or file.startswith(_HIDDEN_FOLDER)
