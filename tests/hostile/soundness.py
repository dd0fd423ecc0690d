"""What `tfperf check` passes on less than the truth: profiles from which something is lost, copied, mixed or shifted.

    PYTHONPATH=tests python tests/hostile/soundness.py

Each mutant is made anew from a sample, a synthetic job or, where they lie beside the project, a shared trace. A limit
that the whole profile breaches by far (`MARGIN`) must not pass for the mutant: that is a silent better figure. The
table counts them by kind, and apart from them those that nothing in a profile can tell (`why_untold`).
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from typing import Any, NamedTuple

from builders import logdir_of
from places import ROOT, TRACES
from synthetic_gpu import synthetic_gpu
from synthetic_tpu import offload_tpu

from tfperf.base.errors import TfperfError
from tfperf.formats.wire import schema
from tfperf.judge.check import check_profile
from tfperf.judge.outcome import Judged
from tfperf.trace.event_names import runs_function
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host
from tfperf.trace.steps.find_steps import find_steps

Job = Mapping[str, bytes]
"""The files of a run, by host."""

MARGIN = 0.7
"""A limit is this part of what the whole profile measures: what changes less changes no verdict."""
LEAST = 2.0
"""Smaller figures, in % or ms, are not limited."""
UPPER = {"input_bound": "%", "kernel_launch": "%", "all_others": "%", "step_time": "ms"}
OVER_HOSTS = {"straggler_loss": "%", "skew": "%"}
SHIFTS_MS = (-100.0, -5.0, -0.5, 0.5, 5.0, 100.0)
SCALES = (0.5, 0.7, 0.9, 1.1, 1.3, 2.0)
SPANS = ((0.2, 0.3), (0.45, 0.55), (0.65, 0.75), (0.15, 0.45), (0.5, 0.8), (0.25, 0.75))
"""Stretches of a capture that are lost: from and to, as parts of it."""
MOST_THREADS = 12
FEWEST_STEPS = 6


class Mutant(NamedTuple):
    """A damaged run: the kind of damage, which of its kind it is, and its files."""

    kind: str
    name: str
    files: Job


class Silent(NamedTuple):
    """A limit that passes for a mutant and not for the whole profile; `untold` says why no rule can tell the two."""

    kind: str
    job: str
    mutant: str
    limit: str
    measured: float | None
    untold: str


def jobs() -> Iterator[tuple[str, Job]]:
    """Yield runs by name: samples, synthetic jobs, and shared traces if they are there."""
    yield "synthetic GPU", {"host": synthetic_gpu()}
    yield "synthetic TPU", {"host": offload_tpu()}
    names = (
        "keras_rtx5000/gpu_bs256-20210202-131618",
        "keras_rtx5000/gpu_bs8-20210202-122657",
        "jax_mi300x",
        "reported/te_attention_mi350",
        "tpu_v6e",
        "multi_host",
        "steps_tf221",
        "cpu_keras3",
        "keras_cpu_tf24",
    )
    roots = [ROOT / "sample_traces", *(TRACES / name for name in names)]
    for root in roots:
        for folder in sorted({path.parent for path in root.rglob("*.xplane.pb")}):
            files = sorted(folder.glob("*.xplane.pb"))
            name = folder.relative_to(root.parent).as_posix()
            job = {path.name.removesuffix(".xplane.pb"): path.read_bytes() for path in files}
            yield name, job
            if len(job) > 1:
                yield f"{name}, first host", dict([next(iter(job.items()))])


# --- one host: planes and clocks ---


def _parsed(data: bytes) -> Any:
    space = schema.message_class("XSpace")()
    space.ParseFromString(data)
    return space


def _is_device(plane: Any) -> bool:
    return plane.name.startswith((b"/device:GPU", b"/device:TPU")) and any(line.events for line in plane.lines)


def _only(data: bytes, places: Sequence[int]) -> bytes:
    space = _parsed(data)
    other = schema.message_class("XSpace")(hostnames=space.hostnames)
    for place in places:
        other.planes.add().CopyFrom(space.planes[place])
    kept: bytes = other.SerializeToString()
    return kept


def lost_planes(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a host without each of its devices, without all, and cut at each border of planes."""
    planes = list(_parsed(data).planes)
    devices = [place for place, plane in enumerate(planes) if _is_device(plane)]
    for device in devices:
        kept = [place for place in range(len(planes)) if place != device]
        yield f"without {planes[device].name.decode()}", _only(data, kept)
    if devices:
        yield "without devices", _only(data, [place for place in range(len(planes)) if place not in devices])
        for border in range(1, len(planes)):
            yield f"first {border} planes", _only(data, range(border))


