"""HLO ops of the kernels that XLA launches as CUDA graphs.

As HLO op of such a kernel the profiler records the graph: `command_buffer_1`. The schedule of the program tells the
HLO op; each distinct sequence of kernels is matched with it once (`schedule_match`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Int64s, distinct, distinct_index

if TYPE_CHECKING:
    from tfperf.trace.device.schedule_match import Symbols
    from tfperf.trace.host_trace import HostTrace

_GRAPH = re.compile(r"(?:.*::)?command_buffer(?:_(\d+))?\b")
_MOST_SEQUENCES = 1_000
"""Distinct sequences of a program's kernels that are matched; jobs have a few."""


class GraphOps(Struct, frozen=True):
    """Kernels and copies of CUDA graphs: their rows (ascending), and the run of an HLO op that each belongs to.

    Runs are numbered from 0; -1: the HLO op is unknown, and the stat `hlo_op` is the graph.
    """

    rows: Int64s = NO_NUMBERS
    run: Int64s = NO_NUMBERS


def with_graph_ops(trace: HostTrace) -> HostTrace:
    """Return the trace with the HLO op of each kernel of a CUDA graph as its stat `hlo_op`, where it can be derived."""
    stat = trace.stats.get("hlo_op")
    if stat is None or trace.device_kind != "gpu":
        return trace
    graph_of = [int(match[1] or 0) if (match := _GRAPH.match(text)) else -1 for text in stat.texts]
    if max(graph_of, default=-1) < 0:
        return trace
    from tfperf.formats.hlo.schedule import read_schedule
    from tfperf.trace.device.schedule_match import GraphSequence, Symbols, match_sequences

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
