"""Checkpoints: of TensorFlow (`checkpoints/`, which the last test makes anew), of these tests, and damaged ones."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import known
from checkpoint_builders import MAGIC, block, table, with_trailer, write_checkpoint
from hypothesis import given
from hypothesis import strategies as st
from job_environment import needs_tensorflow, run_tensorflow
from protobytes import varint, written
from tfprof_builders import graph, message, node, shape

from tfperf.formats.models.checkpoint import OBJECT_GRAPH, Checkpoint, Tensor, crc32c, is_checkpoint, masked, read_table
from tfperf.formats.models.dtypes import dtype_name, dtype_number
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof.model import CHECKPOINT_VARIABLES
from tfperf.models.tfprof.sources import Sources, read_model

REAL = Path(__file__).parent / "checkpoints"
INDEX = REAL / "model.ckpt.index"
V1, V2 = REAL / "first_version.ckpt", REAL / "model.ckpt"
FLOATS = np.arange(12, dtype=np.float32).reshape(3, 4)


def refusal(path: Path, name: str = "") -> str:
    with pytest.raises(TfprofInputError) as error:
        _ = Checkpoint(path).read(name) if name else Checkpoint(path)
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("path", [V1, V2])
def test_names_shapes_and_types_of_both_versions(path: Path) -> None:
    tensors = Checkpoint(path).tensors
    assert len(tensors) == 13
    assert tensors["a/kernel"] == Tensor((3, 4), "float32")
    assert tensors["part/Adam"] == Tensor((10, 3), "float32")
    assert tensors["global_step"] == Tensor((), "int64")


def test_both_versions_hold_the_same_values_of_whole_and_of_partitioned_variables() -> None:
    first, second = Checkpoint(V1), Checkpoint(V2)
    for name, tensor in second.tensors.items():
        values = known(second.read(name))
        assert (values.shape, str(values.dtype)) == (tensor.shape, tensor.dtype)
        np.testing.assert_array_equal(values, first.read(name))
    np.testing.assert_array_equal(second.read("global_step"), 1)
    np.testing.assert_array_equal(second.read("beta1_power"), np.float32(0.9) * np.float32(0.9))


def test_a_checkpoint_is_named_in_many_ways(tmp_path: Path) -> None:
    for file in REAL.iterdir():
        shutil.copy(file, tmp_path)
    named = 'model_checkpoint_path: "/elsewhere/model.ckpt"\nall_model_checkpoint_paths: "a"\n'
    (tmp_path / "checkpoint").write_text(named)
    for name in ("model.ckpt", "model.ckpt.index", "model.ckpt.data-00000-of-00001", "checkpoint", ""):
        assert is_checkpoint(tmp_path / name) or name == "checkpoint"
        assert Checkpoint(tmp_path / name).path == tmp_path / "model.ckpt.index"
    assert is_checkpoint(V1)
    assert not is_checkpoint(Path(__file__))
    assert not is_checkpoint(tmp_path / "none")


def test_what_is_no_checkpoint_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello, this is text")
    assert "cannot open" in refusal(tmp_path / "none.index")
    assert "not a checkpoint" in refusal(tmp_path / "text")
    assert "has no file `checkpoint`" in refusal(tmp_path)
    (tmp_path / "checkpoint").write_text("all_model_checkpoint_paths: 3")
    assert "has no model_checkpoint_path" in refusal(tmp_path)


def test_values_that_were_written_are_read(tmp_path: Path) -> None:
    values: dict[str, np.ndarray[Any, Any]] = {
        "floats": FLOATS,
        "half": FLOATS.astype(np.float16),
        "whole": np.array(-7, np.int64),
        "empty": np.zeros((0, 3), np.float32),
    }
    checkpoint = Checkpoint(write_checkpoint(tmp_path / "ck", values, {OBJECT_GRAPH: b"\x0a\x00"}))
    for name, value in values.items():
        np.testing.assert_array_equal(checkpoint.read(name), value)
        assert known(checkpoint.read(name)).dtype == value.dtype
    assert checkpoint.object_graph() == b"\x0a\x00"
    assert checkpoint.read(OBJECT_GRAPH) is None


def test_values_that_are_not_those_that_were_saved_are_not_returned(tmp_path: Path) -> None:
    prefix = write_checkpoint(tmp_path / "ck", {"floats": FLOATS}, {OBJECT_GRAPH: b"text"})
    data = tmp_path / "ck.data-00000-of-00001"
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    assert "is too short: floats ends at byte" in refusal(prefix, "floats")
    data.write_bytes(whole[:-1] + b"\x99")
    assert "the checksum of floats is wrong" in refusal(prefix, "floats")
    data.write_bytes(b"\x04\0\0\0\0" + whole[5:])
    with pytest.raises(TfprofInputError, match="the checksum of _CHECKPOINTABLE_OBJECT_GRAPH is wrong"):
        Checkpoint(prefix).object_graph()
    data.unlink()
    assert "the values of floats are in it" in refusal(prefix, "floats")


@pytest.mark.parametrize(
    ("written", "name"),
    [("FLOAT", "float32"), ("HALF_REF", "float16"), ("INT64", "int64"), ("RESOURCE", "resource"), ("NONE", "")],
)
def test_types_of_text_have_the_numbers_of_binary(written: str, name: str) -> None:
    assert dtype_name(dtype_number(written)) == name
    assert (dtype_number(written) > 100) == written.endswith("_REF")


def entry_of(**fields: object) -> bytes:
    return message("BundleEntry", **{"dtype": 1, "shape": shape((3,)), "size": 12, **fields})


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (entry_of(size=1 << 62), "has 4611686018427387904 bytes for 3 elements"),
        (entry_of(size=-12), "has -12 bytes for 3 elements"),
        (entry_of(offset=1 << 62), "is too short"),
        (entry_of(offset=-1), "is too short"),
        (entry_of(shard_id=-1), "cannot read"),
        (entry_of(shape=shape((1 << 40, 1 << 40))), "no known shape"),
        (entry_of(shape=shape((1 << 50,)), size=4 << 50), "too large for this machine"),
        (entry_of(shape=shape(None)), "no known shape"),
        (entry_of(slices=[{"extent": [{"start": 0, "length": 1}]}]), "0 of 1 pieces of v"),
        (b"\x0a\xff", "not a valid BundleEntry"),
    ],
)
def test_numbers_of_an_entry_are_compared_with_the_files_before_use(tmp_path: Path, entry: bytes, why: str) -> None:
    (tmp_path / "ck.index").write_bytes(table(block({b"": message("BundleHeader", num_shards=1), b"v": entry})))
    (tmp_path / "ck.data-00000-of-00001").write_bytes(bytes(12))
    assert why in refusal(tmp_path / "ck", "v")


def first_version(folder: Path, *cuts: tuple[int, int], values: int = 3) -> Path:
    """Write a checkpoint of version 1 with the variable `v` of three elements, in these pieces."""
    listed = message("SavedTensorSlices", meta={"tensor": [{"name": b"v", "shape": shape((3,)), "type": 1}]})
    table_of = {b"": listed}
    for number, (start, length) in enumerate(cuts):
        data = {"slice": {"extent": [{"start": start, "length": length}]}, "data": {"float_val": range(values)}}
        table_of[b"\0v\0\x01" + bytes([number])] = message("SavedTensorSlices", data=data)
    (folder / "v1").write_bytes(table(block(table_of)))
    return folder / "v1"


def test_pieces_of_version_1_fit_their_variable(tmp_path: Path) -> None:
    assert known(Checkpoint(first_version(tmp_path, (0, 3))).read("v")).tolist() == [0, 1, 2]
    assert "do not cover its elements" in refusal(first_version(tmp_path), "v")
    assert "do not cover its elements" in refusal(first_version(tmp_path, (0, 2), values=2), "v")
    assert "out of bounds" in refusal(first_version(tmp_path, (1, 3)), "v")
    assert "has 2 values for 3 elements" in refusal(first_version(tmp_path, (0, 3), values=2), "v")


def test_headers_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for header, why in (
        (message("BundleHeader", num_shards=1, endianness=1), "big-endian"),
        (message("BundleHeader", endianness=0), "0 files of values"),
        (message("BundleHeader", num_shards=1 << 40), "files of values"),
        (b"\x0a\xff", "not a valid SavedTensorSlices"),
    ):
        (tmp_path / "ck.index").write_bytes(table(block({b"": header})))
        assert why in refusal(tmp_path / "ck")
    (tmp_path / "ck.index").write_bytes(table(block({b"a": b""})))
    assert "without a header" in refusal(tmp_path / "ck")


def test_a_checkpoint_gives_a_type_to_the_nodes_that_it_has(tmp_path: Path) -> None:
    nodes = (node("b", "MatMul"), node("a/kernel", "VariableV2", variable=(3, 4)), node("a", "Add"))
    (tmp_path / "graph.pb").write_bytes(graph(*nodes))
    model = read_model(Sources(graph=tmp_path / "graph.pb", checkpoint=V2))
    of_checkpoint = model.types.index(CHECKPOINT_VARIABLES)
    pairs = [*zip(*(each.tolist() for each in model.type_of), strict=True)]
    assert [model.names[node] for node, kind in pairs if kind == of_checkpoint] == ["a/kernel"]
    assert pairs == sorted(pairs)


def read(folder: Path, data: bytes) -> dict[bytes, bytes]:
    return read_table(InputFile(written(folder, data, name="x.index"), "checkpoint"))


def test_keys_and_values_of_all_blocks_are_read(tmp_path: Path) -> None:
    found = read(tmp_path, table(block({b"": b"h", b"a": b"1"}), block({b"b": b"2"}, restarts=2)))
    assert found == {b"": b"h", b"a": b"1", b"b": b"2"}


def test_keys_share_what_they_start_with(tmp_path: Path) -> None:
    entries = b"\0\x03\x01abcX" + b"\x02\x01\x01dY" + b"\x03\x00\x00"
    with pytest.raises(TfprofInputError, match="not in order"):
        read(tmp_path, table(entries + bytes(4) + b"\1\0\0\0"))
    entries = b"\0\x03\x01abcX" + b"\x02\x01\x01dY" + b"\x03\x01\x00e"
    assert read(tmp_path, table(entries + bytes(4) + b"\1\0\0\0")) == {b"abc": b"X", b"abd": b"Y", b"abde": b""}


@pytest.mark.parametrize(("method", "name"), [(1, "snappy"), (4, "zstd"), (9, "method 9")])
def test_a_compressed_block_is_one_clear_error(tmp_path: Path, method: int, name: str) -> None:
    path = written(tmp_path, table(block({b"": b""}), compression=method), name="x.index")
    assert f"is compressed ({name}), which tfperf does not support" in refusal(path)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the end of the checkpoint table is missing"),
        (MAGIC, "the end of the checkpoint table is missing"),
        (bytes(40) + MAGIC, "a block of 0 bytes at byte 0 of 0"),
        (b"\xff" * 40 + MAGIC, "a truncated number"),
        (varint(0) * 2 + varint(1 << 60) * 2 + bytes(22) + MAGIC, "a block of"),
        (table(b"\0\0"), "restart points"),
        (table(b"\xff\xff\xff\x7f"), "restart points"),
        (table(b"\1\1\1ab" + b"\0\0\0\0"), "longer than its block"),
        (table(b"\0\x7f\1ab" + b"\0\0\0\0"), "longer than its block"),
        (table(b"\0" + varint(1 << 62) + b"\1ab" + b"\0\0\0\0"), "longer than its block"),
        (table(block({b"b": b"", b"a": b""})), "keys that are not in order"),
    ],
)
def test_damage_is_told_in_a_line(tmp_path: Path, data: bytes, why: str) -> None:
    assert why in refusal(written(tmp_path, data, name="x.index"))


def test_a_block_that_is_listed_many_times_is_read_once(tmp_path: Path) -> None:
    body = with_trailer(block({b"a": b""}))
    index = block({bytes([number]): varint(0) + varint(len(body) - 5) for number in range(100)})
    handles = varint(0) * 2 + varint(len(body)) + varint(len(index))
    data = body + with_trailer(index) + handles.ljust(40, b"\0") + MAGIC
    assert "overlap" in refusal(written(tmp_path, data, name="x.index"))


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path_factory: pytest.TempPathFactory, at: int, bit: int) -> None:
    data, whole = bytearray(INDEX.read_bytes()), read_table(InputFile(INDEX, "checkpoint"))
    data[at % len(data)] ^= 1 << bit
    with suppress(TfprofInputError):
        assert read(tmp_path_factory.mktemp("flip"), bytes(data)) == whole


@given(st.binary(max_size=200))
def test_any_block_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    with suppress(TfprofInputError):
        assert all(len(key) <= len(data) for key in read(tmp_path_factory.mktemp("any"), table(data)))


def bit_by_bit(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def test_the_checksum_is_that_of_the_standard_and_a_mask_keeps_32_bits() -> None:
    assert (crc32c(b"123456789"), crc32c(bytes(32))) == (0xE3069283, 0x8A9136AA)
    assert (masked(0xFFFFFFFF), masked(0)) == (0xA282EAD7, 0xA282EAD8)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 2047, 2048, 2049, 5000, 10_001])
def test_bytes_done_together_have_the_checksum_of_bytes_done_one_by_one(size: int) -> None:
    data, cut = random.Random(size).randbytes(size), size // 3
    assert crc32c(data) == crc32c(data[cut:], crc32c(data[:cut])) == bit_by_bit(data)


_SAVE = """
import json, sys
import numpy as np, tensorflow as tf
v1, folder = tf.compat.v1, sys.argv[1]
with tf.Graph().as_default(), v1.Session() as session:
    for resource in (False, True):
        with v1.variable_scope(f"s{resource}", use_resource=resource):
            for dtype in ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8", "bool"):
                v1.get_variable(dtype, initializer=tf.cast(tf.random.uniform((5, 7), 0, 5), dtype), trainable=False)
            v1.get_variable("part", (11, 3), partitioner=v1.fixed_size_partitioner(3))
            v1.get_variable("columns", (4, 9), partitioner=v1.fixed_size_partitioner(2, axis=1))
            v1.get_variable("scalar", ())
            v1.get_variable("large", (300, 400))
    session.run(v1.global_variables_initializer())
    whole = {}
    for variable in v1.global_variables():
        name = variable.op.name
        if "/part" not in name and "/columns" not in name:
            whole[name] = np.asarray(session.run(tf.cast(variable, tf.float64))).ravel().tolist()
    for resource in (False, True):
        with v1.variable_scope(f"s{resource}", use_resource=resource, reuse=True):
            for name, dims, axis, count in (("part", (11, 3), 0, 3), ("columns", (4, 9), 1, 2)):
                partitioned = v1.get_variable(name, dims, partitioner=v1.fixed_size_partitioner(count, axis=axis))
                values = session.run(tf.convert_to_tensor(partitioned))
                whole[f"s{resource}/{name}"] = values.astype(float).ravel().tolist()
    others = [variable for variable in v1.global_variables() if variable.dtype.base_dtype != tf.bfloat16]
    v1.train.Saver(others, write_version=v1.train.SaverDef.V1).save(session, f"{folder}/v1.ckpt")
    v1.train.Saver(sharded=True).save(session, f"{folder}/v2.ckpt")
json.dump(whole, open(f"{folder}/values.json", "w"))
"""


@needs_tensorflow
def test_values_are_those_that_tensorflow_saved(tmp_path: Path) -> None:
    run_tensorflow("-c", _SAVE, tmp_path)
    expected = json.loads((tmp_path / "values.json").read_bytes())
    assert len(expected) == 26
    for version in ("v1", "v2"):
        checkpoint = Checkpoint(tmp_path / f"{version}.ckpt")
        # TensorFlow has no bfloat16 in version 1.
        missing = set() if version == "v2" else {"sFalse/bfloat16", "sTrue/bfloat16"}
        assert set(expected) - set(checkpoint.tensors) == missing
        for name in checkpoint.tensors:
            values = known(checkpoint.read(name)).astype(float).ravel()
            np.testing.assert_array_equal(values, expected[name], err_msg=f"{version} {name}")
