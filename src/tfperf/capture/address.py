"""Where a profiler server listens, as people write it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tfperf.errors import CaptureError

_FORMS = "write HOST:PORT, [IPV6]:PORT, grpc://HOST:PORT or unix:/PATH"
_HOST_PORT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:/@\s]+)):(?P<port>\d{1,5})")
_LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1|0:0:0:0:0:0:0:1")


@dataclass(frozen=True, slots=True)
class Address:
    """A place to connect to: `host` and `port`, or the `path` of a unix socket."""

    host: str
    port: int
    path: str = ""

    @property
    def target(self) -> str:
        """Return the name that gRPC's servers take."""
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def authority(self) -> str:
        """Return the name by which a request calls the server: no path, and no interface of this machine."""
        return "localhost" if self.path else Address(self.host.partition("%")[0], self.port).target

    @property
    def label(self) -> str:
        """Return a name for the trace file: `<host>_<port>`."""
        return f"unix_{self.path.strip('/').replace('/', '_')}" if self.path else f"{self.host}_{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether this is surely the machine that the client runs on."""
        return bool(self.path or _LOOPBACK.fullmatch(self.host))

    def __str__(self) -> str:
        """Return the address as people write it."""
        return self.target


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT`, `[IPV6]:PORT`, `unix:/PATH` (each with or without `grpc://`); raises CaptureError."""
    rest = text.strip().removeprefix("grpc://").rstrip("/")
    if rest.startswith("unix:"):
        path = re.sub("^/{2,}", "/", rest.removeprefix("unix:"))
        if not path:
            raise CaptureError("bad_address", f"{text!r} names no socket; write unix:/PATH")
        return Address("", 0, path)
    found = _HOST_PORT.fullmatch(rest)
    if not found:
        raise CaptureError("bad_address", f"{text!r} is no address of a profiler server; {_FORMS}")
    port = int(found["port"])
    if not 0 < port < 1 << 16:
        raise CaptureError("bad_address", f"{text!r} has port {port}; ports go from 1 to 65535")
    return Address(found["six"] or found["host"], port)
