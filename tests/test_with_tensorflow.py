"""Against TensorFlow itself: captures made here, and the conclusions of its own converter (xprof).

TensorFlow and xprof come with `tfperf[dev]` on Linux. One process makes all captures.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from builders import known
from job_environment import on_linux, run_tensorflow

import tfperf

pytestmark = [pytest.mark.tensorflow, on_linux]

_CAPTURE = """
import sys, time
import tensorflow as tf

def pipeline():
    def slow(x):
        tf.py_function(lambda: time.sleep(0.010), [], [])
        return x
    data = tf.data.Dataset.range(10**6).batch(64)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return data.with_options(options).map(slow)

weights = tf.Variable(tf.random.normal((64, 64)))

@tf.function
def compute(x):
    return tf.reduce_sum(tf.tanh(tf.random.normal((64, 64)) @ weights)) + tf.cast(tf.reduce_sum(x), tf.float32)

def step(iterator):
    batch = next(iterator)
    start = time.perf_counter()
    compute(batch).numpy()
    time.sleep(max(0.0, 0.005 - (time.perf_counter() - start)))

for name, marked in (("marked", True), ("unmarked", False)):
    iterator = iter(pipeline())
    for _ in range(20):
        step(iterator)
    tf.profiler.experimental.start(f"{sys.argv[1]}/{name}")
    for number in range(14):
        if marked:
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                step(iterator)
        else:
            step(iterator)
    tf.profiler.experimental.stop()
    del iterator
"""
"""A step waits for its batch, which sleeps 10 ms in the pipeline, then takes 5 ms."""


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logdirs of the loop: steps that are marked, and steps that are not."""
    folder = tmp_path_factory.mktemp("captures")
    run_tensorflow("-c", _CAPTURE, folder)
    return folder


def xprof_rows(logdir: Path, scratch: Path) -> list[dict[str, Any]]:
    """Return xprof's step table of the capture (it writes caches beside the trace, so it gets a copy)."""
    if find_spec("xprof") is None:
        pytest.skip("xprof is not installed: for Python 3.10, pip does not find versions that fit together")
    (trace,) = logdir.rglob("*.xplane.pb")
    scratch.mkdir()
    copy = shutil.copy(trace, scratch)
    script = (
        "import sys\nfrom xprof.convert import raw_to_tool_data as r\n"
        "print(r.xspace_to_tool_data([sys.argv[1]], 'overview_page', {})[0].decode())"
    )
    table = json.loads(run_tensorflow("-c", script, copy).stdout.strip().splitlines()[-1])[1]
    ids = [column["id"] for column in table["cols"]]
    return [dict(zip(ids, [cell["v"] for cell in row["c"]], strict=True)) for row in table["rows"]]


def test_marked_steps_equal_xprofs_figures(captures: Path, tmp_path: Path) -> None:
    """Every category of every step that xprof reports, to its last printed digit."""
    logdir = captures / "marked"
    expected = xprof_rows(logdir, tmp_path / "xprof")
    steps = tfperf.load(logdir, attribution="tensorflow")["steps"]
    table = steps.table[steps.averaged]
    assert len(expected) == 12  # of 14: xprof leaves out the first and last of more than five
    assert [row["stepnum"] for row in expected] == list(table["step_name"])
    columns = {"hostComputeTimeMs": "host_compute_ms", "infeedTimeMs": "input_ms", "otherTimeMs": "all_others_ms"}
    for theirs, ours in columns.items():
        assert [float(row[theirs]) for row in expected] == pytest.approx(list(table[ours]), abs=1e-6), ours
    for theirs, ours in {"kernelLaunchTimeMs": "kernel_launch_ms", "deviceComputeTimeMs": "device_compute_ms"}.items():
        assert [float(row[theirs]) for row in expected] == [0.0] * 12, ours
        assert table[ours].isna().all(), "there is no device"


@pytest.mark.parametrize("name", ["marked", "unmarked"])
def test_each_step_waits_for_the_ten_ms_that_its_batch_sleeps(captures: Path, name: str) -> None:
    """Longer on a busy machine, never shorter."""
    steps = tfperf.load(captures / name)["steps"]
    assert len(steps.steps) == 14
    assert steps.table[steps.averaged].input_ms.min() > 10.0


# Real pipelines in which one stage sleeps: whatever is around it, that stage must be named.
_PIPELINES = """
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
        for number in range(8):
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
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipelines")
    run_tensorflow("-c", _PIPELINES, folder)
    return folder


@pytest.mark.timing
@pytest.mark.parametrize("name", _EXPECTED)
def test_the_stage_that_sleeps_is_named(pipelines: Path, name: str) -> None:
    tfdata = tfperf.load(pipelines / name, sections=["tfdata"])["tfdata"]
    main = known(tfdata.main)
    blocking, limiting = (main.stages[known(place)] for place in (main.blocking, main.limiting))
    assert (blocking.name, blocking.python) == (limiting.name, limiting.python) == _EXPECTED[name]
    assert blocking.blocked_ps > 0.6 * main.waited_ps
    assert main.waited_ps == max(pipeline.waited_ps for pipeline in tfdata.pipelines if not pipeline.is_device)
    assert known(tfdata.outlook).input_percent > 20
