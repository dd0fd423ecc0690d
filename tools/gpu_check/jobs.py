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
    compiled: Any = None
    """The compiled program of a step, whose memory and operations JAX states."""


@dataclass(frozen=True)
class Job:
    """A job: its variants by name, the first one with the fault, and the code of the cause that is built in.

    Without a cause, no problem may be found; None: the cause is not judged. `also` are other names that an expert
    accepts. A loop that waits for each result also has the cause `waiting_for_results`: on an H200, conv_tf32.odd took
    16% less time without the waits.
    """

    variants: Mapping[str, Callable[[bool], Loop]]
    cause: str | None = ""
    also: frozenset[str] = frozenset()
    budget_s: int = 40
    marked: bool = field(default=False, kw_only=True)
    """Whether the program marks its steps."""


def _normal(seed: int, *shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, dtype)


# Products in several precisions


def _conv_net(small: bool, *, channels: int, precision: str, waits: bool = True) -> Loop:
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
    return Loop(step, waits=waits, flops=forward * (3 * depth - 1), precision=precision)


def _conv_job(precision: str) -> Job:
    return Job(
        {
            "odd": partial(_conv_net, channels=63, precision=precision),
            "aligned": partial(_conv_net, channels=64, precision=precision),
            "waiting_once": partial(_conv_net, channels=63, precision=precision, waits=False),
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
    return Loop(lambda _: add(a, b))


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


def _tiny_kernels(small: bool, *, scanned: bool = False, graphs: bool = True) -> Loop:
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
    if not graphs and jax.default_backend() == "gpu":
        run = jax.jit(chain, compiler_options={"xla_gpu_enable_command_buffer": ""})
    else:
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


def _callback(small: bool, *, each: bool) -> Loop:
    """The compiled program calls Python on the host in each layer."""
    size, layers = (64, 2) if small else (2048, 8)
    w = _normal(0, size, size, dtype=jnp.bfloat16) / size**0.5
    seen: list[Any] = []

    def forward(w: jax.Array, x: jax.Array) -> jax.Array:
        for _ in range(layers):
            x = jnp.tanh(x @ w)
            if each:
                jax.debug.callback(lambda value: seen.append(float(value)), jnp.sum(x[0].astype(jnp.float32)))
        return x

    run, x = jax.jit(forward), _normal(1, size, size, dtype=jnp.bfloat16)
    return Loop(lambda _: run(w, x), flops=2.0 * size**3 * layers, precision="bf16")


def _waits(small: bool, *, each: bool) -> Loop:
    """The loop waits for the device after each of many short calls, or after the last one."""
    size, calls = (64, 5) if small else (1024, 40)
    w = _normal(0, size, size, dtype=jnp.bfloat16) / size**0.5
    layer = jax.jit(lambda w, x: jnp.tanh(x @ w))
    x = _normal(1, size, size, dtype=jnp.bfloat16)

    def step(_: int) -> jax.Array:
        value = x
        for _ in range(calls):
            value = layer(w, value)
            if each:
                jax.block_until_ready(value)
        return value

    return Loop(step, flops=2.0 * size**3 * calls, precision="bf16")


def _transfers(small: bool, *, each: bool) -> Loop:
    """A batch goes to the device as many small arrays, or as one."""
    count, width = (10, 16) if small else (100, 256)
    host = np.ones((count, width), np.float32)
    train_step = jax.jit(lambda rows: jnp.mean(jnp.tanh(jnp.stack(rows)) ** 2) if each else jnp.mean(rows))

    def step(_: int) -> jax.Array:
        return train_step([jax.device_put(row) for row in host] if each else jax.device_put(host))

    return Loop(step, to_device=host.nbytes)


def _requests(small: bool, *, padded: bool) -> Loop:
    """Requests of 1 to 32 examples that come at random times; each is one forward call."""
    width = 64 if small else 4096
    weights = [_normal(n, width, width, dtype=jnp.bfloat16) / width**0.5 for n in range(4)]
    chance = np.random.default_rng(0)

    def predict(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in weights:
            x = jnp.maximum(x @ w, 0)
        return x

    run = jax.jit(predict)

    def step(_: int) -> jax.Array:
        time.sleep(chance.exponential(0.002))
        examples = int(chance.integers(1, 33))
        rows = 32 if padded else 1 << (examples - 1).bit_length()
        return jnp.asarray(jax.device_get(run(weights, np.ones((rows, width), np.float32).astype(jnp.bfloat16))))

    return Loop(step)


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


def _transformer(small: bool, *, fused: bool = True, remat: bool = False) -> Loop:
    """A language model in bfloat16 with Adam in float32; its layers are named."""
    depth, width, heads, length, batch, words = (2, 64, 4, 32, 2, 128) if small else (8, 1024, 16, 1024, 8, 32_000)
    implementation: Any = "cudnn" if fused and jax.default_backend() == "gpu" else "xla"
    params = {
        "embed": _normal(0, words, width) * 0.02,
        "blocks": [
            {
                "qkv": _normal(4 * n + 1, width, 3 * width) * 0.02,
                "out": _normal(4 * n + 2, width, width) * 0.02,
                "up": _normal(4 * n + 3, width, 4 * width) * 0.02,
                "down": _normal(4 * n + 4, 4 * width, width) * 0.02,
            }
            for n in range(depth)
        ],
    }
    ids = jax.random.randint(jax.random.key(9), (batch, length), 0, words)

    def norm(x: jax.Array) -> jax.Array:
        wide = x.astype(jnp.float32)
        wide = wide - wide.mean(-1, keepdims=True)
        return (wide * lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-6)).astype(x.dtype)

    def block(x: jax.Array, weights: dict[str, jax.Array]) -> jax.Array:
        half = {name: weight.astype(jnp.bfloat16) for name, weight in weights.items()}
        with jax.named_scope("attention"):
            q, k, v = jnp.split((norm(x) @ half["qkv"]).reshape(batch, length, heads, -1), 3, axis=-1)
            attended = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=implementation)
            x = x + attended.reshape(batch, length, width) @ half["out"]
        with jax.named_scope("mlp"):
            return x + jax.nn.gelu(norm(x) @ half["up"]) @ half["down"]

    def loss(params: dict[str, Any]) -> jax.Array:
        with jax.named_scope("embed"):
            x = params["embed"].astype(jnp.bfloat16)[ids]
        for n, weights in enumerate(params["blocks"]):
            with jax.named_scope(f"block_{n}"):
                x = (jax.checkpoint(block) if remat else block)(x, weights)
        with jax.named_scope("head"):
            logits = (norm(x) @ params["embed"].astype(jnp.bfloat16).T).astype(jnp.float32)
            right = jnp.take_along_axis(logits, ids[..., None], -1)[..., 0]
            return jnp.mean(jax.nn.logsumexp(logits, -1) - right)

    def train(state: tuple[Any, Any, Any], count: jax.Array) -> tuple[tuple[Any, Any, Any], jax.Array]:
        params, first, second = state
        value, gradient = jax.value_and_grad(loss)(params)
        with jax.named_scope("adam"):
            first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
            second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
            rate = 1e-4 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
            params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), params, first, second)
        return (params, first, second), value

    zeros = jax.tree.map(jnp.zeros_like, params)
    state = (params, zeros, jax.tree.map(jnp.zeros_like, params))
    compiled = jax.jit(train, donate_argnums=0).lower(state, jnp.float32(1)).compile()
    jitted = jax.jit(train, donate_argnums=0)

    def step(number: int) -> jax.Array:
        nonlocal state
        state, value = jitted(state, np.float32(number + 1))
        return value

    # Each product of weights: forward, and twice that backward. The scores of attention are causal: half of them.
    weights = 12.0 * width * width * depth + width * words
    scores = 4.0 * batch * length * length * width * depth
    flops = 6.0 * weights * batch * length + 3.0 * scores
    return Loop(step, flops=None if remat else flops, precision="bf16", compiled=compiled)


