"""The only module that opens and calls fsspec: it translates errors to tfperf's and retries if a server is busy.

Libraries have their own errors without a common base class, so `kind_of` classifies them by name.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Literal, TypeVar

from tfperf.base.errors import OutputError, TfperfError, TraceFormatError, TraceNotFoundError
from tfperf.base.storage.remote_path import RemotePath, client_options, prepare, without_secrets

Kind = Literal["missing", "forbidden", "nobody", "unreachable", "busy", "range", "other"]

_NOBODY = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "CredentialRetrievalError",
           "ProfileNotFound", "TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError",
           "RefreshError"}  # fmt: skip
_UNREACHABLE = {"EndpointConnectionError", "ConnectTimeoutError", "ClientConnectorError", "ServiceRequestError",
                "ConnectionTimeoutError", "ProxyConnectionError", "ConnectionRefusedError", "gaierror",
                "SSLError"}  # fmt: skip
_BUSY = {"ClientConnectionError", "ClientPayloadError", "HTTPClientError", "IncompleteRead", "ResponseParserError",
         "TimeoutError", "FSTimeoutError", "ConnectionError", "ServiceResponseError", "IncompleteReadError",
         "ProxyError", "ChecksumError", "ResponseStreamingError", "TransferEncodingError"}  # fmt: skip
"""Names of error classes and base classes, compared as text so that no library is imported."""
_OF_STATUS: dict[int, Kind] = {
    400: "other", 401: "forbidden", 403: "forbidden", 404: "missing", 410: "missing", 412: "range", 416: "range",
    408: "busy", 425: "busy", 429: "busy", 500: "busy", 502: "busy", 503: "busy", 504: "busy",
}  # fmt: skip
_BUSY_ERRNOS = {errno.EBUSY, errno.EIO, errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, getattr(errno, "EREMOTEIO", 0)}
_LONGEST_REASON = 200


def kind_of(error: BaseException) -> Kind:
    """Classify an error of fsspec or of a library that it uses."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & _NOBODY or "account_name" in str(error):  # adlfs reports it as a ValueError
        return "nobody"
    status = _status(error)
    if status is not None:
        return _OF_STATUS.get(status, "busy" if status >= 500 else "other")
    if "FileNotFoundError" in names:
        # fsspec raises it for any failure while it requests the size of a web file.
        return kind_of(error.__cause__) if error.__cause__ else "missing"
    if "PermissionError" in names or str(error).startswith("Forbidden"):
        return "forbidden"
    if names & _UNREACHABLE:
        return "unreachable"
    if names & _BUSY or getattr(error, "errno", None) in _BUSY_ERRNOS:
        return "busy"
    is_range = isinstance(error, OSError) and error.errno == errno.EINVAL and "range" in str(error).lower()
    return "range" if is_range else "other"


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error."""
    for name in ("status", "status_code", "code"):
        status = getattr(error, name, None)
        if isinstance(status, int) and 100 <= status < 600:
            return status
    response = getattr(error, "response", None)
    metadata = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
    status = metadata.get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def reading_failed(path: RemotePath, error: BaseException) -> TfperfError:
    """Return the error for a failed listing or read."""
    kind = kind_of(error)
    if kind == "missing":
        return TraceNotFoundError(f"{path} does not exist; check the address")
    if kind == "range":
        return changed(path)
    return TraceNotFoundError(f"cannot read {path}: {_advice(path, kind, error)}")


def writing_failed(path: RemotePath, error: BaseException) -> OutputError:
    """Return the error for a failed write."""
    return OutputError(f"cannot write {path}: {_advice(path, kind_of(error), error)}")


def changed(path: RemotePath) -> TraceFormatError:
    """Return the error for a file that changed while it was read."""
    return TraceFormatError(f"{path} changed while being read; try again once it is complete")


def _advice(path: RemotePath, kind: Kind, error: BaseException) -> str:
    scheme = path.scheme
    public = f"; if the {scheme.place} is public, pass --anonymous" if scheme.anonymous and not path.anonymous else ""
    if path.anonymous and kind in ("forbidden", "missing"):
        return f"the {scheme.place} is not public; omit --anonymous and {scheme.identify}"
    if kind == "forbidden":
        return f"permission denied; {scheme.identify}{public}" if scheme.identify else "permission denied"
    if kind == "nobody":
        return f"no credentials; {scheme.identify}{public}"
    if kind == "missing":
        return f"the {scheme.place} does not exist; check the address"
    if kind == "unreachable":
        at = f" at {without_secrets(path.endpoint_url)}" if path.endpoint_url else ""
        return f"cannot connect to the server{at}; check the address, the network and its proxy"
    if kind == "busy":
        return f"the server is busy or the connection keeps dropping ({_reason(error)}); try again later"
    return "; ".join(filter(None, (_reason(error), scheme.setup)))


def _reason(error: BaseException) -> str:
    """Return the text of an error on one line, without secrets."""
    status = _status(error)
    text = f"status {status}" if status else without_secrets(" ".join(str(error).split()))
    return text[:_LONGEST_REASON] or type(error).__name__


PAUSES_S = (0.2, 1.0, 4.0)
"""Pauses before the retries, in seconds."""
_PAUSE_UNREACHABLE_S = (0.5,)
"""Shorter, so that a mistyped address fails soon."""

Answer = TypeVar("Answer")


def file_system(path: RemotePath) -> Any:
    """Return the fsspec file system of an address. Raise TfperfError if a required package is not installed."""
    scheme = path.scheme
    try:
        prepare(scheme, path.endpoint_url)
        fsspec = import_module("fsspec")
        fsspec.get_filesystem_class(scheme.protocol)
        options = client_options(scheme)
    except ImportError as error:
        name = path.url.partition(":")[0]
        needs = f"{name}:// requires a package that is not installed ({error.name or error})"
        raise TfperfError(f"{needs}: pip install 'tfperf[{scheme.extra}]'") from error
    if path.anonymous:
        options |= scheme.anonymous
    if path.endpoint_url:
        options[scheme.endpoint] = path.endpoint_url
    # It logs a traceback for each error that it raises.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    # The address contains some options, such as the account.
    options = fsspec.get_filesystem_class(scheme.protocol)._get_kwargs_from_urls(path.url) | options
    opened = call(path, partial(fsspec.filesystem, scheme.protocol, **options))
    if scheme.protocol == "s3":
        opened.retries = 1  # `call` retries
    return opened


def call(
    path: RemotePath,
    function: Callable[[], Answer],
    failed: Callable[[RemotePath, Exception], TfperfError] = reading_failed,
) -> Answer:
    """Call a function that sends requests; retry while the server is busy. Raise TfperfError or KeyboardInterrupt."""
    tries = 0
    while True:
        try:
            return function()
        except (MemoryError, TfperfError):
            raise
        except Exception as error:
            kind = kind_of(error)
            pauses = PAUSES_S if kind == "busy" else _PAUSE_UNREACHABLE_S if kind == "unreachable" else ()
            if tries >= len(pauses):
                # The library's error may contain an address with a password, so it is not chained.
                raise failed(path, error) from None
            time.sleep(pauses[tries])
            tries += 1
