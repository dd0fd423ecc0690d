"""Random numbers: the expensive kinds."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tfperf.formats.models.op_graph import OpGraph
from tfperf.models.linter.graph import place
from tfperf.models.linter.padding import Level
from tfperf.models.linter.program import HloGraph, Place
from tfperf.models.linter.rule import BOTH, TPU_NOTES, Ledger, Rule, Topic

CATEGORICAL = Rule(
    id="TPU-RN-1",
    title="Categorical random numbers",
    device="tpu",
    level="medium",
    reads=BOTH,
    when="an op that draws from a categorical or multinomial distribution",
    advice="draw on the host, or from a uniform distribution",
    unless="it takes a small part of the step",
    says="Categorical and multinomial pseudorandom numbers are quite expensive.",
    source=TPU_NOTES,
)
NORMAL = Rule(
    id="TPU-RN-2",
    title="Normal random numbers",
    device="tpu",
    level="info",
    reads=BOTH,
    when="an op that draws from a normal or truncated normal distribution",
    advice="use a uniform distribution if the model allows it",
    unless="it takes a small part of the step",
    says="Normal pseudorandom numbers cost a little more than uniform or Bernoulli ones.",
    source=TPU_NOTES,
)
UNIFORM = Rule(
    id="TPU-RN-3",
    title="Uniform random numbers",
    device="tpu",
    level="info",
    reads=BOTH,
    when="an op that draws from a uniform distribution; Bernoulli is a uniform draw with a comparison",
    advice="nothing to change",
    unless="it takes a small part of the step",
    says="Uniform and Bernoulli pseudorandom numbers are very fast.",
    source=TPU_NOTES,
)
_DRAWS_CATEGORICAL = "draws from a categorical distribution, which is expensive"
_DRAWS_NORMAL = "draws from a normal distribution, which is slightly more expensive than a uniform one"
_KINDS: tuple[tuple[Rule, Level, frozenset[str], str, str], ...] = (
    (
        CATEGORICAL,
        "medium",
        frozenset(("Multinomial", "StatelessMultinomial")),
        _DRAWS_CATEGORICAL,
        f"{CATEGORICAL.advice}: argmax(logits - log(-log(uniform)))",
    ),
    (
        NORMAL,
        "info",
        frozenset((
            "RandomStandardNormal", "StatelessRandomNormal", "StatelessRandomNormalV2", "TruncatedNormal",
            "StatelessTruncatedNormal", "StatelessTruncatedNormalV2", "StatefulStandardNormalV2",
        )),
        _DRAWS_NORMAL,
        NORMAL.advice,
    ),
    (
        UNIFORM,
        "info",
        frozenset((
            "RandomUniform", "RandomUniformInt", "StatelessRandomUniform", "StatelessRandomUniformV2",
            "StatelessRandomUniformInt", "StatelessRandomUniformIntV2", "StatefulUniform",
        )),
        "draws from a uniform or a Bernoulli distribution, which is fast",
        UNIFORM.advice,
    ),
)  # fmt: skip
_INITIAL = "/Initializer/"  # scope of the initial values of variables, which are drawn once
_RANDOM = re.compile(r"threefry|(^|/)(Random|Stateless(Random|Multinomial)|Multinomial)")
_DRAWS = re.compile(r"threefry|random_bits|Random|Stateless|Multinomial")
_RANDOM_OPCODES = ("rng", "rng-bit-generator")


def _check_randoms(graph: OpGraph, ledger: Ledger) -> None:
    for rule, level, ops, what, advice in _KINDS:
        by_scope: dict[str, list[int]] = {}
        for index in graph.of(ops):
            ledger.judge(graph.name_of(index))
            if _INITIAL not in graph.name_of(index):
                by_scope.setdefault(graph.name_of(index).rpartition("/")[0], []).append(index)
        for found in by_scope.values():
            ledger.add(rule.found(place(graph, *found), level, what, advice=advice, certainty="exact"))


def check_programs(graphs: Iterable[HloGraph], ledger: Ledger) -> None:
    """Check the draws of programs, which are arithmetic, once per name scope."""
    scopes: dict[str, Place] = {}
    for graph in graphs:
        for index, node in enumerate(graph.nodes):
            metadata = node.instruction.metadata
            named = _RANDOM.search(metadata.op_name) or _RANDOM.search(metadata.op_type)
            if named or node.instruction.opcode in _RANDOM_OPCODES:
                ledger.judge(node.instruction.name)
                # The scope is the name up to the part with the distribution.
                name, draws = metadata.op_name, _DRAWS.search(metadata.op_name)
                scope = name if draws is None else name[: max(name.rfind("/", 0, draws.start()), 0)]
                scopes.setdefault(scope, Place(graph, index))
    for scope, at in scopes.items():
        level: Level
        rule, level, what = UNIFORM, "info", "draws random bits, or from a uniform distribution, which is fast"
        if re.search("categorical|multinomial", scope, re.IGNORECASE):
            rule, level, what = CATEGORICAL, "medium", _DRAWS_CATEGORICAL
        elif re.search("normal", scope, re.IGNORECASE) or at.instruction.distribution == "normal":
            rule, level, what = NORMAL, "info", _DRAWS_NORMAL
        ledger.add(rule.found(at.where, level, what, advice="nothing to change", certainty="weak"))


TOPIC = Topic(rules=(CATEGORICAL, NORMAL, UNIFORM), check_graph=(_check_randoms,))
