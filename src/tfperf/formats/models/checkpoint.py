"""Reader of TensorFlow checkpoints without TensorFlow: names, shapes, types, and values on demand.

A checkpoint of version 2 is a table in `PREFIX.index` with a `BundleEntryProto` per tensor, and the values in
`PREFIX.data-00000-of-0000N`. Version 1 is a single table that contains the values (`SavedTensorSlices`).
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.base.process import available_bytes
from tfperf.base.units import format_bytes
from tfperf.formats.models.dtypes import as_numbers, bytes_of_element, dtype_name, has_numbers
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.formats.models.messages import TENSORFLOW
from tfperf.formats.wire.trace_file import open_regular

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the object graph of a `tf.train.Checkpoint`

_KIND = "checkpoint"
_DATA = re.compile(r"\.data-\d{5}-of-\d{5}$")
_LATEST = re.compile(r'^[ \t]*model_checkpoint_path:\s*"((?:[^"\\]|\\.)*)"', re.MULTILINE)


class Checkpoint:
    """An open checkpoint: `tensors` by name, without the bookkeeping of the format.

    `path` may be the prefix (`model.ckpt`), one of the files (`model.ckpt.index`), or a folder with a file
    `checkpoint`. Raises TfprofInputError.
    """

    def __init__(self, path: Path) -> None:
        self.path = checkpoint_file(path)
        file = self.file = InputFile(self.path, _KIND)
        table = read_table(file)
        header = table.pop(b"", None)
        if header is None:
            raise file.damaged(0, "a table without a header")
        # A BundleHeaderProto starts with a number, SavedTensorSlices with a message.
        is_first_version = header[:1] == b"\x0a"
        self._store = FirstVersion(file, header, table) if is_first_version else Bundle(file, header, table)
        self.tensors: Mapping[str, Tensor] = self._store.tensors

    def pieces(self, name: str) -> Iterator[tuple[Place | None, Iterator[Numbers]]]:
        """Yield the slice of each piece of a tensor (None: all of it), and its numbers, flat, in parts.

        A non-numeric type has no parts. Raises TfprofInputError and KeyError.
        """
        return self._store.pieces(name)

    def read(self, name: str) -> Numbers | None:
        """Return a tensor; None for a non-numeric type. Raises TfprofInputError and KeyError."""
        tensor = self.tensors[name]
        size = tensor.elements * (bytes_of_element(tensor.dtype) or 0)
        if size > LARGE and (free := available_bytes()) < 2 * size:
            needs = f"{format_bytes(2 * size)} of memory, but only {format_bytes(free)} is free"
            raise TfprofInputError(f"{self.path}: {name} is too large for this machine: it requires {needs}")
        if not has_numbers(tensor.dtype):
            return None
        whole = np.zeros(tensor.shape, as_numbers(b"", tensor.dtype).dtype)
        for place, parts in self._store.pieces(name):
            if tensor.elements:
                cut = whole[place or ...]
                cut[...] = np.concatenate([*parts]).reshape(cut.shape)
        return whole

    def object_graph(self) -> bytes | None:
        """Return the serialized object graph (`TrackableObjectGraph`) of a `tf.train.Checkpoint`."""
        return self._store.text(OBJECT_GRAPH) if OBJECT_GRAPH in self.tensors else None


def is_checkpoint(path: Path) -> bool:
    """Return whether a path is a checkpoint: a prefix, a file, or a folder with a file `checkpoint`."""
    if path.is_dir():
        return (path / "checkpoint").is_file() or only_index(path) is not None
    if path.name.endswith(".index") or _DATA.search(path.name) or Path(f"{path}.index").is_file():
        return True
    try:
        with open_regular(path) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 48, 0))
            return is_table(file.read())
    except OSError:
        return False


def checkpoint_file(path: Path) -> Path:
    """Return the table file of a checkpoint from any of the supported paths."""
    if path.is_dir():
        if not (path / "checkpoint").is_file() and (index := only_index(path)):
            return index
        if not (path / "checkpoint").is_file():
            raise TfprofInputError(
                f"{path} has no file `checkpoint` with the name of the latest one: pass the prefix of a checkpoint, "
                f"for example {path / 'model.ckpt'}"
            )
        path = _latest(path)
    elif path.name == "checkpoint" and path.is_file() and not is_table(InputFile(path, _KIND).data):
        path = _latest(path.parent)
    prefix = Path(_DATA.sub("", str(path)))
    index = Path(f"{prefix}.index")
    return index if index.is_file() else prefix


def only_index(folder: Path) -> Path | None:
    """Return the index of the only checkpoint in a folder; None if there are none or several."""
    found = [path for path in folder.glob("*.index") if path.is_file()]
    return found[0] if len(found) == 1 else None


def _latest(folder: Path) -> Path:
    file = InputFile(folder / "checkpoint", "list of checkpoints")
    found = _LATEST.search(file.data.decode("utf-8", "replace"))
    prefix = re.sub(r"\\(.)", r"\1", found[1]) if found else ""
    if not found or not prefix.isprintable():
        raise file.refused("has no model_checkpoint_path: pass the prefix of a checkpoint, such as model.ckpt")
    # If the folder was moved, the stored path refers to the machine that wrote it.
    return next(
        (each for each in (folder / prefix, folder / Path(prefix).name) if is_checkpoint(each)), folder / prefix
    )


Numbers = npt.NDArray[np.generic]
Place = tuple[slice, ...]  # slice of a piece in its tensor
LARGE = 1 << 26  # bytes of values that are processed together
_MOST_ELEMENTS = 1 << 60
_MOST_DIMS = 254  # TensorFlow's limit for the dimensions of a tensor
_END_OF_NAME = b"\0\x01"


class Tensor(Struct, frozen=True):
    """Dimensions and type name of a tensor."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def message(file: InputFile, kind: str, data: bytes) -> Any:
    """Return a decoded message; raises TfprofInputError."""
    try:
        return TENSORFLOW.message_class(kind).FromString(data)
    except DecodeError as error:
        raise file.damaged(0, f"not a valid {kind}") from error


