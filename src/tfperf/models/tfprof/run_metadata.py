"""RunMetadata: times and memory of the nodes of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s, median
from tfperf.formats.models.input_file import InputFile, Source
from tfperf.formats.models.messages import TENSORFLOW
from tfperf.formats.wire.decoder import Decoder, items, numbers, offsets, take, texts

_CANONICAL = re.compile(r".*/(?:device:)?(?:gpu|cpu|tpu):\d+")
_ALL_STREAMS = "stream:all"
_NO_NODES = ("", "RecvTensor", "_SOURCE")  # records that are not nodes of a graph


class Records(Struct, frozen=True, kw_only=True):
    """The records of a step, one row each, in the order of the file.

    `device` indexes `devices`, whose names are lower-case. Times are in microseconds or nanoseconds (0 if the file has
    none), memory is in bytes.
    """

    name: Any
    """Names of nodes; names of kernels end with `:Kernel` (Arrow, binary)."""
    device: Int64s
    devices: list[str]
    start_micros: Int64s
    duration_micros: Int64s  # at least 1, as in tfprof
    start_nanos: Int64s
    duration_nanos: Int64s
    requested: Int64s
    peak: Int64s
    residual: Int64s
    output: Int64s
    label: Any
    """Label of the execution (Arrow, binary): `name = Kernel(inputs)`."""
    allocators: Source | None = None
    """Source of the records of accelerator allocators, if there are any."""

    def __len__(self) -> int:
        return len(self.device)


def read_run_metadata(file: InputFile) -> Records:
    """Read the records of a step; raises TfprofInputError if there are none."""
    if not file.data:
        raise file.refused("is empty: the run was not traced; pass run_metadata and FULL_TRACE to session.run")
    file.is_none_of_others()
    decoder = Decoder(file, 0, TENSORFLOW)
    devices, lists = records_by_device(file, decoder)
    records = decoder.all("NodeExecStats", items(lists))
    if not records.num_rows:
        raise file.refused("has no node times: trace the run with RunOptions(trace_level=FULL_TRACE)")
    columns = dict(zip(records.schema.names, records.columns, strict=True))
    device = np.repeat(np.arange(len(devices)), np.diff(offsets(lists)))
    end_micros = numbers(columns["op_end_rel_micros"])
    memory = _memory(columns)
    return Records(
        name=columns["node_name"],
        device=device,
        devices=devices,
        start_micros=numbers(columns["all_start_micros"]),
        duration_micros=np.where(end_micros == 0, 1, end_micros),
        start_nanos=numbers(columns["all_start_nanos"]),
        duration_nanos=numbers(columns["op_end_rel_nanos"]),
        requested=memory[0],
        peak=memory[1],
        residual=memory[2],
        output=memory[3],
        label=columns["timeline_label"],
        allocators=file.source() if any(is_canonical(name) and is_accelerator(name) for name in devices) else None,
    )


def records_by_device(file: InputFile, decoder: Decoder) -> tuple[list[str], Any]:
    """Return the devices, in lower case, and the serialized records of each."""
    step_stats = b"".join(items(decoder.one("RunMetadata", file.data).column("step_stats")).to_pylist())
    serialized = items(decoder.one("StepStats", step_stats).column("dev_stats"))
    by_device = decoder.all("DeviceStepStats", serialized)
    return [device.lower() for device in texts(by_device.column("device"))], by_device.column("node_stats")


def is_accelerator(device: str) -> bool:
    """Return whether the name, in lower case, is an accelerator or a part of one."""
    return "gpu" in device or "tpu" in device


def is_canonical(device: str) -> bool:
    """Return whether the name, in lower case, is a whole device; other rows describe parts of one."""
    return _CANONICAL.fullmatch(device) is not None


def is_all_streams(device: str) -> bool:
    """Return whether the row holds all kernels of an accelerator."""
    return _ALL_STREAMS in device


def is_no_node(name: str) -> bool:
    """Return whether a record with this name, which is not in the graph, is ignored."""
    return name in _NO_NODES or "MEMCPY" in name


def kernel_of(label: str) -> str:
    """Return the kernel in a label `name = Kernel(inputs)`; empty if there is none."""
    return label.partition(" = ")[2].partition("(")[0].strip()


def _memory(columns: dict[str, Any]) -> Sequence[Int64s]:
    """Return requested, peak, residual and output bytes of each record."""
    lists, stats = columns["memory"], columns["memory_stats"]
    allocators = items(lists)
    total, peak, live = (_sums(lists, numbers(allocators.field(f"{of}_bytes"))) for of in ("total", "peak", "live"))
    has_stats = stats.is_valid().to_numpy(zero_copy_only=False)
    temporary, persistent = (
        np.where(has_stats, numbers(stats.field(f"{of}_memory_size")), 0) for of in ("temp", "persistent")
    )
    outputs = items(columns["output"]).field("tensor_description").field("allocation_description")
    larger = np.maximum(numbers(outputs.field("requested_bytes")), numbers(outputs.field("allocated_bytes")))
    larger = np.where(outputs.is_valid().to_numpy(zero_copy_only=False), larger, 0)
    return (
        total + persistent + temporary,
        peak + persistent + temporary,
        live + persistent,
        _sums(columns["output"], larger),
    )


def _sums(lists: Any, values: Int64s) -> Int64s:
    ends = offsets(lists).astype(np.int64)
    until = np.concatenate(([0], np.cumsum(values)))
    sums: Int64s = until[ends[1:] - ends[0]] - until[ends[:-1] - ends[0]]
    return sums


class Joined(Struct, frozen=True, kw_only=True):
    """The records of a step that belong to nodes: their `rows`, and the node of each."""

    rows: Int64s
    node: Int64s
    device: Int64s  # index into `NodeIndex.devices`
    is_canonical: Bools
    is_all_streams: Bools


class NodeIndex:
    """Numbers the nodes of a graph and of its runs by name, with the device on which each ran first."""

    def __init__(self, names: list[str], ops: list[str]) -> None:
        self.names, self.ops = list(names), list(ops)
        self._number_of_device: dict[str, int] = {}
        self._device_of = np.full(len(names), -1, np.int64)
        self._encoded: Any = None
        self._has_kernel = np.zeros(0, np.bool_)
        self.kernels: dict[int, str] = {}
        """Kernel that ran for a node, by node number; empty if no label names it."""

    @property
    def devices(self) -> list[str]:
        """Return all devices, in the order of their first record."""
        return [*self._number_of_device]

    def device_of(self) -> Int64s:
        """Return the index in `devices` of each node's device, -1 if it never ran."""
        return self._device_of

    def join(self, records: Records) -> Joined:
        """Return the nodes of the records; a node keeps its first device, and records of other devices are ignored."""
        node = self._nodes_of(records.name)
        number = self._number_of_device
        own = [number.setdefault(device, len(number)) for device in records.devices]
        canonical = np.array([is_canonical(device) for device in records.devices], np.bool_)[records.device]
        device = np.array(own, np.int64)[records.device]
        if len(self.names) > len(self._device_of):
            more = np.full(len(self.names) - len(self._device_of), -1, np.int64)
            self._device_of = np.concatenate((self._device_of, more))
        seen = np.flatnonzero(canonical & (node >= 0))[::-1]
        first = np.full(len(self.names), -1, np.int64)
        first[node[seen]] = device[seen]
        self._device_of = np.where(self._device_of < 0, first, self._device_of)
        keep = (node >= 0) & (~canonical | (self._device_of[np.maximum(node, 0)] == device))
        rows = np.flatnonzero(keep)
        streams = np.array([is_all_streams(device) for device in records.devices], np.bool_)[records.device]
        self._note_kernels(records, rows[canonical[rows] & ~streams[rows]], node)
        return Joined(
            rows=rows, node=node[rows], device=device[rows], is_canonical=canonical[rows], is_all_streams=streams[rows]
        )

    def _note_kernels(self, records: Records, rows: Int64s, node: Int64s) -> None:
        """Store the kernel in the first record of each node."""
        known = np.zeros(len(self.names), np.bool_)
        known[: len(self._has_kernel)] = self._has_kernel
        new = rows[~known[node[rows]]]
        nodes, first = np.unique(node[new], return_index=True)
        labels = texts(take(records.label, new[first]))
        self.kernels.update(zip(nodes.tolist(), map(kernel_of, labels), strict=True))
        known[nodes] = True
        self._has_kernel = known

    def _nodes_of(self, names: Any) -> Int64s:
        import pyarrow
        from pyarrow import compute

        if self._encoded is None:
            encoded = [name.encode("utf-8", "replace") for name in self.names]
            self._encoded = pyarrow.array(encoded, pyarrow.binary())
        node: Int64s = np.array(compute.fill_null(compute.index_in(names, self._encoded), -1), np.int64)
        unknown = np.flatnonzero(node < 0)
        if len(unknown):
            before_colon = compute.list_element(compute.split_pattern(take(names, unknown), ":", max_splits=1), 0)
            node[unknown] = compute.fill_null(compute.index_in(before_colon, self._encoded), -1)
            self._add_nodes(node, unknown, before_colon)
        return node

    def _add_nodes(self, node: Int64s, rows: Int64s, names: Any) -> None:
        """Number the nodes that are neither in the graph nor among the runtime's own records."""
        new = np.flatnonzero(node[rows] < 0)
        more: dict[str, int] = {}
        for row, name in zip(rows[new].tolist(), texts(take(names, new)), strict=True):
            if not is_no_node(name):
                node[row] = more.setdefault(name, len(self.names) + len(more))
        if more:
            self.names.extend(more)
            self.ops.extend(more)
            self._encoded = None


