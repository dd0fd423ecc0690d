"""What hosts do for input: ops, their classes and their times in microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import STEPS_LINE, Line, Plane, event, gpu, host, host_of, line, marks, plane, ref, result_of, trace_of
from builders import iterator_call as call

from tfperf.sections.input.analysis import InputOp, InputPart, InputPipeline, combine, ops_by_stage, part_of, shorten
from tfperf.trace.event_names import parse_op
from tfperf.trace.host.activities import Attribution

US = 1_000_000

READ = "Iterator::Root::Map::TFRecord"


def pipeline_of(tmp_path: Path, *planes: Plane, attribution: Attribution = "corrected") -> InputPipeline:
    result: InputPipeline = result_of(tmp_path, "input", *planes, attribution=attribution)
    return result


Row = tuple[str, int, float, float, float, int | None]


def row(op: InputOp) -> Row:
    """(class, count, total us, self us, wall us, threads)"""
    return op.part, op.count, (op.total_ps or 0) / US, op.self_ps / US, (op.wall_ps or 0) / US, op.threads


def rows(pipeline: InputPipeline) -> list[tuple[Any, ...]]:
    return [(op.name, *row(op)) for op in pipeline.ops]


def scaled(pipeline: InputPipeline) -> dict[str, float]:
    """Scaled microseconds of the classes that have any."""
    return {part: round(time.scaled_ps / US, 6) for part, time in pipeline.parts.items() if time.scaled_ps}


def test_self_time_and_wall_time_are_without_the_ops_inside(tmp_path: Path) -> None:
    events = (event("Iterator::Root::Map", 0, 100), event(READ, 10, 20), event("d/Cast:Cast", 40, 30))
    pipeline = pipeline_of(tmp_path, host(*events))
    assert rows(pipeline) == [
        ("Iterator::Root::Map", "preprocessing", 1, 100, 80, 80, 1),  # Cast is what it does.
        (READ, "on_demand_read", 1, 20, 20, 20, 1),
    ]
    assert pipeline.largest == "preprocessing"
    assert rows(pipeline_of(tmp_path, host(*events), attribution="tensorflow"))[0][4] == 50, "without Cast"


def test_what_a_function_does_elsewhere_is_preprocessing(tmp_path: Path) -> None:
    """A map with threads reads for 10 us; its function runs 2 x 30 us in a pool, 20 of them at one time."""
    path, run = "Root::ParallelMapV2", "InstantiatedCapturedFunction::RunAsync"
    threads = plane(
        "/host:CPU",
        line("python", call("Root", 0, 80, 1), call(path, 0, 80, 2, 1)),
        line("runner", call(f"{path}::TFRecord", 0, 10, 3, 2), event(run, 10, 1, id=7), event(run, 11, 1, id=8)),
        line("pool", event("ExecutorState::Process", 20, 30, id=7), event("d/Cast:Cast", 21, 20)),
        line("pool 2", event("ExecutorState::Process", 30, 30, id=8)),
    )
    corrected, tensorflow = (
        pipeline_of(tmp_path, threads, attribution=attribution) for attribution in ("corrected", "tensorflow")
    )
    assert {part: time.wall_ps / US for part, time in corrected.parts.items() if time.ops} == {
        "advanced_read": 10,
        "preprocessing": 42,  # the function, and the thread that starts it
        "other": 80,
    }
    assert corrected.largest == "preprocessing"
    assert tensorflow.largest == "preprocessing", "the call that waits"
    assert tensorflow.parts["other"].ops == 0


def test_threads_add_up_but_wall_time_does_not(tmp_path: Path) -> None:
    threads = plane(
        "/host:CPU",
        line("a", event("Iterator::Root::Map", 0, 60), event(READ, 50, 10)),
        line("b", event("Iterator::Root::Map", 20, 60), event(READ, 20, 20)),
        line("c", event("Iterator::Root::BatchV2", 70, 20)),
    )
    pipeline = pipeline_of(tmp_path, threads)
    assert rows(pipeline) == [
        ("Iterator::Root::Map", "preprocessing", 2, 120, 90, 80, 2),  # 0 to 50 and 40 to 80
        (READ, "on_demand_read", 2, 30, 30, 30, 2),  # 20 to 40 and 50 to 60
        ("Iterator::Root::BatchV2", "preprocessing", 1, 20, 20, 20, 1),
    ]
    assert {part: time.wall_ps / US for part, time in pipeline.parts.items() if time.ops} == {
        "preprocessing": 90,
        "on_demand_read": 30,
    }
    assert max(op.threads or 0 for op in pipeline.ops) == 2


# --- scaling ---
def test_without_enqueue_nothing_is_scaled(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, host(event("Iterator::Root::Map", 0, 100), event(READ, 10, 20)))
    assert (scaled(pipeline), pipeline.enqueue_shares) == ({"preprocessing": 80, "on_demand_read": 20}, ())


@pytest.mark.parametrize("attribution", ["corrected", "tensorflow"])
def test_infeed_tells_the_share_of_enqueue(tmp_path: Path, attribution: Attribution) -> None:
    """From enqueue to enqueue 10 us, of which 2 us enqueue; so the rest is 4 times enqueue: 24 us."""
    enqueues = [event("infeed:InfeedEnqueue", 10 * n, 2) for n in range(3)]
    reading = line("reader", event("Iterator::Root::Map", 0, 90), event(READ, 0, 30))
    pipeline = pipeline_of(tmp_path, plane("/host:CPU", line("feeder", *enqueues), reading), attribution=attribution)
    assert list(pipeline.enqueue_shares) == pytest.approx([0.2])
    assert scaled(pipeline) == {"enqueue": 6, "preprocessing": 16, "on_demand_read": 8}


def test_infeed_without_any_reader_leaves_the_rest_unexplained(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, host(*(event("infeed:InfeedEnqueue", 10 * n, 2) for n in range(3))))
    assert scaled(pipeline) == {"enqueue": 6, "other": 24}


def steps_with_copy(*more: Line) -> list[Plane]:
    """Two steps of 100 us; in each, the GPU copies a batch in for 25 us."""
    reading = line("reader", event("Iterator::Root::Map", 0, 90))
    copies = [event("MemcpyH2D", 100 * n + 50, 25) for n in range(2)]
    return [plane("/host:CPU", line("python", *marks(2)), reading, *more), gpu(*copies)]


def test_steps_tell_the_share_of_enqueue_where_there_is_no_infeed(tmp_path: Path) -> None:
    copying = line("driver", event("MemcpyHToD", 50, 10), event("MemcpyHToD", 150, 10))
    pipeline = pipeline_of(tmp_path, *steps_with_copy(copying))
    assert list(pipeline.enqueue_shares) == pytest.approx([0.25])
    assert scaled(pipeline) == {"enqueue": 20, "preprocessing": 60}


def test_copies_of_the_device_alone_scale_nothing(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, *steps_with_copy())
    assert (scaled(pipeline), pipeline.enqueue_shares) == ({"preprocessing": 90}, ())


def test_tensorflow_scales_by_an_enqueue_time_of_zero_then(tmp_path: Path) -> None:
    stored = {"group_id": 0}
    python = line("python", event("train", 0, 100, step_num=0, step_name="train 0", **stored))
    reading = line("reader", event("Iterator::Root::Map", 0, 90, **stored))
    steps = line("Steps", event("0", 0, 100, **stored), id=STEPS_LINE)
    work = (("MemcpyHToD", 10, 25), ("gemm", 50, 40))
    stream = line("Stream #1", *(event(*each, correlation_id=n, **stored) for n, each in enumerate(work, 1)))
    planes = plane("/host:CPU", python, reading), plane("/device:GPU:0", steps, stream)
    pipeline = pipeline_of(tmp_path, *planes, attribution="tensorflow")
    assert list(pipeline.enqueue_shares) == pytest.approx([0.25])
    assert scaled(pipeline) == {}
    assert scaled(pipeline_of(tmp_path, *planes)) == {"preprocessing": 90}


# --- ends in the same microsecond ---
def same_end() -> Plane:
    """Zip holds two stages, of which the outer one and the one inside it end together; all in a stored group."""
    stored = {"group_id": 0}
    return host(
        event("Iterator::Zip", 0, 10, **stored),
        event("Iterator::Zip::FlatMap", 1, 5, **stored),
        event("Iterator::Zip::FlatMap::Take", 2, 4, **stored),
        event("Iterator::Zip::Range", 7, 2, **stored),
    )


def test_corrected_ends_the_inner_one_first(tmp_path: Path) -> None:
    assert rows(pipeline_of(tmp_path, same_end())) == [
        ("Iterator::Zip::FlatMap::Take", "preprocessing", 1, 4, 4, 4, 1),
        ("Iterator::Zip", "preprocessing", 1, 10, 3, 3, 1),
        ("Iterator::Zip::Range", "preprocessing", 1, 2, 2, 2, 1),
        ("Iterator::Zip::FlatMap", "preprocessing", 1, 5, 1, 1, 1),
    ]


def test_tensorflow_loses_the_inner_one_and_what_is_around_both(tmp_path: Path) -> None:
    assert rows(pipeline_of(tmp_path, same_end(), attribution="tensorflow")) == [
        ("Iterator::Zip::FlatMap", "preprocessing", 1, 5, 5, 5, 1),
        ("Iterator::Zip::Range", "preprocessing", 1, 2, 2, 2, 1),
    ]


# --- nothing to show, and several hosts ---
def test_without_tf_data_there_is_nothing(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, host(event("d/MatMul:MatMul", 0, 10)))
    assert (pipeline.ops, pipeline.largest, pipeline.has_host_events) == ((), None, True)


def test_the_device_alone_tells_nothing_about_the_host(tmp_path: Path) -> None:
    assert not pipeline_of(tmp_path, gpu(event("gemm", 0, 10, tf_op=ref("d/MatMul:MatMul")))).has_host_events


def test_waiting_is_the_largest_part_only_where_nothing_else_is(tmp_path: Path) -> None:
    waiting = event("Iterator::Root::Prefetch", 0, 90)
    assert pipeline_of(tmp_path, host(waiting)).largest == "other"
    assert pipeline_of(tmp_path, host(waiting, event("Iterator::Root", 95, 1))).largest == "preprocessing"


def test_hosts_are_added_up(tmp_path: Path) -> None:
    first = pipeline_of(tmp_path, host(event("Iterator::Root::Map", 0, 100), event(READ, 10, 20)))
    second = pipeline_of(tmp_path, host(event(READ, 0, 70)))
    both = combine([first, second])
    assert rows(both) == [
        (READ, "on_demand_read", 2, 90, 90, 90, 2),
        ("Iterator::Root::Map", "preprocessing", 1, 100, 80, 80, 1),
    ]
    assert both.largest == "on_demand_read"
    assert scaled(both) == {"on_demand_read": 90, "preprocessing": 80}


def test_ops_beyond_the_first_are_one_of_each_class_whose_wall_time_is_unknown(tmp_path: Path) -> None:
    calls = [call(name, 100 * at, 90 - 10 * at, at + 1) for at, name in enumerate(("A", "B", "C"))]
    whole = pipeline_of(tmp_path, plane("/host:CPU", line("t", *calls)))
    short = shorten(whole, 1)
    assert [(op.name, op.self_ps / US, op.wall_ps, op.threads) for op in short.ops] == [
        ("(other ops)", 150, None, None),
        ("Iterator::A", 90, 90 * US, 1),
    ]
    assert (short.parts, short.self_ps) == (whole.parts, whole.self_ps)
    assert shorten(whole, 3) is whole
    both = combine([short, whole])
    assert [(op.name, op.count, op.wall_ps) for op in both.ops if op.name in {"(other ops)", "Iterator::A"}] == [
        ("Iterator::A", 2, 180 * US),
        ("(other ops)", 2, None),
    ]
    assert both.parts["preprocessing"].ops == 4
    assert both.columns()["wall_ms"] == [0.18, None, 0.08, 0.07]
    assert both.columns()["total_ms"] == [0.18, None, 0.08, 0.07]


@pytest.mark.parametrize(
    ("name", "corrected", "tensorflow"),
    [
        ("Iterator::Root::Map::TFRecord", "on_demand_read", "on_demand_read"),
        ("Iterator::Root::TextLine", "on_demand_read", "on_demand_read"),
        ("Iterator::Root::Prefetch::Map::TFRecord", "advanced_read", "advanced_read"),
        ("Iterator::Root::Interleave[0]::FixedLengthRecord", "advanced_read", "advanced_read"),
        ("Iterator::Root::ParallelMapV2::RecordIO", "advanced_read", "advanced_read"),
        ("Iterator::Root::ParallelInterleaveV4[1]::FlatMap[0]::TFRecord", "advanced_read", "on_demand_read"),
        ("Iterator::Root::MapAndBatch::TFRecord", "advanced_read", "on_demand_read"),
        ("Iterator::Root::TFRecord::Map", "preprocessing", "preprocessing"),
        ("Iterator::Root::BatchV2", "preprocessing", "preprocessing"),
        ("Iterator::Root::ParallelMapV2", "other", "preprocessing"),
        ("Iterator::Root::MapAndBatch", "other", "preprocessing"),
        ("Iterator::Root::ParseExampleV2", "other", "preprocessing"),
        ("Iterator::Prefetch::Generator", "other", "preprocessing"),
        ("Iterator::Root::Prefetch::Generator", "preprocessing", "preprocessing"),
        ("Iterator::Root::Prefetch", "other", "preprocessing"),
        ("Iterator::Root::Map::ParallelInterleaveV4", "other", "preprocessing"),
        ("train/infeed:InfeedEnqueueTuple", "enqueue", "enqueue"),
        ("MemcpyHToD", "enqueue", "enqueue"),
    ],
)
def test_each_op_has_a_class(name: str, corrected: InputPart, tensorflow: InputPart) -> None:
    op = parse_op(name)
    assert (part_of(op, "corrected"), part_of(op, "tensorflow")) == (corrected, tensorflow)


def test_the_stage_knows_better_than_its_name_whether_it_hands_over() -> None:
    op = parse_op("Iterator::Root::Prefetch::Generator")
    for hands_over, expected in ((None, "preprocessing"), (False, "preprocessing"), (True, "other")):
        assert part_of(op, "corrected", hands_over=hands_over) == expected
        assert part_of(op, "tensorflow", hands_over=hands_over) == "preprocessing"


WORK = "ExecutorState::Process"


def stages(tmp_path: Path, *lines: Line) -> dict[str, Row]:
    found = [*ops_by_stage(host_of(trace_of(tmp_path, plane("/host:CPU", *lines))))]
    assert all(stretches.total() == op.self_ps for op, stretches in found)
    return {op.name: row(op) for op, _ in found}


def test_a_map_and_its_function(tmp_path: Path) -> None:
    run = "InstantiatedCapturedFunction::Run"
    calls = line("python", call("Root", 0, 90, 1), call("Root::Map", 0, 90, 2, 1), event(run, 10, 70, id=7))
    pool = line("pool", event(WORK, 20, 30, id=7), event("map/Cast:Cast", 21, 20))
    assert stages(tmp_path, calls, pool) == {
        "Iterator::Root": ("preprocessing", 1, 90, 0, 0, 1),
        "Iterator::Root::Map": ("preprocessing", 1, 90, 20, 20, 1),  # It waits for the pool from 10 to 80.
        "function of Iterator::Root::Map": ("preprocessing", 1, 30, 30, 30, 1),
    }


def test_calls_of_a_stage_with_threads_wait(tmp_path: Path) -> None:
    path = "Root::Prefetch"
    consumer = line("python", call("Root", 0, 50, 1), call(path, 0, 50, 2, 1))
    reader = line("reader", event("PrefetchProduce", 0, 50), call(f"{path}::TFRecord", 2, 46, 3, 2))
    assert stages(tmp_path, consumer, reader) == {
        "Iterator::Root": ("preprocessing", 1, 50, 0, 0, 1),
        "Iterator::Root::Prefetch": ("other", 1, 50, 50, 50, 1),
        "threads of Iterator::Root::Prefetch": ("other", 1, 50, 4, 4, 1),
        "Iterator::Root::Prefetch::TFRecord": ("advanced_read", 1, 46, 46, 46, 1),
    }


def generator(op: str) -> tuple[Line, Line]:
    """Prefetch > Generator, whose function runs this op for 10 of 90 us."""
    path, run = "Root::Prefetch", event("InstantiatedCapturedFunction::RunWithBorrowedArgs", 5, 90, id=7)
    calls = call("Root", 0, 100, 1), call(path, 0, 100, 2, 1), call(f"{path}::Generator", 0, 100, 3, 2)
    return line("device", *calls, run), line("pool", event(WORK, 20, 10, id=7), event(f"{op}:{op}", 21, 8))


def test_a_generator_of_the_program_works_and_that_of_a_device_waits_for_the_host(tmp_path: Path) -> None:
    name = "Iterator::Root::Prefetch::Generator"
    for op, part in (("PyFunc", "preprocessing"), ("RemoteCall", "other")):
        found = stages(tmp_path, *generator(op))
        assert found[name] == (part, 1, 100, 10, 10, 1), "not what it waits for"
        assert found[f"function of {name}"] == (part, 1, 10, 10, 10, 1)


def test_alike_inputs_are_one_op(tmp_path: Path) -> None:
    calls = [call("Root", 0, 50, 1), call("Root::FlatMap", 0, 50, 2, 1)]
    calls += [call(f"Root::FlatMap[{number}]::TFRecord", 10 * number, 10, 3 + number, 2) for number in range(3)]
    found = stages(tmp_path, line("python", *calls))
    assert found["Iterator::Root::FlatMap::TFRecord"] == ("on_demand_read", 3, 30, 30, 30, 1)


def test_calls_without_an_id_and_copies_are_known_by_name(tmp_path: Path) -> None:
    old = event("Iterator::Root::Map", 0, 50), event("Iterator::Root::Map::TFRecord", 10, 20)
    copying = line("copier", event("MemcpyHToD", 0, 5))
    assert stages(tmp_path, line("python", *old), copying) == {
        "Iterator::Root::Map": ("preprocessing", 1, 50, 30, 30, 1),
        "Iterator::Root::Map::TFRecord": ("on_demand_read", 1, 20, 20, 20, 1),
        "MemcpyHToD": ("enqueue", 1, 5, 5, 5, 1),
    }


def test_batches_that_are_handed_to_a_device(tmp_path: Path) -> None:
    """An op sends a batch, the driver copies part of it inside; another op that sends, and one that waits, are none."""
    sending = line("sender", event("IteratorGetNext/_1:_Send", 0, 20), event("MemcpyH2D", 5, 10))
    others = line("others", event("cond/_2:_Send", 0, 20), event("IteratorGetNext/_1:_Recv", 0, 30), id=9)
    assert stages(tmp_path, sending, others) == {
        "IteratorGetNext/_1:_Send": ("enqueue", 1, 20, 10, 10, 1),
        "MemcpyH2D": ("enqueue", 1, 10, 10, 10, 1),
    }


def test_a_function_of_an_unknown_stage_is_preprocessing_too(tmp_path: Path) -> None:
    run = event("InstantiatedCapturedFunction::RunAsync", 0, 1, id=7)
    found = stages(
        tmp_path, line("python", call("Root", 0, 9, 1)), line("x", run), line("pool", event(WORK, 5, 20, id=7))
    )
    assert found["functions of unknown stages"] == ("preprocessing", 1, 20, 20, 20, 1)
