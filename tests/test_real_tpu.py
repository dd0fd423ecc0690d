"""What tfperf says of a real TPU profile: `expected.json` beside it says what is true.

Its numbers were measured on the file by scripts that share no code with an analyzer. The faults that reports of it once
had are listed in `spec-tpu-real.md`, section 15.
"""

from __future__ import annotations

import csv
import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from places import TRACES
from printed import Printed, missing

from tfperf.trace.device.tpu_copies import async_runs, bytes_of
from tfperf.trace.device.tpu_runs import barrier_waits, find_runs
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.known_stats import DEFAULT, JAX, LINKS, TPU
from tfperf.trace.read import read_host

FOLDER = TRACES / "tpu_v6e"
OFFLOAD = FOLDER / "offload"
REFERENCE = FOLDER / "reference"
TRUE: Any = json.loads((REFERENCE / "expected.json").read_text(encoding="utf-8"))["A"] if REFERENCE.exists() else {}
CHIPS = ("TPU:0", "TPU:1", "TPU:2", "TPU:3")

pytestmark = pytest.mark.skipif(not TRUE, reason="the real TPU profile is not here")


REPORT = Printed(OFFLOAD)


def to_the_digit(number: float, unit: float = 1.0) -> Any:
    """Return what equals a number as far as its digits go, in another unit."""
    _, _, digits = repr(number).partition(".")
    mantissa, _, power = digits.partition("e")
    decimals = len(mantissa) - int(power or 0)
    return pytest.approx(number * unit, abs=0.51 * 10.0**-decimals * unit)


@cache
def trace() -> HostTrace:
    return read_host(OFFLOAD / "tpu.xplane.pb", stats=DEFAULT | LINKS | JAX | TPU)


# Steps


def test_steps_are_the_runs_of_the_main_program() -> None:
    summary, steps = REPORT.document["summary"], TRUE["steps"]
    assert summary["step_count"] == summary["averaged_step_count"] == steps["count"]
    assert summary["step_time_ms"]["average"] == to_the_digit(steps["mean_ms"])
    assert summary["step_time_ms"]["standard_deviation"] < 0.2, "between steps; between runs on single chips it is 0.16"
    assert steps["min_ms"] - 5e-4 <= summary["step_time_ms"]["minimum"]
    assert summary["step_time_ms"]["maximum"] <= steps["max_ms"] + 5e-4


# Categories and copies


def test_categories_are_those_of_the_reference() -> None:
    found, expected = REPORT.rows("overview", "categories", "category"), TRUE["categories_ms_per_step"]
    names = {
        "wait_host_to_device": "Host to device",
        "wait_device_to_host": "Output",
        "compute": "Device compute",
        "collective": "Device collectives",
    }
    for key, name in names.items():
        assert found[name]["average_ms"] == to_the_digit(expected[key]), key
    for key, percent in TRUE["categories_percent"].items():
        if key in names:
            assert found[names[key]]["percent"] == to_the_digit(percent), key
    # The last run has no gap after it, and the reference counts its time from its first op.
    assert found["All others"]["average_ms"] == pytest.approx(expected["idle"], abs=1e-5)
    assert found["Input"]["average_ms"] == 0


def test_copies_are_in_flight_from_their_start_to_the_end_of_waiting() -> None:
    """The reference has the median on the chip that has a line of asynchronous ops."""
    copies, expected = async_runs(trace()), TRUE["copies"]
    assert copies.is_paired.all()
    (first,) = (plane for plane in trace().devices if trace().planes[plane].name.endswith(CHIPS[0]))
    in_flight_ms, waited_ms = (copies.end_ps - copies.begun_ps) / 1e9, (copies.end_ps - copies.awaited_ps) / 1e9
    for index, kind in enumerate(copies.kinds):
        mine = copies.kind == index
        assert int(mine.sum()) == TRUE["ops_count"]
        assert bytes_of(kind.shape) == expected["bytes_each"]
        assert float(np.median(in_flight_ms[mine & (copies.plane == first)])) == to_the_digit(
            expected["spans_ms"][kind.start]
        ), kind.start
        if kind.done in expected["gb_per_s"]:
            rate = expected["bytes_each"] / waited_ms[mine].mean() / 1e6
            assert rate == to_the_digit(expected["gb_per_s"][kind.done])
    ways = [kind.way for kind in copies.kinds]
    assert ways.count("to_device") == expected["to_device_per_step"]
    assert ways.count("to_host") == expected["to_host_per_step"]


