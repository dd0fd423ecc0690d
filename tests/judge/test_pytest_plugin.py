"""The pytest plugin, in runs of pytest of their own: tests of a user, who has tfperf installed and TensorFlow or not.

TensorFlow takes seconds to start, so one run has many such tests, and the tests here read what came of each.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders import logdir_of
from job_environment import job_environment, needs_tensorflow, run_tensorflow
from judge.example_jobs import half_fetched_job
from places import ROOT, SAMPLES

from tfperf.judge.pytest_plugin import FigureError, Profiled, _Reading

_WORK = """
import time
from pathlib import Path

import pytest
import tensorflow as tf
import tfperf
from tfperf.base.errors import TfperfError

WIDE = tf.random.normal((300, 300))
compute = tf.function(lambda x: tf.reduce_sum(x @ WIDE))
compute(WIDE)

def slowly(number):
    tf.py_function(lambda: time.sleep(0.02), [], [])
    return number

def train(steps=20, slow=False):
    data = tf.data.Dataset.range(steps)
    data = iter(data.map(slowly) if slow else data.prefetch(4))
    for number in range(steps):
        with tfperf.step(number):
            next(data)
            compute(WIDE).numpy()
"""
_HOLD = """
def test_figures(tfperf_profile, tmp_path):
    with tfperf_profile() as p:
        train()
    overview = p.analysis["overview"]
    assert overview.step_count == 20
    assert p.input_bound == pytest.approx(overview.input_percent / 100)
    assert p.step_time_ms == pytest.approx(overview.step_time_ms.average)
    assert p.step_time("median") == pytest.approx(overview.step_time_ms.median)
    assert p.step_time("p95") >= p.step_time("median") > 0
    assert 0 <= p.all_others < 1
    assert p.retraces == 0
    try:
        assert p.memory_bytes > 0
    except TfperfError as error:  # TensorFlow does not record the memory of a CPU every time.
        assert "no allocator events" in str(error)
    assert "Overview" in p.report() and "\\x1b" not in p.report()
    assert "Input pipeline" not in p.report()
    assert p.path.is_relative_to(tmp_path)

def test_causes(tfperf_profile):
    with tfperf_profile() as p:
        train(slow=True)
    assert p.input_cost > 0.10
    assert p.cause_cost("input_wait") > 0.10
    assert p.cause_cost("compilation") == 0
    outcome = p.check(fail_on=["compilation"], max_cost="compilation=1%", limits=["step_time < 5s"], stat="median")
    assert [one.status for one in outcome.judged] == ["pass"] * 3
    with pytest.raises(AssertionError, match="fail-on input_wait"):
        p.check(fail_on="input_wait")
    with pytest.raises(TfperfError, match="unknown cause 'compile': did you mean compilation"):
        p.cause_cost("compile")
    with pytest.raises(TfperfError, match="Cost of launch_bound is unknown: the profile has no device events"):
        p.cause_cost("launch_bound")

def test_steps_that_are_left_out(tfperf_profile, tmp_path):
    with tfperf_profile(tmp_path / "elsewhere", skip_first=5, min_steps=15) as p:
        for number in range(5):
            with tfperf.step(number):
                time.sleep(0.2)
        train()
    steps = p.analysis["steps"].table[5:]
    assert len(steps) == 20
    assert p.step_time_ms == pytest.approx(steps[steps.averaged].step_time_ms.mean())
    assert p.path.is_relative_to(tmp_path / "elsewhere")
    assert "Steps averaged" in p.report()

def test_a_baseline(tfperf_profile, tmp_path):
    from tfperf.judge.run_summary import baseline_text
    from tfperf.judge.summarize import summarize_run
    with tfperf_profile() as p:
        train()
    (tmp_path / "baseline.json").write_text(baseline_text(summarize_run(p.analysis, "before")))
    p.check(baseline=tmp_path / "baseline.json", max_regression="500%")

