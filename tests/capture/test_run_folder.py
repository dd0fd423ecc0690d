"""Run folders: traces in them, their names, and how processes of a job agree on one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders import known

from tfperf.base.errors import CaptureError, TfperfError, TraceFormatError
from tfperf.capture.machine import this_task
from tfperf.capture.run_folder import (
    ProfileCount,
    RunFolder,
    RunName,
    agreed_run,
    check_run_name,
    local_folder,
    process_start_s,
)
from tfperf.formats.wire.schema import message_class


def space(events: int = 1) -> bytes:
    made = message_class("XSpace")()
    line = made.planes.add(name=b"/host:CPU").lines.add(name=b"python")
    for _ in range(events):
        line.events.add(metadata_id=1, duration_ps=1000)
    return bytes(made.SerializeToString())


def saved(folder: RunFolder, host: str, events: int = 1) -> Path:
    return known(folder.save(host, space(events))[0])


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_trace_is_where_tensorboard_looks(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "logs")
    assert not (tmp_path / "logs").exists()
    path, contents = folder.save("localhost_6009", space(3))
    assert path == tmp_path / "logs" / "plugins" / "profile" / folder.name / "localhost_6009.xplane.pb"
    assert path.read_bytes() == space(3)
    assert (contents.event_count, contents.size_bytes) == (3, len(space(3)))
    assert len(files(tmp_path)) == 5  # four folders and the file: nothing temporary is left


def test_what_is_added_comes_behind_the_trace_and_counts(tmp_path: Path) -> None:
    file = tmp_path / "made.pb"
    file.write_bytes(space(2))
    addition = message_class("XSpace")(planes=[{"name": b"/more"}]).SerializeToString()
    path, contents = RunFolder(tmp_path / "logs").adopt("vm", file, lambda _: addition)
    assert known(path).read_bytes() == space(2) + addition
    assert (contents.event_count, contents.size_bytes) == (2, len(space(2) + addition))
    assert not file.exists()


def test_an_addition_does_not_hide_that_the_end_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "made.pb"
    file.write_bytes(space(2)[:-1])
    with pytest.raises(TraceFormatError):
        RunFolder(tmp_path / "logs").adopt("vm", file, lambda _: b"x" * 100)
    assert files(tmp_path / "logs") == []


def test_nothing_is_replaced(tmp_path: Path) -> None:
    """Neither the trace of the same host nor the run of the same second."""
    folder, same_second = RunFolder(tmp_path), RunFolder(tmp_path)
    same_second.name = folder.name
    first, second, third = saved(folder, "vm", 1), saved(folder, "vm", 2), saved(same_second, "vm", 3)
    assert [first.name, second.name, third.name] == ["vm.xplane.pb", f"vm_{os.getpid()}.xplane.pb", "vm.xplane.pb"]
    assert third.parent.name == f"{folder.name}_1" == same_second.name
    assert [path.read_bytes() for path in (first, second, third)] == [space(1), space(2), space(3)]


def test_a_run_of_a_given_name_is_joined(tmp_path: Path) -> None:
    """By two processes, whose hosts have one name, or two."""
    folders = [RunFolder(tmp_path, RunName(given="job-7")) for _ in range(2)]
    hosts = [("a", "vm"), ("b", "vm")]
    paths = [saved(folder, host) for folder, of_folder in zip(folders, hosts, strict=True) for host in of_folder]
    assert [str(path.relative_to(tmp_path)) for path in paths] == [
        f"plugins/profile/job-7/{name}.xplane.pb" for name in ("a", "vm", "b", f"vm_{os.getpid()}")
    ]
    with pytest.raises(TraceFormatError):
        RunFolder(tmp_path, RunName(given="job-7")).save("c", b"not a trace")
    assert len(list((tmp_path / "plugins/profile/job-7").iterdir())) == 4


def test_a_run_that_is_agreed_on_is_joined(tmp_path: Path) -> None:
    first, second = (RunFolder(tmp_path, RunName(key="0" * 16)) for _ in range(2))
    second.name = "another_second"
    assert {saved(first, "a").parent, saved(second, "b").parent} == {first.path}
    assert second.name == first.name


def test_an_empty_run_may_vanish_before_a_trace_comes(tmp_path: Path) -> None:
    """Whoever made it removes it when its own trace fails; the other process makes it again."""
    first, second = (RunFolder(tmp_path, RunName(given="shared")) for _ in range(2))
    assert first.make() == second.make()
    second.drop_if_empty()
    assert first.path.exists(), "only who made it removes it"
    first.drop_if_empty()
    assert not first.path.exists()
    path = saved(second, "b")
    assert path.read_bytes() == space()
    second.drop_if_empty()
    assert path.exists()


@pytest.mark.parametrize("data", [space()[:-1], b"not a trace", b""])
def test_what_is_no_whole_trace_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(TraceFormatError):
        RunFolder(tmp_path).save("vm", data)
    assert files(tmp_path) == []


def test_a_trace_without_events_is_counted_and_not_kept(tmp_path: Path) -> None:
    path, contents = RunFolder(tmp_path).save("vm", space(0))
    assert (path, contents.event_count) == (None, 0)
    assert files(tmp_path) == []


def test_many_hosts_at_once_some_of_them_broken(tmp_path: Path) -> None:
    """Whoever fails removes an empty folder: never under the feet of another."""
    folder = RunFolder(tmp_path)
    with ThreadPoolExecutor(40) as threads:
        saves = [threads.submit(folder.save, "vm", space() if number % 2 else b"not a trace") for number in range(40)]
    assert [type(save.exception()) for save in saves] == [TraceFormatError, type(None)] * 20
    kept = {known(save.result()[0]) for save in saves[1::2]}
    assert len(kept) == 20
    assert {path.read_bytes() for path in kept} == {space()}


def test_only_folders_that_were_made_here_are_removed_again(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    folder = RunFolder(tmp_path / "mine" / "new" / "logs")
    folder.scratch().rmdir()
    folder.make()
    folder.drop_if_empty()
    assert files(tmp_path) == ["mine"]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        *(("../../etc/x", "__.._etc_x"), (".hidden", "_hidden"), ("a b:1", "a_b_1"), ("", "host"), ("é" * 300, "_")),
        ("x" * 999, "x" * 200),
    ],
)
def test_no_name_of_a_host_leaves_the_folder(tmp_path: Path, host: str, name: str) -> None:
    folder = RunFolder(tmp_path)
    assert saved(folder, host) == folder.path / f"{name}.xplane.pb"


@pytest.mark.parametrize("logdir", ["gs://bucket/logs", Path("gs://bucket/logs"), "s3://b", "hdfs://name:9000/logs"])
def test_a_remote_folder_is_refused(logdir: str | Path) -> None:
    with pytest.raises(CaptureError, match="not a local folder") as caught:
        local_folder(logdir)
    assert caught.value.reason == "not_written"


def test_a_file_is_no_logdir(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for logdir in (tmp_path / "file", tmp_path / "file" / "logs"):
        with pytest.raises(CaptureError, match="is a file") as caught:
            RunFolder(logdir)
        assert caught.value.reason == "not_written"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
def test_a_folder_that_cannot_be_made_is_told_at_once() -> None:
    """/proc takes no folders, not even from root."""
    for attempt in (RunFolder.scratch, RunFolder.make):
        with pytest.raises(CaptureError, match="/proc/logs") as caught:
            attempt(RunFolder("/proc/logs"))
        assert caught.value.reason == "not_written"


def test_a_relative_logdir_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder("logs")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert saved(folder, "vm").is_relative_to(tmp_path / "logs")


def task(index: int, **cluster: list[str]) -> dict[str, str]:
    config = {"cluster": cluster or {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": index}}
    return {"TF_CONFIG": json.dumps(config)}


def names(environment: dict[str, str], *moments: str, run: str | None = None) -> list[RunName]:
    count, of_process = ProfileCount(), this_task(environment, {})
    return [count.next_name(run, moment, environment, of_process) for moment in moments]


def test_a_name_that_is_given_comes_first() -> None:
    environment = {**task(0), "TFPERF_RUN": "of-the-launcher"}
    assert names(environment, "", "step 10", run="mine") == [RunName(given="mine")] * 2


def test_the_name_of_the_launcher_counts_the_profiles_of_a_process() -> None:
    environment = {**task(0), "TFPERF_RUN": "4711"}
    assert [name.given for name in names(environment, "", "step 10", "")] == ["4711", "4711_2", "4711_3"]
    assert names({**task(0), "TFPERF_RUN": ""}, "")[0].given == "", "as an unset variable"


def test_workers_of_a_cluster_agree_by_the_count_or_the_step() -> None:
    moments = ("", "", "step 10", "step 20", "step 10")
    first, second = names(task(0), *moments), names(task(1), *moments)
    assert first == second
    assert len({name.key for name in first}) == 5
    assert all(len(name.key) == 16 and not name.given for name in first)
    assert names(task(1), "step 20")[0] == first[3], "whatever else was profiled before"
    assert names(task(0, worker=["a:1", "c:1"]), "step 20")[0] != first[3]


@pytest.mark.parametrize("environment", [{}, {"RANK": "0"}, task(0, worker=["a:1"]), {"TF_CONFIG": "{}"}])
def test_a_process_without_fellows_has_a_run_of_its_own(environment: dict[str, str]) -> None:
    assert names(environment, "step 10") == [RunName()]


def test_a_name_that_no_folder_can_have() -> None:
    with pytest.raises(TfperfError, match="run 'a/b' is not a valid folder name"):
        names({}, "", run="a/b")
    with pytest.raises(TfperfError, match=r"TFPERF_RUN '\.\./x' is not a valid"):
        names({"TFPERF_RUN": "../x"}, "")


KEY = "0123456789abcdef"


class Runs:
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
    joined = [runs.agreed(), runs.agreed(), runs.agreed("fedcba9876543210"), runs.agreed()]
    assert (joined, runs.made) == (["run0", "run0", "run1", "run0"], ["run0", "run1"])


def test_processes_that_come_at_the_same_time(tmp_path: Path) -> None:
    """Eight real processes, forty runs: each run is made once, and all go there."""
    script = (
        "import os, sys, time\nfrom pathlib import Path\nfrom tfperf.capture.run_folder import agreed_run\n"
        "runs = Path(sys.argv[1])\n"
        "children, (waiting, go) = [], os.pipe()\n"
        "for child in range(8):\n"
        "    process = os.fork()\n"
        "    if not process:\n"
        "        os.close(go)\n"
        "        os.read(waiting, 1)  # until all have started\n"
        "        for key in range(40):\n"
        "            def make():\n"
        "                folder = runs / f'{key}-made-by-{child}'\n"
        "                folder.mkdir()\n"
        "                return folder\n"
        "            (agreed_run(runs, f'{key:016x}', make) / str(child)).touch()\n"
        "        os._exit(0)\n"
        "    children.append(process)\n"
        "time.sleep(0.2)\n"
        "os.close(go)\n"
        "sys.exit(any(os.waitpid(process, 0)[1] for process in children))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    folders = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len(folders) == 40
    assert all(len(list(folder.iterdir())) == 8 for folder in folders)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
def test_the_run_of_an_earlier_execution_of_the_job_is_not_joined(runs: Runs) -> None:
    started_s = known(process_start_s())
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
    with pytest.raises(TfperfError, match=r"TFPERF_RUN '.*' is not a valid folder name; use letters") as caught:
        check_run_name(name, "TFPERF_RUN")
    assert "\n" not in str(caught.value)
