from __future__ import annotations

import random

import pytest

from tfperf.formats.models.checkpoint import crc32c, masked


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
