"""ProfileCallback, and the StepProfile inside, with real Keras: what is profiled, and that training goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from builders import known
from job_environment import LEAN, WITHOUT_PANDAS, run_python, run_tensorflow, with_jax

import tfperf
from tfperf.capture.keras_callback import ProfileCallback
from tfperf.trace.read import read_host

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only")
_OLD_KERAS = pytest.mark.skipif(
    not find_spec("tf_keras"), reason="tf_keras is not installed: it brings all of TensorFlow"
)

_SCRIPT = """
import functools, json, sys
import tensorflow as tf
import KERAS as keras
from tfperf.capture import local
from tfperf.keras import ProfileCallback

results = {}

def data(batches=40):
    x = tf.random.normal((batches * 4, 8))
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(4)

@functools.cache  # Each new model is traced and compiled anew.
def model(**options):
    made = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    made.compile("sgd", "mse", **options)
    return made

def scenario(name, train, batches=(10, 19)):
    callback = ProfileCallback(f"{LOGS}/{name}", batches, verbose=False)
    error = ""
    try:
        train(callback)
    except Exception as raised:
        error = str(raised)
    callback.close()
    captured = callback.result
    results[name] = {
        "path": captured and captured.path and str(captured.path), "reason": captured and captured.reason,
        "message": captured and captured.message, "overhead": captured and captured.overhead_percent,
        "running": local.is_running(), "error": error,
    }

def fit(callback, dataset=None, **options):
    model().fit(dataset or data(), verbose=0, callbacks=[callback], **options)

def arrays(callback):
    x = tf.random.normal((600, 8)).numpy()
    model().fit(x, x[:, :1], batch_size=12, verbose=0, callbacks=[callback])

def on_batch(callback):
    made = model()
    callback.watch(made)
    for x, y in data(30):
        made.train_on_batch(x, y)

def by_hand(callback):
    made = model()
    callback.set_model(made)
    callback.on_train_begin()
    for number, (x, y) in enumerate(data(30)):
        callback.on_train_batch_begin(number)
        made.train_on_batch(x, y)
        callback.on_train_batch_end(number)
    callback.on_train_end()

def fails(callback):
    def fail(batch, logs):
        if batch == 13:
            raise ValueError("batch 13")
    model().fit(data(), verbose=0, callbacks=[callback, keras.callbacks.LambdaCallback(on_train_batch_end=fail)])

def fails_and_goes_on(callback):
    try:
        fails(callback)
    except ValueError:
        fit(callback, data(3))
    assert not local.is_running()

def somebody_else(callback):
    tf.profiler.experimental.start(f"{LOGS}/other")
    fit(callback)
    tf.profiler.experimental.stop()

for train in (fit, arrays, on_batch, by_hand, fails, fails_and_goes_on, somebody_else):
    scenario(train.__name__, train)
