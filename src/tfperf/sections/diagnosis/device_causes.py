"""Causes on devices: waiting for launches and results, their work, copies of TPU cores, unused devices, memory."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.units import (
    PS_PER_MS,
    PS_PER_US,
    counted,
    format_bytes,
    format_ms,
    format_number,
    format_percent,
    listed,
    percent,
    without_middle,
)
from tfperf.formats.hlo.cost_rules import ALIGNED_BYTES, off_multiple, rounded_up
from tfperf.report.model import Quantity
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case, count_devices, in_categories, op_and_place
from tfperf.sections.diagnosis.catalogue import ADVICE, PRODUCTS
from tfperf.sections.diagnosis.cause import Action, Cause, Evidence, Range
from tfperf.sections.diagnosis.step_ops import callback_of, shown_name
from tfperf.sections.diagnosis.waiting_causes import stated
from tfperf.sections.idle.analysis import CAUSE_TEXTS
from tfperf.sections.idle.analysis import Cause as IdleCause
from tfperf.sections.memory.section import CAPACITY_PERCENT, findings_of, is_full
from tfperf.sections.ops.analysis import OpKey
from tfperf.sections.ops.groups import NO_SCOPE, ModelLayers, is_backward, is_of_optimizer
from tfperf.sections.overview.summary import share_of_step
from tfperf.sections.roofline.bounds import LOW_PERCENT, judge
from tfperf.sections.xla import plans_of
from tfperf.trace.device.kernels import short_name
from tfperf.trace.event_names import parse_op
from tfperf.trace.steps.breakdown import lacks_devices

if TYPE_CHECKING:
    from tfperf.formats.hlo.buffers import Plan
    from tfperf.sections.kernels.analysis import Kernel, Kernels, Part
    from tfperf.sections.kernels.tpu_cores import AsyncCopy
    from tfperf.sections.memory.analysis import Allocator
    from tfperf.sections.roofline.analysis import FrameworkOp, Roofline, RooflineOp
    from tfperf.sections.xla.instructions import HloModule, HloOp
    from tfperf.trace.device.device_work import DeviceOp
    from tfperf.trace.device.tpu_copies import Way

_HOST_WORKS_PERCENT = 50.0
"""At or above this share, ops run on the host because devices are unused, not because devices were not traced."""


def launch_bound(case: Case) -> Cause | None:
    """Check for time in which the device waits for the host to launch work."""
    kernels = case.results["kernels"]
    if not case.matters("kernel_launch") or not len(kernels):
        return None
    launches = max(kernels.launches, key=lambda each: (each.kernels_per_step or 0.0, each.kernels), default=None)
    detail, rests_on = "the device waits for the host's launches", [in_categories("kernel_launch")]
    quantities = []
    if launches is not None and not case.results.is_narrowed:
        per_step = launches.kernels_per_step
        tiny = Quantity("tiny_kernels", launches.tiny_kernel_percent, of=launches.device)
        detail = counted(round(per_step or launches.kernels), "kernel")
        detail += " per step" if per_step else " in the capture"
        detail += f" on {launches.device}" if len(kernels.launches) > 1 else ""
        if (tiny.value or 0.0) >= LEAST_PERCENT:
            detail, quantities = f"{detail}, {tiny} of them shorter than 10 us", [tiny]
        rests_on.append(Evidence("kernels", "launches", launches.device))
    functions = case.results["functions"].functions
    is_compiled = bool(functions) and all(function.is_compiled for function in functions)
    actions = ("larger_batch",) if is_compiled else ("jit_compile", "larger_batch")
    cost = case.ledger.claim("kernel_launch")
    of_whole, wholes = case.of_whole(share_of_step(case.summary, "kernel_launch", case.host), cost)
    idle = case.results["idle"]
    if case.program.api == "jax" and not case.results.is_other_kind and not idle.without_steps:
        # Host compute that the device waits for is of the runtime, which prepares launches.
        more = idle.percents["launch"] - case.share("kernel_launch")
        prepares = case.ledger.claim("host_compute", most=more).high if more >= LEAST_PERCENT else 0.0
        cost = Range(cost.low + prepares, cost.high + prepares)
        rests_on.append(Evidence("idle", "idle_causes", CAUSE_TEXTS["launch"].title))
    return case.cause(
        "launch_bound",
        "Launching kernels",
        cost,
        detail + of_whole,
        actions=actions,
        rests_on=rests_on,
        quantities=(*quantities, *wholes),
    )


def compute_in_32_bit(case: Case) -> Cause | None:
    """Check for 32-bit kernels that tensor cores could run in 16 bit, averaged over working devices.

    Small products take as long in 16 bit, so they do not count.
    """
    if not case.results.has_device:
        return None
    kernels = case.results["kernels"]
    pairs = [(each.eligible_percent, each.most_eligible_percent) for each in kernels.precision]
    known = [(low, high) for low, high in pairs if low is not None and high is not None]
    if not known:
        return None
    large = _large_share(case.results["roofline"])
    least, most = (large * sum(shares) / len(known) for shares in zip(*known, strict=True))
    if min(most, case.ledger.left("device_compute")) < LEAST_PERCENT:
        return None
    first = next(iter(kernels.missed_tensor_cores()), "")
    rests_on = [in_categories("device_compute"), *([Evidence("kernels", "kernels", first)] if first else [])]
    cost = case.ledger.claim("device_compute", most=most, least=least)
    detail = f"it could use {kernels.tensor_cores}"
    return case.cause(
        "device_compute_32bit",
        "32-bit compute",
        cost,
        detail,
        actions=(_mixed_precision(case, cost, kernels, large),),
        rests_on=rests_on,
        confidence="medium",
    )


_PRECISIONS: tuple[Part, ...] = ("compute_16", "compute_32", "compute_unknown")


def _mixed_precision(case: Case, cost: Range, kernels: Kernels, large: float) -> Action | None:
    """Return the advice to compute in 16 bit: by a rule of thumb, limited by the roofline."""
    advice, least = ADVICE["mixed_precision"], time_in_16_bit(case.results["roofline"])
    shares = []
    for part in ("eligible", "most_eligible"):
        known = [each for each in kernels.precision if part in each.by_step_ps]
        whole = sum(each.total_ps(kind) or 0 for each in known for kind in _PRECISIONS)
        shares.append(percent(sum(each.total_ps(part) or 0 for each in known), whole) or 0.0)
    products = f"32-bit products{' that are not small' * (large < 1.0)}"
    of_kernels = Range(shares[0], max(shares)).scaled(large)
    rests_on = f"applies only to {products}, {stated(of_kernels)} of kernel time"
    if least is None or 1.0 - least >= advice.saves[1]:
        return case.action("mixed_precision", cost, assumption=f"{rests_on}; {advice.assumption}")
    text = f"{rests_on}; at the 16-bit roofline they still take {format_percent(100.0 * least)}% of it"
    return case.action("mixed_precision", cost, Range(min(advice.saves[0], 1.0 - least), 1.0 - least), text)


def _large_share(roofline: Roofline | None) -> float:
    """Return the share of products that are not small in the time of all products in float32, from 0 to 1.

    Products with unknown work count like the others. Faster ones than the 32-bit peak run on tensor cores.
    """
    if roofline is None or (peak := roofline.peaks.flops_per_second("fp32")) is None:
        return 1.0
    products = [
        row for row in _products_in_32_bit(roofline) if (row.work.flops or 0.0) * 1e12 <= peak * row.work.time_ps
    ]
    whole_ps = _time_ps(products)
    return 1.0 - _time_ps(row for row in products if row.is_small) / whole_ps if whole_ps else 1.0


def _products_in_32_bit(roofline: Roofline) -> list[RooflineOp]:
    return [row for row in roofline.ops if row.op.matrix_flops and row.work.precision == "fp32" and row.work.bytes]


def converted_fp8(case: Case) -> Cause | None:
    """Check for products whose inputs are converted from FP8 first, on a device that multiplies FP8 faster."""
    xla = case.results["xla"]
    fast = xla.peaks.flops_per_second("fp8")
    if not case.results.has_device or not case.is_headline or not fast or not xla.whole_ps:
        return None
    saved_ps, ops = 0.0, []
    for op in xla.ops:
        now = xla.peaks.flops_per_second(op.precision)
        if op.converted and now and now < fast:
            saved_ps += (1.0 - now / fast) * op.time_ps
            ops.append(op)
    whole_ps = sum(op.time_ps for op in ops)
    cost = _claim(case, 100.0 * whole_ps / xla.whole_ps) if ops and not case.program.is_tpu else None
    if ops and case.program.is_tpu:
        share = min(100.0 * _in_steps_ps(ops) / max(xla.step_ps, 1), case.ledger.left("device_compute"))
        cost = case.ledger.claim("device_compute", most=share) if share >= LEAST_PERCENT else None
    if cost is None:
        return None
    others = f" and {counted(len(ops) - 1, 'other product')}" * (len(ops) > 1)
    most = saved_ps / whole_ps
    text = (
        f"the products reach the same share of the FP8 peak, and then take up to {format_percent(100.0 * most)}% less"
    )
    return case.cause(
        "converted_fp8",
        "Multiplying FP8 in a wider type",
        cost,
        f"{without_middle(ops[0].op, LONGEST_NAME)}{others} convert{'' if others else 's'} both inputs from "
        f"{ops[0].converted} to a wider type",
        actions=(case.action("multiply_fp8", cost, Range(0.0, most), text),),
        rests_on=(Evidence("xla", "hlo_ops", ops[0].op),),
        confidence="medium",
    )


def idle_devices(case: Case) -> Cause | None:
    """Check for devices without events, or with copies only outside of the steps, while others work."""
    if not case.is_headline or lacks_devices(case.results["steps"]):
        return None
    silent, total = count_devices(case)
    on_host = case.program.op_percent or 0.0
    if not silent or (silent == total and on_host < _HOST_WORKS_PERCENT):
        return None
    ops = case.quantity("ops", on_host)
    detail = "they appear in the profile but run nothing, or only copies outside of the steps"
    if silent == total:
        detail = f"ops run on the host for {ops} of the step"
    used = total - silent
    advice = case.without_estimate(
        "start_all_devices" if used > 1 else "use_all_devices" if used == 1 else "find_device"
    )
    actions = () if advice is None else (advice,)
    return Cause(
        code="idle_devices",
        title=f"{silent} of {total} device{'s' * (total > 1)} {'is' if total == 1 else 'are'} unused",
        kind=case.summary.kind,
        cost_ms=None,
        cost_percent=None,
        detail=detail,
        confidence="medium",
        rests_on=(Evidence("environment", "environment", case.results["environment"][0].host),),
        actions=actions,
        # The gain counts the idle part of the machine like time of the step.
        gain_ms=case.step_ms * silent / (total + 1),
        step_ms=case.step_ms,
        quantities=(ops,) if silent == total else (),
        host=case.host,
    )


def host_ops(case: Case) -> Cause | None:
    """Check for ops on host threads that launch nothing, while the device is idle."""
    return _idle_for(
        case,
        "host_ops",
        "Running ops on the host",
        "host_compute",
        lambda share: {"host_compute": min(share, case.ledger.left("host_compute"))},
    )


def python_on_device(case: Case) -> Cause | None:
    """Check for programs of JAX that call Python while the device waits: `pure_callback`, `io_callback`."""
    actions = ("use_graph_ops", case.without_estimate("call_less_often"))
    return _callback(case, "python_in_graph", "Calling Python from the device", "Python", actions)


def print_on_device(case: Case) -> Cause | None:
    """Check for programs of JAX that print while the device waits: `jax.debug.print`."""
    return _callback(case, "print_in_graph", "Printing from the device", "Python to print", ("no_print",))


_WAITS_FOR_HOST = re.compile(r"(?:host )?(?:send|recv)(?:-done)?$|outfeed")
_DURING_CALLBACKS = ("host_compute", "kernel_launch", "output", "host_to_device", "all_others")


def _callback(case: Case, code: str, title: str, calls: str, actions: Sequence[Action | str | None]) -> Cause | None:
    """Return the cause of callbacks: on a GPU, the idle time until Python is done; on a TPU, sends and receives."""
    part = case.program.on_gpus.get(code)
    parts: tuple[str, ...] = _DURING_CALLBACKS
    ops = [op for op in case.results["xla"].ops if callback_of(op.framework_op) == code] if case.is_headline else []
    share, often = (0.0, "") if part is None else (part.percent, f" {_times(part.per_step)} per step")
    names = () if part is None else part.ops
    if case.program.is_tpu:
        ops = [op for op in ops if _WAITS_FOR_HOST.match(op.category.lower())]
        parts, in_steps_ps = (_TO_DEVICE, _TO_HOST, _ON_DEVICE), _in_steps_ps(ops)
        names = tuple(dict.fromkeys(shown_name(op.framework_op) for op in ops))
        share = 100.0 * in_steps_ps / max(case.results["xla"].step_ps, 1)
    share = min(share, case.ledger.left(*parts))
    if share < LEAST_PERCENT:
        return None
    return case.cause(
        code,
        title,
        case.ledger.claim(*parts, most=share),
        f"{listed([without_middle(name, LONGEST_NAME) for name in names[:_NAMED_ARRAYS]])} "
        f"{'calls' if len(names) == 1 else 'call'} {calls}{often}, and the device waits",
        actions=actions,
        rests_on=tuple(Evidence("xla", "hlo_ops", op.op) for op in ops[:1]) or (in_categories("host_compute"),),
        confidence="high" if case.program.is_tpu else "medium",
    )


def _times(per_step: float) -> str:
    number = format_number(per_step)
    return "once" if number == "1" else f"{number} times"


_LEAST_UPDATES = 50.0
"""Number of short kernels per step from which on an update is called unfused."""


def unfused_update(case: Case) -> Cause | None:
    """Check for optimizers that update variables by many short kernels on a GPU, such as one or more per variable."""
    part, left = case.program.on_gpus.get("unfused_update"), case.ledger.left("device_compute")
    if part is None or part.per_step < _LEAST_UPDATES or min(part.percent, left) < LEAST_PERCENT:
        return None
    functions = case.results["functions"].functions
    is_compiled = bool(functions) and all(function.is_compiled for function in functions)
    return case.cause(
        "unfused_update",
        "An optimizer update in many short kernels",
        case.ledger.claim("device_compute", most=part.percent),
        f"{format_number(part.per_step)} kernels per step shorter than 10 us update variables (most time: "
        f"{listed([without_middle(name, LONGEST_NAME) for name in part.ops])})",
        actions=() if is_compiled and case.program.api != "jax" else ("fuse_update_kernels",),
        rests_on=(in_categories("device_compute"),),
        confidence="medium",
    )


_LOOP = re.compile(r"(?i)while|conditional")


def device_sync(case: Case) -> Cause | None:
    """Check for API calls that wait for the device, so that their thread launches the next work late."""
    if not case.results.has_device or case.results.is_other_kind or case.program.host_loop is not None:
        return None
    idle, parts = case.results["idle"], ("host_compute", "all_others", "kernel_launch")
    share = 0.0 if idle.without_steps else min(idle.waited_percent, case.ledger.left(*parts))
    waits = [each for each in case.results["kernels"].api_calls if each.kind == "synchronize"]
    if share < LEAST_PERCENT or not waits:
        return None
    first = max(waits, key=lambda each: (each.in_steps_ps, each.total_ps))
    often = ""
    if first.steps and not case.results.is_narrowed:
        often = f" {_times(first.in_steps / first.steps)} per step"
    inside = f" in {without_middle(first.caller, LONGEST_NAME)}" if first.caller else ""
    action: Action | str | None = "fetch_less_often"
    if first.caller and _LOOP.search(first.caller):
        action = case.without_estimate("fixed_trip_count")
    elif first.caller and ":" in first.caller and parse_op(first.caller).kind == "tensorflow":
        action = case.without_estimate("omit_waiting_op")
    cost = case.ledger.claim(*parts, most=share)
    case.ledger.of_waits += cost.high
    return case.cause(
        "device_sync",
        "Calls that wait for the device",
        cost,
        f"{first.call}{inside} waits{often}, and the device is then idle until the next launch",
        actions=(action,),
        rests_on=(Evidence("kernels", "api_calls", first.call),),
        confidence="medium",
    )


def waiting_for_results(case: Case) -> Cause | None:
    """Check for waiting for results, while the device is idle."""
    return _idle_for(case, "waiting_for_results", "Waiting for results", "synchronise", case.waiting)


def _idle_for(
    case: Case, code: str, title: str, state: IdleCause, where: Callable[[float], Mapping[str, float]]
) -> Cause | None:
    """Return the cause for device idle time in a state of the host; `where` divides it by category."""
    if not case.results.has_device or case.results.is_other_kind or case.program.host_loop is not None:
        return None
    idle = case.results["idle"]
    shares = {} if idle.without_steps else where(idle.percents[state])
    if sum(shares.values()) < LEAST_PERCENT:
        return None
    share = sum(case.ledger.claim(part, most=most).high for part, most in shares.items())
    return case.cause(
        code,
        title,
        Range(share, share),
        "the device is idle meanwhile",
        actions=(case.without_estimate("move_ops") if code == "host_ops" else "fetch_less_often",),
        rests_on=(Evidence("idle", "idle_causes", CAUSE_TEXTS[state].title),),
    )


def memory_pressure(case: Case) -> Cause | None:
    """Check for memory that is nearly full, fragmented or growing: the text covers the worst, the actions cover all.

    An XLA program that needs nearly all memory of a device is such a problem, too.
    """
    if not case.is_headline:
        return None
    memory = case.results["memory"]
    found = [finding for finding in findings_of(memory) if finding.severity == "problem"]
    problems = [(each.code, each.text.rstrip("."), each.quantities) for each in found]
    rests_on = [Evidence("memory", "memory_allocators", memory.allocators[0].name)] if problems else []
    full = next((each for each in memory.allocators if each.place == "device" and is_full(each)), None)
    largest = next((each for each in plans_of(case.results["xla"]) if each[1] in _DEVICE_MEMORY), None)
    if full is None and largest is not None and (of_program := _nearly_fills(case, largest)) is not None:
        problems.insert(0, of_program)
        rests_on.insert(0, Evidence("xla", "hlo_memory", largest[0].module))
    if not problems:
        return None
    _, detail, quantities = problems[0]
    contents = _contents(full, largest) if any(code == "memory_full" for code, *_ in problems) else None
    if contents is not None and case.summary.kind == "train":
        contents = replace(contents, trains=True)
    actions: list[Action | None] = [] if contents is None else _actions_on(case, contents)
    if contents is not None and (layers := contents.largest()):
        shares = [Quantity(f"activations: {layer}", 100.0 * size / contents.bytes, of="peak") for layer, size in layers]
        named = [f"{layer} {format_bytes(size)} ({share})" for (layer, size), share in zip(layers, shares, strict=True)]
        detail += f"; activations at the peak: {', '.join(named)}"
        quantities = (*quantities, *shares)
    for code, *_ in problems:
        is_answered = bool(actions) and code == "memory_full"
        codes = [each for each in _MEMORY_ACTIONS[code] if each != "use_less_memory" or not is_answered]
        actions += [case.without_estimate(each) for each in codes]
    return Cause(
        code="memory_pressure",
        title="Memory is nearly full, fragmented or growing",
        kind=case.summary.kind,
        cost_ms=None,
        cost_percent=None,
        detail=detail,
        confidence="high",
        rests_on=tuple(rests_on),
        actions=tuple(action for action in actions if action is not None),
        gain_ms=0.0,
        step_ms=case.step_ms,
        quantities=quantities,
        host=case.host,
    )


_MEMORY_ACTIONS = {
    "memory_full": ("use_less_memory", "share_device_memory"),
    "pinned_memory_full": ("raise_pinned_limit",),
    "memory_fragmented": ("avoid_fragmentation",),
    "memory_growth": ("release_tensors",),
}
_DEVICE_MEMORY = ("device memory", "HBM")
"""Names of the main memory of GPUs and TPUs in programs."""
_JAX_SHARE = 0.75
"""Share of the memory of a GPU that JAX reserves by default."""
_WORTH_FREEING = 0.05
"""Share of the peak that a change must free, at least."""
_MOST_UNKNOWN = 0.5
_NAMED = 3
_OpOfMemory = tuple[str, int, bool]
"""Op, bytes at the peak, and whether its elements have 32 bits or more."""


def _nearly_fills(case: Case, largest: tuple[HloModule, str, Plan]) -> tuple[str, str, tuple[Quantity, ...]] | None:
    """Return the problem of a program that needs nearly all memory that it may use; None if it does not."""
    program, _, plan = largest
    allocators = case.results["memory"].allocators
    sizes = [each.device_memory_bytes for each in case.results["environment"] if each.device_memory_bytes]
    capacities = [each.capacity_bytes for each in allocators if each.place == "device" and each.capacity_bytes]
    if not (sizes or capacities):
        return None
    limit, what = float(min(capacities or sizes)), "what its allocator may use" if capacities else "the device's memory"
    if not capacities and case.program.api == "jax" and not case.program.is_tpu:
        limit, what = _JAX_SHARE * limit, f"the {100 * _JAX_SHARE:.0f}% of the device's memory that JAX uses by default"
    share = Quantity("program_memory", 100.0 * plan.total_bytes / limit, of=program.module)
    if (share.value or 0.0) < CAPACITY_PERCENT:
        return None
    text = f"{program.module} needs {format_bytes(plan.total_bytes)}, {share} of {what}"
    return "memory_full", f"{text} (threshold: {CAPACITY_PERCENT:.0f}%)", (share,)


class _Contents(Struct, frozen=True, kw_only=True):
    """What is known of a full memory at its peak. Activations are arrays of the forward pass, by layer.

    Layers whose names differ only in numbers share a name, as `block_*`.
    """

    bytes: int
    activations: Mapping[str, int] = {}
    """Bytes by layer, the largest first."""
    wide_bytes: int = 0
    """Activations with elements of 32 bits or more."""
    trains: bool = False
    """Whether there is a backward pass."""
    donatable_bytes: int = 0
    """Results of the program with the shapes of arguments, which do not use their memory."""
    kept_outside_bytes: int = 0
    """In use, but not by the largest program."""

    def largest(self) -> list[tuple[str, int]]:
        """Return the layers that take most, with their bytes."""
        known = [(layer, size) for layer, size in self.activations.items() if layer != NO_SCOPE]
        return [(layer, size) for layer, size in known if size >= _WORTH_FREEING * self.bytes][:_NAMED]


def _contents(full: Allocator | None, largest: tuple[HloModule, str, Plan] | None) -> _Contents | None:
    """Return the contents of a full memory: of its tensors if they have ops, else of the largest program's plan."""
    if full is not None:
        alive = full.alive
        rows = zip(alive.op, alive.total_bytes.tolist(), alive.data_type, strict=True)
        ops = [(op, size, kind in ("float32", "float64")) for op, size, kind in rows if "/" in op]
        if sum(size for _, size, _ in ops) >= _WORTH_FREEING * full.peak_bytes:
            return _by_layer(full.peak_bytes, ops)
    if largest is None:
        return None
    plan = largest[2]
    if full is not None and plan.total_bytes < _MOST_UNKNOWN * full.peak_bytes:
        return _Contents(bytes=full.peak_bytes, kept_outside_bytes=full.peak_bytes - plan.total_bytes)
    ops = [
        (each.framework_op, each.bytes, each.shape.startswith(("f32", "f64")))
        for each in plan.buffers
        if each.kind == "temporary" and each.framework_op
    ]
    return replace(_by_layer(plan.total_bytes, ops), donatable_bytes=plan.donatable_bytes)


