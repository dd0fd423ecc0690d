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


def run() -> None:
    """Run the command line in a process of its own."""
    try:
        from tfperf.cli import run as run_commands

        run_commands()
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
