"""Where captured traces go: whole or not at all, beside what is there."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from tfperf.base.errors import CaptureError, TraceFormatError
from tfperf.capture.run_folder import RunFolder, RunName, local_folder
from tfperf.formats.wire.schema import message_class


def space(events: int = 1) -> bytes:
    """A serialized XSpace with that many events."""
    made = message_class("XSpace")()
    line = made.planes.add(name=b"/host:CPU").lines.add(name=b"python")
    for _ in range(events):
        line.events.add(metadata_id=1, duration_ps=1000)
    return bytes(made.SerializeToString())


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
    assert path is not None
    assert path.read_bytes() == space(2) + addition
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
    first, _ = folder.save("vm", space(1))
    second, _ = folder.save("vm", space(2))
    third, _ = same_second.save("vm", space(3))
    assert first is not None and second is not None and third is not None  # noqa: PT018
    assert [first.name, second.name, third.name] == ["vm.xplane.pb", f"vm_{os.getpid()}.xplane.pb", "vm.xplane.pb"]
    assert third.parent.name == f"{folder.name}_1" == same_second.name
    assert [path.read_bytes() for path in (first, second, third)] == [space(1), space(2), space(3)]


def test_a_run_of_a_given_name_is_joined(tmp_path: Path) -> None:
    """By two processes, whose hosts have one name, or two."""
    folders = [RunFolder(tmp_path, RunName(given="job-7")) for _ in range(2)]
    hosts = [("a", "vm"), ("b", "vm")]
    paths = [
        folder.save(host, space(1))[0] for folder, of_folder in zip(folders, hosts, strict=True) for host in of_folder
    ]
    assert [path and str(path.relative_to(tmp_path)) for path in paths] == [
        f"plugins/profile/job-7/{name}.xplane.pb" for name in ("a", "vm", "b", f"vm_{os.getpid()}")
    ]
    with pytest.raises(TraceFormatError):
        RunFolder(tmp_path, RunName(given="job-7")).save("c", b"not a trace")
    assert len(list((tmp_path / "plugins/profile/job-7").iterdir())) == 4


def test_a_run_that_is_agreed_on_is_joined(tmp_path: Path) -> None:
    first, second = (RunFolder(tmp_path, RunName(key="0" * 16)) for _ in range(2))
    second.name = "another_second"
    paths = [folder.save(host, space(1))[0] for folder, host in ((first, "a"), (second, "b"))]
    assert {path and path.parent for path in paths} == {first.path}
    assert second.name == first.name


def test_an_empty_run_may_vanish_before_a_trace_comes(tmp_path: Path) -> None:
    """Whoever made it removes it when its own trace fails; the other process makes it again."""
    first, second = (RunFolder(tmp_path, RunName(given="shared")) for _ in range(2))
    assert first.make() == second.make()
    first.drop_if_empty()
    assert not first.path.exists()
    path, _ = second.save("b", space())
    assert path is not None
    assert path.read_bytes() == space()
    second.drop_if_empty()
    assert path.exists()


def test_only_who_made_a_run_removes_it(tmp_path: Path) -> None:
    first, second = (RunFolder(tmp_path, RunName(given="shared")) for _ in range(2))
    first.make()
    second.make()
    second.drop_if_empty()
    assert first.path.exists()


@pytest.mark.parametrize("data", [space()[:-1], b"not a trace", b""])
def test_what_is_no_whole_trace_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(TraceFormatError):
        RunFolder(tmp_path).save("vm", data)
    assert files(tmp_path) == []


def test_a_trace_without_events_is_counted_and_not_kept(tmp_path: Path) -> None:
    path, contents = RunFolder(tmp_path).save("vm", space(0))
    assert (path, contents.event_count) == (None, 0)
    assert files(tmp_path) == []


def test_a_failure_takes_no_other_trace_with_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    path, _ = folder.save("good", space())
    with pytest.raises(TraceFormatError):
        folder.save("bad", b"not a trace")
    assert path is not None
    assert [entry.name for entry in path.parent.iterdir()] == ["good.xplane.pb"]


def test_many_hosts_at_once_some_of_them_broken(tmp_path: Path) -> None:
    """Whoever fails removes an empty folder: never under the feet of another."""
    folder, kept, unexpected = RunFolder(tmp_path), [], []

    def save(number: int) -> None:
        try:
            kept.append(folder.save("vm", space() if number % 2 else b"not a trace")[0])
        except TraceFormatError:
            pass
        except CaptureError as error:
            unexpected.append(error)

    threads = [threading.Thread(target=save, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert unexpected == []
    assert len(set(kept)) == 20
    assert all(path is not None and path.read_bytes() == space() for path in kept)


def test_only_folders_that_were_made_here_are_removed_again(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    folder = RunFolder(tmp_path / "mine" / "new" / "logs")
    folder.scratch().rmdir()
    folder.make()
    folder.drop_if_empty()
    assert files(tmp_path) == ["mine"]


def test_adopting_moves_the_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    scratch = folder.scratch()
    (scratch / "foreign").write_bytes(space())
    path, _ = folder.adopt("vm", scratch / "foreign")
    assert path is not None
    assert path.read_bytes() == space()
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("host", "name"),
    [("../../etc/x", "__.._etc_x"), (".hidden", "_hidden"), ("a b:1", "a_b_1"), ("", "host"), ("é" * 300, "_")],
)
def test_no_name_of_a_host_leaves_the_folder(tmp_path: Path, host: str, name: str) -> None:
    folder = RunFolder(tmp_path)
    path, _ = folder.save(host, space())
    assert path == folder.path / f"{name}.xplane.pb"


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    path, _ = RunFolder(tmp_path).save("x" * 999, space())
    assert path is not None
    assert path.name == "x" * 200 + ".xplane.pb"


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
    path, _ = folder.save("vm", space())
    assert path is not None
    assert path.is_relative_to(tmp_path / "logs")