def _by_layer(whole: int, ops: Sequence[_OpOfMemory]) -> _Contents:
    """Return the activations among the arrays of ops, by layer."""
    marks_forward = any("jvp(" in op for op, *_ in ops)
    forward: list[tuple[str, int, bool]] = []
    for op, size, is_wide in ops:
        is_forward = not is_backward(op) and ("jvp(" in op or not marks_forward)
        if is_forward and not is_of_optimizer(op):
            forward.append((shown_name(op), size, is_wide))
    # A scope is a repeated layer if others have the same name but for the numbers: of the outermost such scope.
    layers = ModelLayers(OpKey(name, "") for name, *_ in forward)
    alike = defaultdict[str, set[str]](set)
    scopes = {name: list(accumulate(name.split("/")[:-1], "{}/{}".format)) for name, *_ in forward}
    for scope in {each for of_name in scopes.values() for each in of_name}:
        alike[_NUMBER.sub("*", scope)].add(scope)
    sums = Counter[str]()
    for name, size, _ in forward:
        repeated = next((scope for scope in scopes[name] if len(alike[_NUMBER.sub("*", scope)]) > 1), "")
        layer = _NUMBER.sub("*", repeated.rpartition("/")[2]) if repeated else layers.of(name)
        sums[layer] += size
    return _Contents(
        bytes=whole,
        activations=dict(sums.most_common()),
        wide_bytes=sum(size for *_, size, is_wide in forward if is_wide),
        trains=marks_forward or any(is_backward(op) for op, *_ in ops),
    )


