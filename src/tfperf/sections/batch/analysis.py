"""Examples per step on each host, and on all hosts together.

The evidence is the step's inputs first, then the ops that process them. Only the averaged steps are used, so a
validation with another batch size does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from msgspec import Struct

from tfperf.analysis.registry import Host, Tabular
from tfperf.base.arrays import Bools, Int64s, distinct, is_any
from tfperf.base.units import counted
from tfperf.trace.event_names import is_gradient, is_iterator, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.step_calls import Fetches, find_fetches
from tfperf.trace.steps.steps import Confidence, Steps

_SURER: tuple[Confidence, ...] = ("none", "low", "medium", "high")
_REPLICA = re.compile(r"(?:^|/)replica_(\d+)/")
_TO_DEVICE = re.compile(r"Iterator(::(Root|Model|Options|MaxIntraOpParallelism|Prefetch))*::Generator$")
"""A pipeline that only moves the elements of another one to a device; each replica has one."""
_MOST_LISTED = 4


class HostBatch(Struct, frozen=True, kw_only=True):
    """Batch of one host; `batches_per_step` is per replica. It and `replicas` are None if unknown."""

    host: str
    has_steps: bool
    batch: Conclusion
    replicas: int | None = None
    batches_per_step: int | None = None
    evidence: tuple[Evidence, ...] = ()


class Batch(Tabular, frozen=True, kw_only=True):
    """Batch of all hosts with steps. `size` counts all replicas; None is unknown, with the reason in `reason`."""

    home = ("batch", "batch_evidence")

    size: int | None
    per_replica: int | None
    replicas: int | None
    batches_per_step: int | None
    confidence: Confidence
    reason: str
    hosts: tuple[HostBatch, ...]

    @property
    def examples_per_step(self) -> int | None:
        """Return the examples per step, over all hosts."""
        return self.size * self.batches_per_step if self.size and self.batches_per_step else None


def analyze(host: Host) -> HostBatch:
    """Collect the evidence for the batch size of a host, and derive the size."""
    trace = host.trace
    # With attribution tensorflow, steps are not time windows.
    steps = find_steps(trace) if host.as_tensorflow else host["steps"].steps
    windows = StepWindows.of(steps)
    if not len(windows.start):
        reason = "the profile has no steps, so the batches of a step are unknown"
        return HostBatch(host=trace.host, has_steps=False, batch=Conclusion(reason=reason))
    fetches, ops = find_fetches(trace), op_outputs(trace, windows)
    # Pipelines that a step fetches from, and fetches per step from the most used one.
    step, count = windows.step_of(fetches.start), len(windows.start)
    used, most = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for iterator in distinct(fetches.iterator).tolist():
        times = np.bincount(step[(fetches.iterator == iterator) & (step >= 0)], minlength=count)
        used, most = used + (times > 0), np.maximum(most, times)
    replicas, batches = _replicas(trace, usual(used)), usual(most)
    stated = trace.capture_facts.batch_size
    evidence = (
        *([] if stated is None else [Evidence("capture", stated, "batch size passed to Keras", is_of_all=True)]),
        *element_evidence(trace, fetches, windows),
        *stage_evidence(trace, windows),
        *ops.evidence(),
        *marker_evidence(trace, windows),
    )
    if batches == 0:  # The input is not from tf.data.
        batches = trace.capture_facts.steps_per_execution or (1 if ops.runs_per_step == 1 else None)
    return HostBatch(
        host=trace.host,
        has_steps=True,
        batch=Weighing(evidence, ops, replicas).conclusion(),
        replicas=replicas.count,
        batches_per_step=batches,
        evidence=evidence,
    )


def _replicas(trace: HostTrace, pipelines: int | None) -> Replicas:
    """Count the replicas of a host: from Keras, from op names, or as the pipelines, because each replica has its own.

    TensorFlow puts the ops of replica 1 and up into scopes `replica_1`, ...; replica 0 has none.
    """
    facts, busy = trace.capture_facts, len(trace.devices)
    if facts.local_replicas and facts.replicas:
        return Replicas(facts.local_replicas, facts.replicas)
    named = {int(number) for name in trace.names for number in _REPLICA.findall(name)}
    listed = ", ".join(f"replica_{number}" for number in sorted(named)[:_MOST_LISTED]) or "no replica"
    if named - set(range(1, len(named) + 1)):
        return Replicas(None, None, f"some replicas have no events (op names include {listed})")
    to_device = any(_TO_DEVICE.match(name) for name in trace.names)
    count = len(named) + 1 if named else (pipelines or 1) if to_device else 1
    if trace.device_kind == "tpu" or busy not in (0, 1, count):
        return Replicas(None, None, f"{busy} devices are active, but op names include {listed}")
    if to_device and pipelines not in (None, 0, count):
        return Replicas(None, None, f"{pipelines} pipelines feed devices, but op names include {listed}")
    return Replicas(count, count)


def combine(hosts: Sequence[HostBatch]) -> Batch:
    """Add up the batches of the hosts with steps; an unknown batch makes the sum unknown."""
    working = [host for host in hosts if host.has_steps] or list(hosts)
    unknown = next((host for host in working if host.batch.size is None), None)
    sizes = [host.batch.size for host in working if host.batch.size is not None]
    replicas = [host.replicas for host in working if host.replicas is not None]
    shares, batches = {host.batch.per_replica for host in working}, {host.batches_per_step for host in working}
    named = f"host {unknown.host}: " if unknown and len(hosts) > 1 else ""
    return Batch(
        size=sum(sizes) if unknown is None else None,
        per_replica=shares.pop() if len(shares) == 1 else None,
        replicas=sum(replicas) if len(replicas) == len(working) else None,
        batches_per_step=batches.pop() if len(batches) == 1 else None,
        confidence=min((host.batch.confidence for host in working), key=_SURER.index),
        reason=f"{named}{unknown.batch.reason}" if unknown else "",
        hosts=tuple(hosts),
    )


_ENOUGH_LAYERS = 3
"""Number of layers without the input's leading dimension that contradict it."""


