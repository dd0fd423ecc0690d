"""The rule about matrix products: what their operands and results are rounded up to."""

from __future__ import annotations

from tfperf.models.linter.op_graph import MATMULS, OPEN, OpGraph
from tfperf.models.linter.padding import Dims, both_orders
from tfperf.models.linter.rule import Ledger
from tfperf.models.linter.shared_rules import PRODUCTS


def check_products(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-MM-3: operands and results of matrix products that are rounded up to tiles."""
    for index in graph.of(MATMULS):
        name = graph.name_of(index)
        shapes = _matrices(graph, index)
        if shapes is None:
            ledger.cannot(name, OPEN)
            continue
        ledger.judge(name)
        tensors = tuple(both_orders(role, dims, graph.element_bytes(index)) for role, dims in shapes if len(dims) > 1)
        PRODUCTS.check(ledger, tensors, {"ops": (name,), "op_type": graph.op(index)})


def _matrices(graph: OpGraph, index: int) -> list[tuple[str, Dims]] | None:
    """Return operands and result of a product, batches first; None if a dimension is not known."""
    given = [graph.known(*source) for source in graph.nodes[index].inputs[:2]]
    found = [*given, graph.known(index)]
    roles = ("first operand", "second operand", "result")
    if len(found) != len(roles) or any(dims is None for dims in found):
        return None
    shapes = [(role, dims) for role, dims in zip(roles, found, strict=True) if dims is not None]
    return _of_einsum(graph.text(index, "equation"), shapes) if graph.op(index) == "Einsum" else shapes


def _of_einsum(equation: str, shapes: list[tuple[str, Dims]]) -> list[tuple[str, Dims]]:
    """Return the tensors of an Einsum with the letters that all of them have first: the compiler may order them so."""
    terms = equation.replace(" ", "").replace("->", ",").split(",")
    if len(terms) != len(shapes) or any(len(term) != len(dims) for term, (_, dims) in zip(terms, shapes, strict=True)):
        return []
    batches = set(terms[0]).intersection(*terms[1:])
    ordered = []
    for term, (role, dims) in zip(terms, shapes, strict=True):
        shared = [size for letter, size in zip(term, dims, strict=True) if letter in batches]
        own = [size for letter, size in zip(term, dims, strict=True) if letter not in batches]
        if len(own) > 1:
            ordered.append((role, (*shared, *own)))
    return ordered
