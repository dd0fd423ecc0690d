"""Memory of this process, and forked copies of it that do part of its work.

A copy (`forked`) shares all memory of the process at no cost. It returns its results as pickles in an in-memory file,
whose arrays this process maps without copying. If a copy cannot be created or fails, the process does the work itself,
so errors are the same as without a copy.
"""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
import re
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from tfperf.base.errors import TfperfError
from tfperf.base.units import format_bytes

_CGROUP_LIMITS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
)

_NO_MEMORY = re.compile(
    r"cannot allocate memory|can't start new thread|unable to allocate|failed to allocate|out of memory|bad_alloc|"
    r"alloc(ation)? failed|failed to map segment",
    re.IGNORECASE,
)
"""Messages of the system and of libraries about memory, address space and thread stacks."""
_NEEDS = "tfperf requires 300 MB (query and export-parquet: 600 MB) plus about 7 times the size of a profile"
"""Address space, as measured. Profiles whose events have no stats need the most."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""
_KEPT_BLOCK, _KEPT_MEMORY = 1 << 25, 1 << 28
"""Bytes per block, and in total."""
_HEAD = struct.Struct("<QQ")
"""Length of a pickle, and number of arrays after it."""
_ALIGNED = 64
_PR_SET_PDEATHSIG = 1
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")


class _Limit(NamedTuple):
    """A limit on this process's memory: remaining bytes, the limit's name, and a fix."""

    left: float
    described: str


def available_bytes(root: Path = Path("/")) -> float:
    """Return the least of free memory, cgroup limit and `ulimit -v`, in bytes; infinity if unknown."""
    return min(_limits(root)).left


def shortage(where: str = "", root: Path = Path("/")) -> str:
    """Return an error message with the memory that tfperf needs, the memory it may use, and a fix."""
    return f"not enough memory{where}: {_NEEDS}; {min(_limits(root)).described}"


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error is out of memory, or caused by it; its message may suggest a damaged file."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        is_text = not isinstance(each, TfperfError) and _NO_MEMORY.search(str(each)) is not None
        # C extensions may fail without setting an exception.
        is_wordless = isinstance(each, SystemError) and address_space() < math.inf
        is_number = getattr(each, "errno", None) == errno.ENOMEM
        if isinstance(each, MemoryError) or is_number or is_text or is_wordless:
            return True
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return False


def _limits(root: Path) -> list[_Limit]:
    machine = _kilobytes(root / "proc/meminfo", "MemAvailable")
    free = f"{format_bytes(machine)} of this machine is free: " if machine < math.inf else ""
    found = [_Limit(machine, f"{free}use a machine with more memory, or a smaller file")]
    for most, used in _CGROUP_LIMITS:
        if (root / used).exists() and (limit := _number(root / most)) < math.inf:
            described = f"the container is limited to {format_bytes(limit)}: increase the limit, or use a smaller file"
            found.append(_Limit(max(limit - _number(root / used), 0.0), described))
    space = address_space()
    if space < math.inf:
        left = max(space - _kilobytes(root / "proc/self/status", "VmSize", missing=0.0), 0.0)
        described = f"`ulimit -v` limits a process to {format_bytes(space)}: increase the limit, or use a smaller file"
        found.append(_Limit(left, described))
    return found


def resident_bytes(process: int | str = "self", root: Path = Path("/")) -> float:
    """Return the resident memory of a process in bytes, by default of this one; 0 if unknown."""
    return _kilobytes(root / f"proc/{process}/status", "VmRSS", missing=0.0)


def keep_freed_memory() -> None:
    """Keep the memory of one batch of events for the next instead of returning it to the system page by page.

    Returning it takes 1/15 of the time of a large profile, and half of it in processes started by dask, which
    configures glibc to return each block at once. Only glibc has this setting.
    """
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _KEPT_BLOCK)
        mallopt(_TRIM_THRESHOLD, _KEPT_MEMORY)


def address_space() -> float:
    """Return the address space limit of this process in bytes (`ulimit -v`); infinity without a limit."""
    try:
        import resource
    except ImportError:
        return math.inf
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return math.inf if soft == resource.RLIM_INFINITY else float(soft)


def _kilobytes(path: Path, key: str, *, missing: float = math.inf) -> float:
    found = re.search(rf"^{key}:\s+(\d+) kB$", _text(path), re.MULTILINE)
    return 1024.0 * int(found[1]) if found else missing


def _number(path: Path) -> float:
    text = _text(path).strip()
    return float(text) if text.isdecimal() else math.inf


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


_is_allowed = ContextVar("_is_allowed", default=False)


@contextmanager
def allowing_forks(allowed: bool) -> Iterator[None]:
    """Allow copies of this process. The default is none, because other cores may be busy."""
    token = _is_allowed.set(allowed)
    try:
        yield
    finally:
        _is_allowed.reset(token)


def end_with_parent() -> None:
    """Have Linux kill this process when its parent ends, however it ends."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def can_fork() -> bool:
    """Return whether forking is safe: a lock held by another thread would stay locked in the copy."""
    if sys.platform != "linux":
        return False
    try:
        return len([*Path("/proc/self/task").iterdir()]) == 1
    except OSError:
        return False


