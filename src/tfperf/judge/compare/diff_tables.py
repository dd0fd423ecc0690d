"""The tables of a comparison: their columns, declared once, and what fills them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from tfperf.judge.compare.bootstrap import statistic
from tfperf.judge.compare.changes import NOTABLE_SHARE, EntryChange, RunComparison, ranking_changes
from tfperf.judge.compare.per_example import OF_TABLES
from tfperf.judge.compare.regression import STATISTIC_TITLES, format_ratio, slowest_host
from tfperf.judge.compare.run_summary import HostSummary, RankingName, RunSummary
from tfperf.report.model import Column, Level, Ranked, Table, at_levels, table_of
from tfperf.sections.idle.analysis import CAUSE_TEXTS
from tfperf.trace.device.kernels import short_name

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
    Column("before_count", "Count before", float, "count", "how often in that, first run", "data"),
    Column("after_count", "Count after", float, "count", "how often in that, last run", "data"),
)
_RENAMED = Column("after_name", "Name after", str, "", "name in the last run, where it differs", "data")
_ENTRY = (*_TIMES, _STATE, *_COUNTS)
_OPS = (
    Column("op_name", "Op", str, "", "name of the op"),
    Column("op_type", "Type", str, "", "type of the op", "data"),
    *_ENTRY,
    _RENAMED,
)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "runs": (
        Column("run", "Run", str, "", "label of the run; the others are compared with the first"),
        Column("host", "Host", str, "", "the slowest host, which represents the run", "data"),
        Column("steps", "Steps", int, "count", "whole averaged steps of that host"),
        Column("step_ms", "Step", float, "ms", "mean, median or 95th percentile of its step times"),
        Column("batch_size", "Batch", int, "count", "examples of a batch, where the profile shows that", "data"),
        Column("example_us", "Example", float, "us", "step time / examples of a step", "data"),
        Column("ratio", "Ratio", float, "", "step time (or time per example) / that of the first run"),
        Column("ratio_low", "from", float, "", "lower end of the interval of the ratio"),
        Column("ratio_high", "to", float, "", "upper end of the interval of the ratio"),
        Column("input_percent", "Input", float, "%", "share of step time spent on input, of the host that waits most"),
        Column("input_class", "Input-bound", str, "", "high, moderate, possible, none or unknown"),
        Column("comparable", "Comparable", bool, "", "whether the comparison with the first run is fair", "data"),
    ),
    "category_changes": (
        Column("category", "Category", str, "", "what the time goes to"),
        *_TIMES,
        Column("change_percent", "Of change", float, "%", "change / change of the mean step time"),
        Column("before_percent", "Share before", float, "%", "share of the mean step time in the first run"),
        Column("after_percent", "after", float, "%", "share of the mean step time in the last run"),
    ),
    "idle_changes": (Column("cause", "Device waits for", str, "", "what the host did meanwhile"), *_TIMES, _STATE),
    "step_times": (
        Column("statistic", "Statistic", str, "", "mean, median, 95th percentile, standard deviation, min, max"),
        *_TIMES,
        Column("ratio", "Ratio", float, "", "after / before"),
    ),
    "device_ops_changes": _OPS,
    "host_ops_changes": _OPS,
    "kernels_changes": (
        Column("kernel", "Kernel", str, "", "name of the kernel's function; a number tells those of one name apart"),
        *_ENTRY,
        Column("kernel_name", "Full name", str, "", "name of the kernel", "data"),
        _RENAMED,
    ),
    "copies_changes": (Column("kind", "Kind", str, "", "H2D, D2H, D2D, P2P, H2H, Memset or Unknown"), *_ENTRY),
    "stages_changes": (
        Column("stage", "Stage", str, "", "kind of stage"),
        Column("path", "Path", str, "", "names of the stage and of all stages that consume it", "data"),
        Column("before_ms", "Waited before", float, "ms", "waiting for this stage, per step or 1,000 examples, before"),
        Column("after_ms", "after", float, "ms", "waiting for this stage, per step or 1,000 examples, after"),
        Column("change_ms", "Change", float, "ms", "after - before"),
        Column("before_element_ms", "Work before", float, "ms", "own work for one element on all threads, first run"),
        Column("after_element_ms", "after", float, "ms", "own work for one element on all threads, last run"),
        _STATE,
        *_COUNTS,
        _RENAMED,
    ),
    "functions_changes": (
        Column("function", "Function", str, "", "name of the tf.function"),
        *_TIMES,
        Column("before_tracings", "Traced before", int, "count", "calls that traced it, in the first capture"),
        Column("after_tracings", "after", int, "count", "calls that traced it, in the last capture"),
        _STATE,
    ),
    "memory_changes": (
        Column("allocator", "Allocator", str, "", "name of the allocator"),
        Column("before_bytes", "Peak before", int, "bytes", "most bytes in use in the first capture"),
        Column("after_bytes", "Peak after", int, "bytes", "most bytes in use in the last capture"),
        Column("change_bytes", "Change", int, "bytes", "after - before"),
    ),
    "differences": (
        Column("run", "Run", str, "", "the run that differs from the first"),
        Column("what", "What", str, "", "what differs"),
        Column("before", "First run", str, "", "in the first run"),
        Column("after", "This run", str, "", "in the run that differs"),
        Column("unfair", "Unfair", bool, "", "whether the ratio of step times is not about the program alone"),
        Column("text", "What follows", str, "", "what follows from it", "data"),
    ),
}
"""The columns of each table, in the order of the report."""


def _table(name: str, title: str, data: dict[str, Any], note: str = "") -> Table:
    ranked = Ranked("change_ms") if name.removesuffix("_changes") in RANKING_TITLES else None
    return table_of(name, title, COLUMNS[name], data, note=note, ranked=ranked)


def runs_table(comparison: RunComparison) -> Table:
    """Return one row for each run, with the ratio of its step time to that of the first."""
    rows = [summary_of_run(run, comparison) for run in comparison.runs]
    ratios = [None, *(steps.ratio for steps in comparison.step_comparisons)]
    fair = [not any(difference.unfair for difference in unlike) for unlike in comparison.differences]
    data: dict[str, Any] = {key: [row[key] for row in rows] for key in rows[0]}
    data |= {"run": data["label"], "steps": data["step_count"], "comparable": [None, *fair]}
    data["batch_size"] = [run.batch_size for run in comparison.runs]
    for key, end in (("ratio", "value"), ("ratio_low", "low"), ("ratio_high", "high")):
        data[key] = [float(format_ratio(getattr(ratio, end))) if ratio else None for ratio in ratios]
    stat = STATISTIC_TITLES[comparison.steps.stat]
    note = f"Step: {stat} over whole steps. Ratio: to the first run, with its interval."
    if comparison.per == "example":
        note = f"Step: {stat} over whole steps. Ratio: of the time per example to that of the first run."
    is_shown: Level = "brief" if comparison.per == "example" else "data"
    columns = at_levels(COLUMNS["runs"], dict.fromkeys(("batch_size", "example_us"), is_shown))
    return replace(_table("runs", "Runs", data, note), bar_key="step_ms", columns=columns)


def summary_of_run(run: RunSummary, comparison: RunComparison) -> dict[str, Any]:
    """Return the figures of a run that every comparison shows, by the keys of the JSON summary."""
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
    """Return the host that waits for its input most: the others wait for it."""
    hosts = [host for host in run.hosts if host.input_percent is not None]
    return max(hosts, key=lambda host: host.input_percent or 0.0, default=run.hosts[0] if run.hosts else None)


def percent_of(part: float | None, whole: float | None) -> float | None:
    """Return a part in percent of the whole; None where one of them is unknown, or the whole is nothing."""
    # Rounded, and with + 0.0, so that noise of the last bit is neither 99.9999999 nor -0.0.
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
    """Say in the title of a table what its times are of, if that is no step."""
    return "" if comparison.per == "step" else f", per {OF_TABLES[comparison.per]}"


def _times(changes: Sequence[EntryChange]) -> dict[str, Any]:
    return {key: [getattr(change, key) for change in changes] for key in ("before_ms", "after_ms", "change_ms")}


def step_times_table(comparison: RunComparison) -> Table:
    """Return statistics over the steps of the two hosts that are compared."""
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
    """Return the tables of rankings, without those of which a run has nothing to show."""
    changes = {name: ranking_changes(comparison.before, comparison.after, name) for name in names}
    return [_ranking_table(comparison, name, listed) for name, listed in changes.items() if listed]


def _for_people(table: Table, is_notable: Sequence[bool]) -> Table:
    """Return a table of which people see only some rows, or nothing; pages and programs have all."""
    rows = tuple(row for row, is_shown in enumerate(is_notable) if is_shown)
    return replace(table, rows_for_people=rows, level="brief" if rows else "full")


def _short_kernels(names: Sequence[str]) -> list[str]:
    """Return the functions' names of kernels; what looks the same is numbered."""
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
            notes.append(f"Of {run.label}, only the {kept:,} largest of {total:,} were kept.")
    title = f"{RANKING_TITLES[name]} by change" + (" of waiting time" if name == "stages" else "")
    tracings = zip(data["before_tracings"], data["after_tracings"], strict=True)
    is_traced = [name == "functions" and (before or 0) != (after or 0) for before, after in tracings]
    is_large = [change.size_ms >= comparison.notable_ms for change in changes]
    is_notable = [large or traced for large, traced in zip(is_large, is_traced, strict=True)]
    return _for_people(_table(f"{name}_changes", f"{title}{_of(comparison)}", data, " ".join(notes)), is_notable)


def memory_table(comparison: RunComparison) -> Table | None:
    """Return the peaks of the allocators that both runs have; None without any."""
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
    """Return what differs from the first run besides speed; None without any."""
    rows = [
        (run.label, difference)
        for run, unlike in zip(comparison.runs[1:], comparison.differences, strict=True)
        for difference in unlike
    ]
    keys = ("what", "before", "after", "unfair", "text")
    data: dict[str, Any] = {key: [getattr(difference, key) for _, difference in rows] for key in keys}
    return _table("differences", "Other differences", {"run": [label for label, _ in rows], **data}) if rows else None
