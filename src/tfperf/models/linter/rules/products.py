"""Matrix products: padding of operands and results, and fusion into them and into convolutions."""

from __future__ import annotations

from tfperf.formats.models.dtypes import Dims
from tfperf.formats.models.op_graph import OpGraph
from tfperf.models.linter.graph import ACTIVATIONS, CONVOLUTIONS, ELEMENTWISE, FORWARD, MATMULS, OPEN, REDUCTIONS, place
from tfperf.models.linter.padding import GENERAL_TILING, both_orders
from tfperf.models.linter.program import Place, element_bytes
from tfperf.models.linter.rule import BOTH, TPU_NOTES, Ledger, Rule, Topic

PADDING = Rule(
    id="TPU-MM-3",
    title="Padding of a matrix product",
    device="tpu",
    level="high, medium",
    reads=BOTH,
    when="an operand or the result is at least 1.25 times as large when padded, and at least 1 MiB",
    advice="make the last two dimensions multiples of 128, the smaller one of 8",
    unless="the product takes a small part of the step, or its sizes are fixed",
    says="Tensors are stored in tiles of 8 by 128.",
    source="tfperf's own rule, based on the general tiling of a TPU (8 x 128)",
)
FUSED_PRODUCT = Rule(
    id="TPU-MM-2",
    title="Fusion into a matrix product",
    device="tpu",
    level="low, info",
    reads=("graph",),
    when=(
        "bias and activation follow a matrix product, or it alone reads an elementwise op; low: an op that cannot be "
        "fused reads a value before the activation"
    ),
    advice="let such ops read the output of the activation",
    unless="the compiler may fuse less: a result that is used much later, or expensive ops (exp, tanh) on inputs",
    says="tf.matmul supports fusion into its input and output.",
    source=TPU_NOTES,
)
FUSED_CONVOLUTION = Rule(
    id="TPU-CV-4",
    title="Fusion into a convolution",
    device="tpu",
    level="low, info",
    reads=("graph",),
    when="like TPU-MM-2, for a convolution",
    advice="let ops that cannot be fused read the output of the activation",
    unless="the compiler may fuse less: a result that is used much later, or expensive ops (exp, tanh) on inputs",
    says="tf.nn.conv_n_d supports fusion into result, activation and kernel.",
    source=TPU_NOTES,
)
_ADVICE = "make the two last dimensions of operands and result multiples of 128, the smaller one of 8"
_UNLESS = "the product takes a small part of the step, or its sizes are fixed (classes, heads)"
_MOST_BEFORE = 64
_PASSED = ELEMENTWISE | {"Reshape", "Squeeze", "ExpandDims", "Transpose"}
_ROLES = ("first operand", "second operand", "result")
_BIAS = ("BiasAdd", "AddV2", "Add")
_FUSES_INPUT = MATMULS | CONVOLUTIONS | ELEMENTWISE | {*REDUCTIONS, "Shape", "ShapeN", "Size", "Rank"}
"""Ops that recompute an elementwise input or do not read it, so that its result need not be stored."""


def _check_fusion(graph: OpGraph, ledger: Ledger) -> None:
    """Check whether bias and activation are fused into the preceding op, and elementwise ops into the next one."""
    for group, rule in ((MATMULS, FUSED_PRODUCT), (FORWARD, FUSED_CONVOLUTION)):
        for index in graph.of(group):
            _check_inputs(graph, ledger, rule, index)
            chain = _chain(graph, index)
            if not chain:
                continue
            ledger.judge(graph.name_of(index))
            where, fused = place(graph, *chain), ", ".join(graph.op(link) for link in chain[1:])
            readers = (user for link in chain[:-1] for user in _readers(graph, link))
            blocking = next((user for user in readers if graph.op(user) not in _FUSES_INPUT), None)
            if blocking is not None:
                what = f"{graph.op(blocking)} reads the result before {fused}, so it is stored twice"
                after = graph.name_of(chain[-1])
                advice = f"let {graph.name_of(blocking)} read the output of {after}, if the model allows it"
                ledger.add(rule.found(where, "low", what, advice=advice))
            else:
                what = f"{fused} will be fused into {graph.op(index)}"
                advice = "nothing to change: manual fusion is not needed"
                ledger.add(rule.found(where, "info", what, advice=advice))


def _check_inputs(graph: OpGraph, ledger: Ledger, rule: Rule, index: int) -> None:
    """Report elementwise ops that only this product reads, so that their result need not be stored.

    Those after another product are fused into that one's result.
    """
    for source in dict.fromkeys(graph.source(index, at) for at in range(min(2, len(graph.nodes[index].inputs)))):
        if source < 0 or graph.op(source) not in ELEMENTWISE or graph.constant(source) is not None:
            continue
        if {user for user, _ in graph.users(source)} == {index} and not _follows_product(graph, source):
            ledger.judge(graph.name_of(index))
            what = f"{graph.op(source)} will be fused into the input of {graph.op(index)}"
            advice = "nothing to change: manual fusion is not needed"
            ledger.add(rule.found(place(graph, index, source), "info", what, advice=advice))


