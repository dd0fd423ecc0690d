"""Each stage has a row for its calls, its threads and its function. Times are in microseconds."""

from __future__ import annotations

from pathlib import Path

from builders import Line, event, host_of, line, plane, trace_of
from builders import iterator_call as call

from tfperf.sections.input.analysis import ops_by_stage

US = 1_000_000
WORK = "ExecutorState::Process"
Row = tuple[str, int, float, float, float, int | None]


def rows(tmp_path: Path, *lines: Line) -> dict[str, Row]:
    """(class, count, total us, self us, wall us, threads) by name."""
    host = host_of(trace_of(tmp_path, plane("/host:CPU", *lines)))
    found: dict[str, Row] = {
        op.name: (op.part, op.count, (op.total_ps or 0) / US, op.self_ps / US, (op.wall_ps or 0) / US, op.threads)
        for op, _ in ops_by_stage(host)
    }
    for op, stretches in ops_by_stage(host):
        assert stretches.total() == op.self_ps
    return found


def test_a_map_and_its_function(tmp_path: Path) -> None:
    run = "InstantiatedCapturedFunction::Run"
    calls = line("python", call("Root", 0, 90, 1), call("Root::Map", 0, 90, 2, 1), event(run, 10, 70, id=7))
    pool = line("pool", event(WORK, 20, 30, id=7), event("map/Cast:Cast", 21, 20))
    assert rows(tmp_path, calls, pool) == {
        "Iterator::Root": ("preprocessing", 1, 90, 0, 0, 1),
        "Iterator::Root::Map": ("preprocessing", 1, 90, 20, 20, 1),  # It waits for the pool from 10 to 80.
        "function of Iterator::Root::Map": ("preprocessing", 1, 30, 30, 30, 1),
    }


def test_calls_of_a_stage_with_threads_wait(tmp_path: Path) -> None:
    path = "Root::Prefetch"
    consumer = line("python", call("Root", 0, 50, 1), call(path, 0, 50, 2, 1))
    reader = line("reader", event("PrefetchProduce", 0, 50), call(f"{path}::TFRecord", 2, 46, 3, 2))
    assert rows(tmp_path, consumer, reader) == {
        "Iterator::Root": ("preprocessing", 1, 50, 0, 0, 1),
        "Iterator::Root::Prefetch": ("other", 1, 50, 50, 50, 1),
        "threads of Iterator::Root::Prefetch": ("other", 1, 50, 4, 4, 1),
        "Iterator::Root::Prefetch::TFRecord": ("advanced_read", 1, 46, 46, 46, 1),
    }


def generator(op: str) -> tuple[Line, Line]:
    """Prefetch > Generator, whose function runs this op for 10 of 90 us."""
    run = "InstantiatedCapturedFunction::RunWithBorrowedArgs"
    return (
        line(
            "device",
            call("Root", 0, 100, 1),
            call("Root::Prefetch", 0, 100, 2, 1),
            call("Root::Prefetch::Generator", 0, 100, 3, 2),
            event(run, 5, 90, id=7),
        ),
        line("pool", event(WORK, 20, 10, id=7), event(f"{op}:{op}", 21, 8)),
    )


def test_a_generator_of_the_program_works_and_that_of_a_device_waits_for_the_host(tmp_path: Path) -> None:
    name = "Iterator::Root::Prefetch::Generator"
    for op, part in (("PyFunc", "preprocessing"), ("RemoteCall", "other")):
        found = rows(tmp_path, *generator(op))
        assert found[name] == (part, 1, 100, 10, 10, 1), "not what it waits for"
        assert found[f"function of {name}"] == (part, 1, 10, 10, 10, 1)


def test_alike_inputs_are_one_op(tmp_path: Path) -> None:
    calls = [call("Root", 0, 50, 1), call("Root::FlatMap", 0, 50, 2, 1)]
    calls += [call(f"Root::FlatMap[{number}]::TFRecord", 10 * number, 10, 3 + number, 2) for number in range(3)]
    found = rows(tmp_path, line("python", *calls))
    assert found["Iterator::Root::FlatMap::TFRecord"] == ("on_demand_read", 3, 30, 30, 30, 1)


def test_calls_without_an_id_and_copies_are_known_by_name(tmp_path: Path) -> None:
    old = event("Iterator::Root::Map", 0, 50), event("Iterator::Root::Map::TFRecord", 10, 20)
    copying = line("copier", event("MemcpyHToD", 0, 5))
    assert rows(tmp_path, line("python", *old), copying) == {
        "Iterator::Root::Map": ("preprocessing", 1, 50, 30, 30, 1),
        "Iterator::Root::Map::TFRecord": ("on_demand_read", 1, 20, 20, 20, 1),
        "MemcpyHToD": ("enqueue", 1, 5, 5, 5, 1),
    }


def test_batches_that_are_handed_to_a_device(tmp_path: Path) -> None:
    """An op sends a batch, the driver copies part of it inside; another op that sends, and one that waits, are none."""
    sending = line("sender", event("IteratorGetNext/_1:_Send", 0, 20), event("MemcpyH2D", 5, 10))
    others = line("others", event("cond/_2:_Send", 0, 20), event("IteratorGetNext/_1:_Recv", 0, 30), id=9)
    assert rows(tmp_path, sending, others) == {
        "IteratorGetNext/_1:_Send": ("enqueue", 1, 20, 10, 10, 1),
        "MemcpyH2D": ("enqueue", 1, 10, 10, 10, 1),
    }


def test_a_function_of_an_unknown_stage_is_preprocessing_too(tmp_path: Path) -> None:
    run = event("InstantiatedCapturedFunction::RunAsync", 0, 1, id=7)
    found = rows(
        tmp_path, line("python", call("Root", 0, 9, 1)), line("x", run), line("pool", event(WORK, 5, 20, id=7))
    )
    assert found["functions of unknown stages"] == ("preprocessing", 1, 20, 20, 20, 1)
