"""Jobs that are none: servers that answer with traces made in code, and count who asks them at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import grpc
from builders import Event, event, host, line, plane, space
from capture.double import response, serving

from tfperf.capture.address import Address
from tfperf.live.board import TopRequest
from tfperf.live.watcher import Analyst

Give = Callable[[int], bytes]
"""Takes the number of the request, from 0, and returns the reply."""


def marked_steps(*durations_us: float, first: int = 0, name: str = "train") -> list[Event]:
    starts = accumulate(durations_us, initial=0)
    return [
        event(name, start, duration, step_num=first + place, _r=1)
        for place, (start, duration) in enumerate(zip(starts, durations_us, strict=False))
    ]


def steps_trace(
    step_us: float = 1000, count: int = 12, *, first: int = 0, name: str = "train", start_ns: int = 0
) -> bytes:
    """Return a trace with steps that the program numbers; `start_ns` is when it begins, in nanoseconds since 1970."""
    ops = [event("layer/MatMul:MatMul", step_us * place + 1, step_us / 2) for place in range(count)]
    session = [plane("Task Environment", line(""), stats={"profile_start_time": start_ns})] if start_ns else []
    return space(host(*marked_steps(*[step_us] * count, first=first, name=name), *ops), *session)


class FakeJob:
    """What a server saw: how many requests there were, and how many at once at most."""

    def __init__(self, give: Give) -> None:
        self.give = give
        self.asked = self.most_at_once = self.ended = 0
        self.durations_ms: list[int] = []
        self.begun = threading.Event()
        """Set while a request is at the server."""
        self.port = 0
        self._at_once, self._lock = 0, threading.Lock()

    def profile(self, request: Any, context: grpc.ServicerContext) -> bytes:
        with self._lock:
            number, self.asked = self.asked, self.asked + 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self.durations_ms.append(request.duration_ms)
        self.begun.set()
        try:
            return self.give(number)
        finally:
            with self._lock:
                self._at_once -= 1

    def terminate(self, request: Any, context: grpc.ServicerContext) -> bytes:
        self.ended += 1
        return b""

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.port)


def gives(trace: bytes, *, after_s: float = 0.0) -> Give:
    """Return a server that always gives this trace, after a while."""

    def give(number: int) -> bytes:
        time.sleep(after_s)
        return response(trace)

    return give


@contextmanager
def fake_job(give: Give, port: int = 0) -> Iterator[FakeJob]:
    job = FakeJob(give)
    with serving({"Profile": job.profile, "Terminate": job.terminate}, f"127.0.0.1:{port}") as job.port:
        yield job


class AnalystHere(Analyst):
    """Analyzes samples in this process: a process of its own takes a second to start."""

    def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        return function(*arguments)


def request_to(*jobs: FakeJob | Address, **options: Any) -> TopRequest:
    workers = tuple(job.address if isinstance(job, FakeJob) else job for job in jobs)
    return TopRequest(workers=workers, **{"duration_s": 0.01, "interval_s": 0.05, **options})


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something is so; it may take long on a loaded machine."""
    until_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until_s, "it never came"
        time.sleep(0.02)
