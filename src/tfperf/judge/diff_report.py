"""The report of `tfperf diff`: the change of the step time, its explanation, and whether the comparison is fair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace

from tfperf.analysis.load import Analysis, load
from tfperf.analysis.registry import present
from tfperf.base.errors import TfperfError
from tfperf.base.files import TRACE_SUFFIXES
from tfperf.base.storage.remote_path import Location, located
from tfperf.base.units import Unit, format_percent, without_middle
from tfperf.judge.changes import NOTABLE_SHARE, EntryChange, RunComparison, compare_runs, part_changes, ranking_changes
from tfperf.judge.regression import (
    STATISTIC_TITLES,
    Ratio,
    StepStatistic,
    format_ratio,
    format_times,
    measured_ratio,
    slowest_host,
    statistic,
)
from tfperf.judge.run_summary import OF_TABLES, HostSummary, RankingName, RunSummary, as_compared, read_baseline
from tfperf.judge.summarize import summarize_run, summary_sections
from tfperf.report.model import (
    ChangedPart,
    Column,
    ComparedRun,
    ComparisonChart,
    Fact,
    Finding,
    GroupedBars,
    Level,
    Ranked,
    Report,
    Section,
    Severity,
    Table,
    at_levels,
    table_of,
)
from tfperf.sections.idle.analysis import CAUSE_TEXTS
from tfperf.trace.device.kernels import short_name

AnyRun = Analysis | RunSummary | str | Location
"""A loaded profile or its path; or a loaded baseline or the path of its .json file."""
_RATIO_KEYS = {"ratio": "value", "ratio_low": "low", "ratio_high": "high", "confidence": "confidence"}
_WALL_RATIO = 1.1
_ALWAYS_SHOWN = ("overview", "categories", "steps", "environment")
_INPUT_CLASSES = {"high": "highly", "moderate": "moderately", "possible": "possibly", "none": "not"}


def diff(*runs: AnyRun, stat: StepStatistic = "mean", skip_first: int = 0) -> Report:
    """Compare the first run with the last and explain the change: the report of `tfperf diff`.

    Each run is a loaded profile, its path, or a baseline (`tfperf analyze --save-baseline`). `stat` is the compared
    statistic of step times; the first `skip_first` steps of each profile are omitted. The report's `summary` contains
    the ratio of step times with its interval. Raise TfperfError for fewer than two runs, and the errors of `load`.
    """
    return diff_report(run_summaries(runs, skip_first=skip_first), stat=stat)


def run_summaries(
    runs: Sequence[AnyRun], *, skip_first: int = 0, read: Callable[..., Analysis] = load
) -> list[RunSummary]:
    """Return the summary of each run with a unique label; `read` loads a profile.

    Equal labels begin with as many parent folders as they need to differ, or with numbers.
    """
    summaries = [_run_summary(run, skip_first, read) for run in runs]
    labels, places = [run.label for run in summaries], [_folders(run) for run in runs]
    for depth in range(1, max(map(len, places)) + 1):
        counts = Counter(labels)
        if len(counts) == len(labels):
            break
        labels = [
            "/".join([*place[-depth:], summary.label]) if counts[label] > 1 else label
            for label, place, summary in zip(labels, places, summaries, strict=True)
        ]
    if len(set(labels)) < len(labels):
        labels = [f"{number}: {run.label}" for number, run in enumerate(summaries, start=1)]
    return [replace(run, label=label) for run, label in zip(summaries, labels, strict=True)]


def _folders(run: AnyRun) -> tuple[str, ...]:
    """Return the folders above a run, without those that TensorFlow adds to every logdir."""
    if isinstance(run, RunSummary):
        return ()
    path = run.run.folder if isinstance(run, Analysis) else located(run)
    # A trace file is labeled with its run, whose folder it is in.
    above = 2 if path.name.endswith(TRACE_SUFFIXES) else 1
    parents = (path.absolute() if isinstance(path, Path) else path).parts[:-above]
    return tuple(part for part in parents if part.strip("/") and part not in ("plugins", "profile"))


def _run_summary(run: AnyRun, skip_first: int, read: Callable[..., Analysis]) -> RunSummary:
    if isinstance(run, RunSummary):
        return run
    if isinstance(run, Analysis):
        return summarize_run(run, run.run.name, skip_first=skip_first)
    path = located(run)
    if path.suffix.lower() == ".json":
        return replace(read_baseline(path), label=path.name)
    analysis = read(path, sections=summary_sections())
    # A trace file is named after its host, which does not identify the run.
    is_file = path.is_file() if isinstance(path, Path) else path.name.endswith(TRACE_SUFFIXES)
    label = analysis.run.name if is_file else (path.absolute() if isinstance(path, Path) else path).name
    return summarize_run(analysis, label, skip_first=skip_first)


def diff_report(runs: Sequence[RunSummary], *, stat: StepStatistic = "mean") -> Report:
    """Return a comparison of two runs, or the trend of several; raise TfperfError for fewer than two."""
    if len(runs) < 2:
        raise TfperfError("a comparison requires at least two runs")
    comparison = compare_runs(runs, stat)
    lead, *sections = (build(comparison) for build in _SECTIONS)
    # Different ones are a difference of the runs.
    steps = runs[0].steps if len({run.steps for run in runs}) == 1 else ""
    if steps:
        lead = replace(lead, notes=(*lead.notes, f"Only steps {steps} of each run are compared."))
    source = {
        **({"steps": steps} if steps else {}),
        "runs": [run.label for run in runs],
        "attribution": " and ".join(dict.fromkeys(run.attribution for run in runs)),
    }
    if _is_unchanged(comparison, sections):
        first, *others = sections
        shown = [_one_line(first), *(replace(section, level="full") for section in others)]
    else:
        # Empty sections are only for programs.
        shown = [
            section
            if section.name in _ALWAYS_SHOWN or any(table.level == "brief" for table in section.tables)
            else replace(section, level="full")
            for section in sections
        ]
    return Report(source, _summary(comparison), (lead, *shown), documents={"comparison": _document(comparison, lead)})


def _is_unchanged(comparison: RunComparison, sections: Sequence[Section]) -> bool:
    if len(comparison.runs) > 2:
        return False
    rankings = {f"{name}_changes" for name in (*RANKING_TITLES, "memory")}
    is_listed = any(table.level == "brief" and table.name in rankings for each in sections for table in each.tables)
    if any(finding.severity != "info" for finding in _wall(comparison)):
        return False
    notable = any(category.size_ms >= comparison.notable_ms for category in comparison.categories)
    return comparison.direction == "no clear change" and not (is_listed or notable or any(comparison.differences))


def _one_line(section: Section) -> Section:
    verdict, *others = section.findings
    return replace(
        section,
        findings=(
            replace(verdict, text=f"{verdict.text} No other change reaches {100 * NOTABLE_SHARE:.0f}% of a step."),
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


_POINTER = "More: add --full, -s SECTION or -o report.html to this command."
_LONGEST_NOTE = 80
_LONGEST_LABEL = 26


def _change(comparison: RunComparison) -> Section:
    """Return the first screen: the ratio, the change by cause, the steps of both runs, and other differences."""
    steps, ratio = comparison.steps, comparison.steps.ratio
    unit: Unit = "ms" if comparison.per == "step" else "us"
    direction: Literal["faster", "slower", "same", "unknown"] = "unknown"
    headline, times = f"The step times cannot be compared: {steps.why}", ""
    if ratio is not None:
        direction = "same" if comparison.direction == "no clear change" else "slower" if ratio.low > 1 else "faster"
        headline = "No difference beyond noise" if direction == "same" else factor_text(ratio)
        times = f"{format_times(steps.before_ms, steps.after_ms, unit)} per {comparison.per}"
        if direction == "same":
            times += f" (ratio {format_ratio(ratio.low)} to {format_ratio(ratio.high)})"
    runs = []
    for number, run in enumerate(comparison.runs):
        of_run, host = as_compared(run, comparison.per), slowest_host(run, steps.stat)
        compared = slowest_host(of_run, steps.stat)
        change = comparison.step_comparisons[number - 1].ratio if number else None
        is_clear = change is not None and not change.low <= 1 <= change.high
        runs.append(
            ComparedRun(
                label=run.label,
                value=statistic(compared.step_ms, steps.stat) if compared else None,
                change="" if change is None else factor_text(change) if is_clear else "no difference",
                values=compared.step_ms if compared and host else (),
            )
        )
    first, last = (without_middle(comparison.runs[place].label, _LONGEST_LABEL) for place in (0, -1))
    counts = f"{steps.before_steps:,} and {steps.after_steps:,} steps"
    detail = f"{first} -> {last}: {STATISTIC_TITLES[steps.stat]} of {counts}"
    parts = part_changes(comparison)
    chart = ComparisonChart(
        title="Change of the step time by cause",
        direction=direction,
        headline=headline,
        times=times,
        detail=detail,
        unit=unit,
        runs=tuple(runs),
        parts=parts if any(abs(part.change) >= comparison.notable_ms for part in parts) else (),
        remark=_other_changes(comparison),
        is_fair=not any(each.unfair for several in comparison.differences for each in several),
    )
    return Section(
        "change",
        "Change",
        charts=(chart,),
        tables=(_parts_table(parts),) if parts else (),
        pointer=_POINTER,
        is_lead=True,
    )


def factor_text(ratio: Ratio) -> str:
    """Return `3.07x faster (2.81 to 3.34)`, with digits that show the direction."""
    is_slower = ratio.value > 1
    values = [ratio.value, ratio.low, ratio.high] if is_slower else [1 / ratio.value, 1 / ratio.high, 1 / ratio.low]

    def text(value: float, digits: int) -> str:
        return f"{value:,.0f}" if value >= 100 else f"{value:#.{digits}g}"

    shows_direction = (count for count in range(3, 12) if all(text(each, count).strip("1.0") for each in values))
    digits = next(shows_direction, 12)
    factor, low, high = (text(value, digits) for value in values)
    return f"{factor}x {'slower' if is_slower else 'faster'} ({low} to {high})"


def _other_changes(comparison: RunComparison) -> str:
    """Return the other differences from the first run in one line, unfair ones first."""
    pairs = zip(comparison.runs[1:], comparison.differences, strict=True)
    unlike = [(run.label, each) for run, several in pairs for each in several]
    unlike.sort(key=lambda pair: not pair[1].unfair)
    of = [f" of {without_middle(label, _LONGEST_LABEL)}" * (len(comparison.runs) > 2) for label, _ in unlike]
    whats = [f"{each.what.lower()}{of_run}" for (_, each), of_run in zip(unlike, of, strict=True)]
    texts = [
        f"{what} {each.before or '-'} -> {each.after or '-'}" for what, (_, each) in zip(whats, unlike, strict=True)
    ]
    texts += ["wall time per step" for finding in _wall(comparison) if finding.severity == "hint"]
    if not texts:
        return "No other differences between the runs were found (-s environment)."
    start = "NOT COMPARABLE: " if any(each.unfair for _, each in unlike) else "Also different: "
    kept = texts
    while len(kept) > 1 and len(_listed_changes(start, kept, texts)) > _LONGEST_NOTE:
        kept = kept[:-1]
    if len(_listed_changes(start, kept, texts)) > _LONGEST_NOTE:
        kept = whats[:1]
    if unlike and len(_listed_changes(start, kept, texts)) > _LONGEST_NOTE:
        kept = [unlike[0][1].what.lower()]
    return _listed_changes(start, kept, texts)


def _listed_changes(start: str, kept: Sequence[str], texts: Sequence[str]) -> str:
    more = f"; {len(texts) - len(kept)} more" if len(texts) > len(kept) else ""
    return f"{start}{'; '.join(kept)}{more} (-s environment)."


def _parts_table(parts: Sequence[ChangedPart]) -> Table:
    parts = sorted(parts, key=lambda part: -abs(part.change))
    data: dict[str, Any] = {
        "cause": [part.title for part in parts],
        "role": [part.role for part in parts],
        "before_ms": [part.before for part in parts],
        "after_ms": [part.after for part in parts],
        "change_ms": [part.change for part in parts],
    }
    return replace(_table("cause_changes", "Change by cause", data), level="full")


def _document(comparison: RunComparison, lead: Section) -> dict[str, Any]:
    """Return the object `comparison` of the JSON document; `speedup` is before / after."""
    ratio, chart = comparison.steps.ratio, lead.charts[0]
    assert isinstance(chart, ComparisonChart)
    return {
        "headline": chart.headline,
        "direction": chart.direction,
        "speedup": {
            "value": ratio and 1 / ratio.value,
            "low": ratio and 1 / ratio.high,
            "high": ratio and 1 / ratio.low,
        },
        "other_changes": chart.remark,
        "causes": [
            {"role": part.role, "title": part.title, "before_ms": part.before, "after_ms": part.after}
            for part in part_changes(comparison)
        ],
    }


def _overview(comparison: RunComparison) -> Section:
    unfair = []
    for run, unlike in zip(comparison.runs[1:], comparison.differences, strict=True):
        label = f"{run.label}: " if len(comparison.runs) > 2 else ""
        for difference in unlike:
            if difference.unfair:
                what = f"{difference.what.lower()} {difference.before} -> {difference.after}"
                text = f"{label}Not comparable: {what}; {difference.text}"
                unfair.append(Finding("diff_unfair", "problem", text))
    findings = (
        _verdict(comparison),
        *_wall(comparison),
        *_largest_change(comparison),
        *unfair,
        _input_bound(comparison),
    )
    notes = [
        "The interval covers the noise within each capture, not changes of the machine between captures: if these "
        "are large, capture both runs again, alternately."
    ]
    notes.append(f"Text lists changes of at least {100 * NOTABLE_SHARE:.0f}% of a step; HTML, JSON and CSV list all.")
    if len(comparison.runs) > 2:
        notes.insert(0, f"All sections below compare {comparison.before.label} with {comparison.after.label}.")
    if comparison.per == "example":
        notes.append(
            f"Steps take different numbers of examples, so times below are for {OF_TABLES[comparison.per]}: the "
            "milliseconds equal microseconds per example."
        )
    return Section("overview", "Comparison", findings=findings, tables=(runs_table(comparison),), notes=tuple(notes))


def _verdict(comparison: RunComparison) -> Finding:
    steps, ratio = comparison.steps, comparison.steps.ratio
    if ratio is None:
        return Finding("diff_unknown", "hint", f"The step times cannot be compared: {steps.why}")
    measured = measured_ratio(steps, ratio)
    if comparison.direction == "no clear change":
        return Finding("diff_none", "info", f"No clear change: {measured}.")
    # Not "N% faster", which is ambiguous.
    percent = format_percent(100 * abs(ratio.value - 1))
    change = f"is {percent}% slower" if ratio.value > 1 else f"takes {percent}% less time"
    if ratio.value >= 2:
        change = f"takes {ratio.value:.3g} times as long"
    severity: Severity = "problem" if comparison.direction == "slower" else "info"
    text = f"{comparison.after.label} {change} per {comparison.per}: {measured}."
    if comparison.per == "example":
        # Other commands show times per step.
        runs = (comparison.runs[0], comparison.runs[-1])
        examples = [run.examples_per_step for run in runs]
        times = [summary_of_run(run, comparison)["step_ms"] for run in runs]
        text += f" A step takes {examples[0]:,} -> {examples[1]:,} examples, and {format_times(times[0], times[1])}."
    return Finding(f"diff_{comparison.direction}", severity, text)


def _wall(comparison: RunComparison) -> Iterator[Finding]:
    """Report the wall time per step if it differs from the step time by more than 10% in a run."""
    runs = (comparison.runs[0], comparison.runs[-1])
    walls_ms = [run.wall_step_ms for run in runs]
    steps_ms = [summary_of_run(run, comparison)["step_ms"] for run in runs]
    pairs = [(wall, step) for wall, step in zip(walls_ms, steps_ms, strict=True) if wall and step]
    if len(pairs) < len(runs) or all(wall <= _WALL_RATIO * step for wall, step in pairs):
        return
    # A capture contains few gaps and compilations, so their difference is only a hint.
    times = [wall for wall, _ in pairs]
    is_change = max(times) > _WALL_RATIO * min(times)
    text = (
        f"Wall time per step, including omitted steps and the time between steps: {format_times(times[0], times[-1])}."
    )
    yield Finding("diff_wall", "hint" if is_change else "info", text)


def _largest_change(comparison: RunComparison) -> Iterator[Finding]:
    """Report the category with the largest change in the direction of the step time, and its details."""
    whole_ms = comparison.mean_change_ms or 0.0
    explaining = [category for category in comparison.categories if (category.change_ms or 0.0) * whole_ms > 0]
    if not explaining:
        return
    category = explaining[0]
    share = format_percent(percent_of(category.change_ms, whole_ms))
    unit = "ms" if comparison.per == "step" else "us"
    times = format_times(category.before_ms, category.after_ms, unit)
    text = f"Largest change: {category.entry.name}, {times} per {comparison.per} ({share}% of the change)"
    if category.entry.detail == "input":
        stages = ranking_changes(comparison.before, comparison.after, "stages")
        explaining = [stage for stage in stages if (stage.change_ms or 0.0) * whole_ms > 0]
        for stage in [stage for stage in explaining if stage.size_ms >= comparison.notable_ms][:1]:
            times = format_times(stage.before_ms, stage.after_ms, unit)
            text += f". Largest tf.data change: waiting for {stage.entry.detail}, {times}"
    yield Finding("diff_explained", "hint", f"{text}.")


def _input_bound(comparison: RunComparison) -> Finding:
    texts = []
    for run in (comparison.before, comparison.after):
        host = most_input_bound(run)
        if host is None or host.input_class not in _INPUT_CLASSES:
            texts.append("input-bound unknown")
        elif host.input_percent is None:
            texts.append(f"{_INPUT_CLASSES[host.input_class]} input-bound")
        else:
            share = format_percent(host.input_percent)
            texts.append(f"{_INPUT_CLASSES[host.input_class]} input-bound ({share}% of the step time)")
    return Finding("diff_input", "info", f"Before: {texts[0]}. After: {texts[1]}.")


def _categories(comparison: RunComparison) -> Section:
    title, changes = "Step time by category", comparison.categories
    if not changes:
        return Section("categories", title, notes=("Unknown: one run has no whole steps.",))
    mean_ms = [statistic(host.step_ms, "mean") if host else None for host in comparison.hosts]
    seen = [each for each in changes if max(each.before_ms or 0, each.after_ms or 0) >= comparison.notable_ms]
    names = tuple(change.entry.name for change in seen)
    bars = {side: tuple(getattr(change, f"{side}_ms") for change in seen) for side in ("before", "after")}
    chart = GroupedBars(f"Milliseconds per {OF_TABLES[comparison.per]}", "ms", names, bars)
    whole = "step time" if comparison.per == "step" else f"time of {OF_TABLES[comparison.per]}"
    notes = [f"The categories add up to the mean {whole}: {format_times(mean_ms[0], mean_ms[1])}."]
    if comparison.mean_change_ms is None:
        notes.append(f"Shares of the change are omitted, because the {whole} has no clear change.")
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
            # Report that both runs are empty only if there is nothing else.
            if empty and (len(empty) == 1 or not tables):
                labels = " and ".join(dict.fromkeys(empty))
                notes.append(f"{RANKING_TITLES[ranking]}: not compared, because the profile of {labels} has none.")
        return Section(name, title, tables=tuple(tables), notes=tuple(notes))

    return build


def _memory(comparison: RunComparison) -> Section:
    tables = present(memory_table(comparison))
    return Section("memory", "Memory", tables=tables, notes=() if tables else ("The runs have no common allocators.",))


def _environment(comparison: RunComparison) -> Section:
    table = differences_table(comparison)
    remarks = [
        f"{difference.what}: {difference.text}"
        for unlike in comparison.differences
        for difference in unlike
        if not difference.unfair
    ]
    notes = list(dict.fromkeys(remarks)) if table else ["No other differences were found."]
    if not all(run.tensorflow_version for run in comparison.runs):
        notes.append(
            "TensorFlow versions and host CPUs are not compared, because not every run was captured by tfperf."
        )
    if any(run.batch_size is None for run in comparison.runs):
        notes.append(
            "Batch sizes are not compared, because not every run shows its batch size (tfperf analyze -s batch)."
        )
    return Section("environment", "Comparability", tables=present(table), notes=tuple(notes))


_SECTIONS: tuple[Callable[[RunComparison], Section], ...] = (
    _change,
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
        "Times are summed over streams. Kernels have the names of their functions; --format csv has full names in "
        "kernel_name.",
    ),
    _ranking_section(
        "tfdata", "tf.data", ("stages",), "Waited: step time waiting for this stage. Work: own work per element."
    ),
    _ranking_section(
        "functions", "tf.functions", ("functions",), "Traced: calls in the capture that traced the function."
    ),
    _memory,
    _environment,
)
RANKING_TITLES: dict[RankingName, str] = {
    "device_ops": "Device ops",
    "host_ops": "Host ops",
    "kernels": "Kernels",
    "copies": "Copies",
    "stages": "Stages",
    "functions": "tf.functions",
    "idle": "Device idle time",
}
_TIMES = (
    Column("before_ms", "Before", float, "ms", "time in the first run, per step or 1,000 examples"),
    Column("after_ms", "After", float, "ms", "time in the last run, per step or 1,000 examples"),
    Column("change_ms", "Change", float, "ms", "after - before"),
)
_STATE = Column("state", "State", str, "", "new, gone, or empty: in both runs, or unknown")
_COUNTS = (
    Column("before_count", "Count before", float, "count", "count per step or 1,000 examples, first run", "data"),
    Column("after_count", "Count after", float, "count", "count per step or 1,000 examples, last run", "data"),
)
_RENAMED = Column("after_name", "Name after", str, "", "name in the last run, if it differs", "data")
_ENTRY = (*_TIMES, _STATE, *_COUNTS)
_OPS = (
    Column("op_name", "Op", str, "", "name of the op"),
    Column("op_type", "Type", str, "", "type of the op", "data"),
    *_ENTRY,
    _RENAMED,
)
COLUMNS: dict[str, tuple[Column, ...]] = {
    "runs": (
        Column("run", "Run", str, "", "label of the run; other runs are compared with the first"),
        Column("host", "Host", str, "", "the slowest host, which represents the run", "data"),
        Column("steps", "Steps", int, "count", "whole averaged steps of the slowest host"),
        Column("step_ms", "Step", float, "ms", "mean, median or 95th percentile of its step times"),
        Column("batch_size", "Batch", int, "count", "examples per batch, if the profile shows it", "data"),
        Column("example_us", "Example", float, "us", "step time / examples of a step", "data"),
        Column("ratio", "Ratio", float, "", "step time (or time per example) / value of the first run"),
        Column("ratio_low", "from", float, "", "lower end of the interval of the ratio"),
        Column("ratio_high", "to", float, "", "upper end of the interval of the ratio"),
        Column("input_percent", "Input", float, "%", "share of step time spent on input, for the host that waits most"),
        Column("input_class", "Input-bound", str, "", "high, moderate, possible, none or unknown"),
        Column("comparable", "Comparable", bool, "", "whether the run is comparable with the first run", "data"),
    ),
    "cause_changes": (
        Column("cause", "Cause", str, "", "cause in both runs, or category of all other time"),
        Column("role", "Role", str, "", "role of the time: compute, input, copy, launch and others", "data"),
        *_TIMES,
    ),
    "category_changes": (
        Column("category", "Category", str, "", "category of step time"),
        *_TIMES,
        Column("change_percent", "Of change", float, "%", "change / change of the mean step time"),
        Column("before_percent", "Share before", float, "%", "share of the mean step time in the first run"),
        Column("after_percent", "after", float, "%", "share of the mean step time in the last run"),
    ),
    "idle_changes": (Column("cause", "Device waits for", str, "", "host activity during idle time"), *_TIMES, _STATE),
    "step_times": (
        Column("statistic", "Statistic", str, "", "mean, median, 95th percentile, standard deviation, min, max"),
        *_TIMES,
        Column("ratio", "Ratio", float, "", "after / before"),
    ),
    "device_ops_changes": _OPS,
    "host_ops_changes": _OPS,
    "kernels_changes": (
        Column("kernel", "Kernel", str, "", "name of the kernel's function; equal names are numbered"),
        *_ENTRY,
        Column("kernel_name", "Full name", str, "", "name of the kernel", "data"),
        _RENAMED,
    ),
    "copies_changes": (Column("kind", "Kind", str, "", "H2D, D2H, D2D, P2P, H2H, Memset or Unknown"), *_ENTRY),
    "stages_changes": (
        Column("stage", "Stage", str, "", "kind of stage"),
        Column("path", "Path", str, "", "names of the stage and all stages that consume it", "data"),
        Column(
            "before_ms", "Waited before", float, "ms", "waiting for this stage, per step or 1,000 examples, first run"
        ),
        Column("after_ms", "after", float, "ms", "waiting for this stage, per step or 1,000 examples, last run"),
        Column("change_ms", "Change", float, "ms", "after - before"),
        Column("before_element_ms", "Work before", float, "ms", "own work per element, summed over threads, first run"),
        Column("after_element_ms", "after", float, "ms", "own work per element, summed over threads, last run"),
        _STATE,
        *_COUNTS,
        _RENAMED,
    ),
    "functions_changes": (
        Column("function", "Function", str, "", "name of the tf.function"),
        *_TIMES,
        Column("before_tracings", "Traced before", int, "count", "calls that traced it, first run"),
        Column("after_tracings", "after", int, "count", "calls that traced it, last run"),
        _STATE,
    ),
    "memory_changes": (
        Column("allocator", "Allocator", str, "", "name of the allocator"),
        Column("before_bytes", "Peak before", int, "bytes", "peak bytes in use, first run"),
        Column("after_bytes", "Peak after", int, "bytes", "peak bytes in use, last run"),
        Column("change_bytes", "Change", int, "bytes", "after - before"),
    ),
    "differences": (
        Column("run", "Run", str, "", "the run that differs from the first"),
        Column("what", "What", str, "", "property that differs"),
        Column("before", "First run", str, "", "value in the first run"),
        Column("after", "This run", str, "", "value in this run"),
        Column("unfair", "Unfair", bool, "", "whether factors other than the program affect the ratio of step times"),
        Column("text", "Consequence", str, "", "consequence for the comparison", "data"),
    ),
}


def _table(name: str, title: str, data: dict[str, Any], note: str = "") -> Table:
    ranked = Ranked("change_ms") if name.removesuffix("_changes") in RANKING_TITLES else None
    return table_of(name, title, COLUMNS[name], data, note=note, ranked=ranked)


def runs_table(comparison: RunComparison) -> Table:
    """Return one row per run, with the ratio of its step time to the first."""
    rows = [summary_of_run(run, comparison) for run in comparison.runs]
    ratios = [None, *(steps.ratio for steps in comparison.step_comparisons)]
    fair = [not any(difference.unfair for difference in unlike) for unlike in comparison.differences]
    data: dict[str, Any] = {key: [row[key] for row in rows] for key in rows[0]}
    data |= {"run": data["label"], "steps": data["step_count"], "comparable": [None, *fair]}
    data["batch_size"] = [run.batch_size for run in comparison.runs]
    for key, end in (("ratio", "value"), ("ratio_low", "low"), ("ratio_high", "high")):
        data[key] = [float(format_ratio(getattr(ratio, end))) if ratio else None for ratio in ratios]
    stat = STATISTIC_TITLES[comparison.steps.stat]
    note = f"Step: {stat} over whole steps. Ratio: relative to the first run, with its interval."
    if comparison.per == "example":
        note = f"Step: {stat} over whole steps. Ratio: time per example relative to the first run."
    is_shown: Level = "brief" if comparison.per == "example" else "data"
    columns = at_levels(COLUMNS["runs"], dict.fromkeys(("batch_size", "example_us"), is_shown))
    return replace(_table("runs", "Runs", data, note), bar_key="step_ms", columns=columns)


def summary_of_run(run: RunSummary, comparison: RunComparison) -> dict[str, Any]:
    """Return a run's figures for the JSON summary of a comparison."""
    host, waiting = slowest_host(run, comparison.steps.stat), most_input_bound(run)
    step_ms = statistic(host.step_ms, comparison.steps.stat) if host else None
    return {
        "label": run.label,
        "run": run.run,
        "host": host.host if host else None,
        "step_count": host.step_count if host else 0,
        "step_ms": step_ms,
        "wall_step_ms": run.wall_step_ms,
        "example_us": 1000 * step_ms / run.examples_per_step if step_ms and run.examples_per_step else None,
        "input_percent": waiting.input_percent if waiting else None,
        "input_class": waiting.input_class if waiting else "unknown",
    }


