"""The graph of a compiled program."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hlo_modules import computation, module, op
from hlo_rule_builders import parameter

from tfperf.formats.hlo.model import ProgramError
from tfperf.models.linter.program import HloGraph, graphs_of_program


def test_fusions_calls_and_tuples_are_put_in() -> None:
    fused = computation("fused", parameter("p", "f32[8]"), op("n", "negate", "f32[8]", "p"))
    called = computation("called", parameter("q", "f32[8]"), op("f", "fusion", "f32[8]", "q", calls=["fused"]))
    steps = [
        parameter("x", "f32[8]"), op("c", "call", "f32[8]", "x", calls=["called"]),
        op("t", "tuple", "(f32[8],f32[8])", "x", "c"),
        op("g", "get-tuple-element", "f32[8]", "t", tuple_index=1), op("e", "exponential", "f32[8]", "g"),
    ]  # fmt: skip
    (graph,) = graphs_of_program(module(fused, called, computation("main", *steps)))
    nodes = {node.instruction.name: node for node in graph.nodes}
    assert {*nodes} == {"x", "n", "t", "e"}
    assert graph.nodes[nodes["e"].operands[0]].instruction.name == "n"
    assert (nodes["n"].runs_in, nodes["n"].is_fused, nodes["e"].runs_in) == ("f", True, "e")


def test_programs_that_unfold_without_end_are_refused() -> None:
    """Forty levels of calls, two each, are 2 to the power of 40 instructions."""
    parts = [computation("c0", parameter("p0", "f32[]"))]
    for level in range(1, 40):
        calls = [op(f"a{level}{at}", "call", "f32[]", f"p{level}", calls=[f"c{level - 1}"]) for at in range(2)]
        result = op(f"r{level}", "add", "f32[]", f"a{level}0", f"a{level}1")
        parts.append(computation(f"c{level}", parameter(f"p{level}", "f32[]"), *calls, result))
    with pytest.raises(ProgramError, match="HLO ops and operands"):
        list(graphs_of_program(module(*parts)))


def test_a_graph_has_readers_through_what_leaves_values_as_they_are() -> None:
    steps = [parameter("x", "f32[8]"), op("b", "bitcast", "f32[8]", "x"), op("n", "negate", "f32[8]", "b")]
    graph = HloGraph(module(computation("main", *steps)), 0, is_entry=True)
    assert [graph.nodes[reader].instruction.name for reader in graph.readers(0)] == ["n"]


def test_ways_that_meet_again_are_gone_once() -> None:
    """Sixty operations that take the one before twice are 2 to the power of 60 ways to the first."""
    steps = [parameter("b0", "f32[8]"), op("n", "negate", "f32[8]", "b0")]
    names = ["n", *(f"b{level}" for level in range(1, 61))]
    steps += [op(name, "bitcast", "f32[8]", before, before) for before, name in pairwise(names)]
    graph = HloGraph(module(computation("main", *steps)), 0, is_entry=True)
    assert [graph.nodes[source].instruction.name for source in graph.sources(len(steps) - 1)] == ["n"]
