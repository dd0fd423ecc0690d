"""Addresses of profiler servers: from a user's text, a list, a file, or the cluster of TF_CONFIG."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from tfperf.base.errors import CaptureError
from tfperf.base.units import listed

_HOST_PORT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:/@\s]+)):(?P<port>\d{1,5})")
_LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1|0:0:0:0:0:0:0:1")


class Address(Struct, frozen=True):
    """The address of a server: `host` and `port`, or the `path` of a unix socket."""

    host: str
    port: int
    path: str = ""
    task: str = ""
    """The task in its cluster, if known: `worker-0`."""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target(self) -> str:
        """Return the address as a URI for gRPC."""
        return f"unix:{quote(self.path)}" if self.path else str(self)

    @property
    def label(self) -> str:
        """Return a name for the trace file: `<host>_<port>`, or `<host>_<task>`."""
        if self.task:
            return f"{self.host}_{self.task}"
        return f"unix_{self.path.strip('/').replace('/', '_')}" if self.path else f"{self.host}_{self.port}"

    @property
    def is_here(self) -> bool:
        """Return whether this is certainly the client's own machine."""
        return bool(self.path or _LOOPBACK.fullmatch(self.host))


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT`, `[IPV6]:PORT`, `unix:/PATH` (each with or without `grpc://`); raises CaptureError."""
    rest = text.strip().removeprefix("grpc://").rstrip("/")
    if rest.startswith("unix:"):
        path = re.sub("^/{2,}", "/", rest.removeprefix("unix:"))
        if not path:
            raise CaptureError("bad_address", f"{text!r} has no socket path; use unix:/PATH")
        return Address("", 0, path)
    parts = _HOST_PORT.fullmatch(rest)
    if not parts:
        hint = "use HOST:PORT, [IPV6]:PORT, grpc://HOST:PORT or unix:/PATH"
        raise CaptureError("bad_address", f"{text!r} is not the address of a profiler server; {hint}")
    port = int(parts["port"])
    if not 0 < port < 1 << 16:
        raise CaptureError("bad_address", f"{text!r} has port {port}; use a port from 1 to 65535")
    return Address(parts["six"] or parts["host"], port)


MOST_WORKERS = 256
_LONGEST_FILE = 1 << 20
_EXAMPLE = 'it looks like {"cluster": {"worker": ["host1:2222", "host2:2222"]}}'


class Ports:
    """Default ports of the tasks of a machine: the first task uses this port, the second the next one."""

    def __init__(self, first: int | None) -> None:
        self._first = first
        self._counts: Counter[str] = Counter()

    def address(self, text: str) -> Address:
        """Return the address of HOST:PORT, or of HOST if there is a first port; raises CaptureError."""
        host = text.strip()
        has_port = host.startswith(("unix:", "grpc:")) or ":" in host.rpartition("]")[2]
        if self._first is None or has_port:
            return parse_address(text)
        number = self._counts[host.lower()]
        self._counts[host.lower()] += 1
        return parse_address(f"{host}:{self._first + number}")


def workers_in(text: str, port: int | None = None) -> list[Address]:
    """Return the addresses of a comma-separated list; raises CaptureError `bad_address`."""
    ports = Ports(port)
    addresses = [ports.address(part) for part in text.split(",") if part.strip()]
    if not addresses:
        raise CaptureError("bad_address", f"{text!r} has no workers; use HOST:PORT,HOST:PORT")
    return addresses


def workers_of_file(path: Path, port: int | None = None) -> list[Address]:
    """Return the addresses of a file, one per line with # comments; raises CaptureError `bad_address` with the line."""
    ports, addresses = Ports(port), list[Address]()
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not (entry := line.partition("#")[0].strip()):
            continue
        try:
            addresses.append(ports.address(entry))
        except CaptureError as error:
            raise CaptureError(error.reason, f"{path}, line {number}: {error}") from error
    if not addresses:
        raise CaptureError("bad_address", f"{path} has no workers; write one HOST:PORT per line")
    return addresses


def workers_of_cluster(
    path: Path | None, port: int | None = None, environment: Mapping[str, str] = os.environ
) -> list[Address]:
    """Return an address for each task of the cluster in a file, or in TF_CONFIG; tasks name the traces.

    TensorFlow's servers answer profilers at the cluster's addresses. With a `port`, only the machine names are used:
    the first task of each listens at this port, the second at the next. Raises CaptureError `bad_address`.
    """
    if path is None and not environment.get("TF_CONFIG"):
        raise CaptureError("bad_address", "TF_CONFIG is not set; pass a file with the cluster")
    text, origin = (environment["TF_CONFIG"], "TF_CONFIG") if path is None else (_text(path), str(path))
    ports, addresses = Ports(port), list[Address]()
    for job, tasks in _cluster(text, origin).items():
        entries = tasks.items() if isinstance(tasks, dict) else enumerate(tasks) if isinstance(tasks, list) else ()
        for index, place in entries:
            task = f"{job}-{index}"
            try:
                address = parse_address(str(place))
                if port is not None:
                    address = ports.address(f"[{address.host}]" if ":" in address.host else address.host)
            except CaptureError as error:
                raise CaptureError(error.reason, f"{origin}, task {task}: {error}") from error
            addresses.append(Address(address.host, address.port, address.path, task))
    if not addresses:
        raise CaptureError("bad_address", f"{origin} has no tasks; {_EXAMPLE}")
    return addresses


def check_workers(addresses: Sequence[Address]) -> None:
    """Raise CaptureError `bad_address` for too many workers, or for a repeated one."""
    if len(addresses) > MOST_WORKERS:
        problem = f"got {len(addresses)} workers, but at most {MOST_WORKERS} can be profiled at once"
        raise CaptureError("bad_address", f"{problem}; pass a sample of them")
    counts = Counter((address.host.lower(), address.port, address.path) for address in addresses)
    twice = [str(each) for each in addresses if counts[each.host.lower(), each.port, each.path] > 1]
    if twice:
        names = listed(list(dict.fromkeys(twice)), 3)
        raise CaptureError("bad_address", f"workers are listed twice; list each worker once: {names}")


def _cluster(text: str, origin: str) -> dict[str, object]:
    import json

    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CaptureError("bad_address", f"{origin} is not JSON ({error}); {_EXAMPLE}") from error
    cluster = config.get("cluster", config) if isinstance(config, dict) else None
    if not isinstance(cluster, dict):
        raise CaptureError("bad_address", f"{origin} has no cluster; {_EXAMPLE}")
    return cluster


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST_FILE + 1)
        if len(data) > _LONGEST_FILE:
            raise CaptureError("bad_address", f"{path} is too large; pass a list of workers")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        words = getattr(error, "strerror", None) or "not a text file"
        raise CaptureError("bad_address", f"cannot read {path}: {words}; pass a file with the workers") from error
