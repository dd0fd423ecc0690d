"""The critical path of steps of 100 us, by hand. Times in microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Line, Plane, event, line, plane, repeat, result_of, results_of, trace_of
from places import TRACES
from real_runs import analysis_of
from sections.diagnosis.made import marks

from tfperf.sections.critical_path import build
from tfperf.sections.critical_path.analysis import (
    BETWEEN_WORK,
    HAND_OVER,
    LAUNCH_DELAY,
    NO_EVENT,
    OTHERS,
    CriticalPath,
    combine,
    shorten,
)

US = 1_000_000
WAIT = "cuStreamSynchronize"
MAIN, STREAM = "python", "GPU:0 Stream #1"


def linked(*events: Event) -> list[Event]:
    """These events in each of five steps; ids of a step are not those of another one."""
    made = repeat(5, *events)
    for turn in range(5):
        for each in made[turn * len(events) : (turn + 1) * len(events)]:
            if "correlation_id" in each.stats:
                each.stats["correlation_id"] += 1000 * turn
    return made


def work(name: str, start: float, duration: float, call: int) -> Event:
    return event(name, start, duration, correlation_id=call)


def job(host: list[Event], *streams: list[Event], others: tuple[Line, ...] = ()) -> tuple[Plane, Plane]:
    lines = (line(f"Stream #{number}", *linked(*each), id=number) for number, each in enumerate(streams, 1))
    thread = line("python", *marks(), *linked(*host), id=1)
    return plane("/host:CPU", thread, *others), plane("/device:GPU:0", *lines)


def path_of(tmp_path: Path, *planes: Plane) -> CriticalPath:
    found: CriticalPath = result_of(tmp_path, "critical_path", *planes)
    assert sum(part.total_ps for part in found.parts) == sum(each.total_ps for each in found.stretches) == found.step_ps
    return found


def times(found: CriticalPath) -> dict[tuple[str, str], float]:
    return {(part.place, part.name): part.total_ps / US for part in found.parts}


CALLS = [work("cuLaunchKernel", 10, 5, 1), work("cuLaunchKernel", 16, 4, 2)]


def test_a_step_that_waits_for_its_device(tmp_path: Path) -> None:
    """The host launches two kernels and waits; the second kernel begins 3 us after the first, already launched."""
    kernels = [work("gemm", 17, 33, 1), work("add", 53, 37, 2)]
    found = path_of(tmp_path, *job([*CALLS, event(WAIT, 20, 75)], kernels))
    assert times(found) == {
        (STREAM, "add"): 37,
        (STREAM, "gemm"): 33,
        (MAIN, NO_EVENT): 15,  # 0 to 10 and 95 to 100
        (MAIN, WAIT): 5,  # from the end of the second kernel
        (MAIN, "cuLaunchKernel"): 5,
        (STREAM, BETWEEN_WORK): 3,
        (STREAM, LAUNCH_DELAY): 2,
    }
    assert [(each.place, each.start_ps / US, each.total_ps / US) for each in found.stretches] == [
        (MAIN, 0, 15), (STREAM, 15, 75), (MAIN, 90, 10),
    ]  # fmt: skip


def test_rows_beyond_the_most_are_added_up(tmp_path: Path) -> None:
    """The example above."""
    kernels = [work("gemm", 17, 33, 1), work("add", 53, 37, 2)]
    found = shorten(path_of(tmp_path, *job([*CALLS, event(WAIT, 20, 75)], kernels)), 1)
    assert [(part.kind, part.name, part.total_ps / US) for part in found.parts] == [
        ("device", "add", 37), ("device", OTHERS, 33), ("host", OTHERS, 10), ("unknown", OTHERS, 20),
    ]  # fmt: skip
    assert [(each.name, each.total_ps / US) for each in found.stretches] == [(NO_EVENT, 15), (OTHERS, 85)]


def test_a_device_that_waits_for_launches(tmp_path: Path) -> None:
    """The second kernel is launched after the first ended: what the host does until then bounds the step."""
    host = [CALLS[0], event("op", 15, 45), work("cuLaunchKernel", 60, 5, 2), event(WAIT, 65, 35)]
    found = path_of(tmp_path, *job(host, [work("gemm", 16, 20, 1), work("add", 67, 30, 2)]))
    assert times(found) == {
        (MAIN, "op"): 45,
        (STREAM, "add"): 30,
        (MAIN, NO_EVENT): 10,
        (MAIN, "cuLaunchKernel"): 10,
        (MAIN, WAIT): 3,
        (STREAM, LAUNCH_DELAY): 2,
    }


def test_work_of_another_stream_that_ends_just_before(tmp_path: Path) -> None:
    """A copy on the second stream ends at 40 us; the kernel that begins then waited for it, not for its stream."""
    streams = [work("gemm", 17, 3, 1), work("add", 40, 55, 2)], [work("MemcpyH2D", 15, 25, 3)]
    host = [work("cuMemcpyHtoDAsync", 5, 5, 3), *CALLS, event(WAIT, 20, 80)]
    found = path_of(tmp_path, *job(host, *streams))
    assert times(found) == {
        (STREAM, "add"): 55,
        ("GPU:0 Stream #2", "MemcpyH2D"): 25,
        (MAIN, NO_EVENT): 5,
        (MAIN, "cuMemcpyHtoDAsync"): 5,
        ("GPU:0 Stream #2", LAUNCH_DELAY): 5,
        (MAIN, WAIT): 5,
    }


def test_kernels_that_overlap_on_a_stream_follow_each_other(tmp_path: Path) -> None:
    """The second kernel begins 1 us before the first ends: that time counts once."""
    found = path_of(tmp_path, *job([*CALLS, event(WAIT, 20, 80)], [work("gemm", 21, 30, 1), work("add", 50, 45, 2)]))
    assert (times(found)[STREAM, "gemm"], times(found)[STREAM, "add"]) == (29, 45)


@pytest.mark.parametrize(("until", "on_device"), [(9_900, 9_883), (5_000, 0)])
def test_a_wait_without_an_event(tmp_path: Path, until: float, on_device: float) -> None:
    """In steps of 10 ms, a thread has no event from 15 to 9,990 us: it waited for device work that ends at 9,900 us.

    If the work ends at 5,000 us, in the middle of that time, the thread may as well have run Python.
    """
    turns = [
        (
            event("train", at, 10_000, step_num=number),
            work("cuLaunchKernel", at + 10, 5, number + 1),
            event("log", at + 9_990, 10),
        )
        for number, at in enumerate(range(0, 50_000, 10_000))
    ]
    kernels = [work("gemm", 10_000 * number + 17, until - 17, number + 1) for number in range(5)]
    device = plane("/device:GPU:0", line("Stream #1", *kernels, id=1))
    found = times(
        path_of(tmp_path, plane("/host:CPU", line("python", *(each for turn in turns for each in turn))), device)
    )
    assert found.get((STREAM, "gemm"), 0) == on_device
    assert found[MAIN, NO_EVENT] == pytest.approx(100 if on_device else 9_985)


def test_a_call_that_waits_for_other_threads(tmp_path: Path) -> None:
    """The main thread calls a function at 10 us; a pool thread runs it from 12 to 90 us and launches a kernel."""
    pool = line(
        "tf_Compute/7",
        *linked(
            event("ExecutorState::Process", 12, 28),
            work("cuLaunchKernel", 40, 10, 1),
            event("ExecutorState::Process", 50, 40),
        ),
        id=9,
    )
    found = path_of(tmp_path, *job([event("EagerKernelExecute", 10, 85)], [work("gemm", 52, 10, 1)], others=(pool,)))
    assert times(found) == {
        ("tf_Compute/7", "ExecutorState::Process"): 68,
        (MAIN, NO_EVENT): 15,
        ("tf_Compute/7", "cuLaunchKernel"): 10,
        (MAIN, HAND_OVER): 5,
        (MAIN, "EagerKernelExecute"): 2,
    }


def test_of_crossing_events_the_earlier_one_counts_first(tmp_path: Path) -> None:
    """The second event begins 10 us before the end of the first."""
    found = path_of(tmp_path, *job([CALLS[0], event("one", 20, 40), event("two", 50, 30)], [work("gemm", 30, 2, 1)]))
    assert times(found) == {
        (MAIN, "one"): 40,
        (MAIN, NO_EVENT): 35,  # 0 to 10, 15 to 20 and 80 to 100
        (MAIN, "two"): 20,
        (MAIN, "cuLaunchKernel"): 5,
    }


def test_a_chain_needs_the_events_of_its_devices(tmp_path: Path) -> None:
    """Five of ten launches have no kernel."""
    results = results_of(trace_of(tmp_path, *job([*CALLS, event(WAIT, 20, 80)], [work("add", 53, 37, 2)])))
    assert "No chain: events of devices are missing." in build(results).notes


def test_a_job_without_a_gpu_or_without_steps_has_none(tmp_path: Path) -> None:
    alone = plane("/host:CPU", line("python", *marks()))
    assert result_of(tmp_path, "critical_path", alone).why_none == "no host has a GPU"
    _, device = job([*CALLS], [work("gemm", 17, 33, 1)])
    results = results_of(trace_of(tmp_path, plane("/host:CPU", line("python", event("f", 0, 500))), device))
    assert not results["critical_path"].parts
    assert build(results).notes[0].startswith("No chain: ")


def test_of_several_hosts_the_slowest_is_shown(tmp_path: Path) -> None:
    made = CriticalPath(host="a", step_ps=2), CriticalPath(host="b", step_ps=3), CriticalPath(why_none="none")
    assert combine(made).host == "b"


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
def test_a_worker_with_eight_gpus_is_bound_by_its_launches() -> None:
    """BERT on GPU 6, a step of 21.3 ms: its launching thread has two thirds of the chain, kernels less than a third."""
    results: Any = analysis_of(TRACES / "gpu_8xV100_worker")
    path = results["critical_path"]
    by_kind = {
        kind: sum(part.total_ps for part in path.parts if part.kind == kind) / 1e9 for kind in ("device", "host")
    }
    assert by_kind == {"device": pytest.approx(6.61, abs=0.01), "host": pytest.approx(13.6, abs=0.1)}
    assert (path.parts[0].place.partition("/")[0], path.parts[0].name) == ("tf_gpu_private_6", "(kernel launch)")
