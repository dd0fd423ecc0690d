"""HLO ops of the kernels that XLA launches as CUDA graphs.

The profiler records the graph as the HLO op of such a kernel: `command_buffer_1`. The schedule of the program has the
HLO op; each distinct sequence of kernels is matched with it once.

XLA builds a graph (command buffer) from a contiguous part of the schedule, so that the kernels of a launch are in the
order of the schedule:

- A kernel that XLA generated is named after an instruction (`loop_add_fusion.7` as `loop_add_fusion_7`): the first one
  with its code, because all with equal code share a kernel. The name limits the instructions to those with that code.
- Kernels of libraries have names of their own. A call launches one or several, some after a fill of memory.

Generated kernels are matched first: all paths through the schedule without a gap are followed at once, forward and
backward, as sets of places (bits of integers). A kernel with several possible places gets none. Then the kernels of
libraries between two known places are divided among the calls between them, if that is possible in one way only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tfperf.base.arrays import Int64s, distinct, distinct_index
from tfperf.formats.hlo.hlo_proto import Schedule, ScheduledOp, read_schedule
from tfperf.trace.event_names import CUDA_GRAPH
from tfperf.trace.host_trace import GraphOps, HostTrace

_MOST_SEQUENCES = 1_000
"""Distinct sequences of a program's kernels that are matched; jobs have a few."""
_START, _END = -1, -2
_MOST_LEVELS = 50
_MOST_VISITS = 20
"""Visits of an instruction on average, in loops in loops; beyond, the rest of loops, branches and calls is left out."""
_MOST_REPEATED_LEVELS = 4
"""Loops in loops whose repetition is followed."""
_MOST_CALLS = 500
"""Calls of libraries in a row that are divided among kernels."""
_MOST_GAPS = 0.1
"""Share of kernels that do not follow their predecessor in the schedule, above which a sequence is not that program."""

_Calls = tuple[ScheduledOp, ...] | None
"""Calls of libraries on the way from one place to the next; None: unknown."""
_Open = dict[int, _Calls]
"""Places that the next one may follow, and the calls in between."""


def with_graph_ops(trace: HostTrace) -> HostTrace:
    """Return a GPU trace with the HLO op of each kernel of a CUDA graph as its stat `hlo_op`, if it can be derived."""
    stat = trace.stat("hlo_op")
    graph_of = [int(match[1] or 0) if (match := CUDA_GRAPH.match(text)) else -1 for text in stat.texts]
    rows = trace.device_rows
    op = trace.number_at("hlo_op", rows, -1)
    graph = np.array([*graph_of, -1], np.int64)[op]
    outside = rows[(graph < 0) & (op >= 0)]
    others = trace.known_at("program_id", outside)[0], trace.number_at("hlo_op", outside, -1)
    launched = _Launched(trace, rows[graph >= 0], graph[graph >= 0])
    texts, index = [*stat.texts], {text: at for at, text in enumerate(stat.texts)}
    found, run = trace.number_at("hlo_op", launched.row, -1), np.full(len(launched.row), -1, np.int64)
    runs = 0
    for program, launches in launched.programs.items():
        serialized = (trace.hlo_protos or {}).get(program)
        schedule = None if serialized is None else read_schedule(serialized)
        if schedule is None:
            continue
        symbols = Symbols(schedule)
        places = launched.sequences(launches, symbols)
        if len(places) > _MOST_SEQUENCES:
            continue
        sequences = [GraphSequence(graph, kernels, len(at)) for (graph, kernels), at in places.items()]
        least = min(sum(each.launches for each in sequences if each.graph == one.graph) for one in sequences)
        ran, counts = np.unique(others[1][others[0] == program], return_counts=True)
        # A program may run without graphs at first.
        usual = frozenset(texts[at].rpartition("::")[2] for at in ran[2 * counts > least].tolist())
        for at, ops in zip(places.values(), match_sequences(schedule, symbols, sequences, usual), strict=True):
            known = [(place, op) for place, op in enumerate(ops) if op is not None]
            for _, kernel_op in known:
                if kernel_op.op not in index:
                    index[kernel_op.op] = len(texts)
                    texts.append(kernel_op.op)
            matched = at[:, [place for place, _ in known]]
            found[matched] = [index[kernel_op.op] for _, kernel_op in known]
            first_runs = runs + len(ops) * np.arange(len(at))
            run[matched] = first_runs[:, None] + np.array([kernel_op.run for _, kernel_op in known], np.int64)
            runs += at.size
    values = stat.value.copy()
    values[np.searchsorted(stat.event, launched.row)] = found
    order = np.argsort(launched.row)
    graph_ops = GraphOps(launched.row[order], run[order])
    return replace(
        trace, stats={**trace.stats, "hlo_op": replace(stat, value=values, texts=tuple(texts))}, graph_ops=graph_ops
    )


