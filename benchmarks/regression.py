"""False alarms and missed slowdowns of `tfperf check --baseline`: real jobs, profiled again and again.

    python benchmarks/regression.py [--processes N] [--captures N] [--keep FILE]

Two jobs: one computes, the other waits in each step for a storage that answers after 30 ms. Each runs as it is and with
10 % more of the same work. Several processes one after the other profile both in turn, so that both see the machine as
it changes. A trial is what `tfperf check --baseline` says with its defaults (tolerance 5 %, mean, 50 steps):

- a capture of the unchanged job against another one: called slower is a false alarm. Bar: at most 5 % of the trials.
- a capture of the slower job against an unchanged one: called slower is right. Bar: at least 90 % of the trials.

No comparison of two captures shows that the machine was slower during one of them, and virtual machines often
are, by a factor of up to two, for seconds. So each step of both jobs also does a fixed piece of work, and times
it. There are three kinds of trials:

- "one": any capture against any one baseline. Both bars hold for the job that waits, whose steps do not depend on the
  processor; for the other one this shows what the machine adds.
- "alike": the same, of pairs in which the fixed work took equally long, within 2 %. No bar: it shows that the false
  alarms before are the machine's.
- "five": any capture against five baselines drawn at random, which is what tfperf offers for such machines. The bar on
  false alarms holds for both jobs.
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
JOBS = ("compute", "storage")
ALIKE = 1.02


def build(job: str, rounds: int) -> tuple[Any, Any]:
    """Return the dataset and the step function of a job that does this much work."""
    import tensorflow as tf

    weights = tf.Variable(tf.random.normal((256, 256), stddev=0.05))
    share = rounds / ROUNDS

    def read(number: Any) -> Any:
        time.sleep(0.030 * share + 0.004 * (share - 1))  # what a step takes besides has to grow as well
        return number

    def make(number: Any) -> Any:
        if job == "storage":
            number = tf.py_function(read, [number], tf.int64)
        return tf.random.uniform((256, 256)) + tf.cast(number, tf.float32)

    @tf.function  # type: ignore[untyped-decorator]
    def step(batch: Any) -> Any:
        for _ in range(rounds if job == "compute" else 1):
            batch = tf.tanh(batch @ weights)
        return tf.reduce_sum(batch)

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return tf.data.Dataset.range(10**9).map(make).with_options(options), step


def probe_ms() -> float:
    """Return how long a fixed piece of work takes just now."""
    import numpy as np

    matrix = np.ones((128, 128), np.float32)
    start = time.perf_counter()
    for _ in range(3):
        np.tanh(matrix @ matrix)
    return (time.perf_counter() - start) * 1e3


def child(job: str, captures: int) -> None:
    """Profile the job, unchanged and slower in turn; print rounds, probe time and baseline of each."""
    import tensorflow as tf

    import tfperf
    from tfperf.judge.run_summary import baseline_text
    from tfperf.judge.summarize import summarize_run

    tf.config.threading.set_intra_op_parallelism_threads(1)
    kinds = {rounds: build(job, rounds) for rounds in (ROUNDS, MORE_ROUNDS)}
    for number in range(captures + 1):
        for rounds, (dataset, step) in kinds.items():
            iterator = iter(dataset)
            step(next(iterator))
            probes = []
            with tempfile.TemporaryDirectory() as folder:
                with tfperf.profile(folder):
                    for index in range(STEPS + 1):  # the end of the last one is unknown
                        with tfperf.step(index):
                            step(next(iterator)).numpy()
                            probes.append(probe_ms())
                if number:  # the first capture of a process warms up
                    text = baseline_text(summarize_run(tfperf.load(folder), "run"))
                    print(rounds, fmean(probes), text.replace("\n", " "), flush=True)


Capture = tuple[str, int, float, str]
"""Job, rounds, probe time in ms, text of the baseline."""
Probed = tuple[float, Any]
"""Probe time in ms, summary of the run."""


def captured(processes: int, captures: int) -> Iterator[Capture]:
    """Run the processes one after the other and yield their captures."""
    for process, job in product(range(processes), JOBS):
        command = [sys.executable, __file__, "--child", job, "--captures", str(captures)]
        settings = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "OPENBLAS_NUM_THREADS": "1"}
        environment = {**os.environ, **settings}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=900)
        for line in done.stdout.splitlines():
            rounds, probe, text = line.split(" ", 2)
            yield job, int(rounds), float(probe), text
        print(f"{job}: process {process + 1} of {processes}", file=sys.stderr)


def judge(captures: list[Capture]) -> bool:
    """Print, for each job, the share of trials called slower; return whether all bars hold."""
    bars = {
        ("storage", "one"): (MOST_FALSE_ALARMS, LEAST_FOUND),
        ("storage", "five"): (MOST_FALSE_ALARMS, 0.0),
        ("compute", "five"): (MOST_FALSE_ALARMS, 0.0),
    }
    good = True
    print(f"{'job':8} {'trials':12} {'false alarms':>12} {'detected':>8} {'inconclusive':>12}  bars")
    for job in JOBS:
        runs_of: dict[int, list[Probed]] = {ROUNDS: [], MORE_ROUNDS: []}
        for name, rounds, probe, text in captures:
            if name == job:
                runs_of[rounds].append((probe, run_summary(text)))
        for kind in ("one", "alike", "five"):
            same, changed = (verdicts(runs_of[ROUNDS], runs_of[rounds], kind) for rounds in (ROUNDS, MORE_ROUNDS))
            false, detected = (list_.count("slower") / max(len(list_), 1) for list_ in (same, changed))
            most, least = bars.get((job, kind), (1.0, 0.0))
            held = bool(same) and false <= most and detected >= least
            good &= held
            verdict = ("PASS" if held else "FAIL") if (job, kind) in bars else "none"
            unsure = same.count("inconclusive") / max(len(same), 1)
            print(f"{job:8} {kind:5} {len(same):6} {false:12.1%} {detected:8.0%} {unsure:12.1%}  {verdict}")
        means = {rounds: [fmean(run.hosts[0].step_ms) for _, run in runs] for rounds, runs in runs_of.items()}
        truth = fmean(means[MORE_ROUNDS]) / fmean(means[ROUNDS])
        probes = [probe for runs in runs_of.values() for probe, _ in runs]
        print(
            f"{'':8} step times {min(means[ROUNDS]):.1f} to {max(means[ROUNDS]):.1f} ms, {truth:.2f} times as long "
            f"with more work; the fixed work took {min(probes):.2f} to {max(probes):.2f} ms"
        )
    return good


def verdicts(before: list[Probed], after: list[Probed], kind: str) -> list[str]:
    """Return the verdict on each capture against others."""
    from tfperf.judge.regression import compare_with_baselines

    draw = random.Random(1)
    texts: list[str] = []
    for probe, run in after:
        others = [(other_probe, other) for other_probe, other in before if other is not run]
        if kind == "alike":
            others = [(ms, other) for ms, other in others if max(ms, probe) <= ALIKE * min(ms, probe)]
        runs = [other for _, other in others]
        drawn = [draw.sample(runs, 5) for _ in range(20)] if kind == "five" else [[other] for other in runs]
        texts += [compare_with_baselines(baselines, run, tolerance=0.05).verdict for baselines in drawn]
    return texts


def run_summary(text: str) -> Any:
    """Return the summary of a run from the baseline that a process wrote."""
    from tfperf.judge.run_summary import read_baseline

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "baseline.json"
        path.write_text(text, encoding="utf-8")
        return read_baseline(path)


def main() -> int:
    """Measure, judge, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--captures", type=int, default=8)
    parser.add_argument("--keep", type=Path, help="keep the captures in this file, or judge those in it")
    parser.add_argument("--child", choices=JOBS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.captures)
        return 0
    if given.keep and given.keep.exists():
        captures = [tuple(capture) for capture in json.loads(given.keep.read_text(encoding="utf-8"))]
    else:
        captures = list(captured(given.processes, given.captures))
        if given.keep:
            given.keep.write_text(json.dumps(captures), encoding="utf-8")
    good = judge(captures)
    print("PASS" if good else "FAIL")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
