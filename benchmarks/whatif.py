"""Does the what-if come true? Real jobs, each profiled, changed as proposed, and profiled again.

    python benchmarks/whatif.py [JOB ...]

Every job runs in a process of its own, as it is and with the change in turn, each profiled in the same way: that is
what somebody does who follows the advice and looks again. Of ten traces of each, the fastest counts, as with `timeit`:
what makes others slower is not the program (the slowest is printed beside it). The prediction is made from that one
trace alone. Bars: the measured step time lies in the predicted range in seven of eight jobs at least, and within 20 %
of the middle of the range in six of eight at least. Nothing is set per job.

Ops have one thread each (intra-op parallelism 1). With two cores for a step whose ops take both, and a pipeline beside
it, step times of one and the same job differ by a factor of two from minute to minute.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

IN_RANGE, NEAR = 7 / 8, 6 / 8
NEAR_SHARE = 0.20
TRACED_STEPS, WARM_STEPS, ROUNDS = 20, 12, 10

Build = Callable[[Any, Path], Any]
"""Takes tensorflow and a folder for files, gives the dataset."""


@dataclass(frozen=True)
class Job:
    """A pipeline, the change (one of the keys that tfperf proposes), and the pipeline with the change."""

    change: str
    before: Build
    after: Build
    step_ms: float = 3.0


def heavy(tf: Any, rounds: int) -> Callable[[Any], Any]:
    """Return a function of some milliseconds, random as augmentation is, so that TensorFlow does not change it."""

    def work(number: Any) -> Any:
        image = tf.random.uniform((160, 160)) + tf.cast(number, tf.float32)
        for _ in range(rounds):
            image = tf.linalg.normalize(tf.matmul(image, image))[0]
        return tf.reduce_mean(image, axis=0)

    return work


def images(tf: Any, folder: Path) -> Any:
    """Return a dataset of JPEG images in memory."""
    picture = tf.cast(tf.random.uniform((320, 320, 3), maxval=255, dtype=tf.int32, seed=1), tf.uint8)
    return tf.data.Dataset.from_tensors(tf.io.encode_jpeg(picture)).repeat()


def augment(tf: Any) -> Callable[[Any], Any]:
    """Return the usual work on an image: decode, crop at random, resize."""

    def work(encoded: Any) -> Any:
        picture = tf.image.random_flip_left_right(tf.io.decode_jpeg(encoded, channels=3))
        return tf.image.resize(tf.image.random_crop(picture, (256, 256, 3)), (96, 96)) / 255.0

    return work


def files(tf: Any, folder: Path) -> list[str]:
    """Write compressed record files, once."""
    names = [str(folder / f"part-{number}.gz") for number in range(8)]
    if not Path(names[0]).exists():
        import numpy as np

        generator = np.random.default_rng(0)
        for name in names:
            with tf.io.TFRecordWriter(name, tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
                for _ in range(200):
                    writer.write(generator.integers(0, 40, 40_000, np.uint8).tobytes())
    return names


def parse(tf: Any) -> Callable[[Any], Any]:
    """Return what turns a record into numbers."""
    return lambda record: tf.reduce_mean(
        tf.reshape(tf.cast(tf.io.decode_raw(record, tf.uint8), tf.float32), (-1, 8)), 1
    )


def plain_python(tf: Any) -> Callable[[Any], Any]:
    """Return a map function that runs Python."""

    def work(number: Any) -> Any:
        total = 0.0
        for value in range(20_000):
            total += value % 7
        return tf.cast(number, tf.float32) + total

    return lambda number: tf.py_function(work, [number], tf.float32)


def tiny(tf: Any) -> Callable[[Any], Any]:
    """Return a function of a few cheap ops: nearly all of its time is overhead."""
    return lambda value: tf.sqrt(tf.abs(tf.cast(value, tf.float32) * 2.0 + 1.0)) - 0.5


def without_prefetch(tf: Any, dataset: Any) -> Any:
    """Keep TensorFlow from adding a prefetch at the end by itself."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def numbers(tf: Any) -> Any:
    """Return a dataset of numbers that does not end."""
    return tf.data.Dataset.range(1 << 40)


