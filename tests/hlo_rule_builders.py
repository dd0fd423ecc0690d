"""What the rules about compiled programs find, and parts of programs that several of their tests use."""

from __future__ import annotations

from collections.abc import Iterable

from hlo_modules import computation, module, op, scalar

from tfperf.formats.hlo.model import FoundComputation, FoundInstruction, Module, OpMetadata
from tfperf.models.linter.rule import Ledger
from tfperf.models.linter.rules import RULES, check_program


def named(name: str, op_type: str = "") -> OpMetadata:
    return OpMetadata(op_type, name)


def parameter(name: str, of: str, at: int = 0) -> FoundInstruction:
    return op(name, "parameter", of, parameter=at)


SUM, MAX = scalar("sum", "add"), scalar("max", "maximum")
ZERO = op("zero", "constant", "f32[]")
SQUARE = parameter("x", "f32[1024,1024]")


def rules_in(*instructions: FoundInstruction, called: Iterable[FoundComputation] = ()) -> list[str]:
    """Return the rules that find something in a program of these instructions."""
    return [rule for rule, _ in found_in(module(*called, computation("main", *instructions)))]


def found_in(program: Module) -> list[tuple[str, str]]:
    """Return the rules that find something in a program, each with the op."""
    return [(each.rule, each.ops[0]) for each in judged(program).violations]


def judged(program: Module) -> Ledger:
    """Return what all rules note about a program."""
    ledger = Ledger(RULES)
    check_program(program, ledger, "tpu")
    return ledger
