"""Pipelines small enough to work out by hand. Times are in microseconds, of a step of 100."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Line, event, line, plane, trace_of
from builders import iterator_call as call

from tfperf.analyzers import tfdata
from tfperf.sections.tfdata.pipeline import Pipeline, StageStats, TfData

US = 1_000_000


def analyzed(tmp_path: Path, *lines: Line) -> TfData:
    return tfdata.analyze(trace_of(tmp_path, plane("/host:CPU", *lines)))


def main_of(tmp_path: Path, *lines: Line) -> Pipeline:
    found = analyzed(tmp_path, *lines).main
    assert found is not None
    return found


def stage(found: Pipeline, name: str) -> StageStats:
    (own,) = [own for own in found.stages if own.name == name]
    return own


def name_of(found: Pipeline, index: int | None) -> str | None:
    return None if index is None else found.stages[index].name


def waited(found: Pipeline) -> dict[str, float]:
    return {own.name: own.blocked_ps / US for own in found.stages if own.blocked_ps}


def repeat(count: int, *events: Event, every: float = 100) -> list[Event]:
    """The same events again, 100 us later each time."""
    return [
        event(own.name, own.start_us + every * turn, own.duration_us, **own.stats)
        for turn in range(count) for own in events
    ]  # fmt: skip


def in_one_thread(map_us: float, batch_us: float, read_us: float) -> list[Event]:
    """Root > BatchV2 > Map > TFRecord, each with this time of its own, and Root with 1."""
    whole = map_us + batch_us + read_us
    return repeat(
        4,
        call("Root", 0, whole + 1, 1),
        call("Root::BatchV2", 0.5, whole, 2, 1),
        call("Root::BatchV2::Map", 0.5 + batch_us, map_us + read_us, 3, 2),
        call("Root::BatchV2::Map::TFRecord", 0.5 + batch_us + map_us, read_us, 4, 3),
    )


@pytest.mark.parametrize(("times", "slowest"), [((60, 5, 5), "Map"), ((5, 60, 5), "BatchV2"), ((5, 5, 60), "TFRecord")])
def test_in_one_thread_each_stage_in_turn(times: tuple[float, float, float], slowest: str, tmp_path: Path) -> None:
    found = main_of(tmp_path, line("python", *in_one_thread(*times)))
    assert name_of(found, found.blocking) == name_of(found, found.limiting) == slowest
    own = stage(found, slowest)
    assert (own.calls, own.work_ps, own.blocked_ps, own.element_ps) == (4, 240 * US, 240 * US, 60 * US)
    assert (found.calls, found.slow_calls, found.waited_ps, found.untold_ps) == (4, 4, 284 * US, 0)
    assert found.mean_ps == found.max_ps == 71 * US
    (section,) = found.sections
    assert (section.kind, section.element_ps, section.workers) == ("consumer", 71 * US, 1)
    assert found.final_prefetch is None


def behind_a_prefetch(wait_us: float, batch_us: float, map_us: float) -> tuple[Line, Line]:
    """The consumer waits for the last `wait_us` of what its producer does: Root > Prefetch > BatchV2 > Map."""
    made = batch_us + map_us
    consumer = repeat(
        4, call("Root", made - wait_us, wait_us, 1), call("Root::Prefetch", made - wait_us, wait_us, 2, 1)
    )
    producer = repeat(
        4,
        event("PrefetchProduce", 0, made),
        call("Root::Prefetch::BatchV2", 0, made, 3, 2),
        call("Root::Prefetch::BatchV2::Map", 0, map_us, 4, 3),
    )
    return line("python", *consumer), line("reader", *producer)


def test_waiting_goes_through_a_prefetch_to_what_is_under_way(tmp_path: Path) -> None:
    found = main_of(tmp_path, *behind_a_prefetch(60, 10, 70))
    assert waited(found) == {"BatchV2": 40, "Map": 200}, "of 60 us each time, the last 10 are the batch"
    assert (name_of(found, found.blocking), name_of(found, found.limiting)) == ("Map", "Map")
    assert [(own.kind, own.element_ps / US) for own in found.sections] == [("consumer", 0), ("producer", 80)]
    assert found.final_prefetch == 1
    assert stage(found, "Prefetch").is_async


def test_what_the_consumer_waits_for_may_not_be_what_limits(tmp_path: Path) -> None:
    # The map takes 70 of 100 us, but beside the step; the step waits for the batch alone, which takes 20.
    found = main_of(tmp_path, *behind_a_prefetch(20, 20, 70))
    assert (name_of(found, found.blocking), name_of(found, found.limiting)) == (None, "Map")
    assert waited(found) == {"BatchV2": 80}
    assert found.slow_calls == 0, "no call takes longer than 50 us"


def test_blocking_and_limiting_stage_differ(tmp_path: Path) -> None:
    # Batch runs in the step's thread (55 us); behind a prefetch, map works 90 of 100 us, mostly beside the step.
    consumer = repeat(
        4,
        call("Root", 30, 60, 1), call("Root::BatchV2", 30, 60, 2, 1), call("Root::BatchV2::Prefetch", 30, 5, 3, 2),
    )  # fmt: skip
    producer = repeat(4, event("PrefetchProduce", 0, 90), call("Root::BatchV2::Prefetch::Map", 0, 90, 4, 3))
    found = main_of(tmp_path, line("python", *consumer), line("reader", *producer))
    assert (name_of(found, found.blocking), name_of(found, found.limiting)) == ("BatchV2", "Map")
    assert waited(found) == {"BatchV2": 220, "Map": 20}


def parallel_map(function_us: float, read_us: float, parallelism: int) -> list[Line]:
    """Root > ParallelMapV2 > TFRecord: the function runs in a pool, and the step waits all the time."""
    consumer = repeat(4, call("Root", 0, 100, 1, threadpool_size=2, cpu_budget=2),
                      call("Root::ParallelMapV2", 0, 100, 2, 1, parallelism=parallelism))  # fmt: skip
    runner, pool = [], []
    for turn in range(4):
        at = 100 * turn
        runner += [
            event("ParallelMapProduce", at, read_us + 1),
            call("Root::ParallelMapV2::TFRecord", at, read_us, 3, 2),
            event("InstantiatedCapturedFunction::RunAsync", at + read_us, 1, id=100 + turn),
        ]
        pool += [
            event("ExecutorState::Process", at + read_us, function_us, id=100 + turn),
            event("map/DecodeJpeg:DecodeJpeg", at + read_us, function_us - 1),
        ]
    return [line("python", *consumer), line("runner", *runner), line("pool", *pool)]


def test_the_function_of_a_parallel_map_is_what_is_waited_for(tmp_path: Path) -> None:
    found = main_of(tmp_path, *parallel_map(80, 10, 1))
    assert waited(found)["ParallelMapV2"] == 4 * 80 + 3 * 10, "the function, and the gaps before the next call"
    assert waited(found)["TFRecord"] == 40
    assert (name_of(found, found.blocking), name_of(found, found.limiting)) == ("ParallelMapV2", "ParallelMapV2")
    own = stage(found, "ParallelMapV2")
    assert (own.runs, own.run_ps, own.is_async, own.python) == (4, 320 * US, True, "")
    assert own.ops == (("map/DecodeJpeg", "DecodeJpeg", 4, 4 * 79 * US),)
    sections = {own.kind: (own.element_ps / US, own.workers) for own in found.sections}
    assert sections == {"consumer": (0, 1), "function": (80, 1), "producer": (11, 1)}
    assert (found.cores, found.pool_threads) == (2, 2)


def test_with_parallel_calls_the_reader_limits(tmp_path: Path) -> None:
    # Two calls at once make 40 us of 80; reading takes 55 in one thread.
    found = main_of(tmp_path, *parallel_map(80, 55, 8))
    sections = {own.kind: (own.limit_ps / US, own.workers) for own in found.sections}
    assert sections["function"] == (40, 2), "as many as the pool has threads, whatever the stage asks for"
    assert name_of(found, found.limiting) == "TFRecord"


def test_each_element_of_a_batch_counts(tmp_path: Path) -> None:
    consumer = repeat(3, call("Root", 0, 90, 1), call("Root::MapAndBatch", 0, 90, 2, 1, batch_size=4, parallelism=1))
    runner, pool = [], []
    for turn in range(12):
        at = 25 * turn
        runner += [
            event("MapAndBatchProduce", at, 2), call("Root::MapAndBatch::Range", at, 1, 3, 2),
            event("InstantiatedCapturedFunction::RunAsync", at + 1, 1, id=100 + turn),
        ]  # fmt: skip
        pool.append(event("ExecutorState::Process", at + 2, 20, id=100 + turn))
    found = main_of(tmp_path, line("python", *consumer), line("runner", *runner), line("pool", *pool))
    assert stage(found, "Range").element_ps == 4 * US, "four calls make one element of the pipeline"
    (function,) = [own for own in found.sections if own.kind == "function"]
    assert function.element_ps == 4 * 20 * US


def test_an_interleave_reads_with_several_threads(tmp_path: Path) -> None:
    consumer = repeat(
        4, call("Root", 0, 60, 1), call("Root::ParallelInterleaveV4", 0, 60, 2, 1, cycle_length=4, parallelism=2)
    )
    readers = [
        line(
            f"reader {number}",
            *repeat(
                2,
                event("ParallelInterleaveProduce", 0, 110),
                call(f"Root::ParallelInterleaveV4[{number}]::TFRecord", 0, 110, 10 + number, 2),
                every=200,
            ),
        )
        for number in range(2)
    ]
    found = main_of(tmp_path, line("python", *consumer), *readers)
    (section,) = [own for own in found.sections if own.kind == "producer"]
    assert (section.workers, section.element_ps / US, section.limit_ps / US) == (2, 110, 55)
    assert name_of(found, found.blocking) == "TFRecord"


@pytest.mark.parametrize(
    ("stage_name", "op", "expected"),
    [
        ("Map", "EagerPyFunc", "py_function"), ("Map", "PyFuncStateless", "numpy_function"),
        ("Generator", "PyFunc", "from_generator"), ("Map", "DecodeJpeg", ""),
    ],
)  # fmt: skip
def test_python_in_a_function_is_seen(stage_name: str, op: str, expected: str, tmp_path: Path) -> None:
    consumer = [
        call("Root", 0, 90, 1), call(f"Root::{stage_name}", 1, 80, 2, 1),
        event("InstantiatedCapturedFunction::RunWithBorrowedArgs", 2, 70, id=7),
    ]  # fmt: skip
    pool = [event("ExecutorState::Process", 3, 60, id=7), event(f"{op}:{op}", 4, 50)]
    assert stage(main_of(tmp_path, line("python", *consumer), line("pool", *pool)), stage_name).python == expected


def test_waiting_that_begins_before_the_capture_has_no_stage(tmp_path: Path) -> None:
    # What the prefetch waits for at first began before the capture, so it was not recorded.
    consumer = [call("Root", 0, 80, 1), call("Root::Prefetch", 0, 80, 2, 1), call("Root", 100, 60, 1),
                call("Root::Prefetch", 100, 60, 2, 1)]  # fmt: skip
    producer = [event("PrefetchProduce", 90, 65), call("Root::Prefetch::Map", 90, 65, 3, 2)]
    found = main_of(tmp_path, line("python", *consumer), line("reader", *producer))
    assert (found.untold_ps / US, waited(found)) == (85, {"Map": 55})


def test_the_pipeline_that_is_waited_for_longest_comes_first(tmp_path: Path) -> None:
    events = [*repeat(3, call("Root", 0, 10, 1)), *repeat(3, call("Root", 20, 60, 9), call("Root::Map", 21, 50, 8, 9))]
    found = analyzed(tmp_path, line("python", *events))
    assert [(own.name, len(own.stages)) for own in found.pipelines] == [("Host:1", 2), ("Host:0", 1)]


def test_a_device_pipeline_is_not_the_main_one(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path,
        line("python", call("Prefetch", 0, 80, 1)),
        line("device", event("PrefetchProduce", 0, 80), call("Prefetch::Generator", 0, 80, 2, 1)),
    )
    assert [(own.name, own.is_device) for own in found.pipelines] == [("Device:0", True)]
    assert found.main is None


def test_waiting_for_devices_is_passed_on_to_the_pipeline_that_feeds_them(tmp_path: Path) -> None:
    # A step waits 80 us for what is handed to its device; the thread that does so waits 60 of them for the map.
    step = repeat(4, call("Root", 0, 80, 1), call("Root::Prefetch", 0, 80, 2, 1))
    device = repeat(4, event("PrefetchProduce", 0, 80), call("Root::Prefetch::Generator", 0, 80, 3, 2))
    feeding = repeat(4, call("Root", 0, 60, 11), call("Root::Map", 0, 60, 12, 11))
    found = analyzed(
        tmp_path, line("python", *step), line("device", *device),
        line("tf_data_multi_device_iterator_resource/7", *feeding),
    )  # fmt: skip
    assert [(own.name, own.is_handed_on) for own in found.pipelines] == [("Host:0", True), ("Device:0", False)]
    main = found.main
    assert main is not None
    assert (main.waited_ps / US, waited(main)) == (320, {"Map": 240})
    assert [own.kind for own in main.sections] == ["producer"], "not in the step's own thread"
    assert main.final_prefetch == 0


def test_the_worker_of_a_data_service_is_not_what_the_program_waits_for(tmp_path: Path) -> None:
    fetched = repeat(4, event("IteratorGetNextOp::DoCompute", 0, 40), call("Root", 1, 38, 1))
    worker = repeat(4, call("Root", 0, 90, 11), call("Root::Map", 0, 90, 12, 11))
    found = analyzed(tmp_path, line("python", *fetched), line("worker", *worker))
    assert [(own.name, own.is_fetched) for own in found.pipelines] == [("Host:1", False), ("Host:0", True)]
    assert found.main is found.pipelines[1]


def test_hosts_are_put_in_one_list(tmp_path: Path) -> None:
    one = analyzed(tmp_path, line("python", call("Root", 0, 60, 1)))
    two = analyzed(tmp_path, line("python", call("Root", 0, 90, 1)))
    assert [own.waited_ps / US for own in tfdata.combine([one, two]).pipelines] == [90, 60]
    assert tfdata.combine([]).main is None


def test_a_trace_that_begins_inside_has_asynchronous_stages_only(tmp_path: Path) -> None:
    # The calls around are cut off: one stage is all there is, and it starts a function in a pool.
    alone = line("runner", call("Root::ParallelMapV2", 0, 100, 2, 1),
                 event("InstantiatedCapturedFunction::RunAsync", 10, 1, id=100))  # fmt: skip
    pool = line("pool", event("ExecutorState::Process", 20, 50, id=100), id=2)
    (found,) = analyzed(tmp_path, alone, pool).pipelines
    assert (stage(found, "ParallelMapV2").runs, stage(found, "ParallelMapV2").run_ps) == (1, 50 * US)


def test_work_outside_every_stage_is_not_what_limits(tmp_path: Path) -> None:
    consumer = line("main", call("ParallelMapV2", 0, 100, 2, 1, parallelism=2))
    pool = line("pool", event("InstantiatedCapturedFunction::RunAsync", 10, 1, id=100),
                event("ExecutorState::Process", 20, 50, id=100), id=2)  # fmt: skip
    (found,) = analyzed(tmp_path, consumer, pool).pipelines
    assert [own.name for own in found.stages] == ["ParallelMapV2"]
    assert name_of(found, found.limiting) == "ParallelMapV2"
