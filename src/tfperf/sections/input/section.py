"""The section about input: how long steps wait for it, and what the host does to prepare it."""

from __future__ import annotations

from msgspec.structs import replace

from tfperf.analysis.registry import present
from tfperf.analysis.results import Results
from tfperf.base.units import PS_PER_MS, format_percent, listed, percent
from tfperf.report.model import Fact, Finding, Level, Quantity, Section, StepChart, Table, at_levels
from tfperf.sections.input.analysis import InputPipeline
from tfperf.sections.input.classes import InputPart
from tfperf.sections.input.tables import (
    INPUT_CLASSES,
    INPUT_HOSTS,
    INPUT_OPS,
    INPUT_PART_TITLES,
    INPUT_STATISTICS,
    INPUT_STEPS,
    INPUT_TIME_TITLES,
    capture_ps,
    is_input_known,
)
from tfperf.sections.overview.quantities import share_of_step, time_in_step
from tfperf.sections.overview.section import verdict_of
from tfperf.sections.overview.summary import Overview
from tfperf.trace.steps.breakdown import Breakdown

_NAMED_PERCENT = 5.0
_WAITING_CAUSES, _COPYING_CAUSES = ("input_wait", "input_contention"), ("input_copy",)
"""Causes of the diagnosis that findings are evidence for."""
_NOT_VISIBLE = (
    "Input per step is unknown, not 0: nothing in the trace shows a fetch from tf.data or a copy to a device."
)
_NOT_ON_ALL = "There is no average over hosts: the traces of {} of them show neither fetches nor copies to a device."
_NO_HOST = "What the host does for input is unknown: the trace holds no event of a host thread."
_NO_INPUT_OPS = (
    "The trace holds no op of tf.data. Either the job gets its input in another way (NumPy arrays, a generator), or "
    "the profile was taken with a host tracer level below 2."
)
_FUNCTIONS = "A function of map() and the like is preprocessing, on whatever threads it runs."
_NO_FUNCTIONS = (
    "What functions of map() and the like do on other threads is in no class, as in TensorFlow's own analysis."
)
_SHARES_OF_STEPS = (
    "Input (%) is the share of each step by itself: its average counts short steps as much as long ones, and the share "
    "of the step time does not."
)
_WAITING = "Other is waiting: calls of stages such as Prefetch take what other threads, or the host's pipeline, make."


def build(results: Results) -> Section:
    """Build the section: the time of each step, then the classes and ops of the host's side."""
    pipeline: InputPipeline = results["input"]
    findings = (verdict_of(results), *_host_work(results))
    return Section(
        "input",
        "Input pipeline",
        findings=tuple(replace(finding, level="full") for finding in findings),
        facts=_facts(results),
        charts=_charts(results["steps"]),
        tables=_tables(results),
        notes=_missing(results),
        detail_notes=_notes(results) if pipeline.ops else (),
        pointer="More: -s input.",
    )


def _missing(results: Results) -> tuple[str, ...]:
    breakdown, pipeline, notes = results["steps"], results["input"], []
    if results["overview"].step_time_ms is None:
        notes.append(f"Input per step is unknown: no step time was measured ({breakdown.steps.explanation}).")
    elif not breakdown.input_visible:
        hidden = sum(not host.input_visible for host in results.of_hosts("steps"))
        notes.append(_NOT_VISIBLE if hidden == len(results.hosts) else _NOT_ON_ALL.format(hidden))
    if not pipeline.has_host_events:
        notes.append(_NO_HOST)
    elif not pipeline.ops:
        notes.append(_NO_INPUT_OPS)
    return tuple(notes)


def _facts(results: Results) -> tuple[Fact, ...]:
    summary, pipeline, facts = results["overview"], results["input"], []
    if is_input_known(results):
        waits = "Waiting for input" if results["steps"].steps.source == "device steps" else "Waiting for tf.data"
        titles = {"input": "Input per step", "input_wait": waits}
        if results["steps"].has_device and results["steps"].copies_are_input:
            titles["host_to_device"] = "Copying to the device"
        average = " (average over hosts)" if results.has_several_hosts else ""
        for key, title in titles.items():
            time, share = time_in_step(summary, key), share_of_step(summary, key)
            note = f"{share} of the step time{average}"
            facts.append(Fact(f"{key}_per_step", title, time.value, "ms", note, quantities=(time, share)))
    facts += _core_facts(results)
    if pipeline.largest is not None:
        share = _active(results, pipeline.largest)
        title, note = INPUT_PART_TITLES[pipeline.largest], f"active for {share} of the capture"
        facts.append(Fact("largest_part", "Largest part on the host", title, "", note, quantities=(share,)))
    return tuple(facts)


def _core_facts(results: Results) -> list[Fact]:
    """Return the smallest and the largest share of input in a step of one TPU core, where there are several."""
    breakdown: Breakdown = results["steps"]
    counted = breakdown.steps.headline
    if len(breakdown.cores) < 2 or not counted.any() or not is_input_known(results):
        return []
    name = {
        id(core): f"{core.host} {core.device}" if results.has_several_hosts else core.device for core in breakdown.cores
    }
    least, most = (
        choose((choose(core.input_percent[counted]), name[id(core)]) for core in breakdown.cores)
        for choose in (min, max)
    )
    return [
        Fact(f"{key}_input_share", title, float(share), "%", f"of a step, on {core}")
        for key, title, (share, core) in (
            ("lowest", "Smallest share of a core", least),
            ("highest", "Largest share of a core", most),
        )
    ]


