"""What the tests of the diagnosis share: steps of 100 us of which a cause costs a known part, and what is found."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from builders import Event, Plane, event, known, line, plane, ref, repeat, results_of, trace_of

from tfperf.sections.diagnosis.cause import Cause, Diagnosis, Range
from tfperf.sections.diagnosis.diagnose import sentence_of
from tfperf.trace.host_trace import HostTrace

FETCH, OP, CALL, LAUNCH = "IteratorGetNextOp::DoCompute", "MatMul:MatMul", "EagerExecute", "ExecutorState::Process"
EXCHANGE = "CollectiveReduceV2:CollectiveReduceV2"
COUNT = 5


def marks(kind: str = "train", count: int = COUNT, start: float = 0.0) -> list[Event]:
    return [event(kind, start + 100 * n, 100, step_num=n) for n in range(count)]


def in_each_step(*parts: tuple[str, float, float]) -> list[Event]:
    """Events of these names in each step of 100 us, from when to when."""
    return repeat(COUNT, *(event(name, start, end - start) for name, start, end in parts))


def steps(*parts: tuple[str, float], kind: str = "train", start: float = 0.0) -> list[Event]:
    """Steps of 100 us, each with events of these names and durations one after the other."""
    events = []
    for mark in marks(kind, start=start):
        begin = mark.start_us
        events.append(mark)
        for name, duration in parts:
            events.append(event(name, begin, duration))
            begin += duration
    return events


def eagerly(*ops: str, size: float = 8.0) -> list[Event]:
    """Ops that Python runs one by one in each step, at 10 us from each other."""
    return repeat(COUNT, *(event(CALL, 10 * n, size, is_func=0, eager_op=ref(op)) for n, op in enumerate(ops)))


def gpu(*parts: tuple[str, float, float]) -> Plane:
    """A GPU with events of these names at these times of each step, for so long."""
    streams: dict[str, list[Event]] = {"Stream #1(Compute)": [], "Stream #2(MemcpyH2D)": []}
    for name, begin, duration in parts:
        stream = "Stream #2(MemcpyH2D)" if name.startswith("Memcpy") else "Stream #1(Compute)"
        streams[stream] += in_each_step((name, begin, begin + duration))
    lines = (line(name, *events, id=number) for number, (name, events) in enumerate(streams.items()))
    return plane("/device:GPU:0", *lines, stats={"compute_cap_major": 7, "compute_cap_minor": 5})


def found_in(trace: HostTrace) -> Diagnosis:
    found: Diagnosis = results_of(trace)["diagnosis"]
    return found


def diagnosis(tmp_path: Path, *planes: Plane) -> Diagnosis:
    return found_in(trace_of(tmp_path, *planes))


def causes_in(trace: HostTrace) -> dict[str, Cause]:
    return {cause.code: cause for cause in found_in(trace).causes}


def causes_of(tmp_path: Path, *planes: Plane) -> dict[str, Cause]:
    return causes_in(trace_of(tmp_path, *planes))


def cause_of(found: Diagnosis, code: str) -> Cause:
    return next(cause for cause in found.causes if cause.code == code)


def codes_of(causes: Iterable[Cause]) -> list[str]:
    return [cause.code for cause in causes]


def actions_of(cause: Cause) -> list[str]:
    return [action.code for action in cause.actions]


def bounds(found: Range | None) -> tuple[float, float]:
    """The least and the most of a range that is known."""
    return known(found).low, known(found).high


def most(cause: Cause) -> float:
    """What a cause costs of the step at most, in percent."""
    return bounds(cause.cost_percent)[1]


class Case(NamedTuple):
    """Planes, and the first cause that must be found in them."""

    planes: tuple[Plane, ...]
    code: str
    cost: Any
    """In percent of the step; ANY: another test says it."""
    actions: str
    """Codes of all that is advised."""
    text: str = ""
    """A part of the sentence."""

    def check(self, found: Diagnosis) -> None:
        first = found.causes[0]
        assert (first.code, " ".join(actions_of(first))) == (self.code, self.actions)
        assert first.cost_percent == (Range(self.cost, self.cost) if isinstance(self.cost, int) else self.cost)
        assert self.text in sentence_of(first)
