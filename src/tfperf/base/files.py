"""Files and folders that are written completely or not at all.

A file is written next to its destination, then moved there. A folder is filled in a work folder next to its
destination:

    PARENT/.tfperf/NAME/lock    locked by the process that writes PARENT/NAME; contains its identity
    PARENT/.tfperf/NAME/new     the new content
    PARENT/.tfperf/NAME/old     the replaced content: moved here by the first of two renames, removed after the second

The system releases the lock of a process that ends, however it ends. The next process that writes into PARENT then
removes `new`, and moves `old` back if PARENT/NAME is missing. It ignores folders without a lock file or with a locked
one.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import stat
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from tfperf.base.errors import OutputError, TfperfWarning
from tfperf.base.storage.remote_path import SCHEMES, Location, RemotePath

TRACE_SUFFIX = ".xplane.pb"
TRACE_SUFFIXES = (TRACE_SUFFIX, f"{TRACE_SUFFIX}.gz")
"""Suffixes of trace files. A trace is never replaced, because it cannot be recorded again."""

WORK = ".tfperf"
"""Folder for unfinished work, next to the destination."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
_COPY = {
    "s3": "aws s3 cp{recursive} {url} {to}",
    "gs": "gcloud storage cp{recursive} {url} {to}",
    "hdfs": "hdfs dfs -get {url} {to}",
    "http": "curl --remote-name {url}",
    "https": "curl --remote-name {url}",
}
"""Copy commands of the storage providers' own tools."""
_NAMED_FILES = 5
_NOT_HERE = "only local files can be written; write a local file, then upload it with the tool of that storage"
_TRIES = 20
_LONGEST_OWNER = 200
_NAMING_S, _POLL_S = 1.0, 0.02


@contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """Yield an unused path next to `target`; remove the file at that path on exit if it still exists."""
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}-{time.monotonic_ns()}.tmp")
    try:
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink()


def _open_next_to(target: Path, stack: ExitStack) -> tuple[Path, BinaryIO]:
    """Open a file next to `target` that will replace it; `stack` closes and removes it. Raise OSError.

    The file gets the owner, group and permissions of the replaced file before any data. If this user cannot set the
    group, the group gets no permissions.
    """
    temporary = stack.enter_context(temporary_beside(target))
    file = stack.enter_context(temporary.open("xb"))
    if os.name == "posix" and target.exists():
        before = target.stat()
        mode = stat.S_IMODE(before.st_mode) & 0o777
        now = os.fstat(file.fileno())
        if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
            try:
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
            except PermissionError:
                mode &= ~0o070
        os.fchmod(file.fileno(), mode)
    return temporary, file


