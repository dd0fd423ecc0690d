"""Addresses as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address, parse_address


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
    with pytest.raises(CaptureError, match=r"write|a port is") as caught:
        parse_address(text)
    assert caught.value.reason == "bad_address"


def test_a_path_is_quoted_for_grpc() -> None:
    assert parse_address("unix:/a b#%").target == "unix:/a%20b%23%25"


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
