"""Waiting is passed on to what is under way in other threads; what limits may be another stage."""

from __future__ import annotations

from pathlib import Path

from builders import event, line
from builders import iterator_call as call
from sections.tfdata.made_pipelines import (
    US,
    analyzed,
    behind_a_prefetch,
    main_of,
    name_of,
    parallel_map,
    repeat,
    stage_of,
    waited,
)


def test_with_parallel_calls_the_reader_limits(tmp_path: Path) -> None:
    # Two calls at once make 40 us of 80; reading takes 55 in one thread.
    main = main_of(tmp_path, *parallel_map(80, 55, 8))
    segments = {segment.kind: (segment.limit_ps / US, segment.workers) for segment in main.segments}
    assert segments["function"] == (40, 2), "as many as the pool has threads, whatever the stage asks for"
    assert name_of(main, main.limiting) == "TFRecord"


def test_each_element_of_a_batch_counts(tmp_path: Path) -> None:
    consumer = repeat(3, call("Root", 0, 90, 1), call("Root::MapAndBatch", 0, 90, 2, 1, batch_size=4, parallelism=1))
    runner, pool = [], []
    for turn in range(12):
        at = 25 * turn
        runner += [
            event("MapAndBatchProduce", at, 2),
            call("Root::MapAndBatch::Range", at, 1, 3, 2),
            event("InstantiatedCapturedFunction::RunAsync", at + 1, 1, id=100 + turn),
        ]
        pool.append(event("ExecutorState::Process", at + 2, 20, id=100 + turn))
    main = main_of(tmp_path, line("python", *consumer), line("runner", *runner), line("pool", *pool))
    assert stage_of(main, "Range").element_ps == 4 * US, "four calls make one element of the pipeline"
    (function,) = [segment for segment in main.segments if segment.kind == "function"]
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
    main = main_of(tmp_path, line("python", *consumer), *readers)
    (producer,) = [segment for segment in main.segments if segment.kind == "producer"]
    assert (producer.workers, producer.element_ps / US, producer.limit_ps / US) == (2, 110, 55)
    assert name_of(main, main.blocking) == "TFRecord"


def test_waiting_goes_through_a_prefetch_to_what_is_under_way(tmp_path: Path) -> None:
    main = main_of(tmp_path, *behind_a_prefetch(60, 10, 70))
    assert waited(main) == {"BatchV2": 40, "Map": 200}, "of 60 us each time, the last 10 are the batch"
    assert (name_of(main, main.blocking), name_of(main, main.limiting)) == ("Map", "Map")
    assert [(segment.kind, segment.element_ps / US) for segment in main.segments] == [("consumer", 0), ("producer", 80)]
    assert main.final_prefetch == 1
    assert stage_of(main, "Prefetch").is_async


def test_what_the_consumer_waits_for_may_not_be_what_limits(tmp_path: Path) -> None:
    # The map takes 70 of 100 us, but beside the step; the step waits for the batch alone, which takes 20.
    main = main_of(tmp_path, *behind_a_prefetch(20, 20, 70))
    assert (name_of(main, main.blocking), name_of(main, main.limiting)) == (None, "Map")
    assert waited(main) == {"BatchV2": 80}
    assert main.slow_calls == 0, "no call takes longer than 50 us"


def test_blocking_and_limiting_stage_differ(tmp_path: Path) -> None:
    # Batch runs in the step's thread (55 us); behind a prefetch, map works 90 of 100 us, mostly beside the step.
    consumer = repeat(
        4, call("Root", 30, 60, 1), call("Root::BatchV2", 30, 60, 2, 1), call("Root::BatchV2::Prefetch", 30, 5, 3, 2)
    )
    producer = repeat(4, event("PrefetchProduce", 0, 90), call("Root::BatchV2::Prefetch::Map", 0, 90, 4, 3))
    main = main_of(tmp_path, line("python", *consumer), line("reader", *producer))
    assert (name_of(main, main.blocking), name_of(main, main.limiting)) == ("BatchV2", "Map")
    assert waited(main) == {"BatchV2": 220, "Map": 20}


def test_the_function_of_a_parallel_map_is_what_is_waited_for(tmp_path: Path) -> None:
    main = main_of(tmp_path, *parallel_map(80, 10, 1))
    assert waited(main)["ParallelMapV2"] == 4 * 80 + 3 * 10, "the function, and the gaps before the next call"
    assert waited(main)["TFRecord"] == 40
    assert (name_of(main, main.blocking), name_of(main, main.limiting)) == ("ParallelMapV2", "ParallelMapV2")
    stage = stage_of(main, "ParallelMapV2")
    assert (stage.runs, stage.run_ps, stage.is_async, stage.python) == (4, 320 * US, True, "")
    assert stage.ops == (("map/DecodeJpeg", "DecodeJpeg", 4, 4 * 79 * US),)
    segments = {segment.kind: (segment.element_ps / US, segment.workers) for segment in main.segments}
    assert segments == {"consumer": (0, 1), "function": (80, 1), "producer": (11, 1)}
    assert (main.cores, main.pool_threads) == (2, 2)


def test_waiting_that_starts_before_the_capture_has_no_stage(tmp_path: Path) -> None:
    # What the prefetch waits for at first started before the capture, so it was not recorded.
    consumer = [
        call("Root", 0, 80, 1),
        call("Root::Prefetch", 0, 80, 2, 1),
        call("Root", 100, 60, 1),
        call("Root::Prefetch", 100, 60, 2, 1),
    ]
    producer = [event("PrefetchProduce", 90, 65), call("Root::Prefetch::Map", 90, 65, 3, 2)]
    main = main_of(tmp_path, line("python", *consumer), line("reader", *producer))
    assert (main.unattributed_ps / US, waited(main)) == (85, {"Map": 55})


def test_waiting_for_devices_is_passed_on_to_the_pipeline_that_feeds_them(tmp_path: Path) -> None:
    # A step waits 80 us for what is handed to its device; the thread that does so waits 60 of them for the map.
    step = repeat(4, call("Root", 0, 80, 1), call("Root::Prefetch", 0, 80, 2, 1))
    device = repeat(4, event("PrefetchProduce", 0, 80), call("Root::Prefetch::Generator", 0, 80, 3, 2))
    feeding = repeat(4, call("Root", 0, 60, 11), call("Root::Map", 0, 60, 12, 11))
    tfdata = analyzed(
        tmp_path,
        line("python", *step),
        line("device", *device),
        line("tf_data_multi_device_iterator_resource/7", *feeding),
    )
    assert [(pipeline.name, pipeline.is_handed_on) for pipeline in tfdata.pipelines] == [
        ("Host:0", True),
        ("Device:0", False),
    ]
    main = tfdata.main
    assert main is not None
    assert (main.waited_ps / US, waited(main)) == (320, {"Map": 240})
    assert [segment.kind for segment in main.segments] == ["producer"], "not in the step's own thread"
    assert main.final_prefetch == 0
