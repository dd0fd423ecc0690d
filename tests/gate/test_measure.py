"""What a limit measures: columns of tables, in which cells may be unknown, and figures of one host."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from builders import STEPS_LINE, Event, Line, Plane, event, host, line, logdir_of, plane, ref, space
from tfperf.gate.counted import View, views_of
from tfperf.gate.measured import Measured, status_of
from tfperf.gate.tables import measure_rows, title_of

import tfperf
from tfperf.gate.limits import parse_limit
from tfperf.gate.measure import measure

KERNELS: dict[str, list[Any]] = {
    "kernel_name": ["ncclAllReduce", "ncclGather", "gemm", None],
    "kernel": ["ncclAllReduce", "ncclGather", "gemm", "copy"],
    "op_name": ["a", None, "b", "c"],
    "total_us": [300.0, 150.0, 900.0, 10.0],
    "mean_us": [30.0, None, math.nan, 10.0],
    "occurrences": [10, 5, 3, None],
    "is_kernel_using_tensor_core": [False, None, True, False],
}


def verdict(text: str, data: dict[str, list[Any]] = KERNELS) -> tuple[str, float | None]:
    limit = parse_limit(text)
    found = measure_rows(limit, data)
    return status_of(found, limit.relation, limit.bound), found.value


@pytest.mark.parametrize(
    ("text", "status", "value"),
    [
        ("kernels.total_us[name~nccl] <= 300", "pass", 300),
        ("kernels.total_us[name~nccl] < 300", "breach", 300),
        ("kernels.total_us[name!~nccl] < 300", "breach", 900),  # no name is empty text, which is not found either
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
    ],
)
def test_all_cells_known(text: str, status: str, value: float) -> None:
    assert verdict(text) == (status, value)


@pytest.mark.parametrize(
    ("text", "status", "value"),
    [
        # No row at all.
        ("kernels.total_us[name~xyz] < 5", "unknown", None),
        ("sum(kernels.total_us[name~xyz]) < 5", "unknown", None),
        # A cell that is not known: a known one that breaks the limit is enough.
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
        # A row of which it is not known whether it is meant.
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
def test_unknown_cells(text: str, status: str, value: float | None) -> None:
    assert verdict(text) == (status, value)


@pytest.mark.parametrize("absurd", [math.nan, math.inf, -math.inf, None, "text", True, 10**400])
def test_what_is_no_number_is_never_a_pass(absurd: object) -> None:
    for text in ("kernels.total_us < 9", "kernels.total_us > 9", "sum(kernels.total_us) < 9"):
        assert verdict(text, {**KERNELS, "total_us": [absurd] * 4}) == ("unknown", None)


@pytest.mark.parametrize("absurd", [math.nan, math.inf, -math.inf])
def test_a_figure_that_is_no_number_neither_holds_nor_breaks_a_limit(absurd: float) -> None:
    for relation in ("<", "<=", ">", ">="):
        assert status_of(Measured(absurd), parse_limit(f"input_bound {relation} 10%").relation, 10.0) == "unknown"


def test_the_worst_row_is_named() -> None:
    found = measure_rows(parse_limit("kernels.total_us[kernel~nccl] < 1"), KERNELS)
    assert found.why == "kernel_name ncclAllReduce, the worst of 2 rows"
    assert measure_rows(parse_limit("kernels.total_us[kernel=copy] < 1"), KERNELS).why == "row 4"
    long = {**KERNELS, "kernel_name": ["x" * 10_000] * 4}
    assert len(measure_rows(parse_limit("kernels.total_us < 1"), long).why) < 200


def test_what_is_missing_is_said() -> None:
    limit = parse_limit("sum(kernels.mean_us[occurrences>5]) < 99")
    assert measure_rows(limit, KERNELS).gap == "1 row does not tell whether they are meant"
    assert measure_rows(parse_limit("kernels.mean_us < 99"), KERNELS).gap == "2 rows do not tell kernels.mean_us"


def test_titles() -> None:
    assert title_of(parse_limit("sum( kernels.total_us [name ~ nccl] )<5")) == (
        "sum of kernels.total_us[kernel_name~nccl]"
    )
    assert title_of(parse_limit("kernels.total_us<5")) == "kernels.total_us"


# --- figures of one host ---


def cpu(*more: Event, steps: int = 4, lines: tuple[Line, ...] = ()) -> Plane:
    marks = [event("train", 100 * n, 100, step_num=n) for n in range(steps)]
    return plane("/host:CPU", line("python", *marks, *more), *lines)


def gpu(number: int, *busy: tuple[float, float]) -> Plane:
    stream = line("Stream #1(Compute)", *(event("gemm", begin, length) for begin, length in busy))
    return plane(f"/device:GPU:{number}", stream)


def view_of(tmp_path: Path, *planes: Plane, skip_first: int = 0, **options: Any) -> View:
    trace = tfperf.load(logdir_of(tmp_path, a=space(*planes)), **options)
    return views_of(trace, stat="mean", skip_first=skip_first, min_steps=3)[0]


def figure(text: str, view: View) -> Measured:
    return measure(parse_limit(text), view)


def test_the_least_busy_device_counts(tmp_path: Path) -> None:
    """GPU 0 works 80 of 100 us in each step, GPU 1 works 50, GPU 2 only before the first step's end of all."""
    view = view_of(
        tmp_path, cpu(), gpu(0, *((100.0 * n, 80) for n in range(4))), gpu(1, *((100.0 * n, 50) for n in range(4))),
        gpu(2, (500, 10)),
    )  # fmt: skip
    found = figure("device_busy >= 50%", view)
    assert found.value == 50.0
    assert found.why == (
        "/device:GPU:1, the least busy of 2 devices, over 4 train steps; 1 that did nothing in the steps are left out"
    )


