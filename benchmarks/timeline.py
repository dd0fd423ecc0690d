"""Measure the export for trace viewers beside xprof's trace viewer, on the trace of over 100 MB of bench.py.

    python benchmarks/timeline.py [--cache DIR] [--rounds N] [--skip-streaming]

Every figure is the median over several fresh processes; xprof takes minutes, so it runs once. Exits with 1 if a bar is
missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench import FULL_STEPS, Bar, Job, bar_line, captured, compile_packages, default_cache, fill, run, say, trace_file

EXPORT = """
import sys
from tfperf.cli.timeline import command
command(sys.argv[1:], prog_name="tfperf timeline")
"""
VIEWER = """
import sys
from pathlib import Path
from xprof.convert import raw_to_tool_data
page, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], sys.argv[2], {})
Path(sys.argv[3]).write_bytes(page if isinstance(page, bytes) else page.encode())
"""


@dataclass(frozen=True)
class Figures:
    """What one program took, and what it wrote."""

    wall_s: float
    peak_mb: float
    size_mb: float


def measure(name: str, command: tuple[str, ...], logdir: Path, suffix: str, rounds: int) -> Figures:
    """Run a program that writes `{out}` several times; return medians."""
    walls, peaks, size = [], [], 0.0
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}: {name}")
        with tempfile.TemporaryDirectory(prefix="run-") as folder:
            out = Path(folder, f"out{suffix}")
            words = {"{logdir}": str(logdir), "{trace}": str(trace_file(logdir)), "{out}": str(out)}
            sample = run(Job("full", name, command, logdir), [fill(word, words) for word in command], Path(folder))
            walls.append(sample.wall_s)
            peaks.append(sample.peak_mb)
            size = out.stat().st_size / 1e6
    return Figures(statistics.median(walls), statistics.median(peaks), size)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder for the traces (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often tfperf runs (%(default)s)")
    parser.add_argument("--skip-streaming", action="store_true", help="leave out xprof's second trace viewer")
    return parser.parse_args()


def main() -> int:
    """Measure, and print the table and the bars."""
    arguments = parse_arguments()
    logdir = captured(arguments.cache.resolve(), FULL_STEPS)
    compile_packages()
    export = (sys.executable, "-c", EXPORT, "{logdir}", "-o", "{out}")
    viewers = ("trace_viewer",) if arguments.skip_streaming else ("trace_viewer", "trace_viewer@")
    taken = {
        f"tfperf {suffix}": measure(f"tfperf {suffix}", export, logdir, suffix, arguments.rounds)
        for suffix in (".pftrace", ".json.gz")
    } | {
        f"xprof {tool}": measure(
            f"xprof {tool}", (sys.executable, "-c", VIEWER, "{trace}", tool, "{out}"), logdir, ".json", 1
        )
        for tool in viewers
    }
    print(f"{'program':22}{'wall s':>9}{'peak MB':>9}{'file MB':>9}")
    for name, figures in taken.items():
        print(f"{name:22}{figures.wall_s:9.2f}{figures.peak_mb:9.0f}{figures.size_mb:9.1f}")
    ours, peer = taken["tfperf .pftrace"], taken["xprof trace_viewer"]
    bars = [
        Bar("times faster than xprof's trace_viewer", peer.wall_s / ours.wall_s, 10, at_least=True),
        Bar("of the size of what xprof's trace_viewer makes", ours.size_mb / peer.size_mb, 0.1),
        Bar("to write .json.gz", taken["tfperf .json.gz"].wall_s, 60, " s"),
    ]
    print("", *map(bar_line, bars), sep="\n")
    return 0 if all(bar.held for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
