"""The web server of the metrics: on loopback, for scrapers only, and none unless it is asked for."""

from __future__ import annotations

import http.client
import socket
import sys
import threading
from pathlib import Path

import pytest
from capture.conftest import free_port

from tfperf.base.errors import CaptureError
from tfperf.live.openmetrics import CONTENT_TYPE, metrics_served


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
            pytest.raises(CaptureError, match=f"port {port}: another program has it") as caught,
            metrics_served(port, lambda: ""),
        ):
            pass
    assert caught.value.reason == "port_taken"


def test_many_ask_at_once() -> None:
    statuses: list[int] = []
    with metrics_served(free_port(), lambda: "text") as port:
        threads = [threading.Thread(target=lambda: statuses.append(get(port)[0])) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == [200] * 8
