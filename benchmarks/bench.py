"""Measure time and memory of tfperf beside xprof and a bare protobuf parse.

    python benchmarks/bench.py [--cache DIR] [--giant]

The traces are made once, by make_big_trace.py, and kept in the cache folder. Every figure is the median over several
fresh processes, and the programs take turns, so that a slow moment of the machine hits all of them. Exits with 1 if a
bar is missed, so run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parent / "sample_traces" / "input_bound"
SCRIPTS = Path(sysconfig.get_path("scripts"))

FULL_STEPS, HALF_STEPS, SMALL_STEPS = 3200, 1600, 28
FULL_BYTES, GIANT_BYTES = 100_000_000, 1_000_000_000
BIG_ROUNDS, SMALL_ROUNDS = 3, 5

TFPERF = (str(SCRIPTS / "tfperf"), "analyze", "{logdir}", "--format", "table", "-o", "{out}")
XPROF = (str(SCRIPTS / "xprof"), "get_overview", "--logdir={logdir}")
XPROF_PAGE = """
import sys
from xprof.convert import raw_to_tool_data
page, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "overview_page", {})
sys.exit(0 if page else "xprof returned no overview page")
"""
PARSE = """
import sys
from pathlib import Path
from tfperf.formats.wire.schema import message_class
message_class("XSpace")().ParseFromString(Path(sys.argv[1]).read_bytes())
"""


@dataclass(frozen=True)
class Job:
    """A program on a trace. `{logdir}`, `{trace}` and `{out}` in the command become paths in a folder of its own."""

    trace: str
    program: str
    command: tuple[str, ...]
    logdir: Path | None = None


@dataclass(frozen=True)
class Sample:
    """What one process took."""

    wall_s: float
    peak_mb: float


@dataclass(frozen=True)
class Bar:
    """A promise: the figure must stay within the limit, a maximum unless `at_least`."""

    promise: str
    figure: float
    limit: float
    unit: str = ""
    at_least: bool = False

    @property
    def held(self) -> bool:
        """Tell whether the promise was kept."""
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit


Samples = dict[Job, list[Sample]]


def say(text: str) -> None:
    """Tell what is going on; stdout is for the results."""
    print(text, file=sys.stderr, flush=True)


def seconds(command: Sequence[str]) -> float:
    """Run a program, and return how long it took."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)[:300]} failed with {done.returncode}:\n{done.stderr[-2000:]}")
    return time.perf_counter() - began


# Traces


