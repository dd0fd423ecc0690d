"""For each kind of stage: its name in code, why it is slow, the change in code, and when that does not help."""

from __future__ import annotations

import re

from msgspec import Struct

from tfperf.sections.tfdata.pipeline import Pipeline
from tfperf.sections.tfdata.pipeline_code import cache_size, calls_of, changed_code, if_same

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
    "cache": "cache() after {}",
    "warm_cache": "{} once it is full",
    "vectorize": "batch() before {}",
    "free_input": "input for free (the floor)",
}
_GUIDE = "https://www.tensorflow.org/guide/data_performance"
_ANALYSIS = "https://www.tensorflow.org/guide/data_performance_analysis"


def in_code(stage: str) -> str:
    """Return what a stage of this name is called in the user's program."""
    return next((code for code, prefixes in _PREFIXES.items() if stage.startswith(prefixes)), stage)


def function_in_code(stage: str) -> str:
    """Return the call of the program that gives a stage of this name its function; the stage itself without one."""
    return in_code(stage).removesuffix(".batch()")


def change_in_code(change: str, stage: str | None) -> str:
    """Return a change of a stage of this name as the user would make it."""
    return _CHANGES[change].format(function_in_code(stage) if stage else "")


class StageRule(Struct, frozen=True, kw_only=True):
    """Advice for a kind of stage.

    `why` and `action` may hold what `words` returns; the first screen shows `action` up to the first semicolon. `code`
    is a kind of change if the change has an estimate.
    """

    code: str
    why: str
    action: str
    url: str = _ANALYSIS


