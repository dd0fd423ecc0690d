"""List the files at a remote address, and download them.

A listing takes one request per thousand files, if the service can list. A download requests a few large parts: the
reader needs every byte, so small parts would save nothing, and each costs a request.
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
"""Maximum depth on a web server, where each level is a request and links may form cycles."""


def look_up(path: RemotePath) -> RemotePath:
    """Return a file with its metadata. Raise TfperfError if it is missing or access is denied."""
    files = file_system(path)
    return replace(path, listed=_listed(call(path, partial(files.info, path.url))))


def list_files(path: RemotePath, file_suffix: str | tuple[str, ...]) -> list[RemotePath]:
    """Return all files below an address, sorted, or the address itself if it is a file; raise TfperfError for none.

    Addresses that end with `file_suffix` (or one of several) are files and are not listed.
    """
    if path.name.endswith(file_suffix):
        return [look_up(path)]
    if path.is_web:
        return _list_web(path)
    files = file_system(path)
    entries = call(path, partial(files.find, path.url, detail=True))
    root = files._strip_protocol(path.url)
    if not entries:
        # Some services do not distinguish an empty folder from a missing one.
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
    # Web pages list neither sizes nor times.
    return [replace(each, listed=None) for each in found if each is not None]


def _below(path: RemotePath, root: str, entry: Mapping[str, Any]) -> RemotePath | None:
    """Return the address of a listed entry, or None if it is outside the path, as links on a page may be."""
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
    """Convert a file's metadata, whose keys depend on the service."""
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
    """Return a time in seconds since 1970."""
    try:
        if isinstance(time, str):
            time = parsedate_to_datetime(time) if "," in time else datetime.fromisoformat(time.replace("Z", "+00:00"))
        return time.timestamp() if isinstance(time, datetime) else float(time)
    except (ValueError, TypeError, OverflowError):
        return None


PART_BYTES = 1 << 25
IN_FLIGHT = 2
"""Maximum number of concurrent requests."""
MEMORY_BYTES = 1 << 28
"""Larger files go to an unnamed temporary file, which disappears when it is closed or the process ends."""
_OF_STREAM = 1 << 20


def download(path: RemotePath) -> BinaryIO:
    """Return an open copy of a remote file; raise TfperfError, or TraceFormatError if it changes meanwhile."""
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
            # Several parts are consistent only if the version is still the same at the end.
            if size > PART_BYTES and look_up(path).listed != listed:
                raise changed(path)
    except OSError as error:
        target.close()
        reason = f"cannot store a temporary copy of {path}: {error.strerror or error}"
        raise TraceFormatError(f"{reason}; set TMPDIR to a folder with more free space") from error
    except BaseException:
        target.close()
        raise
    target.seek(0)
    return target


def _copy_whole(files: Any, path: RemotePath, target: BinaryIO) -> None:
    """Copy a file that the server sends in one response; each retry starts over."""
    target.seek(0)
    target.truncate()
    if path.is_web:
        files.get_file(path.url, target, chunk_size=_OF_STREAM)
    else:
        target.write(files.cat_file(path.url))


def _copy_parts(files: Any, path: RemotePath, size: int, target: BinaryIO) -> None:
    """Copy a file in parts, `IN_FLIGHT` at a time; each part is retried separately.

    The last part requests one byte beyond the known size: if it arrives, the file has grown. The first part is
    requested alone, because a web server may ignore the range and send the whole file.
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
    """Return a part or raise its error; `first` has the first response, further ones are requested."""
    answer = first.pop() if first else files.cat_file(name, start=start, end=stop)
    if isinstance(answer, Exception):
        raise answer
    return bytes(answer)
