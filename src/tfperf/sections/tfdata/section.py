"""The report section on tf.data: verdict, blocking and limiting stage, and gains of changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from tfperf.analysis.registry import Results, TableSpec, present
from tfperf.base.units import PS_PER_MS, counted, format_ms, format_percent
from tfperf.report.model import Fact, Finding, Quantity, Section, Severity, Table
from tfperf.sections.overview.summary import INPUT_LIMITS, of_steps
from tfperf.sections.tfdata import CODE, FUNCTIONS, PIPELINES, STAGES, WHAT_IF
from tfperf.sections.tfdata.advice import CAUSES_OF_INPUT, Blame, blamed_stage, pipeline_advice
from tfperf.sections.tfdata.analysis import TfData
from tfperf.sections.tfdata.pipeline import SLOW_CALL_PS, Pipeline, stage_name
from tfperf.sections.tfdata.whatif import NoOutlook, Outlook
from tfperf.trace.steps.steps import step_word

_SLOW_US = SLOW_CALL_PS // 1_000_000
_NO_TFDATA = (
    "The profile has no tf.data events: the job does not use tf.data, or it was profiled with a host tracer level "
    "below 2."
)
_DEVICE_ONLY = (
    "The profile has only the part of the pipeline that transfers batches to devices; the part that makes them "
    "runs on another host, or was not called during the capture."
)
_CUT = "The waiting time is unknown: the capture has no complete call of the outermost stage. Capture more steps."
_RANGE = "Each change is estimated on its own, as a range, because overlap is never perfect."
_MARKS = "! blocking stage (waited for most), * limiting stage (caps the throughput)."
_HOW_TO_READ = (
    "Self is the work of a stage per pipeline element, summed over threads; busy is the share of the capture in "
    "which it or its function runs, without waiting; waited is the share of the waiting time of steps that is "
    "spent on this stage. - is unknown."
)


def build(results: Results) -> Section:
    """Return the section: verdict, changes, a checklist, the tree of stages, and estimated gains."""
    tfdata: TfData = results["tfdata"]
    host = _host_of_main(results, tfdata)
    of, now = of_steps(results["overview"].kind, host), ""
    if tfdata.outlook is not None:
        step, _, share = _waiting(tfdata.outlook, of)
        now = f"A step takes {step} now{_on(host)}, {share} of it waiting for tf.data. {_RANGE}"
    tables = present(
        _of_first_host(STAGES, results, bar_key="waited_percent", note=_MARKS),
        _of_first_host(FUNCTIONS, results, level="full"),
        PIPELINES.build(results, level="full"),
        WHAT_IF.build(results, note=now),
        CODE.build(results, level="full"),
    )
    blame = blamed_stage(tfdata)
    if tfdata.main is None:
        is_device_only = all(pipeline.is_device for pipeline in tfdata.pipelines)
        note = _NO_TFDATA if not tfdata.pipelines else _DEVICE_ONLY if is_device_only else _CUT
        notes = (note, *([blame.text] if blame else []))
        # Without tf.data events, the input section reports it.
        return Section("tfdata", "tf.data", tables=tables, notes=notes, level="brief" if tfdata.pipelines else "full")
    advice = (replace(finding, level="full") for finding in pipeline_advice(tfdata, of))
    return Section(
        "tfdata",
        "tf.data",
        findings=(_verdict(tfdata, tfdata.main, blame, host=host, of=of), *advice, *_of_other_steps(results)),
        facts=tuple(replace(fact, level="full") for fact in _checklist(tfdata.main, tfdata.outlook, blame)),
        tables=tables,
        detail_notes=_notes(tfdata, tfdata.main),
        pointer="More: -s tfdata.",
    )


def _of_first_host(spec: TableSpec, results: Results, **attributes: Any) -> Table | None:
    """Return a table of all pipelines; people see those of the host that waits longest."""
    table = spec.build(results, **attributes)
    hosts = tuple(dict.fromkeys(pipeline.host for pipeline in results["tfdata"].pipelines))
    if table is None or len(hosts) < 2:
        return table
    rows = tuple(row for row, host in enumerate(table.data["host"]) if host == hosts[0])
    note = f"Text and Markdown show only {hosts[0]}, one of {len(hosts)} hosts; JSON, CSV and HTML show all hosts."
    return replace(table, rows_for_people=rows, note_for_people=note, level=table.level if rows else "data")


def _notes(tfdata: TfData, main: Pipeline) -> tuple[str, ...]:
    outlook, notes = tfdata.outlook, [_HOW_TO_READ]
    if outlook is not None and not outlook.is_costly:
        notes.append("Steps hardly wait for the pipeline, so a faster pipeline would hardly make them faster.")
    elif outlook is not None and not outlook.gains:
        notes.append("No change that tfperf can estimate promises a faster step.")
    if main.unattributed_ps * 20 > main.waited_ps:
        share = format_percent(100.0 * main.unattributed_ps / main.waited_ps)
        notes.append(
            f"{share}% of the waiting has no stage: iterators are created, or running calls end after the capture."
        )
    if any(pipeline.is_cut for pipeline in tfdata.pipelines):
        notes.append("Stages without calls are known only from their inputs: their own calls end after the capture.")
    return tuple(notes)


def _unknown(main: Pipeline, lacks: NoOutlook) -> Finding:
    text = (
        f"{main.slow_calls} of {main.calls} pipeline calls take longer than {_SLOW_US} us (mean "
        f"{format_ms(main.mean_ps / PS_PER_MS)} ms). "
    )
    if not lacks.steps:
        unknown = "Whether steps wait for it is unknown: the profile has no averaged steps."
        return Finding("tfdata_no_steps", "hint", f"{text}{unknown}")
    steps = "the averaged step" if lacks.steps == 1 else f"the {lacks.steps} averaged steps"
    between = main.calls - lacks.calls_before - lacks.calls_behind
    where = {"before": lacks.calls_before, "between": between, "after": lacks.calls_behind}
    places = ", ".join(f"{count} {place}" for place, count in where.items() if count)
    return Finding(
        "tfdata_no_calls",
        "info",
        f"{text}Whether other steps wait for it is unknown: its calls start outside {steps} ({places}).",
    )


def _verdict(tfdata: TfData, main: Pipeline, blame: Blame | None, *, host: str, of: str) -> Finding:
    outlook = tfdata.outlook
    if outlook is None:
        return _unknown(main, tfdata.no_outlook or NoOutlook())
    step, wait, share = _waiting(outlook, of)
    quantities: tuple[Quantity, ...] = step, wait, share
    waits = f"steps{_on(host)} wait {wait} of {step} ({share}) for it"
    if outlook.is_at_epoch_start:
        first = Quantity("first_fetches", outlook.first_percent, "%", of)
        quantities = (*quantities, first)
        waits += f", {first} of that for the first batch of an epoch"
    if outlook.keeps_up and outlook.is_costly:
        least_ms, most_ms = outlook.slowed_ms or (None, None)
        low, high = Quantity("slowed, at least", least_ms, "ms", of), Quantity("slowed", most_ms, "ms", of)
        text = (
            f"The pipeline is fast enough: {waits}. But its threads add {low} to {high} to the work of the step: "
            f"{outlook.threads:.1f} threads compete with the step for {counted(outlook.cores, 'core')}."
        )
        return Finding("tfdata_slows", "hint", text, causes=CAUSES_OF_INPUT, quantities=(*quantities, low, high))
    if outlook.keeps_up:
        return Finding("tfdata_fast_enough", "info", f"The pipeline is fast enough: {waits}.", quantities=quantities)
    limiting = stage_name(main, main.limiting)
    if blame is not None and blame.reason != "work":
        stages = f"The blocking stage is {blame.stage}{blame.why}."
    elif blame is not None and blame.stage == limiting:
        stages = f"{limiting} is both the blocking and the limiting stage."
    else:
        waited = [f"{blame.stage} is the blocking stage"] if blame else []
        limits = [f"{limiting} is the limiting stage"] if limiting else []
        stages = "; ".join((*waited, *limits)) + "." * bool(waited or limits)
    text = f"The pipeline is too slow: {waits}. {stages}"
    severity: Severity = "problem" if outlook.input_percent >= INPUT_LIMITS[1] else "hint"
    return Finding("tfdata_slow", severity, text, causes=CAUSES_OF_INPUT, quantities=quantities)


def _of_other_steps(results: Results) -> Iterator[Finding]:
    tfdata: TfData = results["tfdata"]
    for kind in tfdata.of_kinds:
        of_kind = tfdata.for_steps(kind)
        if of_kind is None or of_kind.main is None:
            continue
        host = _host_of_main(results, of_kind)
        of = of_steps(kind, host)
        verdict = _verdict(of_kind, of_kind.main, blamed_stage(of_kind), host=host, of=of)
        for finding in (verdict, *pipeline_advice(of_kind, of)):
            yield replace(finding, text=f"{step_word(kind).capitalize()}s: {finding.text}", level="full")


def _host_of_main(results: Results, tfdata: TfData) -> str:
    return tfdata.main.host if tfdata.main is not None and results.has_several_hosts else ""


def _on(host: str) -> str:
    return f" on {host}" if host else ""


def _waiting(outlook: Outlook, of: str) -> tuple[Quantity, Quantity, Quantity]:
    step, wait = Quantity("step_time", outlook.step_ms, "ms", of), Quantity("input_wait", outlook.wait_ms, "ms", of)
    return step, wait, Quantity("input_wait", outlook.input_percent, "%", of)


def _checklist(main: Pipeline, outlook: Outlook | None, blame: Blame | None) -> tuple[Fact, ...]:
    """Answer the four questions of TensorFlow's guide to tf.data performance for this trace."""
    times = f"mean {format_ms(main.mean_ps / PS_PER_MS)}, p95 {format_ms(main.p95_ps / PS_PER_MS)} ms"
    calls = f"{main.slow_calls} of {main.calls} calls take longer than {_SLOW_US} us; {times}"
    keeps_up = None if outlook is None else outlook.keeps_up
    stage, blocking, quantities = None, "no slow calls", list[Quantity]()
    if blame is not None:
        share = Quantity("blamed", 100.0 * blame.share, of=blame.pipeline)
        stage, quantities = blame.stage, [share]
        blocking = f"{share} of the time spent waiting for the pipeline"
    threads = f"{main.work_ps / main.span_ps if main.span_ps else 0.0:.1f} threads work at the same time"
    pool = f"; its thread pool has {main.pool_threads} threads" if main.pool_threads else ""
    busy_percent = None if main.busy_share is None else min(100.0 * main.busy_share, 100.0)
    known = f"by the pipeline: {threads} on {main.cores} cores{pool}"
    threads = f"{threads}; cores unknown{pool}" if busy_percent is None else known
    return (
        Fact("tfdata_fast", "1 Fast enough", keeps_up, "", calls),
        Fact("tfdata_prefetch", "2 Prefetch at the end", main.final_prefetch is not None, "", _prefetch(main)),
        Fact("tfdata_cpu", "3 Host CPU busy", busy_percent, "%", threads),
        Fact("tfdata_limit", "4 Limiting stage", stage_name(main, main.limiting), "", _limit(main)),
        Fact("tfdata_blocks", "  Blocking stage", stage, "", blocking, quantities=tuple(quantities)),
    )


