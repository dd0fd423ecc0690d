"""Profiler servers of this machine are found among all that listens, with the process that each is in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from capture.conftest import Job
from click.testing import Result

from tfperf.capture import remote as servers_here
from tfperf.capture.address import Address
from tfperf.capture.machine import Listener, Machine
from tfperf.capture.remote import ServerHere, find_servers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")

Run = Callable[..., Result]


@pytest.mark.tensorflow
def test_finds_the_servers_of_jobs_and_their_processes(jobs: dict[str, Job]) -> None:
    found = {server.address.port: server for server in find_servers()}
    for job in jobs.values():
        server = found[job.port]
        assert server.listener.process == job.process.pid
        assert str(server) == f"--port {job.port} ({server.listener.command} (pid {job.process.pid}))"


_OTHER_PROGRAM = """
import socket
with socket.socket() as plain:
    plain.bind(("127.0.0.1", 0))
    plain.listen()
    print(plain.getsockname()[1], flush=True)
    input()
    plain.settimeout(0.01)
    try:
        asked, _ = plain.accept()
        asked.close()
        print("asked")
    except TimeoutError:
        print("left alone")
"""


def test_asks_no_port_of_other_programs() -> None:
    # A process of its own: this one has TensorFlow if an earlier test needed it.
    command = [sys.executable, "-c", _OTHER_PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        port = int(program.stdout.readline())
        assert (port, program.pid) in {(port, each.process) for port, each in Machine().listeners()}
        assert port not in {server.address.port for server in find_servers()}
        assert program.communicate("\n")[0] == "left alone\n"


def test_without_a_profiler_library_there_is_no_server(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    machine = Machine(root=tmp_path)
    for line, expected in [
        ("7f-7f r-xp 0 0 0 /usr/lib/libc.so.6", False),
        ("7f-7f r-xp 0 0 0 /site/tensorflow/libtensorflow_cc.so.2", True),
        ("7f-7f r-xp 0 0 0 /site/tensorflow/python/_pywrap_tensorflow_internal.so", True),
        ("7f-7f r-xp 0 0 0 /site/jaxlib/xla_extension.so", True),
    ]:
        (tmp_path / "proc/7/maps").write_text(line)
        assert machine.has_profiler(7) is expected, line
    assert not machine.has_profiler(8)


def server(port: int) -> ServerHere:
    return ServerHere(Address("localhost", port), Listener(12, "python train.py"))


@pytest.mark.parametrize(
    ("ports", "code", "words"),
    [
        ((), 1, "found no profiler server of yours on this machine; start one in the job: tfperf.serve()"),
        ((1, 2), 2, "select one with --port 1 (python train.py (pid 12)), or --port 2 (python train.py (pid 12))"),
        ((1,), 1, "found python train.py (pid 12) on port 1\nError: no server listens on localhost:1"),
    ],
)
def test_capture_takes_the_only_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_tfperf: Run, ports: tuple[int, ...], code: int, words: str
) -> None:
    monkeypatch.setattr(servers_here, "find_servers", lambda: [server(port) for port in ports])
    done = run_tfperf("capture", "--logdir", tmp_path)
    assert (done.exit_code, done.stdout) == (code, "")
    assert words in done.stderr
