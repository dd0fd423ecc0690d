"""What lies below an address."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from click.testing import Result
from storage_servers import WebServer, web_server

from tfperf import RemotePath, TraceNotFoundError
from tfperf.base.storage.reading import list_files, look_up
from tfperf.trace.logdir import choose_run, find_runs, run_names

SUFFIX = ".xplane.pb"


@pytest.fixture
def memory() -> Iterator[Any]:
    """An empty file system in memory."""
    import fsspec

    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


def test_runs_and_hosts_are_found(memory: Any, run_tfperf: Callable[..., Result]) -> None:
    for run in ("2026_01_01_00_00_00", "2026_01_02_00_00_00"):
        for host in ("b", "a"):
            memory.pipe_file(f"/logs/plugins/profile/{run}/{host}{SUFFIX}", b"12345")
    memory.pipe_file("/logs/other.txt", b"")
    runs = find_runs(RemotePath("memory://logs"))
    assert [run.name for run in runs] == ["2026_01_01_00_00_00", "2026_01_02_00_00_00"]
    assert [file.host for file in runs[1].files] == ["a", "b"]
    assert runs[1].files[0].size_bytes == 5
    assert str(runs[1].folder) == "memory://logs/plugins/profile/2026_01_02_00_00_00"
    assert choose_run(runs, str(runs[0].folder)) == runs[0]
    document = json.loads(run_tfperf("analyze", "memory://logs", "--list", "--format", "json").stdout)
    files = document["sections"]["runs"]["tables"]["files"]
    assert files["rows"][0]["file"] == f"plugins/profile/2026_01_01_00_00_00/a{SUFFIX}"
    assert files["rows"][0]["path"] == str(runs[0].files[0].path)


def test_a_run_without_a_time_in_its_name_has_that_of_its_files(memory: Any) -> None:
    memory.pipe_file(f"/logs/first/vm{SUFFIX}", b"1")
    memory.pipe_file(f"/logs/second/vm{SUFFIX}", b"1")
    memory.store[f"/logs/first/vm{SUFFIX}"].created = datetime(2026, 1, 2, tzinfo=timezone.utc)
    memory.store[f"/logs/second/vm{SUFFIX}"].created = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert [run.name for run in find_runs(RemotePath("memory://logs"))] == ["second", "first"]


def test_a_file_may_be_named_itself(memory: Any) -> None:
    memory.pipe_file(f"/logs/vm{SUFFIX}", b"1")
    memory.pipe_file("/logs/renamed", b"1")
    for name, host in ((f"vm{SUFFIX}", "vm"), ("renamed", "renamed")):
        (run,) = find_runs(RemotePath(f"memory://logs/{name}"))
        assert ([file.host for file in run.files], run.name) == ([host], "logs")


def test_runs_can_be_joined(memory: Any) -> None:
    memory.pipe_file(f"/logs/x/2026_01_01_00_00_00/vm{SUFFIX}", b"1")
    memory.pipe_file(f"/logs/y/2026_01_02_00_00_00/vm{SUFFIX}", b"1")
    runs = find_runs(RemotePath("memory://logs"))
    joined = choose_run(runs, run_names(runs))
    assert str(joined.folder) == "memory://logs"
    assert len(joined.files) == 2


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("logs/other.txt", f"no .{SUFFIX} file below memory://logs; profiles are in LOGDIR/plugins/profile/RUN/HOST"),
        ("logs/a.pt.trace.json", "memory://logs/a.pt.trace.json is a PyTorch profile"),
        ("elsewhere/x", "memory://logs does not exist; check the address"),
    ],
)
def test_what_is_there_instead_is_said(file: str, words: str, memory: Any) -> None:
    memory.pipe_file(f"/{file}", b"")
    with pytest.raises(TraceNotFoundError, match=words):
        find_runs(RemotePath("memory://logs"))


def test_thousands_of_files(memory: Any) -> None:
    memory.pipe({f"/logs/{number:04}/vm{SUFFIX}": b"1" for number in range(3000)})
    assert [run.name for run in find_runs(RemotePath("memory://logs"))] == [f"{number:04}" for number in range(3000)]


def test_odd_names_in_a_bucket(s3: WebServer, bucket: tuple[str, Any]) -> None:
    name, files = bucket
    odd = ["..", "a?b", "a#b c", "a%2Fb", "[*]", "é'\"&<x>"]
    contents = {f"{name}/logs/{each}/h{each}{SUFFIX}": b"1" for each in odd}
    files.pipe(contents)
    runs = find_runs(RemotePath(f"s3://{name}/logs", endpoint_url=s3.url))
    assert len(s3.answered) == 1
    assert {run.name for run in runs} == set(odd)
    assert {run.files[0].host for run in runs} == {f"h{each}" for each in odd}


def test_a_bucket_that_is_not_there(s3: WebServer) -> None:
    for url in ("s3://nowhere/logs", f"s3://nowhere/vm{SUFFIX}"):
        with pytest.raises(TraceNotFoundError, match=f"{url} does not exist; check the address"):
            list_files(RemotePath(url, endpoint_url=s3.url), SUFFIX)


def test_folders_of_a_web_server_are_followed_but_not_out_of_the_logdir() -> None:
    pages = {f"/logs/plugins/profile/a b/v m{SUFFIX}": b"12", f"/x{SUFFIX}": b"3", f"/y{SUFFIX}": b"4"}
    with web_server(pages) as server:
        (run,) = find_runs(RemotePath(f"{server.url}/logs/"))
        assert (run.name, [file.host for file in run.files]) == ("a b", ["v m"])
        assert run.files[0].size_bytes is None
        assert isinstance(run.files[0].path, RemotePath)
        looked_up = look_up(run.files[0].path).listed
        assert looked_up is not None
        assert looked_up.size_bytes == 2
        server.has_folders = False
        with pytest.raises(TraceNotFoundError, match="does not exist"):
            find_runs(RemotePath(f"{server.url}/logs/"))


def test_google(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulator stands for Google Cloud Storage: list, read in parts, write."""
    from gcp_storage_emulator.server import create_server

    from tfperf.base.storage import reading as downloads
    from tfperf.base.storage.upload import new_remote_file

    with web_server() as free:
        port = free.server_port
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    server.start()
    try:
        logdir = RemotePath("gs://bucket/logs", anonymous=True, endpoint_url=f"http://127.0.0.1:{port}")
        with new_remote_file(logdir / "run" / f"a b{SUFFIX}") as file:
            file.write(bytes(range(250)))
        (run,) = find_runs(logdir)
        assert (run.files[0].host, run.files[0].size_bytes) == ("a b", 250)
        monkeypatch.setattr(downloads, "PART_BYTES", 100)
        assert isinstance(run.files[0].path, RemotePath)
        assert downloads.download(run.files[0].path).read() == bytes(range(250))
        with pytest.raises(TraceNotFoundError, match="gs://bucket/nowhere does not exist"):
            find_runs(logdir.parent / "nowhere")
    finally:
        server.stop()
