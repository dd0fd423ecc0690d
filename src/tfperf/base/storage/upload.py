"""Write files to remote addresses: they are sent once complete, so that readers never get a partial file."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tfperf.base.errors import OutputError
from tfperf.base.storage.calls import call, file_system, kind_of, writing_failed
from tfperf.base.storage.remote_path import RemotePath

FileType = Literal["file", "directory"]


def types_of(paths: Sequence[RemotePath]) -> dict[RemotePath, FileType | None]:
    """Return the type of each address in one folder, or None if it is missing; raise OutputError if unknown."""
    refuse_unwritable(paths[0])
    if len(paths) == 1:
        return {paths[0]: call(paths[0], partial(_type_of, paths[0]), writing_failed)}
    there = _files_beside(paths[0])
    return {path: "file" if path.name in there else None for path in paths}


def _type_of(path: RemotePath) -> FileType | None:
    try:
        return "directory" if file_system(path).info(path.url)["type"] == "directory" else "file"
    except FileNotFoundError as error:
        if kind_of(error) != "missing":
            raise
        return None


def _files_beside(path: RemotePath) -> set[str]:
    folder = path.parent
    names = call(path, partial(file_system(folder).find, folder.url, maxdepth=1), writing_failed)
    return {str(name).rpartition("/")[2] for name in names}


def refuse_unwritable(path: RemotePath) -> None:
    """Raise OutputError for an address of a read-only kind."""
    if not path.scheme.is_writable:
        raise OutputError(f"cannot write {path}: web servers are read-only; use a local file, s3:// or gs://")


@contextlib.contextmanager
def new_remote_file(path: RemotePath) -> Iterator[BinaryIO]:
    """Open a local file that is sent to an address if the block succeeds; raise OutputError."""
    refuse_unwritable(path)
    with tempfile.TemporaryDirectory(prefix="tfperf-") as folder:
        local = Path(folder, "output")
        with local.open("xb") as file:
            yield file
        send(local, path)


def send(local: Path, path: RemotePath) -> None:
    """Send a file to an address, replacing an existing one; raise OutputError."""
    files = _ready_for(path)
    call(path, partial(files.put_file, str(local), path.url), writing_failed)


def send_files(contents: Mapping[RemotePath, bytes]) -> None:
    """Send files to one folder. On failure, remove those that did not exist before. Raise OutputError."""
    first = next(iter(contents))
    files, before, sent = _ready_for(first), _files_beside(first), []
    try:
        for path, data in contents.items():
            call(path, partial(files.pipe_file, path.url, data), writing_failed)
            sent.append(path)
    except BaseException:
        for path in sent:
            if path.name not in before:
                with contextlib.suppress(Exception):
                    files.rm_file(path.url)
        raise


def _ready_for(path: RemotePath) -> Any:
    """Return the file system of an address, after creating the folder if it is required."""
    refuse_unwritable(path)
    files = file_system(path)
    if path.scheme.needs_folders:
        call(path, partial(files.makedirs, path.parent.url, exist_ok=True), writing_failed)
    return files
