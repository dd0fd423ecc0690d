"""All workers as OpenMetrics text, which Prometheus and others read, and the server of that text.

What is unknown is absent, and so are the figures of a worker whose last sample failed: the last ones would look like
new ones. Labels are addresses and codes of ours; no name of a trace is in them.
"""

from __future__ import annotations

import contextlib
import errno
import http.server
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tfperf.base.errors import CaptureError
from tfperf.live.board import WorkerView
from tfperf.live.sample import Measured, Sample
from tfperf.report.render.values import encodable, plain

_HOST = "127.0.0.1"
_OUR_NAMES = ("127.0.0.1", "localhost")
_PATIENCE_S = 10.0
"""How long a client may take to send its request."""


@contextlib.contextmanager
def metrics_served(port: int, text: Callable[[], str]) -> Iterator[int]:
    """Serve `/metrics` on loopback until the end of the block; gives the port. Raises CaptureError `port_taken`."""
    handler = type("Handler", (_Metrics,), {"text": staticmethod(text)})
    try:
        server = _Server((_HOST, port), handler)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "another program has it" if error.errno == errno.EADDRINUSE else "it needs more rights"
        raise CaptureError(
            "port_taken", f"cannot listen on port {port}: {why}; choose another --metrics-port"
        ) from None
    with server:
        threading.Thread(target=server.serve_forever, args=(0.1,), name="tfperf-metrics", daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that left: a traceback would stand in the middle of the screen."""


class _Metrics(http.server.BaseHTTPRequestHandler):
    timeout = _PATIENCE_S
    text: Callable[[], str]

    def do_GET(self) -> None:
        """Answer a request."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in _OUR_NAMES:  # A web page whose name was turned to this machine.
            self.send_error(403, "ask 127.0.0.1 or localhost")
        elif self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "the metrics are at /metrics")
        else:
            body = self.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write no line for each request."""


CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_Labels = Mapping[str, str]
_Value = tuple[_Labels, float | None]


class Family(Struct, frozen=True):
    """One metric: its name, the unit that ends the name, its type, what it means, and its values for a worker."""

    name: str
    unit: str
    type: str
    help: str
    values: Callable[[WorkerView], Sequence[_Value]]


def metrics_text(workers: Sequence[WorkerView]) -> str:
    """Return all metrics of all workers."""
    return "".join(line for family in FAMILIES for line in _lines(family, workers)) + "# EOF\n"


def _lines(family: Family, workers: Sequence[WorkerView]) -> Iterator[str]:
    yield f"# TYPE {family.name} {family.type}\n"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}\n"
    yield f"# HELP {family.name} {family.help}\n"
    suffix = "_total" if family.type == "counter" else ""
    for worker in workers:
        for labels, value in family.values(worker):
            if plain(value) is None:
                continue
            pairs = {"worker": str(worker.address), **labels}
            text = ",".join(f'{key}="{_escaped(each)}"' for key, each in pairs.items())
            yield f"{family.name}{suffix}{{{text}}} {value}\n"


def _escaped(text: str) -> str:
    return encodable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _of_sample(get: Callable[[Sample], float | None]) -> Callable[[WorkerView], Sequence[_Value]]:
    return lambda worker: [({}, None if worker.last is None else get(worker.last))]


def _of_trace(get: Callable[[Measured], float | None]) -> Callable[[WorkerView], Sequence[_Value]]:
    return lambda worker: [({}, get(measured)) for measured in _measured(worker)]


def _measured(worker: WorkerView) -> list[Measured]:
    """Return the figures of the last sample, in a list that is empty if there are none."""
    return [] if worker.shown is None or worker.shown.measured is None else [worker.shown.measured]


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000.0


def _categories(worker: WorkerView) -> Sequence[_Value]:
    return [
        ({"category": each.key}, _ratio(each.percent)) for measured in _measured(worker) for each in measured.categories
    ]


def _costs(worker: WorkerView) -> Sequence[_Value]:
    costs = [measured.input_cost_percent for measured in _measured(worker)]
    bounds = ("low", "high")
    return [({"bound": bounds[place]}, _ratio(cost[place])) for cost in costs if cost is not None for place in (0, 1)]


def _causes(worker: WorkerView) -> Sequence[_Value]:
    return [
        ({"cause": each.code}, _ratio(each.gain_percent)) for measured in _measured(worker) for each in measured.causes
    ]


FAMILIES = (
    Family(
        "tfperf_worker_up",
        "",
        "gauge",
        "Whether the last sample of the worker could be analyzed: 1, or 0.",
        lambda worker: [({}, None if worker.last is None else float(worker.last.measured is not None))],
    ),
    Family(
        "tfperf_samples", "", "counter", "Samples that could be analyzed.", lambda worker: [({}, float(worker.samples))]
    ),
    Family(
        "tfperf_sample_failures",
        "",
        "counter",
        "Requests to which no usable trace came; an idle job is none.",
        lambda worker: [({}, float(worker.failures))],
    ),
    Family(
        "tfperf_sample_timestamp_seconds",
        "seconds",
        "gauge",
        "When the last sample was asked for, in seconds since 1970.",
        _of_sample(lambda sample: sample.time_s),
    ),
    Family(
        "tfperf_profiled_ratio",
        "ratio",
        "gauge",
        "Share of the time in which the worker was recording.",
        _of_sample(lambda sample: _ratio(sample.profiled_percent)),
    ),
    Family(
        "tfperf_slowdown_ratio",
        "ratio",
        "gauge",
        "By how much profiling makes steps longer.",
        _of_sample(lambda sample: _ratio(sample.slowdown_percent)),
    ),
    Family(
        "tfperf_step_time_seconds",
        "seconds",
        "gauge",
        "Average step time.",
        _of_trace(lambda measured: _seconds(measured.step_ms)),
    ),
    Family("tfperf_steps_per_second", "", "gauge", "Steps per second.", _of_trace(lambda each: each.steps_per_second)),
    Family(
        "tfperf_examples_per_second",
        "",
        "gauge",
        "Examples per second.",
        _of_trace(lambda measured: measured.examples_per_second),
    ),
    Family("tfperf_category_ratio", "ratio", "gauge", "Share of the step by category.", _categories),
    Family(
        "tfperf_input_ratio",
        "ratio",
        "gauge",
        "Share of the step that waits for data and copies it.",
        _of_trace(lambda measured: _ratio(measured.input_percent)),
    ),
    Family("tfperf_input_cost_ratio", "ratio", "gauge", "What input costs of the step, at least and at most.", _costs),
    Family(
        "tfperf_device_busy_ratio",
        "ratio",
        "gauge",
        "Share of the steps in which devices work, on average over devices.",
        _of_trace(lambda measured: _ratio(measured.device_busy_percent)),
    ),
    Family(
        "tfperf_memory_used_ratio",
        "ratio",
        "gauge",
        "How full the fullest allocator became in the sample.",
        _of_trace(lambda measured: _ratio(measured.memory.used_percent if measured.memory else None)),
    ),
    Family(
        "tfperf_cause_gain_ratio",
        "ratio",
        "gauge",
        "Share of the step that fixing a cause of the diagnosis likely brings.",
        _causes,
    ),
)
"""Every metric, in the order of the text."""
