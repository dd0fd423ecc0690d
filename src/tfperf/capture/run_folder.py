"""Run folders: names, agreement on a name by a marker file between the processes of a job, and writing traces."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import DecodeError, Struct, ValidationError, json
from msgspec.structs import replace

from tfperf.base.errors import CaptureError, TfperfError
from tfperf.base.files import temporary_beside
from tfperf.capture.machine import ClusterTask, this_task
from tfperf.formats.wire.trace_file import SUFFIX

if TYPE_CHECKING:
    from tfperf.formats.wire.contents import Contents


class RunName(Struct, frozen=True):
    """The name of a run folder: `given`, or agreed on by processes with the same `key`, or the time."""

    given: str = ""
    key: str = ""


_NOT_IN_FILE_NAMES = re.compile(r"^\.+|[^\w.+@-]+", re.ASCII)
_URL = re.compile(r"\w[\w+.-]+:/")
"""The start of gs://bucket, which Path shortens to gs:/bucket. A single letter is a Windows drive."""
_MAX_SAME_NAMES = 10_000
_TRIES = 20


def local_folder(logdir: str | Path) -> Path:
    """Return the logdir as an absolute path; raises CaptureError `not_written` if no trace can be written there."""
    if _URL.match(str(logdir)):
        raise CaptureError(
            "not_written", f"{logdir} is not a local folder; capture to a local folder, and copy it there"
        )
    folder = Path(logdir).expanduser().absolute()
    with _reported(folder):
        existing = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        if not existing.is_dir():
            raise CaptureError("not_written", f"{existing} is a file; pass a folder for the traces")
    try:
        with tempfile.TemporaryFile(dir=existing):
            return folder
    except OSError as error:
        place = f"{folder}" if existing == folder else f"{folder} (in {existing})"
        problem = f"cannot write to {place}: {error.strerror or error}"
        raise CaptureError("not_written", f"{problem}; choose another logdir") from error


class RunFolder:
    """The folder of a session, created with its first trace, or joined if it has a shared name; thread-safe."""

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
        """The current or future path of the folder (the name changes if another process creates it first)."""
        return self._path or self._logdir / "plugins" / "profile" / self.name

    def save(self, host: str, data: bytes) -> tuple[Path | None, Contents]:
        """Write the trace of a host and check that it is complete; return its path and contents.

        A trace without events is not kept (None). Raises TraceFormatError if the data is not an XSpace (no file is
        left), CaptureError `not_written` if it cannot be written.
        """
        return self._store(host, lambda temporary: temporary.write_bytes(data))

    def adopt(
        self, host: str, file: Path, addition: Callable[[Contents], bytes] = lambda _: b""
    ) -> tuple[Path | None, Contents]:
        """Move an existing trace file into the folder; checks and errors are those of `save`.

        The result of `addition` is appended to the trace: serialized fields of an XSpace, such as another plane.
        """
        return self._store(host, partial(shutil.move, file), addition)

    def scratch(self) -> Path:
        """Create an empty folder on the file system of the run, for `adopt`; raises CaptureError `not_written`."""
        folder = self._logdir / f".tfperf-{os.getpid()}-{time.monotonic_ns()}"
        with _reported(folder):
            with self._lock:
                self._make_parents(folder)
            folder.mkdir(0o700)
        return folder

    def make(self) -> Path:
        """Create the folder, unless it exists or is joined; raises CaptureError `not_written`."""
        with self._lock, _reported(self.path):
            if self._path is None:
                self._make_parents(self.path)
                if self._run.given:
                    self._is_made_here = not self.path.exists()
                    self._path = self.path
                elif self._run.key:
                    self._path = agreed_run(self.path.parent, self._run.key, self._make_own)
                else:
                    self._path = self._make_own()
                self.name = self._path.name
            self._path.mkdir(parents=True, exist_ok=True)
            return self._path

    def _make_own(self) -> Path:
        self._is_made_here = True
        return _first_free(_numbered(self.path, ""), lambda folder: folder.mkdir())

    def drop_if_empty(self) -> None:
        """Remove the empty folders that this object created."""
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
            self._writers += 1  # Meanwhile, a thread that fails must not remove the folder.
        try:
            with contextlib.ExitStack() as stack:
                target, temporary = self._make_room(stack, file_name(host))
                stack.enter_context(_reported(target))
                put(temporary)
                # Check before the addition, which could hide a missing end.
                contents = look_into(temporary)
                added = addition(contents)
                with temporary.open("ab") as file:
                    file.write(added)
                contents = replace(contents, size_bytes=contents.size_bytes + len(added))
                if not contents.event_count:
                    return None, contents
                # If the name is taken, add the process id, which identifies the owner.
                own = target.with_name(f"{target.name.removesuffix(SUFFIX)}_{os.getpid()}{SUFFIX}")
                return _first_free(chain([target], _numbered(own, SUFFIX)), partial(_move, temporary)), contents
        finally:
            with self._lock:
                self._writers -= 1
            self.drop_if_empty()

    def _make_room(self, stack: contextlib.ExitStack, name: str) -> tuple[Path, Path]:
        """Return a file's path and an existing temporary file; retry if other processes remove the empty folder."""
        for _ in range(_TRIES):
            target = self.make() / name
            temporary = stack.enter_context(temporary_beside(target))
            with _reported(target), contextlib.suppress(FileNotFoundError):
                temporary.touch(exist_ok=False)
                return target, temporary
        raise CaptureError(
            "not_written", f"{self.path} is repeatedly deleted by another process; choose another logdir"
        )

    def _make_parents(self, folder: Path) -> None:
        made = [parent for parent in folder.parents if not parent.exists()]
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._made_parents = made + self._made_parents