# Ops


def test_all_ops_equal_those_of_xprof() -> None:
    with (REFERENCE / "xprof_hlo_stats.A.csv").open(encoding="utf-8") as file:
        theirs = {
            row["hlo_op_name"]: (float(row["occurrences"]), float(row["avg_time"])) for row in csv.DictReader(file)
        }
    ours = {row["hlo_op"]: (row["runs"], row["mean_us"]) for row in REPORT.rows("xla", "hlo_ops")}
    assert ours.keys() == theirs.keys()
    assert [count for count, _ in ours.values()] == [theirs[name][0] for name in ours]
    assert [mean for _, mean in ours.values()] == pytest.approx([theirs[name][1] for name in ours], rel=1e-6)


def test_fusions_have_the_bandwidth_of_the_reference() -> None:
    is_fusion = "broadcast_add_fusion".__eq__
    ops = [row for row in REPORT.rows("xla", "hlo_ops") if is_fusion(row["hlo_op"].partition(".")[0])]
    judged = [row for row in REPORT.rows("roofline", "roofline_ops") if is_fusion(row["op"].partition(".")[0])]
    expected = TRUE["hbm_bandwidth_of_fusions"]
    rates = [row["moved_bytes"] / row["mean_us"] / 1e3 for row in ops]
    assert sorted(rates) == [to_the_digit(each) for each in expected["gb_per_s"]]
    # Rates have three digits, since the work of an op is an estimate.
    for key, values in (("gb_per_second", "gb_per_s"), ("memory_percent", "percent_of_peak")):
        assert sorted(row[key] for row in judged) == [pytest.approx(each, rel=5e-3) for each in expected[values]]
    assert {row["bound"] for row in judged} == {"memory"}


def test_chips_wait_for_the_last_one_before_an_all_reduce() -> None:
    found = find_runs(trace())
    waited_ms = barrier_waits(trace(), found) / 1e9
    for plane in trace().devices:
        of_chip = waited_ms[(found.plane == plane) & (waited_ms > 0)]
        chip = trace().planes[plane].name.removeprefix("/device:")
        assert of_chip.tolist() == [to_the_digit(each) for each in TRUE["psum"]["barrier_wait_ms"][chip]]
    assert "341 ms on TPU:2" in REPORT.text("-s", "functions")


# Memory


def test_memory_is_that_of_each_chip() -> None:
    found = REPORT.rows("memory", "memory_allocators", "allocator")
    assert set(found) == set(CHIPS)
    assert {row["capacity_bytes"] for row in found.values()} == {TRUE["device"]["hbm_bytes"]}
    assert max(row["peak_bytes"] for row in found.values()) == TRUE["memory"]["peak_in_use"]


def test_memory_of_the_program_is_that_of_its_memory_spaces() -> None:
    expected = TRUE["memory"]
    found = {row["memory"]: row for row in REPORT.rows("xla", "hlo_memory") if row["module"] == "jit_f"}
    assert found["HBM"]["temporaries_bytes"] == expected["hbm_program_jit_f"]["temporaries"]
    assert found["HBM"]["parameters_bytes"] == expected["hbm_program_jit_f"]["parameters"]
    aliased = expected["host_program_jit_f"]["parameters_aliased_by_outputs"]
    assert (found["host memory"]["parameters_bytes"], found["host memory"]["aliased_bytes"]) == (aliased, aliased)
    assert found["VMEM"]["scoped_bytes"] == expected["scoped_vmem_jit_f"]


# The device


def test_the_device_is_what_the_file_says() -> None:
    device, facts = TRUE["device"], REPORT.facts("environment")
    (host,) = REPORT.rows("environment", "environment")
    public_name = {"TPU v6 Lite": "TPU v6e"}[device["type"]]
    assert (host["device_model"], host["device_count"]) == (public_name, device["cores_in_file"])
    first, last = device["global_chip_ids"][0], device["global_chip_ids"][-1]
    assert facts["chips"]["value"] == f"{first} to {last}"
    assert f"of {device['chips_of_program']} " in facts["chips"]["note"]
    roofline = REPORT.facts("roofline")
    assert roofline["device_model"]["value"] == public_name
    assert f"bf16 {device['peak_tflops_stated']:.0f}" in roofline["peak_flops"]["value"]
    assert "fp32" not in roofline["peak_flops"]["value"], "N7"
    assert "1,638 GB/s" in roofline["peak_bandwidth"]["value"]


