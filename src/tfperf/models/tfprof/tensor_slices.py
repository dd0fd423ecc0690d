"""Checkpoints of version 1: one table that holds the values too (`SavedTensorSlices`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tfperf.models.tfprof.dtypes import as_numbers
from tfperf.models.tfprof.input_file import InputFile
from tfperf.models.tfprof.tensors import Numbers, Place, by_name, elements_of, message, place_of, tensor_of

_FIELDS: Mapping[str, str] = {
    "float32": "float_val",
    "float64": "double_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    **dict.fromkeys(("int32", "int16", "int8", "uint8", "uint16"), "int_val"),
}
"""The field of a `TensorProto` that holds the values of a type."""
_WIDE = {"int": "int64", "boo": "int64", "uin": "uint64"}


class FirstVersion:
    """The tensors of a checkpoint; their values are decoded when they are asked for."""

    def __init__(self, file: InputFile, header: bytes, table: Mapping[bytes, bytes]) -> None:
        self._file, self._table = file, table
        listed = message(file, "SavedTensorSlices", header).meta.tensor
        self._pieces = by_name(table)
        self.tensors = {
            (name := each.name.decode("utf-8", "replace")): tensor_of(file, name, each.shape, each.type)
            for each in listed
        }

    def pieces(self, name: str) -> Iterator[tuple[Place | None, Iterator[Numbers]]]:
        """Yield where each piece of a tensor lies in it, and its numbers, flat."""
        tensor = self.tensors[name]
        left = tensor.elements
        for key in self._pieces.get(name.encode(), []):
            data = message(self._file, "SavedTensorSlices", self._table[key]).data
            place = place_of(self._file, name, tensor, data.slice)
            left -= elements_of(place)
            yield place, self._numbers(name, elements_of(place), tensor.dtype, data.data)
        if left:
            raise self._file.damaged(0, f"the pieces of {name} are not as many as it has elements")

    def text(self, name: str) -> bytes:
        """Raise TfprofInputError: what has texts is written as version 2."""
        raise self._file.damaged(0, f"{name} in a checkpoint of version 1")

    def _numbers(self, name: str, count: int, dtype: str, proto: Any) -> Iterator[Numbers]:
        if dtype in _FIELDS:
            numbers: Numbers = np.array(getattr(proto, _FIELDS[dtype]), _WIDE.get(dtype[:3], dtype)).astype(dtype)
        elif dtype == "float16":
            # Their bits, as numbers.
            numbers = as_numbers(np.array(proto.half_val, np.int64).astype("<u2").tobytes(), dtype)
        else:
            return
        if len(numbers) != count:
            raise self._file.damaged(0, f"{name} has {len(numbers)} values for {count} elements")
        yield numbers