def auto(tf: Any) -> Any:
    """Return what leaves the number of parallel calls to TensorFlow."""
    return tf.data.AUTOTUNE


JOBS: dict[str, Job] = {
    "slow_sequential_map": Job(
        "parallel_map",
        lambda tf, at: images(tf, at).map(augment(tf)).batch(8).prefetch(2),
        lambda tf, at: images(tf, at).map(augment(tf), num_parallel_calls=auto(tf)).batch(8).prefetch(2),
    ),
    "heavy_map": Job(
        "parallel_map",
        lambda tf, at: numbers(tf).map(heavy(tf, 12), num_parallel_calls=1).batch(4).prefetch(2),
        lambda tf, at: numbers(tf).map(heavy(tf, 12), num_parallel_calls=auto(tf)).batch(4).prefetch(2),
        step_ms=1.0,
    ),
    "file_reads": Job(
        "parallel_read",
        lambda tf, at: (
            tf.data.TFRecordDataset(files(tf, at), "GZIP").repeat().batch(32).map(tf.strings.length).prefetch(2)
        ),
        lambda tf, at: (
            tf.data.Dataset.from_tensor_slices(files(tf, at))
            .interleave(
                lambda name: tf.data.TFRecordDataset(name, "GZIP"),
                cycle_length=4,
                num_parallel_calls=auto(tf),
                deterministic=False,
            )
            .repeat()
            .batch(32)
            .map(tf.strings.length)
            .prefetch(2)
        ),
    ),
    "missing_prefetch": Job(
        "prefetch",
        lambda tf, at: without_prefetch(
            tf, images(tf, at).batch(4).map(lambda many: tf.map_fn(augment(tf), many, tf.float32))
        ),
        lambda tf, at: without_prefetch(
            tf, images(tf, at).batch(4).map(lambda many: tf.map_fn(augment(tf), many, tf.float32)).prefetch(2)
        ),
        step_ms=12.0,
    ),
    "already_fine": Job(
        "cache",
        lambda tf, at: (
            images(tf, at).take(64).map(augment(tf), num_parallel_calls=auto(tf)).repeat().batch(2).prefetch(2)
        ),
        lambda tf, at: (
            images(tf, at).take(64).map(augment(tf), num_parallel_calls=auto(tf)).cache().repeat().batch(2).prefetch(2)
        ),
        step_ms=15.0,
    ),
    "batch_after_map": Job(
        "vectorize",
        lambda tf, at: numbers(tf).map(tiny(tf)).batch(256).prefetch(2),
        lambda tf, at: numbers(tf).batch(256).map(tiny(tf)).prefetch(2),
    ),
    "py_function": Job(
        "parallel_map",
        lambda tf, at: numbers(tf).map(plain_python(tf)).batch(4).prefetch(2),
        lambda tf, at: numbers(tf).map(plain_python(tf), num_parallel_calls=auto(tf)).batch(4).prefetch(2),
    ),
    "cache": Job(
        "cache",
        lambda tf, at: tf.data.Dataset.range(64).map(heavy(tf, 12)).repeat().batch(8).prefetch(2),
        lambda tf, at: tf.data.Dataset.range(64).map(heavy(tf, 12)).cache().repeat().batch(8).prefetch(2),
        step_ms=5.0,
    ),
}
"""The jobs; each dataset starts with the same elements before and after."""


