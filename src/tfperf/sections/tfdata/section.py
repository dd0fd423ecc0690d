"""The section about tf.data: is the pipeline fast enough, which stage limits it, what to change, and what it buys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tfperf.sections.tfdata.pipeline import SLOW_CALL_PS, Pipeline, StageStats, TfData
from tfperf.sections.overview.summary import INPUT_LIMITS
from tfperf.sections.tfdata.whatif import Estimate, Outlook
from tfperf.sections.tfdata.advice import busy_share, in_code, pipeline_advice

from tfperf.report.model import Column, Fact, Finding, Section, Table
from tfperf.reports.columns import TFDATA_FUNCTIONS, TFDATA_PIPELINES, TFDATA_STAGES, WHAT_IF
from tfperf.units import PS_PER_MS, format_ms, format_percent

_NO_TFDATA = (
    "The trace holds no event of tf.data. Either the job does not use it, or the profile was taken with a host tracer "
    "level below 2."
)
_DEVICE_ONLY = (
    "The trace holds only the part of the pipeline that hands batches to devices; what makes them runs on another "
    "host, or was not called while the capture lasted."
)
_CUT = (
    "No call of the outermost stage lies wholly in the capture, so how long anyone waits is not known; capture several "
    "steps."
)
_NO_GAIN = 0.97
_BRIEF_ROWS = 12
CHANGES = {
    "prefetch": "prefetch() at the end",
    "parallel_map": "parallel calls in {}",
    "parallel_read": "interleave() several {}",
    "cache": "cache() behind {}",
    "vectorize": "batch() before {}",
}


def tfdata_section(found: TfData, outlook: Outlook | None, hosts: int, top: int | None) -> Section:
    """Build the section; `top` cuts tables for people."""
    main = outlook.pipeline if outlook else found.main
    if main is not None:
        found = TfData((main, *(own for own in found.pipelines if own is not main)))
    findings: list[Finding] = []
    facts: tuple[Fact, ...] = ()
    if main is not None:
        findings = [_verdict(main, outlook), *pipeline_advice(main, outlook)]
        facts = _checklist(main, outlook)
    tables = _tables(found, main, outlook, several_hosts=hosts > 1)
    shown = tuple(table if top is None else table.head(max(top, 20)) for table in tables)
    return Section("tfdata", "tf.data", tuple(findings), facts, (), shown, tuple(_notes(found, main, outlook)))


def brief_tfdata_section(found: TfData, outlook: Outlook | None) -> Section:
    """Build what stands in a whole report for people: the verdict, the tree, and what a change would buy."""
    whole = tfdata_section(found, outlook, 1, None)
    shown = [table.head(_BRIEF_ROWS) for table in whole.tables if table.name in ("tfdata_stages", "what_if")]
    notes = ("What to change, and more: -s tfdata.",) if shown else whole.notes
    return Section("tfdata", whole.title, whole.findings[:1], tables=tuple(shown), notes=notes)


def _notes(found: TfData, main: Pipeline | None, outlook: Outlook | None) -> list[str]:
    if not found.pipelines:
        return [_NO_TFDATA]
    if main is None:
        return [_DEVICE_ONLY if all(own.is_device for own in found.pipelines) else _CUT]
    notes = [
        "Self is a stage's own work for one element of the pipeline, added up over threads; waited is the share of the "
        "time that the step waits in which this stage is what it waits for. Marks: ! is waited for most, * limits most."
    ]
    if outlook is not None and outlook.input_percent < INPUT_LIMITS[0]:
        notes.append("Since steps hardly wait for the pipeline, making it faster would hardly make them faster.")
    elif outlook is not None and not _gains(outlook):
        notes.append("None of the changes that tfperf can estimate promises a faster step.")
    if main.untold_ps * 20 > main.waited_ps:
        share = format_percent(100.0 * main.untold_ps / main.waited_ps)
        notes.append(f"{share}% of the waiting has no stage: what was under way then is cut off by the capture's edge.")
    if any(own.is_cut for own in found.pipelines):
        notes.append("Stages without calls are known from what they ask for only: their own calls outlast the capture.")
    return notes


def _verdict(main: Pipeline, outlook: Outlook | None) -> Finding:
    """Say whether the pipeline keeps up, and name the stages."""
    if outlook is None or outlook.pipeline is not main:
        text = f"{main.slow_calls} of {main.calls} calls of the pipeline take longer than 50 us (mean "
        text += f"{format_ms(main.mean_ps / PS_PER_MS)} ms); without steps nobody can say whether that is too slow."
        return Finding("tfdata_no_steps", "hint", text)
    share = format_percent(outlook.input_percent)
    waits = f"steps wait {format_ms(outlook.wait_ms)} of {format_ms(outlook.step_ms)} ms ({share}%) for it"
    if outlook.input_percent < INPUT_LIMITS[0]:
        return Finding("tfdata_fast_enough", "info", f"The pipeline is fast enough: {waits}.")
    severity = "problem" if outlook.input_percent >= INPUT_LIMITS[1] else "hint"
    return Finding("tfdata_slow", severity, f"The pipeline is too slow: {waits}. {_names(main)}")  # type: ignore[arg-type]


def _names(main: Pipeline) -> str:
    """Name the stage that is waited for, and the one that limits."""
    limiting = main.stages[main.limiting].name if main.limiting is not None else ""
    if main.blocking is None:
        return f"{limiting} limits how fast elements can come." if limiting else ""
    blocking = main.stages[main.blocking].name
    if main.blocking == main.limiting:
        return f"{blocking} is what they wait for, and what limits the pipeline."
    return f"{blocking} is what they wait for; {limiting} limits how fast elements can come."


def _checklist(main: Pipeline, outlook: Outlook | None) -> tuple[Fact, ...]:
    """Answer the four questions of TensorFlow's guide to tf.data performance for this trace."""
    return (
        Fact("tfdata_fast", "1 Delivers fast enough", _fast(main, outlook), "", _slow_calls(main)),
        Fact("tfdata_prefetch", "2 Prefetch at the end", main.final_prefetch is not None, "", _prefetch(main)),
        _cpu_fact(main),
        Fact("tfdata_limit", "4 Stage that limits", _stage_name(main, main.limiting), "", _limit(main)),
        Fact("tfdata_blocks", "  Stage waited for", _stage_name(main, main.blocking), "", _blocking(main)),
    )  # fmt: skip