class Replicas(Struct, frozen=True):
    """Replicas of the model on a host, and in all; None if unknown, with the reason in `text`."""

    count: int | None
    all_workers: int | None
    text: str = ""


class Conclusion(Struct, frozen=True, kw_only=True):
    """Examples per batch on a host, and per replica; None if unknown, with the reason in `reason`."""

    size: int | None = None
    per_replica: int | None = None
    confidence: Confidence = "none"
    reason: str = ""


class Weighing(Struct, frozen=True, dict=True):
    """Derivation of the batch size from the evidence, or of the reason why it is unknown.

    1. The batch size is what the inputs of a step show clearly (shapes of elements, the batching stage, tensors that a
       device received), if all of them agree.
    2. Else it is the value given to Keras, from a tfperf capture or the marker of a step.
    3. Else it is the leading dimension that nearly all layers share, if it is also that of the single part of an
       element, or if no layer of another rank has a different one, because some models fold other dimensions into the
       first.

    In each case, contradicting evidence makes it unknown: several layers without that dimension, or Keras.
    """

    evidence: Sequence[Evidence]
    ops: OpOutputs
    replicas: Replicas

    @cached_property
    def clear(self) -> list[Evidence]:
        """Return the evidence that is sufficient by itself; evidence after a map comes before evidence ahead of it."""
        clear = [each for each in self.evidence if each.is_clear]
        behind = {each.examples for each in clear if not each.may_change}
        return [each for each in clear if not each.may_change or not behind or each.examples in behind]

    @cached_property
    def told(self) -> dict[str, int | None]:
        """Return the share of one replica in the values given to Keras; None if unknown."""
        count = self.replicas.all_workers
        return {
            each.source: each.examples // count if count and not each.examples % count else None
            for each in self.evidence
            if each.is_of_all
        }

    @cached_property
    def single(self) -> set[int]:
        """Return the leading dimensions of single-part elements."""
        return {each.examples for each in self.evidence if each.source == "elements" and not each.is_clear}

    def conclusion(self) -> Conclusion:
        """Return the derived batch size, or the reason why it is unknown."""
        size, confidence = self._candidate()
        if size is None:
            # If the number of replicas that share the value given to Keras is unknown, the value is the batch of all.
            stated = next((each for each in self.evidence if each.is_of_all), None)
            if stated is not None and self.replicas.count is None:
                return Conclusion(size=stated.examples, confidence="medium")
            return Conclusion(reason=self._why_none())
        if len({each.examples for each in self.clear}) > 1 or self._is_contradicted(size):
            said = "; ".join(f"{each.examples}: {each.text}" for each in self.evidence)
            return Conclusion(reason=f"the evidence disagrees ({said})")
        if self.replicas.count is None:
            unknown = f"it is {size} per replica, but the number of replicas is unknown: {self.replicas.text}"
            return Conclusion(per_replica=size, reason=unknown)
        return Conclusion(size=size * self.replicas.count, per_replica=size, confidence=confidence)

    def _candidate(self) -> tuple[int | None, Confidence]:
        if self.clear:
            # The confidence is high if two sources agree, or if no stage could change the size.
            size, sources = self.clear[0].examples, {each.source for each in self.clear}
            is_direct = any(each.source == "batch stage" and not each.may_change for each in self.clear)
            agreeing = {*self.told.values(), *self.single, self.ops.dominant}
            return size, "high" if len(sources) > 1 or is_direct or size in agreeing else "medium"
        for source, confidence in _TOLD.items():
            if source in self.told:
                return self.told[source], confidence
        dominant = self.ops.dominant
        if dominant is not None and self.single:
            return dominant, "medium"
        ranks = {rank for _, rank in self.ops.layers.values()}
        is_only = len(self.ops.leading) == 1 and len(ranks) > 1
        return (dominant, "low") if is_only else (None, "none")

    def _is_contradicted(self, size: int) -> bool:
        marked = self.told.get("marker")
        return (
            (len(self.ops.layers) >= _ENOUGH_LAYERS and size not in self.ops.leading)
            or self.told.get("capture") not in (None, size)
            # The value given to Keras may be for all workers.
            or (marked is not None and marked % size != 0)
            or (not self.clear and bool(self.single - {size}))
        )

    def _why_none(self) -> str:
        if self.single:
            return f"elements have one part, so {min(self.single)} may or may not be their number of examples"
        if self.ops.layers:
            return "only op outputs have shapes, and ops may fold other dimensions into the first one"
        if self.told:
            return "the batch size passed to Keras is not a multiple of the number of replicas"
        return "the profile has no shape of the step's input"


