"""tf.data: whether the pipeline is fast enough, the stage that limits it, and the estimated gain of changes."""

from __future__ import annotations

from tfperf.analysis.registry import Results, SectionSpec, TableSpec, fields
from tfperf.base.units import PS_PER_MS, format_percent, percent
from tfperf.report.model import Column, Data, Ranked
from tfperf.sections.tfdata.pipeline import Pipeline, StageStats, stage_name
from tfperf.trace.known_stats import TFDATA


def _stages(results: Results) -> Data | None:
    pipelines: tuple[Pipeline, ...] = results["tfdata"].pipelines
    rows = [(pipeline, index, stage) for pipeline in pipelines for index, stage in enumerate(pipeline.stages)]
    if not rows:
        return None
    stages, marked = [stage for _, _, stage in rows], []
    for pipeline, index, stage in rows:
        marks = "!" * (index == pipeline.blocking) + "*" * (index == pipeline.limiting)
        of_several = f"{pipeline.name} " if len(pipelines) > 1 and not index else ""
        marked.append(f"{of_several}{stage.name} {marks}".rstrip())
    return {
        **fields(_STAGE_COLUMNS, stages),
        "host": [pipeline.host for pipeline, _, _ in rows],
        "pipeline": [pipeline.name for pipeline, _, _ in rows],
        "stage": marked,
        "mean_ms": [stage.mean_ps / PS_PER_MS if stage.calls else None for stage in stages],
        "p95_ms": [stage.p95_ps / PS_PER_MS if stage.calls else None for stage in stages],
        "total_ms": [stage.total_ps / PS_PER_MS if stage.calls else None for stage in stages],
        "work_ms": [stage.work_ps / PS_PER_MS if stage.work_ps is not None else None for stage in stages],
        "element_ms": [stage.element_ps / PS_PER_MS if stage.element_ps is not None else None for stage in stages],
        "busy_percent": [
            None if stage.busy_ps is None else percent(stage.busy_ps, pipeline.capture_ps)
            for pipeline, _, stage in rows
        ],
        "waited_percent": [percent(stage.blocked_ps, pipeline.waited_ps) for pipeline, _, stage in rows],
        "is_blocking": [index == pipeline.blocking for pipeline, index, _ in rows],
        "is_limiting": [index == pipeline.limiting for pipeline, index, _ in rows],
        "buffer": [_buffer(stage) for stage in stages],
    }


def _buffer(stage: StageStats) -> str | None:
    if stage.buffered is None and stage.buffer_limit is None:
        return None
    held = f"{stage.buffered:.1f}" if stage.buffered is not None else "?"
    return held if stage.buffer_limit is None else f"{held}/{stage.buffer_limit}"


def _functions(results: Results) -> Data | None:
    rows = [(pipeline, stage) for pipeline in results["tfdata"].pipelines for stage in pipeline.stages if stage.runs]
    if not rows:
        return None
    return {
        "host": [pipeline.host for pipeline, _ in rows],
        "pipeline": [pipeline.name for pipeline, _ in rows],
        "stage": [stage.name for _, stage in rows],
        "path": [stage.path for _, stage in rows],
        "runs": [stage.runs for _, stage in rows],
        "run_ms": [stage.run_ps / stage.runs / PS_PER_MS for _, stage in rows],
        "python": [stage.python or None for _, stage in rows],
        "ops": [_op_shares(stage) for _, stage in rows],
    }


def _op_shares(stage: StageStats) -> str | None:
    by_type: dict[str, int] = {}
    for _, kind, _, duration_ps in stage.ops:
        by_type[kind] = by_type.get(kind, 0) + duration_ps
    total = max(stage.run_ps, sum(by_type.values()), 1)
    longest = sorted(by_type.items(), key=lambda item: (-item[1], item[0]))[:3]
    return ", ".join(f"{kind} {format_percent(100.0 * duration_ps / total)}%" for kind, duration_ps in longest) or None


def _pipelines(results: Results) -> Data | None:
    pipelines: tuple[Pipeline, ...] = results["tfdata"].pipelines
    if len(pipelines) < 2:
        return None
    with_host = results.has_several_hosts
    return {
        "host": [pipeline.host for pipeline in pipelines],
        "pipeline": [f"{pipeline.host} {pipeline.name}" if with_host else pipeline.name for pipeline in pipelines],
        "stages": [len(pipeline.stages) for pipeline in pipelines],
        "calls": [pipeline.calls for pipeline in pipelines],
        "mean_ms": [pipeline.mean_ps / PS_PER_MS if pipeline.calls else None for pipeline in pipelines],
        "p95_ms": [pipeline.p95_ps / PS_PER_MS if pipeline.calls else None for pipeline in pipelines],
        "max_ms": [pipeline.max_ps / PS_PER_MS if pipeline.calls else None for pipeline in pipelines],
        "slow_calls": [pipeline.slow_calls for pipeline in pipelines],
        "waited_ms": [pipeline.waited_ps / PS_PER_MS for pipeline in pipelines],
        "blocking": [stage_name(pipeline, pipeline.blocking) for pipeline in pipelines],
        "limiting": [stage_name(pipeline, pipeline.limiting) for pipeline in pipelines],
    }


