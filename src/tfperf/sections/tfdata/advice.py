"""What to change in a tf.data pipeline: for each kind of stage the change in code, and when it does not help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tfperf.sections.tfdata.pipeline import Pipeline, StageStats
from tfperf.sections.overview.summary import INPUT_LIMITS
from tfperf.sections.tfdata.whatif import Estimate, Outlook

from tfperf.report.model import Finding, Severity
from tfperf.units import PS_PER_MS, format_ms

_FULL_CPU = 0.85
_WORTH_IT = 0.9
_IN_CODE = (
    ("MapAndBatch", "map().batch()"), ("ParallelMap", "map()"), ("Map", "map()"),
    ("ParallelInterleave", "interleave()"), ("Interleave", "interleave()"), ("FlatMap", "flat_map()"),
    ("ParallelBatch", "batch()"), ("PaddedBatch", "padded_batch()"), ("Batch", "batch()"),
    ("ShuffleAndRepeat", "shuffle().repeat()"),
    ("Shuffle", "shuffle()"), ("Filter", "filter()"), ("Unbatch", "unbatch()"), ("MemoryCache", "cache()"),
    ("FileCache", "cache()"), ("Zip", "zip()"), ("Generator", "from_generator()"), ("ForeverRepeat", "repeat()"),
    ("FiniteRepeat", "repeat()"), ("Prefetch", "prefetch()"), ("TFRecord", "TFRecordDataset"),
    ("TextLine", "TextLineDataset"), ("FixedLengthRecord", "FixedLengthRecordDataset"),
    ("TensorSlice", "from_tensor_slices()"), ("FromTensor", "from_tensors()"), ("Range", "range()"),
)  # fmt: skip


class _Rule(NamedTuple):
    """Advice for stages of these names: why this one is slow, the change, and when it does not help."""

    names: str
    code: str
    why: str
    action: str
    change: str = ""
    """The key of the estimate that goes with it."""


_SEQUENTIAL_MAP = _Rule(
    "", "sequential_map", "one call after the other",
    "map(f, num_parallel_calls=tf.data.AUTOTUNE), with deterministic=False where order does not matter; no help once "
    "all cores are busy, or if f keeps a state that forces an order",
    "parallel_map",
)  # fmt: skip
_PYTHON = _Rule(
    "", "python_function", "in a {python}, which holds Python's interpreter lock: parallel calls take turns",
    "write the function with TensorFlow ops (tf.io, tf.image, tf.strings), or do the work once, offline; "
    "num_parallel_calls helps only as far as the function waits or lets go of the lock (NumPy, I/O)",
    "parallel_map",
)  # fmt: skip
_RULES = (
    _Rule(
        "Generator", "generator", "in Python, one element at a time: it holds the interpreter lock",
        "let the generator yield file names or ids and do the work in map(..., num_parallel_calls=tf.data.AUTOTUNE) "
        "with TensorFlow ops, or write TFRecord files once; where it waits (network), several in interleave() overlap",
    ),
    _Rule(
        "DataService", "data_service", "waiting for the workers of the data service",
        "profile the workers (tfperf capture --worker HOST:PORT for each), or add workers; a slow network between them "
        "and this host looks the same",
    ),
    _Rule(
        "TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|ArrayRecord|Spanner|.*Remote", "slow_source",
        "reading and unpacking in one thread",
        "read several files at once: tf.data.Dataset.list_files(PATTERN).interleave({code}, "
        "num_parallel_calls=tf.data.AUTOTUNE, deterministic=False); needs several files (split one large file), no "
        "help where disk or network is the limit: then move the data closer, or cache() it", "parallel_read",
    ),
    _Rule(
        "FromTensor|TensorSlice|Range", "memory_source", "handing out what is in memory",
        "batch before anything else, so that slices are larger: from_tensor_slices(x).batch(n); arrays that are used "
        "whole need no tf.data",
    ),
    _Rule(
        "Map|ParallelMap|ParseExample", "heavy_map", "{together} calls at a time: its function itself is the work",
        "do less for each element: decode to the size that is needed (decode_and_crop_jpeg, ratio=), stay in uint8, "
        "move arithmetic to the device, or do it once and store the result; with free cores raise num_parallel_calls",
    ),
    _Rule(
        "ParallelInterleave|LegacyParallelInterleave", "interleave", "{together} inputs at a time",
        "raise cycle_length (more files at once), split large files into more shards, pass deterministic=False; no "
        "help where disk or network is the limit",
    ),
    _Rule(
        "Interleave|FlatMap", "sequential_interleave", "one input after the other",
        "interleave(f, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False) instead of {code}; "
        "keep the order if training depends on it",
    ),
    _Rule(
        "Filter|Unbatch|Rebatch", "serial_transformation", "in one thread; {code} has no parallel form",
        "run copies of the pipeline side by side, tf.data.Dataset.range(4).interleave(lambda i: make(shard=i), "
        "num_parallel_calls=tf.data.AUTOTUNE), or do it once, offline",
    ),
    _Rule(
        ".*Batch", "serial_transformation", "copying elements in one thread",
        "batch(n, num_parallel_calls=tf.data.AUTOTUNE); smaller types (uint8) and no padding help too; for tiny "
        "elements batch earlier and map() on batches",
    ),
    _Rule(
        ".*Shuffle", "shuffle", "filling its buffer, or copying",
        "shuffle file names and ids instead of decoded elements, or make the buffer smaller; in the first seconds of "
        "an epoch it only fills: profile later",
    ),
    _Rule(
        ".*Cache", "cache_cold", "still writing or reading what it keeps",
        "profile after the first epoch; for cache(FILE) put the file on a local disk, or keep it in memory",
    ),
)  # fmt: skip
_PREFETCH_ACTION = (
    "end the pipeline with .prefetch(tf.data.AUTOTUNE); it buys less where the pipeline takes longer than the step"
)
_CACHE_ACTION = (
    "put .cache() behind {code}, and what is random (shuffle, augmentation) behind the cache; only where the elements "
    "fit into memory (or cache(FILE) on a local disk), and only from the second epoch on"
)
_VECTORIZE_ACTION = (
    "batch first and let the function work on batches: .batch(n).map(f); f must be written for a batch, and elements "
    "must have the same shape"
)
_FULL_CPU_ACTION = (
    "do less work for each element, cache(), move work to the device, or spread it over other machines with "
    "tf.data.experimental.service, which pays where those are cheaper than a waiting accelerator; with an older "
    "TensorFlow set options.threading.max_intra_op_parallelism = 1, so that parallel calls do not split their ops too"
)


def in_code(stage: StageStats) -> str:
    """Return what a stage is called in the user's program."""
    return next((code for name, code in _IN_CODE if stage.name.startswith(name)), stage.name)


