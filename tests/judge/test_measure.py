"""What limits measure on one host: figures, and columns of tables over the steps that count."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from builders import STEPS_LINE, Event, Plane, event, host, line, plane, ref, space
from judge.example_jobs import (
    allocation,
    analysis_of,
    bare_job,
    device_alone,
    input_job,
    job_without_steps,
    only_host,
    steps,
    two_kinds_job,
)
from msgspec.structs import replace
from synthetic_tpu import Offload, offload_tpu

from tfperf.judge.grammar import limit_tables, read_limit
from tfperf.judge.limits import FIGURES, REGRESSION, Metric
from tfperf.judge.measure import (
    RESTS_ON,
    JudgedHost,
    Measurement,
    is_over_steps,
    judged_hosts,
    measure,
    measure_rows,
    metric_title,
    parts_of,
    retraces_of,
)
from tfperf.report.model import Data, Status
from tfperf.trace.flaw import EVERYTHING, TIMES, Flaw
from tfperf.trace.steps.steps import no_steps


def cpu(*more: Event, count: int = 4) -> Plane:
    """A host with steps of 100 us."""
    return host(*steps(count=count), *more)


def gpu(number: int, *busy_us: tuple[float, float]) -> Plane:
    """A device with kernels: start and duration of each."""
    stream = line("Stream #1(Compute)", *(event("gemm", start, duration) for start, duration in busy_us))
    return plane(f"/device:GPU:{number}", stream)


def judged_host(tmp_path: Path, *planes: Plane, **options: Any) -> JudgedHost:
    return only_host(tmp_path, space(*planes), **options)


def measured(text: str, judged: JudgedHost) -> Measurement:
    return measure(read_limit(text), judged)


def test_with_too_few_steps_nothing_about_them_is_measured(tmp_path: Path) -> None:
    judged = judged_host(tmp_path, cpu(count=2))
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
    measurement = measured(text, only_host(tmp_path, bare_job(100, 100, 100, 180)))
    assert measurement.value == pytest.approx(value_ms)
    statistic = text.partition("(")[0] if "(" in text else "mean"
    assert measurement.why == f"{statistic} of 4 of 4 training steps"


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("input_bound <= 99%", "does not show the source of the input"),
        ("max(steps.input_ms) <= 1ms", "does not show the source of the input"),
        ("input_cost <= 99%", "does not show the source of the input"),
        ("device_busy >= 0%", "has no device events"),
        ("kernel_launch <= 100%", "has no device events"),
        # The rows hold 0, so that they add up; a limit would always pass.
        ("max(steps.device_compute_ms) <= 1ms", "has no device events"),
        ("memory < 1MB", "no allocator events"),
        ("retraces <= 0", "no tf.function calls"),
        ("sum(pauses.duration_ms) < 1", "the table pauses has no rows; to accept that"),
        ("kernels.total_us < 5", "this profile has no table kernels"),
        ("count(functions.function) <= 0", "this profile has no table functions"),
        ("steps_by_host.average_ms < 5", "single-host profile"),
    ],
)
def test_steps_alone_leave_all_else_unknown(tmp_path: Path, text: str, gap: str) -> None:
    measurement = measured(text, judged_host(tmp_path, cpu()))
    assert measurement.value is None
    assert gap in measurement.gap


def test_fetches_show_the_input(tmp_path: Path) -> None:
    judged = judged_host(tmp_path, cpu(*(event("IteratorGetNextOp::DoCompute", 100 * n, 40) for n in range(4))))
    assert measured("input_bound <= 99%", judged).value == pytest.approx(40.0)
    assert measured("max(steps.input_ms) <= 1ms", judged).value == pytest.approx(0.04)


def test_the_least_busy_device_counts(tmp_path: Path) -> None:
    """GPU 0 works 80 of 100 us in each step, GPU 1 works 50; GPU 2 recorded no work, so nothing is known of it."""
    planes = gpu(0, *((100.0 * number, 80) for number in range(4))), gpu(1, *((100.0 * n, 50) for n in range(4)))
    measurement = measured("device_busy >= 50%", judged_host(tmp_path, cpu(), *planes, gpu(2)))
    assert measurement.value == 50.0
    assert measurement.why.startswith("GPU:1, the least busy of 2 devices, over 4 training steps")
    assert "omitted: 1 of 3 devices" in measurement.why


def test_a_device_that_works_outside_of_the_steps_is_not_busy(tmp_path: Path) -> None:
    """It took part in the capture, so that it does nothing in the steps is known."""
    planes = gpu(0, *((100.0 * number, 80) for number in range(4))), gpu(1, (500, 10))
    measurement = measured("device_busy >= 50%", judged_host(tmp_path, cpu(), *planes))
    assert measurement.value == 0.0
    assert measurement.why == "GPU:1, the least busy of 2 devices, over 4 training steps"


def test_skipped_steps_do_not_count_for_devices_either(tmp_path: Path) -> None:
    """The device works 10 us in the first step and 90 in each of the others."""
    planes = cpu(), gpu(0, (0, 10), *((100.0 * number, 90) for number in range(1, 4)))
    assert measured("device_busy >= 1%", judged_host(tmp_path, *planes)).value == 70.0
    skipped = judged_host(tmp_path, *planes, skip_first=1)
    assert measured("device_busy >= 1%", skipped).value == 90.0
    assert measured("idle_devices.idle_percent < 20", skipped).value == pytest.approx(10.0)
    stale = measured("idle_devices.gaps < 20", skipped)
    assert (stale.value, stale.gap) == (None, "idle_devices.gaps also includes steps that are not checked")


def test_a_tpu_that_waits_for_data_is_not_busy(tmp_path: Path) -> None:
    """Of 800 ms, it computes for 80, and waits for copies in its ops for the rest."""
    judged = only_host(tmp_path, offload_tpu(Offload(own_clock="none", steps_line=True)))
    measurement = measured("device_busy >= 90%", judged)
    assert measurement.value == pytest.approx(10)
    assert "excludes 90.0% of the step in which it waits for data" in measurement.why


def test_steps_of_tensorflow_are_not_windows_of_devices(tmp_path: Path) -> None:
    steps = [event("train", 100 * n, 100, step_num=n, step_name=str(n), group_id=n) for n in range(4)]
    kernels = [event("gemm", 100 * n + 20, 60, correlation_id=n + 1, group_id=n) for n in range(4)]
    derived = line("Steps", *(event(str(n), 100 * n, 100, group_id=n) for n in range(4)), id=STEPS_LINE)
    planes = host(*steps), plane("/device:GPU:0", derived, line("Stream #1", *kernels))
    judged = judged_host(tmp_path, *planes, attribution="tensorflow")
    measurement = measured("device_busy >= 1%", judged)
    assert (measurement.value, measurement.gap[-13:]) == (None, "use corrected")


def test_memory_of_devices_comes_before_that_of_the_host(tmp_path: Path) -> None:
    events = [allocation(5, 9000, "mklcpu"), allocation(6, 700, "GPU_0_bfc"), allocation(7, 800, "GPU_1_bfc")]
    measurement = measured("memory < 1kB", judged_host(tmp_path, cpu(*events), gpu(0, (0, 9))))
    assert (measurement.value, measurement.gap) == (800.0, "")
    assert measurement.why.startswith("in GPU_1_bfc; in the whole capture, at 0.007 ms")


def test_memory_of_the_host_says_nothing_about_a_device(tmp_path: Path) -> None:
    events = [allocation(5, 9000, "mklcpu")]
    assert measured("memory < 1MB", judged_host(tmp_path, cpu(*events))).value == 9000.0
    with_device = measured("memory < 1MB", judged_host(tmp_path / "2", cpu(*events), gpu(0, (0, 9))))
    assert (with_device.value, "no device allocator events" in with_device.gap) == (None, True)


def test_memory_that_is_known_in_part_can_only_breach_a_limit(tmp_path: Path) -> None:
    malformed = event("MemoryAllocation", 9, 0, allocator_name="GPU_0_bfc", allocation_bytes=8)
    judged = judged_host(tmp_path, cpu(allocation(5, 700, "GPU_0_bfc"), malformed))
    measurement = measured("memory < 1MB", judged)
    assert measurement.value == 700.0
    assert measurement.gap.startswith("the bytes in use are unknown at 1 allocator event")
    assert measurement.status(read_limit("memory < 1MB")) == "unknown"
    assert measurement.status(read_limit("memory < 600B")) == "breach"
    assert measured("memory > 1B", judged).value is None


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
    assert measurement.why == f"of {len(modes)} tf.function calls in the whole capture"
    assert sum(retraces_of(function) or 0 for function in judged.host["functions"].functions) == value


def test_retraces_of_a_function_without_a_tracing_count_are_unknown(tmp_path: Path) -> None:
    measurement = measured("retraces <= 0", judged_host(tmp_path, calls(("f", "traced", 0), ("g", "traced", 3))))
    assert measurement.value == 1.0  # that of g
    assert measurement.gap == "the profile does not show whether 1 traced function was traced before"


def test_steps_without_pauses_have_none(tmp_path: Path) -> None:
    limit = "count(pauses.after_step) <= 0"
    assert measured(limit, judged_host(tmp_path, cpu())).value == 0.0
    without_steps = measured(limit, judged_host(tmp_path / "2", host(event("x", 0, 5))))
    assert (without_steps.value, "--min-steps" in without_steps.gap) == (None, True)


def test_pauses_are_those_of_the_whole_capture(tmp_path: Path) -> None:
    steps = [event("train", start, 90, step_num=n) for n, start in enumerate((0, 100, 200, 5000, 5100, 5200))]
    judged = judged_host(tmp_path, host(*steps), skip_first=1)
    measurement = measured("pauses.duration_ms < 1ms", judged)
    assert measurement.value == pytest.approx(4.71, abs=0.1)  # from 290 us to 5000 us
    assert measured("count(pauses.after_step) <= 0", judged).value == 1.0


def test_tables_over_steps_leave_out_skipped_ones(tmp_path: Path) -> None:
    """The first step takes 150 us, four others 100 us; each waits 40 us for input."""
    starts_us = (0, 150, 250, 350, 450)
    steps = [event("train", start, 100 if start else 150, step_num=n) for n, start in enumerate(starts_us)]
    fetches = [event("IteratorGetNextOp::DoCompute", start, 40) for start in starts_us]
    judged = judged_host(tmp_path, host(*steps, *fetches), skip_first=1)
    assert measured("max(steps.step_time_ms) < 1", judged).value == pytest.approx(0.1)
    assert measured("count(input_steps.step) < 1", judged).value == 4.0
    assert measured("categories.percent[category=Input] < 1", judged).value == pytest.approx(40.0)
    assert measured("input_statistics.step_time_ms[statistic=Maximum] < 1", judged).value == pytest.approx(0.1)


def test_ops_of_devices_and_hosts_are_one_table(tmp_path: Path) -> None:
    kernels = line("Stream #1", event("gemm", 0, 10, tf_op=ref("d/MatMul:MatMul")))
    judged = judged_host(tmp_path, cpu(event("e/Add:AddV2", 20, 10)), plane("/device:GPU:0", kernels))
    assert measured("count(ops.op_name) <= 0", judged).value == 2.0
    assert measured("ops.self_ms[side=device] < 1", judged).why == "op_name d/MatMul"
    assert measured("ops.self_ms[side=host] < 1", judged).why == "op_name e/Add"


@pytest.mark.parametrize(
    "text", ["input_bound <= 99%", "kernel_launch <= 99%", "all_others <= 99%", "max(steps.host_compute_ms) <= 1ms"]
)
def test_what_the_host_does_is_unknown_without_its_threads(tmp_path: Path, text: str) -> None:
    """Each would hold if what is not recorded were 0."""
    measurement = measured(text, judged_host(tmp_path, device_alone()))
    assert measurement.status(read_limit(text)) == "unknown"
    assert "has no events of host threads" in measurement.gap


def test_what_the_device_does_is_known_without_host_threads(tmp_path: Path) -> None:
    """What a step is, is a guess then, and said to be doubtful."""
    judged = judged_host(tmp_path, device_alone())
    assert measured("max(kernels.total_us) <= 1ms", judged).value == pytest.approx(300)
    for text, value in (("max(steps.device_compute_ms) <= 1ms", 0.06), ("step_time <= 1ms", 0.1)):
        assert "step detection has low confidence: 5 runs of XLA module" in measured(text, judged).gap
        assert measured(text, replace(judged, allow_doubt=True)).value == pytest.approx(value)


def test_launches_of_a_tpu_are_unknown(tmp_path: Path) -> None:
    steps = line("Steps", *(event(str(n), 100 * n, 100) for n in range(5)), id=1)
    ops = line("XLA Ops", *(event("fusion", 100 * n, 60) for n in range(5)), id=2)
    judged = judged_host(tmp_path, plane("/device:TPU:0", steps, ops))
    assert "do not show host activity" in measured("kernel_launch <= 99%", judged).gap
    assert measured("all_others <= 99%", judged).value == pytest.approx(40)


def test_each_host_is_judged_alone_and_all_together_for_what_is_over_hosts(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=input_job(10), b=input_job(30))
    *alone, together = judged_hosts(analysis, stat="mean", skip_first=1, min_steps=3)
    assert [(judged.name, len(judged.results.hosts)) for judged in alone] == [("a", 1), ("b", 1)]
    assert (together.name, len(together.results.hosts)) == ("", 2)
    assert [judged.summary.averaged_count for judged in alone] == [4, 4]
    assert [judged.recorded_steps for judged in alone] == [5, 5]
    assert all(judged.results.is_narrowed for judged in (*alone, together))
    assert not together.results.is_other_kind


def test_steps_of_another_kind_are_told_apart(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, a=two_kinds_job())
    for kind, is_other in (("", False), ("train", False), ("eval", True)):
        (judged,) = judged_hosts(analysis, stat="mean", skip_first=0, min_steps=3, kind=kind)
        assert (judged.results.is_narrowed, judged.results.is_other_kind) == (is_other, is_other)


def test_a_host_without_steps_says_why_there_are_none(tmp_path: Path) -> None:
    skipped = only_host(tmp_path, bare_job(100), skip_first=1)
    assert skipped.too_few_steps.startswith("0 whole steps count (of 1 recorded)"), "steps of no kind"
    judged = only_host(tmp_path / "2", job_without_steps())
    assert (why := judged.breakdown.steps.explanation)
    assert judged.too_few_steps == f"0 whole steps count ({why}), but --min-steps is 3: profile longer"


def test_findings_about_devices_need_a_device(tmp_path: Path) -> None:
    assert only_host(tmp_path, bare_job(*[100] * 4)).findings("idle") == ()
    device = gpu(0, *((100.0 * number, 10) for number in range(4)))
    assert judged_host(tmp_path / "2", cpu(), device).findings("idle")


MARKED = replace(no_steps(""), source="markers")
FOUND = replace(no_steps(""), source="tf.function calls")


@pytest.mark.parametrize(
    ("limit", "of_marked", "of_found"),
    [
        ("step_time < 1s", {"steps"}, TIMES),
        ("skew < 1%", {"steps"}, TIMES),
        ("input_bound < 1%", TIMES, TIMES),
        ("device_busy > 1%", {"steps", "device"}, TIMES),
        ("retraces < 1", {"calls"}, {"calls"}),
        ("memory < 1GB", {"memory"}, {"memory"}),
        ("cause[compilation] <= 0", TIMES, TIMES),
        ("cause[memory_pressure] <= 0", EVERYTHING, EVERYTHING),
        ("sum(kernels.total_us) < 1s", {"device"}, {"device"}),
        ("max(idle_devices.idle_percent) < 5", {"steps", "device"}, TIMES),
        ("max(tfdata_stages.p95_ms) < 5", {"input"}, {"input"}),
        ("max(steps.step_time_ms) < 5", EVERYTHING, EVERYTHING),
    ],
)
def test_parts_of_a_metric(limit: str, of_marked: object, of_found: object) -> None:
    metric = read_limit(limit).metric
    assert (parts_of(metric, [MARKED]), parts_of(metric, [FOUND])) == (of_marked, of_found)
    assert parts_of(metric, [MARKED, FOUND]) == of_found, "what any host rests on"


def test_a_step_time_rests_on_what_the_steps_end_by() -> None:
    assert is_over_steps(Metric(REGRESSION))
    assert parts_of(Metric(REGRESSION), [MARKED]) == {"steps"}
    metric = Metric("step_time")
    assert parts_of(metric, [replace(MARKED, end_known=False)]) == TIMES
    assert parts_of(metric, [replace(MARKED, source="device steps")]) == {"steps", "device"}


def test_what_is_declared_exists_and_every_figure_is() -> None:
    assert RESTS_ON.keys() <= {*FIGURES, *limit_tables(), REGRESSION}
    assert FIGURES.keys() <= RESTS_ON.keys()


# --- a column of a table as one number ---


KERNELS: Data = {
    "kernel_name": ["ncclAllReduce", "ncclGather", "gemm", None],
    "kernel": ["ncclAllReduce", "ncclGather", "gemm", "copy"],
    "op_name": ["a", None, "b", "c"],
    "total_us": [300.0, 150.0, 900.0, 10.0],
    "mean_us": [30.0, None, math.nan, 10.0],
    "occurrences": [10, 5, 3, None],
    "is_kernel_using_tensor_core": [False, None, True, False],
}


def measured_in(text: str, data: Data = KERNELS) -> Measurement:
    return measure_rows(read_limit(text), data)


def judged_in(text: str, data: Data = KERNELS) -> tuple[Status, float | None]:
    measurement = measured_in(text, data)
    return measurement.status(read_limit(text)), measurement.value


@pytest.mark.parametrize(
    ("text", "status", "value"),
    [
        ("kernels.total_us[name~nccl] <= 300", "pass", 300),
        ("kernels.total_us[name~nccl] < 300", "breach", 300),
        ("kernels.total_us[name!~nccl] < 300", "breach", 900),  # an unknown name is empty text, without nccl
        ("kernels.total_us[name~nccl] >= 150", "pass", 150),
        ("kernels.total_us[name~nccl] > 150", "breach", 150),
        ("kernels.total_us[name=gemm] < 1ms", "pass", 900),
        ("kernels.total_us[op_name=''] < 1ms", "pass", 150),
        ("sum(kernels.total_us[name~nccl]) <= 450us", "pass", 450),
        ("sum(kernels.total_us[name~'(?i)NCCL',kernel!=ncclGather]) <= 450us", "pass", 300),
        ("max(kernels.total_us) <= 450us", "breach", 900),
        ("min(kernels.total_us) >= 10us", "pass", 10),
        ("min(kernels.total_us) <= 9us", "breach", 10),
        ("mean(kernels.total_us[name~nccl]) < 225", "breach", 225),
        ("median(kernels.total_us[name~nccl]) <= 225", "pass", 225),
        ("p95(kernels.total_us[name~nccl]) < 292.5", "breach", 292.5),  # 150 + 0.95 * 150
        ("count(kernels.kernel[name~nccl]) <= 1", "breach", 2),
        ("count(kernels.kernel[name~xyz]) <= 0", "pass", 0),
        ("count(kernels.kernel[occurrences>=5,total_us>100]) <= 2", "pass", 2),  # the row without a count: 10 us
        # No row matches the conditions.
        ("kernels.total_us[name~xyz] < 5", "unknown", None),
        ("sum(kernels.total_us[name~xyz]) < 5", "unknown", None),
        # A cell is unknown: a known one that breaches the limit is enough.
        ("kernels.mean_us < 20", "breach", 30),
        ("kernels.mean_us < 99", "unknown", 30),
        ("kernels.mean_us[kernel=copy] < 99", "pass", 10),
        ("kernels.mean_us[kernel=gemm] < 99", "unknown", None),
        ("max(kernels.mean_us) < 20", "breach", 30),
        ("max(kernels.mean_us) < 99", "unknown", 30),
        ("sum(kernels.mean_us) < 39", "breach", 40),
        ("sum(kernels.mean_us) < 99", "unknown", 40),
        ("sum(kernels.mean_us) > 99", "unknown", None),
        ("mean(kernels.mean_us) < 5", "unknown", None),
        ("min(kernels.mean_us) < 5", "unknown", None),
        ("max(kernels.mean_us) > 99", "unknown", None),
        # It is unknown whether a row meets the conditions.
        ("kernels.total_us[is_kernel_using_tensor_core=false] < 200", "breach", 300),
        ("kernels.total_us[is_kernel_using_tensor_core=false,kernel=copy] < 200", "pass", 10),
        ("kernels.total_us[is_kernel_using_tensor_core!=true] < 400", "pass", 300),  # 150 us hold it as well
        ("kernels.total_us[is_kernel_using_tensor_core=true] < 100", "breach", 900),
        ("kernels.total_us[is_kernel_using_tensor_core=true] > 200", "unknown", 900),
        ("sum(kernels.total_us[is_kernel_using_tensor_core=false]) < 400", "unknown", 310),
        ("sum(kernels.total_us[is_kernel_using_tensor_core=false]) < 310", "breach", 310),
        ("count(kernels.kernel[occurrences>=5]) <= 1", "breach", 2),
        ("count(kernels.kernel[occurrences>=5]) <= 2", "unknown", 2),
        ("count(kernels.kernel[occurrences>=5]) >= 2", "unknown", None),
        ("count(kernels.kernel[occurrences>=5]) >= 3", "unknown", None),
    ],
)
def test_a_column_is_one_number(text: str, status: Status, value: float | None) -> None:
    assert judged_in(text) == (status, value)


@pytest.mark.parametrize("cell", [math.nan, math.inf, -math.inf, None, "text", True, 10**400])
def test_cells_that_are_not_numbers_are_unknown(cell: object) -> None:
    for text in ("kernels.total_us < 9", "kernels.total_us > 9", "sum(kernels.total_us) < 9"):
        assert judged_in(text, {**KERNELS, "total_us": [cell] * 4}) == ("unknown", None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kernels.total_us[kernel~nccl] < 1", "kernel_name ncclAllReduce, the worst of 2 rows"),
        ("kernels.total_us[kernel=copy] < 1", "row 4"),
        ("sum(kernels.total_us[kernel~nccl]) < 1", "over 2 rows"),
        ("sum(kernels.total_us[kernel=gemm]) < 1", "over 1 row"),
        ("count(kernels.kernel[kernel~nccl]) <= 1", "of 4 rows"),
    ],
)
def test_the_worst_row_or_the_number_of_rows_is_said(text: str, why: str) -> None:
    assert measured_in(text).why == why


def test_the_worst_row_has_a_short_name_and_its_host() -> None:
    long_names = {**KERNELS, "kernel_name": ["x" * 10_000] * 4}
    assert len(measured_in("kernels.total_us < 1", long_names).why) < 200
    by_host: Data = {"host": ["a", "b"], "average_ms": [1.0, 2.0]}
    assert measured_in("steps_by_host.average_ms < 1", by_host).host == "b"
    assert measured_in("kernels.total_us < 1").host == ""


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("kernels.mean_us < 99", "kernels.mean_us is unknown in 2 rows"),
        ("sum(kernels.mean_us[occurrences>5]) < 99", "it is unknown whether 1 row matches the conditions"),
        ("sum(kernels.mean_us[occurrences>3]) < 99", "kernels.mean_us is unknown in 1 row; it is unknown"),
        ("count(kernels.kernel[occurrences>=5]) <= 2", "it is unknown whether 1 row matches the conditions"),
        ("kernels.total_us[name~xyz] < 5", "no such kernel ran; to accept that, append `or none` to the limit"),
    ],
)
def test_what_is_unknown_is_reported(text: str, gap: str) -> None:
    assert measured_in(text).gap.startswith(gap)


def test_a_table_without_rows_has_only_a_count() -> None:
    empty: Data = {key: [] for key in KERNELS}
    assert judged_in("count(kernels.kernel) <= 0", empty) == ("pass", 0)
    assert measured_in("kernels.total_us < 5", empty).gap.startswith("no kernel ran; to accept that")


@pytest.mark.parametrize("function", ["", "sum", "max", "min", "mean"])
@pytest.mark.parametrize("relation", ["<", ">="])
def test_a_limit_may_hold_where_no_row_is_chosen(function: str, relation: str) -> None:
    def judge(condition: str, column: str = "total_us") -> tuple[Status, float | None]:
        text = f"kernels.{column}[{condition}]"
        return judged_in(f"{function}({text}) {relation} 5 or none" if function else f"{text} {relation} 5 or none")

    assert judge("name~xyz") == ("pass", None)
    assert judge("name~nccl")[0] == ("breach" if relation == "<" else "pass")
    # That it is unknown whether a row is chosen, or what a row holds, is not that there is none.
    assert judge("name~xyz,occurrences>5") == ("pass", None)
    assert judge("kernel=copy,occurrences>5") == ("unknown", None)
    assert judge("kernel=gemm", "mean_us") == ("unknown", None)


def test_titles_are_the_metric_in_words() -> None:
    assert metric_title(read_limit("sum( kernels.total_us [name ~ nccl] )<5")) == (
        "sum of kernels.total_us[kernel_name~nccl]"
    )
    assert metric_title(read_limit("kernels.total_us<5")) == "kernels.total_us"
