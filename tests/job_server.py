"""A process that imports TensorFlow once, and becomes each job by a fork; see `job_environment.run_tensorflow`.

It takes a job a line, and answers with its exit code. Importing starts no threads of TensorFlow, so a fork may go on.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import tensorflow  # noqa: F401

_MOST_S = 300


def become(job: dict[str, Any]) -> None:
    """Run a job as `python ARGUMENTS` would in its folder and environment."""
    signal.alarm(_MOST_S)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["cwd"])
    for number, path in enumerate((os.devnull, job["stdout"], job["stderr"])):
        os.dup2(os.open(path, os.O_RDWR), number)
    option, *arguments = job["arguments"]
    if option == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments[1:]], ""
        exec(compile(arguments[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        script = Path(option).absolute()
        sys.argv, sys.path[0] = [option, *arguments], str(script.parent)
        runpy.run_path(str(script), run_name="__main__")


for line in sys.stdin:
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    else:
        become(json.loads(line))
        break
