"""Causes on the host: tracing, ops run one by one, Python, and what the trace does not show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tfperf.report.model import Quantity
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case, in_categories
from tfperf.sections.diagnosis.cause import Cause, Evidence, Range
from tfperf.trace.steps import RETRACE, SLOW_FIRST
from tfperf.units import PS_PER_MS, counted, format_number, without_middle

_SMALL_DEVICE_SHARE = 0.25
_FIXED_PERCENT = 20.0
_FRAMEWORK_MS = 2.5
"""Python of Keras or of a plain loop takes less per step."""
_OVERHEAD_PERCENT = 5.0
_OF_KERAS = {"OptionalHasValue", "OptionalGetValue", "SyncDevice"}
"""Ops by which `fit` of Keras reads the results of a step, and waits for devices: no code of the user runs them."""

if TYPE_CHECKING:
    from tfperf.sections.functions.analysis import Functions
    from tfperf.trace.steps import Steps


def compilation(case: Case) -> Cause | None:
    """Judge tracing and compiling: `warm_up` if only the first calls of the capture trace."""
    if not case.matters("compilation"):
        return None
    functions: Functions = case.results["functions"]
    traced = [(function.calls.get("traced", 0), function) for function in functions.functions]
    count, function = max(traced, key=lambda pair: pair[0], default=(0, None))
    detail, rests_on = "functions are traced or compiled", [in_categories("compilation")]
    if function is not None and count:
        detail = f"{without_middle(function.name, LONGEST_NAME)} is traced in {count} of {function.call_count} calls"
        rests_on.append(Evidence("functions", "tf_functions", function.name))
    jitted = functions.jitted.most_compiled
    if jitted is not None:
        name = without_middle(jitted.name, LONGEST_NAME)
        detail = f"{name} is compiled in {jitted.compiling_calls} of {counted(jitted.calls, 'call')}"
        rests_on.append(Evidence("functions", "jitted_functions", jitted.name))
    is_warm_up = _is_first(case.results["steps"].steps, case.summary.kind)
    code, action = ("warm_up", "profile_later") if is_warm_up else ("compilation", "keep_signature")
    verb = "trace" if jitted is None else "compile"
    title = f"The first calls of the program, which {verb} it," if is_warm_up else "Compilation"
    cost = case.ledger.claim("compilation")
    return case.cause(code, title, cost, detail, actions=(action,), rests_on=rests_on)


def warm_up(case: Case) -> Cause | None:
    """Name the first steps of the capture if they trace or take very long, so that averages omit them."""
    steps = case.results["steps"].steps
    rows = np.flatnonzero(np.array(steps.kinds, object) == case.summary.kind)
    first = 0
    while first < len(rows) and steps.flags[rows[first]] in (RETRACE, SLOW_FIRST):
        first += 1
    if not first or case.summary.averaged_count + first > len(rows):
        return None
    total_ms = float(steps.duration_ps[rows[:first]].sum()) / PS_PER_MS
    total = Quantity("warm_up", total_ms, "ms", case.summary.kind)
    named = f"step {steps.numbers[rows[0]]} takes" if first == 1 else f"the first {first} steps take"
    return replace(
        case.cause(
            "warm_up",
            "The capture begins with warm-up",
            Range(0.0, 0.0),
            f"{named} {total}, as long as {total_ms / case.step_ms:.0f} others; averages omit that",
            actions=("profile_later",),
            rests_on=(Evidence("steps", "steps", steps.names[rows[0]]),),
            quantities=(total,),
        ),
        cost_ms=None,
        cost_percent=None,
    )


def _is_first(steps: Steps, kind: str) -> bool:
    """Tell whether the steps of a kind in which functions are traced come before all others."""
    traced = [flag == RETRACE for flag, other in zip(steps.flags, steps.kinds, strict=True) if other == kind]
    return any(traced) and not all(traced) and not any(traced[sum(traced) :])


def eager_ops(case: Case) -> Cause | None:
    """Judge ops that Python runs one by one."""
    eager = case.results["functions"].eager
    share = eager.percent or 0.0
    parts = ("host_compute", "kernel_launch", "all_others")
    if min(share, case.ledger.left(*parts)) < LEAST_PERCENT:
        return None
    most = ", ".join(without_middle(name, LONGEST_NAME) for name in eager.op_types[:3])
    detail = f"{format_number(eager.calls_per_step)} ops per step outside any function (most time: {most})"
    rests_on = [Evidence("functions", "eager_ops", eager.op_types[0])] if eager.op_types else []
    cost = case.ledger.claim(*parts, most=share)
    of_whole, wholes = case.of_whole(case.quantity("eager", share), cost)
    actions: tuple[str, ...] = ("use_function",)
    if case.program.api == "keras" and _OF_KERAS.issuperset(eager.op_types):
        detail += ", all of Keras itself"
        actions = () if _runs_several_batches(case) else ("steps_per_execution",)
    return case.cause(
        "eager_ops",
        "Running ops one by one",
        cost,
        detail + of_whole,
        actions=actions,
        rests_on=rests_on,
        quantities=wholes,
    )


def small_work_per_step(case: Case) -> Cause | None:
    """Judge steps of which a large part is what a step costs whatever its size: calls, launches, Python.

    On a GPU, that is all but the device's own work and waiting for results, if the device works for less than a quarter
    of the time. Else it is what is left of the host's time when its ops are taken away. Python that takes longer than
    calls of a framework usually cost is the program's own, and a cause by itself.
    """
    shares, shown_by = _fixed_work(case)
    python = shares.get("all_others", 0.0)
    if sum(shares.values()) < _FIXED_PERCENT or python * case.step_ms / 100.0 > _FRAMEWORK_MS:
        return None
    claims = [case.ledger.claim(part, most=share).high for part, share in shares.items()]
    once = [case.action(code, Range(python, python)) for code in ("steps_per_execution", "loop_in_function")]
    return case.cause(
        "small_work_per_step",
        "Fixed overhead of each step",
        Range(sum(claims), sum(claims)),
        f"{_WORKING[shown_by.key]} for {shown_by} of it",
        actions=["larger_batch", *([] if _runs_several_batches(case) else once)],
        rests_on=[in_categories(part) for part in shares],
        confidence="medium",
        quantities=(shown_by,),
    )


_WORKING = {"device_compute": "the device computes", "ops": "ops run"}


def _fixed_work(case: Case) -> tuple[dict[str, float], Quantity]:
    """Return what a step costs whatever its size, in percent by category (empty: unknown), and what shows it."""
    left = {part: case.ledger.left(part) for part in ("kernel_launch", "host_compute", "all_others")}
    on_device = case.ledger.left("device_compute")
    if on_device:
        left = _without_waiting(case, left)
        is_small = on_device < _SMALL_DEVICE_SHARE * (on_device + sum(left.values()))
        return left if is_small else {}, case.quantity("device_compute", on_device)
    ops = case.program.op_percent
    # The first run of what was just traced prepares it, which later runs do not.
    if ops is None or case.summary.percent["compilation"] >= LEAST_PERCENT:
        return {}, case.quantity("ops", 0.0)
    shares = {"host_compute": max(left["host_compute"] - ops, 0.0), "all_others": left["all_others"]}
    return shares, case.quantity("ops", ops)


def _without_waiting(case: Case, left: dict[str, float]) -> dict[str, float]:
    """Return shares without the time in which the program waits for results: larger steps need not wait longer."""
    if case.results.is_other_kind or case.results["idle"].without_steps:
        return left
    waits = case.results["idle"].percents["synchronise"]
    in_calls = min(waits, left["host_compute"])
    outside = min(waits - in_calls, left["all_others"])
    return {**left, "host_compute": left["host_compute"] - in_calls, "all_others": left["all_others"] - outside}


def _runs_several_batches(case: Case) -> bool:
    """Tell whether a step is several batches already."""
    return int(case.results["steps"].steps.batches.max()) > 1


def python_between_steps(case: Case) -> Cause | None:
    """Judge time in which nothing is recorded: Python, where the thread that makes the calls is in none of them.

    A TPU core without an op waits for the host or for a slower core; nothing tells for which.
    """
    if not case.matters("all_others") or case.program.is_tpu:
        return None
    outside = case.program.outside_calls_percent
    if outside is not None and outside < LEAST_PERCENT:
        return None
    known = outside is not None
    cost = case.ledger.claim("all_others", most=outside)
    return case.cause(
        "python_between_steps",
        "Python between calls" if known else "Time without any recorded work",
        cost,
        "the program is in no call then: Python code, callbacks, I/O" if known else "Python, I/O or idle",
        actions=() if _runs_several_batches(case) else ("steps_per_execution", "loop_in_function"),
        rests_on=(in_categories("all_others"),),
        confidence="medium" if known else "low",
    )


def waiting_in_calls(case: Case) -> Cause | None:
    """Judge time in which the program is in a call, and nothing is recorded of what the call does."""
    if not case.matters("all_others") or case.program.outside_calls_percent is None or case.program.is_tpu:
        return None
    cost = case.ledger.claim("all_others")
    return case.cause(
        "waiting_in_calls",
        "Waiting inside calls",
        cost,
        "for locks, other hosts or a busy CPU; the trace does not show which",
        actions=(),
        rests_on=(in_categories("all_others"),),
        confidence="low",
    )


def profiling_overhead(case: Case) -> Cause | None:
    """Name what the profiler itself costs, where the capture measured it: other figures are too large by some of it."""
    environment = case.results["environment"]
    measured = [host.facts.overhead_percent for host in environment if host.facts.overhead_percent is not None]
    slower = max(measured, default=0.0)
    percent = 100.0 * slower / (100.0 + slower)
    if case.results.is_other_kind or percent < _OVERHEAD_PERCENT:
        return None
    cost = case.ledger.claim("host_compute", "kernel_launch", "all_others", most=percent)
    longer = Quantity("overhead", slower)
    detail = f"it makes steps {longer} longer than those before the capture"
    rests_on = (Evidence("environment", "environment", environment[0].host),)
    title, actions = "Profiling itself", ("capture_less",)
    return case.cause(
        "profiling_overhead", title, cost, detail, actions=actions, rests_on=rests_on, quantities=(longer,)
    )
