from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Line, event, line, plane, trace_of
from builders import iterator_call as call

from tfperf.sections.tfdata.analysis import StageTimes, measure_stages
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.tfdata import Pipelines, asynchronous_stages, find_pipelines, stage_work

US = 1_000_000
RUN, RUN_ASYNC, WORK = (
    "InstantiatedCapturedFunction::Run",
    "InstantiatedCapturedFunction::RunAsync",
    "ExecutorState::Process",
)


def recorded(tmp_path: Path, *lines: Line) -> Pipelines:
    pipelines = find_pipelines(trace_of(tmp_path, plane("/host:CPU", *lines)))
    assert pipelines is not None
    return pipelines


def times_of(trace: HostTrace, pipelines: Pipelines) -> StageTimes:
    is_async = asynchronous_stages(pipelines)
    return measure_stages(pipelines, stage_work(trace, pipelines).without_waiting(is_async), is_async)


def measured(tmp_path: Path, *lines: Line) -> dict[str, tuple[float | None, float, float]]:
    """(work us, busy us, us that it holds threads) of each stage."""
    trace = trace_of(tmp_path, plane("/host:CPU", *lines))
    pipelines = find_pipelines(trace)
    assert pipelines is not None
    times = times_of(trace, pipelines)
    works_ps = [None if work_ps is None else work_ps / US for work_ps in times.work_ps]
    return {
        stage.name: (works_ps[index], times.busy[index].total() / US, times.held_ps[index] / US)
        for index, stage in enumerate(pipelines.stages)
    }


def test_work_is_without_what_other_stages_do(tmp_path: Path) -> None:
    python = line(
        "python", call("Root", 0, 50, 1), call("Root::Map", 5, 40, 2, 1), call("Root::Map::Range", 10, 8, 3, 2)
    )
    assert measured(tmp_path, python) == {"Root": (10, 10, 10), "Map": (32, 32, 32), "Range": (8, 8, 8)}
    pipelines = recorded(tmp_path, python)
    times = times_of(trace_of(tmp_path, plane("/host:CPU", python)), pipelines)
    assert (times.count.tolist(), times.total_ps.tolist()) == ([1, 1, 1], [50 * US, 40 * US, 8 * US])


def test_a_stage_with_threads_works_in_them_and_in_the_pool(tmp_path: Path) -> None:
    # Its calls only wait. Its own thread works 10 of 30 us, two runs of its function 40 each, 20 of them at one time.
    times = measured(
        tmp_path,
        line("python", call("Root", 0, 190, 1), call("Root::ParallelMapV2", 0, 190, 2, 1)),
        line(
            "runner",
            event("ParallelMapProduce", 0, 30),
            call("Root::ParallelMapV2::Range", 5, 20, 3, 2),
            event(RUN_ASYNC, 26, 1, id=7),
            event(RUN_ASYNC, 27, 1, id=8),
        ),
        line("pool", event(WORK, 30, 40, id=7)),
        line("pool 2", event(WORK, 50, 40, id=8)),
    )
    assert times["ParallelMapV2"] == (10 + 80, 10 + 60, 10 + 80)
    assert times["Root"] == (0, 0, 0), "it only waits for the map"


def test_a_function_that_waits_for_a_thread_does_not_keep_its_stage_busy(tmp_path: Path) -> None:
    # Started at 1, it ran from 60 to 70 and from 90 to 100.
    parallel = measured(
        tmp_path,
        line("python", call("Root", 0, 100, 1), call("Root::ParallelMapV2", 0, 100, 2, 1)),
        line("runner", call("Root::ParallelMapV2::Range", 0, 1, 3, 2), event(RUN_ASYNC, 1, 2, id=7)),
        line("pool", event(WORK, 60, 10, id=7), event(WORK, 90, 10, id=7)),
    )
    assert parallel["ParallelMapV2"] == (22, 22, 20), "what started it is work too"
    inline = measured(
        tmp_path,
        line("python", call("Root", 0, 100, 1), call("Root::Map", 0, 100, 2, 1), event(RUN, 4, 96, id=7)),
        line("pool", event(WORK, 60, 10, id=7), event(WORK, 90, 10, id=7)),
    )
    assert inline["Map"] == (24, 24, 100), "4 us before the function; its thread is held all the time"


def test_a_prefetch_that_waits_for_a_map_is_not_busy(tmp_path: Path) -> None:
    times = measured(
        tmp_path,
        line("python", call("Root", 0, 90, 1), call("Root::Prefetch", 0, 90, 2, 1)),
        line("reader", event("PrefetchProduce", 0, 91), call("Root::Prefetch::Map", 0, 90, 3, 2)),
    )
    assert times == {"Root": (0, 0, 0), "Prefetch": (1, 1, 1), "Map": (90, 90, 90)}


def test_a_function_without_executors_ran_in_the_call_or_nobody_knows_where(tmp_path: Path) -> None:
    in_call = line("python", call("Root", 0, 90, 1), call("Root::Map", 0, 90, 2, 1), event(RUN, 10, 70, id=7))
    assert measured(tmp_path, in_call)["Map"] == (90, 90, 90)
    in_pool = measured(
        tmp_path,
        line("python", call("Root", 0, 90, 1), call("Root::ParallelMapV2", 0, 90, 2, 1)),
        line("runner", event("ParallelMapProduce", 0, 30), event(RUN_ASYNC, 26, 1, id=7)),
    )
    assert in_pool["ParallelMapV2"][0] is None


@pytest.mark.parametrize(
    ("stage", "thread"),
    [
        ("ParallelBatch", event("ParallelBatchProduce", 0, 30)),  # It copies in a pool that records nothing.
        ("ParseExampleV2", event("ParseExampleProduce", 0, 30)),
        ("DataServiceV4", event("Unheard", 0, 30)),  # Waiting for its workers looks like work.
        ("Prefetch", event("Unheard", 0, 30)),  # TensorFlow 2.1 records nothing of its thread.
    ],
)
def test_work_that_leaves_no_events_is_unknown(stage: str, thread: Event, tmp_path: Path) -> None:
    times = measured(
        tmp_path,
        line("python", call("Root", 0, 90, 1), call(f"Root::{stage}", 0, 90, 2, 1)),
        line("worker", thread, call(f"Root::{stage}::Range", 1, 5, 3, 2)),
    )
    assert times[stage][0] is None
    assert times["Range"][0] == 5


def test_of_a_stage_whose_calls_outlast_the_capture_nothing_is_known(tmp_path: Path) -> None:
    times = measured(tmp_path, line("python", call("Root::Map::Range", 0, 10, 2, 1)))
    assert [times[name][0] for name in ("Root", "Map", "Range")] == [None, None, 10]
