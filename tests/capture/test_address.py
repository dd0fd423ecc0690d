"""Addresses as users write them, and lists of workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.base.errors import CaptureError
from tfperf.capture.address import (
    Address,
    check_workers,
    parse_address,
    workers_in,
    workers_of_cluster,
    workers_of_file,
)


@pytest.mark.parametrize(
    ("text", "target", "label"),
    [
        ("localhost:6009", "localhost:6009", "localhost_6009"),
        ("grpc://10.0.0.2:8466", "10.0.0.2:8466", "10.0.0.2_8466"),
        ("grpc://worker-0.svc.local:1/", "worker-0.svc.local:1", "worker-0.svc.local_1"),
        ("[::1]:6009", "[::1]:6009", "::1_6009"),
        ("grpc://[fe80::1%eth0]:65535", "[fe80::1%eth0]:65535", "fe80::1%eth0_65535"),
        ("unix:/run/tf.sock", "unix:/run/tf.sock", "unix_run_tf.sock"),
        ("unix:///run/tf.sock", "unix:/run/tf.sock", "unix_run_tf.sock"),
    ],
)
def test_forms(text: str, target: str, label: str) -> None:
    address = parse_address(text)
    assert (address.target, address.label, str(address)) == (target, label, target)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "6009",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "host:6009:1",
        "::1:6009",
        "http://host:80",
        "a b:1",
        "unix:",
    ],
)
def test_a_text_that_is_not_an_address_says_how_to_write_one(text: str) -> None:
    with pytest.raises(CaptureError, match="; use ") as caught:
        parse_address(text)
    assert caught.value.reason == "bad_address"


@pytest.mark.parametrize(
    ("text", "here"),
    [("localhost:1", True), ("127.0.0.1:1", True), ("[::1]:1", True), ("unix:/a", True), ("10.0.0.1:1", False)],
)
def test_which_machine_is_this_one(text: str, here: bool) -> None:
    assert parse_address(text).is_here == here


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_a_clear_error(text: str) -> None:
    try:
        address = parse_address(text)
    except CaptureError:
        return
    assert isinstance(address, Address)
    assert address.path or 0 < address.port < 65536


CLUSTER = {"worker": ["a:2222", "b:2222", "a:2223"], "ps": {"0": "[::1]:2222"}}


def shown(addresses: list[Address]) -> list[str]:
    return [str(address) for address in addresses]


def test_a_list_with_commas() -> None:
    assert shown(workers_in("a:1, [::1]:2,grpc://b:3,unix:/s,")) == ["a:1", "[::1]:2", "b:3", "unix:/s"]


def test_a_machine_without_a_port_gets_the_first_that_is_free_there() -> None:
    assert shown(workers_in("a,b,A,[::1],c:7,a", 6009)) == ["a:6009", "b:6009", "A:6010", "[::1]:6009", "c:7", "a:6011"]


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# the job\na:1\n\n  b:2  # slow\r\n")
    assert shown(workers_of_file(file)) == ["a:1", "b:2"]
    file.write_text("node01\nnode01\nnode02\n")
    assert shown(workers_of_file(file, 6009)) == ["node01:6009", "node01:6010", "node02:6009"]


@pytest.mark.parametrize("config", [{"cluster": CLUSTER, "task": {"type": "worker", "index": 0}}, CLUSTER])
def test_a_cluster(config: object, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(config))
    tasks = workers_of_cluster(file)
    assert shown(tasks) == ["a:2222", "b:2222", "a:2223", "[::1]:2222"]
    assert [task.label for task in tasks] == ["a_worker-0", "b_worker-1", "a_worker-2", "::1_ps-0"]
    assert workers_of_cluster(None, None, {"TF_CONFIG": file.read_text()}) == tasks
    assert shown(workers_of_cluster(file, 6009)) == ["a:6009", "b:6009", "a:6010", "[::1]:6009"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no workers"),
        ("# nothing\n", "has no workers"),
        ("a:1\nnowhere\n", "line 2: 'nowhere' is not the address"),
        ("\xff\xfe", "not a text file"),
        ("a:1\n" * 300_000, "too large"),
    ],
)
def test_what_is_no_file_of_workers(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(CaptureError, match=words) as caught:
        workers_of_file(file)
    assert (caught.value.reason, "\n" in str(caught.value)) == ("bad_address", False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "has no cluster"),
        ('{"cluster": []}', "has no cluster"),
        ("{}", "has no tasks"),
        ('{"worker": ["a"]}', "task worker-0: 'a' is not the address"),
        ('{"worker": [7]}', "task worker-0: '7' is not"),
    ],
)
def test_what_is_no_cluster(text: str, words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        workers_of_cluster(None, None, {"TF_CONFIG": text})


def test_no_cluster_here(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="TF_CONFIG is not set"):
        workers_of_cluster(None, None, {})
    with pytest.raises(CaptureError, match="cannot read"):
        workers_of_cluster(tmp_path / "none.json")


def test_too_many_and_twice() -> None:
    many = [Address("a", port) for port in range(1, 258)]
    check_workers(many[:256])
    with pytest.raises(CaptureError, match="got 257 workers, but at most 256"):
        check_workers(many)
    with pytest.raises(CaptureError, match="list each worker once: a:1, A:1"):
        check_workers([parse_address("a:1"), parse_address("A:1"), parse_address("b:1")])
