"""Convert an analyzed profile to its stored summary.

Rankings are per step: time in the averaged steps of the compared kind / number of these steps, over all hosts. Long
lists are cut to their largest entries; each has its original length.

The section `STEP_SUMS` adds up ops, kernels, copies, functions and stages in the averaged steps of each kind, because
runs are compared per step of one kind. The sums exclude evaluation, steps that are not averaged (such as compiling
ones), and time between steps. Time is cut at step boundaries, except that kernels and copies count whole in the step in
which they start.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import SectionSpec, default_sections
from tfperf.base.arrays import MOST, Intervals, covers, intersection, union
from tfperf.base.units import PS_PER_MS
from tfperf.judge.regression import statistic
from tfperf.judge.run_summary import (
    LONGEST_NAME,
    LONGEST_STEP_MS,
    MOST_COUNT,
    MOST_MS,
    AllocatorPeak,
    CauseTime,
    HostSummary,
    RankedEntry,
    Ranking,
    RankingName,
    Rankings,
    RunSummary,
)
from tfperf.report.render.values import encodable
from tfperf.sections.kernels.analysis import copies_of, kernel_runs, tally_runs
from tfperf.sections.ops.sums import Sums, own_time_in, sums_in
from tfperf.sections.overview.summary import summarize
from tfperf.sections.tfdata.analysis import (
    blocked_times,
    cut_into_segments,
    elements_by_stage,
    measure_stages,
    waiting_times,
)
from tfperf.sections.wall import wall_step_ms
from tfperf.trace.known_stats import DEVICE_OPS, HOST_OPS, TFDATA
from tfperf.trace.nesting import parents
from tfperf.trace.steps.breakdown import lacks_devices
from tfperf.trace.steps.categories import CATEGORIES
from tfperf.trace.steps.step_range import range_text
from tfperf.trace.steps.steps import END_ESTIMATED, PARTIAL
from tfperf.trace.tfdata import asynchronous_stages

if TYPE_CHECKING:
    from tfperf.analysis.load import Analysis
    from tfperf.analysis.registry import Host, HostResults, Results
    from tfperf.trace.steps.steps import Steps

MOST_STEPS = 20_000
"""Over all hosts: half of a file's maximum."""
MOST_HOSTS = 200
MOST_ALLOCATORS = 20
MOST_ROWS: dict[RankingName, int] = {
    **dict.fromkeys(("device_ops", "host_ops", "kernels"), 200),
    **dict.fromkeys(("copies", "idle"), 20),
    "stages": 100,
    "functions": 60,
}
_SUMMED: tuple[RankingName, ...] = ("device_ops", "host_ops", "kernels", "copies")
_INPUT_PARTS = ("input_wait", "host_to_device")
_MOST_BATCHES = 1 << 16
_Results = TypeVar("_Results", bound="Results")


def summary_sections() -> tuple[str, ...]:
    """Return the sections that a summary needs."""
    return (*default_sections(), "step_sums")


def whole_steps(results: _Results, skip_first: int = 0, kind: str = "") -> _Results:
    """Return the results without truncated steps, the first `skip_first` of each host, and kinds other than `kind`.

    A report may use truncated steps if there are no others, with a note; a verdict may not.
    """

    def whole(host: HostResults) -> HostResults:
        steps = host["steps"].steps
        rows = [row for row, other in enumerate(steps.kinds) if kind in ("", other)][skip_first:]
        return host.counting(
            np.array([row for row in rows if steps.flags[row] not in (PARTIAL, END_ESTIMATED)], np.int64)
        )

    return results.only([whole(host) for host in results.hosts])


