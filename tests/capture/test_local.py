"""Profiling from inside the job, in real TensorFlow processes.

TensorFlow takes seconds to start, so one process tries many things and prints what came of them; the tests read that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import known
from job_environment import PROFILER_ALONE, job_environment, run_tensorflow
from test_with_tensorflow import xprof_rows

import tfperf
from tfperf.base.arrays import Intervals
from tfperf.formats.wire.contents import Contents, look_into
from tfperf.formats.wire.encode import one_varint
from tfperf.trace.logdir import find_runs
from tfperf.trace.read import read_host

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only")

_HEAD = """
import json, os, signal, sys, threading, time, warnings
from pathlib import Path
from tfperf.capture import local
from tfperf.base.errors import CaptureError

LOGS = Path(sys.argv[1])
results = {}

def work(steps=range(10)):
    for number in steps:
        with local.step(number):
            tf.reduce_sum(tf.random.normal((20, 20)) @ tf.ones((20, 20))).numpy()

def mark():
    for number in range(10):
        with local.step(number):
            time.sleep(0.001)

def reason(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except CaptureError as error:
        return [error.reason, str(error)]
"""
_GUARDS = """
import tensorflow as tf

results["stop_without_start"] = reason(local.stop)
results["gs"] = reason(local.start, "gs://bucket/logs")
results["file"] = reason(local.start, sys.executable)
results["proc"] = reason(local.start, "/proc/logs")

local.start(LOGS / "twice")
results["second_start"] = reason(local.start, LOGS / "other")
results["second_profile"] = reason(local.profile(LOGS / "other").__enter__)
work()
results["twice"] = str(local.stop().path)
results["second_stop"] = reason(local.stop)

tf.profiler.experimental.start(str(LOGS / "theirs"))
results["busy"] = reason(local.start, LOGS / "busy")
tf.profiler.experimental.stop()
results["left_by_busy"] = (LOGS / "busy").exists()

thread = threading.Thread(target=local.start, args=(LOGS / "thread",), kwargs={"python_tracer_level": 1})
thread.start()
thread.join()
work()
stopped = []
thread = threading.Thread(target=lambda: stopped.append(local.stop()))
thread.start()
thread.join()
results["thread"] = str(stopped[0].path)

for kind in (ZeroDivisionError, KeyboardInterrupt, SystemExit):
    name = kind.__name__
    try:
        with local.profile(LOGS / name) as captured:
            work()
            if kind is KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
            raise kind
    except kind:
        results[name] = str(captured.result.path)

with local.profile(LOGS / "stopped_inside") as captured:
    work()
    inside = local.stop()
results["stopped_inside"] = [str(inside.path), captured.result]

with local.profile(LOGS / "restarted") as captured:
    local.stop()
    local.start(LOGS / "goes_on")
results["still_running"] = local.is_running()
work()
results["goes_on"] = str(local.stop().path)

with warnings.catch_warnings(record=True) as caught:
    with local.profile(LOGS / "idle") as captured:
        pass
results["idle"] = [captured.result.reason, captured.result.path, [str(warning.message) for warning in caught],
                (LOGS / "idle").exists()]

os.chdir(LOGS)
local.start("relative")
work()
os.chdir("/")
results["relative"] = str(local.stop().path)

with warnings.catch_warnings(record=True) as caught:
    try:
        with local.profile(LOGS / "gone"):
            work()
            (LOGS / "gone" / "plugins").touch()  # No folder can be made there any more.
            raise ZeroDivisionError
    except ZeroDivisionError:
        results["failing_in_an_error"] = [str(warning.message) for warning in caught]

with local.profile(LOGS / "forked") as captured:
    work(range(5))
    child = os.fork()
    if not child:
        child = [local.is_running(), reason(local.stop)[0], reason(local.start, LOGS / "child")[0]]
        (LOGS / "child.json").write_text(json.dumps(child))
        sys.exit(0)
    results["child_status"] = os.waitpid(child, 0)[1]
    work(range(5, 10))
results["forked"] = str(captured.result.path)

def stop_on_alarm(number, frame):
    results["in_signal_handler"] = str(local.stop().path)
signal.signal(signal.SIGALRM, stop_on_alarm)
local.start(LOGS / "signal")
signal.setitimer(signal.ITIMER_REAL, 0.05)
until = time.monotonic() + 10
while local.is_running() and time.monotonic() < until:
    work()
"""
_LEVELS = """
levels = {"usual": {}, "marked_only": {"host_tracer_level": 1}, "off": {"host_tracer_level": 0},
          "python": {"python_tracer_level": 1}}
for name, options in levels.items():
    with warnings.catch_warnings(record=True) as caught, local.profile(LOGS / name, **options) as captured:
        work()
    profiled = captured.result
    warned = [str(warning.message) for warning in caught]
    results[name] = [str(profiled.path), profiled.reason, profiled.event_count, warned]

local.start(LOGS / "threads")
threads = [threading.Thread(target=work, args=(range(first, first + 10),)) for first in (0, 10)]
for thread in threads: thread.start()
for thread in threads: thread.join()
results["threads"] = str(local.stop().path)

import gc, time
def clean():
    gc.collect()
with local.profile(LOGS / "python_record") as captured:
    work()
    clean()
    time.sleep(0.05)
ours = [each for each in gc.callbacks if "tfperf" in each.__module__]
results["python_record"] = [str(captured.result.path), len(ours)]

local.start(LOGS / "nested")
for number in range(4):
    with local.step(number, name="outer#1"):
        work()
results["nested"] = str(local.stop().path)

for _ in range(3): work()
with local.profile(LOGS / "overhead", python_tracer_level=1) as captured:
    for _ in range(3): work()
results["overhead"] = [str(captured.result.path), captured.result.overhead_percent]

print(json.dumps(results))
"""


def run(script: str, logs: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a script for which TensorFlow's profiler alone is enough."""
    command = [sys.executable, "-c", _HEAD + script, str(logs)]
    environment = job_environment(PROFILER_ALONE, keras=False)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stderr[-2000:]
    return done


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def results(logs: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(run_tensorflow("-c", _HEAD + _GUARDS + _LEVELS, logs).stdout)
    return results


def contents(results: dict[str, Any], name: str) -> Contents:
    return look_into(Path(results[name][0]))


def step_count(path: str) -> int:
    count: int = tfperf.load(path)["overview"].step_count
    return count


# What is recorded


def test_levels_reach_the_tracers(results: dict[str, Any]) -> None:
    usual, marked_only, python = (contents(results, name) for name in ("usual", "marked_only", "python"))
    assert 0 < marked_only.event_count < usual.event_count < python.event_count
    assert python.has_python_frames
    assert not usual.has_python_frames
    for name, held in (("usual", usual), ("python", python)):
        assert results[name][1:] == ["", held.event_count, []]


def test_a_host_tracer_that_is_off_records_nothing_and_says_so(results: dict[str, Any]) -> None:
    path, reason, events, (warned,) = results["off"]
    assert (path, reason, events) == ("None", "idle", 0)
    assert "no TensorFlow activity" in warned
    assert results["idle"] == ["idle", None, [warned], False], "nothing ran, and no logdir is there"


@pytest.mark.parametrize("name", ["usual", "marked_only", "python"])
def test_marked_steps_are_found_for_sure(results: dict[str, Any], name: str) -> None:
    (host,) = tfperf.load(results[name][0]).hosts
    steps = host["steps"].steps
    varied = any("vary" in note for note in steps.notes)  # On a busy machine steps of 0.1 ms may.
    assert (steps.source, steps.confidence) == ("markers", "medium" if varied else "high")
    assert list(steps.names) == [f"train {number}" for number in range(10)]


def test_xprof_finds_the_same_steps(results: dict[str, Any], tmp_path: Path) -> None:
    rows = xprof_rows(Path(results["usual"][0]).parents[3], tmp_path / "xprof")
    assert [row["stepnum"] for row in rows] == [f"train {number}" for number in range(1, 9)], "all but first and last"


def test_steps_of_two_threads(results: dict[str, Any]) -> None:
    """Threads that run at the same time have a loop each, of which the second is named; threads in turn share one."""
    others = tfperf.load(results["threads"])["steps"].steps.other_loops
    assert (step_count(results["threads"]), ["10 times" in loop for loop in others]) in ((20, []), (10, [True]))


def test_the_trace_says_what_the_job_ran_on(results: dict[str, Any]) -> None:
    facts = read_host(Path(results["usual"][0])).capture_facts
    assert (facts.tfperf_version, facts.tensorflow_version) == (tfperf.__version__, version("tensorflow-cpu"))
    assert facts.cores == len(os.sched_getaffinity(0)) or facts.cpu_quota
    assert facts.memory_bytes is not None
    assert facts.batch_size is None, "a loop without Keras states none"


def test_the_trace_says_what_python_did(results: dict[str, Any]) -> None:
    """The job is a fork, in which Python may not know the ID of the main thread."""
    path, callbacks = results["python_record"]
    assert not callbacks, "nothing of it stays in the process"
    trace = read_host(Path(path))
    pauses, cpu = known(trace.python_activity.pauses), known(trace.python_activity.cpu)
    (explicit,) = np.flatnonzero([place.endswith(" clean") for place in pauses.places])[-1:]
    assert trace.end_ps.max() < pauses.end_ps[explicit], "what ran before the collection is before it in the trace"
    asleep = Intervals(pauses.end_ps[explicit : explicit + 1], cpu.end_ps[-1:])
    assert asleep.total() > 45e9
    assert float(cpu.within(asleep, asleep.start, asleep.end)[1][0]) < 0.5 * asleep.total(), "it waited"


def test_the_measured_overhead_is_in_the_trace(results: dict[str, Any]) -> None:
    path, percent = results["overhead"]
    facts = read_host(Path(path)).capture_facts
    assert facts.overhead_percent == percent
    assert known(facts.usual_step_ms) > 0
    report = tfperf.load(path, sections=["environment", "gaps"]).report()
    (environment, gaps) = (section for section in report.sections if section.name in ("environment", "gaps"))
    shown = {fact.key: fact.value for fact in environment.facts}
    assert (shown["tensorflow_version"], shown["cores"]) == (facts.tensorflow_version, facts.cores)
    assert not any("TensorFlow" in note and "only captures" in note for note in gaps.notes)


_TOOLS = """
import sys
from tensorflow.python.profiler.internal import _pywrap_profiler_plugin as own
for path in sys.argv[1:]:
    for tool in ("overview_page", "input_pipeline_analyzer", "framework_op_stats", "memory_profile"):
        print(tool, own.xspace_to_tools_data([path], tool), end=" ")
    print()
"""


def test_other_tools_ignore_what_is_added(results: dict[str, Any], tmp_path: Path) -> None:
    """The converters in TensorFlow conclude the same with and without the plane."""
    whole = Path(results["usual"][0]).read_bytes()
    plane = whole[whole.rindex(b"\x12\x0f/tfperf:capture") :]
    added = b"\x0a" + one_varint(len(plane)) + plane
    assert whole.endswith(added)
    paths = []
    for number, data in enumerate((whole, whole.removesuffix(added))):
        path = tmp_path / str(number) / "host.xplane.pb"
        path.parent.mkdir()
        path.write_bytes(data)
        paths.append(path)
    with_plane, without_plane = run_tensorflow("-c", _TOOLS, *paths).stdout.splitlines()
    assert with_plane == without_plane
    assert len(with_plane) > 200, "or nothing was converted"


def test_a_step_inside_a_step_is_part_of_it(results: dict[str, Any]) -> None:
    assert step_count(results["nested"]) == 4


# What is refused, and what survives


@pytest.mark.parametrize(
    ("call", "reason", "words"),
    [
        ("stop_without_start", "not_started", "call tfperf.start"),
        ("second_stop", "not_started", "call tfperf.start"),
        ("second_start", "already_started", "call tfperf.stop"),
        ("second_profile", "already_started", "call tfperf.stop"),
        ("busy", "busy", "another profiler is active in this process"),
        ("gs", "not_written", "gs://bucket/logs is not a local folder"),
        ("file", "not_written", "is a file"),
        ("proc", "not_written", "/proc/logs"),
    ],
)
def test_a_call_out_of_turn_is_a_clear_error(results: dict[str, Any], call: str, reason: str, words: str) -> None:
    assert results[call][0] == reason
    assert words in results[call][1]


@pytest.mark.parametrize(
    "name", ["twice", "thread", "ZeroDivisionError", "KeyboardInterrupt", "SystemExit", "goes_on", "relative", "forked"]
)
def test_the_trace_is_whole_all_the_same(results: dict[str, Any], logs: Path, name: str) -> None:
    assert Path(results[name]).is_relative_to(logs / name)
    assert step_count(results[name]) == 10


def test_a_block_may_stop_itself(results: dict[str, Any]) -> None:
    path, result = results["stopped_inside"]
    assert step_count(path) == 10
    assert result is None
    assert results["still_running"] is True  # the session that a block began after its own is not the block's to end


def test_the_error_of_the_block_matters_more_than_the_lost_trace(results: dict[str, Any]) -> None:
    (warned,) = results["failing_in_an_error"]
    assert "cannot write" in warned


def test_a_forked_child_leaves_the_session_alone(results: dict[str, Any], logs: Path) -> None:
    assert results["child_status"] == 0
    assert json.loads((logs / "child.json").read_text()) == [False, "not_started", "busy"]


def test_a_signal_handler_may_stop(results: dict[str, Any]) -> None:
    assert Path(results["in_signal_handler"]).is_file()


def test_no_scratch_folder_is_left(results: dict[str, Any], logs: Path) -> None:
    assert results["left_by_busy"] is False
    assert list(logs.rglob(".*")) == []


# The end of the program


def test_the_end_of_the_program_ends_the_session(tmp_path: Path) -> None:
    script = "import tensorflow\nlocal.start(LOGS, python_tracer_level=1)\nmark()\nsys.exit(3)"
    done = run(script, tmp_path, status=3)
    (path,) = tmp_path.rglob("*.xplane.pb")
    assert f"the program ended during profiling; wrote {path}\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert step_count(str(path)) == 10


def test_an_end_that_cannot_write_says_so_in_one_line(tmp_path: Path) -> None:
    """An unhandled error shows its own traceback, and no other."""
    script = "import tensorflow\nlocal.start(LOGS)\nmark()\n(LOGS / 'plugins').touch()\nraise ZeroDivisionError"
    done = run(script, tmp_path, status=1)
    assert done.stderr.count("Traceback") == 1
    assert "no trace was written: cannot write" in done.stderr


def test_without_a_framework(tmp_path: Path) -> None:
    """Nothing is imported for a program that does not compute, nor refused to one that computes later."""
    script = (
        "from tfperf.capture.server import serve\n"
        "serve(0).stop()\n"
        "with local.step(1): pass\n"
        "unusable = reason(local.start, sys.executable)[0]\n"
        "reasons = reason(local.start, LOGS / 'logs')\n"
        "imported = [name for name in ('tensorflow', 'jax') if name in sys.modules]\n"
        "print(json.dumps([unusable, reasons, imported, os.listdir(LOGS)]))"
    )
    unusable, (reason, message), imported, left = json.loads(run(script, tmp_path).stdout)
    assert unusable == "not_written", "a logdir is tried first"
    assert (reason, imported, left) == ("no_framework", [], [])
    assert message.endswith("import the one that computes before profiling")


# Two processes under one TF_CONFIG profile themselves into one run, whichever way they are profiled


_WORKER = """
import os
import signal
import time
import tensorflow
import tfperf
from tfperf.keras import ProfileCallback

def profile(**options):
    with tfperf.profile("logs", **options):
        for number in range(3):
            with tfperf.step(number):
                time.sleep(0.001)

profile()
profile(run="named")
callback = ProfileCallback("logs", batches=(2, 3), verbose=False)
for batch in range(5):
    callback.on_train_batch_begin(batch)
    time.sleep(0.001)
    callback.on_train_batch_end(batch)
os.environ["TFPERF_RUN"] = "of-the-launcher"
if '"index": 1' in os.environ["TF_CONFIG"]:
    os.kill(os.getpid(), signal.SIGKILL)
profile()
"""


@pytest.fixture(scope="module")
def of_two_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    (folder / "job.py").write_text(_WORKER)
    cluster = {"worker": ["127.0.0.1:21001", "127.0.0.1:21002"]}
    tasks = [{"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(2)]
    environments = [job_environment(PROFILER_ALONE, keras=False) | {"TF_CONFIG": json.dumps(task)} for task in tasks]
    command, pipe = [sys.executable, "job.py"], subprocess.PIPE
    workers = [subprocess.Popen(command, cwd=folder, env=each, stderr=pipe, text=True) for each in environments]
    errors = [worker.communicate()[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, -9], errors
    return folder / "logs"


def test_each_profile_is_one_run_with_a_file_for_each_worker(of_two_workers: Path) -> None:
    runs = find_runs(of_two_workers)
    tasks = {run.name: [file.host.rpartition("_")[2] for file in run.files] for run in runs}
    of_both = {name: tasks.pop(name) for name in list(tasks) if name != "of-the-launcher"}
    assert len(of_both) == 3, "by the count, by a name, by the steps"
    assert "named" in of_both
    assert all(hosts == ["worker-0", "worker-1"] for hosts in of_both.values()), of_both
    assert tasks == {"of-the-launcher": ["worker-0"]}, "what the other gave is kept"
    assert not list(of_two_workers.rglob("*.tmp"))


def test_a_trace_says_which_task_it_is_of(of_two_workers: Path) -> None:
    analysis = tfperf.load(of_two_workers, run="named", sections=["environment"])
    facts = [host["environment"].facts for host in analysis.hosts]
    tasks = [(each.task_type, each.task_index, each.cluster_size) for each in facts]
    assert tasks == [("worker", 0, 2), ("worker", 1, 2)]
    assert facts[0].cluster_id == facts[1].cluster_id
    starts = [each.start_time_us for each in facts]
    assert all(start and 1e15 < start < 1e16 for start in starts)