def test_errors_of_figures(tfperf_profile):
    p = tfperf_profile()
    with pytest.raises(TfperfError, match="after the block"):
        p.input_bound
    with p:
        train(4)
        with pytest.raises(TfperfError, match="the block has not ended"):
            p.step_time_ms
    with pytest.raises(TfperfError, match="already complete"):
        with p:
            train()
    with pytest.raises(TfperfError, match="use mean, median or p95"):
        p.step_time("fastest")
    with pytest.raises(TfperfError, match="no limits given"):
        p.check()
    with pytest.raises(TfperfError, match="did you mean max-input-bound"):
        p.check(max_input_bond="10%")
    with pytest.raises(TfperfError, match="10% or 0.1%"):
        p.check(max_input_bound=0.1)

def test_a_block_that_ends_the_profiling(tfperf_profile):
    with tfperf_profile() as p:
        train()
        tfperf.stop()
    with pytest.raises(TfperfError, match="the block itself stopped profiling"):
        p.retraces

def test_that_runs_no_profile(tfperf_profile):
    assert tfperf_profile
"""
_FAIL = """
def test_slow_input(tfperf_profile):
    with tfperf_profile() as p:
        train(slow=True)
    assert p.input_bound < 0.10

def test_breached_limits(tfperf_profile):
    with tfperf_profile() as p:
        train(slow=True)
    p.check(max_input_bound="10%", max_step_time="10s")

def test_limits_that_cannot_be_judged(tfperf_profile):
    with tfperf_profile() as p:
        train()
    p.check(max_step_time="10s", min_device_busy="0%")

def test_unknown_figure(tfperf_profile):
    with tfperf_profile(skip_first=18) as p:
        train()
    assert p.input_bound < 2

def test_nothing_profiled(tfperf_profile):
    with pytest.warns(RuntimeWarning, match="no TensorFlow activity"):
        with tfperf_profile() as p:
            pass
    assert p.input_bound < 2

def test_error_in_the_block(tfperf_profile):
    with tfperf_profile() as p:
        train()
        raise ZeroDivisionError("of the block")

def test_error_in_a_block_without_work(tfperf_profile):
    with tfperf_profile() as p:
        raise ZeroDivisionError("of the block")

def test_two_profiles(tfperf_profile):
    with tfperf_profile() as fast:
        train()
    with tfperf_profile() as slow:
        train(slow=True)
    assert slow.input_bound <= fast.input_bound

@pytest.fixture
def trained(tfperf_profile):
    with tfperf_profile() as p:
        train(slow=True)
    return p

def test_profile_of_a_fixture(trained):
    assert trained.input_bound < 0.10
"""


@dataclass(frozen=True)
class Session:
    """What a run of pytest came to: its exit code, its output, and the text of each failure."""

    code: int
    output: str

    @property
    def failures(self) -> dict[str, str]:
        parts = re.split(r"^_{3,}(?: ERROR at setup of)? (test_\w+) _{3,}$", self.output, flags=re.MULTILINE)
        last = parts[-1].split("short test summary info")[0]
        return dict(zip(parts[1::2], [*parts[2:-1:2], last], strict=True))

    def outcome(self, test: str) -> str:
        (found,) = re.findall(rf"^test_\w+\.py::{test} (\w+)", self.output, re.MULTILINE)
        return str(found)


def pytest_options(folder: Path, source: str) -> list[str]:
    """Make a folder of tests with warnings as errors; return the options of pytest for it."""
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (folder / "test_inner.py").write_text(source)
    return ["-v", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}"]


def run_pytest(folder: Path, source: str, *options: str) -> Session:
    """Run tests in a folder and a process of their own."""
    environment = job_environment(keras=False) | {"COLUMNS": "80"}
    environment = {key: value for key, value in environment.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", *pytest_options(folder, source), *options]
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=180,
    )  # fmt: skip
    return Session(done.returncode, done.stdout)


_PYTEST = """
import os, sys
import pytest

os.environ["COLUMNS"] = "80"
for name in [name for name in os.environ if name.startswith("PYTEST_")]:
    del os.environ[name]
