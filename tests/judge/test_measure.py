"""What limits measure on one host: figures, and columns of tables over the steps that count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import STEPS_LINE, Event, Line, Plane, event, host, line, logdir_of, plane, ref, space
from judge.example_jobs import analysis_of, bare_job, input_job
from msgspec.structs import replace
from synthetic_tpu import Offload, offload_tpu

import tfperf
from tfperf.judge.grammar import read_limit
from tfperf.judge.limits import Measurement
from tfperf.judge.measure import JudgedHost, judged_hosts, measure, measure_skew, retraces_of
from tfperf.trace.flaw import Flaw


def cpu(*more: Event, steps: int = 4, lines: tuple[Line, ...] = ()) -> Plane:
    """A host with steps of 100 us."""
    marks = [event("train", 100 * number, 100, step_num=number) for number in range(steps)]
    return plane("/host:CPU", line("python", *marks, *more), *lines)


def gpu(number: int, *busy_us: tuple[float, float]) -> Plane:
    """A device with kernels: start and duration of each."""
    stream = line("Stream #1(Compute)", *(event("gemm", start, duration) for start, duration in busy_us))
    return plane(f"/device:GPU:{number}", stream)


def judged_host(tmp_path: Path, *planes: Plane, skip_first: int = 0, **options: Any) -> JudgedHost:
    """The only host of a run, as the gate sees it."""
    analysis = tfperf.load(logdir_of(tmp_path, a=space(*planes)), **options)
    (judged,) = judged_hosts(analysis, stat="mean", skip_first=skip_first, min_steps=3)
    return judged


def measured(text: str, judged: JudgedHost) -> Measurement:
    return measure(read_limit(text), judged)


def test_with_too_few_steps_nothing_about_them_is_measured(tmp_path: Path) -> None:
    judged = judged_host(tmp_path, cpu(steps=2))
    assert measured("step_time < 1s", judged).gap == judged.too_few_steps != ""


def test_a_damaged_profile_tells_nothing(tmp_path: Path) -> None:
    broken = judged_host(tmp_path, cpu(event("work", 5, -1)))
    for limit in ("step_time < 1s", "memory < 1MB", "max(host_ops.total_ms) < 1s"):
        assert measured(limit, broken).gap.startswith("the profile is damaged: 1 event of ")
        assert measured(limit, broken).value is None


def test_damage_of_steps_leaves_other_figures_alone(tmp_path: Path) -> None:
    judged = judged_host(tmp_path, cpu())
    host = replace(judged.host, flaws=(Flaw("empty_steps", "2 steps"), Flaw("fetches_stop", "it", "doubtful")))
    damaged = replace(judged, results=judged.results.only([host]))
    assert measured("step_time < 1s", damaged).gap == "the profile is damaged: 2 steps"
    assert measured("max(steps.step_time_ms) < 1s", damaged).gap == "the profile is damaged: 2 steps"
    assert "damaged" not in measured("memory < 1MB", damaged).gap


# --- step time and input ---


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [
        ("step_time < 1s", 0.12),
        ("mean(step_time) < 1s", 0.12),
        ("median(step_time) < 1s", 0.1),
        ("p95(step_time) < 1s", 0.168),  # 100 + 0.85 * 80
        ("max(step_time) < 1s", 0.18),
        ("min(step_time) < 1s", 0.1),
    ],
)
def test_functions_of_the_step_time(tmp_path: Path, text: str, value_ms: float) -> None:
    analysis = analysis_of(tmp_path, a=bare_job(100, 100, 100, 180))
    (judged,) = judged_hosts(analysis, stat="mean", skip_first=0, min_steps=3)
    measurement = measured(text, judged)
    assert measurement.value == pytest.approx(value_ms)
    statistic = text.partition("(")[0] if "(" in text else "mean"
    assert measurement.why == f"{statistic} of 4 of 4 train steps"


def test_input_that_the_trace_does_not_show_is_unknown(tmp_path: Path) -> None:
    measurement = measured("input_bound <= 99%", judged_host(tmp_path, cpu()))
    assert measurement.value is None
    assert "does not show where input comes from" in measurement.gap
    visible = judged_host(tmp_path / "2", cpu(*(event("IteratorGetNextOp::DoCompute", 100 * n, 40) for n in range(4))))
    assert measured("input_bound <= 99%", visible).value == pytest.approx(40.0)


# --- devices ---


def test_the_least_busy_device_counts(tmp_path: Path) -> None:
    """GPU 0 works 80 of 100 us in each step, GPU 1 works 50; GPU 2 recorded no work, so nothing is known of it."""
    planes = gpu(0, *((100.0 * number, 80) for number in range(4))), gpu(1, *((100.0 * n, 50) for n in range(4)))
    measurement = measured("device_busy >= 50%", judged_host(tmp_path, cpu(), *planes, gpu(2)))
    assert measurement.value == 50.0
    assert measurement.why == (
        "/device:GPU:1, the least busy of 2 devices, over 4 train steps; omitted: 1 of 3 that recorded no work"
    )


def test_a_device_that_works_outside_of_the_steps_is_not_busy(tmp_path: Path) -> None:
    """It took part in the capture, so that it does nothing in the steps is known."""
    planes = gpu(0, *((100.0 * number, 80) for number in range(4))), gpu(1, (500, 10))
    measurement = measured("device_busy >= 50%", judged_host(tmp_path, cpu(), *planes))
    assert measurement.value == 0.0
    assert measurement.why == "/device:GPU:1, the least busy of 2 devices, over 4 train steps"


def test_skipped_steps_do_not_count_for_devices_either(tmp_path: Path) -> None:
    """The device works 10 us in the first step and 90 in each of the others."""
    planes = cpu(), gpu(0, (0, 10), *((100.0 * number, 90) for number in range(1, 4)))
    assert measured("device_busy >= 1%", judged_host(tmp_path, *planes)).value == 70.0
    skipped = judged_host(tmp_path, *planes, skip_first=1)
    assert measured("device_busy >= 1%", skipped).value == 90.0
    assert measured("idle_devices.idle_percent < 20", skipped).value == pytest.approx(10.0)
    stale = measured("idle_devices.gaps < 20", skipped)
    assert (stale.value, stale.gap) == (None, "idle_devices.gaps also counts steps that are not judged")


def test_a_tpu_that_waits_for_data_is_not_busy(tmp_path: Path) -> None:
    """Of 800 ms, it computes for 80, and waits for copies in its ops for the rest."""
    analysis = tfperf.load(logdir_of(tmp_path, a=offload_tpu(Offload(own_clock="none", steps_line=True))))
    (judged,) = judged_hosts(analysis, stat="mean", skip_first=0, min_steps=3)
    measurement = measured("device_busy >= 90%", judged)
    assert measurement.value == pytest.approx(10)
    assert "it waits for data 90.0% of the step, which does not count" in measurement.why


@pytest.mark.parametrize("text", ["device_busy >= 0%", "kernel_launch <= 100%"])
def test_without_a_device_nothing_is_known_about_devices(tmp_path: Path, text: str) -> None:
    measurement = measured(text, judged_host(tmp_path, cpu()))
    assert measurement.value is None
    assert "no device recorded anything" in measurement.gap


def test_steps_of_tensorflow_are_not_windows_of_devices(tmp_path: Path) -> None:
    groups = [{"group_id": number} for number in range(4)]
    marks = [
        event("train", 100 * number, 100, step_num=number, step_name=str(number), **group)
        for number, group in enumerate(groups)
    ]
    kernels = [
        event("gemm", 100 * number + 20, 60, correlation_id=number + 1, **group) for number, group in enumerate(groups)
    ]
    derived = line(
        "Steps", *(event(str(number), 100 * number, 100, **group) for number, group in enumerate(groups)), id=STEPS_LINE
    )
    planes = host(*marks), plane("/device:GPU:0", derived, line("Stream #1", *kernels))
    judged = judged_host(tmp_path, *planes, attribution="tensorflow")
    measurement = measured("device_busy >= 1%", judged)
    assert (measurement.value, measurement.gap[-13:]) == (None, "use corrected")


# --- memory ---


def allocation(at_us: float, in_use: int, allocator: str, **more: Any) -> Event:
    stats = {
        "allocator_name": allocator,
        "bytes_reserved": 0,
        "bytes_allocated": in_use,
        "bytes_available": 1 << 30,
        "peak_bytes_in_use": in_use,
        "requested_bytes": 8,
        "allocation_bytes": 8,
        "addr": 64,
        **more,
    }
    return event("MemoryAllocation", at_us, 0, **stats)


def test_memory_of_devices_comes_before_that_of_the_host(tmp_path: Path) -> None:
    events = [allocation(5, 9000, "mklcpu"), allocation(6, 700, "GPU_0_bfc"), allocation(7, 800, "GPU_1_bfc")]
    measurement = measured("memory < 1kB", judged_host(tmp_path, cpu(*events), gpu(0, (0, 9))))
    assert (measurement.value, measurement.gap) == (800.0, "")
    assert measurement.why.startswith("in GPU_1_bfc; in the whole capture, at 0.007 ms")


def test_memory_of_the_host_says_nothing_about_a_device(tmp_path: Path) -> None:
    events = [allocation(5, 9000, "mklcpu")]
    assert measured("memory < 1MB", judged_host(tmp_path, cpu(*events))).value == 9000.0
    with_device = measured("memory < 1MB", judged_host(tmp_path / "2", cpu(*events), gpu(0, (0, 9))))
    assert (with_device.value, "of a device" in with_device.gap) == (None, True)
    nothing = measured("memory < 1MB", judged_host(tmp_path / "3", cpu()))
    assert (nothing.value, "no allocator recorded anything" in nothing.gap) == (None, True)


def test_memory_that_is_known_in_part_can_only_breach_a_limit(tmp_path: Path) -> None:
    malformed = event("MemoryAllocation", 9, 0, allocator_name="GPU_0_bfc", allocation_bytes=8)
    judged = judged_host(tmp_path, cpu(allocation(5, 700, "GPU_0_bfc"), malformed))
    measurement = measured("memory < 1MB", judged)
    assert measurement.value == 700.0
    assert measurement.gap.startswith("how much is in use is unknown at 1 event of allocators")
    assert measurement.status(read_limit("memory < 1MB")) == "unknown"
    assert measurement.status(read_limit("memory < 600B")) == "breach"
    assert measured("memory > 1B", judged).value is None


# --- retraces ---


def calls(*modes: tuple[str, str, int]) -> Plane:
    """Calls of functions: name, mode, and how often the function was traced since the program started."""
    return host(
        *(
            event(name, 10.0 * number, 5, tf_function_call=ref(f"{mode}-nonXla"), tracing_count=tracing_count)
            for number, (name, mode, tracing_count) in enumerate(modes)
        )
    )


@pytest.mark.parametrize(
    ("modes", "value"),
    [
        ([("f", "notTraced", 1)] * 3, 0),
        ([("f", "traced", 1), ("f", "notTraced", 1)], 0),  # the first tracing of all is not a retrace
        ([("f", "traced", 1), ("f", "traced", 2), ("f", "notTraced", 2)], 1),
        ([("f", "notTraced", 1), ("f", "traced", 2)], 1),  # it was traced before the capture
        ([("f", "traced", 7), ("f", "traced", 8)], 2),
        ([("f", "traced", 1)] * 3, 2),  # three functions of one name: created in a loop
        ([("f", "traced", 1), ("g", "traced", 1), ("g", "traced", 2)], 1),
        ([("f", "eager", 0), ("f", "concrete", 0)], 0),
    ],
)
def test_retraces_are_tracings_after_the_first(tmp_path: Path, modes: list[tuple[str, str, int]], value: float) -> None:
    judged = judged_host(tmp_path, calls(*modes))
    measurement = measured("retraces <= 0", judged)
    assert (measurement.value, measurement.gap) == (value, "")
    assert measurement.why == f"of {len(modes)} calls of tf.functions in the whole capture"
    assert sum(retraces_of(function) or 0 for function in judged.host["functions"].functions) == value


def test_retraces_of_a_function_without_a_tracing_count_are_unknown(tmp_path: Path) -> None:
    measurement = measured("retraces <= 0", judged_host(tmp_path, calls(("f", "traced", 0), ("g", "traced", 3))))
    assert measurement.value == 1.0  # that of g
    assert measurement.gap == "the profile does not show whether 1 traced function was traced before"
    without_calls = measured("retraces <= 0", judged_host(tmp_path / "2", cpu()))
    assert (without_calls.value, "no call of a tf.function" in without_calls.gap) == (None, True)


# --- skew ---


def test_skew_is_the_slowest_host_over_the_median(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(step_us=100), b=input_job(step_us=130), c=input_job(step_us=100))
    measurement = measure_skew(judged_hosts(analysis, stat="mean", skip_first=0, min_steps=3)[:-1])
    assert measurement.value == pytest.approx(30.0)
    assert measurement.host == "b"
    assert measurement.why == "its steps take 0.130 ms, the median of 3 hosts is 0.100 ms"


def test_skew_compares_hosts(tmp_path: Path) -> None:
    assert "only one host" in measure_skew([judged_host(tmp_path, cpu())]).gap


# --- columns of tables ---


def test_steps_without_pauses_have_none(tmp_path: Path) -> None:
    judged = judged_host(tmp_path, cpu())
    assert measured("count(pauses.after_step) <= 0", judged).value == 0.0
    assert measured("sum(pauses.duration_ms) < 1", judged).gap.startswith(
        "the table pauses has no rows; if that is fine"
    )


def test_without_steps_it_is_unknown_whether_there_are_pauses(tmp_path: Path) -> None:
    measurement = measured("count(pauses.after_step) <= 0", judged_host(tmp_path, host(event("x", 0, 5))))
    assert (measurement.value, "--min-steps" in measurement.gap) == (None, True)


def test_pauses_are_those_of_the_whole_capture(tmp_path: Path) -> None:
    starts_us = [0, 100, 200, 5000, 5100, 5200]
    marks = [event("train", start, 90, step_num=number) for number, start in enumerate(starts_us)]
    judged = judged_host(tmp_path, host(*marks), skip_first=1)
    measurement = measured("pauses.duration_ms < 1ms", judged)
    assert measurement.value == pytest.approx(4.71, abs=0.1)  # from 290 us to 5000 us
    assert measured("count(pauses.after_step) <= 0", judged).value == 1.0


def test_tables_over_steps_leave_out_skipped_ones(tmp_path: Path) -> None:
    """The first step takes 150 us, four others 100 us; each waits 40 us for input."""
    starts_us = [0.0, 150.0, 250.0, 350.0, 450.0]
    marks = [
        event("train", start, 150 if number == 0 else 100, step_num=number) for number, start in enumerate(starts_us)
    ]
    fetches = [event("IteratorGetNextOp::DoCompute", start, 40) for start in starts_us]
    judged = judged_host(tmp_path, host(*marks, *fetches), skip_first=1)
    assert measured("max(steps.step_time_ms) < 1", judged).value == pytest.approx(0.1)
    assert measured("count(input_steps.step) < 1", judged).value == 4.0
    assert measured("categories.percent[category=Input] < 1", judged).value == pytest.approx(40.0)
    assert measured("input_statistics.step_time_ms[statistic=Maximum] < 1", judged).value == pytest.approx(0.1)


def test_a_table_that_the_profile_lacks_is_unknown(tmp_path: Path) -> None:
    judged = judged_host(tmp_path, cpu())
    assert "this profile has no table kernels" in measured("kernels.total_us < 5", judged).gap
    assert "no table functions" in measured("count(functions.function) <= 0", judged).gap
    assert "only one host" in measured("steps_by_host.average_ms < 5", judged).gap


def test_ops_of_devices_and_hosts_are_one_table(tmp_path: Path) -> None:
    kernels = line("Stream #1", event("gemm", 0, 10, tf_op=ref("d/MatMul:MatMul")))
    judged = judged_host(tmp_path, cpu(event("e/Add:AddV2", 20, 10)), plane("/device:GPU:0", kernels))
    assert measured("count(ops.op_name) <= 0", judged).value == 2.0
    assert measured("ops.self_ms[side=device] < 1", judged).why == "op_name d/MatMul"
    assert measured("ops.self_ms[side=host] < 1", judged).why == "op_name e/Add"


# --- what the profile cannot show ---


def device_alone() -> Plane:
    """Five runs of a module on a GPU, with a kernel and a copy in each, and no host."""
    modules = line("XLA Modules", *(event("jit_f", 100 * n, 100) for n in range(5)), id=STEPS_LINE + 2)
    kernels = line("Stream #1", *(event("gemm", 100 * n, 60, correlation_id=n + 1) for n in range(5)), id=1)
    copies = line("Stream #2", *(event("MemcpyH2D", 100 * n + 60, 5, correlation_id=n + 9) for n in range(5)), id=2)
    return plane("/device:GPU:0", modules, kernels, copies)


@pytest.mark.parametrize(
    "text", ["input_bound <= 99%", "kernel_launch <= 99%", "all_others <= 99%", "max(steps.host_compute_ms) <= 1ms"]
)
def test_what_the_host_does_is_unknown_without_its_threads(tmp_path: Path, text: str) -> None:
    """Each would hold if what is not recorded were 0."""
    measurement = measured(text, judged_host(tmp_path, device_alone()))
    assert measurement.status(read_limit(text)) == "unknown"
    assert "no host thread recorded anything in this profile" in measurement.gap


def test_what_the_device_does_is_known_without_host_threads(tmp_path: Path) -> None:
    """What a step is, is a guess then, and said to be doubtful."""
    judged = judged_host(tmp_path, device_alone())
    assert measured("max(kernels.total_us) <= 1ms", judged).value == pytest.approx(300)
    for text, value in (("max(steps.device_compute_ms) <= 1ms", 0.06), ("step_time <= 1ms", 0.1)):
        assert "steps were found with low confidence: 5 runs of XLA module" in measured(text, judged).gap
        assert measured(text, replace(judged, allow_doubt=True)).value == pytest.approx(value)


def test_launches_of_a_tpu_are_unknown(tmp_path: Path) -> None:
    steps = line("Steps", *(event(str(n), 100 * n, 100) for n in range(5)), id=1)
    ops = line("XLA Ops", *(event("fusion", 100 * n, 60) for n in range(5)), id=2)
    judged = judged_host(tmp_path, plane("/device:TPU:0", steps, ops))
    assert "say nothing about the host" in measured("kernel_launch <= 99%", judged).gap
    assert measured("all_others <= 99%", judged).value == pytest.approx(40)


def test_columns_of_a_device_are_unknown_without_one(tmp_path: Path) -> None:
    """The rows hold 0, so that they add up; a limit would always hold."""
    judged = judged_host(tmp_path, cpu(*(event("IteratorGetNextOp::DoCompute", 100 * n, 10) for n in range(4))))
    measurement = measured("max(steps.device_compute_ms) <= 1ms", judged)
    assert (measurement.value, "no device recorded anything" in measurement.gap) == (None, True)
    assert measured("max(steps.input_ms) <= 1ms", judged).value == pytest.approx(0.01)


def test_input_of_steps_is_unknown_where_it_is_not_visible(tmp_path: Path) -> None:
    measurement = measured("max(steps.input_ms) <= 1ms", judged_host(tmp_path, cpu()))
    assert (measurement.value, "does not show where input comes from" in measurement.gap) == (None, True)
