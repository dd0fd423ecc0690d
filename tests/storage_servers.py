"""Servers on this machine that stand for those of others: object stores, and a web server with faults."""

from __future__ import annotations

import hashlib
import http.client
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct

_QUIET = {"transfer-encoding", "connection", "server", "date"}


class Fault(Struct, kw_only=True):
    """What happens to the next `times` requests of a method, for a path that has `part` in it."""

    method: str = "GET"
    part: str = ".xplane.pb"
    times: int = 1
    status: int = 0
    """The status of the answer; 0: what it would be."""
    cuts: bool = False
    """Whether the connection breaks in the middle of the answer."""
    before: Callable[[], object] = lambda: None
    """Called before the request is answered."""


class Answered(Struct):
    """A request, and what was sent for it."""

    method: str
    path: str
    status: int
    body_bytes: int


class WebServer(ThreadingHTTPServer):
    """Serves `files`, or what the server at the port `behind` answers, with faults; notes what it was asked."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, files: Mapping[str, bytes], *, has_ranges: bool = True, behind: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.has_ranges, self.behind = dict(files), has_ranges, behind
        self.faults: list[Fault] = []
        self.answered: list[Answered] = []
        self.has_folders = True

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that leave early are part of the tests."""

    def fault(self, method: str, path: str) -> Fault | None:
        """Return the fault of this request."""
        for fault in self.faults:
            if fault.times and fault.method == method and fault.part in unquote(path):
                fault.times -= 1
                return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebServer

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.fault(self.command, self.path)
        if fault:
            fault.before()
        headers: dict[str, str] = {}
        if fault and fault.status:
            status, data = fault.status, b"fault"
        elif self.server.behind:
            status, headers, data = self._forwarded(body)
        else:
            status, headers, data = self._own()
        length = headers.pop("content-length", str(len(data)))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length)
        if fault and fault.cuts:
            data = data[: len(data) // 2]
            self.close_connection = True
        sent = b"" if self.command == "HEAD" else data
        self.server.answered.append(Answered(self.command, unquote(self.path), status, len(sent)))
        self.end_headers()  # From here on the client may go on.
        self.wfile.write(sent)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _forwarded(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders() if name.lower() not in _QUIET}
        data = answer.read()
        connection.close()
        return answer.status, headers, data

    def _own(self) -> tuple[int, dict[str, str], bytes]:
        path = unquote(self.path.partition("?")[0])
        data = self.server.files.get(path)
        if data is None:
            return self._folder(path.rstrip("/") + "/")
        headers = {"Content-Type": "application/octet-stream", "ETag": f'"{hashlib.md5(data).hexdigest()}"'}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not wanted or not self.server.has_ranges:
            return 200, headers, data
        part = data[int(wanted[1]) : int(wanted[2]) + 1]
        headers["Content-Range"] = f"bytes {wanted[1]}-{int(wanted[1]) + len(part) - 1}/{len(data)}"
        return (206, headers, part) if part or not data else (416, {}, b"")

    def _folder(self, path: str) -> tuple[int, dict[str, str], bytes]:
        names = {
            file.removeprefix(path).partition("/")[0] + "/" * ("/" in file.removeprefix(path))
            for file in self.server.files
            if file.startswith(path)
        }
        if not names or not self.server.has_folders:
            return 404, {}, b""
        links = "".join(f'<a href="{quote(name)}">{escape(name)}</a>' for name in sorted(names))
        evil = (
            '<a href="../">up</a><a href="https://example.invalid/x.xplane.pb">x</a><a href="%2e%2e/y.xplane.pb">y</a>'
        )
        return 200, {"Content-Type": "text/html"}, (evil + links).encode()


@contextmanager
def web_server(files: Mapping[str, bytes] = {}, **options: Any) -> Iterator[WebServer]:
    """Run a web server."""
    server = WebServer(files, **options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def s3_server() -> Iterator[int]:
    """Run moto's S3; its port."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield server.get_host_and_port()[1]
    finally:
        server.stop()
