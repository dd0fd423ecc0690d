"""How many examples a step takes on a host, and on all hosts together.

Inputs of the step show it first, then the ops that work on them. Only what happens during the headline steps counts, so
a validation with batches of another size does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from msgspec import Struct

from tfperf.analysis.registry import Host, Tabular
from tfperf.base.arrays import Bools, Int64s, distinct
from tfperf.base.units import counted
from tfperf.trace.event_names import is_gradient, is_iterator, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.step_calls import Fetches, find_fetches
from tfperf.trace.steps.steps import Confidence, Steps

_SURER: tuple[Confidence, ...] = ("none", "low", "medium", "high")
_REPLICA = re.compile(r"(?:^|/)replica_(\d+)/")
_TO_DEVICE = re.compile(r"Iterator(::(Root|Model|Options|MaxIntraOpParallelism|Prefetch))*::Generator$")
"""A pipeline that only moves to a device what another one makes; each replica has one."""
_MOST_LISTED = 4


class HostBatch(Struct, frozen=True, kw_only=True):
    """The batch of one host.

    `batches_per_step` is how many batches a replica takes in a step; it and `replicas` are None where they are unknown.
    """

    host: str
    has_steps: bool
    batch: Conclusion
    replicas: int | None = None
    batches_per_step: int | None = None
    evidence: tuple[Evidence, ...] = ()


class Batch(Tabular, frozen=True, kw_only=True):
    """The batch of all hosts together, which is the sum over those with steps.

    `size` counts the examples of all replicas, `per_replica` those of each. What is unknown is None; `reason` says why
    `size` is.
    """

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
        """Return how many examples the hosts take in a step."""
        return self.size * self.batches_per_step if self.size and self.batches_per_step else None


def analyze(host: Host) -> HostBatch:
    """Collect what shows the batch size of a host, and conclude."""
    trace = host.trace
    # In attribution tensorflow, steps are no windows in time.
    steps = find_steps(trace) if host.as_tensorflow else host["steps"].steps
    windows = StepWindows.of(steps)
    if not len(windows.start):
        reason = "without steps, nothing tells what a step takes"
        return HostBatch(host=trace.host, has_steps=False, batch=Conclusion(reason=reason))
    fetches, ops = find_fetches(trace), op_outputs(trace, windows)
    # How many pipelines a step fetches from, and how often it fetches from the one that it uses most.
    step, count = windows.step_of(fetches.start), len(windows.start)
    used, most = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for iterator in distinct(fetches.iterator).tolist():
        times = np.bincount(step[(fetches.iterator == iterator) & (step >= 0)], minlength=count)
        used, most = used + (times > 0), np.maximum(most, times)
    replicas, batches = _replicas(trace, usual(used)), usual(most)
    stated = trace.capture_facts.batch_size
    evidence = (
        *([] if stated is None else [Evidence("capture", stated, "what Keras was told", is_of_all=True)]),
        *element_evidence(trace, fetches, windows),
        *stage_evidence(trace, windows),
        *ops.evidence(),
        *marker_evidence(trace, windows),
    )
    if batches == 0:  # The input comes from elsewhere.
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
    """Count the replicas of a host: Keras said so, ops are named after them, or each asks a pipeline of its own.

    TensorFlow puts the ops of replica 1 and up into scopes `replica_1`, ...; replica 0 has none.
    """
    facts, busy = trace.capture_facts, len(trace.devices)
    if facts.local_replicas and facts.replicas:
        return Replicas(facts.local_replicas, facts.replicas)
    named = {int(number) for name in trace.names for number in _REPLICA.findall(name)}
    listed = ", ".join(f"replica_{number}" for number in sorted(named)[:_MOST_LISTED]) or "no replica"
    if named - set(range(1, len(named) + 1)):
        return Replicas(None, None, f"some left no events (names of ops tell of {listed})")
    to_device = any(_TO_DEVICE.match(name) for name in trace.names)
    count = len(named) + 1 if named else (pipelines or 1) if to_device else 1
    if trace.device_kind == "tpu" or busy not in (0, 1, count):
        return Replicas(None, None, f"{busy} devices took part, while names of ops tell of {listed}")
    if to_device and pipelines not in (None, 0, count):
        return Replicas(None, None, f"{pipelines} pipelines feed devices, while names of ops tell of {listed}")
    return Replicas(count, count)


def combine(hosts: Sequence[HostBatch]) -> Batch:
    """Add up the batches of the hosts that have steps; one that is unknown makes the sum unknown."""
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
"""So many layers without the leading dimension that the input shows contradict it."""


class Replicas(Struct, frozen=True):
    """How many replicas of the model train on a host, and in all; None: unknown, and `text` says why."""

    count: int | None
    all_workers: int | None
    text: str = ""


class Conclusion(Struct, frozen=True, kw_only=True):
    """The examples of a batch on a host, and of one replica; None: unknown, and `reason` says why."""

    size: int | None = None
    per_replica: int | None = None
    confidence: Confidence = "none"
    reason: str = ""


class Weighing(Struct, frozen=True, dict=True):
    """From what a trace shows to a batch size, or to the reason why it is unknown.

    1. What the input of a step shows clearly (shapes of elements, the stage that makes batches, tensors that a device
       got) is the batch size, if all of it agrees.
    2. Else it is what Keras was told: what a capture of tfperf states, or the marker of a step.
    3. Else it is the leading dimension that nearly all layers share, if it is also that of the one part of an element,
       or if layers of different rank have no other: some models fold other dimensions into the first.

    In each case, what contradicts it makes it unknown: several layers without that dimension, or Keras.
    """

    evidence: Sequence[Evidence]
    ops: OpOutputs
    replicas: Replicas

    @cached_property
    def clear(self) -> list[Evidence]:
        """Return what is believed by itself; what comes behind a map is believed before what comes ahead of it."""
        clear = [each for each in self.evidence if each.is_clear]
        behind = {each.examples for each in clear if not each.may_change}
        return [each for each in clear if not each.may_change or not behind or each.examples in behind]

    @cached_property
    def told(self) -> dict[str, int | None]:
        """Return the share of one replica in what Keras was told; None where it is unknown."""
        count = self.replicas.all_workers
        return {
            each.source: each.examples // count if count and not each.examples % count else None
            for each in self.evidence
            if each.is_of_all
        }

    @cached_property
    def single(self) -> set[int]:
        """Return the leading dimensions of elements that have one part."""
        return {each.examples for each in self.evidence if each.source == "elements" and not each.is_clear}

    def conclusion(self) -> Conclusion:
        """Return what follows."""
        size, confidence = self._candidate()
        if size is None:
            # Where it is unknown how many replicas share what Keras was told, that is the batch of all of them.
            stated = next((each for each in self.evidence if each.is_of_all), None)
            if stated is not None and self.replicas.count is None:
                return Conclusion(size=stated.examples, confidence="medium")
            return Conclusion(reason=self._why_none())
        if len({each.examples for each in self.clear}) > 1 or self._is_contradicted(size):
            said = "; ".join(f"{each.examples}: {each.text}" for each in self.evidence)
            return Conclusion(reason=f"what shows it disagrees ({said})")
        if self.replicas.count is None:
            unknown = f"it is {size} for each replica, but how many there are is unknown: {self.replicas.text}"
            return Conclusion(per_replica=size, reason=unknown)
        return Conclusion(size=size * self.replicas.count, per_replica=size, confidence=confidence)

    def _candidate(self) -> tuple[int | None, Confidence]:
        if self.clear:
            # A size that the input shows is sure if two things agree, or if nothing could change it.
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
            # What Keras was told may be for all workers, of which this is one.
            or (marked is not None and marked % size != 0)
            or (not self.clear and bool(self.single - {size}))
        )

    def _why_none(self) -> str:
        if self.single:
            return f"elements have one part, so nothing tells whether {min(self.single)} counts their examples"
        if self.ops.layers:
            return "only outputs of ops show shapes, and ops may fold other dimensions into the first"
        if self.told:
            return "the batch size that Keras was told is no multiple of the number of replicas"
        return "no shape in the trace shows the input of a step"


_TOLD: dict[str, Confidence] = {"capture": "high", "marker": "medium"}


Source = Literal["capture", "elements", "batch stage", "copied input", "marker", "op outputs"]

USUAL = 0.75
"""From this share of the steps (or calls) on, what they have in common is the rule; the rest are edges."""
_RARE = 0.1
_AHEAD = 0.1
"""Share of a step's duration."""
_LAYERS_AGREE = 0.8
_WHOLE_ELEMENTS = re.compile(
    r"Root|Model|MaxIntraOpParallelism|PrivateThreadPool|Options|FinalizeDataset|AssertCardinality|AssertNext|"
    r"Prefetch|(Memory|File)?Cache(Impl|V2)?|MemoryCacheImpl|(Forever|Finite)?Repeat|Take|Skip|Shuffle\w*|"
    r"(Finite|Forever)\w*|AutoShard|Shard|Zip|(?P<map>(Parallel)?Map(V2)?)"
)
"""Stages that hand on whole elements. A map may do anything to them, but seldom changes how many examples they hold."""
_LAYERS = re.compile(
    r"MatMul|Conv[123]D|DepthwiseConv2d|Einsum|BiasAdd|(Max|Avg)Pool|(Batch|Layer)Norm|Relu|Elu|Softmax|CrossEntropy|"
    r"Tanh|Sigmoid"
)
_RECEIVED = "SameWorkerRecvDone"
"""How TensorFlow calls the memory for a tensor that another device of the process sent."""
_IN_HOST_MEMORY = re.compile("host|cpu", re.IGNORECASE)


