"""The order in which a compiled program runs its instructions: the schedule of its entry, loops and branches."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.formats.hlo.messages import XLA

Flow = Literal["", "loop", "branch", "call"]
"""How an instruction runs other computations: a loop first its condition, then its body; one of several; once."""
_FLOWS: dict[str, Flow] = {"while": "loop", "conditional": "branch", "call": "call", "async-start": "call"}
_WITHOUT_WORK = (
    *("parameter", "constant", "bitcast", "tuple", "get-tuple-element"),
    *("after-all", "add-dependency", "domain", "opt-barrier", "async-update"),
)
_OF_LIBRARIES = (
    *("custom-call", "convolution", "dot", "fft", "cholesky", "triangular-solve", "rng", "topk"),
    *("send", "recv", "all-", "reduce-scatter", "collective-", "ragged-all-to-all"),
)


class ScheduledOp(Struct, frozen=True, gc=False):
    """An instruction that may launch device work, or runs the computations `calls` (ids) as `flow` says.

    Instructions with equal `code` compute the same, so that XLA may compile one kernel for all of them.
    """

    name: str
    opcode: str
    code: Hashable
    flow: Flow = ""
    calls: tuple[int, ...] = ()
    target: str = ""
    """The function of a custom call."""
    is_library: bool = False
    """Whether a library or a kernel of the user's may do it, instead of a generated kernel or a copy."""


class Schedule(Struct, frozen=True):
    """The scheduled instructions of each computation, by its id."""

    entry: int
    computations: dict[int, tuple[ScheduledOp, ...]]


def read_schedule(serialized: bytes) -> Schedule | None:
    """Return the schedule of a serialized `HloProto`, or None for other bytes.

    A program without a schedule has its instructions in the order of the file, operands first.
    """
    try:
        module = XLA.message_class("ScheduledProto").FromString(serialized).hlo_module
    except DecodeError:
        return None
    computations = {each.id: each for each in module.computations}
    orders = {each.key: each.value.instruction_ids for each in module.schedule.sequences}
    found: dict[int, tuple[ScheduledOp, ...]] = {}
    waiting = [module.entry_computation_id]
    while waiting:
        key = waiting.pop()
        if key in found or key not in computations:
            continue
        instructions = computations[key].instructions
        if key in orders:
            by_id = {each.id: each for each in instructions}
            instructions = [by_id[each] for each in orders[key] if each in by_id]
        ops = (_scheduled(each, computations) for each in instructions)
        found[key] = tuple(op for op in ops if op.opcode not in _WITHOUT_WORK and not op.opcode.endswith("-done"))
        waiting += [call for op in found[key] if op.flow for call in op.calls]
    return Schedule(module.entry_computation_id, found)


def _scheduled(item: Any, computations: dict[int, Any]) -> ScheduledOp:
    opcode = item.opcode.decode("utf-8", "replace")
    name = item.name.decode("utf-8", "replace")
    flow = _FLOWS.get(opcode, "")
    if flow:
        # XLA lists the body of a loop before its condition.
        calls = item.called_computation_ids[::-1] if flow == "loop" else item.called_computation_ids
        return ScheduledOp(name, opcode, name, flow, tuple(calls))
    # The order of equal computations may differ, therefore they are compared as sorted.
    inner = [
        sorted((each.opcode, each.shape) for each in computations[call].instructions)
        for call in item.called_computation_ids
        if call in computations
    ]
    code = (opcode, item.shape, item.custom_call_target, item.fusion_kind, tuple(map(tuple, inner)))
    is_library = opcode.startswith(_OF_LIBRARIES) or item.fusion_kind == b"kCustom"
    target = item.custom_call_target.decode("utf-8", "replace")
    return ScheduledOp(name, opcode, code, target=target, is_library=is_library)