def tensor_of(file: InputFile, name: str, shape: Any, number: int) -> Tensor:
    """Return a tensor from a `Shape` and a type number; raises TfprofInputError."""
    dims = tuple(int(dim.size) for dim in shape.dim)
    is_odd = shape.unknown_rank or len(dims) > _MOST_DIMS or any(size < 0 for size in dims)
    if is_odd or math.prod(dims) > _MOST_ELEMENTS:
        raise file.damaged(0, f"{name} has no known shape")
    return Tensor(dims, dtype_name(number))


def place_of(file: InputFile, name: str, tensor: Tensor, cut: Any) -> Place:
    """Return the position of a `TensorSlice` in its tensor; raises TfprofInputError."""
    extents = [(dim.start, dim.length) for dim in cut.extent] or [(0, 0)] * len(tensor.shape)
    if len(extents) != len(tensor.shape):
        raise file.damaged(0, f"a piece of {name} has different dimensions")
    sizes = dict(enumerate(tensor.shape))
    # Without a length, it covers the dimension.
    ends = [(start, start + length if length > 0 else sizes[at]) for at, (start, length) in enumerate(extents)]
    if any(not 0 <= start <= stop <= sizes[at] for at, (start, stop) in enumerate(ends)):
        raise file.damaged(0, f"a piece of {name} is out of bounds")
    return tuple(slice(start, stop) for start, stop in ends)


def elements_of(place: Place) -> int:
    """Return the number of elements of a piece."""
    return math.prod(each.stop - each.start for each in place)


def by_name(keys: Iterable[bytes]) -> Mapping[bytes, list[bytes]]:
    """Return the keys of pieces by tensor name, ordered by the start of the pieces.

    A key is a zero byte, the name, a terminator, and numbers in an order-preserving encoding.
    """
    found: dict[bytes, list[bytes]] = {}
    for key in sorted(keys):
        name, _, _ = key[1:].partition(_END_OF_NAME)
        found.setdefault(name.replace(b"\0\xff", b"\0"), []).append(key)
    return found


_LONGEST_TEXT = 1 << 28
_MOST_SHARDS = 99_999
_CHECKSUM = 4


class Bundle:
    """The tensors of a version 2 checkpoint; values are read from their shards on demand."""

    def __init__(self, file: InputFile, header: bytes, table: Mapping[bytes, bytes]) -> None:
        self._file = file
        described = message(file, "BundleHeader", header)
        if described.endianness:
            raise file.refused("was written by a big-endian machine, which tfperf does not support")
        self._shards = int(described.num_shards)
        if not 0 < self._shards <= _MOST_SHARDS:
            raise file.damaged(0, f"{self._shards} files of values")
        # Keys that start with a zero byte are pieces.
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
        """Yield the slice of each piece of a tensor (None: all of it), and its numbers, flat, in parts."""
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
        """Return the only element of a string tensor; raises TfprofInputError."""
        entry = self._entry(name)
        if self.tensors[name].elements != 1 or entry.size > _LONGEST_TEXT:
            raise self._file.damaged(0, f"{name} is not a single text")
        # Length, checksum of the length, text; the checksum of the entry covers the length as four bytes.
        data = b"".join(self._bytes(name, entry))
        length, at = _varint(self._file, data, 0)
        text = data[at + _CHECKSUM :]
        if len(text) != length:
            raise self._file.damaged(0, f"{name} is not a single text")
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
        shard = self._shard(entry)
        try:
            with open_regular(shard) as file:
                size = file.seek(0, os.SEEK_END)
                stop = entry.offset + entry.size
                if not 0 <= entry.offset <= stop <= size:
                    what = f"{name} ends at byte {stop} of it, and it has {size}"
                    raise TfprofInputError(f"{shard} is too short: {what}; copy it again, or save the checkpoint again")
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
        where = f"{self._shard(entry)} is damaged, or belongs to another checkpoint"
        return TfprofInputError(f"{where}: the checksum of {name} is wrong; save the checkpoint again")


