"""`tfperf run` on real scripts: they do what they do without it, and the profile comes too (with script_child)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from capture.conftest import ended, read_until, start_tfperf
from click.testing import Result
from job_environment import LAZILY, PROFILER_ALONE, job_environment, with_jax, with_modules

import tfperf
from tfperf.capture import script_run
from tfperf.capture.outcomes import TracerOptions
from tfperf.capture.script_child import _ScriptJob, _source_of_tfperf
from tfperf.capture.script_run import Orders, Plan, choose_plan
from tfperf.models.tfprof.from_trace import trace_model
from tfperf.models.tfprof.options import Options
from tfperf.models.tfprof.views import show_tree

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only")

_KERAS = """
import sys
import keras
import tensorflow as tf

def main():
    x = tf.random.normal((160, 8))
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(4)
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(data, verbose=0)

if __name__ == "__main__":
    print("arguments", sys.argv[1:], "input", sys.stdin.read())
    main()
    print("trained", __file__)
    sys.exit(int(sys.argv[-1]))
"""
_LOOP = """
import time
import tensorflow as tf
from tensorflow.python.profiler import trace

compute = tf.function(lambda x: tf.reduce_sum(x @ x))
end = time.monotonic() + SECONDS
profiled = 0
while time.monotonic() < end:
    profiled += trace.enabled()
    if profiled == 50:
        print("working", flush=True)
    compute(tf.ones((50, 50)))
    time.sleep(0.005)
"""
_STEPS = """
import time
import tensorflow as tf
import tfperf

compute = tf.function(lambda x: tf.reduce_sum(x @ x))

def prepare(number):
    time.sleep(0.01)
    return tf.fill((50, 50), float(number))

for number in range(30):
    with tfperf.step(number):
        compute(prepare(number))
"""
_MARKS = """
import time
import tensorflow
import tfperf

for number in range(30):
    with tfperf.step(number):
        time.sleep(0.005)
"""
"""Steps without ops: they need no more of TensorFlow than its profiler, whose start takes a quarter of the time."""
_MARKS_OF_A_LOOP = """
import itertools
import time
import tensorflow
import tfperf
from tensorflow.python.profiler import trace

profiled = 0
for number in itertools.count():
    profiled += trace.enabled()
    if profiled == 50:
        print("working", flush=True)
    with tfperf.step(number):
        time.sleep(0.002)
"""
JSON = ("-o", "report.json")


def endless(steps: str) -> str:
    return f"import itertools\n{steps.replace('range(30)', 'itertools.count()')}"


class Runs:
    """`tfperf run` with a script, in a folder of its own: called, in this process; started, in a process of its own."""

    def __init__(self, folder: Path, run_tfperf: Callable[..., Result], capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self._run_tfperf, self._capfd = folder, run_tfperf, capfd

    def start(
        self, script: str, *arguments: str, options: tuple[str, ...] = (), keras: bool | None = None
    ) -> subprocess.Popen[str]:
        words = ("run", *options, "train.py", *arguments)
        return start_tfperf(self.folder, *words, env=self._prepare(script, keras), stdin=subprocess.PIPE)

    def __call__(self, script: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._prepare(script).items():
                patch.setenv(name, value)
            return self.command(*options, "train.py")

    def command(self, *words: str) -> tuple[int, str, str]:
        """Return the exit code, and what the script and then tfperf wrote to stdout and stderr."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            done = self._run_tfperf("run", *words)
        out, err = self._capfd.readouterr()
        return done.exit_code, out + done.stdout, err + done.stderr

    def _prepare(self, script: str, keras: bool | None = None) -> dict[str, str]:
        (self.folder / "train.py").write_text(script)
        if "import jax\n" in script:
            return with_modules(LAZILY)
        more = () if "tf." in script else (PROFILER_ALONE,)
        return job_environment(*more, keras="keras" in script if keras is None else keras)

    def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return document


@pytest.fixture
def run(tmp_path: Path, run_tfperf: Callable[..., Result], capfd: pytest.CaptureFixture[str]) -> Runs:
    return Runs(tmp_path, run_tfperf, capfd)


def wait_for_the_loop(process: subprocess.Popen[str]) -> None:
    """Wait until the script says that it works: `_LOOP`, when it has been profiled for a while."""
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"


