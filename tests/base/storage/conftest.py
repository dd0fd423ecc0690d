"""Object stores on this machine, without credentials of anybody's, and without pauses between tries."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import count
from typing import Any

import pytest
from storage_servers import WebServer, s3_server, web_server

from tfperf.base.storage import calls

_BUCKETS = count()


@pytest.fixture(autouse=True)
def _of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(calls, "PAUSES_S", (0.0, 0.01, 0.02))
    logging.getLogger("werkzeug").setLevel(logging.ERROR)


@pytest.fixture(scope="session", autouse=True)
def _models_are_read_once() -> Iterator[None]:
    """A client of another server would read the large models of S3 again."""
    session = import_module("botocore.session")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "create_loader", cache(session.create_loader))
        yield


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    """The port of an S3 server, which is started once: that takes a second."""
    with s3_server() as port:
        yield port


@pytest.fixture
def s3(s3_port: int) -> Iterator[WebServer]:
    """An S3 server that counts requests, and may fail."""
    with web_server(behind=s3_port) as server:
        yield server


@pytest.fixture
def bucket(s3_port: int) -> tuple[str, Any]:
    """A new bucket, and the file system to fill it with, which is not what is tested."""
    import s3fs

    files = s3fs.S3FileSystem(key="test", secret="test", endpoint_url=f"http://127.0.0.1:{s3_port}")
    name = f"bucket{next(_BUCKETS)}"
    files.mkdir(name)
    return name, files