def pipeline_advice(pipeline: Pipeline, outlook: Outlook | None) -> tuple[Finding, ...]:
    """Return what to change, the most promising first; nothing for a pipeline that keeps nobody waiting."""
    outlook = outlook if outlook and outlook.pipeline is pipeline else None
    if not (outlook.input_percent >= INPUT_LIMITS[0] if outlook else pipeline.slow_calls):
        return ()
    advice = list(_prefetch_advice(pipeline, outlook))
    for index in dict.fromkeys((pipeline.limiting, pipeline.blocking)):
        if index is not None:
            advice += _stage_advice(pipeline, index, outlook)
    advice += _less_work_advice(outlook)
    if (busy_share(pipeline) or 0.0) >= _FULL_CPU:
        text = f"The pipeline keeps the {pipeline.cores} cores of the host busy: more threads buy nothing."
        advice.append(Finding("host_cpu_full", "hint", text, _FULL_CPU_ACTION))
    return tuple(dict.fromkeys(advice))


def busy_share(pipeline: Pipeline) -> float | None:
    """Return the share of the host's cores that the pipeline keeps busy (more than 1: its threads wait for cores)."""
    if not pipeline.cores or not pipeline.span_ps:
        return None
    return pipeline.cpu_ps / (pipeline.cores * pipeline.span_ps)


def _gain(outlook: Outlook | None, change: str, index: int | None) -> str:
    """Return what the estimate for this change says, in words."""
    found = (own for own in outlook.estimates if (own.change, own.stage) == (change, index)) if outlook else iter(())
    return next((f" Estimated step time then: {_range(own)}." for own in found), "")


def _range(own: Estimate) -> str:
    return f"{format_ms(own.low_ms)} to {format_ms(own.high_ms)} ms"


def _prefetch_advice(pipeline: Pipeline, outlook: Outlook | None) -> Iterator[Finding]:
    if pipeline.final_prefetch is None:
        outer = next((in_code(stage) for stage in pipeline.stages if stage.depth == 1), "it")
        text = f"Nothing decouples the pipeline from the step: {outer} works in the step's thread, so they take turns."
        yield Finding("no_prefetch", "problem", text + _gain(outlook, "prefetch", None), _PREFETCH_ACTION)


def _stage_advice(pipeline: Pipeline, index: int, outlook: Outlook | None) -> Iterator[Finding]:
    stage = pipeline.stages[index]
    rule = _rule(pipeline, index)
    if rule is None:
        return
    severity: Severity = "problem" if index == pipeline.limiting else "hint"
    words = {"code": in_code(stage), "python": stage.python, "together": str(workers(pipeline, index))}
    takes = f"{stage.name} takes {format_ms((stage.element_ps or 0.0) / PS_PER_MS)} ms for an element of the pipeline"
    gain = _gain(outlook, rule.change, index) if rule.change else ""
    yield Finding(rule.code, severity, f"{takes}, {rule.why.format(**words)}.{gain}", rule.action.format(**words))


def _rule(pipeline: Pipeline, index: int) -> _Rule | None:
    stage = pipeline.stages[index]
    if stage.python and stage.name != "Generator":
        return _PYTHON
    found = next((rule for rule in _RULES if re.match(rule.names, stage.name)), None)
    alone = workers(pipeline, index) == 1 and not stage.autotuned
    return _SEQUENTIAL_MAP if found is not None and found.code == "heavy_map" and alone else found


def workers(pipeline: Pipeline, index: int) -> int:
    """Return how many threads do the work of a stage."""
    return max((own.workers for own in pipeline.sections if index in own.stages), default=1)


def _less_work_advice(outlook: Outlook | None) -> Iterator[Finding]:
    """Advise what takes work away altogether."""
    for own in outlook.estimates if outlook else ():
        if own.stage is None or outlook is None:
            continue
        stage = outlook.pipeline.stages[own.stage]
        then = f" Estimated step time then: {_range(own)}."
        if own.change == "cache":
            text = f"What {in_code(stage)} makes could be kept instead of made again in every epoch.{then}"
            yield Finding("cache", "hint", text, _CACHE_ACTION.format(code=in_code(stage)))
        elif own.change == "vectorize" and own.high_ms < _WORTH_IT * outlook.step_ms:
            text = f"{stage.name} runs its function {stage.runs:,} times, for single elements: much of it is overhead."
            text += then
            yield Finding("vectorize", "hint", text, _VECTORIZE_ACTION)
