"""Frames of the Python tracer: what calls what, and how long each is open."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from builders import PS_PER_US, Event, event, host, line, plane, trace_of

from tfperf.trace.host.python_frames import PythonFrames, python_frames


def frames_of(folder: Path, *threads: list[Event]) -> PythonFrames:
    lines = [line(f"thread {number}", *events) for number, events in enumerate(threads)]
    frames = python_frames(trace_of(folder, plane("/host:CPU", *lines)))
    assert frames is not None
    return frames


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
