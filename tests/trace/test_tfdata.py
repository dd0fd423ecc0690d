from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Line, event, host, known, line, plane, trace_of, u64
from builders import iterator_call as call
from hypothesis import given
from hypothesis import strategies as st

from tfperf.trace.tfdata import (
    CALL,
    FUNCTION,
    THREAD,
    Pipelines,
    asynchronous_stages,
    find_pipelines,
    stage_path,
    stage_work,
)

US = 1_000_000


def pipelines_of(tmp_path: Path, *lines: Line) -> Pipelines:
    return known(find_pipelines(trace_of(tmp_path, plane("/host:CPU", *lines))))


def tree(pipelines: Pipelines, number: int = 0) -> list[str]:
    """Stages with as many dots as their depth."""
    return ["." * pipelines.stages[stage].depth + pipelines.stages[stage].name for stage in pipelines.members(number)]


def calls(pipelines: Pipelines, name: str) -> int:
    (stage,) = [index for index, stage in enumerate(pipelines.stages) if stage.name == name]
    return int((pipelines.calls.stage == stage).sum())


def test_a_trace_without_tf_data_has_no_pipelines(tmp_path: Path) -> None:
    assert find_pipelines(trace_of(tmp_path, host(event("train", 0, 10), event("a:MatMul", 1, 2)))) is None


@pytest.mark.parametrize("first", [1, 1 << 63, (1 << 64) - 9, -9])
def test_one_thread(first: int, tmp_path: Path) -> None:
    ids = [first + number for number in range(3)]
    events = [
        call("Root", 0, 10, ids[0]),
        call("Root::Map", 1, 8, ids[1], ids[0]),
        call("Root::Map::Range", 2, 3, ids[2], ids[1]),
    ]
    pipelines = pipelines_of(tmp_path, line("python", *events))
    assert tree(pipelines) == ["Root", ".Map", "..Range"]
    assert pipelines.calls.around.tolist() == [-1, 0, 1]
    assert (pipelines.device, pipelines.cut) == ((False,), (False,))


def test_the_unsigned_and_the_signed_form_of_an_id_are_the_same(tmp_path: Path) -> None:
    events = [call("Root", 0, 10, u64((1 << 64) - 7)), call("Root::Map", 1, 8, 5, -7)]
    assert tree(pipelines_of(tmp_path, line("python", *events))) == ["Root", ".Map"]


def test_across_threads_a_stage_is_found_by_its_consumer_s_id(tmp_path: Path) -> None:
    pipelines = pipelines_of(
        tmp_path,
        line("main", call("Root", 0, 10, 1), call("Root::Prefetch", 1, 8, 2, 1, buffer_limit=4, buffered_elements=3)),
        line(
            "reader",
            event("PrefetchProduce", 0, 7, element_id=1),
            call("Root::Prefetch::Map", 1, 5, 3, 2),
            event("PrefetchProduce", 8, 2),
        ),
    )
    assert tree(pipelines) == ["Root", ".Prefetch", "..Map"]
    assert pipelines.settings["buffer_limit"].tolist() == [-1, 4, -1]
    assert pipelines.buffered[1] == 3.0
    assert pipelines.produced.stage.tolist() == [1, 1], "the prefetch's work, also a hand-over that fetches nothing"
    assert pipelines.calls.in_produce.tolist() == [-1, -1, 0]


def test_iterators_of_many_files_are_one_stage(tmp_path: Path) -> None:
    events = [call("Root", 0, 100, 1), call("Root::ParallelInterleaveV4", 1, 98, 2, 1)]
    for number in range(5):
        flat_map, at = f"Root::ParallelInterleaveV4[{number}]::FlatMap", 10 * number
        events += [call(flat_map, at + 2, 9, 10 + number, 2)]
        events += [call(f"{flat_map}[{number}]::TFRecord", at + 3, 5, 20 + number, 10 + number)]
    pipelines = pipelines_of(tmp_path, line("python", *events))
    assert tree(pipelines) == ["Root", ".ParallelInterleaveV4", "..FlatMap", "...TFRecord"]
    assert calls(pipelines, "TFRecord") == 5


