"""The file to write: whole or not at all, and never over another without `force`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from tfperf.errors import OutputError
from tfperf.files import temporary_beside

TimelineFormat = Literal["perfetto", "json", "json.gz"]

FORMATS: dict[str, TimelineFormat] = {
    ".pftrace": "perfetto",
    ".perfetto-trace": "perfetto",
    ".json": "json",
    ".json.gz": "json.gz",
}
"""The format of each suffix."""


def format_of(path: Path) -> TimelineFormat | None:
    """Return the format that the name of a file asks for; None if it asks for none."""
    return next((form for suffix, form in FORMATS.items() if path.name.endswith(suffix)), None)


@contextlib.contextmanager
def open_new_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Open a file that takes its place when all is written; an existing one is replaced only with `force`.

    Raises OutputError.
    """
    if path.is_dir():
        raise OutputError(f"{path} is a folder; name a file")
    if path.is_file() and not force:
        raise OutputError(f"{path} exists; pass --force to replace it")
    try:
        if path.exists() and not path.is_file():
            # A device or a named pipe is written to, not replaced.
            with path.open("wb") as device:
                yield device
            return
        target = Path(os.path.realpath(path))
        with temporary_beside(target) as temporary:
            with temporary.open("xb") as file:
                yield file
            temporary.replace(target)
    except FileNotFoundError as error:
        raise OutputError(f"cannot write {path}: {path.parent} does not exist; create it first") from error
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}; choose another place") from error
