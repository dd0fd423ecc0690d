"""Derivation of causes from the other sections: each part of a step is claimed once, and causes are ranked by gain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import ne
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Results
from tfperf.base.units import counted, format_number, format_percent
from tfperf.sections.diagnosis import compute_causes, device_causes, host_causes, waiting_causes, wall_causes
from tfperf.sections.diagnosis.case import LEAST_PERCENT, Case, Ledger, count_devices, ledger_of, op_and_place
from tfperf.sections.diagnosis.cause import Action, Cause, Computed, Diagnosis, Part, Range
from tfperf.sections.diagnosis.program import combine, pace_setter
from tfperf.sections.overview.section import input_cost, why_unknown_slowed
from tfperf.sections.overview.summary import INPUT_LIMITS, Summary
from tfperf.trace.steps.breakdown import NO_DEVICE, lacks_devices, why_devices_unknown, why_unknown
from tfperf.trace.steps.categories import CATEGORY_TITLES
from tfperf.trace.steps.steps import INFERENCE, step_word

if TYPE_CHECKING:
    from tfperf.trace.flaw import Flaw

_MOSTLY_STEPS = 0.95
"""Share of the wall time in averaged steps from which on its parts are not shown."""
WORTH_FIXING = 0.03
"""Minimum likely gain of a cause, as a share of the step; below it, the diagnosis reports no cause worth fixing."""
_REST_GETS_FASTER = "at best, the rest of the step gets faster, too"
_RULES: tuple[Callable[[Case], Cause | None], ...] = (
    waiting_causes.straggler,
    host_causes.iterator_per_step,
    host_causes.compilation,
    device_causes.python_on_device,
    device_causes.print_on_device,
    device_causes.host_copies,
    waiting_causes.input_wait,
    waiting_causes.input_copy,
    waiting_causes.input_contention,
    waiting_causes.output_copy,
    compute_causes.slow_replica,
    waiting_causes.barriers,
    waiting_causes.collectives,
    waiting_causes.collectives_bound,
    host_causes.garbage_collection,
    compute_causes.python_in_graph,
    compute_causes.print_in_graph,
    compute_causes.input_in_step,
    compute_causes.densified_sparse,
    compute_causes.one_hot_product,
    compute_causes.loop_in_graph,
    host_causes.numpy_conversion,
    host_causes.checkpointing,
    host_causes.fetch_results,
    host_causes.eager_ops,
    host_causes.small_arrays,
    wall_causes.slow_steps,
    host_causes.awaiting_each_result,
    host_causes.late_calls,
    host_causes.late_python,
    device_causes.device_sync,
    host_causes.small_work_per_step,
    device_causes.launch_bound,
    device_causes.host_ops,
    device_causes.waiting_for_results,
    host_causes.python_between_steps,
    host_causes.waiting_in_calls,
    compute_causes.too_many_threads,
    compute_causes.dominant_layer,
    compute_causes.optimizer_update,
    compute_causes.double_precision,
    device_causes.unfused_update,
    device_causes.converted_fp8,
    device_causes.kernel_waits,
    device_causes.layout_conversion,
    device_causes.compute_in_32_bit,
    device_causes.unaligned_shapes,
    device_causes.low_utilisation,
    device_causes.memory_bound,
    device_causes.chip_copies,
    device_causes.idle_devices,
    device_causes.memory_pressure,
    compute_causes.captured_constants,
    wall_causes.between_steps,
    wall_causes.evaluation,
    host_causes.warm_up,
    host_causes.profiling_overhead,
)
"""In the order in which they claim time; the ranking is by gain."""
_NOT_OF_INFERENCE = (host_causes.awaiting_each_result, device_causes.waiting_for_results, wall_causes.between_steps)
"""Rules that do not apply to inference: each request needs its result, and the time between depends on callers."""


def diagnose(results: Results) -> Diagnosis:
    """Return the causes of each kind of step, ranked by the likely saving as a share of the step."""
    overview = results["overview"]
    case = _case(results, _pace_setter(results))
    if case is None:
        return _without_steps(results)
    causes, parts = _judge(case)
    for summary in overview.by_kind:
        if summary.kind != overview.kind:
            hosts = [host.counting(np.flatnonzero(host["steps"].steps.are(summary.kind))) for host in results.hosts]
            other = _case(results.only(hosts), is_headline=False)
            causes += _judge(other)[0] if other is not None else []
    causes.sort(key=lambda cause: (cause.kind != overview.kind, -cause.gain))
    causes = [replace(cause, actions=tuple(_explained(cause, action) for action in cause.actions)) for cause in causes]
    cost, missing = input_cost(results), results["steps"].missing
    most = () if missing else compute_causes.computed(case)
    return Diagnosis(
        _headline(case.summary, causes, most, missing),
        tuple(causes),
        case.summary,
        case.unknown,
        case.host,
        unjudged=why_unjudged(case),
        computed=most,
        parts=() if missing else parts,
        wall_parts=() if missing else _wall_parts(case, causes, parts),
        wall_ms=None if case.wall is None else case.over_wall().step_ms,
        input_cost_percent=None if cost is None else Range(cost.low, cost.high),
    )


def _explained(cause: Cause, action: Action) -> Action:
    """Return the action; its assumption states why the step may get shorter than without the whole cause."""
    if cause.unless_rest_gets_faster(action) is None:
        return action
    return replace(action, assumption="; ".join(filter(None, (action.assumption, _REST_GETS_FASTER))))


def _case(results: Results, pace: int | None = None, *, is_headline: bool = True) -> Case | None:
    """Return the average step, or the step of the host that sets the pace; None if no step time was measured."""
    overview = results["overview"]
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
    """Return a diagnosis with the reason why there is no step time, and the causes that do not depend on steps."""
    overview = results["overview"]
    case = Case(
        results=results,
        program=combine([times.program for times in results.of_hosts("diagnosis")]),
        summary=overview,
        ledger=Ledger(0.0, {}),
        unknown=frozenset(),
        step_ms=0.0,
        is_headline=True,
    )
    rules = (host_causes.compilation_of_capture, host_causes.eager_ops_of_capture, device_causes.memory_pressure)
    causes = tuple(cause for rule in rules if (cause := rule(case)) is not None)
    reason = f"no step time was measured: {results['steps'].steps.explanation}"
    headline = f"N{reason[1:]}."
    if (main := results["requests"].main) is not None:
        rate = "" if main.per_second is None else f", {format_number(main.per_second)} per second"
        headline = f"The job is a server: {counted(main.count, 'request')} of {main.name}{rate}."
    return Diagnosis(headline, causes, overview, unjudged=dict.fromkeys(NEEDS, reason))


def _pace_setter(results: Results) -> int | None:
    """Return the host that the others wait for, in collectives or for its input."""
    overview = results["overview"]
    hosts = results["hosts"]
    if not hosts.is_known:
        pace = pace_setter([times.program for times in results.of_hosts("diagnosis")])
    else:
        blamed = "" if hosts.straggler is None or hosts.straggler.is_outside_averages else hosts.straggler.host
        pace = next((place for place, host in enumerate(results.hosts) if host.host == blamed), None)
    if pace is None and (overview.input_percent or 0.0) >= INPUT_LIMITS[0]:
        pace = overview.worst_host
    return pace if pace is None or overview.by_host[pace].step_time_ms is not None else None


def _judge(case: Case) -> tuple[list[Cause], tuple[Part, ...]]:
    """Return the causes of a kind of step, and the whole step by cause or category."""
    found, whole, claimed = [], case.ledger.unclaimed, {}
    for rule in _RULES:
        if case.summary.kind == INFERENCE and rule in _NOT_OF_INFERENCE:
            continue
        before = case.ledger.unclaimed
        cause = rule(case)
        if cause is not None:
            found.append(cause)
            claimed[cause.code] = {part: share - case.ledger.unclaimed[part] for part, share in before.items()}
    before = case.ledger.unclaimed
    causes = wall_causes.with_slow_steps(case, waiting_causes.with_late_host(case, found))
    for cause in causes[len(found) :]:
        claimed[cause.code] = {part: share - case.ledger.unclaimed[part] for part, share in before.items()}
    costs = ((cause, cause.cost_percent) for cause in causes)
    causes = [cause for cause, cost in costs if cost is None or cost.high * cause.wall_share >= LEAST_PERCENT]
    parts = []
    for cause in causes:
        taken = claimed.get(cause.code, {})
        percent = cause.cost_percent.high if cause.cost_percent and cause.of == "step" else sum(taken.values())
        if percent > 0:
            of_cause = percent / (sum(taken.values()) or 1.0)
            in_categories = {category: share * of_cause for category, share in taken.items() if share}
            parts.append(Part(cause.code, "", percent, in_categories))
            whole = {category: share - taken.get(category, 0.0) for category, share in whole.items()}
    # A cause may cost less than it claims: the difference belongs to the categories again.
    rest, left = sum(whole.values()), 100.0 - sum(part.percent for part in parts)
    scale = max(left, 0.0) / rest if rest > 0 else 0.0
    return causes, (*parts, *(Part("", category, share * scale) for category, share in whole.items() if share > 0))


def _wall_parts(case: Case, causes: Sequence[Cause], parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the whole wall time of training: the parts of the step, and the causes outside averaged steps."""
    if case.wall is None or case.wall_share > _MOSTLY_STEPS:
        return ()
    inside = [Part(part.cause, part.category, part.percent * case.wall_share) for part in parts]
    codes = {part.cause for part in parts}
    outside = [
        Part(cause.code, "", cause.cost_percent.high)
        for cause in causes
        if cause.of == "wall" and cause.cost_percent is not None and cause.code not in codes
    ]
    left = 100.0 * (1.0 - case.wall_share)
    taken = sum(part.percent for part in outside)
    # The upper ends of ranges may exceed the time outside averaged steps.
    outside = [Part(part.cause, "", part.percent * min(1.0, left / taken)) for part in outside]
    return (*inside, *outside, *([Part("", "", left - taken)] if left > taken else []))