def assert_steps_from_10(numbers: list[int]) -> None:
    """Assert that these are the steps that run takes by itself: those of four seconds, but at least ten."""
    assert numbers == list(range(10, 10 + len(numbers)))
    assert len(numbers) >= 10


def test_a_keras_script_gets_a_report_and_keeps_its_exit_code(run: Runs) -> None:
    process = run.start(_KERAS, "--flag", "3")
    out, err = process.communicate("hello", timeout=120)
    assert process.returncode == 3
    assert out.startswith(f"arguments ['--flag', '3'] input hello\ntrained {run.folder}/train.py\n")
    assert "Step time" in out
    analysis = tfperf.load(run.folder / "logs")
    assert_steps_from_10(analysis["steps"].steps.numbers.tolist())
    assert analysis["environment"][0].facts.batch_size == analysis["batch"].size == 4
    assert "tfperf: wrote " in err
    assert len(list(run.folder.glob("logs/plugins/profile/*/*.xplane.pb"))) == 1
    assert not list(run.folder.glob("logs/.*")), "nothing is left"


def test_any_other_script_by_time_and_what_is_told_while_it_goes_on(run: Runs) -> None:
    """TensorFlow imports Keras, where it is installed, but the script does not use it."""
    options = ("--after", "500ms", "--duration", "1s")
    process = run.start(_LOOP.replace("SECONDS", "100"), options=options, keras=True)
    said = read_until(process, "tfperf: ", times=2)
    assert process.poll() is None
    (trace,) = run.folder.rglob("*.xplane.pb")
    assert len(tfperf.load(trace, sections=["steps"])["steps"].steps) > 0
    first, second = (line for line in said.splitlines() if line.startswith("tfperf: "))
    assert first.startswith(f"tfperf: wrote {trace} (")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT, err
    assert second.removeprefix("tfperf: ")[:30] in out, "the first conclusion of the report"
    assert "tfperf: wrote " not in err, "it is said once"


def without_trace(*, steps: tuple[int, int] | None = None, after_s: float = 60.0) -> _ScriptJob:
    plan = Plan(logdir="logs", steps=steps, after_s=after_s, duration_s=2.0, options=TracerOptions())
    return _ScriptJob(Orders(plan, False, "result.json", None))


def test_the_hint_of_a_script_that_ends_too_early_is_a_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    job = without_trace()
    for seconds, hint in ((0.01, "0.1s"), (7.0, "3.5s"), (50.0, "25s")):
        job._started_s = time.monotonic() - seconds
        assert job._why_no_trace().message.endswith(
            f"after its start, but profiling starts after 60 s; pass --after {hint}"
        )
    # Importing TensorFlow may take longer than the time that is waited after it.
    early = without_trace(steps=(10, 19), after_s=10.0)._why_no_trace()
    assert early.reason == "no_steps"
    assert "s after importing TensorFlow, but profiling starts after 10 s; pass --after" in early.message


def test_a_script_has_the_variables_of_its_user(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os\nprint(*map(os.getenv, ('OPENBLAS_NUM_THREADS', 'JE_ARROW_MALLOC_CONF')))"
    )
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS", "JE_ARROW"))}
    done = ended(start_tfperf(tmp_path, "run", "script.py", env={**variables, "OPENBLAS_NUM_THREADS": "3"}))
    assert done.out.splitlines()[0] == "3 None"


def test_a_script_without_tensorflow(run: Runs) -> None:
    code, out, err = run("print('fine'); raise SystemExit(4)", options=JSON)
    assert (code, out) == (4, "fine\n")
    assert "imported neither TensorFlow nor JAX" in err
    assert run.report()["summary"]["reason"] == "no_framework"


