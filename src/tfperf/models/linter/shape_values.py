"""Whole numbers that a graph holds or works out of shapes: where a reshape leads, which dimensions are exchanged."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tfperf.models.tfprof.dtypes import dtype_name

if TYPE_CHECKING:
    from tfperf.models.linter.op_graph import OpGraph

Numbers = npt.NDArray[np.int64]
_MOST = 1 << 10
"""Numbers of a value: shapes have up to 254, and pieces of a tensor are some tens."""
_SCALAR_OPS = {"Add": np.add, "AddV2": np.add, "Sub": np.subtract, "Mul": np.multiply}


def value_of(graph: OpGraph, index: int) -> Numbers | None:
    """Return the whole numbers that a node holds, or that follow from known shapes; None if they are not known.

    -1 stands for a dimension that is not known.
    """
    if index < 0:
        return None
    known, waiting = graph.values, [index]
    while waiting:
        at = waiting[-1]
        sources = _sources(graph, at) if at not in known else []
        missing = [source for source in sources if source >= 0 and source not in known]
        if missing:
            waiting += missing
            continue
        if at not in known:
            known[at] = _found(graph, at, [known.get(source) for source in sources])
        waiting.pop()
    return known[index]


def _sources(graph: OpGraph, index: int) -> list[int]:
    """Return the nodes that a value is worked out of."""
    if graph.op(index) not in _COMPUTED:
        return []
    return [graph.source(index, place) for place in range(len(graph.nodes[index].inputs))]


def _found(graph: OpGraph, index: int, inputs: list[Numbers | None]) -> Numbers | None:
    op = graph.op(index)
    if op == "Const":
        value = graph.nodes[index].attrs.get("value")
        return None if value is None else whole_numbers(value.tensor)
    if op == "Shape":
        dims = graph.input_shape(index, 0)
        return None if dims is None else np.array(dims, np.int64)
    values = [each for each in inputs if each is not None]
    if op not in _COMPUTED or len(values) < len(inputs):
        return None
    try:
        return _computed(graph, index, values)
    except (ValueError, IndexError, ZeroDivisionError):
        return None


_COMPUTED = frozenset((*_SCALAR_OPS, "ConcatV2", "GatherV2", "Prod", "Pack", "StridedSlice"))


def _computed(graph: OpGraph, index: int, inputs: list[Numbers]) -> Numbers | None:
    op = graph.op(index)
    if op == "ConcatV2":
        _refuse_many(sum(each.size for each in inputs[:-1]))
        return np.concatenate([each.reshape(-1) for each in inputs[:-1]])
    if op == "GatherV2":
        _refuse_many(inputs[1].size * math.prod(inputs[0].shape[1:]))
        return inputs[0][inputs[1]]
    if op == "Pack":
        _refuse_many(len(inputs))
        return np.array([int(each.reshape(())) for each in inputs], np.int64)
    if op == "StridedSlice":
        return _sliced(graph, index, inputs)
    if any((each < 0).any() for each in inputs):
        return np.array(-1, np.int64)  # of what is not known
    if op == "Prod":
        return np.array(_product(inputs[0]), np.int64)
    _refuse_many(math.prod(np.broadcast_shapes(inputs[0].shape, inputs[1].shape)))
    found = _SCALAR_OPS[op](inputs[0], inputs[1])
    return np.asarray(found, np.int64)


def _refuse_many(count: int) -> None:
    """Raise ValueError for more numbers than a shape or its pieces have: each op may double those of another."""
    if count > _MOST:
        raise ValueError(count)


def _product(values: Numbers) -> int:
    product = 1
    for value in values.reshape(-1).tolist():
        product *= value
    if product >= 1 << 62:
        raise ValueError(product)
    return product


def _sliced(graph: OpGraph, index: int, inputs: list[Numbers]) -> Numbers:
    """Return part of a vector, or one of its numbers."""
    values, begin, end, stride = inputs
    odd = graph.number(index, "new_axis_mask") or graph.number(index, "ellipsis_mask")
    if values.ndim != 1 or begin.size != 1 or odd:
        raise ValueError("not a slice of a vector")
    if graph.number(index, "shrink_axis_mask"):
        return np.asarray(values[int(begin[0])], np.int64)
    first = None if graph.number(index, "begin_mask") else int(begin[0])
    last = None if graph.number(index, "end_mask") else int(end[0])
    return values[first : last : int(stride[0])]


def whole_numbers(tensor: Any) -> Numbers | None:
    """Return the numbers of a message of a tensor; None if it is damaged, large, or of another type."""
    dims = tuple(int(dim.size) for dim in tensor.tensor_shape.dim)
    stored = {"int32": "<i4", "int64": "<i8"}.get(dtype_name(tensor.dtype))
    if stored is None or any(size < 0 for size in dims):
        return None
    count = math.prod(dims)
    if count > _MOST:
        return None
    if tensor.tensor_content:
        if len(tensor.tensor_content) != count * np.dtype(stored).itemsize:
            return None
        return np.frombuffer(tensor.tensor_content, stored).astype(np.int64).reshape(dims)
    written = tensor.int_val or tensor.int64_val or [0]
    if len(written) > count > 0:
        return None
    values = np.array(written, np.int64)
    # What is not written repeats the last value.
    return np.concatenate((values, np.full(max(count - len(values), 0), values[-1])))[:count].reshape(dims)
