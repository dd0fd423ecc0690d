"""Findings that suggest changes of a tf.data pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from tfperf.base.units import PS_PER_MS, format_ms, format_percent
from tfperf.report.model import Finding, Quantity, Severity
from tfperf.sections.overview.summary import INPUT_LIMITS, step_after
from tfperf.sections.tfdata.analysis import TfData
from tfperf.sections.tfdata.pipeline import PASSING_ON, Pipeline, StageStats, stage_name
from tfperf.sections.tfdata.pipeline_code import cache_size, calls_of, changed_code, diff_of, if_same, with_split_cache
from tfperf.sections.tfdata.whatif import Estimate, Outlook

CAUSES_OF_INPUT = ("input_wait", "input_contention")
"""Codes of the causes that findings on pipelines are evidence for."""
_MORE_AT_A_TIME = ("parallel_map", "parallel_read", "sequential_interleave", "interleave", "serial_transformation")
"""Changes that only add threads, which helps with idle cores, but not if all cores compute."""
_WORTH_IT = 0.9
"""Rewriting a function must reduce the step to at most this share of its time."""
_MOSTLY_WAITS = 0.6
"""Python functions below this share of computing gain little from TensorFlow ops, and do not hold the GIL."""
_LEAST_FIXED = 0.25
"""A random function is worth splitting if at least this share of its op time is not random."""


class PipelineAction(Struct, frozen=True, kw_only=True):
    """A change of the program, and its range of step times if the trace allows an estimate."""

    code: str
    """A change in the table what_if (`prefetch`, `parallel_map`, `parallel_read`, `cache`, `warm_cache`, `vectorize`),
    or a code without an estimate."""
    stage: str
    """TensorFlow's name of the changed stage; empty for the whole pipeline."""
    why: str
    """Evidence in the trace, as a sentence."""
    text: str
    """Code to type."""
    low_ms: float | None
    """Step time at best and at worst; None without an estimate."""
    high_ms: float | None
    assumption: str
    """Assumption of the estimate; empty without one."""
    url: str
    """Page of TensorFlow's documentation that explains the change."""
    program: str = ""
    """Code of the whole pipeline with the change; empty if unknown."""
    line: str = ""
    """New or changed calls in it."""
    diff: str = ""
    """The change as a diff with one call per line; empty if unknown."""

    @property
    def gain(self) -> str:
        """Return the estimate as a sentence; empty without one."""
        if self.low_ms is None or self.high_ms is None:
            return ""
        return f"Estimated step time with the change: {format_ms(self.low_ms)} to {format_ms(self.high_ms)} ms."


def actions_of(tfdata: TfData) -> tuple[PipelineAction, ...]:
    """Return changes of the main pipeline, the largest gain first, those without estimate last; none without waits."""
    pipeline, outlook = tfdata.main, tfdata.outlook
    if pipeline is None or not is_costly(pipeline, outlook):
        return ()
    if pipeline.is_of_keras_arrays:
        return (_action(pipeline, None, KERAS_ARRAYS),)
    if outlook is None or not outlook.estimates:
        prefetch = (_action(pipeline, None, PREFETCH),) if pipeline.final_prefetch is None else ()
        return _ordered(pipeline, (*prefetch, *_of_stages(pipeline), *_on_full_cpu(pipeline)))
    estimated = [
        _action(pipeline, estimate.stage, rule_of_change(pipeline, estimate.change, estimate.stage), estimate)
        for estimate in outlook.gains
        if not (estimate.change in _MORE_AT_A_TIME and outlook.pipeline.fills_cores)
        and (estimate.change != "vectorize" or estimate.high_ms < _WORTH_IT * outlook.step_ms)
    ]
    # Changes without an estimated gain are not advised, nor is less work if only its overhead is too much.
    known = {(estimate.change, stage_name(pipeline, estimate.stage) or "") for estimate in outlook.estimates}
    if outlook.python_computes < _MOSTLY_WAITS:
        known |= {("python_function", stage.name) for stage in pipeline.stages}
    known |= {("heavy_map", action.stage) for action in estimated if action.code == "vectorize"}
    if outlook.keeps_up:
        others = (*_split_to_cache(pipeline), _action(pipeline, None, LESS_WORK))
    else:
        refill = () if outlook.refilled is None else (_action(pipeline, outlook.refilled, REFILL),)
        others = (*refill, *_of_stages(pipeline), *_split_to_cache(pipeline), *_on_full_cpu(pipeline))
    return (*estimated, *_ordered(pipeline, (each for each in others if (each.code, each.stage) not in known)))


