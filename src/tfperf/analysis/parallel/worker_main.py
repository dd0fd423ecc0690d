"""The program of a worker process in a pool: read calls from stdin and write their results to stdout.

A message is its length (8 bytes) and a pickle. Calls come only from the parent process.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import struct
import sys
import traceback
import warnings
from typing import IO, Any

from tfperf.base.errors import TfperfWarning
from tfperf.base.process import keep_freed_memory

LENGTH = struct.Struct("<Q")


def write_message(stream: IO[bytes], message: bytes) -> None:
    """Write a message to the other process."""
    stream.write(LENGTH.pack(len(message)))
    stream.write(message)
    stream.flush()


def read_message(stream: IO[bytes]) -> bytes | None:
    """Return the next message; None if the other process has ended."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    message = stream.read(length)
    return message if len(message) == length else None


def answer(message: bytes) -> tuple[Any, BaseException | None, str, tuple[str, ...]]:
    """Run a call; return its value, or the exception with its traceback, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TfperfWarning)
        value, failure, text = None, None, ""
        try:
            function, arguments, keywords = pickle.loads(message)
            value = function(*arguments, **keywords)
        except Exception as error:
            failure, text = error, traceback.format_exc()
    return value, failure, text, tuple(str(each.message) for each in caught if each.category is TfperfWarning)


def packed(reply: tuple[Any, BaseException | None, str, tuple[str, ...]]) -> bytes:
    """Return a reply as a message; replace an exception or value that cannot be sent by an exception that can."""
    try:
        message = pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)
        if reply[1] is not None:  # some exceptions can be pickled, but not unpickled
            pickle.loads(message)
        return message
    except Exception as error:
        text = reply[2] or traceback.format_exc()
        return pickle.dumps((None, RuntimeError(f"{type(reply[1] or error).__name__} in a worker"), text, ()))


def main() -> None:
    """Answer calls until the other process closes its end or dies."""
    is_working = False

    def end(number: int, _: object) -> None:
        if is_working:
            sys.exit(128 + number)  # an exception, so that temporary files are removed
        os._exit(128 + number)  # there are no temporary files, and Python's normal exit takes 0.1 s

    signal.signal(signal.SIGTERM, end)
    gc.set_threshold(100_000, 20, 100)
    keep_freed_memory()
    # Not `sys.stdin`: in a forked process, its buffer may hold data that the parent has read.
    calls, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Printed text must not get between the messages.
    os.dup2(2, 1)
    try:
        while (message := read_message(calls)) is not None:
            is_working = True
            reply = packed(answer(message))
            is_working = False
            sys.stdout.flush()
            write_message(replies, reply)
    except BrokenPipeError:
        pass
    os._exit(0)
