"""Clocks of TPU chips: times by the counter of each, and how they go beside the clock of the host."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Event, Plane, event, line, plane, trace_of, u64
from places import SHARED

from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host

A = SHARED / "traces" / "tpu_v6e"
REAL = pytest.mark.skipif(not A.exists(), reason="the real profile is not beside the repository")
US = 1_000_000


def on_chip(name: str, start: float, duration: float, /, at: float, lasts: float, **stats: Any) -> Event:
    """An event that the file has at `start` for `duration`, and the chip `at` its own time; all in microseconds."""
    own = {"device_offset_ps": u64(round(at * US)), "device_duration_ps": u64(round(lasts * US))}
    return event(name, start, duration, **own, **stats)


def chip(*ops: Event, runs: Iterable[Event] = (), number: int = 0) -> Plane:
    return plane(f"/device:TPU:{number}", line("XLA Modules", *runs, id=2), line("XLA Ops", *ops, id=3))


def of_line(trace: HostTrace, name: str) -> list[tuple[str, float, float]]:
    """Return name, start and duration (us) of what is on a line of a chip."""
    (found,) = (each for each in trace.lines if each.name == name)
    rows = slice(found.start, found.stop)
    names = [trace.names[name] for name in trace.name[rows].tolist()]
    starts, durations = (column[rows] / US for column in (trace.start_ps, trace.duration_ps))
    return list(zip(names, starts.tolist(), durations.tolist(), strict=True))


def test_times_are_those_of_the_chip(tmp_path: Path) -> None:
    """The file's clock jumps by 5 ms at the second op and stands still then: it squeezes the third to nothing."""
    ops = [
        on_chip("%a", 1000, 2000, 1000, 2000),
        on_chip("%b", 8000, 1000, 3000, 3000),
        on_chip("%c", 9000, 0, 6000, 1000),
        on_chip("%d", 9000, 500, 7000, 2500),
        *(on_chip("%a", at, 10, at, 10) for at in range(10_000, 10_100, 20)),
    ]
    trace = trace_of(tmp_path, chip(*ops, runs=[event("jit_f(7)", 990, 8510)]))
    assert of_line(trace, "XLA Ops")[:4] == [
        ("%a", 1000, 2000),
        ("%b", 3000, 3000),
        ("%c", 6000, 1000),
        ("%d", 7000, 2500),
    ]
    assert of_line(trace, "XLA Modules") == [("jit_f(7)", 990, 8510)]
    clock = trace.device_clocks[0]
    assert (clock.jumps, clock.largest_jump_ps, clock.drift_ppm) == (1, 5000 * US, 0.0)


def test_a_run_keeps_what_is_before_its_first_op_and_behind_its_last(tmp_path: Path) -> None:
    """A barrier of 400 us stands before the op, whose time in the file is 3 ms late."""
    ops = [on_chip("%early", 0, 10, 0, 10), on_chip("%late", 10, 10, 10, 10), on_chip("%sum", 8400, 100, 5400, 100)]
    ops += [on_chip("%late", at, 10, at, 10) for at in (9000, 9020, 9040)]
    trace = trace_of(tmp_path, chip(*ops, runs=[event("jit_psum(7)", 8000, 503)]))
    assert of_line(trace, "XLA Modules") == [("jit_psum(7)", 5000, 503)]


def test_what_moves_with_no_op_moves_with_the_line(tmp_path: Path) -> None:
    """The host's clock gains 100 millionths on the chip's."""
    ops = [on_chip("%a", at * 1.0001, 10, at, 10) for at in range(0, 200_000, 10_000)]
    trace = trace_of(tmp_path, chip(*ops, runs=[event("jit_convert(7)", 105_010.5, 1)]))
    clock = trace.device_clocks[0]
    assert clock.drift_ppm == pytest.approx(100, abs=0.01)
    assert clock.jumps == 0
    ((_, start, lasts),) = of_line(trace, "XLA Modules")
    assert start == pytest.approx(105_000, abs=0.01)
    assert lasts == 1
    assert trace.on_host_clock(0, np.array([100_000 * US])).tolist() == pytest.approx([100_010 * US], abs=10_000)


