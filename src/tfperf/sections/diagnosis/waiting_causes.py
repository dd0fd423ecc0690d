"""Causes of waiting: for batches, for copies of batches and results, and for other replicas and hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.base.units import counted, format_bytes, format_number, format_percent, without_middle
from tfperf.report.model import Quantity
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case, in_categories
from tfperf.sections.diagnosis.cause import Action, Cause, Evidence, Range
from tfperf.sections.hosts import late_text, slower_in, who_is_late
from tfperf.sections.overview.section import outlook_of, slowed_percent
from tfperf.sections.tfdata.advice import Reason, actions_of, blamed_stage, change_in_code
from tfperf.sections.tfdata.analysis import TfData
from tfperf.sections.tfdata.whatif import FREE_INPUT

if TYPE_CHECKING:
    from tfperf.sections.hosts.analysis import Straggler
    from tfperf.sections.tfdata.pipeline import Pipeline

_MUCH_PERCENT = 10.0
"""Minimum waiting for a statement about busy cores, in percent of the step."""


def input_wait(case: Case) -> Cause | None:
    """Check for waiting for the next batch: the blocking stage, and estimates for pipeline changes."""
    if not case.matters("input_wait"):
        return None
    tfdata = pipelines_of(case)
    blame = blamed_stage(tfdata)
    rests_on, detail = [in_categories("input")], "the profile does not show the source of the batches"
    if blame is not None:
        stages = (each for pipeline in tfdata.pipelines if pipeline.name == blame.pipeline for each in pipeline.stages)
        python = next((f" ({each.python})" for each in stages if each.name == blame.stage and each.python), "")
        detail = (
            f"the blocking tf.data stage is {without_middle(blame.stage, LONGEST_NAME)}{python}{_REASONS[blame.reason]}"
        )
        rests_on.append(Evidence("tfdata", "tfdata_stages", blame.stage))
    elif tfdata.pipelines:
        detail = "no single tf.data stage is blocking"
    actions: tuple[Action | str | None, ...] = ("use_tf_data",)
    if case.results["tfdata"].pipelines:
        actions = (case.without_estimate("look_at_stages"),)
    outlook = outlook_of(case.results)
    is_new_iterator = outlook is not None and outlook.waits_at_epoch_start
    if outlook is not None and outlook.is_at_epoch_start:
        what = "for the first batch of a new iterator" if is_new_iterator else f"while buffers fill: {detail}"
        detail = f"mostly in the first step of each epoch, {what}"
    if is_new_iterator or _slows_rather(case):
        actions = ()
    elif case.program.api != "jax":
        actions = _pipeline_actions(case, tfdata) or actions
    cost = case.ledger.claim("input_wait")
    detail += cores_meanwhile(tfdata.main) if cost.high >= _MUCH_PERCENT else ""
    return case.cause("input_wait", "Waiting for input", cost, detail, actions=actions, rests_on=rests_on)


def input_contention(case: Case) -> Cause | None:
    """Check for CPU contention of the step with pipeline threads."""
    parts, slowed, outlook = ("host_compute", "all_others"), slowed_percent(case.results), outlook_of(case.results)
    if slowed is None or outlook is None or min(slowed[0], case.ledger.left(*parts)) < LEAST_PERCENT:
        return None
    cost = case.ledger.claim(*parts, most=slowed[1], least=slowed[0])
    detail = f"{outlook.threads:.1f} pipeline threads compete with the step for {counted(outlook.cores, 'core')}"
    return case.cause(
        "input_contention",
        "CPU contention with the input pipeline",
        cost,
        detail,
        actions=_pipeline_actions(case, pipelines_of(case)) if _slows_rather(case) else (),
        rests_on=(Evidence("tfdata", "what_if", change_in_code(FREE_INPUT, None)), in_categories("host_compute")),
        confidence="medium",
    )


def _slows_rather(case: Case) -> bool:
    """Return whether the pipeline costs time mainly by CPU contention, so that actions are given for that cause."""
    outlook = outlook_of(case.results)
    return outlook is not None and outlook.is_costly and outlook.keeps_up


def cores_meanwhile(pipeline: Pipeline | None) -> str:
    """Return the number of busy cores while steps wait, if few or all are, as a clause to append."""
    if pipeline is not None and pipeline.cores is not None:
        of_cores = f"of {counted(pipeline.cores, 'core')} {'is' if pipeline.cores == 1 else 'are'} busy"
        if pipeline.fills_cores:
            return f"; {pipeline.threads_computing or 0.0:.1f} {of_cores}, so more parallelism cannot help"
        if pipeline.leaves_cores:
            return f"; only {pipeline.threads_at_work or 0.0:.1f} {of_cores}, as far as the profile shows"
    return ""


def pipelines_of(case: Case) -> TfData:
    """Return the pipelines, starting with the one that these steps wait for; empty if it is unknown."""
    tfdata = case.results["tfdata"]
    return tfdata.for_steps(case.summary.kind) or (TfData(()) if case.results.is_other_kind else tfdata)


_REASONS: Mapping[Reason, str] = {
    "work": "",
    "host_pipeline": ", which pulls from the host pipeline",
    "to_device": ", during the transfer to the device",
    "workers": ", which waits for the data service",
    "hand_over": ", with no stage running",
}


def _pipeline_actions(case: Case, tfdata: TfData) -> tuple[Action, ...]:
    """Return the pipeline changes, largest gain first, for the steps that were averaged when the trace was read."""
    is_estimated = case.results.is_other_kind or not case.results.is_narrowed

    def after(low_ms: float | None, high_ms: float | None) -> Range | None:
        return Range(low_ms, high_ms) if is_estimated and low_ms is not None and high_ms is not None else None

    return tuple(
        Action(
            code=change.code,
            text=change.text,
            step_ms=after(change.low_ms, change.high_ms),
            assumption=change.assumption,
            url=change.url,
            snippet=change.diff,
        )
        for change in actions_of(tfdata)
    )


def input_copy(case: Case) -> Cause | None:
    """Check for copies of batches to the device that do not overlap other work."""
    if not case.matters("host_to_device"):
        return None
    kernels = case.results["kernels"]
    copies = [copy for copy in kernels.copies if copy.kind == "H2D"]
    detail, rests_on = "not overlapped with compute", [in_categories("input")]
    if copies:
        worst = max(copies, key=lambda copy: copy.total_ps)
        rate = f" at {format_number(worst.gb_per_second)} GB/s" if worst.gb_per_second is not None else ""
        size = f"{format_bytes(int(worst.mean_bytes))} per copy on average" if worst.mean_bytes else "copies"
        detail = f"{size}{rate}, not overlapped with compute"
        rests_on.append(Evidence("kernels", "copies", worst.device))
    is_ahead = any(pipeline.is_device for pipeline in case.results["tfdata"].pipelines)
    ahead = "arrays_to_device" if case.feeds_keras_arrays else "prefetch_to_device"
    actions = ("smaller_types",) if is_ahead else (ahead, "smaller_types")
    cost = case.ledger.claim("host_to_device")
    return case.cause("input_copy", "Copying batches to the device", cost, detail, actions=actions, rests_on=rests_on)


def output_copy(case: Case) -> Cause | None:
    """Check for copies of results to the host."""
    if not case.matters("output"):
        return None
    cost = case.ledger.claim("output")
    detail = "the step waits for results on the host"
    rests_on = (in_categories("output"),)
    title = "Copying results to the host"
    return case.cause("output_copy", title, cost, detail, actions=("fetch_less_often",), rests_on=rests_on)


def stated(percent: Range) -> str:
    """Return a share as text: `27.0%`, or `20.0 to 31.5%`."""
    low, high = format_percent(percent.low), format_percent(percent.high)
    return f"{high}%" if low == high else f"{low} to {high}%"


_SLOW_IN = {
    "compute": ("host_compute",),
    "device": ("device_compute", "device_to_device", "output", "device_collectives"),
}
"""Categories that are slower on the last host, for stragglers that no other cause explains."""
_WAITING = ("device_collectives", "host_compute")
_EXPLAINED_BY = {
    "input": ("input_wait", "input_copy"),
    "python": ("python_between_steps", "garbage_collection", "waiting_in_calls"),
    "launching": ("launch_bound", "small_work_per_step", "eager_ops", "run_eagerly"),
    "compilation": ("compilation", "warm_up"),
}
"""Causes that explain a slow host, by its slow category."""
_OPS_THAT_EXPLAIN = ("python_in_graph", "print_in_graph", "input_in_step")
_MOST_OF_LOSS = 0.5
_UNKEYED_PERCENT = 10.0
EXCHANGE_PERCENT = 10.0
"""Share of the step from which on exchanges, or waiting for others in them, are causes of their own."""


def straggler(case: Case) -> Cause | None:
    """Check for hosts that the others wait for: varying ones, or one that no other cause explains."""
    found = case.straggler
    if found is None or found.is_outside_averages or (found.host and _explaining(case, found)):
        return None
    parts = _SLOW_IN[found.cause] if found.host else _WAITING
    share = min(found.loss_percent, case.ledger.left(*parts))
    if share < LEAST_PERCENT:
        return None
    late, quantities = late_text(found, case.summary.kind)
    cost = case.ledger.claim(*parts, most=share)
    gained = min(100.0 * found.gain_ms / case.step_ms / cost.high, 1.0)
    text = "the host can be as fast as the second slowest" if found.host else "no host is late"
    action = case.action("look_at_host" if found.host else "even_work", cost, Range(gained / 2, gained), text)
    title = "One slow host" if found.host else "Waiting for the slowest host of each step"
    return case.cause(
        "straggler", title, cost, late, actions=(action,), rests_on=(_evidence(found),), quantities=quantities
    )


def _explaining(case: Case, found: Straggler) -> tuple[str, ...]:
    """Return the causes that can explain a slow host: by its slow category, or by ops that take most of the loss."""
    if found.cause != "compute":
        return _EXPLAINED_BY.get(found.cause, ())
    kinds = {} if case.program.work is None or case.host != found.host else case.program.work.kinds
    return tuple(code for code in _OPS_THAT_EXPLAIN if kinds.get(code, 0.0) >= _MOST_OF_LOSS * found.loss_percent)


def with_late_host(case: Case, causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes with the straggler: the cause that explains it states which hosts wait.

    A separate cause without a share of the step reports that the others are faster. Without keys that hosts share, the
    host that waits least is compared with the others.
    """
    found = case.straggler
    if found is None:
        unkeyed = None if case.hosts.is_known or case.pace is None else _unkeyed(case, causes)
        return [*causes, *([] if unkeyed is None else [unkeyed])]
    kind = case.summary.kind
    if found.is_outside_averages:  # the time is lost in steps that averages exclude
        late, quantities = late_text(found, kind)
        once = case.cause(
            "straggler",
            f"Waiting for {found.host or 'the last host'} during the first steps",
            None,
            f"{late} (not in the averages)",
            actions=(case.without_estimate("profile_later"),),
            rests_on=(_evidence(found),),
            quantities=quantities,
        )
        return [*causes, once]
    codes = _explaining(case, found)
    if not found.host or not codes:
        return [*causes]
    who, lost = who_is_late(found, kind)
    told = [place for place, cause in enumerate(causes) if cause.code in codes][:1]
    named = [
        replace(cause, detail=f"{cause.detail}; {who}", quantities=(*cause.quantities, lost))
        if place in told
        else cause
        for place, cause in enumerate(causes)
    ]
    is_input = found.cause == "input"
    slower, longer = slower_in(found, kind)
    aside = case.cause(
        "skewed_input" if is_input else "straggler",
        "Uneven input" if is_input else "One slow host",
        None,
        f"{found.host} spends {slower} than the others",
        actions=(case.without_estimate("balance_input" if is_input else "look_at_host"),),
        rests_on=(_evidence(found),),
        quantities=(longer,),
    )
    return [*named, replace(aside, is_aside=True)]


