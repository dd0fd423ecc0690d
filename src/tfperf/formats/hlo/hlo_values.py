"""Values in the text of a program: shapes, and what stands behind an instruction. All raise ValueError for others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tfperf.formats.hlo.model import BITS, MOST_DIMS, MOST_LEVELS, UNKNOWN, ConvolutionDims, Shape, WindowDim

STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
"""A quoted text. A pattern that fails must not try it again in other ways: texts may be megabytes long."""
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([^\]\n]*)\](?:\{([^{}\n]*)\})?")
_LAYOUT = re.compile(r"([\d,\s]*)(?::((?:[A-Z](?:\([^()]*\))+)*))?")
_LAYOUT_PART = re.compile(r"([A-Z])((?:\([^()]*\))+)")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?\d+")
_LONGEST_NUMBER = 20
_SLICE = re.compile(r"\[\s*(\d{1,19})\s*:\s*(\d{1,19})\s*(?::\s*(\d{1,19})\s*)?\]")
_PAIR = re.compile(rf"(?<![\w-])([\w-]+)=({STRING}|\{{[^{{}}]*\}}|[^\s{{}},]+)")
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_LABELS = re.compile(r"([\dbf?]+)_([\dio?]+)->([\dbf?]+)")
_ANY_SIZE = -(1 << 63)
"""How XLA stores the `*` of a tile: it joins two dimensions."""


class Shapes:
    """Reads shapes; arrays of the same text are the same object."""

    def __init__(self) -> None:
        self._known: dict[str, Shape] = {}

    def at(self, text: str, start: int) -> tuple[Shape, int]:
        """Return the shape that begins there, and where it ends."""
        open_parts: list[list[Shape]] = []
        while True:
            start = _SPACE.match(text, start).end()  # type: ignore[union-attr]
            if text.startswith("(", start):
                if len(open_parts) > MOST_LEVELS:
                    raise ValueError("a shape is nested too deep")
                open_parts.append([])
                start += 1
                continue
            if open_parts and text.startswith(")", start):
                shape, start = Shape("tuple", parts=tuple(open_parts.pop())), start + 1
            else:
                found = _ARRAY.match(text, start)
                if not found:
                    raise ValueError("expected a shape")
                shape, start = self._array(found), found.end()
            if not open_parts:
                return shape, start
            open_parts[-1].append(shape)
            start = _SPACE.match(text, start).end()  # type: ignore[union-attr]
            start += text.startswith(",", start)

    def _array(self, found: re.Match[str]) -> Shape:
        text = found[0]
        if text not in self._known:
            self._known[text] = _array(found[1], found[2], found[3])
        return self._known[text]


def _array(kind: str, dims: str, layout: str | None) -> Shape:
    if kind not in BITS:
        raise ValueError(f"the element type {kind[:40]!r} is not known to tfperf")
    sizes, dynamic = [], []
    for dim in filter(None, (part.strip() for part in dims.split(","))):
        dynamic.append(dim.startswith("<="))
        size = dim.removeprefix("<=")
        sizes.append(UNKNOWN if size == "?" else _size(size))
    if len(sizes) > MOST_DIMS:
        raise ValueError(f"a shape has {len(sizes)} dimensions")
    bounds = tuple(dynamic) if any(dynamic) and UNKNOWN not in sizes else ()
    parsed = _LAYOUT.fullmatch(layout or "")
    if not parsed:
        raise ValueError("expected a layout such as {1,0:T(8,128)}")
    parts = dict(_LAYOUT_PART.findall(parsed[2] or ""))
    tiles = tuple(tuple(map(_tile_size, tile.split(","))) for tile in re.findall(r"\(([^()]*)\)", parts.get("T", "")))
    bits, space = (_size(parts[key].strip("()")) if key in parts else 0 for key in "ES")
    if bits > 128:
        raise ValueError(f"an element of a shape takes {bits} bits")
    return Shape(kind, tuple(sizes), numbers(parsed[1]), tiles, space, bits, (), bounds)


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{text[:40]!r} is not a size")
    return int(text)


def _tile_size(text: str) -> int:
    return _ANY_SIZE if text.strip() == "*" else _size(text.strip())


def numbers(text: str) -> tuple[int, ...]:
    """Return all whole numbers in a text such as `{0,1}`."""
    found = _NUMBER.findall(text)
    if found and len(max(found, key=len)) > _LONGEST_NUMBER:
        raise ValueError("a number is too long")
    return tuple(map(int, found))


def number(text: str) -> int:
    """Return the only number of a text."""
    (found,) = numbers(text)
    return found


def plain(text: str) -> str:
    """Return what a quoted text says, or the text itself if it is not quoted."""
    if not text.startswith('"'):
        return text
    inside = text[1:-1]
    return _ESCAPE.sub(_escaped, inside) if "\\" in inside else inside


def _escaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code, 8)) if code.isdigit() and len(code) == 3 else _ESCAPED.get(code, code)


def pairs(text: str) -> dict[str, str]:
    """Return the pairs of `{size=3x3 pad=1_1x1_1}`, texts without their quotes."""
    return {key: plain(value) for key, value in _PAIR.findall(text)}


def slices(text: str) -> tuple[tuple[int, int, int], ...]:
    """Return start, limit and stride of each dimension: `{[0:64], [0:1000:2]}`."""
    return tuple((int(start), int(limit), int(stride or 1)) for start, limit, stride in _SLICE.findall(text))


def paddings(text: str) -> tuple[tuple[int, int, int], ...]:
    """Return low, high and inner padding of each dimension: `0_0x0_24_1`."""
    found = []
    for dim in text.split("x"):
        low, high, *inner = map(int, dim.split("_"))
        found.append((low, high, inner[0] if inner else 0))
    return tuple(found)


def window(text: str) -> tuple[WindowDim, ...]:
    """Return the dimensions of `{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=2x2 rhs_dilate=2x2 rhs_reversal=1x1}`."""
    found = pairs(text)
    sizes = [_size(size) for size in found.get("size", "").split("x") if size]

    def column(key: str, usual: str) -> list[str]:
        values = found[key].split("x") if key in found else [usual] * len(sizes)
        if len(values) != len(sizes):
            raise ValueError(f"{key} of a window has another number of dimensions than its size")
        return values

    padding = [tuple(map(int, each.split("_"))) for each in column("pad", "0_0")]
    if any(len(each) != 2 for each in padding):
        raise ValueError("expected the padding of a window such as 1_1x1_1")
    strides, dilations, bases = (column(key, "1") for key in ("stride", "rhs_dilate", "lhs_dilate"))
    return tuple(
        WindowDim(size, _size(stride), low, high, _size(dilation), _size(base), backwards == "1")
        for size, stride, (low, high), dilation, base, backwards in zip(
            sizes, strides, padding, dilations, bases, column("rhs_reversal", "0"), strict=True
        )
    )


def convolution(text: str) -> ConvolutionDims:
    """Return which dimension is what: `b01f_01io->b01f`."""
    found = _LABELS.fullmatch(text)
    if not found:
        raise ValueError("expected labels of dimensions such as b01f_01io->b01f")
    (batch, feature, places), (inputs, outputs, window_places), (made, made_feature, made_places) = (
        (labels.index(one), labels.index(other), _spatial(labels))
        for labels, one, other in zip(found.groups(), "bib", "fof", strict=True)
    )
    return ConvolutionDims(
        batch, feature, places, inputs, outputs, window_places, made, made_feature, made_places
    )  # fmt: skip


def _spatial(labels: str) -> tuple[int, ...]:
    found = sorted((label, at) for at, label in enumerate(labels) if label.isdigit())
    if [label for label, _ in found] != [str(at) for at in range(len(found))]:
        raise ValueError("the labels of spatial dimensions are 0, 1, 2, ..., each once")
    return tuple(at for _, at in found)


def distribution(text: str) -> str:
    """Return `uniform` for `rng_uniform`."""
    return text.removeprefix("rng_")


Convert = Callable[[str], Any]
FIELDS: dict[str, tuple[str, Convert]] = {
    "dimensions": ("dimensions", numbers),
    "iota_dimension": ("dimensions", numbers),
    "window": ("window", window),
    "dim_labels": ("convolution", convolution),
    "feature_group_count": ("feature_groups", number),
    "batch_group_count": ("batch_groups", number),
    "slice": ("slices", slices),
    "padding": ("padding", paddings),
    "dynamic_slice_sizes": ("slice_sizes", numbers),
    "slice_sizes": ("slice_sizes", numbers),
    "fft_length": ("fft_length", numbers),
    "index": ("tuple_index", number),
    "direction": ("direction", plain),
    "distribution": ("distribution", distribution),
    "kind": ("fusion_kind", plain),
    "custom_call_target": ("target", plain),
    "backend_config": ("backend_config", plain),
}
"""Attribute in the text -> field of an `Instruction`, and what reads it."""
CALLS = (
    "to_apply", "calls", "body", "condition", "select", "scatter", "true_computation", "false_computation",
    "branch_computations", "called_computations", "called_computation",
)  # fmt: skip
"""Attributes that name computations, in the order in which XLA stores them."""
DOT = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")