def _ordered(pipeline: Pipeline, actions: Iterable[PipelineAction]) -> tuple[PipelineAction, ...]:
    """Return changes without an estimate: parallelism first with idle cores, and omitted if all cores compute.

    A prefetch is not such a change, because it overlaps the pipeline with the step.
    """
    if pipeline.fills_cores:
        return tuple(action for action in actions if action.code not in _MORE_AT_A_TIME)
    if pipeline.leaves_cores:
        return tuple(sorted(actions, key=lambda action: action.code not in ("prefetch", *_MORE_AT_A_TIME)))
    return tuple(actions)


def is_costly(pipeline: Pipeline, outlook: Outlook | None) -> bool:
    """Return whether the pipeline costs at least 5% of the step; if unknown, whether the program waits that long."""
    if outlook is not None:
        return outlook.is_costly
    return 100.0 * pipeline.waited_ps > INPUT_LIMITS[0] * pipeline.capture_ps > 0


def _split_to_cache(pipeline: Pipeline) -> Iterator[PipelineAction]:
    if pipeline.limiting is None:
        return
    stage = pipeline.stages[pipeline.limiting]
    is_worth_it = stage.is_random and stage.random_share <= 1.0 - _LEAST_FIXED
    if is_worth_it and with_split_cache(pipeline, pipeline.limiting) is not None:
        yield _action(pipeline, pipeline.limiting, SPLIT_TO_CACHE)


def _of_stages(pipeline: Pipeline) -> Iterator[PipelineAction]:
    for index in dict.fromkeys((pipeline.limiting, pipeline.blocking)):
        if index is None or not pipeline.is_waited_for(index):
            continue
        rule = rule_for(pipeline, index)
        if rule is not None:
            yield _action(pipeline, index, rule)


def _on_full_cpu(pipeline: Pipeline) -> Iterator[PipelineAction]:
    if pipeline.fills_cores:
        yield _action(pipeline, None, FULL_CPU)


def _action(pipeline: Pipeline, index: int | None, rule: StageRule, estimate: Estimate | None = None) -> PipelineAction:
    inserted, changed = words(pipeline, index, rule.code), changed_code(pipeline, rule.code, index)
    stage = pipeline.stages[index] if index is not None else None
    why = rule.why.format(**inserted)
    if stage is not None and not why.endswith("."):
        own_ps, held_ps = stage.element_ps, stage.element_held_ps or 0.0
        takes = f"takes {format_ms((held_ps if own_ps is None else own_ps) / PS_PER_MS)} ms"
        why = f"{stage.name} {takes} per pipeline element: {why}."
    return PipelineAction(
        code=rule.code,
        stage=stage.name if stage is not None else "",
        why=why,
        text=rule.action.format(**inserted),
        low_ms=estimate.low_ms if estimate else None,
        high_ms=estimate.high_ms if estimate else None,
        assumption=estimate.assumption if estimate else "",
        url=rule.url,
        program="" if changed is None else changed.code,
        line="" if changed is None else changed.line,
        diff="" if changed is None else diff_of(calls_of(pipeline, pipeline.limiting or 0), changed.calls),
    )


