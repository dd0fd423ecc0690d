"""Rules of GPUs: sizes that suit tensor cores, and the layout of images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfperf.models.linter.graph_rules.convolutions import parts
from tfperf.models.linter.graph_rules.transposes import perm_of
from tfperf.models.linter.op_graph import CONVOLUTIONS, FORWARD, MATMULS, OPEN, OpGraph
from tfperf.models.linter.padding import MIB, Dims, PaddedTensor, in_layouts, shape_text, with_multiples
from tfperf.models.linter.rule import Ledger, Violation
from tfperf.models.linter.shared_rules import MULTIPLES, TINY_BATCH, channels_first, misaligned, tiny_batch

_LAYOUT_PERMS = ([0, 3, 1, 2], [0, 2, 3, 1], [0, 4, 1, 2, 3], [0, 2, 3, 4, 1])
_HALVES = ("float16", "bfloat16")


def check_gpu_products(graph: OpGraph, ledger: Ledger) -> None:
    """GPU-MM-1 and GPU-BT-1: sizes of matrix products."""
    for index in graph.of(MATMULS - {"Einsum"}):
        name = graph.name_of(index)
        left, right, output = graph.input_shape(index, 0), graph.input_shape(index, 1), graph.known(index)
        if output is None or left is None or right is None or -1 in (*left, *right) or len(output) < 2:
            ledger.cannot(name, OPEN)
            continue
        dtype = graph.dtype(index)
        multiple = MULTIPLES.get(dtype, 0)
        if not multiple or len(left) < 2:
            continue
        ledger.judge(name)
        transposed = graph.flag(index, "transpose_a", "adj_x")
        sizes = {"M": output[-2], "N": output[-1], "K": left[-2] if transposed else left[-1]}
        odd = {letter: size for letter, size in sizes.items() if size > 1 and size % multiple}
        if odd:
            padded = tuple(
                _tensors(graph, index, (("operand", left), ("operand", right), ("result", output)), multiple)
            )
            ledger.add(misaligned("GPU-MM-1", dtype, odd, multiple, padded, _where(graph, index)))
        _check_batch(graph, ledger, index, sizes["M"] if len(output) == 2 else TINY_BATCH)


def _tensors(graph: OpGraph, index: int, shapes: tuple[tuple[str, Dims], ...], multiple: int) -> Iterator[PaddedTensor]:
    for role, dims in shapes:
        of_dim = {place: multiple for place in range(max(len(dims) - 2, 0), len(dims)) if dims[place] > 1}
        yield in_layouts(role, [with_multiples(dims, of_dim)], graph.element_bytes(index))


def _where(graph: OpGraph, index: int) -> dict[str, Any]:
    return {"ops": (graph.name_of(index),), "op_type": graph.op(index)}


def check_gpu_convolutions(graph: OpGraph, ledger: Ledger) -> None:
    """GPU-CV-1, GPU-CV-2, GPU-LY-1 and GPU-BT-1: channels, layout and batch of convolutions."""
    for index in graph.of(CONVOLUTIONS):
        found, name, dtype = parts(graph, index), graph.name_of(index), graph.dtype(index)
        if found.activation is None or found.kernel is None or found.result is None:
            ledger.cannot(name, OPEN)
            continue
        multiple = MULTIPLES.get(dtype, 0)
        if not multiple:
            continue
        ledger.judge(name)
        batch, features = graph.batch_and_features(index, len(found.activation))
        channels = {"input channels": found.activation[features], "output channels": found.result[features]}
        odd = {key: size for key, size in channels.items() if size % multiple}
        tensors = tuple(
            in_layouts(role, [with_multiples(dims, {features: multiple})], graph.element_bytes(index))
            for role, dims in (("activation", found.activation), ("result", found.result))
        )
        uneven = {key: size for key, size in odd.items() if size % 2 and size > 1}
        if uneven:
            ledger.add(misaligned("GPU-CV-2", dtype, uneven, multiple, tensors, _where(graph, index)))
        elif odd and "Depthwise" not in graph.op(index):
            ledger.add(misaligned("GPU-CV-1", dtype, odd, multiple, tensors, _where(graph, index)))
        if dtype in _HALVES and features == 1:
            ledger.add(channels_first(graph.text(index, "data_format"), dtype, _where(graph, index)))
        _check_batch(graph, ledger, index, found.activation[batch])


def _check_batch(graph: OpGraph, ledger: Ledger, index: int, batch: int) -> None:
    if batch < TINY_BATCH and (graph.op(index) in FORWARD or graph.op(index) in MATMULS):
        ledger.add(tiny_batch(batch, _where(graph, index)))


def check_gpu_transposes(graph: OpGraph, ledger: Ledger) -> None:
    """GPU-LY-2: conversions between NHWC and NCHW beside a convolution."""
    for index in graph.of(frozenset(("Transpose",))):
        perm, output = perm_of(graph, index), graph.known(index)
        if perm not in _LAYOUT_PERMS or output is None:
            continue
        ledger.judge(graph.name_of(index))
        beside = [graph.source(index, 0), *(user for user, _ in graph.users(index))]
        if any(at >= 0 and graph.op(at) in CONVOLUTIONS for at in beside):
            size = graph.element_bytes(index)
            moved = 2 * in_layouts("", [with_multiples(output, {})], size).padded_bytes
            ledger.add(
                Violation(
                    rule="GPU-LY-2",
                    level="medium" if moved >= 2 * MIB else "info",
                    ops=(graph.name_of(index),),
                    op_type="Transpose",
                    what=f"layout conversion beside a convolution: all of {shape_text(output)} is read and written",
                    advice="keep images in one layout from the input pipeline to the last convolution",
                    unless="the compiler removes it; look for Transpose in a profile",
                    moved_bytes=moved,
                    certainty="exact",
                )
            )