_FIELDS: Mapping[str, str] = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    **dict.fromkeys(("int32", "int16", "int8", "uint8", "uint16"), "int_val"),
}
"""Field of a `TensorProto` with the values of each type."""
_WIDE = {"int": "int64", "boo": "int64", "uin": "uint64"}


class FirstVersion:
    """The tensors of a version 1 checkpoint; values are decoded on demand."""

    def __init__(self, file: InputFile, header: bytes, table: Mapping[bytes, bytes]) -> None:
        self._file, self._table = file, table
        listed = message(file, "SavedTensorSlices", header).meta.tensor
        self._pieces = by_name(table)
        self.tensors = {
            (name := each.name.decode("utf-8", "replace")): tensor_of(file, name, each.shape, each.type)
            for each in listed
        }

    def pieces(self, name: str) -> Iterator[tuple[Place | None, Iterator[Numbers]]]:
        """Yield the slice of each piece of a tensor, and its numbers, flat."""
        tensor = self.tensors[name]
        left = tensor.elements
        for key in self._pieces.get(name.encode(), []):
            data = message(self._file, "SavedTensorSlices", self._table[key]).data
            place = place_of(self._file, name, tensor, data.slice)
            left -= elements_of(place)
            yield place, self._numbers(name, elements_of(place), tensor.dtype, data.data)
        if left:
            raise self._file.damaged(0, f"the pieces of {name} do not cover its elements")

    def text(self, name: str) -> bytes:
        """Raise TfprofInputError, because object graphs exist only in version 2."""
        raise self._file.damaged(0, f"{name} in a checkpoint of version 1")

    def _numbers(self, name: str, count: int, dtype: str, proto: Any) -> Iterator[Numbers]:
        if dtype in _FIELDS:
            numbers: Numbers = np.array(getattr(proto, _FIELDS[dtype]), _WIDE.get(dtype[:3], dtype)).astype(dtype)
        elif dtype == "float16":
            # Their bits as integers.
            numbers = as_numbers(np.array(proto.half_val, np.int64).astype("<u2").tobytes(), dtype)
        else:
            return
        if len(numbers) != count:
            raise self._file.damaged(0, f"{name} has {len(numbers)} values for {count} elements")
        yield numbers


_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5
_LONGEST_KEY = 1 << 16
_MOST_KEY_BYTES, _TIMES = 1 << 24, 8
"""Limit for the bytes of all keys, also as a multiple of the file size: keys are prefix-compressed."""
_COMPRESSIONS = {1: "snappy", 2: "zlib", 4: "zstd"}


def is_table(data: bytes) -> bool:
    """Return whether the file ends with a table footer."""
    return len(data) >= _FOOTER and data.endswith(_MAGIC)


def read_table(file: InputFile) -> dict[bytes, bytes]:
    """Return all keys with their values; raises TfprofInputError."""
    data = file.data
    if not is_table(data):
        raise file.damaged(0, "the end of the checkpoint table is missing")
    body = len(data) - _FOOTER
    _, at = _handle(file, data[body:], 0)
    index, _ = _handle(file, data[body:], at)
    table: dict[bytes, bytes] = {}
    end, last, key_bytes = 0, b"", 0
    most_bytes = _MOST_KEY_BYTES + _TIMES * len(data)
    for _, place in _entries(file, _block(file, *index, body)):
        (offset, size), _ = _handle(file, place, 0)
        if offset < end:
            raise file.damaged(offset, "blocks that overlap")
        end = offset + size
        for key, value in _entries(file, _block(file, offset, size, body)):
            key_bytes += len(key)
            if table and key <= last:
                raise file.damaged(offset, "keys that are not in order")
            if key_bytes > most_bytes:
                raise file.damaged(offset, f"names with more than {most_bytes:,} bytes")
            table[key] = value
            last = key
    return table