class _Launched:
    """Device work of graphs, ordered by program, launch and time; `row` are rows of the trace."""

    def __init__(self, trace: HostTrace, rows: Int64s, graph: Int64s) -> None:
        program, is_known = trace.known_at("program_id", rows)
        launch = trace.number_at("correlation_id", rows, 0)
        usable = np.flatnonzero(is_known & (launch != 0))
        keys = [each[usable] for each in (program, graph, trace.plane_of(rows), launch)]
        order = np.lexsort((trace.start_ps[rows[usable]], *keys[::-1]))
        keys = [key[order] for key in keys]
        self.row = rows[usable[order]]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        self._graph, self._launch = keys[1], np.cumsum(is_first)
        self._starts = np.append(np.flatnonzero(is_first), len(order))
        names, self._kernel = distinct_index(trace.name[self.row])
        index: dict[str, int] = {}
        same = np.array([index.setdefault(trace.names[name], len(index)) for name in names.tolist()], np.int64)
        self._kernel, self._names = same[self._kernel], [*index]
        has_nodes = "cuda_graph_node_id" in trace.read_stats
        self._node = trace.number_at("cuda_graph_node_id", self.row, -1) if has_nodes else np.full(len(order), -1)
        self.programs = {
            each: np.flatnonzero(keys[0][self._starts[:-1]] == each).tolist() for each in distinct(keys[0]).tolist()
        }
        """Program id -> its launches."""

    def sequences(self, launches: list[int], symbols: Symbols) -> dict[tuple[int, tuple[str, ...]], Int64s]:
        """Return the distinct sequences of kernels, with their graph: the places of the kernels of each launch.

        Kernels of concurrent streams begin in any order. The generated ones are then in the order of their nodes,
        without those of libraries, whose nodes are numbered apart.
        """
        is_generated = np.array([bool(symbols.codes(name)) for name in self._names], np.bool_)[self._kernel]
        places = np.flatnonzero(is_generated & (self._node >= 0))
        node, launch = self._node[places], self._launch[places]
        is_mixed = np.zeros(len(self._starts), np.bool_)
        is_mixed[launch[1:][(node[1:] < node[:-1]) & (launch[1:] == launch[:-1])] - 1] = True
        found: dict[tuple[int, bytes], list[Int64s]] = {}
        for launch_at in launches:
            first, last = self._starts[launch_at], self._starts[launch_at + 1]
            at = np.arange(first, last)
            if is_mixed[launch_at]:
                own = at[is_generated[first:last] & (self._node[first:last] >= 0)]
                nodes, at_nodes = np.unique(self._node[own], return_index=True)
                # Nodes in a loop run several times.
                at = own[at_nodes] if len(nodes) == len(own) else at
            found.setdefault((int(self._graph[first]), self._kernel[at].tobytes()), []).append(at)
        return {
            (graph, tuple(self._names[each] for each in self._kernel[places[0]].tolist())): np.stack(places)
            for (graph, _), places in found.items()
        }


# --- sequences of kernels and the schedule ---


class GraphSequence(NamedTuple):
    """A sequence of kernels (names) that a graph launched, and how often; `graph` numbers graphs in schedule order."""

    graph: int
    kernels: tuple[str, ...]
    launches: int


class KernelOp(NamedTuple):
    """The instruction of a kernel, and the number of its run in the launch: runs of one launch are distinct."""

    op: str
    run: int


