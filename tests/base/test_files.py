"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tfperf.base.errors import OutputError
from tfperf.base.files import (
    cannot_write,
    elsewhere,
    new_file,
    refuse_existing,
    replace_file,
    temporary_beside,
    write_files,
)


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


def test_of_several_files_all_are_written_or_none(tmp_path: Path) -> None:
    write_files({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"1", "b": b"2"}
    with pytest.raises(OutputError, match="does not exist"):
        write_files({tmp_path / "a": b"new", tmp_path / "nowhere" / "c": b"3"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"1", "b": b"2"}


def test_a_signal_while_files_are_moved_waits_for_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, moved = os.replace, []

    def interrupted(*arguments: Any) -> None:
        replace(*arguments)
        moved.append(arguments)
        if len(moved) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_files({tmp_path / name: b"new" for name in "abc"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys("abc", b"new")


def test_a_profile_is_never_replaced(tmp_path: Path) -> None:
    trace, link = tmp_path / "vm.xplane.pb", tmp_path / "report.html"
    trace.write_bytes(b"data")
    link.symlink_to(trace)
    for target in (trace, link):
        with pytest.raises(OutputError, match="is a profile, which is never replaced"):
            refuse_existing([target], force=True)


def test_what_is_wrong_with_the_place_is_said(tmp_path: Path) -> None:
    missing = FileNotFoundError(2, "No such file or directory")
    assert str(cannot_write(tmp_path / "x.html", missing)).endswith(
        f"no file can be created in {tmp_path}; choose another place"
    )
    assert "does not exist; create it first" in str(cannot_write(tmp_path / "a" / "x.html", missing))
    assert "this is written to this machine only" in str(cannot_write(Path("s3://bucket/x.html"), missing))


@pytest.mark.parametrize(
    ("address", "command"),
    [
        ("s3://bucket/logs", "aws s3 cp --recursive s3://bucket/logs logs"),
        ("s3://bucket/a.json", "aws s3 cp s3://bucket/a.json ."),
        ("gs://bucket/vm.xplane.pb", "gcloud storage cp gs://bucket/vm.xplane.pb ."),
        ("hdfs://host/logs", "hdfs dfs -get hdfs://host/logs logs"),
        ("https://host/vm.xplane.pb", "curl --remote-name https://host/vm.xplane.pb"),
    ],
)
def test_how_to_copy_from_another_machine(address: str, command: str) -> None:
    assert elsewhere(Path(address)).endswith(f"copy it first: {command}")


def test_a_path_of_this_machine_is_no_address(tmp_path: Path) -> None:
    assert [elsewhere(path) for path in (tmp_path, Path("logs"), Path("C:/logs"), Path("a:b/c"))] == [""] * 4


@pytest.mark.skipif(os.name != "posix", reason="files have no owners")
def test_a_replaced_file_keeps_its_owner_and_permissions(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.touch()
    path.chmod(0o640)
    owner = (4321, 5432) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(path, *owner)
    with new_file(path) as file:
        (temporary,) = tmp_path.glob(".*.tmp")
        assert temporary.stat().st_mode & 0o777 == 0o640, "before anything is in it"
        file.write(b"new")
    now = path.stat()
    assert (path.read_bytes(), now.st_mode & 0o777, (now.st_uid, now.st_gid)) == (b"new", 0o640, owner)


@pytest.mark.skipif(os.name != "posix", reason="files have no owners")
def test_a_group_that_cannot_be_kept_may_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    path = tmp_path / "report.json"
    path.touch()
    path.chmod(0o664)
    now = path.stat()
    monkeypatch.setattr(os, "fchown", refused)
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result((0, 0, 0, 0, now.st_uid + 1, now.st_gid + 1, 0, 0, 0, 0)))
    with new_file(path) as file:
        file.write(b"new")
    assert path.stat().st_mode & 0o777 == 0o604
