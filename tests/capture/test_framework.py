"""JAX profiled from inside the job, in one real process that prints what came of it; and which framework computes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from job_environment import run_python, with_jax

import tfperf
from tfperf.capture.framework import computing, ready, start_marker
from tfperf.formats.wire.contents import look_into

_SCRIPT = """
import contextlib, json, sys, threading
from pathlib import Path
import tfperf
from tfperf.capture import framework
from tfperf.capture.address import Address
from tfperf.capture.client import ProfilerClient, profile_request
from tfperf.capture.outcomes import TracerOptions

LOGS = Path(sys.argv[1])
results = {}

def reason(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except tfperf.CaptureError as error:
        return [error.reason, str(error)]

def ask(options=TracerOptions()):
    with ProfilerClient(Address("127.0.0.1", server.port)) as client:
        request = profile_request(options, 200, Path("logs/run/host.xplane.pb"))
        return client.profile(request, 60).result()

server = tfperf.serve(0)
results["before"] = [framework.computing(), ask().empty_trace]
import jax
results["imported"] = [framework.computing(), framework.ready(), ask().empty_trace, framework.jax_has_started()]
import jax.numpy as jnp

@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

w, x = jnp.ones((64, 8)), jnp.ones((32, 64))
results["started"] = [framework.computing(), framework.ready()]

def work(steps=range(10), mark=tfperf.step):
    global w
    for number in steps:
        with mark(number):
            w = train_step(w, x)

work()
for name, options in {
    "usual": {},
    "marked_only": {"host_tracer_level": 1},
    "python": {"python_tracer_level": 1},
    "off": {"host_tracer_level": 0},
    "advanced": {"device_tracer_level": 0, "advanced": {"tpu_trace_mode": "TRACE_ONLY_HOST", "size": 4, "on": True}},
}.items():
    with tfperf.profile(LOGS / name, **options) as profiled:
        work()
    results[name] = [str(profiled.result.path), profiled.result.reason, profiled.result.message]
with tfperf.profile(LOGS / "unmarked") as profiled:
    work(mark=contextlib.nullcontext)
results["unmarked"] = [str(profiled.result.path)]

jax.profiler.start_trace(str(LOGS / "theirs"))
results["busy"] = reason(tfperf.start, LOGS / "busy")
jax.profiler.stop_trace()
tfperf.start(LOGS / "second")
results["second"] = reason(tfperf.start, LOGS / "other")
work()
(LOGS / "second" / "plugins").touch()  # No folder can be made there any more.
results["lost"] = reason(tfperf.stop)

done = threading.Event()
def train():
    number = 0
    while not done.is_set():
        work([number])
        number += 1
thread = threading.Thread(target=train)
thread.start()
replies = {"served": TracerOptions(), "served_python": TracerOptions(2, 1, 1)}
for name, options in replies.items():
    (LOGS / f"{name}.xplane.pb").write_bytes(ask(options).xspace)
done.set()
thread.join()
server.stop()

sys.modules["tensorflow"] = type(sys)("tensorflow")  # As in a job that reads its data with tf.data.
with tfperf.profile(LOGS / "both") as profiled:
    work()
results["both"] = profiled.result.message
del sys.modules["tensorflow"]

tfperf.start(LOGS / "end")
work()
results["tensorflow"] = "tensorflow" in sys.modules
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def results(logs: Path) -> dict[str, Any]:
    done = run_python("-c", _SCRIPT, logs)
    assert "the program ended during profiling; wrote " in done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


@with_jax
def test_nothing_is_imported_or_started_for_a_profile(results: dict[str, Any]) -> None:
    """A client of a job that does not compute yet gets an empty trace, and JAX's devices stay as they are."""
    assert results["before"] == [None, True]
    assert results["imported"] == ["JAX", None, True, False]
    assert results["started"] == ["JAX", "JAX"]
    assert results["tensorflow"] is False


@with_jax
@pytest.mark.parametrize("name", ["usual", "marked_only", "python", "advanced"])
def test_marked_steps_of_jax(results: dict[str, Any], name: str) -> None:
    path, reason, message = results[name]
    assert reason == ""
    without_level = "this JAX has no device_tracer_level, so its default was used"
    assert message in (("", without_level) if name == "advanced" else ("",))
    steps = tfperf.load(path)["steps"].steps
    assert (steps.source, list(steps.names)) == ("markers", [f"train {number}" for number in range(10)])


@with_jax
def test_a_profile_of_one_of_two_frameworks_says_which(results: dict[str, Any]) -> None:
    assert results["both"] == "the profile is of JAX; TensorFlow is imported, too, and is not in it"


@with_jax
def test_levels_reach_the_tracers_of_jax(results: dict[str, Any]) -> None:
    usual, python = (look_into(Path(results[name][0])) for name in ("usual", "python"))
    assert [held.has_python_frames for held in (usual, python)] == [False, True]
    assert results["off"][:2] == ["None", "idle"]
    assert results["off"][2].startswith("no JAX activity was recorded")


@with_jax
def test_work_of_the_last_steps_is_waited_for(results: dict[str, Any]) -> None:
    """The program does not wait for its last step; the profile does."""
    analysis = tfperf.load(results["unmarked"][0])
    assert (analysis["steps"].steps.source, len(analysis["steps"].steps)) == ("jitted calls", 10)
    (function,) = (each for each in analysis["functions"].jitted.functions if each.name == "train_step")
    assert function.work_ps


@with_jax
def test_the_trace_says_what_jax_ran_on(results: dict[str, Any]) -> None:
    (environment,) = tfperf.load(results["usual"][0])["environment"]
    assert environment.jax_version
    assert environment.facts.tfperf_version == tfperf.__version__
    assert environment.cores


@with_jax
@pytest.mark.parametrize(
    ("call", "reason", "words"),
    [
        ("busy", "busy", "another profiler is active in this process (jax.profiler.trace"),
        ("second", "already_started", "call tfperf.stop"),
        ("lost", "not_written", "cannot write"),
    ],
)
def test_a_call_out_of_turn(results: dict[str, Any], call: str, reason: str, words: str) -> None:
    assert (results[call][0], words in results[call][1]) == (reason, True)


@with_jax
def test_clients_of_a_job_of_jax(results: dict[str, Any], logs: Path) -> None:
    served, python = (look_into(logs / f"{name}.xplane.pb") for name in ("served", "served_python"))
    assert "train" in served.event_names
    assert [held.has_python_frames for held in (served, python)] == [False, True]


@with_jax
def test_the_end_of_the_program_ends_the_session_and_leaves_nothing(results: dict[str, Any], logs: Path) -> None:
    (path,) = (logs / "end").rglob("*.xplane.pb")
    assert len(tfperf.load(path)["steps"].steps) == 10
    assert list(logs.rglob(".*")) == []
    assert list(logs.rglob("*.json.gz")) == [*(logs / "theirs").rglob("*.json.gz")], "not written for nobody"


@pytest.mark.parametrize(
    ("modules", "started", "framework", "is_ready"),
    [
        ((), False, None, None),
        (("tensorflow",), False, "TensorFlow", "TensorFlow"),
        (("jax",), False, "JAX", None),
        (("jax",), True, "JAX", "JAX"),
        (("tensorflow", "jax"), False, "TensorFlow", "TensorFlow"),
        (("tensorflow", "jax"), True, "JAX", "JAX"),
    ],
)
def test_the_framework_that_computes(
    modules: tuple[str, ...],
    started: bool,
    framework: str | None,
    is_ready: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("tensorflow", "jax", "jax._src.xla_bridge"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in modules:
        module = ModuleType(name)
        module.__spec__ = SimpleNamespace(_initializing=False)  # type: ignore[assignment]
        monkeypatch.setitem(sys.modules, name, module)
    bridge = SimpleNamespace(backends_are_initialized=lambda: started)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    assert (computing(), ready()) == (framework, is_ready)
    if not modules:
        assert start_marker("train", 1) is None
