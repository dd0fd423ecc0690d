"""What `tfperf check` passes on less than the truth: profiles from which something is lost, copied, mixed or shifted.

    PYTHONPATH=tests python tests/hostile/soundness.py

Each mutant is made anew from a sample, a synthetic job or, where they lie beside the project, a shared trace. A limit
that the whole profile breaches by far (`MARGIN`) must not pass for the mutant: that is a silent better figure. The
table counts them by kind. Work that is late has no effect before its cause: `late clock` is not found yet.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from builders import logdir_of
from real_runs import ROOT, SHARED
from synthetic_gpu import synthetic_gpu
from synthetic_tpu import offload_tpu

from tfperf.errors import TfperfError
from tfperf.gate.check import check_profile
from tfperf.gate.outcome import Judged
from tfperf.wire import schema

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


class Mutant(NamedTuple):
    """A damaged run: the kind of damage, which of its kind it is, and its files."""

    kind: str
    name: str
    files: Job


class Silent(NamedTuple):
    """A limit that passes for a mutant and not for the whole profile."""

    kind: str
    job: str
    mutant: str
    limit: str
    measured: float | None


def jobs() -> Iterator[tuple[str, Job]]:
    """Yield runs by name: samples, synthetic jobs, and shared traces if they are there."""
    yield "synthetic GPU", {"host": synthetic_gpu()}
    yield "synthetic TPU", {"host": offload_tpu()}
    gpus = ("keras_rtx5000/gpu_bs256-20210202-131618", "keras_rtx5000/gpu_bs8-20210202-122657", "jax_mi300x")
    names = (*gpus, "reported/te_attention_mi350", "tpu_v6e", "multi_host")
    roots = [ROOT / "sample_traces", *(SHARED / name for name in names)]
    for root in roots:
        for folder in sorted({path.parent for path in root.rglob("*.xplane.pb")}):
            files = sorted(folder.glob("*.xplane.pb"))
            name = folder.relative_to(root.parent).as_posix()
            yield name, {path.name.removesuffix(".xplane.pb"): path.read_bytes() for path in files}


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


def of_one_host(job: Job) -> Iterator[Mutant]:
    """Yield mutants of a run of one host."""
    if len(job) == 1:
        ((host, data),) = job.items()
        for name, changed in lost_planes(data):
            yield Mutant("lost planes", name, {host: changed})
        for name, changed in wrong_clocks(data):
            yield Mutant("late clock" if name.startswith("late") else "early clock", name, {host: changed})


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


def silent_passes(name: str, job: Job, others: Sequence[Job], folder: Path, tried: Counter[str]) -> Iterator[Silent]:
    """Yield the limits that mutants of a run pass and the run itself breaches; `tried` counts mutants by kind."""
    limits = limited(logdir_of(folder / "whole", **job), len(job))
    if not limits:
        return
    for number, mutant in enumerate((*of_one_host(job), *of_several_hosts(job, others))):
        tried[mutant.kind] += 1
        for judged in judged_of(logdir_of(folder / str(number), **mutant.files), limits):
            if judged.status == "pass":
                yield Silent(mutant.kind, name, mutant.name, judged.limit.text, judged.measured)


def main() -> int:
    """Print what passes, and how many mutants of each kind were tried; return 1 if anything passes."""
    tried: Counter[str] = Counter()
    found: list[Silent] = []
    known = list(jobs())
    several = [job for _, job in known if len(job) > 1]
    for name, job in known:
        with tempfile.TemporaryDirectory() as folder:
            others = [other for other in several if other is not job][:4]
            for silent in silent_passes(name, job, others, Path(folder), tried):
                found.append(silent)
                print(*silent, sep=" | ", flush=True)
    by_kind = Counter(silent.kind for silent in found)
    mutants_of = {(silent.job, silent.mutant) for silent in found}
    for kind, count in tried.items():
        print(f"{kind}: {count:,} mutants, {by_kind[kind]:,} silent better figures")
    print(f"{len(mutants_of):,} of {tried.total():,} mutants pass a limit that the whole profile breaches")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
