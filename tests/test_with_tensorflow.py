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
from job_environment import on_linux, run_python

import tfperf

pytestmark = [pytest.mark.tensorflow, on_linux]

_CAPTURE = """
import sys, time
import tensorflow as tf

def pipeline(prefetched):
    def slow(x):
        tf.py_function(lambda: time.sleep(0.010), [], [])
        return x
    data = tf.data.Dataset.range(10**6).batch(64)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    data = data.with_options(options).map(slow, num_parallel_calls=8 if prefetched else None)
    return data.prefetch(16) if prefetched else data

weights = tf.Variable(tf.random.normal((64, 64)))

@tf.function
def compute(x):
    return tf.reduce_sum(tf.tanh(tf.random.normal((64, 64)) @ weights)) + tf.cast(tf.reduce_sum(x), tf.float32)

def step(iterator):
    batch = next(iterator)
    start = time.perf_counter()
    compute(batch).numpy()
    time.sleep(max(0.0, 0.005 - (time.perf_counter() - start)))

for name, prefetched, marked in (("marked", False, True), ("unmarked", False, False), ("prefetched", True, False)):
    iterator = iter(pipeline(prefetched))
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
    """Logdirs of the loop: steps that are marked, steps that are not, and a pipeline with prefetching."""
    folder = tmp_path_factory.mktemp("captures")
    run_python("-c", _CAPTURE, folder)
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
    table = json.loads(run_python("-c", script, copy).stdout.strip().splitlines()[-1])[1]
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


def test_most_steps_of_a_prefetched_pipeline_wait_less_than_its_batches_sleep(captures: Path) -> None:
    """Sixteen batches are ready when the profile starts, and eight are made at a time."""
    steps = tfperf.load(captures / "prefetched")["steps"]
    assert steps.table[steps.averaged].input_ms.median() < 10.0