class Evidence(Struct, frozen=True):
    """One thing that shows a batch size.

    `examples` are those of one replica; of all replicas, on all workers, if `is_of_all`. `is_clear`: what it counts are
    examples, whatever else the trace shows; `may_change`: unless a map behind it changes how many there are.
    """

    source: Source
    examples: int
    text: str
    is_of_all: bool = False
    is_clear: bool = False
    may_change: bool = False


class StepWindows(Struct, frozen=True):
    """Where the headline steps lie, each with a short time before it, in which its input may come."""

    start: Int64s
    end: Int64s

    @staticmethod
    def of(steps: Steps) -> StepWindows:
        """Return the windows of the headline steps."""
        rows = steps.headline if len(steps) else np.zeros(0, np.bool_)
        before = np.concatenate((steps.start_ps[:1] - steps.duration_ps[:1], steps.end_ps[:-1]))
        ahead = np.minimum(_AHEAD * steps.duration_ps, np.maximum(steps.start_ps - before, 0)).astype(np.int64)
        return StepWindows((steps.start_ps - ahead)[rows], steps.end_ps[rows])

    def step_of(self, times: Int64s) -> Int64s:
        """Return the step that each time lies in, -1 for none."""
        if not len(self.start):
            return np.full(len(times), -1, np.int64)
        index = np.searchsorted(self.start, times, side="right") - 1
        return np.where((index >= 0) & (times < self.end[np.maximum(index, 0)]), index, -1)

    def hold(self, times: Int64s) -> Bools:
        """Return which times lie in a step."""
        return self.step_of(times) >= 0


