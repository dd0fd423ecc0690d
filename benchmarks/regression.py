"""Does the gate cry wolf, and does it find a real slowdown? Real jobs, profiled again and again.

    python benchmarks/regression.py [--processes N] [--captures N] [--keep FILE]

Two jobs, one whose step is compute and one that waits for its input, each as it is and with 10 % more of the same work
(22 rounds instead of 20). Several processes one after the other profile both in turn, so that both see the machine as
it changes. Then every pair of captures is a trial of `tfperf check --baseline` at its defaults (tolerance 5 %):

- two captures of the unchanged job: called slower is a false alarm. Bar: at most 5 % of the trials.
- one of the unchanged and one of the slower job: called slower is right. Bar: at least 90 % of the trials.

A third job waits for a storage that answers after 10 ms (11 ms): its step time does not depend on the processor.

What a comparison cannot know is that the machine was slower during one of the captures, and virtual machines often are:
by a factor of two for some seconds. So a fixed loop of 50 ms runs before and after each capture, and a capture counts
as "quiet" if it took at most 15 % longer than the fastest such loop of all. Three kinds of trials for each job:

- one quiet capture against one quiet baseline: both bars hold for these.
- any capture against any one baseline: no bar, it shows what the machine adds.
- any capture against five baselines drawn at random, which is what tfperf offers for such machines: the bar on false
  alarms holds for these too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

STEPS, ROUNDS, MORE_ROUNDS = 50, 20, 22
MOST_FALSE_ALARMS, LEAST_FOUND = 0.05, 0.90
JOBS = ("compute", "input", "storage")
QUIET = 1.15


def build(job: str, rounds: int) -> tuple[Any, Any]:
    """Return the dataset and the step function of a job that does this much work."""
    import tensorflow as tf

    weights = tf.Variable(tf.random.normal((256, 256), stddev=0.05))

    def work(value: Any, times: int) -> Any:
        for _ in range(times):
            value = tf.tanh(value @ weights)
        return value

    def read(number: Any) -> Any:
        time.sleep(0.010 * rounds / ROUNDS)
        return number

    def make(number: Any) -> Any:
        if job == "storage":
            number = tf.py_function(read, [number], tf.int64)
        return work(tf.random.uniform((256, 256)) + tf.cast(number, tf.float32), rounds if job == "input" else 1)

    @tf.function
    def step(batch: Any) -> Any:
        return tf.reduce_sum(work(batch, rounds if job == "compute" else 1))

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return tf.data.Dataset.range(10**9).map(make).with_options(options), step


def loop_ms() -> float:
    """Return how long a fixed piece of work takes just now."""
    import numpy as np

    matrix = np.ones((256, 256), np.float32)
    begin = time.perf_counter()
    for _ in range(100):
        np.tanh(matrix @ matrix)
    return (time.perf_counter() - begin) * 1e3


def child(job: str, captures: int) -> None:
    """Profile the job, unchanged and slower in turn; print rounds, loop time and snapshot of each."""
    import tensorflow as tf

    import tfperf
    from tfperf.compare.snapshot import snapshot_text, take

    tf.config.threading.set_intra_op_parallelism_threads(1)
    kinds = {rounds: build(job, rounds) for rounds in (ROUNDS, MORE_ROUNDS)}
    for number in range(captures + 1):
        for rounds, (dataset, step) in kinds.items():
            iterator = iter(dataset)
            step(next(iterator))
            with tempfile.TemporaryDirectory() as folder:
                before = loop_ms()
                with tfperf.profile(folder):
                    for index in range(STEPS + 1):  # the end of the last one is not known
                        with tfperf.step(index):
                            step(next(iterator)).numpy()
                loop = max(before, loop_ms())
                if number:  # the first capture of a process warms up
                    print(rounds, loop, snapshot_text(take(tfperf.load(folder), "run")).replace("\n", " "), flush=True)


Capture = tuple[str, int, float, str]
"""Job, rounds, loop time in ms, snapshot."""


def captured(processes: int, captures: int) -> Iterator[Capture]:
    """Run the processes one after the other and yield their captures."""
    for process, job in product(range(processes), JOBS):
        command = [sys.executable, __file__, "--child", job, "--captures", str(captures)]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
                       "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=900)
        for line in done.stdout.splitlines():
            rounds, loop, text = line.split(" ", 2)
            yield job, int(rounds), float(loop), text
        print(f"{job}: process {process + 1} of {processes}", file=sys.stderr)


def judge(captures: list[Capture]) -> bool:
    """Print, for each job, the share of trials called slower; return whether all bars hold."""
    fastest = min(loop for _, _, loop, _ in captures)
    good = True
    titles = f"{'false alarms':>12} {'found':>6} {'cannot tell':>11} {'truth':>6}"
    print(f"{'job':8} {'captures':>12} {'baselines':>9} {titles}")
    for job, (quiet, baselines) in product(JOBS, ((True, 1), (False, 1), (False, 5))):
        own: dict[int, list[Any]] = {ROUNDS: [], MORE_ROUNDS: []}
        for name, rounds, loop, text in captures:
            if name == job and (loop <= QUIET * fastest or not quiet):
                own[rounds].append(snapshot(text))
        counted = f"{len(own[ROUNDS])}+{len(own[MORE_ROUNDS])}" + " quiet" * quiet
        if min(map(len, own.values())) <= baselines:
            print(f"{job:8} {counted:>12} too few")
            good = False
            continue
        same = changes(own[ROUNDS], own[ROUNDS], baselines)
        changed = changes(own[ROUNDS], own[MORE_ROUNDS], baselines)
        false, found = same.count("slower") / len(same), changed.count("slower") / len(changed)
        good &= false <= MOST_FALSE_ALARMS or (not quiet and baselines == 1)
        good &= found >= LEAST_FOUND or not quiet
        unsure = same.count("cannot tell") / len(same)
        times = {rounds: fmean(fmean(run.hosts[0].step_ms) for run in runs) for rounds, runs in own.items()}
        truth = times[MORE_ROUNDS] / times[ROUNDS]
        print(f"{job:8} {counted:>12} {baselines:9} {false:12.1%} {found:6.0%} {unsure:11.1%} {truth:6.2f}")
    return good


def changes(before: list[Any], after: list[Any], baselines: int) -> list[str]:
    """Return what is said of each capture against each other one, or against draws of several."""
    from tfperf.compare.baselines import compare_with

    draw = random.Random(1)
    found = []
    for run in after:
        others = [one for one in before if one is not run]
        drawn = [[one] for one in others] if baselines == 1 else [draw.sample(others, baselines) for _ in range(10)]
        found += [compare_with(some, run, tolerance=0.05).change for some in drawn]
    return found


def snapshot(text: str) -> Any:
    """Return the snapshot that a process wrote."""
    from tfperf.compare.snapshot import read_snapshot

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.json"
        path.write_text(text, encoding="utf-8")
        return read_snapshot(path)


def main() -> int:
    """Measure, judge, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--captures", type=int, default=6)
    parser.add_argument("--keep", type=Path, help="keep the captures in this file, or judge those in it")
    parser.add_argument("--child", choices=JOBS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.captures)
        return 0
    if given.keep and given.keep.exists():
        captures = [tuple(one) for one in json.loads(given.keep.read_text(encoding="utf-8"))]
    else:
        captures = list(captured(given.processes, given.captures))
        if given.keep:
            given.keep.write_text(json.dumps(captures), encoding="utf-8")
    good = judge(captures)
    print("PASS" if good else "FAIL")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
