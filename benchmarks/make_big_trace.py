"""Capture one large TensorFlow profile, to measure how tfperf copes with size.

Usage: python benchmarks/make_big_trace.py OUT_LOGDIR [--steps N]
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import tensorflow as tf

DEFAULT_STEPS = 3200
WARM_UP_STEPS = 20
BATCH_SIZE = 32
FEATURES = 64
CLASSES = 10


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out_logdir", type=Path, help="folder that receives plugins/profile/RUN")
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="profiled training steps")
    return parser.parse_args()


def make_example(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute one feature vector and its label from an example's number."""
    phase = tf.cast(index % 1000, tf.float32)
    features = tf.sin(phase * tf.range(FEATURES, dtype=tf.float32))
    return features, index % CLASSES


def make_dataset(steps: int) -> tf.data.Dataset:
    """Build the input pipeline for a number of steps."""
    numbers = tf.data.Dataset.range(steps * BATCH_SIZE)
    mapped = numbers.map(make_example, num_parallel_calls=2)
    return mapped.batch(BATCH_SIZE, drop_remainder=True).prefetch(2)


def make_model() -> keras.Model:
    """Build and compile a small dense classifier."""
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(CLASSES),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"], jit_compile=False)
    return model


def capture(logdir: Path, steps: int) -> float:
    """Profile a fit of so many steps and return how many seconds the fit took."""
    model = make_model()
    model.fit(make_dataset(WARM_UP_STEPS), shuffle=False, verbose=0)
    dataset = make_dataset(steps)
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
    )
    tf.profiler.experimental.start(str(logdir), options=options)
    began = time.perf_counter()
    model.fit(dataset, shuffle=False, verbose=0)
    seconds = time.perf_counter() - began
    tf.profiler.experimental.stop()
    return seconds


def main() -> None:
    """Capture the profile and report its size."""
    arguments = parse_arguments()
    seconds = capture(arguments.out_logdir, arguments.steps)
    print(f"{arguments.steps} steps in {seconds:.1f} s")
    for path in sorted(arguments.out_logdir.rglob("*.xplane.pb")):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
