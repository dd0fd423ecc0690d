"""Rules about slices and concatenations: pieces that do not end where tiles end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from tfperf.models.linter.graph_rules.convolutions import usual_batch
from tfperf.models.linter.op_graph import OPEN, OpGraph
from tfperf.models.linter.padding import LANES, MIB, SUBLANES, Dims, both_orders, convolution_multiples, shape_text
from tfperf.models.linter.rule import Ledger, Violation

_SLICES = frozenset(("Slice", "StridedSlice"))
_SPLITS = frozenset(("Split", "SplitV"))
_CONCATS = frozenset(("ConcatV2",))
_COMPUTED = "where it cuts is computed"
_DIMENSIONS_OF_IMAGES = 4
_MOST_PIECES = 1 << 10


class Cut(NamedTuple):
    """Where a tensor is cut, or put together: the whole, the dimension, and the places between its pieces."""

    whole: Dims
    axis: int
    boundaries: tuple[int, ...]


def check_pieces(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-CS-1 and TPU-CS-2: cuts along padded dimensions, and pieces that are cut and put together for nothing."""
    batch, _ = usual_batch(graph)
    for index in graph.of(_SLICES, _SPLITS, _CONCATS):
        name = graph.name_of(index)
        whole = graph.shape(index) if graph.op(index) in _CONCATS else graph.input_shape(index, _value_at(graph, index))
        if whole is not None and (len(whole) < 2 or graph.op(_value_source(graph, index)) in ("Shape", "ShapeN")):
            continue
        if whole is None or -1 in whole:
            ledger.cannot(name, OPEN)
            continue
        cuts = _cuts(graph, index, whole)
        if cuts is None:
            ledger.cannot(name, _COMPUTED)
            continue
        ledger.judge(name)
        _check_needless(graph, ledger, index)
        for cut in cuts:
            multiple = _multiple(cut, batch)
            if any(place % multiple for place in cut.boundaries):
                ledger.add(_unaligned(graph, index, cut, multiple))


def _value_at(graph: OpGraph, index: int) -> int:
    return 1 if graph.op(index) == "Split" else 0


def _value_source(graph: OpGraph, index: int) -> int:
    return graph.source(index, _value_at(graph, index))