def _moved(data: bytes, *, scale: float = 1.0, shift_ps: int = 0) -> bytes:
    """Move the events of devices, which start at their line or later."""
    space = _parsed(data)
    for plane in filter(_is_device, space.planes):
        for line in plane.lines:
            for event in line.events:
                event.offset_ps = max(round(event.offset_ps * scale) + shift_ps, 0)
    moved: bytes = space.SerializeToString()
    return moved


def wrong_clocks(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a host whose GPUs are early or late, or whose clock is slow or fast. TPUs have clocks of their own."""
    if not any(_is_device(plane) and b"GPU" in plane.name for plane in _parsed(data).planes):
        return
    for shift in SHIFTS_MS:
        yield f"{'late' if shift > 0 else 'early'} by {abs(shift)} ms", _moved(data, shift_ps=round(shift * 1e9))
    for scale in SCALES:
        yield f"{'late' if scale > 1 else 'early'}, scaled by {scale}", _moved(data, scale=scale)


# --- one host: events ---

Span = tuple[int, int]
"""From and to, in picoseconds."""


class At(NamedTuple):
    """Where an event is: on which plane and line (their places in the file), its name, and its time."""

    line: tuple[int, int]
    is_of_host: bool
    name: bytes
    start_ps: int
    end_ps: int


def _places(number: int, plane: Any) -> Iterator[tuple[Any, list[At]]]:
    """Yield each line of a plane, and where its events are."""
    names = {entry.key: entry.value.name for entry in plane.event_metadata}
    is_of_host = plane.name.startswith(b"/host:CPU")
    for place, line in enumerate(plane.lines):
        found = []
        for event in line.events:
            start_ps, name = line.timestamp_ns * 1000 + event.offset_ps, names.get(event.metadata_id, b"")
            found.append(At((number, place), is_of_host, name, start_ps, start_ps + event.duration_ps))
        yield line, found


def _events(data: bytes) -> list[At]:
    planes = enumerate(_parsed(data).planes)
    return [at for number, plane in planes for _, places in _places(number, plane) for at in places]


def _changed(data: bytes, copies: Callable[[At], int]) -> bytes:
    """Return a host with as many copies of each event as wanted, without the names that no event has any more.

    A profiler that loses an event does not write its name.
    """
    space = _parsed(data)
    for number, plane in enumerate(space.planes):
        lost = 0
        for line, places in _places(number, plane):
            kept = [event for event, at in zip(line.events, places, strict=True) for _ in range(copies(at))]
            lost += len(places) - len(kept)
            other = type(line)()
            other.events.extend(kept)
            del line.events[:]
            line.MergeFrom(other)
        if lost > 0:
            _forget_names(plane)
    changed: bytes = space.SerializeToString()
    return changed


def _forget_names(plane: Any) -> None:
    events = [event for line in plane.lines for event in line.events]
    stats = [stat for event in events for stat in event.stats]
    stats += [stat for entry in plane.event_metadata for stat in entry.value.stats] + list(plane.stats)
    used = {event.metadata_id for event in events}
    used_stats = {stat.metadata_id for stat in stats} | {stat.ref_value for stat in stats}
    other = type(plane)()
    other.CopyFrom(plane)
    for table, kept in ((other.event_metadata, used), (other.stat_metadata, used_stats)):
        for place in reversed(range(len(table))):
            if table[place].key not in kept:
                del table[place]
    plane.CopyFrom(other)


def _without(data: bytes, is_lost: Callable[[At], bool]) -> bytes:
    return _changed(data, lambda at: not is_lost(at))


def lost_spans(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a host without what begins in a stretch of time, and without all of it, on all threads and devices."""
    events = _events(data)
    first, last = min(at.start_ps for at in events), max(at.end_ps for at in events)

    def within(begin_ps: int, stop_ps: int) -> tuple[bytes, bytes]:
        begun = _without(data, lambda at: begin_ps <= at.start_ps < stop_ps)
        return begun, _without(data, lambda at: at.start_ps < stop_ps and at.end_ps > begin_ps)

    for span in SPANS:
        text = "{:.0%} to {:.0%}".format(*span)
        begun, touched = within(*(first + round((last - first) * part) for part in span))
        yield from ((f"what begins in {text}", begun), (f"all in {text}", touched))


def lost_threads(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a host without each of its threads, those with the most events."""
    sizes = Counter(at.line for at in _events(data) if at.is_of_host)
    for line, _ in sizes.most_common(MOST_THREADS if len(sizes) > 1 else 0):
        yield f"without thread {line[1]}", _without(data, partial(_is_on, line))


def _is_on(line: tuple[int, int], at: At) -> bool:
    return at.line == line


def _is_of_tfdata(at: At) -> bool:
    return re.match(rb"Iterator|InstantiatedCapturedFunction|\w+(?:Produce|Consume)$", at.name) is not None


def lost_tfdata(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a host without half of what tf.data does: every other event, and all before and after a moment."""
    starts_ps = sorted(at.start_ps for at in _events(data) if _is_of_tfdata(at))
    odd = cycle((True, False))
    if starts_ps:
        middle_ps = starts_ps[len(starts_ps) // 2]
        yield "without every other event", _without(data, lambda at: _is_of_tfdata(at) and next(odd))
        yield "without the first half", _without(data, lambda at: _is_of_tfdata(at) and at.start_ps < middle_ps)
        yield "without the second half", _without(data, lambda at: _is_of_tfdata(at) and at.start_ps >= middle_ps)


def changed_steps(data: bytes, steps: Sequence[Span]) -> Iterator[tuple[str, str, bytes]]:
    """Yield a host without what begins in some of its steps, on all threads, and with that twice."""
    middle = len(steps) // 2
    some = {"every third": steps[1:-1:3], "three in a row": steps[middle - 1 : middle + 2], "one": [steps[middle]]}
    for which, chosen in some.items():
        yield "dropped steps", which, _without(data, partial(_begins_in, chosen))
        yield "doubled steps", which, _changed(data, partial(_twice_in, chosen))


def _begins_in(spans: Sequence[Span], at: At) -> bool:
    return any(begin_ps <= at.start_ps < stop_ps for begin_ps, stop_ps in spans)


def _twice_in(spans: Sequence[Span], at: At) -> int:
    return 1 + _begins_in(spans, at)


def of_one_host(job: Job, steps: Sequence[Span]) -> Iterator[Mutant]:
    """Yield mutants of a run of one host; `steps` begin and end on the clock of its file."""
    if len(job) != 1:
        return
    ((host, data),) = job.items()
    for kind, mutants in (("lost planes", lost_planes), ("lost spans", lost_spans), ("lost threads", lost_threads)):
        for name, changed in mutants(data):
            yield Mutant(kind, name, {host: changed})
    for name, changed in wrong_clocks(data):
        yield Mutant("late clock" if name.startswith("late") else "early clock", name, {host: changed})
    for name, changed in lost_tfdata(data):
        yield Mutant("lost tf.data", name, {host: changed})
    for kind, name, changed in changed_steps(data, steps) if len(steps) >= FEWEST_STEPS else ():
        yield Mutant(kind, name, {host: changed})


# --- several hosts ---


def of_several_hosts(job: Job, others: Sequence[Job]) -> Iterator[Mutant]:
    """Yield runs in which a host is a copy of another, or is of another run."""
    hosts = list(job)
    if len(hosts) < 2:
        return
    for host in hosts:
        for other in hosts:
            if other != host:
                yield Mutant("copied host", f"{host} is {other}", {**job, host: job[other]})
    for place, run in enumerate(others):
        for mixed, data in zip(hosts, run.values(), strict=False):
            yield Mutant("mixed hosts", f"{mixed} of run {place}", {**job, mixed: data})


def limited(path: Path, count: int) -> list[str]:
    """Return limits that a profile breaches by far."""
    figures = UPPER if count == 1 else {**UPPER, **OVER_HOSTS}
    bounds = [f"{name} <= {'0.001ms' if unit == 'ms' else '0%'}" for name, unit in figures.items()]
    judged = check_profile(path, limits=bounds, min_steps=1).judged
    limits = []
    for (name, unit), each in zip(figures.items(), judged, strict=True):
        if each.measured is not None and each.measured >= LEAST:
            limits.append(f"{name} <= {MARGIN * each.measured:.6f}{unit}")
    return limits


def judged_of(path: Path, limits: Sequence[str]) -> tuple[Judged, ...]:
    """Return how a mutant is judged; nothing if it is refused."""
    try:
        return check_profile(path, limits=limits, min_steps=1).judged
    except TfperfError:
        return ()


def steps_of(trace: HostTrace) -> list[Span]:
    """Return when the steps of a host begin and end, on the clock of its file; chips have clocks of their own."""
    if trace.device_kind == "tpu":
        return []
    steps, zero_ps = find_steps(trace), trace.clock_zero_ns * 1000
    return list(zip((steps.start_ps + zero_ps).tolist(), (steps.end_ps + zero_ps).tolist(), strict=True))


def why_untold(kind: str, trace: HostTrace, rest: HostTrace) -> str:
    """Say why no rule can tell such a loss from a whole profile like this one; empty if one can.

    `rest` is what is left of it. docs/reports.md lists what cannot be told, as a program without that thread.
    """
    if kind in ("lost threads", "lost tf.data") and not trace.oddities.tasks:
        return "tasks have no numbers"
    if kind == "lost threads" and any(map(runs_function, trace.names)) and not any(map(runs_function, rest.names)):
        return "no other thread calls a function, as on a host that another one calls"
    return ""


def silent_passes(name: str, job: Job, others: Sequence[Job], folder: Path, tried: Counter[str]) -> Iterator[Silent]:
    """Yield the limits that mutants of a run pass and the run itself breaches; `tried` counts mutants by kind."""
    whole = logdir_of(folder / "whole", **job)
    limits = limited(whole, len(job))
    if not limits:
        return
    trace = read_host(next(whole.rglob("*.xplane.pb")))
    for mutant in chain(of_one_host(job, steps_of(trace)), of_several_hosts(job, others)):
        tried[mutant.kind] += 1
        path = logdir_of(folder / "mutant", **mutant.files)
        for judged in judged_of(path, limits):
            if judged.status == "pass":
                untold = why_untold(mutant.kind, trace, read_host(next(path.rglob("*.xplane.pb"))))
                yield Silent(mutant.kind, name, mutant.name, judged.limit.text, judged.measured, untold)


def main(*wanted: str) -> int:
    """Print what passes, and how many mutants of each kind were tried; return 1 if any passes that a rule could tell.

    `wanted` are parts of the names of the runs to try; without any, all are tried.
    """
    tried: Counter[str] = Counter()
    found: list[Silent] = []
    known = [(name, job) for name, job in jobs() if not wanted or any(part in name for part in wanted)]
    several = [job for _, job in known if len(job) > 1]
    for name, job in known:
        with tempfile.TemporaryDirectory() as folder:
            others = [other for other in several if other is not job][:4]
            for silent in silent_passes(name, job, others, Path(folder), tried):
                found.append(silent)
                print(*filter(None, silent), sep=" | ", flush=True)
    figures = Counter((each.kind, bool(each.untold)) for each in found)
    for kind, count in tried.items():
        told, untold = (f"{figures[kind, is_untold]:,}" for is_untold in (False, True))
        print(f"{kind}: {count:,} mutants, {told} silent better figures, {untold} that nothing can tell")
    mutants = {(silent.job, silent.mutant) for silent in found if not silent.untold}
    print(f"{len(mutants):,} of {tried.total():,} mutants pass a limit that the whole profile breaches")
    return int(bool(mutants))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
