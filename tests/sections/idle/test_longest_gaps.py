"""The longest gaps and what is known about each; times in microseconds, steps of 100 us."""

from __future__ import annotations

from pathlib import Path

from builders import Event, Line, Plane, event, host_of, line, plane, trace_of

from tfperf.sections.idle.analysis import MOST_GAPS, Gap, Idle

US = 1_000_000
CALL = "EagerKernelExecute"


def analyzed(tmp_path: Path, *planes: Plane) -> Idle:
    idle: Idle = host_of(trace_of(tmp_path, *planes), "idle")["idle"]
    return idle


def gpu(*streams: tuple[Event, ...]) -> Plane:
    lines = [line(f"Stream #{at}(Compute)", *events, id=at + 1) for at, events in enumerate(streams)]
    return plane("/device:GPU:0", *lines)


def cpu(*main: Event, more: tuple[Line, ...] = ()) -> Plane:
    return plane("/host:CPU", line("python", event("train", 0, 100, step_num=0), *main, id=1), *more)


def kernel(start: float, duration: float, id: int = 0) -> Event:
    return event("gemm", start, duration, **({"correlation_id": id} if id else {}))


def longest(idle: Idle) -> tuple[float, float, str, str | None, str | None]:
    gap = idle.gaps[0]
    return gap.start_ps / US, gap.duration_ps / US, gap.cause, gap.thread, gap.event


def test_input_names_the_consumer_thread(tmp_path: Path) -> None:
    fetch = line("tf_data_iterator_get_next/7", event("IteratorGetNextOp::DoCompute", 0, 40), id=2)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(fetch,)), gpu((kernel(50, 50),)))
    assert longest(idle) == (0, 50, "input", "tf_data_iterator_get_next/7", "IteratorGetNextOp::DoCompute")
    assert idle.gaps[0].thread_name == "tf_data_iterator_get_next"


def test_python_names_the_frame(tmp_path: Path) -> None:
    frame = event("$callbacks.py:10 on_batch_end", 5, 50)
    idle = analyzed(tmp_path, cpu(frame, event(CALL, 60, 40)), gpu((kernel(70, 30),)))
    assert longest(idle)[2:] == ("python", "python", "$callbacks.py:10 on_batch_end")


def test_compiling_names_the_event(tmp_path: Path) -> None:
    tracing = event("tf.function-graph_building", 10, 30)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100), tracing), gpu((kernel(50, 50),)))
    assert longest(idle)[2:] == ("compile", "python", "tf.function-graph_building")


def test_synchronising_names_the_waiting_call(tmp_path: Path) -> None:
    op = line("tf_Compute/1", event("Where:Where", 60, 20), id=2)
    main = (event(CALL, 0, 100), event("cuStreamSynchronize", 50, 50))
    assert longest(analyzed(tmp_path, cpu(*main, more=(op,)), gpu((kernel(0, 50),))))[3:] == (
        "python",
        "cuStreamSynchronize",
    )


def test_launching_names_the_executor_where_the_call_is_short(tmp_path: Path) -> None:
    ops = line(
        "tf_Compute/1",
        event("ExecutorState::Process", 0, 100),
        event("Gather:Gather", 10, 20),
        event("Mul:Mul", 40, 20),
        event("cuLaunchKernel", 55, 2, correlation_id=1),
        id=2,
    )
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(ops,)), gpu((kernel(60, 40, 1),)))
    assert longest(idle)[2:] == ("launch", "tf_Compute/1", "ExecutorState::Process")


def test_two_causes_in_one_gap_are_split_and_the_larger_names_it(tmp_path: Path) -> None:
    fetch = event("IteratorGetNextOp::DoCompute", 30, 40)
    idle = analyzed(tmp_path, cpu(fetch, event(CALL, 70, 30)), gpu((kernel(0, 10), kernel(75, 25))))
    (gap,) = idle.gaps
    assert (gap.cause, gap.cause_ps, gap.duration_ps) == ("input", 40 * US, 65 * US)


def test_the_work_around_a_gap_has_its_short_name(tmp_path: Path) -> None:
    before, after = event("void (anonymous namespace)::f<int>(int)", 0, 30), event("Memcpy HtoD (Pinned)", 60, 40)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu((before,), (after,)))
    assert (idle.gaps[0].before, idle.gaps[0].after) == ("f", "Memcpy HtoD")
    alone = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu((kernel(60, 40),)))
    assert (alone.gaps[0].before, alone.gaps[0].after) == (None, "gemm")


