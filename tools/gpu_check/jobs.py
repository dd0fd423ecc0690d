"""Jobs of JAX for the check of a real GPU: what each step does, what is built into it, and what it should be called.

A job has variants; each makes a `Loop`. Sizes are chosen so that a step of a GPU takes 0.1 to 50 ms; `small` ones are
for a processor, to try the script.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from queue import Queue
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Step = Callable[[int], Any]
"""Does one step of this number, and returns what is ready when the step is over."""


@dataclass(frozen=True)
class Loop:
    """What a variant repeats, and what is known of a step beforehand; None where nothing is.

    `flops` counts a multiplication and an addition as two. `to_device`, `to_host` are bytes that each step copies.
    `precision` is that of the products: `fp32`, `tf32`, `bf16`.
    """

    step: Step
    waits: bool = True
    """Whether each step waits for its result, as a loop that prints its loss does."""
    flops: float | None = None
    to_device: int | None = None
    to_host: int | None = None
    precision: str | None = None


@dataclass(frozen=True)
class Job:
    """A job: its variants by name, the first one with the fault, and the code of the cause that is built in.

    Without a cause, no problem may be found. `also` are other names that an expert accepts.
    """

    variants: Mapping[str, Callable[[bool], Loop]]
    cause: str = ""
    also: frozenset[str] = frozenset()
    budget_s: int = 40
    marked: bool = field(default=False, kw_only=True)
    """Whether the program marks its steps."""


def _normal(seed: int, *shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, dtype)


# Products in several precisions


def _conv_net(small: bool, *, channels: int, precision: str) -> Loop:
    """Four 3 x 3 convolutions and a gradient; aligned if the channels are a multiple of 8."""
    batch, side, depth = (4, 16, 2) if small else (64, 56, 4)
    dtype = jnp.bfloat16 if precision == "bf16" else jnp.float32
    products = {"fp32": lax.Precision.HIGHEST, "tf32": lax.Precision.DEFAULT, "bf16": None}[precision]
    images = _normal(0, batch, side, side, channels, dtype=dtype)
    weights = [_normal(n + 1, 3, 3, channels, channels, dtype=dtype) * 0.02 for n in range(depth)]

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for kernel in weights:
            conv = lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), precision=products
            )
            x = jnp.maximum(conv, 0)
        return jnp.mean(x.astype(jnp.float32) ** 2)

    def update(weights: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        value, gradient = jax.value_and_grad(loss)(weights, x)
        return [w - 0.001 * g for w, g in zip(weights, gradient, strict=True)], value

    train_step, state = jax.jit(update), weights

    def step(_: int) -> jax.Array:
        nonlocal state
        state, value = train_step(state, images)
        return value

    # Forward, and twice that backward; the first layer needs no gradient of its input.
    forward = 2.0 * batch * side * side * channels * channels * 9
    return Loop(step, flops=forward * (3 * depth - 1), precision=precision)


def _conv_job(precision: str) -> Job:
    return Job(
        {
            "odd": partial(_conv_net, channels=63, precision=precision),
            "aligned": partial(_conv_net, channels=64, precision=precision),
        },
        cause="unaligned_shapes" if precision != "fp32" else "device_compute_32bit",
        also=frozenset({"layout_conversion", "device_compute_32bit", "low_utilisation", "memory_bound"}),
        marked=True,
    )


def _product(small: bool, *, dtype: Any) -> Loop:
    """One large product after another: what the matrix units can do."""
    size, times = (256, 2) if small else (8192, 4)
    a, b = _normal(0, size, size, dtype=dtype), _normal(1, size, size, dtype=dtype) / size**0.5

    def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
        for _ in range(times):
            a = a @ b
        return a

    run = jax.jit(multiply)
    return Loop(lambda _: run(a, b), flops=2.0 * size**3 * times, precision="bf16")


def _sum_of_arrays(small: bool) -> Loop:
    """Element by element on arrays far larger than the caches: what the memory can do."""
    size = 1 << 16 if small else 1 << 28
    a, b = _normal(0, size), _normal(1, size)
    add = jax.jit(lambda a, b: a + 0.5 * b)
    return Loop(lambda _: add(a, b), flops=2.0 * size)


# What the host costs


def _tiny_ops(small: bool, *, jitted: bool) -> Loop:
    count = 10 if small else 100
    x = jnp.ones((64, 64))

    def update(x: jax.Array) -> jax.Array:
        for _ in range(count):
            x = jnp.sin(x) * 0.5 + 0.1
        return jnp.mean(x)

    run = jax.jit(update) if jitted else update
    return Loop(lambda _: run(x))


def _tiny_kernels(small: bool, *, scanned: bool) -> Loop:
    """Kernels of some microseconds each, that the compiler cannot fuse: products of small matrices."""
    count = 10 if small else 200
    w = _normal(0, 32, 32) / 6

    def chain(x: jax.Array) -> jax.Array:
        for _ in range(count):
            x = jnp.tanh(lax.optimization_barrier(x @ w))
        return x

    def wide(x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ jnp.tile(w, (1, 4)))[:, :32]

    x = _normal(1, 32, 32)
    run = jax.jit(wide if scanned else chain)
    return Loop(lambda _: run(x))


def _new_shapes(small: bool, *, padded: bool) -> Loop:
    """Each third batch has a length that was not there before."""
    most = 64 if small else 512
    w = _normal(0, 128, 128)
    train_step = jax.jit(lambda w, x: jnp.mean(jnp.tanh(x @ w) ** 2))

    def step(number: int) -> jax.Array:
        length = most if number % 3 or padded else most + 1 + number
        return train_step(w, jnp.asarray(np.ones((length, 128), np.float32)))

    return Loop(step)


def _read(batch: int, side: int, busy_s: float) -> np.ndarray:
    """Make a batch as a decoder would: on the host, for a while."""
    until = time.perf_counter() + busy_s
    images = np.ones((batch, side, side, 3), np.float32)
    while time.perf_counter() < until:
        images *= 1.0
    return images


def _input(small: bool, *, prefetched: bool) -> Loop:
    """A batch takes 5 ms to make; made in the loop, or by a thread beside it."""
    batch, side = (2, 16) if small else (32, 112)
    w = _normal(0, side * side * 3, 256) * 0.01
    train_step = jax.jit(lambda w, x: jnp.mean(jnp.tanh(x.reshape(batch, -1) @ w) ** 2))
    size = batch * side * side * 3 * 4
    if not prefetched:

        def step(_: int) -> jax.Array:
            return train_step(w, jax.device_put(_read(batch, side, 0.005)))

        return Loop(step, to_device=size)
    ready: Queue[jax.Array] = Queue(4)

    def fill() -> None:
        while True:
            ready.put(jax.device_put(_read(batch, side, 0.005)))

    for _ in range(4):
        threading.Thread(target=fill, daemon=True).start()
    return Loop(lambda _: train_step(w, ready.get()), to_device=size)


def _results(small: bool, *, each: bool) -> Loop:
    """All weights come to the host after each step, or after each twentieth."""
    size = 1 << 8 if small else 1 << 12
    state = _normal(0, size, size)
    train_step = jax.jit(lambda w: w * 0.999 + 0.001 * jnp.tanh(w))

    def step(number: int) -> Any:
        nonlocal state
        state = train_step(state)
        return jax.device_get(state) if each or number % 20 == 0 else state

    return Loop(step, waits=each, to_host=size * size * 4 if each else None)


# What is heavy on the device


def _attention(small: bool, *, fused: bool) -> Loop:
    shape = (1, 64, 2, 16) if small else (8, 2048, 16, 64)
    q, k, v = (_normal(n, *shape, dtype=jnp.bfloat16) for n in range(3))
    implementation: Any = "cudnn" if fused and jax.default_backend() == "gpu" else "xla"
    attend = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, implementation=implementation))
    batch, length, heads, width = shape
    return Loop(lambda _: attend(q, k, v), flops=4.0 * batch * heads * length * length * width, precision="bf16")


def _two_streams(small: bool, *, beside: bool) -> Loop:
    """A batch is copied to the device before, or beside, the products of the step."""
    size = 1 << 8 if small else 1 << 12
    w = _normal(0, size, size, dtype=jnp.bfloat16) / size**0.5
    host = np.ones((size, size), np.float32)
    train_step = jax.jit(lambda w, x: jnp.mean((x.astype(jnp.bfloat16) @ w @ w @ w).astype(jnp.float32)))
    following = jax.device_put(host)

    def step(_: int) -> jax.Array:
        nonlocal following
        if not beside:
            return train_step(w, jax.block_until_ready(jax.device_put(host)))
        value = train_step(w, following)
        following = jax.device_put(host)
        return value

    return Loop(step, to_device=host.nbytes, flops=6.0 * size**3, precision="bf16")


def _nearly_full(small: bool, *, share: float) -> Loop:
    """Weights that fill a share of what the allocator may use, and a step that needs a little more."""
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", 1 << 26)
    kept = [jnp.ones((1 << 18 if small else 1 << 28,), jnp.float32)]
    while not small and (len(kept) + 1) * kept[0].nbytes < share * limit:
        kept.append(jnp.ones_like(kept[0]))
    train_step = jax.jit(lambda x: jnp.sum(x * 0.5 + 1))
    return Loop(lambda number: train_step(kept[number % len(kept)]))


def _doubles(small: bool, *, double: bool) -> Loop:
    jax.config.update("jax_enable_x64", double)
    size = 128 if small else 2048
    dtype = np.float64 if double else np.float32
    a = jnp.asarray(np.ones((size, size), dtype))
    multiply = jax.jit(lambda a: a @ a / size)
    return Loop(lambda _: multiply(a), flops=2.0 * size**3)


JOBS: dict[str, Job] = {
    "conv_tf32": _conv_job("tf32"),
    "conv_bf16": _conv_job("bf16"),
    "conv_fp32": _conv_job("fp32"),
    "tiny_ops": Job(
        {"eager": partial(_tiny_ops, jitted=False), "jitted": partial(_tiny_ops, jitted=True)}, "eager_ops"
    ),
    "tiny_kernels": Job(
        {"chain": partial(_tiny_kernels, scanned=False), "wide": partial(_tiny_kernels, scanned=True)},
        "launch_bound",
        frozenset({"small_work_per_step"}),
    ),
    "new_shapes": Job(
        {"odd": partial(_new_shapes, padded=False), "padded": partial(_new_shapes, padded=True)}, "compilation"
    ),
    "input": Job(
        {"in_loop": partial(_input, prefetched=False), "prefetched": partial(_input, prefetched=True)},
        "python_between_steps",
        frozenset({"input_wait"}),
    ),
    "device_get": Job(
        {"each": partial(_results, each=True), "each_20th": partial(_results, each=False)},
        "fetch_results",
        frozenset({"output_copy", "waiting_for_results"}),
    ),
    "attention": Job(
        {"plain": partial(_attention, fused=False), "fused": partial(_attention, fused=True)},
        "memory_bound",
        frozenset({"dominant_layer", "low_utilisation"}),
    ),
    "two_streams": Job(
        {"before": partial(_two_streams, beside=False), "beside": partial(_two_streams, beside=True)},
        "input_copy",
        frozenset({"python_between_steps", "waiting_for_results"}),
    ),
    "nearly_full": Job({"full": partial(_nearly_full, share=0.93)}, "memory_pressure", frozenset({"memory_bound"})),
    "doubles": Job(
        {"double": partial(_doubles, double=True), "single": partial(_doubles, double=False)}, "double_precision"
    ),
    "products": Job({"bf16": partial(_product, dtype=jnp.bfloat16)}, marked=True),
    "sum_of_arrays": Job({"fp32": _sum_of_arrays}, "memory_bound"),
}
"""In order of worth: what a cut leaves out is at the end."""