def _what_if(results: Results) -> Data | None:
    outlook = results["tfdata"].outlook
    if outlook is None or not outlook.is_costly:
        return None
    from tfperf.sections.tfdata.advice import change_in_code

    rows = (outlook.free, *outlook.gains)
    stages = [stage_name(outlook.pipeline, row.stage) for row in rows]
    changes = [change_in_code(row.change, stage) for row, stage in zip(rows, stages, strict=True)]
    return {**fields(_WHAT_IF_COLUMNS, rows), "stage": stages, "what": changes}


def _code(results: Results) -> Data | None:
    """Return the code of the main pipeline as it is, and with each change whose code is known."""
    from tfperf.sections.tfdata.advice import actions_of
    from tfperf.sections.tfdata.pipeline_code import calls_of, code_of

    tfdata = results["tfdata"]
    if tfdata.main is None:
        return None
    limiting = tfdata.main.limiting or 0
    changes = [action for action in actions_of(tfdata) if action.program]
    return {
        "change": ["as it is", *(action.code for action in changes)],
        "code": [code_of(calls_of(tfdata.main, limiting)), *(action.program for action in changes)],
        "changed": [None, *(action.line for action in changes)],
    }


_STAGE_MEANING = "stage, below its consumer; ! blocking stage, * limiting stage"
_WAITED_MEANING = "share of the waiting for the pipeline that is spent on this stage"
_WAITS_INPUT = "share of the step spent waiting for input, with the change"
_HOST = Column("host", "Host", str, "", "name of the trace file", level="data")
_PIPELINE = Column("pipeline", "Pipeline", str, "", "kind and number of the pipeline on its host", level="data")
_PATH = Column("path", "Path", str, "", "names of the stage and all its consumers", level="data")
_STAGE_COLUMNS = (
    _HOST,
    _PIPELINE,
    Column("stage", "Stage", str, "", _STAGE_MEANING, depth_key="depth"),
    Column("name", "Name", str, "", "stage without marks", level="data"),
    Column("depth", "Depth", int, "count", "level in the tree, from 0", level="data"),
    _PATH,
    Column("dataset", "Dataset", str, "", "TensorFlow's name (only the outermost stage and prefetches)", level="data"),
    Column("calls", "Calls", int, "count", "number of calls for an element"),
    Column("mean_ms", "Mean", float, "ms", "average time of a call"),
    Column("p95_ms", "p95", float, "ms", "95% of the calls take less"),
    Column("total_ms", "Total", float, "ms", "time of all calls, including nested ones", level="data"),
    Column("work_ms", "Work", float, "ms", "own work in the whole capture, summed over threads", level="data"),
    Column("element_ms", "Self", float, "ms", "own work per pipeline element, summed over threads"),
    Column("busy_percent", "Busy", float, "%", "share of the capture in which it or its function runs, not waiting"),
    Column("waited_percent", "Waited", float, "%", _WAITED_MEANING),
    Column("is_blocking", "Blocks", bool, "", "whether it is the blocking stage", level="data"),
    Column("is_limiting", "Limits", bool, "", "whether it is the limiting stage", level="data"),
    Column("parallelism", "Par.", int, "count", "concurrent calls of its function, or concurrent inputs"),
    Column("autotuned", "Autotuned", bool, "", "whether TensorFlow chooses the parallelism", level="data"),
    Column("deterministic", "Deterministic", bool, "", "whether it keeps the order of elements", level="data"),
    Column("buffer", "Buffer", str, "", "elements in its buffer at a call, mean / maximum"),
    Column("buffered", "Buffered", float, "count", "elements in its buffer at a call, mean", level="data"),
    Column("buffer_limit", "Buffer limit", int, "count", "maximum number of elements in its buffer", level="data"),
    Column("batch_size", "Batch size", int, "count", "input elements per output element", level="data"),
    Column("cycle_length", "Cycle length", int, "count", "inputs that it interleaves", level="data"),
)
_FUNCTION_COLUMNS = (
    _HOST,
    _PIPELINE,
    Column("stage", "Stage", str, "", "stage that runs the function"),
    _PATH,
    Column("runs", "Runs", int, "count", "runs of the function"),
    Column("run_ms", "Mean", float, "ms", "work of one run"),
    Column("python", "Python", str, "", "py_function, numpy_function or from_generator: holds the GIL"),
    Column("ops", "Ops with the most time", str, "", "op types inside, with their share of the function time"),
)
_PIPELINE_COLUMNS = (
    _HOST,
    Column("pipeline", "Pipeline", str, "", "Host: produces elements; Device: transfers them to a device"),
    Column("stages", "Stages", int, "count", "stages"),
    Column("calls", "Calls", int, "count", "number of calls for an element"),
    Column("mean_ms", "Mean", float, "ms", "average time of a call of the outermost stage"),
    Column("p95_ms", "p95", float, "ms", "95% of these calls take less"),
    Column("max_ms", "Max", float, "ms", "the longest call", level="data"),
    Column("slow_calls", "Slow", int, "count", "calls longer than 50 us"),
    Column("waited_ms", "Waited", float, "ms", "wall time in which a consumer waited for it"),
    Column("blocking", "Waited for", str, "", "blocking stage"),
    Column("limiting", "Limits", str, "", "limiting stage"),
)
_WHAT_IF_COLUMNS = (
    Column("change", "Change", str, "", "kind of change", level="data"),
    Column("stage", "Stage", str, "", "stage that changes", level="data"),
    Column("what", "Change", str, "", "suggested change"),
    Column("low_ms", "Step at best", float, "ms", "lowest estimated step time with the change"),
    Column("high_ms", "Step at worst", float, "ms", "highest estimated step time with the change"),
    Column("low_input_percent", "Input at best", float, "%", f"{_WAITS_INPUT}, at best", level="data"),
    Column("high_input_percent", "Input at worst", float, "%", f"{_WAITS_INPUT}, at worst", level="data"),
    Column("assumption", "If", str, "", "assumption of the estimate"),
)

