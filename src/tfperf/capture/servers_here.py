"""Profiler servers of this machine: ports of TensorFlow and JAX programs, of which those are kept that answer as one.

Other programs are not asked: what they make of a strange greeting is unknown.
"""

from __future__ import annotations

import contextlib
import threading

from msgspec import Struct

from tfperf.capture.address import Address
from tfperf.capture.client import ProfilerClient
from tfperf.capture.ending import on_each
from tfperf.capture.machine import Listener, Machine

_CONNECT_SECONDS = 2.0
_NO_SESSION = "tfperf-looks-around"
"""A session that no server has: to end it does nothing, and only a profiler server has the call."""


class ServerHere(Struct, frozen=True):
    """A profiler server of this machine, and the process that it is in."""

    address: Address
    listener: Listener

    def __str__(self) -> str:
        """Return the option that chooses it, and its process."""
        return f"--port {self.address.port} ({self.listener})"


def find_servers(machine: Machine | None = None) -> list[ServerHere]:
    """Return the profiler servers of this machine by port: those of processes that this user may look into."""
    machine = machine or Machine()
    places = {port: listener for port, listener in machine.listeners() if machine.has_profiler(listener.process)}
    with contextlib.ExitStack() as stack:
        clients = {stack.enter_context(ProfilerClient(Address("localhost", port))): port for port in sorted(places)}
        answering, _ = on_each(list(clients), _ask, threading.Event()) if clients else ([], {})
        ports = sorted(clients[client] for client in answering)
    return [ServerHere(Address("localhost", port), places[port]) for port in ports]


def _ask(client: ProfilerClient) -> None:
    client.connect(_CONNECT_SECONDS)
    client.terminate(_NO_SESSION).result()