def _actions_on(case: Case, contents: _Contents) -> list[Action | None]:
    """Return what frees memory, in the order to try it: first what costs neither time nor accuracy."""

    def freeing(code: str, size: float, basis: str) -> Action | None:
        action = case.without_estimate(code) if size >= _WORTH_FREEING * contents.bytes else None
        text = f"frees at most {format_bytes(size)}, {basis}"
        return action and replace(action, text=f"{action.text}: {text}")

    layer, size = next(iter(contents.largest()), ("", 0))
    whole = sum(contents.activations.values())
    keeps_all = contents.trains and not any(op.is_recomputed for op in case.results["xla"].ops)
    actions = [
        freeing("find_kept_arrays", contents.kept_outside_bytes, "what no program uses at its peak"),
        freeing("donate_arguments", contents.donatable_bytes, "the results with the shapes of arguments"),
        freeing("recompute_activations", size, f"what {layer} keeps for the backward pass") if keeps_all else None,
        freeing("accumulate_gradients", whole / 2, "half of the activations, with half of the batch")
        if contents.trains
        else freeing("smaller_batch", whole / 2, "half of the activations, with half of the batch"),
        freeing("halve_activations", contents.wide_bytes / 2, "half of the 32-bit activations"),
    ]
    return [action for action in actions if action is not None]


