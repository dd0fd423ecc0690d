"""What capturing costs the client: from its start to the request, and time and memory for a large trace.

    python benchmarks/capture.py [--megabytes 100]

A server in another process sends a trace that is made here. The bar: the request arrives within 0.5 s of the start of
the client. Time and memory are reported beside those of a bare gRPC call, which receives and checks nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import grpc

from tfperf.formats.wire.schema import PROFILER, SERVICE
from tfperf.formats.wire.schema import message_class as xspace_class

REQUEST_SECONDS = 0.5

# The peak of this process alone: `ru_maxrss` begins with the peak of the process that started it.
_PEAK = """
from pathlib import Path
print(next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").open() if line.startswith("VmHWM")))
"""
_CLIENT = """
import sys
from tfperf.capture.address import parse_address
from tfperf.capture.remote import CaptureRequest, profile_workers
request = CaptureRequest(workers=[parse_address(f"127.0.0.1:{sys.argv[1]}")], duration_s=0.001)
_, (captured,) = profile_workers(request, sys.argv[2])
assert captured.path and not captured.reason, captured
"""
_BARE = """
import sys, time
from pathlib import Path
import grpc
import ptars, pyarrow  # What tfperf needs to check a trace; here, so that the two can be compared.
channel = grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}", [("grpc.max_receive_message_length", -1)])
begin = time.monotonic()
channel.unary_unary("/tensorflow.ProfilerService/Profile")(b"")
print(time.monotonic() - begin)
"""
_RECEIVE = """
import sys, time
from pathlib import Path
from tfperf.capture.address import parse_address
from tfperf.capture.client import ProfilerClient, profile_request
from tfperf.capture.outcomes import TracerOptions
request = profile_request(TracerOptions(), 1, Path("logs/session/host.xplane.pb"))
with ProfilerClient(parse_address(f"127.0.0.1:{sys.argv[1]}")) as client:
    begin = time.monotonic()
    client.profile(request, 60.0).result()
    print(time.monotonic() - begin)
"""


def make_reply(size_bytes: int) -> bytes:
    """Return a ProfileResponse with a trace of about that size."""
    space = xspace_class("XSpace")()
    plane = space.planes.add(name=b"/host:CPU")
    for number in range(1, 100):
        plane.event_metadata.add(key=number).value.name = b"scope/op:MatMul"
    line = plane.lines.add(name=b"thread", id=1)
    for number in range(1000):
        event = line.events.add(metadata_id=1 + number % 99, offset_ps=number * 1000, duration_ps=500)
        event.stats.add(metadata_id=1, int64_value=number)
    thread = line.SerializeToString()
    for _ in range(size_bytes // len(thread)):
        plane.lines.add().MergeFromString(thread)
    reply = PROFILER.message_class("ProfileResponse")(xspace=space.SerializeToString())
    return bytes(reply.SerializeToString())


def serve(reply_bytes: int, port: Any, arrivals: Any) -> None:
    """Answer every Profile call with the same trace; note when each arrives."""
    reply = make_reply(reply_bytes)

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            def respond(request: bytes, context: Any) -> bytes:
                arrivals.put(time.time())
                return reply

            return grpc.unary_unary_rpc_method_handler(respond) if details.method == f"/{SERVICE}/Profile" else None

    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((Handler(),))
    port.put((server.add_insecure_port("127.0.0.1:0"), len(reply)))
    server.start()
    server.wait_for_termination()


def with_server(reply_bytes: int, use: Callable[[int, int, Any], Any]) -> Any:
    """Call `use(port, length of the reply, queue of arrival times)` while a server runs."""
    context = multiprocessing.get_context("spawn")
    port, arrivals = context.Queue(), context.Queue()
    process = context.Process(target=serve, args=(reply_bytes, port, arrivals), daemon=True)
    process.start()
    try:
        number, length = port.get(timeout=120)
        return use(number, length, arrivals)
    finally:
        process.kill()
        process.join()


def printed(script: str, port: int) -> list[float]:
    """Return the numbers that a client prints."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", script, str(port), folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def peak_bytes(port: int, length: int, arrivals: Any) -> tuple[int, int, int]:
    """Return the peak memory of tfperf and of a bare call, both fetching the trace, and the length of the reply."""
    ours, bare = (int(printed(script + _PEAK, port)[-1]) for script in (_CLIENT, _BARE))
    return ours, bare, length


def receive_seconds(port: int, length: int, arrivals: Any) -> tuple[float, float]:
    """Return how long tfperf and a bare call take to receive the trace: the medians of five."""
    ours, bare = (median(printed(script, port)[0] for _ in range(5)) for script in (_RECEIVE, _BARE))
    return ours, bare


def request_seconds(port: int, length: int, arrivals: Any) -> float:
    """Return the median time from starting `tfperf capture` to the arrival of its request."""
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(5):
            command = [sys.executable, "-m", "tfperf", "capture", "--port", str(port), "--duration", "1ms"]
            begin = time.time()
            subprocess.run(
                command, cwd=folder, capture_output=True, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
            )
            seconds.append(arrivals.get(timeout=10) - begin)
    return median(seconds)


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=100)
    size = parser.parse_args().megabytes * 1_000_000
    seconds = with_server(1000, request_seconds)
    small, small_bare, _ = with_server(1000, peak_bytes)
    large, large_bare, length = with_server(size, peak_bytes)
    receive, receive_bare = with_server(size, receive_seconds)
    figures = {
        "request_seconds": round(seconds, 3),
        "reply_bytes": length,
        "receive_seconds": round(receive, 2),
        "receive_seconds_of_bare_grpc": round(receive_bare, 2),
        "peak_bytes": large,
        "peak_bytes_of_bare_grpc": large_bare,
        "copies": round((large - small) / length, 2),
        "copies_of_bare_grpc": round((large_bare - small_bare) / length, 2),
    }
    print(json.dumps(figures, indent=2))
    holds = seconds < REQUEST_SECONDS
    print("the bar holds" if holds else f"MISSED: at most {REQUEST_SECONDS} s to the request")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
