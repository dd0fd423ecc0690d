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
    "warm_cache": "{} once it is full",
    "vectorize": "batch() before {}",
    "free_input": "input for free (the floor)",
}
_GUIDE = "https://www.tensorflow.org/guide/data_performance"
_ANALYSIS = "https://www.tensorflow.org/guide/data_performance_analysis"


def in_code(stage: str) -> str:
    """Return what a stage of this name is called in the user's program."""
    return next((code for code, prefixes in _PREFIXES.items() if stage.startswith(prefixes)), stage)


def change_in_code(change: str, stage: str | None) -> str:
    """Return a change of a stage of this name as the user would make it."""
    return _CHANGES[change].format(in_code(stage) if stage else "")


class StageRule(Struct, frozen=True, kw_only=True):
    """Advice for a kind of stage.

    `why` and `action` may hold what `words` returns. `code` is a kind of change if the change has an estimate.
    """

    code: str
    why: str
    action: str
    url: str = _ANALYSIS


_SEQUENTIAL_MAP = StageRule(
    code="parallel_map",
    why="one call after the other",
    action=(
        "map(f, num_parallel_calls=tf.data.AUTOTUNE), with deterministic=False where order does not matter; does not "
        "help once all cores are busy, or if f keeps a state that forces an order"
    ),
    url=f"{_GUIDE}#parallelizing_data_transformation",
)
_PARALLEL_PYTHON = StageRule(
    code="parallel_map",
    why="one call of a {python} after the other",
    action=(
        "map(f, num_parallel_calls=tf.data.AUTOTUNE); it helps as far as f waits (network, disk) or releases Python's "
        "interpreter lock (NumPy)"
    ),
    url=f"{_GUIDE}#parallelizing_data_transformation",
)
_PYTHON = StageRule(
    code="python_function",
    why="in a {python}, which holds Python's interpreter lock: parallel calls take turns",
    action="write the function with TensorFlow ops (tf.io, tf.image, tf.strings), or do the work once, offline",
    url="https://www.tensorflow.org/api_docs/python/tf/py_function",
)
_READ_FILES = StageRule(
    code="parallel_read",
    why="reading and unpacking in one thread",
    action=(
        "read several files at once: tf.data.Dataset.list_files(PATTERN).interleave({code}, "
        "num_parallel_calls=tf.data.AUTOTUNE, deterministic=False); needs several files (split one large file); "
        "does not help where disk or network is the limit: then move the data closer, or cache() it"
    ),
    url=f"{_GUIDE}#parallelizing_data_extraction",
)
_SEVERAL_GENERATORS = StageRule(
    code="parallel_read",
    why="one generator, one element at a time",
    action=(
        "run several generators: tf.data.Dataset.range(4).interleave(lambda i: tf.data.Dataset.from_generator(g, "
        "args=(i,), ...), num_parallel_calls=4); it helps as far as they wait (network, disk), for Python runs one "
        "thread at a time"
    ),
    url=f"{_GUIDE}#parallelizing_data_extraction",
)
_INTERLEAVE = StageRule(
    code="interleave",
    why="{together} inputs at a time",
    action="raise cycle_length, split large files{unordered}; no help if disk or network limits",
    url=f"{_GUIDE}#parallelizing_data_extraction",
)
_COPYING = StageRule(
    code="copying",
    why="copying elements",
    action="use smaller types (uint8) and no padding; for tiny elements batch earlier, and map() on batches",
)
_RULES = {
    "Generator": StageRule(
        code="generator",
        why="in Python, one element at a time: it holds the interpreter lock",
        action=(
            "let the generator yield file names or ids and do the work with TensorFlow ops in map(..., "
            "num_parallel_calls=tf.data.AUTOTUNE), or write TFRecord files once"
        ),
        url="https://www.tensorflow.org/api_docs/python/tf/data/Dataset#from_generator",
    ),
    "DataService": StageRule(
        code="data_service",
        why="waiting for the workers of the data service",
        action="profile the workers (tfperf capture --worker HOST:PORT), or add some; a slow network looks the same",
        url="https://www.tensorflow.org/api_docs/python/tf/data/experimental/service",
    ),
    "TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|LMDB|ArrayRecord|Spanner|.*Remote": _READ_FILES,
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
            "uint8, move arithmetic to the device, or do it once and store the result"
        ),
    ),
    "ParallelInterleave|LegacyParallelInterleave": _INTERLEAVE,
    "Interleave|FlatMap": StageRule(
        code="sequential_interleave",
        why="one input after the other",
        action=(
            "interleave(f, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False) instead of "
            "{code}; keep the order if training depends on it"
        ),
        url=f"{_GUIDE}#parallelizing_data_extraction",
    ),
    "Filter|Unbatch|Rebatch": StageRule(
        code="serial_transformation",
        why="in one thread; {code} has no parallel form",
        action=(
            "run copies of the pipeline side by side, tf.data.Dataset.range(4).interleave(lambda i: make(shard=i), "
            "num_parallel_calls=tf.data.AUTOTUNE), or do it once, offline"
        ),
        url=f"{_GUIDE}#parallelizing_data_extraction",
    ),
    "ParallelBatch": _COPYING,
    ".*Batch": StageRule(
        code="serial_transformation",
        why="copying elements in one thread",
        action=f"batch(n, num_parallel_calls=tf.data.AUTOTUNE); {_COPYING.action}",
        url="https://www.tensorflow.org/api_docs/python/tf/data/Dataset#batch",
    ),
    ".*Shuffle": StageRule(
        code="shuffle",
        why="filling its buffer, or copying",
        action="shuffle file names or ids, not decoded elements, or fewer at once; it fills first: profile later",
        url="https://www.tensorflow.org/api_docs/python/tf/data/Dataset#shuffle",
    ),
    ".*Cache": StageRule(
        code="cache_cold",
        why="still writing or reading what it keeps",
        action="profile after the first epoch; for cache(FILE) put the file on a local disk, or keep it in memory",
        url=f"{_GUIDE}#caching",
    ),
}
PREFETCH = StageRule(
    code="prefetch",
    why="Nothing decouples the pipeline from the step: {code} works in the step's thread, so they take turns.",
    action=(
        "end the pipeline with .prefetch(tf.data.AUTOTUNE); it gains less where the pipeline takes longer than the step"
    ),
    url=f"{_GUIDE}#prefetching",
)
CACHE = StageRule(
    code="cache",
    why="What {code} makes could be kept instead of made again in every epoch.",
    action=(
        "put .cache() behind {code}, and what is random (shuffle, augmentation) behind the cache; only where the "
        "elements fit into memory (or cache(FILE) on a local disk), and only from the second epoch on"
    ),
    url=f"{_GUIDE}#caching",
)
WARM_CACHE = StageRule(
    code="warm_cache",
    why="{code} is not full yet, as in a first epoch.",
    action=(
        "profile from the second epoch on, when {code} is full: tfperf run --steps A..B; if it never gets full, epochs "
        "do not read its input to the end (take() belongs before it, not behind)"
    ),
    url=f"{_GUIDE}#caching",
)
SPLIT_TO_CACHE = StageRule(
    code="split_to_cache",
    why="{name} has random ops in its function: a cache behind it would repeat their results in every epoch.",
    action=(
        "split the function of {code}: .cache() behind the part that is the same in every epoch (reading, decoding), "
        "and the random part in a map() behind the cache"
    ),
    url=f"{_GUIDE}#caching",
)
VECTORIZE = StageRule(
    code="vectorize",
    why="{name} runs its function {runs} times, for single elements: much of it is overhead.",
    action="let the function work on batches: .batch(n).map(f); elements must have the same shape",
    url=f"{_GUIDE}#vectorizing_mapping",
)
LESS_WORK = StageRule(
    code="less_work",
    why="The threads of the pipeline use the cores that the step needs.",
    action=(
        "do less work for each element (decode to the size that is needed, stay in uint8), or do it once and store the "
        "result; or make batches on other machines with tf.data.experimental.service"
    ),
    url="https://www.tensorflow.org/guide/data_performance_analysis",
)
FULL_CPU = StageRule(
    code="host_cpu_full",
    why="While steps wait, the {cores} cores of the host compute: more threads gain nothing.",
    action=(
        "do less work for each element, cache(), move work to the device, or spread it over other machines with "
        "tf.data.experimental.service, which pays off where those are cheaper than a waiting accelerator; with an "
        "older TensorFlow set options.threading.max_intra_op_parallelism = 1, so that parallel calls do not split "
        "their ops too"
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/data/experimental/service",
)


def words(pipeline: Pipeline, index: int | None) -> dict[str, str]:
    """Return what stands in rules for a stage; for the whole pipeline (None) its outermost stage of use is meant."""
    if index is None:
        index = next((number for number, stage in enumerate(pipeline.stages) if stage.depth == 1), 0)
    stage = pipeline.stages[index]
    consumers = (pipeline.stages[each] for each in pipeline.consumers(index))
    keeps_order = any("Interleave" in each.name and each.deterministic is not False for each in consumers)
    return {
        "name": stage.name,
        "code": in_code(stage.name),
        "python": stage.python,
        "together": str(pipeline.workers(index)),
        "unordered": ", pass deterministic=False" * keeps_order,
        "runs": f"{stage.runs:,}",
        "cores": str(pipeline.cores),
    }


def rule_for(pipeline: Pipeline, index: int) -> StageRule | None:
    """Return the advice for a stage as it is; None if there is none for its kind."""
    stage = pipeline.stages[index]
    if stage.python and stage.name != "Generator":
        return _PYTHON
    rule = next((rule for names, rule in _RULES.items() if re.match(names, stage.name)), None)
    if rule is not None and rule.code == "heavy_map" and pipeline.is_sequential(index):
        return _SEQUENTIAL_MAP
    reads_several = any("ParallelInterleave" in pipeline.stages[each].name for each in pipeline.consumers(index))
    return _INTERLEAVE if rule is _READ_FILES and reads_several else rule


def rule_of_change(pipeline: Pipeline, change: str, index: int | None) -> StageRule:
    """Return the advice to make a change that has an estimate."""
    if change == "parallel_map":
        return _PARALLEL_PYTHON if index is not None and pipeline.stages[index].python else _SEQUENTIAL_MAP
    if change == "parallel_read":
        is_generator = index is not None and pipeline.stages[index].name == "Generator"
        return _SEVERAL_GENERATORS if is_generator else _READ_FILES
    return {"prefetch": PREFETCH, "cache": CACHE, "warm_cache": WARM_CACHE, "vectorize": VECTORIZE}[change]
