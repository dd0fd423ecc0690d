"""All workers as OpenMetrics text, for Prometheus and others, and the server of that text.

Unknown values are absent, and so are the figures of a worker whose last sample failed, because old values would look
new. Labels are addresses and tfperf's own codes, never names from a trace.
"""

from __future__ import annotations

import contextlib
import errno
import http.server
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfperf.base.errors import CaptureError
from tfperf.live.board import WorkerView
from tfperf.report.render.values import encodable, plain

_HOST = "127.0.0.1"
_OUR_NAMES = ("127.0.0.1", "localhost")
_PATIENCE_S = 10.0
"""Time limit for a client to send its request."""


@contextlib.contextmanager
def metrics_served(port: int, text: Callable[[], str]) -> Iterator[int]:
    """Serve `/metrics` on loopback until the end of the block; yield the port. Raises CaptureError `port_taken`."""
    handler = type("Handler", (_Metrics,), {"text": staticmethod(text)})
    try:
        server = _Server((_HOST, port), handler)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "another program uses it" if error.errno == errno.EADDRINUSE else "it requires more privileges"
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
        """Ignore disconnected clients: a traceback would damage the screen."""


class _Metrics(http.server.BaseHTTPRequestHandler):
    timeout = _PATIENCE_S
    text: Callable[[], str]

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in _OUR_NAMES:  # A web page with a domain that resolves to this machine (DNS rebinding).
            self.send_error(403, "use 127.0.0.1 or localhost")
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
        """Write no log lines."""


CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

FAMILIES: Mapping[str, str] = {
    "tfperf_worker_up": "Whether the last sample of the worker could be analyzed (1 or 0).",
    "tfperf_samples": "Samples that could be analyzed.",
    "tfperf_sample_failures": "Requests without a usable trace, not counting idle jobs.",
    "tfperf_sample_timestamp_seconds": "Time of the last sample request, in seconds since 1970.",
    "tfperf_profiled_ratio": "Share of time in which the worker was recording.",
    "tfperf_slowdown_ratio": "Increase of the step time by profiling.",
    "tfperf_step_time_seconds": "Average step time.",
    "tfperf_steps_per_second": "Steps per second.",
    "tfperf_examples_per_second": "Examples per second.",
    "tfperf_category_ratio": "Share of step time by category.",
    "tfperf_input_ratio": "Share of step time spent on waiting for input and copying it.",
    "tfperf_input_cost_ratio": "Cost of input as a share of step time, lower and upper bound.",
    "tfperf_device_busy_ratio": "Share of step time in which devices are busy, averaged over devices.",
    "tfperf_memory_used_ratio": "Peak use of the fullest allocator in the sample.",
    "tfperf_cause_gain_ratio": "Share of step time that fixing a cause of the diagnosis likely saves.",
}
COUNTERS = ("tfperf_samples", "tfperf_sample_failures")
_LABELS = {"tfperf_category_ratio": "category", "tfperf_input_cost_ratio": "bound", "tfperf_cause_gain_ratio": "cause"}


def metrics_text(workers: Sequence[WorkerView]) -> str:
    """Return all metrics of all workers."""
    figures = [(worker, _figures(worker)) for worker in workers]
    lines: list[str] = []
    for name, help in FAMILIES.items():
        is_counter = name in COUNTERS
        lines.append(f"# TYPE {name} {'counter' if is_counter else 'gauge'}")
        lines += [f"# UNIT {name} {unit}" for unit in ("seconds", "ratio") if name.endswith(f"_{unit}")]
        lines.append(f"# HELP {name} {help}")
        for worker, found in figures:
            labels = {"worker": str(worker.address)}
            for key, value in found.get(name, {}).items():
                if plain(value) is not None:
                    pairs = labels | {_LABELS[name]: key} if key else labels
                    text = ",".join(f'{label}="{_escaped(each)}"' for label, each in pairs.items())
                    lines.append(f"{name}{'_total' * is_counter}{{{text}}} {value}")
    return "\n".join([*lines, "# EOF\n"])


def _escaped(text: str) -> str:
    return encodable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _figures(worker: WorkerView) -> dict[str, dict[str, float | None]]:
    """Return the values of each metric by label; the label is empty for a metric without one."""
    last, measured = worker.last, worker.shown.measured if worker.shown is not None else None
    single: dict[str, float | None] = {
        "tfperf_samples": float(worker.samples),
        "tfperf_sample_failures": float(worker.failures),
    }
    if last is not None:
        single |= {
            "tfperf_worker_up": float(last.measured is not None),
            "tfperf_sample_timestamp_seconds": last.time_s,
            "tfperf_profiled_ratio": _ratio(last.profiled_percent),
            "tfperf_slowdown_ratio": _ratio(last.slowdown_percent),
        }
    if measured is None:
        return {name: {"": value} for name, value in single.items()}
    single |= {
        "tfperf_step_time_seconds": None if measured.step_ms is None else measured.step_ms / 1000.0,
        "tfperf_steps_per_second": measured.steps_per_second,
        "tfperf_examples_per_second": measured.examples_per_second,
        "tfperf_input_ratio": _ratio(measured.input_percent),
        "tfperf_device_busy_ratio": _ratio(measured.device_busy_percent),
        "tfperf_memory_used_ratio": _ratio(measured.memory.used_percent if measured.memory else None),
    }
    cost = zip(("low", "high"), measured.input_cost_percent or (), strict=False)
    return {
        **{name: {"": value} for name, value in single.items()},
        "tfperf_category_ratio": {each.key: _ratio(each.percent) for each in measured.categories},
        "tfperf_input_cost_ratio": {bound: _ratio(percent) for bound, percent in cost},
        "tfperf_cause_gain_ratio": {each.code: _ratio(each.gain_percent) for each in measured.causes},
    }


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0
