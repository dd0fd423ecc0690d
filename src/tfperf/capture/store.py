"""Where a captured trace goes: LOGDIR/plugins/profile/<time>/<host>.xplane.pb, whole or not at all.

Nothing is replaced, ever: a run gets a folder of its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfperf.errors import CaptureError
from tfperf.wire.trace_file import SUFFIX

if TYPE_CHECKING:
    from tfperf.wire.contents import Contents

_NO_FILE_NAME = re.compile(r"^\.+|[^\w.+@-]+", re.ASCII)
_URL = re.compile(r"\w[\w+.-]+:/")
"""The begin of gs://bucket, of which Path leaves gs:/bucket. One letter is a drive of Windows."""


def local_folder(logdir: str | Path) -> Path:
    """Return the logdir as an absolute path; raise CaptureError if it cannot be one, or not be written to."""
    if _URL.match(str(logdir)):
        raise CaptureError("not_written", f"{logdir} is not a local folder; capture to one and copy it there")
    folder = Path(logdir).expanduser().absolute()
    try:
        existing = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    except OSError as error:
        raise _not_written(folder, error) from error
    if not existing.is_dir():
        raise CaptureError("not_written", f"{existing} is a file, so no trace can be written below it; name a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise CaptureError("not_written", f"no permission to write in {existing}; name another logdir")
    return folder


class RunFolder:
    """The folder of one profiling session; made when the first trace is there."""

    def __init__(self, logdir: str | Path) -> None:
        self._logdir = local_folder(logdir)
        self._lock = threading.Lock()
        self.name = time.strftime("%Y_%m_%d_%H_%M_%S")
        self._path: Path | None = None
        self._writers = 0
        self._parents: list[Path] = []
        """Folders above that were made here, the deepest first."""

    @property
    def path(self) -> Path:
        """Where the folder is or will be (another name is taken if somebody else makes it first)."""
        return self._path or self._logdir / "plugins" / "profile" / self.name

    def save(self, host: str, data: bytes | memoryview) -> tuple[Path | None, Contents]:
        """Write the trace of a host and check that it is whole; return where, and what it holds.

        A trace without a single event is not kept (None). Raises TraceFormatError if it is not an XSpace (nothing is
        left then), CaptureError if it cannot be written.
        """

        def write(temporary: Path) -> None:
            with temporary.open("xb") as file:
                file.write(data)

        return self._settle(host, write)

    def adopt(self, host: str, file: Path) -> tuple[Path | None, Contents]:
        """Move a trace file that somebody else wrote into the folder, as `save` would have written it."""
        return self._settle(host, partial(shutil.move, file))

    def scratch(self) -> Path:
        """Make an empty folder on the same file system, for somebody who writes files to `adopt`.

        Raises CaptureError if it cannot be made: that no trace can be written is better known before it is taken.
        """
        folder = self._logdir / f".tfperf-{os.getpid()}-{time.monotonic_ns()}"
        try:
            with self._lock:
                self._make_parents(folder)
            folder.mkdir(0o700)
        except OSError as error:
            raise _not_written(folder, error) from error
        return folder

    def _settle(self, host: str, put: Callable[[Path], object]) -> tuple[Path | None, Contents]:
        from tfperf.wire.contents import look_into

        try:
            with self._kept_for_writing() as folder:
                target = folder / f"{_NO_FILE_NAME.sub('_', host)[:200] or 'host'}{SUFFIX}"
                temporary = folder / f".{target.name}.{os.getpid()}-{time.monotonic_ns()}.tmp"
                try:
                    put(temporary)
                    contents = look_into(temporary)
                    return _move(temporary, target) if contents.event_count else None, contents
                finally:
                    with contextlib.suppress(OSError):
                        temporary.unlink()
        except OSError as error:
            raise _not_written(self.path, error) from error

    @contextlib.contextmanager
    def _kept_for_writing(self) -> Iterator[Path]:
        """Lend the folder; no thread that fails removes it while another is about to write."""
        with self._lock:
            self._writers += 1
        try:
            yield self.make()
        finally:
            with self._lock:
                self._writers -= 1
            self.drop_if_empty()

    def make(self) -> Path:
        """Make the folder, under a name that nobody has, unless it is there; raises CaptureError if it cannot be."""
        with self._lock:
            try:
                if self._path is None:
                    self._make_parents(self.path)
                    self._path = self._make_own()
                    self.name = self._path.name
                self._path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _not_written(self.path, error) from error
            return self._path

    def _make_parents(self, folder: Path) -> None:
        made = [parent for parent in folder.parents if not parent.exists()]
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._parents = made + self._parents

    def _make_own(self) -> Path:
        wanted = self.path
        for number in range(1, 10_000):
            with contextlib.suppress(FileExistsError):
                wanted.mkdir()
                return wanted
            wanted = wanted.with_name(f"{self.name}_{number}")
        raise FileExistsError(errno.EEXIST, "too many runs of that name", str(wanted))

    def drop_if_empty(self) -> None:
        """Leave no empty folders behind that were made here."""
        with self._lock, contextlib.suppress(OSError):
            if not self._writers:
                for folder in (*([self._path] if self._path else []), *self._parents):
                    with contextlib.suppress(FileNotFoundError):
                        folder.rmdir()


def _not_written(place: Path, error: OSError) -> CaptureError:
    return CaptureError(
        "not_written", f"cannot write {error.filename or place}: {error.strerror or error}; name another logdir"
    )


def _move(temporary: Path, target: Path) -> Path:
    """Give the file its name, or a free one beside it."""
    name = target.name.removesuffix(SUFFIX)
    for number in range(1, 10_000):
        try:
            os.link(temporary, target)
            return target
        except FileExistsError:
            target = target.with_name(f"{name}_{number}{SUFFIX}")
        except OSError:
            # A file system without hard links.
            if not target.exists():
                return temporary.rename(target)
            target = target.with_name(f"{name}_{number}{SUFFIX}")
    raise FileExistsError(errno.EEXIST, "too many files of that name", str(target))
