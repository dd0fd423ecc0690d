"""Commands in processes of their own that share the start of Python and its imports: most of what a command takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

IMPORTS = """
import tfperf.analysis.load, tfperf.cli.options, tfperf.report.render, tfperf.trace.read
import tfperf.judge.check, tfperf.judge.diff_report, tfperf.sections.diagnosis.diagnose, tfperf.sections.tfdata.advice
from tfperf.__main__ import run
"""
"""None of them starts a thread, which a fork would lack."""

_FORKS = f"""
import json, os, resource, sys
{IMPORTS}
for line in sys.stdin:
    seconds, stdout, stderr, sys.argv = json.loads(line)
    if not (child := os.fork()):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        for number, file in enumerate((os.devnull, stdout, stderr)):
            os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
        run()
        sys.exit()
    _, status, usage = os.wait4(child, 0)
    print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024, flush=True)
"""


class Ended(NamedTuple):
    """A process that has ended."""

    returncode: int
    stdout: str
    stderr: str
    peak_bytes: int


class Forks:
    """A process that forks for each command, which is a process as any other then; `folder` keeps what they print."""

    def __init__(self, folder: Path) -> None:
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        command = [sys.executable, "-c", _FORKS]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, *words: str | Path, seconds: int = 60) -> Ended:
        """Run a command, which the system ends if it takes more processor time than that."""
        request = [seconds, str(self._stdout), str(self._stderr), ["tfperf", *map(str, words)]]
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        print(json.dumps(request), file=requests, flush=True)
        code, peak_bytes = map(int, answers.readline().split())
        return Ended(code, self._stdout.read_text(), self._stderr.read_text(), peak_bytes)

    def end(self) -> None:
        """End the process."""
        self._process.communicate()