@contextlib.contextmanager
def _reported(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"cannot write {error.filename or place}: {error.strerror or error}"
        raise CaptureError("not_written", f"{problem}; choose another logdir") from error


def _move(temporary: Path, place: Path) -> None:
    """Rename the file; raises FileExistsError if the name is taken."""
    try:
        os.link(temporary, place)
    except FileExistsError:
        raise
    except OSError:  # A file system without hard links.
        if place.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(place)) from None
        temporary.rename(place)


def file_name(host: str) -> str:
    """Return the name of the trace file of a host."""
    return f"{_NOT_IN_FILE_NAMES.sub('_', host)[:200] or 'host'}{SUFFIX}"


def _numbered(wanted: Path, suffix: str) -> Iterator[Path]:
    """Yield the path, then the path with _1, _2, ... before its suffix."""
    name = wanted.name.removesuffix(suffix)
    for number in range(_MAX_SAME_NAMES):
        yield wanted.with_name(f"{name}_{number}{suffix}") if number else wanted


def _first_free(places: Iterator[Path], make: Callable[[Path], object]) -> Path:
    for place in places:
        with contextlib.suppress(FileExistsError):
            make(place)
            return place
    raise FileExistsError(errno.EEXIST, "too many similar names already exist", str(place))


RUN_VARIABLE = "TFPERF_RUN"


