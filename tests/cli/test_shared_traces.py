"""What the command line says of other people's traces where it was wrong once; they are no part of the project.

tests/test_shared_traces.py has the numbers of these traces.
"""

from __future__ import annotations

import pytest
from places import TRACES
from printed import Run

BATCHES_128, BATCHES_512 = "keras_rtx5000/gpu_bs128-20210202-131252", "keras_rtx5000/gpu_bs512-20210202-131913"

pytestmark = pytest.mark.skipif(not TRACES.exists(), reason="test input that is no part of the project is not here")


def words(run_tfperf: Run, trace: str, *arguments: str) -> str:
    return " ".join(run_tfperf("analyze", TRACES / trace, *arguments).stdout.split())


def test_cores_are_told_once(run_tfperf: Run) -> None:
    slow_map = words(run_tfperf, "cpu_keras3/slow_map", "-s", "environment", "-s", "tfdata", "-s", "gaps")
    assert "2 cores" in slow_map
    assert "CPU cores" not in slow_map, "the trace does tell them"


def test_what_to_change_is_said_once_and_for_jobs_that_suffer_from_it(run_tfperf: Run) -> None:
    said = words(run_tfperf, BATCHES_128, "--full")
    assert (said.count("jit_compile"), said.count("mixed_float16")) == (1, 1)
    assert "TF_GPU_THREAD_MODE" not in said


def test_jax_gets_words_of_its_own(run_tfperf: Run) -> None:
    said = words(run_tfperf, "jax_mi300x/jax_conv_minimal_08", "--full")
    assert "jit(" in said
    assert ".numpy()" not in said
    assert "tf.function(jit_compile" not in said


@pytest.mark.parametrize(
    ("trace", "shown", "hidden"),
    [(BATCHES_512, "launch", "Compilation"), ("steps_tf221/numpybatch", "Host compute", "Input")],
)
def test_steps_have_columns_of_the_categories_that_count(run_tfperf: Run, trace: str, shown: str, hidden: str) -> None:
    lines = run_tfperf("analyze", TRACES / trace, "-s", "steps").stdout.splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("----"))
    heading = "\n".join(lines[rule - 2 : rule])
    assert (shown in heading, hidden in heading) == (True, False)


def test_a_check_says_which_steps_it_judged(run_tfperf: Run) -> None:
    path = TRACES / "steps_tf221" / "val"
    assert "training step" in run_tfperf("check", path, "--max-input-bound", "99%").stdout
    other = run_tfperf("check", path, "--max-input-bound", "50%", "--by-kind", "eval")
    assert (other.exit_code, "evaluation step" in other.stdout) == (3, True)
