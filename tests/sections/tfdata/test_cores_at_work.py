"""How many threads work while steps wait: 60 us of each step of 100, in which one thread runs the map."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Line, Plane, event, host_of, line, plane, trace_of
from builders import iterator_call as call
from sections.tfdata.made_pipelines import each_step, inline_map, main_of, steps, waiting_job

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.sections.tfdata.pipeline import Pipeline


def job(*others: Event, op: str = "DecodeJpeg") -> tuple[Line, ...]:
    """A host of four cores whose step waits for a map, with other events on a thread of their own in each step."""
    return *inline_map(60, op), line("others", *each_step(*others))


def test_one_thread_of_four_cores(tmp_path: Path) -> None:
    main = main_of(tmp_path, *job())
    assert main.cores == 4
    assert [main.threads_at_work, main.threads_computing] == pytest.approx([1.0, 1.0])
    assert (main.leaves_cores, main.fills_cores) == (True, False)


def test_ops_of_the_step_work_too_and_ops_inside_of_ops_count_once(tmp_path: Path) -> None:
    main = main_of(tmp_path, *job(event("a:MatMul", 0, 30), event("b:Relu", 10, 10), event("c:Add", 70, 30)))
    assert main.threads_at_work == pytest.approx(1.5)


@pytest.mark.parametrize("name", ["a:_Recv", "b:IteratorGetNext", "c:CollectiveReduceV2", "d:RemoteCall"])
def test_ops_that_wait_do_not_work(name: str, tmp_path: Path) -> None:
    assert main_of(tmp_path, *job(event(name, 0, 60))).threads_at_work == pytest.approx(1.0)


def test_python_may_sleep_so_it_does_not_fill_a_core(tmp_path: Path) -> None:
    main = main_of(tmp_path, *job(op="EagerPyFunc"))
    assert [main.threads_at_work, main.threads_computing] == pytest.approx([1.0, 0.0])


def test_a_stage_that_leaves_no_event_makes_it_unknown(tmp_path: Path) -> None:
    hidden = [call("Root", 0, 60, 1, cpu_budget=8), call("Root::ParallelBatch", 0, 60, 2, 1)]
    main = main_of(tmp_path, line("python", *steps(), *each_step(*hidden)))
    assert (main.threads_at_work, main.leaves_cores) == (None, False)


def with_cores(tmp_path: Path, cores: int) -> Pipeline:
    planes: tuple[Plane, ...] = (
        plane("/host:CPU", *waiting_job("Map", op="DecodeJpeg")),
        plane(CAPTURE_PLANE, stats={"cpu_affinity": cores}),
    )
    main = host_of(trace_of(tmp_path, *planes), "tfdata")["tfdata"].main
    assert isinstance(main, Pipeline)
    return main


@pytest.mark.parametrize(("cores", "leaves", "fills"), [(1, False, True), (2, False, False), (8, True, False)])
def test_cores_that_the_capture_states(cores: int, leaves: bool, fills: bool, tmp_path: Path) -> None:
    main = with_cores(tmp_path, cores)
    assert (main.leaves_cores, main.fills_cores) == (leaves, fills)


@pytest.mark.parametrize(("busy", "fills"), [(2.0, True), (1.2, False)])
def test_cpu_time_of_the_process_counts_what_leaves_no_event(busy: float, fills: bool, tmp_path: Path) -> None:
    # Python may sleep, but two cores that are busy all the time are busy while the step waits too.
    planes: tuple[Plane, ...] = (
        plane("/host:CPU", *waiting_job("Map", op="EagerPyFunc")),
        plane(CAPTURE_PLANE, stats={"cpu_affinity": 2, "busy_cores": busy}),
    )
    main = host_of(trace_of(tmp_path, *planes), "tfdata")["tfdata"].main
    assert isinstance(main, Pipeline)
    assert main.fills_cores == fills
