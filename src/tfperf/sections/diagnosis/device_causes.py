"""Causes of devices: what they wait for, 32 bit, collectives, devices that do nothing, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.base.units import format_percent, percent
from tfperf.report.model import Quantity
from tfperf.sections.diagnosis.actions import ADVICE
from tfperf.sections.diagnosis.case import LEAST_PERCENT, Case, count_devices, in_categories
from tfperf.sections.diagnosis.cause import Action, Cause, Evidence, Range
from tfperf.sections.diagnosis.input_causes import stated
from tfperf.sections.diagnosis.work_causes import time_in_16_bit
from tfperf.sections.idle.tables import CAUSE_TEXTS
from tfperf.sections.idle.tables import Cause as IdleCause
from tfperf.sections.memory.findings import findings_of
from tfperf.sections.overview.quantities import share_of_step
from tfperf.trace.steps.why_unknown import lacks_devices

if TYPE_CHECKING:
    from tfperf.sections.idle.analysis import Idle
    from tfperf.sections.kernels.analysis import Kernels
    from tfperf.sections.kernels.precision import Part
    from tfperf.sections.memory.analysis import Memory

_HOST_WORKS_PERCENT = 50.0
"""From this share on, ops run on the host because no device is used, not because devices were not traced."""


def launch_bound(case: Case) -> Cause | None:
    """Judge the time in which the device waits for the host to launch work."""
    kernels: Kernels = case.results["kernels"]
    if not case.matters("kernel_launch") or not len(kernels):
        return None
    launches = max(kernels.launches, key=lambda each: each.kernels, default=None)
    detail, rests_on = "the device waits for the host's launches", [in_categories("kernel_launch")]
    quantities = []
    if launches is not None and not case.results.is_narrowed:
        per_step = launches.kernels_per_step
        tiny = Quantity("tiny_kernels", launches.tiny_kernel_percent, of=launches.device)
        detail = f"{per_step:.0f} kernels in each" if per_step else f"{launches.kernels:,} kernels in all"
        if tiny.value is not None:
            detail, quantities = f"{detail}, {tiny} of them shorter than 10 us", [tiny]
        rests_on.append(Evidence("kernels", "launches", launches.device))
    functions = case.results["functions"].functions
    is_compiled = bool(functions) and all(function.is_compiled for function in functions)
    actions = ("larger_batch",) if is_compiled else ("jit_compile", "larger_batch")
    cost = case.ledger.claim("kernel_launch")
    of_whole, wholes = case.of_whole(share_of_step(case.summary, "kernel_launch", case.host), cost)
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
    """Judge kernels that tensor cores could do in 16 bit, averaged over the devices that work."""
    if not case.results.has_device:
        return None
    kernels: Kernels = case.results["kernels"]
    pairs = [(each.eligible_percent, each.most_eligible_percent) for each in kernels.precision]
    known = [(low, high) for low, high in pairs if low is not None and high is not None]
    if not known:
        return None
    least, most = (sum(shares) / len(known) for shares in zip(*known, strict=True))
    if min(most, case.ledger.left("device_compute")) < LEAST_PERCENT:
        return None
    first = next(iter(kernels.missed_tensor_cores()), "")
    rests_on = [in_categories("device_compute"), *([Evidence("kernels", "kernels", first)] if first else [])]
    cost = case.ledger.claim("device_compute", most=most, least=least)
    detail = "not on tensor cores"
    return case.cause(
        "device_compute_32bit",
        "Computing in 32 bit",
        cost,
        detail,
        actions=(_mixed_precision(case, cost, kernels),),
        rests_on=rests_on,
        confidence="medium",
    )


def _of_kernels(kernels: Kernels) -> str:
    """Return which share of the time of kernels in the steps is eligible for 16 bit, as it is shown."""
    shares = []
    for part in ("eligible", "most_eligible"):
        known = [each for each in kernels.precision if part in each.by_step_ps]
        whole = sum(each.total_ps(kind) or 0 for each in known for kind in _PRECISIONS)
        shares.append(percent(sum(each.total_ps(part) or 0 for each in known), whole) or 0.0)
    return stated(Range(shares[0], max(shares)))


_PRECISIONS: tuple[Part, ...] = ("compute_16", "compute_32", "compute_unknown")


def _mixed_precision(case: Case, cost: Range, kernels: Kernels) -> Action | None:
    """Return the advice to compute in 16 bit: by a rule of thumb, but no more than the roofline allows."""
    advice, least = ADVICE["mixed_precision"], time_in_16_bit(case.results["roofline"])
    rests_on = f"of products in 32 bit alone, {_of_kernels(kernels)} of kernel time"
    if least is None or 1.0 - least >= advice.most:
        return case.action("mixed_precision", cost, assumption=f"{rests_on}; {advice.assumption}")
    text = f"{rests_on}; on the roofline of 16 bit they still take {format_percent(100.0 * least)}% of it"
    return case.action("mixed_precision", cost, Range(min(advice.least, 1.0 - least), 1.0 - least), text)


def idle_devices(case: Case) -> Cause | None:
    """Judge devices that recorded nothing, or nothing in the steps, beside others that work."""
    if not case.is_headline or lacks_devices(case.results["steps"]):
        return None
    silent, total = count_devices(case)
    on_host = case.program.op_percent or 0.0
    if not silent or (silent == total and on_host < _HOST_WORKS_PERCENT):
        return None
    detail, ops = "they are in the trace, without work in the steps", case.quantity("ops", on_host)
    if silent == total:
        detail = f"ops run on the host for {ops} of the step"
    is_spread = total - silent > 1
    advice = case.without_estimate("start_all_devices" if is_spread else "use_all_devices")
    actions = () if advice is None else (advice,)
    return Cause(
        code="idle_devices",
        title=f"{silent} of {total} devices do{'es' * (total == 1)} nothing",
        kind=case.summary.kind,
        cost_ms=None,
        cost_percent=None,
        detail=detail,
        confidence="medium",
        rests_on=(Evidence("environment", "environment", case.results["environment"][0].host),),
        actions=actions,
        # As if the idle part of the machine were time of the step.
        gain_ms=case.step_ms * silent / (total + 1),
        step_ms=case.step_ms,
        quantities=(ops,) if silent == total else (),
        host=case.host,
    )


def host_ops(case: Case) -> Cause | None:
    """Judge ops on host threads that launch nothing, while the device has nothing to do."""
    cost = _idle_cost(case, "host_compute", "host_compute")
    if cost is None:
        return None
    detail, action = "the device has nothing to do meanwhile", case.without_estimate("move_ops")
    rests_on = (Evidence("idle", "idle_causes", CAUSE_TEXTS["host_compute"].title),)
    return case.cause("host_ops", "Running ops on the host", cost, detail, actions=(action,), rests_on=rests_on)


def waiting_for_results(case: Case) -> Cause | None:
    """Judge that the program waits for results, while the device has nothing to do."""
    cost = _idle_cost(case, "synchronise", "host_compute", "all_others")
    if cost is None:
        return None
    detail, actions = "the device has nothing to do meanwhile", ("fetch_less_often",)
    rests_on = (Evidence("idle", "idle_causes", CAUSE_TEXTS["synchronise"].title),)
    return case.cause("waiting_for_results", "Waiting for results", cost, detail, actions=actions, rests_on=rests_on)


def _idle_cost(case: Case, state: IdleCause, *parts: str) -> Range | None:
    """Return the share of the step in which a device is idle for this cause; None if it is too small, or unknown."""
    if not case.results.has_device or case.results.is_other_kind or case.program.host_loop is not None:
        return None
    idle: Idle = case.results["idle"]
    if idle.without_steps:
        return None
    share = min(idle.percents[state], case.ledger.left(*parts))
    return case.ledger.claim(*parts, most=share) if share >= LEAST_PERCENT else None


def memory_pressure(case: Case) -> Cause | None:
    """Judge memory that is nearly full, fragmented or growing: the gravest in words, the actions for all of it."""
    if not case.is_headline:
        return None
    memory: Memory = case.results["memory"]
    problems = [finding for finding in findings_of(memory) if finding.severity == "problem"]
    if not problems:
        return None
    actions = (case.without_estimate(code) for problem in problems for code in _MEMORY_ACTIONS[problem.code])
    return Cause(
        code="memory_pressure",
        title="Memory is nearly full, fragmented or growing",
        kind=case.summary.kind,
        cost_ms=None,
        cost_percent=None,
        detail=problems[0].text.rstrip("."),
        confidence="high",
        rests_on=(Evidence("memory", "memory_allocators", memory.allocators[0].name),),
        actions=tuple(action for action in actions if action is not None),
        gain_ms=0.0,
        step_ms=case.step_ms,
        quantities=problems[0].quantities,
        host=case.host,
    )


_MEMORY_ACTIONS = {
    "memory_full": ("use_less_memory", "share_device_memory"),
    "pinned_memory_full": ("raise_pinned_limit",),
    "memory_fragmented": ("avoid_fragmentation",),
    "memory_growth": ("release_tensors",),
}
"""What helps against each problem that the section about memory finds."""