def _fast(main: Pipeline, outlook: Outlook | None) -> bool | None:
    if outlook is None or outlook.pipeline is not main:
        return None
    return outlook.input_percent < INPUT_LIMITS[0]


def _slow_calls(main: Pipeline) -> str:
    limit = SLOW_CALL_PS // 1_000_000
    times = f"mean {format_ms(main.mean_ps / PS_PER_MS)}, p95 {format_ms(main.p95_ps / PS_PER_MS)} ms"
    return f"{main.slow_calls} of {main.calls} calls take longer than {limit} us; {times}"


def _prefetch(main: Pipeline) -> str:
    if main.final_prefetch is None:
        return "the step and the pipeline take turns"
    if main.is_handed_on:
        return "a thread of its own hands elements on to the devices"
    stage = main.stages[main.final_prefetch]
    own = "added by TensorFlow itself" if stage.dataset.startswith("inject/") else ""
    if stage.name != "Prefetch":
        own = f"{stage.name} works ahead in threads of its own"
    return ", ".join(text for text in (own, _buffer_words(stage)) if text)


def _buffer_words(stage: StageStats) -> str:
    if stage.buffered is None:
        return f"buffer of {stage.buffer_limit}" if stage.buffer_limit is not None else ""
    of = f" of {stage.buffer_limit}" if stage.buffer_limit is not None else ""
    return f"its buffer holds {stage.buffered:.1f}{of} elements on average when asked"


def _cpu_fact(main: Pipeline) -> Fact:
    busy = main.cpu_ps / main.span_ps if main.span_ps else 0.0
    share = busy_share(main)
    pool = f"; its own pool has {main.pool_threads}" if main.pool_threads else ""
    if share is None:
        return Fact(
            "tfdata_cpu", "3 Host CPU busy", None, "%", f"{busy:.1f} threads work at a time; cores unknown{pool}"
        )
    note = f"by the pipeline: {busy:.1f} threads work at a time on {main.cores} cores{pool}"
    return Fact("tfdata_cpu", "3 Host CPU busy", min(100.0 * share, 100.0), "%", note)


