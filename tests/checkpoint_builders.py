"""Checkpoints of TensorFlow and files of Keras, made in a few words; checksums are right whatever else is wrong."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
from protobytes import varint
from tfprof_builders import message, shape

from tfperf.formats.models.checkpoint import crc32c, masked

MAGIC = bytes.fromhex("57fb808b247547db")
NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "string": 7, "int64": 9, "float16": 19}
Values = Mapping[str, npt.NDArray[np.generic]]
Layers = Mapping[str, tuple[str, Sequence[tuple[int, ...]]]]
"""For each group of a weights file, the name of its layer, and the shapes of its weights."""


def block(entries: Mapping[bytes, bytes], restarts: int = 1) -> bytes:
    """Return a block without its trailer; no key shares anything with the one before."""
    written = [b"\0" + varint(len(key)) + varint(len(value)) + key + value for key, value in entries.items()]
    return b"".join(written) + bytes(4 * restarts) + restarts.to_bytes(4, "little")


def with_trailer(data: bytes, compression: int = 0) -> bytes:
    checked = data + bytes([compression])
    return checked + masked(crc32c(checked)).to_bytes(4, "little")


def table(*blocks: bytes, compression: int = 0) -> bytes:
    """Return a table of these data blocks."""
    body, places = b"", {}
    for number, data in enumerate(blocks):
        places[bytes([number])] = varint(len(body)) + varint(len(data))
        body += with_trailer(data, compression)
    index = block(places)
    handles = varint(0) + varint(0) + varint(len(body)) + varint(len(index))
    return body + with_trailer(index) + handles.ljust(40, b"\0") + MAGIC


def write_checkpoint(prefix: Path, values: Values, texts: Mapping[str, bytes] = {}) -> Path:
    """Write a checkpoint of version 2 with these tensors, and return its prefix."""
    entries, data = {b"": message("BundleHeader", num_shards=1)}, b""
    for name in sorted({**values, **texts}):
        if name in values:
            stored, dims, dtype = values[name].tobytes(), values[name].shape, str(values[name].dtype)
            crc = crc32c(stored)
        else:
            crc = crc32c(len(texts[name]).to_bytes(4, "little"))
            check = masked(crc).to_bytes(4, "little")
            stored, dims, dtype = varint(len(texts[name])) + check + texts[name], (), "string"
            crc = crc32c(check + texts[name], crc)
        place = {"offset": len(data), "size": len(stored), "crc32c": masked(crc)}
        entries[name.encode()] = message("BundleEntry", dtype=NUMBERS[dtype], shape=shape(dims), **place)
        data += stored
    prefix.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{prefix}.index").write_bytes(table(block(entries)))
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)
    return prefix


def write_weights(path: Path, layers: Layers) -> Path:
    """Write a weights file as Keras 3 lays it out."""
    with h5py.File(path, "w") as root:
        for group, (name, shapes) in layers.items():
            variables = root.create_group(f"{group}/vars".lstrip("/"))
            variables.attrs["name"] = name
            for number, dims in enumerate(shapes):
                variables[str(number)] = np.zeros(dims, np.float32)
    return path


def write_keras(folder: Path, layers: Layers, config: object, compression: int = zipfile.ZIP_STORED) -> Path:
    """Write `model.keras`, with a configuration as text or as what its JSON holds."""
    path = folder / "model.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        archive.write(write_weights(folder / "weights.h5", layers), "model.weights.h5", compress_type=compression)
    return path
