"""Does the what-if come true? Real jobs, run as they are, without input work, and with each change that is offered.

    python benchmarks/whatif.py [JOB ...] [--keep FOLDER] [--fastest]
    python benchmarks/whatif.py --judge FOLDER [--fastest]
    python benchmarks/whatif.py --judge FOLDER --repeat OTHER [--fastest]

Every job runs in a process of its own. In each round every variant of it runs in turn (a machine is not equally fast
all the time): some steps to warm up, some that are timed, some that are profiled. Of all rounds that one counts which
is slower than a quarter of them. `--fastest` takes the fastest instead, as `timeit` does; on a machine that is shared
with others it is luck: the ratio of two variants of a job then differed by 23 % (root mean square) between two runs of
this benchmark, by the quarter 9 %. *Without input work* is the first batch, again and again. The prediction is made
from one trace alone, that of the round which counts of the job as it is. Nothing is set per job. Bars:

- the profiled step time without input work lies in the range of `free_input` for nine of ten jobs;
- its speed-up, measured without profiling, lies in the ratio of step time and range for eight of ten;
- the profiled step time with a change lies in its range for eight of ten changes that are offered and can be made;
- the median width of all ranges is at most 0.4 of their middle;
- a job without an input problem is offered no change.

Run it on a machine that does nothing else. `--keep` keeps traces and times; `--judge` judges them again. `--repeat`
says what the machine allows: it predicts each job without input work not from a trace, but from what another run of
this benchmark *measured* for the same job, with a range as wide as the bar grants. Where that misses a bar, the machine
does not repeat itself, and no prediction can hold the bar: of 90 pairs of ten runs on two virtual cores, 51 held both
bars about jobs without input work.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from whatif_jobs import JOBS, first_batch_for_ever, model_of

FREE_BAR, RATIO_BAR, CHANGE_BAR, WIDTH_BAR = 0.9, 0.8, 0.8, 0.4
WARM_STEPS, TIMED_STEPS, TRACED_STEPS, ROUNDS = 15, 25, 20, 12
NOW, FREE = "now", "free_input"


def run_job(name: str, folder: Path) -> None:
    """Run all variants of a job in turn; write their times and traces."""
    import tensorflow as tf

    job = JOBS[name]
    now = job.pipeline(tf, folder)
    variants = {NOW: now, FREE: first_batch_for_ever(tf, now)}
    variants |= {change: build(tf, folder) for change, build in job.changes.items()}
    model = model_of(tf, job)
    run = run_keras if job.program == "keras" else run_loop
    seconds: dict[str, list[float]] = {variant: [] for variant in variants}
    for turn in range(ROUNDS):
        for variant, dataset in variants.items():
            seconds[variant].append(run(tf, model, dataset, folder / f"{variant}-{turn}"))
    (folder / "times.json").write_text(json.dumps({key: [1e3 * each for each in of] for key, of in seconds.items()}))


def run_loop(tf: Any, model: Any, dataset: Any, logdir: Path) -> float:
    """Train in a loop of one's own; return seconds per step without profiling."""
    import tfperf

    step = _compiled_step(tf, model)
    batches: Iterator[Any] = iter(dataset)
    for _ in range(WARM_STEPS):
        step(next(batches))
    start = time.perf_counter()
    for _ in range(TIMED_STEPS):
        step(next(batches))
    seconds = (time.perf_counter() - start) / TIMED_STEPS
    with tfperf.profile(logdir):
        for number in range(TRACED_STEPS):
            with tfperf.step(number):
                step(next(batches))
    return seconds


_steps: dict[int, Any] = {}


def _compiled_step(tf: Any, model: Any) -> Any:
    """Return the training step of a model, traced once for all variants."""
    return _steps.setdefault(id(model), tf.function(model.train_step))


