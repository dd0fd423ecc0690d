"""Pipelines of a host and of several, stage by stage: what they wait for, and what stages work."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Line, event, known, line, plane, repeat, trace_of
from builders import iterator_call as call
from sections.tfdata.made_pipelines import (
    US,
    analyzed,
    behind_a_prefetch,
    each_step,
    in_a_pool,
    in_one_thread,
    inline_map,
    main_of,
    name_of,
    parallel_map,
    stage_of,
    steps,
    training_and_evaluation,
    waited,
    waiting_job,
)

from tfperf.sections.tfdata.analysis import StageTimes, TfData, combine, measure_stages, shorten
from tfperf.trace.tfdata import Pipelines, asynchronous_stages, find_pipelines, stage_work


@pytest.mark.parametrize(("times", "slowest"), [((60, 5, 5), "Map"), ((5, 60, 5), "BatchV2"), ((5, 5, 60), "TFRecord")])
def test_in_one_thread_each_stage_in_turn(times: tuple[float, float, float], slowest: str, tmp_path: Path) -> None:
    main = main_of(tmp_path, line("python", *in_one_thread(*times)))
    assert name_of(main, main.blocking) == name_of(main, main.limiting) == slowest
    stage = stage_of(main, slowest)
    assert (stage.calls, stage.work_ps, stage.blocked_ps, stage.element_ps) == (4, 240 * US, 240 * US, 60 * US)
    assert (main.calls, main.slow_calls, main.waited_ps, main.unattributed_ps) == (4, 4, 284 * US, 0)
    assert main.mean_ps == main.max_ps == 71 * US
    (segment,) = main.segments
    assert (segment.kind, segment.element_ps, segment.workers) == ("consumer", 71 * US, 1)
    assert main.final_prefetch is None


@pytest.mark.parametrize(
    ("name", "op", "expected"),
    [
        ("Map", "EagerPyFunc", "py_function"),
        ("Map", "PyFuncStateless", "numpy_function"),
        ("Generator", "PyFunc", "from_generator"),
        ("Map", "DecodeJpeg", ""),
    ],
)
def test_python_in_a_function_is_seen(name: str, op: str, expected: str, tmp_path: Path) -> None:
    assert stage_of(main_of(tmp_path, *waiting_job(name, op=op)), name).python == expected


def test_the_pipeline_that_is_waited_for_longest_comes_first(tmp_path: Path) -> None:
    events = [*repeat(3, call("Root", 0, 10, 1)), *repeat(3, call("Root", 20, 60, 9), call("Root::Map", 21, 50, 8, 9))]
    tfdata = analyzed(tmp_path, line("python", *events))
    assert [(pipeline.name, len(pipeline.stages)) for pipeline in tfdata.pipelines] == [("Host:1", 2), ("Host:0", 1)]


def test_the_main_pipeline_is_the_one_that_steps_wait_for(tmp_path: Path) -> None:
    # The second pipeline is waited for longer, but between the steps, as in validation.
    steps = [event("train", 300 * number, 100, step_num=number) for number in range(5)]
    training = repeat(5, call("Root", 0, 60, 1), every=300)
    validation = repeat(5, call("Root", 110, 180, 2), every=300)
    others = [event("eval", 300 * number + 105, 190, step_num=number) for number in range(5)]
    tfdata = analyzed(tmp_path, line("python", *steps, *others, *training, *validation))
    assert [pipeline.waited_ps / US for pipeline in tfdata.pipelines] == [300, 900]
    assert tfdata.main is known(tfdata.outlook).pipeline is tfdata.pipelines[0]


def test_a_device_pipeline_is_not_the_main_one(tmp_path: Path) -> None:
    tfdata = analyzed(
        tmp_path,
        line("python", call("Prefetch", 0, 80, 1)),
        line("device", event("PrefetchProduce", 0, 80), call("Prefetch::Generator", 0, 80, 2, 1)),
    )
    assert [(pipeline.name, pipeline.is_device) for pipeline in tfdata.pipelines] == [("Device:0", True)]
    assert tfdata.main is None


def test_the_worker_of_a_data_service_is_not_what_the_program_waits_for(tmp_path: Path) -> None:
    fetched = repeat(4, event("IteratorGetNextOp::DoCompute", 0, 40), call("Root", 1, 38, 1))
    worker = repeat(4, call("Root", 0, 90, 11), call("Root::Map", 0, 90, 12, 11))
    tfdata = analyzed(tmp_path, line("python", *fetched), line("worker", *worker))
    found = [(pipeline.name, pipeline.is_fetched, pipeline.waited_ps / US) for pipeline in tfdata.pipelines]
    assert found == [("Host:0", True, 152), ("Host:1", False, 360)]
    assert tfdata.main is tfdata.pipelines[0]


def test_without_tf_data_there_is_nothing(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, line("python", event("train", 0, 100)))
    assert (tfdata.pipelines, tfdata.main, tfdata.outlook) == ((), None, None)


def test_hosts_are_put_in_one_list(tmp_path: Path) -> None:
    first = analyzed(tmp_path, line("python", call("Root", 0, 60, 1)))
    second = analyzed(tmp_path, line("python", call("Root", 0, 90, 1)))
    assert [pipeline.waited_ps / US for pipeline in combine([first, second]).pipelines] == [90, 60]
    assert combine([]).main is None


def test_the_outlook_of_a_run_is_that_of_the_host_that_waits_longest(tmp_path: Path) -> None:
    steps = repeat(4, event("train", 0, 100))
    hosts = [analyzed(tmp_path, line("python", *steps, *repeat(4, call("Root", 0, wait, 1)))) for wait in (30, 70, 50)]
    combined = combine(hosts)
    assert combined.outlook is hosts[1].outlook
    assert combined.main is hosts[1].main is combined.pipelines[0]
    assert len(combined.pipelines) == 3


def test_a_trace_that_starts_inside_has_asynchronous_stages_only(tmp_path: Path) -> None:
    # The calls around are cut off: one stage is all there is, and it starts a function in a pool.
    alone = in_a_pool(call("Root::ParallelMapV2", 0, 100, 2, 1), starts=(10, 1), runs=(20, 50), count=1)
    (pipeline,) = analyzed(tmp_path, *alone).pipelines
    stage = stage_of(pipeline, "ParallelMapV2")
    assert (stage.runs, stage.run_ps) == (1, 50 * US)


def test_work_outside_every_stage_is_not_what_limits(tmp_path: Path) -> None:
    consumer = line("main", call("ParallelMapV2", 0, 100, 2, 1, parallelism=2))
    runner, pool = in_a_pool(starts=(10, 1), runs=(20, 50), count=1)
    (pipeline,) = analyzed(tmp_path, consumer, line("pool", *runner.events, *pool.events)).pipelines
    assert [stage.name for stage in pipeline.stages] == ["ParallelMapV2"]
    assert name_of(pipeline, pipeline.limiting) == "ParallelMapV2"


def test_steps_of_another_kind_have_an_outlook_of_their_own(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, training_and_evaluation(eval_stage="Filter", eval_root=11))
    training = known(tfdata.outlook)
    assert [training.step_ms, training.wait_ms] == pytest.approx([0.1, 0.01])
    assert list(tfdata.of_kinds) == ["eval"]
    outlook = tfdata.of_kinds["eval"]
    assert [outlook.step_ms, outlook.wait_ms] == pytest.approx([0.1, 0.06])
    assert [stage.name for stage in outlook.pipeline.stages] == ["Root", "Filter"]
    assert outlook.estimates
    assert known(tfdata.for_steps("eval")).main is outlook.pipeline
    assert tfdata.for_steps("predict") is None
    assert list(combine([tfdata, tfdata]).of_kinds) == ["eval"]


def test_a_pipeline_that_training_asks_too_has_no_estimates_for_evaluation(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, training_and_evaluation(eval_stage="Map", eval_root=1))
    training, outlook = known(tfdata.outlook), tfdata.of_kinds["eval"]
    assert outlook.pipeline is training.pipeline
    assert (training.estimates != (), outlook.estimates) == (True, ())


def test_pipelines_beyond_so_many_stages_are_left_out_but_for_the_main_one(tmp_path: Path) -> None:
    events = [
        *repeat(3, call("Root", 0, 60, 1), call("Root::Map", 1, 50, 2, 1)),
        *repeat(3, call("Root", 70, 20, 9)),
        *repeat(3, call("Root", 95, 3, 10)),
    ]
    tfdata = analyzed(tmp_path, line("python", *events))
    kept = [[pipeline.name for pipeline in shorten(tfdata, most).pipelines] for most in range(5)]
    assert kept == [["Host:0"]] * 3 + [["Host:0", "Host:1"], ["Host:0", "Host:1", "Host:2"]]
    assert shorten(tfdata, 4) is tfdata
    assert shorten(TfData(()), 0).pipelines == ()


# --- waiting is passed on to what is under way in other threads; what limits may be another stage ---


def test_with_parallel_calls_the_reader_limits(tmp_path: Path) -> None:
    # Two calls at once make 40 us of 80; reading takes 55 in one thread.
    main = main_of(tmp_path, *parallel_map(80, 55, 8))
    segments = {segment.kind: (segment.limit_ps / US, segment.workers) for segment in main.segments}
    assert segments["function"] == (40, 2), "as many as the pool has threads, whatever the stage asks for"
    assert name_of(main, main.limiting) == "TFRecord"


def test_each_element_of_a_batch_counts(tmp_path: Path) -> None:
    consumer = repeat(3, call("Root", 0, 90, 1), call("Root::MapAndBatch", 0, 90, 2, 1, batch_size=4, parallelism=1))
    reading = event("MapAndBatchProduce", 0, 2), call("Root::MapAndBatch::Range", 0, 1, 3, 2)
    threads = in_a_pool(*reading, starts=(1, 1), runs=(2, 20), count=12, every=25)
    main = main_of(tmp_path, line("python", *consumer), *threads)
    assert stage_of(main, "Range").element_ps == 4 * US, "four calls make one element of the pipeline"
    (function,) = [segment for segment in main.segments if segment.kind == "function"]
    assert function.element_ps == 4 * 20 * US


def test_an_interleave_reads_with_several_threads(tmp_path: Path) -> None:
    path, readers = "Root::ParallelInterleaveV4", list[Line]()
    consumer = repeat(4, call("Root", 0, 60, 1), call(path, 0, 60, 2, 1, cycle_length=4, parallelism=2))
    for number in range(2):
        reading = call(f"{path}[{number}]::TFRecord", 0, 110, 10 + number, 2)
        work = repeat(2, event("ParallelInterleaveProduce", 0, 110), reading, every=200)
        readers.append(line(f"reader {number}", *work))
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
    consumer = [call("Root", 0, 80, 1), call("Root::Prefetch", 0, 80, 2, 1)]
    consumer += [call("Root", 100, 60, 1), call("Root::Prefetch", 100, 60, 2, 1)]
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
    found = [(pipeline.name, pipeline.is_handed_on) for pipeline in tfdata.pipelines]
    assert found == [("Host:0", True), ("Device:0", False)]
    main = known(tfdata.main)
    assert (main.waited_ps / US, waited(main)) == (320, {"Map": 240})
    assert [segment.kind for segment in main.segments] == ["producer"], "not in the step's own thread"
    assert main.final_prefetch == 0


# --- how many threads work while steps wait: 60 us of each step of 100, in which one thread runs the map ---


def job(*others: Event, op: str = "DecodeJpeg") -> tuple[Line, ...]:
    """A host of four cores whose step waits for a map, with other events on a thread of their own in each step."""
    return *inline_map(60, op), line("others", *each_step(*others))


def test_threads_of_four_cores(tmp_path: Path) -> None:
    main = main_of(tmp_path, *job())
    assert main.cores == 4
    assert [main.threads_at_work, main.threads_computing] == pytest.approx([1.0, 1.0])
    assert (main.leaves_cores, main.fills_cores) == (True, False)
    # Ops of the step work too, and ops inside of ops count once.
    main = main_of(tmp_path, *job(event("a:MatMul", 0, 30), event("b:Relu", 10, 10), event("c:Add", 70, 30)))
    assert main.threads_at_work == pytest.approx(1.5)
    # Python may sleep, so it does not fill a core.
    main = main_of(tmp_path, *job(op="EagerPyFunc"))
    assert [main.threads_at_work, main.threads_computing] == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize("name", ["a:_Recv", "b:IteratorGetNext", "c:CollectiveReduceV2", "d:RemoteCall"])
def test_ops_that_wait_do_not_work(name: str, tmp_path: Path) -> None:
    assert main_of(tmp_path, *job(event(name, 0, 60))).threads_at_work == pytest.approx(1.0)


def test_a_stage_that_leaves_no_event_makes_it_unknown(tmp_path: Path) -> None:
    hidden = [call("Root", 0, 60, 1, cpu_budget=8), call("Root::ParallelBatch", 0, 60, 2, 1)]
    main = main_of(tmp_path, line("python", *steps(), *each_step(*hidden)))
    assert (main.threads_at_work, main.leaves_cores) == (None, False)


@pytest.mark.parametrize(("cores", "leaves", "fills"), [(1, False, True), (2, False, False), (8, True, False)])
def test_cores_that_the_capture_states(cores: int, leaves: bool, fills: bool, tmp_path: Path) -> None:
    main = main_of(tmp_path, *waiting_job("Map", op="DecodeJpeg"), cpu_affinity=cores)
    assert (main.leaves_cores, main.fills_cores) == (leaves, fills)


@pytest.mark.parametrize(("busy", "fills"), [(2.0, True), (1.2, False)])
def test_cpu_time_of_the_process_counts_what_leaves_no_event(busy: float, fills: bool, tmp_path: Path) -> None:
    # Python may sleep, but two cores that are busy all the time are busy while the step waits too.
    main = main_of(tmp_path, *waiting_job("Map", op="EagerPyFunc"), cpu_affinity=2, busy_cores=busy)
    assert main.fills_cores == fills


# --- what stages work, and in which threads ---

RUN, RUN_ASYNC, WORK = (
    "InstantiatedCapturedFunction::Run",
    "InstantiatedCapturedFunction::RunAsync",
    "ExecutorState::Process",
)


def times_of(tmp_path: Path, *lines: Line) -> tuple[Pipelines, StageTimes]:
    trace = trace_of(tmp_path, plane("/host:CPU", *lines))
    pipelines = known(find_pipelines(trace))
    is_async = asynchronous_stages(pipelines)
    return pipelines, measure_stages(pipelines, stage_work(trace, pipelines).without_waiting(is_async), is_async)


def measured(tmp_path: Path, *lines: Line) -> dict[str, tuple[float | None, float, float]]:
    """(work us, busy us, us that it holds threads) of each stage."""
    pipelines, times = times_of(tmp_path, *lines)
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
    _, times = times_of(tmp_path, python)
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
