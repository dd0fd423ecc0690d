"""Groups by links, as TensorFlow's profiler finds them; whole breakdowns are compared in the tests of steps."""

from __future__ import annotations

from pathlib import Path

from builders import Plane, event, line, plane, trace_of

from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.tensorflow_groups import group_trace


def grouped(tmp_path: Path, *planes: Plane) -> HostTrace:
    return group_trace(trace_of(tmp_path, *planes, links=True, instants=True))


def groups(trace: HostTrace) -> dict[str, int]:
    """Event name -> group, -1 without one."""
    numbers = trace.number("group_id", -1).tolist()
    return {trace.names[name]: number for name, number in zip(trace.name.tolist(), numbers, strict=True)}


def test_a_step_is_what_can_be_reached_from_its_root(tmp_path: Path) -> None:
    """The root holds a producer; its consumer runs on another thread, and launches a kernel."""
    main = line(
        "python",
        event("train", 0, 100, _r=1, step_num=7),
        event("produce", 10, 5, _pt=1, _p=55),
        event("later", 200, 10),
    )
    worker = line("worker", event("consume", 20, 50, _ct=1, _c=55), event("launch", 25, 5, correlation_id=9))
    gpu = plane("/device:GPU:0", line("Stream #1", event("kernel", 40, 20, correlation_id=9)))
    trace = grouped(tmp_path, plane("/host:CPU", main, worker), gpu)
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
