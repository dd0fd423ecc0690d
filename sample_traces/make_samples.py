"""Capture the sample profiles of this folder with TensorFlow.

Usage: python sample_traces/make_samples.py [STORY ...] [--out DIR]

Each story is captured in a process of its own and stored in TensorFlow's layout, as
DIR/STORY/plugins/profile/RUN/sample.xplane.pb, in place of the story's earlier capture.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

RUN_NAME = "2026_11_21_12_00_00"
HOST_NAME = "sample"

IMAGE_SIDE = 448
MODEL_SIDE = 48
CLASSES = 5
BATCH_SIZE = 8
EPOCH_STEPS = 32
FIRST_PROFILED_STEP = EPOCH_STEPS + 6
FIT_STEPS = 20
LOOP_STEPS = 12
RETRACED_STEPS = 10


def start_profiler(logdir: str) -> None:
    """Start the profiler with its host tracer only."""
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
    )
    tf.profiler.experimental.start(logdir, options=options)


def stop_profiler() -> None:
    """Stop the profiler and write its file."""
    tf.profiler.experimental.stop()


def make_plain_options() -> tf.data.Options:
    """Keep tf.data from adding the prefetching or parallelism that a pipeline lacks."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return options


# --- input_bound and input_fixed: one Keras job, with a slow and a fast input pipeline ---


def make_jpegs(count: int) -> list[bytes]:
    """Encode smooth random images as JPEG."""
    coarse = tf.random.stateless_uniform((count, 20, 20, 3), seed=(1, 2), maxval=255.0)
    images = tf.cast(tf.image.resize(coarse, (IMAGE_SIDE, IMAGE_SIDE)), tf.uint8)
    return [tf.io.encode_jpeg(image).numpy() for image in images]


