"""Which causes a trace does not let the diagnosis judge, and why: that it names none of them says nothing then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from tfperf.sections.diagnosis.case import LEAST_PERCENT, count_devices
from tfperf.sections.overview.input_cost import why_unknown_slowed
from tfperf.trace.steps.why_unknown import NO_DEVICE, lacks_devices, why_devices_unknown, why_unknown

if TYPE_CHECKING:
    from tfperf.sections.diagnosis.case import Case
    from tfperf.sections.hosts.analysis import Hosts


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
