"""What each host did in a step: when it began and ended, and how long it waited for tensors of others."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.tfprof.run_metadata import Records

_HOST = re.compile(r"/job:[^/]*/replica:\d+/task:\d+")
_RECEIVED = b"RecvTensor"


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
