"""What each opcode computes and moves: the rules of XLA's own cost analysis, and what is wrong in them for hardware.

Bytes are by default those of all operands and of all results. A tuple that is an operand counts as a table of pointers,
since an instruction does not go through it; one that is a result counts as its arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from msgspec import Struct

from tfperf.formats.hlo.lattice import valid_pairs
from tfperf.formats.hlo.model import POINTER_BYTES, Instruction, ProgramError, Shape


class Work(Struct, frozen=True, gc=False):
    """What is known of the cost of an instruction or computation, and how many instructions of it are not known."""

    flops: int = 0
    transcendentals: int = 0
    bytes: int = 0
    matrix_flops: int = 0
    unknown_flops: int = 0
    unknown_bytes: int = 0

    def times(self, count: int) -> Work:
        """Return this work done so often."""
        moved, matrix = self.bytes * count, self.matrix_flops * count
        unknown = (self.unknown_flops, self.unknown_bytes) if count else (0, 0)
        return Work(self.flops * count, self.transcendentals * count, moved, matrix, *unknown)


UNKNOWN_WORK = Work(unknown_flops=1, unknown_bytes=1)


def total_work(parts: Iterable[Work]) -> Work:
    """Add up."""
    flops = transcendentals = moved = matrix = unknown_flops = unknown_bytes = 0
    for part in parts:
        flops += part.flops
        transcendentals += part.transcendentals
        moved += part.bytes
        matrix += part.matrix_flops
        unknown_flops += part.unknown_flops
        unknown_bytes += part.unknown_bytes
    return Work(flops, transcendentals, moved, matrix, unknown_flops, unknown_bytes)


def largest_work(parts: Iterable[Work]) -> Work:
    """Return the largest of each number."""
    rows = [(p.flops, p.transcendentals, p.bytes, p.matrix_flops, p.unknown_flops, p.unknown_bytes) for p in parts]
    return Work(*map(max, zip(*rows, strict=True)))


class Site(Struct, frozen=True, gc=False):
    """An instruction with what it works on."""

    instruction: Instruction
    operands: tuple[Shape, ...]
    called: tuple[Work, ...]
    """The cost of one run of each computation that it calls."""

    @property
    def shape(self) -> Shape:
        """Return the shape of the result."""
        return self.instruction.shape

    @property
    def first(self) -> Shape:
        """Return the shape of the result, or of the first array in it; raises IndexError if there is none."""
        return self.shape if not self.shape.is_tuple else list(self.shape.leaves())[0]  # noqa: RUF015

    @property
    def operand_bytes(self) -> int:
        """Return what all operands take."""
        return sum(as_operand(shape) for shape in self.operands)

    @property
    def default_bytes(self) -> int:
        """Return what all operands and results take."""
        return self.operand_bytes + self.shape.bytes


def as_operand(shape: Shape) -> int:
    """Return the bytes of a shape, a tuple as a table of pointers."""
    return POINTER_BYTES * len(shape.parts) if shape.is_tuple else shape.bytes


def size_of(shape: Shape, dimension: int) -> int:
    """Return the size of a dimension; raises IndexError if it is not there, also for a negative one."""
    if dimension < 0:
        raise IndexError(dimension)
    return shape.dims[dimension]


Rule = Callable[[Site], Work]


def _moves(site: Site) -> Work:
    return Work(bytes=site.default_bytes)


def _elementwise(site: Site) -> Work:
    return Work(site.shape.elements, bytes=site.default_bytes)


def _transcendental(site: Site) -> Work:
    return Work(transcendentals=site.shape.elements, bytes=site.default_bytes)


def _dot(site: Site) -> Work:
    dims = site.instruction.dot
    if dims is None:
        raise IndexError("no dimension numbers")
    depth = math.prod([size_of(site.operands[0], at) for at in dims.lhs_contracting])
    flops = 2 * site.shape.elements * depth
    return Work(flops, bytes=site.default_bytes, matrix_flops=flops)


def _convolution(site: Site) -> Work:
    flops = convolution_flops(site.instruction, site.operands[0], site.operands[1], site.shape)
    if flops is None:
        return Work(bytes=site.default_bytes, unknown_flops=1)
    return Work(flops, bytes=site.default_bytes, matrix_flops=flops)


def convolution_flops(instruction: Instruction, image: Shape, kernel: Shape, result: Shape) -> int | None:
    """Return the flops of a convolution between these shapes: padding and dilation cost nothing; None: unknown."""
    dims = instruction.convolution
    if dims is None or len(instruction.window) != len(dims.input_spatial):
        raise IndexError("no dimension numbers, or another number of them")
    pairs = 1
    for at, dim in enumerate(instruction.window):
        sizes = (
            size_of(image, dims.input_spatial[at]),
            size_of(kernel, dims.kernel_spatial[at]),
            size_of(result, dims.output_spatial[at]),
        )
        count = valid_pairs(*sizes, dim)
        if count is None:
            return None
        pairs *= count
    channels = size_of(image, dims.input_feature) // max(instruction.feature_groups, 1)
    batch = size_of(image, dims.input_batch) // max(instruction.batch_groups, 1)
    return 2 * channels * size_of(result, dims.output_feature) * batch * pairs


def _repeated(site: Site, count: int, moved: int | None = None) -> Work:
    """Return the work of the first called computation, done so often."""
    inside = site.called[0].times(max(count, 0))
    moved = site.default_bytes if moved is None else moved
    return Work(inside.flops, inside.transcendentals, moved, unknown_flops=inside.unknown_flops)


def _reduce(site: Site) -> Work:
    return _repeated(site, site.operands[0].elements - site.first.elements)


def _map(site: Site) -> Work:
    return _repeated(site, site.shape.elements)


def _reduce_window(site: Site) -> Work:
    window, elements = site.instruction.window, site.first.elements
    count = (math.prod([dim.size for dim in window]) - 1) * elements
    wide = [at for at, dim in enumerate(window) if dim.size != 1]
    padded = [at for at, dim in enumerate(window) if dim.low or dim.high]
    if len(wide) == len(padded) == 1 and not site.shape.is_tuple:
        dim, length = window[wide[0]], size_of(site.shape, wide[0])
        if dim.low and dim.low == dim.high == length - 1 and dim.size == 2 * dim.low + 1:
            count = elements // length + length - 1  # a running sum
    return _repeated(site, count)


def _select_and_scatter(site: Site) -> Work:
    count = site.operands[1].elements
    places = math.prod([dim.size for dim in site.instruction.window])
    inside = total_work((site.called[0].times(max(count * (places - 1), 0)), site.called[1].times(count)))
    return Work(inside.flops, inside.transcendentals, site.default_bytes, unknown_flops=inside.unknown_flops)


def _scatter(site: Site) -> Work:
    arrays = (len(site.operands) - 1) // 2
    updates = site.operands[arrays + 1 :]
    moved = 3 * sum(shape.bytes for shape in updates) + site.operands[arrays].bytes
    return _repeated(site, updates[0].elements, moved)


def _gather(site: Site) -> Work:
    return Work(bytes=2 * site.shape.bytes + site.operands[1].bytes)


def _slice(site: Site) -> Work:
    return Work(bytes=2 * site.shape.bytes)


def _dynamic_update_slice(site: Site) -> Work:
    return Work(bytes=2 * site.operands[1].bytes + site.operands[2].bytes)


def _sort(site: Site) -> Work:
    count = site.operands[0].elements
    return Work(count * (count - 1).bit_length() if count > 1 else 0, bytes=site.default_bytes)


def _fft(site: Site) -> Work:
    levels = math.prod([length.bit_length() - 1 for length in site.instruction.fft_length if length > 0])
    return Work(8 * levels * site.operands[0].elements, bytes=site.default_bytes)


def _cholesky(site: Site) -> Work:
    matrix = site.operands[0]
    return Work(matrix.elements * matrix.dims[-1] // 3, bytes=(matrix.bytes + site.shape.bytes) // 2)


def _triangular_solve(site: Site) -> Work:
    matrix, right = site.operands[0], site.operands[1]
    return Work(2 * matrix.dims[-1] * right.elements, bytes=site.default_bytes - matrix.bytes // 2)


def _tuple(site: Site) -> Work:
    return Work(bytes=as_operand(site.shape))


def _all_reduce(site: Site) -> Work:
    return Work(site.shape.elements, bytes=site.default_bytes)


def _nothing(_: Site) -> Work:
    return Work()


def _copy_start(site: Site) -> Work:
    """Count what is read and written: the result holds its operand, and a state, too."""
    return Work(bytes=2 * site.operand_bytes)


def _start(site: Site) -> Work:
    """Count the operands and the second part of the result, which is what the operation makes."""
    return Work(bytes=site.operand_bytes + site.shape.parts[1].bytes)


def _named(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


UNCOUNTED = frozenset(
    ["parameter", "constant", "get-tuple-element", "bitcast", "after-all", "add-dependency", "domain"]
)
BODIES = frozenset(("call", "while", "conditional", "async-start"))
"""What costs as much as the computations that it calls."""
RULES: dict[str, Rule] = {
    **_named(
        "abs negate sign floor ceil round-nearest-afz round-nearest-even add subtract multiply divide maximum minimum "
        "remainder and or xor not shift-left shift-right-logical shift-right-arithmetic compare select clamp convert "
        "bitcast-convert is-finite reduce-precision popcnt count-leading-zeros real imag complex stochastic-convert",
        _elementwise,
    ),
    **_named(
        "exponential log logistic power sqrt cbrt rsqrt tanh sine cosine tan exponential-minus-one log-plus-one atan2 "
        "erf acos acosh asin asinh atanh sinh cosh rng rng-bit-generator",
        _transcendental,
    ),
    **_named(
        "copy transpose reshape broadcast pad concatenate reverse iota dynamic-reshape get-dimension-size "
        "set-dimension-size all-gather reduce-scatter all-to-all ragged-all-to-all collective-permute "
        "collective-broadcast infeed outfeed send recv send-done recv-done copy-start copy-done all-reduce-done "
        "all-gather-start all-gather-done collective-permute-start collective-permute-done async-update async-done "
        "optimization-barrier opt-barrier partition-id replica-id rng-get-and-update-state",
        _moves,
    ),
    **_named("all-reduce all-reduce-start", _all_reduce),
    **_named("slice", _slice),
    "cholesky": _cholesky,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-slice": _gather,
    "dynamic-update-slice": _dynamic_update_slice,
    "fft": _fft,
    "gather": _gather,
    "map": _map,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "sort": _sort,
    "triangular-solve": _triangular_solve,
    "tuple": _tuple,
}
"""Opcode -> XLA's own rule. What is not here is not known: XLA, too, counts no flops of it."""
CORRECTED: dict[str, Rule] = {
    **_named(
        "send-done recv-done copy-done all-reduce-done all-gather-done collective-permute-done async-update async-done "
        "optimization-barrier opt-barrier",
        _nothing,
    ),
    "all-gather-start": _start,
    "collective-permute-start": _start,
    "copy-start": _copy_start,
}
"""Opcode -> the rule that stands in its place: an operation with a start and an end moves its data once."""


def rule_of(opcode: str, *, corrected: bool) -> Rule | None:
    """Return the rule of an opcode; None if there is none."""
    return (CORRECTED.get(opcode) if corrected else None) or RULES.get(opcode)


def lacking(instruction: Instruction) -> ProgramError:
    """Return the error for an instruction that cannot be costed because something is not there."""
    return ProgramError(f"instruction {instruction.name[:200]!r} lacks what a {instruction.opcode[:40]} needs")
