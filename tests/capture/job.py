"""A TensorFlow job with a profiler server, run by tests in a process of its own: `python job.py PORT MODE [FILE]`.

Prints "ready" once the server listens and, in mode `busy`, training runs. `idle` does nothing; `later` waits until FILE
exists and then trains; each batch of `slower` takes 0.1 s as soon as FILE exists.
"""

import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf


def train() -> None:
    import keras  # An idle job has none.

    data = tf.data.Dataset.range(10**9).map(lambda number: tf.random.normal((8,)) + tf.cast(number, tf.float32))
    data = data.batch(32)
    if mode == "slower":
        data = data.map(lambda batch: tf.ensure_shape(tf.numpy_function(load, [batch], tf.float32), (32, 8)))
    data = data.map(lambda batch: (batch, batch[:, :1]))
    model = keras.Sequential([keras.layers.Dense(16), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    ready = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: print("ready", flush=True) if not epoch else None
    )
    pace = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.03))
    model.fit(data, steps_per_epoch=5, epochs=10**6, verbose=0, callbacks=[ready, pace])


def load(batch: Any) -> Any:
    time.sleep(0.1 * Path(sys.argv[3]).exists())
    return batch


port, mode = int(sys.argv[1]), sys.argv[2]
tf.profiler.experimental.server.start(port)
if mode == "later":
    print("ready", flush=True)
    while not Path(sys.argv[3]).exists():
        time.sleep(0.05)
if mode == "idle":
    print("ready", flush=True)
    time.sleep(3600)
train()
