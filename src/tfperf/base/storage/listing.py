"""Which files lie below an address: one request for a thousand of them, where the service can list."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from tfperf.base.storage.calls import call, file_system
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
