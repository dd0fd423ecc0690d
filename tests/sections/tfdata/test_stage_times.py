from __future__ import annotations

from pathlib import Path

from builders import Line, event, line, plane, trace_of
from builders import iterator_call as call

from tfperf.sections.tfdata.stage_times import StageTimes, asynchronous_stages, measure_stages
from tfperf.trace.pipelines import Pipelines, find_pipelines

US = 1_000_000


def recorded(tmp_path: Path, *lines: Line) -> Pipelines:
    pipelines = find_pipelines(trace_of(tmp_path, plane("/host:CPU", *lines)))
    assert pipelines is not None
    return pipelines


def by_name(pipelines: Pipelines, times: StageTimes) -> dict[str, tuple[int, float, float, float]]:
    """(calls, total us, work us, busy us) of each stage."""
    return {
        stage.name: (
            int(times.count[index]),
            times.total_ps[index] / US,
            times.work_ps[index] / US,
            times.busy[index].total() / US,
        )
        for index, stage in enumerate(pipelines.stages)
    }


def test_work_is_without_what_other_stages_do(tmp_path: Path) -> None:
    pipelines = recorded(
        tmp_path,
        line("python", call("Root", 0, 50, 1), call("Root::Map", 5, 40, 2, 1), call("Root::Map::Range", 10, 8, 3, 2)),
    )
    assert by_name(pipelines, measure_stages(pipelines)) == {
        "Root": (1, 50, 10, 50),
        "Map": (1, 40, 32, 40),
        "Range": (1, 8, 8, 8),
    }


def test_a_stage_with_threads_works_in_them_and_in_the_pool(tmp_path: Path) -> None:
    # Its calls only wait. Its own thread works 10 of 30 us, the function 40; together they are at it from 0 to 70.
    pipelines = recorded(
        tmp_path,
        line("python", call("Root", 0, 90, 1), call("Root::ParallelMapV2", 0, 90, 2, 1)),
        line(
            "runner",
            event("ParallelMapProduce", 0, 30),
            call("Root::ParallelMapV2::Range", 5, 20, 3, 2),
            event("InstantiatedCapturedFunction::RunAsync", 26, 1, id=7),
        ),
        line("pool", event("ExecutorState::Process", 30, 40, id=7)),
    )
    assert by_name(pipelines, measure_stages(pipelines))["ParallelMapV2"] == (1, 90, 10 + 40, 70)


def test_a_stage_has_threads_if_its_inputs_are_called_elsewhere(tmp_path: Path) -> None:
    """Also one of a name that no list holds."""
    asked = (call("Root", 0, 50, 1), call("Root::Unheard", 0, 50, 2, 1))
    elsewhere = recorded(tmp_path, line("python", *asked), line("worker", call("Root::Unheard::Range", 0, 10, 3, 2)))
    assert [stage.name for stage in elsewhere.stages] == ["Root", "Unheard", "Range"]
    assert asynchronous_stages(elsewhere) == [False, True, False]
    inside = recorded(tmp_path, line("python", *asked, call("Root::Unheard::Range", 1, 9, 3, 2)))
    assert asynchronous_stages(inside) == [False, False, False]
