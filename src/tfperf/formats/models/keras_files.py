"""Variables of Keras files: `.keras`, `.weights.h5`, and the older `.h5`. Only shapes are read, no values."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
from msgspec.structs import replace

from tfperf.base.units import format_bytes
from tfperf.formats.models.input_file import TfprofInputError
from tfperf.formats.models.variables import COUNTER, OPTIMIZER, Variable, judged
from tfperf.formats.wire.trace_file import open_regular

_WEIGHTS, _CONFIG = "model.weights.h5", "config.json"
_LARGEST_CONFIG, _MOST_VALUES = 1 << 24, 1 << 20
"""Limits for bytes and values of a model's unpacked configuration: a thousand layers take one megabyte."""
_MOST_LINKS, _MOST_LETTERS = 200_000, 1 << 26
"""Limits for names in the groups of a weights file, and for letters of variable paths."""
_LOCAL_HEADER = 30
_DEEPEST = 100
_CONTAINERS = ("layers", "_layer_checkpoint_dependencies")
"""Groups of a weights file for a list of layers, which have no name of their own."""
_OLD_WEIGHTS, _OLD_OPTIMIZER = "model_weights", "optimizer_weights"
_APART = {"optimizer": OPTIMIZER, _OLD_OPTIMIZER: OPTIMIZER, "metrics": COUNTER, "compile_metrics": COUNTER}
_BATCH_NORMALIZATION = "BatchNormalization"
_ALL_TRAINED = frozenset(
    (
        "Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose", "Dense",
        "DepthwiseConv1D", "DepthwiseConv2D", "EinsumDense", "Embedding", "GroupNormalization", "GRU", "LSTM",
        "LayerNormalization", "MultiHeadAttention", "PReLU", "RMSNormalization", "SeparableConv1D", "SeparableConv2D",
        "SimpleRNN",
    )
)  # fmt: skip
"""Keras layers whose weights are all trainable, unless the layer is frozen."""


class _Dataset(NamedTuple):
    """A dataset of a file: its groups, the names of its layers, its name, shape and type."""

    groups: tuple[str, ...]
    layers: tuple[str, ...]
    name: str
    shape: tuple[int, ...]
    dtype: str


