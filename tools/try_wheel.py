"""Try the wheel and the sdist in `dist/`: are they whole, and does the wheel work in environments without extras?

    python tools/try_wheel.py dist [--every]

For the oldest and the newest Python that tfperf supports and that are on this machine, or for every one: a fresh
environment, the wheel, and what a new user types. Prints sizes and the number of packages. Ends with exit code 1 at the
first thing that is wrong.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
SAMPLE = "sample_traces/input_bound"
TRIED: tuple[tuple[str, int, str], ...] = (
    (f"tfperf analyze {SAMPLE}", 0, "HIGHLY input-bound"),
    (f"tfperf analyze {SAMPLE} -o report.html", 0, ""),
    (f"tfperf export-csv {SAMPLE} -o tables", 0, ""),
    (f"tfperf check {SAMPLE} --max-input-bound 10%", 3, "FAIL"),
    ("tfperf --help", 0, "analyze"),
    ("tfperf explain capture", 0, "capture (term)"),
    ("tfperf --version", 0, "tfperf"),
    (f"tfperf analyze {SAMPLE} -o report.md", 0, ""),
    (f"tfperf check {SAMPLE} --max-step-time 5s", 0, "max-step-time"),
    (f"tfperf diff {SAMPLE} sample_traces/input_fixed", 0, "x faster"),
    (f"tfperf timeline {SAMPLE} -o trace.pftrace", 0, ""),
    (f"tfperf flamegraph {SAMPLE} -o flame.html", 0, ""),
    ("tfperf analyze nowhere", 1, "nowhere"),
    (f"tfperf query {SAMPLE} 'select 1'", 1, "tfperf[sql]"),
    ("tfperf run train.py", 1, "TensorFlow is not installed in this Python"),
    (f'python -c \'import tfperf; print(tfperf.load("{SAMPLE}")["steps"].table.columns)\'', 0, "step_time_ms"),
    ("python -c 'import tfperf; tfperf.start(\"logs\")'", 1, "neither TensorFlow nor JAX"),
)
"""What is typed, its exit code, and what it says."""
EVERYWHERE = 4
"""So many of them are tried with each Python, the others with the oldest that is here."""


def main(folder: Path, *, every: bool) -> None:
    """Check both files, and try the wheel with the oldest and the newest Python that are here, or with every one."""
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    check_contents(wheel, sdist)
    for path in (wheel, sdist):
        print(f"{path.name}: {path.stat().st_size / 1000:,.0f} kB")
    found = {version: python for version in PYTHONS if (python := interpreter(version))}
    if not found:
        sys.exit(f"none of Python {', '.join(PYTHONS)} is here")
    oldest, *_, newest = [*found, *found]
    for version in PYTHONS:
        if version not in found:
            print(f"Python {version}: no interpreter here, not tried")
        elif every or version in (oldest, newest):
            tried = TRIED if version == oldest else TRIED[:EVERYWHERE]
            try_in_fresh_environment(wheel, version, found[version], tried)
        else:
            print(f"Python {version}: between the oldest and the newest, tried with --every")


def check_contents(wheel: Path, sdist: Path) -> None:
    """Demand every file of the package in both, and no tests in either."""
    files = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, text=True)
    wanted = set(files.stdout.split())
    in_wheel = {f"src/{name}" for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    if in_wheel != wanted:
        sys.exit(f"{wheel.name}: missing or too much: {sorted(in_wheel ^ wanted)}")
    beside = {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
    if in_sdist - beside != wanted:
        sys.exit(f"{sdist.name}: missing or too much: {sorted((in_sdist - beside) ^ wanted)}")


def interpreter(version: str) -> str | None:
    """Return an interpreter of this version that runs, of the PATH, of pyenv or of uv; None without one."""
    candidates = [
        sys.executable,
        shutil.which(f"python{version}"),
        *map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))),
        *map(str, sorted(Path.home().glob(f".local/share/uv/python/cpython-{version}.*/bin/python"))),
    ]
    probe = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    for python in filter(None, candidates):
        answer = subprocess.run([python, "-c", probe], check=False, capture_output=True, text=True)
        if answer.stdout.strip() == version:
            return python
    return None


def try_in_fresh_environment(wheel: Path, version: str, python: str, tried: tuple[tuple[str, int, str], ...]) -> None:
    """Install the wheel alone, and type the commands."""
    begin = time.monotonic()
    uv = [sys.executable, "-m", "uv"]
    with tempfile.TemporaryDirectory(prefix="tfperf-wheel-") as name:
        folder = Path(name)
        run([*uv, "venv", "--quiet", "--python", python, ".venv"], folder)
        environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        environment |= {"PATH": f"{folder / '.venv/bin'}{os.pathsep}{environment['PATH']}", "COLUMNS": "80"}
        run([*uv, "pip", "install", "--quiet", "--python", ".venv", str(wheel.resolve())], folder)
        installed = run([*uv, "pip", "list", "--python", ".venv", "--format", "freeze"], folder).splitlines()
        size = run(["du", "-sk", ".venv"], folder).split()[0]
        shutil.copytree(ROOT / "sample_traces", folder / "sample_traces")
        (folder / "train.py").write_text("import tensorflow\n")
        for command, code, says in tried:
            done = subprocess.run(
                ["bash", "-c", command], check=False, cwd=folder, env=environment, capture_output=True, text=True
            )
            text = done.stdout + done.stderr
            if done.returncode != code or says not in text:
                sys.exit(f"Python {version}: {command}: exit code {done.returncode}, not {code} with {says!r}:\n{text}")
    print(
        f"Python {version}: {len(tried)} commands as they should be; {len(installed)} packages, "
        f"{int(size) / 1000:,.0f} MB, {time.monotonic() - begin:.0f} s"
    )


def run(command: list[str], folder: Path) -> str:
    """Return what a command prints, or end with what it said."""
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]), every="--every" in sys.argv[2:])
