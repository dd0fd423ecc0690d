"""Ops of the step on host threads: wall time of each step by op, layer and kind of op.

Several threads run ops in parallel, so their self times can exceed the step. Here each moment is divided evenly among
the ops that run then (the innermost of nested ops), so the shares of all ops add up to the share of the step in which
any op runs. Ops that only wait (receives, collectives, fetches, calls of functions) and ops of the input pipeline are
excluded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import (
    EMPTY,
    MOST,
    NO_NUMBERS,
    Bools,
    Float64s,
    Int32s,
    Int64s,
    Intervals,
    difference,
    distinct_index,
    intersection,
    overlap,
    text_index,
    union,
    union_all,
)
from tfperf.base.units import percent
from tfperf.sections.ops.analysis import OpKey
from tfperf.sections.ops.groups import NO_SCOPE, PATH_READ, ModelLayers, is_backward, without_transforms
from tfperf.trace.event_names import HOST_CALLBACK, mask, parse_op
from tfperf.trace.host.host_ops import compiled_ops
from tfperf.trace.host.host_state import HostStates, State
from tfperf.trace.host.python_frames import frame_names, python_functions
from tfperf.trace.host.tasks import runs_several_tasks
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import innermost_around, own_parts, parents
from tfperf.trace.steps.breakdown import CountedSteps

if TYPE_CHECKING:
    from tfperf.trace.steps.steps import Steps

_MOST_CELLS = 1 << 20
"""Maximum number of times kept per host: ops times steps."""
_MOST_OPS, _MOST_LAYERS = 48, 12
_WAITING = re.compile(r"_?(?:Host)?(?:Send|Recv)$|.*Call$|IteratorGetNext|Collective|.*AllReduce")
_PYTHON = re.compile(r"(?:Eager)?PyFunc(?:Stateless)?$|(?:pure|io)_callback$")
_PRINT = re.compile(r"Print(?:V\d)?$|StringFormat$|debug_(?:print|callback)$")
_TEXT = re.compile(
    r"(?:Static)?Regex\w+|String(?!Format)\w+|Unicode(?:De|Trans)code\w*|Substr|AsString|ReduceJoin\w*|DecodeBase64"
    r"|LookupTableFind\w*"
)
_FILES = re.compile(r"ReadFile|Parse\w*(?:Example|Tensor)\w*|Decode(?!Base64)\w+")
_RAGGED = re.compile(r"Ragged\w+")
"""Ops that split text make ragged arrays, which become dense."""
_DENSE_TYPES = {"SparseToDense": "densified_sparse", "OneHot": "one_hot_product"}
"""Ops that make a mostly zero array, and the cause if a matrix product reads it."""
_LARGE_BYTES = 1 << 20
_PRODUCT = re.compile(r".*MatMul")
_UPDATE = re.compile(r"Resource(?:Sparse)?Apply[A-Z]")
_OPTIMIZER = re.compile(
    r"(?i)^(?:adam|adamw|adamax|nadam|sgd|momentum|rmsprop|adagrad|adadelta|adafactor|ftrl|lamb|lion|muon)(?:_\d+)?/"
)
_OF_OPTIMIZERS = re.compile(r"(?:^|/)(?:optax|optimizers)/")
"""Folders of Optax, and of optimizers in Keras."""
_WRAPPERS = re.compile(
    r"(?:Stateful)?PartitionedCall(?:_\d+)?/|jit\([^/]*\)/|(?<![^/])replica_\d+/|(?<![^/])cond/(?:then|else)/_\d+/"
)
_REPLICA = re.compile(r"(?:^|/)replica_(\d+)/")
_BODY = re.compile(r"(.*?while(?:_\d+)?(?:/.*?while_grad\w*)?)/body/(?:_\d+/)?(.*)$")
_ARRAY = re.compile(r"(.*?)TensorArray(?:Unstack|V2Stack)\w*/.*TensorList(FromTensor|Stack)$")
_RECURRENT = re.compile(r"(?i)(?:^|[/_])(?:\w*lstm|\w*gru|\w*rnn|bidirectional)(?:_\d+)?/")
_TRAINS = re.compile(r"gradient_tape/|gradients/|IteratorGetNext|ResourceApply")
_WEIGHTS = re.compile(r"MatMul_1$|Sum(?:_\d+)?$|.*BackpropFilter")
"""Ops of the backward pass that compute the gradient of weights, or sum it over a batch."""
_PROCESS = "ExecutorState::Process"
_FEWEST_ITERATIONS = 8
_DOUBLES, _REALS = (2, 18), (1, 2, 8, 14, 18, 19)
"""Types of TensorFlow: DT_DOUBLE and DT_COMPLEX128, and all of real and complex numbers."""
_FILES_OF_JAX = frozenset({"api.py", "callback.py", "core.py", "dispatch.py", "debugging.py", "tree_util.py"})
"""Files of JAX that run callbacks."""
_NEARLY_ALL_PERCENT = 90.0
_KERNEL_PREFIX = re.compile(r"^_Mkl(?:Native)?(?:Fused)?")


RECURRENT = "recurrent loops"
"""Kind for loops of recurrent layers, including executor time between their ops."""


class Shares(Struct, frozen=True, eq=False):
    """Picoseconds of each name (row) in each step (column)."""

    names: tuple[str, ...]
    ps: Int64s

    def percents(self, steps: CountedSteps) -> dict[str, float]:
        """Return the share of each name in the averaged steps, in percent, largest first."""
        total_ps, sums = steps.total_ps, self.ps[:, steps.counted].sum(axis=1).tolist()
        pairs = sorted(zip(sums, self.names, strict=True), key=lambda pair: -pair[0])
        return {name: percent(ps, total_ps) or 0.0 for ps, name in pairs if ps}


class Output(Struct, frozen=True):
    """The largest array that an op allocates: `shape` as text, such as `[128,40000]`."""

    shape: str
    size_bytes: int
    is_double: bool = False
    """Whether it holds float64."""


class Loop(Struct, frozen=True):
    """A loop in a graph."""

    scope: str
    iterations: int | None
    """Minimum number of iterations per step; None if not recorded."""


class Updated(Struct, frozen=True):
    """The largest array that the optimizer makes, and whether it makes gradients of an embedding dense."""

    shape: str
    size_bytes: int
    is_embedding: bool


class Late(Struct, frozen=True, eq=False):
    """By replica, the time in which the others wait in collectives while it alone runs ops.

    `op` is the op with the most extra time on the last of them.
    """

    replicas: Shares
    op: str


class _OfHost(Struct, frozen=True, kw_only=True):
    """Results of ops that do not depend on the averaged steps; `first` has the largest ops of each kind."""

    first: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, Output]
    loop: Loop | None
    recurrent: Loop | None
    """The loop of a recurrent layer, in which each iteration needs the one before."""
    threads: tuple[int, int]
    """Threads of TensorFlow's pools: inter-op and intra-op."""
    cores: float | None
    double_percent: float | None
    """Share of float64 in the bytes of real numbers that ops allocate; None if no allocation is recorded."""
    updated: Updated
    weights: Mapping[str, Output]
    """By layer, the largest gradient of weights, which shows their shape."""
    python: str
    """The function of the program with most Python time in the graph; empty if no frame shows it."""


