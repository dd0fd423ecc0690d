"""The rule about what the host sends: shapes that are mostly padding."""

from __future__ import annotations

from tfperf.formats.hlo.model import Instruction, Module
from tfperf.models.linter.hlo_graph import HloGraph
from tfperf.models.linter.hlo_rules.place import Place, element_bytes
from tfperf.models.linter.padding import Dims, both_orders
from tfperf.models.linter.rule import Ledger
from tfperf.models.linter.shared_rules import INPUTS


def check_inputs(graph: HloGraph, ledger: Ledger) -> None:
    """TPU-RS-2: parameters of three dimensions or more that no result takes over or has the shape of: no weights."""
    results = {(leaf.type, leaf.dims) for leaf in graph.module.entry.root_instruction.shape.leaves()}
    for index, node in enumerate(graph.nodes):
        if node.instruction.opcode == "parameter" and _may_be_sent(node.instruction, graph.module, results):
            shape = node.instruction.shape
            ledger.judge(node.instruction.name)
            INPUTS.check(ledger, [both_orders("input", shape.dims, element_bytes(shape))], Place(graph, index).where)


def _may_be_sent(parameter: Instruction, module: Module, results: set[tuple[str, Dims]]) -> bool:
    shape = parameter.shape
    is_kept = parameter.parameter in module.aliased_parameters or (shape.type, shape.dims) in results
    return not is_kept and not shape.is_tuple and shape.is_known and len(shape.dims) >= 3
