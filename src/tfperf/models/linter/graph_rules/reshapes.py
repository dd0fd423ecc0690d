"""Rules about moving data between dimensions that are padded and others: reshapes, space to depth."""

from __future__ import annotations

import math

from tfperf.base.units import format_bytes
from tfperf.models.linter.op_graph import OPEN, OpGraph
from tfperf.models.linter.padding import MIB, both_orders, padding_text, shape_text
from tfperf.models.linter.rule import Ledger, Violation

_MOVES_SPACE = frozenset(
    ("BatchToSpace", "BatchToSpaceND", "SpaceToBatch", "SpaceToBatchND", "SpaceToDepth", "DepthToSpace")
)
_RESHAPES = frozenset(("Reshape",))
_FEW_CHANNELS = 4
_LEAST_WASTE = 0.25


def check_space(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-BS-1: ops that move data between batch, space and features."""
    for index in graph.of(_MOVES_SPACE):
        name, given = graph.name_of(index), graph.input_shape(index, 0)
        if given is None or -1 in given:
            ledger.cannot(name, OPEN)
            continue
        ledger.judge(name)
        features = graph.batch_and_features(index, len(given))[1]
        if graph.op(index) == "SpaceToDepth" and given[features] <= _FEW_CHANNELS:
            continue
        output = graph.known(index) or given
        moved = sum(both_orders("", dims, graph.element_bytes(index)).padded_bytes for dims in (given, output))
        ledger.add(
            Violation(
                rule="TPU-BS-1",
                level="medium",
                ops=(name,),
                op_type=graph.op(index),
                what=(
                    f"{shape_text(given)} becomes {shape_text(output)}: data move between padded dimensions and "
                    f"others, {format_bytes(moved)} with padding"
                ),
                advice="do it on the host, in the input pipeline, or choose a model without it",
                unless="it makes an input of a few channels wide enough for a convolution (space-to-depth)",
                moved_bytes=moved,
            )
        )


def check_reshapes(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-RS-1: reshapes that move data within padded dimensions."""
    for index in graph.of(_RESHAPES):
        name, given, output = graph.name_of(index), graph.input_shape(index, 0), graph.known(index)
        if output is None or given is None or -1 in given:
            ledger.cannot(name, OPEN)
            continue
        ledger.judge(name)
        if _wide(given) == _wide(output) or given[-2:] == output[-2:] or math.prod(given) == 0:
            continue
        tensors = [
            both_orders(role, dims if len(dims) > 1 else (1, *dims), graph.element_bytes(index))
            for role, dims in (("input", given), ("result", output))
            if dims
        ]
        wasteful = [each for each in tensors if each.least.waste >= _LEAST_WASTE and each.padded_bytes >= MIB]
        if not wasteful:
            continue
        largest = max(wasteful, key=lambda tensor: tensor.wasted_bytes)
        ledger.add(
            Violation(
                rule="TPU-RS-1",
                level="medium",
                ops=(name,),
                op_type=graph.op(index),
                what=f"a reshape to {shape_text(output)}; its {padding_text(largest, 'general tiling')}",
                advice="keep the last two dimensions, or make them multiples of 8 and 128 before and after",
                unless="the compiler can make it a view (a bitcast); then it takes no time in a profile",
                moved_bytes=sum(tensor.padded_bytes for tensor in tensors),
            )
        )


def _wide(dims: tuple[int, ...]) -> list[int]:
    return [size for size in dims if size != 1]