class Work(_OfHost, frozen=True, kw_only=True):
    """Ops of the averaged steps, in percent by name, largest first; see `StepOps`."""

    ops: Mapping[str, float]
    layers: Mapping[str, float]
    kinds: Mapping[str, float]
    late: Mapping[str, float]
    late_op: str
    late_steps: int
    """Steps in which the others wait longest for the replica that is late most."""


class StepOps(_OfHost, frozen=True, eq=False, kw_only=True):
    """Times of the ops of one host in each step. The names of `kinds` are codes of causes."""

    ops: Shares
    layers: Shares
    kinds: Shares
    late: Late | None

    def counted(self, steps: CountedSteps) -> Work:
        """Return the shares of the averaged steps."""
        late = {} if self.late is None else self.late.replicas.percents(steps)
        late_steps = 0
        if self.late is not None and late:
            waits = self.late.replicas.ps[:, steps.counted]
            row = self.late.replicas.names.index(next(iter(late)))
            late_steps = int(((waits.argmax(axis=0) == row) & (waits[row] > 0)).sum())
        return Work(
            **{name: getattr(self, name) for name in _OfHost.__struct_fields__},
            ops=self.ops.percents(steps),
            layers=self.layers.percents(steps),
            kinds=self.kinds.percents(steps),
            late=late,
            late_op="" if self.late is None else self.late.op,
            late_steps=late_steps,
        )


