"""On each thread, the innermost event of tf.data tells which stage works. Times are in microseconds."""

from __future__ import annotations

from pathlib import Path

from builders import Line, event, line, plane, trace_of
from builders import iterator_call as call

from tfperf.trace.tfdata import CALL, FUNCTION, THREAD, Pipelines, asynchronous_stages, find_pipelines, stage_work

US = 1_000_000
PLACES = {CALL: "call", THREAD: "thread", FUNCTION: "function"}


def pipelines_of(tmp_path: Path, *lines: Line) -> Pipelines:
    recorded = find_pipelines(trace_of(tmp_path, plane("/host:CPU", *lines)))
    assert recorded is not None
    return recorded


def stretches(tmp_path: Path, *lines: Line) -> list[tuple[str, str, float, float]]:
    """(stage, place, start us, end us) of each stretch, in the order of time."""
    trace = trace_of(tmp_path, plane("/host:CPU", *lines))
    recorded = find_pipelines(trace)
    assert recorded is not None
    work = stage_work(trace, recorded)
    assert work.stage.tolist() == sorted(work.stage.tolist())
    names = [*(stage.name for stage in recorded.stages), "?"]
    rows = zip(work.stage.tolist(), work.place.tolist(), work.start.tolist(), work.end.tolist(), strict=True)
    found = [(names[stage], PLACES[place], start / US, end / US) for stage, place, start, end in rows]
    return sorted(found, key=lambda stretch: stretch[2:])


def test_each_stage_of_a_thread_works_in_turn(tmp_path: Path) -> None:
    thread = line(
        "python",
        call("Root", 0, 50, 1),
        call("Root::Map", 5, 40, 2, 1),
        event("InstantiatedCapturedFunction::Run", 20, 20, id=7),
    )
    pool = line("pool", event("ExecutorState::Process", 25, 10, id=7))
    assert stretches(tmp_path, thread, pool) == [
        ("Root", "call", 0, 5),
        ("Map", "call", 5, 20),
        ("Map", "function", 25, 35),  # The thread waits for it from 20 to 40.
        ("Map", "call", 40, 45),
        ("Root", "call", 45, 50),
    ]


def test_a_function_may_run_where_it_is_started(tmp_path: Path) -> None:
    run, executor = event("InstantiatedCapturedFunction::Run", 20, 20, id=7), event("ExecutorState::Process", 25, 10)
    calls = call("Root", 0, 50, 1), call("Root::Map", 0, 50, 2, 1)
    nothing_else = ("Map", "call", 0, 20), ("Map", "call", 40, 50)
    inside = event(executor.name, 25, 10, id=7)
    for events, function in (((run, inside), (25, 35)), ((run,), (20, 40))):
        found = stretches(tmp_path, line("python", *calls, *events))
        assert found == sorted([*nothing_else, ("Map", "function", *function)], key=lambda stretch: stretch[2:])


def test_threads_of_a_stage_start_functions_for_it(tmp_path: Path) -> None:
    runner = line(
        "runner",
        event("ParallelMapProduce", 0, 30),
        call("Root::ParallelMapV2::Range", 5, 10, 3, 2),
        event("InstantiatedCapturedFunction::RunAsync", 20, 4, id=7),
    )
    asking = line("python", call("Root", 0, 9, 1), call("Root::ParallelMapV2", 0, 9, 2, 1))
    assert stretches(tmp_path, asking, runner) == [
        ("ParallelMapV2", "thread", 0, 5),
        ("ParallelMapV2", "call", 0, 9),
        ("Range", "call", 5, 15),
        ("ParallelMapV2", "thread", 15, 20),
        ("ParallelMapV2", "thread", 20, 24),
        ("ParallelMapV2", "thread", 24, 30),
    ]


def test_a_call_that_takes_what_threads_made_is_waiting(tmp_path: Path) -> None:
    asking = line("python", call("Root", 0, 9, 1), call("Root::ParallelMapV2", 0, 9, 2, 1))
    runner = line("runner", event("ParallelMapProduce", 0, 30), call("Root::ParallelMapV2::Range", 5, 10, 3, 2))
    trace = trace_of(tmp_path, plane("/host:CPU", asking, runner))
    recorded = find_pipelines(trace)
    assert recorded is not None
    work = stage_work(trace, recorded)
    at_work = work.without_waiting(asynchronous_stages(recorded))
    places = {(recorded.stages[stage].name, PLACES[place]) for stage, place in zip(work.stage, work.place, strict=True)}
    kept = zip(at_work.stage, at_work.place, strict=True)
    assert {(recorded.stages[stage].name, PLACES[place]) for stage, place in kept} == places - {
        ("ParallelMapV2", "call")
    }
    assert ("ParallelMapV2", "call") in places
    stage = [stage.name for stage in recorded.stages].index("ParallelMapV2")
    assert at_work.of(stage).total() == 20 * US


def test_a_function_that_asks_another_stage_does_not_work_meanwhile(tmp_path: Path) -> None:
    calls = line("python", call("Root", 0, 50, 1), event("InstantiatedCapturedFunction::Run", 5, 40, id=7))
    pool = line("pool", event("ExecutorState::Process", 10, 30, id=7), call("Root::Range", 15, 10, 2, 1))
    assert [stretch for stretch in stretches(tmp_path, calls, pool) if stretch[1] == "function"] == [
        ("Root", "function", 10, 15),
        ("Root", "function", 25, 40),
    ]


def test_work_of_an_unknown_stage_is_nobodys(tmp_path: Path) -> None:
    found = stretches(tmp_path, line("python", call("Root", 0, 5, 1)), line("reader", event("PrefetchProduce", 0, 7)))
    assert found == [("Root", "call", 0, 5), ("?", "thread", 0, 7)]


def test_a_stage_has_threads_if_its_inputs_are_called_elsewhere(tmp_path: Path) -> None:
    """Also one of a name that no list holds."""
    asked = (call("Root", 0, 50, 1), call("Root::Unheard", 0, 50, 2, 1))
    elsewhere = pipelines_of(
        tmp_path, line("python", *asked), line("worker", call("Root::Unheard::Range", 0, 10, 3, 2))
    )
    assert [stage.name for stage in elsewhere.stages] == ["Root", "Unheard", "Range"]
    assert asynchronous_stages(elsewhere) == [False, True, False]
    inside = pipelines_of(tmp_path, line("python", *asked, call("Root::Unheard::Range", 1, 9, 3, 2)))
    assert asynchronous_stages(inside) == [False, False, False]