def test_the_inputs_of_zip_stay_apart(tmp_path: Path) -> None:
    events = [
        call("Root", 0, 100, 1),
        call("Root::Zip", 1, 98, 2, 1),
        call("Root::Zip[0]::Map", 2, 9, 3, 2),
        call("Root::Zip[1]::Map", 12, 9, 4, 2),
    ]
    pipelines = pipelines_of(tmp_path, line("python", *events))
    assert tree(pipelines) == ["Root", ".Zip", "..Map", "..Map"]


def test_a_cache_hides_its_second_iterator_behind_the_same_path(tmp_path: Path) -> None:
    # TensorFlow names both below Prefetch; only the ids say that one asks the other.
    events = [
        call("Root", 0, 100, 1),
        call("Root::MemoryCacheImpl", 2, 9, 3, 2),
        call("Root::MemoryCache", 1, 98, 2, 1),
        call("Root::MemoryCacheImpl::Map", 3, 5, 4, 3),
    ]
    cached = ["Root", ".MemoryCache", "..MemoryCacheImpl", "...Map"]
    assert tree(pipelines_of(tmp_path, line("python", *events))) == cached


def two_at_once() -> tuple[Line, Line]:
    return (
        line("one", call("Root", 0, 10, 1), call("Root::Map", 1, 5, 2, 1), call("Root", 30, 10, 1)),
        line("two", call("Root", 5, 10, 11), call("Root::Map", 6, 5, 12, 11)),
    )


def test_a_new_iterator_in_each_epoch_is_the_same_pipeline(tmp_path: Path) -> None:
    # The second Map has the address, and so the id, of the first, which is gone.
    ids = ((0, 1, 7), (20, 2, 7), (40, 3, 8))
    epochs = [
        each for at, root, id in ids for each in (call("Root", at, 10, root), call("Root::Map", at + 1, 5, id, root))
    ]
    pipelines = pipelines_of(tmp_path, line("python", *epochs))
    assert tree(pipelines) == ["Root", ".Map"]
    assert (pipelines.roots, calls(pipelines, "Map"), pipelines.iterators) == ((0,), 3, (3,))


def test_training_and_validation_in_turn_stay_apart(tmp_path: Path) -> None:
    events = []
    for turn, function in enumerate(("train_1", "test_2", "train_1", "test_2")):
        at = 100 * turn
        events += [
            event(f"EagerExecute: __inference_{function}", at, 20),
            event("FunctionRun", at + 1, 3, id=50 + turn),
            event("IteratorGetNextOp::DoCompute", at + 5, 12, id=50 + turn),
            call("Root", at + 6, 10, 1 + turn),
        ]
    pipelines = pipelines_of(tmp_path, line("python", *events))
    assert (pipelines.iterators, pipelines.calls.stage.tolist()) == ((2, 2), [0, 1, 0, 1])


def test_what_hands_batches_to_a_device_is_a_device_pipeline(tmp_path: Path) -> None:
    pipelines = pipelines_of(
        tmp_path,
        line("main", call("Prefetch", 0, 10, 1), call("Root", 20, 5, 7)),
        line("device", event("PrefetchProduce", 0, 9), call("Prefetch::Generator", 1, 8, 2, 1)),
    )
    assert sorted(zip(pipelines.device, (tree(pipelines, number) for number in (0, 1)), strict=True)) == [
        (False, ["Root"]),
        (True, ["Prefetch", ".Generator"]),
    ]


def test_stages_whose_consumer_has_no_call_in_the_capture_find_their_place(tmp_path: Path) -> None:
    # The call of MapAndBatch lasts longer than the capture, so that it is not recorded.
    pipelines = pipelines_of(
        tmp_path,
        line("main", call("Root", 0, 10, 1), call("Root::Prefetch", 1, 8, 2, 1)),
        line("runner", *[call("Root::Prefetch::MapAndBatch::Range", at, 1, 4, 3) for at in (2, 4, 6)]),
    )
    assert tree(pipelines) == ["Root", ".Prefetch", "..MapAndBatch", "...Range"]
    assert [stage.recorded for stage in pipelines.stages if stage.name == "MapAndBatch"] == [False]
    assert pipelines.cut == (False,)


