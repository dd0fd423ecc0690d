"""The environment of the jobs that tests start: TensorFlow without what else it would import.

Importing TensorFlow takes seconds, and a third of that is Keras and what else it imports where it can. The folder
`lean` has modules of their names that cannot be imported, as where they are not installed; `lazily` in it makes what is
imported run when it is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

without_tensorflow = pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only")
with_jax = pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info < (3, 11), reason="JAX is installed on Linux only, for Python 3.11 on"
)
LEAN = Path(__file__).parent / "lean"
LAZILY = LEAN / "lazily"


def needs_tensorflow(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that starts TensorFlow."""
    marked: Callable[..., None] = pytest.mark.tensorflow(without_tensorflow(test))
    return marked


def job_environment(*, keras: bool) -> dict[str, str]:
    """Return the variables of a job that trains on the CPU, with Keras or with TensorFlow alone."""
    folders = [LAZILY, LEAN] if keras else [LAZILY, LEAN / "without_keras", LEAN]
    paths = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }


def run_job(folder: Path, script: str) -> str:
    """Run a script without Keras, as `job.py` in a folder, which is its working directory; return its stderr."""
    (folder / "job.py").write_text(script)
    return run_python("job.py", cwd=folder).stderr


def run_python(*arguments: str | Path, cwd: Path | None = None, lean: bool = True) -> subprocess.CompletedProcess[str]:
    """Run Python, without Keras unless `lean` is false; it must end with exit code 0."""
    plain = {**os.environ, "PYTHONPATH": os.pathsep.join([str(LAZILY), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=job_environment(keras=False) if lean else plain,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not done.returncode, done.stderr[-2000:]
    return done
