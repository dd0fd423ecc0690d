"""The code of a pipeline, from the source on, as it is and with a change.

A cache keeps the same elements in every epoch. It therefore comes after deterministic work, and before shuffle(),
random work, batch() and repeat(). A function of single elements gives the same results before a shuffle() or a
repeat(), so it may be moved there to be cached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import ndiff
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.units import format_bytes
from tfperf.sections.tfdata.pipeline import PASSING_ON, Pipeline

CallKind = Literal["source", "map", "filter", "shuffle", "repeat", "batch", "cache", "prefetch", "other"]
_AUTOTUNE = "num_parallel_calls=tf.data.AUTOTUNE"
_FUNCTIONS = "fghkpqrsuvwxyz"
"""Names for the functions in a program, in order."""
_LONGEST = 60
"""Maximum length; short forms of longer code keep only the calls around the change."""
_IN_MEMORY = ("TensorSlice", "FromTensor", "Range")
_SOURCES = {
    "TFRecord": "tf.data.TFRecordDataset(files)",
    "TextLine": "tf.data.TextLineDataset(files)",
    "FixedLengthRecord": "tf.data.FixedLengthRecordDataset(files, n)",
    "Generator": "tf.data.Dataset.from_generator(g)",
    "TensorSlice": "tf.data.Dataset.from_tensor_slices(x)",
    "FromTensor": "tf.data.Dataset.from_tensors(x)",
    "Range": "tf.data.Dataset.range(n)",
    "Zip": "tf.data.Dataset.zip(a, b)",
}
_MERGES = re.compile(r"Zip|Concatenate|Choose|Sample|DirectedInterleave")
"""Stages with several inputs, each with its own chain."""
_OPENS = re.compile(r"FlatMap|(?:Legacy)?(?:Parallel)?Interleave")
"""Stages whose function creates datasets, which hide the stages inside."""
_KINDS: tuple[tuple[str, tuple[tuple[CallKind, str], ...]], ...] = (
    ("MapAndBatch", (("map", "map"), ("batch", "batch"))),
    ("ShuffleAndRepeat", (("shuffle", "shuffle"), ("repeat", "repeat"))),
    ("(?:Parallel)?Map|ParseExample", (("map", "map"),)),
    ("Filter", (("filter", "filter"),)),
    (".*Shuffle", (("shuffle", "shuffle"),)),
    (".*Repeat", (("repeat", "repeat"),)),
    ("PaddedBatch", (("batch", "padded_batch"),)),
    ("Unbatch", (("batch", "unbatch"),)),
    ("Window", (("batch", "window"),)),
    ("GroupBy", (("batch", "group_by_window"),)),
    (".*Batch", (("batch", "batch"),)),
    (".*Cache", (("cache", "cache"),)),
    ("Prefetch", (("prefetch", "prefetch"),)),
)


class Call(Struct, frozen=True):
    """A call of a program on a dataset, such as `.map(f)`, or its source."""

    kind: CallKind
    text: str
    stage: int
    """Index of its stage; -1 for a new call, or a source that is not in the trace."""
    options: str = ""
    """Its arguments other than its function or number."""

    function: str = ""


Calls = tuple[Call, ...]
NEW_CACHE = Call("cache", ".cache()", -1)


class Changed(Struct, frozen=True):
    """Calls of a changed program, and which of them are new."""

    calls: Calls
    new: tuple[int, ...]

    @property
    def code(self) -> str:
        """Return the whole program."""
        return code_of(self.calls)

    @property
    def line(self) -> str:
        """Return the calls that are new or have other options."""
        return "".join(_full(self.calls[index]) for index in self.new)

    @property
    def short(self) -> str:
        """Return the code of the new calls with the calls around them, up to batch()."""
        last = next((at for at, call in enumerate(self.calls) if call.kind == "batch"), len(self.calls) - 1)
        end = max(last, self.new[-1] + 1) + 1
        texts = [call.text for call in self.calls]
        if sum(map(len, texts[1:end])) <= _LONGEST:
            return f"ds{''.join(texts[1:end])}{'...' * (end < len(texts))}"
        at = self.calls.index(NEW_CACHE) if NEW_CACHE in self.calls else self.new[0]
        first, end = max(at - 1, 1), at + 2
        start = "ds" if first == 1 else "..."
        return f"{start}{''.join(texts[first:end])[first > 1 :]}{'...' * (end < len(texts))}"


def code_of(calls: Calls) -> str:
    """Return a program with all known details of its calls."""
    return "".join(map(_full, calls))


def _full(call: Call) -> str:
    if not call.options:
        return call.text
    inside = call.text.removesuffix(")")
    return f"{inside}{'' if inside.endswith('(') else ', '}{call.options})"


def diff_of(before: Calls, after: Calls) -> str:
    """Return a change of a program as a diff with one call per line."""
    old, new = (
        [("    " if place else "") + _full(call) for place, call in enumerate(each)] for each in (before, after)
    )
    return "\n".join(line for line in ndiff(old, new) if not line.startswith("?"))


def calls_of(pipeline: Pipeline, index: int) -> Calls:
    """Return the calls that produce the elements of a pipeline through a stage, the source first."""
    path = _path(pipeline, index)
    functions, calls = iter(_FUNCTIONS), list[Call]()
    source = -1
    if path:
        name = pipeline.stages[path[0]].name
        is_known = name.startswith((*_SOURCES, "DataService")) or _OPENS.match(name) or _MERGES.match(name)
        if is_known or len(pipeline.inputs(path[0])) > 1:
            source = path.pop(0)
    calls.append(_source(pipeline, source, functions))
    for stage in path:
        calls += _calls_of_stage(pipeline, stage, functions)
    return tuple(calls)


def _path(pipeline: Pipeline, index: int) -> list[int]:
    """Return the path of stages, innermost first, from the source to the outermost or to a merge."""
    path = [*reversed(pipeline.consumers(index))]
    while len(inputs := pipeline.inputs(path[-1])) == 1:
        path += inputs
    start, end = 0, len(path)
    for place, stage in enumerate(path):
        name = pipeline.stages[stage].name
        if _OPENS.match(name):
            end = place + 1
            break
        if _MERGES.match(name) and index in path[place + 1 :]:
            start = place + 1
    return path[start:end][::-1]


def _source(pipeline: Pipeline, index: int, functions: Iterator[str]) -> Call:
    if index < 0:
        return Call("source", "ds", index)
    name, inside = pipeline.stages[index].name, [pipeline.stages[each].name for each in pipeline.below(index)]
    if not _OPENS.match(name):
        text = next((text for start, text in _SOURCES.items() if name.startswith(start)), "ds")
        return Call("source", text, index)
    # TensorFlow itself creates such stages for several files, and for a generator.
    made = {text for each in inside for start, text in _SOURCES.items() if each.startswith(start)}
    is_plain = all(each == "FlatMap" or each.startswith((*_IN_MEMORY, *_SOURCES)) for each in inside)
    reader = next((text for text in made if "files" in text or "generator" in text), "") if is_plain else ""
    if "Interleave" not in name and reader:
        return Call("source", reader, index)
    function = "" if reader else next(functions)
    if "Interleave" not in name:
        return Call("source", f"ds.flat_map({function})", index, function=function)
    text = f"files.interleave({function or reader.partition('(')[0]}, {_AUTOTUNE})"
    return Call("source", text, index, function=function)


def _calls_of_stage(pipeline: Pipeline, index: int, functions: Iterator[str]) -> Iterator[Call]:
    stage = pipeline.stages[index]
    if (stage.name in PASSING_ON and "Repeat" not in stage.name) or stage.name in ("MemoryCacheImpl", "FileCacheImpl"):
        return
    if stage.dataset.startswith("inject/") or stage.name == "Rebatch":  # added by TensorFlow itself
        return
    made = next((made for names, made in _KINDS if re.match(names, stage.name)), None)
    if made is None:
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", stage.name).lower()
        yield Call("other", f".{snake}(...)", index)
        return
    for kind, name in made:
        argument, options, function = "", "", ""
        if kind in ("map", "filter"):
            argument = function = next(functions, "f")
            if kind == "map":
                in_parallel = f"num_parallel_calls={stage.parallelism}" if (stage.parallelism or 1) > 1 else ""
                options = _AUTOTUNE if stage.autotuned else in_parallel
        elif kind in ("shuffle", "batch") and name != "unbatch":
            argument = "n" if kind == "shuffle" or stage.batch_size is None else str(stage.batch_size)
            argument = "..." if name in ("window", "group_by_window") else argument
        elif kind == "prefetch":
            argument = "n" if stage.buffer_limit is None else str(stage.buffer_limit)
            argument = "tf.data.AUTOTUNE" if stage.autotuned else argument
        yield Call(kind, f".{name}({argument})", index, options, function)


def _place(calls: Calls, pipeline: Pipeline, index: int, *kinds: CallKind) -> int | None:
    """Return the call of a stage; stages inside a function that creates datasets belong to the source."""
    place = next((at for at, call in enumerate(calls) if call.stage == index and call.kind in kinds), None)
    source = calls[0].stage
    return 0 if place is None and source >= 0 and index in pipeline.below(source) and "source" in kinds else place


def with_cache(pipeline: Pipeline, index: int) -> Changed | None:
    """Return the program with a cache after a stage; None if no cache can be added without changing results."""
    calls = calls_of(pipeline, index)
    at = None if pipeline.is_bare_generator else _place(calls, pipeline, index, "map", "filter", "source")
    if at is None or not _is_the_same_each_time(pipeline, calls[: at + 1]):
        return None
    return _cached(pipeline, calls, at, kept=calls[at])


def with_split_cache(pipeline: Pipeline, index: int) -> Changed | None:
    """Return the program with a function split by a cache; the random part stays in place."""
    calls = calls_of(pipeline, index)
    at = _place(calls, pipeline, index, "map")
    if at is None or not _is_the_same_each_time(pipeline, calls[:at]):
        return None
    function = calls[at].function
    first, second = (replace(calls[at], text=f".map({function}{number})") for number in (1, 2))
    return _cached(pipeline, calls, at, kept=first, rest=(second,))


def _cached(pipeline: Pipeline, calls: Calls, at: int, *, kept: Call, rest: Calls = ()) -> Changed | None:
    """Put `kept` and a cache before shuffle() and repeat(), `rest` in place of the call; None if results may change."""
    chain = {*pipeline.consumers(kept.stage), *pipeline.below(kept.stage)} if kept.stage >= 0 else set()
    if any("Cache" in pipeline.stages[each].name for each in chain):
        return None
    source = calls[0].stage
    if source >= 0 and not _may_be_kept(pipeline, source, calls, is_source=at == 0):
        return None
    barrier = next((place for place in range(at) if calls[place].kind in ("shuffle", "repeat")), at)
    between = calls[barrier:at]
    if any(call.kind not in ("shuffle", "repeat", "map", "filter", "prefetch") for call in between):
        return None
    moved = tuple(call for call in between if call.kind in ("map", "filter"))
    staying = tuple(call for call in between if call not in moved)
    new = (*calls[:barrier], *moved, kept, NEW_CACHE)
    first = len(new) - 1 - (1 + len(moved)) * bool(staying or rest)
    changed = [*range(first, len(new)), *(len(new) + len(staying) + number for number in range(len(rest)))]
    return Changed((*new, *staying, *rest, *calls[at + 1 :]), tuple(changed))


def _may_be_kept(pipeline: Pipeline, source: int, calls: Calls, *, is_source: bool) -> bool:
    """Return whether a source is finite, and in an order that a cache may keep."""
    name, inside = pipeline.stages[source].name, [pipeline.stages[each].name for each in pipeline.below(source)]
    if name.startswith("DataService") or any("Repeat" in each or each.startswith("DataService") for each in inside):
        return False
    if is_source and name.startswith(_IN_MEMORY):
        return False
    return not any("Shuffle" in each for each in inside) or any(call.kind == "shuffle" for call in calls)


def _is_the_same_each_time(pipeline: Pipeline, calls: Calls) -> bool:
    stages = {call.stage for call in calls if call.stage >= 0}
    stages |= {*pipeline.below(calls[0].stage)} if calls and calls[0].stage >= 0 else set()
    return not any(pipeline.stages[each].is_random for each in stages)


def with_parallel_calls(pipeline: Pipeline, index: int) -> Changed | None:
    """Return the program with parallel calls of the function of a stage."""
    calls = calls_of(pipeline, index)
    at = _place(calls, pipeline, index, "map")
    return None if at is None else _with(calls, at, replace(calls[at], options=_AUTOTUNE))


def with_batch_first(pipeline: Pipeline, index: int) -> Changed | None:
    """Return the program in which the function of a stage receives batches; shuffling may precede it."""
    calls = calls_of(pipeline, index)
    at = _place(calls, pipeline, index, "map")
    if at is None:
        return None
    batch = next((place for place in range(at + 1, len(calls)) if calls[place].kind != "shuffle"), len(calls))
    if batch == len(calls) or calls[batch].kind != "batch":
        return None
    new = (*calls[:at], *calls[at + 1 : batch + 1], calls[at], *calls[batch + 1 :])
    return Changed(new, (batch - 1, batch))


def with_prefetch(pipeline: Pipeline) -> Changed:
    """Return the program with a final prefetch."""
    calls = calls_of(pipeline, 0)
    return Changed((*calls, Call("prefetch", ".prefetch(tf.data.AUTOTUNE)", -1)), (len(calls),))


def with_interleave(pipeline: Pipeline, index: int) -> Changed | None:
    """Return the program that reads several files, or runs several generators, in parallel."""
    calls = calls_of(pipeline, index)
    reader = calls[0].text.partition("(")[0]
    if calls[0].stage not in pipeline.consumers(index):
        return None
    if reader.endswith("from_generator"):
        several = f"tf.data.Dataset.range(4).interleave(lambda i: {reader}(g, args=(i,), ...), num_parallel_calls=4)"
    elif reader.endswith("Dataset"):
        several = f"tf.data.Dataset.list_files(PATTERN).interleave({reader}, {_AUTOTUNE})"
    else:
        return None
    return _with(calls, 0, replace(calls[0], text=several))


def _with(calls: Calls, at: int, call: Call) -> Changed:
    return Changed((*calls[:at], call, *calls[at + 1 :]), (at,))


def changed_code(pipeline: Pipeline, change: str, index: int | None) -> Changed | None:
    """Return the program with a change of a stage; None if its code is unknown."""
    if change == "prefetch":
        return with_prefetch(pipeline)
    make = {
        "cache": with_cache,
        "split_to_cache": with_split_cache,
        "parallel_map": with_parallel_calls,
        "vectorize": with_batch_first,
        "parallel_read": with_interleave,
    }.get(change)
    return None if make is None or index is None else make(pipeline, index)


def kept_stages(pipeline: Pipeline, changed: Changed) -> dict[int, bool]:
    """Return the stages that a full cache skips; False if only the function of the stage is skipped."""
    at = changed.calls.index(NEW_CACHE)
    after = {call.stage for call in changed.calls[at:]}
    kept = {call.stage: call.stage not in after for call in changed.calls[:at] if call.stage >= 0}
    source = changed.calls[0].stage
    return kept | dict.fromkeys(pipeline.below(source) if source >= 0 else (), True)


def cache_size(pipeline: Pipeline, changed: Changed) -> str:
    """Return the memory size of a cache as text; empty if the profile does not show it.

    It is known for one epoch of the elements that the program receives, which the cache holds if they are only batched.
    """
    after = {call.kind for call in changed.calls[changed.calls.index(NEW_CACHE) + 1 :]}
    if pipeline.epoch_bytes is None or after - {"shuffle", "repeat", "batch", "prefetch"}:
        return ""
    return f"{'at most ' * ('repeat' in after)}about {format_bytes(pipeline.epoch_bytes)}"


def if_same(pipeline: Pipeline, changed: Changed) -> str:
    """Return the condition under which a cache preserves results, as a clause; empty for files."""
    if NEW_CACHE not in changed.calls:
        return ""
    before = changed.calls[: changed.calls.index(NEW_CACHE)]
    functions = [call.function for call in before if call.function]
    if functions:
        verb = "give" if functions[1:] else "gives"
        return f", if {' and '.join(functions)} {verb} the same result each time"
    source = before[0].stage
    names = {pipeline.stages[each].name for each in (source, *pipeline.below(source))} if source >= 0 else set()
    return ", if g ends and yields the same elements each time" if "Generator" in names else ""
