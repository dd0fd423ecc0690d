"""The environment of the jobs that tests start: TensorFlow without what else it would import.

Importing TensorFlow takes seconds, and a third of that is Keras and what else it imports where it can. The folder
`lean` has modules of their names that cannot be imported, as where they are not installed; `lazily` in it makes what is
imported run when it is needed. A script that only marks steps needs no more of TensorFlow than `PROFILER_ALONE`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

without_tensorflow = pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only")
with_jax = pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info < (3, 11), reason="JAX is installed on Linux only, for Python 3.11 on"
)
LEAN = Path(__file__).parent / "lean"
LAZILY = LEAN / "lazily"
WITHOUT_PANDAS = LEAN / "without_pandas"
PROFILER_ALONE = LEAN / "profiler_alone"


def needs_tensorflow(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that starts TensorFlow."""
    marked: Callable[..., None] = pytest.mark.tensorflow(without_tensorflow(test))
    return marked


def job_environment(*more: Path, keras: bool) -> dict[str, str]:
    """Return the variables of a job that trains on the CPU, with Keras or with TensorFlow alone; it finds `more`."""
    without = [LEAN / "without_jax"] if keras else [LEAN / "without_keras", LEAN / "without_jax"]
    return with_modules(*more, LAZILY, *without, LEAN) | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def with_modules(*folders: Path) -> dict[str, str]:
    """Return the variables of this process, with modules of these folders before all others."""
    paths = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run_python(
    *arguments: str | Path, cwd: Path | None = None, more: tuple[Path, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run Python, which finds `more`; it must end with exit code 0."""
    command, variables = [sys.executable, *arguments], with_modules(*more, LAZILY)
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert not done.returncode, done.stderr[-2000:]
    return done


def run_tensorflow_script(folder: Path, script: str) -> str:
    """Run a script as `job.py` in a folder, which is its working directory; return its stderr."""
    (folder / "job.py").write_text(script)
    return run_tensorflow("job.py", cwd=folder).stderr


def run_tensorflow(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python as a fork of a process that has imported TensorFlow once for all jobs; it must end with exit code 0.

    A job may import Keras too.
    """
    with NamedTemporaryFile("r") as stdout, NamedTemporaryFile("r") as stderr:
        job = {
            "arguments": [*map(str, arguments)],
            "cwd": str(cwd or Path.cwd()),
            "environment": job_environment(keras=True),
            "stdout": stdout.name,
            "stderr": stderr.name,
        }
        server = _job_server()
        print(json.dumps(job), file=server.stdin, flush=True)
        assert server.stdout is not None
        done = subprocess.CompletedProcess(server.args, int(server.stdout.readline()), stdout.read(), stderr.read())
    assert not done.returncode, done.stderr[-2000:]
    return done


@cache
def _job_server() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, Path(__file__).with_name("job_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=job_environment(keras=True),
        text=True,
    )
