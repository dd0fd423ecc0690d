"""Files of others: read once, in few requests, whatever the server does meanwhile."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from storage_servers import Fault, WebServer, web_server

from tfperf import RemotePath, load
from tfperf.base.errors import TfperfError, TraceFormatError, TraceNotFoundError
from tfperf.base.storage import reading as downloads
from tfperf.base.storage.reading import download, list_files

KEY = "logs/plugins/profile/2026_11_21_12_00_00/a b.xplane.pb"
DATA = random.Random(1).randbytes(325_000)
PART = 100_000


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PART_BYTES", PART)


def read(path: RemotePath) -> bytes:
    with download(path) as file:
        return file.read()


def at(server: WebServer, bucket: str, key: str = KEY) -> RemotePath:
    return RemotePath(f"s3://{bucket}/{key}", endpoint_url=server.url)


def test_a_file_is_sent_once_in_few_requests(s3: WebServer, bucket: tuple[str, Any]) -> None:
    name, files = bucket
    files.pipe_file(f"{name}/{KEY}", DATA)
    (file,) = list_files(at(s3, name, "logs"), ".xplane.pb")
    assert read(file) == DATA
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
def test_a_server_that_fails_is_asked_again(fault: Fault, s3: WebServer, bucket: tuple[str, Any]) -> None:
    name, files = bucket
    files.pipe_file(f"{name}/{KEY}", DATA)
    s3.faults.append(fault)
    assert read(at(s3, name)) == DATA


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "permission denied; set AWS_ACCESS_KEY_ID .*; if the bucket is public, pass --anonymous"),
        (404, "does not exist; check the address"),
        (503, r"the server is busy or the connection broke, again and again .*; try again later"),
    ],
)
def test_what_a_server_refuses_is_said_in_one_line(
    status: int, words: str, s3: WebServer, bucket: tuple[str, Any]
) -> None:
    name, files = bucket
    files.pipe_file(f"{name}/{KEY}", DATA)
    s3.faults.append(Fault(status=status, times=9))
    (file,) = list_files(at(s3, name, "logs"), ".xplane.pb")
    with pytest.raises(TraceNotFoundError, match=words) as caught:
        download(file)
    assert "\n" not in str(caught.value)
    assert len(s3.answered) == 1 + (4 + 1 if status == 503 else 2)  # two parts were on their way


@pytest.mark.parametrize("new", [DATA[::-1], DATA[:-1], DATA + b"more", DATA[:PART], b""])
def test_a_file_that_is_replaced_meanwhile_is_an_error(new: bytes, s3: WebServer, bucket: tuple[str, Any]) -> None:
    name, files = bucket
    files.pipe_file(f"{name}/{KEY}", DATA)
    (file,) = list_files(at(s3, name, "logs"), ".xplane.pb")
    s3.faults += [Fault(times=2), Fault(before=lambda: files.pipe_file(f"{name}/{KEY}", new))]
    with pytest.raises(TraceFormatError, match=r"changed while it was read; try again when it is written completely$"):
        download(file)


@pytest.mark.parametrize("grown", [DATA[:10], DATA[: PART + 1]])
def test_a_file_of_one_part_that_changes_its_size_is_an_error(
    grown: bytes, s3: WebServer, bucket: tuple[str, Any]
) -> None:
    name, files = bucket
    files.pipe_file(f"{name}/{KEY}", DATA[:PART])
    (file,) = list_files(at(s3, name, "logs"), ".xplane.pb")
    files.pipe_file(f"{name}/{KEY}", grown)
    with pytest.raises(TraceFormatError, match="changed while it was read"):
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
    ("status", "words"),
    [
        (401, "permission denied; give an address"),
        (403, "permission denied"),
        (404, "does not exist"),
        (503, "is busy"),
    ],
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
        with pytest.raises(TraceFormatError, match="changed while it was read"):
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