def summarize_run(analysis: Analysis, label: str, *, skip_first: int = 0, kind: str = "") -> RunSummary:
    """Return the summary of a run, without truncated steps and the first `skip_first` steps of each host.

    `kind` is the kind of its steps, by default the main one. Rankings are over all averaged steps of it, including the
    first `skip_first`. `label` may be a path; only its last part is kept. The files are read again unless the analysis
    has all `summary_sections()`.
    """
    from tfperf.base import __version__

    results = analysis.more(summary_sections())
    whole = whole_steps(results, skip_first, kind)
    most_steps = max(MOST_STEPS // max(len(results.hosts), 1), 1)
    causes = _causes(whole)
    hosts = [_host_summary(host, most_steps, causes.get(host.host, ())) for host in whole.hosts]
    slowest = hosts
    if len(hosts) > MOST_HOSTS:
        slowest = sorted(hosts, key=lambda host: -(statistic(host.step_ms, "mean") or 0.0))[:MOST_HOSTS]
    steps, batch = whole["steps"].steps, results["batch"]
    is_sure = batch.confidence in ("high", "medium")
    doubts = [
        flaw.text
        for host in results.hosts
        for flaw in host.flaws
        if flaw.level != "incomplete" and len(host["steps"].steps) and flaw.touches(host["steps"].steps.rests_on)
    ]
    # The mode, or the smaller one if two numbers are equally frequent; None without any.
    batches = np.clip(steps.batches[steps.headline], 0, _MOST_BATCHES) if len(steps) else ()
    usual_batches = int(np.bincount(batches, minlength=1).argmax()) or None if len(steps) else None
    versions = {host.facts.tensorflow_version or "" for host in results["environment"]}
    peaks: dict[str, int] = {}
    for allocator in results["memory"].allocators:
        name = short_name(allocator.name)
        peaks[name] = max(peaks.get(name, 0), min(allocator.peak_bytes, MOST_COUNT))
    return RunSummary(
        label=short_name(Path(label).name or label),
        run=short_name(results.run.name),
        tfperf_version=__version__,
        attribution=results.attribution,
        skip_first=skip_first,
        steps="" if analysis.steps is None else range_text(analysis.steps),
        step_kind=short_name(steps.headline_kind),
        step_source=steps.source,
        step_confidence=steps.confidence,
        batches_per_step=usual_batches,
        batch_size=_count(batch.size),
        examples_per_step=_count(batch.examples_per_step if is_sure else None),
        wall_step_ms=_rounded(wall_step_ms(whole["wall"])),
        doubt=short_name("; ".join(doubts)),
        tensorflow_version=short_name(versions.pop()) if len(versions) == 1 else "",
        hosts=tuple(slowest),
        host_count=len(hosts),
        rankings=_rankings(results, whole),
        allocators=tuple(AllocatorPeak(name, peak) for name, peak in list(peaks.items())[:MOST_ALLOCATORS]),
    )


def _count(value: int | None) -> int | None:
    return value if value and value <= MOST_COUNT else None


def short_name(text: str) -> str:
    """Return a valid Unicode name of at most `LONGEST_NAME` characters; a hash keeps shortened names distinct."""
    text = encodable(text)
    if len(text) <= LONGEST_NAME:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    end = LONGEST_NAME // 2
    return f"{text[: LONGEST_NAME - end - len(digest) - 2]}…{digest}…{text[-end:]}"


def _rounded(value: float | None) -> float | None:
    """Return a number with six digits; None for values that a file must not contain."""
    if value is None or not math.isfinite(value) or not 0 <= value <= MOST_MS:
        return None
    return float(f"{value:.6g}")


def _causes(whole: Results) -> dict[str, tuple[CauseTime, ...]]:
    """Return the causes of the diagnosed host; none if the diagnosis is of the average of several hosts."""
    diagnosis = whole["diagnosis"]
    host = diagnosis.host or (whole.hosts[0].host if len(whole.hosts) == 1 else "")
    time = diagnosis.summary.step_time_ms
    if not host or time is None:
        return {}
    causes = [
        CauseTime(
            code=part.cause,
            title=short_name(cause.title),
            category_ms={key: _rounded(share * time.average / 100.0) or 0.0 for key, share in part.taken.items()},
        )
        for part in diagnosis.parts
        for cause in diagnosis.named(part.cause)[:1]
        if part.taken
    ]
    return {host: tuple(causes)}


def _host_summary(host: HostResults, most_steps: int, causes: tuple[CauseTime, ...]) -> HostSummary:
    breakdown, environment = host["steps"], host["environment"]
    overview = summarize(breakdown)
    duration_ps = breakdown.steps.duration_ps[breakdown.steps.headline]
    step_ms = tuple(
        float(f"{ps / PS_PER_MS:.6g}") for ps in duration_ps.tolist() if 0 < ps <= LONGEST_STEP_MS * PS_PER_MS
    )
    compute_ps = breakdown.compute_ps
    category_ms: dict[str, float | None] = {}
    for category in (*CATEGORIES, *_INPUT_PARTS) if step_ms else ():
        averaged_ps = breakdown.time_ps[category][breakdown.steps.headline]
        is_unknown = category in breakdown.unknown
        category_ms[category] = None if is_unknown else _rounded(float(averaged_ps.mean()) / PS_PER_MS)
    return HostSummary(
        host=short_name(host.host),
        step_ms=step_ms[:most_steps],
        step_count=len(step_ms),
        category_ms=category_ms,
        input_percent=_rounded(overview.input_percent),
        input_class=overview.input_class,
        device_type=environment.device_type,
        device_model=short_name(environment.device_model),
        device_count=environment.device_count,
        half_precision_percent=_rounded(100.0 * breakdown.compute_16_ps / compute_ps) if compute_ps else None,
        cpu_model=short_name(environment.facts.cpu_model or ""),
        cores=_rounded(environment.facts.cores),
        causes=causes,
    )


def _rankings(results: Results, whole: Results) -> Rankings:
    sums: StepSums | None = results["step_sums"].get(whole["steps"].steps.headline_kind)
    if sums is None or not sums.step_count:
        return Rankings()
    elements: dict[str, float | None] = {}
    for pipeline in results["tfdata"].pipelines:
        for stage in pipeline.stages:
            if stage.element_ps is not None:
                elements.setdefault(short_name(stage.path), _rounded(stage.element_ps / PS_PER_MS))
    traced = {each.name: float(each.calls.get("traced", 0)) for each in results["functions"].functions}
    per_step = {name: _per_step(rows, sums.step_count) for name, rows in sums.rankings.items()}
    in_steps = {entry.name: entry.ms for entry in per_step["functions"]}
    idle: list[RankedEntry] = []
    if results.has_device and not lacks_devices(whole["steps"]) and not whole["idle"].without_steps:
        columns: dict[str, Any] = whole["idle"].columns()
        causes = zip(columns["cause"], columns["per_step_ms"], strict=True)
        idle = [RankedEntry(cause, "", _rounded(ms)) for cause, ms in causes]
    entries: dict[RankingName, Iterable[RankedEntry]] = {
        **{name: per_step[name] for name in _SUMMED},
        "stages": [replace(entry, element_ms=elements.get(entry.name)) for entry in per_step["stages"]],
        # A function that no step calls is relevant if the capture traces it.
        "functions": [
            RankedEntry(short_name(name), "", in_steps.get(short_name(name), 0.0), count)
            for name, count in traced.items()
            if count or short_name(name) in in_steps
        ],
        "idle": idle,
    }
    rankings = {}
    for name, rows in entries.items():
        # Longest first; entries with work but no waiting follow.
        ranked = sorted(rows, key=lambda row: (-(row.ms or 0.0), -(row.element_ms or 0.0), row.name, row.detail))
        rankings[name] = Ranking(tuple(ranked[: MOST_ROWS[name]]), len(ranked))
    return Rankings(**rankings)


def _per_step(rows: Rows, steps: int) -> list[RankedEntry]:
    """Divide sums by the steps; rows whose shortened names are equal are joined."""
    sums: dict[tuple[str, str], tuple[int, float]] = {}
    for (name, detail), (ps, count) in rows.items():
        key = short_name(name), short_name(detail)
        before = sums.get(key, (0, 0.0))
        sums[key] = before[0] + ps, before[1] + count
    return [
        RankedEntry(name, detail, _rounded(ps / PS_PER_MS / steps), _rounded(count / steps))
        for (name, detail), (ps, count) in sums.items()
    ]


STEP_SUMS = SectionSpec(
    name="step_sums",
    title="Sums over steps",
    rests_on=("steps",),
    analyze="tfperf.judge.summarize:analyze",
    combine="tfperf.judge.summarize:combine",
    combines_in_tree=True,
    shorten="tfperf.judge.summarize:shorten",
    stats=HOST_OPS
    | DEVICE_OPS
    | TFDATA
    | {"id", "tf_function_call", "equation", "kernel_details", "memcpy_details", "memset_details"},
    build="tfperf.sections.ops.section:build",  # never called: no report contains it
)
Rows = dict[tuple[str, str], tuple[int, float]]
"""(name, detail): (picoseconds, count). The details are types of ops and names of stages, which are keyed by path."""


class StepSums(Struct, frozen=True):
    """Sums per `RankingName` over the averaged steps of one kind, of all hosts: waiting for stages, or self time."""

    step_count: int
    rankings: dict[str, Rows]


def analyze(host: Host) -> dict[str, StepSums]:
    """Return the sums of the steps of each kind."""
    steps: Steps = host["steps"].steps
    return {
        kind: _sums(host, steps.only(np.flatnonzero(steps.averaged & steps.are(kind))))
        for kind in dict.fromkeys(steps.kinds)
    }


def combine(hosts: Sequence[dict[str, StepSums]]) -> dict[str, StepSums]:
    """Add up the sums of several hosts."""
    parts: dict[str, list[StepSums]] = {}
    for host in hosts:
        for kind, sums in host.items():
            parts.setdefault(kind, []).append(sums)
    combined = {}
    for kind, of_kind in parts.items():
        rankings = {
            name: _added((key, ps, count) for part in of_kind for key, (ps, count) in part.rankings[name].items())
            for name in of_kind[0].rankings
        }
        combined[kind] = StepSums(sum(part.step_count for part in of_kind), rankings)
    return combined


def shorten(sums: dict[str, StepSums], most: int) -> dict[str, StepSums]:
    """Return the sums with at most `most` rows each, longest first: comparisons list far fewer."""
    if all(len(rows) <= most for each in sums.values() for rows in each.rankings.values()):
        return sums
    shorter = {}
    for kind, each in sums.items():
        rankings = {
            name: dict(sorted(rows.items(), key=lambda row: -row[1][0])[:most]) for name, rows in each.rankings.items()
        }
        shorter[kind] = replace(each, rankings=rankings)
    return shorter


def _added(rows: Iterable[tuple[tuple[str, str], int, float]]) -> Rows:
    sums: Rows = {}
    for key, ps, count in rows:
        before = sums.get(key, (0, 0.0))
        sums[key] = min(before[0] + ps, MOST), before[1] + count
    return sums


def _sums(host: Host, steps: Steps) -> StepSums:
    trace, counted = host.trace, union(steps.start_ps, steps.end_ps)
    ops, work = sums_in(host, steps), host.device_work
    starts = covers(counted, trace.start_ps[work.rows])
    columns = ("rows", "plane", "line", "activity", "is_memset", "moves", "op")
    work = replace(work, **{column: getattr(work, column)[starts] for column in columns})
    runs = kernel_runs(trace, work)
    kernels, _ = tally_runs(runs, trace.duration_ps[runs.rows])
    rows = trace.stat("tf_function_call").event.astype(np.int64)
    start, end, names = trace.start_ps[rows], trace.end_ps[rows], trace.name[rows].tolist()
    self_ps = own_time_in(start, end, parents(trace, rows), counted).tolist()
    calls = zip(names, self_ps, covers(counted, start).tolist(), strict=True)
    rankings = {
        "device_ops": _op_rows(ops.device),
        "host_ops": _op_rows(ops.host),
        "kernels": _added(((kernel.name, ""), runs.total_ps, runs.occurrences) for kernel, runs in kernels.items()),
        "copies": _added(((copies.kind, ""), copies.total_ps, copies.count) for copies in copies_of(trace, work)),
        "stages": _stage_rows(host, counted),
        "functions": _added(((trace.names[name], ""), ps, is_here) for name, ps, is_here in calls if ps or is_here),
    }
    return StepSums(len(steps), rankings)


def _op_rows(sums: Sums) -> Rows:
    """Return ops by name and type: HLO ops of one framework op, and runs in several functions, are joined."""
    return _added(
        ((op.name or op.hlo_op, op.type), each.step_self_ps, each.step_calls)
        for (op, _), each in sums.items()
        if each.step_calls or each.step_self_ps
    )


def _stage_rows(host: Host, counted: Intervals) -> Rows:
    """Return the stages that `counted` waits for or calls; those of pipelines with the same shape are joined."""
    recorded, work = host.pipelines, host.stage_work
    if recorded is None or work is None:
        return {}
    is_async = asynchronous_stages(recorded)
    times = measure_stages(recorded, work.without_waiting(is_async), is_async)
    called = np.bincount(
        recorded.calls.stage[covers(counted, recorded.calls.start)], minlength=len(recorded.stages)
    ).tolist()
    rows: list[tuple[tuple[str, str], int, float]] = []
    for number in range(len(recorded.roots)):
        members = recorded.members(number)
        segments = cut_into_segments(recorded, times, members, elements_by_stage(recorded, times, members))
        waits = intersection(waiting_times(recorded, times, number), counted)
        blocked_ps, _ = blocked_times(recorded, times, members=members, segments=segments, waits=waits)
        for stage in members:
            if blocked_ps[stage] or called[stage]:
                key = recorded.stages[stage].path, recorded.stages[stage].name
                rows.append((key, blocked_ps[stage], called[stage]))
    return _added(rows)
