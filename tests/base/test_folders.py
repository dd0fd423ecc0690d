"""Folders that are written whole or not at all, also if their process is killed, and by one process at a time."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tfperf.base.errors import OutputError, TfperfWarning
from tfperf.base.files import locked_place, new_folder

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
        done = "put back run" if then == {} else "removed the rest of run"
        expected = f"^tfperf was killed while it wrote into {tmp_path}: {done}$"
        with pytest.warns(TfperfWarning, match=expected), new_folder(tmp_path / "other"):
            pass
    assert content(tmp_path / "run") == after
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "run"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("at", "when", "after"), [(1, "before", OLD), (1, "after", OLD), (2, "before", OLD), (2, "after", NEW)]
)
def test_a_signal_leaves_the_old_folder_or_the_new_one(
    tmp_path: Path, number: int, at: int, when: str, after: dict[str, str]
) -> None:
    assert replaced(tmp_path / "run", number, at, when) != 0
    assert content(tmp_path / "run") == after
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_without_a_signal_it_is_replaced(tmp_path: Path) -> None:
    assert replaced(tmp_path / "run", signal.SIGKILL, 0, "") == 0
    assert content(tmp_path / "run") == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_error_leaves_nothing_and_no_folder_above(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="File exists"), new_folder(tmp_path / "a" / "b") as made:
        made.mkdir()
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "a" / "b") as made:
        (made / "file").touch()
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["a", "a/b", "a/b/file"]


def test_a_folder_is_not_replaced_without_force(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").write_text("mine")
    with pytest.raises(OutputError, match="not empty"), new_folder(tmp_path / "run"):
        pass
    assert content(tmp_path / "run") == {"file": "mine"}


def test_of_two_processes_the_second_names_the_first(tmp_path: Path) -> None:
    busy = rf"run: process {os.getpid()} on \S+ \(since 2\S+ \S+\) is writing it; wait for it, or choose another place"
    with new_folder(tmp_path / "run") as first:
        (first / "file").write_text("first")
        with pytest.raises(OutputError, match=busy), new_folder(tmp_path / "run", force=True):
            pytest.fail("two write it")
        with new_folder(tmp_path / "other"):
            assert content(first) == {"file": "first"}, "what is not finished yet is left alone"
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
    busy = r"is writing it; wait for it, or remove \S+ if it is dead, or choose another place"
    with locked_place(tmp_path / "run", tmp_path), new_folder(tmp_path / "other"):
        with pytest.raises(OutputError, match=busy), new_folder(tmp_path / "run"):
            pytest.fail("two write it")
        assert (tmp_path / ".tfperf" / "run" / "new").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
