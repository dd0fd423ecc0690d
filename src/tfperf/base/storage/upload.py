"""Files that are written to another machine: sent when they are whole, so that nobody sees half of one."""

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
    """Return what is at each address; None for nothing. Raises OutputError if the service does not say.

    Several addresses are in one folder.
    """
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
    """Return the names of the files in the folder of an address."""
    folder = path.parent
    names = call(path, partial(file_system(folder).find, folder.url, maxdepth=1), writing_failed)
    return {str(name).rpartition("/")[2] for name in names}


def refuse_unwritable(path: RemotePath) -> None:
    """Raise OutputError for an address of a kind that can only be read."""
    if not path.scheme.is_writable:
        raise OutputError(
            f"cannot write {path}: files of a web server can only be read; name a file, or s3:// or gs://"
        )


@contextlib.contextmanager
def new_remote_file(path: RemotePath) -> Iterator[BinaryIO]:
    """Open a file of this machine that is sent to an address when all is written; raises OutputError.

    A service shows a file when all of it has come. If the work fails before, nothing is sent.
    """
    refuse_unwritable(path)
    with tempfile.TemporaryDirectory(prefix="tfperf-") as folder:
        local = Path(folder, "output")
        with local.open("xb") as file:
            yield file
        send(local, path)


def send(local: Path, path: RemotePath) -> None:
    """Send a whole file to an address, in place of one that is there; raises OutputError."""
    files = _ready_for(path)
    call(path, partial(files.put_file, str(local), path.url), writing_failed)


def send_files(contents: Mapping[RemotePath, bytes]) -> None:
    """Send files into one folder: all of them, or none that was not there before; raises OutputError."""
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
    """Return the file system that a file is written to, with the folder that it needs."""
    refuse_unwritable(path)
    files = file_system(path)
    if path.scheme.needs_folders:
        call(path, partial(files.makedirs, path.parent.url, exist_ok=True), writing_failed)
    return files
