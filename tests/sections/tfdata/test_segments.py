from __future__ import annotations

from pathlib import Path

from builders import event, line
from builders import iterator_call as call
from sections.tfdata.made_pipelines import US, main_of, name_of, parallel_map, repeat, stage_of


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
