"""A file of another machine as a file that can be read here: sent once, in a few large parts.

The reader needs every byte, so that small parts would save nothing, and each costs a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import tempfile
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, BinaryIO

from tfperf.base.errors import TraceFormatError
from tfperf.base.storage.calls import call, file_system
from tfperf.base.storage.failures import changed
from tfperf.base.storage.listing import look_up
from tfperf.base.storage.remote_path import Listed, RemotePath

PART_BYTES = 1 << 25
IN_FLIGHT = 2
"""Parts that are asked for at the same time."""
MEMORY_BYTES = 1 << 28
"""What is larger goes to a temporary file, which has no name and is gone when it is closed, or with the process."""
_OF_STREAM = 1 << 20
_CTRL_C_S = 0.5


def download(path: RemotePath) -> BinaryIO:
    """Return the bytes of a remote file as an open file, at its start.

    Raises TfperfError if the file cannot be read, and TraceFormatError if another one took its place meanwhile.
    """
    files = file_system(path)
    listed = path.listed or look_up(path).listed or Listed()
    size = listed.size_bytes
    is_small = size is not None and size < MEMORY_BYTES
    target: BinaryIO = io.BytesIO() if is_small else _unnamed_file()
    try:
        if size is None or not listed.has_ranges:
            call(path, partial(_copy_whole, files, path, target))
            _check_size(path, target, size)
        else:
            _copy_parts(files, path, size, target)
            # One part is of one version; several are if there was no other at the end.
            if size > PART_BYTES and look_up(path).listed != listed:
                raise changed(path)
    except OSError as error:
        target.close()
        reason = f"cannot keep {path} while it is read: {error.strerror or error}"
        raise TraceFormatError(f"{reason}; set TMPDIR to a folder with more room") from error
    except BaseException:
        target.close()
        raise
    target.seek(0)
    return target


def _unnamed_file() -> BinaryIO:
    return tempfile.TemporaryFile(prefix="tfperf-")


def _copy_whole(files: Any, path: RemotePath, target: BinaryIO) -> None:
    """Copy a file that comes in one answer, from its start at each try."""
    target.seek(0)
    target.truncate()
    if path.is_web:
        files.get_file(path.url, target, chunk_size=_OF_STREAM)
    else:
        target.write(files.cat_file(path.url))


def _copy_parts(files: Any, path: RemotePath, size: int, target: BinaryIO) -> None:
    """Copy a file part by part.

    The last part asks for one byte more than there should be: if it comes, the file has grown.
    """
    spans = [(start, min(start + PART_BYTES, size)) for start in range(0, size, PART_BYTES)]
    asked = [(start, stop + (stop == size)) for start, stop in spans]
    # A web server may ignore that a part is asked for, and send all: one must have come before two are asked for.
    alone = 1 if path.is_web else 0
    parts = _parts(files, path, asked, alone)
    with contextlib.closing(parts):
        for (start, stop), data in zip(spans, parts, strict=True):
            is_whole_file = start == 0 and stop < size and len(data) == size
            if len(data) != stop - start and not is_whole_file:
                raise changed(path)
            target.write(data)
            if is_whole_file:
                return


def _parts(files: Any, path: RemotePath, spans: list[tuple[int, int]], alone: int) -> Generator[bytes]:
    """Yield the bytes of each span, in order, while the next ones are on their way."""
    waiting: deque[tuple[Future[bytes] | None, tuple[int, int]]] = deque()
    name = files._strip_protocol(path.url)
    try:
        for number, span in enumerate(spans):
            waiting.append((_asked(files, name, span), span))
            if len(waiting) == (1 if number < alone else IN_FLIGHT):
                yield _received(files, path, *waiting.popleft())
        while waiting:
            yield _received(files, path, *waiting.popleft())
    finally:
        for future, _ in waiting:
            if future is not None:
                future.cancel()


def _asked(files: Any, name: str, span: tuple[int, int]) -> Future[bytes] | None:
    """Ask for a part without waiting for it, where the library can."""
    if not files.async_impl:
        return None
    return asyncio.run_coroutine_threadsafe(files._cat_file(name, start=span[0], end=span[1]), files.loop)


def _received(files: Any, path: RemotePath, future: Future[bytes] | None, span: tuple[int, int]) -> bytes:
    """Wait for a part; if it does not come, ask for it again."""
    first = iter([future] if future is not None else [])

    def receive() -> bytes:
        asked_before = next(first, None)
        if asked_before is None:
            return bytes(files.cat_file(path.url, start=span[0], end=span[1]))
        try:
            # A Ctrl-C that comes just before a wait does not end it.
            while not wait([asked_before], _CTRL_C_S).done:
                pass
            return asked_before.result()
        except BaseException:
            asked_before.cancel()
            raise

    return call(path, receive)


def _check_size(path: RemotePath, target: BinaryIO, size: int | None) -> None:
    if size is not None and target.tell() != size:
        raise changed(path)
