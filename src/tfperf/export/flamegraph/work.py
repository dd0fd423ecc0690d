"""Bytes and operations of ops, where they are known: of XLA's instructions, and of ops whose shapes are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tfperf.base.units import percent
from tfperf.sections.ops.analysis import OpKey
from tfperf.sections.ops.sums import OpOfFunction, of_function

if TYPE_CHECKING:
    from tfperf.analysis.registry import Results
    from tfperf.sections.roofline.analysis import FrameworkOp
    from tfperf.sections.xla.instructions import HloOp

Amount = Literal["bytes", "flops"]


class WorkRow(Struct, frozen=True, kw_only=True):
    """What all runs of an op amount to, in the capture and in the steps that count."""

    key: OpOfFunction
    in_capture: float
    in_steps: float


class WorkSum(Struct, frozen=True, kw_only=True):
    """The ops whose amount is known, and the share of the time of their place that they take (None: no time)."""

    rows: tuple[WorkRow, ...]
    known_percent: float | None
    knows_steps: bool
    """Whether it is known what of it is in steps; on a host it is not."""


def work_sums(results: Results, place: Literal["host", "device"], amount: Amount) -> WorkSum:
    """Return the known bytes or operations of what ran on devices, or on host threads."""
    xla, roofline = results["xla"], results["roofline"]
    is_on_host = xla.place == "cpu"
    ops: list[HloOp | FrameworkOp] = []
    whole_ps = 0
    if place == "device" and not is_on_host:
        ops, whole_ps = [row.op for row in roofline.ops], roofline.whole_ps
    elif place == "host" and is_on_host:
        ops, whole_ps = [op for op in xla.ops if not op.is_estimated], xla.whole_ps
    rows, known_ps = [], 0
    for op in ops:
        of_run = getattr(op, amount)
        if of_run is None:
            continue
        known_ps += op.time_ps
        rows.append(WorkRow(key=_key(op), in_capture=of_run * op.runs, in_steps=of_run * op.runs_in_steps))
    return WorkSum(rows=tuple(rows), known_percent=percent(known_ps, whole_ps), knows_steps=place != "host")


def _key(op: HloOp | FrameworkOp) -> OpOfFunction:
    """Return the op of the framework, or the instruction where nothing leads to one."""
    hlo_op = "" if hasattr(op, "shapes") else op.op
    kind = getattr(op, "type", "") or getattr(op, "category", "") or getattr(op, "opcode", "")
    return of_function(OpKey(op.framework_op.partition(":")[0] or op.op, kind, hlo_op, op.module))