def usual(counts: Int64s) -> int | None:
    """Return the number that most have; None if there is none that nearly all have."""
    if not len(counts):
        return None
    values, times = np.unique(counts, return_counts=True)
    most = int(times.argmax())
    return int(values[most]) if times[most] >= USUAL * len(counts) else None


def leading_dimension(shapes: str) -> tuple[int, int] | None:
    """Return the leading dimension that all parts of an element share (`[32,28,28] [32]`), and how many parts it has.

    None if one is unknown or a scalar, or if they differ.
    """
    parts = re.findall(r"\[[^\]]*\]|<unknown>", shapes)
    leading = {part.strip("[]").partition(",")[0] for part in parts}
    first = next(iter(leading), "")
    return (int(first), len(parts)) if len(leading) == 1 and first.isdigit() and 0 < len(first) < 16 else None


def element_evidence(trace: HostTrace, fetches: Fetches, windows: StepWindows) -> Iterator[Evidence]:
    """Read the shapes of what the program fetches.

    Parts of an element that share their leading dimension are a batch. Of a single part that is not sure: it may be
    one example.
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
    """Read the batch size of the stage that makes batches, if what it makes is handed on as it is.

    Of batches that another stage makes batches of, both sizes are returned: nothing tells which of them the model gets.
    """
    stat = trace.stat("batch_size")
    rows = stat.event.astype(np.int64)
    wanted = trace.on_host[rows] & (stat.value > 0) & windows.hold(trace.start_ps[rows])
    rows, sizes = rows[wanted], stat.value[wanted]
    names = {name: trace.names[name] for name in distinct(trace.name[rows]).tolist()}
    makers = {_stages(name) for name in names.values() if is_iterator(name)}
    handed_on = {name: maps for name, path in names.items() if (maps := _maps_behind(path, makers)) is not None}
    found = np.isin(trace.name[rows], list(handed_on))
    rows, sizes = rows[found], sizes[found]
    for size in distinct(sizes).tolist():
        same = sizes == size
        if float(same.mean()) >= _RARE:
            name = int(trace.name[rows[same][0]])
            stage, maps = names[name].rpartition("::")[2], handed_on[name]
            text = f"stage {stage} of the pipeline{', behind a map' if maps else ''}"
            yield Evidence("batch stage", size, text, is_clear=True, may_change=maps)


def _stages(path: str) -> tuple[str, ...]:
    return tuple(re.sub(r"\[\d+\]$", "", part) for part in path.split("::")[1:])


def _maps_behind(path: str, makers: set[tuple[str, ...]]) -> bool | None:
    """Tell whether there is a map behind the last stage of a path; None if it is not known to be handed on whole."""
    if not is_iterator(path):
        return None
    stages = _stages(path)
    behind = [stages[:end] for end in range(1, len(stages))]
    matches = [_WHOLE_ELEMENTS.fullmatch(part[-1]) for part in behind if part not in makers]
    return any(match["map"] for match in matches if match) if all(matches) else None


def marker_evidence(trace: HostTrace, windows: StepWindows) -> Iterator[Evidence]:
    """Read what `fit` of Keras 2 was given as its `batch_size`; it ignores that for a dataset."""
    rows = trace.stat("step_num").event.astype(np.int64)
    rows = rows[trace.on_host[rows] & windows.hold(trace.start_ps[rows])]
    sizes = trace.number_at("batch_size", rows, 0)
    for size in distinct(sizes[sizes > 0]).tolist():
        yield Evidence("marker", size, "batch_size of the step marker", is_of_all=True)


class OpOutputs(Struct, frozen=True):
    """What ops left in memory during the steps: the leading dimension of the outputs of each layer."""

    layers: dict[str, tuple[int, int]]
    """Leading dimension and rank by the name of the op."""
    runs_per_step: int | None
    """How often the layers ran in a step; None if that differs, or is unknown."""
    copied: frozenset[tuple[int, ...]]
    """Shapes, but for scalars, that a device received."""

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
        """Iterate over what these outputs show."""
        leading = {shape[0] for shape in self.copied if len(shape) > 1} or {shape[0] for shape in self.copied}
        if len(leading) == 1:
            shapes = ", ".join(str([*shape]).replace(" ", "") for shape in sorted(self.copied, key=len)[-3:])
            yield Evidence("copied input", leading.pop(), f"a device got {shapes}", is_clear=True)
        if self.dominant is not None:
            yield Evidence("op outputs", self.dominant, f"outputs of {counted(len(self.layers), 'layer')}")


def op_outputs(trace: HostTrace, windows: StepWindows) -> OpOutputs:
    """Read the shapes of allocations: of layers, leaving out gradients and weights, and of what devices received."""
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
    types = _layer_types(trace, ops)
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
    """Tell which indices are of texts that are wanted; -1 is of none."""
    of_text = np.append(mask(texts, wanted), False)
    return np.asarray(of_text[index], np.bool_)


def _layer_types(trace: HostTrace, ops: Iterable[str]) -> frozenset[str]:
    candidates = {op for op in ops if not is_gradient(op)}
    types = (name.partition(":") for name in trace.names)
    return frozenset(
        op
        for op, _, kind in types
        if op in candidates and _LAYERS.search(kind) and not re.search("Grad|Backprop", kind)
    )


def _dims(shape: str) -> tuple[int, ...]:
    """Return the dimensions of a shape, `[32,10]`; empty for a scalar, and for what is none."""
    parts = shape.strip("[]").split(",")
    sizes = [int(part) for part in parts if part.isdigit() and len(part) < 16]
    return tuple(sizes) if len(sizes) == len(parts) and min(sizes) > 0 else ()
