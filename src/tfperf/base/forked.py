"""A copy of this process that does a part of its work, so that two cores do it in less time than one.

The copy shares all memory of the process at no cost. What it returns comes back as pickles in a file in memory, whose
arrays this process maps as they are: none goes through a pipe. If a copy cannot be made, or fails in any way, the
process does the work itself, so what goes wrong is told as if there had been no copy.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

_HEAD = struct.Struct("<QQ")
"""The length of a pickle, and how many arrays follow it."""
_ALIGNED = 64
_PR_SET_PDEATHSIG = 1
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")


_is_allowed = ContextVar("_is_allowed", default=False)


@contextmanager
def allowing_forks(allowed: bool) -> Iterator[None]:
    """Allow copies of this process; by default there are none, because other cores may be busy already."""
    token = _is_allowed.set(allowed)
    try:
        yield
    finally:
        _is_allowed.reset(token)


def end_with_parent() -> None:
    """Have Linux kill this process when the one that started it ends, however that ends."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def can_fork() -> bool:
    """Return whether copies are allowed, and safe: no other thread may hold a lock, which would stay locked in them."""
    if sys.platform != "linux" or not _is_allowed.get():
        return False
    try:
        return len([*Path("/proc/self/task").iterdir()]) == 1
    except OSError:
        return False


@contextmanager
def forked(work: Callable[[], Iterable[Any]]) -> Iterator[Callable[[], list[Any] | None]]:
    """Start `work` in a copy of this process; yield a function that waits for what it returns.

    That is None if there is no copy, or if it failed. Arrays in it are read-only. The copy is gone at the end.
    """
    if not can_fork():
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
    """Return the results of at most 256 tasks. Where copies are allowed, a copy of this process does some of them.

    Each of the two processes takes the next task when it has finished one.
    """
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
    """Return the number of the copy. Raises OSError."""
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
