"""Causes that a trace does not let anyone judge, and what is missing for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from builders import STEPS_LINE, Event, Plane, event, host, line, logdir_of, plane, repeat, results_of, space, trace_of
from sections.diagnosis.made import EXCHANGE, FETCH, LAUNCH, OP, codes_of, diagnosis, gpu, marks, steps

import tfperf
from tfperf.sections.diagnosis.diagnose import NEEDS, diagnose
from tfperf.trace.steps.breakdown import NO_DEVICE

GPU = gpu(("sgemm", 0, 50))


def allocations(name: str, *, capacity: bool = True) -> list[Event]:
    """What an allocator notes in each step: 60 of 100 bytes are in use."""
    free = {"bytes_available": 40} if capacity else {}
    same = {"bytes_allocated": 60, "bytes_reserved": 0, "peak_bytes_in_use": 60, "allocation_bytes": 60, **free}
    return repeat(5, event("MemoryAllocation", 5, 0, allocator_name=name, address=1, **same))


def unjudged(tmp_path: Path, *planes: Plane) -> Mapping[str, str]:
    return diagnosis(tmp_path, *planes).unjudged


def check(found: Mapping[str, str], code: str, reason: str) -> None:
    """Check that a cause is not judged for this reason; empty: it is judged."""
    assert found.get(code, "").startswith(reason)
    assert (code in found) == bool(reason)


@pytest.mark.parametrize("code", ["input_copy", "output_copy", "launch_bound", "collectives", "idle_devices"])
def test_without_a_device_nothing_is_known_of_devices(tmp_path: Path, code: str) -> None:
    assert unjudged(tmp_path, host(*steps((OP, 100))))[code] == NO_DEVICE


def test_what_a_trace_of_a_gpu_shows_can_be_judged(tmp_path: Path) -> None:
    calls = repeat(5, event("EagerExecute", 0, 100, is_func=1))
    device = gpu(("MemcpyH2D", 0, 5), ("sgemm", 0, 50))
    found = unjudged(tmp_path, host(*steps((FETCH, 5), (LAUNCH, 50)), *calls), device)
    unknown_work = {"low_utilisation", "memory_bound", "unaligned_shapes"}
    assert found.keys() == unknown_work | {
        "skewed_input", "straggler", "garbage_collection", "profiling_overhead", "memory_pressure", "device_sync"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "code", "reason"),
    [
        (((OP, 50.0),), "input_wait", "the profile does not show the source of the input"),
        (((FETCH, 50.0),), "input_wait", ""),
        (((OP, 50.0),), "eager_ops", "the profile has no events of Python launching ops or functions"),
        (((OP, 50.0),), "waiting_in_calls", "the profile does not show when a framework call is running"),
        (((OP, 99.0),), "waiting_in_calls", ""),  # there is nothing to wait in
        (((OP, 50.0),), "small_work_per_step", ""),
        (((LAUNCH, 50.0),), "small_work_per_step", "the profile has no ops of the step, on the host or on a device"),
        (
            *((("tf.function-graph_building", 50.0), (OP, 50.0)), "small_work_per_step"),
            "functions are traced or compiled in the steps, which hides the per-step overhead",
        ),
        (((OP, 50.0),), "compilation", ""),
        (((OP, 50.0),), "straggler", "single-host profile: there is no other host to wait for"),
        (((OP, 50.0),), "profiling_overhead", "the capture did not measure profiling overhead"),
        (((OP, 50.0),), "memory_pressure", "no allocator recorded events (tfperf analyze -s memory)"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, parts: tuple[tuple[str, float], ...], code: str, reason: str) -> None:
    check(unjudged(tmp_path, host(*steps(*parts))), code, reason)


def test_a_tpu_does_not_show_in_what_precision_it_computes(tmp_path: Path) -> None:
    tpu = plane(
        "/device:TPU:0",
        line("Steps", *(event(str(n), 100 * n, 100) for n in range(5)), id=STEPS_LINE),
        line("XLA Ops", *(event("fusion", 100 * n, 90) for n in range(5)), id=STEPS_LINE + 3),
        name_stats={"fusion": {"hlo_category": "loop fusion"}},
    )
    found = unjudged(tmp_path, tpu)
    assert found["compilation"] == "the steps are TPU core steps, and their ops do not show host activity"
    assert found["device_compute_32bit"] == "the profile does not show the precision of device compute"
    assert found["python_between_steps"].startswith("a TPU core without an op waits for the host or a slower core")


def test_launches_without_any_kernel_are_no_cause(tmp_path: Path) -> None:
    """The device copies only: kernels were not recorded, or the job has none."""
    found = diagnosis(tmp_path, host(*steps((LAUNCH, 80))), gpu(("MemcpyH2D", 0, 5)))
    assert found.unjudged["launch_bound"] == "the profile has no kernels"
    assert "launch_bound" not in codes_of(found.causes)


@pytest.mark.parametrize(
    ("planes", "events", "reason"),
    [
        ((), allocations("mklcpu", capacity=False), ""),
        ((GPU,), allocations("mklcpu"), "no device allocator recorded events"),
        ((GPU,), allocations("GPU_0_bfc"), ""),
        ((GPU,), allocations("GPU_0_bfc", capacity=False), "the capacity of GPU_0_bfc is not recorded"),
    ],
)
def test_memory_is_judged_where_its_allocators_say_enough(
    tmp_path: Path, planes: tuple[Plane, ...], events: list[Event], reason: str
) -> None:
    check(unjudged(tmp_path, host(*steps((OP, 50)), *events), *planes), "memory_pressure", reason)


def test_growth_needs_steps(tmp_path: Path) -> None:
    found = unjudged(tmp_path, host(*marks(count=4), *allocations("GPU_0_bfc")), GPU)
    assert found["memory_pressure"] == "the profile has too few steps to show whether the memory of GPU_0_bfc grows"


def test_devices_that_may_not_be_traced_may_be_idle(tmp_path: Path) -> None:
    silent = plane("/device:GPU:1")
    assert unjudged(tmp_path, host(*steps((LAUNCH, 50))), silent)["idle_devices"] == NO_DEVICE
    assert "idle_devices" not in unjudged(tmp_path, host(*steps((LAUNCH, 50))), GPU, silent)


@pytest.mark.parametrize(
    ("of_second", "planes", "reason"),
    [
        ([(EXCHANGE, 10), (OP, 90)], (), ""),
        ([(OP, 90)], (), "fewer than two hosts "),
        ([(EXCHANGE, 10), (OP, 90)], (GPU,), "fewer than two hosts "),
    ],
)
def test_hosts_are_compared_by_their_exchanges(
    tmp_path: Path, of_second: list[tuple[str, float]], planes: tuple[Plane, ...], reason: str
) -> None:
    first, second = space(host(*steps((OP, 10), (EXCHANGE, 90)))), space(host(*steps(*of_second)), *planes)
    analysis = tfperf.load(logdir_of(tmp_path, a=first, b=second))
    check(analysis["diagnosis"].unjudged, "straggler", reason)


def test_the_host_that_hides_something_is_named(tmp_path: Path) -> None:
    """Neither sets the pace: they wait for 1 % of the step, and for what is not seen."""
    seen, hidden = space(host(*steps((FETCH, 1), (OP, 90)))), space(host(*steps((OP, 90))))
    found = tfperf.load(logdir_of(tmp_path, a=seen, b=hidden))["diagnosis"]
    assert (found.host, found.input_cost_percent) == ("", None)
    assert found.unjudged["input_wait"].startswith("host b: the profile does not show the source of the input")


def test_without_steps_nothing_can_be_judged(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(event(OP, 0, 10))))
    found = diagnose(results)
    assert found.unjudged.keys() == NEEDS.keys()
    assert all(reason.startswith("no step time was measured: ") for reason in found.unjudged.values())
    assert found.input_cost_percent is None
