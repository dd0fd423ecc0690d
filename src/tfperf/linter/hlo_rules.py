"""Rules of TPUs on programs of XLA, with what keeps them from false alarms on compiled ones.

A compiler makes reductions, copies and slices of its own: they have no name of an op, and none of them is a finding.
Layouts of a CPU or GPU are not those of a TPU, so numbers are ranges over the layouts that a TPU may choose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from tfperf.linter.convolutions import padding_text
from tfperf.linter.hlo_graph import PASSED, HloGraph, HloNode, graphs_of_program
from tfperf.linter.padding import MIB, Dims, PaddedTensor, both_orders, in_layouts, with_multiples
from tfperf.linter.rule import Ledger, Violation, worst
from tfperf.programs.model import BITS, Module, Shape
from tfperf.units import format_bytes

_BYTE = 8
_LEAST_RATIO, _LEAST_INPUT_RATIO = 1.25, 2.0
_LARGEST_BETWEEN = 1000
_ELEMENTWISE = PASSED | frozenset((
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "negate", "abs", "exponential", "log", "power",
    "sqrt", "rsqrt", "tanh", "logistic", "select", "compare", "and", "or", "not", "clamp", "exponential-minus-one",
    "log-plus-one", "sign", "floor", "ceil", "transpose",
))  # fmt: skip
_BATCH_NORM = re.compile(r"batch_?norm", re.IGNORECASE)
_RANDOM = re.compile(r"threefry|(^|/)(Random|Stateless(Random|Multinomial)|Multinomial)")
_RANDOM_SCOPE = re.compile(r"/?[^/]*(?:threefry|random_bits|Random|Stateless|Multinomial)")
"""Where the name of what draws begins in the name of an op."""
_OPEN = "a dimension is not known"
_CATEGORICAL, _NORMAL = re.compile(r"categorical|multinomial", re.IGNORECASE), re.compile(r"normal", re.IGNORECASE)


class _Place(Struct, frozen=True):
    graph: HloGraph
    index: int

    @property
    def node(self) -> HloNode:
        return self.graph.nodes[self.index]

    @property
    def name(self) -> str:
        """Return the name of the op that it was compiled from; empty for what the compiler made."""
        return self.node.instruction.metadata.op_name

    def operand(self, place: int) -> Shape | None:
        operands = self.node.operands
        return self.graph.nodes[operands[place]].instruction.shape if place < len(operands) else None


def check_program(module: Module, ledger: Ledger) -> None:
    """Apply all rules that a compiled program can be judged by."""
    graphs = [*graphs_of_program(module)]
    for graph in graphs:
        for index, node in enumerate(graph.nodes):
            place = _Place(graph, index)
            if not node.instruction.shape.is_known:
                ledger.cannot(node.instruction.name, _OPEN)
            elif node.instruction.opcode in _CHECKS:
                _CHECKS[node.instruction.opcode](place, ledger)
        if graph.is_entry:
            _check_parameters(graph, ledger)
    _check_randoms(graphs, ledger)


def _found(place: _Place, rule: str, level: str, what: str, advice: str, unless: str, **fields: object) -> Violation:
    instruction = place.node.instruction
    values = {
        "rule": rule,
        "level": level,
        "ops": (place.name or instruction.name,),
        "op_type": instruction.opcode,
        "what": what,
        "advice": advice,
        "unless": unless,
        "source_line": str(instruction.metadata.source),
        "runs_in": place.node.runs_in,
        **fields,
    }
    return Violation(**values)  # type: ignore[arg-type]


def _element_bytes(shape: Shape) -> int:
    return max(BITS.get(shape.type, _BYTE) // _BYTE, 1)


def _padded(role: str, shape: Shape, dims: Dims | None = None) -> PaddedTensor | None:
    """Return the padding of a tensor; None for one that has no two dimensions, or an unknown one."""
    dims = shape.dims if dims is None else dims
    if shape.is_tuple or not shape.is_known or len(dims) < 2:
        return None
    return both_orders(role, dims, _element_bytes(shape))


def _check_dot(place: _Place, ledger: Ledger) -> None:
    """TPU-MM-3."""
    instruction, dot = place.node.instruction, place.node.instruction.dot
    left, right = place.operand(0), place.operand(1)
    if dot is None or left is None or right is None:
        return
    ledger.judge(instruction.name)
    batches = len(dot.lhs_batch)
    shapes = [
        ("first operand", left, _own_last(left.dims, dot.lhs_batch)),
        ("second operand", right, _own_last(right.dims, dot.rhs_batch)),
        ("result", instruction.shape, instruction.shape.dims),
    ]
    kept = [each for each in shapes if len(each[2]) - batches > 1]
    tensors = [padded for role, shape, dims in kept if (padded := _padded(role, shape, dims)) is not None]
    wasteful = [each for each in tensors if each.least.ratio >= _LEAST_RATIO and each.padded_bytes >= MIB]
    if wasteful:
        largest = max(wasteful, key=lambda tensor: tensor.wasted_bytes)
        ledger.add(
            _found(
                place,
                "TPU-MM-3",
                worst([tensor.level for tensor in wasteful]),
                padding_text(largest, "general tiling, to 8 and 128 in either order"),
                "make the two last dimensions of operands and result multiples of 128, the smaller one of 8",
                "the product takes little of the step, or its sizes are given (classes, heads)",
                tensors=tuple(tensors),
            )
        )


def _own_last(dims: Dims, batches: tuple[int, ...]) -> Dims:
    """Return dimensions with those of batches first."""
    inside = [size for place, size in enumerate(dims) if place not in batches]
    return (*(dims[place] for place in batches if place < len(dims)), *inside)


def _check_convolution(place: _Place, ledger: Ledger) -> None:
    """TPU-CV-1, of forward convolutions: gradients have the same tensors, and programs do not tell them apart surely.

    Numbers are a range over the two layouts.
    """
    instruction, dims = place.node.instruction, place.node.instruction.convolution
    operand = place.operand(0)
    if (
        dims is None
        or not _is_forward(place)
        or operand is None
        or operand.is_tuple
        or instruction.shape.is_tuple
        or not operand.is_known
    ):
        return
    ledger.judge(instruction.name)
    shapes = (
        ("activation", operand, dims.input_batch, dims.input_feature),
        ("result", instruction.shape, dims.output_batch, dims.output_feature),
    )
    tensors = tuple(
        in_layouts(
            role,
            [with_multiples(shape.dims, {batch: a, features: b}) for a, b in ((8, 128), (128, 8))],
            _element_bytes(shape),
        )
        for role, shape, batch, features in shapes
    )
    wasteful = [each for each in tensors if each.least.ratio >= _LEAST_RATIO and each.padded_bytes >= MIB]
    if wasteful:
        largest = max(wasteful, key=lambda tensor: tensor.wasted_bytes)
        ledger.add(
            _found(
                place,
                "TPU-CV-1",
                worst([tensor.level for tensor in wasteful]),
                padding_text(largest, "batch and features are rounded up to 8 and 128, or to 128 and 8"),
                "make batch and features multiples of 8 and 128",
                "the compiler may choose otherwise where the neighbours of the convolution ask for it",
                tensors=tensors,
            )
        )


def _is_forward(place: _Place) -> bool:
    instruction = place.node.instruction
    names = f"{place.name} {instruction.metadata.op_type}"
    dilated = any(dim.base_dilation > 1 for dim in instruction.window)
    return bool(place.name) and not dilated and "transpose(" not in names and "Backprop" not in names


def _check_reduce_window(place: _Place, ledger: Ledger) -> None:
    """TPU-PL-1: windows over two dimensions or more that a program asks for."""
    instruction = place.node.instruction
    wide = [dim.size > 1 for dim in instruction.window]
    operand = place.operand(0)
    if not place.name or sum(wide) < 2 or operand is None or operand.is_tuple or instruction.shape.is_tuple:
        return
    others = [at for at, is_wide in enumerate(wide) if not is_wide]
    if len(others) < 2 or not operand.is_known or len(operand.dims) != len(wide):
        return
    ledger.judge(instruction.name)
    first, last = others[0], others[-1]
    tensors = tuple(
        in_layouts(role, [with_multiples(dims, {first: a, last: b}) for a, b in ((8, 128), (128, 8))], size)
        for role, dims, size in (
            ("input", operand.dims, _element_bytes(operand)),
            ("result", instruction.shape.dims, _element_bytes(instruction.shape)),
        )
    )
    largest = max(tensors, key=lambda tensor: tensor.wasted_bytes)
    if largest.least.ratio > 1.0:
        ledger.add(
            _found(
                place,
                "TPU-PL-1",
                worst([tensor.level for tensor in tensors]),
                padding_text(largest, "batch and features are rounded up to 8 and 128, or to 128 and 8"),
                "make batch and features multiples of 8 or 128, as for the convolutions beside it",
                "the neighbours of the pooling ask for another layout",
                tensors=tensors,
            )
        )


def _check_max_gradient(place: _Place, ledger: Ledger) -> None:
    """TPU-PL-2: also where the compiler has rewritten it."""
    metadata = place.node.instruction.metadata
    is_named = "select_and_scatter" in metadata.op_name or metadata.op_type == "MaxPoolGrad"
    if place.node.instruction.opcode == "select-and-scatter" or is_named:
        ledger.judge(place.node.instruction.name)
        ledger.add(
            _found(
                place,
                "TPU-PL-2",
                "info",
                "the gradient of max pooling scatters to where the maxima were; that of average pooling does not",
                "try average pooling, or a convolution with strides, if the gradient shows in a profile",
                "accuracy needs the maxima: this changes the model",
            )
        )


def _check_piece(place: _Place, ledger: Ledger) -> None:
    """TPU-CS-1: cuts that a program asks for, of 1 MiB or more, along a dimension that is padded."""
    instruction = place.node.instruction
    whole = instruction.shape if instruction.opcode == "concatenate" else place.operand(0)
    if not place.name or whole is None or whole.is_tuple or not whole.is_known or whole.bytes < MIB:
        return
    ledger.judge(instruction.name)
    multiples = {len(whole.dims) - 2: 8, len(whole.dims) - 1: 128}
    for axis, boundary in _boundaries(place):
        multiple = multiples.get(axis, 1)
        if boundary % multiple:
            ledger.add(
                _found(
                    place,
                    "TPU-CS-1",
                    "medium",
                    f"{whole} is cut along dimension {axis} at {boundary}, no multiple of {multiple}",
                    f"cut along a dimension that is not padded, or at multiples of {multiple}",
                    "the compiler fuses the cut into what reads it",
                    moved_bytes=whole.bytes,
                )
            )
            return


def _boundaries(place: _Place) -> Iterator[tuple[int, int]]:
    instruction = place.node.instruction
    if instruction.opcode == "concatenate" and instruction.dimensions:
        axis, end = instruction.dimensions[0], 0
        for operand in range(len(place.node.operands) - 1):
            shape = place.operand(operand)
            end += shape.dims[axis] if shape is not None and axis < len(shape.dims) else 0
            yield axis, end
        return
    whole = place.operand(0)
    for axis, (start, limit, _) in enumerate(instruction.slices):
        if whole is not None and axis < len(whole.dims):
            yield from ((axis, at) for at in (start, limit) if 0 < at < whole.dims[axis])


def _check_reduce(place: _Place, ledger: Ledger) -> None:
    """TPU-RD-1, TPU-RD-2 and TPU-RD-3, of reductions that a program asks for."""
    if not place.name:
        return
    ledger.judge(place.node.instruction.name)
    for user in place.graph.readers(place.index):
        after = _Place(place.graph, user)
        own = after.name and after.name != place.name and "dot" not in place.name
        if own and after.node.instruction.opcode == "reduce" and after.node.reducer == place.node.reducer:
            ledger.add(
                _found(
                    place,
                    "TPU-RD-1",
                    "low",
                    f"{place.node.reducer} of {place.node.reducer}, one after the other",
                    "reduce over the dimensions of both at once",
                    "what is between them is read elsewhere too",
                )
            )
    _check_dependent(place, ledger)
    _check_scaled(place, ledger)


def _check_dependent(place: _Place, ledger: Ledger) -> None:
    given, shape = place.operand(0), place.node.instruction.shape
    waiting, seen = [place.index], {place.index}
    while waiting and len(seen) < _LARGEST_BETWEEN:
        for user in place.graph.users[waiting.pop()]:
            if user in seen:
                continue
            seen.add(user)
            after = _Place(place.graph, user)
            if after.node.instruction.opcode == "reduce":
                same = after.operand(0) == given and after.node.instruction.shape == shape
                if same and after.node.reducer == place.node.reducer and _scope(after.name) == _scope(place.name):
                    ledger.add(_dependent(place))
                    return
            elif after.node.instruction.opcode in _ELEMENTWISE:
                waiting.append(user)


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _dependent(place: _Place) -> Violation:
    if _BATCH_NORM.search(place.name):
        return _found(
            place,
            "TPU-BN-1",
            "medium",
            "a batch norm of many ops: the variance waits for the mean",
            "use the fused op, tf.raw_ops.FusedBatchNormV3; batch norms of Keras 3 and flax have no such argument",
            "it is written by hand on purpose, or takes little of the step",
            certainty="weak",
        )
    return _found(
        place,
        "TPU-RD-2",
        "low",
        f"one {place.node.reducer} of {place.operand(0)} waits for the other: two passes over it",
        "reduce x and x * x in one pass, and compute the second result from both",
        "E[x^2] - E[x]^2 loses precision where the mean is large beside the spread",
    )


def _check_scaled(place: _Place, ledger: Ledger) -> None:
    users = place.graph.users[place.index]
    instruction = place.node.instruction
    if len(users) != 1 or place.node.reducer != "add" or instruction.shape.is_tuple:
        return
    after = place.graph.nodes[users[0]]
    apart = not place.node.is_fused or after.runs_in != place.node.runs_in
    if after.instruction.opcode in ("multiply", "divide") and apart and instruction.shape.bytes >= MIB:
        ledger.add(
            _found(
                place,
                "TPU-RD-3",
                "medium",
                f"{after.instruction.opcode} after a sum ({instruction.shape}) is not fused into it",
                "move a factor that is constant over the reduced dimensions into the sum",
                "the factor changes along them, or the product inside costs more than it saves",
            )
        )


def _check_transpose(place: _Place, ledger: Ledger) -> None:
    """TPU-TR-1: only where layouts are those of a TPU, which are tiled."""
    instruction = place.node.instruction
    if not instruction.shape.tiles or place.node.is_fused or not place.name or "conv" in place.name:
        return
    ledger.judge(instruction.name)
    if instruction.shape.bytes >= MIB:
        ledger.add(
            _found(
                place,
                "TPU-TR-1",
                "medium",
                f"{format_bytes(2 * instruction.shape.bytes)} are read and written; the result is {instruction.shape}",
                "keep one order of dimensions, or let a product or convolution read the tensor as it is",
                "the op after it would be slower in the other order",
                moved_bytes=2 * instruction.shape.bytes,
            )
        )


def _check_randoms(graphs: Iterable[HloGraph], ledger: Ledger) -> None:
    """TPU-RN-1 to TPU-RN-3, once for each name scope: compiled programs draw by arithmetic."""
    scopes: dict[str, _Place] = {}
    for graph in graphs:
        for index, node in enumerate(graph.nodes):
            metadata = node.instruction.metadata
            named = _RANDOM.search(metadata.op_name) or _RANDOM.search(metadata.op_type)
            if named or node.instruction.opcode in ("rng", "rng-bit-generator"):
                ledger.judge(node.instruction.name)
                scopes.setdefault(_RANDOM_SCOPE.split(metadata.op_name)[0], _Place(graph, index))
    for scope, place in scopes.items():
        rule, level, what = "TPU-RN-3", "info", "draws random bits, or from a uniform distribution, which is fast"
        if _CATEGORICAL.search(scope):
            rule, level, what = "TPU-RN-1", "medium", "draws from a categorical distribution, which is expensive"
        elif _NORMAL.search(scope) or place.node.instruction.distribution == "normal":
            rule, level, what = (
                "TPU-RN-2",
                "info",
                "draws from a normal distribution, a little dearer than a uniform one",
            )
        ledger.add(
            _found(place, rule, level, what, "nothing to change", "it takes little of the step", certainty="weak")
        )


def _check_parameters(graph: HloGraph, ledger: Ledger) -> None:
    """TPU-RS-2: parameters of three dimensions or more that no result takes over or has the shape of: no weights."""
    entry = graph.module.entry
    results = Counter((leaf.type, leaf.dims) for leaf in entry.root_instruction.shape.leaves())
    for index, node in enumerate(graph.nodes):
        instruction = node.instruction
        if instruction.opcode != "parameter":
            continue
        kept = instruction.parameter in graph.module.aliased_parameters
        shape = instruction.shape
        if kept or shape.is_tuple or len(shape.dims) < 3 or results[shape.type, shape.dims]:
            continue
        ledger.judge(instruction.name)
        tensor = _padded("input", shape)
        if tensor is not None and tensor.least.ratio >= _LEAST_INPUT_RATIO and tensor.padded_bytes >= MIB:
            ledger.add(
                _found(
                    _Place(graph, index),
                    "TPU-RS-2",
                    "high",
                    padding_text(tensor, "general tiling, to 8 and 128 in either order"),
                    "send it as one dimension, and reshape it on the device",
                    "it stays on the device from step to step, as weights do",
                    tensors=(tensor,),
                )
            )


_CHECKS: dict[str, Callable[[_Place, Ledger], None]] = {
    "dot": _check_dot,
    "convolution": _check_convolution,
    "reduce-window": _check_reduce_window,
    "select-and-scatter": _check_max_gradient,
    "scatter": _check_max_gradient,
    "concatenate": _check_piece,
    "slice": _check_piece,
    "dynamic-slice": _check_piece,
    "reduce": _check_reduce,
    "transpose": _check_transpose,
    "copy": _check_transpose,
}