def pipeline_advice(tfdata: TfData, of: str) -> Iterator[Finding]:
    """Yield changes of the main pipeline, largest gain first; none if steps do not wait. `of` names the host."""
    is_high = tfdata.outlook is not None and tfdata.outlook.input_percent >= INPUT_LIMITS[1]
    severity: Severity = "problem" if is_high else "hint"
    for action in actions_of(tfdata):
        after: tuple[Quantity, ...] = ()
        if action.low_ms is not None and action.high_ms is not None:
            after = step_after(f"input_wait: {action.code}", action.low_ms, action.high_ms, of)
        why = f"{action.why} {action.gain}".strip()
        yield Finding(action.code, severity, why, action.text, causes=CAUSES_OF_INPUT, quantities=after)


Reason = Literal["work", "host_pipeline", "to_device", "workers", "hand_over"]
_HANDING_OVER = (*PASSING_ON, "Prefetch", "ParallelInterleave", "LegacyParallelInterleave")
_LEAST_SHARE = 0.1
"""A stage with less than this share of the waiting is not reported as the blocking stage."""


class Blame(Struct, frozen=True, kw_only=True):
    """The blocking stage."""

    host: str
    pipeline: str
    stage: str
    """TensorFlow's name of the stage."""
    code: str
    """Name of the stage in the program."""
    waited_ps: int
    """Time that it is waited for in the capture."""
    share: float
    """That time / the time waiting for the pipeline, 0 to 1."""
    reason: Reason
    """work: the stage works; host_pipeline: it passes on elements of a host pipeline without details; to_device:
    likewise, but the host stages hardly work meanwhile; workers: it waits for the workers of a data service; hand_over:
    the wait is neither its work nor work of another stage."""

    @property
    def why(self) -> str:
        """Return the reason as a clause that follows the stage name; empty if the stage works."""
        return _REASONS[self.reason]

    @property
    def text(self) -> str:
        """Return the sentence about the stage."""
        return f"{format_percent(100.0 * self.share)}% of the waiting is for {self.stage}{self.why}."


def blamed_stage(tfdata: TfData) -> Blame | None:
    """Return the stage that is waited for most; None if waits are short, or their stage is unknown.

    It belongs to the main pipeline. If the trace contains only the transfer to devices, or the host stages explain less
    of the waiting, it belongs to the device pipeline.
    """
    main = tfdata.main
    devices = [each for each in tfdata.pipelines if each.is_device and each.blocking is not None]
    if main is not None:
        devices = [each for each in devices if each.host == main.host]
    device = max(devices, key=lambda each: each.waited_ps, default=None)
    pipeline = main if main is not None else device
    if main is not None and device is not None and main.is_handed_on:
        on_host_ps = sum(stage.blocked_ps for stage in main.stages)
        on_device_ps = 0 if device.blocking is None else device.stages[device.blocking].blocked_ps
        pipeline = main if 2 * on_host_ps >= on_device_ps else device
    if pipeline is None or pipeline.blocking is None or not pipeline.waited_ps:
        return None
    stage = pipeline.stages[pipeline.blocking]
    share, reason = stage.blocked_ps / pipeline.waited_ps, _reason(pipeline, stage, has_host=main is not None)
    if share < _LEAST_SHARE:
        return None
    return Blame(
        host=pipeline.host,
        pipeline=pipeline.name,
        stage=stage.name,
        code=in_code(stage.name),
        waited_ps=stage.blocked_ps,
        share=share,
        reason=reason,
    )


_REASONS: dict[Reason, str] = {
    "work": "",
    "host_pipeline": (
        ", which pulls each batch of the device from the host pipeline: that pipeline, or the transfer from it to "
        "the device, is slow, and the profile has no calls of its stages"
    ),
    "to_device": ", which pulls from the host pipeline while its stages are mostly idle: the transfer is slow",
    "workers": ", which waits for the workers of the data service",
    "hand_over": ", with no stage running: threads wait for a core, or for each other",
}