def _prefetch(main: Pipeline) -> str:
    if main.final_prefetch is None:
        return "the step and the pipeline take turns"
    if main.is_handed_on:
        return "a separate thread passes elements to the devices"
    stage = main.stages[main.final_prefetch]
    kind = "added by TensorFlow itself" if stage.dataset.startswith("inject/") else ""
    if stage.name != "Prefetch":
        kind = f"{stage.name} works ahead in its own threads"
    of_limit = f" of {stage.buffer_limit}" if stage.buffer_limit is not None else ""
    buffer = f"buffer{of_limit}" if of_limit else ""
    if stage.buffered is not None:
        buffer = f"its buffer has {stage.buffered:.1f}{of_limit} elements on average at a call"
    return "; ".join(text for text in (kind, buffer) if text)


def _limit(main: Pipeline) -> str:
    segment = max(main.segments, key=lambda segment: segment.limit_ps, default=None)
    if segment is None or main.limiting is None:
        return "no stage works long enough to find the limiting one"
    threads = f" by {segment.workers} threads" if segment.workers > 1 else ""
    places = {"consumer": "in the step's own thread", "producer": "in one thread", "function": "in your function"}
    where = places[segment.kind] if segment.workers == 1 or segment.kind == "function" else "in parallel"
    return f"an element takes {format_ms(segment.limit_ps / PS_PER_MS)} ms {where}{threads}"