def _unkeyed(case: Case, causes: Sequence[Cause]) -> Cause | None:
    """Return the cause of waiting for the pace setter, beyond the causes already found on it."""
    programs = [times.program for times in case.results.of_hosts("diagnosis")]
    others = [program.collective_percent for index, program in enumerate(programs) if index != case.pace]
    claimed = sum(cause.cost_percent.high for cause in causes if cause.cost_percent and cause.code != "collectives")
    waiting = sum(others) / len(others) - case.program.collective_percent - claimed
    if min(waiting, case.ledger.left("host_compute")) < _UNKEYED_PERCENT:
        return None
    cost = case.ledger.claim("host_compute", most=waiting)
    detail = f"the others wait for {case.host}, because its own work takes longer"
    rests_on = (Evidence("overview", "steps_by_host", case.host),)
    return case.cause("straggler", "One slow host", cost, detail, actions=("look_at_host",), rests_on=rests_on)


def _evidence(found: Straggler) -> Evidence:
    return Evidence("hosts", "hosts", found.host or found.worst)


def barriers(case: Case) -> Cause | None:
    """Check for devices that wait for others from 10% of the step on: at barriers (TPU), or in collectives."""
    share, barrier = _awaited(case), case.share("barrier")
    if share < EXCHANGE_PERCENT or case.ledger.left("device_collectives") < share:
        return None
    place = (
        "at barriers, before data is exchanged" if barrier >= share / 2 else "in collectives, before the last one calls"
    )
    return case.cause(
        "barriers",
        "Waiting for other devices",
        case.ledger.claim("device_collectives", most=share),
        f"devices wait {place}",
        actions=("even_devices",),
        rests_on=(in_categories("device_collectives"), *_exchanges(case)),
        confidence="high" if barrier >= share else "medium",
    )


