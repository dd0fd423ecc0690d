"""The report of `tfperf diff`: is it slower, what explains it, and is the comparison fair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tfperf.analysis.load import Analysis, load
from tfperf.analysis.registry import present
from tfperf.base.errors import TfperfError
from tfperf.base.files import TRACE_SUFFIXES
from tfperf.base.storage.remote_path import Location, located
from tfperf.base.units import format_percent
from tfperf.judge.compare.baseline_file import read_baseline
from tfperf.judge.compare.bootstrap import StepStatistic, statistic
from tfperf.judge.compare.changes import NOTABLE_SHARE, RunComparison, compare_runs, ranking_changes
from tfperf.judge.compare.diff_tables import (
    RANKING_TITLES,
    categories_table,
    differences_table,
    memory_table,
    most_input_bound,
    percent_of,
    ranking_tables,
    runs_table,
    step_times_table,
    summary_of_run,
)
from tfperf.judge.compare.per_example import OF_TABLES
from tfperf.judge.compare.regression import format_times, measured_ratio
from tfperf.judge.compare.run_summary import RankingName, RunSummary
from tfperf.judge.compare.summarize import summarize_run, summary_sections
from tfperf.report.model import Fact, Finding, GroupedBars, Report, Section, Severity

AnyRun = Analysis | RunSummary | str | Location
"""A profile, loaded or as a path; or a baseline, read or as the path of its .json file."""

_RATIO_KEYS = {"ratio": "value", "ratio_low": "low", "ratio_high": "high", "confidence": "confidence"}
_WALL_RATIO = 1.1
_ALWAYS_SHOWN = ("overview", "categories", "steps", "environment")
_INPUT_CLASSES = {"high": "highly", "moderate": "moderately", "possible": "possibly", "none": "not"}


def diff(*runs: AnyRun, stat: StepStatistic = "mean", skip_first: int = 0) -> Report:
    """Compare the first run with the last, and name what explains the change: the report of `tfperf diff`.

    Each run is a loaded profile, the path of one, or a baseline (`tfperf analyze --save-baseline`). `stat` is the
    statistic of the step times that are compared; the first `skip_first` steps of each profile are omitted. `summary`
    of the report holds the ratio of the step times with its interval. Raises TfperfError for fewer than two runs, and
    what `load` raises.
    """
    return diff_report(run_summaries(runs, skip_first=skip_first), stat=stat)


def run_summaries(
    runs: Sequence[AnyRun], *, skip_first: int = 0, read: Callable[..., Analysis] = load
) -> list[RunSummary]:
    """Return the summary of each run, under labels that tell them apart; `read` loads a profile."""
    summaries = [_run_summary(run, skip_first, read) for run in runs]
    if len({run.label for run in summaries}) == len(summaries):
        return summaries
    return [replace(run, label=f"{number}: {run.label}") for number, run in enumerate(summaries, start=1)]


def _run_summary(run: AnyRun, skip_first: int, read: Callable[..., Analysis]) -> RunSummary:
    if isinstance(run, RunSummary):
        return run
    if isinstance(run, Analysis):
        return summarize_run(run, run.run.name, skip_first=skip_first)
    path = located(run)
    if path.suffix.lower() == ".json":
        return replace(read_baseline(path), label=path.name)
    analysis = read(path, sections=summary_sections())
    # The name of a trace file is that of its host, which says nothing about the run.
    is_file = path.is_file() if isinstance(path, Path) else path.name.endswith(TRACE_SUFFIXES)
    label = analysis.run.name if is_file else (path.absolute() if isinstance(path, Path) else path).name
    return summarize_run(analysis, label, skip_first=skip_first)


def diff_report(runs: Sequence[RunSummary], *, stat: StepStatistic = "mean") -> Report:
    """Return the report that compares two runs, or the trend of more and its first with its last.

    Raises TfperfError for fewer than two runs.
    """
    if len(runs) < 2:
        raise TfperfError("a comparison needs two or more runs")
    comparison = compare_runs(runs, stat)
    sections = [build(comparison) for build in _SECTIONS]
    source = {
        "runs": [run.label for run in runs],
        "attribution": " and ".join(dict.fromkeys(run.attribution for run in runs)),
    }
    if _is_unchanged(comparison, sections):
        first, *others = sections
        shown = [_one_line(first), *(replace(section, level="full") for section in others)]
    else:
        # Sections that have nothing to say are for programs only.
        shown = [section if _has_news(section) else replace(section, level="full") for section in sections]
    return Report(source, _summary(comparison), tuple(shown))


def _has_news(section: Section) -> bool:
    return section.name in _ALWAYS_SHOWN or any(table.level == "brief" for table in section.tables)


def _is_unchanged(comparison: RunComparison, sections: Sequence[Section]) -> bool:
    """Tell whether two runs differ in nothing that people are told of."""
    if len(comparison.runs) > 2:
        return False
    rankings = {f"{name}_changes" for name in (*RANKING_TITLES, "memory")}
    is_listed = any(table.level == "brief" and table.name in rankings for each in sections for table in each.tables)
    if any(finding.severity != "info" for finding in _wall(comparison)):
        return False
    notable = any(category.size_ms >= comparison.notable_ms for category in comparison.categories)
    return comparison.direction == "no clear change" and not (is_listed or notable or any(comparison.differences))


def _one_line(section: Section) -> Section:
    """Return the comparison of runs that do not differ: for people its verdict alone."""
    verdict, *others = section.findings
    return replace(
        section,
        findings=(
            replace(verdict, text=f"{verdict.text} Nothing else changed by {100 * NOTABLE_SHARE:.0f}% of a step."),
            *(replace(finding, level="full") for finding in others),
        ),
        tables=tuple(replace(table, level="full") for table in section.tables),
        notes=(),
        detail_notes=section.notes,
    )


def _summary(comparison: RunComparison) -> dict[str, Any]:
    ratio = comparison.steps.ratio
    return {
        "stat": comparison.steps.stat,
        "change": comparison.direction,
        **{key: getattr(ratio, end, None) for key, end in _RATIO_KEYS.items()},
        "verdict": _verdict(comparison).text,
        "comparable": not any(difference.unfair for difference in comparison.differences[-1]),
        "per": comparison.per,
        "before": summary_of_run(comparison.runs[0], comparison),
        "after": summary_of_run(comparison.runs[-1], comparison),
        "run_count": len(comparison.runs),
    }


def _overview(comparison: RunComparison) -> Section:
    findings = (
        _verdict(comparison),
        *_wall(comparison),
        *_largest_change(comparison),
        *_unfair(comparison),
        _input_bound(comparison),
    )
    notes = [
        "The interval covers the noise within each capture, not how the machine changes between captures: if that is "
        "large, capture both runs again, alternately."
    ]
    notes.append(
        f"Text lists what changed by {100 * NOTABLE_SHARE:.0f}% of a step or more; -o FILE.html, JSON and CSV have all."
    )
    if len(comparison.runs) > 2:
        notes.insert(0, f"Everything below compares {comparison.before.label} with {comparison.after.label}.")
    if comparison.per == "example":
        notes.append(
            f"Steps take different numbers of examples, so times below are of {OF_TABLES[comparison.per]}: their "
            "milliseconds are the microseconds of one example."
        )
    return Section("overview", "Comparison", findings=findings, tables=(runs_table(comparison),), notes=tuple(notes))


def _verdict(comparison: RunComparison) -> Finding:
    steps, ratio = comparison.steps, comparison.steps.ratio
    if ratio is None:
        return Finding("diff_unknown", "hint", f"The step times cannot be compared: {steps.why}")
    measured = measured_ratio(steps, ratio)
    if comparison.direction == "no clear change":
        return Finding("diff_none", "info", f"No clear change: {measured}.")
    # Not `faster` by a percentage, which readers take in two ways.
    percent = format_percent(100 * abs(ratio.value - 1))
    change = f"is {percent}% slower" if ratio.value > 1 else f"takes {percent}% less time"
    if ratio.value >= 2:
        change = f"takes {ratio.value:.3g} times as long"
    severity: Severity = "problem" if comparison.direction == "slower" else "info"
    text = f"{comparison.after.label} {change} per {comparison.per}: {measured}."
    return Finding(f"diff_{comparison.direction}", severity, f"{text}{_work_of_steps(comparison)}")


def _wall(comparison: RunComparison) -> Iterator[Finding]:
    """State the wall time per step where it differs from the step time by more than a tenth in one of the runs."""
    runs = (comparison.runs[0], comparison.runs[-1])
    walls_ms = [run.wall_step_ms for run in runs]
    steps_ms = [summary_of_run(run, comparison)["step_ms"] for run in runs]
    pairs = [(wall, step) for wall, step in zip(walls_ms, steps_ms, strict=True) if wall and step]
    if len(pairs) < len(runs) or all(wall <= _WALL_RATIO * step for wall, step in pairs):
        return
    # A capture shows few gaps and few compilations, so that they differ is a hint, and no more.
    times = [wall for wall, _ in pairs]
    is_change = max(times) > _WALL_RATIO * min(times)
    text = f"Wall time per step, with omitted steps and the time between steps: {format_times(times[0], times[-1])}."
    yield Finding("diff_wall", "hint" if is_change else "info", text)


def _work_of_steps(comparison: RunComparison) -> str:
    """Say how long the steps take, where examples are compared: steps are what other commands show."""
    if comparison.per == "step":
        return ""
    examples = [run.examples_per_step for run in (comparison.runs[0], comparison.runs[-1])]
    times = [summary_of_run(run, comparison)["step_ms"] for run in (comparison.runs[0], comparison.runs[-1])]
    return f" A step takes {examples[0]:,} -> {examples[1]:,} examples, and {format_times(times[0], times[1])}."


def _largest_change(comparison: RunComparison) -> Iterator[Finding]:
    """Name the category that changed most in the direction of the step time, and what in it changed."""
    whole_ms = comparison.mean_change_ms or 0.0
    explaining = [category for category in comparison.categories if (category.change_ms or 0.0) * whole_ms > 0]
    if not explaining:
        return
    category = explaining[0]
    share = format_percent(percent_of(category.change_ms, whole_ms))
    unit = "ms" if comparison.per == "step" else "us"
    times = format_times(category.before_ms, category.after_ms, unit)
    text = f"{category.entry.name} changed most: {times} per {comparison.per} ({share}% of the change)"
    if category.entry.detail == "input":
        stages = ranking_changes(comparison.before, comparison.after, "stages")
        explaining = [stage for stage in stages if (stage.change_ms or 0.0) * whole_ms > 0]
        for stage in [stage for stage in explaining if stage.size_ms >= comparison.notable_ms][:1]:
            times = format_times(stage.before_ms, stage.after_ms, unit)
            text += f"; of the tf.data stages, waiting for {stage.entry.detail} changed most, {times}"
    yield Finding("diff_explained", "hint", f"{text}.")


def _unfair(comparison: RunComparison) -> Iterator[Finding]:
    for run, unlike in zip(comparison.runs[1:], comparison.differences, strict=True):
        label = f"{run.label}: " if len(comparison.runs) > 2 else ""
        for difference in unlike:
            if difference.unfair:
                what = f"{difference.what.lower()} {difference.before} -> {difference.after}"
                yield Finding("diff_unfair", "problem", f"{label}Not a fair comparison: {what}; {difference.text}")


def _input_bound(comparison: RunComparison) -> Finding:
    texts = []
    for run in (comparison.before, comparison.after):
        host = most_input_bound(run)
        if host is None or host.input_class not in _INPUT_CLASSES:
            texts.append("unknown whether input-bound")
        elif host.input_percent is None:
            texts.append(f"{_INPUT_CLASSES[host.input_class]} input-bound")
        else:
            share = format_percent(host.input_percent)
            texts.append(f"{_INPUT_CLASSES[host.input_class]} input-bound ({share}% of the step time)")
    return Finding("diff_input", "info", f"Before: {texts[0]}. After: {texts[1]}.")


def _categories(comparison: RunComparison) -> Section:
    title, changes = "Where the time went", comparison.categories
    if not changes:
        return Section("categories", title, notes=("Unknown: a run has no whole steps.",))
    mean_ms = [statistic(host.step_ms, "mean") if host else None for host in comparison.hosts]
    seen = [each for each in changes if max(each.before_ms or 0, each.after_ms or 0) >= comparison.notable_ms]
    names = tuple(change.entry.name for change in seen)
    bars = {side: tuple(getattr(change, f"{side}_ms") for change in seen) for side in ("before", "after")}
    chart = GroupedBars(f"Milliseconds per {OF_TABLES[comparison.per]}", "ms", names, bars)
    whole = "step time" if comparison.per == "step" else f"time of {OF_TABLES[comparison.per]}"
    notes = [f"The categories add up to the mean {whole}: {format_times(mean_ms[0], mean_ms[1])}."]
    if comparison.mean_change_ms is None:
        notes.append(f"The {whole} has no clear change, so shares of the change are omitted.")
    tables = (categories_table(comparison, mean_ms), *ranking_tables(comparison, ("idle",)))
    return Section("categories", title, charts=(chart,), tables=tables, notes=tuple(notes))


def _steps(comparison: RunComparison) -> Section:
    facts = []
    for side, host in zip(("before", "after"), comparison.hosts, strict=True):
        count, note = host.step_count if host else 0, f"whole steps of host {host.host if host else '-'}"
        facts.append(Fact(f"{side}_steps", f"Steps {side}", count, "count", note))
    return Section("steps", "Step times", facts=tuple(facts), tables=(step_times_table(comparison),))


def _ranking_section(
    name: str, title: str, rankings: Sequence[RankingName], note: str
) -> Callable[[RunComparison], Section]:
    def build(comparison: RunComparison) -> Section:
        tables = ranking_tables(comparison, rankings)
        notes = [note] if tables else []
        for ranking in rankings:
            empty = [run.label for run in (comparison.before, comparison.after) if not run.ranking(ranking).rows]
            # That both runs show nothing is news only where nothing else is said.
            if empty and (len(empty) == 1 or not tables):
                labels = " and ".join(dict.fromkeys(empty))
                notes.append(f"{RANKING_TITLES[ranking]}: none in the profile of {labels}, so nothing is compared.")
        return Section(name, title, tables=tuple(tables), notes=tuple(notes))

    return build


def _memory(comparison: RunComparison) -> Section:
    tables = present(memory_table(comparison))
    return Section("memory", "Memory", tables=tables, notes=() if tables else ("No allocator appears in both runs.",))


def _environment(comparison: RunComparison) -> Section:
    table = differences_table(comparison)
    remarks = [
        f"{difference.what}: {difference.text}"
        for unlike in comparison.differences
        for difference in unlike
        if not difference.unfair
    ]
    notes = list(dict.fromkeys(remarks)) if table else ["The profiles show no other difference."]
    if not all(run.tensorflow_version for run in comparison.runs):
        notes.append("TensorFlow versions and host CPUs are not compared: not every run was captured by tfperf.")
    if any(run.batch_size is None for run in comparison.runs):
        notes.append("Batch sizes are not compared: not every run shows its own (tfperf analyze -s batch).")
    return Section("environment", "Is it fair", tables=present(table), notes=tuple(notes))


_SECTIONS: tuple[Callable[[RunComparison], Section], ...] = (
    _overview,
    _categories,
    _steps,
    _ranking_section(
        "ops",
        "Ops",
        ("device_ops", "host_ops"),
        "Times are self time, summed over parallel threads, streams and devices, so their changes overlap.",
    ),
    _ranking_section(
        "kernels",
        "Kernels and copies",
        ("kernels", "copies"),
        "Times are summed over streams. Kernels have the names of their functions; for whole names see kernel_name in "
        "--format csv.",
    ),
    _ranking_section(
        "tfdata", "tf.data", ("stages",), "Waited: time in which the step waits for this stage. Work: for one element."
    ),
    _ranking_section(
        "functions", "tf.functions", ("functions",), "Traced: calls in the capture that traced the function."
    ),
    _memory,
    _environment,
)
