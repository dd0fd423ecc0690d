"""Rules about random numbers: which kinds are dear."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tfperf.models.linter.hlo_graph import HloGraph
from tfperf.models.linter.hlo_rules.place import Place
from tfperf.models.linter.padding import Level
from tfperf.models.linter.rule import Ledger, Violation

_RANDOM = re.compile(r"threefry|(^|/)(Random|Stateless(Random|Multinomial)|Multinomial)")
_DRAWS = re.compile(r"threefry|random_bits|Random|Stateless|Multinomial")
_RANDOM_OPCODES = ("rng", "rng-bit-generator")
_CATEGORICAL, _NORMAL = re.compile(r"categorical|multinomial", re.IGNORECASE), re.compile(r"normal", re.IGNORECASE)


def check_randoms(graphs: Iterable[HloGraph], ledger: Ledger) -> None:
    """TPU-RN-1 to TPU-RN-3, once for each name scope: compiled programs draw by arithmetic."""
    scopes: dict[str, Place] = {}
    for graph in graphs:
        for index, node in enumerate(graph.nodes):
            metadata = node.instruction.metadata
            named = _RANDOM.search(metadata.op_name) or _RANDOM.search(metadata.op_type)
            if named or node.instruction.opcode in _RANDOM_OPCODES:
                ledger.judge(node.instruction.name)
                scopes.setdefault(_scope(metadata.op_name), Place(graph, index))
    for scope, place in scopes.items():
        rule, level, what = _kind(scope, place)
        ledger.add(
            Violation(
                rule=rule,
                level=level,
                what=what,
                advice="nothing to change",
                unless="it takes little of the step",
                certainty="weak",
                **place.where,
            )
        )


def _scope(name: str) -> str:
    """Return the scope of a random op: its name up to the part that names the distribution."""
    draws = _DRAWS.search(name)
    return name if draws is None else name[: max(name.rfind("/", 0, draws.start()), 0)]


def _kind(scope: str, place: Place) -> tuple[str, Level, str]:
    """Return the rule about a distribution, how much it matters, and what is drawn."""
    if _CATEGORICAL.search(scope):
        return "TPU-RN-1", "medium", "draws from a categorical distribution, which is expensive"
    if _NORMAL.search(scope) or place.instruction.distribution == "normal":
        return "TPU-RN-2", "info", "draws from a normal distribution, a little dearer than a uniform one"
    return "TPU-RN-3", "info", "draws random bits, or from a uniform distribution, which is fast"