@pytest.mark.parametrize(
    ("enqueued", "completed", "shift"),
    [
        (130, 400, 30),
        (90, 400, 0),
        (50, 160, -40),
        (130, 210, 20),
        (5000, 210, 0),
        (130, None, 30),
        (None, None, 0),
        (2e7, None, 0),
    ],
)
def test_one_shift_puts_no_run_before_its_cause(
    tmp_path: Path, enqueued: float | None, completed: float | None, shift: float
) -> None:
    """The run is at 100 to 200 us by the converted clock; the other chip has the same number of a run.

    Bounds that contradict each other by 20 us are met in the middle, and those that do by milliseconds are no bounds,
    like one of 20 s.
    """
    run = on_chip("jit_f(7)", 100, 100, 100, 100, run_id=u64(4))
    op = on_chip("%a", 110, 80, 110, 80)
    host = [event("DoEnqueueProgram", 9000, 1, run_id=4, device_ordinal=1), event("Execute", 9500, 1, run_id=4)]
    if enqueued is not None:
        host.append(event("DoEnqueueProgram", enqueued, 1, run_id=4, device_ordinal=0))
    if completed is not None:
        host.append(event("CompleteCallbacks", completed, 1, run_id=4, device_ordinal=0))
    trace = trace_of(tmp_path, chip(op, runs=[run]), plane("/host:CPU", line("python", *host)))
    clock = trace.device_clocks[trace.devices[0]]
    assert clock.shift_ps == shift * US
    assert clock.shift_bounds_ps == (
        None if enqueued is None else (enqueued - 100) * US,
        None if completed is None else (completed - 200) * US,
    )
    assert of_line(trace, "XLA Modules") == [("jit_f(7)", 100 + shift, 100)]
    assert of_line(trace, "XLA Ops") == [("%a", 110 + shift, 80)]


@pytest.mark.parametrize("seed", range(8))
def test_the_line_is_found_though_most_times_have_jumped(tmp_path: Path, seed: int) -> None:
    """Of 20 stretches, 12 are off by 2 to 200 ms, each by another time; the host's clock goes 20 millionths slower."""
    random = np.random.default_rng(seed)
    away = np.zeros(20)
    away[random.permutation(20)[:12]] = random.uniform(2_000, 200_000, 12)
    at = np.arange(0, 20_000_000, 100_000)
    converted = 1_500 + at * (1 - 2e-5) + np.repeat(away, 10)
    times = zip(converted.tolist(), at.tolist(), strict=True)
    trace = trace_of(tmp_path, chip(*(on_chip("%a", file_us, 7, own, 6) for file_us, own in times)))
    clock = trace.device_clocks[0]
    assert clock.drift_ppm == pytest.approx(-20, abs=0.01)
    starts, lasts = zip(*(times for _, *times in of_line(trace, "XLA Ops")), strict=True)
    np.testing.assert_allclose(starts, 1_500 + at, atol=0.01)
    assert set(lasts) == {6}
    host = trace.on_host_clock(0, trace.start_ps) / US
    np.testing.assert_allclose(host, 1_500 + at * (1 - 2e-5), atol=0.01)
    np.testing.assert_array_equal(trace.on_device_clock(0, trace.on_host_clock(0, trace.start_ps)), trace.start_ps)


def test_a_time_that_no_capture_has_is_none(tmp_path: Path) -> None:
    """The first op has an impossible start by the chip, the second one no duration: both move with the others."""
    ops = [
        event("%a", 110, 5, device_offset_ps=u64((1 << 64) - 1), device_duration_ps=u64(5 * US)),
        event("%b", 120, 5, device_offset_ps=u64(20 * US)),
        *(on_chip("%c", at, 5, at - 100, 4) for at in (130, 140, 150)),
    ]
    assert of_line(trace_of(tmp_path, chip(*ops)), "XLA Ops") == [
        ("%a", 110, 5),
        ("%b", 120, 5),
        ("%c", 130, 4),
        ("%c", 140, 4),
        ("%c", 150, 4),
    ]


