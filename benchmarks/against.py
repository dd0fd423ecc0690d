"""Time this checkout against another commit, on the same machine in one run.

    python benchmarks/against.py COMMIT [-n 15] [--bar 0.75] [-- COMMAND...]

COMMAND is what follows `tfperf`, for example `analyze sample_traces/input_bound -s steps`; paths are relative to this
checkout. Without one: the whole `analyze` of sample_traces/input_bound, and `-s overview` of it.

A git worktree of COMMIT and a copy of this checkout's src are made in one temporary folder, because imports from a
folder in use took up to a tenth longer. Both trees run with the interpreter of this script and the same libraries
(`PYTHONPATH=TREE/src python -m tfperf ...`), from compiled bytecode, each time in a process of its own, from start to
exit with interpreter and imports. They take turns, so that a slow moment of the machine hits both; the medians count.
The exit code is 1 if a ratio is above `--bar`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_COMMANDS = (
    ("analyze", "sample_traces/input_bound"),
    ("analyze", "sample_traces/input_bound", "-s", "overview"),
)


@contextlib.contextmanager
def trees_of(commit: str) -> Iterator[tuple[Path, Path]]:
    """Check a commit out into a temporary folder, which git forgets afterwards, and copy this checkout's src there."""
    with tempfile.TemporaryDirectory(prefix="tfperf-against-") as folder:
        tree, this = Path(folder, "tree"), Path(folder, "this")
        shutil.copytree(ROOT / "src", this / "src", ignore=shutil.ignore_patterns("__pycache__"))
        command = ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr.strip())
        try:
            yield tree, this
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def environment_of(tree: Path) -> dict[str, str]:
    """Return variables with which `python -m tfperf` is that of the tree; bytecode is used, not written."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    return {**kept, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "80"}


def check_tree(tree: Path) -> None:
    """Compile the bytecode of a tree, and make sure that it is the tfperf that runs."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", tree / "src"], check=True)
    code = "import tfperf; print(tfperf.__file__)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment_of(tree), check=True, capture_output=True, text=True)
    if not Path(done.stdout.strip()).resolve().is_relative_to(tree.resolve()):
        sys.exit(f"python would run {done.stdout.strip()}, not {tree}: another tfperf hides it")


def wall_ms(tree: Path, arguments: Sequence[str]) -> float:
    """Return how long a command takes with the tfperf of a tree, in milliseconds."""
    command = [sys.executable, "-m", "tfperf", *arguments]
    started = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment_of(tree), check=False, capture_output=True, text=True)
    elapsed = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{tree}: tfperf {shlex.join(arguments)} failed with {done.returncode}:\n{done.stderr[-2000:]}")
    return 1e3 * elapsed


def median_ms(trees: tuple[Path, Path], arguments: Sequence[str], rounds: int) -> tuple[float, float]:
    """Return the medians of a command over several rounds, in which the trees take turns."""
    for tree in trees:
        wall_ms(tree, arguments)  # unmeasured: warms the disk cache
    taken = [(wall_ms(trees[0], arguments), wall_ms(trees[1], arguments)) for _ in range(rounds)]
    return statistics.median(first for first, _ in taken), statistics.median(second for _, second in taken)


def parse_arguments() -> argparse.Namespace:
    """Read the command line; what follows -- becomes `command`."""
    # argparse itself gives what follows -- to the first positional that takes any number, also if options come between.
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    usage = "%(prog)s [-h] [-n ROUNDS] [--bar RATIO] COMMIT [-- COMMAND...]"
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(usage=usage, description=__doc__, formatter_class=style)
    parser.add_argument("commit", metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("-n", dest="rounds", type=int, default=15, help="rounds (%(default)s)")
    parser.add_argument("--bar", type=float, metavar="RATIO", help="largest ratio of this checkout to the commit")
    arguments = parser.parse_args(words[:end])
    arguments.command = tuple(words[end + 1 :])
    return arguments


def main() -> int:
    """Measure, and print a line for each command."""
    arguments = parse_arguments()
    if arguments.rounds < 1:
        sys.exit("-n must be at least 1")
    commands = (arguments.command,) if arguments.command else DEFAULT_COMMANDS
    ratios = []
    with trees_of(arguments.commit) as trees:
        print(f"{arguments.commit[:12]:>12} {'this':>8} {'ratio':>6}  median wall time of {arguments.rounds}, in ms")
        for tree in trees:
            check_tree(tree)
        for command in commands:
            before, after = median_ms(trees, command, arguments.rounds)
            ratios.append(after / before)
            print(f"{before:12.0f} {after:8.0f} {after / before:6.3f}  tfperf {shlex.join(command)}", flush=True)
    if arguments.bar is None:
        return 0
    held = all(ratio <= arguments.bar for ratio in ratios)
    print(f"{'PASS' if held else 'FAIL'}  ratio at most {arguments.bar:g}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
