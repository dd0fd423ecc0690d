"""Connections that say nothing take few file descriptors of the job that serves, and not for long."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import ExitStack

import pytest

from tfperf.capture import server


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_idle_connections_are_few_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "require_tensorflow", lambda: None)
    count = 120
    with ExitStack() as stack:
        running = stack.enter_context(server.serve(0))
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        idle = [stack.enter_context(socket.create_connection((running.host, running.port), 60)) for _ in range(count)]
        taken = len(os.listdir("/proc/self/fd")) - before - count  # noqa: PTH208
        assert taken <= server._MAX_CONNECTIONS + 8, "a few of gRPC itself"
        for connection in idle:
            connection.settimeout(120)
            try:
                while connection.recv(1024):  # what gRPC says first
                    pass
            except ConnectionResetError:
                pass
