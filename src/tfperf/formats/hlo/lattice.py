"""How often a sliding window meets real elements: what a convolution multiplies, since XLA counts no padding."""

from __future__ import annotations

import math

from tfperf.formats.hlo.model import WindowDim

_MOST_RESIDUES = 64


def valid_pairs(size: int, window: int, output: int, dim: WindowDim) -> int | None:
    """Count the pairs of a place of the window and one of the output that meet an element of the input.

    In dilated coordinates, place k of the window meets position `o * stride + k * window_dilation - low` when it
    computes output o. That is an element if it is a multiple of the base dilation, and one of `size` elements. None:
    the window has a large stride and a large base dilation, which no program has; the count would take too long.
    """
    stride, dilation, base = dim.stride, dim.window_dilation, dim.base_dilation
    if min(stride, dilation, base) < 1 or min(size, window, output) < 1:
        return 0
    if base == 1:
        return _pairs(window, output, dilation, stride, dim.low, size)
    if stride == 1:
        # Solved for the output: with the window backwards, elements of the input take the place of outputs.
        return _pairs(window, size, dilation, base, dilation * (window - 1) - dim.low, output)
    if base > _MOST_RESIDUES:
        return None
    # Places of the window by their remainder, which says at which outputs they may meet an element.
    apart = math.gcd(stride, base)
    step = base // apart
    total = 0
    for first in range(min(base, window)):
        ahead = first * dilation - dim.low
        if ahead % apart:
            continue
        start = -(ahead // apart) * pow(stride // apart, -1, step) % step
        places, outputs = -(-(window - first) // base), max(-(-(output - start) // step), 0)
        total += _pairs(places, outputs, dilation * base, stride * step, -ahead - start * stride, size * base)
    return total


def _pairs(columns: int, rows: int, across: int, down: int, low: int, size: int) -> int:
    """Count the k below `columns` and o below `rows` with 0 <= o * down + k * across - low < size."""
    return _below(columns, rows, across, down, low + size) - _below(columns, rows, across, down, low)


def _below(columns: int, rows: int, across: int, down: int, limit: int) -> int:
    """Count the k below `columns` and o below `rows` with o * down + k * across < limit."""
    full = min(max((limit - 1 - (rows - 1) * down) // across + 1, 0), columns)
    some = min(max((limit - 1) // across + 1, 0), columns)
    count = some - full
    if count <= 0:
        return rows * full
    # For the last of these columns first, so that the floor of a rising line is added up.
    lowest = limit - 1 - (some - 1) * across
    return rows * full + _floor_sum(count, down, across, lowest) + count


def _floor_sum(count: int, divisor: int, slope: int, start: int) -> int:
    """Return the sum of (start + slope * i) // divisor for i below `count`; none of them is negative."""
    total = 0
    while count:
        total += (count - 1) * count // 2 * (slope // divisor) + count * (start // divisor)
        slope, start = slope % divisor, start % divisor
        top = slope * count + start
        count, start, divisor, slope = top // divisor, top % divisor, slope, divisor
    return total
