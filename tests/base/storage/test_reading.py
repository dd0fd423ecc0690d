"""Files of others: read once, in few requests, whatever the server does meanwhile."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from builders import known
from click.testing import Result
from storage_servers import Fault, WebServer, web_server

from tfperf import RemotePath, load
from tfperf.base.errors import TfperfError, TraceFormatError, TraceNotFoundError
from tfperf.base.storage import reading as downloads
from tfperf.base.storage.reading import download, list_files, look_up
from tfperf.trace.logdir import choose_run, find_runs, run_names

KEY = "logs/plugins/profile/2026_11_21_12_00_00/a b.xplane.pb"
DATA = random.Random(1).randbytes(325_000)
PART = 100_000


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PART_BYTES", PART)


Store = Callable[[bytes], RemotePath]


def read(path: RemotePath) -> bytes:
    with download(path) as file:
        return file.read()


def at(server: WebServer, bucket: str, key: str = KEY) -> RemotePath:
    return RemotePath(f"s3://{bucket}/{key}", endpoint_url=server.url)


@pytest.fixture
def stored(s3: WebServer, bucket: tuple[str, Any]) -> Store:
    """Store bytes under the key, and return the file as it is listed."""
    name, files = bucket

    def store(data: bytes) -> RemotePath:
        files.pipe_file(f"{name}/{KEY}", data)
        (file,) = list_files(at(s3, name, "logs"), ".xplane.pb")
        return file

    return store


def test_a_file_is_sent_once_in_few_requests(s3: WebServer, stored: Store) -> None:
    assert read(stored(DATA)) == DATA
    assert [each.method for each in s3.answered].count("GET") == 5  # one lists
    assert len(s3.answered) == 6
    assert sum(each.body_bytes for each in s3.answered) < 1.02 * len(DATA)


def test_a_small_file_is_one_request(s3: WebServer, bucket: tuple[str, Any]) -> None:
    name, files = bucket
    files.pipe_file(f"{name}/{KEY}", DATA[:PART])
    files.pipe_file(f"{name}/empty", b"")
    (file,) = list_files(at(s3, name, "logs"), ".xplane.pb")
    assert read(file) == DATA[:PART]
    assert len(s3.answered) == 2
    with pytest.raises(TfperfError, match="is empty"):
        load(at(s3, name, "empty"))


@pytest.mark.parametrize("fault", [Fault(status=503, times=2), Fault(cuts=True), Fault(status=500)])
def test_a_server_that_fails_is_asked_again(fault: Fault, s3: WebServer, stored: Store) -> None:
    file = stored(DATA)
    s3.faults.append(fault)
    assert read(file) == DATA


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "permission denied; set AWS_ACCESS_KEY_ID .*; if the bucket is public, pass --anonymous"),
        (404, "does not exist; check the address"),
        (503, r"the server is busy or the connection keeps dropping .*; try again later"),
    ],
)
def test_what_a_server_refuses_is_said_in_one_line(status: int, words: str, s3: WebServer, stored: Store) -> None:
    file = stored(DATA)
    s3.faults.append(Fault(status=status, times=9))
    with pytest.raises(TraceNotFoundError, match=words) as caught:
        download(file)
    assert "\n" not in str(caught.value)
    assert len(s3.answered) == 1 + (4 + 1 if status == 503 else 2)  # two parts were on their way


@pytest.mark.parametrize("new", [DATA[::-1], DATA[:-1], DATA + b"more", DATA[:PART], b""])
def test_a_file_that_is_replaced_meanwhile_is_an_error(new: bytes, s3: WebServer, stored: Store) -> None:
    file = stored(DATA)
    s3.faults += [Fault(times=2), Fault(before=lambda: stored(new))]
    with pytest.raises(TraceFormatError, match=r"changed while being read; try again once it is complete$"):
        download(file)


@pytest.mark.parametrize("grown", [DATA[:10], DATA[: PART + 1]])
def test_a_file_of_one_part_that_changes_its_size_is_an_error(grown: bytes, stored: Store) -> None:
    file = stored(DATA[:PART])
    stored(grown)
    with pytest.raises(TraceFormatError, match="changed while being read"):
        download(file)


def test_a_web_server_sends_parts() -> None:
    with web_server({"/a.xplane.pb": DATA}) as server:
        assert read(RemotePath(f"{server.url}/a.xplane.pb")) == DATA
        assert [each.status for each in server.answered if each.method == "GET"] == [206] * 4


def test_a_web_server_without_ranges_sends_the_file_once() -> None:
    with web_server({"/a.xplane.pb": DATA}, has_ranges=False) as server:
        assert read(RemotePath(f"{server.url}/a.xplane.pb?token=1")) == DATA
        assert [each.body_bytes for each in server.answered if each.method == "GET"] == [len(DATA)]


@pytest.mark.parametrize(
    "fault", [Fault(status=503, times=2), Fault(cuts=True), Fault(status=405, method="HEAD", times=9)]
)
def test_a_web_server_that_fails_is_asked_again(fault: Fault) -> None:
    with web_server({"/a.xplane.pb": DATA}) as server:
        server.faults.append(fault)
        assert read(RemotePath(f"{server.url}/a.xplane.pb")) == DATA


@pytest.mark.parametrize(
    ("status", "words"), [(401, "permission denied; use a signed address"), (404, "does not exist"), (503, "is busy")]
)
def test_what_a_web_server_refuses_holds_no_secret(status: int, words: str) -> None:
    with web_server({"/a.xplane.pb": DATA}) as server:
        server.faults += [Fault(status=status, times=9), Fault(status=status, times=9, method="HEAD")]
        url = f"{server.url}/a.xplane.pb?signature=hunter2".replace("//", "//me:hunter2@", 1)
        with pytest.raises(TraceNotFoundError, match=words) as caught:
            download(RemotePath(url))
        assert "hunter2" not in str(caught.value)
        assert "***@127.0.0.1" in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_file_on_a_web_server_that_is_replaced_meanwhile_is_an_error() -> None:
    with web_server({"/a.xplane.pb": DATA}) as server:
        server.faults += [Fault(times=2), Fault(before=lambda: server.files.update({"/a.xplane.pb": DATA[::-1]}))]
        with pytest.raises(TraceFormatError, match="changed while being read"):
            download(RemotePath(f"{server.url}/a.xplane.pb"))


def test_a_large_file_has_no_name_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(downloads, "MEMORY_BYTES", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with web_server({"/a.xplane.pb": DATA}) as server, download(RemotePath(f"{server.url}/a.xplane.pb")) as file:
        assert file.fileno() > 0
        assert file.read() == DATA
        assert not list(tmp_path.iterdir())


def test_ctrl_c_ends_a_download_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(downloads, "MEMORY_BYTES", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    hangs = threading.Event()
    with web_server({"/a.xplane.pb": DATA}) as server:

        def interrupt() -> None:
            os.kill(os.getpid(), signal.SIGINT)
            hangs.wait(30)

        server.faults += [Fault(times=1), Fault(before=interrupt)]
        with pytest.raises(KeyboardInterrupt):
            download(RemotePath(f"{server.url}/a.xplane.pb"))
        hangs.set()
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_the_report_is_the_same_wherever_the_profile_is(
    s3: WebServer, bucket: tuple[str, Any], samples: Path, run_tfperf: Callable[..., Result]
) -> None:
    import fsspec

    name, files = bucket
    logdir = samples / "input_bound"
    memory = fsspec.filesystem("memory")
    pages = {}
    for file in sorted(path for path in logdir.rglob("*.xplane.pb")):
        below = file.relative_to(logdir).as_posix()
        files.pipe_file(f"{name}/logs/{below}", file.read_bytes())
        memory.pipe_file(f"/same/logs/{below}", file.read_bytes())
        pages[f"/logs/{below}"] = file.read_bytes()
    with web_server(pages) as web:
        places: dict[str, list[str]] = {
            str(logdir): [],
            f"s3://{name}/logs": ["--endpoint-url", s3.url],
            "memory://same/logs": [],
            f"{web.url}/logs": [],
        }
        reports = []
        for place, options in places.items():
            result = run_tfperf("analyze", place, "--format", "json", *options)
            assert result.exit_code == 0, result.output
            document = json.loads(result.stdout)
            assert document["source"]["folder"].startswith(place)
            reports.append(result.stdout.replace(place, "LOGDIR"))
    assert [report == reports[0] for report in reports] == [True] * 4


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
        assert known(look_up(run.files[0].path).listed).size_bytes == 2
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
