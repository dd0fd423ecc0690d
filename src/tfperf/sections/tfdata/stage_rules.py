"""For each kind of stage: its name in code, why it is slow, the change in code, and when that does not help."""

from __future__ import annotations

import re

from msgspec import Struct

from tfperf.sections.tfdata.pipeline import Pipeline

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
_CHANGES = {
    "prefetch": "prefetch() at the end",
    "parallel_map": "parallel calls in {}",
    "parallel_read": "interleave() several {}",
    "cache": "cache() behind {}",
    "vectorize": "batch() before {}",
}


def in_code(stage: str) -> str:
    """Return what a stage of this name is called in the user's program."""
    return next((code for code, prefixes in _PREFIXES.items() if stage.startswith(prefixes)), stage)


def change_in_code(change: str, stage: str | None) -> str:
    """Return a change of a stage of this name as the user would make it."""
    return _CHANGES[change].format(in_code(stage) if stage else "")


class StageRule(Struct, frozen=True, kw_only=True):
    """Advice for a kind of stage.

    `why` and `action` may hold `{code}` (the stage in the user's program), `{python}` (how its function runs Python)
    and `{together}` (how many threads work for it).
    """

    code: str
    why: str
    action: str
    change: str = ""
    """The kind of change whose estimate goes with it."""


_SEQUENTIAL_MAP = StageRule(
    code="sequential_map",
    why="one call after the other",
    action=(
        "map(f, num_parallel_calls=tf.data.AUTOTUNE), with deterministic=False where order does not matter; does not "
        "help once all cores are busy, or if f keeps a state that forces an order"
    ),
    change="parallel_map",
)
_PYTHON = StageRule(
    code="python_function",
    why="in a {python}, which holds Python's interpreter lock: parallel calls take turns",
    action=(
        "write the function with TensorFlow ops (tf.io, tf.image, tf.strings), or do the work once, offline; "
        "num_parallel_calls helps only as far as the function waits or releases the lock (NumPy, I/O)"
    ),
    change="parallel_map",
)
_RULES = {
    "Generator": StageRule(
        code="generator",
        why="in Python, one element at a time: it holds the interpreter lock",
        action=(
            "let the generator yield file names or ids and do the work with TensorFlow ops in map(..., "
            "num_parallel_calls=tf.data.AUTOTUNE), or write TFRecord files once; where it waits (network), several in "
            "interleave() overlap"
        ),
    ),
    "DataService": StageRule(
        code="data_service",
        why="waiting for the workers of the data service",
        action="profile the workers (tfperf capture --worker HOST:PORT), or add some; a slow network looks the same",
    ),
    "TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|ArrayRecord|Spanner|.*Remote": StageRule(
        code="slow_source",
        why="reading and unpacking in one thread",
        action=(
            "read several files at once: tf.data.Dataset.list_files(PATTERN).interleave({code}, "
            "num_parallel_calls=tf.data.AUTOTUNE, deterministic=False); needs several files (split one large file); "
            "does not help where disk or network is the limit: then move the data closer, or cache() it"
        ),
        change="parallel_read",
    ),
    "FromTensor|TensorSlice|Range": StageRule(
        code="memory_source",
        why="handing out what is in memory",
        action="batch before anything else: from_tensor_slices(x).batch(n); arrays used whole need no tf.data",
    ),
    "Map|ParallelMap|ParseExample": StageRule(
        code="heavy_map",
        why="{together} calls at a time: its function itself is the work",
        action=(
            "do less for each element: decode to the size that is needed (decode_and_crop_jpeg, ratio=), stay in "
            "uint8, move arithmetic to the device, or do it once and store the result; with free cores raise "
            "num_parallel_calls"
        ),
    ),
    "ParallelInterleave|LegacyParallelInterleave": StageRule(
        code="interleave",
        why="{together} inputs at a time",
        action="raise cycle_length, split large files, pass deterministic=False; no help if disk or network limits",
    ),
    "Interleave|FlatMap": StageRule(
        code="sequential_interleave",
        why="one input after the other",
        action=(
            "interleave(f, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False) instead of "
            "{code}; keep the order if training depends on it"
        ),
    ),
    "Filter|Unbatch|Rebatch": StageRule(
        code="serial_transformation",
        why="in one thread; {code} has no parallel form",
        action=(
            "run copies of the pipeline side by side, tf.data.Dataset.range(4).interleave(lambda i: make(shard=i), "
            "num_parallel_calls=tf.data.AUTOTUNE), or do it once, offline"
        ),
    ),
    ".*Batch": StageRule(
        code="serial_transformation",
        why="copying elements in one thread",
        action=(
            "batch(n, num_parallel_calls=tf.data.AUTOTUNE); smaller types (uint8) and no padding help too; for tiny "
            "elements batch earlier and map() on batches"
        ),
    ),
    ".*Shuffle": StageRule(
        code="shuffle",
        why="filling its buffer, or copying",
        action="shuffle file names or ids, not decoded elements, or fewer at once; it fills first: profile later",
    ),
    ".*Cache": StageRule(
        code="cache_cold",
        why="still writing or reading what it keeps",
        action="profile after the first epoch; for cache(FILE) put the file on a local disk, or keep it in memory",
    ),
}


def rule_for(pipeline: Pipeline, index: int) -> StageRule | None:
    """Return the advice for a stage; None if there is none for its kind."""
    stage = pipeline.stages[index]
    if stage.python and stage.name != "Generator":
        return _PYTHON
    rule = next((rule for names, rule in _RULES.items() if re.match(names, stage.name)), None)
    is_sequential = pipeline.workers(index) == 1 and not stage.autotuned
    return _SEQUENTIAL_MAP if rule is not None and rule.code == "heavy_map" and is_sequential else rule
