"""The file to write: in one piece or not at all, and never over another without being told so."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from tfperf.errors import OutputError
from tfperf.files import temporary_beside

Format = Literal["perfetto", "json", "json.gz"]

SUFFIXES: dict[str, Format] = {
    ".pftrace": "perfetto",
    ".perfetto-trace": "perfetto",
    ".json": "json",
    ".json.gz": "json.gz",
}


def format_of(path: Path) -> Format | None:
    """Return the format that the name of a file asks for; None if it asks for none."""
    return next((form for suffix, form in SUFFIXES.items() if path.name.endswith(suffix)), None)


@contextlib.contextmanager
def new_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Open a file that takes its place when all is written; what was there goes only with `force`.

    Raises OutputError.
    """
    if path.is_dir():
        raise OutputError(f"{path} is a folder; name a file")
    if path.is_file() and not force:
        raise OutputError(f"{path} exists; pass --force to replace it")
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                yield device
            return
        target = Path(os.path.realpath(path))
        with temporary_beside(target) as temporary:
            with temporary.open("xb") as file:
                yield file
            temporary.replace(target)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise OutputError(f"cannot write {path}: {path.parent} does not exist; make it first") from error
        raise OutputError(f"cannot write {path}: {error.strerror or error}; choose another place") from error
