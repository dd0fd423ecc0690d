"""What the command line says of other people's traces where it was wrong once; they are no part of the project.

Only the command line and its JSON document are used, so that older commits can be held against the same sentences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from places import SHARED

TRACES = SHARED / "traces"
WORKER, SLOW_MAP, T4 = "gpu_8xV100_worker", "cpu_keras3/slow_map", "keras_t4/2022_11_04_21_26_12"
BATCHES_128, BATCHES_512 = "keras_rtx5000/gpu_bs128-20210202-131252", "keras_rtx5000/gpu_bs512-20210202-131913"
JAX = "jax_mi300x/jax_conv_minimal_08"
Run = Callable[..., Result]

pytestmark = pytest.mark.skipif(not TRACES.exists(), reason="test input that is no part of the project is not here")


class Report:
    """The JSON document of a trace."""

    def __init__(self, run_tfperf: Run, trace: str, *sections: str) -> None:
        chosen = [word for section in sections for word in ("-s", section)]
        result = run_tfperf("analyze", TRACES / trace, "--format", "json", *chosen)
        assert result.exit_code == 0, result.stderr
        self.sections: dict[str, Any] = json.loads(result.stdout)["sections"]

    def rows(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]]
        (found,) = (
            section["tables"][table]["rows"] for section in self.sections.values() if table in section["tables"]
        )
        return found

    def fact(self, section: str, key: str) -> dict[str, Any]:
        fact: dict[str, Any] = self.sections[section]["facts"][key]
        return fact

    @property
    def texts(self) -> str:
        """All sentences: findings, notes of facts, and notes."""
        parts = [
            [f"{each['text']} {each['action']}" for each in section["findings"]]
            + [f"{fact['title']} {fact['value']} {fact['note']}" for fact in section["facts"].values()]
            + section["notes"]
            for section in self.sections.values()
        ]
        return "\n".join(text for part in parts for text in part)

    def change(self, code: str) -> str:
        """What the report says with the finding of this code."""
        return " ".join(
            f"{each['text']} {each['action']}"
            for section in self.sections.values()
            for each in section["findings"]
            if each["code"] == code
        )


def text(result: Result) -> str:
    return " ".join(result.stdout.split())


def test_a_stage_is_busy_only_while_it_works(run_tfperf: Run) -> None:
    stages = {row["name"]: row["busy_percent"] for row in Report(run_tfperf, SLOW_MAP, "tfdata").rows("tfdata_stages")}
    assert stages["MapAndBatch"] < 41.0, "executors and threads work for 54.6 of 141.9 ms"
    waiting = {row["name"]: row["busy_percent"] for row in Report(run_tfperf, "steps_tf221/loop").rows("tfdata_stages")}
    assert waiting["Prefetch"] < 1.0, "it waits for Map"
    of_capture = {row["name"]: row["busy_percent"] for row in Report(run_tfperf, T4, "tfdata").rows("tfdata_stages")}
    assert of_capture["ParallelMapV2"] < 5.0, "0.45 ms of a capture of 10.8"


def test_the_generator_is_what_a_worker_waits_for(run_tfperf: Run) -> None:
    report = Report(run_tfperf, WORKER, "tfdata", "input")
    assert re.search(r"9\d\.\d% of the waiting is for Generator", report.texts)
    assert "end with .prefetch" not in report.texts, "the pipeline has one"
    assert "Preprocessing: 48.8%" not in report.texts, "a call that waits for a host does not preprocess"


def test_idle_time_is_that_of_the_device_in_the_steps(run_tfperf: Run) -> None:
    report = Report(run_tfperf, WORKER, "idle", "kernels")
    assert "GPU:6, the only one of 8 devices" in report.fact("idle", "idle_percent")["note"]
    assert report.fact("idle", "longest_gap")["value"] < 3.0, "a gap of 21.3 ms is of a device without work in the step"
    walls = {float(wall.replace(",", "")) for wall in re.findall(r"= ([\d,.]+) ms wall", report.texts)}
    assert walls == {2647.0}, "from the first event of the file to the last"


def test_an_op_of_two_kernels_runs_once(run_tfperf: Run) -> None:
    ops = {row["op_name"]: row for row in Report(run_tfperf, BATCHES_512, "ops").rows("device_ops")}
    filters = ops["gradient_tape/sequential/conv2d_1/Conv2D/Conv2DBackpropFilter"]
    assert filters["occurrences"] == 21
    assert filters["average_ms"] == pytest.approx(0.710, abs=0.001)


def test_kernels_of_halfs_compute_in_16_bit(run_tfperf: Run) -> None:
    assert Report(run_tfperf, WORKER, "overview").fact("overview", "compute_16_bit")["value"] > 99.0


def test_functions_are_input_of_the_host(run_tfperf: Run) -> None:
    report = Report(run_tfperf, SLOW_MAP, "input")
    assert report.fact("input", "largest_part")["value"] == "Preprocessing"
    assert max(row["self_ms"] for row in report.rows("input_ops")) == pytest.approx(54.8, rel=0.01)


def test_a_range_belongs_to_its_change(run_tfperf: Run) -> None:
    python = Report(run_tfperf, "steps_tf221/loop", "tfdata").change("python_function")
    assert "TensorFlow ops" in python
    assert "Estimated" not in python, "the range would be that of parallel calls"
    t4 = Report(run_tfperf, T4, "tfdata")
    assert "without steps nobody" not in t4.texts, "there is a step"
    assert not t4.change("heavy_map"), "nobody waits for it"


def test_one_step_has_no_deviation(run_tfperf: Run) -> None:
    step_time = Report(run_tfperf, WORKER, "overview").fact("overview", "average_step_time")
    assert "±" not in step_time["note"], "one step"
    categories = Report(run_tfperf, WORKER, "overview").rows("categories")
    assert {row["standard_deviation_ms"] for row in categories} == {None}


def test_cores_are_told_once_and_so_is_what_to_change(run_tfperf: Run) -> None:
    slow_map = text(run_tfperf("analyze", TRACES / SLOW_MAP, "-s", "environment", "-s", "tfdata"))
    assert "2 cores" in slow_map
    assert "Host CPU cores" not in slow_map, "the trace does tell them"
    words = Report(run_tfperf, BATCHES_128).texts.lower()
    assert words.count("jit_compile") <= 1, "launching is advised once"
    assert words.count("mixed_float16") <= 1, "and so is precision"


def test_jax_gets_words_of_its_own(run_tfperf: Run) -> None:
    words = text(run_tfperf("analyze", TRACES / JAX, *(("--full",) if has_full(run_tfperf) else ())))
    assert ".numpy()" not in words
    assert "tf.function(jit_compile" not in words
    assert "No advice without step times" not in words or "What to do next" not in words


def has_full(run_tfperf: Run) -> bool:
    return "--full" in run_tfperf("analyze", "--help").stdout


def test_a_file_of_tfprof_is_refused(run_tfperf: Run) -> None:
    profile = SHARED / "tfprof" / "mnist" / "profile.pb"
    if not profile.exists():
        pytest.skip(f"{profile} is not there")
    refused = run_tfperf("analyze", profile)
    assert refused.exit_code == 1
    assert "tfprof" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def heading_of_steps(run_tfperf: Run, path: Path) -> str:
    """The heading of the steps table: the lines above its rule."""
    lines = run_tfperf("analyze", path, "-s", "steps").stdout.splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("----"))
    return "\n".join(lines[rule - 2 : rule])


def test_every_category_that_counts_has_a_column(run_tfperf: Run, samples: Path) -> None:
    assert "Compilation" in heading_of_steps(run_tfperf, samples / "retracing")
    assert "launch" in heading_of_steps(run_tfperf, TRACES / BATCHES_512)


def test_input_that_is_unknown_has_no_column(run_tfperf: Run) -> None:
    heading = heading_of_steps(run_tfperf, TRACES / "steps_tf221" / "numpybatch")
    assert "Host compute" in heading
    assert "Input" not in heading


def test_thread_mode_is_for_jobs_that_suffer_from_launching(run_tfperf: Run) -> None:
    more = ("--full",) if has_full(run_tfperf) else ()
    assert "TF_GPU_THREAD_MODE" not in text(run_tfperf("analyze", TRACES / BATCHES_128, *more))


def test_a_check_says_which_steps_it_judged(run_tfperf: Run) -> None:
    path = TRACES / "steps_tf221" / "val"
    train = run_tfperf("check", path, "--max-input-bound", "99%")
    assert re.search(r"training step", train.stdout)
    other = run_tfperf("check", path, "--max-input-bound", "50%", "--by-kind", "eval")
    assert other.exit_code == 3
    assert "evaluation step" in other.stdout