def train_step(tf: Any, milliseconds: float) -> Callable[[Any], Any]:
    """Return a compiled step that takes about so long on a quiet machine: a chain of matrix products."""

    def compiled(products: int) -> Callable[[Any], Any]:
        weights = tf.random.normal((384, 384), seed=2) / 20.0

        @tf.function  # type: ignore[untyped-decorator]
        def step(batch: Any) -> Any:
            state = tf.ones((384, 384)) * (1.0 + 0.0 * tf.reduce_sum(tf.cast(batch, tf.float32)))
            for _ in range(products):
                state = tf.tanh(state @ weights)
            return tf.reduce_sum(state)

        traced: Callable[[Any], Any] = step
        return traced

    trial, sample, times = compiled(10), tf.ones((4,)), []
    for _ in range(10):
        start = time.perf_counter()
        trial(sample).numpy()
        times.append((time.perf_counter() - start) * 1e3)
    return compiled(max(round(10 * milliseconds / median(times)), 1))


def run_job(name: str, folder: Path) -> None:
    """Profile a job as it is and with the change, in turn: a machine is not equally fast all the time."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    job = JOBS[name]
    step = train_step(tf, job.step_ms)
    for turn in range(ROUNDS):
        for key, make in (("before", job.before), ("after", job.after)):
            profile(step, iter(make(tf, folder)), folder / f"{key}{turn}")


def profile(step: Callable[[Any], Any], elements: Iterator[Any], logdir: Path) -> None:
    """Profile some steps of a job that has warmed up."""
    import tfperf

    for _ in range(WARM_STEPS):
        step(next(elements)).numpy()
    with tfperf.profile(logdir):
        for number in range(TRACED_STEPS):
            with tfperf.step(number):
                step(next(elements)).numpy()


def check(name: str, folder: Path) -> dict[str, Any]:
    """Run a job in a process of its own, and compare it with the prediction from one of its traces."""
    import tfperf

    command = [sys.executable, __file__, "--run", name, "--folder", str(folder)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    profiles = [tfperf.load(folder / f"before{turn}", sections=["tfdata"]) for turn in range(ROUNDS)]
    outlook, change = min(profiles, key=step_ms)["tfdata"].outlook, JOBS[name].change
    assert outlook is not None, "no pipeline in the trace"
    estimate = next(estimate for estimate in outlook.estimates if estimate.change == change)
    changed = [tfperf.load(folder / f"after{turn}", sections=["tfdata"]) for turn in range(ROUNDS)]
    after = min(map(step_ms, changed))
    middle = (estimate.low_ms + estimate.high_ms) / 2
    return {
        "change": change,
        "before_ms": outlook.step_ms,
        "slowest_ms": max(map(step_ms, profiles)),
        "low_ms": estimate.low_ms,
        "high_ms": estimate.high_ms,
        "after_ms": after,
        "in_range": estimate.low_ms <= after <= estimate.high_ms,
        "near": abs(after - middle) <= NEAR_SHARE * after,
    }


def step_ms(analysis: Any) -> float:
    """Return the average step time of a profile."""
    time = analysis["overview"].step_time_ms
    assert time is not None
    return float(time.average)


def main() -> int:
    """Run the jobs, print predicted and measured, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--keep", type=Path, help="keep the traces below this folder")
    given = parser.parse_args()
    if given.run:
        run_job(given.run, given.folder)
        return 0
    results: list[dict[str, Any]] = []
    print(f"{'job':20} {'change':14} {'before':>8} {'slowest':>8} {'predicted':>17} {'measured':>9}")
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.jobs or JOBS:
            folder = (given.keep or Path(scratch)) / name
            folder.mkdir(parents=True)
            result = check(name, folder)
            results.append(result)
            print(
                f"{name:20} {result['change']:14} {result['before_ms']:8.2f} {result['slowest_ms']:8.2f} "
                f"{result['low_ms']:7.2f} -{result['high_ms']:8.2f} {result['after_ms']:9.2f}"
                f"{'' if result['in_range'] else '  OUTSIDE'}{'' if result['near'] else '  far from the middle'}",
                flush=True,
            )
    inside, near = (sum(result[key] for result in results) for key in ("in_range", "near"))
    print(f"in the range: {inside} of {len(results)}; within 20 % of its middle: {near} of {len(results)}")
    return 0 if inside >= IN_RANGE * len(results) and near >= NEAR * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
