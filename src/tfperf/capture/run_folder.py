"""Where a trace goes: LOGDIR/plugins/profile/<run>/<host>.xplane.pb, whole or not at all. Nothing is replaced."""

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

from tfperf.base.errors import CaptureError
from tfperf.base.files import temporary_beside
from tfperf.capture.run_agreement import agreed_run
from tfperf.capture.run_name import RunName
from tfperf.formats.wire.trace_file import SUFFIX

if TYPE_CHECKING:
    from tfperf.formats.wire.contents import Contents

_NOT_IN_FILE_NAMES = re.compile(r"^\.+|[^\w.+@-]+", re.ASCII)
_URL = re.compile(r"\w[\w+.-]+:/")
"""The start of gs://bucket, which Path shortens to gs:/bucket. A single letter is a drive of Windows."""
_MAX_SAME_NAMES = 10_000
_TRIES = 20


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
    """The folder of one profiling session, made when its first trace is there. Threads may save at the same time.

    A folder whose name was given or agreed on is shared with other processes: it is joined if it exists.
    """

    def __init__(self, logdir: str | Path, run: RunName = RunName()) -> None:  # noqa: B008 - it is immutable
        self._logdir, self._run = local_folder(logdir), run
        self._lock = threading.Lock()
        self.name = run.given or time.strftime("%Y_%m_%d_%H_%M_%S")
        self._path: Path | None = None
        self._is_made_here = False
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
        """Make the folder, unless it exists or is joined; raises CaptureError `not_written`."""
        with self._lock, _reported(self.path):
            if self._path is None:
                self._make_parents(self.path)
                self._path = self._join_or_make()
                self.name = self._path.name
            self._path.mkdir(parents=True, exist_ok=True)
            return self._path

    def _join_or_make(self) -> Path:
        if self._run.given:
            self._is_made_here = not self.path.exists()
            return self.path
        if self._run.key:
            return agreed_run(self.path.parent, self._run.key, self._make_own)
        return self._make_own()

    def _make_own(self) -> Path:
        self._is_made_here = True
        return _first_free(_numbered(self.path, ""), lambda folder: folder.mkdir())

    def drop_if_empty(self) -> None:
        """Remove the empty folders that were made here."""
        with self._lock, contextlib.suppress(OSError):
            if not self._writers:
                made = [self._path] if self._path and self._is_made_here else []
                for folder in (*made, *self._made_parents):
                    with contextlib.suppress(FileNotFoundError):
                        folder.rmdir()

    def _store(
        self, host: str, put: Callable[[Path], object], addition: Callable[[Contents], bytes] = lambda _: b""
    ) -> tuple[Path | None, Contents]:
        from tfperf.formats.wire.contents import look_into

        with self._lock:
            self._writers += 1  # Meanwhile, no thread that fails removes the folder.
        try:
            with contextlib.ExitStack() as stack:
                target, temporary = self._make_room(stack, file_name(host))
                stack.enter_context(_reported(target))
                put(temporary)
                # Before anything is added, which could hide that the end is missing.
                contents = look_into(temporary)
                added = addition(contents)
                with temporary.open("ab") as file:
                    file.write(added)
                contents = replace(contents, size_bytes=contents.size_bytes + len(added))
                move = partial(_move, temporary)
                return _first_free(_of_process(target), move) if contents.event_count else None, contents
        finally:
            with self._lock:
                self._writers -= 1
            self.drop_if_empty()

    def _make_room(self, stack: contextlib.ExitStack, name: str) -> tuple[Path, Path]:
        """Return the place of a file and that of a temporary one, which is there and is removed with the stack.

        Other processes that share the folder may remove it while it is empty.
        """
        for _ in range(_TRIES):
            target = self.make() / name
            temporary = stack.enter_context(temporary_beside(target))
            with _reported(target), contextlib.suppress(FileNotFoundError):
                temporary.touch(exist_ok=False)
                return target, temporary
        raise CaptureError("not_written", f"{self.path} is removed again and again; name another logdir")

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


def file_name(host: str) -> str:
    """Return what the file of a host is called."""
    return f"{_NOT_IN_FILE_NAMES.sub('_', host)[:200] or 'host'}{SUFFIX}"


def _numbered(wanted: Path, suffix: str) -> Iterator[Path]:
    """Iterate over a path and those with _1, _2, ... before its suffix."""
    name = wanted.name.removesuffix(suffix)
    for number in range(_MAX_SAME_NAMES):
        yield wanted.with_name(f"{name}_{number}{suffix}") if number else wanted


def _of_process(wanted: Path) -> Iterator[Path]:
    """Iterate over the path of a trace, and those with the number of this process, which tells whose it is."""
    yield wanted
    yield from _numbered(wanted.with_name(f"{wanted.name.removesuffix(SUFFIX)}_{os.getpid()}{SUFFIX}"), SUFFIX)


def _first_free(places: Iterator[Path], make: Callable[[Path], object]) -> Path:
    """Make something at the first of these places where nothing is; return where."""
    for place in places:
        with contextlib.suppress(FileExistsError):
            make(place)
            return place
    raise FileExistsError(errno.EEXIST, "too many names like this one are taken", str(place))
