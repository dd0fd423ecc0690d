"""Real pipelines in which one stage sleeps: whatever is around it, that stage must be named.

One process of TensorFlow runs all variants; what it records is all that the analysis sees.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from job_environment import on_linux, run_python

import tfperf

pytestmark = [pytest.mark.tensorflow, pytest.mark.timing, on_linux]

_CAPTURE = """
import sys, time
import tensorflow as tf
import tfperf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
D, AUTO = tf.data.Dataset, tf.data.AUTOTUNE

def slow(milliseconds):
    def sleeps(x):
        time.sleep(milliseconds / 1000)
        return x
    def mapped(x):
        y = tf.py_function(sleeps, [x], x.dtype)
        y.set_shape(x.shape)
        return y
    return mapped

def slow_true(milliseconds):
    return lambda x: slow(milliseconds)(x) >= 0

def quick(x):
    return x + 1

def slow_generator():
    for number in range(10**6):
        time.sleep(0.003)
        yield number

def numbers():
    return D.range(10**9)

def no_prefetch(data):
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return data.with_options(options)

VARIANTS = {
    "map_then_batch": lambda: numbers().map(slow(3)).batch(4).prefetch(2),
    "batch_then_map": lambda: numbers().batch(4).map(slow(10)).prefetch(2),
    "parallel_map": lambda: numbers().map(slow(8), num_parallel_calls=2).batch(4).prefetch(2),
    "no_prefetch": lambda: no_prefetch(numbers().batch(8).map(slow(10))),
    "second_of_two_maps": lambda: numbers().map(quick, num_parallel_calls=2).batch(4).map(slow(10)).prefetch(1),
    "first_of_two_maps": lambda: numbers().batch(4).map(slow(10)).prefetch(2).map(
        quick, num_parallel_calls=2).prefetch(2),
    "filter": lambda: numbers().filter(slow_true(3)).batch(4).prefetch(2),
    "generator": lambda: D.from_generator(slow_generator, output_signature=tf.TensorSpec((), tf.int64)).batch(4),
    "in_interleave": lambda: D.range(4).interleave(
        lambda n: numbers().map(slow(3)), cycle_length=2).batch(4).prefetch(2),
    "in_parallel_interleave": lambda: D.range(4).interleave(
        lambda n: numbers().map(slow(6)), cycle_length=2, num_parallel_calls=2).batch(4).prefetch(2),
    "in_flat_map": lambda: D.range(100000).flat_map(lambda n: D.range(3).map(slow(3))).batch(4).prefetch(2),
    "in_one_of_zip": lambda: D.zip((numbers().map(quick), numbers().map(slow(3)))).batch(4).prefetch(2),
    "before_shuffle": lambda: numbers().map(slow(3)).shuffle(8).batch(4).prefetch(2),
    "handed_on_to_two_devices": lambda: strategy.experimental_distribute_dataset(numbers().map(slow(8)).batch(4)),
    "parallel_batch": lambda: numbers().map(slow(3)).batch(4, num_parallel_calls=2).prefetch(2),
}

@tf.function
def compute(x):
    return tf.reduce_sum(tf.ones((64, 64)) @ tf.ones((64, 64))) + tf.cast(tf.reduce_sum(x), tf.float32)

for name, make in VARIANTS.items():
    iterator = iter(make())
    def step():
        batch = next(iterator)
        if name == "handed_on_to_two_devices":
            return strategy.run(compute, args=(batch,))
        compute(batch[0] if isinstance(batch, tuple) else batch).numpy()
    for _ in range(2):
        step()
    with tfperf.profile(f"{sys.argv[1]}/{name}"):
        for number in range(12):
            with tfperf.step(number):
                step()
    del iterator
"""

_MAP = {
    *("batch_then_map", "no_prefetch", "second_of_two_maps", "first_of_two_maps", "in_interleave", "parallel_batch"),
    *("in_parallel_interleave", "in_flat_map", "in_one_of_zip", "before_shuffle"),
}
_EXPECTED = dict.fromkeys(sorted(_MAP), ("Map", "py_function")) | {
    **dict.fromkeys(("map_then_batch", "parallel_map", "handed_on_to_two_devices"), ("MapAndBatch", "py_function")),
    "filter": ("Filter", "py_function"),
    "generator": ("Generator", "from_generator"),
}


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipelines")
    run_python("-c", _CAPTURE, folder)
    return folder


@pytest.mark.parametrize("name", _EXPECTED)
def test_the_stage_that_sleeps_is_named(captures: Path, name: str) -> None:
    tfdata = tfperf.load(captures / name, sections=["tfdata"])["tfdata"]
    main = tfdata.main
    assert main is not None
    assert main.blocking is not None
    assert main.limiting is not None
    expected, python = _EXPECTED[name]
    for stage in (main.stages[main.blocking], main.stages[main.limiting]):
        assert (stage.name, stage.python) == (expected, python)
    assert main.stages[main.blocking].blocked_ps > 0.6 * main.waited_ps
    assert main.waited_ps == max(pipeline.waited_ps for pipeline in tfdata.pipelines if not pipeline.is_device)
    assert tfdata.outlook is not None
    assert tfdata.outlook.input_percent > 20