class ProfileCount:
    """Counts the profiles of a process, so that processes of a job can match theirs by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_moment: Counter[str] = Counter()
        self._by_name: Counter[str] = Counter()

    def next_name(
        self,
        run: str | None,
        moment: str = "",
        environment: Mapping[str, str] = os.environ,
        task: ClusterTask | None = None,
    ) -> RunName:
        """Return the name of the next profile.

        `run` is the caller's name, by default TFPERF_RUN, with _2, _3, ... for later profiles of the process. `moment`
        is equal in all processes of the job (`step 10`). Raises TfperfError for an invalid name.
        """
        if run is not None:
            return RunName(given=check_run_name(run))
        named = environment.get(RUN_VARIABLE)
        with self._lock:
            counter, what = (self._by_name, named) if named else (self._by_moment, moment)
            counter[what] += 1
            number = counter[what]
        if named:
            return RunName(given=check_run_name(named, RUN_VARIABLE) + (f"_{number}" if number > 1 else ""))
        task = task or this_task(environment)
        if task is None or not task.cluster_id or task.cluster_size == 1:
            return RunName()
        text = f"{task.cluster_id} {moment} {number}"
        return RunName(key=hashlib.sha256(text.encode()).hexdigest()[:16])


profile_count = ProfileCount()
_PREFIX = ".tfperf-"
_MOST_APART_S = 300.0
"""Maximum time between the first and the last process."""
_NAMING_S = 5.0
"""Maximum time for the first process to create a folder and write its name."""
_POLL_S = 0.02
_KEPT_S = 3600.0
"""Lifetime of a marker, with a large margin."""
_LONGEST_NAME = 200
_NOT_IN_NAMES = ("/", "\\", ":", "\0", "\n")


class _Marker(Struct, frozen=True):
    """Contents of the marker file: the name of the run and its creation time, in seconds since 1970."""

    run: str
    time_s: float


def agreed_run(runs: Path, key: str, make: Callable[[], Path]) -> Path:
    """Return the run folder shared by processes with this key; the first of them creates it with `make`.

    Markers of earlier executions are ignored: those older than this process, or than five minutes. Raises OSError.
    """
    numbers = (file.name.rpartition(".")[2] for file in runs.glob(f"{_PREFIX}{key}.*"))
    newest = max((int(number) for number in numbers if number.isascii() and number.isdigit()), default=0)
    for number in count(newest):
        marker = runs / f"{_PREFIX}{key}.{number}"
        try:
            file = marker.open("xb")
        except FileExistsError:
            named = _read(marker)
            started_s = process_start_s()
            if (
                named is not None
                and abs(time.time() - named.time_s) < _MOST_APART_S
                and (started_s is None or named.time_s >= started_s)
            ):
                return runs / named.run
        else:
            with contextlib.suppress(OSError):
                for other in runs.glob(f"{_PREFIX}*.*"):
                    with contextlib.suppress(OSError):
                        if other.is_file() and time.time() - other.stat().st_mtime > _KEPT_S:
                            other.unlink()
            return _named_in(file, make)
    raise AssertionError("the numbers never end")


def check_run_name(name: str, origin: str = "run") -> str:
    """Return the name if it is valid for a run folder; raises TfperfError."""
    is_plain = name.isprintable() and not any(letter in name for letter in _NOT_IN_NAMES)
    if not is_plain or not name.strip() or name.startswith(".") or len(name.encode()) > _LONGEST_NAME:
        problem = f"{origin} {name[:_LONGEST_NAME]!r} is not a valid folder name"
        raise TfperfError(f"{problem}; use letters, digits, - and _, at most {_LONGEST_NAME}")
    return name


def _named_in(marker: BinaryIO, make: Callable[[], Path]) -> Path:
    """Create the folder and write its name into the marker; on failure remove the marker for the next process."""
    try:
        with marker:
            folder = make()
            marker.write(json.encode(_Marker(folder.name, time.time())) + b"\n")
    except BaseException:
        with contextlib.suppress(OSError):
            Path(marker.name).unlink()
        raise
    return folder


def _read(marker: Path) -> _Marker | None:
    """Return the contents of a marker; None if its writer has not finished."""
    until_s = time.monotonic() + _NAMING_S
    while True:
        with contextlib.suppress(FileNotFoundError):
            data = marker.read_bytes()
            if data.endswith(b"\n"):
                try:
                    named = json.decode(data, type=_Marker)
                    check_run_name(named.run)
                except (DecodeError, ValidationError, TfperfError):
                    return None
                return named
            if time.time() - marker.stat().st_mtime > _NAMING_S:
                return None
        if time.monotonic() > until_s:
            return None
        time.sleep(_POLL_S)


def process_start_s() -> float | None:
    """Return the start time of this process, in seconds since 1970; None if the system does not report it."""
    try:
        fields = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return time.time() - age_s if age_s >= 0 else None
