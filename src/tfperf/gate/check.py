"""The gate: every limit judged on the host that is worst for it, and a regression against a baseline.

A breach on any host is a breach, whatever is not known; what could not be judged is never a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfperf.compare.bootstrap import StepStatistic
from tfperf.gate.bounds import bound_text
from tfperf.gate.catalogue import OVER_HOSTS
from tfperf.gate.counted import View, views_of
from tfperf.gate.evidence import evidence_of
from tfperf.gate.figures import FIGURES, REGRESSION, REGRESSION_TITLE
from tfperf.gate.grammar import unit_measured
from tfperf.gate.measure import measure, measure_skew
from tfperf.gate.measured import Measured, status_of, unknown
from tfperf.gate.model import Judged, Limit, Metric, Outcome, Status
from tfperf.gate.tables import title_of

if TYPE_CHECKING:
    from tfperf.compare.regression import StepComparison
    from tfperf.compare.run_summary import RunSummary
    from tfperf.session import Trace

MIN_STEPS = 3
"""Averaged whole steps of a host without which nothing about steps is judged."""
MAX_REGRESSION = 0.05
"""How much slower than the baseline a run may be if nothing is said: 5 %."""

_SURE = ("high", "medium")


def check(
    trace: Trace, limits: Sequence[Limit], *, stat: StepStatistic = "mean", skip_first: int = 0,
    min_steps: int = MIN_STEPS,
    baselines: Sequence[RunSummary] = (), max_regression: float | None = None,
) -> Outcome:  # fmt: skip
    """Judge a profile by limits, over its whole steps after the first `skip_first` of each host.

    `stat` stands for step times; a host with fewer than `min_steps` averaged steps cannot be judged where a limit rests
    on steps. With `baselines` the run may be slower by `max_regression` (0.05: 5 %, the default). Raises no error for
    what cannot be measured: that is `unknown`, with the reason.
    """
    views = views_of(trace, stat=stat, skip_first=skip_first, min_steps=min_steps)
    judged = [_judge(limit, views) for limit in limits]
    if baselines or max_regression is not None:
        tolerance = MAX_REGRESSION if max_regression is None else max_regression
        judged.append(_judge_regression(trace, views, baselines, tolerance, skip_first))
    return Outcome(
        tuple(judged), trace.run.name, str(trace.run.folder), tuple(host.host for host in trace.hosts),
        min(view.summary.averaged_count for view in _hosts(views)), _notes(trace, views, skip_first),
    )  # fmt: skip


def _hosts(views: Sequence[View]) -> Sequence[View]:
    """Return the views of single hosts; with several there is one of all of them behind."""
    return views if len(views) == 1 else views[:-1]


def _judge(limit: Limit, views: Sequence[View]) -> Judged:
    hosts = _hosts(views)
    if limit.metric.name == "skew" and not limit.metric.table:
        return _of_all_hosts(limit, measure_skew(hosts), hosts)
    if limit.metric.table in OVER_HOSTS:
        return _of_all_hosts(limit, measure(limit, views[-1]), hosts)
    found = [measure(limit, view) for view in hosts]
    states = [status_of(own, limit.relation, limit.bound) for own in found]
    status = min(states, key=_ORDER.index)
    rows = [at for at, state in enumerate(states) if state == status]
    if status == "unknown":
        return _judged(limit, status, hosts[0], None, _all_gaps([(hosts[at], found[at]) for at in rows]))
    worst = (max if limit.relation.startswith("<") else min)(rows, key=lambda at: found[at].value or 0.0)
    return _judged(limit, status, hosts[worst], found[worst].value, found[worst].why)


_ORDER: tuple[Status, ...] = ("breach", "unknown", "pass")
"""What decides for all hosts, if any host has it."""


def _of_all_hosts(limit: Limit, found: Measured, hosts: Sequence[View]) -> Judged:
    """Judge what is measured once for all hosts; the figure itself says which host is the worst."""
    status = status_of(found, limit.relation, limit.bound)
    about = next((view for view in hosts if view.name == found.host), hosts[0])
    if status == "unknown":
        return _judged(limit, status, about, None, _gap(found))
    return _judged(limit, status, about, found.value, found.why)


def _judged(limit: Limit, status: Status, view: View, value: float | None, why: str) -> Judged:
    """Return the verdict; a value that is None is of no host."""
    return Judged(
        limit, status, _title(limit, view.stat), value, unit_measured(limit.metric),
        "" if value is None else view.name, _sentence(why),
        evidence_of(limit.metric, view) if status == "breach" else (),
    )  # fmt: skip


def _title(limit: Limit, stat: StepStatistic) -> str:
    metric = limit.metric
    if metric.table:
        return title_of(limit)
    title = FIGURES[metric.name].title
    return f"{title} ({metric.function or stat})" if metric.name == "step_time" else title


def _all_gaps(found: Sequence[tuple[View, Measured]]) -> str:
    """Say why hosts could not be judged: the first in full, the others counted."""
    view, own = found[0]
    where = f"host {view.name}: " if view.name else ""
    more = f"; so it is on {len(found) - 1} more" if len(found) > 1 else ""
    return f"{where}{_gap(own)}{more}"


def _gap(found: Measured) -> str:
    return found.gap or "the measured value is not a number"


def _sentence(text: str) -> str:
    return text if not text or text.endswith(".") else f"{text}."


# --- against a baseline ---


def _judge_regression(
    trace: Trace, views: Sequence[View], baselines: Sequence[RunSummary], tolerance: float, skip_first: int
) -> Judged:
    bound = float(f"{100.0 * tolerance:.12g}")
    limit = Limit(f"max-regression {bound_text(bound, '%')}", Metric(REGRESSION), "<=", bound, "baseline")
    if not baselines:
        return Judged(limit, "unknown", REGRESSION_TITLE, None, "%", "", "There is no baseline to compare with.")
    from tfperf.compare.fairness import differences
    from tfperf.compare.regression import compare_with_baselines
    from tfperf.compare.summarize import short_name, summarize_run

    after = summarize_run(trace, trace.run.name, skip_first=skip_first)
    found = compare_with_baselines(baselines, after, tolerance=tolerance, stat=views[0].stat)
    unfair = [own for before in baselines for own in differences(before, after) if own.unfair]
    reasons = list(dict.fromkeys(f"{own.what}: {own.before} before, {own.after} now; {own.text}" for own in unfair))
    hosts = _hosts(views)
    slowest = next((view for view in hosts if short_name(view.name) == found.after_host), None)
    return _compared(limit, found, hosts, slowest, " ".join(reasons))


def _compared(limit: Limit, found: StepComparison, hosts: Sequence[View], slowest: View | None, unfair: str) -> Judged:
    states: dict[str, Status] = {"slower": "breach", "not slower": "pass"}
    status, why = states.get(found.verdict, "unknown"), found.why
    thin = next((view for view in hosts if view.too_few_steps), None)
    if unfair:
        status, why = "unknown", f"The runs cannot be compared. {unfair}"
    elif thin is not None and status == "pass":
        status, why = "unknown", _all_gaps([(thin, unknown(thin.too_few_steps))])
    measured = 100.0 * (found.ratio.value - 1.0) if found.ratio and status != "unknown" else None
    evidence = evidence_of(limit.metric, slowest or hosts[0]) if status == "breach" else ()
    return Judged(
        limit, status, REGRESSION_TITLE, measured, "%", slowest.name if slowest and measured is not None else "",
        _sentence(why), evidence, found,
    )  # fmt: skip


def _notes(trace: Trace, views: Sequence[View], skip_first: int) -> tuple[str, ...]:
    notes = []
    if skip_first:
        whose = " of each host" if len(trace.hosts) > 1 else ""
        notes.append(f"Skipped: the first {skip_first:,} {'step' if skip_first == 1 else 'steps'}{whose}.")
    unsure = [view for view in _hosts(views) if view.host.breakdown.steps.confidence not in _SURE]
    if unsure and unsure[0].summary.averaged_count:
        steps = unsure[0].host.breakdown.steps
        where = f"On host {unsure[0].name}, steps" if unsure[0].name else "Steps"
        notes.append(f"{where} were found with {steps.confidence} confidence: {steps.explanation}.")
    return tuple(notes)