def match_sequences(
    schedule: Schedule, symbols: Symbols, sequences: Sequence[GraphSequence], outside: frozenset[str] = frozenset()
) -> list[list[KernelOp | None]]:
    """Return for each sequence the instruction of each kernel, None if unknown or not unique.

    `outside` are instructions that the program runs outside graphs; ignored if no graph fits then.
    """
    kernels = {kernel for sequence in sequences for kernel in sequence.kernels}
    # The most frequent sequence of each graph; together they are one run of the program.
    chain: dict[int, GraphSequence] = {}
    for sequence in sorted(sequences, key=lambda each: -each.launches):
        chain.setdefault(sequence.graph, sequence)
    ordered = [chain[graph] for graph in sorted(chain)]
    has_flow = any(op.flow in ("loop", "branch") for ops in schedule.computations.values() for op in ops)
    kinds = (False, True) if has_flow else (False,)
    ways = [(own, crosses) for own in dict.fromkeys((outside, frozenset[str]())) for crosses in kinds]
    best: tuple[int, _Places, list[list[int]]] | None = None
    for own, crosses in ways:
        places = _Places(schedule, symbols, kernels, own, crosses=crosses)
        gaps, found = places.match([sequence.kernels for sequence in ordered])
        if best is None or gaps < best[0]:
            best = gaps, places, found
        if not gaps:
            break
    if best is None:
        return []
    _, places, found = best
    known = dict(zip(ordered, found, strict=True))
    ranges = {sequence.graph: [state for state in states if state >= 0] for sequence, states in known.items()}
    results = []
    for sequence in sequences:
        if (states := known.get(sequence)) is None:
            low = max((max(of) for graph, of in ranges.items() if graph < sequence.graph and of), default=-1) + 1
            high = min((min(of) for graph, of in ranges.items() if graph > sequence.graph and of), default=None)
            _, (states,) = places.match([sequence.kernels], low, high)
        results.append(places.ops_of(sequence.kernels, states))
    return results


class _Step(NamedTuple):
    """The possible places (bits) of a kernel of a graph; free if it need not follow the kernel before."""

    graph: int
    kernel: int
    places: int
    is_free: bool


class Symbols:
    """The instructions that a generated kernel may run, by the kernel's name."""

    def __init__(self, schedule: Schedule) -> None:
        self._codes: dict[str, set[int]] = {}
        self._stems: dict[str, set[int]] = {}
        numbers: dict[object, int] = {}
        self.code_of: dict[str, int] = {}
        for op in (op for ops in schedule.computations.values() for op in ops if not op.flow):
            code = self.code_of[op.name] = numbers.setdefault(op.code, len(numbers))
            symbol = re.sub(r"\W", "_", op.name)
            self._codes.setdefault(symbol, set()).add(code)
            if op.opcode == "fusion":
                self._stems.setdefault(re.sub(r"_\d+$", "", symbol), set()).add(code)

    def codes(self, kernel: str) -> set[int]:
        """Return the codes of the instructions that the kernel may run; empty for one of a library.

        XLA numbers equal names apart with `__1`. An unknown number leaves the kind of fusion.
        """
        name = re.sub(r"__\d+$", "", kernel)
        found = self._codes.get(kernel) or self._codes.get(name)
        if found is None and (stem := re.sub(r"_\d+$", "", name)) != name:
            found = self._stems.get(stem)
        return found or set()


