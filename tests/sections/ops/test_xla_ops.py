"""Against TensorFlow itself: a function compiled by XLA for the CPU, profiled here, in a process of its own.

No module is called so: this is about the whole way from a capture to the table of ops.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from job_environment import job_environment

from tfperf.analysis.load import load

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only"),
]

_CAPTURE = """
import sys
import tensorflow as tf

weights = tf.Variable(tf.random.normal((256, 256)))

@tf.function(jit_compile=True)
def compiled(x):
    with tf.name_scope("hidden"):
        y = tf.linalg.matmul(x, weights)
    with tf.name_scope("loss"):
        return tf.reduce_sum(tf.tanh(y))

@tf.function
def interpreted(x):
    with tf.name_scope("plain"):
        return tf.linalg.matmul(x, weights)

x = tf.random.normal((256, 256))
compiled(x), interpreted(x)
tf.profiler.experimental.start(sys.argv[1])
for _ in range(3):
    compiled(x), interpreted(x)
tf.profiler.experimental.stop()
"""


def test_compiled_ops_are_shown_by_their_op_and_by_what_xla_calls_them(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _CAPTURE, str(tmp_path)]
    environment = job_environment(keras=False)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    table = load(tmp_path, sections=["ops"])["ops"].host
    compiled = {key.name: key for key in table.keys if key.hlo_op}
    assert compiled["hidden/MatMul"].type == "MatMul"
    assert any(name.startswith("loss/") for name in compiled)
    assert all("compiled" in key.hlo_module for key in compiled.values())
    plain = [key for key in table.keys if key.name == "plain/MatMul"]
    assert [key.hlo_op for key in plain] == [""]
    assert "plain/MatMul" not in compiled