def test_skipped_steps_do_not_count_for_devices_either(tmp_path: Path) -> None:
    """The device works 10 us in the first step and 90 in each of the others."""
    planes = cpu(), gpu(0, (0, 10), *((100.0 * n, 90) for n in range(1, 4)))
    assert figure("device_busy >= 1%", view_of(tmp_path, *planes)).value == 70.0
    skipped = view_of(tmp_path, *planes, skip_first=1)
    assert figure("device_busy >= 1%", skipped).value == 90.0
    assert figure("idle_devices.idle_percent < 20", skipped).value == pytest.approx(10.0)
    stale = figure("idle_devices.gaps < 20", skipped)
    assert (stale.value, stale.gap) == (
        None, "idle_devices.gaps counts steps too that are skipped or cut off, and cannot be told without",
    )  # fmt: skip


def test_without_a_device_nothing_is_known_of_it(tmp_path: Path) -> None:
    view = view_of(tmp_path, cpu())
    for text in ("device_busy >= 0%", "kernel_launch <= 100%"):
        found = figure(text, view)
        assert found.value is None
        assert "no device recorded anything" in found.gap


def test_steps_of_tensorflow_are_no_windows_of_devices(tmp_path: Path) -> None:
    groups = [{"group_id": n} for n in range(4)]
    marks = [event("train", 100 * n, 100, step_num=n, step_name=str(n), **groups[n]) for n in range(4)]
    kernels = [event("gemm", 100 * n + 20, 60, correlation_id=n + 1, **groups[n]) for n in range(4)]
    derived = line("Steps", *(event(str(n), 100 * n, 100, **groups[n]) for n in range(4)), id=STEPS_LINE)
    planes = host(*marks), plane("/device:GPU:0", derived, line("Stream #1", *kernels))
    found = figure("device_busy >= 1%", view_of(tmp_path, *planes, attribution="tensorflow"))
    assert (found.value, found.gap[-13:]) == (None, "use corrected")


def allocation(at: float, in_use: int, name: str, **stats: Any) -> Event:
    known = {
        "allocator_name": name, "bytes_reserved": 0, "bytes_allocated": in_use, "bytes_available": 1 << 30,
        "peak_bytes_in_use": in_use, "requested_bytes": 8, "allocation_bytes": 8, "addr": 64, **stats,
    }  # fmt: skip
    return event("MemoryAllocation", at, 0, **known)


def test_memory_is_that_of_devices_first(tmp_path: Path) -> None:
    events = [allocation(5, 9000, "mklcpu"), allocation(6, 700, "GPU_0_bfc"), allocation(7, 800, "GPU_1_bfc")]
    found = figure("memory < 1kB", view_of(tmp_path, cpu(*events), gpu(0, (0, 9))))
    assert (found.value, found.gap) == (800.0, "")
    assert found.why.startswith("in GPU_1_bfc; in the whole capture, at 0.007 ms")


def test_memory_of_the_host_says_nothing_about_a_device(tmp_path: Path) -> None:
    events = [allocation(5, 9000, "mklcpu")]
    assert figure("memory < 1MB", view_of(tmp_path, cpu(*events))).value == 9000.0
    with_device = figure("memory < 1MB", view_of(tmp_path / "2", cpu(*events), gpu(0, (0, 9))))
    assert (with_device.value, "of a device" in with_device.gap) == (None, True)
    nothing = figure("memory < 1MB", view_of(tmp_path / "3", cpu()))
    assert (nothing.value, "no allocator noted anything" in nothing.gap) == (None, True)


