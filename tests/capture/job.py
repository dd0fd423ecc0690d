"""A TensorFlow job with a profiler server, run by tests in a process of its own: `python job.py PORT MODE [FILE]`.

Prints "ready" once the server listens and, unless it is `plain`, training runs. `busy` trains with Keras. `slower`
marks steps, and each batch takes 0.1 s as soon as FILE exists. `plain` marks steps, as long as FILE exists, for which
the profiler alone of TensorFlow is enough.
"""

import itertools
import sys
import time
from pathlib import Path
from typing import Any

from tensorflow.python.profiler.internal import _pywrap_profiler


def train() -> None:
    import keras  # A plain job has none.
    import tensorflow as tf

    data = tf.data.Dataset.range(10**9).map(lambda number: tf.random.normal((8,)) + tf.cast(number, tf.float32))
    data = data.batch(8).map(lambda batch: (batch, batch[:, :1]))
    model = keras.Sequential([keras.layers.Dense(16), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    ready = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: print("ready", flush=True) if not epoch else None
    )
    pace = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.03))
    model.fit(data, steps_per_epoch=5, epochs=10**6, verbose=0, callbacks=[ready, pace])


def work() -> None:
    from tensorflow.python.profiler.trace import Trace

    print("ready", flush=True)
    for number in itertools.count():
        while not Path(sys.argv[3]).exists():
            time.sleep(0.05)
        with Trace("train", step_num=number, _r=1):
            time.sleep(0.03)


def wait_for_input() -> None:
    import tensorflow as tf

    def load(batch: Any) -> Any:
        time.sleep(0.1 * Path(sys.argv[3]).exists())
        return batch

    data = tf.data.Dataset.from_tensors(tf.ones((8, 8))).repeat()
    data = data.map(lambda batch: tf.ensure_shape(tf.numpy_function(load, [batch], tf.float32), (8, 8)))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # No batch is loaded between steps.
    batches, compute = iter(data.with_options(options)), tf.function(lambda batch: tf.reduce_sum(batch @ batch))
    compute(next(batches))
    print("ready", flush=True)
    for number in itertools.count():
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            compute(next(batches))
        time.sleep(0.03)


port, mode = int(sys.argv[1]), sys.argv[2]
_pywrap_profiler.start_server(port)  # tf.profiler.experimental.server.start
{"busy": train, "slower": wait_for_input, "plain": work}[mode]()