class _Places:
    """The schedule as places of generated kernels in their order, and which follows which.

    `crosses` is whether graphs contain loops and branches; else the host runs these, and no graph crosses their limits.
    """

    def __init__(
        self, schedule: Schedule, symbols: Symbols, kernels: Iterable[str], outside: frozenset[str], *, crosses: bool
    ) -> None:
        self._schedule, self._symbols, self._outside, self._crosses = schedule, symbols, outside, crosses
        codes = {kernel: symbols.codes(kernel) for kernel in kernels}
        self._generated = {code for of_kernel in codes.values() for code in of_kernel}
        self.ops: list[ScheduledOp] = []
        self._place_of: dict[str, int] = {}
        self._calls: dict[tuple[int, int], _Calls] = {}
        self._whole: list[_Calls] = []
        self._visits = 1_000 + _MOST_VISITS * sum(map(len, schedule.computations.values()))
        self._end(self._walk(schedule.entry, {_START: ()}, 0))
        edges = [edge for edge in self._calls if min(edge) >= 0]
        self._next = sum(1 << before for before, after in edges if after == before + 1)
        self._leaps = [edge for edge in edges if edge[1] != edge[0] + 1]
        self._leaps += [(place, place) for place, op in enumerate(self.ops) if op.opcode == "sort"]
        self._leaping = sum({1 << before for before, _ in self._leaps})
        of_code: dict[int, int] = {}
        for place, op in enumerate(self.ops):
            code = symbols.code_of[op.name]
            of_code[code] = of_code.get(code, 0) | 1 << place
        self._fitting: Mapping[str, int] = {
            kernel: sum(of_code.get(code, 0) for code in of_kernel) for kernel, of_kernel in codes.items() if of_kernel
        }

    def _walk(self, computation: int, open_: _Open, level: int) -> _Open:
        ops = self._schedule.computations.get(computation, ())
        self._visits -= 1 + len(ops)
        for op in ops:
            if op.flow:
                open_ = self._through(op, open_, level + 1)
            elif op.name in self._outside:
                self._end(open_)
                open_ = {_START: ()}
            elif self._symbols.code_of[op.name] in self._generated:
                place = self._place_of.setdefault(op.name, len(self.ops))
                if place == len(self.ops):
                    self.ops.append(op)
                self._connect(open_, place)
                open_ = {place: ()}
            else:
                open_ = {
                    place: None if calls is None or len(calls) == _MOST_CALLS else (*calls, op)
                    for place, calls in open_.items()
                }
        return open_

    def _through(self, op: ScheduledOp, open_: _Open, level: int) -> _Open:
        is_open = level < _MOST_LEVELS and self._visits > 0
        if op.flow == "call" and is_open:
            for call in op.calls:
                open_ = self._walk(call, open_, level)
            return open_
        if not self._crosses or not is_open:
            self._end(open_)
            for call in op.calls if is_open else ():
                self._end(self._walk(call, {_START: ()}, level))
            return {_START: ()}
        if op.flow == "branch":
            return _merged([self._walk(call, dict(open_), level) for call in op.calls] or [open_])
        ways = [open_]
        for _ in range(2 if level <= _MOST_REPEATED_LEVELS else 1):
            for call in op.calls:
                ways.append(self._walk(call, dict(ways[-1]), level))
        return _merged(ways)

    def _connect(self, open_: _Open, place: int) -> None:
        for before, calls in open_.items():
            edge = before, place
            self._calls[edge] = calls if self._calls.get(edge, calls) == calls else None

    def _end(self, open_: _Open) -> None:
        self._connect({place: calls for place, calls in open_.items() if place != _START}, _END)
        if open_.get(_START, ()) != ():
            self._whole.append(open_[_START])

    def match(
        self, graphs: Sequence[Sequence[str]], low: int = 0, high: int | None = None
    ) -> tuple[int, list[list[int]]]:
        """Return the number of gaps, and for each graph the place of each kernel: -1 for those without a unique one.

        The graphs run one after the other, and each may begin anywhere behind the last one.
        """
        within = (1 << (len(self.ops) if high is None else max(high, low))) - (1 << low)
        steps: list[_Step] = []
        gaps = [self._follow(number, kernels, within, steps) for number, kernels in enumerate(graphs)]
        found = [[-1] * len(kernels) for kernels in graphs]
        after: _Step | None = None
        for step in reversed(steps):
            places = step.places
            if after is not None:
                in_front = (1 << after.places.bit_length() - 1) - 1
                places &= in_front if after.is_free else self._before(after.places)
            after = step._replace(places=places)
            if places & (places - 1) == 0 and gaps[step.graph] <= _MOST_GAPS * len(graphs[step.graph]):
                found[step.graph][step.kernel] = places.bit_length() - 1
        return sum(gaps), found

    def _follow(self, graph: int, kernels: Sequence[str], within: int, steps: list[_Step]) -> int:
        """Add a step for each generated kernel of a graph; return the number of gaps."""
        gaps, is_first = 0, True
        for at, kernel in enumerate(kernels):
            if kernel not in self._fitting:
                continue
            before = steps[-1].places if steps else 0
            fitting = self._fitting[kernel] & within
            places = 0 if is_first else self._after(before) & fitting
            is_free = not places
            if is_free:
                # Anywhere behind the first possible place of the last kernel.
                places = fitting & ~((before & -before) * 2 - 1) if before else fitting
                gaps += not is_first or not places
            if places:
                steps.append(_Step(graph, at, places, is_free))
                is_first = False
        return gaps

    def _after(self, places: int) -> int:
        after = (places & self._next) << 1
        if places & self._leaping:
            for before, place in self._leaps:
                after |= (places >> before & 1) << place
        return after

    def _before(self, places: int) -> int:
        before = places >> 1 & self._next
        for place, after in self._leaps:
            before |= (places >> after & 1) << place
        return before

    def ops_of(self, kernels: Sequence[str], places: Sequence[int]) -> list[KernelOp | None]:
        """Return the instruction of each kernel, from the places of the generated ones."""
        found: list[KernelOp | None] = [None] * len(kernels)
        generated = [at for at, kernel in enumerate(kernels) if kernel in self._fitting]
        if not generated:
            if len(self._whole) == 1:
                self._divide(kernels, range(len(kernels)), self._whole[0], found)
            return found
        for at in generated:
            if places[at] >= 0:
                is_same = at > 0 and places[at] == places[at - 1]
                before = found[at - 1] if is_same else None
                found[at] = before or KernelOp(self.ops[places[at]].name, at)
        limits = [-1, *generated, len(kernels)]
        for first, last in pairwise(limits):
            if last - first > 1:
                edge = (_START if first < 0 else places[first], _END if last == len(kernels) else places[last])
                is_known = (first < 0 or edge[0] >= 0) and (last == len(kernels) or edge[1] >= 0)
                self._divide(kernels, range(first + 1, last), self._calls.get(edge) if is_known else None, found)
        return found

    def _divide(self, kernels: Sequence[str], run: range, calls: _Calls, found: list[KernelOp | None]) -> None:
        """Divide a run of kernels without generated ones among the calls."""
        for is_copy in (False, True):
            own = [at for at in run if kernels[at].lower().startswith(("memcpy", "hipmemcpy")) == is_copy]
            fitting = [op for op in calls or () if op.is_library != is_copy]
            for ats, op in zip(_divided([kernels[at] for at in own], len(fitting)), fitting, strict=False):
                if not any(_contradicts(kernels[own[at]], op) for at in ats):
                    for at in ats:
                        found[own[at]] = KernelOp(op.name, own[ats[0]])


