"""The process of `tfperf` and `python -m tfperf`: few imports, so that Ctrl-C prints one line from the start."""

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    # `python -m` puts the current folder first on sys.path. Remove it before any other import:
    folder = __file__.rpartition("tfperf")[0].rstrip("/\\")
    sys.path[:1] = [place for place in sys.path[:1] if place == folder]

import os
import signal
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_NEARLY_ALL = 0.85


def _is_used_up(space: int) -> bool:
    """Return whether the address space is nearly used up. Any operation may then fail, with any error."""
    try:
        with open("/proc/self/status", "rb", buffering=0) as file:  # noqa: PTH123  (pathlib is not imported yet)
            peak = file.read(4096).partition(b"VmPeak:")[2].split(maxsplit=1)
        return bool(peak) and 1024 * int(peak[0]) >= _NEARLY_ALL * space
    except OSError:
        return False
    except MemoryError:
        return True


def _watch_memory() -> tuple[int, int] | None:
    """With a limit of address space (`ulimit -v`), continue in a forked child and report how it ended.

    Libraries end the process if an allocation fails, some without a message, by a signal or any exit code. Return in
    the child the limit in bytes and a pipe, into which it writes on a normal exit. Return None without a limit.
    """
    try:
        import resource
    except ModuleNotFoundError:
        return None
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    # The exit status of `tfperf run` belongs to its script.
    if most == resource.RLIM_INFINITY or sys.argv[1:2] == ["run"]:
        return None
    reader, writer = os.pipe()
    copy = os.fork()
    if not copy:
        os.close(reader)
        # Arrow's own allocator reserves gigabytes of address space and never returns them.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
        with suppress(ImportError, OSError, AttributeError):  # Linux: it ends if the other is killed
            from ctypes import CDLL

            CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        return most, writer
    os.close(writer)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os.kill(copy, number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    ended = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    was_killed = -ended in (signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV, signal.SIGKILL)
    came_to_its_end = False
    os.set_blocking(reader, False)  # a child process of the copy may keep the other end open
    with suppress(BlockingIOError):
        came_to_its_end = bool(os.read(reader, 1))
    if was_killed or (ended >= 0 and not came_to_its_end):
        from tfperf.base.process import shortage

        how = f" (the process ended with {signal.Signals(-ended).name})" if was_killed else ""
        os.write(2, f"Error: {shortage(how)}\n".encode())
        ended = 1
    os._exit(ended if ended >= 0 else 128 - ended)


def run() -> None:
    """Run the command line in its own process."""
    limited = None
    try:
        limited = _watch_memory()
        from tfperf.cli import run as run_commands

        run_commands()
    except Exception as error:
        if limited and _is_used_up(limited[0]):
            os._exit(1)
        from tfperf.base.process import lacks_memory, shortage

        if not lacks_memory(error):
            raise
        if not limited:
            os.write(2, f"Error: {shortage()}\n".encode())
        os._exit(1)
    except KeyboardInterrupt:
        # A terminal prints ^C at the cursor.
        sys.stderr.write("\n" * sys.stderr.isatty() + "Interrupted\n")
        sys.stderr.flush()
        if limited:
            os.write(limited[1], b".")
        # Nothing needs cleanup yet, and a second Ctrl-C must not print a traceback.
        os._exit(130)
    finally:
        if limited:
            os.write(limited[1], b".")
        # Ctrl-C during interpreter shutdown must not print a traceback either.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    run()
