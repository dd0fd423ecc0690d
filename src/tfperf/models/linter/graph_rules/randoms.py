"""Rules about random numbers: which kinds are dear."""

from __future__ import annotations

from tfperf.models.linter.op_graph import OpGraph
from tfperf.models.linter.padding import Level
from tfperf.models.linter.rule import Ledger, Violation

_KINDS: tuple[tuple[str, Level, frozenset[str], str, str], ...] = (
    (
        "TPU-RN-1",
        "medium",
        frozenset(("Multinomial", "StatelessMultinomial")),
        "draws from a categorical distribution, which is expensive",
        "draw on the host, or from a uniform distribution: argmax(logits - log(-log(uniform)))",
    ),
    (
        "TPU-RN-2",
        "info",
        frozenset((
            "RandomStandardNormal", "StatelessRandomNormal", "StatelessRandomNormalV2", "TruncatedNormal",
            "StatelessTruncatedNormal", "StatelessTruncatedNormalV2", "StatefulStandardNormalV2",
        )),
        "draws from a normal distribution, a little dearer than a uniform one",
        "use a uniform distribution where the model allows it",
    ),
    (
        "TPU-RN-3",
        "info",
        frozenset((
            "RandomUniform", "RandomUniformInt", "StatelessRandomUniform", "StatelessRandomUniformV2",
            "StatelessRandomUniformInt", "StatelessRandomUniformIntV2", "StatefulUniform",
        )),
        "draws from a uniform or a Bernoulli distribution, which is fast",
        "nothing to change",
    ),
)  # fmt: skip

_INITIAL = "/Initializer/"
"""The scope of first values of variables, which are drawn once."""


def check_randoms(graph: OpGraph, ledger: Ledger) -> None:
    """TPU-RN-1 to TPU-RN-3: draws of random numbers, once for each name scope."""
    for rule, level, ops, what, advice in _KINDS:
        by_scope: dict[str, list[int]] = {}
        for index in graph.of(ops):
            ledger.judge(graph.name_of(index))
            if _INITIAL in graph.name_of(index):
                continue
            by_scope.setdefault(graph.name_of(index).rpartition("/")[0], []).append(index)
        for found in by_scope.values():
            ledger.add(
                Violation(
                    rule=rule,
                    level=level,
                    ops=tuple(map(graph.name_of, found)),
                    op_type=graph.op(found[0]),
                    what=what,
                    advice=advice,
                    unless="it takes little of the step",
                    certainty="exact",
                )
            )