def most_input_bound(run: RunSummary) -> HostSummary | None:
    """Return the host with the largest input share, which others wait for."""
    hosts = [host for host in run.hosts if host.input_percent is not None]
    return max(hosts, key=lambda host: host.input_percent or 0.0, default=run.hosts[0] if run.hosts else None)


def percent_of(part: float | None, whole: float | None) -> float | None:
    """Return a part in percent; None if a value is unknown or the whole is 0."""
    # Rounding removes noise such as 99.9999999, and + 0.0 removes -0.0.
    return round(100.0 * part / whole, 6) + 0.0 if part is not None and whole else None


def categories_table(comparison: RunComparison, mean_ms: Sequence[float | None]) -> Table:
    """Return the change of each category; `mean_ms` are the mean step times of the two hosts."""
    changes = comparison.categories
    of_step = [comparison.notable_ms <= max(change.before_ms or 0.0, change.after_ms or 0.0) for change in changes]
    data: dict[str, Any] = {
        "category": [change.entry.name for change in changes],
        **_times(changes),
        "change_percent": [percent_of(change.change_ms, comparison.mean_change_ms) for change in changes],
        "before_percent": [percent_of(change.before_ms, mean_ms[0]) for change in changes],
        "after_percent": [percent_of(change.after_ms, mean_ms[1]) for change in changes],
    }
    return _for_people(_table("category_changes", f"Change by category{_of(comparison)}", data), of_step)


