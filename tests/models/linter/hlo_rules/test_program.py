"""All rules on a program: which parts of it are judged, and what cannot be."""

from __future__ import annotations

from hlo_modules import computation, module, op
from hlo_rule_builders import found_in, judged, named, parameter

from tfperf.formats.hlo.model import Shape


def test_bodies_of_loops_are_judged_too() -> None:
    scatter = op("s", "select-and-scatter", "f32[8]", "p", metadata=named("f/pool"))
    body = computation("body", parameter("p", "f32[8]"), scatter)
    condition = computation("condition", parameter("p", "pred[]"))
    loop = op("w", "while", "f32[8]", "x", calls=["body", "condition"])
    program = module(body, condition, computation("main", parameter("x", "f32[8]"), loop))
    assert found_in(program) == [("TPU-PL-2", "f/pool")]


def test_a_finding_has_the_name_of_the_instruction_where_there_is_no_op() -> None:
    scatter = op("s", "select-and-scatter", "f32[8]", "x")
    assert found_in(module(computation("main", parameter("x", "f32[8]"), scatter))) == [("TPU-PL-2", "s")]


def test_open_dimensions_are_not_evaluable() -> None:
    made = op("d", "negate", "f32[8]", "x")
    made.fields["shape"] = Shape("f32", (-1, 8))
    ledger = judged(module(computation("main", parameter("x", "f32[8]"), made)))
    assert [*ledger.unknown] == ["d"]
