"""Where a trace goes: LOGDIR/plugins/profile/<time>/<host>.xplane.pb, whole or not at all. Nothing is replaced."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.errors import CaptureError
from tfperf.files import temporary_beside
from tfperf.wire.trace_file import SUFFIX

if TYPE_CHECKING:
    from tfperf.wire.contents import Contents

_NOT_IN_FILE_NAMES = re.compile(r"^\.+|[^\w.+@-]+", re.ASCII)
_URL = re.compile(r"\w[\w+.-]+:/")
"""The start of gs://bucket, which Path shortens to gs:/bucket. A single letter is a drive of Windows."""
_MAX_SAME_NAMES = 10_000


def local_folder(logdir: str | Path) -> Path:
    """Return the logdir as an absolute path; raises CaptureError `not_written` if no trace can be written there."""
    if _URL.match(str(logdir)):
        raise CaptureError("not_written", f"{logdir} is not a local folder; capture to one and copy it there")
    folder = Path(logdir).expanduser().absolute()
    with _reported(folder):
        existing = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        if not existing.is_dir():
            raise CaptureError("not_written", f"{existing} is a file; name a folder for the traces")
    try:
        with tempfile.TemporaryFile(dir=existing):
            return folder
    except OSError as error:
        place = f"{folder}" if existing == folder else f"{folder} (in {existing})"
        problem = f"cannot write to {place}: {error.strerror or error}"
        raise CaptureError("not_written", f"{problem}; name another logdir") from error


class RunFolder:
    """The folder of one profiling session, made when its first trace is there. Threads may save at the same time."""

    def __init__(self, logdir: str | Path) -> None:
        self._logdir = local_folder(logdir)
        self._lock = threading.Lock()
        self.name = time.strftime("%Y_%m_%d_%H_%M_%S")
        self._path: Path | None = None
        self._writers = 0
        self._made_parents: list[Path] = []
        """The deepest first."""

    @property
    def path(self) -> Path:
        """Where the folder is or will be (it gets another name if somebody else makes it first)."""
        return self._path or self._logdir / "plugins" / "profile" / self.name

    def save(self, host: str, data: bytes) -> tuple[Path | None, Contents]:
        """Write the trace of a host and check that it is whole; return its path and what it holds.

        A trace without events is not kept (None). Raises TraceFormatError if the data is not an XSpace (then nothing is
        left), CaptureError `not_written` if it cannot be written.
        """
        return self._store(host, lambda temporary: temporary.write_bytes(data))

    def adopt(
        self, host: str, file: Path, addition: Callable[[Contents], bytes] = lambda _: b""
    ) -> tuple[Path | None, Contents]:
        """Move a trace file that somebody else wrote into the folder; checks and errors are those of `save`.

        What `addition` returns is put behind the trace: serialized fields of an XSpace, such as one more plane.
        """
        return self._store(host, partial(shutil.move, file), addition)

    def scratch(self) -> Path:
        """Make an empty folder on the same file system, for somebody who writes files to `adopt`.

        Raises CaptureError `not_written` if it cannot be made: better before the trace is taken than after.
        """
        folder = self._logdir / f".tfperf-{os.getpid()}-{time.monotonic_ns()}"
        with _reported(folder):
            with self._lock:
                self._make_parents(folder)
            folder.mkdir(0o700)
        return folder

    def make(self) -> Path:
        """Make the folder under a free name, unless it exists; raises CaptureError `not_written`."""
        with self._lock, _reported(self.path):
            if self._path is None:
                self._make_parents(self.path)
                self._path = _first_free(self.path, "", lambda folder: folder.mkdir())
                self.name = self._path.name
            self._path.mkdir(parents=True, exist_ok=True)
            return self._path

    def drop_if_empty(self) -> None:
        """Remove the empty folders that were made here."""
        with self._lock, contextlib.suppress(OSError):
            if not self._writers:
                for folder in (*([self._path] if self._path else []), *self._made_parents):
                    with contextlib.suppress(FileNotFoundError):
                        folder.rmdir()

    def _store(
        self, host: str, put: Callable[[Path], object], addition: Callable[[Contents], bytes] = lambda _: b""
    ) -> tuple[Path | None, Contents]:
        from tfperf.wire.contents import look_into

        with self._lock:
            self._writers += 1  # Meanwhile, no thread that fails removes the folder.
        try:
            target = self.make() / f"{_NOT_IN_FILE_NAMES.sub('_', host)[:200] or 'host'}{SUFFIX}"
            with _reported(target), temporary_beside(target) as temporary:
                put(temporary)
                # Before anything is added, which could hide that the end is missing.
                contents = look_into(temporary)
                added = addition(contents)
                with temporary.open("ab") as file:
                    file.write(added)
                contents = replace(contents, size_bytes=contents.size_bytes + len(added))
                move = partial(_move, temporary)
                return _first_free(target, SUFFIX, move) if contents.event_count else None, contents
        finally:
            with self._lock:
                self._writers -= 1
            self.drop_if_empty()

    def _make_parents(self, folder: Path) -> None:
        made = [parent for parent in folder.parents if not parent.exists()]
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._made_parents = made + self._made_parents


@contextlib.contextmanager
def _reported(place: Path) -> Iterator[None]:
    """Make an OSError the CaptureError `not_written`."""
    try:
        yield
    except OSError as error:
        problem = f"cannot write {error.filename or place}: {error.strerror or error}"
        raise CaptureError("not_written", f"{problem}; name another logdir") from error


def _move(temporary: Path, place: Path) -> None:
    """Give the file this name; raises FileExistsError if it is taken."""
    try:
        os.link(temporary, place)
    except FileExistsError:
        raise
    except OSError:  # A file system without hard links.
        if place.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(place)) from None
        temporary.rename(place)


def _first_free(wanted: Path, suffix: str, make: Callable[[Path], object]) -> Path:
    """Make something at the wanted path, or with _1, _2, ... before the suffix where that is taken; return where."""
    name = wanted.name.removesuffix(suffix)
    for number in range(_MAX_SAME_NAMES):
        place = wanted.with_name(f"{name}_{number}{suffix}") if number else wanted
        with contextlib.suppress(FileExistsError):
            make(place)
            return place
    raise FileExistsError(errno.EEXIST, "too many names like this one are taken", str(wanted))
