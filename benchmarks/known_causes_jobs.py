"""The jobs of known_causes.py: each loses time to one built-in cause, which its fixed variant does not have.

A job is made by a function that takes whether to make the slow variant, and a folder for files. It returns a function
that trains for a number of steps. The names of the causes are those of docs/diagnosis.md.
"""

from __future__ import annotations

import gc
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal


@dataclass
class Meter:
    """What a training reports to: `mark` at the start of each step. A training of Keras passes `callbacks` to fit()."""

    mark: Callable[[], None] = lambda: None
    extra: list[Any] = field(default_factory=list)

    @property
    def callbacks(self) -> list[Any]:
        """Return callbacks that report the start of each training step, and those that profile."""
        import keras

        latest = [0]

        def begin(batch: int, logs: Any = None) -> None:
            for _ in range(max(batch - latest[0], 1)):  # several batches may run at once
                self.mark()
            latest[0] = batch

        return [keras.callbacks.LambdaCallback(on_train_batch_begin=begin), *self.extra]


Train = Callable[[int, Meter], Any]
"""Trains for this many steps. It is called several times in a process."""
Profiler = Literal["block", "keras", "run", "jax"]
"""tfperf.profile around the loop, ProfileCallback, `tfperf run`, or jax.profiler.trace."""

NOTHING = "nothing"
"""The headline says that nothing is worth fixing, and what the step computes."""
COMPUTE = (NOTHING, "input_in_step", "dominant_layer", "dominant_op", "one_hot_product", "optimizer_update", "host_ops")
BETWEEN = ("between_steps", "slow_steps")
PYTHON = ("python_between_steps", "between_steps")
EAGER = ("eager_ops", "run_eagerly")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, and what an expert would say about its slow variant."""

    make: Callable[[bool, Path], Train]
    cause: tuple[str, ...] = ()
    """The codes that the first cause may have; empty: the job is healthy and is made in one variant."""
    advice: str = ""
    """A regular expression, found in the first cause's detail or in the code or text of one of its actions."""
    fixed_by: str = ""
    """A regular expression for the code of the action that the fixed variant makes: no other range is judged by it."""
    named: str = ""
    """A regular expression, found on the first screen: the op, layer or function that takes the time."""
    forbidden: str = ""
    """A regular expression, found in no action of the first screen."""
    profiler: Profiler = "block"
    python_trace: bool = False
    steps: int = 20
    """How many steps are timed and profiled."""
    warm: int = 10
    """How many steps run before; not a multiple of a period, so that the profile does not end in what comes with it."""
    executions: int | None = None
    """How many steps are found in the profile, where one runs several batches."""
    is_global: bool = False
    """Whether the variant sets what counts for the whole process, so that each variant needs one of its own."""


def step(number: int) -> Any:
    """Mark a step as users of tfperf do."""
    import tfperf

    return tfperf.step(number)


# What jobs are made of


def graph(function: Callable[..., Any], **options: Any) -> Any:
    """Make a function a tf.function."""
    import tensorflow as tf

    return tf.function(function, **options)


def tf_training(
    width: int = 256, depth: int = 4, batch: int = 64, *, xla: bool = False, dtype: str = "float32"
) -> tuple[Any, Any, list[Any]]:
    """Return a training step of a dense network as a tf.function, a batch for it, and its weights."""
    import tensorflow as tf

    weights = [tf.Variable(tf.random.normal((width, width), stddev=width**-0.5, dtype=dtype)) for _ in range(depth)]
    data = tf.random.normal((batch, width), dtype=dtype)

    @partial(graph, jit_compile=xla)
    def train_step(x: Any, rate: Any = 0.01) -> Any:
        with tf.GradientTape() as tape:
            y = x
            for weight in weights:
                y = tf.nn.relu(y @ weight)
            loss = tf.reduce_mean(tf.square(y - x))
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(tf.cast(rate, gradient.dtype) * gradient)
        return loss

    return train_step, data, weights


def looped(run: Callable[[int], Any], after: Callable[[int], Any] = lambda number: None) -> Train:
    """Return a loop over steps: `run` in the step, `after` after it."""
    numbers = count()

    def train(steps: int, meter: Meter) -> None:
        for _ in range(steps):
            number = next(numbers)
            meter.mark()
            with step(number):
                run(number)
            after(number)

    return train


