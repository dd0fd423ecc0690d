"""Files that are written whole or not at all."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tfperf.base.errors import OutputError, TfperfWarning
from tfperf.base.files import (
    cannot_write,
    elsewhere,
    locked_place,
    new_file,
    new_folder,
    refuse_existing,
    replace_file,
    temporary_beside,
    write_files,
)


@pytest.mark.parametrize("name", ["file", "x" * 250], ids=["short", "so long that its temporary name must be shorter"])
def test_a_file_is_replaced_and_nothing_is_left_beside_it(name: str, tmp_path: Path) -> None:
    for data in (b"old", b"new"):
        replace_file(tmp_path / name, data)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"new"}


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
        with pytest.raises(OutputError, match="is a profile, and profiles are never overwritten"):
            refuse_existing([target], force=True)


def test_what_is_wrong_with_the_place_is_said(tmp_path: Path) -> None:
    missing = FileNotFoundError(2, "No such file or directory")
    assert str(cannot_write(tmp_path / "x.html", missing)).endswith(
        f"cannot create files in {tmp_path}; choose another path"
    )
    assert "does not exist; create it first" in str(cannot_write(tmp_path / "a" / "x.html", missing))
    assert "only local files can be written" in str(cannot_write(Path("s3://bucket/x.html"), missing))


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
    assert [elsewhere(Path(path)) for path in ("/tmp", "logs", "C:/logs", "a:b/c")] == [""] * 4, "of this machine"


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


REPLACING = """
import os, shutil, signal, sys
from pathlib import Path
from tfperf.base.files import new_folder

number, at, is_after = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "after"
calls = 0

def counted(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        is_mine = calls == at
        if is_mine and not is_after:
            os.kill(os.getpid(), number)
        function(*arguments, **options)
        if is_mine and is_after:
            os.kill(os.getpid(), number)
    return call

os.rename, shutil.rmtree = counted(os.rename), counted(shutil.rmtree)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with new_folder(Path("run"), force=True) as made:
    for name in "ab":
        (made / name).write_text("new")
"""
"""Replaces `run`: a rename of what was there, a rename of what is new, and the removal of what was there."""


def content(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()} if folder.exists() else {}


OLD, NEW = dict.fromkeys("abc", "old"), dict.fromkeys("ab", "new")


def replaced(place: Path, number: int, at: int, when: str) -> int:
    """Fill `run`, replace it in a process that gets a signal; return the exit code."""
    place.mkdir()
    for name, text in OLD.items():
        (place / name).write_text(text)
    child = [sys.executable, "-c", REPLACING, str(number), str(at), when]
    return subprocess.run(child, check=False, cwd=place.parent, capture_output=True).returncode


@pytest.mark.parametrize(
    ("at", "when", "then", "after"),
    [
        (1, "before", OLD, OLD),
        (1, "after", {}, OLD),
        (2, "before", {}, OLD),
        (2, "after", NEW, NEW),
        (3, "before", NEW, NEW),
        (3, "after", NEW, NEW),
    ],
)
def test_what_a_killed_process_left_is_put_right_by_the_next(
    tmp_path: Path, at: int, when: str, then: dict[str, str], after: dict[str, str]
) -> None:
    assert replaced(tmp_path / "run", signal.SIGKILL, at, when) == -signal.SIGKILL
    assert content(tmp_path / "run") == then
    if (at, when) == (3, "after"):
        with new_folder(tmp_path / "other"):
            pass
    else:
        done = "restored run" if then == {} else "removed incomplete run"
        expected = f"^tfperf was killed while writing to {tmp_path}: {done}$"
        with pytest.warns(TfperfWarning, match=expected), new_folder(tmp_path / "other"):
            pass
    assert content(tmp_path / "run") == after
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "run"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("at", "when", "after"),
    [(0, "never", NEW), (1, "before", OLD), (1, "after", OLD), (2, "before", OLD), (2, "after", NEW)],
)
def test_a_signal_leaves_the_old_folder_or_the_new_one(
    tmp_path: Path, number: int, at: int, when: str, after: dict[str, str]
) -> None:
    assert (replaced(tmp_path / "run", number, at, when) == 0) == (at == 0)
    assert content(tmp_path / "run") == after
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_error_leaves_nothing_and_no_folder_above(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="File exists"), new_folder(tmp_path / "a" / "b") as made:
        made.mkdir()
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "a" / "b") as made:
        (made / "file").touch()
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["a", "a/b", "a/b/file"]


def test_of_two_processes_the_second_names_the_first(tmp_path: Path) -> None:
    busy = rf"run: process {os.getpid()} on \S+ \(since 2\S+ \S+\) is writing it; wait for it, or choose another path"
    with new_folder(tmp_path / "run") as first:
        (first / "file").write_text("first")
        with pytest.raises(OutputError, match=busy), new_folder(tmp_path / "run", force=True):
            pytest.fail("two write it")
        with new_folder(tmp_path / "other"):
            assert content(first) == {"file": "first"}, "what is not finished yet is left alone"
    with pytest.raises(OutputError, match="not empty"), new_folder(tmp_path / "run"):
        pass
    assert content(tmp_path / "run") == {"file": "first"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "run"]


def test_a_folder_that_lost_its_lock_file_is_replaced_by_who_has_the_lock(tmp_path: Path) -> None:
    (tmp_path / ".tfperf" / "run" / "new" / "half").mkdir(parents=True)
    with new_folder(tmp_path / "run") as made:
        (made / "file").write_text("whole")
    assert content(tmp_path / "run") == {"file": "whole"}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_belongs_to_others_is_left_alone(tmp_path: Path) -> None:
    for name in (".tfperf/mine/new/file", ".tfperf/theirs/lock/file", ".tfperf/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with new_folder(tmp_path / "run"):
        pass
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 3
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".tfperf").symlink_to(tmp_path)
    with pytest.raises(OutputError, match=r"\.tfperf is a link; remove it"), new_folder(tmp_path / "elsewhere" / "run"):
        pass


def test_without_locks_a_folder_has_one_writer_and_nothing_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    busy = r"is writing it; wait for it, or delete \S+ if it no longer runs, or choose another path"
    with locked_place(tmp_path / "run", tmp_path), new_folder(tmp_path / "other"):
        with pytest.raises(OutputError, match=busy), new_folder(tmp_path / "run"):
            pytest.fail("two write it")
        assert (tmp_path / ".tfperf" / "run" / "new").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
