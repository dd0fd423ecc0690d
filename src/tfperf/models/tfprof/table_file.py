"""Sorted tables of keys and values, the format of LevelDB: what TensorFlow's checkpoints keep their lists in.

A file is data blocks, an index block with the place of each, and a footer with the place of the index. A block holds
entries whose keys leave out what they share with the key before, and ends in a list of restart points; behind it stand
a byte for its compression and a checksum.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfperf.models.tfprof.crc32c import crc32c, masked
from tfperf.models.tfprof.input_file import InputFile, TfprofInputError

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5
_LONGEST_KEY = 1 << 16
_MOST_KEY_BYTES, _TIMES = 1 << 24, 8
"""Bytes of all keys, and as many times those of the file: entries leave out what they share with the key before."""
_COMPRESSIONS = {1: "snappy", 2: "zlib", 4: "zstd"}


def is_table(data: bytes) -> bool:
    """Tell whether a file ends as a table does."""
    return len(data) >= _FOOTER and data.endswith(_MAGIC)


def read_table(file: InputFile) -> dict[bytes, bytes]:
    """Return all keys with their values; raises TfprofInputError."""
    data = file.data
    if not is_table(data):
        raise file.damaged(0, "it does not end as the table of a checkpoint does")
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
    """Return a block without its trailer; `body` is where the footer starts."""
    if offset + size + _TRAILER > body:
        raise file.damaged(offset, f"a block of {size} bytes at byte {offset} of {body}")
    stop = offset + size
    compression, stored = file.data[stop], int.from_bytes(file.data[stop + 1 : stop + _TRAILER], "little")
    if masked(crc32c(file.data[offset : stop + 1])) != stored:
        raise file.damaged(offset, f"the checksum of the block at byte {offset} is wrong")
    if compression:
        raise _compressed(file, compression)
    return file.data[offset:stop]


def _compressed(file: InputFile, compression: int) -> TfprofInputError:
    name = _COMPRESSIONS.get(compression, f"method {compression}")
    return file.refused(
        f"is compressed ({name}), which tfperf cannot read; TensorFlow writes checkpoints without compression: load it "
        "there and save it again"
    )


def _entries(file: InputFile, block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Iterate over the keys of a block, whole, and their values."""
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
    """Return offset and size of a block, and where their text ends."""
    offset, at = _varint(file, data, at)
    size, at = _varint(file, data, at)
    return (offset, size), at


def _varint(file: InputFile, data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise file.damaged(at, "a number that does not end")