def _reason(pipeline: Pipeline, stage: StageStats, *, has_host: bool) -> Reason:
    if stage.name == "Generator" and pipeline.is_device:
        return "to_device" if has_host else "host_pipeline"
    if stage.name.startswith("DataService"):
        return "workers"
    return "hand_over" if stage.name.startswith(_HANDING_OVER) else "work"


_PREFIXES: dict[str, str | tuple[str, ...]] = {
    "map().batch()": "MapAndBatch",
    "map()": ("ParallelMap", "Map"),
    "interleave()": ("ParallelInterleave", "Interleave"),
    "flat_map()": "FlatMap",
    "padded_batch()": "PaddedBatch",
    "batch()": ("ParallelBatch", "Batch"),
    "shuffle().repeat()": "ShuffleAndRepeat",
    "shuffle()": "Shuffle",
    "filter()": "Filter",
    "unbatch()": "Unbatch",
    "cache()": ("MemoryCache", "FileCache"),
    "zip()": "Zip",
    "from_generator()": "Generator",
    "repeat()": ("ForeverRepeat", "FiniteRepeat"),
    "prefetch()": "Prefetch",
    "TFRecordDataset": "TFRecord",
    "TextLineDataset": "TextLine",
    "FixedLengthRecordDataset": "FixedLengthRecord",
    "from_tensor_slices()": "TensorSlice",
    "from_tensors()": "FromTensor",
    "range()": "Range",
}
CHANGES = {
    "prefetch": "prefetch() at the end",
    "parallel_map": "parallel calls in {}",
    "parallel_read": "interleave() several {}",
    "cache": "cache() after {}",
    "warm_cache": "{} once filled",
    "vectorize": "batch() before {}",
    "free_input": "no tf.data work (lower bound)",
}
"""Changes with an estimate, in the terms of a program."""
_GUIDE = "https://www.tensorflow.org/guide/data_performance"
_ANALYSIS = "https://www.tensorflow.org/guide/data_performance_analysis"


def in_code(stage: str) -> str:
    """Return the name of a stage in the user's program."""
    return next((code for code, prefixes in _PREFIXES.items() if stage.startswith(prefixes)), stage)


def function_in_code(stage: str) -> str:
    """Return the call that passes the function to a stage; without one, the stage itself."""
    return in_code(stage).removesuffix(".batch()")


def change_in_code(change: str, stage: str | None) -> str:
    """Return a change of a stage as user code."""
    return CHANGES[change].format(function_in_code(stage) if stage else "")


class StageRule(Struct, frozen=True, kw_only=True):
    """Advice for a kind of stage.

    `why` and `action` may contain the placeholders of `words`; the first screen shows `action` up to the first
    semicolon. `code` is a kind of change if the change has an estimate.
    """

    code: str
    why: str
    action: str
    url: str = _ANALYSIS


