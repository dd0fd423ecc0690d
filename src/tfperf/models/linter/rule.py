"""Rules of the linter, their findings, and the ledger of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from tfperf.base.display import Shown
from tfperf.base.errors import TfperfError
from tfperf.base.units import format_bytes
from tfperf.models.linter.padding import LEVELS, MIB, Level, PaddedTensor, padding_text

if TYPE_CHECKING:
    from tfperf.formats.models.op_graph import OpGraph
    from tfperf.models.linter.program import Place

Device = Literal["tpu", "gpu"]
Reads = Literal["graph", "program", "names"]
"""Inputs of a rule: graphs, compiled XLA programs, and op names in a profile without their program."""
BOTH: tuple[Reads, ...] = ("graph", "program")
_NEEDS: Mapping[Reads, str] = {
    "graph": "ops, shapes and attributes of a graph",
    "program": "a compiled program",
    "names": "names and types of the ops of a profile without their programs",
}
TPU_NOTES = (
    "Cloud TPU documentation, Profile TensorFlow workloads, notes on the performance of TensorFlow functions "
    "(Japanese page, translated)"
)
Certainty = Literal["exact", "estimated", "weak"]
"""exact: shapes with the device's layout. estimated: the usual layout. weak: names only."""


class Rule(Struct, frozen=True, kw_only=True):
    """A rule about programs, declared once: its inputs, its advice, and its source."""

    id: str
    title: str
    device: Device
    level: str
    """Severity of its findings: one of `LEVELS`, or several."""
    reads: tuple[Reads, ...]
    """Supported inputs."""
    when: str
    """The condition."""
    advice: str
    unless: str
    """Exceptions in which the advice does not apply."""
    says: str
    """The sentence in the source that states the rule, shortened."""
    source: str
    reads_what: str = ""
    """Text for the part of its input that it reads, if it differs from other rules."""

    @property
    def needs(self) -> str:
        """Description of the input."""
        return self.reads_what or ", or ".join(_NEEDS[kind] for kind in self.reads)

    def found(self, where: Mapping[str, Any], level: Level, what: str, **fields: Any) -> Violation:
        """Return a finding; `where` has the fields about the op. `fields` may override texts of the rule."""
        texts = {"advice": self.advice, "unless": self.unless}
        return Violation(rule=self.id, level=level, what=what, **where, **{**texts, **fields})


class Violation(Shown, Struct, frozen=True, kw_only=True):
    """A finding of a rule at one place of a program; numbers are sums over its tensors."""

    rule: str
    level: Level
    ops: tuple[str, ...]
    op_type: str
    what: str
    """Sentence with the numbers of the finding."""
    advice: str
    unless: str
    certainty: Certainty = "estimated"
    tensors: tuple[PaddedTensor, ...] = ()
    moved_bytes: int = 0
    """Bytes read and written unnecessarily, including padding; 0 if nothing is moved."""
    source_line: str = ""
    """File and line in the source code, if recorded."""
    runs_in: str = ""
    """The timed XLA instruction: the op, or the fusion that contains it."""
    share: float | None = None
    """Share of the op in the device time (0 to 1), if a profile records it."""

    @property
    def wasted_bytes(self) -> int:
        """Minimum number of bytes that are computed on or moved unnecessarily."""
        return self.moved_bytes + sum(tensor.wasted_bytes for tensor in self.tensors)


class Topic(Struct, frozen=True, kw_only=True):
    """Rules about one kind of op, with their checks of graphs and compiled programs."""

    rules: tuple[Rule, ...]
    check_graph: tuple[Callable[[OpGraph, Ledger], None], ...] = ()
    check_program: Mapping[str, Callable[[Place, Ledger], None]] = {}
    """Checks by the opcode of an instruction."""


_MOST_FINDINGS = 50_000


class Ledger:
    """Collects the findings of a run of rules, the checked ops, and the ops that could not be checked."""

    def __init__(self, rules: Collection[str]) -> None:
        self._rules = frozenset(rules)
        self.violations: list[Violation] = []
        self.judged: set[str] = set()
        self.unknown: dict[str, str] = {}

    def judge(self, op: str) -> None:
        """Record that a rule checked an op."""
        self.judged.add(op)

    def cannot(self, op: str, why: str) -> None:
        """Record that a rule applies to an op but could not check it."""
        self.unknown.setdefault(op, why)

    def add(self, violation: Violation) -> None:
        """Add a finding if its rule is selected; raises TfperfError if there are too many."""
        if violation.rule in self._rules:
            if len(self.violations) >= _MOST_FINDINGS:
                raise TfperfError(
                    f"more than {_MOST_FINDINGS:,} findings: check a part of the model, or select rules with --rule"
                )
            self.violations.append(violation)

    def add_padding(
        self,
        rule: Rule,
        where: Mapping[str, Any],
        tensors: Sequence[PaddedTensor],
        how: str,
        *,
        least: tuple[float, int] = (1.25, MIB),
        **texts: str,
    ) -> None:
        """Report the most wasteful tensor's padding, if any tensor reaches the `least` ratio and padded bytes."""
        wasteful = [
            each
            for each in tensors
            if each.least.ratio >= least[0] and each.padded_bytes >= least[1] and each.wasted_bytes > 0
        ]
        if wasteful:
            what = padding_text(max(wasteful, key=lambda tensor: tensor.wasted_bytes), how)
            if (total := sum(each.wasted_bytes for each in tensors)) > max(each.wasted_bytes for each in wasteful):
                what += f", {format_bytes(total)} in all tensors of the op"
            level = worst([tensor.level for tensor in wasteful])
            self.add(rule.found(where, level, what, tensors=tuple(tensors), **texts))


def worst(levels: Collection[Level]) -> Level:
    """Return the most severe level."""
    return min(levels, key=LEVELS.index)


def at_least(level: Level, limit: Level) -> bool:
    """Return whether a level is at least as severe as a limit."""
    return LEVELS.index(level) <= LEVELS.index(limit)
