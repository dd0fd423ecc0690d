"""The memory of accelerators over time, as counters of a trace viewer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfperf.base.arrays import Bools, Int64s
from tfperf.formats.wire import json_lines as text
from tfperf.models.tfprof.allocations import Allocations, Amounts, allocations_of
from tfperf.models.tfprof.chrome_events import LATEST, Events, Process, Timeline
from tfperf.models.tfprof.model import Executions, Model

TOP = 10
"""Nodes whose allocations are drawn."""

_LARGEST = 1 << 50
"""Bytes that no accelerator has."""


def memory_counters(model: Model, steps: Sequence[tuple[int, Executions]], first_process: int) -> Timeline:
    """Return a process for each accelerator whose allocators recorded something, numbered from the first.

    `Allocated bytes` is what the allocator had in use after an execution. `Largest allocations` is what the nodes that
    held most had taken and not given back themselves: what is given back later, by others, is not recorded.
    """
    names, index = np.unique(np.array(["", *model.device]), return_inverse=True)
    device = index.reshape(-1)[1:]
    read = [(step, allocations_of(model, step)) for step, each in steps if each.allocators]
    processes: list[Process] = []
    events: list[Events] = []
    for number, name in enumerate(names.tolist()):
        process = first_process + len(processes)
        found = [
            counter
            for step, allocations in read
            for counter in _counters(
                model, _of_device(allocations, device == number), process, f", step {step}" * (len(steps) > 1)
            )
        ]
        if found:
            processes.append(Process(process, f"Memory: {name}"))
            events += found
    return Timeline(processes=processes, events=events, notes=[])


def _of_device(allocations: Allocations, nodes: Bools) -> Allocations:
    """Return what was recorded of these nodes, in order of time; times and sizes made by damage are left out."""

    def sound(amounts: Amounts) -> Amounts:
        of_device = nodes[amounts.node] & (amounts.bytes < _LARGEST) & (amounts.bytes > -_LARGEST)
        return amounts.only(of_device & (amounts.micros >= 0) & (amounts.micros <= LATEST)).ordered()

    return Allocations(changes=sound(allocations.changes), in_use=sound(allocations.in_use))


def _counters(model: Model, allocations: Allocations, process: int, suffix: str) -> Iterator[Events]:
    head = f',\n{{"ph":"C","cat":"Memory","pid":{process},"name":'
    in_use = allocations.in_use
    if len(in_use.node):
        yield Events(
            in_use.micros,
            lambda rows: text.line(
                f'{head}"Allocated bytes","ts":',
                text.whole(in_use.micros[rows]),
                ',"args":{"bytes":',
                text.whole(in_use.bytes[rows]),
                "}}",
            ),
        )
    changes = _since_start(allocations)
    if len(changes.node):
        nodes, micros, held = _largest(changes)
        keys = [json.dumps(model.names[node]) for node in nodes.tolist()]

        def lines(rows: Int64s) -> Any:
            parts = [
                part for key, values in zip(keys, held, strict=True) for part in (f",{key}:", text.whole(values[rows]))
            ]
            parts[0] = parts[0][1:]
            name = json.dumps(f"Largest allocations{suffix}")
            return text.line(f'{head}{name},"ts":', text.whole(micros[rows]), ',"args":{', *parts, "}}")

        yield Events(micros, lines)


def _since_start(allocations: Allocations) -> Amounts:
    """Return the changes in order of time; what was there before counts from the first time on."""
    changes = allocations.changes
    times = np.concatenate((changes.micros[changes.micros > 0], allocations.in_use.micros))
    first = int(times.min()) if len(times) else 0
    return Amounts(node=changes.node, micros=np.maximum(changes.micros, first), bytes=changes.bytes)


def _largest(changes: Amounts) -> tuple[Int64s, Int64s, list[Int64s]]:
    """Return the nodes that held most, the times at which that changed, and what each held at each of them."""
    order = np.argsort(changes.node, kind="stable")
    node, micros = changes.node[order], changes.micros[order]
    nodes, first = np.unique(node, return_index=True)
    until = np.cumsum(changes.bytes[order])
    before = np.concatenate(([0], until))[first]
    held = until - np.repeat(before, np.diff(np.concatenate((first, [len(node)]))))
    most = np.argsort(-np.maximum.reduceat(held, first), kind="stable")[:TOP]
    rows = [slice(start, stop) for start, stop in zip(first, [*first[1:], len(node)], strict=True)]
    times = np.unique(np.concatenate([micros[rows[place]] for place in most.tolist()]))
    columns = []
    for place in most.tolist():
        at = np.searchsorted(micros[rows[place]], times, side="right")
        columns.append(np.concatenate(([0], held[rows[place]]))[at])
    return nodes[most], times, columns
