"""Groups by links, as TensorFlow's profiler finds them; whole breakdowns are compared in the tests of steps."""

from __future__ import annotations

from pathlib import Path

from builders import Plane, event, gpu, host, line, plane, trace_of

from tfperf.trace.host.activities import Activity
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.tensorflow_groups import GroupSpans, group_spans, group_trace, grouped_times


def grouped(tmp_path: Path, *planes: Plane) -> HostTrace:
    return group_trace(trace_of(tmp_path, *planes, links=True, instants=True))


def groups(trace: HostTrace) -> dict[str, int]:
    """Event name -> group, -1 without one."""
    numbers = trace.number("group_id", -1).tolist()
    return {trace.names[name]: number for name, number in zip(trace.name.tolist(), numbers, strict=True)}


def test_a_step_is_what_can_be_reached_from_its_root(tmp_path: Path) -> None:
    """The root holds a producer; its consumer runs on another thread, and launches a kernel."""
    root, producer = event("train", 0, 100, _r=1, step_num=7), event("produce", 10, 5, _pt=1, _p=55)
    main = line("python", root, producer, event("later", 200, 10))
    worker = line("worker", event("consume", 20, 50, _ct=1, _c=55), event("launch", 25, 5, correlation_id=9))
    trace = grouped(tmp_path, plane("/host:CPU", main, worker), gpu(event("kernel", 40, 20, correlation_id=9)))
    assert groups(trace) == {"train": 0, "produce": 0, "later": -1, "consume": 0, "launch": 0, "kernel": 0}
    assert trace.stat("step_name").texts == ("train 7",)


def test_roots_lead_in_order_of_level_then_of_time(tmp_path: Path) -> None:
    roots = [event("late", 200, 10, _r=1), event("early", 0, 10, _r=1), event("high", 300, 10, _r=2)]
    assert groups(grouped(tmp_path, plane("/host:CPU", line("t", *roots)))) == {"high": 0, "early": 1, "late": 2}


def test_a_root_below_another_of_its_level_leads_no_group(tmp_path: Path) -> None:
    events = event("outer", 0, 100, _r=1), event("inner", 10, 20, _r=1)
    assert groups(grouped(tmp_path, plane("/host:CPU", line("t", *events)))) == {"outer": 0, "inner": 0}


def test_functional_loops_are_not_grouped(tmp_path: Path) -> None:
    events = event("train", 0, 100, _r=1), event("WhileOp-StartBody", 10, 20)
    trace = grouped(tmp_path, plane("/host:CPU", line("t", *events)))
    assert len(trace.stat("group_id").event) == 0


# --- when activities happen as TensorFlow has it: group by group, the groups end to end ---

US = 1_000_000


def test_each_group_has_a_stretch_of_its_own(tmp_path: Path) -> None:
    """Both steps run at the same time; the second follows the first on the stretched axis."""
    marks = [
        line(f"t{n}", event("train", 0, 10, group_id=n), event("x:MatMul", 2, 5, group_id=n), id=n + 1)
        for n in range(2)
    ]
    trace = trace_of(tmp_path, plane("/host:CPU", *marks), instants=True)
    group = trace.number("group_id", -1)
    times = grouped_times(trace, group, group_spans(trace, group))
    (compute,) = (sets for kind, sets in times.busy.items() if kind == Activity.HOST_COMPUTE)
    assert (compute.end - compute.start).tolist() == [5 * US, 5 * US]
    assert (times.start[1] >= times.end[0], (times.end - times.start).tolist()) == (True, [10 * US, 10 * US])
    assert times.origin.tolist() == times.start.tolist()


def spans(trace: HostTrace) -> dict[int, tuple[int, int]]:
    """Group -> start and end in microseconds."""
    group = trace.number("group_id", -1)
    made: GroupSpans = group_spans(trace, group)
    bounds = zip((made.start // US).tolist(), (made.end // US).tolist(), strict=True)
    return dict(zip(made.group.tolist(), bounds, strict=True))


def test_the_longest_marker_of_the_host(tmp_path: Path) -> None:
    events = [event("train", 0, 50, group_id=1), event("train", 60, 10, group_id=1), event("op", 0, 90, group_id=1)]
    assert spans(trace_of(tmp_path, host(*events))) == {1: (0, 50)}


def test_a_device_that_works_longer_than_the_marker_sets_the_span(tmp_path: Path) -> None:
    kernels = (event("k", at, us, group_id=group) for at, us, group in ((20, 10, 1), (70, 30, 1), (120, 5, 2)))
    marks = [event("train", 0, 50, group_id=1), event("train", 100, 50, group_id=2)]
    assert spans(trace_of(tmp_path, host(*marks), gpu(*kernels))) == {1: (20, 100), 2: (100, 150)}
