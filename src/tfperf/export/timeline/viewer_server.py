"""A local server that passes one file to the trace viewer in the browser.

The content security policy of ui.perfetto.dev allows only port 9001 of this machine. No data leaves the machine; the
page runs in the browser.
"""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfileobj
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from tfperf.base.errors import TfperfError

VIEWER = "https://ui.perfetto.dev"
ADDRESS, PORT = "127.0.0.1", 9001


class FileServer(ThreadingHTTPServer):
    """Serves one file to the viewer on the loopback interface, until it is fetched once.

    Each connection has a thread, so that an idle one does not block others. Raises TfperfError if the port is in use.
    """

    fetched = False
    sent_on: object = None  # the connection on which the file was sent
    timeout = 0.5
    """Seconds per wait for a request; waits are short because a Ctrl-C just before one does not end it."""

    def __init__(self, path: Path, port: int = PORT) -> None:
        self.path = path
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            fix = f"stop the program that uses the port (the viewer requires this port), or open {VIEWER}"
            problem = f"cannot serve on {ADDRESS}:{port}: {error.strerror}"
            raise TfperfError(f"{problem}; {fix} and drop the file there") from error

    @property
    def url(self) -> str:
        """Return the address of the file."""
        return f"http://{ADDRESS}:{self.server_port}/{quote(self.path.name)}"

    @property
    def viewer_url(self) -> str:
        """Return the address of the viewer with the file loaded."""
        return f"{VIEWER}/#!/?url={self.url}"

    def serve(self) -> None:
        """Wait until the file is fetched, and free the port, also after Ctrl-C."""
        with self:
            while not self.fetched:
                self.handle_request()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; the server stops after the connection of the file."""
        super().shutdown_request(request)
        self.fetched = self.fetched or request is self.sent_on

    def handle_error(self, request: object, client_address: object) -> None:
        """Do nothing: browsers close connections all the time."""


def has_browser() -> bool:
    """Return whether a browser can open for the user of this process."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class _Handler(BaseHTTPRequestHandler):
    server: FileServer
    timeout = 10.0
    """Maximum seconds for which a connection may be idle."""

    def do_GET(self) -> None:
        if self._start_reply():
            with self.server.path.open("rb") as file:
                copyfileobj(file, self.wfile)
            self.server.sent_on = self.connection

    def do_HEAD(self) -> None:
        """Send the size of the file."""
        self._start_reply()

    def do_OPTIONS(self) -> None:
        """Allow the viewer to access a local network address, which browsers check first."""
        if not self._is_from_the_viewer():
            return
        self.send_response(204)
        self.send_header("Access-Control-Allow-Origin", VIEWER)
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _is_from_the_viewer(self) -> bool:
        """Reject other pages, and requests with another host name, which could resolve here (DNS rebinding)."""
        port = self.server.server_port
        if self.headers.get_all("Host") not in ([f"{ADDRESS}:{port}"], [f"localhost:{port}"]):
            self.send_error(421)
            return False
        if self.headers.get_all("Origin") != [VIEWER]:
            self.send_error(403)
            return False
        return True

    def _start_reply(self) -> bool:
        """Send the headers, and return whether the file was requested."""
        if not self._is_from_the_viewer():
            return False
        if unquote(urlsplit(self.path).path) != f"/{self.server.path.name}":
            self.send_error(404)
            return False
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", VIEWER)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(self.server.path.stat().st_size))
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        return True
