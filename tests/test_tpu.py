"""What tfperf says of TPU profiles: made ones of our own, a twin of a real one, and the one of the references."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from builders import logdir_of
from places import TRACES
from printed import Printed, missing
from synthetic_tpu import CATEGORIES, JUMP, Offload, offload_tpu, synthetic_tpu
from tpu_twin import FLOPS, HOSTNAME, PROGRAM_ID, RUNS_US, STATED_FLOPS, STEPS_US, tpu_twin

import tfperf
from tfperf.models.linter.engine import lint_path
from tfperf.report.render import RenderOptions, render
from tfperf.sections.diagnosis.catalogue import ADVICE

REFERENCE = TRACES / "xla_reference" / "tpu_synthetic" / "tpu.xplane.pb"
GPU_WORDS = re.compile(r"(?i)\bGPUs?\b|kernel|stream|TF32|cuDNN|CUDA|tensor core|mixed_float16|A100")
MS = 1e-3
"""Of the times in the made profile, which are microseconds."""
BUSY_US = 6 * (95 + 85)
"""How long the two cores run ops, an infeed among them."""


def made(tmp_path: Path, **parts: bool) -> Printed:
    return Printed(logdir_of(tmp_path, tpu=synthetic_tpu(**parts)))


def offload(tmp_path: Path, **odd: Any) -> Printed:
    return Printed(logdir_of(tmp_path, tpu=offload_tpu(Offload(**odd))))


def step_of(report: Printed) -> dict[str, float | None]:
    """Category -> time in the average step in ms; unknown ones are left out."""
    rows = report.rows("overview", "categories")
    return {row["category"]: row["average_ms"] for row in rows if row["average_ms"] is not None}


def step_ms(report: Printed) -> Any:
    return report.document["summary"]["step_time_ms"]["average"]


def actions_of(report: Printed) -> str:
    causes = report.document["diagnosis"]["causes"]
    return "\n".join(f"{action['text']} {action['assumption']}" for cause in causes for action in cause["actions"])


def shares_of(report: Printed) -> tuple[float, float]:
    """Smallest and largest share of input in a step of a core."""
    facts = report.facts("input")
    return facts["lowest_input_share"]["value"], facts["highest_input_share"]["value"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """The report of two cores of which all is recorded."""
    return made(tmp_path_factory.mktemp("plain"))


def test_the_average_step_is_that_of_all_cores(plain: Printed) -> None:
    # Core 1 has nothing to do for 10 us of each step, which lasts as long as that of core 0.
    assert step_ms(plain) == pytest.approx(100 * MS)
    assert plain.facts("overview")["step_source"]["value"] == "device steps"
    us = {"Output": 5, "Input": 15, "Device collectives": 10, "Device to device": 0, "Device compute": 60}
    assert step_of(plain) == pytest.approx({name: MS * each for name, each in (us | {"All others": 10}).items()})
    cause = plain.document["diagnosis"]["causes"][0]
    assert (cause["code"], cause["title"]) == ("input_wait", "Waiting for input")
    assert plain.facts("idle")["idle_percent"]["value"] == pytest.approx(10.0)


def test_what_computes_most_are_ops_that_compute(plain: Printed) -> None:
    """Not the infeed, which takes 15 us on average, nor the all-reduce: 10."""
    found = {each["name"]: each["percent"] for each in plain.document["diagnosis"]["computed"]}
    assert found == {"fusion.3": pytest.approx(30), "convolution.4": pytest.approx(20), "while.2": pytest.approx(10)}


def test_shares_of_input_are_those_of_single_cores(plain: Printed) -> None:
    assert shares_of(plain) == pytest.approx((10.0, 20.0))
    assert plain.facts("input")["highest_input_share"]["note"] == "of a step, on TPU:0"


def test_the_duty_cycle_is_from_the_first_to_the_last_op_without_waiting_for_the_host(plain: Printed) -> None:
    # Of 620 and 612 us, each core is in a loop, a convolution or an all-reduce for 70 us in each step.
    expected = 100 * 2 * 6 * 70 / (5 * 105 + 95 + 5 * 105 + 85)
    assert plain.facts("overview")["duty_cycle"]["value"] == pytest.approx(expected)


def test_a_loop_is_without_its_body_in_the_table_of_ops(plain: Printed) -> None:
    rows = plain.rows("ops", "device_ops")
    times = {row["hlo_op"] or row["op_name"]: (row["occurrences"], row["self_ms"]) for row in rows}
    for name, runs, us in (("while.2", 12, 10), ("fusion.3", 24, 15), ("convolution.4", 12, 20)):
        assert times[name] == (runs, pytest.approx(runs * us * MS))
    assert sum(time for _, time in times.values()) == pytest.approx(BUSY_US * MS)


def test_a_report_of_a_tpu_speaks_of_no_gpu(plain: Printed) -> None:
    text, _ = plain.run("analyze", "--full")
    assert "TPU cores\n=" in text
    category = ("Kernel launch", "launching kernels", "not kernels", "streams and devices")
    ours = [line for line in text.splitlines() if not line.startswith("Folder ")]
    lines = [line for line in ours if not any(words in line for words in category)]
    assert [line for line in lines if GPU_WORDS.search(line)] == []


def test_without_categories_nothing_is_known_of_what_cores_do(tmp_path: Path) -> None:
    report = made(tmp_path, with_categories=False)
    assert step_of(report) == {"All others": pytest.approx(10 * MS)}
    assert report.document["summary"]["input_percent"] is None
    assert report.document["diagnosis"]["causes"] == []
    assert "duty_cycle" not in report.facts("overview")
    assert "lowest_input_share" not in report.facts("input")


def test_without_ops_nothing_is_known_of_the_step_but_its_time(tmp_path: Path) -> None:
    report = made(tmp_path, with_ops=False)
    assert step_of(report) == {}
    assert step_ms(report) == pytest.approx(100 * MS)
    finding = report.document["sections"]["diagnosis"]["findings"][0]
    assert "the profile does not show the categories of the step" in finding["text"]


@pytest.mark.parametrize("marked", [True, False], ids=["marks", "calls"])
def test_without_a_line_of_steps_the_last_one_ends_with_its_work(tmp_path: Path, *, marked: bool) -> None:
    steps = made(tmp_path, steps=False, marked=marked).rows("steps", "steps")
    assert [row["step_time_ms"] for row in steps] == pytest.approx([105 * MS] * 5 + [100 * MS])
    assert [row["device_compute_ms"] for row in steps] == pytest.approx([60 * MS] * 6)
    # From call to call, the time until the next call is a part of a step, which the last one lacks.
    assert [row["flag"] for row in steps] == [""] * 5 + ["" if marked else "end estimated"]


def test_where_nothing_says_when_the_last_step_ends_it_does_not_count(tmp_path: Path) -> None:
    last = made(tmp_path, steps=False, marked=True, jax=False).rows("steps", "steps")[-1]
    assert (last["flag"], last["device_compute_ms"]) == ("end estimated", pytest.approx(60 * MS))


def test_instructions_have_categories_and_are_held_against_the_peaks_that_the_plane_states(tmp_path: Path) -> None:
    report = made(tmp_path, with_work=True)
    ops = report.rows("xla", "hlo_ops", "hlo_op")
    assert {name: row["category"] for name, row in ops.items()} == CATEGORIES
    assert (ops["fusion.3"]["runs"], ops["convolution.4"]["runs"]) == (24, 12)
    judged, facts = report.rows("roofline", "roofline_ops", "op"), report.facts("roofline")
    product, fusion = judged["convolution.4"], judged["fusion.3"]
    assert (product["bound"], product["tflops_per_second"]) == ("compute", pytest.approx(50))
    assert (fusion["bound"], fusion["gb_per_second"]) == ("memory", pytest.approx(600))
    assert facts["ridge_point"]["value"] == pytest.approx(100)
    # In a step of 100 us, each of the two cores computes one product of 10^9 operations, of 10^10 that it could.
    assert facts["step_hardware_percent"]["value"] == pytest.approx(10)
    (violation,) = lint_path(report.path).violations
    assert (violation.rule, violation.ops) == ("TPU-MM-3", ("jit(step)/transpose(jvp(mlp))/dot_general",))
    assert violation.share == pytest.approx(240 / BUSY_US), "the program that ran is linted"


def test_the_host_that_waits_for_data_is_why_a_core_is_idle(tmp_path: Path) -> None:
    """Where no op is an infeed, idle time with a waiting host is input: of the 20 and 10 us before the loop."""
    report = made(tmp_path, infeed=False, fetches=True)
    # In its own steps: those of the second core begin 1 us after the host begins to wait.
    waited = report.rows("idle", "idle_causes", "cause")["Waiting for input"]["per_step_ms"]
    assert (waited, step_of(report)["Input"]) == pytest.approx(((9 + 8) / 2 * MS,) * 2)


@pytest.mark.parametrize("fetches", [False, True])
def test_advice_speaks_of_tpus(tmp_path: Path, fetches: bool) -> None:
    text = actions_of(made(tmp_path, fetches=fetches))
    assert text
    assert not GPU_WORDS.search(text)


def test_no_advice_for_tpus_names_what_only_gpus_have() -> None:
    texts = {(code, api): advice.text(api, is_tpu=True) for code, advice in ADVICE.items() for api in advice.texts}
    named = {code for (code, _), text in texts.items() if text and GPU_WORDS.search(text)}
    assert named == {"feed_kernel"}, "kernels of Pallas are kernels"
    pages = [
        each.page(api, is_tpu=True) for each in ADVICE.values() for api in each.texts if each.text(api, is_tpu=True)
    ]
    assert pages
    assert not [page for page in pages if re.search("gpu|nvidia", page)]


@pytest.mark.skipif(not REFERENCE.exists(), reason="needs ../shared")
def test_the_profile_of_the_references() -> None:
    """XProf: step 9.70, infeed 1.9 (the largest of the cores), outfeed 0.2, average share of input 16.5 %.

    Duty cycle 76.0 %, share of input 15.5 to 19.6 %. docs/differences.md says where we differ, and why.
    """
    report = Printed(REFERENCE)
    step = step_of(report)
    assert step_ms(report) == pytest.approx(9.70)
    assert report.document["summary"]["input_percent"] == pytest.approx(16.5, abs=0.05)
    expected = {
        "Input": (1.5 * 3 + 1.9) / 4, "Output": 0.2, "Device collectives": (0.6 * 3 + 0.3) / 4, "Device compute": 7.0,
        "All others": (0.4 * 2 + 0.7 + 0) / 4,
    }  # fmt: skip
    assert {name: step[name] for name in expected} == pytest.approx(expected)
    assert report.facts("overview")["duty_cycle"]["value"] == pytest.approx(100 * 180.6 / 237.6)
    assert shares_of(report) == pytest.approx((100 * 1.5 / 9.7, 100 * 1.9 / 9.7))
    rows = report.rows("ops", "device_ops")
    ops = {row["hlo_op"] or row["op_name"]: (row["occurrences"], row["total_ms"], row["self_ms"]) for row in rows}
    assert len(ops) == 10
    assert ops["fusion.2"] == (24, pytest.approx(60.0), pytest.approx(60.0))
    assert ops["while.6"] == (24, pytest.approx(24.0), pytest.approx(2.4))
    assert not GPU_WORDS.search(actions_of(report))


# --- arrays in host memory ---

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
OP_US = dict.fromkeys(("copy-start", "copy-start.1", "copy-start.2", "copy-start.3", "copy-done.1"), 0.0) | {
    "copy-done": 200e3, "copy-done.2": 280e3, "copy-done.3": 240e3, "broadcast_add_fusion": 40e3,
    "broadcast_add_fusion.1": 40e3,
}  # fmt: skip


@pytest.mark.parametrize("odd", ODDITIES.values(), ids=ODDITIES)
def test_what_is_odd_changes_no_step_and_no_link(tmp_path: Path, odd: dict[str, Any]) -> None:
    """Runs of 800 ms, whatever the clock of events, ids, and lines that are absent say."""
    report = offload(tmp_path, **odd)
    summary = report.document["summary"]
    assert (summary["step_count"], summary["soundness"]["level"]) == (5, "sound")
    assert step_ms(report) == pytest.approx(800)
    assert summary["step_time_ms"]["maximum"] == pytest.approx(800, rel=1e-4)
    ops = {row["hlo_op"]: row for row in report.rows("xla", "hlo_ops") if row["module"] == "jit_f"}
    assert {row["runs"] for row in ops.values()} == {5 * odd.get("chips", 2)}
    assert {name: row["mean_us"] for name, row in ops.items()} == pytest.approx(OP_US)
    function = report.rows("functions", "jitted_functions", "function")["f"]
    assert (function["calls"], function["work_ms"]) == (5, pytest.approx(5 * 800))


@pytest.mark.parametrize("chips", [2, 4])
def test_chips_that_are_in_no_file_are_said(tmp_path: Path, chips: int) -> None:
    screen = offload(tmp_path, chips=chips, partitions=2 * chips, first_chip=chips).text()
    assert f"{chips} of {2 * chips} chips" in screen


def test_chips_of_other_hosts_are_not_missing(tmp_path: Path) -> None:
    files = {f"host_{first}": offload_tpu(Offload(first_chip=first)) for first in (0, 2)}
    report = tfperf.load(logdir_of(tmp_path, **files)).report()
    for view in ("answer", "whole"):
        text = render(report, "table", RenderOptions(view=view))
        assert missing(text, "chips of the program", "of 4 chips") == ["chips of the program", "of 4 chips"]


def test_a_plain_offload_has_no_input_and_memory_of_chips_without_names_of_allocators(tmp_path: Path) -> None:
    report = offload(tmp_path)
    assert step_of(report)["Input"] == 0
    assert sorted(report.rows("memory", "memory_allocators", "allocator")) == ["TPU:0", "TPU:1"]


def test_a_capture_that_begins_in_a_run_has_the_ones_after_it(tmp_path: Path) -> None:
    report = offload(tmp_path, begin=1100)
    assert (report.document["summary"]["step_count"], step_ms(report)) == (4, pytest.approx(800))


def test_a_program_that_waits_is_called_before_its_run_on_a_clock_that_is_behind(tmp_path: Path) -> None:
    """Runs of 0.08 ms, 0.4 ms before the host in the file, and a call every 0.32 ms."""
    odd: dict[str, Any] = {"early": 0.4, "own_clock": "all", "waits": True, "barrier": False, "shifted_run_ids": False}
    steps = offload(tmp_path, run_ms=0.08, **odd).rows("steps", "steps")
    assert [row["step_time_ms"] for row in steps][:-1] == pytest.approx([0.32] * 4)
    assert [row["device_compute_ms"] for row in steps] == pytest.approx([0.008] * 5)


def test_input_is_what_the_program_transfers_not_what_its_ops_copy(tmp_path: Path) -> None:
    """Before each run of 80 ms, which waits for its own copies for 72, the program transfers something for 100 ms."""
    step = step_of(offload(tmp_path, run_ms=80, waits=True, barrier=False, fed=100))
    assert step["Input"] == pytest.approx(100, rel=1e-3)
    expected = {"Host to device": 48, "Output": 24, "Device compute": 8}
    assert {name: step[name] for name in expected} == pytest.approx(expected)


def test_a_jump_of_the_clock_is_said_once(tmp_path: Path) -> None:
    screen = offload(tmp_path, jumps=(JUMP,)).text()
    assert screen.count("200 ms") == 1
    assert "may be incomplete" not in screen


def test_a_program_that_runs_once_is_no_step_however_long_it_takes(tmp_path: Path) -> None:
    """`psum` runs for 50 ms, once; `jit_f` for 0.4 ms in all."""
    report = offload(tmp_path, run_ms=0.08, early=0.4, own_clock="all", waits=True)
    assert (report.document["summary"]["step_count"], step_ms(report)) == (5, pytest.approx(0.32))


# --- the twin: three calls of a Pallas matmul, each waited for; N3 ... are faults that reports of the real one had ---


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    return Printed(logdir_of(tmp_path_factory.mktemp("twin"), tpu=tpu_twin()))


def test_steps_of_the_twin_go_from_call_to_call_and_the_last_one_until_the_wait_ends(twin: Printed) -> None:
    """N18; N3: there is no input."""
    steps = twin.rows("steps", "steps")
    assert [row["step_time_ms"] for row in steps] == pytest.approx([each / 1e3 for each in STEPS_US], abs=1e-3)
    assert [row["device_compute_ms"] for row in steps] == pytest.approx([each / 1e3 for each in RUNS_US], abs=1e-4)
    assert twin.document["summary"]["input_class"] in {"none", "unknown"}


def test_the_first_screen_of_the_twin_says_who_waits(twin: Printed) -> None:
    """`stop_trace` takes 600 of 682 ms, and is no part of the program."""
    said = (
        "Waiting for each result before the next call takes 66.0% of the step",
        "block_until_ready after the call in pallas_matmul.py:66",
        "the TPU is idle for 0.147 ms of 0.223 ms",
        "matmul_optimized.1 waits for 76.3% of its time",
        "12.4% of the compute peak and at least 27.0% of the bandwidth",
        "step 0 takes 0.501 ms",
        "no input in the steps",
    )
    assert missing(twin.text(), *said) == []
    not_said = ["POSSIBLY", "may be incomplete", "No cause worth fixing", "start_trace", "stop_trace"]
    assert missing(twin.text(), *not_said) == not_said
    codes = [cause["code"] for cause in twin.document["diagnosis"]["causes"]]
    assert codes == ["waiting_for_results", "kernel_waits", "warm_up"]
    environment = ("The clocks of TPU and host differ by 0.396 to 0.491 ms", HOSTNAME, "0.10.0")
    assert missing(twin.text("-s", "environment"), *environment) == [], "N16"


def test_the_program_of_the_twin_is_known_with_its_calls_and_flops(twin: Printed) -> None:
    """N6, N10, N17: flops are those of the shapes, not of one pass."""
    (op,) = twin.rows("roofline", "roofline_ops")
    assert op["tflops_per_second"] == pytest.approx(FLOPS / (sum(RUNS_US) / 3) / 1e6, rel=5e-3)
    assert FLOPS > 7 * STATED_FLOPS
    assert "work of ops is unknown" not in twin.text("-s", "roofline")
    (program,) = twin.rows("xla", "hlo_modules")
    assert (program["module"], program["program_id"], program["runs"]) == ("jit_matmul_optimized", PROGRAM_ID, 3)
    (function,) = twin.rows("functions", "jitted_functions")
    assert (function["calls"], function["work_ms"]) == (3, pytest.approx(sum(RUNS_US) / 1e3, abs=1e-3))
    assert function["computes"] != "neither"


def test_the_device_of_the_twin_is_idle_from_first_to_last_op_not_while_the_profiler_works(twin: Printed) -> None:
    """N15: 62.6 % of 0.607 ms."""
    (device,) = twin.rows("kernels", "device_time")
    assert device["wall_ms"] == pytest.approx(0.607, abs=1e-3)
    assert device["idle_ms"] / device["wall_ms"] == pytest.approx(0.626, abs=1e-3)


def test_counters_of_the_schedule_are_no_time(twin: Printed, tmp_path: Path) -> None:
    """N11: two of them last 81.9 ms."""
    twin.run("timeline", "-o", tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert [each for each in events if each["ph"] == "X" and each.get("name") in {"MXU", "XLU"}] == []
    names = {each["pid"]: each["args"]["name"] for each in events if each.get("name") == "process_name"}
    assert sum("TPU" in names[each["pid"]] for each in events if each["ph"] == "f") >= 3