def _block(file: InputFile, offset: int, size: int, body: int) -> bytes:
    """Return a block without its trailer; `body` is the start of the footer."""
    if offset + size + _TRAILER > body:
        raise file.damaged(offset, f"a block of {size} bytes at byte {offset} of {body}")
    stop = offset + size
    compression, stored = file.data[stop], int.from_bytes(file.data[stop + 1 : stop + _TRAILER], "little")
    if masked(crc32c(file.data[offset : stop + 1])) != stored:
        raise file.damaged(offset, f"the checksum of the block at byte {offset} is wrong")
    if compression:
        name = _COMPRESSIONS.get(compression, f"method {compression}")
        raise file.refused(
            f"is compressed ({name}), which tfperf does not support; load it in TensorFlow and save it again, "
            "without compression"
        )
    return file.data[offset:stop]


def _entries(file: InputFile, block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the complete keys of a block, and their values."""
    stop = len(block) - 4
    restarts = int.from_bytes(block[stop:], "little") if stop >= 0 else 0
    stop -= 4 * restarts
    if stop < 0:
        raise file.damaged(0, f"a block of {len(block)} bytes with {restarts} restart points")
    at, key = 0, b""
    while at < stop:
        shared, at = _varint(file, block, at)
        unshared, at = _varint(file, block, at)
        length, at = _varint(file, block, at)
        if shared > len(key) or shared + unshared > _LONGEST_KEY or at + unshared + length > stop:
            raise file.damaged(0, "an entry that is longer than its block")
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length


def _handle(file: InputFile, data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Return offset and size of a block, and the end of their encoding."""
    offset, at = _varint(file, data, at)
    size, at = _varint(file, data, at)
    return (offset, size), at


def _varint(file: InputFile, data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise file.damaged(at, "a truncated number")


_POLYNOMIAL = 0x82F63B78
_ALL = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
_SEED_BYTES = 4
_FEW = 1 << 11  # number of bytes below which they are processed sequentially

_States = npt.NDArray[np.uint32]


def crc32c(data: bytes, before: int = 0) -> int:
    """Return the CRC32C of `data` after bytes whose checksum is `before`.

    The bytes are split into rows of equal length, which are advanced together, two bytes at a time; leading zeros do
    not change the result.
    """
    state = before ^ _ALL
    if len(data) < _FEW:
        table = _byte_table()
        for byte in data:
            state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
        return state ^ _ALL
    width = math.isqrt(len(data) // 2)
    rows = -(-len(data) // (2 * width))
    padding = 2 * rows * width - len(data)
    grid = np.zeros(2 * rows * width, np.uint8)
    grid[padding:] = np.frombuffer(data, np.uint8)
    grid[padding : padding + _SEED_BYTES] ^= np.frombuffer(state.to_bytes(_SEED_BYTES, "little"), np.uint8)
    behind, states = _table(), np.zeros(rows, np.uint32)
    for column in np.ascontiguousarray(grid.view("<u2").reshape(rows, width).T):
        states = behind[(states ^ column) & 0xFFFF] ^ (states >> 16)
    low, high = _behind_zeros(width)
    total = 0
    for state in states.tolist():
        total = low[total & 0xFFFF] ^ high[total >> 16] ^ state
    return total ^ _ALL


def masked(crc: int) -> int:
    """Return a checksum as it is stored among the bytes that it covers."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ALL


@cache
def _byte_table() -> list[int]:
    """Return the state of each byte after eight bits."""
    table: list[int] = _shifted(np.arange(1 << 8, dtype=np.uint32), 8).tolist()
    return table


@cache
def _table() -> _States:
    """Return the state of each byte pair after sixteen bits."""
    return _shifted(np.arange(1 << 16, dtype=np.uint32), 16)


def _shifted(states: _States, bits: int) -> _States:
    one = np.uint32(1)
    for _ in range(bits):
        states = (states >> one) ^ (states & one) * np.uint32(_POLYNOMIAL)
    return states


@lru_cache(4)
def _behind_zeros(count: int) -> tuple[list[int], list[int]]:
    """Return each half of a state after `count` pairs of zeros; halves combine by xor."""
    bits = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32))
    for _ in range(count):
        bits = _table()[bits & 0xFFFF] ^ (bits >> 16)
    halves = []
    for first in (0, 16):
        half = np.zeros(1, np.uint32)
        for bit in bits[first : first + 16]:
            half = np.concatenate((half, half ^ bit))
        halves.append(half.tolist())
    return halves[0], halves[1]
