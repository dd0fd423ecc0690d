"""The chain of work that bounds the median step, found by going back in time from the end of the step.

A piece of device work waits for the work of its device that ended last before it began, or for the call that launched
it, if that call ended later. A host thread works without a break, or waits for the device: from the end of a wait the
chain goes on with the device work that ended last in it. What the profile does not show is a piece of its own, so the
pieces add up to the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host, Tabular
from tfperf.base.arrays import EMPTY, MOST, Int64s, Intervals, difference, distinct, is_any, union
from tfperf.trace.device.device_work import device_label
from tfperf.trace.device.kernels import short_name
from tfperf.trace.event_names import without_frame_mark
from tfperf.trace.host.api_calls import api_calls, api_label
from tfperf.trace.host.host_state import State
from tfperf.trace.nesting import nest, own_parts
from tfperf.trace.steps.breakdown import lacks_devices
from tfperf.trace.steps.steps import chosen_step

Kind = Literal["device", "host", "unknown"]
RETURNS_WITHIN_PS, RETURNS_WITHIN = 100_000_000, 0.05
"""A thread without an event waited for others if it goes on this soon after they ended, or in this part of the time."""
NO_EVENT, LAUNCH_DELAY, BETWEEN_WORK = "(no event)", "(from launch to start)", "(between device work)"
HAND_OVER, OTHERS = "(until another thread goes on)", "(others)"
_MOST_ROWS = 500
"""Rows of each table; the last ones add up the others."""
_AT_ONCE_PS = 1_000_000
_MOST_TURNS = 100_000


class PathPart(Struct, frozen=True, kw_only=True):
    """Time of the chain in one op of a stream or one event of a thread, in picoseconds."""

    kind: Kind
    place: str
    """Stream with its device, or thread."""
    name: str
    pieces: int
    total_ps: int


class PathStretch(Struct, frozen=True, kw_only=True):
    """A part of the chain in one place, from `start_ps` after the start of the step; `name` has most of its time."""

    place: str
    name: str
    pieces: int
    start_ps: int
    total_ps: int


class CriticalPath(Tabular, frozen=True, kw_only=True):
    """The chain of the median step of one host; empty with the reason if there is none."""

    home = ("critical_path", "critical_path")

    host: str = ""
    step: int = 0
    step_ps: int = 0
    parts: tuple[PathPart, ...] = ()
    """Largest first; they add up to the step."""
    stretches: tuple[PathStretch, ...] = ()
    """In time order; they add up to the step."""
    why_none: str = ""


def analyze(host: Host) -> CriticalPath:
    """Find the chain of the median step of a host with GPUs."""
    steps = host["steps"].steps
    row = chosen_step(steps, "median")
    if host.trace.device_kind != "gpu" or not len(host.device_work.rows):
        return CriticalPath(why_none="the profile has no work of a GPU")
    if lacks_devices(host["steps"]):
        return CriticalPath(why_none="events of devices are missing")
    if host.as_tensorflow or row is None:
        return CriticalPath(why_none=steps.explanation if row is None else "its steps have another time axis")
    walk = _Walk(host, int(steps.start_ps[row]), int(steps.end_ps[row]))
    walk.go_back()
    parts, stretches = walk.summed()
    path = CriticalPath(
        host=host.trace.host,
        step=int(steps.numbers[row]),
        step_ps=int(steps.duration_ps[row]),
        parts=parts,
        stretches=stretches,
    )
    return shorten(path, _MOST_ROWS)


def shorten(path: CriticalPath, most: int) -> CriticalPath:
    """Return the largest `most` parts, the first `most` stretches, and rows that add up the others."""
    if max(len(path.parts), len(path.stretches)) <= most:
        return path
    parts, stretches = path.parts[:most], path.stretches[:most]
    for kind in get_args(Kind):
        others = [part for part in path.parts[most:] if part.kind == kind]
        if others:
            pieces, total_ps = sum(part.pieces for part in others), sum(part.total_ps for part in others)
            parts = (*parts, PathPart(kind=kind, place="", name=OTHERS, pieces=pieces, total_ps=total_ps))
    later = path.stretches[most:]
    if later:
        pieces, total_ps = sum(each.pieces for each in later), sum(each.total_ps for each in later)
        start_ps = later[0].start_ps
        stretches = (
            *stretches,
            PathStretch(place="", name=OTHERS, pieces=pieces, start_ps=start_ps, total_ps=total_ps),
        )
    return replace(path, parts=parts, stretches=stretches)


def combine(paths: Sequence[CriticalPath]) -> CriticalPath:
    """Return the chain of the host whose median step is the longest."""
    return max(paths, key=lambda path: path.step_ps, default=CriticalPath(why_none="no host has a GPU"))


class _Thread(NamedTuple):
    """A host thread in the step: parts of events without the events inside, and the times in which it may wait."""

    row: Int64s
    start: Int64s
    end: Int64s
    waits: Intervals
    """Times in which it may wait for others."""
    kind: list[int]
    """`_RECORDED` wait, time with `_NO_EVENT`, or time in a `_CALL` outside of the events in it."""


class _Pieces(NamedTuple):
    """Pieces of the chain in one place, with a name each."""

    start: Int64s
    end: Int64s
    names: list[str]
    place: str
    kind: Kind


_RECORDED, _NO_EVENT, _CALL = range(3)
_LEAST_CALL_PS = 20_000_000
_WORKS = (State.LAUNCH, State.COMPUTE, State.EXECUTOR)


class _Walk:
    """The way back from the end of a step; its pieces are kept from the last to the first."""

    def __init__(self, host: Host, start_ps: int, end_ps: int) -> None:
        self.host, self.start_ps, self.end_ps = host, start_ps, end_ps
        self.pieces: list[_Pieces] = []
        trace, work = host.trace, host.device_work
        start, end = trace.start_ps[work.rows], trace.end_ps[work.rows]
        near = np.flatnonzero((start < end_ps) & (end > start_ps) & (end <= end_ps))
        self.work = near[np.argsort(end[near], kind="stable")]
        self.begins, self.ends = start[self.work], end[self.work]
        calls = host.launch_links.of(work.rows[self.work])
        self.calls = calls.tolist()
        launching = trace.line_of[calls[calls >= 0]]
        # Without a known main thread, the one that launches most work of the step stands for it.
        self.main = host.host_states.main
        if self.main is None and len(launching):
            self.main = int(np.bincount(launching).argmax())
        self.called = np.where(calls >= 0, np.minimum(trace.end_ps[calls], self.begins), -1)
        # The work that each waited for: of its device, the work that ended last before it began, or on its stream the
        # one before it, even if both overlap.
        self.before = np.full(len(self.work), -1, np.int64)
        for plane in distinct(work.plane[self.work]).tolist():
            mine = np.flatnonzero(work.plane[self.work] == plane)
            place = np.searchsorted(self.ends[mine], self.begins[mine], side="right") - 1
            self.before[mine] = np.where(place >= 0, mine[place], -1)
        by_stream = np.lexsort((self.begins, work.line[self.work]))
        follows = np.diff(work.line[self.work[by_stream]]) == 0
        one, next_one = by_stream[:-1][follows], by_stream[1:][follows]
        is_last = self.ends[one] >= np.append(self.ends, -1)[self.before[next_one]]
        self.before[next_one[is_last]] = one[is_last]
        self.done = np.minimum(np.append(self.ends, -1)[self.before], self.begins)
        self.threads: dict[int, _Thread] = {}
        self.api_rows = api_calls(trace).rows

    def go_back(self) -> None:
        """Go from the end of the step to its start."""
        trace, time = self.host.trace, self.end_ps
        thread, at = self.main, -1
        if len(self.work) and (thread is None or time - int(self.ends[-1]) <= _AT_ONCE_PS):
            thread, at = None, len(self.work) - 1
            self.add(int(self.ends[-1]), time, self.place_of(at), NO_EVENT, "unknown")
            time = int(self.ends[-1])
        for _ in range(_MOST_TURNS):
            if time <= self.start_ps or (thread is None and at < 0):
                break
            if thread is None:
                time, at, call = self.on_device(at)
                if call >= 0:
                    thread = int(trace.line_of[call])
            else:
                time, thread, at = self.on_thread(thread, time)
        self.add(self.start_ps, time, "", NO_EVENT, "unknown")

    def add(self, start_ps: int, end_ps: int, place: str, name: str, kind: Kind) -> None:
        """Keep one piece, if it has any time in the step."""
        start_ps = max(start_ps, self.start_ps)
        if end_ps > start_ps:
            self.pieces.append(_Pieces(np.array([start_ps]), np.array([end_ps]), [name], place, kind))

    def place_of(self, at: int) -> str:
        """Return the device and stream of a piece of work."""
        trace, work = self.host.trace, self.host.device_work
        row = self.work[at]
        return f"{device_label(trace.planes[int(work.plane[row])].name)} {trace.lines[int(work.line[row])].name}"

    def on_device(self, at: int) -> tuple[int, int, int]:
        """Follow work back to where the device waited for a launch; return the time, -1 and the call, or no call."""
        work, names = self.host.device_work, self.host.trace.names
        until = int(self.ends[at])
        while True:
            row = int(self.work[at])
            op = work.ops[int(work.op[row])] if work.op[row] >= 0 else None
            name = "" if op is None else op.hlo_op or op.name
            kernel = names[self.host.trace.name[work.rows[row]]]
            place, begun = self.place_of(at), int(self.begins[at])
            self.add(begun, until, place, name or short_name(kernel), "device")
            before, called, done = int(self.before[at]), int(self.called[at]), int(self.done[at])
            if begun <= self.start_ps:
                return self.start_ps, -1, -1
            if called > done:
                self.add(called, begun, place, LAUNCH_DELAY, "unknown")
                return called, -1, self.calls[at]
            if before < 0:
                return begun, -1, -1
            self.add(done, begun, place, BETWEEN_WORK, "unknown")
            at, until = before, done

    def on_thread(self, line: int, time: int) -> tuple[int, int | None, int]:
        """Follow a thread back to where it waited; return the time, and the thread or the work that it waited for."""
        thread, place = self.thread(line), self.host.trace.lines[line].name
        last = int(np.searchsorted(thread.waits.start, time)) - 1
        for wait in range(last, -1, -1):
            begun, until, kind = int(thread.waits.start[wait]), int(thread.waits.end[wait]), thread.kind[wait]
            until = min(until, time)
            at = int(np.searchsorted(self.ends, until, side="right")) - 1
            done = int(self.ends[at]) if at >= 0 else -1
            soon = until - max(RETURNS_WITHIN_PS, int(RETURNS_WITHIN * (until - begun)))
            other, ended = self.other_thread(line, max(begun, done), until) if kind != _RECORDED else (None, -1)
            if other is not None and (ended >= soon or line != self.main):
                self.add_thread(thread, place, until, time)
                self.add(ended, until, place, HAND_OVER, "unknown")
                return ended, other, -1
            if done > begun and (kind == _RECORDED or done >= soon):
                self.add_thread(thread, place, done, time)
                return done, None, at
            if kind == _NO_EVENT and line != self.main and until < time and self.main is not None:
                self.add_thread(thread, place, until, time)  # the main thread made it begin
                return until, self.main, -1
        self.add_thread(thread, place, self.start_ps, time)
        return self.start_ps, None, -1

    def add_thread(self, thread: _Thread, place: str, start_ps: int, end_ps: int) -> None:
        """Keep the parts of events of a thread in this time, and the rest as time without an event."""
        first, last = np.searchsorted(thread.end, start_ps, side="right"), np.searchsorted(thread.start, end_ps)
        start, end = np.maximum(thread.start[first:last], start_ps), np.minimum(thread.end[first:last], end_ps)
        texts, is_call = self.host.trace.names, is_any(thread.row[first:last], self.api_rows).tolist()
        names = self.host.trace.name[thread.row[first:last]].tolist()
        names = [
            api_label(texts[name]) if call else without_frame_mark(texts[name])
            for name, call in zip(names, is_call, strict=True)
        ]
        rest = difference(Intervals(np.array([start_ps]), np.array([end_ps])), union(start, end))
        self.pieces.append(_Pieces(start, end, names, place, "host"))
        self.pieces.append(_Pieces(rest.start, rest.end, [NO_EVENT] * len(rest.start), place, "unknown"))

    def other_thread(self, line: int, begun_ps: int, until_ps: int) -> tuple[int | None, int]:
        """Return the thread that works for the program and whose event ended last in a time, and that end."""
        found: tuple[int | None, int] = (None, begun_ps)
        for index, times in self.host.host_states.lines.items():
            if index == line or (index != self.main and not any(state in times for state in _WORKS)):
                continue
            ends = self.thread(index).end
            place = int(np.searchsorted(ends, until_ps, side="right")) - 1
            if place >= 0 and int(ends[place]) > found[1]:
                found = index, int(ends[place])
        return found

    def thread(self, line: int) -> _Thread:
        """Return the events of a thread in the step."""
        if line not in self.threads:
            trace, states, of = self.host.trace, self.host.host_states, self.host.trace.lines[line]
            rows = np.arange(of.start, of.stop)
            start, end = trace.start_ps[rows], trace.end_ps[rows]
            inside = (start < self.end_ps) & (end > self.start_ps) & (end > start)
            inside &= ~is_any(rows, trace.stat("step_num").event) & (states.code[rows] != State.NONE)
            rows, start, end = rows[inside], start[inside], end[inside]
            start, end = np.maximum(start, self.start_ps), np.minimum(end, self.end_ps)
            place, part_start, part_end = own_parts(start, end, nest(start, end).parent, np.ones(len(rows), np.bool_))
            order = np.argsort(part_start, kind="stable")
            place, part_start, part_end = place[order], part_start[order], part_end[order]
            # If events cross, the earlier one counts until its end.
            part_start = np.maximum(part_start, np.append(self.start_ps, np.maximum.accumulate(part_end)[:-1]))
            lasts = part_end > part_start
            place, part_start, part_end = place[lasts], part_start[lasts], part_end[lasts]
            whole = Intervals(np.array([self.start_ps]), np.array([self.end_ps]))
            gaps = difference(whole, union(start, end)) if len(rows) else whole
            recorded = states.lines.get(line, {}).get(State.SYNC, EMPTY)
            first, last = (
                np.searchsorted(recorded.end, self.start_ps, side="right"),
                np.searchsorted(recorded.start, self.end_ps),
            )
            calls = (states.code[rows[place]] == State.CALL) & (part_end - part_start >= _LEAST_CALL_PS)
            waits = (
                Intervals(recorded.start[first:last], recorded.end[first:last]),
                gaps,
                Intervals(part_start[calls], part_end[calls]),
            )
            begin, until = (np.concatenate([getattr(each, name) for each in waits]) for name in ("start", "end"))
            kind = np.repeat(np.arange(len(waits)), [len(each.start) for each in waits])
            by_time = np.argsort(begin, kind="stable")
            self.threads[line] = _Thread(
                rows[place], part_start, part_end, Intervals(begin[by_time], until[by_time]), kind[by_time].tolist()
            )
        return self.threads[line]

    def summed(self) -> tuple[tuple[PathPart, ...], tuple[PathStretch, ...]]:
        """Return the pieces by name, largest first, and by place, in time order."""
        sums: dict[tuple[Kind, str, str], _Sum] = {}
        stretches = []
        for place, pieces in groupby(reversed(self.pieces), key=lambda piece: piece.place):
            of_names, start_ps, count = Counter[str](), MOST, 0
            for piece in pieces:
                for name, ps in zip(piece.names, (piece.end - piece.start).tolist(), strict=True):
                    before = sums.get((piece.kind, place, name), _Sum(0, 0))
                    sums[piece.kind, place, name] = _Sum(before.pieces + 1, before.ps + ps)
                    of_names[name] += ps
                start_ps, count = min([start_ps, *piece.start.tolist()]), count + len(piece.names)
            if of_names:
                stretches.append(
                    PathStretch(
                        place=place,
                        name=of_names.most_common(1)[0][0],
                        pieces=count,
                        start_ps=start_ps - self.start_ps,
                        total_ps=of_names.total(),
                    )
                )
        rows = sorted(sums.items(), key=lambda item: (-item[1].ps, item[0]))
        parts = (
            PathPart(kind=kind, place=place, name=name, pieces=found.pieces, total_ps=found.ps)
            for (kind, place, name), found in rows
        )
        return tuple(parts), tuple(stretches)


class _Sum(NamedTuple):
    pieces: int
    ps: int