def _follows_product(graph: OpGraph, index: int) -> bool:
    """Return whether an op computes on the result of a product, through elementwise ops and views."""
    waiting, seen = [index], {index}
    while waiting and len(seen) < _MOST_BEFORE:
        node = waiting.pop()
        graph.follow(len(graph.nodes[node].inputs))
        for source in (graph.source(node, at) for at in range(len(graph.nodes[node].inputs))):
            if source >= 0 and graph.op(source) in MATMULS | CONVOLUTIONS:
                return True
            if source >= 0 and source not in seen and graph.op(source) in _PASSED:
                seen.add(source)
                waiting.append(source)
    return bool(waiting)


def _chain(graph: OpGraph, index: int) -> list[int]:
    """Return a product, its bias if there is one, and the activation; empty without an activation."""
    chain = [index]
    for _ in range(2):
        users = _readers(graph, chain[-1])
        activation = next((user for user in users if graph.op(user) in ACTIVATIONS), None)
        if activation is not None:
            return [*chain, activation]
        bias = next((user for user in users if graph.op(user) in _BIAS and _has_vector(graph, user)), None)
        if bias is None or bias in chain:
            return []
        chain.append(bias)
    return []


def _readers(graph: OpGraph, index: int) -> list[int]:
    """Return the readers of a result, through reshapes that keep the last dimension (free on a device)."""
    found = []
    for user, _ in graph.users(index):
        before, after = graph.shape(index), graph.shape(user)
        keeps = graph.op(user) == "Reshape" and before and after and before[-1] == after[-1] != -1
        found += [each for each, _ in graph.users(user)] if keeps else [user]
    return found


def _has_vector(graph: OpGraph, index: int) -> bool:
    """Return whether an input has at most one dimension that is not 1, as a bias has."""
    shapes = [graph.input_shape(index, at) for at in range(len(graph.nodes[index].inputs))]
    return any(dims is not None and sum(size != 1 for size in dims) <= 1 for dims in shapes)


def _check_padding(graph: OpGraph, ledger: Ledger) -> None:
    for index in graph.of(MATMULS):
        shapes = _matrices(graph, index)
        if shapes is None:
            ledger.cannot(graph.name_of(index), OPEN)
            continue
        ledger.judge(graph.name_of(index))
        size = graph.element_bytes(index)
        tensors = [both_orders(role, dims, size) for role, dims in shapes if len(dims) > 1]
        ledger.add_padding(PADDING, place(graph, index), tensors, GENERAL_TILING, advice=_ADVICE, unless=_UNLESS)


def _matrices(graph: OpGraph, index: int) -> list[tuple[str, Dims]] | None:
    """Return operands and result of a product, batches first; None if a dimension is unknown."""
    given = [graph.known(*source) for source in graph.nodes[index].inputs[:2]]
    shapes = [dims for dims in (*given, graph.known(index)) if dims is not None]
    if len(shapes) != len(_ROLES):
        return None
    if graph.op(index) == "Einsum":
        return _of_einsum(graph.text(index, "equation"), shapes)
    return list(zip(_ROLES, shapes, strict=True))


def _of_einsum(equation: str, shapes: list[Dims]) -> list[tuple[str, Dims]]:
    """Return the tensors of an Einsum, shared letters first, because the compiler may order them so."""
    terms = equation.replace(" ", "").replace("->", ",").split(",")
    if [*map(len, terms)] != [*map(len, shapes)]:
        return []
    batches = set(terms[0]).intersection(*terms[1:])
    ordered = []
    for role, term, dims in zip(_ROLES, terms, shapes, strict=True):
        shared = [size for letter, size in zip(term, dims, strict=True) if letter in batches]
        own = [size for letter, size in zip(term, dims, strict=True) if letter not in batches]
        if len(own) > 1:
            ordered.append((role, (*shared, *own)))
    return ordered


def _check_dot(at: Place, ledger: Ledger) -> None:
    dot, result = at.instruction.dot, at.instruction.shape
    left, right = at.operand(0), at.operand(1)
    if dot is None or left is None or right is None:
        return
    ledger.judge(at.instruction.name)
    tensors = [
        both_orders(role, dims, element_bytes(shape))
        for role, shape, dims in (
            ("first operand", left, _batches_first(left.dims, dot.lhs_batch)),
            ("second operand", right, _batches_first(right.dims, dot.rhs_batch)),
            ("result", result, result.dims),
        )
        if len(dims) - len(dot.lhs_batch) > 1
    ]
    ledger.add_padding(PADDING, at.where, tensors, GENERAL_TILING, advice=_ADVICE, unless=_UNLESS)


def _batches_first(dims: Dims, batches: tuple[int, ...]) -> Dims:
    own = (size for at, size in enumerate(dims) if at not in batches)
    return (*(dims[at] for at in batches if at < len(dims)), *own)


TOPIC = Topic(
    rules=(FUSED_PRODUCT, PADDING, FUSED_CONVOLUTION),
    check_graph=(_check_fusion, _check_padding),
    check_program={"dot": _check_dot},
)