def _fp8(small: bool, *, scaled: bool) -> Loop:
    """Products of 8-bit numbers, with and without scales."""
    size = 256 if small else 8192
    a = _normal(0, size, size).astype(jnp.float8_e4m3fn)
    b = _normal(1, size, size).astype(jnp.float8_e4m3fn)
    scale = jnp.bfloat16(0.5)

    def product(a: jax.Array, b: jax.Array, scale: jax.Array) -> jax.Array:
        if scaled:
            return (a.astype(jnp.bfloat16) * scale) @ (b.astype(jnp.bfloat16) * scale).T
        return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.bfloat16)

    run = jax.jit(product)
    return Loop(lambda _: run(a, b, scale), flops=2.0 * size**3, precision="fp8")


def _movement(small: bool, *, sorts: bool) -> Loop:
    """Rows are gathered from a large table, sorted, and added up by their place."""
    rows, width, ids = (1 << 10, 8, 1 << 8) if small else (1 << 21, 128, 1 << 20)
    table = _normal(0, rows, width)
    places = jax.random.randint(jax.random.key(1), (ids,), 0, rows)

    def look_up(table: jax.Array, places: jax.Array) -> jax.Array:
        order = jnp.argsort(places) if sorts else places
        found = table[places[order]] if sorts else table[places]
        return jnp.zeros_like(table).at[places].add(found)

    run = jax.jit(look_up)
    return Loop(lambda _: run(table, places))