_HOST = re.compile(r"/job:[^/]*/replica:\d+/task:\d+")
_RECEIVED = b"RecvTensor"
_US_PER_MS = 1000.0


class HostStep(Struct, frozen=True, kw_only=True):
    """A step of a host, in microseconds; `start` and `end` are since 1970 by the host's clock."""

    step: int
    host: str
    """`/job:worker/replica:0/task:1`, or the number of the file if the host has no such name."""
    start: int
    end: int
    received_micros: int
    """Summed time of its `RecvTensor` calls, which receive tensors from other hosts."""
    received: int  # number of these calls


def host_steps(step: int, parts: Sequence[Records]) -> list[HostStep]:
    """Return the hosts of a step, from the files of the step; hosts without times are left out."""
    return [each for number, records in enumerate(parts) for each in _of_file(step, number, records)]


def _of_file(step: int, number: int, records: Records) -> list[HostStep]:
    from pyarrow import compute

    index: dict[str, int] = {}
    found = (_HOST.match(device) for device in records.devices)
    named = [match[0] if match else "" for match in found]
    # A local session has no host name.
    names = [f"file {number + 1}" if name.startswith("/job:localhost/") else name for name in named]
    # Names of streams do not contain the host, so streams belong to the first named host of the file.
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


class HostTimes(Struct, frozen=True, kw_only=True):
    """A host in the mean step; times in ms."""

    host: str
    step_ms: float
    received_ms: float
    """Time in `RecvTensor` calls, which may overlap."""
    received: float  # number of calls per step
    late_ms: float
    """Mean delay of its end after the end of the first host, over the steps with several hosts."""
    last_count: int  # number of steps in which it ends last
    steps: int


class EndsApart(Struct, frozen=True, kw_only=True):
    """Spread of the ends of a step across hosts; medians over the steps with several hosts, in ms."""

    apart_ms: float
    step_ms: float  # of the slowest host
    last: str
    """The host that ends last most often, and its number of such steps."""
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
    """Return the spread of the hosts' ends; None if no step has records of several hosts."""
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
