"""The ops of the input pipeline: which there are, and in which stretches of time each worked itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tfperf.analysis.results import Host
from tfperf.base.arrays import Int64s, Intervals, distinct, lookup, union
from tfperf.sections.input.classes import InputOp, InputPart, part_of
from tfperf.trace.event_names import Op, hands_over_batch, mask, parse_op
from tfperf.trace.host.host_ops import is_input_op
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import own_parts, parents
from tfperf.trace.tfdata.pipelines import Pipelines
from tfperf.trace.tfdata.stage_work import CALL, FUNCTION, THREAD, StageWork, asynchronous_stages

FoundOp = tuple[InputOp, Intervals]
"""An op, and the stretches in which it worked; those of several threads overlap."""


def ops_by_event(host: Host) -> list[FoundOp]:
    """Return the input ops as TensorFlow does: by the names of their events, each without all ops inside."""
    host_ops, work = host.host_ops, host.host_ops.input_work
    entries_of: dict[Op, list[int]] = {}
    for entry in np.flatnonzero(host_ops.count).tolist():
        if is_input_op(host_ops.ops[entry]):
            entries_of.setdefault(replace(host_ops.ops[entry], kind=""), []).append(entry)
    found = []
    for op, entries in entries_of.items():
        rows = np.isin(work.name, entries)
        stretches = Intervals(work.start[rows], work.end[rows])
        input_op = InputOp(
            name=op.name,
            part=part_of(op, "tensorflow"),
            count=sum(host_ops.count[entries].tolist()),
            total_ps=sum(host_ops.total_ps[entries].tolist()),
            self_ps=sum(host_ops.self_ps[entries].tolist()),
            wall_ps=union(*stretches).total(),
            threads=sum(host_ops.threads[entries].tolist()),
        )
        found.append((input_op, stretches))
    return found


class _Piece(NamedTuple):
    """A part of an op: its events, and the stretches of its own work, with the event that each lies in."""

    events: Int64s
    rows: Int64s
    start: Int64s
    end: Int64s


_Label = tuple[str, InputPart]
_PASSING_ON = ("Prefetch", "ParallelInterleave", "LegacyParallelInterleave")
"""Stages whose threads only ask others for elements."""


def ops_by_stage(host: Host) -> list[FoundOp]:
    """Return the input ops by what a stage does in them: its calls, its own threads, and its function.

    That a thread waits for a function to run elsewhere is no work of anyone.
    """
    trace, recorded, work = host.trace, host.pipelines, host.stage_work
    pieces: dict[_Label, list[_Piece]] = {}
    for label, piece in _of_no_stage(trace, recorded):
        pieces.setdefault(label, []).append(piece)
    if recorded is not None and work is not None:
        for label, piece in _of_stages(recorded, work):
            if len(piece.events) or len(piece.rows):
                pieces.setdefault(label, []).append(piece)
    return [_whole(trace, label, parts) for label, parts in pieces.items()]


def _of_no_stage(trace: HostTrace, recorded: Pipelines | None) -> Iterator[tuple[_Label, _Piece]]:
    """Yield copies to devices, and calls that nothing links to a pipeline; each without those inside."""
    rows = trace.host_events(mask(trace.names, lambda name: is_input_op(parse_op(name)) or hands_over_batch(name)))
    wanted = np.ones(len(rows), np.bool_) if recorded is None else lookup(recorded.calls.row, rows) < 0
    part, start, end = own_parts(trace.start_ps[rows], trace.end_ps[rows], parents(trace, rows), wanted)
    events, inside = rows[wanted], rows[part]
    for name in distinct(trace.name[events]).tolist():
        op, is_part = parse_op(trace.names[name]), trace.name[inside] == name
        label = op.name if is_input_op(op) else trace.names[name]
        piece = _Piece(events[trace.name[events] == name], inside[is_part], start[is_part], end[is_part])
        yield (label, part_of(op, "corrected")), piece


def _of_stages(recorded: Pipelines, work: StageWork) -> Iterator[tuple[_Label, _Piece]]:
    """Yield what each stage does: in calls that hand over what other threads or pipelines made, it waits."""
    calls, produced, runs = recorded.calls, recorded.produced, recorded.runs
    is_async = asynchronous_stages(recorded)

    def piece(stage: int, place: int, events: Int64s) -> _Piece:
        rows = work.at(stage, place)
        return _Piece(events, work.row[rows].astype(np.int64), work.start[rows], work.end[rows])

    for index, stage in enumerate(recorded.stages):
        for_device = stage.name == "Generator" and recorded.device[stage.pipeline]
        part = part_of(Op("tf.data", stage.path, "Dataset"), "corrected", hands_over=is_async[index] or for_device)
        yield (stage.path, part), piece(index, CALL, calls.row[calls.stage == index])
        part = "other" if for_device or stage.name.startswith(_PASSING_ON) else "preprocessing"
        yield (f"threads of {stage.path}", part), piece(index, THREAD, produced.row[produced.stage == index])
        part = "other" if for_device else "preprocessing"
        yield (f"function of {stage.path}", part), piece(index, FUNCTION, runs.row[runs.stage == index])
    yield ("functions of unknown stages", "preprocessing"), piece(-1, FUNCTION, runs.row[runs.stage < 0])


def _whole(trace: HostTrace, label: _Label, parts: list[_Piece]) -> FoundOp:
    """Add up the pieces of an op. That of a function is what executors did, on whatever thread."""
    events, rows, start, end = (np.concatenate(each) for each in zip(*parts, strict=True))
    stretches = Intervals(start, end)
    name, part = label
    total_ps = stretches.total() if name.startswith("function") else int(trace.duration_ps[events].sum())
    input_op = InputOp(
        name=name,
        part=part,
        count=len(events),
        total_ps=max(total_ps, stretches.total()),
        self_ps=stretches.total(),
        wall_ps=union(start, end).total(),
        threads=len(distinct(trace.line_of[rows if len(rows) else events])),
    )
    return input_op, stretches
