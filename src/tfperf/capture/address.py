"""Addresses of profiler servers, as people write them."""

from __future__ import annotations

import re
from urllib.parse import quote

from msgspec import Struct

from tfperf.base.errors import CaptureError

_HOST_PORT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:/@\s]+)):(?P<port>\d{1,5})")
_LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1|0:0:0:0:0:0:0:1")


class Address(Struct, frozen=True):
    """Where to connect: `host` and `port`, or the `path` of a unix socket."""

    host: str
    port: int
    path: str = ""
    task: str = ""
    """What the cluster calls it, if that is known: `worker-0`."""

    def __str__(self) -> str:
        """Return the address as people write it."""
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target(self) -> str:
        """Return the address as a URI, as gRPC takes it."""
        return f"unix:{quote(self.path)}" if self.path else str(self)

    @property
    def label(self) -> str:
        """Return a name for the trace file: `<host>_<port>`, or `<host>_<task>`."""
        if self.task:
            return f"{self.host}_{self.task}"
        return f"unix_{self.path.strip('/').replace('/', '_')}" if self.path else f"{self.host}_{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether this is certainly the machine that the client runs on."""
        return bool(self.path or _LOOPBACK.fullmatch(self.host))


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT`, `[IPV6]:PORT`, `unix:/PATH` (each with or without `grpc://`); raises CaptureError."""
    rest = text.strip().removeprefix("grpc://").rstrip("/")
    if rest.startswith("unix:"):
        path = re.sub("^/{2,}", "/", rest.removeprefix("unix:"))
        if not path:
            raise CaptureError("bad_address", f"{text!r} names no socket; write unix:/PATH")
        return Address("", 0, path)
    parts = _HOST_PORT.fullmatch(rest)
    if not parts:
        hint = "write HOST:PORT, [IPV6]:PORT, grpc://HOST:PORT or unix:/PATH"
        raise CaptureError("bad_address", f"{text!r} is not the address of a profiler server; {hint}")
    port = int(parts["port"])
    if not 0 < port < 1 << 16:
        raise CaptureError("bad_address", f"{text!r} has port {port}; a port is a number from 1 to 65535")
    return Address(parts["six"] or parts["host"], port)