_NUMBER = re.compile(r"\d+")


_CONVERSION = re.compile(r"transpose|nchw.*nhwc|nhwc.*nchw|swapdimension", re.IGNORECASE)
_INSERTED = "LayoutOptimizer"
_CONVOLUTION = re.compile(r"conv(?!ert)", re.IGNORECASE)


class _Taken(NamedTuple):
    """Share of some kernels in all kernel time, in percent, and their names, longest first."""

    percent: float
    time_ps: int
    names: tuple[str, ...]


def layout_conversion(case: Case) -> Cause | None:
    """Check for kernels that only convert the layout of arrays of convolutions."""
    if not case.results.has_device or not case.is_headline:
        return None
    kernels = case.results["kernels"]
    convolutions = [row for row, kernel in enumerate(kernels.kernels) if _is_convolution(kernel.op)]
    if not convolutions:
        return None
    places = {_place_of(kernels.kernels[row].op) for row in convolutions}
    # A conversion is for convolutions if TensorFlow's optimizer inserted it, or if it is in the same place.
    conversions = [
        row
        for row, kernel in enumerate(kernels.kernels)
        if not _is_convolution(kernel.op)
        and _is_conversion(kernel)
        and (_INSERTED in kernel.op.name or _place_of(kernel.op) in places)
    ]
    taken, convolving = _taken(kernels, conversions), _taken(kernels, convolutions)
    cost = _claim(case, taken.percent)
    if cost is None:
        return None
    others = len(taken.names) - 1
    what = without_middle(taken.names[0], LONGEST_NAME) + (f" and {others} more take" if others else " takes")
    took, convolved = (f"{format_ms(each.time_ps / PS_PER_MS)} ms" for each in (taken, convolving))
    return case.cause(
        "layout_conversion",
        "Converting layouts around convolutions",
        cost,
        f"{what} {took} of the capture, convolutions {convolved}",
        actions=("keep_layout",),
        rests_on=(
            in_categories("device_compute"),
            Evidence("kernels", "kernels_by_name", short_name(kernels.kernels[conversions[0]].name)),
        ),
    )