scenario("epochs", lambda callback: fit(callback, data(6), epochs=4))
scenario("too_short", lambda callback: fit(callback, data(7)))
scenario("ends_inside", lambda callback: fit(callback, data(15)))
scenario("validation", lambda callback: fit(callback, data(12), validation_data=data(3), epochs=2), (10, 13))
scenario("executions", lambda callback: model(steps_per_execution=5).fit(data(), verbose=0, callbacks=[callback]))
scenario("evaluate", lambda callback: model().evaluate(data(), verbose=0, callbacks=[callback]))
scenario("predict", lambda callback: model().predict(data().map(lambda x, y: x), verbose=0, callbacks=[callback]))
open(f"{LOGS}/no_folder", "w").close()
scenario("no_folder", fit)
results["tensorboard"] = "tensorboard" in sys.modules
print(json.dumps(results))
"""


_ON_JAX = """
import os, sys
os.environ |= {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
import keras
import numpy as np
from tfperf.keras import ProfileCallback

x = np.random.rand(640, 8).astype("float32")
model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
model.compile("sgd", "mse")
with ProfileCallback(sys.argv[1], (10, 19), verbose=False) as callback:
    model.fit(x, x[:, :1], batch_size=16, verbose=0, callbacks=[callback])
print(callback.result.path, "tensorflow" in sys.modules)
"""


@with_jax
def test_keras_on_jax(tmp_path: Path) -> None:
    done = run_python("-c", _ON_JAX, tmp_path, more=(WITHOUT_PANDAS, LEAN))
    path, has_tensorflow = done.stdout.split()
    assert has_tensorflow == "False"
    analysis = tfperf.load(path, sections=["steps", "environment"])
    assert analysis["steps"].steps.numbers.tolist() == list(range(10, 20))
    (environment,) = analysis["environment"]
    assert (environment.facts.batch_size, environment.facts.steps_per_execution) == (16, 1)
    assert environment.jax_version


@pytest.fixture(scope="module", params=["keras", pytest.param("tf_keras", marks=_OLD_KERAS)])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Train in every way in one process; return what came of each."""
    script = f"LOGS = {str(tmp_path_factory.mktemp('logs'))!r}\n" + _SCRIPT.replace("KERAS", request.param)
    done = run_tensorflow("-c", script)
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


def steps(outcome: dict[str, Any]) -> int:
    (host,) = tfperf.load(outcome["path"]).hosts
    assert host["steps"].steps.source == "markers"
    return len(host["steps"].steps)


@pytest.mark.parametrize(
    ("way", "count"),
    [
        *dict.fromkeys(("fit", "epochs", "on_batch", "by_hand", "evaluate", "predict"), 10).items(),
        ("executions", 2),  # of several batches, and each is one step
        ("validation", 4 + 3),  # batches 10 to 13, and the validation between 11 and 12
        ("ends_inside", 5),
    ],
)
def test_batches_ten_to_nineteen_are_profiled(results: dict[str, Any], way: str, count: int) -> None:
    outcome = results[way]
    assert (outcome["reason"], outcome["error"], outcome["running"]) == ("", "", False)
    assert steps(outcome) == count


def test_the_cost_is_measured_against_the_batches_before(results: dict[str, Any]) -> None:
    facts = read_host(Path(results["fit"]["path"])).capture_facts
    assert known(facts.usual_step_ms) > 0
    assert facts.overhead_percent == results["fit"]["overhead"]


@pytest.mark.parametrize(
    ("way", "size", "batches"),
    [("fit", 4, 1), ("executions", 4, 5), ("arrays", 12, 1), ("on_batch", 4, 1), ("evaluate", 4, 1)],
)
def test_the_trace_says_the_batch_size(results: dict[str, Any], way: str, size: int, batches: int) -> None:
    """What Keras was told, and what the trace shows besides, agree."""
    analysis = tfperf.load(results[way]["path"])
    (environment,), batch = analysis["environment"], analysis["batch"]
    assert (environment.facts.batch_size, environment.facts.steps_per_execution) == (size, batches)
    assert (batch.size, batch.confidence) == (size, "high")
    assert environment.facts.keras_version
    summary = analysis.report().summary
    if way == "on_batch" and batch.batches_per_step is None:
        # The program fetches between its calls; on a busy machine, a fetch may fall into the step before. Then it is
        # unknown how many batches a step takes, and so is the rate.
        assert summary["examples_per_second"] is None
        return
    assert batch.batches_per_step == batches
    rate = size * batches * summary["steps_per_second"]
    assert summary["examples_per_second"] == pytest.approx(rate)


def test_a_training_that_is_too_short_is_told(results: dict[str, Any]) -> None:
    outcome = results["too_short"]
    assert (outcome["path"], outcome["reason"]) == (None, "no_steps")
    assert "after 7 batches, before batch 10" in outcome["message"]


@pytest.mark.parametrize("way", ["fails", "fails_and_goes_on"])
def test_it_stops_when_a_step_fails(results: dict[str, Any], way: str) -> None:
    outcome = results[way]
    assert outcome["error"] == ("batch 13" if way == "fails" else "")
    assert (outcome["reason"], outcome["running"]) == ("", False)
    assert steps(outcome) >= 3


def test_training_goes_on_when_profiling_cannot_be(results: dict[str, Any]) -> None:
    assert (results["somebody_else"]["reason"], results["somebody_else"]["error"]) == ("busy", "")
    assert (results["no_folder"]["reason"], results["no_folder"]["error"]) == ("not_written", "")
    assert not results["tensorboard"], "it is not needed"


@pytest.mark.parametrize("batches", [(10, 9), (-1, 5), (5, 2)])
def test_a_range_that_cannot_be(batches: tuple[int, int]) -> None:
    with pytest.raises(tfperf.TfperfError, match="FIRST"):
        ProfileCallback("logs", batches)


def test_importing_it_imports_neither_keras_nor_tensorflow() -> None:
    script = "import sys, tfperf.keras; assert not {'keras', 'tensorflow', 'tf_keras'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