_CODE_COLUMNS = (
    Column("change", "Change", str, "", "`as it is`, or the code of an action"),
    Column("code", "Program", str, "", "the pipeline as code; f, g, ... are its functions, n is a number"),
    Column("changed", "New or different", str, "", "the calls that the change adds or replaces"),
)

STAGES = TableSpec(
    name="tfdata_stages",
    title="Stages, outermost first",
    row="tf.data stages, outermost first",
    details=(
        "One row per stage of each tf.data pipeline, each below the stage that consumes it; the pipeline that "
        "the steps wait for comes first. [The input pipeline](tfdata.md) explains the columns."
    ),
    columns=_STAGE_COLUMNS,
    data=_stages,
    name_key="name",
    aliases=("iterators",),
)
FUNCTIONS = TableSpec(
    name="tfdata_functions",
    title="Your functions, inside the stages",
    row="user functions inside the stages",
    details="One row per stage that runs a function of the program.",
    columns=_FUNCTION_COLUMNS,
    data=_functions,
    name_key="stage",
)
PIPELINES = TableSpec(
    name="tfdata_pipelines",
    title="Pipelines",
    row="tf.data pipelines",
    details="One row per pipeline. Only with several pipelines.",
    columns=_PIPELINE_COLUMNS,
    data=_pipelines,
    name_key="pipeline",
    ranked=Ranked("waited_ms", each="pipelines"),
)
WHAT_IF = TableSpec(
    name="what_if",
    title="Estimated gain of changes",
    row="estimated gain of each pipeline change",
    details=(
        "The first row is the lower bound: no work in tf.data. Then one row per pipeline change that may make "
        "steps faster, the largest gain first. No rows if the pipeline costs steps little."
    ),
    columns=_WHAT_IF_COLUMNS,
    data=_what_if,
    name_key="what",
    about_steps=True,
    counts_all_steps=True,
)
CODE = TableSpec(
    name="tfdata_code",
    title="The pipeline as code, and each change",
    row="the input pipeline as code, and its changes",
    details=(
        "The first row is the current pipeline: its stages in program order, without stages that TensorFlow adds. "
        "Then one row per action with known code. [The rules for changes](tfdata.md#what-is-offered) are in the "
        "guide."
    ),
    columns=_CODE_COLUMNS,
    data=_code,
    name_key="change",
)
TABLES = (STAGES, FUNCTIONS, PIPELINES, WHAT_IF, CODE)


SECTION = SectionSpec(
    name="tfdata",
    title="tf.data",
    rests_on=("steps", "environment"),
    analyze="tfperf.sections.tfdata.analysis:analyze",
    combine="tfperf.sections.tfdata.analysis:combine",
    stats=TFDATA | {"id", "hlo_op"},
    shorten="tfperf.sections.tfdata.analysis:shorten",
    build="tfperf.sections.tfdata.section:build",
    tables=TABLES,
)