def _headline(judged: Summary, causes: list[Cause], most: tuple[Computed, ...], missing: Sequence[Flaw]) -> str:
    """Return the first cause as a sentence, or the categories of the step and its largest compute."""
    first = causes[0] if causes else None
    if first is not None and first.kind == judged.kind and first.gain >= WORTH_FIXING:
        return sentence_of(first)
    if missing:
        return "The categories of the step are unknown, because events are missing from the profile."
    shares = sorted(((judged.percent[key], CATEGORY_TITLES[key]) for key in judged.categories), reverse=True)
    parts = [f"{title.lower()} {format_percent(share)}%" for share, title in shares if share >= 1.0]
    whole = f"the step is {', '.join(parts)}" if parts else "the profile does not show the categories of the step"
    largest = f"; largest: {listed_computed(most)}" if most else ""
    return f"No cause worth fixing: {whole}{largest}."


def listed_computed(most: tuple[Computed, ...]) -> str:
    """Return the largest compute as text, with shares of the step, and of the roofline if known."""
    roofs = (each.roofline_percent for each in most)
    of_roofs = ("" if roof is None else f" (at {format_percent(roof)}% of the roofline)" for roof in roofs)
    shares = (f"{op_and_place(each.name, each.place)} {format_percent(each.percent)}%" for each in most)
    return ", ".join(map("".join, zip(shares, of_roofs, strict=True)))