def _of(comparison: RunComparison) -> str:
    """Return the unit of a table's times for its title; empty for steps."""
    return "" if comparison.per == "step" else f", per {OF_TABLES[comparison.per]}"


def _times(changes: Sequence[EntryChange]) -> dict[str, Any]:
    return {key: [getattr(change, key) for change in changes] for key in ("before_ms", "after_ms", "change_ms")}


def step_times_table(comparison: RunComparison) -> Table:
    """Return step time statistics of the two compared hosts."""
    measures: dict[str, Callable[[Sequence[float]], float | None]] = {
        "Mean": lambda times: statistic(times, "mean"),
        "Median": lambda times: statistic(times, "median"),
        "95th percentile": lambda times: statistic(times, "p95"),
        "Standard deviation": lambda times: float(np.std(times, ddof=1)) if len(times) > 1 else None,
        "Minimum": lambda times: min(times, default=None),
        "Maximum": lambda times: max(times, default=None),
    }
    before, after = ([of(host.step_ms if host else ()) for of in measures.values()] for host in comparison.hosts)
    pairs = list(zip(before, after, strict=True))
    data: dict[str, Any] = {
        "statistic": list(measures),
        "before_ms": before,
        "after_ms": after,
        "change_ms": [None if one is None or other is None else other - one for one, other in pairs],
        "ratio": [float(format_ratio(other / one)) if one and other is not None else None for one, other in pairs],
    }
    return _table("step_times", f"Statistics of the compared steps{_of(comparison)}", data)