def _cuts(graph: OpGraph, index: int, whole: Dims) -> list[Cut] | None:
    """Return where an op cuts, along each dimension; None if that is not in the graph."""
    op = graph.op(index)
    if op in _CONCATS:
        return _of_concat(graph, index, whole)
    if op in _SPLITS:
        axes = graph.constant_input(index, 0 if op == "Split" else 2)
        sizes = graph.constant_input(index, 1) if op == "SplitV" else None
        if not axes or (op == "SplitV" and sizes is None):
            return None
        axis = axes[0] % len(whole)
        count = max(graph.number(index, "num_split"), 1)
        if count > _MOST_PIECES:
            return None
        pieces = [whole[axis] // count] * count if sizes is None else [size for size in sizes if size >= 0]
        return [Cut(whole, axis, tuple(accumulate(pieces))[:-1])]
    bounds = _bounds(graph, index, whole)
    return (
        None
        if bounds is None
        else [
            Cut(whole, axis, tuple(place for place in (begin, end) if 0 < place < whole[axis]))
            for axis, (begin, end) in enumerate(bounds)
            if (begin, end) != (0, whole[axis])
        ]
    )


def _of_concat(graph: OpGraph, index: int, whole: Dims) -> list[Cut] | None:
    places = range(len(graph.nodes[index].inputs) - 1)
    axes = graph.constant_input(index, len(places))
    graph.follow(len(places))
    shapes = [graph.input_shape(index, place) for place in places]
    if not axes or any(dims is None or len(dims) != len(whole) for dims in shapes):
        return None
    axis = axes[0] % len(whole)
    sizes = [dims[axis] for dims in shapes if dims is not None]
    return None if -1 in sizes else [Cut(whole, axis, tuple(accumulate(sizes))[:-1])]


def _bounds(graph: OpGraph, index: int, whole: Dims) -> list[tuple[int, int]] | None:
    """Return first element and end along each dimension that a slice takes; None if they are computed."""
    first, second = graph.constant_input(index, 1), graph.constant_input(index, 2)
    if first is None or second is None:
        return None
    if graph.op(index) == "Slice":
        if len(first) != len(whole) or len(second) != len(whole):
            return None
        ends = [
            size if length < 0 else begin + length for begin, length, size in zip(first, second, whole, strict=True)
        ]
        return list(zip(first, ends, strict=True))
    return _strided_bounds(graph, index, whole, first, second)


def _strided_bounds(
    graph: OpGraph, index: int, whole: Dims, begins: Sequence[int], ends: Sequence[int]
) -> list[tuple[int, int]] | None:
    masks = {
        name: graph.number(index, f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    strides = graph.constant_input(index, 3)
    if strides is None or any(stride < 1 for stride in strides) or len(begins) != len(ends):
        return None
    added = [place for place in range(len(begins)) if masks["new_axis"] >> place & 1]
    bounds: list[tuple[int, int]] = []
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if place in added:
            continue
        if masks["ellipsis"] >> place & 1:
            after = len(begins) - place - 1 - sum(other > place for other in added)
            bounds += [(0, size) for size in whole[len(bounds) : len(whole) - after]]
            continue
        if len(bounds) == len(whole):
            return None
        size = whole[len(bounds)]
        low = 0 if masks["begin"] >> place & 1 else begin + size * (begin < 0)
        high = size if masks["end"] >> place & 1 else end + size * (end < 0)
        if masks["shrink_axis"] >> place & 1:
            low = begin + size * (begin < 0)
            high = low + 1
        bounds.append((max(low, 0), min(high, size)))
    return bounds + [(0, size) for size in whole[len(bounds) :]]


def _multiple(cut: Cut, batch: int) -> int:
    """Return the multiple that a dimension is padded to; 1 for one that is not padded."""
    rank = len(cut.whole)
    if batch and rank == _DIMENSIONS_OF_IMAGES:
        batch_multiple, feature_multiple = convolution_multiples(batch)
        return {0: batch_multiple, rank - 1: feature_multiple}.get(cut.axis, 1)
    return {rank - 2: SUBLANES, rank - 1: LANES}.get(cut.axis, 1)


def _unaligned(graph: OpGraph, index: int, cut: Cut, multiple: int) -> Violation:
    moved = both_orders("", cut.whole, graph.element_bytes(index)).padded_bytes
    places = ", ".join(map(str, cut.boundaries[:4]))
    return Violation(
        rule="TPU-CS-1",
        level="medium" if moved >= MIB else "info",
        ops=(graph.name_of(index),),
        op_type=graph.op(index),
        what=(
            f"{shape_text(cut.whole)} is cut along dimension {cut.axis} at {places}, no multiple of {multiple}: "
            "all that is behind moves within its tiles"
        ),
        advice=f"cut along a dimension that is not padded, or at multiples of {multiple}",
        unless="the compiler fuses the cut into what reads it",
        moved_bytes=moved,
    )


def _check_needless(graph: OpGraph, ledger: Ledger, index: int) -> None:
    why = ""
    if graph.op(index) in _CONCATS:
        why = _needless_concat(graph, index)
    elif graph.op(index) in _SLICES and graph.op(graph.source(index, 0)) in _CONCATS:
        why = _piece_of_concat(graph, index, graph.source(index, 0))
    if why:
        ledger.add(
            Violation(
                rule="TPU-CS-2",
                level="medium",
                ops=(graph.name_of(index),),
                op_type=graph.op(index),
                what=why,
                advice="remove it, and use the tensor that is there already",
                unless="the pieces between are changed by code that the graph does not show",
                moved_bytes=2 * both_orders("", dims, graph.element_bytes(index)).padded_bytes
                if (dims := graph.known(index)) is not None and len(dims) > 1
                else 0,
            )
        )


def _needless_concat(graph: OpGraph, index: int) -> str:
    count = len(graph.nodes[index].inputs) - 1
    if count == 1:
        return "a concatenation of one tensor"
    sources = [graph.source(index, place) for place in range(count)]
    whole = graph.known(index)
    cuts = _cuts(graph, index, whole) if whole else None
    if not cuts or whole is None or any(graph.op(source) not in _SLICES for source in sources):
        return ""
    if len({graph.source(source, 0) for source in sources}) > 1 or graph.shape(graph.source(sources[0], 0)) != whole:
        return ""
    places = (0, *cuts[0].boundaries, whole[cuts[0].axis])
    for source, begin, end in zip(sources, places, places[1:], strict=False):
        bounds = _bounds(graph, source, whole)
        expected = [(begin, end) if axis == cuts[0].axis else (0, size) for axis, size in enumerate(whole)]
        if bounds != expected:
            return ""
    return f"{count} slices of {graph.name_of(graph.source(sources[0], 0))} are put together as they were"


def _piece_of_concat(graph: OpGraph, index: int, concat: int) -> str:
    whole = graph.known(concat)
    cuts = _cuts(graph, concat, whole) if whole else None
    bounds = _bounds(graph, index, whole) if whole else None
    if not cuts or bounds is None or whole is None:
        return ""
    axis, places = cuts[0].axis, (0, *cuts[0].boundaries, whole[cuts[0].axis])
    sizes = zip(bounds, whole, strict=True)
    others_whole = all(bound == (0, size) for at, (bound, size) in enumerate(sizes) if at != axis)
    if others_whole and bounds[axis] in pairwise(places) and bounds[axis] != (0, whole[axis]):
        return f"it takes out again what {graph.name_of(concat)} put in"
    return ""
