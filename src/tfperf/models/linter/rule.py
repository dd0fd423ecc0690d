"""What a rule is, what it finds, and what a run of rules notes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from tfperf.base.display import Shown
from tfperf.base.errors import TfperfError
from tfperf.models.linter.padding import LEVELS, MIB, Level, PaddedTensor, padding_text

if TYPE_CHECKING:
    from tfperf.formats.models.op_graph import OpGraph
    from tfperf.models.linter.program import Place

Device = Literal["tpu", "gpu"]
Reads = Literal["graph", "program", "names"]
"""Graphs, compiled programs of XLA, and names of the ops of a profile that holds no program of them."""
BOTH: tuple[Reads, ...] = ("graph", "program")
_NEEDS: Mapping[Reads, str] = {
    "graph": "ops, shapes and attributes of a graph",
    "program": "a compiled program",
    "names": "names and types of the ops of a profile that holds no program of them",
}
TPU_NOTES = (
    "Cloud TPU documentation, Profile TensorFlow workloads, notes on the performance of TensorFlow functions "
    "(Japanese page, translated)"
)
Certainty = Literal["exact", "estimated", "weak"]
"""exact: shapes with the layout of the device. estimated: by the usual layout. weak: by names only."""


class Rule(Struct, frozen=True, kw_only=True):
    """A rule about programs, declared once: what it looks at, what it advises, and where it is from."""

    id: str
    title: str
    device: Device
    level: str
    """How much its findings matter: one of `LEVELS`, or several."""
    reads: tuple[Reads, ...]
    """What it can be applied to."""
    when: str
    """The condition."""
    advice: str
    unless: str
    """When the advice does not apply."""
    says: str
    """The sentence that it rests on, shortened."""
    source: str
    reads_what: str = ""
    """What it reads of that, where it is not what other rules read."""

    @property
    def needs(self) -> str:
        """What it reads, in words."""
        return self.reads_what or ", or ".join(_NEEDS[kind] for kind in self.reads)

    def found(self, where: Mapping[str, Any], level: Level, what: str, **fields: Any) -> Violation:
        """Return a finding; `where` has the fields about the op. Texts of the finding may replace those of the rule."""
        texts = {"advice": self.advice, "unless": self.unless}
        return Violation(rule=self.id, level=level, what=what, **where, **{**texts, **fields})


class Violation(Shown, Struct, frozen=True, kw_only=True):
    """What a rule found at one place of a program; numbers are sums over its tensors."""

    rule: str
    level: Level
    ops: tuple[str, ...]
    op_type: str
    what: str
    """The finding in words, with its numbers."""
    advice: str
    unless: str
    certainty: Certainty = "estimated"
    tensors: tuple[PaddedTensor, ...] = ()
    moved_bytes: int = 0
    """Bytes that are read and written for nothing, padded; 0 where nothing is moved."""
    source_line: str = ""
    """File and line of the program, where it says so."""
    runs_in: str = ""
    """The instruction of a program of XLA that has a time: the op, or the fusion that it is part of."""
    share: float | None = None
    """Share of the device time that the op took (0 to 1), where a trace says so."""

    @property
    def wasted_bytes(self) -> int:
        """Bytes that are computed on or moved for nothing, at least."""
        return self.moved_bytes + sum(tensor.wasted_bytes for tensor in self.tensors)


class Topic(Struct, frozen=True, kw_only=True):
    """Rules about one kind of op, and how graphs and compiled programs are checked by them."""

    rules: tuple[Rule, ...]
    check_graph: tuple[Callable[[OpGraph, Ledger], None], ...] = ()
    check_program: Mapping[str, Callable[[Place, Ledger], None]] = {}
    """By the opcode of an instruction."""


_MOST_FINDINGS = 50_000


class Ledger:
    """What a run of rules notes: what was found, which ops were judged, and which could not be."""

    def __init__(self, rules: Collection[str]) -> None:
        self._rules = frozenset(rules)
        self.violations: list[Violation] = []
        self.judged: set[str] = set()
        self.unknown: dict[str, str] = {}

    def judge(self, op: str) -> None:
        """Note that a rule could look at an op."""
        self.judged.add(op)

    def cannot(self, op: str, why: str) -> None:
        """Note that a rule would have had to look at an op, and could not."""
        self.unknown.setdefault(op, why)

    def add(self, violation: Violation) -> None:
        """Note what was found, if the rule was asked for; raises TfperfError for more than anybody reads."""
        if violation.rule in self._rules:
            if len(self.violations) >= _MOST_FINDINGS:
                raise TfperfError(
                    f"there are more than {_MOST_FINDINGS:,} findings, too many to be of use: give a part of the "
                    "model, or only some rules (--rule)"
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
        """Note the padding of tensors by the one that wastes most, if any has the `least` ratio and padded bytes."""
        wasteful = [
            each
            for each in tensors
            if each.least.ratio >= least[0] and each.padded_bytes >= least[1] and each.wasted_bytes > 0
        ]
        if wasteful:
            what = padding_text(max(wasteful, key=lambda tensor: tensor.wasted_bytes), how)
            level = worst([tensor.level for tensor in wasteful])
            self.add(rule.found(where, level, what, tensors=tuple(tensors), **texts))


def worst(levels: Collection[Level]) -> Level:
    """Return the level that matters most."""
    return min(levels, key=LEVELS.index)


def at_least(level: Level, limit: Level) -> bool:
    """Tell whether a level matters as much as a limit, or more."""
    return LEVELS.index(level) <= LEVELS.index(limit)
