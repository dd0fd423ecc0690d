"""Serves one file to the viewer in the browser, from this machine to itself.

ui.perfetto.dev loads a trace from an address only if that is port 9001 of this machine: its page forbids itself all
others. Nothing leaves the machine; the page runs in the browser.
"""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import copyfileobj
from urllib.parse import quote, unquote, urlsplit

from tfperf.errors import TfperfError

VIEWER = "https://ui.perfetto.dev"
ADDRESS, PORT = "127.0.0.1", 9001


class FileServer(HTTPServer):
    """Serves one file on the loopback interface, until it is fetched once. Raises TfperfError if the port is taken."""

    fetched = False
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

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: browsers hang up all the time."""


def has_browser() -> bool:
    """Tell whether a browser could open in front of whoever started this."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class _Handler(BaseHTTPRequestHandler):
    server: FileServer
    timeout = 30.0

    def do_GET(self) -> None:
        if self._start_reply():
            with self.server.path.open("rb") as file:
                copyfileobj(file, self.wfile)
            self.server.fetched = True

    def do_HEAD(self) -> None:
        """Say how large the file is."""
        self._start_reply()

    def do_OPTIONS(self) -> None:
        """Allow the viewer to ask a machine of the local network, which browsers check first."""
        if not self._is_for_this_machine():
            return
        self.send_response(204)
        self.send_header("Access-Control-Allow-Origin", VIEWER)
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _is_for_this_machine(self) -> bool:
        """Refuse what was sent to another name: a page of the web can have its name lead here (DNS rebinding)."""
        port = self.server.server_port
        if self.headers.get_all("Host") in ([f"{ADDRESS}:{port}"], [f"localhost:{port}"]):
            return True
        self.send_error(421)
        return False

    def _start_reply(self) -> bool:
        """Send what comes before the file, if the file is what is asked for."""
        if not self._is_for_this_machine():
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