def average_work(parts: Sequence[Work | None]) -> Work | None:
    """Return the work of a run: shares are averages over the hosts that have them, all else is from the first."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0] if known else None
    means: dict[str, dict[str, float]] = {}
    for field in ("ops", "layers", "kinds", "late"):
        sums = Counter[str]()
        for part in known:
            sums.update(getattr(part, field))
        means[field] = {name: share / len(known) for name, share in sums.most_common()}
    return replace(known[0], **means)


class _Parts(NamedTuple):
    """Intervals of self time of ops: the key, the step, and the assigned part of the step's time."""

    key: Int32s
    step: Int32s
    ps: Float64s


def step_ops(
    trace: HostTrace, states: HostStates, steps: Steps, exchanges: Intervals
) -> tuple[StepOps | None, Intervals]:
    """Return the times of ops, without exchanges, in the steps of a host (None if not recorded), and when loops run."""
    name_of, compiled, _ = compiled_ops(trace)
    ops = (*map(parse_op, trace.names), *compiled)
    # Ops that compute for the step, including those that XLA compiled for the host.
    computes = states.code == State.COMPUTE
    thunks = trace.stat("hlo_op").event
    computes[thunks[trace.on_host[thunks]]] = True
    rows = np.flatnonzero(computes & trace.on_host)
    rows = rows[np.array([not _WAITING.match(op.type) for op in ops], np.bool_)[name_of[rows]]]
    if not len(rows) or not len(steps):
        return None, EMPTY
    names, key = distinct_index(name_of[rows])
    events = _Events(rows, key, trace.start_ps[rows], trace.end_ps[rows])
    full_names = [ops[name].name for name in names.tolist()]
    keys = [OpKey(shown_name(ops[name].name), ops[name].type) for name in names.tolist()]
    parts, count = _divided(trace, events, steps, exchanges), len(steps)
    arrays = _arrays(trace, full_names)
    flags = _flags(keys, full_names, arrays)
    for kind, code in _DENSE_TYPES.items():
        flags[code] = _dense_products(events, keys, full_names, arrays, kind)
    loops = _loops(trace, events, full_names, steps, recurrent=False)
    recurrent = _loops(trace, events, full_names, steps, recurrent=True)
    kinds = {kind: _by_step(parts, np.where(of_kind, 0, -1), 1, count)[0] for kind, of_kind in flags.items()}
    of_model = ModelLayers(keys)
    shown, op = text_index([_shown_op(each) for each in keys])
    layers, layer = text_index([_layer(each, of_model) for each in keys])
    op_ps = np.bincount(op[parts.key], parts.ps, len(shown)).astype(np.float64)
    layer_ps = np.bincount(layer[parts.key], parts.ps, len(layers)).astype(np.float64)
    first = {kind: _largest(op_ps, op[of_kind]) for kind, of_kind in flags.items()}
    kept = _largest(op_ps, np.arange(len(shown)), max(min(_MOST_CELLS // count, _MOST_OPS), 3))
    in_loops = [overlap(each.times, steps.start_ps, steps.end_ps) for each in (loops, recurrent)]
    found = StepOps(
        ops=_shares(parts, op, shown, kept, count),
        layers=_shares(parts, layer, layers, _largest(layer_ps, layer, _MOST_LAYERS), count),
        kinds=Shares((*kinds, "loop_in_graph", RECURRENT), np.array([*kinds.values(), *in_loops], np.int64)),
        first={kind: tuple(shown[row] for row in largest) for kind, largest in first.items() if largest},
        outputs={
            shown[op[place]]: array
            for place, name in enumerate(full_names)
            if (array := arrays.by_op.get(name)) is not None and op[place] in {*kept, *chain(*first.values())}
        },
        loop=loops.loop,
        recurrent=recurrent.loop,
        late=_late(events, full_names, steps, exchanges),
        threads=_threads(trace),
        cores=trace.usable_cores,
        double_percent=arrays.double_percent,
        updated=_updated(keys, full_names, arrays, flags["optimizer_update"]),
        weights=_weights(keys, full_names, [layers[place] for place in layer.tolist()], arrays),
        python=_python_of(trace, events.at(flags["python_in_graph"][events.key])),
    )
    return found, loops.times


class _Events(NamedTuple):
    """Events of ops, by line and start: `key` indexes the names of ops that occur."""

    row: Int64s
    key: Int64s
    start: Int64s
    end: Int64s

    def at(self, places: Bools) -> _Events:
        return _Events(*(column[places] for column in self))


def callback_of(name: str) -> str:
    """Return the code of the cause if a compiled program of JAX calls Python in the op of this name, else empty."""
    if not HOST_CALLBACK.match(name):
        return ""
    return "print_in_graph" if _PRINT.match(name.rpartition("/")[2].partition(".")[0]) else "python_in_graph"


def is_update(name: str, op_type: str, source: str = "") -> bool:
    """Return whether an op updates variables for an optimizer, by its scope, its type or its line of code."""
    return bool(_UPDATE.match(op_type) or _OPTIMIZER.search(shown_name(name)) or _OF_OPTIMIZERS.search(source))


@lru_cache(maxsize=1 << 14)
def shown_name(name: str) -> str:
    """Return the name of an op without wrappers that are unrelated to the model."""
    name = _WRAPPERS.sub("", without_transforms(name))
    body = _BODY.match(name)
    return "/".join(part for part in (body[2] if body else name).split("/") if part)


def _shown_op(key: OpKey) -> str:
    kind = _KERNEL_PREFIX.sub("", key.type)
    return key.name if not kind or kind.casefold() in key.name.casefold().rpartition("/")[2] else f"{key.name} ({kind})"


def _layer(key: OpKey, layers: ModelLayers) -> str:
    """Return the layer of an op and its gradient; the op itself if it has no named scope."""
    layer = layers.of(key.name)
    return key.name.rpartition("/")[2] if layer == NO_SCOPE else layer


def _divided(trace: HostTrace, events: _Events, steps: Steps, exchanges: Intervals) -> _Parts:
    """Divide the time of each step among the ops that run in it."""
    # These are the largest arrays of a host, so they are overwritten or deleted as soon as possible.
    every = np.ones(len(events.row), np.bool_)
    place, starts, ends = own_parts(events.start, events.end, parents(trace, events.row), every)
    keys = events.key[place].astype(np.int32)
    del place
    # An interval belongs to the step in which it starts, or else to the next one.
    step = np.searchsorted(steps.start_ps, starts, side="right") - 1
    step += (step < 0) | (starts >= steps.end_ps[np.maximum(step, 0)])
    np.minimum(step, len(steps) - 1, out=step)
    np.maximum(starts, steps.start_ps[step], out=starts)
    np.minimum(ends, steps.end_ps[step], out=ends)
    if not (inside := ends > starts).all():
        keys, step, starts, ends = keys[inside], step[inside], starts[inside], ends[inside]
    step_of_part = step.astype(np.int32)
    del step
    count, sizes = len(keys), (len(keys), len(keys), len(exchanges.start), len(exchanges.end))
    times = np.concatenate((starts, ends, exchanges.start, exchanges.end))
    del starts, ends
    order = np.argsort(times, kind="stable")
    times = times[order]
    share = np.zeros(len(times))
    np.subtract(times[1:], times[:-1], out=share[:-1])
    del times
    running = np.cumsum(np.repeat(np.array((1, -1, 0, 0), np.int8), sizes)[order], dtype=np.int32)
    if len(exchanges.start):
        running[np.cumsum(np.repeat(np.array((0, 0, 1, -1), np.int8), sizes)[order], dtype=np.int32) > 0] = 0
    share[running <= 0] = 0
    np.divide(share, running, out=share, where=running > 0)
    del running
    until = np.cumsum(share)
    until -= share
    share[order] = until
    return _Parts(keys, step_of_part, share[count : 2 * count] - share[:count])


def _by_step(parts: _Parts, group: Int64s, groups: int, steps: int) -> Int64s:
    of_part = group[parts.key]
    known = of_part >= 0
    cell = of_part[known] * steps + parts.step[known]
    return np.bincount(cell, parts.ps[known], groups * steps).astype(np.int64).reshape(groups, steps)


def _largest(ps: Float64s, among: Int64s, most: int = 3) -> list[int]:
    return sorted(set(among.tolist()), key=lambda row: -ps[row])[:most]


def _shares(parts: _Parts, group: Int64s, names: Sequence[str], kept: Sequence[int], steps: int) -> Shares:
    place = np.full(len(names), -1, np.int64)
    place[list(kept)] = np.arange(len(kept))
    return Shares(tuple(names[row] for row in kept), _by_step(parts, place[group], len(kept), steps))


_NO_ARRAY = Output("", 0)


class _Arrays(NamedTuple):
    """The largest array that each op allocates, and the share of float64 in the bytes of real numbers."""

    by_op: dict[str, Output]
    double_percent: float | None


def _arrays(trace: HostTrace, names: Sequence[str]) -> _Arrays:
    memory, own = trace.memory, set(names)
    op, texts = memory.text_index("tf_op")
    wanted = np.array([*(text in own for text in texts), False], np.bool_)
    rows = np.flatnonzero(memory.allocates & wanted[op])
    if not len(rows):
        return _Arrays({}, None)
    shape, shapes = memory.text_index("shape")
    size, kind = memory.number("requested_bytes", 0)[rows], memory.number("data_type", 0)[rows]
    is_double, is_real = np.isin(kind, _DOUBLES), np.isin(kind, _REALS)
    order = np.lexsort((size, op[rows]))
    last = order[np.append(op[rows][order][1:] != op[rows][order][:-1], True)]
    by_op = {
        texts[op[rows[place]]]: Output((*shapes, "")[shape[rows[place]]], int(size[place]), bool(is_double[place]))
        for place in last.tolist()
    }
    whole = int(size[is_real].sum())
    return _Arrays(by_op, percent(int(size[is_double].sum()), whole))


def _flags(keys: Sequence[OpKey], full_names: Sequence[str], arrays: _Arrays) -> dict[str, Bools]:

    def flags(is_of_kind: Iterable[bool]) -> Bools:
        return np.fromiter(is_of_kind, np.bool_, len(keys))

    known = [arrays.by_op.get(name) for name in full_names]
    is_text = flags(bool(_TEXT.fullmatch(key.type)) for key in keys)
    is_ragged = flags(bool(_RAGGED.fullmatch(key.type)) for key in keys)
    all_double = (arrays.double_percent or 0.0) >= _NEARLY_ALL_PERCENT
    return {
        "double_precision": flags(all_double if each is None else each.is_double for each in known),
        "optimizer_update": flags(is_update(key.name, key.type) for key in keys),
        "python_in_graph": flags(bool(_PYTHON.match(key.type)) for key in keys),
        "print_in_graph": flags(bool(_PRINT.match(key.type)) for key in keys),
        "input_in_step": (
            is_text | flags(bool(_FILES.fullmatch(key.type)) for key in keys) | (is_ragged if is_text.any() else False)
        ),
    }


def _dense_products(
    events: _Events, keys: Sequence[OpKey], full_names: Sequence[str], arrays: _Arrays, kind: str
) -> Bools:
    """Return which ops make a large, mostly zero array, or are the product that reads it.

    It is the product that follows most often, with its gradients. Its weights have as many rows as the array has
    columns; if no gradient has that size, the product is unrelated.
    """
    makes = np.array([key.type == kind for key in keys], np.bool_)
    known = [arrays.by_op.get(full_names[place], _NO_ARRAY) for place in np.flatnonzero(makes).tolist()]
    columns = {_sizes(array.shape)[-1] for array in known if array.size_bytes >= _LARGE_BYTES and array.shape}
    forward = np.array([bool(_PRODUCT.match(key.type)) and not is_backward(key.name) for key in keys], np.bool_)
    products, made = events.at(forward[events.key]), events.at(makes[events.key])
    order = np.argsort(products.start, kind="stable")
    place = np.searchsorted(products.start[order], made.end)
    following = products.key[order][place[place < len(order)]]
    alone = makes if kind == "SparseToDense" else np.zeros(len(keys), np.bool_)
    if not columns or not len(following):
        return alone
    name = keys[int(np.bincount(following).argmax())].name
    path = f"/{name.rpartition('/')[0] or name}/"
    reads = np.array([path in f"/{key.name}/" for key in keys], np.bool_)
    gradients = [
        _sizes(arrays.by_op.get(full_names[place], _NO_ARRAY).shape)
        for place in np.flatnonzero(reads).tolist()
        if _is_weights(keys[place])
    ]
    is_of_another = any(gradients) and columns.isdisjoint(chain(*gradients))
    return alone if is_of_another else makes | reads


def _sizes(shape: str) -> list[int]:
    return [int(size) for size in re.findall(r"\d+", shape)]


class _Loops(NamedTuple):
    """The longest loop (None if there is none), and when any loop runs without another op."""

    loop: Loop | None
    times: Intervals


def _loops(trace: HostTrace, events: _Events, full_names: Sequence[str], steps: Steps, *, recurrent: bool) -> _Loops:
    """Find loops of graphs over examples or positions, which ops could vectorize, or loops of recurrent layers.

    A loop extends from its first event of a step to its last one, without the time of other ops. If its end is not
    recorded, it ends when the next other op starts. Loops over training steps are excluded. In a recurrent layer, each
    iteration needs the one before.
    """
    where = [_loop_of(name) if _is_recurrent(name) == recurrent else ("", "", "") for name in full_names]
    trains = {scope for scope, inside, _ in where if scope and not is_backward(scope) and _TRAINS.search(inside)}
    names, loop = text_index([scope if scope not in trains else "" for scope, _, _ in where])
    is_loop = np.array([bool(name) for name in names], np.bool_)
    if not is_loop.any():
        return _Loops(None, EMPTY)
    step = np.searchsorted(steps.start_ps, events.start, side="right") - 1
    in_step = (step >= 0) & (events.start < steps.end_ps[np.maximum(step, 0)])
    is_inside = is_loop[loop[events.key]]
    inside, others, step_inside = events.at(in_step & is_inside), events.at(~is_inside), step[in_step & is_inside]
    cells, cell = distinct_index(loop[inside.key] * len(steps) + step_inside)
    if not len(cells):
        return _Loops(None, EMPTY)
    start, end = np.full(len(cells), MOST, np.int64), np.zeros(len(cells), np.int64)
    np.minimum.at(start, cell, inside.start)
    np.maximum.at(end, cell, inside.end)
    of_loop, in_step_of = np.divmod(cells, len(steps))
    starts_with, ends_with = (
        np.array([any(each[0] == name and each[2] == mark for each in where) for name in names], np.bool_)
        for mark in ("FromTensor", "Stack")
    )
    process = np.sort(trace.start_ps[trace.host_events(mask(trace.names, lambda name: name == _PROCESS))])
    # A loop without a recorded start or end takes the time between the ops before and after it.
    before = np.append(-1, np.sort(others.end))
    after = np.append(np.sort(others.start), MOST)
    until, since = after[np.searchsorted(after, end)], before[np.searchsorted(before, start, side="right") - 1]
    run = np.append(process, MOST)[np.searchsorted(process, steps.start_ps[in_step_of])]
    start = np.where(starts_with[of_loop], start, np.minimum(start, np.maximum(since, run)))
    end = np.where(ends_with[of_loop] | (until == MOST), end, until)
    start, end = np.maximum(start, steps.start_ps[in_step_of]), np.minimum(end, steps.end_ps[in_step_of])
    busy = union(others.start, others.end)
    # The body runs at least as often as any op in it is recorded in a step.
    in_body = np.array([bool(body) for _, body, _ in where], np.bool_)
    of_body = in_body[inside.key]
    ran, run_of = distinct_index(inside.key[of_body] * len(steps) + step_inside[of_body])
    iterations = np.zeros(len(names), np.int64)
    np.maximum.at(iterations, loop[ran // len(steps)], np.bincount(run_of, minlength=len(ran)))
    taken, times = np.zeros(len(names)), [EMPTY]
    for index in np.flatnonzero(is_loop).tolist():
        here = of_loop == index
        if not here.any():
            continue
        own = difference(union(start[here], end[here]), busy)
        processed = float((np.searchsorted(process, end[here]) - np.searchsorted(process, start[here])).mean())
        if (iterations[index] or processed) >= _FEWEST_ITERATIONS:
            taken[index] = own.total()
            times.append(own)
    if not taken.any():
        return _Loops(None, EMPTY)
    most = int(taken.argmax())
    return _Loops(Loop(names[most], int(iterations[most]) or None), union_all(times))


@lru_cache(maxsize=1 << 14)
def _is_recurrent(name: str) -> bool:
    return _RECURRENT.search(name) is not None


@lru_cache(maxsize=1 << 14)
def _loop_of(name: str) -> tuple[str, str, str]:
    """Return the scope of the loop of an op (empty if none), the op in its body, and its other role.

    `FromTensor` passes elements to the loop before it starts, `Stack` collects them at its end.
    """
    name = _WRAPPERS.sub("", name[:PATH_READ])
    body, array = _BODY.match(name), _ARRAY.match(name)
    if body:
        return re.sub(r"/?while(?:_\d+)?(?:/.*)?$", "", body[1]) or "while", body[2], ""
    if not array:
        return "", "", ""
    return array[1].rstrip("/") or "while", "", array[2]


def _late(events: _Events, full_names: Sequence[str], steps: Steps, exchanges: Intervals) -> Late | None:
    """Return how long the others wait in collectives while only one replica runs ops; None without replicas."""
    numbers = [int(found[1]) if (found := _REPLICA.search(name)) else 0 for name in full_names]
    replicas = sorted(set(numbers))
    if len(replicas) < 2 or not len(exchanges.start):
        return None
    of_event = np.array(numbers, np.int64)[events.key]
    busy = {each: union(events.start[of_event == each], events.end[of_event == each]) for each in replicas}
    waits = []
    for each in replicas:
        others = union_all([times for other, times in busy.items() if other != each])
        alone = difference(intersection(busy[each], exchanges), others)
        waits.append(overlap(alone, steps.start_ps, steps.end_ps))
    most = replicas[int(np.array([each.sum() for each in waits]).argmax())]
    # Extra op time of this replica compared with the others.
    more = Counter[str]()
    duration = np.bincount(events.key, events.end - events.start, len(full_names)).tolist()
    for number, name, ps in zip(numbers, full_names, duration, strict=True):
        more[shown_name(name)] += ps if number == most else -ps / (len(replicas) - 1)
    shares = Shares(tuple(f"replica_{each}" for each in replicas), np.array(waits, np.int64))
    return Late(shares, more.most_common(1)[0][0])


def _threads(trace: HostTrace) -> tuple[int, int]:
    """Return the sizes of TensorFlow's inter-op and intra-op pools; 0 if several tasks share a process (unknown)."""
    if runs_several_tasks(trace):
        return 0, 0
    pools = Counter(line.name.partition("/")[0] for line in trace.host_lines)
    inside = sum(count for name, count in pools.items() if name.startswith("tf_numa") and name.endswith("Eigen"))
    return pools["tf_Compute"], inside


def _python_of(trace: HostTrace, calls: _Events) -> str:
    """Return the function of the program with most time in Python calls from the graph."""
    is_frame = frame_names(trace)
    if not len(calls.row) or not is_frame.any():
        return ""
    frames, inside = trace.host_events(is_frame), []
    for line in trace.host_lines:
        first, last = np.searchsorted(calls.row, (line.start, line.stop)).tolist()
        on_line = frames[np.searchsorted(frames, line.start) : np.searchsorted(frames, line.stop)]
        if last > first and len(on_line):
            inside.append(on_line[innermost_around(trace, calls.row[first:last], trace.start_ps[on_line]) >= 0])
    rows = np.concatenate([NO_NUMBERS, *inside])
    names, name = distinct_index(trace.name[rows])
    duration = np.bincount(name, trace.duration_ps[rows], len(names)).tolist()
    functions = python_functions([trace.names[each] for each in names.tolist()])
    own = [
        (ps, function.shown)
        for ps, function in zip(duration, functions, strict=True)
        if function.file and not function.package and function.file not in _FILES_OF_JAX
    ]
    return max(own, default=(0.0, ""))[1]


def _updated(keys: Sequence[OpKey], full_names: Sequence[str], arrays: _Arrays, updates: Bools) -> Updated:
    """Return the largest array that an optimizer makes, and whether it makes gradients of an embedding dense."""
    of_updates = np.flatnonzero(updates).tolist()
    made = [arrays.by_op[full_names[place]] for place in of_updates if full_names[place] in arrays.by_op]
    largest = max(made, key=lambda array: array.size_bytes, default=_NO_ARRAY)
    is_embedding = any(keys[place].type == "UnsortedSegmentSum" for place in of_updates)
    return Updated(largest.shape, largest.size_bytes, is_embedding)


def _is_weights(key: OpKey) -> bool:
    return is_backward(key.name) and bool(_WEIGHTS.match(key.name.rpartition("/")[2]))


def _weights(
    keys: Sequence[OpKey], full_names: Sequence[str], layers: Sequence[str], arrays: _Arrays
) -> dict[str, Output]:
    """Return the shapes of the weights of layers, from their gradients."""
    found: dict[str, Output] = {}
    for key, name, layer in zip(keys, full_names, layers, strict=True):
        array = arrays.by_op.get(name, _NO_ARRAY)
        is_larger = array.size_bytes > found.get(layer, _NO_ARRAY).size_bytes
        if _is_weights(key) and len(_sizes(array.shape)) > 1 and is_larger:
            found[layer] = array
    return found
