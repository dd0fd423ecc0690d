"""Frames of the Python tracer: what calls what, and how long each is open."""

from __future__ import annotations

import contextlib
import inspect
import json.decoder
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from builders import PS_PER_US, Event, event, host, known, line, plane, trace_of

from tfperf.base.arrays import Intervals
from tfperf.trace.host.python_activity import CpuTimes
from tfperf.trace.host.python_frames import (
    PACKAGES,
    PythonFrames,
    PythonFunction,
    python_frames,
    python_function,
    python_functions,
)


def frames_of(folder: Path, *threads: list[Event]) -> PythonFrames:
    lines = [line(f"thread {number}", *events) for number, events in enumerate(threads)]
    return known(python_frames(trace_of(folder, plane("/host:CPU", *lines))))


def test_events_of_tensorflow_are_between_frames_and_do_not_count(tmp_path: Path) -> None:
    frames = frames_of(tmp_path, [event("$a.py:1 f", 0, 10), event("op:Op", 1, 8), event("$b.py:1 g", 2, 3)])
    assert frames.parent.tolist() == [-1, 0]
    assert frames.self_ps.tolist() == [7 * PS_PER_US, 3 * PS_PER_US]


def test_no_frames(tmp_path: Path) -> None:
    assert python_frames(trace_of(tmp_path, host(event("op:Op", 0, 1)))) is None
    # A device may have a name that looks like one.
    assert python_frames(trace_of(tmp_path, plane("/device:GPU:0", line("s", event("$a.py:1 f", 0, 1))))) is None


def test_own_parts_and_spans_are_those_of_a_walk(tmp_path: Path) -> None:
    random.seed(1)
    events: list[Event] = []

    def call(start: int, end: int, depth: int) -> None:
        events.append(event(f"$a.py:1 f{random.randrange(3)}", start, end - start))
        at = start
        while depth and at < end - 4:
            at += random.randrange(3)
            stop = min(end, at + random.randrange(1, 20))
            if stop > at:
                call(at, stop, depth - 1)
            at = stop

    for start in range(0, 600, 100):
        call(start, start + 90, 4)
    frames = frames_of(tmp_path, events, events)
    assert len(frames) == 2 * len(events) > 100
    # Microsecond by microsecond: which functions are open on the first thread, and which is the innermost.
    one = np.flatnonzero(frames.line == frames.line[0])
    own: dict[int, int] = {}
    opened: dict[int, int] = {}
    for at in range(600):
        time = at * PS_PER_US
        here = [row for row in one.tolist() if frames.start[row] <= time < frames.end[row]]
        for name in {int(frames.name[row]) for row in here}:
            opened[name] = opened.get(name, 0) + 1
        if here:
            own[here[-1]] = own.get(here[-1], 0) + 1
    part, begin, stop = frames.own_parts()
    parts = np.bincount(part, weights=stop - begin, minlength=len(frames)) / PS_PER_US
    assert {row: parts[row] for row in one.tolist() if parts[row]} == own
    assert (parts * PS_PER_US == frames.self_ps).all()
    group, begin, stop = frames.spans(frames.name)
    spans = np.bincount(group, weights=stop - begin) / PS_PER_US
    assert {name: spans[name] for name in np.flatnonzero(spans).tolist()} == {
        name: 2 * count for name, count in opened.items()
    }


def test_times_of_a_damaged_file_stay_apart(tmp_path: Path) -> None:
    far = (1 << 59) / PS_PER_US
    long = [event(f"$a.py:{number} f", at * far, far) for at in (0, 1) for number in range(8)]
    frames = frames_of(tmp_path, long, [event("$a.py:0 f", 5, 7)])
    group, start, end = frames.spans(frames.name)
    spans = sorted(zip(group.tolist(), start.tolist(), end.tolist(), strict=True))
    first = int(frames.name[-1])
    expected = [(name, 0, 1 << 60) for name in {*frames.name.tolist()}]
    assert spans == sorted([*expected, (first, 5 * PS_PER_US, 12 * PS_PER_US)])


# --- frames of the Python tracer are named as functions, and told apart by package ---


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


# --- what a thread did inside some times, from its CPU time piece by piece: between the least and the most ---


def at(*times: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(times, np.int64)


@pytest.mark.parametrize(
    ("cpu", "queued", "bounds"),
    [
        ((10, 10), (0, 0), (15, 15)),
        ((0, 0), (0, 0), (0, 0)),
        ((0, 0), (10, 10), (15, 15)),  # ready, without a core
        ((10, 5), (0, 0), (10, 15)),  # of the second piece, 5 of 10 are inside, and it ran for 5
        ((10, 8), (0, 0), (13, 15)),
    ],
)
def test_pieces_that_are_partly_inside_leave_a_range(
    cpu: tuple[int, int], queued: tuple[int, int], bounds: tuple[int, int]
) -> None:
    times = CpuTimes(at(0, 10), at(10, 20), at(*cpu), at(*queued))
    inside = Intervals(at(0), at(15))
    least, most = times.within(inside, at(0), at(20))
    assert (least.tolist(), most.tolist()) == ([bounds[0]], [bounds[1]])


def test_windows_take_their_part_of_a_piece() -> None:
    times = CpuTimes(at(0), at(10), at(10), at(0))
    least, most = times.within(Intervals(at(0, 6), at(4, 10)), at(0, 4, 6, 12), at(4, 6, 8, 20))
    assert least.tolist() == most.tolist() == [4, 0, 2, 0]
