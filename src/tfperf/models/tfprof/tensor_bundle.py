"""Checkpoints of version 2 (`tensor_bundle`): a table of entries, and files with their values."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfperf.formats.wire.trace_file import open_regular
from tfperf.models.tfprof.crc32c import crc32c, masked
from tfperf.models.tfprof.dtypes import as_numbers, bytes_of_element, has_numbers
from tfperf.models.tfprof.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof.tensors import LARGE, Numbers, Place, by_name, elements_of, message, place_of, tensor_of

_LONGEST_TEXT = 1 << 28
_MOST_SHARDS = 99_999
_CHECKSUM = 4


class Bundle:
    """The tensors of a checkpoint; their values are read from their shard when they are asked for."""

    def __init__(self, file: InputFile, header: bytes, table: Mapping[bytes, bytes]) -> None:
        self._file = file
        described = message(file, "BundleHeader", header)
        if described.endianness:
            raise file.refused("was written by a big-endian machine, whose values tfperf cannot read")
        self._shards = int(described.num_shards)
        if not 0 < self._shards <= _MOST_SHARDS:
            raise file.damaged(0, f"{self._shards} files of values")
        # Keys that start with a zero are those of pieces.
        self._entries = {key: message(file, "BundleEntry", value) for key, value in table.items()}
        self._shard_bytes: Counter[int] = Counter()
        for entry in self._entries.values():
            self._shard_bytes[entry.shard_id] += entry.size
        self._pieces = by_name(key for key in self._entries if key.startswith(b"\0"))
        self.tensors = {
            (name := key.decode("utf-8", "replace")): tensor_of(file, name, entry.shape, entry.dtype)
            for key, entry in self._entries.items()
            if not key.startswith(b"\0")
        }

    def pieces(self, name: str) -> Iterator[tuple[Place | None, Iterator[Numbers]]]:
        """Yield where each piece of a tensor lies in it (None: it is whole), and its numbers, flat, part by part."""
        tensor, entry = self.tensors[name], self._entry(name)
        if not entry.slices:
            yield None, self._numbers(name, tensor.elements, tensor.dtype, entry)
            return
        keys = self._pieces.get(name.encode(), [])
        cuts = sorted(entry.slices, key=lambda cut: [(dim.start, dim.length or -1) for dim in cut.extent])
        if len(keys) != len(cuts):
            raise self._file.damaged(0, f"{len(keys)} of {len(cuts)} pieces of {name}")
        for key, cut in zip(keys, cuts, strict=True):
            place = place_of(self._file, name, tensor, cut)
            yield place, self._numbers(name, elements_of(place), tensor.dtype, self._entries[key])

    def text(self, name: str) -> bytes:
        """Return the only element of a tensor of strings; raises TfprofInputError."""
        entry = self._entry(name)
        if self.tensors[name].elements != 1 or entry.size > _LONGEST_TEXT:
            raise self._file.damaged(0, f"{name} is not one text")
        # Its length, a checksum of that, and the text; the checksum of the entry takes the length as four bytes.
        data = b"".join(self._bytes(name, entry))
        length, at = _varint(data)
        text = data[at + _CHECKSUM :]
        if len(text) != length:
            raise self._file.damaged(0, f"{name} is not one text")
        crc = crc32c(length.to_bytes(4, "little"))
        if masked(crc32c(data[at:], crc)) != entry.crc32c:
            raise self._wrong_checksum(name, entry)
        return text

    def _entry(self, name: str) -> Any:
        entry = self._entries.get(name.encode())
        if entry is None:
            raise self._file.damaged(0, f"the name {name!r} is not text")
        return entry

    def _numbers(self, name: str, count: int, dtype: str, entry: Any) -> Iterator[Numbers]:
        if not has_numbers(dtype):
            return
        if entry.size != count * (bytes_of_element(dtype) or 0):
            raise self._file.damaged(0, f"{name} has {entry.size} bytes for {count} elements of type {dtype}")
        crc = 0
        for data in self._bytes(name, entry):
            crc = crc32c(data, crc)
            yield as_numbers(data, dtype)
        if masked(crc) != entry.crc32c:
            raise self._wrong_checksum(name, entry)

    def _bytes(self, name: str, entry: Any) -> Iterator[bytes]:
        """Yield the bytes of an entry, in parts."""
        shard = self._shard(entry)
        try:
            with open_regular(shard) as file:
                size = file.seek(0, os.SEEK_END)
                stop = entry.offset + entry.size
                if not 0 <= entry.offset <= stop <= size:
                    what = f"{name} ends at byte {stop} of it, and it has {size}"
                    raise TfprofInputError(f"{shard} is too short: {what}; copy it again, or save the checkpoint anew")
                if self._shard_bytes[entry.shard_id] > size:
                    raise self._file.damaged(0, f"its tensors overlap in {shard.name}")
                file.seek(entry.offset)
                for start in range(0, entry.size, LARGE):
                    yield file.read(min(LARGE, entry.size - start))
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise TfprofInputError(f"cannot read {shard}: {reason}; the values of {name} are in it") from error

    def _shard(self, entry: Any) -> Path:
        prefix = str(self._file.path).removesuffix(".index")
        return Path(f"{prefix}.data-{entry.shard_id:05}-of-{self._shards:05}")

    def _wrong_checksum(self, name: str, entry: Any) -> TfprofInputError:
        where = f"{self._shard(entry)} is damaged, or of another checkpoint"
        return TfprofInputError(f"{where}: the checksum of {name} is wrong; save the checkpoint anew")


def _varint(data: bytes) -> tuple[int, int]:
    """Return the number of up to 32 bits that bytes start with, and where it ends."""
    value = 0
    for count, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value & 0xFFFFFFFF, count + 1
    return 0, len(data)
