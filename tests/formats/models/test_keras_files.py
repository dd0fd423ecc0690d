from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from checkpoint_builders import Layers, write_keras, write_weights
from hypothesis import given
from hypothesis import strategies as st

from tfperf.formats.models.input_file import TfprofInputError
from tfperf.formats.models.keras_files import h5_variables, keras_variables
from tfperf.formats.models.variables import COUNTER, OPTIMIZER, Variable

SMALL: Layers = {
    "": ("model", ()),
    "layers/dense": ("hidden1", ((784, 128), (128,))),
    "layers/batch_normalization": ("bn", ((4,), (4,), (4,), (4,))),
    "layers/sequential": ("inner", ()),
    "layers/sequential/layers/dense": ("d", ((3, 4),)),
    "layers/lstm/cell": ("lstm_cell", ((5, 20),)),
    "layers/own": ("own", ((6, 6),)),
    "optimizer": ("adam", ((784, 128),)),
}


def layer(kind: str, name: str, **settings: Any) -> dict[str, Any]:
    return {"module": "keras.layers", "class_name": kind, "registered_name": None, "config": {"name": name, **settings}}


CONFIG = layer(
    "Functional",
    "model",
    layers=[
        layer("Dense", "hidden1", trainable=False),
        layer("BatchNormalization", "bn", scale=True, center=True),
        layer("Sequential", "inner", layers=[layer("Dense", "d")]),
        layer("LSTM", "lstm"),
        {**layer("Dense", "own"), "module": "my.package"},
    ],
)


def counted(variables: Sequence[Variable]) -> dict[str, tuple[tuple[int, ...] | None, bool | None]]:
    return {each.path: (each.shape, each.trainable) for each in variables if not each.apart}


def refusal(path: Path) -> str:
    read = keras_variables if path.suffix == ".keras" else h5_variables
    with pytest.raises(TfprofInputError) as error:
        read(path)
    text = str(error.value)
    assert "\n" not in text
    return text


def test_weights_have_the_names_of_their_layers_not_of_their_groups(tmp_path: Path) -> None:
    found = h5_variables(write_weights(tmp_path / "m.weights.h5", SMALL))
    assert counted(found) == {
        "hidden1/0": ((784, 128), None), "hidden1/1": ((128,), None),
        **{f"bn/{number}": ((4,), None) for number in range(4)},
        "inner/d/0": ((3, 4), None),
        "lstm/lstm_cell/0": ((5, 20), None),
        "own/0": ((6, 6), None),
    }  # fmt: skip
    assert [(each.path, each.apart) for each in found if each.apart] == [("adam/0", OPTIMIZER)]


def test_the_configuration_of_a_model_says_what_is_trained(tmp_path: Path) -> None:
    found = counted(keras_variables(write_keras(tmp_path, SMALL, CONFIG)))
    assert {path: trainable for path, (_, trainable) in found.items()} == {
        "hidden1/0": False, "hidden1/1": False, "bn/0": True, "bn/1": True, "bn/2": False, "bn/3": False,
        "inner/d/0": True, "lstm/lstm_cell/0": True, "own/0": None,
    }  # fmt: skip


def test_batch_normalization_without_scale_keeps_three_weights(tmp_path: Path) -> None:
    config = layer("Sequential", "model", layers=[layer("BatchNormalization", "bn", scale=False, center=True)])
    found = counted(keras_variables(write_keras(tmp_path, SMALL, config)))
    assert [found[f"bn/{number}"][1] for number in range(3)] == [True, False, False]


def test_quantized_layers_are_not_said_to_be_trained(tmp_path: Path) -> None:
    policy = {"class_name": "QuantizedDTypePolicy"}
    config = layer("Sequential", "model", layers=[layer("Dense", "hidden1", dtype=policy)])
    assert counted(keras_variables(write_keras(tmp_path, SMALL, config)))["hidden1/0"][1] is None


@pytest.mark.parametrize("config", ["", "[]", "{", "[" * 100_000, '{"config": {"layers": [3, {"config": 1}]}}', "null"])
def test_what_the_configuration_does_not_say_is_unknown(tmp_path: Path, config: str) -> None:
    found = counted(keras_variables(write_keras(tmp_path, SMALL, config)))
    assert len(found) == 9
    assert {trainable for _, trainable in found.values()} == {None}