@contextmanager
def forked(work: Callable[[], Iterable[Any]]) -> Iterator[Callable[[], list[Any] | None]]:
    """Run `work` in a copy of this process; yield a function that waits for its results.

    It returns None if the copy could not be created or failed. Arrays are read-only. The copy ends with the block.
    """
    if not (_is_allowed.get() and can_fork()):
        yield lambda: None
        return
    try:
        file = os.memfd_create("tfperf")
    except OSError:
        yield lambda: None
        return
    process = 0
    try:
        with suppress(OSError):
            process = _start(work, file)

        def results() -> list[Any] | None:
            nonlocal process
            waited, process = process, 0
            if not waited or os.waitpid(waited, 0)[1]:
                return None
            return list(_read(file))

        yield results
    finally:
        os.close(file)
        if process:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def in_two(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the results of at most 256 tasks; if copies are allowed, a copy and this process take tasks in turn."""
    reader, writer = os.pipe()
    os.write(writer, bytes(range(len(tasks))))
    os.close(writer)

    def taken() -> Iterator[tuple[int, Any]]:
        while number := os.read(reader, 1):
            yield number[0], tasks[number[0]]()

    try:
        with forked(taken) as results:
            done = dict(taken())
            done.update(results() or ())
    finally:
        os.close(reader)
    return [done[number] if number in done else task() for number, task in enumerate(tasks)]


def _start(work: Callable[[], Iterable[Any]], file: int) -> int:
    """Start the copy and return its process ID. Raise OSError."""
    parent = os.getpid()
    process = os.fork()
    if process:
        return process
    try:
        for name in _SIGNALS:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        end_with_parent()
        if os.getppid() == parent:
            _write(work(), file)
            os._exit(0)
    finally:
        os._exit(1)


def _write(values: Iterable[Any], file: int) -> None:
    import pickle

    with open(file, "wb", closefd=False) as output:
        for value in values:
            arrays: list[pickle.PickleBuffer] = []
            head = pickle.dumps(value, 5, buffer_callback=arrays.append)
            output.write(_HEAD.pack(len(head), len(arrays)))
            output.write(head)
            for array in arrays:
                with array.raw() as data:
                    output.write(struct.pack("<Q", len(data)))
                    output.write(bytes(-output.tell() % _ALIGNED))
                    output.write(data)


def _read(file: int) -> Iterator[Any]:
    import pickle

    size = os.fstat(file).st_size
    if not size:
        return
    content = memoryview(mmap.mmap(file, size, access=mmap.ACCESS_READ))
    place = 0
    while place < size:
        length, count = _HEAD.unpack_from(content, place)
        place += _HEAD.size
        head, place = content[place : place + length], place + length
        arrays = []
        for _ in range(count):
            (length,) = struct.unpack_from("<Q", content, place)
            place += 8
            place += -place % _ALIGNED
            arrays.append(content[place : place + length])
            place += length
        yield pickle.loads(head, buffers=arrays)
