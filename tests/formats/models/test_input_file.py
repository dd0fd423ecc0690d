"""Files that tfprof reads, and what is said of those that it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from protobytes import written
from tfprof_builders import graph, node

from tfperf.formats.models import input_file
from tfperf.formats.models.input_file import InputFile, TfprofInputError


@pytest.mark.parametrize(("name", "why"), [("none.pb", r"cannot open .*none\.pb: No such file"), ("", "cannot open")])
def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(TfprofInputError, match=why):
        InputFile(tmp_path / name, "GraphDef")


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    file = InputFile(written(tmp_path, graph(node("x", "Relu"))), "RunMetadata")
    with pytest.raises(TfprofInputError, match=r"is a TensorFlow graph \(GraphDef\), not a RunMetadata"):
        file.is_none_of_others()
    file.is_none_of_others("GraphDef")
    InputFile(written(tmp_path, b"\x08\x01"), "RunMetadata").is_none_of_others()


def test_the_name_that_two_nodes_have_is_said() -> None:
    file = InputFile(Path("some"), "GraphDef", b"")
    file.named_once(["a", "b"])
    with pytest.raises(TfprofInputError, match="two nodes named 'b'"):
        file.named_once(["a", "b", "b"])


def test_a_file_that_does_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate((1 << 26) + 1)
    monkeypatch.setattr(input_file, "available_bytes", lambda: 1 << 26)
    with pytest.raises(TfprofInputError, match="too large for this machine"):
        InputFile(tmp_path / "large", "GraphDef")