def test_the_older_format_has_names_of_weights(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "old.h5", "w") as root:
        root.attrs["model_config"] = json.dumps(layer("Model", "m", layers=[layer("Dense", "frozen", trainable=False)]))
        root.create_group("model_weights").attrs["layer_names"] = ["bn", "frozen"]
        root["model_weights/bn/bn/gamma:0"] = np.zeros(4, np.float32)
        root["model_weights/bn/bn/moving_mean:0"] = np.zeros(4, np.float32)
        root["model_weights/frozen/frozen/kernel:0"] = np.zeros((2, 2), np.float16)
        root["optimizer_weights/Adam/bn/gamma/m:0"] = np.zeros(4, np.float32)
        root["optimizer_weights/iteration:0"] = np.zeros((), np.int64)
    found = h5_variables(tmp_path / "old.h5")
    assert counted(found) == {
        "bn/gamma": ((4,), None),
        "bn/moving_mean": ((4,), False),
        "frozen/kernel": ((2, 2), False),
    }
    assert {each.apart for each in found if each.apart} == {OPTIMIZER}


def test_types_are_those_that_keras_says(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.weights.h5", "w") as root:
        group = root.create_group("layers/dense/vars")
        group["0"] = np.zeros(3, ">f4")
        group["1"] = np.zeros(3, np.float32)
        group["1"].attrs["dtype"] = "bfloat16"
        group["2"] = np.zeros(2, np.uint32)
    types = {each.path: (each.dtype, each.apart) for each in h5_variables(tmp_path / "m.weights.h5")}
    assert types == {"dense/0": ("float32", ""), "dense/1": ("bfloat16", ""), "dense/2": ("uint32", COUNTER)}


def test_links_out_of_the_file_and_in_circles_are_not_followed(tmp_path: Path) -> None:
    other = write_weights(tmp_path / "other.h5", SMALL)
    with h5py.File(write_weights(tmp_path / "m.weights.h5", {"layers/dense": ("a", ((2, 3),))}), "a") as root:
        root["layers/out"] = h5py.ExternalLink(str(other), "/layers")
        root["layers/soft"] = h5py.SoftLink("/layers/dense")
        root["layers/dense/again"] = root["layers"]
    assert counted(h5_variables(tmp_path / "m.weights.h5")) == {"a/0": ((2, 3), None)}


def test_files_that_keras_did_not_save_are_refused_in_a_line(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "data.h5", "w") as root:
        root["x"] = np.zeros(3)
    assert "not Keras weights" in refusal(tmp_path / "data.h5")
    (tmp_path / "none.keras").write_bytes(b"PK\x03\x04")
    assert "is damaged, or not a .keras file" in refusal(tmp_path / "none.keras")
    with zipfile.ZipFile(tmp_path / "other.keras", "w") as archive:
        archive.writestr("a", "b")
    assert "without model.weights.h5" in refusal(tmp_path / "other.keras")
    assert "unzip it" in refusal(write_keras(tmp_path, SMALL, CONFIG, zipfile.ZIP_DEFLATED))
    assert "cannot open" in refusal(tmp_path / "none.h5")
    assert "cannot read" in refusal(tmp_path / "missing.keras")


@pytest.mark.parametrize("kept", [8, 100, 2000, 5000])
def test_files_that_are_cut_off_are_refused_in_a_line(tmp_path: Path, kept: int) -> None:
    weights = write_weights(tmp_path / "m.weights.h5", SMALL)
    weights.write_bytes(weights.read_bytes()[:kept])
    assert "is damaged, or not an HDF5 file" in refusal(weights)


def test_without_h5py_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = write_weights(tmp_path / "m.weights.h5", SMALL)
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert "pip install 'tfperf[h5]'" in refusal(weights)


@given(data=st.data())
def test_damaged_zip_files_end_in_an_error_or_in_variables(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Everything but the weights is damaged: those are HDF5's to read."""
    path = write_keras(tmp_path_factory.mktemp("damaged"), SMALL, CONFIG)
    damaged = bytearray(path.read_bytes())
    weights = damaged.index(b"\x89HDF")
    directory = damaged.rindex(b"PK\x01\x02") - 200
    at = data.draw(st.one_of(st.integers(0, weights - 1), st.integers(directory, len(damaged) - 1)))
    damaged[at] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    with suppress(TfprofInputError):
        assert keras_variables(path)
