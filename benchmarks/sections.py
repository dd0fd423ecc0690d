"""What each section adds to a report: CPU time of its computing, its text and its imports.

    python benchmarks/sections.py [TRACE...] [--processes N] [--against SRC]

Sections are computed in order of their dependencies, so shared data and imports count for the first section that uses
them. Each process computes everything four times. Imports are what the first time takes beyond the fastest one; all
figures are the least of several processes. Python does not collect the garbage of all generations, which takes 15 ms in
whichever section it begins. With the folder `src` of another checkout, processes of both versions take turns; `more` is
the median difference of the first times of each pair, and the exit code is 1 if one is over `MOST_MS`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import process_time

MOST_MS = 15.0
TRACES = ("input_bound", "gpu_odd_channels", "gpu_tiny_kernels")
_AGAIN = 3
_NEVER = 1 << 30
_NOTHING = (0.0, 0.0, 0.0)
_SAMPLES = Path(__file__).resolve().parent.parent / "sample_traces"


def once(path: Path) -> dict[str, tuple[float, float]]:
    """Return milliseconds of CPU time by section: for its results, and for its part of the report as text."""
    from tfperf.analysis.load import Analysis
    from tfperf.analysis.registry import Host, HostResults, call, default_sections, find_section, with_dependencies
    from tfperf.report.model import Report
    from tfperf.report.render import RenderOptions, render
    from tfperf.trace.logdir import choose_run, find_runs
    from tfperf.trace.read import read_host

    run = choose_run(find_runs(path), None)
    names = with_dependencies(default_sections())
    trace = read_host(run.files[0].path, stats=frozenset().union(*(find_section(name).stats for name in names)))
    host = Host(trace)
    results = Analysis(run, "corrected", (), names)
    computing, writing = dict[str, float](), dict[str, float]()
    for name in names:
        begin_s = process_time()
        host.analyze([name])
        computing[name] = process_time() - begin_s
    results = Analysis(run, "corrected", (HostResults(trace.host, bool(trace.devices), host.results),), names)
    for name in names:
        begin_s, build = process_time(), find_section(name).build
        results[name]
        built_s = process_time()
        if build is not None:
            render(Report({}, {}, (call(build, results),)), "table", RenderOptions(view="sections"))
        computing[name] += built_s - begin_s
        writing[name] = process_time() - built_s
    return {name: (1000 * computing[name], 1000 * writing[name]) for name in names}


Parts = tuple[float, float, float]
"""Milliseconds of a section: for its results and its text, the fastest time, and for both the first time."""


def in_new_process(path: Path, bytecode: str, source: Path) -> dict[str, Parts]:
    """Return the parts by section of the version in `source`, whose modules are compiled to the folder `bytecode`."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--once", str(path)]
    text = subprocess.run(command, capture_output=True, check=True, env=environment).stdout
    first, *others = json.loads(text)
    return {
        name: (min(each[name][0] for each in others), min(each[name][1] for each in others), sum(first[name]))
        for name in first
    }


def runs_of(path: Path, sources: list[Path], processes: int) -> list[list[dict[str, Parts]]]:
    """Return the parts in each process of each version; the versions take turns."""
    runs: list[list[dict[str, Parts]]] = [[] for _ in sources]
    with tempfile.TemporaryDirectory() as bytecode:
        for number in range(1 + processes):
            for of_source, source in zip(runs, sources, strict=True):
                run = in_new_process(path, bytecode, source)
                if number:  # The first process compiles the modules.
                    of_source.append(run)
    return runs


def main() -> int:
    """Print a table for each trace; return 1 if a section adds too much."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, default=[_SAMPLES / name for name in TRACES])
    parser.add_argument("--processes", type=int, default=15)
    parser.add_argument("--against", type=Path, metavar="SRC")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
        print(json.dumps([once(options.traces[0]) for _ in range(1 + _AGAIN)]))
        return 0
    sources = [
        Path(__file__).resolve().parent.parent / "src",
        *([options.against.resolve()] if options.against else []),
    ]
    slow = []
    for path in options.traces:
        runs, *before = runs_of(path, sources, options.processes)
        print(f"{path.name}, ms of CPU time\n{'section':16}{'results':>9}{'text':>9}{'imports':>9}{'sum':>9}", end="")
        print(f"{'more':>9}" * len(before))
        for name in sorted(runs[0], key=lambda name: -min(run[name][2] for run in runs)):
            results_ms, text_ms, first_ms = (min(run[name][place] for run in runs) for place in range(3))
            parts = (results_ms, text_ms, max(first_ms - results_ms - text_ms, 0.0), first_ms)
            more = [
                median(now[name][2] - then.get(name, _NOTHING)[2] for now, then in zip(runs, of_source, strict=True))
                for of_source in before
            ]
            print(f"{name:16}" + "".join(f"{part:9.1f}" for part in (*parts, *more)))
            slow += [f"{name} of {path.name}" for ms in more if ms > MOST_MS]
    if options.against:
        verdict = "FAIL" if slow else "PASS"
        print(f"{verdict} no section adds more than {MOST_MS:.0f} ms" + f": {', '.join(slow)}" * bool(slow))
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