def _awaited(case: Case) -> float:
    """Return the share of the step in which devices wait for others, at barriers or in collectives; 0 if unknown."""
    barrier = case.share("barrier")
    waited = None if case.results.is_other_kind else case.results["collectives"].waited_percent
    return barrier + (case.share("device_collectives") - barrier) * (waited or 0.0) / 100.0


def collectives(case: Case) -> Cause | None:
    """Check for communication between devices or hosts that does not overlap other work."""
    on_host = case.program.collective_percent - case.ledger.of_exchanges
    share = case.ledger.left("device_collectives") + min(on_host, case.ledger.left("host_compute"))
    if share < LEAST_PERCENT:
        return None
    is_on_host = not case.ledger.left("device_collectives")
    detail = f"exchanging gradients and waiting for other replicas{' (counted as Host compute)' * is_on_host}"
    barrier = case.quantity("barrier", case.share("barrier"))
    is_told = _awaited(case) >= EXCHANGE_PERCENT  # by the cause `barriers`
    waits = (barrier.value or 0.0) >= LEAST_PERCENT and not is_told
    detail += f"; {barrier} of the step is waiting at a barrier for slower cores" * waits
    waited = Quantity("waited", None if is_on_host else case.results["collectives"].waited_percent, of="collectives")
    is_waited = waited.value is not None and not case.results.is_other_kind and not is_told
    detail += f"; {waited} of the time in collectives is waiting for the last rank" * is_waited
    cost = case.ledger.claim("device_collectives", "host_compute", most=share)
    rests_on = (in_categories("host_compute" if is_on_host else "device_collectives"), *_exchanges(case))
    title = "Collective communication"
    return case.cause(
        "collectives",
        title,
        cost,
        detail,
        actions=("fewer_exchanges",),
        rests_on=rests_on,
        quantities=((barrier,) if waits else ()) + ((waited,) if is_waited else ()),
    )