def _merged(ways: Sequence[_Open]) -> _Open:
    merged: _Open = {}
    for open_ in ways:
        for place, calls in open_.items():
            merged[place] = calls if merged.get(place, calls) == calls else None
    return merged


def _divided(kernels: Sequence[str], calls: int) -> list[list[int]]:
    """Return the kernels (positions) of each call, empty if that is ambiguous."""
    if calls == 1 and kernels:
        return [[*range(len(kernels))]]
    is_fill = [kernel.lower().startswith(("memset", "hipmemset")) for kernel in kernels]
    if not calls or not kernels or is_fill[-1]:
        return []
    ways = []
    if is_fill.count(False) == calls:
        # One kernel each, with the fills before it.
        ways.append([at + 1 for at, fills in enumerate(is_fill) if not fills])
    if is_fill.count(True) == calls and is_fill[0]:
        ways.append([*(at for at, fills in enumerate(is_fill) if fills and at), len(kernels)])
    if not ways or any(way != ways[0] for way in ways):
        return []
    return [[*range(first, last)] for first, last in zip([0, *ways[0]], ways[0], strict=False)]


def _contradicts(kernel: str, op: ScheduledOp) -> bool:
    """Return whether the kernel is of another library than the call."""
    return ("cudnn" in kernel and "cublas" in op.target) or (kernel.startswith("nvjet") and "cudnn" in op.target)
