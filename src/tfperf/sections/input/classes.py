"""Input ops, and which of five classes each is in."""

from __future__ import annotations

import re
from typing import Literal, get_args

from msgspec import Struct

from tfperf.trace.event_names import Op
from tfperf.trace.host.activities import Attribution

InputPart = Literal["on_demand_read", "advanced_read", "preprocessing", "enqueue", "other"]
"""The five classes of TensorFlow's input-pipeline analyzer."""

INPUT_PARTS: tuple[InputPart, ...] = get_args(InputPart)

_READER = re.compile(r"::(TFRecord|TextLine|FixedLengthRecord|SSTable|RecordIO|ArrayRecord)$")
_READS_AHEAD = re.compile(r"::(MemoryReader|MemoryWriter|Interleave|Prefetch|ParallelMap)")
_READS_AHEAD_TOO = re.compile(r"::(Legacy)?ParallelInterleave|::ParallelBatch|::MapAndBatch")
_HANDS_OVER = re.compile(
    r"::(Prefetch|MapAndBatch|((Legacy)?ParallelInterleave|ParallelMap|ParallelBatch|ParseExample)(V\d)?)(\[\d+\])?$"
    r"|^Iterator::Prefetch::Generator$"
)
"""Stages of which only the threads, or another pipeline, work: the call takes an element that is ready, or waits."""


class InputOp(Struct, frozen=True, kw_only=True):
    """An op of the input pipeline; times are picoseconds, summed over `threads` threads, but for `wall_ps`."""

    name: str
    part: InputPart
    count: int
    total_ps: int | None
    """With the ops inside; None: it stands for several ops, of which some may be inside others."""
    self_ps: int
    wall_ps: int | None
    """Time in which at least one thread ran this op itself; None: it stands for several ops."""
    threads: int | None


def part_of(op: Op, attribution: Attribution, *, hands_over: bool | None = None) -> InputPart:
    """Return the class of an input op.

    `corrected` differs in two points: a reader inside a parallel interleave reads ahead too; and a stage whose call
    only hands over what others made counts as `other`, since its time is waiting for them. Whether it does so is
    told by its name if `hands_over` does not tell it.
    """
    if op.type != "Dataset":
        return "enqueue"
    if attribution == "corrected" and (hands_over or (hands_over is None and _HANDS_OVER.search(op.name))):
        return "other"
    if not _READER.search(op.name):
        return "preprocessing"
    reads_ahead = _READS_AHEAD.search(op.name) or (attribution == "corrected" and _READS_AHEAD_TOO.search(op.name))
    return "advanced_read" if reads_ahead else "on_demand_read"
