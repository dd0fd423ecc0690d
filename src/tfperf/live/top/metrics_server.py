"""A web server on loopback that tells Prometheus and others what is known; there is none unless it is asked for."""

from __future__ import annotations

import contextlib
import errno
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tfperf.base.errors import CaptureError
from tfperf.live.top.openmetrics import CONTENT_TYPE

_HOST = "127.0.0.1"
_OUR_NAMES = ("127.0.0.1", "localhost")
_PATIENCE_S = 10.0
"""How long a client may take to send its request."""


@contextlib.contextmanager
def metrics_served(port: int, text: Callable[[], str]) -> Iterator[int]:
    """Serve `/metrics` on loopback until the end of the block; gives the port. Raises CaptureError `port_taken`."""
    handler = type("Handler", (_Metrics,), {"text": staticmethod(text)})
    try:
        server = _Server((_HOST, port), handler)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "another program has it" if error.errno == errno.EADDRINUSE else "it needs more rights"
        raise CaptureError(
            "port_taken", f"cannot listen on port {port}: {why}; choose another --metrics-port"
        ) from None
    with server:
        threading.Thread(target=server.serve_forever, args=(0.1,), name="tfperf-metrics", daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that left: a traceback would stand in the middle of the screen."""


class _Metrics(http.server.BaseHTTPRequestHandler):
    timeout = _PATIENCE_S
    text: Callable[[], str]

    def do_GET(self) -> None:
        """Answer a request."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in _OUR_NAMES:  # A web page whose name was turned to this machine.
            self.send_error(403, "ask 127.0.0.1 or localhost")
        elif self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "the metrics are at /metrics")
        else:
            body = self.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write no line for each request."""