_BARE = """
import sys
from importlib.machinery import PathFinder

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in ("tensorflow", "keras", "jax") else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Bare
"""
"""A `sitecustomize` that makes the Python of the tests one that has neither TensorFlow nor JAX."""


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("from tensorflow.keras import layers", "TensorFlow is not"),
        ("import keras", "Keras is not"),
        ("import jax.numpy as jnp", "JAX is not"),
        ("import tfperf\nwith tfperf.step(0): pass", "neither TensorFlow nor JAX is"),
        ("try:\n    import jax\nexcept ImportError:\n    raise SystemExit(1)", "neither TensorFlow nor JAX is"),
    ],
)
def test_a_script_in_a_python_without_its_library(
    script: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runs
) -> None:
    """One line with the fix, in place of a traceback."""
    (tmp_path / "sitecustomize.py").write_text(_BARE)
    (tmp_path / "train.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    code, out, err = run.command("train.py")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert f"{problem} installed in this Python; install tfperf in " in err


_JAX = """
import sys, time
import jax
import jax.numpy as jnp
from jax.profiler import StepTraceAnnotation

@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

w, x = jnp.ones((64, 8)), jnp.ones((32, 64))
number = 100
while STOP:
    with MARKER:
        w = train_step(w, x)
        time.sleep(0.002)
    number += 1
print("tensorflow" in sys.modules, w.shape)
"""


@with_jax
def test_steps_that_a_script_of_jax_marks(run: Runs) -> None:
    """They are counted from 0, and keep the numbers that the script gives them."""
    script = _JAX.replace("STOP", "number < 150").replace("MARKER", 'StepTraceAnnotation("train", step_num=number)')
    code, out, err = run(script, options=("--steps", "20..29", *JSON))
    assert (code, out) == (0, "False (64, 8)\n"), err
    analysis = tfperf.load(run.folder / "logs", sections=["steps", "environment"])
    steps = analysis["steps"].steps
    assert (steps.source, steps.numbers.tolist()) == ("markers", list(range(120, 130)))
    assert analysis["environment"][0].jax_version == version("jax")


@with_jax
def test_a_script_of_jax_without_markers_is_profiled_by_time(run: Runs) -> None:
    """Once its devices have started; steps are the calls of its function, and their work is in the profile."""
    script = _JAX.replace("STOP", "number < 1600").replace("MARKER", "contextlib.nullcontext()")
    code, out, err = run("import contextlib" + script, options=("--after", "100ms", "--duration", "100s", *JSON))
    assert (code, out) == (0, "False (64, 8)\n"), err
    analysis = tfperf.load(run.folder / "logs", sections=["steps", "functions"])
    assert (analysis["steps"].steps.source, len(analysis["steps"].steps) > 1) == ("jitted calls", True)
    (function,) = analysis["functions"].jitted.functions
    assert (function.name, function.compiling_calls) == ("train_step", 0), "it is compiled before the profile starts"


def test_a_script_of_jax_that_ends_too_early_is_told_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    message = without_trace(steps=(10, 19), after_s=10.0)._why_no_trace().message
    assert "s after JAX started its devices, but profiling starts after 10 s; pass --after" in message
    job = without_trace(after_s=1.0)
    job._started_s -= 5.0
    assert "the script ended while JAX started or compiled its functions" in job._why_no_trace().message


@pytest.mark.parametrize(
    ("recorded", "source"),
    [
        (None, "tfperf"),
        ('{"url": "file:///no/such/folder", "dir_info": {}}', "tfperf"),
        ('{"url": "FOLDER", "dir_info": {"editable": true}}', "'FOLDER'"),
        ('{"url": "https://host/tfperf.git", "vcs_info": {"vcs": "git"}}', "git+https://host/tfperf.git"),
        ('{"url": "https://host/tfperf.whl", "archive_info": {}}', "https://host/tfperf.whl"),
    ],
)
def test_where_tfperf_was_installed_from(
    recorded: str | None, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    installed = tmp_path / "tfperf-1.0.dist-info"
    installed.mkdir()
    if recorded is not None:
        (installed / "direct_url.json").write_text(recorded.replace("FOLDER", folder.as_uri()))
    monkeypatch.setattr(metadata, "distribution", lambda _: metadata.PathDistribution(installed))
    assert _source_of_tfperf() == source.replace("FOLDER", str(folder))


def test_an_exception_is_shown_as_python_shows_it(run: Runs) -> None:
    script = "def broken():\n    raise ValueError('no luck')\nbroken()\n"
    code, _, err = run(script)
    assert code == 1
    assert err.count("ValueError: no luck") == 1
    assert "tfperf/capture" not in err
    assert 'train.py", line 3, in <module>' in err


def test_a_module(run: Runs) -> None:
    (run.folder / "package").mkdir()
    (run.folder / "package" / "train.py").write_text("import sys; print(__name__, sys.argv[1:])")
    code, out, _ = run.command("-m", "package.train", "--steps", "x")
    assert (code, out) == (1, "__main__ ['--steps', 'x']\n")


@pytest.mark.parametrize(
    ("number", "script"), [(signal.SIGTERM, _LOOP.replace("SECONDS", "100")), (signal.SIGINT, _MARKS_OF_A_LOOP)]
)
def test_a_signal_ends_the_script_and_what_came_is_kept(run: Runs, number: int, script: str) -> None:
    """Ctrl-C is sent to all processes of the terminal, and is the script's."""
    process = run.start(script, options=("--after", "100ms", "--duration", "100s", *JSON))
    wait_for_the_loop(process)
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)
    assert run.report()["summary"].get("step_count", 0) > 0, err


def test_a_script_that_is_killed(run: Runs) -> None:
    code, _, err = run("import os; os.kill(os.getpid(), 9)")
    assert code == 128 + 9
    assert "was killed (exit code 137)" in err


def test_a_duration_without_a_start_is_wrong_usage(run_tfperf: Callable[..., Result]) -> None:
    done = run_tfperf("run", "--steps", "1..2", "--duration", "1s", "x.py")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--duration requires --after" in done.stderr


def test_a_signal_to_all_processes_ends_all_at_once(run: Runs) -> None:
    """As `timeout` and job schedulers send it: the script is gone before anybody can ask it for its trace."""
    process = run.start("import time; print('working', flush=True); time.sleep(60)")
    wait_for_the_loop(process)
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert time.monotonic() - begin < 25, "it waits 30 s for a script that does not answer"


def test_the_script_finds_the_modules_that_python_would_find(run: Runs) -> None:
    """Those beside it, and not those of the folder that tfperf is started in."""
    (run.folder / "scripts").mkdir()
    script = run.folder / "scripts" / "paths.py"
    script.write_text("import sys; print(sys.path)")
    alone = subprocess.run([sys.executable, script], cwd=run.folder, capture_output=True, text=True, check=True)
    assert ended(start_tfperf(run.folder, "run", script)).out == alone.stdout


def test_a_script_that_fails_has_no_advice_but_its_own(run: Runs) -> None:
    (run.folder / "tensorflow.py").touch()  # They fail no later with one that takes seconds to import.
    for script in ("import sys, tensorflow; sys.exit('usage: ...')", "import tensorflow; 1 / 0"):
        code, _, err = run(script)
        assert code == 1, err
        assert err.splitlines()[-1] == "tfperf: no profile was captured: the script failed before profiling started"


def test_a_script_that_ends_too_early_is_told_what_to_try_and_steps_are_not_asked_for_where_time_is(run: Runs) -> None:
    code, out, err = run("import tensorflow\nprint('trained')", options=("--after", "60s"))
    assert (code, out) == (1, "trained\n"), "nothing was captured"
    assert "but profiling starts after 60 s; pass --after" in err
    assert not (run.folder / "logs").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-o", "file"), "pass --force"),
        (("-o", "no/such/report.json"), "does not exist; create it first"),
        (("--logdir", "file/logs"), "is a file; pass a folder"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_script_runs(run: Runs, options: tuple[str, ...], words: str) -> None:
    (run.folder / "file").touch()
    code, out, err = run("print('ran')", options=options)
    assert (code, out) == (1, "")
    assert words in err


@pytest.mark.parametrize(("script", "captured", "script_code", "code"), [(_MARKS, 1, 0, 1), ("", 0, 5, 5)])
def test_a_report_that_cannot_be_written_in_the_end_goes_to_stdout(
    run: Runs, script: str, captured: int, script_code: int, code: int
) -> None:
    """The script makes a folder where the report is to be; it is no use to run it again."""
    script = f"{script}\nimport os, sys\nos.mkdir('report.json')\nsys.exit({script_code})"
    done, out, err = run(script, options=JSON)
    assert done == code
    assert json.loads(out)["summary"]["captured"] == captured
    assert "report.json is a folder; pass a file; printing the report here" in err


def test_steps_that_never_come_are_exit_code_1(run: Runs) -> None:
    code, out, err = run(_MARKS, options=("--steps", "500..510"))
    assert code == 1
    assert "Step time" not in out
    assert "no profile was captured: training ended after 30 batches, before batch 500; pass --steps" in err


def test_the_script_is_stopped_when_the_profile_is_written(run: Runs) -> None:
    code, out, err = run(f"{endless(_STEPS)}\nprint('not reached')", options=("--stop-after-profile", *JSON))
    assert (code, out) == (0, ""), err
    assert "KeyboardInterrupt" not in err
    steps = tfperf.load(run.folder / "logs", sections=["steps"])["steps"].steps
    assert_steps_from_10(steps.numbers.tolist())
    assert len(steps) in (10, 200) or steps.duration_ps.sum() >= 3.9e12, "it profiles for four seconds"


def test_a_script_that_is_stopped_may_save_its_work_and_says_how_it_ended(run: Runs) -> None:
    script = "import sys\ntry:\n    " + endless(_MARKS).strip().replace("\n", "\n    ")
    script += "\nexcept KeyboardInterrupt:\n    print('saved')\n    sys.exit(7)\n"
    code, out, err = run(script, options=("--stop-after-profile", "--steps", "10..19", *JSON))
    assert (code, out) == (7, "saved\n"), err


_DESTROYED = """
import ctypes
class Destroyed:
    def __del__(self):
        # With the GIL, as a destructor in C++ that waits for a thread that waits for the GIL; no signal ends it.
        lock = ctypes.create_string_buffer(64)
        print('hangs', flush=True)
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(lock)
"""
_HANGS = "{}\ntry:\n    {}\nexcept KeyboardInterrupt:\n    pass\n".format(
    _DESTROYED, endless(_MARKS).strip().replace("\n", "\n    ")
)


@pytest.mark.parametrize(
    ("script", "grace_s", "said"),
    [
        pytest.param(
            f"import signal\nsignal.signal(signal.SIGINT, lambda *_: print('no', flush=True))\n{endless(_MARKS)}",
            *(0.5, "no\n"),
            id="it ignores the signal",
        ),
        pytest.param(f"{_HANGS}gone = Destroyed()\ndel gone\n", 3600.0, "hangs\n", id="it hangs in a destructor"),
        pytest.param(
            f"{_HANGS}import sys\nsys.modules['kept'] = Destroyed()\nsys.exit(0)\n",
            *(3600.0, "hangs\n"),
            id="it hangs at its end",
        ),
    ],
)
def test_a_script_that_does_not_stop_is_ended(
    script: str, grace_s: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setattr(script_run, "GRACE_SECONDS", grace_s)
    for name, value in job_environment(PROFILER_ALONE, keras=False).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "train.py").write_text(script)
    plan = choose_plan(tmp_path / "logs", TracerOptions(), steps=(10, 19))
    code, captured = script_run.run_script([str(tmp_path / "train.py")], plan, stop_after_profile=True)
    assert (code, captured.reason, capfd.readouterr().out) == (0, "", said)
    assert captured.path is not None


def test_every_call_of_python_in_steps_of_its_own_is_recorded_on_demand(run: Runs) -> None:
    """The report is in the logdir, which is made."""
    code, out, err = run(_STEPS, options=("--python-trace", "--steps", "5..14", "-o", "logs/report.json"))
    assert (code, out) == (0, ""), err
    report = json.loads((run.folder / "logs" / "report.json").read_text())
    assert (report["summary"]["captured"], report["summary"]["step_source"]) == (1, "markers")
    rows = report["sections"]["steps"]["tables"]["steps"]["rows"]
    assert [row["step"] for row in rows] == [*range(5, 15)]
    times = tfperf.load(run.folder / "logs", sections=["python"])["python"]
    assert times.step_count == 10
    prepare = next(time for time in times.own if time.function == "train.py:8 prepare")
    assert prepare.step_calls == 10
    # It sleeps 10 ms each time, in which nothing but Python is recorded.
    sleep = next(time for time in times.functions if time.function == "time.sleep")
    assert prepare.step_total_ps >= sleep.others_ps >= 10 * 9_000_000_000
    assert {"tensorflow", "python"} <= {time.package for time in times.packages}
    functions = report["sections"]["python"]["tables"]["python_functions"]
    assert "train.py:8 prepare" in str(functions)
    # The same for tfprof: which lines of code the calls into TensorFlow come from.
    traced = trace_model(run.folder / "logs", "code")
    assert [*traced.model.steps] == [*range(5, 15)]
    names = show_tree(traced.model, "code", Options(max_depth=1000)).tree.names
    assert "train.py:8:prepare" in names
    assert not any("<module>" in name for name in names), "what is open all the time is not recorded: the pages say so"
    assert {"Fill", "tf.function"} <= {*traced.model.ops}
