"""A TensorFlow job with tfperf's profiler server, and a plain gRPC client that asks it.

The job executes the lines that the tests send it, and prints what they evaluate to.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import grpc
import pytest
from job_environment import job_environment

from tfperf.formats.wire.contents import Contents, look_into
from tfperf.formats.wire.schema import PROFILER, SERVICE, read_message

_JOB = """
import json, os, sys, threading, time
import tensorflow as tf
from tensorflow.python.profiler import trace
from tfperf.capture import local
from tfperf.capture.server import serve
from tfperf.base.errors import CaptureError

def compute():
    tf.reduce_sum(tf.random.normal((20, 20)) @ tf.ones((20, 20))).numpy()

compute()  # The first time, it imports something.
server = serve(0)
works = threading.Event()

number = 0

def train():
    global number
    while works.wait():
        with local.step(number):
            compute()
            time.sleep(0.008)
        number += 1

threading.Thread(target=train, daemon=True).start()

def reason(call, *arguments, **options):
    try:
        return str(call(*arguments, **options))
    except CaptureError as error:
        return [error.reason, str(error)]

def profiles(server):
    return server._methods._current is not None

def fork():
    child = os.fork()
    if not child:
        sys.exit(0)
    return os.waitpid(child, 0)[1]

def listening(port):
    rows = [line.split() for name in ("tcp", "tcp6") for line in open("/proc/net/" + name).readlines()[1:]]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port]

print(json.dumps(server.port), flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


class ServingJob:
    def __init__(self, errors: IO[str]) -> None:
        command = [sys.executable, "-c", _JOB]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            bufsize=1,
            env=job_environment(keras=False),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self.port = self._answer()
        # As large as a trace can be: a client of 4 MB, gRPC's default, would refuse most.
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}", [("grpc.max_receive_message_length", -1)])

    def do(self, line: str) -> Any:
        self._stdin.write(line + "\n")
        return self._answer()

    def _answer(self) -> Any:
        return json.loads(self._stdout.readline())

    def work(self, on: bool = True) -> None:
        self.do("works.set()" if on else "works.clear()")

    def call(self, method: str, request: bytes) -> Any:
        return start_call(self.channel, method, request)

    def profile(self, seconds: float = 0.3, **options: Any) -> Any:
        return self.call("Profile", request(seconds, **options))

    def start_profiling(self, seconds: float, **options: Any) -> Any:
        """Start to profile, and wait until steps are recorded; the job must be at work."""
        call = self.profile(seconds, **options)
        self.wait_until_recorded()
        return call

    def wait_until_recorded(self) -> None:
        """Wait until TensorFlow records, and a step that began after that has ended."""
        self.wait_until("trace.enabled()")
        self.wait_for_steps(2)

    def wait_until(self, condition: str) -> None:
        until = time.monotonic() + 20
        while not self.do(condition):
            assert time.monotonic() < until
            time.sleep(0.01)

    def wait_for_steps(self, count: int) -> None:
        self.wait_until(f"number >= {self.do('number') + count}")

    def terminate(self, session_id: str) -> None:
        self.call(
            "Terminate", PROFILER.message_class("TerminateRequest")(session_id=session_id).SerializeToString()
        ).result()

    def end(self) -> int:
        self._stdin.close()
        return self.process.wait(30)

    def close(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait(30)
        self._stdin.close()
        self._stdout.close()


def start_call(channel: Any, method: str, request: bytes) -> Any:
    return channel.unary_unary(f"/{SERVICE}/{method}").future(request, timeout=30)


def request(seconds: float, *, emit_xspace: bool = True, session_id: str = "test", **levels: int) -> bytes:
    options = {"version": 1, "host_tracer_level": 2, "device_tracer_level": 1, "duration_ms": round(seconds * 1000)}
    made = PROFILER.message_class("ProfileRequest")(
        opts=PROFILER.message_class("ProfileOptions")(**options | levels),
        emit_xspace=emit_xspace,
        session_id=session_id,
    )
    return bytes(made.SerializeToString())


def contents(reply: bytes, tmp_path: Path) -> Contents:
    path = tmp_path / f"{time.monotonic_ns()}.xplane.pb"
    path.write_bytes(read_message("ProfileResponse", reply).xspace)
    return look_into(path)


def refusal(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call.result()
    return caught.value.code().name, caught.value.details() or ""
