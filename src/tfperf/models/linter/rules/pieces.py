"""Slices and concatenations: pieces that are not aligned to tiles, and unnecessary pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from tfperf.formats.models.dtypes import Dims, shape_text
from tfperf.formats.models.op_graph import FOLLOWED, OpGraph
from tfperf.models.linter.graph import OPEN, place
from tfperf.models.linter.padding import LANES, MIB, SUBLANES, Level, both_orders, convolution_multiples
from tfperf.models.linter.program import Place
from tfperf.models.linter.rule import BOTH, TPU_NOTES, Ledger, Rule, Topic
from tfperf.models.linter.rules.convolutions import usual_batch

UNALIGNED = Rule(
    id="TPU-CS-1",
    title="Cut along a padded dimension",
    device="tpu",
    level="medium, info",
    reads=BOTH,
    when="a slice, split or concatenation has a boundary in a padded dimension that is not a multiple of its padding",
    advice="cut along a dimension that is not padded, or at multiples",
    unless="the compiler fuses the cut into its reader",
    says="Slices and concatenations in padded dimensions are expensive.",
    source=TPU_NOTES,
)
NEEDLESS = Rule(
    id="TPU-CS-2",
    title="Needless slice, split or concatenation",
    device="tpu",
    level="medium, low",
    reads=("graph",),
    when=(
        "slices of a tensor are concatenated in the same order, or a slice extracts an input of a concatenation; low: "
        "the same with all pieces of a split"
    ),
    advice="use the existing tensor",
    unless="XLA removes them itself, as it does with adjacent slices: check the compiled program",
    says="Avoid unnecessary slices and concatenations.",
    source=TPU_NOTES,
)
_SLICES = frozenset(("Slice", "StridedSlice"))
_SPLITS = frozenset(("Split", "SplitV"))
_CONCATS = frozenset(("ConcatV2",))
_DIMENSIONS_OF_IMAGES = 4
_MOST_PIECES = 1 << 10


class Cut(NamedTuple):
    """A split or concatenation: the whole, the dimension, and the boundaries between its pieces."""

    whole: Dims
    axis: int
    boundaries: tuple[int, ...]


def _check_pieces(graph: OpGraph, ledger: Ledger) -> None:
    batch, _ = usual_batch(graph)
    for index in graph.of(_SLICES, _SPLITS, _CONCATS):
        name, value = graph.name_of(index), int(graph.op(index) == "Split")
        whole = graph.shape(index) if graph.op(index) in _CONCATS else graph.input_shape(index, value)
        if whole is not None and (len(whole) < 2 or graph.op(graph.source(index, value)) in ("Shape", "ShapeN")):
            continue
        if whole is None or -1 in whole:
            ledger.cannot(name, OPEN)
            continue
        cuts = _cuts(graph, index, whole)
        if cuts is None:
            ledger.cannot(name, "the boundary is computed at run time")
            continue
        ledger.judge(name)
        _check_needless(graph, ledger, index)
        # Only these dimensions are padded.
        rank = len(whole)
        multiples = {rank - 2: SUBLANES, rank - 1: LANES}
        if batch and rank == _DIMENSIONS_OF_IMAGES:
            multiples = dict(zip((0, rank - 1), convolution_multiples(batch), strict=True))
        for cut in cuts:
            multiple = multiples.get(cut.axis, 1)
            if any(at % multiple for at in cut.boundaries):
                moved = both_orders("", cut.whole, graph.element_bytes(index)).padded_bytes
                what = (
                    f"{shape_text(cut.whole)} is cut along dimension {cut.axis} at "
                    f"{', '.join(map(str, cut.boundaries[:4]))}, not a multiple of {multiple}: all later elements "
                    "move within their tiles"
                )
                level: Level = "medium" if moved >= MIB else "info"
                advice = f"{UNALIGNED.advice} of {multiple}"
                ledger.add(UNALIGNED.found(place(graph, index), level, what, advice=advice, moved_bytes=moved))


def _cuts(graph: OpGraph, index: int, whole: Dims) -> list[Cut] | None:
    """Return the cuts of an op along each dimension; None if they are not in the graph."""
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
    if bounds is None:
        return None
    return [
        Cut(whole, axis, tuple(at for at in (begin, end) if 0 < at < whole[axis]))
        for axis, (begin, end) in enumerate(bounds)
        if (begin, end) != (0, whole[axis])
    ]


def _of_concat(graph: OpGraph, index: int, whole: Dims) -> list[Cut] | None:
    places = range(len(graph.nodes[index].inputs) - 1)
    axes = graph.constant_input(index, len(places))
    graph.follow(len(places))
    shapes = [graph.input_shape(index, at) for at in places]
    if not axes or any(dims is None or len(dims) != len(whole) for dims in shapes):
        return None
    axis = axes[0] % len(whole)
    sizes = [dims[axis] for dims in shapes if dims is not None]
    return None if -1 in sizes else [Cut(whole, axis, tuple(accumulate(sizes))[:-1])]


def _bounds(graph: OpGraph, index: int, whole: Dims) -> list[tuple[int, int]] | None:
    """Return start and end of a slice along each dimension; None if they are computed."""
    first, second = graph.constant_input(index, 1), graph.constant_input(index, 2)
    if first is None or second is None:
        return None
    if graph.op(index) != "Slice":
        return _strided_bounds(graph, index, whole, first, second)
    if len(first) != len(whole) or len(second) != len(whole):
        return None
    return [
        (begin, size if length < 0 else begin + length)
        for begin, length, size in zip(first, second, whole, strict=True)
    ]


def _strided_bounds(
    graph: OpGraph, index: int, whole: Dims, begins: Sequence[int], ends: Sequence[int]
) -> list[tuple[int, int]] | None:
    masks = {
        name: graph.number(index, f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    strides = graph.constant_input(index, 3)
    if strides is None or any(stride < 1 for stride in strides) or len(begins) != len(ends):
        return None
    added = [at for at in range(len(begins)) if masks["new_axis"] >> at & 1]
    bounds: list[tuple[int, int]] = []
    for at, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if at in added:
            continue
        if masks["ellipsis"] >> at & 1:
            after = len(begins) - at - 1 - sum(other > at for other in added)
            bounds += [(0, size) for size in whole[len(bounds) : len(whole) - after]]
            continue
        if len(bounds) == len(whole):
            return None
        size = whole[len(bounds)]
        low = 0 if masks["begin"] >> at & 1 else begin + size * (begin < 0)
        high = size if masks["end"] >> at & 1 else end + size * (end < 0)
        if masks["shrink_axis"] >> at & 1:
            low = begin + size * (begin < 0)
            high = low + 1
        bounds.append((max(low, 0), min(high, size)))
    return bounds + [(0, size) for size in whole[len(bounds) :]]


def _check_needless(graph: OpGraph, ledger: Ledger, index: int) -> None:
    why: str = ""
    level: Level = "medium"
    if graph.op(index) in _CONCATS:
        why = _needless_concat(graph, index)
        if not why and (why := _joined_split(graph, index)):
            level = "low"
    elif graph.op(index) in _SPLITS:
        concat = graph.source(index, int(graph.op(index) == "Split"))
        whole = graph.known(concat) if concat >= 0 and graph.op(concat) in _CONCATS else None
        if whole is not None and (cuts := _cuts(graph, concat, whole)) and _cuts(graph, index, whole) == cuts:
            why, level = f"it splits {graph.name_of(concat)} into its inputs", "low"
    elif graph.op(index) in _SLICES and graph.op(graph.source(index, 0)) in _CONCATS:
        why = _piece_of_concat(graph, index, graph.source(index, 0))
    if why:
        dims = graph.known(index)
        is_matrix = dims is not None and len(dims) > 1
        moved = 2 * both_orders("", dims or (), graph.element_bytes(index)).padded_bytes if is_matrix else 0
        advice = f"remove it, and {NEEDLESS.advice}"
        ledger.add(NEEDLESS.found(place(graph, index), level, why, advice=advice, moved_bytes=moved))


def _joined_split(graph: OpGraph, index: int) -> str:
    """Return why a concatenation of all pieces of a split, in their order, is needless; empty otherwise."""
    pieces = []
    for source, slot in graph.nodes[index].inputs[:-1]:
        while graph.op(source) in FOLLOWED and graph.nodes[source].inputs:
            source, slot = graph.nodes[source].inputs[0]
            graph.follow(1)
        pieces.append((source, slot))
    split, whole = pieces[0][0], graph.known(index)
    if graph.op(split) not in _SPLITS or whole is None or pieces != [(split, slot) for slot in range(len(pieces))]:
        return ""
    given = graph.input_shape(split, int(graph.op(split) == "Split"))
    if given != whole or _cuts(graph, split, whole) != _cuts(graph, index, whole):
        return ""
    return f"all {len(pieces)} pieces of {graph.name_of(split)} are concatenated in the same order"


def _needless_concat(graph: OpGraph, index: int) -> str:
    count = len(graph.nodes[index].inputs) - 1
    if count == 1:
        return "a concatenation of one tensor"
    sources = [graph.source(index, at) for at in range(count)]
    whole = graph.known(index)
    cuts = _cuts(graph, index, whole) if whole else None
    if not cuts or whole is None or any(graph.op(source) not in _SLICES for source in sources):
        return ""
    if len({graph.source(source, 0) for source in sources}) > 1 or graph.shape(graph.source(sources[0], 0)) != whole:
        return ""
    places = (0, *cuts[0].boundaries, whole[cuts[0].axis])
    for source, begin, end in zip(sources, places, places[1:], strict=False):
        expected = [(begin, end) if axis == cuts[0].axis else (0, size) for axis, size in enumerate(whole)]
        if _bounds(graph, source, whole) != expected:
            return ""
    return f"{count} slices of {graph.name_of(graph.source(sources[0], 0))} are concatenated in the same order"


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
        return f"it extracts an input of {graph.name_of(concat)}"
    return ""


def _check_instruction(at: Place, ledger: Ledger) -> None:
    """Check cuts of at least 1 MiB that come from the program, along a padded dimension."""
    whole = at.instruction.shape if at.instruction.opcode == "concatenate" else at.operand(0)
    if not at.name or whole is None or whole.is_tuple or whole.bytes < MIB:
        return
    ledger.judge(at.instruction.name)
    multiples = {len(whole.dims) - 2: SUBLANES, len(whole.dims) - 1: LANES}
    for axis, boundary in _boundaries(at):
        multiple = multiples.get(axis, 1)
        if boundary % multiple:
            what = f"{whole} is cut along dimension {axis} at {boundary}, not a multiple of {multiple}"
            advice = f"{UNALIGNED.advice} of {multiple}"
            ledger.add(UNALIGNED.found(at.where, "medium", what, advice=advice, moved_bytes=whole.bytes))
            return


def _boundaries(at: Place) -> Iterator[tuple[int, int]]:
    """Yield dimensions with the boundaries along them."""
    instruction = at.instruction
    if instruction.opcode == "concatenate" and instruction.dimensions:
        axis, end = instruction.dimensions[0], 0
        for number in range(len(at.node.operands) - 1):
            piece = at.operand(number)
            if piece is None or axis >= len(piece.dims):
                return
            end += piece.dims[axis]
            yield axis, end
        return
    whole = at.operand(0)
    for axis, (start, limit, _) in enumerate(instruction.slices):
        if whole is not None and axis < len(whole.dims):
            yield from ((axis, edge) for edge in (start, limit) if 0 < edge < whole.dims[axis])


TOPIC = Topic(
    rules=(UNALIGNED, NEEDLESS),
    check_graph=(_check_pieces,),
    check_program=dict.fromkeys(("concatenate", "slice", "dynamic-slice"), _check_instruction),
)