_SEQUENTIAL_MAP = StageRule(
    code="parallel_map",
    why="one call after the other",
    action=(
        "map({f}, num_parallel_calls=tf.data.AUTOTUNE), with deterministic=False where order does not matter; it does "
        "not help once all cores are busy, or if {f} keeps a state that forces an order"
    ),
    url=f"{_GUIDE}#parallelizing_data_transformation",
)
_PARALLEL_PYTHON = StageRule(
    code="parallel_map",
    why="one call of a {python} after the other",
    action=(
        "map({f}, num_parallel_calls=tf.data.AUTOTUNE); calls run in parallel as far as {f} waits (network, disk) or "
        "releases Python's interpreter lock, as long calls of NumPy do, and all else runs one call at a time"
    ),
    url=f"{_GUIDE}#parallelizing_data_transformation",
)
_PYTHON = StageRule(
    code="python_function",
    why="in a {python}, which holds Python's interpreter lock: parallel calls take turns",
    action=(
        "write {f} with TensorFlow ops (tf.io, tf.image, tf.strings); or do what is not random once, offline, and "
        "store the result"
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/py_function",
)
_READ_FILES = StageRule(
    code="parallel_read",
    why="reading and unpacking in one thread",
    action=(
        "read several files at once: files.interleave({code}, num_parallel_calls=tf.data.AUTOTUNE), with "
        "deterministic=False where order does not matter; files is tf.data.Dataset.list_files(PATTERN): it needs "
        "several files (split one large file) and mixes their elements; it does not help where disk or network is the "
        "limit: then move the data closer"
    ),
    url=f"{_GUIDE}#parallelizing_data_extraction",
)
_SEVERAL_GENERATORS = StageRule(
    code="parallel_read",
    why="one generator, one element at a time",
    action=(
        "run several generators: tf.data.Dataset.range(4).interleave(lambda i: tf.data.Dataset.from_generator(g, "
        "args=(i,), ...), num_parallel_calls=4); each must yield a part of the elements of its own; it helps as far "
        "as they wait (network, disk), because Python runs one thread at a time"
    ),
    url=f"{_GUIDE}#parallelizing_data_extraction",
)
_INTERLEAVE = StageRule(
    code="interleave",
    why="{together} inputs at a time",
    action="raise cycle_length, split large files{unordered}; it does not help if disk or network limits",
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
        action=(
            "batch before anything else but shuffle(): from_tensor_slices(x).shuffle(m).batch(n); arrays used whole "
            "need no tf.data"
        ),
    ),
    "Map|ParallelMap|ParseExample": StageRule(
        code="heavy_map",
        why="{together} calls at a time: its function itself is the work",
        action=(
            "do less for each element: decode to the size that is needed (decode_and_crop_jpeg, ratio=), stay in "
            "uint8, move arithmetic to the device; or do what is not random once, and store the result"
        ),
    ),
    "ParallelInterleave|LegacyParallelInterleave": _INTERLEAVE,
    "Interleave|FlatMap": StageRule(
        code="sequential_interleave",
        why="one input after the other",
        action=(
            "interleave(f, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE) instead of {code}, if the order of "
            "elements may change; with deterministic=False it waits for no single input"
        ),
        url=f"{_GUIDE}#parallelizing_data_extraction",
    ),
    "Filter|Unbatch|Rebatch": StageRule(
        code="serial_transformation",
        why="in one thread; {code} has no parallel form",
        action=(
            "run copies of the pipeline side by side, tf.data.Dataset.range(4).interleave(lambda i: make(shard=i), "
            "num_parallel_calls=tf.data.AUTOTUNE); the order of elements changes; or do what is not random once, "
            "offline"
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
        action=(
            "shuffle file names or ids, not decoded elements; a smaller buffer shuffles less; it fills first: profile "
            "later"
        ),
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
    why="What {part} makes could be kept instead of made again in every epoch.",
    action=(
        "{changed}, from the second epoch on{if_same}; all elements of an epoch{size} must fit into memory "
        "(cache(FILE): on a disk); what is random (shuffle, augmentation) belongs after the cache, and files stay in "
        "the order of the first epoch"
    ),
    url=f"{_GUIDE}#caching",
)
WARM_CACHE = StageRule(
    code="warm_cache",
    why="{code} is not full yet, as in a first epoch.",
    action=(
        "profile from the second epoch on, when {code} is full: tfperf run --steps A..B; if it never gets full, epochs "
        "do not read its input to the end: take() belongs before it, and repeat() after it"
    ),
    url=f"{_GUIDE}#caching",
)
SPLIT_TO_CACHE = StageRule(
    code="split_to_cache",
    why="{name} has random ops in its function: a cache after it would repeat their results in every epoch.",
    action=(
        "{changed}, {f}2 the random part of {f}, from the second epoch on; {f}1 is the part that gives the same result "
        "each time; all elements of an epoch must fit into memory (cache(FILE): on a disk)"
    ),
    url=f"{_GUIDE}#caching",
)
VECTORIZE = StageRule(
    code="vectorize",
    why="{name} runs its function {runs} times, for single elements: much of it is overhead.",
    action=(
        "let {f} work on batches: {changed}; elements must have the same shape, and a random number must be drawn for "
        "each element, not for the batch"
    ),
    url=f"{_GUIDE}#vectorizing_mapping",
)
LESS_WORK = StageRule(
    code="less_work",
    why="The threads of the pipeline use the cores that the step needs.",
    action=(
        "do less work for each element (decode to the size that is needed, stay in uint8); or do what is not random "
        "once and store the result, or make batches on other machines with tf.data.experimental.service"
    ),
    url="https://www.tensorflow.org/guide/data_performance_analysis",
)
FULL_CPU = StageRule(
    code="host_cpu_full",
    why="While steps wait, the {cores} cores of the host compute: more threads gain nothing.",
    action=(
        "do less work for each element, move work to the device, or spread it over other machines with "
        "tf.data.experimental.service; that pays off where those are cheaper than a waiting accelerator; with an "
        "older TensorFlow set options.threading.max_intra_op_parallelism = 1, so that parallel calls do not split "
        "their ops too"
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/data/experimental/service",
)


REFILL = StageRule(
    code="shuffle",
    why="whose buffer is filled before the first batch of each epoch",
    action=(
        "use a smaller shuffle buffer, or shuffle file names or ids, not decoded elements; a smaller buffer shuffles "
        "less; longer epochs, ds.repeat().shuffle(n) with fit(steps_per_epoch=N), fill it less often"
    ),
    url="https://www.tensorflow.org/api_docs/python/tf/data/Dataset#shuffle",
)
KERAS_ARRAYS = StageRule(
    code="memory_source",
    why="Keras makes these batches from arrays in memory.",
    action=(
        "use smaller types (float32 or uint8, not float64) and larger batches; or give fit() a tf.data.Dataset that "
        "batches first: from_tensor_slices((x, y)).shuffle(n).batch(m).prefetch(tf.data.AUTOTUNE)"
    ),
    url="https://www.tensorflow.org/guide/data",
)
_BARE_GENERATOR = StageRule(
    code="generator",
    why="in Python, one batch at a time: it holds the interpreter lock",
    action=(
        "a keras.utils.PyDataset: workers=4, max_queue_size=20, and use_multiprocessing=True if it computes in Python; "
        "a generator of your own: yield file names or ids, and do the work with TensorFlow ops in map(..., "
        "num_parallel_calls=tf.data.AUTOTUNE), or write TFRecord files once"
    ),
    url="https://keras.io/api/utils/python_utils/#pydataset-class",
)


def words(pipeline: Pipeline, index: int | None, change: str = "") -> dict[str, str]:
    """Return the words for a stage in rules; for the whole pipeline (None) its outermost stage of use is meant."""
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
        "unordered": ", pass deterministic=False where order does not matter" * keeps_order,
        "runs": f"{stage.runs:,}",
        "cores": str(pipeline.cores),
    }


def rule_for(pipeline: Pipeline, index: int) -> StageRule | None:
    """Return the advice for a stage as it is; None if there is none for its kind."""
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
    """Return the advice to make a change that has an estimate."""
    if change == "parallel_map":
        return _PARALLEL_PYTHON if index is not None and pipeline.stages[index].python else _SEQUENTIAL_MAP
    if change == "parallel_read":
        is_generator = index is not None and pipeline.stages[index].name == "Generator"
        return _SEVERAL_GENERATORS if is_generator else _READ_FILES
    return {"prefetch": PREFETCH, "cache": CACHE, "warm_cache": WARM_CACHE, "vectorize": VECTORIZE}[change]
