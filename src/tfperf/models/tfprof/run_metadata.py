"""What a run of a graph recorded (RunMetadata): per node, its times and memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.formats.wire.decoder import Decoder, items, numbers, offsets, take, texts
from tfperf.models.tfprof.input_file import InputFile, Source
from tfperf.models.tfprof.messages import TENSORFLOW

_CANONICAL = re.compile(r".*/(?:device:)?(?:gpu|cpu|tpu):\d+")
_ALL_STREAMS = "stream:all"
_NO_NODES = ("", "RecvTensor", "_SOURCE")
"""What runs without being a node of any graph."""


class Records(Struct, frozen=True, kw_only=True):
    """The records of a step, one row each, in the order of the file.

    `device` indexes `devices`, whose names are lower-case. Times are in microseconds, or nanoseconds (0 where the file
    has none), memory is in bytes.
    """

    name: Any
    """Names of nodes, those of kernels with `:Kernel` behind (Arrow, binary)."""
    device: Int64s
    devices: list[str]
    start_micros: Int64s
    duration_micros: Int64s
    """At least 1, as tfprof counts."""
    start_nanos: Int64s
    duration_nanos: Int64s
    requested: Int64s
    peak: Int64s
    residual: Int64s
    output: Int64s
    label: Any
    """What the runtime says of the execution (Arrow, binary): `name = Kernel(inputs)`."""
    allocators: Source | None = None
    """Where to read what allocators of accelerators recorded, if there are any."""

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
        raise file.refused("holds no times of nodes: trace the run with RunOptions(trace_level=FULL_TRACE)")
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
    """Return devices, in lower case, and for each a list of its records, serialized."""
    step_stats = b"".join(items(decoder.one("RunMetadata", file.data).column("step_stats")).to_pylist())
    serialized = items(decoder.one("StepStats", step_stats).column("dev_stats"))
    by_device = decoder.all("DeviceStepStats", serialized)
    return [device.lower() for device in texts(by_device.column("device"))], by_device.column("node_stats")


def is_accelerator(device: str) -> bool:
    """Tell whether the name, in lower case, is that of an accelerator, or of a part of one."""
    return "gpu" in device or "tpu" in device


def is_canonical(device: str) -> bool:
    """Tell whether the name, in lower case, is that of a device: rows of other names are about parts of one."""
    return _CANONICAL.fullmatch(device) is not None


def is_all_streams(device: str) -> bool:
    """Tell whether the row holds all kernels of an accelerator."""
    return _ALL_STREAMS in device


def is_no_node(name: str) -> bool:
    """Tell whether what has this name, which is not in the graph, is left out."""
    return name in _NO_NODES or "MEMCPY" in name


def kernel_of(label: str) -> str:
    """Return the kernel that a label names: `name = Kernel(inputs)`; empty if it names none."""
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
    """Return the sum of the values of each list."""
    ends = offsets(lists).astype(np.int64)
    until = np.concatenate(([0], np.cumsum(values)))
    sums: Int64s = until[ends[1:] - ends[0]] - until[ends[:-1] - ends[0]]
    return sums


class Joined(Struct, frozen=True, kw_only=True):
    """The records of a step that belong to nodes: `rows` of them, and the node of each."""

    rows: Int64s
    node: Int64s
    device: Int64s
    """An index into `NodeIndex.devices`."""
    is_canonical: Bools
    is_all_streams: Bools


class NodeIndex:
    """The nodes of a graph, and those that only its runs know, by name; on which device each ran first."""

    def __init__(self, names: list[str], ops: list[str]) -> None:
        self.names, self.ops = list(names), list(ops)
        self._number_of_device: dict[str, int] = {}
        self._device_of = np.full(len(names), -1, np.int64)
        self._encoded: Any = None
        self._has_kernel = np.zeros(0, np.bool_)
        self.kernels: dict[int, str] = {}
        """The kernel that ran in the place of a node, by its number; empty where no label says it."""

    @property
    def devices(self) -> list[str]:
        """Return all devices that were seen."""
        return [*self._number_of_device]

    def device_of(self) -> Int64s:
        """Return for each node the index of its device in `devices`, -1 where it never ran."""
        return self._device_of

    def join(self, records: Records) -> Joined:
        """Find the nodes of the records; a node keeps the device that it is first seen on, and no others count."""
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
        """Keep what the runtime says ran in the place of each node, from its first record."""
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
        """Number the nodes that are not in the graph, and yet in none of the runtime's own records."""
        new = np.flatnonzero(node[rows] < 0)
        more: dict[str, int] = {}
        for row, name in zip(rows[new].tolist(), texts(take(names, new)), strict=True):
            if not is_no_node(name):
                node[row] = more.setdefault(name, len(self.names) + len(more))
        if more:
            self.names.extend(more)
            self.ops.extend(more)
            self._encoded = None
