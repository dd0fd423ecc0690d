"""Measure runs of many hosts: one after the other, on a pool of processes, and on a cluster of dask.

    python benchmarks/hosts.py [--cache DIR] [--large N] [--small N] [--synthetic N] [--most N] [--runs N] [--rounds N]

Every figure is a process of its own, from start to exit, and the ways take turns, so that a slow moment of the machine
hits all of them; the median counts. The cluster is not there while pool and sequence are compared: its five processes
take a part of the cores even if they have nothing to do. Each way must write the same JSON. The large hosts are one
trace of over 100 MB, linked N times; the small ones are a sample trace with other names and times; the synthetic ones
wait for input for different parts of their steps. Of the most hosts, the answer and the page are timed, and of the
large trace, one process and two. The newest of many runs is looked for in a logdir in which all others are empty.
Exits with 1 if a bar is missed. The bars are for two cores and nothing else on the machine: the load that was there
before is printed. How long a single host takes compared with an earlier version, `against.py` tells.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from bench import FULL_STEPS, SAMPLE, Bar, bar_line, captured, default_cache, say, trace_file

WORKERS = 2
MEASURED = """
import json, resource, sys
from pathlib import Path
from tfperf.__main__ import run
usage = Path(sys.argv.pop(1))
try:
    run()
