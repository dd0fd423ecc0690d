"""Files that tfprof reads, and what is said of those that it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfprof_builders import graph, node

from tfperf.formats.models import input_file
from tfperf.formats.models.input_file import InputFile, TfprofInputError


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TfprofInputError, match=r"cannot open .*none\.pb: No such file"):
        InputFile(tmp_path / "none.pb", "GraphDef")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TfprofInputError, match="cannot open"):
        InputFile(tmp_path, "GraphDef")


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "graph.pb").write_bytes(graph(node("x", "Relu")))
    file = InputFile(tmp_path / "graph.pb", "RunMetadata")
    with pytest.raises(TfprofInputError, match=r"is a TensorFlow graph \(GraphDef\), not a RunMetadata"):
        file.is_none_of_others()
    file.is_none_of_others("GraphDef")


def test_what_cannot_be_named_may_be_anything(tmp_path: Path) -> None:
    (tmp_path / "some").write_bytes(b"\x08\x01")
    InputFile(tmp_path / "some", "RunMetadata").is_none_of_others()


def test_the_name_that_two_nodes_have_is_said(tmp_path: Path) -> None:
    (tmp_path / "some").write_bytes(b"")
    file = InputFile(tmp_path / "some", "GraphDef")
    file.named_once(["a", "b"])
    with pytest.raises(TfprofInputError, match="two nodes named 'b'"):
        file.named_once(["a", "b", "b"])


def test_a_file_that_does_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate((1 << 26) + 1)
    monkeypatch.setattr(input_file, "available_bytes", lambda: 1 << 26)
    with pytest.raises(TfprofInputError, match="too large for this machine"):
        InputFile(tmp_path / "large", "GraphDef")
