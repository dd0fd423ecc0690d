from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from checkpoint_builders import MAGIC, block, table, with_trailer
from hypothesis import given
from hypothesis import strategies as st
from protobytes import varint

from tfperf.formats.models.checkpoint import crc32c, is_table, masked, read_table
from tfperf.formats.models.input_file import InputFile, TfprofInputError

REAL = Path(__file__).parent / "checkpoints" / "model.ckpt.index"


def input_file(folder: Path, data: bytes) -> InputFile:
    (folder / "x.index").write_bytes(data)
    return InputFile(folder / "x.index", "checkpoint")


def read(folder: Path, data: bytes) -> dict[bytes, bytes]:
    return read_table(input_file(folder, data))


def refusal(folder: Path, data: bytes) -> str:
    with pytest.raises(TfprofInputError) as error:
        read(folder, data)
    text = str(error.value)
    assert "\n" not in text
    return text


def test_keys_and_values_of_all_blocks_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, table(block({b"": b"h", b"a": b"1"}), block({b"b": b"2"}, restarts=2))) == {
        b"": b"h",
        b"a": b"1",
        b"b": b"2",
    }


def test_keys_share_what_they_start_with(tmp_path: Path) -> None:
    entries = b"\0\x03\x01abcX" + b"\x02\x01\x01dY" + b"\x03\x00\x00"
    with pytest.raises(TfprofInputError, match="not in order"):
        read(tmp_path, table(entries + bytes(4) + b"\1\0\0\0"))
    entries = b"\0\x03\x01abcX" + b"\x02\x01\x01dY" + b"\x03\x01\x00e"
    assert read(tmp_path, table(entries + bytes(4) + b"\1\0\0\0")) == {b"abc": b"X", b"abd": b"Y", b"abde": b""}


def test_a_table_of_tensorflow_is_read() -> None:
    assert is_table(REAL.read_bytes())
    names = [key for key in read_table(InputFile(REAL, "checkpoint")) if not key.startswith(b"\0")]
    assert names[:4] == [b"", b"a/bias", b"a/bias/Adam", b"a/bias/Adam_1"]


@pytest.mark.parametrize(("method", "name"), [(1, "snappy"), (4, "zstd"), (9, "method 9")])
def test_a_compressed_block_is_one_clear_error(tmp_path: Path, method: int, name: str) -> None:
    text = refusal(tmp_path, table(block({b"": b""}), compression=method))
    assert f"is compressed ({name}), which tfperf does not support" in text


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the end of the checkpoint table is missing"),
        (MAGIC, "the end of the checkpoint table is missing"),
        (bytes(40) + MAGIC, "a block of 0 bytes at byte 0 of 0"),
        (b"\xff" * 40 + MAGIC, "a truncated number"),
        (varint(0) * 2 + varint(1 << 60) * 2 + bytes(22) + MAGIC, "a block of"),
        (table(b"\0\0"), "restart points"),
        (table(b"\xff\xff\xff\x7f"), "restart points"),
        (table(b"\1\1\1ab" + b"\0\0\0\0"), "longer than its block"),
        (table(b"\0\x7f\1ab" + b"\0\0\0\0"), "longer than its block"),
        (table(b"\0" + varint(1 << 62) + b"\1ab" + b"\0\0\0\0"), "longer than its block"),
        (table(block({b"b": b"", b"a": b""})), "keys that are not in order"),
    ],
)
def test_damage_is_told_in_a_line(tmp_path: Path, data: bytes, why: str) -> None:
    assert why in refusal(tmp_path, data)


def test_a_block_that_is_listed_many_times_is_read_once(tmp_path: Path) -> None:
    body = with_trailer(block({b"a": b""}))
    index = block({bytes([number]): varint(0) + varint(len(body) - 5) for number in range(100)})
    handles = varint(0) * 2 + varint(len(body)) + varint(len(index))
    assert "overlap" in refusal(tmp_path, body + with_trailer(index) + handles.ljust(40, b"\0") + MAGIC)


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path_factory: pytest.TempPathFactory, at: int, bit: int) -> None:
    data, whole = bytearray(REAL.read_bytes()), read_table(InputFile(REAL, "checkpoint"))
    data[at % len(data)] ^= 1 << bit
    with suppress(TfprofInputError):
        assert read(tmp_path_factory.mktemp("flip"), bytes(data)) == whole


@given(st.binary(max_size=200))
def test_any_block_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    with suppress(TfprofInputError):
        assert all(len(key) <= len(data) for key in read(tmp_path_factory.mktemp("any"), table(data)))


def bit_by_bit(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def test_it_is_that_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


@pytest.mark.parametrize("size", [0, 1, 3, 4, 2047, 2048, 2049, 5000, 10_001])
def test_bytes_done_together_have_the_checksum_of_bytes_done_one_by_one(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32c(data) == bit_by_bit(data)


@pytest.mark.parametrize("cut", [0, 1, 3, 2500, 5000])
def test_a_checksum_goes_on_where_it_ended(cut: int) -> None:
    data = random.Random(cut).randbytes(5000)
    assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data)


def test_a_mask_keeps_32_bits() -> None:
    assert masked(0xFFFFFFFF) == 0xA282EAD7
    assert masked(0) == 0xA282EAD8
