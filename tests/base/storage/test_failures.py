"""What the errors of libraries mean, told by their classes and what they carry."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tfperf import RemotePath
from tfperf.base.storage.calls import kind_of, reading_failed, writing_failed


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
            "cannot read gs://b/x: the bucket is not public; omit --anonymous, and run gcloud auth "
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
            "cannot read s3://b/x: no connection to the server at http://***@here; check the address, the network and "
            "its proxy",
        ),
        (
            RemotePath("hdfs://h/x"),
            OSError("Unable to load libjvm\nat x"),
            "cannot read hdfs://h/x: Unable to load libjvm at x; it needs Java and Hadoop: set JAVA_HOME, HADOOP_HOME "
            "and CLASSPATH (hadoop classpath --glob)",
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
