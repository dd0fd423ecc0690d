"""The jobs of whatif.py: input pipelines, steps that consume them, and the changes that tfperf may offer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Build = Callable[[Any, Path], Any]
"""Takes tensorflow and a folder for files, gives the dataset."""
Function = Callable[..., Any]
CACHED_BATCHES = 8
"""As many as are computed while a job warms up."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A program that trains: its pipeline as it is, and with each change that the benchmark knows how to make."""

    pipeline: Build
    changed: Mapping[str, Build] = field(default_factory=dict)
    """The pipeline with a change, by tfperf's code for it."""
    program: Literal["keras", "loop"] = "loop"
    model: Literal["dense", "conv"] = "dense"
    size: int = 256
    has_input_problem: bool = True

    @property
    def changes(self) -> dict[str, Build]:
        """The pipeline with each change; any pipeline can be cached, as batches, if it ends after a few.

        A job whose estimate is for a cache before that says so itself.
        """
        if not self.has_input_problem:
            return dict(self.changed)
        return {"cache": lambda tf, folder: cached(self.pipeline(tf, folder)), **self.changed}


# What pipelines are made of


def numbers(tf: Any) -> Any:
    """Return a dataset of numbers that does not end."""
    return tf.data.Dataset.range(1 << 40)


def products(tf: Any, rounds: int, size: int = 96) -> Function:
    """Return a function that multiplies matrices: random as augmentation is, so TensorFlow does not change it."""

    def work(number: Any) -> Any:
        image = tf.random.uniform((size, size)) + tf.cast(number, tf.float32)
        for _ in range(rounds):
            image = tf.linalg.normalize(tf.matmul(image, image))[0]
        return tf.reduce_mean(image, axis=0)

    return work


def picture(tf: Any, size: int = 224, kind: str = "jpeg") -> Any:
    """Return an encoded picture of noise."""
    noise = tf.cast(tf.random.uniform((size, size, 3), maxval=255, dtype=tf.int32, seed=1), tf.uint8)
    return tf.io.encode_jpeg(noise) if kind == "jpeg" else tf.io.encode_png(noise)


def pictures(tf: Any, size: int = 224, kind: str = "jpeg") -> Any:
    """Return a dataset of encoded pictures in memory."""
    return tf.data.Dataset.from_tensors(picture(tf, size, kind)).repeat()


def decode(tf: Any, side: int = 48) -> Function:
    """Return the usual work on an encoded picture: decode, flip, resize."""

    def work(encoded: Any) -> Any:
        image = tf.image.random_flip_left_right(tf.io.decode_image(encoded, channels=3, expand_animations=False))
        return tf.image.resize(image, (side, side)) / 255.0

    return work


