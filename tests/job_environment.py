"""The environment of the jobs that tests start: TensorFlow without what else it would import.

Importing TensorFlow takes seconds, and a third of that is Keras and what else it imports where it can. The folder
`lean` has modules of their names that cannot be imported, as where they are not installed; `lazily` in it makes what is
imported run when it is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LEAN = Path(__file__).parent / "lean"
LAZILY = LEAN / "lazily"


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
    done = subprocess.run(
        [sys.executable, "job.py"],
        cwd=folder,
        env=job_environment(keras=False),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stderr
