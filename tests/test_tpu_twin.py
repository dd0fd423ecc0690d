"""What tfperf says of a twin of a real TPU profile: three calls of a Pallas matmul, each waited for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import logdir_of
from click.testing import CliRunner
from tpu_twin import FLOPS, HOSTNAME, PROGRAM_ID, RUNS_US, STATED_FLOPS, STEPS_US, tpu_twin

from tfperf.cli import main


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return logdir_of(tmp_path_factory.mktemp("twin"), tpu=tpu_twin())


@pytest.fixture(scope="module")
def document(twin: Path) -> Any:
    return json.loads(run(twin, "analyze", "--format", "json")[0])


def run(twin: Path, *words: str) -> tuple[str, int]:
    done = CliRunner().invoke(main, [*words, str(twin)])
    return done.stdout, done.exit_code


def text(twin: Path, *options: str) -> str:
    """Return a report on one line, so that no phrase is broken."""
    return " ".join(run(twin, "analyze", "--color", "never", *options)[0].split())


def rows(document: Any, section: str, table: str) -> list[Any]:
    found: list[Any] = document["sections"][section]["tables"][table]["rows"]
    return found


def test_a_step_goes_from_call_to_call_and_the_last_one_until_the_wait_ends(document: Any) -> None:
    """N18."""
    steps = rows(document, "steps", "steps")
    assert [row["step_time_ms"] for row in steps] == pytest.approx([each / 1e3 for each in STEPS_US], abs=1e-3)


def test_the_device_computes_for_its_runs(document: Any) -> None:
    steps = rows(document, "steps", "steps")
    assert [row["device_compute_ms"] for row in steps] == pytest.approx([each / 1e3 for each in RUNS_US], abs=1e-4)


def test_the_first_screen_says_who_waits(twin: Path, document: Any) -> None:
    screen = text(twin)
    for words in (
        "Waiting for each result before the next call takes 66.0% of the step",
        "block_until_ready after the call in pallas_matmul.py:66",
        "the TPU is idle for 0.147 ms of 0.223 ms",
        "matmul_optimized.1 waits 76.3% of its time",
        "12.4% of the peak and at least 27.0% of the bandwidth",
        "step 0 takes 0.501 ms",
        "none in the steps",
    ):
        assert words in screen, words
    for words in ("POSSIBLY", "may be incomplete", "Nothing worth fixing"):
        assert words not in screen, words
    codes = [cause["code"] for cause in document["diagnosis"]["causes"]]
    assert codes == ["waiting_for_results", "kernel_waits", "warm_up"]
    assert "The clocks of TPU and host are 0.396 to 0.491 ms apart" in text(twin, "-s", "environment")


def test_input_is_none(document: Any) -> None:
    """N3."""
    assert document["summary"]["input_class"] in {"none", "unknown"}


def test_flops_are_those_of_the_shapes_not_of_one_pass(twin: Path, document: Any) -> None:
    """N6."""
    (op,) = rows(document, "roofline", "roofline_ops")
    mean_us = sum(RUNS_US) / 3
    assert op["tflops_per_second"] == pytest.approx(FLOPS / mean_us / 1e6, rel=5e-3)
    assert FLOPS > 7 * STATED_FLOPS
    assert "No work is known" not in text(twin, "-s", "roofline")


def test_the_program_is_known(document: Any) -> None:
    """N6, N10."""
    (program,) = rows(document, "xla", "hlo_modules")
    assert (program["module"], program["program_id"], program["runs"]) == ("jit_matmul_optimized", PROGRAM_ID, 3)


def test_the_device_is_idle_from_first_to_last_op_not_while_the_profiler_works(document: Any) -> None:
    """N15: 62.6 % of 0.607 ms."""
    (device,) = rows(document, "kernels", "device_time")
    assert device["wall_ms"] == pytest.approx(0.607, abs=1e-3)
    assert device["idle_ms"] / device["wall_ms"] == pytest.approx(0.626, abs=1e-3)


def test_versions_and_host_are_those_of_the_file(twin: Path, document: Any) -> None:
    """N16."""
    report = text(twin, "-s", "environment")
    for words in (HOSTNAME, "0.10.0"):
        assert words in report, words


def test_the_function_has_the_work_of_its_calls(document: Any) -> None:
    """N17."""
    (function,) = rows(document, "functions", "jitted_functions")
    assert function["calls"] == 3
    assert function["work_ms"] == pytest.approx(sum(RUNS_US) / 1e3, abs=1e-3)
    assert function["computes"] != "neither"


def test_counters_of_the_schedule_are_no_time(twin: Path, tmp_path: Path) -> None:
    """N11: two of them last 81.9 ms."""
    CliRunner().invoke(main, ["timeline", str(twin), "-o", str(tmp_path / "trace.json")])
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert [each for each in events if each["ph"] == "X" and each.get("name") in {"MXU", "XLU"}] == []
    arrows = [each for each in events if each["ph"] == "f"]
    names = {each["pid"]: each["args"]["name"] for each in events if each.get("name") == "process_name"}
    assert sum("TPU" in names[each["pid"]] for each in arrows) >= 3


def test_the_profiler_itself_is_no_program(twin: Path) -> None:
    """`stop_trace` takes 600 of 682 ms."""
    for words in ("start_trace", "stop_trace"):
        assert words not in text(twin)
