"""Data that move between padded and other dimensions: space to depth, reshapes, and host inputs."""

from __future__ import annotations

import math

from tfperf.base.units import format_bytes
from tfperf.formats.models.dtypes import shape_text
from tfperf.formats.models.op_graph import OpGraph
from tfperf.models.linter.graph import OPEN, place
from tfperf.models.linter.padding import GENERAL_TILING, MIB, both_orders, padding_text
from tfperf.models.linter.program import HloGraph, Place, element_bytes
from tfperf.models.linter.rule import BOTH, TPU_NOTES, Ledger, Rule, Topic

SPACE = Rule(
    id="TPU-BS-1",
    title="Conversion between batch, space and depth",
    device="tpu",
    level="medium",
    reads=("graph",),
    when="an op that converts between batch, space and depth, except space-to-depth of an input with up to 4 channels",
    advice="do it on the host, or choose a model without it",
    unless="it widens an input with few channels for a convolution",
    says="These are expensive, since data move from padded to unpadded dimensions or back.",
    source=TPU_NOTES,
)
RESHAPE = Rule(
    id="TPU-RS-1",
    title="Reshape of padded dimensions",
    device="tpu",
    level="medium",
    reads=("graph",),
    when="the last two dimensions change, and a quarter or more of at least 1 MiB is padding before or after",
    advice="keep the last two dimensions, or make them multiples of 8 and 128 before and after",
    unless="the compiler can make it a view (a bitcast)",
    says="A reshape may be expensive when it moves data within a padded dimension.",
    source=TPU_NOTES,
)
INPUT = Rule(
    id="TPU-RS-2",
    title="Input that is mostly padding",
    device="tpu",
    level="high",
    reads=BOTH,
    when=(
        "an input with at least three dimensions that the host passes in each step is at least twice as large when "
        "padded, and at least 1 MiB; function arguments are checked if the graph shows their callers"
    ),
    advice="send it with one dimension, and reshape it on the device",
    unless="it stays on the device between steps, like weights",
    says="With much padding, it helps to reshape to rank 1 on the host, and back on the device.",
    source=TPU_NOTES,
)
_MOVES_SPACE = frozenset(
    ("BatchToSpace", "BatchToSpaceND", "SpaceToBatch", "SpaceToBatchND", "SpaceToDepth", "DepthToSpace")
)
_FEW_CHANNELS = 4
_LEAST_WASTE = 0.25
_INPUT_RATIO = 2.0
_FED = frozenset(("IteratorGetNext", "InfeedDequeue", "InfeedDequeueTuple"))
_INPUTS = _FED | {"_Arg", "Placeholder"}
_NOT_SAID = "the graph does not show whether the host passes this argument in each step"
_NO_NUMBERS = ("resource", "variant", "string")
_ON_THE_HOST = "send it with one dimension (tf.reshape(x, [-1]) on the host), and reshape it on the device"


def _check_space(graph: OpGraph, ledger: Ledger) -> None:
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
        what = (
            f"{shape_text(given)} becomes {shape_text(output)}: data move between padded dimensions and "
            f"others, {format_bytes(moved)} with padding"
        )
        advice = "do it on the host, in the input pipeline, or choose a model without it"
        unless = f"{SPACE.unless} (space-to-depth)"
        ledger.add(SPACE.found(place(graph, index), "medium", what, advice=advice, unless=unless, moved_bytes=moved))


def _check_reshapes(graph: OpGraph, ledger: Ledger) -> None:
    for index in graph.of(frozenset(("Reshape",))):
        name, given, output = graph.name_of(index), graph.input_shape(index, 0), graph.known(index)
        if output is None or given is None or -1 in given:
            ledger.cannot(name, OPEN)
            continue
        ledger.judge(name)
        wide_before, wide_after = ([size for size in dims if size != 1] for dims in (given, output))
        if wide_before == wide_after or given[-2:] == output[-2:] or math.prod(given) == 0:
            continue
        tensors = [
            both_orders(role, dims if len(dims) > 1 else (1, *dims), graph.element_bytes(index))
            for role, dims in (("input", given), ("result", output))
            if dims
        ]
        wasteful = [each for each in tensors if each.least.waste >= _LEAST_WASTE and each.padded_bytes >= MIB]
        if wasteful:
            largest = max(wasteful, key=lambda tensor: tensor.wasted_bytes)
            what = f"a reshape to {shape_text(output)}; its {padding_text(largest, 'general tiling')}"
            unless = f"{RESHAPE.unless}; then it takes no time in a profile"
            moved = sum(tensor.padded_bytes for tensor in tensors)
            ledger.add(RESHAPE.found(place(graph, index), "medium", what, unless=unless, moved_bytes=moved))


def _check_inputs(graph: OpGraph, ledger: Ledger) -> None:
    for index in graph.of(_INPUTS):
        node, name = graph.nodes[index], graph.name_of(index)
        if graph.dtype(index) in _NO_NUMBERS or not (graph.users(index) or node.op in _FED):
            continue
        for slot, dims in enumerate(node.shapes):
            if node.is_argument and not node.from_host:
                ledger.cannot(name, _NOT_SAID)
            elif dims is None or -1 in dims:
                ledger.cannot(name, OPEN)
            else:
                ledger.judge(name)
                if len(dims) > 2:  # weights and labels have fewer
                    where = {"ops": (name if not slot else f"{name}:{slot}",), "op_type": node.op}
                    tensors = [both_orders("input", dims, graph.element_bytes(index))]
                    ledger.add_padding(
                        INPUT, where, tensors, GENERAL_TILING, least=(_INPUT_RATIO, MIB), advice=_ON_THE_HOST
                    )


def check_parameters(graph: HloGraph, ledger: Ledger) -> None:
    """Check parameters with at least three dimensions that no result aliases or has the shape of, as weights do."""
    module = graph.module
    results = {(leaf.type, leaf.dims) for leaf in module.entry.root_instruction.shape.leaves()}
    for index, node in enumerate(graph.nodes):
        instruction, shape = node.instruction, node.instruction.shape
        if instruction.opcode != "parameter" or shape.is_tuple or not shape.is_known or len(shape.dims) < 3:
            continue
        if instruction.parameter in module.aliased_parameters or (shape.type, shape.dims) in results:
            continue
        ledger.judge(instruction.name)
        tensors = [both_orders("input", shape.dims, element_bytes(shape))]
        ledger.add_padding(INPUT, Place(graph, index).where, tensors, GENERAL_TILING, least=(_INPUT_RATIO, MIB))


TOPIC = Topic(rules=(SPACE, RESHAPE, INPUT), check_graph=(_check_space, _check_reshapes, _check_inputs))
