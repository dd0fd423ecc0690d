"""Files of another machine: which lie below an address, and their bytes as an open file.

A listing is one request per thousand files, where the service can list. A download is sent once, in a few large parts:
the reader needs every byte, so small parts would save nothing, and each costs a request.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, BinaryIO
from urllib.parse import unquote

from msgspec.structs import replace

from tfperf.base.errors import TraceFormatError
from tfperf.base.storage.calls import call, changed, file_system
from tfperf.base.storage.remote_path import Listed, RemotePath

_VERSIONS = ("ETag", "etag", "generation", "Content-MD5", "md5Hash")
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modified", "Last-Modified", "created")
_DEEPEST = 8
"""Levels of folders that are followed on a web server, where each is a request, and where links may go in circles."""


def look_up(path: RemotePath) -> RemotePath:
    """Return a file with what the service says of it. Raises TfperfError if it is not there or may not be read."""
    files = file_system(path)
    return replace(path, listed=_listed(call(path, partial(files.info, path.url))))


def list_files(path: RemotePath, file_suffix: str | tuple[str, ...]) -> list[RemotePath]:
    """Return all files below an address, ordered, or the file itself if it is one.

    `file_suffix` (or one of several) ends the names of addresses that are surely files: what they hold is not searched
    for. Raises TfperfError if nothing is there.
    """
    if path.name.endswith(file_suffix):
        return [look_up(path)]
    if path.is_web:
        return _list_web(path)
    files = file_system(path)
    entries = call(path, partial(files.find, path.url, detail=True))
    root = files._strip_protocol(path.url)
    if not entries:
        # Not all services tell an empty folder from one that is not there.
        call(path, partial(files.info, path.url))
    found = [_below(path, root, entry) for _, entry in sorted(entries.items())]
    return [each for each in found if each is not None]


def _list_web(path: RemotePath) -> list[RemotePath]:
    files = file_system(path)
    info = call(path, partial(files.info, path.url))
    if info.get("mimetype") != "text/html" or "?" in path.url:
        return [replace(path, listed=_listed(info))]
    entries = call(path, partial(files.find, f"{path.url}/", detail=True, maxdepth=_DEEPEST))
    found = [_below(path, path.url, {"name": name}) for name in sorted(entries)]
    # A page tells neither sizes nor times.
    return [replace(each, listed=None) for each in found if each is not None]


def _below(path: RemotePath, root: str, entry: Mapping[str, Any]) -> RemotePath | None:
    """Return the address of what a service listed; None for what is not below the path, as links of a page may be."""
    name = str(entry["name"])
    if name == root:
        return replace(path, listed=_listed(entry))
    prefix = f"{root.rstrip('/')}/"
    if not name.startswith(prefix) or name.endswith("/"):
        return None
    rest = name.removeprefix(prefix)
    if path.is_web and ({"?", "#"} & set(rest) or ".." in unquote(rest).split("/")):
        return None
    return replace(path / rest, listed=_listed(entry))


def _listed(info: Mapping[str, Any]) -> Listed:
    """Return what tfperf keeps of the record of a file; each service has its own names."""
    size = info.get("size")
    modified = next((_seconds(info[name]) for name in _TIMES if info.get(name) is not None), None)
    versions = [str(info[name]).strip('"') for name in _VERSIONS if info.get(name) is not None]
    return Listed(
        size_bytes=size if isinstance(size, int) else None,
        version=versions[0] if versions else "" if modified is None else str(modified),
        modified=modified,
        has_ranges=info.get("partial") is not False,
    )


def _seconds(time: Any) -> float | None:
    """Return a time as seconds since 1970."""
    try:
        if isinstance(time, str):
            time = parsedate_to_datetime(time) if "," in time else datetime.fromisoformat(time.replace("Z", "+00:00"))
        return time.timestamp() if isinstance(time, datetime) else float(time)
    except (ValueError, TypeError, OverflowError):
        return None


PART_BYTES = 1 << 25
IN_FLIGHT = 2
"""Parts that are asked for at the same time."""
MEMORY_BYTES = 1 << 28
"""What is larger goes to a temporary file, which has no name and is gone when it is closed, or with the process."""
_OF_STREAM = 1 << 20


def download(path: RemotePath) -> BinaryIO:
    """Return the bytes of a remote file as an open file, at its start.

    Raises TfperfError if the file cannot be read, and TraceFormatError if another one took its place meanwhile.
    """
    files = file_system(path)
    listed = path.listed or look_up(path).listed or Listed()
    size = listed.size_bytes
    is_small = size is not None and size < MEMORY_BYTES
    target: BinaryIO = io.BytesIO() if is_small else tempfile.TemporaryFile(prefix="tfperf-")  # noqa: SIM115
    try:
        if size is None or not listed.has_ranges:
            call(path, partial(_copy_whole, files, path, target))
            if size is not None and target.tell() != size:
                raise changed(path)
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


def _copy_whole(files: Any, path: RemotePath, target: BinaryIO) -> None:
    """Copy a file that comes in one answer, from its start at each try."""
    target.seek(0)
    target.truncate()
    if path.is_web:
        files.get_file(path.url, target, chunk_size=_OF_STREAM)
    else:
        target.write(files.cat_file(path.url))


def _copy_parts(files: Any, path: RemotePath, size: int, target: BinaryIO) -> None:
    """Copy a file part by part, `IN_FLIGHT` at a time; a part that does not come is asked for again by itself.

    The last part asks for one byte more than there should be: if it comes, the file has grown. A web server may ignore
    that a part is asked for, and send all, so its first part comes alone.
    """
    name, starts = files._strip_protocol(path.url), list(range(0, size, PART_BYTES))
    while starts:
        count = 1 if path.is_web and not target.tell() else IN_FLIGHT
        some, starts = starts[:count], starts[count:]
        stops = [start + PART_BYTES if start + PART_BYTES < size else size + 1 for start in some]
        answers = call(path, partial(files.cat_ranges, [name] * len(some), some, stops, on_error="return"))
        for start, stop, answer in zip(some, stops, answers, strict=True):
            data = call(path, partial(_received, files, name, start, stop, [answer]))
            is_whole_file = start == 0 and stop < size and len(data) == size
            if len(data) != min(stop, size) - start and not is_whole_file:
                raise changed(path)
            target.write(data)
            if is_whole_file:
                return


def _received(files: Any, name: str, start: int, stop: int, first: list[Any]) -> bytes:
    """Return a part or raise its error: the first answer is there, further ones are asked for."""
    answer = first.pop() if first else files.cat_file(name, start=start, end=stop)
    if isinstance(answer, Exception):
        raise answer
    return bytes(answer)