def ranking_tables(comparison: RunComparison, names: Sequence[RankingName]) -> list[Table]:
    """Return the non-empty tables of rankings."""
    changes = {name: ranking_changes(comparison.before, comparison.after, name) for name in names}
    return [_ranking_table(comparison, name, listed) for name, listed in changes.items() if listed]


def _for_people(table: Table, is_notable: Sequence[bool]) -> Table:
    rows = tuple(row for row, is_shown in enumerate(is_notable) if is_shown)
    return replace(table, rows_for_people=rows, level="brief" if rows else "full")


def _short_kernels(names: Sequence[str]) -> list[str]:
    """Return the function names of kernels; duplicates are numbered."""
    shorts = [short_name(name) for name in names]
    counts, seen = Counter(shorts), Counter[str]()
    labels = []
    for short in shorts:
        seen[short] += 1
        labels.append(f"{short} ({seen[short]})" if counts[short] > 1 else short)
    return labels


def _ranking_table(comparison: RunComparison, name: RankingName, changes: Sequence[EntryChange]) -> Table:
    names, details = [change.entry.name for change in changes], [change.entry.detail for change in changes]
    data: dict[str, Any] = {
        **dict.fromkeys(("op_name", "kernel_name", "kind", "path", "function"), names),
        "kernel": _short_kernels(names) if name == "kernels" else names,
        "cause": [CAUSE_TEXTS[cause].title if cause in CAUSE_TEXTS else cause for cause in names],
        **dict.fromkeys(("op_type", "stage"), details),
        **_times(changes),
        "state": [change.state for change in changes],
        "after_name": [change.after_name or None for change in changes],
    }
    for side in ("before", "after"):
        entries = [getattr(change, side) for change in changes]
        data[f"{side}_count"] = data[f"{side}_tracings"] = [entry.count if entry else None for entry in entries]
        data[f"{side}_element_ms"] = [entry.element_ms if entry else None for entry in entries]
    notes = []
    for run in (comparison.before, comparison.after):
        kept, total = len(run.ranking(name).rows), run.ranking(name).total_rows
        if run.ranking(name).is_cut:
            notes.append(f"{run.label} has only the largest {kept:,} of {total:,} rows.")
    title = f"{RANKING_TITLES[name]} by change" + (" of waiting time" if name == "stages" else "")
    tracings = zip(data["before_tracings"], data["after_tracings"], strict=True)
    is_traced = [name == "functions" and (before or 0) != (after or 0) for before, after in tracings]
    is_large = [change.size_ms >= comparison.notable_ms for change in changes]
    is_notable = [large or traced for large, traced in zip(is_large, is_traced, strict=True)]
    return _for_people(_table(f"{name}_changes", f"{title}{_of(comparison)}", data, " ".join(notes)), is_notable)


def memory_table(comparison: RunComparison) -> Table | None:
    """Return the peaks of the allocators in both runs, or None."""
    runs = (comparison.before, comparison.after)
    before, after = ({allocator.name: allocator.peak_bytes for allocator in run.allocators} for run in runs)
    names = [name for name in before if name in after]
    data: dict[str, Any] = {
        "allocator": names,
        "before_bytes": [before[name] for name in names],
        "after_bytes": [after[name] for name in names],
        "change_bytes": [after[name] - before[name] for name in names],
    }
    if not names:
        return None
    is_notable = [abs(after[name] - before[name]) > NOTABLE_SHARE * before[name] for name in names]
    return _for_people(_table("memory_changes", "Peak memory in each capture", data), is_notable)


def differences_table(comparison: RunComparison) -> Table | None:
    """Return the differences from the first run besides speed, or None."""
    rows = [
        (run.label, difference)
        for run, unlike in zip(comparison.runs[1:], comparison.differences, strict=True)
        for difference in unlike
    ]
    keys = ("what", "before", "after", "unfair", "text")
    data: dict[str, Any] = {key: [getattr(difference, key) for _, difference in rows] for key in keys}
    return _table("differences", "Other differences", {"run": [label for label, _ in rows], **data}) if rows else None