def _is_conversion(kernel: Kernel) -> bool:
    """Return whether a kernel only converts a layout, by the name of its op or by its own."""
    texts = (kernel.op.hlo_op or kernel.op.name.rpartition("/")[2], short_name(kernel.name))
    return any(map(_CONVERSION.search, texts))


def _place_of(op: DeviceOp) -> str:
    return op.hlo_module if op.hlo_op else op.name.rpartition("/")[0]


def _is_convolution(op: DeviceOp) -> bool:
    if op.hlo_op:
        return bool(_CONVOLUTION.search(op.hlo_op)) and not _CONVERSION.search(op.hlo_op)
    return bool(_CONVOLUTION.search(op.type))


def _taken(kernels: Kernels, rows: Iterable[int]) -> _Taken:
    times = Counter[str]()
    for row in rows:
        kernel = kernels.kernels[row]
        times[kernel.op.hlo_op or kernel.op.name or short_name(kernel.name)] += int(kernels.total_ps[row])
    whole = times.total()
    names = tuple(name for name, _ in times.most_common())
    return _Taken(100.0 * whole / kernels.whole_ps if kernels.whole_ps else 0.0, whole, names)


def _claim(case: Case, percent_of_kernels: float) -> Range | None:
    """Claim a share of kernel time from device compute; None if it is too small."""
    share = min(percent_of_kernels / 100.0 * case.share("device_compute"), case.ledger.left("device_compute"))
    return case.ledger.claim("device_compute", most=share) if share >= LEAST_PERCENT else None


def memory_bound(case: Case) -> Cause | None:
    """Check for memory-bound ops other than products, which move data faster than they compute with it."""
    rows = _bound(case, "memory")
    cost = _claim_of(case, rows)
    if cost is None:
        return None
    known = [(row.work.time_ps, row.judged.memory_percent) for row in rows if row.judged.memory_percent is not None]
    whole = sum(time_ps for time_ps, _ in known)
    of_bandwidth, quantities = "", []
    if case.program.is_tpu and whole:
        average = sum(time_ps * share for time_ps, share in known) / whole
        quantities = [Quantity("bandwidth", average, of=rows[0].op.op)]
        of_bandwidth = f", at {quantities[0]} of the bandwidth"
    fewer_bytes = case.without_estimate("fewer_bytes")
    wide = [row for row in rows if not row.op.array_types or _WIDE.search(row.op.array_types)]
    if wide:
        part = _time_ps(wide) / _time_ps(rows)
        text = f"{format_percent(100.0 * part)}% of that is in ops on 32-bit numbers; 16 bit at most halves their bytes"
        fewer_bytes = case.action("fewer_bytes", cost, Range(0.0, 0.5 * part), text)
    return case.cause(
        "memory_bound",
        "Memory-bound work",
        cost,
        f"{_first_of(rows)} with little compute per byte{of_bandwidth}",
        actions=(fewer_bytes,),
        rests_on=_row_of(rows),
        confidence="medium",
        quantities=quantities,
    )