print("exit code", int(pytest.main(sys.argv[1:])))
"""


def page_examples() -> str:
    """Return the tests of the page; a machine that runs tests is no place for tight limits."""
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```py\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(examples) == 2
    text = "\n".join(examples)
    return text.replace("10%", "95%").replace("< 0.10", "< 0.95").replace("50ms", "5s").replace("< 50\n", "< 5000\n")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Tests with TensorFlow, whose failures pytest shows on stdout."""
    folder = tmp_path_factory.mktemp("inner")
    options = pytest_options(folder, _WORK + _HOLD + _FAIL + page_examples())
    output, _, code = run_tensorflow("-c", _PYTEST, *options, cwd=folder).stdout.rpartition("exit code ")
    return Session(int(code), output)


def one_line(text: str) -> str:
    """Undo the breaking of lines, and pytest's mark before each."""
    return " ".join(re.sub(r"^E  ", "", text, flags=re.MULTILINE).split())


@needs_tensorflow
@pytest.mark.parametrize("test", re.findall(r"^def (test_\w+)", _HOLD + page_examples(), re.MULTILINE))
def test_inner_test_passes(test: str, session: Session) -> None:
    assert session.outcome(test) == "PASSED", session.failures.get(test)


@needs_tensorflow
def test_failure_text_has_the_report_and_the_place_of_the_profile(session: Session) -> None:
    text = session.failures["test_slow_input"]
    assert session.outcome("test_slow_input") == "FAILED"
    assert re.search(r"^E +assert 0\.[0-9]+ < 0\.1", text, re.MULTILINE)
    assert "p = " not in text.split("tfperf profile")[0]
    (place,) = re.findall(r"^Profile kept: (.*)$", text, re.MULTILINE)
    assert Path(place).is_file()
    report = text.split("tfperf profile ---")[1]
    for text in ("HIGHLY input-bound", "Diagnosis", "py_function", "Step time by category"):
        assert text in report
    assert "\x1b" not in report
    # An address is not broken: it is copied.
    assert max(len(line) for line in report.splitlines()[2:] if "https://" not in line) <= 80


@needs_tensorflow
def test_traceback_ends_in_the_users_test(session: Session) -> None:
    for test in re.findall(r"^def (test_\w+)", _FAIL, re.MULTILINE):
        assert "pytest_plugin.py" not in session.failures[test], test


@needs_tensorflow
def test_check_fails_with_the_table_of_limits(session: Session) -> None:
    for test, limit in (
        ("test_breached_limits", r"FAIL +max-input-bound 10% +[0-9.]+% +\S+"),
        ("test_limits_that_cannot_be_judged", "UNKNOWN +min-device-busy 0% +-"),
    ):
        text = session.failures[test].split("tfperf profile ---")[0]
        assert re.search(rf"^E +{limit}$", text, re.MULTILINE)
        assert re.search(r"^E +PASS +max-step-time 10s +[0-9.]+ ms +\S+$", text, re.MULTILINE)
    assert "Map" in one_line(session.failures["test_breached_limits"].split("tfperf profile ---")[0])


@needs_tensorflow
def test_a_doubtful_figure_is_known_only_where_doubt_is_allowed(tmp_path: Path) -> None:
    trace = logdir_of(tmp_path, vm=half_fetched_job())

    def profiled(*, allow_doubt: bool) -> Profiled:
        made = Profiled(tmp_path, {}, _Reading(0, 3, None, allow_doubt))
        made.path = trace
        return made

    with pytest.raises(FigureError, match="Input-bound is unknown: the profile may be incomplete or wrong"):
        _ = profiled(allow_doubt=False).input_bound
    assert profiled(allow_doubt=False).step_time_ms == pytest.approx(0.1)
    with pytest.raises(AssertionError, match="UNKNOWN: "):
        profiled(allow_doubt=False).check(max_input_bound="50%")
    assert profiled(allow_doubt=True).input_bound == pytest.approx(0.15)
    assert profiled(allow_doubt=True).check(max_input_bound="50%").despite_doubt