def keras_variables(path: Path) -> list[Variable]:
    """Return the variables of a `.keras` file; raises TfprofInputError."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = {info.filename: info for info in archive.infolist()}
            if _WEIGHTS not in members:
                raise TfprofInputError(f"{path} is not a saved Keras model: a zip file without {_WEIGHTS}")
            config = _config(path, archive, members.get(_CONFIG))
            member = members[_WEIGHTS]
            if member.compress_type != zipfile.ZIP_STORED:
                raise TfprofInputError(f"{path} was recompressed: unzip it, and pass its {_WEIGHTS}")
            return _variables(path, io.BufferedReader(_Window(file, member)), config)
    except zipfile.BadZipFile as error:
        raise TfprofInputError(f"{path} is damaged, or not a .keras file: {error}") from error
    except (OSError, EOFError, RuntimeError, ValueError, NotImplementedError, zlib.error) as error:
        raise TfprofInputError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from error


def h5_variables(path: Path) -> list[Variable]:
    """Return the variables of a `.weights.h5` or `.h5` file; raises TfprofInputError."""
    try:
        with open_regular(path) as file:
            return _variables(path, file, {})
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise TfprofInputError(f"cannot open {path}: {reason}; check the path and its permissions") from error


class _Window(io.RawIOBase):
    """The bytes of an uncompressed zip member with random access, because `zipfile` decodes sequentially."""

    def __init__(self, file: BinaryIO, member: zipfile.ZipInfo) -> None:
        self._file, self._size, self._at = file, member.file_size, 0
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER)
        names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        self._start = member.header_offset + _LOCAL_HEADER + names
        if self._start + self._size > file.seek(0, io.SEEK_END):
            raise zipfile.BadZipFile(f"{member.filename} ends after the end of the file")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), max(0, self._size - self._at))
        self._file.seek(self._start + self._at)
        data = self._file.read(wanted)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _config(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo | None) -> Mapping[str, Any]:
    """Return the configuration of a model; empty if it is missing or cannot be read."""
    if member is None or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return {}
    if member.file_size > _LARGEST_CONFIG:
        most = format_bytes(_LARGEST_CONFIG)
        raise TfprofInputError(
            f"{path} is damaged: its {_CONFIG} unpacks to {format_bytes(member.file_size)}, more than the maximum of "
            f"{most}; save the model again"
        )
    with archive.open(member) as file:
        return _decoded(path, file.read(_LARGEST_CONFIG))


def _decoded(path: Path, text: str | bytes) -> Mapping[str, Any]:
    data = text.encode() if isinstance(text, str) else text
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_VALUES:  # a value takes ten times its text
        raise TfprofInputError(
            f"{path} is damaged: its configuration has more than the maximum of {_MOST_VALUES:,} values; save the "
            "model again"
        )
    try:
        config = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    return config if isinstance(config, dict) else {}


def _variables(path: Path, file: Any, config: Mapping[str, Any]) -> list[Variable]:
    try:
        import h5py
    except ImportError as error:
        raise TfprofInputError(f"{path} is an HDF5 file: to read it, pip install 'tfperf[h5]'") from error
    try:
        with h5py.File(file, "r") as root:
            config = config or _decoded(path, root.attrs.get("model_config", b""))
            top = root.get(_OLD_WEIGHTS, root)
            is_old = "layer_names" in top.attrs
            datasets = [*_datasets(path, h5py, root)]
    except (MemoryError, TfprofInputError):
        raise
    except Exception as error:  # h5py does not declare its errors for damaged files
        why = " ".join(str(error).split())[:200]
        raise TfprofInputError(f"{path} is damaged, or not an HDF5 file: {why}") from error
    if not is_old and not any("vars" in dataset.groups for dataset in datasets):
        raise TfprofInputError(f"{path} is an HDF5 file, but not Keras weights")
    layers = _Layers(config)
    return judged([_variable(dataset, layers, is_old=is_old) for dataset in datasets])


def _datasets(path: Path, h5py: Any, root: Any) -> Iterator[_Dataset]:
    """Yield the datasets below a group, each once; links to other files and cycles are not followed."""
    seen: set[int] = set()
    links = letters = 0
    left: list[tuple[Any, tuple[str, ...], tuple[str, ...]]] = [(root, (), ())]
    while left:
        group, groups, layers = left.pop()
        address = h5py.h5o.get_info(group.id).addr
        if address in seen or len(groups) > _DEEPEST:
            continue
        seen.add(address)
        links += len(group)
        if links > _MOST_LINKS:
            raise TfprofInputError(f"{path} is damaged: it has over {_MOST_LINKS:,} links; save the model again")
        above = sum(map(len, groups))
        for name in group:
            # Aliases are detected by address, because opening one takes twenty times as long.
            link = group.id.links.get_info(name.encode("utf-8", "surrogateescape"))
            if link.type != h5py.h5l.TYPE_HARD or link.u in seen:
                continue
            letters += above + len(name)
            if letters > _MOST_LETTERS:
                raise TfprofInputError(
                    f"{path} is damaged: its paths have over {_MOST_LETTERS:,} characters; save the model again"
                )
            child = group[name]
            if isinstance(child, h5py.Dataset):
                seen.add(link.u)
                dtype = str(child.attrs.get("dtype", child.dtype.name))
                yield _Dataset(groups, layers, name, tuple(child.shape or ()), dtype)
            elif name == "vars" or name in _CONTAINERS:
                left.append((child, (*groups, name), layers))
            else:
                # The key of a layer's group is its class name.
                found = child["vars"].attrs.get("name", name) if "vars" in child else name
                layer = found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
                left.append((child, (*groups, name), (*layers, layer)))


def _variable(dataset: _Dataset, config: _Layers, *, is_old: bool) -> Variable:
    apart = _APART.get(dataset.groups[0], "") if dataset.groups else ""
    groups = [each for each in dataset.groups if each not in (_OLD_WEIGHTS, _OLD_OPTIMIZER)]
    # The older format has a group per layer, which contains the paths of its weights.
    layers = (groups[1:] if len(groups) > 1 and not apart else groups) if is_old else dataset.layers
    variable = Variable(
        layer="/".join(layers),
        name=dataset.name.removesuffix(":0"),
        shape=dataset.shape,
        dtype=dataset.dtype,
        apart=apart,
    )
    return variable if apart else replace(variable, trainable=_is_trained(config, layers, variable.name))


def _is_trained(config: _Layers, layers: Sequence[str], name: str) -> bool | None:
    """Return whether a weight is trainable: false in a frozen layer, else by the class if it is from Keras."""
    chain = config.chain(layers)
    if any(_settings(each).get("trainable") is False for each in chain):
        return False
    if chain[-1].get("module") != "keras.layers" or chain[-1].get("registered_name"):
        return None
    kind, settings = chain[-1].get("class_name"), _settings(chain[-1])
    if kind == _BATCH_NORMALIZATION and len(chain) > len(layers) and name in ("0", "1", "2", "3"):
        return int(name) < bool(settings.get("scale", True)) + bool(settings.get("center", True))
    policy = settings.get("dtype")
    is_quantized = isinstance(policy, dict) and policy.get("class_name") != "DTypePolicy"
    return True if kind in _ALL_TRAINED and not is_quantized else None


class _Layers:
    """The configurations of a model and of its layers, by layer path."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._model = model
        self._below: dict[int, dict[str, Mapping[str, Any]]] = {}

    def chain(self, layers: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the known configurations of the model and of the layers on a path."""
        found = [self._model]
        for name in layers:
            below = self._named(found[-1]).get(name)
            if below is None:
                break
            found.append(below)
        return found

    def _named(self, config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Return the layers in a configuration by name; the first of equal names counts."""
        if id(config) not in self._below:
            below = _settings(config).get("layers")
            named = [each for each in below if isinstance(each, dict)] if isinstance(below, list) else []
            by_name = ((_settings(each).get("name"), each) for each in reversed(named))
            self._below[id(config)] = {name: each for name, each in by_name if isinstance(name, str)}
        return self._below[id(config)]


def _settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    settings = config.get("config")
    return settings if isinstance(settings, dict) else {}
