"""What tfperf says of TPU profiles: of made ones of our own, and of the one of the references."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from builders import logdir_of
from places import SHARED
from synthetic_tpu import CATEGORIES, F_ID, JUMP, Offload, offload_tpu, synthetic_tpu

import tfperf
from tfperf.models.linter.engine import lint_path
from tfperf.report.render import RenderOptions, render
from tfperf.sections.diagnosis.catalogue import ADVICE

REFERENCE = SHARED / "traces" / "xla_reference" / "tpu_synthetic" / "tpu.xplane.pb"
GPU_WORDS = re.compile(r"(?i)\bGPUs?\b|kernel|stream|TF32|cuDNN|CUDA|tensor core|mixed_float16|A100")
MS = 1e-3
"""Of the times in the made profile, which are microseconds."""


def report_of(path: Path) -> Any:
    return json.loads(render(tfperf.load(path).report(), "json", RenderOptions()))


def made(tmp_path: Path, **parts: bool) -> Any:
    return report_of(logdir_of(tmp_path, tpu=synthetic_tpu(**parts)))


def step_of(report: Any) -> dict[str, float | None]:
    """Category -> time in the average step in ms; None: unknown."""
    rows = report["sections"]["overview"]["tables"]["categories"]["rows"]
    return {row["category"]: row["average_ms"] for row in rows}


def actions_of(report: Any) -> str:
    causes = report["diagnosis"]["causes"]
    return "\n".join(f"{action['text']} {action['assumption']}" for cause in causes for action in cause["actions"])


def shares_of(report: Any) -> tuple[float, float]:
    """Smallest and largest share of input in a step of a core."""
    facts = report["sections"]["input"]["facts"]
    return facts["lowest_input_share"]["value"], facts["highest_input_share"]["value"]


def test_the_average_step_is_that_of_all_cores(tmp_path: Path) -> None:
    report = made(tmp_path)
    # Core 1 has nothing to do for 10 us of each step, which lasts as long as that of core 0.
    assert report["summary"]["step_time_ms"]["average"] == pytest.approx(100 * MS)
    assert report["sections"]["overview"]["facts"]["step_source"]["value"] == "device steps"
    assert {key: value for key, value in step_of(report).items() if value is not None} == pytest.approx(
        {
            "Output": 5 * MS,
            "Input": 15 * MS,
            "Device collectives": 10 * MS,
            "Device to device": 0,
            "Device compute": 60 * MS,
            "All others": 10 * MS,
        }
    )
    assert [key for key, value in step_of(report).items() if value is None] == [
        "Compilation",
        "Kernel launch",
        "Host compute",
    ]
    assert report["diagnosis"]["causes"][0]["code"] == "input_wait"
    assert report["diagnosis"]["causes"][0]["title"] == "Waiting for input"


def test_what_computes_most_are_ops_that_compute(tmp_path: Path) -> None:
    """Not the infeed, which takes 15 us on average, nor the all-reduce: 10."""
    found = {each["name"]: each["percent"] for each in made(tmp_path)["diagnosis"]["computed"]}
    assert found == {"fusion.3": pytest.approx(30), "convolution.4": pytest.approx(20), "while.2": pytest.approx(10)}


def test_shares_of_input_are_those_of_single_cores(tmp_path: Path) -> None:
    report = made(tmp_path)
    assert shares_of(report) == pytest.approx((10.0, 20.0))
    assert report["sections"]["input"]["facts"]["highest_input_share"]["note"] == "of a step, on TPU:0"


def test_the_duty_cycle_is_from_the_first_to_the_last_op_without_waiting_for_the_host(tmp_path: Path) -> None:
    duty = made(tmp_path)["sections"]["overview"]["facts"]["duty_cycle"]["value"]
    # Of 620 and 612 us, each core is in a loop, a convolution or an all-reduce for 70 us in each step.
    assert duty == pytest.approx(100 * 2 * 6 * 70 / (5 * 105 + 95 + 5 * 105 + 85))


def test_without_categories_there_is_no_duty_cycle(tmp_path: Path) -> None:
    report = made(tmp_path, with_categories=False)
    assert "duty_cycle" not in report["sections"]["overview"]["facts"]
    assert "lowest_input_share" not in report["sections"]["input"]["facts"]


@pytest.mark.parametrize("marked", [True, False], ids=["marks", "calls"])
def test_without_a_line_of_steps_the_last_one_ends_with_its_work(tmp_path: Path, *, marked: bool) -> None:
    steps = made(tmp_path, steps=False, marked=marked)["sections"]["steps"]["tables"]["steps"]["rows"]
    assert [row["step_time_ms"] for row in steps] == pytest.approx([105 * MS] * 5 + [100 * MS])
    assert [row["device_compute_ms"] for row in steps] == pytest.approx([60 * MS] * 6)
    # From call to call, the time until the next call is a part of a step, which the last one lacks.
    assert [row["flag"] for row in steps] == [""] * 5 + ["" if marked else "end estimated"]


def test_where_nothing_says_when_the_last_step_ends_it_does_not_count(tmp_path: Path) -> None:
    steps = made(tmp_path, steps=False, marked=True, jax=False)["sections"]["steps"]["tables"]["steps"]["rows"]
    assert steps[-1]["flag"] == "end estimated"
    assert steps[-1]["device_compute_ms"] == pytest.approx(60 * MS)


def test_a_report_of_a_tpu_speaks_of_no_gpu(tmp_path: Path) -> None:
    text = render(tfperf.load(logdir_of(tmp_path, tpu=synthetic_tpu())).report(), "table", RenderOptions(view="whole"))
    assert "TPU cores\n=" in text
    category = ("Kernel launch", "launching kernels", "not kernels", "streams and devices")
    ours = [line for line in text.splitlines() if not line.startswith("Folder ")]
    lines = [line for line in ours if not any(words in line for words in category)]
    assert [line for line in lines if GPU_WORDS.search(line)] == []


def test_instructions_have_categories_and_are_held_against_the_peaks_that_the_plane_states(tmp_path: Path) -> None:
    report = made(tmp_path, with_work=True)
    sections = report["sections"]
    ops = {row["hlo_op"]: row for row in sections["xla"]["tables"]["hlo_ops"]["rows"]}
    assert {name: row["category"] for name, row in ops.items()} == CATEGORIES
    assert (ops["fusion.3"]["runs"], ops["convolution.4"]["runs"]) == (24, 12)
    judged = {row["op"]: row for row in sections["roofline"]["tables"]["roofline_ops"]["rows"]}
    product, fusion = judged["convolution.4"], judged["fusion.3"]
    assert (product["bound"], product["tflops_per_second"]) == ("compute", pytest.approx(50))
    assert (fusion["bound"], fusion["gb_per_second"]) == ("memory", pytest.approx(600))
    facts = sections["roofline"]["facts"]
    assert facts["ridge_point"]["value"] == pytest.approx(100)
    # In a step of 100 us, each of the two cores computes one product of 10^9 operations, of 10^10 that it could.
    assert facts["step_hardware_percent"]["value"] == pytest.approx(10)


def test_the_program_that_ran_is_linted(tmp_path: Path) -> None:
    result = lint_path(logdir_of(tmp_path, tpu=synthetic_tpu(with_work=True)))
    assert [(each.rule, each.ops) for each in result.violations] == [
        ("TPU-MM-3", ("jit(step)/transpose(jvp(mlp))/dot_general",))
    ]
    assert result.violations[0].share == pytest.approx(240 / (6 * (95 + 85)))


def test_the_host_that_waits_for_data_is_why_a_core_is_idle(tmp_path: Path) -> None:
    report = made(tmp_path, infeed=False, fetches=True)
    causes = report["sections"]["idle"]["tables"]["idle_causes"]["rows"]
    per_step = {row["cause"]: row["per_step_ms"] for row in causes}
    # In its own steps: those of the second core begin 1 us after the host begins to wait.
    assert per_step["Waiting for input"] == pytest.approx((9 + 8) / 2 * MS)
    assert per_step["Waiting for input"] == pytest.approx(step_of(report)["Input"])


def test_a_loop_is_without_its_body_in_the_table_of_ops(tmp_path: Path) -> None:
    rows = made(tmp_path)["sections"]["ops"]["tables"]["device_ops"]["rows"]
    times = {row["hlo_op"] or row["op_name"]: (row["occurrences"], row["self_ms"]) for row in rows}
    assert times["while.2"] == (12, pytest.approx(12 * 10 * MS))
    assert times["fusion.3"] == (24, pytest.approx(24 * 15 * MS))
    assert times["convolution.4"] == (12, pytest.approx(12 * 20 * MS))
    assert sum(time for _, time in times.values()) == pytest.approx(6 * (95 + 85) * MS)


def test_idle_is_the_step_without_its_ops(tmp_path: Path) -> None:
    assert made(tmp_path)["sections"]["idle"]["facts"]["idle_percent"]["value"] == pytest.approx(10.0)


def test_where_no_op_is_an_infeed_idle_time_with_a_waiting_host_is_input(tmp_path: Path) -> None:
    step = step_of(made(tmp_path, infeed=False, fetches=True))
    assert step["Input"] == pytest.approx((9 + 8) / 2 * MS)  # of the 20 and 10 us before the loop


def test_without_categories_nothing_is_known_of_what_cores_do(tmp_path: Path) -> None:
    report = made(tmp_path, with_categories=False)
    assert {key for key, value in step_of(report).items() if value is not None} == {"All others"}
    assert step_of(report)["All others"] == pytest.approx(10 * MS)
    assert report["summary"]["input_percent"] is None
    assert report["diagnosis"]["causes"] == []


def test_without_ops_nothing_is_known_of_the_step_but_its_time(tmp_path: Path) -> None:
    report = made(tmp_path, with_ops=False)
    assert set(step_of(report).values()) == {None}
    assert report["summary"]["step_time_ms"]["average"] == pytest.approx(100 * MS)
    assert "the trace does not show what the step consists of" in report["sections"]["diagnosis"]["findings"][0]["text"]


@pytest.mark.parametrize("fetches", [False, True])
def test_advice_speaks_of_tpus(tmp_path: Path, fetches: bool) -> None:
    text = actions_of(made(tmp_path, fetches=fetches))
    assert text
    assert not GPU_WORDS.search(text)


def test_no_advice_for_tpus_names_what_only_gpus_have() -> None:
    texts = {(code, api): advice.text(api, is_tpu=True) for code, advice in ADVICE.items() for api in advice.texts}
    named = {code for (code, _), text in texts.items() if text and GPU_WORDS.search(text)}
    assert named == {"feed_kernel"}, "kernels of Pallas are kernels"


@pytest.mark.skipif(not REFERENCE.exists(), reason="needs ../shared")
def test_the_profile_of_the_references() -> None:
    """XProf: step 9.70, infeed 1.9 (the largest of the cores), outfeed 0.2, average share of input 16.5 %.

    Duty cycle 76.0 %, share of input 15.5 to 19.6 %. docs/differences.md says where we differ, and why.
    """
    report = report_of(REFERENCE)
    step = step_of(report)
    assert report["summary"]["step_time_ms"]["average"] == pytest.approx(9.70)
    assert report["summary"]["input_percent"] == pytest.approx(16.5, abs=0.05)
    assert step["Input"] == pytest.approx((1.5 * 3 + 1.9) / 4)
    assert step["Output"] == pytest.approx(0.2)
    assert step["Device collectives"] == pytest.approx((0.6 * 3 + 0.3) / 4)
    assert step["Device compute"] == pytest.approx(7.0)
    assert step["All others"] == pytest.approx((0.4 * 2 + 0.7 + 0) / 4)
    assert report["sections"]["overview"]["facts"]["duty_cycle"]["value"] == pytest.approx(100 * 180.6 / 237.6)
    assert shares_of(report) == pytest.approx((100 * 1.5 / 9.7, 100 * 1.9 / 9.7))
    rows = report["sections"]["ops"]["tables"]["device_ops"]["rows"]
    ops = {row["hlo_op"] or row["op_name"]: (row["occurrences"], row["total_ms"], row["self_ms"]) for row in rows}
    assert len(ops) == 10
    assert ops["fusion.2"] == (24, pytest.approx(60.0), pytest.approx(60.0))
    assert ops["while.6"] == (24, pytest.approx(24.0), pytest.approx(2.4))
    assert not GPU_WORDS.search(actions_of(report))


def offload(tmp_path: Path, **odd: Any) -> Any:
    return report_of(logdir_of(tmp_path, tpu=offload_tpu(Offload(**odd))))


def rows(report: Any, section: str, table: str) -> list[Any]:
    found: list[Any] = report["sections"][section]["tables"][table]["rows"]
    return found


STEP = {"Device compute": 80, "To device": 480, "To host": 240}
ODDITIES: dict[str, dict[str, Any]] = {
    "small ids": {"large_ids": False},
    "a line of steps": {"steps_line": True},
    "all lines on the clock of the chip": {"own_clock": "all"},
    "no clock of the chip": {"own_clock": "none"},
    "jump": {"jumps": (JUMP,)},
    "early": {"early": 0.4},
    "no asynchronous line": {"async_on": ()},
    "asynchronous line on all chips": {"async_on": (0, 1)},
    "run ids are those of all chips": {"shifted_run_ids": False},
    "no programs": {"programs": False},
    "no barrier": {"barrier": False},
    "no flows": {"flows": False},
    "allocators": {"allocator": True},
    "4 of 8": {"chips": 4, "partitions": 8, "first_chip": 4},
    "all chips": {"partitions": 2, "first_chip": 0},
}


@pytest.mark.parametrize("odd", ODDITIES.values(), ids=ODDITIES)
def test_what_is_odd_changes_no_step(tmp_path: Path, odd: dict[str, Any]) -> None:
    """Runs of 800 ms, whatever the clock of events, ids, and lines that are absent say."""
    report = offload(tmp_path, **odd)
    summary, times = report["summary"], report["summary"]["step_time_ms"]
    assert (summary["step_count"], summary["soundness"]["level"]) == (5, "sound")
    assert (times["average"], times["maximum"]) == (pytest.approx(800), pytest.approx(800, rel=1e-4))
    ops = {row["hlo_op"]: row for row in rows(report, "xla", "hlo_ops") if row["module"] == "jit_f"}
    runs = 5 * odd.get("chips", 2)
    assert {name: (row["runs"], row["mean_us"]) for name, row in ops.items()} == {
        "copy-start": (runs, 0),
        "copy-start.1": (runs, 0),
        "copy-start.2": (runs, 0),
        "copy-start.3": (runs, 0),
        "copy-done": (runs, pytest.approx(200e3)),
        "copy-done.1": (runs, 0),
        "copy-done.2": (runs, pytest.approx(280e3)),
        "copy-done.3": (runs, pytest.approx(240e3)),
        "broadcast_add_fusion": (runs, pytest.approx(40e3)),
        "broadcast_add_fusion.1": (runs, pytest.approx(40e3)),
    }


@pytest.mark.parametrize("odd", ODDITIES.values(), ids=ODDITIES)
def test_what_is_odd_changes_no_link(tmp_path: Path, odd: dict[str, Any]) -> None:
    functions = {row["function"]: row for row in rows(offload(tmp_path, **odd), "functions", "jitted_functions")}
    assert functions["f"]["calls"] == 5
    assert functions["f"]["work_ms"] == pytest.approx(5 * 800)


@pytest.mark.parametrize("large", [True, False])
def test_ids_of_programs_have_no_sign(tmp_path: Path, large: bool) -> None:
    report = offload(tmp_path, large_ids=large)
    programs = {row["module"]: row["program_id"] for row in rows(report, "xla", "hlo_modules")}
    assert programs["jit_f"] == (F_ID if large else 7)
    assert min(programs.values()) > 0


@pytest.mark.parametrize("chips", [2, 4])
def test_chips_that_are_in_no_file_are_said(tmp_path: Path, chips: int) -> None:
    path = logdir_of(tmp_path, tpu=offload_tpu(Offload(chips=chips, partitions=2 * chips, first_chip=chips)))
    assert f"{chips} of {2 * chips} chips" in render(tfperf.load(path).report(), "table", RenderOptions())


def test_chips_of_other_hosts_are_not_missing(tmp_path: Path) -> None:
    files = {f"host_{first}": offload_tpu(Offload(first_chip=first)) for first in (0, 2)}
    report = tfperf.load(logdir_of(tmp_path, **files)).report()
    for view in ("answer", "whole"):
        text = render(report, "table", RenderOptions(view=view))
        assert "chips of the program" not in text
        assert "of 4 chips" not in text


def test_without_names_of_allocators_memory_is_that_of_chips(tmp_path: Path) -> None:
    names = [row["allocator"] for row in rows(offload(tmp_path), "memory", "memory_allocators")]
    assert sorted(names) == ["TPU:0", "TPU:1"]


def test_a_capture_that_begins_in_a_run_has_the_ones_after_it(tmp_path: Path) -> None:
    report = offload(tmp_path, begin=1100)
    assert report["summary"]["step_count"] == 4
    assert report["summary"]["step_time_ms"]["average"] == pytest.approx(800)


def test_a_program_that_waits_is_called_before_its_run_on_a_clock_that_is_behind(tmp_path: Path) -> None:
    """Runs of 0.08 ms, 0.4 ms before the host in the file, and a call every 0.32 ms."""
    odd: dict[str, Any] = {"early": 0.4, "own_clock": "all", "waits": True, "barrier": False, "shifted_run_ids": False}
    report = offload(tmp_path, run_ms=0.08, **odd)
    steps = rows(report, "steps", "steps")
    assert [row["step_time_ms"] for row in steps][:-1] == pytest.approx([0.32] * 4)
    assert [row["device_compute_ms"] for row in steps] == pytest.approx([0.008] * 5)


def test_input_is_what_the_program_transfers_not_what_its_ops_copy(tmp_path: Path) -> None:
    """Before each run of 80 ms, which waits for its own copies for 72, the program transfers something for 100 ms."""
    step = step_of(offload(tmp_path, run_ms=80, waits=True, barrier=False, fed=100))
    assert step["Input"] == pytest.approx(100, rel=1e-3)
    assert step["Host to device"] == pytest.approx(48)
    assert step["Output"] == pytest.approx(24)
    assert step["Device compute"] == pytest.approx(8)


def test_without_transfers_there_is_no_input(tmp_path: Path) -> None:
    assert step_of(offload(tmp_path))["Input"] == 0


def test_a_jump_of_the_clock_is_said_once(tmp_path: Path) -> None:
    path = logdir_of(tmp_path, tpu=offload_tpu(Offload(jumps=(JUMP,))))
    screen = render(tfperf.load(path).report(), "table", RenderOptions())
    assert screen.count("200 ms") == 1
    assert "may be incomplete" not in screen


def test_a_program_that_runs_once_is_no_step_however_long_it_takes(tmp_path: Path) -> None:
    """`psum` runs for 50 ms, once; `jit_f` for 0.4 ms in all."""
    report = offload(tmp_path, run_ms=0.08, early=0.4, own_clock="all", waits=True)
    assert report["summary"]["step_count"] == 5
    assert report["summary"]["step_time_ms"]["average"] == pytest.approx(0.32)
