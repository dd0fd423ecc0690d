"""What an installation takes on disk: tfperf, with what it needs, against XProf.

    python benchmarks/install_size.py

Each is installed by uv into an environment of its own that holds nothing else, without bytecode.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PEERS = {"tfperf": str(ROOT), "xprof": "xprof", "tfperf and TensorFlow": f"{ROOT}[tensorflow]"}


def main() -> None:
    """Print a row for each program."""
    print("| installed | packages | MB |\n|---|---|---|")
    for name, requirement in PEERS.items():
        packages, megabytes = installed(requirement)
        print(f"| {name} | {packages} | {megabytes:,.0f} |")


def installed(requirement: str) -> tuple[int, float]:
    """Return how many packages an installation has, and how many MB (10^6 bytes) of files."""
    uv = [sys.executable, "-m", "uv"]
    with tempfile.TemporaryDirectory(prefix="tfperf-size-") as name:
        folder = Path(name) / "environment"
        subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
        subprocess.run([*uv, "pip", "install", "--quiet", "--python", folder, requirement], check=True)
        listed = subprocess.run(
            [*uv, "pip", "list", "--quiet", "--python", folder, "--format", "freeze"],
            check=True,
            capture_output=True,
            text=True,
        )
        size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        return len(listed.stdout.splitlines()), size / 1e6


if __name__ == "__main__":
    main()