def collectives_bound(case: Case) -> Cause | None:
    """Check how much of the exchange, without waiting, compute could overlap; `collectives` has the cost.

    The estimate is a range: from no overlap to as much as compute of the step allows.
    """
    if not case.is_headline or case.results.is_other_kind:
        return None
    rests_on = _exchanges(case)
    exchanged = case.share("device_collectives") - case.share("barrier")
    if exchanged >= LEAST_PERCENT:
        waited = case.results["collectives"].waited_percent
        place, compute, hides = "devices", case.share("device_compute"), "other kernels could overlap"
        exchange = exchanged * (1.0 - (waited or 0.0) / 100.0)
        without = "with waiting for other ranks, it takes" if waited is None else "without waiting, it takes"
    else:
        late = case.hosts.late
        compute, waited = case.program.op_percent or 0.0, None if late is None else late.waited_percent
        if waited is None:
            return None
        exchange = case.program.collective_percent - (0.0 if case.pace is not None else waited)
        place, without, hides = "hosts", "without waiting for hosts, it takes", "ops could overlap"
        rests_on = (Evidence("hosts", "hosts", case.host or case.results.hosts[0].host), *rests_on)
    overlap = min(exchange, compute)
    if exchange < EXCHANGE_PERCENT or overlap < LEAST_PERCENT:
        return None
    quantities = case.quantity("exchange", exchange), case.quantity("could_overlap", overlap)
    detail = f"{without} {quantities[0]} of the step; {hides} {quantities[1]}"
    made = case.cause(
        "collectives_bound",
        f"Communication between {place}",
        None,
        detail,
        actions=(case.action("overlap_exchange", Range(0.0, overlap), rest_gets_faster=False),),
        rests_on=rests_on,
        quantities=quantities,
    )
    return replace(made, is_aside=True)


def _exchanges(case: Case) -> tuple[Evidence, ...]:
    """Return the row of the collectives with the most time; empty if the profile does not show it."""
    kinds = [each.type for each in case.results["collectives"].exchanges[:1] if each.type]
    return tuple(Evidence("collectives", "collectives", kind) for kind in kinds)
