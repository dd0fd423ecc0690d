"""A `tfperf` for scripts that tests run: `tfperf run` of the same `train.py` is done once, then its outcome is copied.

A job with TensorFlow takes ten seconds of a processor, and pages type the same command more than once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing it takes longer than all that the program does.
    import pytest

REAL = Path(sys.executable).parent / "tfperf"


def make_program(factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the program, for the beginning of PATH; what was run is kept for all workers of pytest."""
    base = factory.getbasetemp()
    kept = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared_runs"
    kept.mkdir(exist_ok=True)
    folder = factory.mktemp("bin")
    program = folder / "tfperf"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = run ] && exec "{sys.executable}" "{__file__}" "{kept}" "$@"\nexec "{REAL}" "$@"\n'
    )
    program.chmod(0o755)
    return folder


def main(kept: Path, arguments: list[str]) -> int:
    """Run it in a folder that is kept, unless somebody has; copy its files to this one, print what it printed."""
    words = [*arguments, Path("train.py").read_text(), os.environ.get("GITHUB_ACTIONS", "")]
    folder = kept / hashlib.sha256(json.dumps(words).encode()).hexdigest()
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not Path(f"{folder}.json").exists():
            folder.mkdir(exist_ok=True)
            shutil.copy("train.py", folder)
            done = subprocess.run(
                [REAL, *arguments], cwd=folder, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
            Path(f"{folder}.json").write_text(json.dumps([done.returncode, done.stdout, done.stderr]))
    made = [path for path in folder.iterdir() if path.name != "train.py"]
    if any(Path(path.name).exists() for path in made):  # What then happens is not what happened there.
        os.execv(REAL, [str(REAL), *arguments])
    for path in made:
        (shutil.copytree if path.is_dir() else shutil.copy)(path, path.name)
    code, stdout, stderr = json.loads(Path(f"{folder}.json").read_text())
    sys.stderr.write(stderr.replace(str(folder), str(Path.cwd())))
    sys.stdout.write(stdout.replace(str(folder), str(Path.cwd())))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