def record_files(tf: Any, folder: Path) -> list[str]:
    """Write compressed record files, once."""
    names = [str(folder / f"part-{number}.gz") for number in range(8)]
    if not Path(names[0]).exists():
        import numpy as np

        generator = np.random.default_rng(0)
        for name in names:
            with tf.io.TFRecordWriter(name, tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
                for _ in range(300):
                    writer.write(generator.integers(0, 40, 20_000, np.uint8).tobytes())
    return names


def records(tf: Any, names: Any) -> Any:
    """Return the records of compressed files."""
    return tf.data.TFRecordDataset(names, "GZIP")


def parse(tf: Any) -> Function:
    """Return what turns a record into 256 numbers."""
    return lambda record: tf.reshape(tf.cast(tf.io.decode_raw(record, tf.uint8), tf.float32)[:256], (256,))


def sleepy(tf: Any, seconds: float) -> Function:
    """Return a map function, over numbers or batches of them, that waits as one that fetches from storage does."""

    def fetch(number: Any) -> Any:
        time.sleep(seconds)
        return (number % 7).astype("float32")

    return lambda number: tf.ensure_shape(tf.numpy_function(fetch, [number], tf.float32), number.shape)


def in_python(tf: Any, turns: int) -> Function:
    """Return a map function that computes in Python."""

    def compute(number: Any) -> Any:
        total = 0.0
        for value in range(turns):
            total += value % 7
        return tf.cast(number, tf.float32) + total

    return lambda number: tf.ensure_shape(tf.py_function(compute, [number], tf.float32), ())


def tiny(tf: Any) -> Function:
    """Return a function of a few cheap ops: nearly all of its time is overhead."""
    return lambda value: tf.sqrt(tf.abs(tf.cast(value, tf.float32) * 2.0 + 1.0)) - 0.5


def without_prefetch(tf: Any, dataset: Any) -> Any:
    """Keep TensorFlow from adding a prefetch at the end by itself."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def generated(tf: Any, seconds: float, turns: int) -> Any:
    """Return a dataset from a Python generator that sleeps and computes."""
    import numpy as np

    def generate() -> Iterator[Any]:
        generator = np.random.default_rng(0)
        while True:
            if seconds:
                time.sleep(seconds)
            for _ in range(turns):
                row = generator.normal(size=256)
            yield row.astype("float32")

    return tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((256,), tf.float32))


def auto(tf: Any) -> Any:
    """Return what leaves the number of parallel calls to TensorFlow."""
    return tf.data.AUTOTUNE


JOBS: dict[str, Job] = {
    "keras_products": Job(
        program="keras",
        size=128,
        pipeline=lambda tf, at: numbers(tf).map(products(tf, 2)).batch(8).prefetch(2),
        changed={"parallel_map": lambda tf, at: numbers(tf).map(products(tf, 2), auto(tf)).batch(8).prefetch(2)},
    ),
    "keras_png": Job(
        program="keras",
        model="conv",
        size=8,
        pipeline=lambda tf, at: pictures(tf, 64, "png").map(decode(tf)).batch(16).prefetch(2),
        changed={
            "parallel_map": lambda tf, at: pictures(tf, 64, "png").map(decode(tf), auto(tf)).batch(16).prefetch(2)
        },
    ),
    "keras_scalars": Job(
        program="keras",
        size=128,
        pipeline=lambda tf, at: numbers(tf).map(tiny(tf)).batch(512).prefetch(2),
        changed={
            "vectorize": lambda tf, at: numbers(tf).batch(512).map(tiny(tf)).prefetch(2),
            "parallel_map": lambda tf, at: numbers(tf).map(tiny(tf), auto(tf)).batch(512).prefetch(2),
        },
    ),
    "keras_generator": Job(
        program="keras",
        size=256,
        pipeline=lambda tf, at: generated(tf, 0.0, 5).batch(32).prefetch(2),
        changed={"cache": lambda tf, at: cached(generated(tf, 0.0, 5), 32).batch(32).prefetch(2)},
    ),
    "keras_sleep": Job(
        program="keras",
        size=256,
        pipeline=lambda tf, at: numbers(tf).map(sleepy(tf, 0.001)).batch(8).prefetch(2),
        changed={"parallel_map": lambda tf, at: numbers(tf).map(sleepy(tf, 0.001), auto(tf)).batch(8).prefetch(2)},
    ),
    "keras_no_prefetch": Job(
        program="keras",
        model="conv",
        size=16,
        pipeline=lambda tf, at: without_prefetch(tf, pictures(tf, 96).map(decode(tf)).batch(8)),
        changed={
            "prefetch": lambda tf, at: without_prefetch(tf, pictures(tf, 96).map(decode(tf)).batch(8).prefetch(2)),
            "parallel_map": lambda tf, at: without_prefetch(tf, pictures(tf, 96).map(decode(tf), auto(tf)).batch(8)),
        },
    ),
    "keras_cached": Job(
        program="keras",
        model="conv",
        size=16,
        pipeline=lambda tf, at: pictures(tf, 96).take(64).map(decode(tf)).batch(16).cache().repeat().prefetch(2),
        has_input_problem=False,
    ),
    "loop_parallel": Job(
        model="conv", size=16, pipeline=lambda tf, at: pictures(tf).map(decode(tf), auto(tf)).batch(8).prefetch(2)
    ),
    "loop_sleep_no_prefetch": Job(
        size=512,
        pipeline=lambda tf, at: without_prefetch(tf, numbers(tf).batch(16).map(sleepy(tf, 0.004))),
        changed={
            "prefetch": lambda tf, at: without_prefetch(tf, numbers(tf).batch(16).map(sleepy(tf, 0.004)).prefetch(2)),
            "parallel_map": lambda tf, at: without_prefetch(tf, numbers(tf).batch(16).map(sleepy(tf, 0.004), auto(tf))),
        },
    ),
    "loop_files": Job(
        size=256,
        pipeline=lambda tf, at: records(tf, record_files(tf, at)).repeat().map(parse(tf)).batch(32).prefetch(2),
        changed={
            "cache": lambda tf, at: cached(records(tf, record_files(tf, at)), 32).map(parse(tf)).batch(32).prefetch(2),
            "parallel_read": lambda tf, at: (
                tf.data.Dataset.from_tensor_slices(record_files(tf, at))
                .interleave(lambda name: records(tf, name), cycle_length=4, num_parallel_calls=auto(tf))
                .repeat()
                .map(parse(tf))
                .batch(32)
                .prefetch(2)
            ),
        },
    ),
    "loop_zip": Job(
        size=384,
        pipeline=lambda tf, at: (
            tf.data.Dataset.zip((numbers(tf).map(products(tf, 2)), numbers(tf).map(products(tf, 1))))
            .map(lambda left, right: left + right)
            .batch(8)
            .prefetch(2)
        ),
        changed={
            "cache": lambda tf, at: (
                tf.data.Dataset.zip((cached(numbers(tf).map(products(tf, 2)), 8), numbers(tf).map(products(tf, 1))))
                .map(lambda left, right: left + right)
                .batch(8)
                .prefetch(2)
            )
        },
    ),
    "loop_filter": Job(
        size=384,
        pipeline=lambda tf, at: (
            numbers(tf).map(products(tf, 1)).filter(lambda row: tf.random.uniform(()) < 0.5).batch(8).prefetch(2)
        ),
        changed={
            "cache": lambda tf, at: (
                cached(numbers(tf).map(products(tf, 1)), 16)
                .filter(lambda row: tf.random.uniform(()) < 0.5)
                .batch(8)
                .prefetch(2)
            ),
            "parallel_map": lambda tf, at: (
                numbers(tf)
                .map(products(tf, 1), auto(tf))
                .filter(lambda row: tf.random.uniform(()) < 0.5)
                .batch(8)
                .prefetch(2)
            ),
        },
    ),
    "loop_interleave": Job(
        size=256,
        pipeline=lambda tf, at: (
            tf.data.Dataset.from_tensor_slices(record_files(tf, at))
            .repeat()
            .interleave(lambda name: records(tf, name).map(parse(tf)), cycle_length=4)
            .batch(16)
            .prefetch(2)
        ),
        changed={
            "parallel_read": lambda tf, at: (
                tf.data.Dataset.from_tensor_slices(record_files(tf, at))
                .repeat()
                .interleave(lambda name: records(tf, name).map(parse(tf)), cycle_length=4, num_parallel_calls=auto(tf))
                .batch(16)
                .prefetch(2)
            )
        },
    ),
    "loop_python": Job(
        size=384,
        pipeline=lambda tf, at: numbers(tf).map(in_python(tf, 10_000)).batch(4).prefetch(2),
        changed={"parallel_map": lambda tf, at: numbers(tf).map(in_python(tf, 10_000), auto(tf)).batch(4).prefetch(2)},
    ),
    "loop_cache": Job(
        size=384,
        pipeline=lambda tf, at: tf.data.Dataset.range(64).map(products(tf, 2)).repeat().batch(8).prefetch(2),
        changed={
            "cache": lambda tf, at: (
                tf.data.Dataset.range(64).map(products(tf, 2)).cache().repeat().batch(8).prefetch(2)
            ),
            "parallel_map": lambda tf, at: (
                tf.data.Dataset.range(64).map(products(tf, 2), auto(tf)).repeat().batch(8).prefetch(2)
            ),
        },
    ),
    "loop_memory": Job(
        size=768,
        pipeline=lambda tf, at: tf.data.Dataset.from_tensor_slices(tf.random.normal((1024, 64))).repeat().batch(64),
        has_input_problem=False,
    ),
    "loop_light": Job(
        model="conv",
        size=32,
        pipeline=lambda tf, at: (
            tf.data.Dataset.from_tensors(tf.ones((64, 64, 3), tf.uint8))
            .repeat()
            .map(lambda image: tf.cast(image, tf.float32) / 255.0, auto(tf))
            .batch(16)
            .prefetch(2)
        ),
        has_input_problem=False,
    ),
}


# What consumes them


def cached(dataset: Any, batch: int = 1) -> Any:
    """Return what makes the first batches, computed once: elements of a dataset, of which a batch takes so many.

    TensorFlow adds a prefetch at the end unless it is kept from it.
    """
    return dataset.take(CACHED_BATCHES * batch).cache().repeat()


def first_batch_for_ever(tf: Any, dataset: Any) -> Any:
    """Return the dataset without input work: its first batch, again and again."""
    return tf.data.Dataset.from_tensors(next(iter(dataset))).repeat()


def model_of(tf: Any, job: Job) -> Any:
    """Return a Keras model whose training step takes batches of the job as they are."""
    import keras

    dense = [keras.layers.Dense(job.size, activation="relu") for _ in range(4)]
    conv = [
        keras.layers.Conv2D(job.size, 3, strides=2, activation="relu"),
        keras.layers.Conv2D(job.size * 2, 3, strides=2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
    ]
    inner = keras.Sequential([*(conv if job.model == "conv" else dense), keras.layers.Dense(1)])

    class Model(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def call(self, batch: Any) -> Any:
            many = tf.cast(batch, tf.float32)
            return self.inner(tf.expand_dims(many, 1) / 100.0 if many.shape.rank == 1 else many)

        def train_step(self, batch: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(batch) - 1.0))
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
            )
            return {"loss": loss}

    model = Model()
    model.compile(optimizer=keras.optimizers.SGD(1e-4))
    return model
