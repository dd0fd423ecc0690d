"""Checkpoints of TensorFlow, read without it: names, shapes, types, and values when they are asked for.

A checkpoint of version 2 is a table in `PREFIX.index`, with a `BundleEntryProto` for each tensor, and the values in
`PREFIX.data-00000-of-0000N`. One of version 1 is a single table, with the values in it (`SavedTensorSlices`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tfperf.base.available_memory import available_bytes
from tfperf.base.units import format_bytes
from tfperf.formats.wire.trace_file import open_regular
from tfperf.models.tfprof.dtypes import as_numbers, bytes_of_element, has_numbers
from tfperf.models.tfprof.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof.table_file import is_table, read_table
from tfperf.models.tfprof.tensor_bundle import Bundle
from tfperf.models.tfprof.tensor_slices import FirstVersion
from tfperf.models.tfprof.tensors import LARGE, Numbers, Place, Tensor

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The string tensor that describes the objects whose variables a `tf.train.Checkpoint` holds."""

_KIND = "checkpoint"
_DATA = re.compile(r"\.data-\d{5}-of-\d{5}$")
_LATEST = re.compile(r'^[ \t]*model_checkpoint_path:\s*"((?:[^"\\]|\\.)*)"', re.MULTILINE)


class Checkpoint:
    """An open checkpoint: `tensors` by name, without the bookkeeping of the format.

    `path` may be the prefix (`model.ckpt`), one of the files (`model.ckpt.index`), or a folder with a file
    `checkpoint`. Raises TfprofInputError.
    """

    def __init__(self, path: Path) -> None:
        self.path = checkpoint_file(path)
        file = self.file = InputFile(self.path, _KIND)
        table = read_table(file)
        header = table.pop(b"", None)
        if header is None:
            raise file.damaged(0, "a table without a header")
        # A BundleHeaderProto starts with a number, SavedTensorSlices with a message.
        is_first_version = header[:1] == b"\x0a"
        self._store = FirstVersion(file, header, table) if is_first_version else Bundle(file, header, table)
        self.tensors: Mapping[str, Tensor] = self._store.tensors

    def pieces(self, name: str) -> Iterator[tuple[Place | None, Iterator[Numbers]]]:
        """Yield where each piece of a tensor lies in it (None: it is whole), and its numbers, flat, part by part.

        A type that has no numbers has no parts. Raises TfprofInputError and KeyError.
        """
        return self._store.pieces(name)

    def read(self, name: str) -> Numbers | None:
        """Return a tensor; None for a type that has no numbers. Raises TfprofInputError and KeyError."""
        tensor = self.tensors[name]
        _refuse_large(self.path, name, tensor)
        if not has_numbers(tensor.dtype):
            return None
        whole = np.zeros(tensor.shape, as_numbers(b"", tensor.dtype).dtype)
        for place, parts in self._store.pieces(name):
            if tensor.elements:
                cut = whole[place or ...]
                cut[...] = np.concatenate([*parts]).reshape(cut.shape)
        return whole

    def object_graph(self) -> bytes | None:
        """Return the serialized description of objects (`TrackableObjectGraph`) of a `tf.train.Checkpoint`."""
        return self._store.text(OBJECT_GRAPH) if OBJECT_GRAPH in self.tensors else None


def is_checkpoint(path: Path) -> bool:
    """Tell whether a path names a checkpoint: a prefix, a file, or a folder with a file `checkpoint`."""
    if path.is_dir():
        return (path / "checkpoint").is_file() or only_index(path) is not None
    if path.name.endswith(".index") or _DATA.search(path.name) or Path(f"{path}.index").is_file():
        return True
    try:
        with open_regular(path) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 48, 0))
            return is_table(file.read())
    except OSError:
        return False


def checkpoint_file(path: Path) -> Path:
    """Return the file with the table of a checkpoint that is named in any of the ways people do."""
    if path.is_dir():
        if not (path / "checkpoint").is_file() and (index := only_index(path)):
            return index
        if not (path / "checkpoint").is_file():
            raise TfprofInputError(
                f"{path} has no file `checkpoint`, which names the latest one: give the prefix of a checkpoint, for "
                f"example {path / 'model.ckpt'}"
            )
        path = _latest(path)
    elif path.name == "checkpoint" and path.is_file() and not is_table(InputFile(path, _KIND).data):
        path = _latest(path.parent)
    prefix = Path(_DATA.sub("", str(path)))
    index = Path(f"{prefix}.index")
    return index if index.is_file() else prefix


def only_index(folder: Path) -> Path | None:
    """Return the index of the only checkpoint in a folder; None if there are none or several."""
    found = [path for path in folder.glob("*.index") if path.is_file()]
    return found[0] if len(found) == 1 else None


def _latest(folder: Path) -> Path:
    """Return the prefix that the file `checkpoint` of a folder names."""
    file = InputFile(folder / "checkpoint", "list of checkpoints")
    found = _LATEST.search(file.data.decode("utf-8", "replace"))
    if not found:
        raise file.refused("names no checkpoint (model_checkpoint_path): give the prefix of one, such as model.ckpt")
    prefix = re.sub(r"\\(.)", r"\1", found[1])
    # Where the folder was moved since, the path in it is that of the machine that wrote it.
    return next(
        (each for each in (folder / prefix, folder / Path(prefix).name) if is_checkpoint(each)), folder / prefix
    )


def _refuse_large(path: Path, name: str, tensor: Tensor) -> None:
    size = tensor.elements * (bytes_of_element(tensor.dtype) or 0)
    if size > LARGE and (free := available_bytes()) < 2 * size:
        needs = f"{format_bytes(2 * size)} of memory, {format_bytes(free)} is free"
        raise TfprofInputError(f"{path}: {name} is too large for this machine: it needs {needs}")