def default_cache() -> Path:
    """Return the folder for the traces: in the user's cache, outside the repository."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfperf-bench"


def trace_file(logdir: Path) -> Path:
    """Return the one trace of a logdir."""
    (trace,) = logdir.rglob("*.xplane.pb")
    return trace


def size_mb(logdir: Path) -> float:
    """Return the size of the trace of a logdir."""
    return trace_file(logdir).stat().st_size / 1e6


def made_once(target: Path, script: str, *arguments: str) -> Path:
    """Run a script that fills a new logdir unless it did so before; an interrupted run leaves no `target`."""
    if not target.exists():
        say(f"making {target} (once)")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as unfinished:
            logdir = Path(unfinished, "logdir")
            subprocess.run([sys.executable, str(HERE / script), str(logdir), *arguments], check=True, stdout=sys.stderr)
            logdir.rename(target)
    return target


def captured(cache: Path, steps: int) -> Path:
    """Return the logdir of a real Keras job of so many steps."""
    return made_once(cache / f"steps_{steps}", "make_big_trace.py", "--steps", str(steps))


def giant(cache: Path, full: Path) -> Path:
    """Return a logdir with a trace of over 1 GB: the threads of the full one many times over, one after the other."""
    copies = -(-GIANT_BYTES // trace_file(full).stat().st_size)
    return made_once(cache / f"giant_{copies}", "make_giant_trace.py", str(trace_file(full)), "--copies", str(copies))


# Measuring


def environment(folder: Path) -> dict[str, str]:
    """Return variables for a child: every cache folder is new and empty.

    Compiled bytecode, on the other hand, is to be used by all: it is there for everyone who runs a program the second
    time. Some machines switch its writing off, and a package that was installed editable (tfperf, here) would then be
    compiled in every run, while its peer came with bytecode from pip.
    """
    dropped = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    fresh = {}
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        fresh[name] = str(folder / name.lower())
        Path(fresh[name]).mkdir()
    return kept | fresh | {"TF_CPP_MIN_LOG_LEVEL": "2"}


def compile_packages() -> None:
    """Compile tfperf and its peer, as an ordinary install does."""
    for package in ("tfperf", "xprof"):
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            sys.exit(f'{package} is not installed; run: pip install -e ".[dev]"')
        subprocess.run([sys.executable, "-m", "compileall", "-q", *spec.submodule_search_locations], check=True)


def measure(job: Job, cache: Path) -> Sample:
    """Run a job once, in a process and a folder of its own, on its own copy of the trace (xprof writes beside it)."""
    with tempfile.TemporaryDirectory(dir=cache, prefix="run-") as name:
        folder = Path(name)
        paths = {"out": str(folder / "out.txt"), "logdir": "", "trace": ""}
        if job.logdir:
            copied = shutil.copytree(job.logdir, folder / "logdir")
            paths |= {"logdir": str(copied), "trace": str(trace_file(copied))}
        words = {f"{{{key}}}": path for key, path in paths.items()}
        return run(job, [fill(word, words) for word in job.command], folder)


def fill(word: str, paths: dict[str, str]) -> str:
    """Put paths into a word of a command."""
    for mark, path in paths.items():
        word = word.replace(mark, path)
    return word


def run(job: Job, command: Sequence[str], folder: Path) -> Sample:
    """Start a process, wait, and return its wall time and peak memory.

    Linux counts the memory of the process that starts another towards the peak of the new one, so this one must stay
    small: no trace is read here, and no large module imported.
    """
    variables = environment(folder)
    with (folder / "output.txt").open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        text = (folder / "output.txt").read_text(errors="replace")
        sys.exit(f"{job.program} on {job.trace} failed with {process.returncode}:\n{text[-2000:]}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Sample(wall_s, usage.ru_maxrss * unit / 1e6)


def take_turns(jobs: Sequence[Job], rounds: int, cache: Path) -> Samples:
    """Measure all jobs in turn, several times."""
    samples: Samples = {job: [] for job in jobs}
    for number in range(rounds):
        for job in jobs:
            say(f"round {number + 1} of {rounds}: {job.program}, {job.trace}")
            samples[job].append(measure(job, cache))
    return samples


def medians(samples: Samples) -> dict[tuple[str, str], Sample]:
    """Return the median wall time and the median peak memory by trace and program."""
    return {
        (job.trace, job.program): Sample(
            statistics.median(sample.wall_s for sample in taken), statistics.median(sample.peak_mb for sample in taken)
        )
        for job, taken in samples.items()
    }


# What is measured


def big_jobs(full: Path, half: Path) -> list[Job]:
    """Return the jobs on large traces."""
    return [
        Job("full", "tfperf analyze", TFPERF, full),
        Job("full", "xprof overview_page", (sys.executable, "-c", XPROF_PAGE, "{trace}"), full),
        Job("full", "protobuf parse only", (sys.executable, "-c", PARSE, "{trace}"), full),
        Job("half", "tfperf analyze", TFPERF, half),
    ]


def small_jobs(small: Path) -> list[Job]:
    """Return the jobs on small traces, and the one without a trace."""
    return [
        Job("1 MB", "tfperf analyze", TFPERF, small),
        Job("1 MB", "xprof get_overview", XPROF, small),
        Job("sample", "tfperf analyze", TFPERF, SAMPLE),
        Job("sample", "xprof get_overview", XPROF, SAMPLE),
        Job("none", "tfperf --help", (TFPERF[0], "--help")),
    ]


def bars(taken: dict[tuple[str, str], Sample]) -> Iterator[Bar]:
    """Iterate over the promises that the figures are held to."""
    ours, peer = taken["full", "tfperf analyze"], taken["full", "xprof overview_page"]
    half = taken["half", "tfperf analyze"]
    yield Bar("times faster than xprof on the full trace", peer.wall_s / ours.wall_s, 10, at_least=True)
    yield Bar("of xprof's peak memory on the full trace", ours.peak_mb / peer.peak_mb, 0.25)
    yield Bar("full / half trace, wall time", ours.wall_s / half.wall_s, 2.2)
    for trace in ("1 MB", "sample"):
        small, other = taken[trace, "tfperf analyze"], taken[trace, "xprof get_overview"]
        yield Bar(f"of xprof get_overview's wall time, {trace} trace", small.wall_s / other.wall_s, 1)
    yield Bar("tfperf --help", taken["none", "tfperf --help"].wall_s, 0.15, " s")
    if ("giant", "tfperf analyze") in taken:
        yield Bar("peak memory on the giant trace", taken["giant", "tfperf analyze"].peak_mb, 4000, " MB")


# Showing


def table_lines(samples: Samples) -> Iterator[str]:
    """Iterate over the lines of the table; ratios are to tfperf on the same trace."""
    taken = medians(samples)
    yield f"{'trace':8}{'MB':>8}  {'program':20}{'runs':>5}{'wall s':>9}{'peak MB':>9}{'wall x':>8}{'memory x':>10}"
    for job, rows in samples.items():
        sample = taken[job.trace, job.program]
        base = taken.get((job.trace, "tfperf analyze"), sample)
        size = f"{size_mb(job.logdir):.1f}" if job.logdir else "-"
        yield (
            f"{job.trace:8}{size:>8}  {job.program:20}{len(rows):5}{sample.wall_s:9.3f}{sample.peak_mb:9.0f}"
            f"{sample.wall_s / base.wall_s:8.2f}{sample.peak_mb / base.peak_mb:10.2f}"
        )


def bar_line(bar: Bar) -> str:
    """Return one promise with its figure and whether it was kept."""
    verdict, side = "PASS" if bar.held else "FAIL", "at least" if bar.at_least else "at most"
    figure = f"{bar.figure:.0f}" if bar.figure >= 100 else f"{bar.figure:.3g}"
    return f"{verdict}  {figure}{bar.unit} {bar.promise} ({side} {bar.limit:g}{bar.unit})"


def show(samples: Samples) -> bool:
    """Print the table and the promises; return whether all were kept."""
    all_bars = list(bars(medians(samples)))
    print(
        f"tfperf {version('tfperf')}, xprof {version('xprof')}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}; medians\n"
    )
    print("\n".join(table_lines(samples)), end="\n\n")
    print("\n".join(map(bar_line, all_bars)))
    return all(bar.held for bar in all_bars)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder for the traces (%(default)s)")
    parser.add_argument("--giant", action="store_true", help="also a trace of over 1 GB: needs 4 GB of memory and disk")
    return parser.parse_args()


def main() -> int:
    """Make the traces, measure, and print the table and the bars."""
    arguments = parse_arguments()
    cache: Path = arguments.cache.resolve()
    full, half, small = (captured(cache, steps) for steps in (FULL_STEPS, HALF_STEPS, SMALL_STEPS))
    if trace_file(full).stat().st_size < FULL_BYTES:
        sys.exit(f"{full} is smaller than {FULL_BYTES / 1e6:.0f} MB: raise FULL_STEPS and HALF_STEPS in {__file__}")
    compile_packages()
    take_turns([*small_jobs(small), *big_jobs(small, small)], 1, cache)  # unmeasured: warms the disk cache for all
    samples = take_turns(big_jobs(full, half), BIG_ROUNDS, cache)
    if arguments.giant:
        samples |= take_turns([Job("giant", "tfperf analyze", TFPERF, giant(cache, full))], 1, cache)
    samples |= take_turns(small_jobs(small), SMALL_ROUNDS, cache)
    return 0 if show(samples) else 1


if __name__ == "__main__":
    sys.exit(main())
