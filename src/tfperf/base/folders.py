"""Folders that are written whole or not at all: filled next to their place first, then moved there by one rename.

    PARENT/.tfperf/NAME/lock    names the process that writes PARENT/NAME, which holds a lock on this file
    PARENT/.tfperf/NAME/new     what that process writes
    PARENT/.tfperf/NAME/old     what `new` replaces: moved away by the first of two renames, removed after the second

The system takes the lock from a process that ends, however it ends. The next process that writes into PARENT then
removes `new`, and moves `old` back if PARENT/NAME is missing. It leaves alone what has no lock file, or a locked one.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from tfperf.base.errors import OutputError, TfperfWarning
from tfperf.base.files import WORK, cannot_write

if sys.platform != "win32":
    import fcntl

_TRIES = 20
_LONGEST_OWNER = 200
_NAMING_S, _POLL_S = 1.0, 0.02


@contextmanager
def new_folder(place: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder that becomes `place` when the block ends; missing folders above it are created.

    With `force` it replaces a folder. If the block or a rename fails, everything is as it was. Raises OutputError, also
    while another process writes the same place.
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
    """Yield a folder inside `parent` for unfinished work; no other process of tfperf writes `place` meanwhile.

    The folder has an empty folder `new`, and is removed at the end. First, unfinished work of dead processes is removed
    from `parent`, or folders are put back, with a warning. Raises OutputError.
    """
    work = parent / WORK / place.name
    with ExitStack() as stack:
        try:
            missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
            _recover(parent)
            stack.callback(_remove_empty, missing)
            stack.callback(os.close, _lock(work, place))
            stack.callback(_remove_lock, work)
            stack.callback(_undo, work, parent / place.name)
        except OSError as error:
            raise cannot_write(place, error) from error
        yield work


def _recover(parent: Path) -> None:
    """Undo what processes that are dead did not finish."""
    if (parent / WORK).is_symlink():
        raise OutputError(f"{parent / WORK} is a link; remove it")
    done: dict[str, list[str]] = {"put back": [], "removed the rest of": []}
    for path in sorted(parent.glob(f"{WORK}/*/lock")):
        with suppress(OSError), ExitStack() as stack:  # it belongs to another user, or to a process that is alive
            lock = os.open(path, os.O_RDWR)
            stack.callback(os.close, lock)
            if _try_lock(lock) and os.path.samestat(os.fstat(lock), path.stat()):
                did = _undo(path.parent, parent / path.parent.name)
                _remove_lock(path.parent)
                if did:
                    done[did].append(path.parent.name)
    texts = [f"{did} {', '.join(names)}" for did, names in done.items() if names]
    if texts:
        warnings.warn(
            f"tfperf was killed while it wrote into {parent}: {'; '.join(texts)}", TfperfWarning, stacklevel=2
        )


def _undo(work: Path, place: Path) -> Literal["put back", "removed the rest of"] | None:
    """Move back what was about to be replaced, and remove everything else; return what was done."""
    new, old = work / "new", work / "old"
    done: Literal["put back", "removed the rest of"] | None = None
    if os.path.lexists(old) and not place.exists():
        old.rename(place)
        done = "put back"
    for folder in (new, old):
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder, ignore_errors=True)
            done = done or "removed the rest of"
    return done


def _lock(work: Path, place: Path) -> int:
    """Create and lock the lock file, and create the folder `new`; return the descriptor of the file."""
    for _ in range(_TRIES):
        # FileNotFoundError: the process that had the lock ended, and removed the folder.
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
                (work / "new").mkdir()  # Without locks, one process alone can.
            except (BlockingIOError, FileExistsError) as error:
                owner = _owner(work / "lock") or "another process"
                dead = "" if isinstance(error, BlockingIOError) else f", or remove {work} if it is dead"
                wait = f"wait for it{dead}, or choose another place"
                raise OutputError(f"cannot write {place}: {owner} is writing it; {wait}") from None
            os.truncate(lock, 0)
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            os.write(lock, f"process {os.getpid()} on {platform.node()} (since {since})".encode())
            stack.pop_all()
            return lock
    raise OutputError(f"cannot write {place}: {work} is removed again and again; choose another place")


def _owner(lock: Path) -> str:
    """Return what a lock file says of its owner, who writes that when it has the lock; empty if it does not do so."""
    until_s = time.monotonic() + _NAMING_S
    while not (owner := lock.read_text("utf-8", "replace")) and time.monotonic() < until_s:
        time.sleep(_POLL_S)
    return owner[:_LONGEST_OWNER]


def _try_lock(descriptor: int) -> bool:
    """Lock an open file; return False where the file system has no locks. Raises BlockingIOError if it is locked."""
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
    """Remove the lock file and the folders around it, unless something else is left in them."""
    with suppress(OSError):
        if not any((work / name).exists() for name in ("new", "old")):
            (work / "lock").unlink()
            work.rmdir()
            work.parent.rmdir()


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