def sentence_of(cause: Cause) -> str:
    """Return a cause as one sentence with its cost and evidence."""
    if cause.cost_percent is None:
        return f"{cause.title}: {cause.detail}."
    whole = "the step" if cause.of == "step" else "the wall time"
    return f"{cause.title} takes {waiting_causes.stated(cause.cost_percent)} of {whole}: {cause.detail}."


_OF_HOST_LOOPS = ("waiting_for_results", "launch_bound", "python_between_steps")
"""Causes that depend on the program's thread, which calls after a TPU is done (`HostLoop`)."""


def why_unjudged(case: Case) -> dict[str, str]:
    """Return the codes of the causes that cannot be evaluated, or only partly, each with the missing data.

    Their absence from the diagnosis has no meaning.
    """
    reasons = {}
    for code, need in NEEDS.items():
        if case.program.host_loop is None or code not in _OF_HOST_LOOPS:
            hidden = (_why_hidden(case, category) for category in need.categories if category in case.unknown)
            reasons[code] = next(chain(hidden, filter(None, (gap(case) for gap in need.gaps))), "")
    return {code: reason for code, reason in reasons.items() if reason}


def _why_hidden(case: Case, category: str) -> str:
    """Return why a host of the step does not show a category."""
    hosts = case.results.hosts if case.pace is None else (case.results.hosts[case.pace],)
    hides = [host for host in hosts if len(host["steps"].steps) and category in host["steps"].unknown]
    host = next(iter(hides), hosts[0])
    why = why_unknown(host["steps"], category)
    return f"host {host.host}: {why}" if case.results.has_several_hosts else why