def test_lines_may_count_from_1970_and_chips_from_the_start_of_the_profile(tmp_path: Path) -> None:
    start_ns = 1_783_000_000_000_000_000
    ops = line("XLA Ops", on_chip("%a", 50, 5, 850, 4), on_chip("%b", 60, 5, 860, 4), timestamp_ns=start_ns + 800_000)
    python = line("python", event("f", 0, 2000), timestamp_ns=start_ns)
    trace = trace_of(tmp_path, plane("/host:CPU", python), plane("/device:TPU:0", ops))
    assert trace.clock_zero_ns == start_ns
    assert of_line(trace, "XLA Ops") == [("%a", 850, 4), ("%b", 860, 4)]


def test_runs_stay_one_after_the_other_where_the_conversion_stands_still(tmp_path: Path) -> None:
    """It stands still at 200 us, where one run ends and the other begins with an op that looks like no time."""
    ops = [on_chip("%a", 110, 90, 110, 80), on_chip("%start", 200, 0, 195, 1), on_chip("%b", 200, 100, 196, 104)]
    runs = [event("jit_f(7)", 105, 95), event("jit_g(8)", 200, 100)]
    trace = trace_of(tmp_path, chip(*ops, runs=runs))
    (_, first, first_lasts), (_, second, second_lasts) = of_line(trace, "XLA Modules")
    assert (second - first, first_lasts, second_lasts) == (90, 90, 105)


def test_ops_of_no_duration_count_and_other_instants_do_not(tmp_path: Path) -> None:
    ops = line("XLA Ops", event("%copy-start", 1, 0), event("%a", 1, 5), id=3)
    points = line("Tensor Core", event("bundle.1", 2, 0), id=8)
    trace = trace_of(tmp_path, plane("/device:TPU:0", ops, points))
    assert of_line(trace, "XLA Ops") == [("%a", 1, 5), ("%copy-start", 1, 0)]
    assert of_line(trace, "Tensor Core") == []
    assert trace.device_clocks == {}
    assert trace.on_host_clock(0, np.array([3])).tolist() == [3]


def test_reckoned_counters_are_not_part_of_the_capture(tmp_path: Path) -> None:
    counters = line("_counters_", event("MXU", 1, 90_000), id=9)
    trace = trace_of(tmp_path, plane("/device:TPU:0", line("XLA Ops", event("%a", 1, 5), id=3), counters))
    assert trace.extent_ps == (US, 6 * US)
    assert [each.name for each in trace.device_lines(0)] == ["XLA Ops"]


@REAL
def test_runs_of_a_real_profile_last_as_long_as_the_chips_say() -> None:
    trace = read_host(A / "offload" / "tpu.xplane.pb", stats=frozenset())
    with (A / "reference" / "steps.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["file"] == "A"]
    truth = json.loads((A / "reference" / "expected.json").read_text(encoding="utf-8"))["A"]
    lines = [each for each in trace.lines if each.name == "XLA Modules"]
    assert len(lines) == 4
    for found in lines:
        chip_name = trace.planes[found.plane].name.removeprefix("/device:")
        runs = [row for row in rows if row["core"] == chip_name]
        barriers = dict.fromkeys(range(len(runs)), 0.0)
        sums = [place for place, row in enumerate(runs) if row["program"] == "jit__psum"]
        barriers |= dict(zip(sums, truth["psum"]["barrier_wait_ms"][chip_name], strict=True))
        lasts = trace.duration_ps[found.start : found.stop] / 1e9
        known = [place for place, row in enumerate(runs) if row["device_duration_ms"]]
        expected = [float(runs[place]["device_duration_ms"]) + barriers[place] for place in known]
        np.testing.assert_allclose(lasts[known], expected, atol=0.002)
        steps = [float(row["device_start_ms"]) for row in runs if row["program"] == "jit_f"]
        starts = trace.start_ps[found.start : found.stop][-100:] / 1e9
        np.testing.assert_allclose(np.diff(starts), np.diff(steps), atol=0.001)
        clock = trace.device_clocks[found.plane]
        assert clock.drift_ppm == pytest.approx(truth["clock"]["event_minus_device_drift_ppm"], abs=0.1)
        assert clock.jumps == truth["clock"]["jumps_over_50_ms"][chip_name]
        assert clock.shift_ps == truth["clock"]["shift_device_to_host_ms"] == 0
    largest = max(clock.largest_jump_ps for clock in trace.device_clocks.values())
    assert largest / 1e9 == pytest.approx(truth["clock"]["largest_ms"], abs=0.05)
