"""The example of the tfprof article, for TensorFlow 2: a network of three layers, and what its steps recorded.

    cd sample_traces/tfprof_mlp
    python collect.py collected             # a new folder: graph, log, records of ten steps, checkpoint

`tf.layers` and the MNIST reader of the article are gone: layers are written by hand, images are random numbers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from tfperf.tfprof import Collector

v1 = tf.compat.v1
BATCH = 100
STEPS = 100


def dense(inputs: Any, units: int, name: str, activation: Any = None) -> Any:
    """Return the outputs of a layer, as `tf.layers.dense` did."""
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [int(inputs.shape[-1]), units])
        bias = v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
        outputs = tf.nn.bias_add(tf.matmul(inputs, kernel), bias)
        return activation(outputs) if activation else outputs


def main(folder: str) -> None:
    """Train, and collect every tenth step."""
    numbers = np.random.default_rng(0)
    with tf.Graph().as_default():
        inputs = v1.placeholder(tf.float32, [BATCH, 784], name="inputs")
        targets = v1.placeholder(tf.int32, [BATCH], name="targets")
        hidden1 = dense(inputs, 128, "hidden1", tf.nn.relu)
        hidden2 = dense(hidden1, 32, "hidden2", tf.nn.relu)
        logits = dense(hidden2, 10, "softmax_linear")
        loss = v1.losses.sparse_softmax_cross_entropy(labels=targets, logits=logits)
        global_step = v1.Variable(0, name="global_step", trainable=False, use_resource=False)
        train_op = v1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=global_step)
        saver = v1.train.Saver()
        with v1.Session() as session, Collector(folder, every=10, saver=saver) as collector:
            session.run(v1.global_variables_initializer())
            for _ in range(STEPS):
                batch = {inputs: numbers.random((BATCH, 784)), targets: numbers.integers(0, 10, BATCH)}
                collector.run(session, [train_op, loss], feed_dict=batch)
    forget_this_machine(Path(folder) / "tfprof_log")
    print(f"{folder}: {len(collector.collected.steps)} steps")


def forget_this_machine(log: Path) -> None:
    """Shorten paths of files to what is the same on all machines; needed only to publish the data."""
    from tensorflow.core.profiler import tfprof_log_pb2

    stored = tfprof_log_pb2.OpLogProto.FromString(log.read_bytes())
    for number, text in stored.id_to_string.items():
        before, marker, after = text.partition("/site-packages/")
        if marker and before.startswith("/"):
            stored.id_to_string[number] = f"python{marker}{after}"
        if text == __file__:
            stored.id_to_string[number] = Path(__file__).name
    log.write_bytes(stored.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["collected"])
