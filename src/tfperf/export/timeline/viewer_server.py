"""Serves one file to the viewer in the browser, from this machine to itself.

ui.perfetto.dev loads a trace from an address only if that is port 9001 of this machine: its page forbids itself all
others. Nothing leaves the machine; the page runs in the browser.
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

    Each connection has a thread, so that one that says nothing holds up no other. Raises TfperfError if the port is
    taken.
    """

    fetched = False
    sent_on: object = None
    """The connection on which the file was sent."""
    timeout = 0.5
    """Seconds until the wait for a request begins anew: a Ctrl-C that comes just before the wait does not end it."""

    def __init__(self, path: Path, port: int = PORT) -> None:
        self.path = path
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            fix = f"stop the program that uses the port (the viewer loads from no other), or open {VIEWER}"
            problem = f"cannot serve on {ADDRESS}:{port}: {error.strerror}"
            raise TfperfError(f"{problem}; {fix} and drop the file there") from error

    @property
    def url(self) -> str:
        """Return the address of the file."""
        return f"http://{ADDRESS}:{self.server_port}/{quote(self.path.name)}"

    @property
    def viewer_url(self) -> str:
        """Return the address of the viewer with the file in it."""
        return f"{VIEWER}/#!/?url={self.url}"

    def serve(self) -> None:
        """Wait until the file is fetched, and free the port, after Ctrl-C too."""
        with self:
            while not self.fetched:
                self.handle_request()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; after that of the file, nothing is left to send."""
        super().shutdown_request(request)
        self.fetched = self.fetched or request is self.sent_on

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: browsers hang up all the time."""


def has_browser() -> bool:
    """Tell whether a browser could open in front of whoever started this."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class _Handler(BaseHTTPRequestHandler):
    server: FileServer
    timeout = 10.0
    """Seconds for which a connection may say nothing, or take nothing."""

    def do_GET(self) -> None:
        if self._start_reply():
            with self.server.path.open("rb") as file:
                copyfileobj(file, self.wfile)
            self.server.sent_on = self.connection

    def do_HEAD(self) -> None:
        """Say how large the file is."""
        self._start_reply()

    def do_OPTIONS(self) -> None:
        """Allow the viewer to ask a machine of the local network, which browsers check first."""
        if not self._is_from_the_viewer():
            return
        self.send_response(204)
        self.send_header("Access-Control-Allow-Origin", VIEWER)
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _is_from_the_viewer(self) -> bool:
        """Refuse other pages, and what was sent to another name: its owner can have it lead here (DNS rebinding)."""
        port = self.server.server_port
        if self.headers.get_all("Host") not in ([f"{ADDRESS}:{port}"], [f"localhost:{port}"]):
            self.send_error(421)
            return False
        if self.headers.get_all("Origin") != [VIEWER]:
            self.send_error(403)
            return False
        return True

    def _start_reply(self) -> bool:
        """Send what comes before the file, if the file is what is asked for."""
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