def _stage_name(main: Pipeline, index: int | None) -> str | None:
    return main.stages[index].name if index is not None else None


def _limit(main: Pipeline) -> str:
    section = main.limiting_section
    if section is None or main.limiting is None:
        return "no stage works long enough to tell"
    threads = f" by {section.workers} threads" if section.workers > 1 else ""
    alone = {"consumer": "in the step's own thread", "producer": "in one thread", "function": "in your function"}
    where = alone[section.kind] if section.workers == 1 or section.kind == "function" else "in parallel"
    return f"an element takes {format_ms(section.limit_ps / PS_PER_MS)} ms {where}{threads}"


def _blocking(main: Pipeline) -> str:
    if main.blocking is None:
        return "no call takes long"
    blocked = main.stages[main.blocking].blocked_ps
    return f"{format_percent(100.0 * blocked / main.waited_ps)}% of the time that anyone waits for the pipeline"


def _tables(
    found: TfData, main: Pipeline | None, outlook: Outlook | None, *, several_hosts: bool
) -> list[Table]:  # fmt: skip
    if not found.pipelines:
        return []
    stages = _table("tfdata_stages", "Stages, outermost first", TFDATA_STAGES, _stage_data(found))
    tables = [replace(stages, bar_key="waited_percent")]
    functions = _function_data(found)
    if functions["stage"]:
        tables.append(_table("tfdata_functions", "Your functions, inside the stages", TFDATA_FUNCTIONS, functions))
    if len(found.pipelines) > 1:
        tables.append(_table("tfdata_pipelines", "Pipelines", TFDATA_PIPELINES, _pipeline_data(found, several_hosts)))
    if outlook is not None and _gains(outlook):
        note = (
            f"Now {format_ms(outlook.step_ms)} ms, {format_percent(outlook.input_percent)}% of it input. A range, "
            "since work that should overlap does so only in part; each change by itself."
        )
        tables.append(_table("what_if", "What a change would buy", WHAT_IF, _what_if_data(outlook), note))
    return tables


def _table(name: str, title: str, columns: tuple[Column, ...], data: dict[str, list[Any]], note: str = "") -> Table:
    return Table(name, title, columns, data, len(data[columns[0].key]), note)


def _stage_data(found: TfData) -> dict[str, list[Any]]:
    rows = [(own, index, stage) for own in found.pipelines for index, stage in enumerate(own.stages)]
    data: dict[str, list[Any]] = {
        "host": [own.host for own, _, _ in rows],
        "pipeline": [own.name for own, _, _ in rows],
        "stage": [_marked(own, index, several=len(found.pipelines) > 1) for own, index, _ in rows],
        "is_blocking": [index == own.blocking for own, index, _ in rows],
        "is_limiting": [index == own.limiting for own, index, _ in rows],
        "buffer": [_buffer(stage) for _, _, stage in rows],
        "mean_ms": [_if_called(stage, stage.mean_ps) for _, _, stage in rows],
        "p95_ms": [_if_called(stage, stage.p95_ps) for _, _, stage in rows],
        "total_ms": [stage.total_ps / PS_PER_MS for _, _, stage in rows],
        "work_ms": [stage.work_ps / PS_PER_MS for _, _, stage in rows],
        "element_ms": [stage.element_ps / PS_PER_MS if stage.element_ps is not None else None for _, _, stage in rows],
        "busy_percent": [_percent(stage.busy_ps, own.span_ps) for own, _, stage in rows],
        "waited_percent": [_percent(stage.blocked_ps, own.waited_ps) for own, _, stage in rows],
    }
    for key in ("name", "path", "depth", "dataset", "calls", "parallelism", "autotuned", "deterministic",
                "buffer_limit", "buffered", "batch_size", "cycle_length"):  # fmt: skip
        data[key] = [getattr(stage, key) for _, _, stage in rows]
    return data