def decode_example(jpeg: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decode one image and shrink it to the model's size."""
    image = tf.io.decode_jpeg(jpeg, channels=3)
    shape = (MODEL_SIDE, MODEL_SIDE)
    return tf.image.resize(image, shape) / 255.0, label


def make_examples() -> tf.data.Dataset:
    """Pair every encoded image of an epoch with a label."""
    count = BATCH_SIZE * EPOCH_STEPS
    labels = [number % CLASSES for number in range(count)]
    return tf.data.Dataset.from_tensor_slices((make_jpegs(count), labels))


def make_slow_input() -> tf.data.Dataset:
    """Decode images one after the other, only when a step asks for them."""
    decoded = make_examples().map(decode_example)
    batches = decoded.batch(BATCH_SIZE, drop_remainder=True)
    return batches.with_options(make_plain_options())


def make_fast_input() -> tf.data.Dataset:
    """Decode images in parallel, keep the batches, and fetch them ahead of the step."""
    decoded = make_examples().map(decode_example, num_parallel_calls=tf.data.AUTOTUNE)
    batches = decoded.batch(BATCH_SIZE, drop_remainder=True)
    return batches.cache().prefetch(tf.data.AUTOTUNE)


def make_image_model() -> keras.Model:
    """Build and compile a small convolutional classifier."""
    model = keras.Sequential(
        [
            keras.Input((MODEL_SIDE, MODEL_SIDE, 3)),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(64, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss, jit_compile=False)
    return model


def make_profiling_callback(logdir: str) -> keras.callbacks.Callback:
    """Build a callback that profiles some steps, counted over all epochs."""
    begun = iter(range(EPOCH_STEPS * 2))
    ended = iter(range(EPOCH_STEPS * 2))

    def on_begin(batch: int, logs: object) -> None:
        """Start the profiler ahead of the first profiled step."""
        if next(begun) == FIRST_PROFILED_STEP:
            start_profiler(logdir)

    def on_end(batch: int, logs: object) -> None:
        """Stop the profiler after the last profiled step."""
        if next(ended) == FIRST_PROFILED_STEP + FIT_STEPS - 1:
            stop_profiler()

    return keras.callbacks.LambdaCallback(on_train_batch_begin=on_begin, on_train_batch_end=on_end)


def fit_images(dataset: tf.data.Dataset, logdir: str) -> None:
    """Train for two epochs and profile a part of the second."""
    callback = make_profiling_callback(logdir)
    make_image_model().fit(dataset, epochs=2, shuffle=False, verbose=0, callbacks=[callback])


def capture_input_bound(logdir: str) -> None:
    """Profile the Keras job with the slow pipeline."""
    fit_images(make_slow_input(), logdir)


def capture_input_fixed(logdir: str) -> None:
    """Profile the Keras job with the fast pipeline."""
    fit_images(make_fast_input(), logdir)


# --- custom_loop: a hand-written loop with step markers ---


def make_series_input() -> tf.data.Dataset:
    """Make batches of noisy waves and the frequency of each."""

    def make_batch(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Make one batch from its number."""
        seed = tf.stack([number, number])
        frequency = tf.random.stateless_uniform((64, 1), seed, minval=0.1, maxval=1.0)
        noise = tf.random.stateless_normal((64, 1024), seed, stddev=0.1)
        return tf.sin(frequency * tf.range(1024, dtype=tf.float32)) + noise, frequency

    batches = tf.data.Dataset.range(1000).map(make_batch)
    return batches.with_options(make_plain_options())


def make_series_step() -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Build the training step of a small network."""
    model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    def train_step(features: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Update the weights from one batch and return its loss."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(features, training=True) - targets))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    compiled: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = tf.function(train_step)
    return compiled


def capture_custom_loop(logdir: str) -> None:
    """Profile a loop that marks its steps and fetches its input inside the marker."""
    train_step = make_series_step()
    batches = iter(make_series_input())
    for _ in range(5):
        train_step(*next(batches))
    start_profiler(logdir)
    for step in range(LOOP_STEPS):
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            train_step(*next(batches)).numpy()
    stop_profiler()


# --- retracing: a function that TensorFlow traces again for every new Python number ---


def make_retraced_step() -> Callable[[tf.Tensor, float], tf.Tensor]:
    """Build a training step whose learning rate is a Python number."""
    weights = tf.Variable(tf.zeros((16, 1)))

    def train_step(features: tf.Tensor, learning_rate: float) -> tf.Tensor:
        """Move the weights down the gradient and return the loss."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(features @ weights - 1.0))
        weights.assign_sub(learning_rate * tape.gradient(loss, weights))
        return loss

    compiled: Callable[[tf.Tensor, float], tf.Tensor] = tf.function(train_step)
    return compiled


def capture_retracing(logdir: str) -> None:
    """Profile a loop in which every step passes a learning rate not seen before."""
    train_step = make_retraced_step()
    data = tf.random.stateless_normal((256, 16), seed=(3, 4))
    batches = iter(tf.data.Dataset.from_tensors(data).repeat().prefetch(1))
    train_step(next(batches), 0.1)
    start_profiler(logdir)
    for step in range(RETRACED_STEPS):
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            train_step(next(batches), 0.1 / (step + 2)).numpy()
    stop_profiler()


STORIES: dict[str, Callable[[str], None]] = {
    "input_bound": capture_input_bound,
    "input_fixed": capture_input_fixed,
    "custom_loop": capture_custom_loop,
    "retracing": capture_retracing,
}


# --- storing a capture under fixed names ---


def rename_host(source: Path) -> bytes:
    """Read a profile and return it with the machine's name replaced, otherwise equal."""
    original = xplane_pb2.XSpace.FromString(source.read_bytes())
    renamed = xplane_pb2.XSpace()
    renamed.CopyFrom(original)
    renamed.hostnames[:] = [HOST_NAME]
    content: bytes = renamed.SerializeToString(deterministic=True)
    check = xplane_pb2.XSpace.FromString(content)
    check.hostnames[:] = original.hostnames
    if check != original:
        raise RuntimeError("the profile changed while its host was renamed")
    return content


def store_profile(captured: Path, story_folder: Path) -> Path:
    """Store the only profile found below a folder under the story's fixed name."""
    (source,) = captured.rglob("*.xplane.pb")
    content = rename_host(source)
    shutil.rmtree(story_folder / "plugins", ignore_errors=True)
    target = story_folder / "plugins" / "profile" / RUN_NAME / f"{HOST_NAME}.xplane.pb"
    target.parent.mkdir(parents=True)
    target.write_bytes(content)
    return target


def capture_here(story: str, out: Path) -> None:
    """Capture one story in this process, by way of the working folder."""
    keras.utils.set_random_seed(1)
    STORIES[story](story)
    target = store_profile(Path(story), out / story)
    print(f"{story}: {target.stat().st_size / 1000:.0f} kB")


def capture_apart(story: str, out: Path) -> None:
    """Capture one story in a process and a working folder of its own."""
    # A profile records the logdir it was asked for. In a folder of its own, a relative one
    # will do, so that the sample does not name a path of the machine.
    script = Path(__file__).resolve()
    command = [sys.executable, str(script), story, "--out", str(out.resolve()), "--here"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, check=True, cwd=folder)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Capture sample profiles with TensorFlow.")
    parser.add_argument("stories", nargs="*", metavar="STORY", help=f"any of {', '.join(STORIES)}")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the logdirs")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.stories) - set(STORIES))
    if unknown:
        parser.error(f"unknown story: {', '.join(unknown)}")
    return arguments


def main() -> None:
    """Capture the stories asked for, or all of them."""
    arguments = parse_arguments()
    capture = capture_here if arguments.here else capture_apart
    for story in arguments.stories or STORIES:
        capture(story, arguments.out)


if __name__ == "__main__":
    main()
