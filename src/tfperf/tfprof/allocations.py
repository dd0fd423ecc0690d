"""What the allocators of accelerators recorded while a step ran; decoded only when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.arrays import Bools, Int64s
from tfperf.tfprof.input_file import InputFile, TfprofInputError
from tfperf.tfprof.messages import TENSORFLOW
from tfperf.wire.decoder import Decoder, items, numbers, offsets, texts

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


class AllocatorLog(Struct, frozen=True, kw_only=True):
    """Serialized records of nodes on accelerators, of which the allocators are not decoded yet.

    `node` says whose each record is, -1 for nobody's. `step` is set where a record holds all steps, as in a profile.
    """

    path: Path
    kind: str
    serialized: Any
    node: Int64s
    step: int | None = None

    def renumbered(self, place: Int64s) -> AllocatorLog:
        """Return the same where node i is called `place[i]`."""
        return replace(self, node=np.where(self.node >= 0, place[self.node], -1))

    def damaged(self, _position: int, what: str) -> TfprofInputError:
        """Return the error for bytes that are not what they should be."""
        return TfprofInputError(f"{self.path} is damaged, or not a {self.kind}: {what}")

    def read(self) -> Allocations:
        """Decode the records; raises TfprofInputError."""
        decoder = Decoder(self, 0, TENSORFLOW)
        if self.step is None:
            return _of_records(decoder.all("NodeMemory", self.serialized), self.node)
        return _of_profile(decoder.all("ProfileNodeMemory", self.serialized), self.node, self.step)


def joined(logs: Sequence[AllocatorLog]) -> Allocations:
    """Decode what was recorded of a step; raises TfprofInputError."""
    read = [log.read() for log in logs]
    return Allocations(
        changes=_concatenated([each.changes for each in read]), in_use=_concatenated([each.in_use for each in read])
    )


def allocator_log(file: InputFile, serialized: Any, node: Int64s, step: int | None = None) -> AllocatorLog:
    """Return records of a file, to be decoded later; the bytes of the file are not kept."""
    return AllocatorLog(path=file.path, kind=file.kind, serialized=serialized, node=node, step=step)


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


def _of_profile(nodes: Any, node: Int64s, step: int) -> Allocations:
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
