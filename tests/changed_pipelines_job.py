"""A job whose pipelines are profiled, and then changed as the analysis says: what comes out, and how long it takes.

The offered code is Python: it is evaluated with the functions, files and numbers of the pipeline. Prints JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tfperf
from tfperf.sections.tfdata.advice import actions_of

COUNT, BATCH, STEPS, EPOCHS = 60, 4, 12, 3
DIGITS = 4
FOLDER = Path(sys.argv[1])
PATTERN = str(FOLDER / "part-*.tfrecord")
runs: list[int] = []
"""The elements that the Python function was called for."""


def number_of(record: Any) -> Any:
    return tf.strings.to_number(tf.strings.substr(record, 0, DIGITS), tf.int32)


def work(number: Any) -> Any:
    """Return 0, after some milliseconds of work that gives the same each time."""
    matrix = tf.fill((160, 160), tf.cast(number % 3, tf.float32) / 160.0)
    for _ in range(6):
        matrix = tf.linalg.matmul(matrix, matrix)
    return 0.0 * tf.reduce_sum(matrix)


def slow(record: Any) -> Any:
    number = number_of(record)
    return number, work(number)


def slow_and_flipped(record: Any) -> Any:
    return flipped(*slow(record))


def flipped(number: Any, value: Any) -> Any:
    image = tf.image.random_flip_left_right(tf.reshape(tf.range(4.0), (1, 4, 1)))
    return number, value + image[0, 0, 0] + tf.random.uniform(())


def in_python(record: Any) -> Any:
    def call(each: Any) -> Any:
        number = int(each.numpy()[:DIGITS])
        runs.append(number)
        time.sleep(0.004)
        return np.int32(number)

    number = tf.ensure_shape(tf.py_function(call, [record], tf.int32), ())
    return number, 0.0


def tiny(number: Any) -> Any:
    return tf.cast(number, tf.int32), tf.cast(number, tf.float32) * 2.0 + 1.0


PIPELINES: dict[str, tuple[str, dict[str, Any]]] = {
    "shuffled": ("tf.data.TFRecordDataset(files).shuffle(n).map(f).batch(4)", {"f": slow}),
    "repeated": ("tf.data.TFRecordDataset(files).repeat().map(f).batch(4)", {"f": in_python}),
    "random": (
        "tf.data.TFRecordDataset(files).shuffle(n).map(f).batch(4)",
        {"f": slow_and_flipped, "f1": slow, "f2": flipped},
    ),
    "tiny": ("tf.data.Dataset.range(n).map(f).batch(512)", {"f": tiny, "n": 512 * STEPS}),
    "files": ("tf.data.TFRecordDataset(files).batch(4)", {"files": "large"}),
}


def write_files() -> dict[str, list[str]]:
    """Write records of their numbers: small ones in two files, and large, compressed ones that take long to read."""
    files: dict[str, list[str]] = {"small": [], "large": []}
    for name, size in (("small", 0), ("large", 1_000_000)):
        for part in range(2):
            path = FOLDER / f"{'part' if size else 'small'}-{part}.tfrecord"
            with tf.io.TFRecordWriter(str(path)) as writer:
                for number in range(COUNT // 2 * part, COUNT // 2 * (part + 1)):
                    writer.write(b"%04d" % number + bytes(size))
            files[name].append(str(path))
    return files


def names_for(given: dict[str, Any], files: dict[str, list[str]]) -> dict[str, Any]:
    of_files = files[given.get("files", "small")]
    names = {"tf": tf, "n": COUNT, "PATTERN": PATTERN, **given, "files": of_files}
    # A source that was not asked in the capture has no other name in the offered code.
    return {**names, "ds": tf.data.TFRecordDataset(of_files)}


def compute(batch: Any) -> Any:
    return tf.reduce_sum(tf.linalg.matmul(tf.ones((64, 64)), tf.ones((64, 64)))) + tf.cast(tf.size(batch), tf.float32)


step = tf.function(compute)


def profile(name: str, dataset: Any) -> Path:
    """Profile steps; TensorFlow changes nothing of the pipeline by itself."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    logdir = FOLDER / f"logs-{name}"
    iterator = iter(dataset.repeat().with_options(options))
    for _ in range(2):
        step(tf.nest.flatten(next(iterator))[0])
    tf.profiler.experimental.start(str(logdir))
    for number in range(STEPS):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            step(tf.nest.flatten(next(iterator))[0])
    tf.profiler.experimental.stop()
    return logdir


def outcome(dataset: Any, batches: int) -> dict[str, Any]:
    """Return for each epoch which elements come in which order, what is made of each, and how long it takes."""
    epochs, iterator, runs_before = [], None, len(runs)
    for _ in range(EPOCHS):
        numbers: list[int] = []
        values: list[float] = []
        start = time.perf_counter()
        if iterator is None or not is_endless(dataset):
            iterator = iter(dataset)
        for _ in range(batches):
            batch = tf.nest.flatten(next(iterator))
            first = batch[0].numpy()
            numbers += [int(each[:DIGITS]) for each in first] if first.dtype == object else first.tolist()
            values += batch[1].numpy().tolist() if len(batch) > 1 else []
        epochs.append({"numbers": numbers, "values": values, "seconds": time.perf_counter() - start})
    return {"epochs": epochs, "runs": len(runs) - runs_before}


def is_endless(dataset: Any) -> bool:
    return bool(dataset.cardinality() == tf.data.INFINITE_CARDINALITY)


def changed(name: str, code: str, names: dict[str, Any]) -> dict[str, Any]:
    """Return what comes out of a pipeline as it is, and of each program that is offered for it."""

    def evaluated(program: str) -> dict[str, Any]:
        return {"code": program, **outcome(eval(program, dict(names)), STEPS if name == "tiny" else COUNT // BATCH)}

    tfdata = tfperf.load(profile(name, eval(code, dict(names))))["tfdata"]
    # Only a function written for batches can get them.
    offered = [each for each in actions_of(tfdata) if each.program and (each.code != "vectorize" or name == "tiny")]
    return {"as it is": evaluated(code)} | {
        each.code: {"text": each.text, **evaluated(each.program)} for each in offered
    }


def main() -> None:
    files = write_files()
    print(json.dumps({name: changed(name, code, names_for(given, files)) for name, (code, given) in PIPELINES.items()}))


if __name__ == "__main__":
    main()