_SEQUENTIAL_MAP = StageRule(
    code="parallel_map",
    why="calls run one at a time",
    action=(
        "map({f}, num_parallel_calls=tf.data.AUTOTUNE), with deterministic=False if order does not matter; no gain "
        "once all cores are busy, or if {f} is stateful"
    ),
    url=f"{_GUIDE}#parallelizing_data_transformation",
)
_PARALLEL_PYTHON = StageRule(
    code="parallel_map",
    why="calls of a {python} run one at a time",
    action=(
        "map({f}, num_parallel_calls=tf.data.AUTOTUNE); calls overlap only while {f} waits (network, disk) or "
        "releases the GIL (long NumPy calls), and otherwise run one at a time"
    ),
    url=f"{_GUIDE}#parallelizing_data_transformation",
)
_PYTHON = StageRule(
    code="python_function",
    why="a {python} holds the GIL, so parallel calls take turns",
    action=(
        "write {f} with TensorFlow ops (tf.io, tf.image, tf.strings); or do the deterministic part once, offline, "
        "and store the result"
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/py_function",
)
_READ_FILES = StageRule(
    code="parallel_read",
    why="one thread reads and unpacks",
    action=(
        "read several files at once: files.interleave({code}, num_parallel_calls=tf.data.AUTOTUNE), with "
        "deterministic=False if order does not matter; files is tf.data.Dataset.list_files(PATTERN): requires "
        "several files (split one large file) and mixes their elements; no gain if disk or network is the "
        "bottleneck: then move the data closer"
    ),
    url=f"{_GUIDE}#parallelizing_data_extraction",
)
_SEVERAL_GENERATORS = StageRule(
    code="parallel_read",
    why="one generator yields one element at a time",
    action=(
        "run several generators: tf.data.Dataset.range(4).interleave(lambda i: tf.data.Dataset.from_generator(g, "
        "args=(i,), ...), num_parallel_calls=4); each must yield a different part of the elements; the gain "
        "depends on how much they wait (network, disk), because Python runs one thread at a time"
    ),
    url=f"{_GUIDE}#parallelizing_data_extraction",
)
_INTERLEAVE = StageRule(
    code="interleave",
    why="it reads {together} inputs at a time",
    action="raise cycle_length, split large files{unordered}; no gain if disk or network is the bottleneck",
    url=f"{_GUIDE}#parallelizing_data_extraction",
)
_COPYING = StageRule(
    code="copying",
    why="it copies elements",
    action="use smaller types (uint8) and no padding; for tiny elements batch earlier, and map() on batches",
)
_RULES = {
    "Generator": StageRule(
        code="generator",
        why="Python yields one element at a time and holds the GIL",
        action=(
            "let the generator yield file names or ids and do the work with TensorFlow ops in map(..., "
            "num_parallel_calls=tf.data.AUTOTUNE), or write TFRecord files once"
        ),
        url="https://www.tensorflow.org/api_docs/python/tf/data/Dataset#from_generator",
    ),
    "DataService": StageRule(
        code="data_service",
        why="it waits for the workers of the data service",
        action="profile the workers (tfperf capture --worker HOST:PORT), or add workers; a slow network looks the same",
        url="https://www.tensorflow.org/api_docs/python/tf/data/experimental/service",
    ),
    "TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|ArrayRecord|Spanner|.*Remote": _READ_FILES,
    "FromTensor|TensorSlice|Range": StageRule(
        code="memory_source",
        why="it yields elements from memory",
        action=(
            "batch first, directly after shuffle(): from_tensor_slices(x).shuffle(m).batch(n); arrays used as a "
            "whole do not need tf.data"
        ),
    ),
    "Map|ParallelMap|ParseExample": StageRule(
        code="heavy_map",
        why="{together} calls run at the same time; the time is in the function",
        action=(
            "do less work per element: decode to the required size (decode_and_crop_jpeg, ratio=), stay in uint8, "
            "move arithmetic to the device; or do the deterministic part once, and store the result"
        ),
    ),
    "ParallelInterleave|LegacyParallelInterleave": _INTERLEAVE,
    "Interleave|FlatMap": StageRule(
        code="sequential_interleave",
        why="it reads one input at a time",
        action=(
            "interleave(f, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE) instead of {code}, if the order "
            "of elements may change; with deterministic=False, no single slow input blocks it"
        ),
        url=f"{_GUIDE}#parallelizing_data_extraction",
    ),
    "Filter|Unbatch|Rebatch": StageRule(
        code="serial_transformation",
        why="it runs in one thread, and {code} has no parallel version",
        action=(
            "run copies of the pipeline in parallel, tf.data.Dataset.range(4).interleave(lambda i: make(shard=i), "
            "num_parallel_calls=tf.data.AUTOTUNE); the order of elements changes; or do the deterministic part "
            "once, offline"
        ),
        url=f"{_GUIDE}#parallelizing_data_extraction",
    ),
    "ParallelBatch": _COPYING,
    ".*Batch": StageRule(
        code="serial_transformation",
        why="one thread copies elements",
        action=f"batch(n, num_parallel_calls=tf.data.AUTOTUNE) (TensorFlow 2.5 or later); {_COPYING.action}",
        url="https://www.tensorflow.org/api_docs/python/tf/data/Dataset#batch",
    ),
    ".*Shuffle": StageRule(
        code="shuffle",
        why="it fills its buffer, or copies elements",
        action=(
            "shuffle file names or ids, not decoded elements; a smaller buffer shuffles less; the buffer fills "
            "first, so profile later"
        ),
        url="https://www.tensorflow.org/api_docs/python/tf/data/Dataset#shuffle",
    ),
    ".*Cache": StageRule(
        code="cache_cold",
        why="it is still writing or reading its elements",
        action="profile after the first epoch; for cache(FILE), put the file on a local disk, or cache in memory",
        url=f"{_GUIDE}#caching",
    ),
}
PREFETCH = StageRule(
    code="prefetch",
    why="The pipeline does not overlap the step: {code} runs in the step's thread, so they take turns.",
    action=("end the pipeline with .prefetch(tf.data.AUTOTUNE); gains less if the pipeline takes longer than the step"),
    url=f"{_GUIDE}#prefetching",
)
CACHE = StageRule(
    code="cache",
    why="The output of {part} is recomputed in every epoch and could be cached.",
    action=(
        "{changed}, from the second epoch on{if_same}; all elements of an epoch{size} must fit in memory "
        "(cache(FILE): on a disk); keep random steps (shuffle, augmentation) after the cache; files stay in the "
        "order of the first epoch"
    ),
    url=f"{_GUIDE}#caching",
)
WARM_CACHE = StageRule(
    code="warm_cache",
    why="{code} is not yet filled, as in a first epoch.",
    action=(
        "profile from the second epoch on, once {code} is filled: tfperf run --steps A..B; if it never fills, "
        "epochs do not read its input to the end: put take() before it, and repeat() after it"
    ),
    url=f"{_GUIDE}#caching",
)
SPLIT_TO_CACHE = StageRule(
    code="split_to_cache",
    why="The function of {name} has random ops, and a cache after it would repeat their results in every epoch.",
    action=(
        "{changed}, {f}2 the random part of {f}, from the second epoch on; {f}1 is the deterministic part; all "
        "elements of an epoch must fit in memory (cache(FILE): on a disk)"
    ),
    url=f"{_GUIDE}#caching",
)
VECTORIZE = StageRule(
    code="vectorize",
    why="{name} runs its function {runs} times, on single elements, so much of its time is overhead.",
    action=(
        "run {f} on batches: {changed}; elements must have the same shape, and random numbers must be drawn per "
        "element, not per batch"
    ),
    url=f"{_GUIDE}#vectorizing_mapping",
)
LESS_WORK = StageRule(
    code="less_work",
    why="Pipeline threads compete with the step for cores.",
    action=(
        "do less work per element (decode to the required size, stay in uint8); or do the deterministic part once "
        "and store the result, or make batches on other machines with tf.data.experimental.service"
    ),
    url="https://www.tensorflow.org/guide/data_performance_analysis",
)
FULL_CPU = StageRule(
    code="host_cpu_full",
    why="While steps wait, all {cores} cores of the host are busy, so more threads cannot help.",
    action=(
        "do less work per element, move work to the device, or spread it over other machines with "
        "tf.data.experimental.service; that pays off if they cost less than a waiting accelerator; with an older "
        "TensorFlow, set options.threading.max_intra_op_parallelism = 1, so that parallel calls do not also split "
        "their ops"
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/data/experimental/service",
)


REFILL = StageRule(
    code="shuffle",
    why="its buffer is filled before the first batch of each epoch",
    action=(
        "use a smaller shuffle buffer, or shuffle file names or ids, not decoded elements; a smaller buffer "
        "shuffles less; with longer epochs, ds.repeat().shuffle(n) and fit(steps_per_epoch=N), it fills less often"
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/data/Dataset#shuffle",
)
KERAS_ARRAYS = StageRule(
    code="memory_source",
    why="Keras makes these batches from arrays in memory.",
    action=(
        "use smaller types (float32 or uint8, not float64) and larger batches; or pass fit() a tf.data.Dataset "
        "that batches first: from_tensor_slices((x, y)).shuffle(n).batch(m).prefetch(tf.data.AUTOTUNE)"
    ),
    url="https://www.tensorflow.org/guide/data",
)
_BARE_GENERATOR = StageRule(
    code="generator",
    why="Python makes one batch at a time and holds the GIL",
    action=(
        "for a keras.utils.PyDataset: workers=4, max_queue_size=20, and use_multiprocessing=True if it computes in "
        "Python; for your own generator: yield file names or ids, and do the work with TensorFlow ops in map(..., "
        "num_parallel_calls=tf.data.AUTOTUNE), or write TFRecord files once"
    ),
    url="https://keras.io/api/utils/python_utils/#pydataset-class",
)


def words(pipeline: Pipeline, index: int | None, change: str = "") -> dict[str, str]:
    """Return the placeholders for a stage; for the whole pipeline (None), of its outermost significant stage."""
    if index is None:
        index = next((number for number, stage in enumerate(pipeline.stages) if stage.depth == 1), 0)
    stage = pipeline.stages[index]
    consumers = (pipeline.stages[each] for each in pipeline.consumers(index))
    keeps_order = any("Interleave" in each.name and each.deterministic is not False for each in consumers)
    changed = changed_code(pipeline, change, index)
    size = "" if changed is None or change != "cache" else cache_size(pipeline, changed)
    functions = [call.function for call in calls_of(pipeline, index) if call.stage == index and call.function]
    return {
        "f": functions[0] if functions else "f",
        "part": function_in_code(stage.name),
        "changed": "" if changed is None else changed.short,
        "size": f", {size}," if size else "",
        "if_same": "" if changed is None else if_same(pipeline, changed),
        "name": stage.name,
        "code": in_code(stage.name),
        "python": stage.python,
        "together": str(pipeline.workers(index)),
        "unordered": ", pass deterministic=False if order does not matter" * keeps_order,
        "runs": f"{stage.runs:,}",
        "cores": str(pipeline.cores),
    }


def rule_for(pipeline: Pipeline, index: int) -> StageRule | None:
    """Return the advice for a stage as it is; None if its kind has none."""
    stage = pipeline.stages[index]
    if stage.python and stage.name != "Generator":
        return _PYTHON
    if pipeline.is_bare_generator and stage.name == "Generator":
        return _BARE_GENERATOR
    rule = next((rule for names, rule in _RULES.items() if re.match(names, stage.name)), None)
    if pipeline.next_batch_size(index) and pipeline.is_mostly_overhead(index):
        return VECTORIZE
    if rule is not None and rule.code == "heavy_map" and pipeline.is_sequential(index):
        return _SEQUENTIAL_MAP
    reads_several = any("ParallelInterleave" in pipeline.stages[each].name for each in pipeline.consumers(index))
    return _INTERLEAVE if rule is _READ_FILES and reads_several else rule


def rule_of_change(pipeline: Pipeline, change: str, index: int | None) -> StageRule:
    """Return the advice for a change that has an estimate."""
    if change == "parallel_map":
        return _PARALLEL_PYTHON if index is not None and pipeline.stages[index].python else _SEQUENTIAL_MAP
    if change == "parallel_read":
        is_generator = index is not None and pipeline.stages[index].name == "Generator"
        return _SEVERAL_GENERATORS if is_generator else _READ_FILES
    return {"prefetch": PREFETCH, "cache": CACHE, "warm_cache": WARM_CACHE, "vectorize": VECTORIZE}[change]
