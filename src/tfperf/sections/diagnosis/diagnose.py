"""From what the other sections found out to causes: each part of a step blamed once, the best to fix first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfperf.analysis.results import Results
from tfperf.base.units import format_percent, without_middle
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case
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
    compute_in_32_bit,
    host_ops,
    idle_devices,
    launch_bound,
    memory_pressure,
    waiting_for_results,
)
from tfperf.sections.diagnosis.exchange_causes import collectives, collectives_bound, straggler, with_late_host
from tfperf.sections.diagnosis.host_causes import (
    checkpointing,
    compilation,
    eager_ops,
    eager_ops_of_capture,
    fetch_results,
    garbage_collection,
    iterator_per_step,
    numpy_conversion,
    profiling_overhead,
    python_between_steps,
    small_work_per_step,
    waiting_in_calls,
    warm_up,
)
from tfperf.sections.diagnosis.input_causes import input_contention, input_copy, input_wait, output_copy, stated
from tfperf.sections.diagnosis.ledger import Ledger, ledger_of
from tfperf.sections.diagnosis.program import combine, pace_setter
from tfperf.sections.diagnosis.tpu_causes import chip_copies, host_copies, kernel_waits
from tfperf.sections.diagnosis.tpu_host_causes import awaiting_each_result, late_calls, late_python
from tfperf.sections.diagnosis.unjudged import NEEDS, why_unjudged
from tfperf.sections.diagnosis.wall_causes import between_steps, evaluation, slow_steps, with_slow_steps
from tfperf.sections.diagnosis.work_causes import layout_conversion, low_utilisation, memory_bound, unaligned_shapes
from tfperf.sections.overview.input_cost import input_cost
from tfperf.sections.overview.summary import INPUT_LIMITS, Overview, Summary
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
