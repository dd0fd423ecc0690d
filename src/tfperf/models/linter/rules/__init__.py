"""All rules of the linter. Help, `tfperf explain`, docs/lint.md and reports read `RULES`.

Compilers generate reductions, copies and slices without an op name; these are not reported. CPU and GPU layouts differ
from TPU layouts, so numbers are ranges over the layouts that a TPU may choose.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfperf.formats.hlo.model import Module
from tfperf.formats.models.op_graph import OpGraph
from tfperf.models.linter.program import OPEN, Place, graphs_of_program
from tfperf.models.linter.rule import Device, Ledger, Rule
from tfperf.models.linter.rules import convolutions, gpu, pieces, products, randoms, reductions, reshapes, transposes

SUPPORTED = Rule(
    id="TPU-OP-1",
    title="Unsupported op",
    device="tpu",
    level="high, low",
    reads=("graph",),
    reads_what="ops of a graph, and a list of supported ones, if given (--supported-ops FILE)",
    when=(
        "an op is not in the given list; low, without a list: an op that TensorFlow 2.21 names as unsupported "
        "(summaries and Print)"
    ),
    advice="replace it, or run it on the host",
    unless="the list is for another version, or the op runs on the host, where TPUStrategy may put it by itself",
    says="XLA does not support reading of intermediate tensors, thus some ops are not supported.",
    source="TensorFlow 2.21, tensorflow/python/tpu/tpu_replication.py (read in November 2026)",
)
UNSUPPORTED = frozenset((
    "AudioSummary", "AudioSummaryV2", "HistogramSummary", "ImageSummary", "MergeSummary", "Print", "ScalarSummary",
    "TensorSummary", "TensorSummaryV2",
))  # fmt: skip
"""Ops of graphs that TensorFlow names in this file."""
_TPU_TOPICS = (
    convolutions.TOPIC, products.TOPIC, transposes.TOPIC, pieces.TOPIC, reshapes.TOPIC, randoms.TOPIC, reductions.TOPIC,
)  # fmt: skip
_TPU_CHECKS = {opcode: check for topic in _TPU_TOPICS for opcode, check in topic.check_program.items()}
_ORDER = ("MM", "CV", "PL", "CS", "TR", "BS", "RS", "RN", "RD", "BN", "OP")
_TPU_RULES = sorted(
    (SUPPORTED, *(rule for topic in _TPU_TOPICS for rule in topic.rules)),
    key=lambda rule: (_ORDER.index(rule.id.split("-")[1]), rule.id),
)
RULES: Mapping[str, Rule] = {rule.id: rule for rule in (*_TPU_RULES, *gpu.TOPIC.rules)}
"""By id, in the order of the documentation."""


def check_graph(graph: OpGraph, ledger: Ledger, device: Device) -> None:
    """Apply the rules of a device to a graph."""
    for topic in (gpu.TOPIC,) if device == "gpu" else _TPU_TOPICS:
        for check in topic.check_graph:
            check(graph, ledger)


def check_program(module: Module, ledger: Ledger, device: Device) -> None:
    """Apply the rules of a device to a compiled program; raises ProgramError for one that is too large."""
    graphs = [*graphs_of_program(module)]
    for graph in graphs:
        for index, node in enumerate(graph.nodes):
            instruction = node.instruction
            check = gpu.check_of(instruction) if device == "gpu" else _TPU_CHECKS.get(instruction.opcode)
            if not instruction.shape.is_known:
                if check or device == "tpu":
                    ledger.cannot(instruction.name, OPEN)
            elif check:
                check(Place(graph, index), ledger)
        if graph.is_entry and device == "tpu":
            reshapes.check_parameters(graph, ledger)
    if device == "tpu":
        randoms.check_programs(graphs, ledger)
