"""Programs of XLA as modules, by hand, the last computation first to run and the last instruction its result.

module(computation("main", op("a", "parameter", "f32[8]"), op("s", "add", "f32[8]", "a", "a")))
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tfperf.formats.hlo.model import UNKNOWN, ConvolutionDims, FoundComputation, FoundInstruction, Module, Shape, link

ADD = "add.f32"
NHWC = ConvolutionDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))


def shape(text: str) -> Shape:
    """`f32[8,16]`, with a layout `f32[8,?]{1,0}`, or several between parentheses."""
    found = re.findall(r"(\w+)\[([\d,?]*)\](?:\{([\d,]+)\})?", text)
    parts = tuple(
        Shape(
            kind,
            tuple(UNKNOWN if dim == "?" else int(dim) for dim in dims.split(",") if dim),
            layout=tuple(int(dim) for dim in layout.split(",") if dim),
        )
        for kind, dims, layout in found
    )
    return Shape("tuple", parts=parts) if text.startswith("(") else parts[0]


def op(name: str, opcode: str, of: str, *operands: str, calls: Iterable[str] = (), **fields: Any) -> FoundInstruction:
    """An instruction; `fields` are those of `Instruction`."""
    made = {"name": name, "opcode": opcode, "shape": shape(of), **fields}
    return FoundInstruction(name, made, operands, tuple(calls))


def computation(name: str, *instructions: FoundInstruction) -> FoundComputation:
    """A computation whose root is its last instruction."""
    return FoundComputation(name, name, instructions, instructions[-1].key)


def scalar(name: str, opcode: str) -> FoundComputation:
    """A computation of one operation on two numbers."""
    one, other = (op(key, "parameter", "f32[]", parameter=at) for at, key in enumerate("xy"))
    return computation(name, one, other, op("z", opcode, "f32[]", "x", "y"))


def module(*computations: FoundComputation) -> Module:
    """A module whose last computation runs."""
    return link("m", computations, computations[-1].key)


def of_one(
    opcode: str, of: str, *operands: str, name: str = "r", called: Iterable[FoundComputation] = (), **fields: Any
) -> Module:
    """A module of one instruction, whose operands `a`, `b`, ... are parameters of these shapes."""
    names = [chr(97 + at) for at in range(len(operands))]
    parameters = [op(names[at], "parameter", each, parameter=at) for at, each in enumerate(operands)]
    return module(*called, computation("main", *parameters, op(name, opcode, of, *names, **fields)))