_TOLD: dict[str, Confidence] = {"capture": "high", "marker": "medium"}


Source = Literal["capture", "elements", "batch stage", "copied input", "marker", "op outputs"]

USUAL = 0.75
"""Share of the steps (or calls) from which a common value is the rule; the rest are edges."""
_RARE = 0.1
_AHEAD = 0.1
"""Input window before a step, as a share of its duration."""
_LAYERS_AGREE = 0.8
_WHOLE_ELEMENTS = re.compile(
    r"Root|Model|MaxIntraOpParallelism|PrivateThreadPool|Options|FinalizeDataset|AssertCardinality|AssertNext|"
    r"Prefetch|(Memory|File)?Cache(Impl|V2)?|MemoryCacheImpl|(Forever|Finite)?Repeat|Take|Skip|Shuffle\w*|"
    r"(Finite|Forever)\w*|AutoShard|Shard|Zip|(?P<map>(Parallel)?Map(V2)?)"
)
"""Stages that pass on whole elements. A map can change an element, but seldom its number of examples."""
_LAYERS = re.compile(
    r"MatMul|Conv[123]D|DepthwiseConv2d|Einsum|BiasAdd|(Max|Avg)Pool|(Batch|Layer)Norm|Relu|Elu|Softmax|CrossEntropy|"
    r"Tanh|Sigmoid"
)
_RECEIVED = "SameWorkerRecvDone"
"""TensorFlow's name for the memory of a tensor received from another device of the process."""
_IN_HOST_MEMORY = re.compile("host|cpu", re.IGNORECASE)


class Evidence(Struct, frozen=True):
    """One piece of evidence for a batch size.

    `examples` is per replica, or for all replicas on all workers if `is_of_all`. `is_clear`: the count is of examples,
    whatever the other evidence; `may_change`: a later map may change the count.
    """

    source: Source
    examples: int
    text: str
    is_of_all: bool = False
    is_clear: bool = False
    may_change: bool = False


