"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfperf.files import open_regular, replace_file, temporary_beside


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    for data in (b"old", b"new"):
        replace_file(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_cannot_take_its_place_is_removed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "folder", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def write_half(path: Path) -> None:
    path.write_bytes(b"half")
    raise OSError("the disk is full")


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), temporary_beside(tmp_path / "file") as temporary:
        write_half(temporary)
    assert list(tmp_path.iterdir()) == []


def test_a_long_name_has_a_temporary_one_that_file_systems_take(tmp_path: Path) -> None:
    replace_file(tmp_path / ("x" * 250), b"data")
    assert (tmp_path / ("x" * 250)).read_bytes() == b"data"


def test_a_named_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"data")
    for path in (tmp_path / "pipe", tmp_path, Path(os.devnull)):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"data"