@pytest.mark.parametrize(("second_us", "expected"), [(4, 2), (40, 1)])
def test_an_iterator_that_only_fills_its_buffer_is_a_pipeline_of_its_own(
    second_us: float, expected: int, tmp_path: Path
) -> None:
    """Nobody asks the second one in the capture. Called after the first one, it may have followed it."""
    asked = [made for at in (0, 20) for made in (call("Root", at, 10, 1), call("Root::Prefetch", at + 1, 8, 2, 1))]
    first = [call("Root::Prefetch::Map", at, 5, 3, 2) for at in (2, 12, 22)]
    second = []
    for at in (second_us, 10 + second_us, 20 + second_us):
        second += [call("Root::Prefetch::Map", at, 5, 13, 12), call("Root::Prefetch::Map::Zip", at + 1, 2, 14, 13)]
    pipelines = pipelines_of(tmp_path, line("main", *asked), line("a", *first), line("b", *second))
    assert len(pipelines.roots) == expected
    assert pipelines.cut == (False, True)[:expected]
    assert calls(pipelines, "Zip") == 3
    assert "..Map" in tree(pipelines)
    assert "...Zip" in tree(pipelines, expected - 1)


def test_a_pipeline_without_its_outermost_stage_is_cut(tmp_path: Path) -> None:
    pipelines = pipelines_of(tmp_path, line("runner", call("Root::Prefetch::BatchV2::Range", 2, 1, 4, 3)))
    assert tree(pipelines) == ["Root", ".Prefetch", "..BatchV2", "...Range"]
    assert pipelines.cut == (True,)


def test_with_two_pipelines_of_the_same_path_a_lost_stage_is_not_guessed(tmp_path: Path) -> None:
    pipelines = pipelines_of(tmp_path, *two_at_once())
    assert [tree(pipelines, number) for number in (0, 1)] == [["Root", ".Map"]] * 2
    pipelines = pipelines_of(tmp_path, *two_at_once(), line("runner", call("Root::BatchV2::Range", 2, 1, 4, 3)))
    assert [tree(pipelines, number)[-1] for number in range(3)] == [".Map", ".Map", "..Range"]
    assert pipelines.cut == (False, False, True)


@pytest.mark.parametrize("name", ["Run", "RunAsync", "RunWithBorrowedArgs"])
def test_a_run_of_a_function_lasts_as_long_as_its_executor(name: str, tmp_path: Path) -> None:
    pipelines = pipelines_of(
        tmp_path,
        line(
            "runner",
            call("Root", 0, 90, 1),
            call("Root::Map", 1, 80, 2, 1),
            event(f"InstantiatedCapturedFunction::{name}", 2, 3, id=77),
        ),
        line(
            "pool",
            event("ExecutorState::Process", 4, 20, id=77),
            event("img/DecodeJpeg:DecodeJpeg", 5, 10),
            event("ExecutorState::Process", 30, 5, id=78),
        ),
        line("pool 2", event("ExecutorState::Process", 24, 6, id=77), event("ExecutorState::Process", 31, 1, id=77)),
    )
    runs = pipelines.runs
    assert (runs.start.tolist(), runs.end.tolist(), runs.busy.tolist()) == ([2 * US], [32 * US], [27 * US])
    assert [pipelines.stages[stage].name for stage in runs.stage] == ["Map"]
    assert runs.ops == {(int(runs.stage[0]), "img/DecodeJpeg", "DecodeJpeg"): (1, 10 * US)}
    assert runs.is_async.tolist() == [name == "RunAsync"]


def test_a_function_without_executor_events_works_as_long_as_its_event(tmp_path: Path) -> None:
    events = [call("Root", 0, 90, 1), event("InstantiatedCapturedFunction::Run", 2, 30, id=5)]
    runs = pipelines_of(tmp_path, line("main", *events)).runs
    assert (runs.busy.tolist(), runs.end.tolist()) == ([30 * US], [32 * US])


def test_older_versions_record_no_hand_over_around_a_function(tmp_path: Path) -> None:
    pipelines = pipelines_of(
        tmp_path,
        line("main", call("Model", 0, 90, 1), call("Model::ParallelMapV2", 1, 80, 2, 1)),
        line(
            "runner",
            call("Model::ParallelMapV2::TensorSlice", 2, 5, 3, 2),
            event("InstantiatedCapturedFunction::RunAsync", 8, 1, id=5),
        ),
    )
    assert [pipelines.stages[stage].name for stage in pipelines.runs.stage] == ["ParallelMapV2"]


