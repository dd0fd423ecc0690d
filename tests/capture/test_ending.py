"""After Ctrl-C: servers that answer get the time to send what they recorded, those that are stuck get two seconds."""

from __future__ import annotations

import signal
import socket
import threading
import time
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from capture.conftest import Capture, ended
from capture.double import response, serving
from capture.handmade import frame, listening

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address
from tfperf.capture.client import ProfilerClient
from tfperf.capture.remote import on_each, on_each_within


@pytest.mark.timing
@pytest.mark.parametrize("options", [(), ("--continuous",)])
def test_ctrl_c_waits_for_none_of_several_servers_that_are_stuck(capture: Capture, options: tuple[str, ...]) -> None:
    """They greet, take the request, and answer neither that nor the end of the session."""
    asked, most_s = threading.Semaphore(0), 8.0

    def handle(connection: socket.socket) -> None:
        connection.sendall(frame(4, 0, 0, b""))
        received = b""
        while data := connection.recv(1 << 16):
            received += data
            if b"plugins" in received:  # The request names the folder.
                received = b""
                asked.release()

    with ExitStack() as stack:
        ports = [stack.enter_context(listening(handle)) for _ in range(6)]
        workers = [word for port in ports for word in ("--worker", f"127.0.0.1:{port}")]
        process = capture.start(*workers, *options)
        for _ in ports:
            assert asked.acquire(timeout=60)
        begin_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        done = ended(process)
        elapsed_s = time.monotonic() - begin_s
    assert (done.code, done.out) == (130, "")
    assert elapsed_s < most_s, "one such server took 10 to 30 s"
    assert "interrupted" in done.err.splitlines()[-1]


def test_a_server_that_answers_may_take_longer_to_send(capture: Capture) -> None:
    """It answers Terminate at once, and sends the trace after more than two seconds."""
    asked, is_over = threading.Event(), threading.Event()

    def profile(request: Any, context: grpc.ServicerContext) -> bytes:
        asked.set()
        is_over.wait(60)
        time.sleep(3)
        return response(empty=True)

    def terminate(request: Any, context: grpc.ServicerContext) -> bytes:
        is_over.set()
        return b""

    with serving({"Profile": profile, "Terminate": terminate}) as port:
        process = capture.start("--port", port, "--duration", "60s", "--format", "json")
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        done = ended(process)
    assert (done.code, done.json["summary"]["reason"]) == (1, "idle"), "the reply came, and it is empty"


def test_on_each_returns_what_was_done_and_the_errors_and_leaves_the_rest_at_the_stop() -> None:
    clients = [ProfilerClient(Address("localhost", port)) for port in (1, 2, 3)]
    stop, release = threading.Event(), threading.Event()

    def work(client: ProfilerClient) -> None:
        if client is clients[0]:
            raise CaptureError("busy", "busy")
        if client is clients[1]:
            stop.set()
            release.wait(60)

    done, errors = on_each(clients, work, stop)
    release.set()
    assert clients[1] not in done
    assert errors[clients[1]].reason == "interrupted"
    assert set(done) | set(errors) == set(clients)
    done, errors = on_each(clients[:1], work, threading.Event())
    assert (done, errors[clients[0]].reason) == ([], "busy")
    done, errors = on_each(clients[2:], work, threading.Event())
    assert (done, errors) == (clients[2:], {})
    on_each_within(60, clients[:1], work)
