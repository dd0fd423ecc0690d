"""What the rules about compiled programs find, and parts of programs that several of their tests use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from hlo_modules import computation, module, op, scalar

from tfperf.formats.hlo.model import DotDims, FoundComputation, FoundInstruction, Module, OpMetadata
from tfperf.models.linter.rule import Ledger
from tfperf.models.linter.rules import RULES, check_program


def named(name: str, op_type: str = "") -> OpMetadata:
    return OpMetadata(op_type, name)


def parameter(name: str, of: str, at: int = 0) -> FoundInstruction:
    return op(name, "parameter", of, parameter=at)


PLAIN = DotDims((1,), (0,))


def dotted(left: str, right: str, of: str, dims: DotDims = PLAIN, name: str = "jit(f)/dot") -> list[FoundInstruction]:
    """A matrix product `d` of two parameters."""
    operands = [parameter("a", left), parameter("b", right, 1)]
    return [*operands, op("d", "dot", of, "a", "b", dot=dims, metadata=named(name))]


SUM, MAX = scalar("sum", "add"), scalar("max", "maximum")
ZERO = op("zero", "constant", "f32[]")
SQUARE = parameter("x", "f32[1024,1024]")


def rules_in(
    *instructions: FoundInstruction, called: Iterable[FoundComputation] = (), device: Literal["tpu", "gpu"] = "tpu"
) -> list[str]:
    """Return the rules that find something in a program of these instructions."""
    return [each.rule for each in judged(module(*called, computation("main", *instructions)), device).violations]


def found_in(program: Module) -> list[tuple[str, str]]:
    """Return the rules that find something in a program, each with the op."""
    return [(each.rule, each.ops[0]) for each in judged(program).violations]


def judged(program: Module, device: Literal["tpu", "gpu"] = "tpu") -> Ledger:
    """Return what all rules note about a program."""
    ledger = Ledger(RULES)
    check_program(program, ledger, device)
    return ledger