@contextmanager
def _replacement(target: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `target` in one move once it is complete; raise OSError."""
    with ExitStack() as stack:
        temporary, file = _open_next_to(target, stack)
        yield file
        file.close()
        temporary.replace(target)


@contextmanager
def new_files(targets: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Open files that replace their targets once all are complete; signals wait for the moves. Raise OutputError."""
    with ExitStack() as stack:
        opened = []
        for target in targets:
            try:
                opened.append(_open_next_to(Path(os.path.realpath(target)), stack))
            except OSError as error:
                raise cannot_write(target, error) from error
        yield [file for _, file in opened]
        for target, (_, file) in zip(targets, opened, strict=True):
            try:
                file.close()
            except OSError as error:
                raise cannot_write(target, error) from error
        moves = [(temporary, target) for target, (temporary, _) in zip(targets, opened, strict=True)]
        try:
            _move(moves)
        finally:
            _move(moves)  # finishes after a signal


def _move(moves: list[tuple[Path, Path]]) -> None:
    """Move files to their destinations, removing each from the list."""
    while moves:
        temporary, target = moves[0]
        if temporary.exists():
            try:
                temporary.replace(os.path.realpath(target))
            except OSError as error:
                raise cannot_write(target, error) from error
        del moves[0]


def replace_file(target: Path, data: bytes) -> None:
    """Write a file in one move, replacing an existing one; raise OSError."""
    with _replacement(target) as file:
        file.write(data)


@contextmanager
def new_file(path: Location) -> Iterator[BinaryIO]:
    """Open a file that replaces its target once complete, or a device or named pipe in place; raise OutputError."""
    if isinstance(path, RemotePath):
        from tfperf.base.storage.upload import new_remote_file  # imported only for remote files

        with new_remote_file(path) as file:
            yield file
        return
    try:
        is_file = path.is_file() or not path.exists()
        with _replacement(Path(os.path.realpath(path))) if is_file else path.open("wb") as file:
            yield file
    except OSError as error:
        raise cannot_write(path, error) from error


def write_files(files: Mapping[Location, bytes]) -> None:
    """Write all files or none: they are moved into place after all are written. Raise OutputError."""
    addresses = {target: data for target, data in files.items() if isinstance(target, RemotePath)}
    if addresses:
        from tfperf.base.storage.upload import send_files  # imported only for remote files

        send_files(addresses)
        return
    targets = [target for target in files if isinstance(target, Path)]
    with new_files(targets) as opened:
        for target, file in zip(targets, opened, strict=True):
            try:
                file.write(files[target])
                file.flush()
            except OSError as error:
                raise cannot_write(target, error) from error


def refuse_existing(targets: Sequence[Location], *, force: bool) -> None:
    """Raise OutputError if a target is a folder, a trace, or an existing file without `force`."""
    types = _types_of(targets)
    files = [target for target in targets if types[target] == "file"]
    folders = [target for target in targets if types[target] == "directory"]
    traces = [target for target in files if target.resolve().name.endswith(TRACE_SUFFIXES)]
    if traces:
        raise OutputError(f"{traces[0]} is a profile, and profiles are never overwritten; choose another file")
    if folders:
        raise OutputError(f"{', '.join(map(str, folders))} is a folder; pass a file")
    if len(files) == 1 and not force:
        raise OutputError(f"{files[0]} exists; pass --force to replace it")
    if files and not force:
        more = f" and {len(files) - _NAMED_FILES} more" * (len(files) > _NAMED_FILES)
        names = ", ".join(file.name for file in files[:_NAMED_FILES]) + more
        raise OutputError(f"{names} exist in {files[0].parent}; pass --force to replace them")


def _types_of(targets: Sequence[Location]) -> dict[Location, Literal["file", "directory"] | None]:
    """Return the type of each path, or None if it is missing or neither, such as a device."""
    addresses = [target for target in targets if isinstance(target, RemotePath)]
    types: dict[Location, Literal["file", "directory"] | None] = {}
    if addresses:
        from tfperf.base.storage.upload import types_of  # imported only for remote files

        types = dict(types_of(addresses).items())
    for target in targets:
        if isinstance(target, Path):
            try:
                types[target] = "directory" if target.is_dir() else "file" if target.is_file() else None
            except OSError as error:
                raise cannot_write(target, error) from error
    return types


def refuse_unwritable(target: Location) -> None:
    """Raise OutputError if creating a file next to `target` fails, the only sure test; addresses are not tested."""
    if isinstance(target, RemotePath):
        return
    try:
        if target.is_file() or not target.exists():
            with temporary_beside(Path(os.path.realpath(target))) as temporary:
                temporary.touch(exist_ok=False)
    except OSError as error:
        raise cannot_write(target, error) from error


def text_wanted(path: Path) -> str:
    """Return advice if a supported address was passed as a Path; empty otherwise."""
    url = _address(path)
    if url.partition(":")[0].lower() not in SCHEMES:
        return ""
    return f"{url} is an address, but pathlib.Path drops one of its slashes; pass a string or a tfperf.RemotePath"


def elsewhere(path: Location) -> str:
    """Return advice if a path is an address of another machine (`s3://bucket/logs`); empty otherwise."""
    url = _address(path) if isinstance(path, Path) else ""
    scheme = url.partition(":")[0]
    if not url:
        return ""
    if scheme == "file":
        return f"{url} is an address; pass the path without file://"
    if scheme not in _COPY:
        return f"{url} has the unknown scheme {scheme}; pass a local path"
    is_file = path.suffix in (".pb", ".json")
    recursive, to = ("", ".") if is_file else (" --recursive", "logs")
    copy = _COPY[scheme].format(url=shlex.quote(url), recursive=recursive, to=to)
    return f"{url} must be a local path; copy it first: {copy}"


def _address(path: Path) -> str:
    """Return the original address of a Path, which keeps only one slash of `://`."""
    address = _ADDRESS.match(path.as_posix())
    return "://".join(address.groups()) if address and not path.exists() else ""


def cannot_write(path: Location, error: OSError) -> OutputError:
    """Return an error with the reason why a file or folder cannot be written, and a fix."""
    reason = f"{error.strerror or error}; choose another path"
    if isinstance(error, FileNotFoundError) and isinstance(path, Path):
        reason = f"{path.parent} does not exist; create it first"
        if path.parent.is_dir():
            reason = f"cannot create files in {path.parent}; choose another path"
    if isinstance(error, PermissionError):
        reason = "permission denied; choose a writable path"
    return OutputError(f"cannot write {path}: {(elsewhere(path) and _NOT_HERE) or reason}")


if sys.platform != "win32":
    import fcntl


@contextmanager
def new_folder(place: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder that becomes `place` at the end of the block; create missing parents.

    With `force`, it replaces a folder. If the block or a rename fails, nothing changes. Raise OutputError, also while
    another process writes the same place.
    """
    with locked_place(place, place.parent) as work:
        try:
            yield work / "new"
            if force and place.exists():
                place.rename(work / "old")
            (work / "new").rename(place)
        except OSError as error:
            raise cannot_write(place, error) from error


@contextmanager
def locked_place(place: Path, parent: Path) -> Iterator[Path]:
    """Yield a work folder inside `parent` that excludes other tfperf processes from writing `place`.

    The folder contains an empty folder `new` and is removed at the end. First, unfinished work of dead processes in
    `parent` is removed, or replaced folders are restored, with a warning. Raise OutputError.
    """
    work = parent / WORK / place.name
    with ExitStack() as stack:
        try:
            missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
            _recover(parent)
            for folder in reversed(missing):
                stack.callback(_remove_empty, folder)
            stack.callback(os.close, _lock(work, place))
            stack.callback(_remove_lock, work)
            stack.callback(_undo, work, parent / place.name)
        except OSError as error:
            raise cannot_write(place, error) from error
        yield work


def _recover(parent: Path) -> None:
    """Undo unfinished work of dead processes."""
    if (parent / WORK).is_symlink():
        raise OutputError(f"{parent / WORK} is a link; remove it")
    done: dict[str, list[str]] = {"restored": [], "removed incomplete": []}
    for path in sorted(parent.glob(f"{WORK}/*/lock")):
        with suppress(OSError), ExitStack() as stack:  # belongs to another user or to a running process
            lock = os.open(path, os.O_RDWR)
            stack.callback(os.close, lock)
            if _try_lock(lock) and os.path.samestat(os.fstat(lock), path.stat()):
                did = _undo(path.parent, parent / path.parent.name)
                _remove_lock(path.parent)
                if did:
                    done[did].append(path.parent.name)
    texts = [f"{did} {', '.join(names)}" for did, names in done.items() if names]
    if texts:
        warnings.warn(f"tfperf was killed while writing to {parent}: {'; '.join(texts)}", TfperfWarning, stacklevel=2)


def _undo(work: Path, place: Path) -> Literal["restored", "removed incomplete"] | None:
    """Move a replaced folder back if its replacement is missing, and remove the rest; return the action taken."""
    new, old = work / "new", work / "old"
    done: Literal["restored", "removed incomplete"] | None = None
    if os.path.lexists(old) and not place.exists():
        old.rename(place)
        done = "restored"
    for folder in (new, old):
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder, ignore_errors=True)
            done = done or "removed incomplete"
    return done


def _lock(work: Path, place: Path) -> int:
    """Create and lock the lock file, and create the folder `new`; return the descriptor of the file."""
    for _ in range(_TRIES):
        # FileNotFoundError: the previous owner of the lock ended and removed the folder.
        with suppress(FileNotFoundError), ExitStack() as stack:
            work.mkdir(parents=True, exist_ok=True)
            lock = os.open(work / "lock", os.O_RDWR | os.O_CREAT, 0o666)
            stack.callback(os.close, lock)
            try:
                is_locked = _try_lock(lock)
                if not os.path.samestat(os.fstat(lock), (work / "lock").stat()):
                    continue
                if is_locked:
                    _undo(work, work.parent.parent / work.name)
                (work / "new").mkdir()  # Without locks, mkdir excludes other processes.
            except (BlockingIOError, FileExistsError) as error:
                owner = _owner(work / "lock") or "another process"
                dead = "" if isinstance(error, BlockingIOError) else f", or delete {work} if it no longer runs"
                wait = f"wait for it{dead}, or choose another path"
                raise OutputError(f"cannot write {place}: {owner} is writing it; {wait}") from None
            os.truncate(lock, 0)
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            os.write(lock, f"process {os.getpid()} on {platform.node()} (since {since})".encode())
            stack.pop_all()
            return lock
    raise OutputError(f"cannot write {place}: {work} is repeatedly deleted by another process; choose another path")


def _owner(lock: Path) -> str:
    """Return the owner's identity in a lock file, which the owner writes after locking; empty if it is missing."""
    until_s = time.monotonic() + _NAMING_S
    while not (owner := lock.read_text("utf-8", "replace")) and time.monotonic() < until_s:
        time.sleep(_POLL_S)
    return owner[:_LONGEST_OWNER]


def _try_lock(descriptor: int) -> bool:
    """Lock an open file; return False if the file system has no locks. Raise BlockingIOError if it is locked."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _remove_lock(work: Path) -> None:
    """Remove the lock file and its folders, unless other files are left in them."""
    with suppress(OSError):
        if not any((work / name).exists() for name in ("new", "old")):
            (work / "lock").unlink()
            work.rmdir()
            work.parent.rmdir()


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
