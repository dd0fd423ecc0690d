"""Frames of the Python tracer: when each function runs, and inside which other one.

Frames nest in time on the line of their thread. TensorFlow events between them do not count: a function's calls into
TensorFlow are its self time. A frame that is open when the capture starts or ends is clipped to it; one that is open
all the time is not recorded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import MOST, Bools, Int64s, Intervals, distinct_index, union
from tfperf.trace.event_names import is_python_frame, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import own_parts, parents, self_time

_PROFILER = re.compile(r"\$(?:profiler|profiler_v2)\.py:\d+ (start|stop)(?:_trace)?$")


def profiler_times(trace: HostTrace, which: Literal["start", "stop"]) -> Intervals:
    """Return when JAX or TensorFlow starts or stops the profiler; only the Python tracer records these calls."""
    matches = (_PROFILER.match(name) for name in trace.names)
    rows = trace.host_events(np.array([match is not None and match[1] == which for match in matches], np.bool_))
    return union(trace.start_ps[rows], trace.end_ps[rows])


class PythonFrames(Struct, frozen=True, kw_only=True):
    """The frames of a host, one per call, by line and start.

    `rows` are rows of the trace, `name` indexes its names, `line` its lines, and `parent` these frames: the calling
    one, -1 for none. Times are in picoseconds on the clock of the trace.
    """

    rows: Int64s
    name: Int64s
    line: Int64s
    parent: Int64s
    start: Int64s
    end: Int64s

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.rows)

    @property
    def self_ps(self) -> Int64s:
        """Return the time of each frame without the frames that it calls."""
        return self_time(self.end - self.start, self.parent)

    def own_parts(self) -> tuple[Int64s, Int64s, Int64s]:
        """Return when each frame is the innermost of its thread: frame, start and end of each part."""
        return own_parts(self.start, self.end, self.parent, np.ones(len(self), np.bool_))

    def spans(self, group: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return when a frame of each group (a number per frame) is open on a thread, once for recursion: group, start
        and end.
        """
        keys, key = distinct_index(self.line * (int(group.max()) + 1) + group)
        low = int(self.start.min())
        opened, closed, times = self.start - low, self.end - low, None
        size = int(closed.max()) + 1
        if len(keys) * size >= MOST:  # times of a damaged file: their ranks keep these numbers small
            times, rank = distinct_index(np.concatenate((opened, closed)))
            opened, closed = np.split(rank, 2)
            size = len(times)
        # Shift keys in sequence, so that no time of one key reaches into the next.
        opened, closed = key * size + opened, key * size + closed
        order = np.argsort(opened, kind="stable")
        reach = np.maximum.accumulate(closed[order])
        begins = np.concatenate(([True], opened[order][1:] > reach[:-1]))
        last = np.append(np.flatnonzero(begins)[1:], len(self)) - 1
        outer, stop = order[begins], reach[last] % size
        return group[outer], self.start[outer], low + (stop if times is None else times[stop])


def frame_names(trace: HostTrace) -> Bools:
    """Return which names of the trace are frames."""
    return mask(trace.names, is_python_frame)


def python_frames(trace: HostTrace) -> PythonFrames | None:
    """Return the frames of all threads of a host; None if the Python tracer recorded nothing."""
    if not any(map(is_python_frame, trace.names)):
        return None
    rows = trace.host_events(frame_names(trace))
    if not len(rows):
        return None
    return PythonFrames(
        rows=rows,
        name=trace.name[rows],
        line=trace.line_of[rows].astype(np.int64),
        parent=parents(trace, rows),
        start=trace.start_ps[rows],
        end=trace.end_ps[rows],
    )


# --- packages ---
# The Python tracer writes `$FILE:LINE FUNCTION` for a Python function, with the last part of its path only, and
# `$MODULE FUNCTION` for one in C. `package_files.txt` lists the files of TensorFlow, Keras, numpy, Python and tfperf,
# without names that programs also use (`model.py`, `utils.py`), so that no code of a program counts as that of a
# package. A file of several packages counts for the first of them.

PACKAGES = ("tensorflow", "keras", "numpy", "python", "typing_extensions", "tfperf")
NO_MODULE = "C methods"
"""Package of C methods, whose module the tracer does not record."""
_IN_PYTHON = re.compile(r"\$(.+):(\d+) (.+)", re.DOTALL)
_IN_C = re.compile(r"\$(\S+) (.+)", re.DOTALL)


class PythonFunction(NamedTuple):
    """A function of Python: `file` and `line` (where it starts) are empty and 0 for one in C.

    `package` is one of `PACKAGES` or `NO_MODULE`; empty for a function of the program or of an unlisted package.
    """

    shown: str
    package: str
    file: str = ""
    line: int = 0
    name: str = ""


def python_functions(frames: Sequence[str]) -> list[PythonFunction]:
    """Return the functions of frames; without calls into TensorFlow's C++, TensorFlow or Keras files are JAX's."""
    functions = [python_function(frame) for frame in frames]
    if any(frame.startswith("$tensorflow.") for frame in frames):
        return functions
    return [each._replace(package="") if each.package in ("tensorflow", "keras") else each for each in functions]


def python_function(frame: str) -> PythonFunction:
    """Return the function of a frame of the Python tracer, with its package from this frame alone."""
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
    top = module.partition(".")[0]
    package = "python" if top in sys.stdlib_module_names else top if top in PACKAGES else ""
    return PythonFunction(f"{module}.{name}", package, name=name)


def is_file_of_package(file: str) -> bool:
    """Return whether a file, by its name alone, belongs to a package (`PACKAGES`) and not to the program."""
    return bool(_package_of_file(file))


def _package_of_file(file: str) -> str:
    if file.startswith("<frozen "):
        return "python"
    return _files().get(file.removesuffix(".py"), "") if file.endswith(".py") else ""


@cache
def _files() -> dict[str, str]:
    text = Path(__file__).with_name("package_files.txt").read_text(encoding="utf-8")
    packages: dict[str, str] = {}
    for line in text.splitlines():
        package, *names = line.split()
        for name in names:
            packages.setdefault(name, package)
    return packages
