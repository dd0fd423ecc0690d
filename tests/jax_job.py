"""Small JAX programs that profile themselves: `jax_job.py FOLDER` writes a logdir for each, on two CPU devices."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np

Weights = list[jax.Array]
FOLDER = Path(sys.argv[1])
IMAGES = np.ones((24, 16, 32), np.float32)  # batches of 16


@contextmanager
def profile(name: str) -> Iterator[None]:
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(str(FOLDER / name), profiler_options=options):
        yield


def weights() -> Weights:
    return [jnp.full((32, 32), 0.1, np.float32), jnp.full((32, 8), 0.1, np.float32)]


def predict(w: Weights, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w[0]) @ w[1]


def loss(w: Weights, x: jax.Array) -> jax.Array:
    return jnp.mean(predict(w, x) ** 2)


def update(w: Weights, x: jax.Array) -> tuple[Weights, jax.Array]:
    value, gradient = jax.value_and_grad(loss)(w, x)
    return jax.tree.map(lambda a, g: a - 0.1 * g, w, gradient), value


train_step = jax.jit(update)
gradients = jax.jit(jax.value_and_grad(loss))
add = jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b))
apply_gradients = jax.jit(lambda w, g: jax.tree.map(lambda a, b: a - 0.1 * b, w, g))
evaluate = jax.jit(loss)
infer = jax.jit(predict)
augment = jax.jit(lambda x: x * 2.0 - 1.0)


def train(step: Callable[..., tuple[Weights, jax.Array]], count: int, w: Weights, batches: Any = IMAGES) -> Weights:
    for i in range(count):
        w, value = step(w, batches[i])
        float(value)
    return w


def scan() -> None:
    """Run 6 calls of a scan over 3 steps each."""
    steps = jax.jit(partial(jax.lax.scan, update))
    batches = [np.ascontiguousarray(IMAGES[3 * i : 3 * i + 3]) for i in range(6)]
    w, _ = steps(weights(), batches[0])
    with profile("scan"):
        for batch in batches:
            w, values = steps(w, batch)
            np.asarray(values)


def accumulation() -> None:
    """Run 6 steps of 3 micro-batches each."""

    def step(w: Weights, first: int) -> Weights:
        value, total = gradients(w, IMAGES[first])
        for k in (1, 2):
            value, gradient = gradients(w, IMAGES[first + k])
            total = add(total, gradient)
        float(value)
        updated: Weights = apply_gradients(w, total)
        return updated

    w = step(weights(), 0)
    with profile("accumulation"):
        for i in range(6):
            w = step(w, 3 * i)
        np.asarray(w[0])


def two_devices() -> None:
    """Run 12 steps, each on two devices."""
    mesh = jax.make_mesh((2,), ("d",))
    spec: Callable[..., jax.sharding.PartitionSpec] = jax.sharding.PartitionSpec
    split, whole = jax.sharding.NamedSharding(mesh, spec("d")), jax.sharding.NamedSharding(mesh, spec())
    w = jax.device_put(weights(), whole)
    batches = [jax.device_put(x, split) for x in IMAGES]
    w = train(train_step, 1, w, batches)
    with profile("two_devices"):
        train(train_step, 12, w, batches)


def pmapped() -> None:
    """Run 11 steps of pmap on two devices, with the mean of their gradients."""

    def update_all(w: Weights, x: jax.Array) -> tuple[Weights, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(w, x)
        return jax.tree.map(lambda a, g: a - 0.1 * g, w, mean(gradient, "d")), value

    mean: Callable[..., Weights] = jax.lax.pmean
    step = jax.pmap(update_all, axis_name="d", in_axes=(None, 0), out_axes=(None, 0))
    w = weights()
    for _ in range(2):  # the second call compiles again: its weights are on both devices
        w, value = step(w, IMAGES[0].reshape(2, 8, 32))
        np.asarray(value)
    with profile("pmapped"):
        for i in range(11):
            w, value = step(w, IMAGES[i].reshape(2, 8, 32))
            np.asarray(value)


def several_functions() -> None:
    """Run 10 steps of augmentation, gradients and update, without waiting for any."""
    w = weights()
    for i in range(2):
        w = apply_gradients(w, gradients(w, augment(IMAGES[i]))[1])
    np.asarray(w[0])
    with profile("several_functions"):
        for i in range(10):
            _, gradient = gradients(w, augment(IMAGES[i]))
            w = apply_gradients(w, gradient)
        np.asarray(w[0])


def donated() -> None:
    """Run 15 steps that write the new weights over the old ones."""
    step = jax.jit(update, donate_argnums=0)
    w = train(step, 1, weights())
    with profile("donated"):
        train(step, 15, w)


def evaluation() -> None:
    """Run 12 steps, and 2 evaluations after every fourth one."""
    w = train(train_step, 1, weights())
    float(evaluate(w, IMAGES[0]))
    with profile("evaluation"):
        for i in range(0, 12, 4):
            w = train(train_step, 4, w, IMAGES[i:])
            float(evaluate(w, IMAGES[0]))
            float(evaluate(w, IMAGES[1]))


def marked() -> None:
    """Run 9 steps inside of annotations, numbered from 100, and wait for none of them."""
    w = train(train_step, 1, weights())
    with profile("marked"):
        for i in range(9):
            with jax.profiler.StepTraceAnnotation("train", step_num=100 + i):
                w, _ = train_step(w, IMAGES[i])
        np.asarray(w[0])


def without_jit() -> None:
    """Run 8 steps op by op."""
    w = [jnp.full((32, 32), 0.1, np.float32)]

    def step(w: Weights, x: np.ndarray) -> Weights:
        hidden = jnp.tanh(jnp.dot(x, w[0]))
        gradient = jnp.dot(jnp.transpose(jnp.asarray(x)), hidden * (1.0 - hidden * hidden))
        return [w[0] - 0.1 * gradient]

    w = step(w, IMAGES[0])
    with profile("without_jit"):
        for i in range(8):
            w = step(w, IMAGES[i])
            np.asarray(w[0])


def inference() -> None:
    """Run 14 inferences."""
    w = weights()
    np.asarray(infer(w, IMAGES[0]))
    with profile("inference"):
        for i in range(14):
            np.asarray(infer(w, IMAGES[i]))


def compile_inside() -> None:
    """Run 10 steps, of which the first and the sixth compile: batches grow."""
    batches = [IMAGES[i, : 6 if i < 5 else 12] for i in range(10)]
    with profile("compile_inside"):
        train(jax.jit(update), 10, weights(), batches)


def served() -> None:
    """Train until `tfperf capture` has profiled 0.5 s from outside."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    w = train(train_step, 1, weights())
    jax.profiler.start_server(port)
    options = ("--port", str(port), "--duration", "500ms", "--logdir", str(FOLDER / "served"))
    capture = subprocess.Popen([sys.executable, "-m", "tfperf", "capture", *options], stdout=subprocess.DEVNULL)
    while capture.poll() is None:
        w = train(train_step, 5, w)
    if capture.returncode:
        raise SystemExit("tfperf capture failed")


for program in (
    *(scan, accumulation, two_devices, pmapped, several_functions, donated),
    *(evaluation, marked, without_jit, inference, compile_inside, served),
):
    program()
