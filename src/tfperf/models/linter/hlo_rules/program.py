"""All rules on a compiled program, with what keeps them from false alarms.

A compiler makes reductions, copies and slices of its own: they have no name of an op, and none of them is a finding.
Layouts of a CPU or GPU are not those of a TPU, so numbers are ranges over the layouts that a TPU may choose.
"""

from __future__ import annotations

from collections.abc import Callable

from tfperf.formats.hlo.model import Module
from tfperf.models.linter.hlo_graph import graphs_of_program
from tfperf.models.linter.hlo_rules.convolutions import check_convolution
from tfperf.models.linter.hlo_rules.inputs import check_inputs
from tfperf.models.linter.hlo_rules.pieces import check_piece
from tfperf.models.linter.hlo_rules.place import OPEN, Place
from tfperf.models.linter.hlo_rules.pooling import check_max_gradient, check_pooling
from tfperf.models.linter.hlo_rules.products import check_product
from tfperf.models.linter.hlo_rules.randoms import check_randoms
from tfperf.models.linter.hlo_rules.reductions import check_reduction
from tfperf.models.linter.hlo_rules.transposes import check_transpose
from tfperf.models.linter.rule import Ledger

_CHECKS: dict[str, Callable[[Place, Ledger], None]] = {
    "dot": check_product,
    "convolution": check_convolution,
    "reduce-window": check_pooling,
    "select-and-scatter": check_max_gradient,
    "scatter": check_max_gradient,
    "concatenate": check_piece,
    "slice": check_piece,
    "dynamic-slice": check_piece,
    "reduce": check_reduction,
    "transpose": check_transpose,
    "copy": check_transpose,
}


def check_program(module: Module, ledger: Ledger) -> None:
    """Apply all rules that a compiled program can be judged by; raises ProgramError for one that is too large."""
    graphs = [*graphs_of_program(module)]
    for graph in graphs:
        for index, node in enumerate(graph.nodes):
            if not node.instruction.shape.is_known:
                ledger.cannot(node.instruction.name, OPEN)
            elif (check := _CHECKS.get(node.instruction.opcode)) is not None:
                check(Place(graph, index), ledger)
        if graph.is_entry:
            check_inputs(graph, ledger)
    check_randoms(graphs, ledger)
