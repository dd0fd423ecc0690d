"""How services are asked: again if that may help, at once if it does not."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from typing import Any

import pytest

from tfperf import RemotePath, TfperfError
from tfperf.base.storage.calls import PAUSES_S, call, file_system, kind_of, reading_failed, writing_failed

PATH = RemotePath("memory://x")


class Answers:
    """Raises each of some errors, then returns 5."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)

    def __call__(self) -> int:
        if self.errors:
            raise self.errors.pop(0)
        return 5


def test_a_busy_server_is_asked_again() -> None:
    assert call(PATH, Answers(TimeoutError(), ConnectionResetError(), TimeoutError())) == 5
    assert len(PAUSES_S) == 3


@pytest.mark.parametrize(
    ("errors", "left"), [([TimeoutError()] * 9, 5), ([ConnectionRefusedError()] * 9, 7), ([PermissionError()] * 9, 8)]
)
def test_it_is_asked_a_few_times_only(errors: list[Exception], left: int) -> None:
    answers = Answers(*errors)
    with pytest.raises(TfperfError, match="cannot read memory://x"):
        call(PATH, answers)
    assert len(answers.errors) == left


def test_an_interruption_and_errors_of_ours_pass() -> None:
    answers = Answers(KeyboardInterrupt(), TfperfError("ours"))
    with pytest.raises(KeyboardInterrupt):
        call(PATH, answers)
    with pytest.raises(TfperfError, match="ours"):
        call(PATH, answers)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("s3://bucket/x", "s3fs", "s3"),
        ("gs://bucket/x", "gcsfs", "gcs"),
        ("az://container/x", "adlfs", "azure"),
        ("https://host/x", "aiohttp", "http"),
        ("memory://x", "fsspec", "remote"),
    ],
)
def test_a_package_that_is_missing_is_named_with_the_extra(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What was imported before is known to fsspec.
    known = import_module("fsspec.registry")._registry
    for protocol in list(known):
        monkeypatch.delitem(known, protocol)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    with pytest.raises(TfperfError, match=rf"requires a package .* \(.*\): pip install 'tfperf\[{extra}\]'"):
        file_system(RemotePath(url))


def test_an_emulator_of_google_is_not_asked_what_only_google_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", raising=False)
    monkeypatch.setenv("TFPERF_TEST", "1")  # whatever is set below is taken back
    file_system(RemotePath("gs://bucket/x", anonymous=True, endpoint_url="http://127.0.0.1:1"))
    assert os.environ.pop("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT") == "false"


def of_class(*names: str, base: type[Exception] = Exception, **attributes: Any) -> Exception:
    """Return an error of a class with these names, the last of which is its own."""
    for name in names:
        base = type(name, (base,), {})
    error = base("me@://u:hunter2@x")
    vars(error).update(attributes)
    return error


def caused(cause: Exception) -> FileNotFoundError:
    error = FileNotFoundError("https://host/x")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("bucket"), "missing"),
        (caused(of_class("ClientResponseError", status=403)), "forbidden"),
        (caused(of_class("ClientResponseError", status=503)), "busy"),
        (caused(of_class("ClientConnectionError", "ClientConnectorError")), "unreachable"),
        (PermissionError("no"), "forbidden"),
        (OSError("Forbidden: https://storage"), "forbidden"),
        (of_class("HttpError", code=401), "forbidden"),
        (of_class("HttpError", code="gone"), "other"),
        (of_class("ClientError", response={"ResponseMetadata": {"HTTPStatusCode": 429}}), "busy"),
        (of_class("NoCredentialsError"), "nobody"),
        (of_class("GoogleAuthError", "DefaultCredentialsError"), "nobody"),
        (ValueError("Must provide either a connection_string or account_name with credentials!!"), "nobody"),
        (of_class("HTTPClientError", "EndpointConnectionError"), "unreachable"),
        (of_class("HTTPClientError", "ReadTimeoutError"), "busy"),
        (of_class("ClientPayloadError"), "busy"),
        (TimeoutError(), "busy"),
        (ConnectionResetError(), "busy"),
        (ConnectionRefusedError(), "unreachable"),
        (OSError(errno.EBUSY, "SlowDown"), "busy"),
        (OSError(errno.EINVAL, "The requested range is not satisfiable"), "range"),
        (of_class("ClientResponseError", status=416), "range"),
        (of_class("ClientResponseError", status=505), "busy"),
        (ValueError("what"), "other"),
    ],
)
def test_the_kind_of_an_error(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        (RemotePath("s3://b/x"), FileNotFoundError("b"), "s3://b/x does not exist; check the address"),
        (
            RemotePath("gs://b/x"),
            PermissionError(),
            "cannot read gs://b/x: permission denied; run gcloud auth application-default login, or set "
            "GOOGLE_APPLICATION_CREDENTIALS; if the bucket is public, pass --anonymous",
        ),
        (
            RemotePath("gs://b/x", anonymous=True),
            PermissionError(),
            "cannot read gs://b/x: the bucket is not public; omit --anonymous and run gcloud auth "
            "application-default login, or set GOOGLE_APPLICATION_CREDENTIALS",
        ),
        (
            RemotePath("az://c/x"),
            ValueError("account_name"),
            "cannot read az://c/x: no credentials; set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or "
            "AZURE_STORAGE_SAS_TOKEN); if the container is public, pass --anonymous",
        ),
        (
            RemotePath("s3://b/x", endpoint_url="http://u:hunter2@here"),
            ConnectionRefusedError(),
            "cannot read s3://b/x: cannot connect to the server at http://***@here; check the address, the network "
            "and its proxy",
        ),
        (
            RemotePath("hdfs://h/x"),
            OSError("Unable to load libjvm\nat x"),
            "cannot read hdfs://h/x: Unable to load libjvm at x; it requires Java and Hadoop: set JAVA_HOME, "
            "HADOOP_HOME and CLASSPATH (hadoop classpath --glob)",
        ),
        (RemotePath("memory://x"), PermissionError(), "cannot read memory://x: permission denied"),
        (RemotePath("https://host/x"), RuntimeError(), "cannot read https://host/x: RuntimeError"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_try(path: RemotePath, error: Exception, words: str) -> None:
    assert str(reading_failed(path, error)) == words


def test_an_error_of_a_library_is_shown_without_secrets() -> None:
    text = str(reading_failed(RemotePath("https://host/x"), of_class("Odd")))
    assert "hunter2" not in text
    assert "://***@x" in text


def test_a_bucket_that_is_not_there_cannot_be_written_to() -> None:
    error = writing_failed(RemotePath("s3://b/x"), FileNotFoundError("b"))
    assert str(error) == "cannot write s3://b/x: the bucket does not exist; check the address"
