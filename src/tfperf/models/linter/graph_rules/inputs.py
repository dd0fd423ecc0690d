"""The rule about what the host sends: shapes that are mostly padding."""

from __future__ import annotations

from msgspec.structs import replace

from tfperf.models.linter.op_graph import OPEN, OpGraph
from tfperf.models.linter.padding import both_orders
from tfperf.models.linter.rule import Ledger
from tfperf.models.linter.shared_rules import INPUTS

_INPUTS = frozenset(("_Arg", "Placeholder", "IteratorGetNext", "InfeedDequeue", "InfeedDequeueTuple"))
_FED = ("IteratorGetNext", "InfeedDequeue", "InfeedDequeueTuple")
_NOT_SAID = "the graph does not say whether the host passes this argument in each step"
_NO_NUMBERS = ("resource", "variant", "string")
_SENT_BY_HOST = replace(
    INPUTS, advice="send it as one dimension (tf.reshape(x, [-1]) on the host), and reshape it on the device"
)


def check_inputs(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-RS-2: what the host passes in each step, in shapes that are mostly padding."""
    for index in graph.of(_INPUTS):
        node = graph.nodes[index]
        if graph.dtype(index) in _NO_NUMBERS or not (graph.users(index) or node.op in _FED):
            continue
        for slot, dims in enumerate(node.shapes):
            _check_input(graph, ledger, index, slot, dims)


def _check_input(graph: OpGraph, ledger: Ledger, index: int, slot: int, dims: tuple[int, ...] | None) -> None:
    node, name = graph.nodes[index], graph.name_of(index)
    if node.is_argument and not node.from_host:
        ledger.cannot(name, _NOT_SAID)
    elif dims is None or -1 in dims:
        ledger.cannot(name, OPEN)
    else:
        ledger.judge(name)
        if len(dims) > 2:  # fewer are those of weights and labels
            where = {"ops": (name if not slot else f"{name}:{slot}",), "op_type": node.op}
            _SENT_BY_HOST.check(ledger, [both_orders("input", dims, graph.element_bytes(index))], where)