def test_the_first_call_compiles_and_loads() -> None:
    expected = TRUE["first_call"]
    functions = REPORT.rows("functions", "jitted_functions", "function")
    assert functions["f"]["compiling_calls"] == 1
    notes = " ".join(REPORT.document["sections"]["steps"]["notes"])
    for number in (expected["compile_ms"], max(expected["load_program_ms"])):
        assert f"{number:.0f} ms" in notes


# The first screen (section 13 of the spec) and the faults that are gone (section 15: N1 ...; those of B: test_tpu.py)


def test_the_first_screen_says_what_costs() -> None:
    """N4, N14: the first call of 4,053 ms compiles for 207, and loads the program for up to 1,905."""
    said = ("784 ms", "100 of 100", "4 of 8 chips", "96.9%", "ws[0", "5.37 GB", "16.1 GB", "bfloat16", "load")
    assert missing(REPORT.text(), *said) == []
    not_said = ["No cause worth fixing", "POSSIBLY", "may be incomplete", "retrac", "warm-up"]
    assert missing(REPORT.text(), *not_said) == not_said
    first = REPORT.document["diagnosis"]["causes"][0]
    assert first["cost_percent"]["low"] == pytest.approx(96.93, abs=0.05)
    assert len(first["actions"]) == 3
    assert REPORT.document["summary"]["soundness"]["level"] == "sound"


def test_other_chips_and_copies_before_the_steps_are_not_denied() -> None:
    """N4, N5: 13 copies of 5.37 GB each."""
    assert "4 of the 8 chips" in REPORT.text("-s", "hosts")
    not_said = ["single-host profile", "nor copies to a device"]
    assert missing(REPORT.text("--full"), *not_said) == not_said


def test_programs_have_their_memory_spaces_and_compile_times() -> None:
    """N8."""
    programs = REPORT.rows("xla", "hlo_modules", "module")
    assert set(programs) == {"jit_f", "jit__psum", "jit_broadcast_in_dim", "jit_convert_element_type"}
    assert programs["jit_f"]["compile_ms"] == to_the_digit(TRUE["first_call"]["compile_ms"])
    assert programs["jit_f"]["temporaries_bytes"] == TRUE["memory"]["hbm_program_jit_f"]["temporaries"]


def test_scopes_of_tfprof_have_what_the_copies_take() -> None:
    """N12: an add of 24.05 ms per chip is 3.1 % of the time; copies have no op and are there."""
    report, code = REPORT.run("tfprof op")
    assert code == 0
    lines = {words[0]: words[1:] for words in (line.split() for line in report.splitlines()) if len(words) > 2}
    assert lines["add"][:2] == ["96.2", "3.1"], "the sum of four chips"
    assert lines["copy-done"][1] == "96.9"
    assert "784 ms per core and step" in report


def test_sums_over_chips_are_called_so() -> None:
    """N13: 315 s on four chips are 78.8 s on each."""
    assert "summed over 4 devices: 78779 ms each" in REPORT.text("-s", "ops")
    for row in REPORT.rows("xla", "hlo_modules"):
        assert row["device_mean_ms"] == pytest.approx(row["total_ms"] / 4)


def test_the_memory_of_a_program_is_full_of_copies_from_host_memory() -> None:
    """Three arrays of 5.4 GB are on the chip at a time, with one result; XProf's memory viewer has the same sum."""
    buffers = [row for row in REPORT.rows("xla", "hlo_buffers") if (row["module"], row["memory"]) == ("jit_f", "HBM")]
    array = 5 * 1024 * 1024 * 256 * 4
    assert sorted((row["hlo_op"], row["total_bytes"]) for row in buffers[:4]) == [
        ("broadcast_add_fusion.2", array),
        ("copy-start", array),
        ("copy-start.2", array),
        ("copy-start.4", array),
    ]
    unused = sum(row["total_bytes"] for row in buffers if row["kind"] == "unused")
    assert sum(row["total_bytes"] for row in buffers) - unused == 4 * array + 32