_MULTIPLES = {"fp16": ALIGNED_BYTES // 2, "bf16": ALIGNED_BYTES // 2}
"""By precision: multiples for tensor cores. Products in float32 need not run on them, and 16 bit comes first then."""
_TPU_MULTIPLES = {"M": 8, "N": 128, "K": 128, "input channels": 128, "output channels": 128}
"""TPU arrays consist of tiles of 8 x 128 numbers, and matrix units multiply at least 128 x 128 at a time."""


def unaligned_shapes(case: Case) -> Cause | None:
    """Check for kernels that pad channels, or else compare products of unaligned and aligned sizes.

    Compared are, on a GPU, products in 16 bit, and on a TPU all, as matrix units run them.
    """
    padding = _padding_ps(case)
    cost = _claim(case, percent(padding.total(), case.results["kernels"].whole_ps) or 0.0) if padding else None
    if cost is not None:
        return _padded(case, cost, padding)
    aligned, rows = _by_alignment(case)
    cost = _claim_of(case, rows)
    if cost is None:
        return None
    reached, others = _roofline_percent(rows), _roofline_percent(aligned)
    first = rows[0]
    compared = f"{format_percent(reached)}% of the roofline, compared with {format_percent(others)}% for aligned sizes"
    most = 1.0 - reached / others
    return case.cause(
        "unaligned_shapes",
        f"Running {_kinds(case, rows)} of unaligned sizes",
        cost,
        f"{_first_of(rows)}: {_odd_text(case, first)}; {compared}",
        actions=(case.action("aligned_sizes", cost, Range(0.0, most)),),
        rests_on=_row_of(rows),
        confidence="medium",
    )


_PADDING = re.compile(r"AddPaddingKernel$")
"""Kernels in which cuDNN copies an array of a convolution, with its channels padded to 16 bytes for tensor cores."""
_OF_PADDING = Range(0.5, 1.0)


def _padding_ps(case: Case) -> Counter[str]:
    """Return the time of padding kernels by op, the longest first; empty on a TPU, or for another kind of step."""
    times = Counter[str]()
    if case.results.has_device and case.is_headline:
        kernels = case.results["kernels"]
        for kernel, total_ps in zip(kernels.kernels, kernels.total_ps.tolist(), strict=True):
            if _PADDING.search(short_name(kernel.name)):
                times[kernel.op.hlo_op or kernel.op.name] += total_ps
    return Counter(dict(times.most_common()))


def _padded(case: Case, cost: Range, padding: Counter[str]) -> Cause:
    """Return the cause of padding, with the sizes of the op that is padded longest, if the roofline knows it."""
    first, roofline = next(iter(padding)), case.results["roofline"]
    ops = [row for row in (() if roofline is None else roofline.ops) if row.op.op == first]
    odd = next(filter(None, (_odd_text(case, row) for row in ops)), "")
    names = (short_name(kernel.name) for kernel in case.results["kernels"].kernels)
    kernel = next(filter(_PADDING.search, names))
    aligned = case.action("aligned_sizes", cost, _OF_PADDING, "aligned convolutions need no padding, and take as long")
    return case.cause(
        "unaligned_shapes",
        "Padding channels of convolutions",
        cost,
        f"{kernel} in {counted(len(padding), 'op')} (longest: {without_middle(first, LONGEST_NAME)})"
        + f": {odd}" * bool(odd),
        actions=(aligned,),
        rests_on=(in_categories("device_compute"), Evidence("kernels", "kernels_by_name", kernel)),
    )


def _by_alignment(case: Case) -> tuple[list[RooflineOp], list[RooflineOp]]:
    """Return products of aligned and of unaligned sizes; the second are empty if they perform as well as the first."""
    roofline = case.results["roofline"]
    if roofline is None or not case.is_headline or not roofline.whole_ps:
        return [], []
    rows = [row for row in roofline.ops if row.op.sizes and _reached(row)]
    if case.program.is_tpu:
        rows = [row for row in rows if row.op.runs_in_steps]
    else:
        rows = [row for row in rows if row.work.precision in _MULTIPLES]
    unaligned = [row for row in rows if _odd_sizes(case, row)]
    aligned = [row for row in rows if not _odd_sizes(case, row)]
    if not aligned or not unaligned or _roofline_percent(unaligned) >= _roofline_percent(aligned):
        return aligned, []
    return aligned, unaligned


def _odd_sizes(case: Case, row: RooflineOp) -> dict[str, tuple[int, int]]:
    """Return the sizes of a product that are not multiples of the size for matrix units, each with that multiple."""
    if not case.program.is_tpu:
        multiple = _MULTIPLES.get(str(row.work.precision), ALIGNED_BYTES // 4)
        return {name: (size, multiple) for name, size in off_multiple(row.op.sizes, multiple).items()}
    multiples = ((name, size, _TPU_MULTIPLES.get(name, 1)) for name, size in row.op.sizes.items())
    return {name: (size, multiple) for name, size, multiple in multiples if off_multiple({name: size}, multiple)}


def _odd_text(case: Case, row: RooflineOp) -> str:
    odd = _odd_sizes(case, row)
    return ", ".join(f"{name} = {size} (to {rounded_up(size, multiple)})" for name, (size, multiple) in odd.items())


def _reached(row: RooflineOp) -> float:
    return row.judged.roofline_percent or 0.0


def _roofline_percent(rows: Iterable[RooflineOp]) -> float:
    times = [(row.work.time_ps, min(_reached(row), 100.0)) for row in rows]
    whole = sum(time_ps for time_ps, _ in times)
    return sum(time_ps * reached for time_ps, reached in times) / whole if whole else 0.0


def low_utilisation(case: Case) -> Cause | None:
    """Check for matrix products and convolutions far from both peaks: small ones, and large ones with slow kernels."""
    padding = _padding_ps(case)
    _, unaligned = _by_alignment(case)
    named = {id(row) for row in unaligned}
    # What padding takes is a cause of its own: judged is the rest of these ops.
    rows = [
        row
        for row in (_without(row, padding[row.op.op], case) for row in _bound(case, "latency") if id(row) not in named)
        if row.judged.bound == "latency"
    ]
    cost = _claim_of(case, rows)
    if cost is None:
        return None
    small, large = [row for row in rows if row.is_small], [row for row in rows if not row.is_small]
    what, detail = _kinds(case, rows), f"{_first_of(rows)}, far from both the compute and the bandwidth peak"
    if not rows[0].is_small:
        run_us = rows[0].work.time_ps / rows[0].op.runs / PS_PER_US
        now, least = (f"{format_number(us)} us" for us in (run_us, run_us * _reached(rows[0]) / 100.0))
        detail += f"; a run takes {now}, at the roofline {least}"
    return case.cause(
        "low_utilisation",
        f"Running {what} slowly" if large else f"Running small {what}",
        cost,
        detail,
        actions=[
            _toward_peaks(case, code, part, cost.scaled(_time_ps(part) / _time_ps(rows)))
            for code, part in (("larger_products", small), ("other_kernels", large))
            if part
        ],
        rests_on=_row_of(rows),
        confidence="medium",
    )


def _kinds(case: Case, rows: Iterable[RooflineOp]) -> str:
    """Return what ops are: matrix products, convolutions or both.

    XLA runs matrix products on a TPU as convolutions, so the name of the framework op counts there.
    """
    kinds = set()
    for row in rows:
        asked = getattr(row.op, "type", "") or row.op.framework_op.rpartition("/")[2]
        is_convolution = _CONVOLUTION.search(asked if case.program.is_tpu else f"{asked} {row.op.op}")
        kinds.add("convolution" if is_convolution else "product")
    return PRODUCTS[frozenset(kinds)]


def _without(row: RooflineOp, time_ps: int, case: Case) -> RooflineOp:
    """Return an op of the roofline without a part of its time."""
    if not time_ps:
        return row
    work = replace(row.work, time_ps=row.work.time_ps - time_ps)
    return replace(row, work=work, judged=judge(work, case.results["roofline"].peaks))


def _bound(case: Case, bound: str) -> list[RooflineOp]:
    """Return the ops with this bound: products if it is latency, else all but products and layout conversions.

    Attention is neither: larger batches and layers do not bring its kernels nearer to a peak.
    """
    roofline = case.results["roofline"]
    if roofline is None or not case.is_headline or not roofline.whole_ps:
        return []
    is_product = bound == "latency"
    rows = (row for row in roofline.ops if row.judged.bound == bound and bool(row.op.matrix_flops) == is_product)
    rows = (row for row in rows if getattr(row.op, "category", "") != "attention")
    rows = (row for row in rows if row.op.runs_in_steps or not case.program.is_tpu)
    return [row for row in rows if not _CONVERSION.search(row.op.op)]


def _claim_of(case: Case, rows: list[RooflineOp]) -> Range | None:
    """Claim the time of ops from device compute; on a TPU, whose ops also wait, their time in the steps."""
    if not rows:
        return None
    if not case.program.is_tpu:
        return _claim(case, 100.0 * _time_ps(rows) / case.results["roofline"].whole_ps)
    in_steps_ps = _in_steps_ps(row.op for row in rows)
    share = min(100.0 * in_steps_ps / max(case.results["xla"].step_ps, 1), case.ledger.left("device_compute"))
    return case.ledger.claim("device_compute", most=share) if share >= LEAST_PERCENT else None


def _in_steps_ps(ops: Iterable[HloOp | FrameworkOp]) -> float:
    return sum(op.time_ps * op.runs_in_steps / op.runs for op in ops)


def _time_ps(rows: Iterable[RooflineOp]) -> int:
    return sum(row.work.time_ps for row in rows)


def _first_of(rows: list[RooflineOp]) -> str:
    op = rows[0].op
    return f"{counted(len(rows), 'op')} (largest: {op_and_place(op.op, op.layer or op.source)})"


def _row_of(rows: list[RooflineOp]) -> tuple[Evidence]:
    return (Evidence("roofline", "roofline_ops", rows[0].op.op),)


_WIDE = re.compile(r"\b(?:f32|f64|s64|u64|c64|c128|float|double|int64|complex\d+)\[")


def _toward_peaks(case: Case, code: str, rows: list[RooflineOp], cost: Range) -> Action | None:
    """Return advice for latency-bound products; at best, they reach the limit of that."""
    roofs = [row.judged.roofline_percent for row in rows]
    known = [(row.work.time_ps, roof / LOW_PERCENT) for row, roof in zip(rows, roofs, strict=True) if roof is not None]
    if len(known) < len(rows):
        return case.without_estimate(code)
    # The share of the product in a fusion is unknown.
    parts = [0.5 if case.program.is_tpu and "fusion" in getattr(row.op, "category", "") else 1.0 for row in rows]
    gains = (part * time_ps * (1.0 - min(roof, 1.0)) for part, (time_ps, roof) in zip(parts, known, strict=True))
    most = sum(gains) / _time_ps(rows)
    text = (
        f"{'for the same number of examples; ' * ADVICE[code].is_per_examples}at {LOW_PERCENT:.0f}% of the roofline, "
        f"the limit of latency-bound ops, they take {format_percent(100.0 * most)}% less"
    )
    text += "; half of the time of a fusion" * (min(parts) < 1.0)
    return case.action(code, cost, Range(0.0, most), text)


def time_in_16_bit(roofline: Roofline | None) -> float | None:
    """Return the minimum time of float32 products in 16 bit by the roofline, as a share (0 to 1) of their time.

    Small products do not count. None if the work of these products, or any peak, is unknown.
    """
    if roofline is None or not roofline.peaks.bytes_per_second:
        return None
    peaks = [roofline.peaks.flops_per_second(precision) for precision in ("fp16", "bf16")]
    peak, bandwidth = max((each for each in peaks if each), default=None), roofline.peaks.bytes_per_second
    rows = [row for row in _products_in_32_bit(roofline) if not row.is_small]
    now_ps = sum(row.work.time_ps for row in rows)
    if not now_ps or peak is None:
        return None
    least = sum(max((row.work.flops or 0.0) / peak, (row.work.bytes or 0.0) / 2 / bandwidth) for row in rows)
    return min(least * 1e12 / now_ps, 1.0)


_NAMED_ARRAYS = 3
_TO_DEVICE, _TO_HOST, _ON_DEVICE = "host_to_device", "output", "device_to_device"


def host_copies(case: Case) -> Cause | None:
    """Check for waiting for arrays in host memory: copies to a TPU, and back."""
    copies = case.results["kernels"].async_copies
    ways: dict[Way, str] = {"to_device": _TO_DEVICE, "to_host": _TO_HOST}
    if not case.results["steps"].copies_are_input:
        parts = [ways[way] for way in ways if _waited_ms(case, way)]
    else:
        parts = [_TO_HOST] if _waited_ms(case, "to_host") else []
    waited_ms = sum(_waited_ms(case, way) for way, part in ways.items() if part in parts)
    share = min(100.0 * waited_ms / case.step_ms, case.ledger.left(*parts))
    if share < LEAST_PERCENT:
        return None
    cost = case.ledger.claim(*parts, most=share)
    waiting = f"{format_ms(case.ledger.ms(cost).high)} of {format_ms(case.step_ms)} ms"
    first = next(each for each in copies.copies if each.way in ways)
    # 32-bit arrays can have half of the bytes, and then compute takes less time, too.
    is_wide = all(each.shape.startswith("f32[") for way in ways for each in _in_steps(case, way))
    half = Range(0.5, min(0.5 * (1.0 + case.share("device_compute") / cost.high), 1.0))
    halved = case.action("halve_copies", cost, half) if is_wide else None
    made = case.cause(
        "host_copies",
        "Waiting for copies between host and TPU memory",
        cost,
        f"{waiting}; {_arrays(case)}",
        actions=(_keep_on_device(case, cost), halved, _overlap(case, cost)),
        rests_on=(*map(in_categories, parts), Evidence("kernels", "async_copies", first.copy)),
    )
    return replace(made, are_alternatives=True)


def _mean(case: Case, way: Way, name: str) -> float:
    values = [each.mean(name) for each in case.results["kernels"].async_copies.of_way(way)]
    return sum(values) / len(values) if values else 0.0


def _waited_ms(case: Case, way: Way) -> float:
    return _mean(case, way, "waited_ps") / PS_PER_MS


def _in_steps(case: Case, way: Way) -> list[AsyncCopy]:
    copies = case.results["kernels"].async_copies
    found = {each.array or each.copy: each for each in copies.copies if each.way == way and each.in_steps}
    return [found[name] for name in sorted(found)]


def _arrays(case: Case) -> str:
    there, back = _in_steps(case, "to_device"), _in_steps(case, "to_host")
    names = {each.array for each in there}
    if names == {each.array for each in back} and "" not in names:
        rates = f"{_size(case, 'to_device')} to the TPU{_rate(case, 'to_device')} and {_size(case, 'to_host')} back"
        moving = "comes from the host and goes back" if len(there) == 1 else "come from the host and go back"
        return f"{_named(there)} {moving} in each step: {rates}{_rate(case, 'to_host')}"
    texts = []
    if there:
        of_all = f"{_size(case, 'to_device')}{_rate(case, 'to_device')}"
        texts.append(f"{_named(there)} {'comes' if len(there) == 1 else 'come'} from the host in each step: {of_all}")
    if back:
        going = "goes" if len(back) == 1 else "go"
        of_all = f"{_size(case, 'to_host')}{_rate(case, 'to_host')}"
        texts.append(f"{_named(back)} {going} to the host in each step: {of_all}")
    return "; ".join(texts)


def _size(case: Case, way: Way) -> str:
    return format_bytes(_mean(case, way, "bytes"))


def _named(copies: Sequence[AsyncCopy]) -> str:
    named = [without_middle(each.array, LONGEST_NAME) for each in copies if each.array]
    shapes, sizes = {each.shape for each in copies}, {each.bytes for each in copies}
    what = counted(len(copies), "array") + (f" {shapes.pop()}" if len(shapes) == 1 else "")
    known = [listed(named, _NAMED_ARRAYS)] if len(named) == len(copies) else []
    if len(sizes) == 1 and None not in sizes:
        known.append(f"{format_bytes(sizes.pop())}{' each' * (len(copies) > 1)}")
    return f"{what} ({', '.join(known)})" if known else what


def _rate(case: Case, way: Way) -> str:
    """Return the rate of copies that cores wait for; empty if unknown.

    The minimum is bytes / time with any of them in flight; the maximum is bytes / waiting time.
    """
    moved, link_ps, waited_ps = (_mean(case, way, name) for name in ("awaited_bytes", "link_ps", "waited_ps"))
    if not moved or not link_ps or not waited_ps:
        return ""
    low, high = (format_number(1000.0 * moved / time_ps) for time_ps in (link_ps, waited_ps))
    return f" at {low} to {high} GB/s" if low != high else f" at {high} GB/s"


def _keep_on_device(case: Case, cost: Range) -> Action | None:
    """Return the advice to keep arrays on the device, if its memory is large enough for them."""
    copies = case.results["kernels"].async_copies
    memory = case.results["memory"]
    chips = [allocator for allocator in memory.allocators if allocator.place == "device" and allocator.capacity_bytes]
    action = case.action("keep_on_device", cost)
    if action is None:
        return None
    if copies.kept_bytes is None or not chips:  # the free memory is unknown
        return replace(action, text=f"{action.text}, if they fit", step_ms=None, rest_ms=None)
    capacity = min(allocator.capacity_bytes or 0 for allocator in chips)
    if copies.kept_bytes > capacity:
        return None
    used = max(allocator.peak_bytes for allocator in chips)
    kept, whole = format_bytes(copies.kept_bytes), format_bytes(capacity)
    donated = ", donated, so results need no extra memory" * copies.are_donated
    assumption = f"they fit in {whole} with the other arrays of the program; the current peak is {format_bytes(used)}"
    return replace(
        action, text=f"{action.text} ({kept} of {whole}{donated})", assumption=f"{assumption}, including copies of them"
    )


def _overlap(case: Case, cost: Range) -> Action | None:
    """Return the advice to start copies earlier: at best, the busier of link and core is always busy."""
    ways: tuple[Way, ...] = ("to_device", "to_host")
    needed_ms = [case.step_ms - case.ledger.ms(cost).high]
    for way in ways:
        moved, awaited, link_ps = (_mean(case, way, name) for name in ("bytes", "awaited_bytes", "link_ps"))
        if awaited:
            needed_ms.append(link_ps / PS_PER_MS * moved / awaited)
    least_ms = max(needed_ms)
    if least_ms >= case.step_ms:
        return None
    most = min((case.step_ms - least_ms) / case.ledger.ms(cost).high, 1.0)
    text = f"copies in both directions overlap with compute; the link alone takes {format_ms(max(needed_ms[1:]))} ms"
    return case.action("overlap_copies", cost, Range(0.0, most), text)


def kernel_waits(case: Case) -> Cause | None:
    """Check for kernels with marked waits for their blocks; of several kernels, the one that waits most."""
    kernels = case.results["kernels"]
    sums: dict[tuple[str, int | None], list[float]] = {}
    for each in kernels.regions.waits:
        times = (each.steps.sum(ps) / max(each.steps.count, 1) / PS_PER_MS for ps in (each.waited_ps, each.kernel_ps))
        before = sums.get((each.kernel, each.program_id), [0.0, 0.0])
        sums[each.kernel, each.program_id] = [one + other for one, other in zip(before, times, strict=True)]
    key, (waited_ms, kernel_ms) = max(sums.items(), key=lambda item: item[1][0], default=(("", None), [0.0, 0.0]))
    hosts = max(len({id(each.steps) for each in kernels.regions.waits if each.kernel == key[0]}), 1)
    waited_ms, kernel_ms = waited_ms / hosts, kernel_ms / hosts
    share = min(100.0 * waited_ms / case.step_ms, case.ledger.left("device_compute"))
    if share < LEAST_PERCENT:
        return None
    cost = case.ledger.claim("device_compute", most=share)
    regions = [each for each in kernels.regions.regions if (each.kernel, each.program_id) == key and each.waits]
    first = max(regions, key=lambda each: each.total_ps)
    part = Quantity("waits", 100.0 * waited_ms / kernel_ms, of=f"kernel {key[0]}")
    rates, quantities, feed = _fed_faster(case, key, kernel_ms, cost)
    return case.cause(
        "kernel_waits",
        "Waiting for blocks inside a kernel",
        cost,
        f"{without_middle(key[0], LONGEST_NAME)} waits for {part} of its time, mostly in {first.region}{rates}",
        actions=(feed,),
        rests_on=(in_categories("device_compute"), Evidence("kernels", "kernel_regions", first.region)),
        quantities=(part, *quantities),
    )


def _fed_faster(
    case: Case, key: tuple[str, int | None], kernel_ms: float, cost: Range
) -> tuple[str, tuple[Quantity, ...], Action | None]:
    """Return how near a kernel comes to the peaks, as a clause with numbers, and the advice to feed it faster.

    At best, it takes as long as the busier of its two limits allows. Both are known if its shapes define its work.
    """
    roofline = case.results["roofline"]
    rows = () if roofline is None else roofline.ops
    row = next((row for row in rows if (row.op.op, getattr(row.op, "program_id", None)) == key), None)
    if row is None or row.judged.compute_percent is None or row.judged.memory_percent is None:
        return "", (), case.without_estimate("feed_kernel")
    computes = Quantity("compute_peak", row.judged.compute_percent, of=row.op.op)
    moves = Quantity("bandwidth", row.judged.memory_percent, of=row.op.op)
    text = f"; its shapes imply {computes} of the compute peak and at least {moves} of the bandwidth"
    reached = max(row.judged.compute_percent, row.judged.memory_percent)
    if not 0.0 < reached < 100.0:
        return text, (computes, moves), case.without_estimate("feed_kernel")
    most = min(kernel_ms * (1.0 - reached / 100.0) / case.ledger.ms(cost).high, 1.0)
    return text, (computes, moves), case.action("feed_kernel", cost, Range(0.0, most))


def chip_copies(case: Case) -> Cause | None:
    """Check for waiting for copies between the memories of a chip, which start too late to be hidden."""
    share = min(100.0 * _waited_ms(case, "on_device") / case.step_ms, case.ledger.left(_ON_DEVICE))
    if share < LEAST_PERCENT:
        return None
    copies = _in_steps(case, "on_device")
    first = max(copies, key=lambda each: each.waited_ps)
    cost = case.ledger.claim(_ON_DEVICE, most=share)
    return case.cause(
        "chip_copies",
        "Waiting for copies between the chip's memories",
        cost,
        f"{counted(len(copies), 'copy', 'copies')}, longest {without_middle(first.copy, LONGEST_NAME)}"
        f"{_rate(case, 'on_device')}",
        actions=(case.without_estimate("fewer_bytes"),),
        rests_on=(in_categories(_ON_DEVICE), Evidence("kernels", "async_copies", first.copy)),
        confidence="medium",
    )
