"""Logs of who built the nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tfprof_builders import graph, message, node, op_log

from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof.op_log import OpLog, Stacks, read_op_log

STACK = [("a/main.py", 3, "<module>"), ("b/nn.py", 7, "dense")]


def read(folder: Path, data: bytes) -> OpLog:
    (folder / "log").write_bytes(data)
    return read_op_log(InputFile(folder / "log", "OpLogProto"))


def frames(stacks: Stacks, place: int) -> list[tuple[str, int, str]]:
    chosen = stacks.frame[stacks.ends[place] : stacks.ends[place + 1]].tolist()
    return [(stacks.files[frame], stacks.lines[frame], stacks.functions[frame]) for frame in chosen]


def test_entries_have_float_ops_types_and_stacks(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        op_log({"a": {"float_ops": 12, "types": ["t", "u"]}, "b": {"stack": STACK}, "c": {"stack": STACK[:1]}}),
    )
    assert (found.names, found.float_ops.tolist()) == (["a", "b", "c"], [12, 0, 0])
    assert found.types == [("t", "u"), (), ()]
    assert [frames(found.stacks, place) for place in range(3)] == [[], STACK, STACK[:1]]
    assert len(found.stacks.lines) == 2  # a frame that several stacks have is kept once


def test_taken_stacks_are_in_the_new_order(tmp_path: Path) -> None:
    found = read(tmp_path, op_log({"b": {"stack": STACK}, "c": {"stack": STACK[1:]}})).stacks.take(np.array([1, -1, 0]))
    assert [frames(found, place) for place in range(3)] == [STACK[1:], [], STACK]


def test_texts_that_are_missing_are_empty(tmp_path: Path) -> None:
    log = message("OpLogProto", log_entries=[{"name": b"a", "code_def": {"traces": [{"file_id": 9, "lineno": 4}]}}])
    assert frames(read(tmp_path, log).stacks, 0) == [("", 4, "")]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty: it should be an op log"),
        (graph(node("x", "Relu")), r"is a graph of TensorFlow \(GraphDef\)"),
        (op_log({"": {}, "a": {}}), "entries without a name"),
        (op_log({"a": {"stack": STACK}})[:-1], "damaged"),
        (op_log({"a": {"stack": STACK * 6000}}), "a call stack of 12,000 frames"),
    ],
)
def test_what_is_no_log(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(TfprofInputError, match=said):
        read(tmp_path, data)