class StepWindows(Struct, frozen=True):
    """Time windows of the averaged steps, each with a short time before the step, in which its input may arrive."""

    start: Int64s
    end: Int64s

    @staticmethod
    def of(steps: Steps) -> StepWindows:
        """Return the windows of the averaged steps."""
        rows = steps.headline if len(steps) else np.zeros(0, np.bool_)
        before = np.concatenate((steps.start_ps[:1] - steps.duration_ps[:1], steps.end_ps[:-1]))
        ahead = np.minimum(_AHEAD * steps.duration_ps, np.maximum(steps.start_ps - before, 0)).astype(np.int64)
        return StepWindows((steps.start_ps - ahead)[rows], steps.end_ps[rows])

    def step_of(self, times: Int64s) -> Int64s:
        """Return the step that contains each time, -1 if none."""
        if not len(self.start):
            return np.full(len(times), -1, np.int64)
        index = np.searchsorted(self.start, times, side="right") - 1
        return np.where((index >= 0) & (times < self.end[np.maximum(index, 0)]), index, -1)

    def hold(self, times: Int64s) -> Bools:
        """Return whether each time is within a step."""
        return self.step_of(times) >= 0


def usual(counts: Int64s) -> int | None:
    """Return the most frequent number, or None if not nearly all are equal to it."""
    if not len(counts):
        return None
    values, times = np.unique(counts, return_counts=True)
    most = int(times.argmax())
    return int(values[most]) if times[most] >= USUAL * len(counts) else None


def leading_dimension(shapes: str) -> tuple[int, int] | None:
    """Return the leading dimension of all parts (`[32,28,28] [32]`) and their number; None if they do not share one."""
    parts = re.findall(r"\[[^\]]*\]|<unknown>", shapes)
    leading = {part.strip("[]").partition(",")[0] for part in parts}
    first = next(iter(leading), "")
    return (int(first), len(parts)) if len(leading) == 1 and first.isdigit() and 0 < len(first) < 16 else None


def element_evidence(trace: HostTrace, fetches: Fetches, windows: StepWindows) -> Iterator[Evidence]:
    """Read the shapes of the elements that the program fetches.

    Parts of an element that share their leading dimension are a batch. A single part may be one example, so it is not
    clear.
    """
    rows = fetches.root[windows.hold(fetches.start) & (fetches.root >= 0)]
    texts = trace.stat("shapes").texts
    index = trace.number_at("shapes", rows, -1)
    for text in distinct(index).tolist():
        share = float((index == text).mean())
        found = leading_dimension(texts[text]) if text >= 0 and share >= _RARE else None
        if found is not None:
            yield Evidence("elements", found[0], f"elements of shape {texts[text]}", is_clear=found[1] > 1)


def stage_evidence(trace: HostTrace, windows: StepWindows) -> Iterator[Evidence]:
    """Read the batch size of the batching stage, if its elements are passed on unchanged.

    If another stage batches these batches again, both sizes are returned, because the profile does not show which one
    the model gets.
    """
    stat = trace.stat("batch_size")
    rows = stat.event.astype(np.int64)
    wanted = trace.on_host[rows] & (stat.value > 0) & windows.hold(trace.start_ps[rows])
    rows, sizes = rows[wanted], stat.value[wanted]
    names = {name: trace.names[name] for name in distinct(trace.name[rows]).tolist()}
    makers = {_stages(name) for name in names.values() if is_iterator(name)}
    handed_on = {name: maps for name, path in names.items() if (maps := _maps_behind(path, makers)) is not None}
    found = is_any(trace.name[rows], [*handed_on])
    rows, sizes = rows[found], sizes[found]
    for size in distinct(sizes).tolist():
        same = sizes == size
        if float(same.mean()) >= _RARE:
            name = int(trace.name[rows[same][0]])
            stage, maps = names[name].rpartition("::")[2], handed_on[name]
            text = f"pipeline stage {stage}{', after a map' if maps else ''}"
            yield Evidence("batch stage", size, text, is_clear=True, may_change=maps)


def _stages(path: str) -> tuple[str, ...]:
    return tuple(re.sub(r"\[\d+\]$", "", part) for part in path.split("::")[1:])


def _maps_behind(path: str, makers: set[tuple[str, ...]]) -> bool | None:
    """Return whether a map follows the last stage of a path; None if elements may not be passed on whole."""
    if not is_iterator(path):
        return None
    stages = _stages(path)
    behind = [stages[:end] for end in range(1, len(stages))]
    matches = [_WHOLE_ELEMENTS.fullmatch(part[-1]) for part in behind if part not in makers]
    return any(match["map"] for match in matches if match) if all(matches) else None