_Gap = Callable[[Case], str]
"""Returns the data missing to evaluate a cause; empty if none."""


def _unless(is_known: Callable[[Case], object], missing: str) -> _Gap:
    return lambda case: "" if is_known(case) else missing


_CORES = _unless(
    lambda case: not case.program.is_tpu or case.share("all_others") < LEAST_PERCENT,
    "a TPU core without an op waits for the host or a slower core (the profile does not show which)",
)
_EAGER = _unless(
    lambda case: case.of_pace["functions"].eager.percent is not None,
    "the profile has no events of Python launching ops or functions",
)
_OPS = _unless(
    lambda case: case.program.work is not None or case.share("host_compute") < LEAST_PERCENT,
    "the profile has no host ops of the step",
)
_IDLE = (
    _unless(lambda case: case.results.has_device, NO_DEVICE),
    _unless(
        lambda case: not case.results.is_other_kind, "reasons for idle devices are known only for the main kind of step"
    ),
)
_BOUNDS = (
    _unless(
        lambda case: not case.results.is_other_kind, "the roofline of HLO ops is known only for all steps together"
    ),
    _unless(
        lambda case: (
            case.share("device_compute") < LEAST_PERCENT or getattr(case.results["roofline"], "judged_percent", None)
        ),
        "no ops have both known work and known device peaks (tfperf analyze -s roofline)",
    ),
)
_WALL = _unless(
    lambda case: case.is_headline and not case.results.is_other_kind,
    "the wall time is known only for the main kind of step",
)


def _without_keys(case: Case) -> str:
    """Return why stragglers are unknown: without keys, based on the step time in collectives on the host."""
    shares = [times.program.collective_percent for times in case.results.of_hosts("diagnosis")]
    return "" if all(shares) and not case.results.has_device else case.hosts.why_unknown


_STRAGGLER = (
    _unless(lambda case: case.results.has_several_hosts, "single-host profile: there is no other host to wait for"),
    _unless(lambda case: not case.results.is_other_kind, "waiting for hosts is known only for the main kind of step"),
    _without_keys,
)


def _copies_of_tpu(case: Case, category: str) -> str:
    """Return why copies of TPU cores are unknown; other jobs have none."""
    return _why_hidden(case, category) if case.program.is_tpu and category in case.unknown else ""


def _memory(case: Case) -> str:
    for host in case.results.hosts:
        every = host["memory"].allocators
        has_device = host.has_device or lacks_devices(host["steps"])
        allocators = [each for each in every if each.place != "host"] if has_device else every
        if not allocators:
            return f"no {'device ' * has_device}allocator recorded events (tfperf analyze -s memory)"
        for each in allocators:
            if each.place != "host" and each.capacity_bytes is None:
                return f"the capacity of {each.name} is not recorded"
            if each.growth_bytes_per_step is None:
                return f"the profile has too few steps to show whether the memory of {each.name} grows"
    return ""


