"""Graphs for rules, made in a few words: nodes with shapes, types, attributes and constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from places import SHARED
from tfprof_builders import message, shape

from tfperf.models.linter.engine import LintOptions, LintResult, lint_model

FLOAT, INT, HALF, RESOURCE = 1, 3, 19, 20
IMAGE = (30, 28, 28, 20)


def attr(name: str, **value: Any) -> dict[str, Any]:
    return {"key": name.encode(), "value": value}


def op(
    name: str, kind: str, *inputs: str, out: Sequence[int] | None = None, dtype: int = FLOAT, **attrs: Any
) -> dict[str, Any]:
    """Return a node with one output of these dimensions; an attribute is text, a number or a truth value."""
    written = [attr("T", type=dtype)]
    if out is not None:
        written.append(attr("_output_shapes", list={"shape": [shape(out)]}))
    for key, value in attrs.items():
        if isinstance(value, bool):
            written.append(attr(key, b=value))
        else:
            written.append(attr(key, s=value.encode()) if isinstance(value, str) else attr(key, i=value))
    return {"name": name.encode(), "op": kind.encode(), "input": [each.encode() for each in inputs], "attr": written}


def ints(name: str, *values: int) -> dict[str, Any]:
    """Return a constant: a vector of these whole numbers."""
    tensor = {"dtype": INT, "tensor_shape": shape((len(values),)), "int_val": values}
    return {"name": name.encode(), "op": b"Const", "attr": [attr("value", tensor=tensor), attr("dtype", type=INT)]}


def fed(name: str, *dims: int, dtype: int = FLOAT) -> dict[str, Any]:
    """Return an argument of a function, of which nobody says where it comes from."""
    node = op(name, "Placeholder", out=dims, _user_specified_name=name)
    return {**node, "attr": [*node["attr"], attr("dtype", type=dtype)]}


def graph(*nodes: dict[str, Any], functions: Sequence[dict[str, Any]] = ()) -> bytes:
    return message("WholeGraph", node=nodes, library={"function": functions})


def function(
    name: str, arguments: dict[str, Sequence[int]], nodes: Sequence[dict[str, Any]], result: str
) -> dict[str, Any]:
    """Return a function of one result; `arguments` are dimensions by name."""
    shapes = [{"shape": [shape(dims)]} for dims in arguments.values()]
    return {
        "signature": {
            "name": name.encode(),
            "input_arg": [{"name": each.encode(), "type": FLOAT} for each in arguments],
            "output_arg": [{"name": b"out", "type": FLOAT}],
        },
        "node_def": nodes,
        "ret": [{"key": b"out", "value": result.encode()}],
        "arg_attr": [
            {"key": place, "value": {"attr": [attr("_output_shapes", list=each)]}} for place, each in enumerate(shapes)
        ],
    }


def call(name: str, function_name: str, *inputs: str, out: Sequence[int] | None = None) -> dict[str, Any]:
    """Return a node that calls a function."""
    node = op(name, "StatefulPartitionedCall", *inputs, out=out)
    return {**node, "attr": [*node["attr"], attr("f", func={"name": function_name.encode()})]}


def linted(*nodes: dict[str, Any], **options: Any) -> LintResult:
    """Return what rules find in a graph of these nodes; without options, those of a TPU."""
    return lint_model(graph(*nodes), LintOptions(**{"device": "tpu", **options}))


def rules_in(result: LintResult) -> set[str]:
    return {violation.rule for violation in result.violations}


REFERENCE = SHARED / "tfprof" / "tpu_rules"
"""Graphs that TensorFlow made, one for each rule; tests of them are skipped where they are not."""
