"""The one place where fsspec is opened and called: errors become those of tfperf, and a busy server is asked again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from tfperf.base.errors import TfperfError
from tfperf.base.storage.failures import kind_of, reading_failed
from tfperf.base.storage.remote_path import RemotePath
from tfperf.base.storage.schemes import client_options, prepare

PAUSES_S = (0.2, 1.0, 4.0)
"""How long to wait before each new try, in seconds."""
_PAUSE_UNREACHABLE_S = (0.5,)
"""An address with a typing error should not take long."""

Answer = TypeVar("Answer")


def file_system(path: RemotePath) -> Any:
    """Return the fsspec file system of an address. Raises TfperfError if what it needs is not installed."""
    scheme = path.scheme
    try:
        prepare(scheme, path.endpoint_url)
        fsspec = import_module("fsspec")
        fsspec.get_filesystem_class(scheme.protocol)
        options = client_options(scheme)
    except ImportError as error:
        name = path.url.partition(":")[0]
        needs = f"{name}:// needs a package that is not installed ({error.name or error})"
        raise TfperfError(f"{needs}: pip install 'tfperf[{scheme.extra}]'") from error
    if path.anonymous:
        options |= scheme.anonymous
    if path.endpoint_url:
        options[scheme.endpoint] = path.endpoint_url
    # It logs the traceback of each error that it raises.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    return call(path, partial(_open, fsspec, path, options))


def _open(fsspec: Any, path: RemotePath, options: dict[str, Any]) -> Any:
    """Return the file system; what only the address tells, such as the account, is taken from it."""
    cls = fsspec.get_filesystem_class(path.scheme.protocol)
    opened = fsspec.filesystem(path.scheme.protocol, **cls._get_kwargs_from_urls(path.url) | options)
    if path.scheme.protocol == "s3":
        opened.retries = 1  # `call` asks again
    return opened


def call(
    path: RemotePath,
    function: Callable[[], Answer],
    failed: Callable[[RemotePath, Exception], TfperfError] = reading_failed,
) -> Answer:
    """Call a function that asks a service, again if the server is busy or the connection breaks.

    Raises TfperfError in place of what fsspec raises; KeyboardInterrupt at once.
    """
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
                # The error of the library may hold an address with a password: it is not chained.
                raise failed(path, error) from None
            time.sleep(pauses[tries])
            tries += 1
