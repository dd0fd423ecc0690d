"""The server for the viewer in the browser: one file, once, on the loopback interface."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tfperf.base.errors import TfperfError
from tfperf.export.timeline.viewer_server import VIEWER, FileServer, has_browser


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    path = tmp_path / "a trace.pftrace"
    path.write_bytes(b"packets")
    server = FileServer(path, port=0)
    yield server
    server.server_close()


def ask(
    server: FileServer, method: str, path: str | None = None, *, host: str = "", origin: str = VIEWER
) -> tuple[int, dict[str, str], bytes]:
    address, _, rest = server.url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request(
        method, path or f"/{rest}", headers={"Host": host or address, **({"Origin": origin} if origin else {})}
    )
    reply = connection.getresponse()
    answer = reply.status, dict(reply.getheaders()), reply.read()
    connection.close()
    return answer


def test_ends_when_the_file_was_fetched(server: FileServer) -> None:
    thread = threading.Thread(target=server.serve)
    thread.start()
    assert ask(server, "GET", "/etc/passwd")[0] == 404
    assert ask(server, "GET", "/../a%20trace.pftrace")[0] == 404
    assert ask(server, "HEAD")[1]["Content-Length"] == "7"
    status, headers, _ = ask(server, "OPTIONS")
    assert (status, headers["Access-Control-Allow-Private-Network"]) == (204, "true")
    assert thread.is_alive()
    status, headers, data = ask(server, "GET")
    thread.join(10)
    assert (status, data, thread.is_alive(), server.fetched) == (200, b"packets", False, True)
    assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_only_the_viewer_on_this_machine_is_answered_and_a_refusal_ends_nothing(
    server: FileServer, method: str
) -> None:
    """A page of another name whose address leads here (DNS rebinding) gets nothing."""
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    port = server.server_port
    others = ("evil.example", f"evil.example:{port}", "127.0.0.1", f"localhost:{port + 1}", f"127.0.0.1.evil:{port}")
    refused = [(421, {"host": host}) for host in others]
    refused += [(403, {"origin": origin}) for origin in ("", "https://evil.example", "null", "http://ui.perfetto.dev")]
    for code, request in refused:
        status, headers, data = ask(server, method, **request)
        assert (status, "Access-Control-Allow-Origin" in headers, b"packets" in data) == (code, False, False), request
    assert ask(server, method, host=f"localhost:{port}")[0] in (200, 204)
    if method != "GET":
        assert ask(server, "GET")[2] == b"packets"
    thread.join(60)
    assert server.fetched


def test_the_address_is_the_viewers_and_local(server: FileServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    assert server.url.endswith("/a%20trace.pftrace")
    assert server.viewer_url == f"https://ui.perfetto.dev/#!/?url={server.url}"


def test_a_taken_port_says_what_to_do(server: FileServer) -> None:
    port = int(server.url.split(":")[2].split("/")[0])
    with pytest.raises(TfperfError, match=f"cannot serve on 127.0.0.1:{port}: .*drop the file there"):
        FileServer(server.path, port=port)


def test_no_browser_over_ssh_or_without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not has_browser()
    monkeypatch.setenv("DISPLAY", ":0")
    assert has_browser()
    monkeypatch.setenv("SSH_CONNECTION", "a b c d")
    assert not has_browser()


def test_a_connection_that_says_nothing_holds_up_no_other(server: FileServer) -> None:
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port)))
        assert ask(server, "GET")[2] == b"packets"
        thread.join(60)
    assert server.fetched
    assert not thread.is_alive()