def fitted(model: Any, data: Any, per_epoch: int | None = None, **options: Any) -> Train:
    """Return a training with fit(): of one epoch, or of as many of `per_epoch` steps as are needed."""

    def train(steps: int, meter: Meter) -> None:
        per = per_epoch or steps
        epochs = -(-steps // per)
        kept = options.get("callbacks", [])
        rest = {key: value for key, value in options.items() if key != "callbacks"}
        if not isinstance(data, tuple):
            rest["steps_per_epoch"] = per
        x = data if isinstance(data, tuple) else (data,)
        model.fit(*x, epochs=epochs, verbose=0, callbacks=[*kept, *meter.callbacks], **rest)

    return train


def keras_dense(width: int = 256, depth: int = 3, outputs: int = 1, **compiled: Any) -> Any:
    """Return a compiled dense model."""
    import keras

    layers = [keras.layers.Dense(width, activation="relu", name=f"hidden_{number}") for number in range(depth)]
    model = keras.Sequential([*layers, keras.layers.Dense(outputs, name="head")])
    model.compile(**({"optimizer": "sgd", "loss": "mse"} | compiled))
    return model


def keras_batches(batch: int = 64, width: int = 256, outputs: int = 1) -> Any:
    """Return a dataset of one batch that repeats."""
    import tensorflow as tf

    values = tf.random.normal((batch, width)), tf.random.normal((batch, outputs))
    return tf.data.Dataset.from_tensors(values).repeat().prefetch(2)


def jax_training(width: int = 256, depth: int = 4, batch: int = 64) -> tuple[Any, Any, Any]:
    """Return an update function of a dense network that is not jitted, its parameters, and a batch."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    draw = np.random.default_rng(0)
    weights = [jnp.asarray(draw.normal(size=(width, width)) * width**-0.5, jnp.float32) for _ in range(depth)]
    data = jnp.asarray(draw.normal(size=(batch, width)), jnp.float32)

    def loss(parameters: Any, x: Any) -> Any:
        y = x
        for weight in parameters:
            y = jax.nn.relu(y @ weight)
        return jnp.mean((y - x) ** 2)

    def train_step(parameters: Any, x: Any, rate: Any = 0.01) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, x)
        return jax.tree.map(lambda p, g: p - rate * g, parameters, gradients), value

    return train_step, weights, data


def jax_loop(run: Callable[[int, Any], Any], state: Any, after: Callable[[int, Any], Any] | None = None) -> Train:
    """Return a loop that hands a state from step to step, and waits for each as one that logs the loss does."""
    import jax

    kept, numbers = [state], count()

    def train(steps: int, meter: Meter) -> None:
        for _ in range(steps):
            number = next(numbers)
            meter.mark()
            kept[0] = jax.block_until_ready(run(number, kept[0]))
            if after is not None:
                after(number, kept[0])

    return train


def every(turns: int, act: Callable[[], Any]) -> Callable[..., None]:
    """Return what acts after each so many steps."""

    def after(number: int, *_: Any) -> None:
        if number % turns == turns - 1:
            act()

    return after


# Compilation


def python_float_rate(slow: bool, folder: Path) -> Train:
    """The learning rate of a schedule is a Python number: each new one traces the function again."""
    import tensorflow as tf

    train_step, data, _ = tf_training(depth=12)

    def run(number: int) -> None:
        rate = 0.1 * 0.99 ** (number // 4)
        train_step(data, rate if slow else tf.constant(rate))

    return looped(run)


def xla_new_lengths(slow: bool, folder: Path) -> Train:
    """Every fifth batch is of a new length, for which XLA compiles; the fixed job pads."""
    import tensorflow as tf

    train_step, data, _ = tf_training(xla=True, batch=512)

    def run(number: int) -> None:
        part = data[: 128 + number // 5]
        train_step(part if slow else tf.pad(part, ((0, 512 - len(part)), (0, 0))))

    return looped(run)


def jax_static_schedule(slow: bool, folder: Path) -> Train:
    """The rate is a static argument, and changes in every fourth step."""
    import jax

    train_step, weights, data = jax_training(depth=6)
    compiled = jax.jit(train_step, static_argnums=2 if slow else ())
    return jax_loop(lambda number, state: compiled(state, data, 0.1 * 0.99 ** (number // 4))[0], weights)


def jax_jit_in_loop(slow: bool, folder: Path) -> Train:
    """Each step makes a jitted function of its own."""
    import jax

    train_step, weights, data = jax_training()
    once = jax.jit(lambda state: train_step(state, data)[0])

    def run(number: int, state: Any) -> Any:
        return jax.jit(lambda state: train_step(state, data)[0])(state) if slow else once(state)

    return jax_loop(run, weights)


# Between steps, and slow steps


def tf_checkpoint_each_tenth(slow: bool, folder: Path) -> Train:
    """tf.train.Checkpoint writes 100 MB after every tenth step."""
    import tensorflow as tf

    train_step, data, weights = tf_training(width=512)
    table = tf.Variable(tf.zeros((100_000, 256)))
    checkpoint = tf.train.Checkpoint(table=table, **{f"w{number}": weight for number, weight in enumerate(weights)})
    save = every(10, lambda: checkpoint.write(str(folder / "checkpoint")))
    return looped(lambda number: train_step(data), save if slow else lambda number: None)


def keras_epoch_report(slow: bool, folder: Path) -> Train:
    """At the end of each epoch, a callback computes a report in Python."""
    import keras

    def report(epoch: int, logs: Any = None) -> None:
        total = 0
        for number in range(4_000_000 if slow else 10):
            total += number % 7

    callback = keras.callbacks.LambdaCallback(on_epoch_end=report)
    return fitted(keras_dense(512), keras_batches(128, 512), 10, callbacks=[callback])


def keras_validation(slow: bool, folder: Path) -> Train:
    """Each epoch of 10 steps ends with a validation of 60 batches; the fixed job validates 2 of them."""
    validation = keras_batches(128, 512)
    steps = 60 if slow else 2
    return fitted(keras_dense(512), keras_batches(128, 512), 10, validation_data=validation, validation_steps=steps)


def tf_evaluation_loop(slow: bool, folder: Path) -> Train:
    """After every fifth step of a loop, 30 batches are evaluated."""
    import tensorflow as tf

    train_step, data, weights = tf_training(width=512)

    @graph
    def evaluate(x: Any) -> Any:
        y = x
        for weight in weights:
            y = tf.nn.relu(y @ weight)
        return tf.reduce_mean(tf.square(y - x))

    numbers = count()

    def train(steps: int, meter: Meter) -> None:
        for _ in range(steps):
            meter.mark()
            train_step(data)
            if next(numbers) % 5 == 4 and slow:
                for _ in range(30):
                    evaluate(data)

    return train


def pictures_each_fifth(slow: bool, folder: Path) -> Train:
    """Every fifth step writes pictures of what a layer does."""
    import tensorflow as tf

    train_step, data, _ = tf_training()
    images = tf.cast(tf.random.uniform((4, 384, 384, 3), maxval=255, dtype=tf.int32), tf.uint8)

    def run(number: int) -> None:
        train_step(data)
        if slow and number % 5 == 4:
            for index in range(4):
                tf.io.write_file(str(folder / f"{number}-{index}.png"), tf.io.encode_png(images[index]))

    return looped(run)


def jax_save_each_tenth(slow: bool, folder: Path) -> Train:
    """Every tenth step, the parameters are compressed into a file."""
    import jax
    import numpy as np

    train_step, weights, data = jax_training(width=512)
    compiled = jax.jit(train_step)

    def run(number: int, state: Any) -> Any:
        state = compiled(state, data)[0]
        if slow and number % 10 == 9:
            np.savez_compressed(folder / "parameters.npz", *[np.asarray(each) for each in state])
        return state

    return jax_loop(run, weights)


# Input


def step_of(train_step: Any, dataset: Any) -> Train:
    """Return a loop over a dataset."""
    batches = iter(dataset)
    return looped(lambda number: train_step(next(batches)))


def unoptimized(dataset: Any) -> Any:
    """Keep TensorFlow from adding a prefetch at the end by itself."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def png_each_epoch(slow: bool, folder: Path) -> Train:
    """The same pictures are decoded in each epoch, one after the other."""
    import tensorflow as tf

    train_step, _, _ = tf_training(width=192)
    noise = tf.cast(tf.random.uniform((320, 320, 3), maxval=255, dtype=tf.int32), tf.uint8)
    pictures = tf.data.Dataset.from_tensors(tf.io.encode_png(noise)).repeat(128)

    def decode(encoded: Any) -> Any:
        image = tf.image.resize(tf.io.decode_png(encoded, 3), (8, 8))
        return tf.reshape(image, (192,)) / 255.0

    decoded = pictures.map(decode)
    return step_of(train_step, (decoded if slow else decoded.cache()).shuffle(64).repeat().batch(16).prefetch(2))


def no_prefetch(slow: bool, folder: Path) -> Train:
    """The pipeline waits for a storage as long as the step computes, and both take turns."""
    import numpy as np
    import tensorflow as tf

    train_step, data, _ = tf_training(width=512, batch=256)
    batch = np.asarray(data)

    def read(number: Any) -> Any:
        time.sleep(0.02)
        return batch

    def from_storage(number: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(read, [number], tf.float32), batch.shape)

    batches = tf.data.Dataset.range(1 << 40).map(from_storage)
    return step_of(train_step, unoptimized(batches if slow else batches.prefetch(2)))


def tiny_record_files(slow: bool, folder: Path) -> Train:
    """Each example is a file of its own, compressed; the fixed job has them in two files."""
    import numpy as np
    import tensorflow as tf

    train_step, _, _ = tf_training(depth=2, batch=128)
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    files = 512 if slow else 2
    names = [str(folder / f"{files}-{number}.tfrecord") for number in range(files)]
    for name in names:
        with tf.io.TFRecordWriter(name, options) as writer:
            for _ in range(512 // files):
                writer.write(np.ones(256, np.float32).tobytes())
    records = (
        tf.data.Dataset.from_tensor_slices(names).repeat().flat_map(lambda name: tf.data.TFRecordDataset(name, "GZIP"))
    )
    parsed = records.batch(128).map(lambda batch: tf.reshape(tf.io.decode_raw(batch, tf.float32), (-1, 256)))
    return step_of(train_step, parsed.prefetch(2))


def tokens_in_python(slow: bool, folder: Path) -> Train:
    """A py_function splits and hashes text; the fixed job does so with ops."""
    import tensorflow as tf

    train_step, _, _ = tf_training(batch=16)
    text = " ".join(f"word{number}" for number in range(256))

    def tokens(line: Any) -> Any:
        words = line.numpy().decode().split()
        return tf.constant(
            [float(sum(ord(letter) * seed for letter in word for seed in (3, 5, 7)) % 97) for word in words]
        )

    def in_python(line: Any) -> Any:
        return tf.ensure_shape(tf.py_function(tokens, [line], tf.float32), (256,))

    def in_graph(line: Any) -> Any:
        return tf.cast(tf.strings.to_hash_bucket_fast(tf.strings.split(line), 97), tf.float32)[:256]

    lines = tf.data.Dataset.from_tensors(text).repeat()
    batches = lines.map(in_python if slow else in_graph).batch(16, drop_remainder=True)
    return step_of(train_step, batches.map(lambda each: tf.ensure_shape(each, (16, 256)) / 97.0).prefetch(2))


def generator_of_rows(slow: bool, folder: Path) -> Train:
    """A Python generator makes one example at a time; the fixed job has an array."""
    import numpy as np
    import tensorflow as tf

    def rows() -> Iterator[Any]:
        draw = random.Random(0)
        while True:
            yield np.array([draw.random() for _ in range(256)], np.float32)

    made = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((256,), tf.float32))
    array = tf.data.Dataset.from_tensor_slices(tf.random.uniform((4096, 256))).repeat()
    return fitted(keras_dense(256), (made if slow else array).map(lambda row: (row, row[:1])).batch(64).prefetch(2))


def scalars_one_by_one(slow: bool, folder: Path) -> Train:
    """Cheap ops run for each example; the fixed job runs them for each batch."""
    import tensorflow as tf

    train_step, _, _ = tf_training(width=64, batch=512)

    def scaled(row: Any) -> Any:
        return tf.sqrt(tf.abs(row * 2.0 + 1.0)) - 0.5

    rows = tf.data.Dataset.from_tensor_slices(tf.random.normal((4096, 64))).repeat()
    batches = rows.map(scaled).batch(512) if slow else rows.batch(512).map(scaled)
    return step_of(train_step, batches.prefetch(2))


def shuffle_refill(slow: bool, folder: Path) -> Train:
    """The shuffle buffer holds an epoch, and each epoch starts when all of it is decoded; fixed: a cache before it."""
    import tensorflow as tf

    noise = tf.cast(tf.random.uniform((160, 160, 3), maxval=255, dtype=tf.int32), tf.uint8)
    pictures = tf.data.Dataset.from_tensors(tf.io.encode_png(noise)).repeat(160)

    def decode(encoded: Any) -> Any:
        image = tf.image.resize(tf.io.decode_png(encoded, 3), (16, 16))
        return tf.reshape(image, (768,))[:256] / 255.0, tf.constant([1.0])

    decoded = pictures.map(decode)
    epoch = (decoded if slow else decoded.cache()).shuffle(160).batch(16).prefetch(2)
    model = keras_dense(256)

    def train(steps: int, meter: Meter) -> None:
        model.fit(epoch, epochs=-(-steps // 10), verbose=0, callbacks=meter.callbacks)

    return train


def pydataset_of_files(slow: bool, folder: Path) -> Train:
    """A PyDataset reads from a storage that answers after 20 ms, with one worker; fixed: with eight."""
    import keras
    import numpy as np

    class Files(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.02)
            return np.ones((64, 256), np.float32), np.ones((64, 1), np.float32)

    workers = Files(workers=1) if slow else Files(workers=8, max_queue_size=16)
    return fitted(keras_dense(256), workers)


def jax_collate(slow: bool, folder: Path) -> Train:
    """Python collates each batch out of dictionaries, in the loop; fixed: a thread does so ahead, from arrays."""
    import jax
    import numpy as np

    train_step, weights, _ = jax_training(depth=2)
    compiled = jax.jit(train_step)
    examples = [{"x": [float(number % 5)] * 256, "id": number} for number in range(256)]
    array = np.array([example["x"] for example in examples], np.float32)

    def run(number: int, state: Any) -> Any:
        if slow:
            chosen = [examples[(number + offset) % 256]["x"] for offset in range(256)]
            batch = np.array([[value / 5.0 for value in row] for row in chosen], np.float32)  # type: ignore[attr-defined]
        else:
            batch = array[np.arange(number, number + 256) % 256]
        return compiled(state, batch)[0]

    return jax_loop(run, weights)


def train_on_batch_files(slow: bool, folder: Path) -> Train:
    """Each batch is read from a compressed file between calls of train_on_batch."""
    import numpy as np

    model = keras_dense(256)
    batch = np.random.default_rng(0).normal(size=(64, 256)).astype(np.float32)
    for number in range(8):
        np.savez_compressed(folder / f"batch{number}.npz", x=np.tile(batch, (8, 1)), y=batch[:, :1])
    target = batch[:, :1]

    def run(number: int) -> None:
        x = np.load(folder / f"batch{number % 8}.npz")["x"][:64] if slow else batch
        model.train_on_batch(x, target)

    return looped(run)


# Compute


def float64_weights(slow: bool, folder: Path) -> Train:
    """Weights and data are float64."""
    train_step, data, _ = tf_training(width=512, batch=256, dtype="float64" if slow else "float32")
    return looped(lambda number: train_step(data))


def jax_x64(slow: bool, folder: Path) -> Train:
    """jax_enable_x64 and a NumPy array make all compute float64."""
    import jax
    import numpy as np

    jax.config.update("jax_enable_x64", slow)
    train_step, weights, _ = jax_training(width=512)
    data = jax.numpy.asarray(np.random.default_rng(0).normal(size=(256, 512)))
    weights = [each.astype(data.dtype) for each in weights]
    compiled = jax.jit(train_step)
    return jax_loop(lambda number, state: compiled(state, data)[0], weights)


def one_hot_lookup(slow: bool, folder: Path) -> Train:
    """Words are looked up by the product of a one-hot matrix and the table."""
    import tensorflow as tf

    table = tf.Variable(tf.random.normal((20_000, 64)))
    _, _, weights = tf_training(width=64)
    words = tf.random.uniform((256,), maxval=20_000, dtype=tf.int32)

    @graph
    def train_step(ids: Any) -> Any:
        rows = tf.one_hot(ids, 20_000) @ table if slow else tf.gather(table, ids)
        with tf.GradientTape() as tape:
            y = rows
            for weight in weights:
                y = tf.nn.relu(y @ weight)
            loss = tf.reduce_mean(y)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.01 * gradient)
        return loss

    return looped(lambda number: train_step(words))


def keras_wide_kernel(slow: bool, folder: Path, batch: int = 8) -> Train:
    """One convolution has a kernel of 13 by 13; fixed: 3 by 3."""
    import keras
    import tensorflow as tf

    model = keras.Sequential(
        [
            keras.layers.Conv2D(16, 3, strides=2, activation="relu", name="stem"),
            keras.layers.Conv2D(16, 13 if slow else 3, padding="same", activation="relu", name="context"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu", name="reduce"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer="sgd", loss="mse")
    images = tf.random.uniform((batch, 64, 64, 3)), tf.ones((batch, 1))
    return fitted(model, tf.data.Dataset.from_tensors(images).repeat().prefetch(2))


def keras_embedding_penalty(slow: bool, folder: Path) -> Train:
    """A penalty on all weights of an embedding makes its gradient dense, in each step."""
    import keras
    import tensorflow as tf

    model = keras.Sequential(
        [
            keras.layers.Embedding(
                100_000, 64, embeddings_regularizer=keras.regularizers.L2(1e-6) if slow else None, name="items"
            ),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer="sgd", loss="mse")
    batch = tf.random.uniform((64, 20), maxval=100_000, dtype=tf.int32), tf.ones((64, 1))
    return fitted(model, tf.data.Dataset.from_tensors(batch).repeat().prefetch(2))


def sorted_logits(slow: bool, folder: Path) -> Train:
    """A metric sorts all logits of each batch; the fixed job takes the largest."""
    import tensorflow as tf

    train_step, data, _ = tf_training()
    logits = tf.Variable(tf.random.normal((64, 20_000)))

    @graph
    def accurate_step(x: Any) -> Any:
        best = tf.argsort(logits, direction="DESCENDING")[:, 0] if slow else tf.argmax(logits, axis=1)
        return train_step(x), tf.reduce_mean(tf.cast(best, tf.float32))

    return looped(lambda number: accurate_step(data))


def keras_fine_auc(slow: bool, folder: Path) -> Train:
    """A metric compares each prediction with 3,000 thresholds of its own; fixed: with 200 evenly spread ones."""
    import keras
    import tensorflow as tf

    fine = [(number / 3000.0) ** 2 for number in range(1, 3000)]
    metric = keras.metrics.AUC(thresholds=fine, name="fine") if slow else keras.metrics.AUC(name="fine")
    model = keras_dense(256, outputs=16, loss="mse", metrics=[metric])
    model.layers[-1].activation = keras.activations.sigmoid
    batch = tf.random.normal((64, 256)), tf.cast(tf.random.uniform((64, 16)) > 0.5, tf.float32)
    return fitted(model, tf.data.Dataset.from_tensors(batch).repeat().prefetch(2))


def svd_penalty(slow: bool, folder: Path) -> Train:
    """A penalty on the largest singular value decomposes a weight in each step."""
    import tensorflow as tf

    train_step, data, weights = tf_training()

    @graph
    def penalized_step(x: Any) -> Any:
        largest = tf.linalg.svd(weights[0][:256, :256], compute_uv=False)[0] if slow else tf.norm(weights[0])
        weights[0].assign_sub(1e-6 * largest * weights[0])
        return train_step(x)

    return looped(lambda number: penalized_step(data))


def text_in_step(slow: bool, folder: Path) -> Train:
    """The training function splits text and looks words up; the fixed job does so once, before the training."""
    import tensorflow as tf

    train_step, _, _ = tf_training(batch=256)
    words = [f"word{number}" for number in range(1000)]
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, tf.range(1000, dtype=tf.float32)), 0.0)
    lines = tf.constant([" ".join(words[number : number + 256]) for number in range(256)])

    def looked_up(lines: Any) -> Any:
        return tf.ensure_shape(table.lookup(tf.strings.split(lines).to_tensor()), (256, 256)) / 1000.0

    @graph
    def text_step(lines: Any) -> Any:
        return train_step(looked_up(lines))

    numbers = looked_up(lines)
    return looped(lambda number: text_step(lines) if slow else train_step(numbers))


def file_in_step(slow: bool, folder: Path) -> Train:
    """The training function writes the batch into a file, for debugging."""
    import tensorflow as tf

    train_step, data, _ = tf_training(width=1024, depth=2, batch=64)
    name = str(folder / "batch.bin")
    extra = tf.random.normal((2048, 1024))

    @graph
    def written_step(x: Any) -> Any:
        if slow:
            tf.io.write_file(name, tf.io.serialize_tensor(extra))
        return train_step(x)

    return looped(lambda number: written_step(data))


# Python inside the graph


def weights_of_examples(slow: bool, folder: Path) -> Train:
    """A numpy_function computes weights of examples from their losses, in the training function."""
    import numpy as np
    import tensorflow as tf

    train_step, data, _ = tf_training()

    def rank(values: Any) -> Any:
        order = sorted(range(len(values)), key=lambda number: float(values[number]))
        return np.array([order.index(number) for number in range(len(values))], np.float32)

    @graph
    def weighted_step(x: Any) -> Any:
        values = tf.reshape(x[:, :16], (1024,))
        if slow:
            ranks = tf.ensure_shape(tf.numpy_function(rank, [values], tf.float32), (1024,))
        else:
            ranks = tf.cast(tf.argsort(tf.argsort(values)), tf.float32)
        return train_step(x * (1.0 + 1e-6 * tf.reshape(ranks, (64, 16))[:, :1]))

    return looped(lambda number: weighted_step(data))


def jax_io_callback(slow: bool, folder: Path) -> Train:
    """An io_callback logs statistics from inside the jitted step, computed in Python."""
    import jax
    import numpy as np
    from jax.experimental import io_callback

    train_step, weights, data = jax_training()
    log = []

    def record(values: Any) -> None:
        flat = np.asarray(values).ravel()[:20_000].tolist()
        log.append(sum(value * value for value in flat))

    def logged(state: Any, x: Any) -> Any:
        state, loss = train_step(state, x)
        if slow:
            io_callback(record, None, state[0], ordered=True)
        return state, loss

    compiled = jax.jit(logged)
    return jax_loop(lambda number, state: compiled(state, data)[0], weights)


def rows_in_a_loop(slow: bool, folder: Path) -> Train:
    """AutoGraph makes a loop over the examples of a batch into a while loop."""
    import tensorflow as tf

    train_step, data, weights = tf_training(batch=256)

    @graph
    def row_step(x: Any) -> Any:
        if slow:
            total = tf.constant(0.0)
            for row in x:
                total += tf.reduce_sum(tf.nn.softmax(tf.tensordot(row, weights[0], 1)) ** 2)
        else:
            total = tf.reduce_sum(tf.nn.softmax(x @ weights[0]) ** 2)
        return train_step(x), total

    return looped(lambda number: row_step(data))


# Conversions and fetches


def python_list_argument(slow: bool, folder: Path) -> Train:
    """A list of Python numbers becomes a tensor at each call."""
    import tensorflow as tf

    train_step, data, _ = tf_training(depth=1, batch=2048)
    rows = data.numpy().tolist()
    return looped(lambda number: train_step(tf.constant(rows) if slow else data))


def keras_numpy_call(slow: bool, folder: Path) -> Train:
    """A tf.function takes a table of 64 MB as a NumPy array; fixed: as a tensor made once."""
    import numpy as np
    import tensorflow as tf

    train_step, data, _ = tf_training()
    array = np.ones((250_000, 64), np.float32)
    table = array if slow else tf.constant(array)

    @graph
    def looked_up(x: Any, table: Any, ids: Any) -> Any:
        return train_step(x + tf.reduce_mean(tf.gather(table, ids)))

    ids = tf.constant([1, 2, 3])
    return looped(lambda number: looked_up(data, table, ids))


def gradient_norms(slow: bool, folder: Path) -> Train:
    """The norm of each gradient is computed op by op, and read one by one; fixed: in the function, read at once."""
    import tensorflow as tf

    weights = [tf.Variable(tf.random.normal((128, 128), stddev=0.09)) for _ in range(24)]
    data = tf.random.normal((32, 128))

    @graph
    def train_step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = x
            for weight in weights:
                y = tf.nn.relu(y @ weight)
            loss = tf.reduce_mean(tf.square(y - x))
        gradients = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(0.01 * gradient)
        return gradients if slow else tf.stack([tf.norm(gradient) for gradient in gradients])

    def run(number: int) -> None:
        made = train_step(data)
        if slow:
            [
                float(tf.norm(gradient).numpy()) / float(tf.reduce_max(tf.abs(gradient)).numpy() + 1e-9)
                for gradient in made
            ]
        else:
            made.numpy()

    return looped(run)


def jax_logits_in_numpy(slow: bool, folder: Path) -> Train:
    """Logits are fetched and ranked with NumPy in each step; fixed: in the jitted step."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    train_step, weights, data = jax_training()
    head = jnp.asarray(np.random.default_rng(0).normal(size=(256, 5000)), jnp.float32)

    def with_logits(state: Any, x: Any) -> Any:
        state, _ = train_step(state, x)
        logits = x @ head
        return (state, logits) if slow else (state, jnp.argmax(logits, axis=1))

    compiled = jax.jit(with_logits)

    def run(number: int, state: Any) -> Any:
        state, made = compiled(state, data)
        if slow:
            np.argsort(np.asarray(made), axis=1)[:, -1]
        else:
            np.asarray(made)
        return state

    return jax_loop(run, weights)


def averaged_weights(slow: bool, folder: Path) -> Train:
    """A callback averages all weights in NumPy after each batch; fixed: after each epoch."""
    import keras

    model = keras_dense(768, depth=4)
    kept: list[Any] = []

    class Average(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            weights = self.model.get_weights()
            kept[:] = [0.99 * old + 0.01 * new for old, new in zip(kept or weights, weights, strict=True)]

    return fitted(model, keras_batches(32, 768), callbacks=[Average()] if slow else [])


def predict_in_loop(slow: bool, folder: Path) -> Train:
    """Each step of an agent calls predict() for one state; fixed: a tf.function."""
    import numpy as np
    import tensorflow as tf

    model = keras_dense(64, outputs=4)
    train_step, data, _ = tf_training()
    state = np.ones((1, 64), np.float32)
    act = tf.function(model)
    act(state)

    def run(number: int) -> None:
        if slow:
            model.predict(state, verbose=0)
        else:
            act(tf.constant(state)).numpy()
        train_step(data)

    return looped(run)


def functions_eagerly(slow: bool, folder: Path) -> Train:
    """tf.config.run_functions_eagerly(True) was left in the program."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(slow)
    train_step, data, _ = tf_training(width=64, depth=16, batch=16)
    return looped(lambda number: train_step(data))


def eager_augmentation(slow: bool, folder: Path) -> Train:
    """Images are augmented op by op before the function is called; fixed: in a function."""
    import tensorflow as tf

    train_step, _, _ = tf_training(width=192, batch=16)
    images = tf.random.uniform((16, 16, 16, 3))

    def augment(images: Any) -> Any:
        made = []
        for number in range(16):
            image = tf.image.random_flip_left_right(images[number])
            image = tf.image.random_brightness(image, 0.1)
            made.append(tf.image.random_crop(image, (8, 8, 3)))
        return tf.reshape(tf.stack(made), (16, 192))

    function = augment if slow else tf.function(augment)
    return looped(lambda number: train_step(function(images)))


def eager_optimizer(slow: bool, folder: Path) -> Train:
    """Gradients come from a function, and Python applies them op by op."""
    import tensorflow as tf

    weights = [tf.Variable(tf.random.normal((64, 64), stddev=0.1)) for _ in range(40)]
    moments = [tf.Variable(tf.zeros((64, 64))) for _ in weights]
    data = tf.random.normal((32, 64))

    @graph
    def gradients_of(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = x
            for weight in weights:
                y = tf.nn.relu(y @ weight)
            loss = tf.reduce_mean(tf.square(y - x))
        return tape.gradient(loss, weights)

    def apply(gradients: Any) -> None:
        for weight, moment, gradient in zip(weights, moments, gradients, strict=True):
            moment.assign(0.9 * moment + 0.1 * gradient)
            weight.assign_sub(0.01 * moment)

    function = apply if slow else tf.function(apply)
    return looped(lambda number: function(gradients_of(data)))


def jax_without_jit(slow: bool, folder: Path) -> Train:
    """The training step is not jitted."""
    import jax

    train_step, weights, data = jax_training(width=128, depth=8, batch=32)
    function = train_step if slow else jax.jit(train_step)
    return jax_loop(lambda number, state: function(state, data)[0], weights)


# Python that waits, and the rest


def synced_log(slow: bool, folder: Path) -> Train:
    """Each step's log line is written through to the disk, which takes 20 ms (a network file system)."""
    train_step, data, _ = tf_training()
    log = (folder / "log.txt").open("w")

    def write(number: int) -> None:
        log.write(f"step {number}\n")
        if slow:
            log.flush()
            os.fsync(log.fileno())
            time.sleep(0.02)

    return looped(lambda number: train_step(data), write)


def slow_queue(slow: bool, folder: Path) -> Train:
    """Batches come from a thread that reads one in 25 ms, through a queue; fixed: eight threads read."""
    train_step, data, _ = tf_training()
    batches: queue.Queue[Any] = queue.Queue(maxsize=2)

    def read() -> None:
        while True:
            time.sleep(0.025)
            batches.put(data)

    for _ in range(1 if slow else 8):
        threading.Thread(target=read, daemon=True).start()

    def run(number: int) -> None:
        train_step(batches.get())

    return looped(run)


def growing_history(slow: bool, folder: Path) -> Train:
    """A large heap is collected in every second step; fixed: the heap is frozen."""
    train_step, data, _ = tf_training()
    history = [{"step": number, "values": [number]} for number in range(400_000)]

    def after(number: int) -> None:
        if slow and number % 2:
            gc.collect()
        history[number % 1000]["values"] = [number]

    return looped(lambda number: train_step(data), after)


def keras_tiny_batches(slow: bool, folder: Path) -> Train:
    """Steps of 4 examples through a small network; fixed: several of them in an execution."""
    model = keras_dense(32, depth=2, steps_per_execution=1 if slow else 20)
    return fitted(model, keras_batches(4, 32))


def jax_tiny_steps(slow: bool, folder: Path) -> Train:
    """Steps of microseconds are called one by one; fixed: 50 in one lax.scan."""
    import jax

    train_step, weights, data = jax_training(width=16, depth=2, batch=8)
    single = jax.jit(train_step)

    def scanned(state: Any, x: Any) -> Any:
        return jax.lax.scan(lambda carried, _: train_step(carried, x), state, length=50)

    many = jax.jit(scanned)

    def train_fixed(steps: int, meter: Meter) -> None:
        state = weights
        for _ in range(0, steps, 50):
            state, losses = many(state, data)
            losses.block_until_ready()
            for _ in range(50):
                meter.mark()

    def run(number: int, state: Any) -> Any:
        state, loss = single(state, data)
        float(loss)
        return state

    return jax_loop(run, weights) if slow else train_fixed


# Healthy


def healthy_keras(slow: bool, folder: Path) -> Train:
    """A convolutional network on prepared batches."""
    return keras_wide_kernel(False, folder, batch=64)


def healthy_loop(slow: bool, folder: Path) -> Train:
    """Large products in a function."""
    train_step, data, _ = tf_training(width=768, batch=256)
    return looped(lambda number: train_step(data))


def healthy_jax(slow: bool, folder: Path) -> Train:
    """Large products in a jitted step."""
    import jax

    train_step, weights, data = jax_training(width=768, batch=256)
    compiled = jax.jit(train_step)
    return jax_loop(lambda number, state: compiled(state, data)[0], weights)


def healthy_executions(slow: bool, folder: Path) -> Train:
    """A Keras model of large products, with several steps in an execution."""
    return fitted(keras_dense(768, depth=4, steps_per_execution=5), keras_batches(256, 768))


def healthy_pipeline(slow: bool, folder: Path) -> Train:
    """A light pipeline with parallel calls and prefetch in front of large products."""
    import tensorflow as tf

    train_step, _, _ = tf_training(width=768, batch=256)
    rows = tf.data.Dataset.from_tensor_slices(tf.random.normal((2048, 768))).cache().repeat().shuffle(512).batch(256)
    scaled = rows.map(lambda batch: batch * 0.5, tf.data.AUTOTUNE)
    return step_of(train_step, scaled.prefetch(tf.data.AUTOTUNE))


compiles = partial(Job, cause=("compilation",), forbidden="larger_batch|profile_later")
computes = partial(Job, cause=COMPUTE, forbidden="larger_batch|steps_per_execution")
input_waits = partial(Job, cause=("input_wait",))

JOBS: Mapping[str, Job] = {
    "python_float_rate": compiles(make=python_float_rate, advice="tensor|keep_signature", named="train_step"),
    "xla_new_lengths": compiles(
        make=xla_new_lengths, advice="pad|bucket|same shape", named="train_step", profiler="run"
    ),
    "jax_static_schedule": compiles(
        make=jax_static_schedule, advice="static|keep_signature", named="train_step", profiler="jax"
    ),
    "jax_jit_in_loop": compiles(make=jax_jit_in_loop, advice="once|keep_signature", profiler="jax"),
    "tf_checkpoint_each_tenth": Job(
        make=tf_checkpoint_each_tenth,
        cause=("checkpointing", *BETWEEN),
        advice="checkpoint|save",
        forbidden="run_eagerly",
        steps=30,
        warm=25,
    ),
    "keras_epoch_report": Job(
        make=keras_epoch_report,
        cause=BETWEEN,
        advice="epoch|callback",
        forbidden="run_eagerly",
        profiler="keras",
        steps=30,
        warm=15,
    ),
    "keras_validation": Job(
        make=keras_validation,
        cause=("evaluation", "between_steps"),
        advice="validat|evaluat",
        forbidden="run_eagerly",
        profiler="keras",
        steps=30,
        warm=15,
    ),
    "tf_evaluation_loop": Job(
        make=tf_evaluation_loop,
        cause=("evaluation", "between_steps"),
        advice="validat|evaluat",
        forbidden="run_eagerly",
        warm=12,
    ),
    "pictures_each_fifth": Job(
        make=pictures_each_fifth,
        cause=(*BETWEEN, "eager_ops"),
        fixed_by="less_often",
        advice="less often|EncodePng|WriteFile|fifth|5th",
        forbidden="larger_batch|loop_in_function|jit_compile",
        steps=30,
        profiler="run",
    ),
    "jax_save_each_tenth": Job(
        make=jax_save_each_tenth,
        cause=(*BETWEEN, "checkpointing", "fetch_results"),
        advice="save|less often|thread|checkpoint|what runs",
        forbidden="larger_batch|scan",
        profiler="jax",
        python_trace=True,
        steps=30,
        warm=25,
    ),
    "png_each_epoch": input_waits(make=png_each_epoch, fixed_by="cache", advice="cache|num_parallel_calls"),
    "no_prefetch": input_waits(make=no_prefetch, fixed_by="prefetch", advice="prefetch|num_parallel_calls"),
    "tiny_record_files": input_waits(
        make=tiny_record_files, advice="interleave|files|num_parallel_(calls|reads)|cache"
    ),
    "tokens_in_python": input_waits(
        make=tokens_in_python, fixed_by="python_function", advice="Python|py_function|ops", profiler="run"
    ),
    "generator_of_rows": input_waits(make=generator_of_rows, advice="generator|Python", profiler="keras"),
    "scalars_one_by_one": input_waits(
        make=scalars_one_by_one, fixed_by="vectorize", advice="batch.*before|before.*batch|vectorize"
    ),
    "shuffle_refill": Job(
        make=shuffle_refill,
        cause=(*BETWEEN, "input_wait"),
        advice="shuffle|buffer|cache",
        forbidden="larger_batch|run_eagerly",
        profiler="keras",
        steps=30,
        warm=15,
    ),
    "pydataset_of_files": input_waits(
        make=pydataset_of_files, advice="workers|PyDataset", forbidden="cache", profiler="keras"
    ),
    "jax_collate": Job(
        make=jax_collate,
        cause=(*PYTHON, "python_input"),
        advice="thread|tf.data|grain|input",
        forbidden="larger_batch",
        profiler="jax",
        python_trace=True,
    ),
    "train_on_batch_files": Job(
        make=train_on_batch_files,
        cause=(*PYTHON, "python_input"),
        advice="thread|tf.data|input|fit",
        forbidden="steps_per_execution",
        python_trace=True,
    ),
    "float64_weights": Job(
        make=float64_weights, cause=("double_precision",), advice="float32", named="MatMul|float64", profiler="run"
    ),
    "jax_x64": Job(
        make=jax_x64,
        cause=("double_precision",),
        advice="float32|x64",
        named="dot|float64|f64|x64",
        profiler="jax",
        is_global=True,
    ),
    "one_hot_lookup": computes(make=one_hot_lookup, named="OneHot|MatMul|one_hot"),
    "keras_wide_kernel": computes(make=keras_wide_kernel, named="context", profiler="keras"),
    "keras_embedding_penalty": computes(make=keras_embedding_penalty, named="items|embedding|AddN", profiler="keras"),
    "sorted_logits": computes(make=sorted_logits, named="TopK|argsort|sort"),
    "keras_fine_auc": computes(make=keras_fine_auc, named="fine|metric|Tile|Greater|LogicalAnd", profiler="run"),
    "svd_penalty": computes(make=svd_penalty, named="Svd|svd"),
    "text_in_step": computes(make=text_in_step, named="StringSplit|RaggedTensorToTensor|LookupTable|Split"),
    "file_in_step": computes(make=file_in_step, named="WriteFile|SerializeTensor"),
    "weights_of_examples": Job(
        make=weights_of_examples,
        cause=("python_in_graph",),
        advice="ops|TensorFlow|graph|numpy_function",
        named="PyFunc|numpy_function",
        forbidden="larger_batch|jit_compile",
    ),
    "jax_io_callback": Job(
        make=jax_io_callback,
        cause=("python_in_graph",),
        advice="callback|jnp|jax",
        named="callback",
        forbidden="larger_batch|scan",
        profiler="jax",
    ),
    "rows_in_a_loop": Job(
        make=rows_in_a_loop,
        cause=("loop_in_graph",),
        advice="vectoriz",
        named="while|While|loop",
        forbidden="larger_batch",
    ),
    "python_list_argument": Job(
        make=python_list_argument,
        cause=("numpy_conversion", "python_between_steps"),
        advice="tensor|dataset|tf.data|convert",
        forbidden="larger_batch",
    ),
    "keras_numpy_call": Job(
        make=keras_numpy_call,
        cause=("numpy_conversion",),
        advice="variable|tensor|once|dataset",
        forbidden="larger_batch",
        profiler="run",
    ),
    "gradient_norms": Job(
        make=gradient_norms,
        cause=("eager_ops", "fetch_results"),
        advice="use_function|tf.function|less often",
        forbidden="larger_batch",
    ),
    "jax_logits_in_numpy": Job(
        make=jax_logits_in_numpy,
        cause=("fetch_results", *PYTHON),
        advice="fetch|jnp|jit|less often|argsort",
        forbidden="larger_batch",
        profiler="jax",
        python_trace=True,
    ),
    "averaged_weights": Job(
        make=averaged_weights,
        cause=("fetch_results", *PYTHON, "eager_ops"),
        advice="less often|fetch|callback|weights",
        forbidden="larger_batch|run_eagerly|steps_per_execution",
        profiler="keras",
        python_trace=True,
    ),
    "predict_in_loop": Job(
        make=predict_in_loop,
        cause=("iterator_per_step",),
        advice="predict_on_batch|call the model|predict",
        forbidden="larger_batch|optimizer|run_eagerly",
    ),
    "functions_eagerly": Job(
        make=functions_eagerly,
        cause=EAGER,
        advice="run_functions_eagerly|tf.function|use_function",
        forbidden="larger_batch",
        is_global=True,
    ),
    "eager_augmentation": Job(
        make=eager_augmentation,
        cause=("eager_ops",),
        advice="tf.function|tf.data|use_function",
        forbidden="larger_batch",
        profiler="run",
    ),
    "eager_optimizer": Job(
        make=eager_optimizer, cause=("eager_ops",), advice="tf.function|use_function", forbidden="larger_batch"
    ),
    "jax_without_jit": Job(
        make=jax_without_jit, cause=("eager_ops",), advice="jit", forbidden="larger_batch", profiler="jax"
    ),
    "synced_log": Job(
        make=synced_log,
        cause=PYTHON,
        advice="wait|less often|fsync|sleep",
        forbidden="larger_batch|loop_in_function",
        python_trace=True,
    ),
    "slow_queue": Job(
        make=slow_queue,
        cause=(*PYTHON, "python_input"),
        advice="wait|queue|thread",
        forbidden="larger_batch|loop_in_function",
    ),
    "growing_history": Job(
        make=growing_history,
        cause=("garbage_collection", "between_steps"),
        advice="gc|garbage",
        forbidden="larger_batch|loop_in_function",
        profiler="run",
    ),
    "keras_tiny_batches": Job(
        make=keras_tiny_batches,
        cause=("small_work_per_step", "python_between_steps"),
        advice="steps_per_execution|larger_batch",
        fixed_by="steps_per_execution",
        forbidden="run_eagerly",
        profiler="keras",
        steps=100,
        warm=40,
    ),
    "jax_tiny_steps": Job(
        make=jax_tiny_steps,
        cause=("small_work_per_step", "python_between_steps"),
        advice="scan|larger_batch",
        fixed_by="loop_in_function",
        profiler="jax",
        steps=200,
        warm=50,
    ),
    "healthy_keras": Job(make=healthy_keras, profiler="keras"),
    "healthy_loop": Job(make=healthy_loop),
    "healthy_jax": Job(make=healthy_jax, profiler="jax"),
    "healthy_executions": Job(make=healthy_executions, profiler="keras", executions=4),
    "healthy_pipeline": Job(make=healthy_pipeline, profiler="run"),
}
