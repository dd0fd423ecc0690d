"""From what the other sections found out to causes: each part of a step blamed once, the best to fix first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tfperf.analysis.registry import Results
from tfperf.base.units import format_percent, without_middle
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case, Ledger, count_devices, ledger_of
from tfperf.sections.diagnosis.cause import Cause, Computed, Diagnosis, Range
from tfperf.sections.diagnosis.compute_causes import (
    computed,
    densified_sparse,
    dominant_layer,
    double_precision,
    input_in_step,
    loop_in_graph,
    one_hot_product,
    optimizer_update,
    print_in_graph,
    python_in_graph,
    slow_replica,
    too_many_threads,
)
from tfperf.sections.diagnosis.device_causes import (
    chip_copies,
    compute_in_32_bit,
    host_copies,
    host_ops,
    idle_devices,
    kernel_waits,
    launch_bound,
    layout_conversion,
    low_utilisation,
    memory_bound,
    memory_pressure,
    unaligned_shapes,
    waiting_for_results,
)
from tfperf.sections.diagnosis.host_causes import (
    awaiting_each_result,
    checkpointing,
    compilation,
    eager_ops,
    eager_ops_of_capture,
    fetch_results,
    garbage_collection,
    iterator_per_step,
    late_calls,
    late_python,
    numpy_conversion,
    profiling_overhead,
    python_between_steps,
    small_work_per_step,
    waiting_in_calls,
    warm_up,
)
from tfperf.sections.diagnosis.program import combine, pace_setter
from tfperf.sections.diagnosis.waiting_causes import (
    collectives,
    collectives_bound,
    input_contention,
    input_copy,
    input_wait,
    output_copy,
    stated,
    straggler,
    with_late_host,
)
from tfperf.sections.diagnosis.wall_causes import between_steps, evaluation, slow_steps, with_slow_steps
from tfperf.sections.overview.section import input_cost, why_unknown_slowed
from tfperf.sections.overview.summary import INPUT_LIMITS, Overview, Summary
from tfperf.trace.steps.breakdown import NO_DEVICE, lacks_devices, why_devices_unknown, why_unknown
from tfperf.trace.steps.categories import CATEGORY_TITLES

if TYPE_CHECKING:
    from tfperf.sections.hosts.analysis import Hosts
    from tfperf.trace.flaw import Flaw

WORTH_FIXING = 0.03
"""Share of the step that fixing a cause must likely bring, or the diagnosis says that nothing is worth it."""
_RULES: tuple[Callable[[Case], Cause | None], ...] = (
    straggler,
    iterator_per_step,
    compilation,
    host_copies,
    input_wait,
    input_copy,
    input_contention,
    output_copy,
    slow_replica,
    collectives,
    collectives_bound,
    garbage_collection,
    python_in_graph,
    print_in_graph,
    input_in_step,
    densified_sparse,
    one_hot_product,
    loop_in_graph,
    numpy_conversion,
    checkpointing,
    fetch_results,
    eager_ops,
    slow_steps,
    awaiting_each_result,
    late_calls,
    late_python,
    small_work_per_step,
    launch_bound,
    host_ops,
    waiting_for_results,
    python_between_steps,
    waiting_in_calls,
    too_many_threads,
    dominant_layer,
    optimizer_update,
    double_precision,
    kernel_waits,
    layout_conversion,
    compute_in_32_bit,
    unaligned_shapes,
    low_utilisation,
    memory_bound,
    chip_copies,
    idle_devices,
    memory_pressure,
    between_steps,
    evaluation,
    warm_up,
    profiling_overhead,
)
"""In the order in which they claim time; the ranking is by gain."""


def diagnose(results: Results) -> Diagnosis:
    """Return the causes of each kind of step, ranked by the share of the step that fixing them likely brings."""
    overview: Overview = results["overview"]
    case = _case(results, _pace_setter(results))
    if case is None:
        return _without_steps(results)
    causes = _judge(case)
    for summary in overview.by_kind:
        if summary.kind != overview.kind:
            other = _case(_of_kind(results, summary.kind), is_headline=False)
            causes += _judge(other) if other is not None else []
    causes.sort(key=lambda cause: (cause.kind != overview.kind, -cause.gain))
    cost, missing = input_cost(results), results["steps"].missing
    most = () if missing else computed(case)
    return Diagnosis(
        _headline(case.summary, causes, most, missing),
        tuple(causes),
        case.summary,
        case.unknown,
        case.host,
        unjudged=why_unjudged(case),
        computed=most,
        input_cost_percent=None if cost is None else Range(cost.low, cost.high),
    )


def _of_kind(results: Results, kind: str) -> Results:
    """Return the results over the steps of one kind."""
    return results.only([host.counting(np.flatnonzero(host["steps"].steps.are(kind))) for host in results.hosts])


def _case(results: Results, pace: int | None = None, *, is_headline: bool = True) -> Case | None:
    """Return the average step, or that of the host that sets the pace; None if no step time was measured."""
    overview: Overview = results["overview"]
    summary: Summary = overview if pace is None else overview.by_host[pace]
    if summary.step_time_ms is None:
        return None
    unknown = (results["steps"] if pace is None else results.hosts[pace]["steps"]).unknown
    programs = [times.program for times in results.of_hosts("diagnosis")]
    return Case(
        results=results,
        program=combine(programs) if pace is None else programs[pace],
        summary=summary,
        ledger=ledger_of(summary, unknown),
        unknown=unknown,
        step_ms=summary.step_time_ms.average,
        is_headline=is_headline,
        pace=pace,
    )


def _without_steps(results: Results) -> Diagnosis:
    """Return why there is no step time, and what is wrong whatever the steps are."""
    overview: Overview = results["overview"]
    case = Case(
        results=results,
        program=combine([times.program for times in results.of_hosts("diagnosis")]),
        summary=overview,
        ledger=Ledger(0.0, {}),
        unknown=frozenset(),
        step_ms=0.0,
        is_headline=True,
    )
    causes = tuple(cause for rule in (eager_ops_of_capture, memory_pressure) if (cause := rule(case)) is not None)
    reason = f"no step time was measured: {results['steps'].steps.explanation}"
    return Diagnosis(f"N{reason[1:]}.", causes, overview, unjudged=dict.fromkeys(NEEDS, reason))


def _pace_setter(results: Results) -> int | None:
    """Return the host that sets the pace of the others: they wait for it in collectives, or for its input."""
    overview: Overview = results["overview"]
    hosts: Hosts = results["hosts"]
    if not hosts.is_known:
        pace = pace_setter([times.program for times in results.of_hosts("diagnosis")])
    else:
        blamed = "" if hosts.straggler is None or hosts.straggler.is_outside_averages else hosts.straggler.host
        pace = next((place for place, host in enumerate(results.hosts) if host.host == blamed), None)
    if pace is None and (overview.input_percent or 0.0) >= INPUT_LIMITS[0]:
        pace = overview.worst_host
    return pace if pace is None or overview.by_host[pace].step_time_ms is not None else None


def _judge(case: Case) -> list[Cause]:
    found = [cause for rule in _RULES if (cause := rule(case)) is not None]
    causes = with_slow_steps(case, with_late_host(case, found))
    return [cause for cause in causes if _matters(cause)]


def _matters(cause: Cause) -> bool:
    """Return whether a cause takes enough of the wall time, as far as its cost is known."""
    return cause.cost_percent is None or cause.cost_percent.high * cause.wall_share >= LEAST_PERCENT


def _headline(judged: Summary, causes: list[Cause], most: tuple[Computed, ...], missing: Sequence[Flaw]) -> str:
    """Say the first cause in one sentence, or what the step consists of and what computes most in it."""
    first = causes[0] if causes else None
    if first is not None and first.kind == judged.kind and first.gain >= WORTH_FIXING:
        return sentence_of(first)
    if missing:
        return "What the step consists of is unknown, because events are missing from the profile."
    shares = sorted(((judged.percent[key], CATEGORY_TITLES[key]) for key in judged.categories), reverse=True)
    parts = [f"{title.lower()} {format_percent(share)}%" for share, title in shares if share >= 1.0]
    whole = f"the step is {', '.join(parts)}" if parts else "the trace does not show what the step consists of"
    largest = f"; largest: {listed_computed(most)}" if most else ""
    return f"Nothing worth fixing was found: {whole}{largest}."


def listed_computed(most: tuple[Computed, ...]) -> str:
    """Return what computes most as text, each with its share of the step, and of the roofline if it is known."""
    roofs = (each.roofline_percent for each in most)
    of_roofs = ("" if roof is None else f" (at {format_percent(roof)}% of the roofline)" for roof in roofs)
    shares = (f"{without_middle(each.name, LONGEST_NAME)} {format_percent(each.percent)}%" for each in most)
    return ", ".join(map("".join, zip(shares, of_roofs, strict=True)))


def sentence_of(cause: Cause) -> str:
    """Return a cause as one sentence: what it costs, and what shows it."""
    if cause.cost_percent is None:
        return f"{cause.title}: {cause.detail}."
    whole = "the step" if cause.of == "step" else "the wall time"
    return f"{cause.title} takes {stated(cause.cost_percent)} of {whole}: {cause.detail}."


_OF_HOST_LOOPS = ("waiting_for_results", "launch_bound", "python_between_steps")
"""Causes that are judged by what the thread of the program does, where it calls once a TPU is done (`HostLoop`)."""


def why_unjudged(case: Case) -> dict[str, str]:
    """Return the codes of the causes that cannot be judged, or not wholly, each with what is missing."""
    judged = _OF_HOST_LOOPS if case.program.host_loop is not None else ()
    reasons = {code: _reason(case, need) for code, need in NEEDS.items() if code not in judged}
    return {code: reason for code, reason in reasons.items() if reason}


def _reason(case: Case, need: _Need) -> str:
    hidden = next((category for category in need.categories if category in case.unknown), "")
    return _why_hidden(case, hidden) if hidden else need.gap(case)


def _why_hidden(case: Case, category: str) -> str:
    """Say why one of the hosts that the step is of cannot show a category."""
    hosts = case.results.hosts if case.pace is None else (case.results.hosts[case.pace],)
    hides = [host for host in hosts if len(host["steps"].steps) and category in host["steps"].unknown]
    host = next(iter(hides), hosts[0])
    why = why_unknown(host["steps"], category)
    return f"host {host.host}: {why}" if case.results.has_several_hosts else why


def _cores(case: Case) -> str:
    idle = case.program.is_tpu and case.share("all_others") >= LEAST_PERCENT
    return "a TPU core without an op waits for the host or for a slower core; the trace does not tell which" * idle


def _calls(case: Case) -> str:
    if case.program.is_tpu:
        return _cores(case)
    is_known = case.program.outside_calls_percent is not None or case.share("all_others") < LEAST_PERCENT
    return "" if is_known else "the trace does not show when the program is in a call"


def _collections(case: Case) -> str:
    if case.program.is_tpu:
        return _cores(case)
    is_known = case.program.collections is not None or case.share("all_others") < LEAST_PERCENT
    return (
        "" if is_known else "only captures of tfperf in the job record runs of the garbage collector: docs/capture.md"
    )


def _eager(case: Case) -> str:
    is_known = case.results["functions"].eager.percent is not None
    return "" if is_known else "the trace holds no event of running anything from Python"


def _fixed_work(case: Case) -> str:
    if case.share("device_compute"):
        return ""
    if case.program.op_percent is None:
        return "the trace shows no op of the step, on the host or on a device"
    if case.share("compilation") >= LEAST_PERCENT:
        return "functions are traced or compiled in the steps, which hides what a step costs whatever its size"
    return ""


def _ops(case: Case) -> str:
    is_known = case.program.work is not None or case.share("host_compute") < LEAST_PERCENT
    return "" if is_known else "the trace shows no op of the step on the host"


def _thread_pools(case: Case) -> str:
    why = _ops(case)
    if why or case.program.work is None:
        return why
    return "" if case.program.work.cores is not None else "the trace does not show how many cores the job can use"


def _host_precision(case: Case) -> str:
    why, work = _ops(case), case.program.work
    if why or work is None:
        return why
    is_known = work.double_percent is not None or case.results["xla"].place == "cpu"
    return "" if is_known else "the trace does not show in what precision the host computes"


def _idle_time(case: Case) -> str:
    if not case.results.has_device:
        return NO_DEVICE
    return "why devices are idle is known of the main kind of steps only" if case.results.is_other_kind else ""


def _straggler(case: Case) -> str:
    if not case.results.has_several_hosts:
        return "there is only one host, and a straggler is one of several"
    if case.results.is_other_kind:
        return "who waits for whom is known of the main kind of steps only"
    hosts: Hosts = case.results["hosts"]
    shares = [times.program.collective_percent for times in case.results.of_hosts("diagnosis")]
    # Without keys, hosts are compared by how much of a step they spend in collectives of the host.
    return "" if all(shares) and not case.results.has_device else hosts.why_unknown


def _copies_of_tpu(case: Case, category: str) -> str:
    """Return why copies of TPU cores are unknown; other jobs have none."""
    return _why_hidden(case, category) if case.program.is_tpu and category in case.unknown else ""


def _regions(case: Case) -> str:
    calls = any(op.category == "custom-call" for op in case.results["xla"].ops)
    is_known = case.results["kernels"].regions.regions or not (case.program.is_tpu and calls)
    return (
        "" if is_known else "the profile has no regions of kernels: --xla_enable_custom_call_region_trace records them"
    )


def _precision(case: Case) -> str:
    kernels = case.results["kernels"]
    is_known = case.share("device_compute") < LEAST_PERCENT or kernels.precision
    return "" if is_known else "the trace does not show in what precision the device computes"


def _launches(case: Case) -> str:
    is_known = case.share("kernel_launch") < LEAST_PERCENT or len(case.results["kernels"])
    return "" if is_known else "the trace holds no kernels"


def _layouts(case: Case) -> str:
    if case.results.is_other_kind:
        return "kernels are known of all steps together only"
    is_known = case.share("device_compute") < LEAST_PERCENT or len(case.results["kernels"])
    return "" if is_known else "the trace holds no kernels"


def _bounds(case: Case) -> str:
    if case.results.is_other_kind:
        return "what bounds instructions is known of all steps together only"
    if case.share("device_compute") < LEAST_PERCENT:
        return ""
    roofline = case.results["roofline"]
    share = roofline.judged_percent if roofline is not None else None
    return "" if share else "no work is known of which the peaks are known too (tfperf analyze -s roofline)"


def _wall(case: Case) -> str:
    is_other = case.results.is_other_kind or not case.is_headline
    return "the wall time is known of the main kind of steps only" if is_other else ""


def _idle_devices(case: Case) -> str:
    silent, total = count_devices(case)
    return _lacking(case) or (NO_DEVICE if silent == total else "")


def _lacking(case: Case) -> str:
    """Say why events of devices are missing; empty if none are."""
    hosts = (host["steps"] for host in case.results.hosts)
    return next(filter(None, map(why_devices_unknown, hosts)), "")


def _memory(case: Case) -> str:
    for host in case.results.hosts:
        every = host["memory"].allocators
        has_device = host.has_device or lacks_devices(host["steps"])
        allocators = [each for each in every if each.place != "host"] if has_device else every
        if not allocators:
            return f"no allocator{' of a device' * has_device} recorded anything (tfperf analyze -s memory)"
        for each in allocators:
            if each.place != "host" and each.capacity_bytes is None:
                return f"the capacity of {each.name} is not recorded"
            if each.growth_bytes_per_step is None:
                return f"there are too few steps to tell whether what {each.name} holds grows"
    return ""


def _overhead(case: Case) -> str:
    if case.results.is_other_kind:
        return f"what profiling costs was not measured for {case.summary.kind} steps"
    if any(host.facts.overhead_percent is None for host in case.results["environment"]):
        return "the capture did not measure what profiling costs: docs/capture.md says which captures do"
    return ""


class _Need(Struct, frozen=True):
    """What must be known to judge a cause: categories of the step, and what `gap` looks for."""

    categories: tuple[str, ...] = ()
    gap: Callable[[Case], str] = lambda _: ""
    """Returns what is missing; empty if nothing is."""


NEEDS: Mapping[str, _Need] = {
    "input_wait": _Need(("input_wait",)),
    "input_contention": _Need(("input_wait", "host_compute"), lambda case: why_unknown_slowed(case.results)),
    "input_copy": _Need(("host_to_device",)),
    "host_copies": _Need((), partial(_copies_of_tpu, category="output")),
    "chip_copies": _Need((), partial(_copies_of_tpu, category="device_to_device")),
    "kernel_waits": _Need((), _regions),
    "output_copy": _Need(("output",)),
    "compilation": _Need(("compilation",)),
    "warm_up": _Need(("compilation",)),
    "launch_bound": _Need(("kernel_launch",), _launches),
    "small_work_per_step": _Need(("host_compute", "all_others"), _fixed_work),
    "host_ops": _Need(("host_compute",), _idle_time),
    "waiting_for_results": _Need(("host_compute", "all_others"), _idle_time),
    "garbage_collection": _Need(("all_others",), _collections),
    "python_between_steps": _Need(("all_others",), _cores),
    "waiting_in_calls": _Need(("all_others",), _calls),
    "checkpointing": _Need(("host_compute", "all_others"), _eager),
    "fetch_results": _Need(("host_compute", "all_others"), _eager),
    "eager_ops": _Need(("host_compute", "all_others"), _eager),
    "run_eagerly": _Need(("host_compute", "all_others"), _eager),
    "numpy_conversion": _Need(("host_compute", "all_others")),
    "iterator_per_step": _Need(("host_compute", "all_others"), _eager),
    "collectives": _Need(("device_collectives", "host_compute")),
    "collectives_bound": _Need(("device_collectives", "host_compute")),
    "straggler": _Need((), _straggler),
    "skewed_input": _Need(("input_wait",), _straggler),
    "slow_replica": _Need(("host_compute",), _ops),
    "python_in_graph": _Need(("host_compute",), _ops),
    "print_in_graph": _Need(("host_compute",), _ops),
    "input_in_step": _Need(("host_compute",), _ops),
    "densified_sparse": _Need(("host_compute",), _ops),
    "one_hot_product": _Need(("host_compute",), _ops),
    "loop_in_graph": _Need(("host_compute",), _ops),
    "too_many_threads": _Need(("host_compute",), _thread_pools),
    "double_precision": _Need(("host_compute",), _host_precision),
    "optimizer_update": _Need(("host_compute",), _ops),
    "dominant_layer": _Need(("host_compute",), _ops),
    "device_compute_32bit": _Need(("device_compute",), _precision),
    "layout_conversion": _Need(("device_compute",), _layouts),
    "memory_bound": _Need(("device_compute",), _bounds),
    "unaligned_shapes": _Need(("device_compute",), _bounds),
    "low_utilisation": _Need(("device_compute",), _bounds),
    "profiling_overhead": _Need(("host_compute", "all_others"), _overhead),
    "between_steps": _Need((), _wall),
    "evaluation": _Need((), _wall),
    "slow_steps": _Need((), _wall),
    "idle_devices": _Need((), _idle_devices),
    "memory_pressure": _Need((), _memory),
}
"""Every cause by its code."""