def _active(results: Results, part: InputPart) -> Quantity:
    """Return the share of the capture in which a class of input ops is active."""
    share = percent(results["input"].parts[part].wall_ps, capture_ps(results))
    return Quantity(f"{part}_active", share, "%", "capture")


def _charts(breakdown: Breakdown) -> tuple[StepChart, ...]:
    steps = breakdown.steps
    if not len(steps) or not breakdown.input_visible:
        return ()
    parts = INPUT_TIME_TITLES if breakdown.copies_are_input else ("input_wait",)
    times_ps = {INPUT_TIME_TITLES[key]: breakdown.time_ps[key] for key in parts}
    times_ps["Rest of the step"] = steps.duration_ps - breakdown.time_ps["input"]
    series = {title: (values / PS_PER_MS).tolist() for title, values in times_ps.items()}
    labels = tuple(str(number) for number in steps.numbers.tolist())
    return (StepChart("Input per step (ms)", labels, series, steps.flags, steps.kinds_told_apart, level="full"),)


def _tables(results: Results) -> tuple[Table, ...]:
    """Return the tables; people see classes that have ops, but no column that says nothing in this profile."""
    pipeline: InputPipeline = results["input"]
    shows_copies = results["steps"].has_device and results["steps"].copies_are_input
    hidden: dict[str, Level] = {} if shows_copies else {"host_to_device_ms": "data"}
    if not pipeline.enqueue_shares:
        hidden["scaled_ms"] = "data"
    title = INPUT_STATISTICS.title + " (average over hosts)" * results.has_several_hosts
    note = "Each op ran on one thread only. Wall is shorter than self where threads worked at the same time."
    threads = max((op.threads or 0 for op in pipeline.ops), default=0)
    if threads > 1:
        note = (
            f"Self is summed over threads (up to {threads} ran the same op); wall is the time in which at "
            "least one of them is active."
        )
    return present(
        INPUT_STATISTICS.build(
            results,
            title=title,
            columns=at_levels(INPUT_STATISTICS.columns, hidden),
            note=_SHARES_OF_STEPS,
            level="full",
        ),
        INPUT_STEPS.build(results, columns=at_levels(INPUT_STEPS.columns, hidden), level="data"),
        INPUT_HOSTS.build(results, level="full"),
        INPUT_CLASSES.build(
            results,
            columns=at_levels(INPUT_CLASSES.columns, hidden),
            note=note,
            bar_key="self_percent",
            rows_for_people=tuple(row for row, time in enumerate(pipeline.parts.values()) if time.ops),
        ),
        INPUT_OPS.build(results, level="full"),
    )


def _notes(results: Results) -> tuple[str, ...]:
    pipeline: InputPipeline = results["input"]
    if not pipeline.enqueue_shares:
        scaling = "Nothing was scaled: the trace holds no op of the host that copies batches to a device."
    elif not pipeline.parts["enqueue"].ops:
        scaling = "Scaled to 0, as TensorFlow does where no op of the host copies batches to a device."
    else:
        shares = listed([f"{format_percent(100.0 * share)}%" for share in pipeline.enqueue_shares])
        scaling = f"Scaled: every class but enqueue, so that enqueue takes {shares} of the host's time, as measured."
    is_corrected = results.attribution == "corrected"
    notes = [scaling, _FUNCTIONS if is_corrected else _NO_FUNCTIONS]
    if is_corrected and pipeline.parts["other"].ops:
        notes.append(_WAITING)
    if results.has_several_hosts:
        notes.append("Times of the host's side are summed over hosts; shares are of the summed durations of captures.")
    return tuple(notes)


def _host_work(results: Results) -> list[Finding]:
    """Return what the host does for input, where steps wait for it, or that copies take more."""
    overview: Overview = results["overview"]
    pipeline: InputPipeline = results["input"]
    if overview.input_class not in ("high", "moderate"):
        return []
    copying, wait = (share_of_step(overview, part) for part in ("host_to_device", "input_wait"))
    if (copying.value or 0.0) > (wait.value or 0.0):
        text = f"Copying batches to the device takes {copying} of the step time, waiting for tf.data only {wait}."
        return [Finding("input_enqueue", "hint", text, causes=_COPYING_CAUSES, quantities=(copying, wait))]
    findings = []
    for part, time in pipeline.parts.items():
        share = _active(results, part)
        if part == "other" and time.scaled_ps and not time.self_ps:
            text = "No op of tf.data explains the host's time between two copies to the device."
            findings.append(Finding("input_other", "hint", text, causes=_WAITING_CAUSES))
        elif part != "other" and (share.value or 0.0) >= _NAMED_PERCENT:
            text = f"{INPUT_PART_TITLES[part]} is under way for {share} of the capture."
            causes = _COPYING_CAUSES if part == "enqueue" else _WAITING_CAUSES
            findings.append(Finding(f"input_{part}", "hint", text, causes=causes, quantities=(share,)))
    return findings
