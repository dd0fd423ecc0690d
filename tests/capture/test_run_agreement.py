"""Processes agree on a run by a file; what an earlier execution of the job left does not count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfperf.base.errors import TfperfError
from tfperf.capture.run_folder import agreed_run, check_run_name, process_start_s

KEY = "0123456789abcdef"


class Runs:
    """A folder of runs, and a process that makes runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[str] = []

    def make(self) -> Path:
        path = self.folder / f"run{len(self.made)}"
        path.mkdir()
        self.made.append(path.name)
        return path

    def agreed(self, key: str = KEY) -> str:
        path = agreed_run(self.folder, key, self.make)
        assert path.parent == self.folder
        return path.name

    def mark(self, number: int, text: str | None = None, *, run: str = "earlier", time_s: float = 0.0) -> Path:
        marker = self.folder / f".tfperf-{KEY}.{number}"
        marker.write_text(json.dumps({"run": run, "time_s": time_s or time.time()}) + "\n" if text is None else text)
        return marker


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_who_comes_later_joins(runs: Runs) -> None:
    assert [runs.agreed(), runs.agreed(), runs.agreed("fedcba9876543210"), runs.agreed()] == [
        "run0",
        "run0",
        "run1",
        "run0",
    ]
    assert runs.made == ["run0", "run1"]


def test_processes_that_come_at_the_same_time(tmp_path: Path) -> None:
    """Eight real processes, forty runs: each run is made once, and all go there."""
    script = (
        "import os, sys, time\nfrom pathlib import Path\nfrom tfperf.capture.run_folder import agreed_run\n"
        "runs = Path(sys.argv[1])\n"
        "children = []\n"
        "for child in range(8):\n"
        "    process = os.fork()\n"
        "    if not process:\n"
        "        go = time.monotonic() + 0.2\n"
        "        while time.monotonic() < go: pass\n"
        "        for key in range(40):\n"
        "            def make():\n"
        "                folder = runs / f'{key}-made-by-{child}'\n"
        "                folder.mkdir()\n"
        "                return folder\n"
        "            (agreed_run(runs, f'{key:016x}', make) / str(child)).touch()\n"
        "        os._exit(0)\n"
        "    children.append(process)\n"
        "sys.exit(any(os.waitpid(process, 0)[1] for process in children))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    folders = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len(folders) == 40
    assert all(len(list(folder.iterdir())) == 8 for folder in folders)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
def test_the_run_of_an_earlier_execution_of_the_job_is_not_joined(runs: Runs) -> None:
    started_s = process_start_s()
    assert started_s is not None
    assert 0 <= time.time() - started_s < 86400
    runs.mark(0, run="old", time_s=started_s - 1)
    assert runs.agreed() == "run0"
    assert sorted(path.name for path in runs.folder.glob(".*")) == [f".tfperf-{KEY}.0", f".tfperf-{KEY}.1"]
    assert runs.agreed() == "run0", "the newest counts"


def test_who_comes_much_later_makes_a_run_of_its_own(runs: Runs) -> None:
    runs.mark(3, time_s=time.time() - 301)
    assert runs.agreed() == "run0"


@pytest.mark.parametrize("text", ["{}\n", "[1]\n", '{"run": "../up", "time_s": 1}\n', '{"run": 7}\n', "\x00\n"])
def test_what_is_no_marker_is_passed_over(runs: Runs, text: str) -> None:
    runs.mark(0, text)
    assert runs.agreed() == "run0"
    assert runs.agreed() == "run0"


def test_a_process_that_died_while_it_named_the_run_is_not_waited_for(runs: Runs) -> None:
    marker = runs.mark(0, "")
    os.utime(marker, (time.time() - 6, time.time() - 6))
    assert runs.agreed() == "run0"


def test_a_folder_that_cannot_be_made_leaves_the_name_to_the_next(runs: Runs) -> None:
    def fail() -> Path:
        raise PermissionError("no")

    with pytest.raises(PermissionError):
        agreed_run(runs.folder, KEY, fail)
    assert list(runs.folder.iterdir()) == []


def test_markers_do_not_pile_up(runs: Runs) -> None:
    old = [runs.folder / f".tfperf-{number:016x}.0" for number in range(3)]
    for marker in old:
        marker.touch()
        os.utime(marker, (time.time() - 4000, time.time() - 4000))
    others = runs.folder / ".profile"
    others.touch()
    runs.agreed()
    assert sorted(runs.folder.glob(".*")) == [others, runs.folder / f".tfperf-{KEY}.0"]


@pytest.mark.parametrize("name", ["job-4711", "2026_11_24", "a b", "läuft", "x" * 200])
def test_a_run_name(name: str) -> None:
    assert check_run_name(name) == name


@pytest.mark.parametrize("name", ["", " ", ".", "..", ".hidden", "a/b", "a\\b", "C:x", "a\nb", "a\0b", "x" * 201])
def test_what_is_no_name_of_a_folder(name: str) -> None:
    with pytest.raises(TfperfError, match=r"TFPERF_RUN '.*' cannot be the name of a folder; use letters") as caught:
        check_run_name(name, "TFPERF_RUN")
    assert "\n" not in str(caught.value)