@needs_tensorflow
def test_unknown_figure_says_why_in_one_line(session: Session) -> None:
    (line,) = re.findall(r"^E +\S*FigureError: (.*)$", session.failures["test_unknown_figure"], re.MULTILINE)
    assert re.match("Input-bound is unknown: .*2.*3", line)
    (line,) = re.findall(r"^E +\S*FigureError: (.*)$", session.failures["test_nothing_profiled"], re.MULTILINE)
    assert line.startswith("no profile was recorded: no TensorFlow activity was recorded")
    assert "No report: no profile was recorded" in session.failures["test_nothing_profiled"]


@needs_tensorflow
def test_error_of_the_block_is_what_is_seen(session: Session) -> None:
    text = session.failures["test_error_in_the_block"]
    assert re.findall(r"^E +(.*)$", text, re.MULTILINE) == ["ZeroDivisionError: of the block"]
    assert re.search(r"^Steps averaged +\d+", text, re.MULTILINE)
    text = session.failures["test_error_in_a_block_without_work"]
    assert re.findall(r"^E +(.*)$", text, re.MULTILINE) == ["ZeroDivisionError: of the block"]
    assert "No report: no profile was recorded: no TensorFlow activity was recorded" in text


@needs_tensorflow
def test_each_profile_of_a_test_is_reported(session: Session) -> None:
    first, second = session.failures["test_two_profiles"].split("tfperf profile 2 of 2")
    assert "tfperf profile 1 of 2" in first
    # Which share of a fast step is input depends on the machine; which job has a py_function does not.
    assert "py_function" not in first
    assert "py_function" in second
    assert "HIGHLY input-bound" in session.failures["test_profile_of_a_fixture"]


@pytest.fixture(scope="module")
def of_a_worker(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Tests that xdist runs, of which one has a profile that is there already, and none imports TensorFlow."""
    (trace,) = (SAMPLES / "input_bound").rglob("*.xplane.pb")
    source = f"""
def test_slow_input(tfperf_profile):
    p = tfperf_profile()
    p.path = {str(trace)!r}
    assert p.input_bound < 0.10

def test_without_tensorflow(tfperf_profile):
    with tfperf_profile():
        pass

def test_other(tfperf_profile):
    pass
"""
    return run_pytest(tmp_path_factory.mktemp("worker"), source, "-n", "1")


def test_reports_come_from_a_worker_of_xdist_too(of_a_worker: Session) -> None:
    assert of_a_worker.code == 1
    assert set(of_a_worker.failures) == {"test_slow_input", "test_without_tensorflow"}
    assert "HIGHLY input-bound" in of_a_worker.failures["test_slow_input"]
    assert "2 failed, 1 passed" in of_a_worker.output


def test_without_tensorflow_the_test_fails_and_says_so(of_a_worker: Session) -> None:
    text = of_a_worker.failures["test_without_tensorflow"]
    assert re.search(r"^E .*CaptureError: this process has imported neither TensorFlow nor JAX", text, re.MULTILINE)


def test_plugin_can_be_switched_off(tmp_path: Path) -> None:
    tests = "def test_it(tfperf_profile):\n    pass\n\ndef test_other():\n    pass\n"
    found = run_pytest(tmp_path, tests, "-p", "no:tfperf")
    assert "fixture 'tfperf_profile' not found" in found.output
    assert found.outcome("test_other") == "PASSED"


def test_plugin_costs_other_projects_nothing(tmp_path: Path) -> None:
    tests = """
import sys

def test_it():
    loaded = {"numpy", "pandas", "pyarrow", "click", "tensorflow", "grpc", "tfperf.analysis.load", "tfperf.judge.check"}
    assert "tfperf.judge.pytest_plugin" in sys.modules
    assert not loaded & set(sys.modules)

def test_failing():
    assert False
"""
    found = run_pytest(tmp_path, tests)
    assert (found.outcome("test_it"), found.outcome("test_failing")) == ("PASSED", "FAILED")
    assert "tfperf profile" not in found.output
