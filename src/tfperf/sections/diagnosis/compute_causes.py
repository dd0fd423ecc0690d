"""Causes in the compute of the step: unnecessary or inefficient work of an op, a layer or a replica."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfperf.base.units import counted, format_bytes, listed, without_middle
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case, in_categories
from tfperf.sections.diagnosis.cause import Action, Cause, Computed, Evidence, Range
from tfperf.trace.device.kernels import short_name
from tfperf.trace.host.activities import Activity, tpu_activity

if TYPE_CHECKING:
    from tfperf.sections.diagnosis.step_ops import Work

_OF_DOUBLE = Range(0.4, 0.8)
"""Saving of float32 instead of float64: it has half of the bytes, and real jobs took 40 to 80% less time."""
_DOUBLE = re.compile(r"\b(?:f64|c128)\[")
_UPDATE_PERCENT, _LEAST_UPDATED_BYTES = 30.0, 1 << 20
_LAYER_PERCENT = 50.0
_LARGE_BYTES = 1 << 22
_WIDE_INPUT = 4096
_LATE_PERCENT = 10.0
_TIMES_OTHERS = 3.0
_OF_OVERSUBSCRIBED = Range(0.3, 0.8)
_MOST_OPS = 0.5
_MUCH_COMPUTE = 20.0
_NAMED = 3


def slow_replica(case: Case) -> Cause | None:
    """Check for a replica that runs ops alone while the others on the host wait for it in collectives."""
    work = case.program.work
    if work is None or not work.late:
        return None
    (name, share), *others = work.late.items()
    share = min(share, case.ledger.left("host_compute"))
    if share < _LATE_PERCENT or share < _TIMES_OTHERS * sum(waits for _, waits in others):
        return None
    cost = case.ledger.claim("host_compute", most=share)
    case.ledger.of_exchanges += cost.high
    steps = f"{work.late_steps} of {counted(case.summary.averaged_count, 'step')}"
    op = without_middle(work.late_op, LONGEST_NAME)
    return case.cause(
        "slow_replica",
        "One slow replica",
        cost,
        f"the others wait for {name} in {steps}; the op that takes longer on it is {op}",
        actions=("even_replicas",),
        rests_on=(in_categories("host_compute"),),
    )


def python_in_graph(case: Case) -> Cause | None:
    """Check for Python functions called by the graph: the graph waits for them, and Python runs one at a time."""

    def detail(ops: str, work: Work) -> str:
        run = "runs" if len(work.first["python_in_graph"]) == 1 else "run"
        what = without_middle(work.python, LONGEST_NAME) if work.python else "Python"
        return f"{ops} {run} {what} one call at a time, while the graph waits"

    actions = ("use_graph_ops", case.without_estimate("call_less_often"))
    return _of_ops(case, "python_in_graph", "Python in the graph", detail, actions)


def print_in_graph(case: Case) -> Cause | None:
    """Check for prints in the graph."""

    def detail(ops: str, work: Work) -> str:
        return f"{ops} {'formats' if len(work.first['print_in_graph']) == 1 else 'format'} text in each step"

    return _of_ops(case, "print_in_graph", "Printing in the graph", detail, ("no_print",))


def input_in_step(case: Case) -> Cause | None:
    """Check for ops on text, lookup tables, encoded images and records, which an input pipeline could run instead."""
    return _of_ops(
        case,
        "input_in_step",
        "Preparing input in the step",
        lambda ops, _: f"an input pipeline could run these ops before the step needs them (top: {ops})",
        ("prepare_ahead",),
    )


def densified_sparse(case: Case) -> Cause | None:
    """Check for sparse batches that are made dense before a product, which then multiplies zeros."""

    def detail(ops: str, work: Work) -> str:
        array = _array_of(work, lambda name: name.endswith("SparseToDense")) or "a dense array"
        return f"SparseToDense creates {array} as input of a matrix product (top: {ops})"

    return _of_ops(case, "densified_sparse", "Converting sparse batches to dense", detail, ("sparse_product",))


def one_hot_product(case: Case) -> Cause | None:
    """Check for matrix products with one-hot vectors, which only select rows."""

    def detail(ops: str, work: Work) -> str:
        array = _array_of(work, lambda name: "hot" in name.casefold()) or "a large array"
        return f"OneHot creates {array}, and a matrix product uses it to select rows (top: {ops})"

    return _of_ops(case, "one_hot_product", "Multiplying one-hot vectors", detail, ("gather_rows",))


def _array_of(work: Work, makes: Callable[[str], bool]) -> str:
    made = next((output for name, output in work.outputs.items() if makes(name)), None)
    return "" if made is None else f"an array {made.shape} of {format_bytes(made.size_bytes)}"


def loop_in_graph(case: Case) -> Cause | None:
    """Check for loops over examples, which run an op per example instead of one for all."""

    def detail(_: str, work: Work) -> str:
        loop = work.loop
        scope = "" if loop is None or loop.scope == "while" else f" in {without_middle(loop.scope, LONGEST_NAME)}"
        times = "many" if loop is None or loop.iterations is None else f"at least {loop.iterations:,}"
        return f"the loop{scope} runs {times} iterations per step, each with its own small ops"

    # If most ops are in the loop, so is the time in which the executor starts them.
    work, ops = case.program.work, case.program.op_percent or 0.0
    is_most = work is not None and work.kinds.get("loop_in_graph", 0.0) >= _MOST_OPS * ops > 0
    between_ops = max(case.ledger.left("host_compute") - ops, 0.0) if is_most else 0.0
    return _of_ops(case, "loop_in_graph", "A loop in the graph", detail, ("vectorize_loop",), between_ops)


def too_many_threads(case: Case) -> Cause | None:
    """Check for thread pools with far more threads than cores, which compete for cores and caches."""
    work = case.program.work
    if work is None or work.cores is None or case.results.has_device:
        return None
    cores, most = max(round(work.cores), 1), max(work.threads)
    share = min(case.program.op_percent or 0.0, case.ledger.left("host_compute"))
    if most <= 2 * cores or share < _MUCH_COMPUTE:
        return None
    low, high = (share * part for part in (_OF_OVERSUBSCRIBED.low, _OF_OVERSUBSCRIBED.high))
    cost = _claim(case, high, low)
    between, inside = work.threads
    pools = f"{most} threads"
    if between and inside:
        pools = f"{counted(between, 'inter-op thread')} and {counted(inside, 'intra-op thread')}"
    return case.cause(
        "too_many_threads",
        "Thread oversubscription",
        cost,
        f"{pools} share {counted(cores, 'core')}",
        actions=(case.without_estimate("set_threads"),),
        rests_on=(in_categories("host_compute"),),
        confidence="low",
    )


def double_precision(case: Case) -> Cause | None:
    """Check for ops in 64 bit: float32 takes about half of the time."""
    category = "device_compute" if case.results.has_device else "host_compute"
    left = case.ledger.left(category) if case.results.has_device else _left(case)
    share, names = _in_double(case)
    if min(share * _OF_DOUBLE.high, left) < LEAST_PERCENT:
        return None
    most, least = share * _OF_DOUBLE.high, share * _OF_DOUBLE.low
    cost = case.ledger.claim(category, most=most, least=least) if case.results.has_device else _claim(case, most, least)
    whole = case.quantity("double_precision, all", share)
    return case.cause(
        "double_precision",
        "Float64 compute",
        cost,
        f"{_listed(names[:_NAMED])} {'computes' if len(names) == 1 else 'compute'} in 64-bit precision for {whole} "
        "of it; float32 takes 40 to 80% less",
        actions=(case.action("cast_to_float32", cost, rest_gets_faster=False),),
        rests_on=(in_categories(category),),
        confidence="medium",
        quantities=(whole,),
    )


def _in_double(case: Case) -> tuple[float, Sequence[str]]:
    """Return the share of the step in which ops compute in float64, and these ops.

    XLA programs show it by the arrays of their ops, other CPU ops by their allocations. TPUs have no float64.
    """
    xla, work = case.results["xla"], case.program.work
    if case.results.has_device and case.is_headline and not case.program.is_tpu:
        double = [op for op in xla.ops if _DOUBLE.search(op.array_types)]
        of_device = sum(op.time_ps for op in double) / max(xla.whole_ps, 1)
        return min(of_device, 1.0) * case.share("device_compute"), [op.op for op in double]
    if work is None or case.results.has_device:
        return 0.0, ()
    ops = xla.ops if xla.place == "cpu" else ()
    whole = sum(op.time_ps for op in ops)
    names = work.first.get("double_precision", tuple(work.ops))
    if not whole:
        return work.kinds.get("double_precision", 0.0), names
    of_ops = sum(op.time_ps for op in ops if _DOUBLE.search(op.array_types)) / whole
    return of_ops * (case.program.op_percent or 0.0), names


def optimizer_update(case: Case) -> Cause | None:
    """Check for an optimizer whose update takes a large part of the compute."""
    work = case.program.work
    if work is None or work.kinds.get("optimizer_update", 0.0) < _UPDATE_PERCENT:
        return None
    updated = work.updated
    if updated.size_bytes < _LEAST_UPDATED_BYTES:
        return None  # the number of ops takes the time

    def detail(ops: str, _: Work) -> str:
        size = f" of {updated.shape} ({format_bytes(updated.size_bytes)})" if updated.shape else ""
        what = f"the largest variable{size} is updated" if updated.shape else "variables are updated"
        rows = " in all rows, although a batch reads only a few of them" * updated.is_embedding
        return f"{what}{rows} (top: {ops})"

    actions: tuple[str, ...] = ("sparse_update",) if updated.is_embedding else ("fuse_update", "fewer_updates")
    functions = case.results["functions"].functions
    if functions and all(function.is_compiled for function in functions):
        actions = tuple(action for action in actions if action != "fuse_update")
    return _of_ops(case, "optimizer_update", "The optimizer's update", detail, actions)


def dominant_layer(case: Case) -> Cause | None:
    """Check for a dense layer with a very wide input (often Flatten instead of pooling) that takes most of the step."""
    work = case.program.work
    if work is None:
        return None
    whole = sum(weights.size_bytes for weights in work.weights.values())
    updates = work.kinds.get("optimizer_update", 0.0)
    shares = {
        layer: work.layers.get(layer, 0.0) + updates * weights.size_bytes / whole
        for layer, weights in work.weights.items()
    }
    layer = max(shares, key=lambda name: shares[name], default="")
    if not layer or min(shares[layer], _left(case)) < _LAYER_PERCENT:
        return None
    weights = work.weights[layer]
    sizes = [int(size) for size in re.findall(r"\d+", weights.shape)]
    is_wide = len(sizes) == 2 and sizes[0] >= max(_WIDE_INPUT, 2 * sizes[1])
    if not is_wide or weights.size_bytes < _LARGE_BYTES:
        return None
    return case.cause(
        "dominant_layer",
        f"The layer {without_middle(layer, LONGEST_NAME)}",
        _claim(case, shares[layer]),
        f"its weights are {weights.shape} ({format_bytes(weights.size_bytes)}); includes their update",
        actions=(case.without_estimate("smaller_layer"),),
        rests_on=(in_categories("host_compute"),),
        confidence="medium",
    )


_LEAST_CAPTURED_BYTES = 32 << 20


def captured_constants(case: Case) -> Cause | None:
    """Check for programs that contain large arrays as constants, which cost memory and compile time."""
    known = [
        (module.constants, module.module) for module in case.results["xla"].modules if module.constants is not None
    ]
    large, name = max(known, key=lambda each: each[0].bytes, default=(None, ""))
    if not case.is_headline or large is None or large.bytes < _LEAST_CAPTURED_BYTES:
        return None
    others = f"{counted(large.count, 'array')} of 1 MiB or more, the largest " * (large.count > 1)
    source = f" from {without_middle(large.source, LONGEST_NAME)}" if large.source else ""
    return case.cause(
        "captured_constants",
        "Large constants in a program",
        None,
        f"{without_middle(name, LONGEST_NAME)} contains {format_bytes(large.bytes)} ({others}{large.shape}{source})",
        actions=(case.without_estimate("pass_arrays"),),
        rests_on=(Evidence("xla", "hlo_modules", name),),
    )


def computed(case: Case) -> tuple[Computed, ...]:
    """Return the host layers, or device ops, with most compute time, if compute takes most of the step."""
    largest = max(case.summary.percent, key=case.share)
    if largest == "device_compute" and case.is_headline:
        return _on_device(case)
    work = case.program.work
    share, ops = case.share("host_compute"), case.program.op_percent or 0.0
    if largest != "host_compute" or work is None or case.results.has_device or ops < share / 2:
        return ()
    return tuple(Computed(name, share, None) for name, share in [*work.layers.items()][:_NAMED])


def _on_device(case: Case) -> tuple[Computed, ...]:
    roofline = case.results["roofline"]
    roofs = {} if roofline is None else {row.op.op: row.judged.roofline_percent for row in roofline.ops}
    kernels = case.results["kernels"]
    xla = case.results["xla"]
    sums = Counter[str]()
    if case.program.is_tpu:
        for op in xla.ops:
            # The start and the end of a copy or an exchange do not compute.
            if tpu_activity(op.category) == Activity.COMPUTE_32 and not op.category.endswith(("-start", "-done")):
                sums[op.op] += op.time_ps
        whole = float(sums.total())
    else:
        for kernel, total_ps in zip(kernels.kernels, kernels.total_ps.tolist(), strict=True):
            sums[kernel.op.hlo_op or kernel.op.name or short_name(kernel.name)] += total_ps
        whole = kernels.whole_ps
    of_step = case.share("device_compute") / max(whole, 1.0)
    places = {op.op: op.layer or op.source or op.framework_op.rpartition("/")[2] for op in reversed(xla.ops)}
    most = sums.most_common(_NAMED)
    return tuple(Computed(name, ps * of_step, roofs.get(name), places.get(name, "")) for name, ps in most)


def _of_ops(
    case: Case,
    code: str,
    title: str,
    detail: Callable[[str, Work], str],
    actions: Sequence[Action | str | None],
    between_ops: float = 0.0,
) -> Cause | None:
    """Return the cause of one kind of op; its cost may include `between_ops` percent of the step, without an op."""
    work = case.program.work
    share = min(work.kinds.get(code, 0.0), _left(case)) if work is not None else 0.0
    if work is None or share < LEAST_PERCENT or code in case.program.on_gpus:
        return None
    cost = _claim(case, share)
    more = case.ledger.claim("host_compute", most=between_ops).high if between_ops else 0.0
    return case.cause(
        code,
        title,
        Range(cost.low, cost.high + more),
        detail(_listed(work.first.get(code, ())), work),
        actions=actions,
        rests_on=(in_categories("host_compute"),),
    )


def _listed(names: Sequence[str]) -> str:
    return listed([without_middle(name, LONGEST_NAME) for name in names[:_NAMED]])


def _left(case: Case) -> float:
    return min(case.ledger.left("host_compute"), max((case.program.op_percent or 0.0) - case.ledger.of_ops, 0.0))


def _claim(case: Case, most: float, least: float | None = None) -> Range:
    cost = case.ledger.claim("host_compute", most=min(most, _left(case)), least=least)
    case.ledger.of_ops += cost.high
    return cost
