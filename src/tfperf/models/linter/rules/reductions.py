"""Reductions and batch norms: reductions that could run together or be fused, and batch norms of many ops."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tfperf.formats.models.dtypes import Dims, shape_text
from tfperf.formats.models.op_graph import FOLLOWED, OpGraph
from tfperf.models.linter.graph import ELEMENTWISE, OPEN, REDUCTIONS, place
from tfperf.models.linter.padding import MIB
from tfperf.models.linter.program import PASSED, Place
from tfperf.models.linter.rule import BOTH, TPU_NOTES, Ledger, Rule, Topic

CHAIN = Rule(
    id="TPU-RD-1",
    title="Sequential reductions",
    device="tpu",
    level="low",
    reads=BOTH,
    when="a reduction, or a reduce_logsumexp, with another one of the same kind as its only reader",
    advice="reduce over the dimensions of both at once",
    unless="XLA merges two sums, products, minima or maxima itself, but not means and reduce_logsumexp",
    says="Rewrite sequential chains of reductions as parallel ones where possible.",
    source=TPU_NOTES,
)
DEPENDENT = Rule(
    id="TPU-RD-2",
    title="Dependent reductions",
    device="tpu",
    level="low, info",
    reads=BOTH,
    when=(
        "a reduction depends on another of the same kind and shapes through elementwise ops only; not in a batch "
        "norm (TPU-BN-1), and not the maximum of a softmax. info: several reductions of one tensor run in parallel"
    ),
    advice="reduce x and x * x in one pass, and compute the second result from both",
    unless="E[x^2] - E[x]^2 loses precision if the mean is large relative to the standard deviation",
    says="Reductions of the same input and output shapes can run in parallel, in one fusion.",
    source=TPU_NOTES,
)
SCALED = Rule(
    id="TPU-RD-3",
    title="Factor on the result of a reduction",
    device="tpu",
    level="medium, info",
    reads=BOTH,
    when="the only reader of a sum multiplies or divides it by a factor that is constant over the reduced dimensions",
    advice="move the factor into the sum: sum(x) * y becomes sum(x * y)",
    unless="the result is small: the product inside the sum covers all elements, and costs more than it saves",
    says="Reductions fuse elementwise ops into their input, not into their output.",
    source=TPU_NOTES,
)
BATCH_NORM = Rule(
    id="TPU-BN-1",
    title="Unfused batch norm",
    device="tpu",
    level="medium",
    reads=BOTH,
    when="Rsqrt of a variance over the batch plus a constant, used as a factor, without a fused batch norm",
    advice="use tf.raw_ops.FusedBatchNormV3; Keras 3's BatchNormalization has no such argument",
    unless="the input does not have 4 or 5 dimensions, or is not 16-bit or 32-bit; in inference, the ops are few",
    says="Prefer tf.nn.fused_batch_norm to tf.nn.batch_normalization.",
    source=TPU_NOTES,
)
NAMED_BATCH_NORM = Rule(
    id="TPU-BN-2",
    title="Unfused batch norm, by name",
    device="tpu",
    level="low",
    reads=("names",),
    when="a scope named batch_norm or batchnorm, in any case, has an Rsqrt and no fused batch norm",
    advice="lint the SavedModel or graph for certainty (TPU-BN-1)",
    unless="the name is misleading, or the compiler fuses the ops",
    says="Prefer tf.nn.fused_batch_norm to tf.nn.batch_normalization.",
    source=TPU_NOTES,
)
_LARGEST_BETWEEN = 1000
_SCALES = ("Mul", "RealDiv", "Div")
_BATCH_NORM = re.compile(r"batch_?norm", re.IGNORECASE)
_INNER = "batchnorm"  # the scope that `tf.nn.batch_normalization` adds inside the scope of its layer
_FUSED = frozenset((
    "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "FusedBatchNormGrad", "FusedBatchNormGradV2",
    "FusedBatchNormGradV3",
))  # fmt: skip
_VARIABLES = ("ReadVariableOp", "VariableV2", "Variable", "_Arg", "Placeholder", "Const", "ResourceGather")
_THROUGH = FOLLOWED | {"Squeeze", "Reshape", "ExpandDims"}
_OF_MAXIMUM = frozenset(("Select", "SelectV2", "IsFinite", "ZerosLike", "Reshape"))
"""Ops between the maximum and the difference of tf.reduce_logsumexp."""
_MOST_BEHIND = 16
_ELEMENTWISE = PASSED | frozenset((
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "negate", "abs", "exponential", "log", "power",
    "sqrt", "rsqrt", "tanh", "logistic", "select", "compare", "and", "or", "not", "clamp", "exponential-minus-one",
    "log-plus-one", "sign", "floor", "ceil", "transpose",
))  # fmt: skip


def _check_reductions(graph: OpGraph, ledger: Ledger) -> None:
    norms = tuple(f"{scope}/" if scope else "" for scope in batch_norm_scopes(graph))
    for index in graph.of(REDUCTIONS):
        if graph.constant(index) is not None:
            continue  # a shape computation, which is known before the program runs
        output, given = graph.known(index), graph.input_shape(index, 0) or (-1,)
        if output is None or -1 in given:
            ledger.cannot(graph.name_of(index), OPEN)
            continue
        ledger.judge(graph.name_of(index))
        _check_chain(graph, ledger, index)
        if not graph.name_of(index).startswith(norms):
            for after in _later_reductions(graph, index, given):
                # The variance depends on the mean.
                if graph.op(after) == graph.op(index) and _are_alike(graph, index, after):
                    what = f"one {graph.op(index)} of {shape_text(given)} depends on the other: two passes over it"
                    ledger.add(DEPENDENT.found(place(graph, index, after), "low", what))
        _check_scaled(graph, ledger, index)
    _check_parallel(graph, ledger)
    _check_logsumexp(graph, ledger)


def _check_chain(graph: OpGraph, ledger: Ledger, index: int) -> None:
    users, output = _readers(graph, index), graph.known(index) or ()
    if len(users) != 1 or graph.op(users[0][0]) != graph.op(index) or users[0][1] != 0 or not _has_several(output):
        return
    after = users[0][0]
    shapes = (graph.input_shape(index, 0), output, graph.shape(after))
    what = (
        f"{graph.op(index)} after {graph.op(after)}, sequentially: "
        f"{' to '.join(shape_text(dims or ()) for dims in shapes)}"
    )
    ledger.add(CHAIN.found(place(graph, index, after), "low", what, certainty="exact"))


def _has_several(dims: Dims) -> bool:
    return any(size != 1 for size in dims)


def _readers(graph: OpGraph, index: int) -> list[tuple[int, int]]:
    """Return the readers of a result and their inputs, through ops that add or remove dimensions of size 1 only."""
    found, waiting = [], graph.users(index)[::-1]
    while waiting:
        user, place = waiting.pop()
        given, dims = graph.input_shape(user, 0), graph.known(user)
        is_view = graph.op(user) in ("Reshape", "Squeeze", "ExpandDims") and place == 0 and given and dims is not None
        if is_view and _several(given or ()) == _several(dims or ()):
            waiting += graph.users(user)
        else:
            found.append((user, place))
    return found


def _several(dims: Dims) -> Dims:
    return tuple(size for size in dims if size != 1)


def _are_alike(graph: OpGraph, first: int, second: int) -> bool:
    """Return whether two reductions of equal shapes reduce the same dimensions, kept or not."""
    rank = len(graph.input_shape(first, 0) or ())
    axes = [graph.constant_input(index, 1) for index in (first, second)]
    if rank and axes[0] is not None and axes[1] is not None:
        one, other = ({axis % rank for axis in of_one} for of_one in axes if of_one is not None)
        return one == other
    return graph.known(first) == graph.known(second)


class _LogSumExp(NamedTuple):
    """`log(sum(exp(x - m))) + m`, where `m` is the maximum of `x`: the nodes of x, the sum, the result, and readers."""

    given: int
    sum: int
    result: int
    readers: frozenset[int]
    """The nodes that read x: the maximum and the difference."""


def _logsumexps(graph: OpGraph) -> Iterator[_LogSumExp]:
    for log in graph.of(frozenset(("Log",))):
        total = graph.source(log, 0)
        exp = graph.source(total, 0) if total >= 0 and graph.op(total) == "Sum" else -1
        difference = graph.source(exp, 0) if exp >= 0 and graph.op(exp) == "Exp" else -1
        if difference < 0 or graph.op(difference) != "Sub":
            continue
        given, waiting, seen = graph.source(difference, 0), [graph.source(difference, 1)], set[int]()
        largest = -1
        while waiting and largest < 0 and len(seen) < _MOST_BEHIND:
            node = waiting.pop()
            if node in seen or node < 0:
                continue
            seen.add(node)
            if graph.op(node) == "Max" and graph.source(node, 0) == given:
                largest = node
            elif graph.op(node) in _OF_MAXIMUM:
                waiting += [graph.source(node, at) for at in range(len(graph.nodes[node].inputs))]
                graph.follow(len(graph.nodes[node].inputs))
        results = [user for user, _ in _readers(graph, log) if graph.op(user) in ("Add", "AddV2")]
        if largest >= 0 and len(results) == 1:
            yield _LogSumExp(given, total, results[0], frozenset((largest, difference)))


def _check_logsumexp(graph: OpGraph, ledger: Ledger) -> None:
    found = list(_logsumexps(graph))
    by_result = {each.result: each for each in found}
    for after in found:
        before = by_result.get(graph.origin(after.given, _THROUGH))
        if before is None or {user for user, _ in _readers(graph, before.result)} - after.readers:
            continue
        shapes = (graph.input_shape(before.sum, 0), graph.known(before.result), graph.known(after.result))
        if None not in shapes and _has_several(shapes[1] or ()):
            sizes = " to ".join(shape_text(dims or ()) for dims in shapes)
            what = f"reduce_logsumexp after reduce_logsumexp, sequentially: {sizes}"
            advice = "call reduce_logsumexp once, with the dimensions of both"
            where = {**place(graph, before.sum, after.sum), "op_type": "LogSumExp"}
            ledger.judge(graph.name_of(before.sum))
            ledger.add(CHAIN.found(where, "low", what, advice=advice, certainty="exact"))


def _later_reductions(graph: OpGraph, index: int, given: Dims) -> Iterator[int]:
    """Yield reductions of a tensor of this shape that depend on `index` through elementwise ops only."""
    waiting, seen = [index], {index}
    while waiting:
        for user, _ in graph.users(waiting.pop()):
            if len(seen) >= _LARGEST_BETWEEN:
                return
            if user in seen:
                continue
            seen.add(user)
            if graph.op(user) in REDUCTIONS:
                if graph.input_shape(user, 0) == given:
                    yield user
            elif graph.op(user) in ELEMENTWISE and "Grad" not in graph.op(user):
                waiting.append(user)


def _check_scaled(graph: OpGraph, ledger: Ledger, index: int) -> None:
    """Find a scaled sum whose factor could be applied to its input."""
    users = graph.users(index)
    if graph.op(index) != "Sum" or len(users) != 1 or graph.op(users[0][0]) not in _SCALES:
        return
    (user, at), output = users[0], graph.known(index) or ()
    factor = graph.input_shape(user, 1 - at)
    if (at and graph.op(user) != "Mul") or factor is None or (_has_several(factor) and factor != output):
        return
    is_large = math.prod(output) * graph.element_bytes(index) >= MIB
    what = f"{graph.op(user)} after Sum ({shape_text(output)}) is not fused into it: sums fuse their inputs"
    advice = f"write {'sum(x * y)' if graph.op(user) == 'Mul' else 'sum(x / y)'}, with y in the dimensions of x"
    where = {**place(graph, index, user), "op_type": "Sum"}
    ledger.add(SCALED.found(where, "medium" if is_large else "info", what, advice=advice))


def _check_parallel(graph: OpGraph, ledger: Ledger) -> None:
    together: dict[tuple[int, Dims], list[int]] = {}
    for index in graph.of(REDUCTIONS):
        output = graph.known(index)
        if output is not None:
            together.setdefault((graph.source(index, 0), output), []).append(index)
    for found in together.values():
        if len(found) > 1:
            given = shape_text(graph.input_shape(found[0], 0) or ())
            what = f"{len(found)} reductions of {given} run in parallel, in one fusion"
            ledger.add(DEPENDENT.found(place(graph, *found), "info", what, advice="nothing to change"))


def batch_norm_scopes(graph: OpGraph) -> dict[str, int]:
    """Return the name scopes with a batch norm of many ops, and the Rsqrt of each.

    The scope is the layer's: the name without the op and without the scopes that TensorFlow adds.
    """
    found: dict[str, int] = {}
    for index in graph.of(frozenset(("Rsqrt",))):
        before = graph.source(index, 0)
        variance = _variance(graph, before)
        users = {graph.op(user) for user, _ in graph.users(index)}
        if variance >= 0 and "Mul" in users and _is_over_batch(graph, variance, before):
            scope = graph.name_of(index).rpartition("/")[0].removesuffix(_INNER).rstrip("/")
            found.setdefault(scope, index)
    return found


def _variance(graph: OpGraph, add: int) -> int:
    """Return the input to which epsilon is added; -1 if no input is a constant or scalar."""
    if add < 0 or graph.op(add) not in ("AddV2", "Add"):
        return -1
    scalar = [at for at in (0, 1) if graph.input_shape(add, at) == ()]
    if len(scalar) != 1:
        return -1
    source = graph.source(add, 1 - scalar[0])
    return graph.origin(source, _THROUGH) if source >= 0 else -1


def _is_over_batch(graph: OpGraph, variance: int, add: int) -> bool:
    """Return whether a variance is per feature over the batch, or kept in a variable, and not per example."""
    if graph.op(variance) in REDUCTIONS:
        given, axes = graph.input_shape(variance, 0), graph.constant_input(variance, 1)
        return given is not None and axes is not None and 0 in [axis % len(given) for axis in axes if given]
    dims = graph.known(add)
    return graph.op(variance) in _VARIABLES and dims is not None and sum(size != 1 for size in dims) == 1


def _check_batch_norms(graph: OpGraph, ledger: Ledger) -> None:
    """Check batch norms, once per layer."""
    for index in graph.of(_FUSED):
        ledger.judge(graph.name_of(index))
    for scope, index in batch_norm_scopes(graph).items():
        ledger.judge(graph.name_of(index))
        trained = graph.op(_variance(graph, graph.source(index, 0))) in REDUCTIONS
        parts = "mean, variance, Rsqrt and products" if trained else "Rsqrt, products and sums of its variables"
        ledger.add(
            BATCH_NORM.found(
                {"ops": (scope or graph.name_of(index),), "op_type": "batch norm"},
                "medium",
                f"an unfused batch norm: {parts}",
                advice=(
                    "use the fused op: tf.raw_ops.FusedBatchNormV3, or tf.compat.v1.nn.fused_batch_norm in old code. "
                    "Keras 3's BatchNormalization has no such argument: write a custom layer"
                ),
                unless=f"{BATCH_NORM.unless}, and are fused",
                certainty="exact",
            )
        )


class NamedOp(NamedTuple):
    """An op of a profile, and its share of the device time (0 to 1); None for an op of a host thread."""

    name: str
    type: str
    share: float | None = None

    @property
    def batch_norm(self) -> str:
        """The innermost scope with the name of a batch norm; empty without one."""
        *scopes, _ = self.name.split("/")
        while scopes and not _BATCH_NORM.search(scopes[-1]):
            scopes.pop()
        if len(scopes) > 1 and scopes[-1] == _INNER:
            scopes.pop()
        return "/".join(scopes)


def check_op_names(ops: Iterable[NamedOp], ledger: Ledger) -> None:
    """Check scopes with the name of a batch norm that have an Rsqrt but no fused batch norm."""
    scopes: dict[str, list[NamedOp]] = {}
    for op in ops:
        if scope := op.batch_norm:
            ledger.judge(op.name)
            scopes.setdefault(scope, []).append(op)
    for scope, inside in scopes.items():
        types = {op.type for op in inside}
        if "Rsqrt" in types and not any("FusedBatchNorm" in type for type in types):
            shares = [op.share for op in inside if op.share is not None]
            ledger.add(
                NAMED_BATCH_NORM.found(
                    {"ops": (scope,), "op_type": "batch norm"},
                    "low",
                    "an unfused batch norm, by its name: it runs Rsqrt, but no fused batch norm",
                    advice=(
                        f"{NAMED_BATCH_NORM.advice}; if it is one, use tf.raw_ops.FusedBatchNormV3. Keras 3's "
                        "BatchNormalization has no such argument"
                    ),
                    unless="the name is misleading, or the compiler fuses the ops",
                    certainty="weak",
                    share=sum(shares) if shares else None,
                )
            )


def _check_instruction(at: Place, ledger: Ledger) -> None:
    """Check reductions that come from the program."""
    if not at.name:
        return
    ledger.judge(at.instruction.name)
    reducer = at.node.reducer
    for user in at.graph.readers(at.index):
        after = Place(at.graph, user)
        own = after.name and after.name != at.name and "dot" not in at.name
        if own and after.instruction.opcode == "reduce" and after.node.reducer == reducer:
            ledger.add(CHAIN.found(at.where, "low", f"{reducer} after {reducer}, sequentially"))
    if _is_awaited(at):
        if _BATCH_NORM.search(at.name):
            ledger.add(
                BATCH_NORM.found(
                    at.where,
                    "medium",
                    "an unfused batch norm: the variance depends on the mean",
                    advice=(
                        "use the fused op, tf.raw_ops.FusedBatchNormV3; batch norms in Keras 3 and flax have no "
                        "such argument"
                    ),
                    unless="it is written manually on purpose, or takes a small part of the step",
                    certainty="weak",
                )
            )
        else:
            what = f"one {reducer} of {at.operand(0)} depends on the other: two passes over it"
            ledger.add(DEPENDENT.found(at.where, "low", what))
    _check_scaled_instruction(at, ledger)


def _is_awaited(at: Place) -> bool:
    """Return whether a reduction of the same shapes, kind and scope depends on it, as a variance on its mean."""
    waiting, seen = [at.index], {at.index}
    while waiting:
        for user in at.graph.users[waiting.pop()]:
            at.graph.follow(1)
            if len(seen) >= _LARGEST_BETWEEN:
                return False
            if user in seen:
                continue
            seen.add(user)
            after = Place(at.graph, user)
            if after.instruction.opcode == "reduce":
                ours, other = (
                    (each.operand(0), each.instruction.shape, each.node.reducer, each.name.rpartition("/")[0])
                    for each in (at, after)
                )
                if ours == other:
                    return True
            elif after.instruction.opcode in _ELEMENTWISE:
                waiting.append(user)
    return False


def _check_scaled_instruction(at: Place, ledger: Ledger) -> None:
    users, shape = at.graph.users[at.index], at.instruction.shape
    if len(users) != 1 or at.node.reducer != "add" or shape.is_tuple:
        return
    after = at.graph.nodes[users[0]]
    apart = not at.node.is_fused or after.runs_in != at.node.runs_in
    if after.instruction.opcode in ("multiply", "divide") and apart and shape.bytes >= MIB:
        what = f"{after.instruction.opcode} after a sum ({shape}) is not fused into it"
        advice = "move a factor that is constant over the reduced dimensions into the sum"
        unless = "the factor changes along them, or the product inside costs more than it saves"
        ledger.add(SCALED.found(at.where, "medium", what, advice=advice, unless=unless))


TOPIC = Topic(
    rules=(CHAIN, DEPENDENT, SCALED, BATCH_NORM, NAMED_BATCH_NORM),
    check_graph=(_check_reductions, _check_batch_norms),
    check_program={"reduce": _check_instruction},
)
