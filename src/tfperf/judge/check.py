"""Check limits: each one on its worst host, and a regression against a baseline.

A breach on any host is a breach, even if other values are unknown; unknown is never a pass.

A breach is explained by the causes and actions of the diagnosis, and by other findings of the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.load import Analysis, load
from tfperf.analysis.registry import OtherSection, find_table
from tfperf.base.errors import TfperfError
from tfperf.base.storage.remote_path import Location, RemotePath, located
from tfperf.base.units import counted, format_bytes, format_percent, listed
from tfperf.judge.config import CheckConfig
from tfperf.judge.grammar import limit_tables, read_limit, unit_measured
from tfperf.judge.limits import (
    FIGURES,
    REGRESSION,
    Limit,
    LimitError,
    Metric,
    NamedLimits,
    bound_text,
    named_limits,
    quoted,
    regression_tolerance,
)
from tfperf.judge.measure import (
    JudgedHost,
    Measurement,
    fullest_allocator,
    is_over_steps,
    judged_hosts,
    measure,
    measure_skew,
    measure_together,
    metric_title,
    rests_on_steps,
    retraces_of,
    unjudged_steps,
    unknown,
    why_step_time_unknown,
)
from tfperf.judge.outcome import Judged, Outcome
from tfperf.report.model import Finding, Status
from tfperf.report.render.values import brief
from tfperf.trace.soundness import FOREIGN
from tfperf.trace.steps.steps import COLLECTION, RETRACE, SLOW_FIRST, UNLABELLED, step_word

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tfperf.judge.regression import StepStatistic
    from tfperf.judge.run_summary import RunSummary
    from tfperf.sections.diagnosis.cause import Diagnosis
    from tfperf.sections.functions.analysis import FunctionStats

MIN_STEPS = 3
"""Minimum averaged steps per host for limits on steps."""
MAX_REGRESSION = 0.05
"""Default tolerance of a regression: 5%."""
_ORIGIN = "tfperf.check"
_WORST_FIRST: tuple[Status, ...] = ("breach", "unknown", "pass")
"""The first status that any host has decides."""


def check_profile(  # noqa: PLR0913  (every parameter is an option that users name)
    profile: Analysis | str | Location,
    *,
    limits: Sequence[str] = (),
    stat: StepStatistic = "mean",
    skip_first: int = 0,
    min_steps: int = MIN_STEPS,
    by_kind: str | None = None,
    allow_doubt: bool = False,
    baseline: str | Location | Sequence[str | Location] = (),
    **named: Unpack[NamedLimits],
) -> Outcome:
    """Check a profile against limits, like `tfperf check`.

    `named` are its options with limits (`max_input_bound="10%"`, `fail_on=["compilation", "input_wait"]`,
    `max_cost="compilation=10%"`, `max_regression="5%"`), `limits` those of `--limit`, `by_kind` is the kind of steps to
    check (default: the main one), `baseline` is one or more files of `tfperf analyze --save-baseline`. An unknown limit
    is not an error: the outcome's `exit_code` is 0 if all limits pass, 3 if one is breached, else 1. With
    `allow_doubt`, figures are checked even if the profile may be incomplete or wrong; `doubt` of each limit states the
    reason. Raise LimitError for an invalid limit, for no limits, and for `max_regression` without a baseline;
    TfperfError if steps of `by_kind` are missing but others exist; and the errors of `tfperf.load`.
    """
    options: dict[str, Any] = {**named}
    max_regression = options.pop("max_regression", None)
    config = CheckConfig(
        limits=(
            *(limit for name, values in options.items() for limit in named_limits(name, values, _ORIGIN)),
            *(read_limit(text, _ORIGIN) for text in limits),
        ),
        stat=stat,
        skip_first=skip_first,
        min_steps=min_steps,
        by_kind=by_kind,
        allow_doubt=allow_doubt,
        baseline=tuple(map(located, [baseline] if isinstance(baseline, (str, Path, RemotePath)) else baseline)),
        max_regression=None
        if max_regression is None
        else regression_tolerance(str(max_regression), f"{_ORIGIN}: max-regression"),
    )
    if not config.limits and not config.baseline and max_regression is None:
        raise LimitError('no limits given: pass one, for example max_input_bound="10%"')
    if not isinstance(profile, Analysis):
        profile = load(profile, sections=tuple(map(OtherSection, needed_sections(config))))
    return check(profile, config)


def needed_sections(config: CheckConfig) -> tuple[str, ...]:
    """Return the sections to measure; raise LimitError for a tolerance without a baseline, which would always pass."""
    if config.baseline:
        from tfperf.judge.summarize import summary_sections

        return summary_sections()
    if config.max_regression is not None:
        raise LimitError("max-regression requires a baseline; save one with tfperf analyze --save-baseline")
    needed: list[str] = []
    for metric in (limit.metric for limit in config.limits):
        needed += [find_table(metric.table)[0]] if metric.table else FIGURES[metric.name].sections
    return tuple(dict.fromkeys(needed)) or ("steps",)


def check(profile: Analysis, config: CheckConfig) -> Outcome:
    """Check a profile with a configuration; unset values have their defaults.

    Whole steps count, after the first `skip_first` of each host; limits on steps are unknown on a host with fewer than
    `min_steps` averaged ones. Values that cannot be measured are unknown, with the reason. Raise LimitError for
    `max_regression` without a baseline, TfperfError for a kind without steps, and the errors of reading a baseline.
    """
    baselines = []
    if config.baseline:
        from tfperf.judge.run_summary import read_baseline
        from tfperf.judge.summarize import summarize_run

        baselines = [read_baseline(path) for path in config.baseline]
    profile = profile.more(needed_sections(config))
    kinds = Counter(kind for host in profile.of_hosts("steps") for kind in host.steps.kinds)
    if config.by_kind is not None and kinds and config.by_kind not in kinds:
        there = ", ".join(f"{name} ({counted(count, 'step')})" for name, count in kinds.items())
        asked = f"the profile has no steps of kind {quoted(config.by_kind)} (--by-kind)"
        raise TfperfError(f"{asked}; the kinds are: {there}")
    hosts = _hosts_of(profile, config)
    judged = [_judge(limit, hosts) for limit in config.limits]
    if baselines:
        # Not `or`, because 0 is valid.
        tolerance = MAX_REGRESSION if config.max_regression is None else config.max_regression
        after = summarize_run(profile, profile.run.name, skip_first=config.skip_first or 0, kind=config.by_kind or "")
        judged.append(_judge_regression(after, hosts, baselines, tolerance))
    foreign = (f"host {host}: {flaw.text}" for host, flaw in profile.flaws if flaw.code in FOREIGN)
    missing = profile.missing_text if profile.missing else next(foreign, "")
    if missing:
        # A missing host might breach the limit.
        unjudged = {"status": "unknown", "measured": None, "host": "", "why": _sentence(missing)}
        judged = [replace(each, **unjudged) if each.status == "pass" else each for each in judged]
    if profile.run.newer:
        why = _sentence(f"{profile.run.newer_text}; to check this run, pass it with --run")
        judged = [replace(each, status="unknown", measured=None, host="", why=why) for each in judged]
    single = _with_steps(_single(hosts))
    return Outcome(
        judged=_explained(judged, profile, config),
        run=profile.run.name,
        folder=str(profile.run.folder),
        hosts=tuple(host.host for host in profile.hosts),
        step_count=min(host.summary.averaged_count for host in single),
        step_kind=next((host.summary.kind for host in single if host.summary.averaged_count), ""),
        other_kinds=hosts[-1].other_kinds,
        notes=(
            *filter(None, [profile.steps_text, profile.without_steps_text, profile.sample]),
            *_doubt_notes(hosts, judged),
            *_notes(hosts, config),
        ),
        config_file=str(config.file or ""),
    )


def _hosts_of(profile: Analysis, config: CheckConfig) -> tuple[JudgedHost, ...]:
    return judged_hosts(
        profile,
        stat=config.stat or "mean",
        skip_first=config.skip_first or 0,
        min_steps=MIN_STEPS if config.min_steps is None else config.min_steps,
        kind=config.by_kind or "",
        allow_doubt=bool(config.allow_doubt),
    )


def _single(hosts: Sequence[JudgedHost]) -> Sequence[JudgedHost]:
    """Return the hosts without the last, which represents all of them if there are several."""
    return hosts if len(hosts) == 1 else hosts[:-1]


def _with_steps(hosts: Sequence[JudgedHost]) -> Sequence[JudgedHost]:
    """Return the hosts with steps, without helpers that serve other hosts."""
    return [host for host in hosts if not host.breakdown.task.is_helper] or hosts


def _explained(judged: Sequence[Judged], profile: Analysis, config: CheckConfig) -> tuple[Judged, ...]:
    breached = [each for each in judged if each.status == "breach"]
    sections = {section for each in breached for section in evidence_sections(each.limit.metric)}
    if not sections:
        return tuple(judged)
    try:
        hosts = _hosts_of(profile.more(sections), config)
        single = _single(hosts)
        named = {host.name: host for host in single}
        # Causes are explained by the combined hosts, other limits by the deciding host.
        evidence = [
            evidence_of(each.limit.metric, hosts[-1] if each.limit.metric.cause else named.get(each.host, single[0]))
            for each in breached
        ]
    except TfperfError as error:
        # A file that has disappeared removes the evidence, not the verdict.
        evidence = [(Finding("no_evidence", "info", f"Cannot read the evidence for this breach: {error}"),)] * len(
            breached
        )
    explained = iter(evidence)
    return tuple(replace(each, evidence=next(explained)) if each in breached else each for each in judged)


def _judge(limit: Limit, hosts: Sequence[JudgedHost]) -> Judged:
    metric = limit.metric
    single = _with_steps(_single(hosts)) if is_over_steps(metric) else _single(hosts)
    if metric.table:
        title = metric_title(limit)
    else:
        title = " ".join(filter(None, (FIGURES[metric.name].title, metric.cause)))
        title += f" ({metric.function or single[0].stat})" if metric.name == "step_time" else ""
    of_hosts = single
    if metric.name == "skew" and not metric.table:
        measurement = measure_skew(single)
    elif not metric.table and FIGURES[metric.name].over_hosts:
        measurement, of_hosts = measure_together(limit, single, hosts[-1]), hosts[-1:]
    elif metric.table and limit_tables()[metric.table].over_hosts:
        measurement, of_hosts = measure(limit, hosts[-1]), hosts[-1:]
    else:
        measurement = _measure_worst(limit, single)
    status = measurement.status(limit)
    is_known = status != "unknown"
    return Judged(
        limit=limit,
        status=status,
        title=title,
        measured=measurement.value if is_known else None,
        unit=unit_measured(metric),
        host=measurement.host if is_known else "",
        why=_sentence(measurement.why if is_known else measurement.reason),
        doubt=_allowed_doubt(metric, of_hosts) if is_known else "",
    )


def _allowed_doubt(metric: Metric, hosts: Sequence[JudgedHost]) -> str:
    """Return why a figure may be wrong that is checked because doubt is allowed; empty if it is not doubtful."""
    doubts = {host.name: host.doubt_text(host.doubts(metric)) for host in hosts if host.allow_doubt}
    return "; ".join(f"host {name}: {text}" if name else text for name, text in doubts.items() if text)


def _measure_worst(limit: Limit, hosts: Sequence[JudgedHost]) -> Measurement:
    """Return the deciding measurement of a limit that is measured per host."""
    measurements = [measure(limit, host) for host in hosts]
    statuses = [measurement.status(limit) for measurement in measurements]
    status = min(statuses, key=_WORST_FIRST.index)
    rows = [row for row, other in enumerate(statuses) if other == status]
    rows = [row for row in rows if not measurements[row].is_none] or rows
    if status == "unknown":
        more = len(rows) - 1
        others = f"; {counted(more, 'other host')} cannot be checked either" if more else ""
        return unknown(f"{hosts[rows[0]].named(measurements[rows[0]].reason)}{others}")
    worst = (max if limit.relation.startswith("<") else min)(rows, key=lambda row: measurements[row].value or 0.0)
    return replace(measurements[worst], host=hosts[worst].name)


def _sentence(text: str) -> str:
    return text if not text or text.endswith(".") else f"{text}."


def _judge_regression(
    after: RunSummary, hosts: Sequence[JudgedHost], baselines: Sequence[RunSummary], tolerance: float
) -> Judged:
    from tfperf.judge.changes import SOUNDNESS, differences
    from tfperf.judge.regression import compare_with_baselines
    from tfperf.judge.summarize import short_name

    single = _with_steps(_single(hosts))
    comparison = compare_with_baselines(baselines, after, tolerance=tolerance, stat=single[0].stat)
    unfair = [
        f"{difference.what}: {difference.before} before, {difference.after} now; {difference.text}"
        for before in baselines
        for difference in differences(before, after)
        if difference.unfair and not (difference.what == SOUNDNESS and single[0].allow_doubt)
    ]
    slowest = next((host.name for host in single if short_name(host.name) == comparison.after_host), "")
    states: dict[str, Status] = {"slower": "breach", "not slower": "pass"}
    status, why = states.get(comparison.verdict, "unknown"), comparison.why
    thin = next((host for host in single if host.too_few_steps), None)
    metric = Metric(REGRESSION)
    wrong = [host.named(text) for host in single if (text := host.damage(metric) or host.why_doubtful(metric))]
    if wrong:
        status, why = "unknown", wrong[0]
    elif (unsure := next((host for host in single if why_step_time_unknown(host)), None)) is not None:
        status, why = "unknown", unsure.named(why_step_time_unknown(unsure))
    elif unfair:
        status, why = "unknown", f"The runs are not comparable. {' '.join(dict.fromkeys(unfair))}"
    elif thin is not None and status == "pass":
        status, why = "unknown", thin.named(thin.too_few_steps)
    doubts = [f"baseline {before.label}: {before.doubt}" for before in baselines if before.doubt]
    doubts = [*doubts, _allowed_doubt(metric, single)] if single[0].allow_doubt else []
    measured = 100.0 * (comparison.ratio.value - 1.0) if comparison.ratio and status != "unknown" else None
    bound = float(f"{100.0 * tolerance:.12g}")
    return Judged(
        limit=Limit(f"max-regression {bound_text(bound, '%')}", metric, "<=", bound, "baseline"),
        status=status,
        title="Regression",
        measured=measured,
        unit="%",
        host=slowest if measured is not None else "",
        why=_sentence(why),
        comparison=comparison,
        doubt="; ".join(filter(None, doubts)) if status != "unknown" else "",
    )


def _doubt_notes(hosts: Sequence[JudgedHost], judged: Sequence[Judged]) -> Iterator[str]:
    hosts_of: dict[str, list[str]] = {}
    for host in _single(hosts):
        doubts = [(name, flaw) for name, flaw in host.doubts() if not any(flaw.text in each.why for each in judged)]
        if doubts:
            touching = [flaw for each in judged for _, flaw in host.doubts(each.limit.metric)]
            rest = " No limit depends on it." * all(flaw not in touching for _, flaw in doubts)
            hosts_of.setdefault(f"{host.doubt_text(doubts)}.{rest}", []).append(host.name)
    for text, names in hosts_of.items():
        several = "s" * (len(names) > 1)
        which = f"{several} of host{several} {listed(names)}" if any(names) else ""
        yield f"The profile{which} may be incomplete or wrong: {text}"


def _notes(hosts: Sequence[JudgedHost], config: CheckConfig) -> tuple[str, ...]:
    others, skip_first, hosts = hosts[-1].other_kinds, config.skip_first or 0, _with_steps(_single(hosts))
    notes = []
    figures_of_steps = [limit for limit in config.limits if rests_on_steps(limit.metric)]
    if others and (config.by_kind or config.baseline or figures_of_steps):
        rest = "Limits on steps are" if config.by_kind else "Figures are"
        notes.append(f"{rest} over {step_word(hosts[0].summary.kind)}s; {unjudged_steps(others)}.")
    # Truncated steps are expected; report only complete ones that are not averaged.
    with_omitted = next((host for host in hosts if host.omitted.keys() & {RETRACE, SLOW_FIRST, COLLECTION}), None)
    if with_omitted is not None and any(limit.metric.name == "step_time" for limit in config.limits):
        host_name = f" of host {with_omitted.name}" if with_omitted.name else ""
        notes.append(f"Step time{host_name}: {with_omitted.statistic_of(config.stat or 'mean')}.")
    if skip_first:
        word = step_word(config.by_kind or UNLABELLED)
        first = word if skip_first == 1 else f"{skip_first:,} {word}s"
        notes.append(f"Skipped: the first {first}{' of each host' if len(hosts) > 1 else ''}.")
    return tuple(notes)


_MOST = 2
_NAMED_FUNCTIONS = 3
_LONGEST_NAME = 120


class Topic(Struct, frozen=True):
    """The topic of a limit: the sections and the codes of causes that explain a breach."""

    sections: tuple[str, ...] = ("diagnosis",)
    codes: tuple[str, ...] = ()


TOPICS: Mapping[str, Topic] = {
    "anything": Topic(),
    "nothing": Topic(()),
    "input": Topic(("tfdata", "diagnosis"), ("input_wait", "input_contention", "input_copy")),
    "launches": Topic(codes=("launch_bound", "small_work_per_step")),
    "all_others": Topic(codes=("python_between_steps", "eager_ops", "run_eagerly", "waiting_in_calls")),
    "idle": Topic(("idle", "diagnosis")),
    "memory": Topic(("memory", "diagnosis"), ("memory_pressure",)),
    "functions": Topic(("functions", "diagnosis"), ("compilation", "warm_up")),
    "requests": Topic(("requests",)),
    "kernels": Topic(codes=("device_compute_32bit", "launch_bound")),
    "copies": Topic(codes=("input_copy", "output_copy")),
    "eager_ops": Topic(codes=("eager_ops", "run_eagerly")),
}
_TABLES: Mapping[str, str] = {
    **dict.fromkeys(("input_", "tfdata_", "iterators", "what_if"), "input"),
    **dict.fromkeys(("functions", "tf_functions"), "functions"),
    **dict.fromkeys(("idle_", "device_time"), "idle"),
    "memory_": "memory",
    "request": "requests",
    "kernels": "kernels",
    "launches": "launches",
    "copies": "copies",
    "eager_ops": "eager_ops",
    **dict.fromkeys(("environment", "ops", "op_", "host_ops", "device_ops", "pauses"), "nothing"),
}
"""Prefix of a table's name -> its topic."""


