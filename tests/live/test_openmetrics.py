"""The metrics, and the server that only scrapers on this machine reach."""

from __future__ import annotations

import http.client
import socket
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from capture.conftest import free_port
from live.views import EVIL, compare_list, gone, measured, sample, worker
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address
from tfperf.live.board import WorkerView
from tfperf.live.openmetrics import CONTENT_TYPE, COUNTERS, FAMILIES, metrics_served, metrics_text
from tfperf.live.sample import FirstCause

Values = dict[tuple[str, str], float]


def values_of(workers: Iterable[WorkerView]) -> Values:
    parse: Any = text_string_to_metric_families
    families = list(parse(metrics_text(list(workers))))
    assert [family.name for family in families] == [*FAMILIES]
    return {
        (each.name, ",".join(value for key, value in each.labels.items() if key != "worker")): each.value
        for family in families
        for each in family.samples
    }


def test_all_that_is_known() -> None:
    values = values_of([worker(6009, sample(measured(), slowdown_percent=3.0), failures=2)])
    assert values == {
        ("tfperf_worker_up", ""): 1.0,
        ("tfperf_samples_total", ""): 3.0,
        ("tfperf_sample_failures_total", ""): 2.0,
        ("tfperf_sample_timestamp_seconds", ""): 1_799_999_998.0,
        ("tfperf_profiled_ratio", ""): 0.1,
        ("tfperf_slowdown_ratio", ""): 0.03,
        ("tfperf_step_time_seconds", ""): 0.02,
        ("tfperf_steps_per_second", ""): 50.0,
        ("tfperf_examples_per_second", ""): 1600.0,
        ("tfperf_category_ratio", "input"): 0.66,
        ("tfperf_category_ratio", "host_compute"): 0.24,
        ("tfperf_category_ratio", "all_others"): 0.1,
        ("tfperf_input_ratio", ""): 0.66,
        ("tfperf_input_cost_ratio", "low"): 0.66,
        ("tfperf_input_cost_ratio", "high"): pytest.approx(0.784),
        ("tfperf_device_busy_ratio", ""): 0.125,
        ("tfperf_memory_used_ratio", ""): 0.75,
        ("tfperf_cause_gain_ratio", "input_wait"): 0.6,
    }


def test_what_is_unknown_is_absent() -> None:
    values = values_of([worker(6009, sample(measured(step_ms=None, input_percent=float("nan"))))])
    assert not {name for name, _ in values} & {
        "tfperf_step_time_seconds",
        "tfperf_input_ratio",
        "tfperf_slowdown_ratio",
    }


def test_a_worker_that_is_gone_is_down_and_has_no_figures() -> None:
    values = values_of([gone()])
    assert values[("tfperf_worker_up", "")] == 0.0
    assert ("tfperf_step_time_seconds", "") not in values


def test_before_the_first_sample_nothing_is_claimed() -> None:
    assert set(values_of([worker(samples=0)])) == {("tfperf_samples_total", ""), ("tfperf_sample_failures_total", "")}
    assert values_of([]) == {}


def test_hostile_labels_are_escaped() -> None:
    cause = FirstCause('a"b\\c\n', "", "", "", 10.0)
    values = values_of([worker(address=Address(EVIL, 1), last=sample(measured(causes=(cause,))))])
    assert values[("tfperf_cause_gain_ratio", 'a"b\\c\n')] == 0.1


def test_the_page_lists_every_metric(compare_gold: Callable[[Path, str], None]) -> None:
    shown = {name: (f"`{name}_total`", "counter") if name in COUNTERS else (f"`{name}`", "gauge") for name in FAMILIES}
    rows = ((*shown[name], help) for name, help in FAMILIES.items())
    compare_list(compare_gold, "metrics", ("metric", "type", "meaning"), *rows)


def get(port: int, path: str = "/metrics", host: str = "") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_metrics_are_served_until_the_end() -> None:
    texts = iter(("one\n", "two\n"))
    with metrics_served(free_port(), lambda: next(texts)) as port:
        assert get(port) == (200, CONTENT_TYPE, "one\n")
        assert get(port, "/metrics?x=1")[2] == "two\n"
        assert get(port, "/")[0] == 404
    with pytest.raises(ConnectionRefusedError):
        get(port)


def test_a_page_whose_name_was_turned_to_this_machine_gets_nothing() -> None:
    with metrics_served(free_port(), lambda: "secret") as port:
        for host in ("evil.example", "evil.example:80", f"127.0.0.1.evil.example:{port}"):
            status, _, text = get(port, host=host)
            assert (status, "secret" in text) == (403, False)
        assert get(port, host=f"localhost:{port}")[0] == 200


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
def test_it_listens_on_loopback_only() -> None:
    with metrics_served(free_port(), lambda: "") as port:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [row[1] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port]
    assert [address.split(":")[0] for address in listening] == ["0100007F"]


def test_a_client_that_says_nothing_holds_nobody_up() -> None:
    with metrics_served(free_port(), lambda: "text") as port, socket.create_connection(("127.0.0.1", port)):
        assert get(port)[2] == "text"


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(CaptureError, match=f"port {port}: another program uses it") as caught,
            metrics_served(port, lambda: ""),
        ):
            pass
    assert caught.value.reason == "port_taken"


def test_many_ask_at_once() -> None:
    with metrics_served(free_port(), lambda: "text") as port, ThreadPoolExecutor(8) as threads:
        assert [status for status, _, _ in threads.map(get, [port] * 8)] == [200] * 8
