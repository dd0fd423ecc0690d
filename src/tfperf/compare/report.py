"""The report of `tfperf diff`: is it slower, what explains it, and is the comparison fair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tfperf.compare import columns
from tfperf.compare.changes import EntryChange, RunPair, compare_runs, part_changes
from tfperf.compare.fairness import Difference
from tfperf.compare.model import HostSnapshot, Snapshot, Stat
from tfperf.compare.regression import STAT_WORDS, interval_words, shown_ratio, slowest, times_words
from tfperf.compare.resample import statistic
from tfperf.errors import TfperfError
from tfperf.report.model import Column, Fact, Finding, GroupedBars, Report, Section, Severity, Table
from tfperf.units import format_percent

_DETAILS: dict[str, str] = {
    "device_ops": "Device ops", "host_ops": "Host ops", "kernels": "Kernels", "copies": "Copies",
    "stages": "Stages", "functions": "tf.functions", "idle": "Idle time of devices",
}  # fmt: skip
_SUMS = "Times are self time per step, summed over parallel threads, streams and devices; their changes overlap."
_CLASS_WORDS = {"high": "highly", "moderate": "moderately", "possible": "possibly", "none": "not"}


def diff_report(snapshots: Sequence[Snapshot], *, stat: Stat = "mean", top: int | None = None) -> Report:
    """Return the report that compares two runs, or the trend of more and its first with its last.

    `top` cuts tables for people, and leaves out sections that have nothing to say. Raises TfperfError for fewer than
    two runs.
    """
    if len(snapshots) < 2:
        raise TfperfError("there is nothing to compare with one run only; give two or more")
    pair = compare_runs(snapshots, stat)
    sections = [build(pair) for build in _SECTIONS]
    shown = [own for own in sections if top is None or own.name in _ALWAYS or own.tables]
    return Report(_source(snapshots), _summary(pair), tuple(_cut(own, top) for own in shown))


_ALWAYS = ("overview", "categories", "steps", "environment")


def _table(name: str, title: str, declared: tuple[Column, ...], data: dict[str, Any], note: str = "") -> Table:
    rows = len(data[declared[0].key])
    return Table(name, title, declared, {column.key: data[column.key] for column in declared}, rows, note)


def _cut(section: Section, top: int | None) -> Section:
    if top is None:
        return section
    whole = ("runs", "category_changes", "step_times")
    return replace(section, tables=tuple(own if own.name in whole else own.head(top) for own in section.tables))


def _source(runs: Sequence[Snapshot]) -> dict[str, Any]:
    return {"runs": [run.label for run in runs], "attribution": _same([run.attribution for run in runs])}


def _same(values: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(values))


def _summary(pair: RunPair) -> dict[str, Any]:
    ratio = pair.found.ratio
    return {
        "stat": pair.stat,
        "change": pair.direction,
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "confidence": ratio.confidence if ratio else None,
        "verdict": _verdict(pair).text,
        "comparable": not any(own.unfair for own in pair.unlike[-1]),
        "before": _run_dict(pair.before, pair.stat),
        "after": _run_dict(pair.after, pair.stat),
        "run_count": len(pair.runs),
    }


def _run_dict(run: Snapshot, stat: Stat) -> dict[str, Any]:
    host = slowest(run, stat)
    worst = _worst(run)
    return {
        "label": run.label,
        "run": run.run,
        "host": host.host if host else None,
        "step_count": len(host.step_ms) if host else 0,
        "step_ms": statistic(host.step_ms, stat) if host else None,
        "input_percent": worst.input_percent if worst else None,
        "input_class": worst.input_class if worst else "unknown",
    }


def _worst(run: Snapshot) -> HostSnapshot | None:
    """Return the host that waits for its input most: the others wait for it."""
    known = [host for host in run.hosts if host.input_percent is not None]
    return max(known, key=lambda host: host.input_percent or 0.0, default=run.hosts[0] if run.hosts else None)


# --- overview ---


def _overview(pair: RunPair) -> Section:
    found = [_verdict(pair), *_explained(pair), *_unfair(pair), *_inputs(pair)]
    notes = [f"Everything below compares {pair.before.label} with {pair.after.label}."] if len(pair.runs) > 2 else []
    notes.append(
        "The interval knows the noise inside the captures, not how the machine changed between them: where that is "
        "large, capture both runs again, in turn."
    )
    return Section("overview", "Comparison", tuple(found), (), (), (_runs(pair),), tuple(notes))


def _verdict(pair: RunPair) -> Finding:
    ratio, label = pair.found.ratio, pair.after.label
    if ratio is None:
        return Finding("diff_unknown", "hint", f"No change can be told: {pair.found.why}")
    counts = f"{pair.found.before_steps:,} and {pair.found.after_steps:,} steps"
    times = times_words(pair.found.before_ms, pair.found.after_ms)
    seen = f"{STAT_WORDS[pair.stat]} step time {times}, {interval_words(ratio)}, from {counts}"
    if pair.direction == "no change told":
        return Finding("diff_none", "info", f"No change can be told: {seen}.")
    slower = pair.direction == "slower"
    severity: Severity = "problem" if slower else "info"
    return Finding(f"diff_{pair.direction}", severity, f"{label} {_speed_words(ratio.value)} per step: {seen}.")


def _speed_words(ratio: float) -> str:
    """Say how much longer or shorter a step takes; `faster` by a percentage would be read in two ways."""
    if ratio >= 2:
        return f"takes {ratio:.3g} times as long"
    percent = format_percent(100 * abs(ratio - 1))
    return f"is {percent}% slower" if ratio > 1 else f"takes {percent}% less time"


def _explained(pair: RunPair) -> list[Finding]:
    """Name the category that changed most in the direction of the step time, and what in it changed."""
    whole = pair.mean_change_ms
    known = [own for own in pair.categories if own.change_ms is not None and whole and own.change_ms * whole > 0]
    if not known or whole is None:
        return []
    first = known[0]
    share = format_percent(_percent(first.change_ms, whole))
    times = times_words(first.before_ms, first.after_ms)
    text = f"{first.name} changed most: {times} per step ({share}% of the change)"
    if first.detail == "input":
        text += _stage_words(pair, whole)
    return [Finding("diff_explained", "hint", f"{text}.")]


def _stage_words(pair: RunPair, whole: float) -> str:
    stages = [own for own in part_changes(pair.before, pair.after, "stages") if (own.change_ms or 0.0) * whole > 0]
    if not stages:
        return ""
    times = times_words(stages[0].before_ms, stages[0].after_ms)
    return f"; of the stages of tf.data, {stages[0].detail} is waited for {times}"


def _unfair(pair: RunPair) -> list[Finding]:
    found = []
    for run, unlike in zip(pair.runs[1:], pair.unlike, strict=True):
        whose = f"{run.label}: " if len(pair.runs) > 2 else ""
        found += [_unfair_finding(own, whose) for own in unlike if own.unfair]
    return found


def _unfair_finding(own: Difference, whose: str) -> Finding:
    text = f"{whose}Not a fair comparison: {own.what.lower()} {own.before} -> {own.after}; {own.text}"
    return Finding("diff_unfair", "problem", text)


def _inputs(pair: RunPair) -> list[Finding]:
    words = [_input_words(run) for run in (pair.before, pair.after)]
    return [Finding("diff_input", "info", f"Before: {words[0]}. After: {words[1]}.")]


def _input_words(run: Snapshot) -> str:
    worst = _worst(run)
    kind = _CLASS_WORDS.get(worst.input_class) if worst else None
    if worst is None or kind is None:
        return "nobody can tell whether it is input-bound"
    share = f" ({format_percent(worst.input_percent)}% of the step time)" if worst.input_percent is not None else ""
    return f"{kind} input-bound{share}"


def _runs(pair: RunPair) -> Table:
    rows = [_run_dict(run, pair.stat) for run in pair.runs]
    ratios = [None, *(own.ratio for own in pair.to_first)]
    data: dict[str, Any] = {
        "run": [run.label for run in pair.runs],
        "host": [row["host"] for row in rows],
        "steps": [row["step_count"] for row in rows],
        "step_ms": [row["step_ms"] for row in rows],
        "input_percent": [row["input_percent"] for row in rows],
        "input_class": [row["input_class"] for row in rows],
        "comparable": [None, *(not any(own.unfair for own in unlike) for unlike in pair.unlike)],
    }
    for key, part in (("ratio", "value"), ("ratio_low", "low"), ("ratio_high", "high")):
        data[key] = [_three_digits(getattr(own, part)) if own else None for own in ratios]
    note = f"Step: {STAT_WORDS[pair.stat]} over whole steps. Ratio: to the first run, and its interval."
    return replace(_table("runs", "Runs", columns.RUNS, data, note), bar_key="step_ms")


def _three_digits(value: float) -> float:
    return float(shown_ratio(value))


# --- what changed ---


def _categories(pair: RunPair) -> Section:
    one, other = pair.hosts
    found = pair.categories
    if one is None or other is None or not found:
        return Section("categories", "Where the time went", notes=("Not known: a run has no whole steps.",))
    means = [statistic(host.step_ms, "mean") for host in (one, other)]
    data: dict[str, Any] = {
        "category": [own.name for own in found],
        **_times(found),
        "change_percent": [_percent(own.change_ms, pair.mean_change_ms) for own in found],
        "before_percent": [_percent(own.before_ms, means[0]) for own in found],
        "after_percent": [_percent(own.after_ms, means[1]) for own in found],
    }
    table = _table("category_changes", "Change of a step's time", columns.CATEGORIES, data)
    series = {"before": tuple(own.before_ms for own in found), "after": tuple(own.after_ms for own in found)}
    chart = GroupedBars("Milliseconds per step", "ms", tuple(own.name for own in found), series)
    notes = [f"The categories add up to the mean step time: {times_words(means[0], means[1])}."]
    if pair.mean_change_ms is None:
        notes.append("No change of the step time can be told, so there are no shares of it.")
    idle = _part_table(pair, "idle")
    return Section("categories", "Where the time went", (), (), (chart,), (table, *idle), tuple(notes))


def _percent(part: float | None, whole: float | None) -> float | None:
    # Rounded, and with + 0.0, so that noise of the last bit is neither 99.9999999 nor -0.0.
    return round(100.0 * part / whole, 6) + 0.0 if part is not None and whole else None


def _times(found: Sequence[EntryChange]) -> dict[str, Any]:
    return {key: [getattr(own, key) for own in found] for key in ("before_ms", "after_ms", "change_ms")}


def _steps(pair: RunPair) -> Section:
    times = [host.step_ms if host else () for host in pair.hosts]
    names: dict[str, Callable[[Sequence[float]], float | None]] = {
        "Mean": lambda own: statistic(own, "mean"), "Median": lambda own: statistic(own, "median"),
        "95th percentile": lambda own: statistic(own, "p95"), "Standard deviation": _deviation,
        "Minimum": lambda own: min(own, default=None), "Maximum": lambda own: max(own, default=None),
    }  # fmt: skip
    values = [[measure(own) for measure in names.values()] for own in times]
    pairs = list(zip(*values, strict=True))
    data: dict[str, Any] = {
        "statistic": list(names),
        "before_ms": values[0],
        "after_ms": values[1],
        "change_ms": [after - before if None not in (before, after) else None for before, after in pairs],
        "ratio": [_three_digits(after / before) if before and after is not None else None for before, after in pairs],
    }
    hosts = [host.host if host else "-" for host in pair.hosts]
    facts = (Fact("before_steps", "Steps before", len(times[0]), "count", f"whole steps of host {hosts[0]}"),
             Fact("after_steps", "Steps after", len(times[1]), "count", f"whole steps of host {hosts[1]}"))  # fmt: skip
    table = _table("step_times", "Over the steps compared", columns.STEPS, data)
    return Section("steps", "Step times", facts=facts, tables=(table,))


def _deviation(times: Sequence[float]) -> float | None:
    mean = statistic(times, "mean")
    if mean is None or len(times) < 2:
        return None
    return float((sum((own - mean) ** 2 for own in times) / (len(times) - 1)) ** 0.5)


_NAMED: dict[str, tuple[str, tuple[Column, ...]]] = {
    "device_ops": ("op_name", columns.OPS), "host_ops": ("op_name", columns.OPS),
    "kernels": ("kernel_name", columns.KERNELS), "copies": ("kind", columns.COPIES),
    "stages": ("path", columns.STAGES), "functions": ("function", columns.FUNCTIONS), "idle": ("cause", columns.IDLE),
}  # fmt: skip
"""The column that holds the name, and all columns, of the table of each part."""


def _part_table(pair: RunPair, part: str) -> list[Table]:
    """Return the table of a part, or none if a run has nothing to show there."""
    found = part_changes(pair.before, pair.after, part)
    if not found:
        return []
    key, declared = _NAMED[part]
    data: dict[str, Any] = {key: [own.name for own in found], **_times(found), "state": [own.state for own in found]}
    data["op_type"] = data["stage"] = [own.detail for own in found]
    data["after_name"] = [own.after_name or None for own in found]
    for side in ("before", "after"):
        entries = [getattr(own, side) for own in found]
        data[f"{side}_count"] = data[f"{side}_tracings"] = [own.count if own else None for own in entries]
        data[f"{side}_element_ms"] = [own.element_ms if own else None for own in entries]
    title = f"{_DETAILS[part]} by change" + (" of waiting" if part == "stages" else "")
    return [_table(f"{part}_changes", title, declared, data, _cut_words(pair, part))]


def _cut_words(pair: RunPair, part: str) -> str:
    found = [(run.label, run.part(part)) for run in (pair.before, pair.after)]
    cut = [(label, own) for label, own in found if own.is_cut]
    return " ".join(f"Of {label} the {len(own.rows):,} largest of {own.total_rows:,} are known." for label, own in cut)


def _part_section(name: str, title: str, parts: Sequence[str], note: str) -> Callable[[RunPair], Section]:
    def build(pair: RunPair) -> Section:
        tables = [table for part in parts for table in _part_table(pair, part)]
        silent = [_silent(pair, part, is_only=not tables) for part in parts]
        notes = [note] if tables and note else []
        return Section(name, title, tables=tuple(tables), notes=(*notes, *(text for text in silent if text)))

    return build


def _silent(pair: RunPair, part: str, *, is_only: bool) -> str:
    """Say which run shows nothing of a part; of both, only where nothing else is said."""
    empty = [run.label for run in (pair.before, pair.after) if not run.part(part).rows]
    if not empty or (len(empty) > 1 and not is_only):
        return ""
    return f"{_DETAILS[part]}: not shown by {_same(empty)}, so nothing is compared."


def _memory(pair: RunPair) -> Section:
    peaks = [{own.name: own.peak_bytes for own in run.allocators} for run in (pair.before, pair.after)]
    names = [name for name in peaks[0] if name in peaks[1]]
    if not names:
        return Section("memory", "Memory", notes=("No allocator is known of both runs.",))
    data: dict[str, Any] = {
        "allocator": names,
        "before_bytes": [peaks[0][name] for name in names],
        "after_bytes": [peaks[1][name] for name in names],
        "change_bytes": [peaks[1][name] - peaks[0][name] for name in names],
    }
    table = _table("memory_changes", "Peaks in the captures", columns.MEMORY, data)
    return Section("memory", "Memory", tables=(table,))


def _environment(pair: RunPair) -> Section:
    rows = [(run, own) for run, unlike in zip(pair.runs[1:], pair.unlike, strict=True) for own in unlike]
    if not rows:
        return Section("environment", "Is it fair", notes=("Nothing differs that the profiles tell.", *_unknown(pair)))
    data: dict[str, Any] = {
        "run": [run.label for run, _ in rows],
        **{key: [getattr(own, key) for _, own in rows] for key in ("what", "before", "after", "unfair", "text")},
    }
    table = _table("differences", "What else differs", columns.DIFFERENCES, data)
    sentences = tuple(dict.fromkeys(f"{own.what}: {own.text}" for _, own in rows if not own.unfair))
    return Section("environment", "Is it fair", tables=(table,), notes=(*sentences, *_unknown(pair)))


def _unknown(pair: RunPair) -> list[str]:
    """Say what was not compared."""
    notes = ["The version of TensorFlow and the host's CPU are not compared: a profile does not hold them."]
    if any(run.batch_size is None for run in pair.runs):
        notes.append("Batch sizes are not compared: not every run has a stage of tf.data that makes batches.")
    return notes


_SECTIONS: tuple[Callable[[RunPair], Section], ...] = (
    _overview, _categories, _steps,
    _part_section("ops", "Ops", ("device_ops", "host_ops"), _SUMS),
    _part_section("kernels", "Kernels and copies", ("kernels", "copies"), "Times are per step, summed over streams."),
    _part_section("tfdata", "tf.data", ("stages",),
                  "Waited: time per step in which this stage is what the step waits for. Work: for one element."),
    _part_section("functions", "tf.functions", ("functions",), "Traced: calls that traced Python again."),
    _memory, _environment,
)  # fmt: skip