def _marked(own: Pipeline, index: int, *, several: bool) -> str:
    """Return the name as people see it: with its marks, and for the outermost of several pipelines with its number."""
    marks = " !" * (index == own.blocking) + (" *" if index == own.limiting else "")
    name = own.stages[index].name + marks.replace("! *", "!*")
    return f"{own.name} {name}" if several and not index else name


def _if_called(stage: StageStats, value: float) -> float | None:
    return value / PS_PER_MS if stage.calls else None


def _percent(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


def _buffer(stage: StageStats) -> str | None:
    if stage.buffered is None and stage.buffer_limit is None:
        return None
    held = f"{stage.buffered:.1f}" if stage.buffered is not None else "?"
    return held if stage.buffer_limit is None else f"{held}/{stage.buffer_limit}"


def _function_data(found: TfData) -> dict[str, list[Any]]:
    rows = [(own, stage) for own in found.pipelines for stage in own.stages if stage.runs]
    return {
        "host": [own.host for own, _ in rows],
        "pipeline": [own.name for own, _ in rows],
        "stage": [stage.name for _, stage in rows],
        "path": [stage.path for _, stage in rows],
        "runs": [stage.runs for _, stage in rows],
        "run_ms": [stage.run_ps / stage.runs / PS_PER_MS for _, stage in rows],
        "python": [stage.python or None for _, stage in rows],
        "ops": [_ops(stage) for _, stage in rows],
    }


def _ops(stage: StageStats) -> str | None:
    """Name the three ops with the most time in a function, with their share of it."""
    total = max(stage.run_ps, sum(time for _, _, _, time in stage.ops), 1)
    return (
        ", ".join(f"{kind} {format_percent(100.0 * time / total)}%" for _, kind, _, time in _by_type(stage)[:3]) or None
    )


def _by_type(stage: StageStats) -> list[tuple[str, str, int, int]]:
    added: dict[str, tuple[int, int]] = {}
    for _, kind, count, time in stage.ops:
        before = added.get(kind, (0, 0))
        added[kind] = before[0] + count, before[1] + time
    return sorted((("", kind, count, time) for kind, (count, time) in added.items()), key=lambda own: (-own[3], own[1]))


def _pipeline_data(found: TfData, several_hosts: bool) -> dict[str, list[Any]]:
    own = found.pipelines
    return {
        "host": [one.host for one in own],
        "pipeline": [f"{one.host} {one.name}" if several_hosts else one.name for one in own],
        "stages": [len(one.stages) for one in own],
        "calls": [one.calls for one in own],
        "mean_ms": [one.mean_ps / PS_PER_MS if one.calls else None for one in own],
        "p95_ms": [one.p95_ps / PS_PER_MS if one.calls else None for one in own],
        "max_ms": [one.max_ps / PS_PER_MS if one.calls else None for one in own],
        "slow_calls": [one.slow_calls for one in own],
        "waited_ms": [one.waited_ps / PS_PER_MS for one in own],
        "blocking": [_stage_name(one, one.blocking) for one in own],
        "limiting": [_stage_name(one, one.limiting) for one in own],
    }


def _gains(outlook: Outlook) -> list[Estimate]:
    """Return the estimates that promise anything: none where steps hardly wait for the pipeline."""
    if outlook.input_percent < INPUT_LIMITS[0]:
        return []
    return [own for own in outlook.estimates if own.low_ms + own.high_ms < 2 * _NO_GAIN * outlook.step_ms]


def _what_if_data(outlook: Outlook) -> dict[str, list[Any]]:
    own = _gains(outlook)
    stages = [outlook.pipeline.stages[one.stage] if one.stage is not None else None for one in own]
    return {
        "change": [one.change for one in own],
        "stage": [stage.name if stage else None for stage in stages],
        "what": [
            CHANGES[one.change].format(in_code(stage) if stage else "") for one, stage in zip(own, stages, strict=True)
        ],
        "low_ms": [one.low_ms for one in own],
        "high_ms": [one.high_ms for one in own],
        "low_input_percent": [one.low_input_percent for one in own],
        "high_input_percent": [one.high_input_percent for one in own],
        "assumption": [one.assumption for one in own],
    }
