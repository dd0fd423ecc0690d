"""What the allocators of accelerators recorded while a step ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s
from tfperf.formats.wire.decoder import Decoder, items, numbers, offsets, take, texts
from tfperf.models.tfprof.input_file import InputFile
from tfperf.models.tfprof.messages import TENSORFLOW
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.run_metadata import NodeIndex, is_accelerator, read_run_metadata, records_by_device

_OF_GPUS = "GPU"
"""In the names of allocators of accelerators; those of their pinned host memory have it in small letters."""


class Amounts(Struct, frozen=True, kw_only=True):
    """Bytes at times (microseconds since 1970), each of a node."""

    node: Int64s
    micros: Int64s
    bytes: Int64s

    def only(self, rows: Bools) -> Amounts:
        """Return these only."""
        return Amounts(node=self.node[rows], micros=self.micros[rows], bytes=self.bytes[rows])

    def ordered(self) -> Amounts:
        """Return the same in order of time."""
        order = np.argsort(self.micros, kind="stable")
        return Amounts(node=self.node[order], micros=self.micros[order], bytes=self.bytes[order])


class Allocations(Struct, frozen=True, kw_only=True):
    """`changes` is what nodes took (negative: gave back), at 0 what they kept from before; `in_use` what all had."""

    changes: Amounts
    in_use: Amounts


def allocations_of(model: Model, step: int) -> Allocations:
    """Read what the allocators of accelerators recorded in a step; empty if there are none; raises TfprofInputError.

    A model does not hold this, since only timelines show it: it is read from where the model came from.
    """
    read = []
    for source in model.steps[step].allocators:
        file = source.open()
        of = _of_profile(file, model, step) if file.kind == "ProfileProto" else _of_run(file, model)
        read.append(of)
    return Allocations(
        changes=_concatenated([each.changes for each in read]), in_use=_concatenated([each.in_use for each in read])
    )


def _of_run(file: InputFile, model: Model) -> Allocations:
    """Return what is in the records of a run that belong to accelerators."""
    records = read_run_metadata(file)
    joined = NodeIndex(model.names, model.ops).join(records)
    known = joined.is_canonical & (joined.node < len(model.names))
    rows, node = joined.rows[known], joined.node[known]
    number: dict[str, int] = {"": -1}
    device = np.array([number.setdefault(name, len(number)) for name in records.devices], np.int64)
    accelerators = np.array([is_accelerator(name) for name in records.devices], np.bool_)
    own_device = np.array([number.get(name, -1) for name in model.device], np.int64)
    own = accelerators[records.device[rows]] & (device[records.device[rows]] == own_device[node])
    rows, node = rows[own], node[own]
    decoder = Decoder(file, 0, TENSORFLOW)
    serialized = items(records_by_device(file, decoder)[1])
    return _of_records(decoder.all("NodeMemory", take(serialized, rows)), node)


def _of_records(records: Any, node: Int64s) -> Allocations:
    lists, stats = records.column("memory"), records.column("memory_stats")
    allocators = items(lists)
    of_gpus = np.array([_OF_GPUS in name for name in texts(allocators.field("allocator_name"))], np.bool_)
    owner = np.repeat(np.arange(len(node)), np.diff(offsets(lists)))
    ended = numbers(records.column("all_start_micros")) + numbers(records.column("op_end_rel_micros"))
    row = owner[of_gpus]
    in_use = Amounts(
        node=node[row], micros=ended[row], bytes=numbers(allocators.field("allocator_bytes_in_use"))[of_gpus]
    )
    entries = allocators.field("allocation_records")
    of = np.repeat(np.where(of_gpus, owner, -1), np.diff(offsets(entries)))
    kept = np.where(stats.is_valid().to_numpy(zero_copy_only=False), numbers(stats.field("persistent_memory_size")), 0)
    return _allocations(items(entries), np.where(of >= 0, node[of], -1), (node, kept), in_use)


def _of_profile(file: InputFile, model: Model, step: int) -> Allocations:
    """Return what a profile has of nodes on accelerators, in one of its steps."""
    decoder = Decoder(file, 0, TENSORFLOW)
    serialized = items(decoder.one("ProfileProto", file.data).column("nodes")).field("value")
    nodes = decoder.all("ProfileNodeMemory", serialized)
    place = {name: number for number, name in enumerate(model.names) if is_accelerator(model.device[number])}
    node = np.array([place.get(name, -1) for name in texts(nodes.column("name"))], np.int64)
    execs = nodes.column("execs")
    pairs = items(execs)
    owner = np.repeat(node, np.diff(offsets(execs)))
    owner = np.where(numbers(pairs.field("key")) == step, owner, -1)
    lists, entries = (pairs.field("value").field(name) for name in ("memory_execs", "allocations"))
    uses, of_uses = items(lists), np.repeat(owner, np.diff(offsets(lists)))
    in_use = Amounts(
        node=of_uses, micros=numbers(uses.field("memory_micros")), bytes=numbers(uses.field("allocator_bytes_in_use"))
    )
    kept = numbers(uses.field("accelerator_persistent_bytes"))
    return _allocations(items(entries), np.repeat(owner, np.diff(offsets(entries))), (of_uses, kept), in_use)


def _allocations(entries: Any, of: Int64s, kept: tuple[Int64s, Int64s], in_use: Amounts) -> Allocations:
    """Put together what was taken and given back, what was kept from before, and what was in use."""
    nodes, sizes = kept
    taken = Amounts(node=of, micros=numbers(entries.field("alloc_micros")), bytes=numbers(entries.field("alloc_bytes")))
    before = Amounts(node=np.where(sizes > 0, nodes, -1), micros=np.zeros(len(nodes), np.int64), bytes=sizes)
    is_known = (in_use.node >= 0) & (in_use.micros > 0) & (in_use.bytes > 0)
    changes = _concatenated([before, taken])
    return Allocations(changes=changes.only(changes.node >= 0), in_use=in_use.only(is_known))


def _concatenated(parts: Sequence[Amounts]) -> Amounts:
    none = np.zeros(0, np.int64)
    return Amounts(
        node=np.concatenate([none, *(part.node for part in parts)]),
        micros=np.concatenate([none, *(part.micros for part in parts)]),
        bytes=np.concatenate([none, *(part.bytes for part in parts)]),
    )
