"""The recipe of docs/ci.md, with a real job: profile it, keep a baseline, profile it again, compare."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from job_environment import job_environment

import tfperf

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only")

Run = Callable[..., Result]

_SCRIPT = """
import itertools, time
import tensorflow as tf
import tfperf

compute = tf.function(lambda x: tf.reduce_sum(x @ x))
for number in itertools.count():
    with tfperf.step(number):
        compute(tf.ones((50, 50)))
        time.sleep(0.01 + 0.005 * (number % 3))
"""


def profile(folder: Path, logdir: str) -> None:
    """Run the job until its profile is there."""
    (folder / "train.py").write_text(_SCRIPT)
    command = [sys.executable, "-m", "tfperf", "run", "--stop-after-profile", "--logdir", logdir, "train.py"]
    environment = job_environment(keras=False)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stderr


def test_a_job_is_compared_with_itself_and_with_another_capture(tmp_path: Path, run_tfperf: Run) -> None:
    profile(tmp_path, "before")
    profile(tmp_path, "now")
    baseline, before, now = tmp_path / "baseline.json", tmp_path / "before", tmp_path / "now"
    assert run_tfperf("analyze", before, "--save-baseline", baseline, "-s", "overview").exit_code == 0
    itself = run_tfperf("check", before, "--baseline", baseline, "--max-regression", "5%")
    assert itself.exit_code == 0, itself.stdout
    # The machine may be busy with other things now and not before, or the other way round.
    other = run_tfperf("check", now, "--baseline", baseline, "--max-regression", "300%")
    assert other.exit_code == 0, other.stdout
    for logdir in (before, now):
        numbers: Any = tfperf.load(logdir, sections=["steps"])["steps"].steps.numbers.tolist()
        assert numbers == list(range(10, 10 + len(numbers)))
        assert len(numbers) == 200 or spans_four_seconds(logdir, len(numbers))


def spans_four_seconds(logdir: Path, count: int) -> bool:
    """Tell whether the profile took as long as `tfperf run` profiles by itself, or the fewest steps."""
    duration_ps = tfperf.load(logdir, sections=["steps"])["steps"].steps.duration_ps
    return count == 10 or bool(duration_ps.sum() >= 3.9e12)