JOBS: dict[str, Job] = {
    "conv_tf32": _conv_job("tf32"),
    "conv_bf16": _conv_job("bf16"),
    "conv_fp32": _conv_job("fp32"),
    "tiny_ops": Job(
        {"eager": partial(_tiny_ops, jitted=False), "jitted": partial(_tiny_ops, jitted=True)}, "eager_ops", marked=True
    ),
    "tiny_kernels": Job(
        {
            "chain": _tiny_kernels,
            "without_graphs": partial(_tiny_kernels, graphs=False),
            "wide": partial(_tiny_kernels, scanned=True),
        },
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
    "transformer": Job(
        {
            "plain": partial(_transformer, fused=False),
            "fused": _transformer,
            "remat": partial(_transformer, remat=True),
        },
        None,
        budget_s=75,
        marked=True,
    ),
    "attention": Job(
        {"plain": partial(_attention, fused=False), "fused": partial(_attention, fused=True)},
        "memory_bound",
        frozenset({"dominant_layer", "low_utilisation"}),
    ),
    "two_streams": Job(
        {"before": partial(_two_streams, beside=False), "beside": partial(_two_streams, beside=True)},
        "input_copy",
        frozenset({"numpy_conversion", "python_between_steps", "waiting_for_results"}),
    ),
    "waits": Job(
        {"each": partial(_waits, each=True), "last": partial(_waits, each=False)},
        "device_sync",
        # Without Python, a trace shows no waiting, only that calls take longer than their kernels.
        frozenset({"waiting_for_results", "python_between_steps", "launch_bound", "small_work_per_step"}),
        marked=True,
    ),
    "callback": Job(
        {"each": partial(_callback, each=True), "none": partial(_callback, each=False)},
        "print_in_graph",
        frozenset({"host_callback", "host_ops"}),
    ),
    "transfers": Job(
        {"many": partial(_transfers, each=True), "one": partial(_transfers, each=False)},
        "numpy_conversion",
        frozenset({"input_copy", "python_between_steps"}),
    ),
    "requests": Job({"padded": partial(_requests, padded=True), "fitting": partial(_requests, padded=False)}, None),
    "fp8": Job(
        {"scaled": partial(_fp8, scaled=True), "direct": partial(_fp8, scaled=False)}, None, budget_s=90, marked=True
    ),
    "movement": Job(
        {"sorted": partial(_movement, sorts=True), "plain": partial(_movement, sorts=False)},
        "data_movement",
        frozenset({"memory_bound", "dominant_layer"}),
    ),
    "nearly_full": Job({"full": partial(_nearly_full, share=0.93)}, "memory_pressure", frozenset({"memory_bound"})),
    "doubles": Job(
        {"double": partial(_doubles, double=True), "single": partial(_doubles, double=False)}, "double_precision"
    ),
    "products": Job({"bf16": partial(_product, dtype=jnp.bfloat16)}, marked=True),
    "sum_of_arrays": Job({"fp32": _sum_of_arrays}, "memory_bound"),
}
"""In order of worth: what a cut leaves out is at the end."""