def test_memory_that_is_known_in_part_can_only_break_a_limit(tmp_path: Path) -> None:
    broken = event("MemoryAllocation", 9, 0, allocator_name="GPU_0_bfc", allocation_bytes=8)
    view = view_of(tmp_path, cpu(allocation(5, 700, "GPU_0_bfc"), broken))
    found = figure("memory < 1MB", view)
    assert found.value == 700.0
    assert "do not say how much is in use" in found.gap
    assert (status_of(found, "<", 1e6), status_of(found, "<", 600.0)) == ("unknown", "breach")
    assert figure("memory > 1B", view).value is None


def calls(*modes: tuple[str, str, int]) -> Plane:
    """Calls of functions: name, mode, and how often it was traced since the program began."""
    stats = [{"tf_function_call": ref(f"{mode}-nonXla"), "tracing_count": count} for _, mode, count in modes]
    return host(*(event(one[0], 10.0 * n, 5, **own) for n, (one, own) in enumerate(zip(modes, stats, strict=True))))


@pytest.mark.parametrize(
    ("made", "value"),
    [
        ([("f", "notTraced", 1)] * 3, 0),
        ([("f", "traced", 1), ("f", "notTraced", 1)], 0),  # the first tracing of all is none again
        ([("f", "traced", 1), ("f", "traced", 2), ("f", "notTraced", 2)], 1),
        ([("f", "notTraced", 1), ("f", "traced", 2)], 1),  # it was traced before the capture
        ([("f", "traced", 7), ("f", "traced", 8)], 2),
        ([("f", "traced", 1)] * 3, 2),  # three functions of one name: made in a loop
        ([("f", "traced", 1), ("g", "traced", 1), ("g", "traced", 2)], 1),
        ([("f", "eager", 0), ("f", "concrete", 0)], 0),
    ],
)
def test_retraces(tmp_path: Path, made: list[tuple[str, str, int]], value: float) -> None:
    found = figure("retraces <= 0", view_of(tmp_path, calls(*made)))
    assert (found.value, found.gap) == (value, "")
    assert found.why == f"of {len(made)} calls of tf.functions in the whole capture"


def test_retraces_that_cannot_be_told(tmp_path: Path) -> None:
    found = figure("retraces <= 0", view_of(tmp_path, calls(("f", "traced", 0), ("g", "traced", 3))))
    assert found.value == 1.0  # that of g
    assert found.gap == "of 1 traced functions the profile does not tell whether they were traced before"
    none = figure("retraces <= 0", view_of(tmp_path / "2", cpu()))
    assert (none.value, "no call of a tf.function" in none.gap) == (None, True)


def test_steps_without_pauses_have_none(tmp_path: Path) -> None:
    view = view_of(tmp_path, cpu())
    assert figure("count(pauses.after_step) <= 0", view).value == 0.0
    assert figure("sum(pauses.duration_ms) < 1", view).gap == "the table pauses has no rows"


def test_pauses_are_those_of_the_whole_capture(tmp_path: Path) -> None:
    begins = [0, 100, 200, 5000, 5100, 5200]
    marks = [event("train", begin, 90, step_num=n) for n, begin in enumerate(begins)]
    view = view_of(tmp_path, host(*marks), skip_first=1)
    found = figure("pauses.duration_ms < 1ms", view)
    assert found.value == pytest.approx(4.71, abs=0.1)  # from 290 us to 5000 us
    assert figure("count(pauses.after_step) <= 0", view).value == 1.0


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    view = view_of(tmp_path, cpu())
    assert "this profile has no table kernels" in figure("kernels.total_us < 5", view).gap
    assert "no table functions" in figure("count(functions.function) <= 0", view).gap
    assert "one host only" in figure("steps_by_host.average_ms < 5", view).gap


def test_both_sides_of_the_ops(tmp_path: Path) -> None:
    kernels = line("Stream #1", event("gemm", 0, 10, tf_op=ref("d/MatMul:MatMul")))
    view = view_of(tmp_path, cpu(event("e/Add:AddV2", 20, 10)), plane("/device:GPU:0", kernels))
    assert figure("count(ops.op_name) <= 0", view).value == 2.0
    assert figure("ops.self_ms[side=device] < 1", view).why == "op_name d/MatMul"
    assert figure("ops.self_ms[side=host] < 1", view).why == "op_name e/Add"