def _topic(metric: Metric) -> str:
    if not metric.table:
        return FIGURES[metric.name].topic if metric.name in FIGURES else "anything"
    return next((topic for prefix, topic in _TABLES.items() if metric.table.startswith(prefix)), "anything")


def evidence_sections(metric: Metric) -> tuple[str, ...]:
    """Return the sections that explain a breach."""
    return ("diagnosis",) if metric.cause else TOPICS[_topic(metric)].sections


def evidence_of(metric: Metric, host: JudgedHost) -> tuple[Finding, ...]:
    """Return up to two findings that explain a breach on a host, best first."""
    if metric.cause:
        from tfperf.sections.diagnosis.section import finding_of

        diagnosis: Diagnosis = host.results["diagnosis"]
        return tuple(map(finding_of, diagnosis.named(metric.cause)))[:_MOST]
    return tuple(dict.fromkeys(_explanations(_topic(metric), host)))[:_MOST]


def _explanations(topic: str, host: JudgedHost) -> Iterator[Finding]:
    causes = host.findings("diagnosis") if "diagnosis" in TOPICS[topic].sections else ()
    by_code = [finding for code in TOPICS[topic].codes for finding in causes if finding.code == code]
    if topic == "anything":
        yield from (finding for finding in causes if finding.code != "nothing")
    elif topic == "input":
        yield from by_code
        percent = host.summary.percent
        if not by_code and percent and host.summary.input_percent is not None:
            # Too small to be a cause.
            text = f"Waiting for input takes {format_percent(percent['input_wait'])}% of step time"
            if host.breakdown.has_device and host.breakdown.copies_are_input:
                text += f", copying batches to the device takes {format_percent(percent['host_to_device'])}%"
            yield Finding("input_share", "problem", f"{text}.", "show the time of each stage: tfperf analyze -s tfdata")
    elif topic == "functions":
        from tfperf.sections.diagnosis.catalogue import ADVICE  # imported only for a breach

        functions: tuple[FunctionStats, ...] = host.host["functions"].functions
        counts = {function.name: retraces_of(function) or 0 for function in functions}
        again = sorted((name for name, count in counts.items() if count), key=lambda name: -counts[name])
        if again:
            named = [f"{brief(name, _LONGEST_NAME)} ({counted(counts[name], 'time')})" for name in again]
            text = f"Retraced in the capture: {listed(named, _NAMED_FUNCTIONS)}."
            yield Finding("retraced", "problem", text, ADVICE["keep_signature"].texts["tensorflow"])
        yield from by_code
    elif topic in ("idle", "requests"):
        for fact in _facts(host, topic):
            yield replace(fact, causes=())
            yield from (finding for finding in causes if finding.code in fact.causes)
    elif topic == "memory":
        yield from (*(by_code or _facts(host, "memory")), *_largest_in_memory(host))
    else:
        yield from by_code


def _facts(host: JudgedHost, section: str) -> list[Finding]:
    return [finding for finding in host.findings(section) if finding.severity != "info"]


def _largest_in_memory(host: JudgedHost) -> Iterator[Finding]:
    data = host.results.table("memory_by_op") or {}
    fullest = fullest_allocator(host)
    allocators = data.get("allocator", ())
    rows = [row for row, name in enumerate(allocators) if fullest is not None and name == fullest.name]
    if rows:
        row = max(rows, key=lambda row: data["total_bytes"][row] or 0)
        size, share = format_bytes(data["total_bytes"][row]), format_percent(data["peak_percent"][row])
        text = f"Largest part of the peak: {brief(str(data['what'][row]), _LONGEST_NAME)}, {size}, {share}%."
        yield Finding("memory_largest", "problem", text, "show the other parts: tfperf analyze -s memory")
