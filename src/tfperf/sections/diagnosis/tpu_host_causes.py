"""Causes of TPUs that wait for their host: the program awaits each result, or its calls take longer than what they run.

If a program whose TPU is done before each call (`HostLoop`) awaited nothing, calls and runs would go on side by side,
and a step would last as long as the longer of both: so waiting costs what a step takes beyond that. The idle time that
would remain is that of calls, and of Python between them.
"""

from __future__ import annotations

from tfperf.base.units import format_ms, without_middle
from tfperf.report.model import Quantity
from tfperf.sections.diagnosis.actions import ADVICE
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case, in_categories
from tfperf.sections.diagnosis.cause import Cause
from tfperf.sections.diagnosis.host_causes import several_steps


def awaiting_each_result(case: Case) -> Cause | None:
    """Judge that the program waits for each result before it calls again."""
    loop = case.program.host_loop
    if loop is None or min(loop.waiting, case.ledger.left("all_others")) < LEAST_PERCENT:
        return None
    idle_ms = Quantity("idle", case.share("all_others") * case.step_ms / 100.0, "ms", case.summary.kind)
    cost = case.ledger.claim("all_others", most=loop.waiting)
    called = f"a call takes {format_ms(loop.calling * case.step_ms / 100.0)} ms"
    assumption = f"{ADVICE['fetch_less_often'].assumption}; {called}, and a step at least as long"
    where = without_middle(f"{loop.waits_by} {loop.place}".strip(), 2 * LONGEST_NAME)
    return case.cause(
        "waiting_for_results",
        "Waiting for each result before the next call",
        cost,
        "; ".join(filter(None, (where, f"the TPU is idle for {idle_ms} of {format_ms(case.step_ms)} ms"))),
        actions=[case.action("fetch_less_often", cost, assumption=assumption)],
        rests_on=(in_categories("all_others"),),
        quantities=(idle_ms,),
    )


def late_calls(case: Case) -> Cause | None:
    """Judge that calls take longer on the host than what they run takes on the TPU, which waits for the next one."""
    loop = case.program.host_loop
    share = 0.0 if loop is None else loop.late(case.share("all_others")) * loop.calling_share
    if loop is None or min(share, case.ledger.left("all_others")) < LEAST_PERCENT:
        return None
    cost = case.ledger.claim("all_others", most=share)
    called_ms = Quantity("calling", loop.calling * case.step_ms / 100.0, "ms", case.summary.kind)
    busy_ms = Quantity("busy", (100.0 - case.share("all_others")) * case.step_ms / 100.0, "ms", case.summary.kind)
    return case.cause(
        "launch_bound",
        "Waiting for the host's calls",
        cost,
        f"calling {without_middle(loop.function, LONGEST_NAME)} takes {called_ms} on the host, and the TPU {busy_ms}",
        actions=[several_steps(case, cost), "larger_batch"],
        rests_on=(in_categories("all_others"),),
        quantities=(called_ms, busy_ms),
    )


def late_python(case: Case) -> Cause | None:
    """Judge that Python between calls takes longer than runs on the TPU, so that it waits for the next call."""
    loop = case.program.host_loop
    share = 0.0 if loop is None else loop.late(case.share("all_others")) * (1.0 - loop.calling_share)
    if loop is None or min(share, case.ledger.left("all_others")) < LEAST_PERCENT:
        return None
    between = case.results["python"].between
    function = "" if between is None else between.function
    detail = f"most of it in {without_middle(function, LONGEST_NAME)}; " if function else ""
    return case.cause(
        "python_between_steps",
        "Python between calls",
        case.ledger.claim("all_others", most=share),
        f"{detail}the TPU has nothing to do until the next call",
        actions=[case.without_estimate("record_python")] if between is None else [],
        rests_on=(in_categories("all_others"),),
    )