class _Need(Struct, frozen=True):
    """Data required to evaluate a cause: categories of the step, and the data that `gaps` check."""

    categories: tuple[str, ...] = ()
    gaps: tuple[_Gap, ...] = ()


_HOST_OPS = _Need(("host_compute",), (_OPS,))
_ANY_HOST = ("host_compute", "all_others")
NEEDS: Mapping[str, _Need] = {
    "input_wait": _Need(("input_wait",)),
    "input_contention": _Need(("input_wait", "host_compute"), (lambda case: why_unknown_slowed(case.results),)),
    "input_copy": _Need(("host_to_device",)),
    "host_copies": _Need((), (partial(_copies_of_tpu, category="output"),)),
    "chip_copies": _Need((), (partial(_copies_of_tpu, category="device_to_device"),)),
    "kernel_waits": _Need(
        (),
        (
            _unless(
                lambda case: (
                    case.results["kernels"].regions.regions
                    or not case.program.is_tpu
                    or all(op.category != "custom-call" for op in case.results["xla"].ops)
                ),
                "the profile has no kernel regions: record them with --xla_enable_custom_call_region_trace",
            ),
        ),
    ),
    "output_copy": _Need(("output",)),
    "compilation": _Need(("compilation",)),
    "warm_up": _Need(("compilation",)),
    "launch_bound": _Need(
        ("kernel_launch",),
        (
            _unless(
                lambda case: case.share("kernel_launch") < LEAST_PERCENT or len(case.results["kernels"]),
                "the profile has no kernels",
            ),
        ),
    ),
    "small_work_per_step": _Need(
        _ANY_HOST,
        (
            _unless(
                lambda case: case.share("device_compute") or case.program.op_percent is not None,
                "the profile has no ops of the step, on the host or on a device",
            ),
            _unless(
                lambda case: case.share("device_compute") or case.share("compilation") < LEAST_PERCENT,
                "functions are traced or compiled in the steps, which hides the per-step overhead",
            ),
        ),
    ),
    "host_ops": _Need(("host_compute",), _IDLE),
    "waiting_for_results": _Need(_ANY_HOST, _IDLE),
    "device_sync": _Need(
        _ANY_HOST,
        (
            *_IDLE,
            _unless(
                lambda case: any(each.kind == "synchronize" for each in case.results["kernels"].api_calls),
                "the profile has no CUDA or HIP calls that wait for the device",
            ),
        ),
    ),
    "garbage_collection": _Need(
        ("all_others",),
        (
            _CORES,
            _unless(
                lambda case: (
                    case.program.is_tpu
                    or case.program.collections is not None
                    or case.share("all_others") < LEAST_PERCENT
                ),
                "runs of the garbage collector are recorded only by tfperf inside the job: docs/capture.md",
            ),
        ),
    ),
    "python_between_steps": _Need(("all_others",), (_CORES,)),
    "waiting_in_calls": _Need(
        ("all_others",),
        (
            _CORES,
            _unless(
                lambda case: (
                    case.program.is_tpu
                    or case.program.outside_calls_percent is not None
                    or case.share("all_others") < LEAST_PERCENT
                ),
                "the profile does not show when a framework call is running",
            ),
        ),
    ),
    "checkpointing": _Need(_ANY_HOST, (_EAGER,)),
    "fetch_results": _Need(_ANY_HOST, (_EAGER,)),
    "eager_ops": _Need(_ANY_HOST, (_EAGER,)),
    "run_eagerly": _Need(_ANY_HOST, (_EAGER,)),
    "numpy_conversion": _Need(_ANY_HOST),
    "iterator_per_step": _Need(_ANY_HOST, (_EAGER,)),
    "barriers": _Need(
        ("device_collectives",),
        (
            _unless(
                lambda case: (
                    case.program.is_tpu
                    or case.share("device_collectives") < waiting_causes.EXCHANGE_PERCENT
                    or case.results["collectives"].waited_percent is not None
                ),
                "the profile does not show when each device calls its collectives",
            ),
        ),
    ),
    "collectives": _Need(("device_collectives", "host_compute")),
    "collectives_bound": _Need(("device_collectives", "host_compute")),
    "straggler": _Need((), _STRAGGLER),
    "skewed_input": _Need(("input_wait",), _STRAGGLER),
    "slow_replica": _HOST_OPS,
    "python_in_graph": _HOST_OPS,
    "print_in_graph": _HOST_OPS,
    "input_in_step": _HOST_OPS,
    "densified_sparse": _HOST_OPS,
    "one_hot_product": _HOST_OPS,
    "loop_in_graph": _HOST_OPS,
    "too_many_threads": _Need(
        ("host_compute",),
        (
            _OPS,
            _unless(
                lambda case: case.program.work is None or case.program.work.cores is not None,
                "the profile does not show how many cores the job can use",
            ),
        ),
    ),
    "double_precision": _Need(
        ("host_compute",),
        (
            _OPS,
            _unless(
                lambda case: (
                    case.program.work is None
                    or case.program.work.double_percent is not None
                    or case.results["xla"].place == "cpu"
                ),
                "the profile does not show the precision of host compute",
            ),
        ),
    ),
    "optimizer_update": _HOST_OPS,
    "unfused_update": _Need(
        ("device_compute",),
        (
            _unless(
                lambda case: case.share("device_compute") < LEAST_PERCENT or len(case.results["kernels"]),
                "the profile has no kernels",
            ),
        ),
    ),
    "dominant_layer": _HOST_OPS,
    "device_compute_32bit": _Need(
        ("device_compute",),
        (
            _unless(
                lambda case: case.share("device_compute") < LEAST_PERCENT or case.results["kernels"].precision,
                "the profile does not show the precision of device compute",
            ),
        ),
    ),
    "converted_fp8": _Need(
        ("device_compute",),
        (
            _unless(
                lambda case: (
                    all(not op.converted for op in case.results["xla"].ops)
                    or case.results["xla"].peaks.flops_per_second("fp8") is not None
                ),
                "the FP8 peak of the device is unknown (--peaks)",
            ),
        ),
    ),
    "layout_conversion": _Need(
        ("device_compute",),
        (
            _unless(lambda case: not case.results.is_other_kind, "kernels are known only for all steps together"),
            _unless(
                lambda case: case.share("device_compute") < LEAST_PERCENT or len(case.results["kernels"]),
                "the profile has no kernels",
            ),
        ),
    ),
    "memory_bound": _Need(("device_compute",), _BOUNDS),
    "unaligned_shapes": _Need(("device_compute",), _BOUNDS),
    "low_utilisation": _Need(("device_compute",), _BOUNDS),
    "profiling_overhead": _Need(
        _ANY_HOST,
        (
            lambda case: (
                f"profiling overhead was not measured for {step_word(case.summary.kind)}s"
                if case.results.is_other_kind
                else ""
            ),
            _unless(
                lambda case: all(host.facts.overhead_percent is not None for host in case.results["environment"]),
                "the capture did not measure profiling overhead (docs/capture.md lists the captures that do)",
            ),
        ),
    ),
    "between_steps": _Need((), (_WALL,)),
    "evaluation": _Need((), (_WALL,)),
    "slow_steps": _Need((), (_WALL,)),
    "idle_devices": _Need(
        (),
        (
            lambda case: next(filter(None, (why_devices_unknown(host["steps"]) for host in case.results.hosts)), ""),
            _unless(lambda case: ne(*count_devices(case)), NO_DEVICE),
        ),
    ),
    "memory_pressure": _Need((), (_memory,)),
    "captured_constants": _Need(
        (),
        (
            _unless(
                lambda case: not case.results["xla"].lost,
                "programs are missing from the profile or unreadable (tfperf analyze -s xla)",
            ),
        ),
    ),
}
