"""What each host did in a step: when it began and ended, and how long it waited for tensors of others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import median
from tfperf.models.tfprof.run_metadata import Records

_HOST = re.compile(r"/job:[^/]*/replica:\d+/task:\d+")
_RECEIVED = b"RecvTensor"
_US_PER_MS = 1000.0


class HostStep(Struct, frozen=True, kw_only=True):
    """A step of a host, in microseconds; `start` and `end` are since 1970, by the clock of the host."""

    step: int
    host: str
    """`/job:worker/replica:0/task:1`, or the number of the file where the host has no such name."""
    start: int
    end: int
    received_micros: int
    """The summed time of its `RecvTensor` calls: tensors that it got from others."""
    received: int
    """How many of these calls there are."""


def host_steps(step: int, parts: Sequence[Records]) -> list[HostStep]:
    """Return what each host did in a step, from the files of the step; hosts without any time are left out."""
    return [each for number, records in enumerate(parts) for each in _of_file(step, number, records)]


def _of_file(step: int, number: int, records: Records) -> list[HostStep]:
    from pyarrow import compute

    index: dict[str, int] = {}
    names = [_host_of(device, number) for device in records.devices]
    # Streams have no host in their names: they are of the first that has.
    first = next((name for name in names if name), f"file {number + 1}")
    of_device = np.array([index.setdefault(name or first, len(index)) for name in names], np.int64)
    host = of_device[records.device]
    end = records.start_micros + records.duration_micros
    timed = records.start_micros > 0
    is_received = compute.equal(records.name, _RECEIVED).to_numpy(zero_copy_only=False) & timed
    count = len(index)
    start, last = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(start, host[timed], records.start_micros[timed])
    np.maximum.at(last, host[timed], end[timed])
    micros, calls = np.zeros(count, np.int64), np.bincount(host[is_received], minlength=count)
    np.add.at(micros, host[is_received], records.duration_micros[is_received])
    columns = (column.tolist() for column in (start, last, micros, calls))
    return [
        HostStep(step=step, host=name, start=begin, end=stop, received_micros=waited, received=called)
        for name, begin, stop, waited, called in zip(index, *columns, strict=True)
        if stop > 0
    ]


def _host_of(device: str, number: int) -> str:
    """Return the host that a device is of; that of a local session has no name of its own. Empty if unknown."""
    named = _HOST.match(device)
    if named is None:
        return ""
    return f"file {number + 1}" if named[0].startswith("/job:localhost/") else named[0]


class HostTimes(Struct, frozen=True, kw_only=True):
    """What a host did in a mean step; times in ms."""

    host: str
    step_ms: float
    received_ms: float
    """In `RecvTensor` calls, which may overlap."""
    received: float
    """Calls in a step."""
    late_ms: float
    """By how much it ends after the first host, over the steps of several hosts."""
    last_count: int
    """Steps in which it ends last."""
    steps: int


class EndsApart(Struct, frozen=True, kw_only=True):
    """How far apart hosts end a step; medians over the steps of several hosts, in ms."""

    apart_ms: float
    step_ms: float
    """The longest of the hosts."""
    last: str
    """The host that is last most often, and in how many of the steps."""
    last_count: int
    steps: int


def host_times(hosts: Sequence[HostStep]) -> list[HostTimes]:
    """Return the hosts by name, each over its steps."""
    of_step = _by_step(hosts)
    first = {step: min(host.end for host in each) for step, each in of_step.items()}
    last = Counter(_last(each) for each in of_step.values() if len(each) > 1)
    of_host: dict[str, list[HostStep]] = {}
    for host in hosts:
        of_host.setdefault(host.host, []).append(host)
    found = []
    for name, own in sorted(of_host.items()):
        shared = [host for host in own if len(of_step[host.step]) > 1]
        found.append(
            HostTimes(
                host=name,
                step_ms=_mean_ms([host.end - host.start for host in own]),
                received_ms=_mean_ms([host.received_micros for host in own]),
                received=sum(host.received for host in own) / len(own),
                late_ms=_mean_ms([host.end - first[host.step] for host in shared]),
                last_count=last[name],
                steps=len(own),
            )
        )
    return found


def ends_apart(hosts: Sequence[HostStep]) -> EndsApart | None:
    """Return how far apart hosts end; None where no step has records of several."""
    shared = [each for each in _by_step(hosts).values() if len(each) > 1]
    if not shared:
        return None
    apart = [max(host.end for host in each) - min(host.end for host in each) for each in shared]
    longest = [max(host.end - host.start for host in each) for each in shared]
    last, count = Counter(map(_last, shared)).most_common(1)[0]
    return EndsApart(
        apart_ms=median(np.array(apart)) / _US_PER_MS,
        step_ms=median(np.array(longest)) / _US_PER_MS,
        last=last,
        last_count=count,
        steps=len(shared),
    )


def _by_step(hosts: Sequence[HostStep]) -> dict[int, list[HostStep]]:
    of_step: dict[int, list[HostStep]] = {}
    for host in hosts:
        of_step.setdefault(host.step, []).append(host)
    return of_step


def _last(hosts: Sequence[HostStep]) -> str:
    return max(hosts, key=lambda host: (host.end, host.host)).host


def _mean_ms(micros: Sequence[int]) -> float:
    return sum(micros) / len(micros) / _US_PER_MS if micros else 0.0
