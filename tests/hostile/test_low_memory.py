"""Commands under `ulimit -v`: either they work, or a line says that there is not enough memory; nothing else."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from places import SAMPLES

pytestmark = pytest.mark.stress

JOB, GRAPH = SAMPLES / "input_bound", SAMPLES / "tfprof_mlp" / "collected"


def under_limit(megabytes: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that may take so much address space."""
    size = megabytes * 1_000_000
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)),
        check=False,
    )


@pytest.mark.parametrize(
    ("megabytes", "command"),
    [
        (120, ("analyze", JOB)),
        (220, ("check", JOB, "--no-config", "--max-input-bound", "10%")),
        (220, ("lint", GRAPH)),
        (220, ("tfprof", "scope", GRAPH)),
        (250, ("query", JOB, "select 1")),
        (400, ("query", JOB, "select 1")),
        (350, ("export-parquet", JOB, "-o", "{out}")),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else value[0],
)
def test_commands(megabytes: int, command: Sequence[str | Path], tmp_path: Path) -> None:
    """Where exactly they fail differs from version to version of the libraries; what they say must not."""
    arguments = [str(each).format(out=tmp_path / "out") for each in command]
    done = under_limit(megabytes, "-m", "tfperf", *arguments)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 3), done.stderr
    if done.returncode == 1:
        assert "not enough memory" in done.stderr
        assert f"`ulimit -v` lets a process take {megabytes} MB" in done.stderr
    assert "pip install" not in done.stderr
    assert "damaged" not in done.stderr


def test_it_is_said_at_all() -> None:
    done = under_limit(60, "-m", "tfperf", "explain", "input-bound")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: not enough memory: tfperf takes 300 MB ")
    assert done.stderr.count("\n") == 1


WATCHED = """
import os, sys, time
import tfperf.cli
from tfperf.__main__ import run

def ends():
    {ends}

sys.argv = ["tfperf", "{command}"]
tfperf.cli.run = ends
run()
"""


@pytest.mark.parametrize(
    ("command", "ends", "code", "said"),
    [
        ("analyze", "os.abort()", 1, "not enough memory (the process ended with SIGABRT)"),
        ("analyze", "os._exit(1)", 1, "not enough memory: "),
        ("analyze", "sys.exit(3)", 3, ""),
        ("analyze", "os.kill(os.getppid(), 15); time.sleep(60)", 128 + signal.SIGTERM, ""),
        ("run", "os._exit(127)", 127, ""),
    ],
)
def test_how_a_process_ended_is_said_by_another(command: str, ends: str, code: int, said: str) -> None:
    done = under_limit(2000, "-c", WATCHED.format(command=command, ends=ends))
    assert done.returncode == code
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)
