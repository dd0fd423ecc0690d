"""Causes between replicas and hosts: one that the others wait for, and the exchange of data itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.report.model import Quantity
from tfperf.sections.diagnosis.case import LEAST_PERCENT, Case, in_categories
from tfperf.sections.diagnosis.cause import Cause, Evidence, Range
from tfperf.sections.hosts.section import late_text, slower_in, who_is_late

if TYPE_CHECKING:
    from tfperf.sections.hosts.straggler import Straggler

_SLOW_IN = {
    "compute": ("host_compute",),
    "device": ("device_compute", "device_to_device", "output", "device_collectives"),
}
"""The categories in which the last host is slower, where no other cause says why."""
_WAITING = ("device_collectives", "host_compute")
"""The categories in which hosts wait for others."""
_EXPLAINED_BY = {
    "input": ("input_wait", "input_copy"),
    "python": ("python_between_steps", "garbage_collection", "waiting_in_calls"),
    "launching": ("launch_bound", "small_work_per_step", "eager_ops", "run_eagerly"),
    "compilation": ("compilation", "warm_up"),
}
"""The causes that say why a host is slow, by what it is slow in."""
_UNKEYED_PERCENT = 10.0
_EXCHANGE_PERCENT = 10.0


def straggler(case: Case) -> Cause | None:
    """Judge hosts that the others wait for: now this and now that, or one of which no other cause says why."""
    found = case.straggler
    if found is None or found.is_outside_averages or (found.host and found.cause in _EXPLAINED_BY):
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
    title = "One slow host" if found.host else "Waiting for the host that is slow in a step"
    return case.cause(
        "straggler", title, cost, late, actions=(action,), rests_on=(_evidence(found),), quantities=quantities
    )


def with_late_host(case: Case, causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes with what is known about a late host: the cause that explains it says who waits for it.

    A cause of its own, which takes no part of the step, says that the others are faster. Without keys that hosts share,
    the host that waits least is compared with the others.
    """
    found = case.straggler
    if found is None:
        unkeyed = None if case.hosts.is_known or case.pace is None else _unkeyed(case, causes)
        return [*causes, *([] if unkeyed is None else [unkeyed])]
    kind = case.summary.kind
    if found.is_outside_averages:
        return [*causes, _once(case, found)]
    if not found.host or found.cause not in _EXPLAINED_BY:
        return [*causes]
    who, lost = who_is_late(found, kind)
    codes = _EXPLAINED_BY[found.cause]
    told = [place for place, cause in enumerate(causes) if cause.code in codes][:1]
    named = [
        replace(cause, detail=f"{cause.detail}; {who}", quantities=(*cause.quantities, lost))
        if place in told
        else cause
        for place, cause in enumerate(causes)
    ]
    return [*named, _beside(case, found)]


def _beside(case: Case, found: Straggler) -> Cause:
    """Return what the late host is compared with the others: the time is blamed on what makes it slow."""
    is_input = found.cause == "input"
    slower, longer = slower_in(found, case.summary.kind)
    beside = _without_cost(
        case,
        "skewed_input" if is_input else "straggler",
        "Uneven input" if is_input else "One slow host",
        f"{found.host} is {slower} than the others",
        "balance_input" if is_input else "look_at_host",
        (longer,),
        found,
    )
    return replace(beside, is_aside=True)


def _once(case: Case, found: Straggler) -> Cause:
    """Return the cause of time that is lost in steps that averages omit: it is no part of the average step."""
    late, quantities = late_text(found, case.summary.kind)
    title = f"Waiting for {found.host or 'the last host'} in the first steps"
    return _without_cost(case, "straggler", title, f"{late}; averages omit that", "profile_later", quantities, found)


def _without_cost(  # noqa: PLR0913, PLR0917  (the fields of a cause)
    case: Case, code: str, title: str, detail: str, action: str, quantities: Sequence[Quantity], found: Straggler
) -> Cause:
    """Return a cause that takes no part of the average step."""
    made = case.cause(
        code,
        title,
        Range(0.0, 0.0),
        detail,
        actions=(case.without_estimate(action),),
        rests_on=(_evidence(found),),
        quantities=quantities,
    )
    return replace(made, cost_ms=None, cost_percent=None, gain_ms=0.0)


def _unkeyed(case: Case, causes: Sequence[Cause]) -> Cause | None:
    """Judge what the pace setter makes others wait for, beyond the causes already found on it."""
    programs = [times.program for times in case.results.of_hosts("diagnosis")]
    others = [program.collective_percent for index, program in enumerate(programs) if index != case.pace]
    claimed = sum(cause.cost_percent.high for cause in causes if cause.cost_percent and cause.code != "collectives")
    waiting = sum(others) / len(others) - case.program.collective_percent - claimed
    if min(waiting, case.ledger.left("host_compute")) < _UNKEYED_PERCENT:
        return None
    cost = case.ledger.claim("host_compute", most=waiting)
    detail = f"the others wait for {case.host}, whose own work takes longer than theirs"
    rests_on = (Evidence("overview", "steps_by_host", case.host),)
    return case.cause("straggler", "One slow host", cost, detail, actions=("look_at_host",), rests_on=rests_on)


def _evidence(found: Straggler) -> Evidence:
    return Evidence("hosts", "hosts", found.host or found.worst)


def collectives(case: Case) -> Cause | None:
    """Judge communication between devices or hosts while nothing else goes on."""
    on_host = case.program.collective_percent - case.ledger.of_exchanges
    share = case.ledger.left("device_collectives") + min(on_host, case.ledger.left("host_compute"))
    if share < LEAST_PERCENT:
        return None
    is_on_host = not case.ledger.left("device_collectives")
    detail = f"exchanging gradients, and waiting for them{' (counted as host compute)' * is_on_host}"
    barrier = case.quantity("barrier", case.share("barrier"))
    waits = (barrier.value or 0.0) >= LEAST_PERCENT
    detail += f"; {barrier} of the step is waiting at a barrier for cores that come later" * waits
    cost = case.ledger.claim("device_collectives", "host_compute", most=share)
    rests_on = (in_categories("host_compute" if is_on_host else "device_collectives"),)
    title = "Communication between replicas"
    return case.cause(
        "collectives",
        title,
        cost,
        detail,
        actions=("fewer_exchanges",),
        rests_on=rests_on,
        quantities=(barrier,) if waits else (),
    )


def collectives_bound(case: Case) -> Cause | None:
    """Judge the exchange between hosts without waiting for the last one: how much of it ops could hide.

    It takes no part of the step: `collectives` has the cost.
    """
    late = case.hosts.late if case.is_headline and not case.results.is_other_kind else None
    ops, waited = case.program.op_percent, None if late is None else late.waited_percent
    if ops is None or waited is None:
        return None
    exchange = case.program.collective_percent - (0.0 if case.pace is not None else waited)
    if exchange < _EXCHANGE_PERCENT or min(exchange, ops) < LEAST_PERCENT:
        return None
    quantities = case.quantity("exchange", exchange), case.quantity("could_overlap", min(exchange, ops))
    detail = f"without waiting for the last one, it takes {quantities[0]} of the step; ops could hide {quantities[1]}"
    made = case.cause(
        "collectives_bound",
        "The exchange between hosts",
        Range(0.0, 0.0),
        detail,
        actions=(case.without_estimate("overlap_exchange"),),
        rests_on=(Evidence("hosts", "hosts", case.host or case.results.hosts[0].host),),
        quantities=quantities,
    )
    return replace(made, cost_ms=None, cost_percent=None, gain_ms=0.0, is_aside=True)
