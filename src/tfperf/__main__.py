"""The process of the command line: `tfperf`, and `python -m tfperf`.

Next to nothing is imported here, so that Ctrl-C is told in one line while the rest is.
"""

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    # `python -m` puts the current folder first among the places for modules. Before anything else is imported:
    folder = __file__.rpartition("tfperf")[0].rstrip("/\\")
    sys.path[:1] = [place for place in sys.path[:1] if place == folder]

import os
import signal
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_LOADER_FAILED = 127
"""The exit code of the system's loader where it gets no memory for a library or a thread."""


def _watch_memory() -> None:
    """Under a limit of address space (`ulimit -v`), go on in a copy of this process, and say how that ended.

    Libraries end the process where they get no memory, some of them without a word. This one takes next to nothing.
    """
    try:
        import resource
    except ModuleNotFoundError:
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    # What a script of `tfperf run` ends of is its own.
    if most == resource.RLIM_INFINITY or sys.argv[1:2] == ["run"]:
        return
    copy = os.fork()
    if not copy:
        # Arrow's own allocator takes address space by the gigabyte, and gives none of it back.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
        with suppress(ImportError, OSError, AttributeError):  # Linux: it ends if the other is killed
            from ctypes import CDLL

            CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        return
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os.kill(copy, number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    ended = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    if -ended in (signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV, signal.SIGKILL) or ended == _LOADER_FAILED:
        from tfperf.available_memory import shortage

        how = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
        os.write(2, f"Error: {shortage(f' (the process ended with {how})')}\n".encode())
        ended = 1
    os._exit(ended if ended >= 0 else 128 - ended)


def run() -> None:
    """Run the command line in a process of its own."""
    try:
        _watch_memory()
        from tfperf.cli import run as run_commands

        run_commands()
    except (ImportError, MemoryError, OSError) as error:
        from tfperf.available_memory import lacks_memory, shortage

        if not lacks_memory(error):
            raise
        os.write(2, f"Error: {shortage()}\n".encode())
        os._exit(1)
    except KeyboardInterrupt:
        # A terminal shows ^C where the cursor is.
        sys.stderr.write("\n" * sys.stderr.isatty() + "Interrupted\n")
        sys.stderr.flush()
        # Nothing has begun, so there is nothing to put in order; and a second Ctrl-C finds nobody to tell.
        os._exit(130)
    finally:
        # What the interpreter does at its end is no place for a traceback either.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    run()
