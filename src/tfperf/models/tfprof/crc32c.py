"""CRC-32C (Castagnoli), the checksum of TensorFlow's tables and tensors, computed with numpy."""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78
_ALL = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
_SEED_BYTES = 4
_FEW = 1 << 11
"""Bytes that are done one after the other."""

_States = npt.NDArray[np.uint32]


def crc32c(data: bytes, before: int = 0) -> int:
    """Return the checksum of `data`, behind bytes whose checksum is `before`.

    The bytes are cut into rows of equal length, which are advanced together, two bytes at a time; zeros in front change
    nothing.
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
    """Return a checksum as it is stored among the bytes that it is of."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ALL


@cache
def _byte_table() -> list[int]:
    """Return for each byte what becomes of it behind eight bits."""
    table: list[int] = _shifted(np.arange(1 << 8, dtype=np.uint32), 8).tolist()
    return table


@cache
def _table() -> _States:
    """Return for each two bytes what becomes of them behind sixteen bits."""
    return _shifted(np.arange(1 << 16, dtype=np.uint32), 16)


def _shifted(states: _States, bits: int) -> _States:
    one = np.uint32(1)
    for _ in range(bits):
        states = (states >> one) ^ (states & one) * np.uint32(_POLYNOMIAL)
    return states


@lru_cache(4)
def _behind_zeros(count: int) -> tuple[list[int], list[int]]:
    """Return for each half of a state what becomes of it behind `count` times two zeros; the halves join by xor."""
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