def test_how_long_before_the_work_its_call_started(tmp_path: Path) -> None:
    """The copy, called at 10, starts at 30; both kernels were launched before 10."""
    copy = line("tf_Compute/1", event("MemcpyH2D", 10, 30, correlation_id=1), id=2)
    copied = event("MemcpyH2D", 30, 70, correlation_id=1)
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100), more=(copy,)), gpu((copied,)))
    assert [gap.launched_before_ps for gap in idle.gaps] == [20 * US]
    calls = (event("cuLaunchKernel", 0, 5, correlation_id=1), event("cuLaunchKernel", 5, 5, correlation_id=2))
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 20), *calls), gpu((kernel(10, 50, 1), kernel(65, 35, 2))))
    assert [gap.launched_before_ps for gap in idle.gaps] == [10 * US, 60 * US]


def test_without_any_host_event_nothing_is_named(tmp_path: Path) -> None:
    gap = analyzed(tmp_path, gpu((kernel(0, 10), kernel(60, 40)))).gaps[0]
    assert (gap.cause, gap.thread, gap.thread_name, gap.event, gap.step) == ("unknown", None, None, None, None)
    assert gap.launched_before_ps is None


def test_only_the_longest_gaps_are_listed_but_all_are_counted(tmp_path: Path) -> None:
    """Five more gaps than are listed, each a tenth of a nanosecond longer than the one before."""
    count = MOST_GAPS + 5
    starts = [at * 0.09 + at * at * 1e-6 for at in range(count + 1)]
    idle = analyzed(tmp_path, cpu(event(CALL, 0, 100)), gpu(tuple(kernel(start, 0.05) for start in starts)))
    durations = [gap.duration_ps for gap in idle.gaps]
    assert len(durations) == MOST_GAPS
    assert durations == sorted(durations, reverse=True)
    assert idle.gap_count > MOST_GAPS
    total_ps = sum(int(times.sum()) for times in idle.devices[0].time_ps.values())
    assert total_ps > sum(durations)


# --- the event of the host that was at work ---


def longest_gap(tmp_path: Path, *threads: Line, kernel: Event) -> Gap:
    device = plane("/device:GPU:0", line("Stream #1", kernel))
    gap: Gap = host_of(trace_of(tmp_path, plane("/host:CPU", *threads), device), "idle")["idle"].gaps[0]
    return gap


def main_thread(*events: Event) -> Line:
    return line("python", event("train", 0, 100, step_num=0), *events, id=1)


def test_the_thread_with_the_longest_work_for_the_cause_is_named(tmp_path: Path) -> None:
    """Two threads compute: `Long` for 40 us, `Short` for 30; the device waits from 0 to 60."""
    threads = [
        line("tf_Compute/1", event("Short:Short", 0, 30), id=2),
        line("tf_Compute/2", event("Long:Long", 0, 40), id=3),
    ]
    gap = longest_gap(tmp_path, main_thread(event(CALL, 0, 100)), *threads, kernel=event("gemm", 60, 40))
    assert (gap.cause, gap.thread, gap.event) == ("host_compute", "tf_Compute/2", "Long:Long")


def test_the_innermost_event_that_covers_half_as_much_tells_more(tmp_path: Path) -> None:
    """Inside 50 us of `Outer` are 30 us of `Inner`, and inside that 10 us of `Detail`, which is too little."""
    ops = [event("Outer:Outer", 0, 50), event("Inner:Inner", 10, 30), event("Detail:Detail", 15, 10)]
    gap = longest_gap(
        tmp_path, main_thread(event(CALL, 0, 100)), line("tf_Compute/1", *ops, id=2), kernel=event("gemm", 60, 40)
    )
    assert gap.event == "Inner:Inner"


def test_events_of_other_causes_are_no_evidence(tmp_path: Path) -> None:
    """The gap from 0 to 60 is mostly a fetch of 35 us; an op runs for 60, but the fetch keeps the step."""
    fetch = line("tf_data_iterator_get_next/7", event("IteratorGetNextOp::DoCompute", 0, 35), id=2)
    op = line("tf_Compute/1", event("Mul:Mul", 0, 60), id=3)
    gap = longest_gap(tmp_path, main_thread(event(CALL, 0, 100)), fetch, op, kernel=event("gemm", 60, 40))
    assert (gap.cause, gap.thread, gap.event) == (
        "input",
        "tf_data_iterator_get_next/7",
        "IteratorGetNextOp::DoCompute",
    )


def test_a_main_thread_in_no_event_is_still_named(tmp_path: Path) -> None:
    gap = longest_gap(tmp_path, main_thread(event(CALL, 60, 40)), kernel=event("gemm", 70, 30))
    assert (gap.cause, gap.thread, gap.event) == ("python", "python", "train")
    without_marker = line("python", event(CALL, 60, 40), id=1)
    start = line("other", event("other", 0, 1), id=2)
    gap = longest_gap(tmp_path, without_marker, start, kernel=event("gemm", 70, 30))
    assert (gap.cause, gap.thread, gap.event) == ("python", "python", None)