def run_keras(tf: Any, model: Any, dataset: Any, logdir: Path) -> float:
    """Train with Keras; return seconds per step without profiling."""
    import keras

    import tfperf

    times = {}

    class Watch(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch in (WARM_STEPS, WARM_STEPS + TIMED_STEPS):
                times[batch] = time.perf_counter()
            if batch == WARM_STEPS + TIMED_STEPS:
                tfperf.start(logdir)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == WARM_STEPS + TIMED_STEPS + TRACED_STEPS:
                tfperf.stop()

    count = WARM_STEPS + TIMED_STEPS + TRACED_STEPS + 2
    model.fit(dataset, steps_per_epoch=count, epochs=1, verbose=0, callbacks=[Watch()])
    return (times[WARM_STEPS + TIMED_STEPS] - times[WARM_STEPS]) / TIMED_STEPS


@dataclass(frozen=True)
class Judged:
    """A predicted range beside what was measured; times in milliseconds."""

    job: str
    change: str
    is_offered: bool
    now_ms: float
    low_ms: float
    high_ms: float
    measured_ms: float | None
    """With the change, profiled; None: the benchmark does not know how to make the change."""
    unprofiled_ms: float | None
    """What the job takes today, times the speed-up without profiling."""

    @property
    def is_in_range(self) -> bool:
        """Tell whether the profiled step time is as predicted."""
        return self.measured_ms is not None and self.low_ms <= self.measured_ms <= self.high_ms

    @property
    def is_ratio_in_range(self) -> bool:
        """Tell whether the speed-up without profiling is as predicted."""
        return self.unprofiled_ms is not None and self.low_ms <= self.unprofiled_ms <= self.high_ms

    @property
    def width(self) -> float:
        """Return the width of the range, as a share of its middle."""
        return 2.0 * (self.high_ms - self.low_ms) / (self.high_ms + self.low_ms)

    def __str__(self) -> str:
        """Return it as a line of the table."""
        line = (
            f"{self.job:22} {self.change:13} {'offered' * self.is_offered:7} {self.now_ms:7.2f} "
            f"{self.low_ms:7.2f} -{self.high_ms:7.2f} {self.width:6.2f}"
        )
        if self.measured_ms is None or self.unprofiled_ms is None:
            return f"{line}  not measured"
        marks = ("" if self.is_in_range else "  OUTSIDE") + ("" if self.is_ratio_in_range else "  speed-up outside")
        return f"{line} {self.measured_ms:9.2f} {self.unprofiled_ms:9.2f}{marks}"


def judge(name: str, folder: Path, *, fastest: bool) -> list[Judged]:
    """Compare what one trace of a job predicts with what was measured."""
    import tfperf

    times, traces = counted_rounds(folder, fastest=fastest)
    outlook = tfperf.load(traces[NOW], sections=["tfdata"])["tfdata"].outlook
    if outlook is None:
        raise SystemExit(f"{name}: no pipeline in the trace {folder}")
    return [
        Judged(
            job=name,
            change=estimate.change,
            is_offered=estimate in outlook.gains,
            now_ms=outlook.step_ms,
            low_ms=estimate.low_ms,
            high_ms=estimate.high_ms,
            measured_ms=_step_ms(traces[estimate.change]) if estimate.change in times else None,
            unprofiled_ms=outlook.step_ms * times[estimate.change] / times[NOW] if estimate.change in times else None,
        )
        for estimate in (outlook.free, *outlook.estimates)
    ]


def counted_rounds(folder: Path, *, fastest: bool) -> tuple[dict[str, float], dict[str, Path]]:
    """Return for each variant of a job the seconds per step and the trace of the round that counts."""
    rounds: dict[str, list[float]] = json.loads((folder / "times.json").read_text())
    rank = 0 if fastest else len(rounds[NOW]) // 4
    times = {variant: sorted(of)[rank] for variant, of in rounds.items()}
    traces = {
        variant: sorted((folder / f"{variant}-{turn}" for turn in range(len(of))), key=_step_ms)[rank]
        for variant, of in rounds.items()
    }
    return times, traces


def judge_repetition(name: str, folder: Path, other: Path, *, fastest: bool) -> Judged:
    """Compare what another run measured for a job without input work with what this run measured."""
    times, traces = counted_rounds(folder / name, fastest=fastest)
    _, others = counted_rounds(other / name, fastest=fastest)
    now_ms = _step_ms(traces[NOW])
    middle_ms = now_ms * _step_ms(others[FREE]) / _step_ms(others[NOW])
    return Judged(
        job=name,
        change=FREE,
        is_offered=False,
        now_ms=now_ms,
        low_ms=middle_ms * (1.0 - WIDTH_BAR / 2.0),
        high_ms=middle_ms * (1.0 + WIDTH_BAR / 2.0),
        measured_ms=_step_ms(traces[FREE]),
        unprofiled_ms=now_ms * times[FREE] / times[NOW],
    )


@cache
def _step_ms(logdir: Path) -> float:
    """Return the average step time of a profile."""
    import tfperf

    time = tfperf.load(logdir, sections=["overview"])["overview"].step_time_ms
    assert time is not None, f"no steps in {logdir}"
    return float(time.average)


def main() -> int:
    """Run the jobs, print predicted and measured, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--keep", type=Path, help="keep the traces below this folder")
    parser.add_argument("--judge", type=Path, help="judge the traces that an earlier run kept there")
    parser.add_argument("--repeat", type=Path, help="with --judge: predict from what this other run measured")
    parser.add_argument("--fastest", action="store_true", help="the fastest round counts, not the one at the quarter")
    given = parser.parse_args()
    if given.repeat and not given.judge:
        parser.error("--repeat needs --judge")
    if given.run:
        run_job(given.run, given.keep)
        return 0
    judged: list[Judged] = []
    print(f"{'job':22} {'change':13} {'':7} {'now':>7} {'predicted':>16} {'width':>6} {'measured':>9} {'by ratio':>9}")
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.jobs or JOBS:
            folder = (given.judge or given.keep or Path(scratch)) / name
            if not given.judge:
                run_apart(name, folder)
            if given.repeat:
                judged.append(judge_repetition(name, given.judge, given.repeat, fastest=given.fastest))
            else:
                judged += judge(name, folder, fastest=given.fastest)
            print(*(each for each in judged if each.job == name), sep="\n", flush=True)
    return 0 if bars_hold(judged) else 1


def run_apart(name: str, folder: Path) -> None:
    """Run a job in a process of its own."""
    folder.mkdir(parents=True)
    command = [sys.executable, __file__, "--run", name, "--keep", str(folder)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)


def bars_hold(judged: list[Judged]) -> bool:
    """Print what holds of the bars; return whether all of them do."""
    free = [each for each in judged if each.change == FREE]
    offered = [each for each in judged if each.is_offered]
    made = [each for each in offered if each.measured_ms is not None]
    fine = [each for each in offered if not JOBS[each.job].has_input_problem]
    width = median(each.width for each in judged if each.change == FREE or each.is_offered)
    bars = [
        ("free input in range", sum(each.is_in_range for each in free), FREE_BAR * len(free)),
        ("speed-up of free input in range", sum(each.is_ratio_in_range for each in free), RATIO_BAR * len(free)),
        ("offered changes in range", sum(each.is_in_range for each in made), CHANGE_BAR * len(made)),
    ]
    for text, count, least in bars:
        print(f"{'PASS' if count >= least else 'FAIL'}  {text}: {count}, at least {least:.1f}")
    print(f"{'PASS' if width <= WIDTH_BAR else 'FAIL'}  median width of a range: {width:.2f}, at most {WIDTH_BAR}")
    print(f"{'FAIL' if fine else 'PASS'}  changes offered to jobs without an input problem: {len(fine)}")
    return all(count >= least for _, count, least in bars) and width <= WIDTH_BAR and not fine


if __name__ == "__main__":
    sys.exit(main())