def marker_evidence(trace: HostTrace, windows: StepWindows) -> Iterator[Evidence]:
    """Read the `batch_size` argument of Keras 2's `fit`, which ignores it for a dataset."""
    rows = trace.stat("step_num").event.astype(np.int64)
    rows = rows[trace.on_host[rows] & windows.hold(trace.start_ps[rows])]
    sizes = trace.number_at("batch_size", rows, 0)
    for size in distinct(sizes[sizes > 0]).tolist():
        yield Evidence("marker", size, "batch_size of the step marker", is_of_all=True)


class OpOutputs(Struct, frozen=True):
    """Outputs of ops during the steps: the leading dimension of each layer's output."""

    layers: dict[str, tuple[int, int]]
    """Leading dimension and rank by op name."""
    runs_per_step: int | None
    """Runs of the layers per step; None if they differ or are unknown."""
    copied: frozenset[tuple[int, ...]]
    """Shapes that a device received, except scalars."""

    @property
    def leading(self) -> frozenset[int]:
        """Return the leading dimensions of the layers."""
        return frozenset(dimension for dimension, _ in self.layers.values())

    @property
    def dominant(self) -> int | None:
        """Return the leading dimension that nearly all layers share."""
        dimensions = [dimension for dimension, _ in self.layers.values()]
        most = max(self.leading, key=dimensions.count, default=0)
        return most if dimensions and dimensions.count(most) >= _LAYERS_AGREE * len(dimensions) else None

    def evidence(self) -> Iterator[Evidence]:
        """Yield the evidence in these outputs."""
        leading = {shape[0] for shape in self.copied if len(shape) > 1} or {shape[0] for shape in self.copied}
        if len(leading) == 1:
            shapes = ", ".join(str([*shape]).replace(" ", "") for shape in sorted(self.copied, key=len)[-3:])
            yield Evidence("copied input", leading.pop(), f"a device got {shapes}", is_clear=True)
        if self.dominant is not None:
            yield Evidence("op outputs", self.dominant, f"outputs of {counted(len(self.layers), 'layer')}")


def op_outputs(trace: HostTrace, windows: StepWindows) -> OpOutputs:
    """Read the shapes of allocations of layers (no gradients or weights) and of tensors that devices received."""
    memory = trace.memory
    during = memory.allocates & windows.hold(memory.start_ps)
    op, ops = memory.text_index("tf_op")
    shape, shapes = memory.text_index("shape")
    region, regions = memory.text_index("region_type")
    allocator, allocators = memory.text_index("allocator_name")
    known = np.flatnonzero(during & (op >= 0) & (shape >= 0))
    is_output = _among(region[known], regions, "output".__eq__)
    is_received = _among(op[known], ops, _RECEIVED.__eq__)
    on_device = ~_among(allocator[known], allocators, _IN_HOST_MEMORY.search) & (allocator[known] >= 0)
    copied = {_dims(shapes[index]) for index in distinct(shape[known[is_received & on_device]]).tolist()}
    candidates = {text for text in ops if not is_gradient(text)}
    types = {
        text
        for text, _, kind in (name.partition(":") for name in trace.names)
        if text in candidates and _LAYERS.search(kind) and not re.search("Grad|Backprop", kind)
    }
    rows = known[is_output & _among(op[known], ops, types.__contains__)]
    layers: dict[str, tuple[int, int]] = {}
    runs: list[int | None] = []
    step = windows.step_of(memory.start_ps[rows])
    for index in distinct(op[rows]).tolist():
        mine = op[rows] == index
        ids, times = np.unique(shape[rows[mine]], return_counts=True)
        dims = _dims(shapes[int(ids[times.argmax()])])
        if dims:
            layers[ops[index]] = dims[0], len(dims)
            runs.append(usual(np.bincount(step[mine], minlength=len(windows.start))))
    same = distinct(np.array([run or 0 for run in runs], np.int64)).tolist()
    return OpOutputs(layers, same[0] if len(same) == 1 and same[0] else None, frozenset(copied - {()}))


def _among(index: Int64s, texts: tuple[str, ...], wanted: Callable[[str], object]) -> Bools:
    of_text = np.append(mask(texts, wanted), False)
    return np.asarray(of_text[index], np.bool_)


def _dims(shape: str) -> tuple[int, ...]:
    """Return the dimensions of a shape such as `[32,10]`; empty for a scalar or for text that is not a shape."""
    parts = shape.strip("[]").split(",")
    sizes = [int(part) for part in parts if part.isdigit() and len(part) < 16]
    return tuple(sizes) if len(sizes) == len(parts) and min(sizes) > 0 else ()