def test_at_the_edge_of_a_capture_the_consumer_that_runs_functions_gets_the_run(tmp_path: Path) -> None:
    # The first ParallelMapProduce and BatchV2 began before the capture; only what was inside them is left.
    made = (
        call("Root::ParallelMapV2::BatchV2::Range", 1, 1, 4, 3),
        event("InstantiatedCapturedFunction::RunAsync", 3, 1, id=50),
        event("ParallelMapProduce", 5, 9),
        call("Root::ParallelMapV2::BatchV2", 6, 5, 3, 2),
        call("Root::ParallelMapV2::BatchV2::Range", 7, 1, 4, 3),
        event("InstantiatedCapturedFunction::RunAsync", 12, 1, id=51),
    )
    pipelines = pipelines_of(
        tmp_path, line("main", call("Root", 0, 90, 1), call("Root::ParallelMapV2", 1, 80, 2, 1)), line("runner", *made)
    )
    assert [pipelines.stages[stage].name for stage in pipelines.runs.stage] == ["ParallelMapV2"] * 2


def test_paths_lose_the_numbers_of_inputs_that_are_alike() -> None:
    assert stage_path("Iterator::Root::FlatMap[12]::TFRecord") == "Iterator::Root::FlatMap::TFRecord"
    assert stage_path("Iterator::Root::Zip[1]::Concatenate[0]::Map") == "Iterator::Root::Zip[1]::Concatenate[0]::Map"


names = st.sampled_from(
    ["Root", "Root::A", "Root::A::B", "Root::A[0]::B", "Root::Zip[1]::C", "", "::", "Root::A[9]::B::C::D", "Prefetch",
     "Prefetch::Generator"]
)  # fmt: skip
iterator_events = st.builds(
    call, names, st.integers(0, 50), st.integers(1, 50), st.integers(-3, 5), st.none() | st.integers(-3, 5)
)
other_events = st.builds(
    lambda name, start, length, run: event(name, start, length, id=run),
    st.sampled_from(["PrefetchProduce", "InstantiatedCapturedFunction::RunAsync", "ExecutorState::Process", "a:Add"]),
    st.integers(0, 50),
    st.integers(1, 50),
    st.integers(-3, 5),
)
threads = st.lists(st.lists(iterator_events | other_events, max_size=8), min_size=1, max_size=4)


@given(threads)
def test_whatever_the_ids_say_every_call_is_in_one_stage_of_one_tree(
    tmp_path_factory: pytest.TempPathFactory, made: list[list[Event]]
) -> None:
    lines = [line(f"thread {number}", *events) for number, events in enumerate(made)]
    pipelines = find_pipelines(trace_of(tmp_path_factory.mktemp("made"), plane("/host:CPU", *lines)))
    if pipelines is None:
        return
    assert ((pipelines.calls.stage >= 0) & (pipelines.calls.stage < len(pipelines.stages))).all()
    members = [stage for number in range(len(pipelines.roots)) for stage in pipelines.members(number)]
    assert sorted(members) == list(range(len(pipelines.stages)))


# --- on each thread, the innermost event of tf.data tells which stage works. Times are in microseconds ---

PLACES = {CALL: "call", THREAD: "thread", FUNCTION: "function"}


def stretches(tmp_path: Path, *lines: Line) -> list[tuple[str, str, float, float]]:
    """(stage, place, start us, end us) of each stretch, in the order of time."""
    trace = trace_of(tmp_path, plane("/host:CPU", *lines))
    recorded = known(find_pipelines(trace))
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
    recorded = known(find_pipelines(trace))
    work = stage_work(trace, recorded)
    at_work = work.without_waiting(asynchronous_stages(recorded))
    places = {(recorded.stages[stage].name, PLACES[place]) for stage, place in zip(work.stage, work.place, strict=True)}
    kept = zip(at_work.stage, at_work.place, strict=True)
    waits = ("ParallelMapV2", "call")
    assert {(recorded.stages[stage].name, PLACES[place]) for stage, place in kept} == places - {waits}
    assert waits in places
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