except SystemExit as end:
    peaks = [resource.getrusage(who).ru_maxrss * 1024 / 1e6 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    usage.write_text(str([end.code, *peaks]))
"""
"""The command line, and what it and its worker processes took at most."""
WAYS: dict[str, tuple[str, ...]] = {"sequence": ("--jobs", "1"), "pool": ("--jobs", str(WORKERS))}


@dataclass(frozen=True)
class Taken:
    """What a way took: wall time, and peak memory of the process and of the largest of its workers."""

    wall_s: float
    own_mb: float
    worker_mb: float


# Hosts


def linked(folder: Path, trace: Path, count: int) -> Path:
    """Return a run folder in which so many hosts have the same trace."""
    folder.mkdir(parents=True)
    for number in range(count):
        os.link(trace, folder / f"worker-{number}.xplane.pb")
    return folder


def varied(folder: Path, trace: Path, count: int) -> Path:
    """Return a run folder of hosts that differ from a trace in their names and in how long their first event lasts."""
    from tfperf.formats.wire.schema import message_class

    space = message_class("XSpace").FromString(trace.read_bytes())
    event = next(event for plane in space.planes for line in plane.lines for event in line.events)
    folder.mkdir(parents=True)
    for number in range(count):
        space.hostnames[:] = [f"worker-{number}".encode()]
        event.duration_ps += 1
        (folder / f"worker-{number}.xplane.pb").write_bytes(space.SerializeToString())
    return folder


def many_runs(logdir: Path, trace: Path, count: int) -> Path:
    """Return the newest of so many runs of a logdir: the others are older, and have an empty file."""
    runs, start = logdir / "plugins" / "profile", datetime(2026, 1, 1, tzinfo=timezone.utc)
    for number in range(count):
        run = runs / f"{start + timedelta(minutes=number):%Y_%m_%d_%H_%M_%S}"
        run.mkdir(parents=True)
        (run / trace.name).touch()
    (run / trace.name).write_bytes(trace.read_bytes())
    return run


def synthetic(folder: Path, count: int) -> Path:
    """Return a run folder of hosts that differ: 20 steps of 1 ms, in which host n waits for input for n % 7 tenths."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from builders import event, host, space

    folder.mkdir(parents=True)
    for number in range(count):
        wait_us = 100 * (number % 7)
        events = [event("train", 1000 * step, 990, step_num=step) for step in range(20)]
        events += [event("IteratorGetNextOp::DoCompute", 1000 * step + 1, wait_us + 1) for step in range(20)]
        events += [event("layer/MatMul:MatMul", 1000 * step + 800, 100) for step in range(20)]
        (folder / f"worker-{number}.xplane.pb").write_bytes(space(host(*events)))
    return folder


# Measuring


def measure(run: Path, options: Sequence[str], output: Path) -> Taken:
    """Analyze a run once, with all sections, into a file: its suffix says the format."""
    usage = output.with_suffix(".usage")
    command = [sys.executable, "-c", MEASURED, str(usage), "analyze", str(run), *options]
    began = time.perf_counter()
    done = subprocess.run([*command, "-o", str(output), "--force", "-q"], capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - began
    code, own_mb, worker_mb = json.loads(usage.read_text()) if usage.exists() else (done.returncode, 0, 0)
    if code:
        sys.exit(f"{' '.join(options)} on {run} failed with {code}:\n{done.stderr[-2000:]}")
    return Taken(wall_s, own_mb, worker_mb)


def in_turn(run: Path, ways: dict[str, tuple[str, ...]], rounds: int) -> dict[str, Taken]:
    """Measure all ways in turn, several times; return the medians. All must write the same bytes."""
    samples: dict[str, list[Taken]] = {way: [] for way in ways}
    for number in range(rounds):
        for way, options in ways.items():
            say(f"round {number + 1} of {rounds}: {run.name}, {way}")
            samples[way].append(measure(run, options, run.parent / f"{way}.json"))
            check_same(run.parent / "sequence.json", run.parent / f"{way}.json")
    return medians(samples)


def medians(samples: dict[str, list[Taken]]) -> dict[str, Taken]:
    """Return the median of each figure."""
    return {
        way: Taken(*(statistics.median(getattr(each, field) for each in taken) for field in Taken.__annotations__))
        for way, taken in samples.items()
    }


def check_same(expected: Path, found: Path) -> None:
    """End the program if two ways say different things."""
    if expected.read_bytes() != found.read_bytes():
        sys.exit(f"{found} differs from {expected}")


@contextmanager
def cluster() -> Iterator[tuple[str, list[int]]]:
    """Start a scheduler and workers of dask as their command lines do; give its address and the workers' nannies."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    address, module = f"tcp://127.0.0.1:{port}", "distributed.cli.dask_"
    commands = [
        [f"{module}scheduler", "--no-dashboard", "--host", "127.0.0.1", "--port", str(port)],
        *([[f"{module}worker", address, "--nthreads", "1", "--no-dashboard"]] * WORKERS),
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for command in commands
    ]
    from distributed import Client

    with Client(address, timeout=60, set_as_default=False) as client:
        client.wait_for_workers(WORKERS, timeout=60)
    try:
        yield address, [process.pid for process in processes[1:]]
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def with_a_death(run: Path, address: str, nanny: int, after_s: float) -> float:
    """Analyze on a cluster of which one worker is killed in the middle; return the wall time."""
    output = run.parent / "death.json"
    command = [sys.executable, "-m", "tfperf", "analyze", str(run), "--cluster", address, "--format", "json"]
    began = time.perf_counter()
    process = subprocess.Popen([*command, "-o", str(output), "--force", "-q"])
    time.sleep(after_s)
    for child in Path(f"/proc/{nanny}/task/{nanny}/children").read_text().split():
        if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(int(child), signal.SIGKILL)
    if process.wait():
        sys.exit("a run of which a worker died failed")
    wall_s = time.perf_counter() - began
    check_same(run.parent / "sequence.json", output)
    return wall_s


# What is measured


def many(name: str, run: Path, rounds: int) -> Iterator[Bar]:
    """Measure a run in sequence and on a pool; then on a pool and on a cluster, whose processes work when idle too."""
    taken = in_turn(run, WAYS, rounds)
    show(name, taken)
    with cluster() as (address, nannies):
        beside = in_turn(run, {"pool": WAYS["pool"], "cluster": ("--cluster", address)}, rounds)
        wall_s = beside["cluster"].wall_s
        died_s = with_a_death(run, address, nannies[0], wall_s / 2)
    show(name, beside)
    print(f"{name:12} {'one killed':10} {died_s:8.2f} s")
    sequence, pool = taken["sequence"], taken["pool"]
    yield Bar(f"of the time in sequence, {name}, pool of {WORKERS}", pool.wall_s / sequence.wall_s, 0.6)
    yield Bar(f"peak of the largest worker, {name}", pool.worker_mb, 400, " MB")
    yield Bar(f"peak of the parent, {name}", pool.own_mb, 600, " MB")
    yield Bar(f"of the time of the pool, {name}, cluster of {WORKERS}", wall_s / beside["pool"].wall_s, 1.3)
    yield Bar(f"of the time of the cluster, {name}, one worker killed", died_s / wall_s, 2)


def growth(folder: Path, most: int, rounds: int) -> Iterator[Bar]:
    """Measure how time grows with the number of synthetic hosts."""
    walls: list[float] = []
    for count in (most // 4, most // 2, most):
        run = synthetic(folder / str(count) / f"{count} hosts", count)
        taken = in_turn(run, WAYS, rounds)
        show(f"{count} synth.", taken)
        walls.append(taken["pool"].wall_s)
        if len(walls) > 1:
            yield Bar(f"for twice as many hosts, {count}, over linear", walls[-1] / walls[-2] / 2, 1.15)
    yield Bar(f"peak of the parent, {most} synthetic hosts", taken["pool"].own_mb, 600, " MB")


def most(run: Path, rounds: int) -> Iterator[Bar]:
    """Measure the answer about very many hosts, and the page."""
    samples: dict[str, list[Taken]] = {"answer.txt": [], "page.html": []}
    for number in range(rounds):
        for file, taken in samples.items():
            say(f"round {number + 1} of {rounds}: {run.name}, {file}")
            taken.append(measure(run, (), run.parent / file))
    shown = medians(samples)
    show(run.name, shown)
    answer_s = shown["answer.txt"].wall_s
    yield Bar(f"for the answer about {run.name}", answer_s, 30, " s")
    yield Bar(f"of the time of that, page of {run.name}", shown["page.html"].wall_s / answer_s, 2)


def one_host(run: Path, rounds: int) -> Iterator[Bar]:
    """Measure a single large host in one process, and with a copy of that which helps it."""
    taken = in_turn(run, {"sequence": ("--jobs", "1"), "copy": ()}, rounds)
    show(run.name, taken)
    one, two = taken["sequence"], taken["copy"]
    yield Bar(f"of the time of one process, {run.name}, with a copy", two.wall_s / one.wall_s, 0.75)


def newest(run: Path, rounds: int) -> Iterator[Bar]:
    """Measure how much longer it takes to analyze a run where it is the newest of many."""
    logdir, walls = run.parents[2], dict[Path, list[float]]()
    for _ in range(rounds):
        for path in (logdir, run):
            wall_s = measure(path, ("-s", "overview"), logdir.parent / "newest.json").wall_s
            walls.setdefault(path, []).append(wall_s)
    longer_s = statistics.median(walls[logdir]) - statistics.median(walls[run])
    yield Bar(f"to find the newest of {len([*run.parent.iterdir()]):,} runs", longer_s, 5, " s")


def show(name: str, taken: dict[str, Taken]) -> None:
    """Print what each way took."""
    for way, each in taken.items():
        print(f"{name:12} {way:10} {each.wall_s:8.2f} s {each.own_mb:6.0f} MB {each.worker_mb:6.0f} MB a worker")


def main() -> int:
    """Make the hosts, measure, and print the figures and the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder for the traces (%(default)s)")
    for name, count in (
        *(("large", 8), ("small", 512), ("synthetic", 4096), ("most", 2000), ("runs", 65_000), ("rounds", 3)),
    ):
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N", help="(%(default)s; 0: none)")
    arguments = parser.parse_args()
    cache: Path = arguments.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    print(f"{os.cpu_count()} cores; load of the last minute before: {os.getloadavg()[0]:.2f}\n")
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory(dir=cache, prefix="hosts-") as name:
        folder = Path(name)
        small = folder / "small.xplane.pb"
        small.write_bytes(trace_file(SAMPLE).read_bytes())
        if arguments.large:
            large = trace_file(captured(cache, FULL_STEPS))
            bars += one_host(linked(folder / "one" / "1 large host", large, 1), arguments.rounds)
            run = linked(folder / "a" / "large hosts", large, arguments.large)
            bars += many(f"{arguments.large} large", run, arguments.rounds)
        if arguments.small:
            run = varied(folder / "b" / "small hosts", small, arguments.small)
            bars += many(f"{arguments.small} small", run, arguments.rounds)
        if arguments.synthetic:
            bars += growth(folder, arguments.synthetic, arguments.rounds)
        if arguments.most:
            bars += most(varied(folder / "c" / f"{arguments.most} hosts", small, arguments.most), arguments.rounds)
        if arguments.runs:
            bars += newest(many_runs(folder / "d" / "logdir", small, arguments.runs), arguments.rounds)
    print("", *map(bar_line, bars), sep="\n")
    return 0 if all(bar.held for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
