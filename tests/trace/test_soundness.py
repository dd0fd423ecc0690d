"""What makes a trace unsound; and that real ones are sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Line, Plane, event, host, known, line, logdir_of, marks, plane, read_back, space, trace_of
from msgspec.structs import replace
from places import TRACES
from real_runs import analysis_of, every_trace

import tfperf
from tfperf.formats.wire import schema
from tfperf.judge.check import check_profile
from tfperf.trace.flaw import Flaw, level_of
from tfperf.trace.soundness import CaptureIdentity, capture_identity, find_flaws, foreign_hosts, lost_events
from tfperf.trace.steps.find_steps import find_steps

FETCH = "IteratorGetNextOp::DoCompute"


def fetches(at_us: float) -> list[Event]:
    return [event(FETCH, 100 * number + at_us, 20) for number in range(5)]


def flaws(tmp_path: Path, *planes: Plane) -> tuple[Flaw, ...]:
    trace = trace_of(tmp_path, *planes)
    return find_flaws(trace, find_steps(trace))


def codes(tmp_path: Path, *lines: Line) -> list[str]:
    return [flaw.code for flaw in flaws(tmp_path, plane("/host:CPU", *lines))]


def test_an_ordinary_trace_is_sound(tmp_path: Path) -> None:
    assert codes(tmp_path, line("python", *marks(5), *fetches(10)), line("other", event("work", 0, 400))) == []
    assert level_of(()) == "sound"


def test_events_with_impossible_times(tmp_path: Path) -> None:
    (flaw,) = flaws(tmp_path, host(*marks(5), event("work", 10, -5)))
    assert (flaw.code, flaw.level) == ("impossible_times", "unsound")
    assert flaw.text == "1 event of 6 with impossible times (omitted)"


def test_two_planes_of_one_name(tmp_path: Path) -> None:
    python = host(*marks(5))
    (flaw,) = flaws(tmp_path, python, host(event("work", 0, 5)))
    assert flaw == Flaw("repeated_planes", "2 planes are named /host:CPU, but a capture has one plane per name")
    assert level_of(flaws(tmp_path, python, plane("/host:CPU"))) == "doubtful", "the other is empty"
    assert level_of(flaws(tmp_path, python, plane("Task Environment"), plane("Task Environment"))) == "doubtful"
    assert not flaws(tmp_path, python, plane("Task Environment"), plane("/device:GPU:0"), plane("/device:GPU:1"))


def test_events_of_threads_on_a_device(tmp_path: Path) -> None:
    for name, is_odd in (("Iterator::Map", True), ("ExecutorState::Process", True), ("volta_sgemm", False)):
        found = flaws(tmp_path, plane("/device:GPU:0", line("stream", event(name, 0, 5), event("volta_sgemm", 5, 5))))
        assert [flaw.code for flaw in found] == ["host_events_on_device"] * is_odd
    (flaw,) = flaws(tmp_path, plane("/device:GPU:0", line("stream", event(FETCH, 0, 5))))
    assert (flaw.level, flaw.text.partition(":")[0]) == ("unsound", "1 host event on device planes")


def test_threads_whose_clocks_disagree(tmp_path: Path) -> None:
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", *marks(5)), line("late", event("work", 2_000_500, 5))))
    assert flaw == Flaw(
        "clocks_disagree", "some threads end 2.0 s before all others start: their clocks may disagree", "doubtful"
    )
    assert (
        codes(tmp_path, line("python", *marks(5), event("end", 2_000_500, 5)), line("late", event("w", 2e6, 5))) == []
    )


def test_events_that_are_there_twice(tmp_path: Path) -> None:
    work = [event("work", 10 * number, 5) for number in range(20)]
    assert codes(tmp_path, line("python", *work, *work)) == ["repeated_events"]
    assert codes(tmp_path, line("python", *work), line("other", *work, id=2)) == []


def run_of_function(number: int, call_us: float, run_us: float, fetch_us: float) -> tuple[Event, Event, Event]:
    return (
        event("FunctionRun", call_us, 5, id=number),
        event("ExecutorState::Process", run_us, 80, id=number),
        event(FETCH, fetch_us, 20, id=number),
    )


@pytest.mark.parametrize(
    ("run_us", "fetch_us", "expected"), [(10, 20, []), (-10, 20, ["run_before_call"]), (10, 8, ["run_before_call"])]
)
def test_runs_begin_after_their_calls_and_fetch_after_they_begin(
    run_us: float, fetch_us: float, expected: list[str], tmp_path: Path
) -> None:
    calls, runs, fetched = zip(
        *(run_of_function(n + 1, 100 * n, 100 * n + run_us, 100 * n + fetch_us) for n in range(5)), strict=True
    )
    lines = line("python", *marks(5), *calls), line("executor", *runs, id=2), line("worker", *fetched, id=3)
    assert codes(tmp_path, *lines) == expected
    for flaw in flaws(tmp_path, plane("/host:CPU", *lines)):
        assert flaw.level == "unsound"
        assert flaw.text == "5 of 10 runs and fetches start before their caller: clocks disagree"


def test_runs_that_all_begin_long_after_their_calls(tmp_path: Path) -> None:
    """The more runs there are, the sooner the fastest of them begins."""
    for count, late_us, expected in (
        (3, 1_600, []),
        (3, 1_700, ["late_runs"]),
        (20, 400, []),
        (20, 600, ["late_runs"]),
    ):
        calls, runs, _ = zip(
            *(run_of_function(n + 1, 100 * n, 100 * n + late_us, 0) for n in range(count)), strict=True
        )
        found = flaws(tmp_path, plane("/host:CPU", line("python", *calls), line("executor", *runs, id=2)))
        assert [flaw.code for flaw in found] == expected
        assert {flaw.level for flaw in found} <= {"doubtful"}
    (flaw,) = found
    assert flaw.text == "every function run starts at least 0.6 ms after its call: clocks may disagree"


@pytest.mark.parametrize(
    "name", ["Iterator::Map", FETCH, "FunctionRun", "SessionRun", "InstantiatedCapturedFunction::Run"]
)
def test_calls_without_the_id_that_all_have(name: str, tmp_path: Path) -> None:
    other = event("Iterator::Map", 6, 5, id=1)
    (flaw,) = flaws(tmp_path, host(event(name, 0, 5), other))
    assert flaw == Flaw("missing_ids", "1 of 2 calls of tf.data and functions without an id", "doubtful")
    assert codes(tmp_path, line("python", event(name, 0, 5))) == [], "of a profiler that writes none"
    process = event("ExecutorState::Process", 0, 5)
    assert codes(tmp_path, line("python", process, other)) == []


def test_calls_of_functions_that_do_not_say_what_they_are(tmp_path: Path) -> None:
    """Python writes both stats, or only the kind of the call."""
    both = event("step", 0, 5, tf_function_call="notTraced-nonXla", tracing_count=1)
    assert codes(tmp_path, line("python", both, event("step", 6, 5, tf_function_call="eager"))) == []
    (flaw,) = flaws(tmp_path, host(both, event("step", 6, 5, tracing_count=1)))
    text = "1 of 2 calls of tf.function without tf_function_call: names may be swapped"
    assert flaw == Flaw("unsaid_calls", text, "doubtful")


def test_calls_without_a_duration(tmp_path: Path) -> None:
    calls = (event(FETCH, 5, 0), event("Iterator::Map", 5, 0), event("FunctionRun", 5, 0))
    (flaw,) = flaws(tmp_path, host(*marks(5), *calls, event("work", 5, 0)))
    assert flaw == Flaw("timeless_calls", "3 calls of tf.data or functions without a duration", "doubtful")


def test_one_run_of_many_that_begins_early_is_a_doubt(tmp_path: Path) -> None:
    calls, runs, _ = zip(*(run_of_function(n + 1, 100 * n, 100 * n + 10, 0) for n in range(20)), strict=True)
    odd = event("ExecutorState::Process", 805, 1, id=10)
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", *calls), line("executor", *runs, odd, id=2)))
    assert (flaw.code, flaw.level) == ("run_before_call", "doubtful")


def test_events_and_stats_without_a_name(tmp_path: Path) -> None:
    made = schema.message_class("XSpace").FromString(space(host(*marks(5))))
    made.planes[0].lines[0].events[0].metadata_id = 99
    made.planes[0].lines[0].events[1].stats.add(metadata_id=99, int64_value=1)
    trace = read_back(tmp_path, made.SerializeToString())
    assert find_flaws(trace, find_steps(trace)) == (
        Flaw("nameless_events", "1 event of 5 without a name"),
        Flaw("nameless_stats", "1 event stat without a name"),
    )


def test_names_that_nothing_has(tmp_path: Path) -> None:
    made = schema.message_class("XSpace").FromString(space(host(*marks(5))))
    made.planes[0].event_metadata.add(key=90).value.name = b"gone"
    made.planes[0].stat_metadata.add(key=91).value.name = b"tf_function_call"
    made.planes[0].stat_metadata.add(key=92).value.name = b"tracing_count"
    trace = read_back(tmp_path, made.SerializeToString())
    names, stats = find_flaws(trace, find_steps(trace))
    assert (names.code, names.level, names.text[:20]) == ("unused_names", "doubtful", "1 event name without")
    assert (stats.code, stats.level) == ("unused_stats", "doubtful")
    assert "(tf_function_call, tracing_count)" in stats.text


@pytest.mark.parametrize(
    ("stat", "value", "name", "is_odd"),
    [
        ("tf_function_call", "notTraced-nonXla", "train_step", False),
        ("tf_function_call", "ROUND_ROBIN", "Iterator::Map", True),
        ("tf_function_call", "notTraced-nonXla", "a/b:MatMul", True),
        ("tf_function_call", "notTraced-nonXla", "EagerExecute", True),
        ("step_num", 7, "epoch:Train", False),  # what a user calls a step
        ("step_num", 7, "ExecutorState::Process", True),
        ("graph_type", "train", FETCH, True),
        ("step_num", 1795225720053597617, "PrefetchProduce", True),
        ("step_num", 140_000_000_000_000, "MemoryAllocation", True),  # an address
        ("shape", "[8]", "a/b:MatMul", False),
    ],
)
def test_stats_of_python_on_events_of_tensorflow(
    stat: str, value: Any, name: str, is_odd: bool, tmp_path: Path
) -> None:
    odd = event(name, 600, 5, id=1, allocator_name="cpu", **{stat: value})
    assert codes(tmp_path, line("python", *marks(5)), line("other", odd, id=2)) == ["misplaced_stats"] * is_odd
    on_device = flaws(tmp_path, plane("/device:GPU:0", line("stream", odd)))
    assert "misplaced_stats" not in [flaw.code for flaw in on_device], "only threads of the host count"
    (flaw,) = flaws(tmp_path, host(event(FETCH, 0, 5, id=1, step_num=1, graph_type="train")))
    assert (flaw.level, "(graph_type, step_num)" in flaw.text) == ("doubtful", True)


@pytest.mark.parametrize(
    ("name", "stats", "is_odd"),
    [
        ("train", {"_r": 1}, True),
        ("train", {"_r": 1, "step_num": 7}, False),
        ("train", {"_r": -1}, False),
        ("train", {}, False),
        ("FunctionRun", {"_r": 1, "id": 7}, False),  # TensorFlow starts it
        ("KernelAndDeviceFunc::RunAsync", {"_r": 1}, False),
    ],
)
def test_markers_without_the_number_of_their_step(
    name: str, stats: dict[str, int], is_odd: bool, tmp_path: Path
) -> None:
    call = event("FunctionRun", 500, 9, id=7)
    found = flaws(tmp_path, host(call, event(name, 600, 5, **stats)))
    assert [flaw.text for flaw in found if flaw.code == "unnumbered_markers"] == [
        "1 step marker without a step number: stats may be missing"
    ] * is_odd


@pytest.mark.parametrize("caller", ["FunctionRun", "SessionRun", "RunGraph", "InstantiatedCapturedFunction::RunAsync"])
def test_runs_of_functions_without_a_call(caller: str, tmp_path: Path) -> None:
    def found(lost: set[int], threads: int = 1) -> list[str]:
        calls = [[] for _ in range(threads)]  # type: list[list[Event]]
        for number in set(range(30)) - lost:
            calls[number % threads].append(event(caller, 100 * number, 50, id=number + 1))
        runs = [event("ExecutorState::Process", 100 * number + 10, 30, id=number + 1) for number in range(30)]
        lines = [line("caller", *each, id=9 + place) for place, each in enumerate(calls)]
        return codes(tmp_path, *lines, line("executor", *runs, id=2))

    assert found({0, 29}) == found({13, 17}) == []
    assert found({0, 1, 29}) == [], "no more than a tenth"
    assert found({0, 1, 28, 29}) == found({*range(10, 30)}) == ["uncalled_runs"]
    assert found({0, 1, 28, 29}, threads=2) == [], "each thread loses a call at the start and one at the end"
    assert found({0, 1, 2, 28, 29}, threads=2) == ["uncalled_runs"]
    assert found({*range(30)}) == [], "in this program nothing notes its calls"


def test_runs_while_a_call_is_under_way_need_none_of_their_own(tmp_path: Path) -> None:
    parts = [event("ExecutorState::Process", 100 * number + 10, 30, id=number + 1) for number in range(10)]
    (flaw,) = flaws(
        tmp_path, plane("/host:CPU", line("caller", event("FunctionRun", 0, 50, id=1)), line("executor", *parts, id=2))
    )
    assert (flaw.code, flaw.level, flaw.text[:21]) == ("uncalled_runs", "doubtful", "9 of 10 function runs")
    assert codes(tmp_path, line("caller", event("FunctionRun", 0, 950, id=1)), line("executor", *parts, id=2)) == []


NESTED = (event("a:A", 0, 100), event("b:B", 0, 50), event("c:C", 50, 50), event("d:D", 60, 40))


@pytest.mark.parametrize(
    ("odd", "count"),
    [
        (event("e:E", 90, 20), 1),  # ends after what is around it
        (event("e:E", 40, 30), 1),  # ends after the event before it
        (event("EagerExecute", 99, 20), 1),
        (event("ExecutorState::ProcessAsync::Done", 90, 20), 1),
        (event("ThreadpoolListener::StopRegion", 90, 20), 1),
        (event("PrefetchProduce", 90, 20), 1),
        (event("mark of a user", 90, 20), 0),
        (event("ExecutorState::Process", 90, 20), 0),
        (event("$script.py:1 main", 90, 20), 0),
        (event("e:E", 100, 20), 0),
    ],
)
def test_what_ends_inside_another_event_of_its_thread(odd: Event, count: int, tmp_path: Path) -> None:
    found = flaws(tmp_path, host(*NESTED, odd))
    assert [flaw.code for flaw in found] == ["crossing_events"] * bool(count)
    assert level_of(found) == ("doubtful" if count else "sound")
    assert not flaws(tmp_path, plane("/host:CPU", line("python", *NESTED), line("other", odd, id=2)))
    on_device = flaws(tmp_path, plane("/device:GPU:0", line("stream", *NESTED, odd)))
    assert "crossing_events" not in [flaw.code for flaw in on_device]


@pytest.mark.parametrize(("spans", "count"), [(((0, 10), (10, 10)), 0), (((0, 10), (5, 2), (20, 1)), 1)])
def test_a_thread_hands_over_one_element_after_the_other(
    spans: tuple[tuple[int, int], ...], count: int, tmp_path: Path
) -> None:
    found = codes(tmp_path, line("tf_data", *(event("PrefetchProduce", start, length) for start, length in spans)))
    assert found.count("crossing_events") == count


@pytest.mark.parametrize(("names", "odd"), [(("cpu", "cpu"), ""), (("cpu", ""), "1 of 2"), (("", None), "2 of 2")])
def test_allocations_without_an_allocator(names: tuple[str | None, ...], odd: str, tmp_path: Path) -> None:
    stats: list[dict[str, Any]] = [{} if name is None else {"allocator_name": name} for name in names]
    made = (event("MemoryAllocation", 10 * n, 0, bytes_allocated=8, **each) for n, each in enumerate(stats))
    found = flaws(tmp_path, host(*made))
    texts = [flaw.text for flaw in found if flaw.code == "unnamed_allocators"]
    assert texts == [f"{odd} allocations without an allocator name"] * bool(odd)


def test_ops_in_nothing(tmp_path: Path) -> None:
    """A few began in a run from before the capture."""
    runs = [event("ExecutorState::Process", 100 * n, 50) for n in range(40)]

    def found(ops: list[Event]) -> list[tuple[str, str]]:
        every = flaws(tmp_path, host(*sorted([*runs, *ops], key=lambda each: each.start_us), name="tf_Compute"))
        return [(flaw.level, flaw.text[:14]) for flaw in every]

    for outside, expected in ((10, []), (11, [("doubtful", "11 ops outside")])):
        assert found([event("a:A", 100 * n + (60 if n < outside else 10), 20) for n in range(40)]) == expected
    assert not found([event("CollectiveReduceV2:CollectiveReduceV2", 100 * n + 60, 20) for n in range(40)])


def test_fetches_after_their_run(tmp_path: Path) -> None:
    for at_us, expected in ((40, []), (60, ["fetch_after_run"])):
        runs = [event("ExecutorState::Process", 100 * n, 50, id=n + 1) for n in range(5)]
        got = [event(FETCH, 100 * n + at_us, 5, id=n + 1) for n in range(5)]
        found = flaws(tmp_path, plane("/host:CPU", line("executor", *runs), line("fetches", *got, id=2)))
        assert [flaw.code for flaw in found] == expected
    assert found == (Flaw("fetch_after_run", "5 of 5 fetches start after the end of their run: clocks disagree"),)


def test_a_run_that_the_capture_cuts_off_is_no_flaw(tmp_path: Path) -> None:
    """The executor works on in the first and the last run while the capture starts and ends."""
    for cut, expected in ((0, []), (4, []), (2, ["run_before_call"])):
        runs = [event("ExecutorState::Process", 100 * n + 30 * (n == cut), 50, id=n + 1) for n in range(5)]
        got = [event(FETCH, 100 * n + 20, 5, id=n + 1) for n in range(4)]
        if cut == 4:
            runs[4], got = event("ExecutorState::Process", 400, 10, id=5), [*got, event(FETCH, 420, 5, id=5)]
        assert codes(tmp_path, line("executor", *runs), line("fetches", *got, id=2)) == expected, cut


def test_fetches_that_are_beside_no_step(tmp_path: Path) -> None:
    beside = line("rest", event("work", -3e6, 6e6))
    for at_us, expected in ((2_000_000, ["fetches_apart"]), (-2_000_000, ["fetches_apart"]), (900_000, []), (450, [])):
        assert codes(tmp_path, line("python", *marks(5)), line("data", *fetches(at_us)), beside) == expected, at_us
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", *marks(5)), line("data", *fetches(2e6)), beside))
    assert flaw == Flaw("fetches_apart", "all tf.data calls are at least 2.0 s away from any step: clocks disagree")
    assert codes(tmp_path, line("python", *marks(2)), line("data", *fetches(2e6)), beside) == [], "too few steps"


def test_calls_of_tf_data_inside_other_ops(tmp_path: Path) -> None:
    call = event("Iterator::Map", 5, 10)
    (flaw,) = flaws(tmp_path, host(event("a/b:MatMul", 0, 20), call))
    assert (flaw.code, flaw.level, flaw.text[:8]) == ("misplaced_calls", "doubtful", "1 event ")
    for around in (FETCH, "PrefetchProduce", "reduce:ReduceDataset", "next:IteratorGetNext", "mark of a user"):
        assert codes(tmp_path, line("python", event(around, 0, 20), call)) == [], around
    assert codes(tmp_path, line("python", event("a/b:MatMul", 0, 4), call)) == []
    assert codes(tmp_path, line("python", event("a/b:MatMul", 0, 20)), line("data", call, id=2)) == []


@pytest.mark.parametrize("name", ["TFE_DeleteTensorHandle", "EagerCopyToDevice", "ExecutorDoneCallback", "MapConsume"])
def test_runs_inside_what_runs_nothing(tmp_path: Path, name: str) -> None:
    run = event("ExecutorState::Process", 5, 10)
    assert codes(tmp_path, line("python", event(name, 0, 20), run)) == ["misplaced_calls"]
    assert codes(tmp_path, line("python", event(name, 0, 5), run)) == []
    assert codes(tmp_path, line("python", event(name, 0, 20), event("mark of a user", 5, 10))) == []


@pytest.mark.parametrize(("lost", "expected"), [(0, []), (2, []), (3, ["uncalled_stages"]), (10, [])])
def test_calls_of_stages_that_lost_the_call_around_them(tmp_path: Path, lost: int, expected: list[str]) -> None:
    """Of ten batches, each with one element inside, some are not there; without any, a thread of its own makes them."""
    batches = [event("Iterator::Root::Batch", 100 * number, 50, id=1) for number in range(10)]
    elements = [event("Iterator::Root::Batch::Map", 100 * number + 10, 20, id=2) for number in range(10)]
    assert codes(tmp_path, line("data", *batches[lost:], *elements)) == expected


@pytest.mark.parametrize(
    ("first", "last", "between", "expected"),
    [
        (3, 0, 0, []),
        (0, 3, 0, []),
        (4, 4, 0, []),
        (5, 0, 0, ["uncalled_stages"]),
        (0, 5, 0, ["uncalled_stages"]),
        (3, 3, 4, ["uncalled_stages"]),
    ],
)
def test_a_batch_that_was_under_way_at_the_edge_of_the_capture_is_sound(
    tmp_path: Path, first: int, last: int, between: int, expected: list[str]
) -> None:
    """Batches of four elements: the call of one that the capture cuts off is not recorded, its elements are."""

    def elements(count: int, start_us: float) -> list[Event]:
        return [event("Iterator::Root::Batch::Map", start_us + 10 * number, 5, id=2) for number in range(count)]

    whole = [event("Iterator::Root::Batch", 100 * number, 50, id=1) for number in (1, 2, 4, 5)]
    inside = [made for number in (1, 2, 4, 5) for made in elements(4, 100 * number)]
    cut = elements(first, 0), elements(between, 300), elements(last, 600)
    assert codes(tmp_path, line("data", *whole, *inside, *(each for part in cut for each in part))) == expected


@pytest.mark.parametrize(
    ("outer", "first", "inner", "count"),
    [
        pytest.param("Root::Shuffle", 3, "Root::Shuffle::Map", 13, id="a shuffle buffer that was being filled"),
        pytest.param("Root", 0, "Root", 5, id="pipelines inside of pipelines have one root each"),
    ],
)
def test_sound_pipelines(outer: str, first: int, inner: str, count: int, tmp_path: Path) -> None:
    around = [event(f"Iterator::{outer}", 100 * number, 50, id=1) for number in range(first, first + 10)]
    inside = [event(f"Iterator::{inner}", 100 * number + 10, 20, id=2) for number in range(count)]
    assert codes(tmp_path, line("data", *around, *inside)) == []


@pytest.mark.parametrize(
    ("second_us", "name", "expected"), [(10, "train", ["overlapping_markers"]), (20, "train", []), (10, "epoch", [])]
)
def test_markers_inside_each_other(second_us: float, name: str, expected: list[str], tmp_path: Path) -> None:
    both = event("train", 0, 20, step_num=1), event(name, second_us, 20, step_num=2)
    assert codes(tmp_path, line("python", *both)) == expected


def test_fetches_that_stop_while_steps_go_on(tmp_path: Path) -> None:
    def found(*numbers: int) -> tuple[Flaw, ...]:
        fetched = [event(FETCH, 100 * number + 10, 20) for number in numbers]
        return flaws(tmp_path, plane("/host:CPU", line("python", *marks(10)), line("data", *fetched, id=2)))

    (flaw,) = found(*range(6))
    assert (flaw.code, flaw.level) == ("fetches_stop", "doubtful")
    assert flaw.text.startswith("the last 4 of 10 steps have no tf.data call, and all other steps have one")
    (flaw,) = found(*range(3, 10))
    assert "the first 3 of 10 steps" in flaw.text
    assert not found(*range(8)), "the last two may be cut off"
    assert not found(*range(2, 10))
    assert not found(*range(0, 10, 5), 1, 2), "not in each of the others"
    assert not found(*range(10))


@pytest.mark.parametrize(
    ("message", "is_error", "code", "level"),
    [
        ("Events dropped: 15", True, "lost_events", "unsound"),
        ("ring buffer overflow", False, "lost_events", "unsound"),
        ("the disk is full", True, "profiler_error", "doubtful"),
        ("the disk is full", False, "", "sound"),
        # What is missing because of these is said apart (`missing_events`).
        ("vm: Failed to load libcupti (is it installed and accessible?)", True, "", "sound"),
        ("vm: No GPU detected.", True, "", "sound"),
    ],
)
def test_what_the_profiler_says(tmp_path: Path, message: str, *, is_error: bool, code: str, level: str) -> None:
    trace = trace_of(tmp_path, host(*marks(5)))
    trace = replace(trace, **{"errors" if is_error else "warnings": (message, message)})
    found = find_flaws(trace, find_steps(trace))
    assert [flaw.code for flaw in found] == [code] * bool(code), "each message once"
    assert level_of(found) == level
    assert all(message in flaw.text for flaw in found)


def test_real_profiles_are_sound() -> None:
    for path in every_trace():
        analysis = analysis_of(path)
        assert analysis.missing == (), path
        for results in analysis.hosts:
            steps = results["steps"]
            assert results.flaws == steps.missing, (path, results.host)  # it says itself that events are not there
            assert steps.steps.confidence != "low" or steps.task.is_helper, (path, results.host)


# --- work of GPUs and its launches ---


def gpu_job(*starts_us: float, every_us: float = 100) -> tuple[Plane, Plane]:
    """Launch a kernel at regular times, which starts so long after its launch."""
    launches = [event("cuLaunchKernel", every_us * n, 5, correlation_id=n + 1) for n in range(len(starts_us))]
    kernels = [event("gemm", every_us * n + after, 10, correlation_id=n + 1) for n, after in enumerate(starts_us)]
    of_host = plane("/host:CPU", line("python", *launches), line("marks", *marks(5), id=9))
    return of_host, plane("/device:GPU:0", line("Stream #1", *kernels))


@pytest.mark.parametrize(
    ("starts_us", "level"),
    [
        ((9.0,) * 20, "sound"),
        ((9.0,) + (-40.0,) * 19, "sound"),  # within what clocks differ
        ((9.0,) * 19 + (-60.0,), "doubtful"),
        (tuple(9.0 - 30 * n for n in range(20)), "unsound"),  # a clock that is slow by 30 %
    ],
)
def test_kernels_before_their_launch(tmp_path: Path, starts_us: tuple[float, ...], level: str) -> None:
    found = flaws_of(tmp_path, *gpu_job(*starts_us))
    assert level_of(found) == level
    if level == "unsound":
        assert found[0].text.startswith("18 of 20 kernels and copies start before their launch, by up to 0.6 ms:")


def paused_job(late_us: float, *, scale: float = 1.0, lost: int = 0, count: int = 20) -> tuple[Plane, Plane]:
    """Launch a kernel of 15 us every 50 us; all start later by so much, and launches after the first are lost."""
    launches = [event("cuLaunchKernel", 50 * n, 5, correlation_id=n + 1) for n in (0, *range(1 + lost, count))]
    kernels = [event("gemm", scale * (50 * n + 9) + late_us, 15, correlation_id=n + 1) for n in range(count)]
    of_host = plane("/host:CPU", line("python", *launches), line("marks", *marks(5), id=9))
    return of_host, plane("/device:GPU:0", line("Stream #1", *kernels))


def test_kernels_that_start_late_in_long_pauses(tmp_path: Path) -> None:
    for late_us, expected in ((60, []), (150, ["late_work"])):
        found = flaws_of(tmp_path, *gpu_job(*[late_us] * 20, every_us=1000))
        assert [flaw.code for flaw in found] == expected


def flaws_of(tmp_path: Path, *planes: Plane) -> list[Flaw]:
    path = logdir_of(tmp_path, vm=space(*planes))
    return [flaw for _, flaw in tfperf.load(path, sections=["steps"]).flaws]


@pytest.mark.parametrize(
    ("late_us", "scale", "most_ms"),
    [(0, 1, ""), (12, 1, ""), (40, 1, "0.0"), (500, 1, "0.0"), (0, 3, "0.1"), (0, 1.01, "")],
)
def test_kernels_long_after_their_launch(tmp_path: Path, late_us: float, scale: float, most_ms: str) -> None:
    """Pauses of 35 us end when the next kernel is launched, unless the clock of the GPU is late or fast."""
    found = flaws_of(tmp_path, *paused_job(late_us, scale=scale))
    assert [(flaw.code, flaw.level) for flaw in found] == [("late_work", "doubtful")] * bool(most_ms)
    for flaw in found:
        assert flaw.text.startswith("19 of 19 GPU idle gaps continue")
        assert f"for up to {most_ms} ms" in flaw.text


def test_kernels_whose_launch_is_not_there(tmp_path: Path) -> None:
    assert flaws_of(tmp_path, *paused_job(0, lost=3)) == []
    text = "4 of 20 kernels and copies have no launch: host events may be missing"
    assert flaws_of(tmp_path, *paused_job(0, lost=4)) == [Flaw("unlaunched_work", text, "doubtful")]
    of_host, of_device = paused_job(0)
    later = plane("/host:CPU", *(line(each.name, *each.events[5:], id=each.id or 1) for each in of_host.lines))
    begun_before = flaws_of(tmp_path, later, of_device)
    assert "unlaunched_work" not in [flaw.code for flaw in begun_before]


# --- what shows that a capture lost events between its start and its end ---


def lost(tmp_path: Path, *lines: Line, **stats: int) -> list[Flaw]:
    planes = [plane("Task Environment", stats=stats)] * bool(stats)
    return list(lost_events(trace_of(tmp_path, plane("/host:CPU", *lines), *planes)))


def marked(*numbers: int, name: str = "train") -> Line:
    return line(name, *(event(name, 100 * place, 50, step_num=number) for place, number in enumerate(numbers)))


@pytest.mark.parametrize(
    ("numbers", "missing"),
    [
        ((7, 8, 9, 10), ""),
        ((7, 8, 11, 12), "2, in 1 place"),
        ((0, 2, 3, 5, 6, 8), "3, in 3 places"),
        ((0, 1, 1, 2, 2), ""),
        ((8, 9, 0, 1, 2), ""),  # an epoch ends
        ((0, 4, 8, 9, 0, 4, 8, 9), ""),  # four steps in one execution, and the rest of the epoch
        ((0, 4, 8, 16, 20), "1, in 1 place"),
        ((3, 9), ""),  # two markers tell nothing
    ],
)
def test_steps_whose_numbers_are_left_out(tmp_path: Path, numbers: tuple[int, ...], missing: str) -> None:
    text = f"step numbers skip {missing}: events may be missing"
    assert lost(tmp_path, marked(*numbers)) == [Flaw("missing_steps", text, "doubtful")] * bool(missing)


def test_numbers_of_steps_are_those_of_a_marker_and_a_thread(tmp_path: Path) -> None:
    assert not lost(tmp_path, marked(0, 1, 2), marked(10, 11, 12, name="test"))
    both = [event("train", 100 * n, 50, step_num=n) for n in range(3)]
    other = [event("train", 100 * n, 50, step_num=n) for n in range(20, 23)]
    assert not lost(tmp_path, line("one", *both), line("other", *other, id=9))


START_NS = 1_700_000_000_000_000_000


def handed_over(made: int, taken: int, first: int = 0) -> tuple[Line, Line]:
    """Return how a thread makes elements, and another one takes elements, one every 100 us; they are called by time."""
    ids = [START_NS + 100_000 * n for n in range(max(first + made, taken))]
    makes = [event("PrefetchProduce", 100 * n, 20, element_id=ids[n]) for n in range(first, first + made)]
    takes = [event("PrefetchConsume", 100 * n + 40, 20, element_id=ids[n]) for n in range(taken)]
    return line("producer", event("w", -1_000, 1), *makes), line("consumer", *takes, event("w", 10_000, 1), id=2)


@pytest.mark.parametrize(
    ("made", "taken", "first", "level"),
    [(20, 20, 0, ""), (20, 10, 0, ""), (18, 20, 2, ""), (17, 20, 3, "unsound"), (40, 40, 3, "doubtful")],
)
def test_elements_that_are_taken_but_never_made(tmp_path: Path, made: int, taken: int, first: int, level: str) -> None:
    found = lost(tmp_path, *handed_over(made, taken, first), profile_start_time=START_NS)
    assert [flaw.level for flaw in found] == [level] * bool(level)
    for flaw in found:
        assert (flaw.code, flaw.text[:7]) == ("unmade_elements", f"3 of {taken}")
    later = lost(tmp_path, *handed_over(made, taken, first), profile_start_time=START_NS + 10**9)
    assert not later, "elements from before the capture"
    assert not lost(tmp_path, *handed_over(made, taken, first)), "when the capture began is unknown"


def fetch(number: int, *, with_root: bool = True, with_map: bool = True) -> list[Event]:
    inside = [event("Iterator::Root", 100 * number + 5, 40)] * with_root
    return [event(FETCH, 100 * number, 50), *inside, *[event("Iterator::Root::Map", 100 * number + 6, 30)] * with_map]


def test_stages_that_ask_for_no_input(tmp_path: Path) -> None:
    def found(without: int) -> list[Flaw]:
        calls = [fetch(n, with_root=n >= without, with_map=n >= without) for n in range(10)]
        return lost(tmp_path, line("python", *(each for call in calls for each in call)))

    assert found(0) == found(2) == found(10) == []
    (flaw,) = found(3)
    assert (flaw.code, flaw.level, flaw.text[:7]) == ("calls_without_input", "doubtful", "3 of 17")


def test_stages_that_need_not_ask(tmp_path: Path) -> None:
    """A shuffle buffer is full, a cache has all elements."""
    for stage in ("Shuffle", "Cache", "Prefetch", "FlatMap", "Zip", "Rebatch", "ForeverRepeat"):
        calls = [event(f"Iterator::{stage}", 100 * n, 50) for n in range(10)]
        asks = [event(f"Iterator::{stage}::Map", 100 * n + 5, 20) for n in range(6)]
        assert not lost(tmp_path, line("python", *sorted([*calls, *asks], key=lambda each: each.start_us))), stage


@pytest.mark.parametrize("name", ["Run", "RunWithBorrowedArgs"])
def test_functions_of_tf_data_that_no_stage_runs(tmp_path: Path, name: str) -> None:
    def found(without: int, name: str, others: str = "") -> list[Flaw]:
        stages = [event("Iterator::Root::Map", 100 * n, 50) for n in range(without, 10)]
        stages += [event(others, 100 * n, 50) for n in range(without)] if others else []
        runs = [event(f"InstantiatedCapturedFunction::{name}", 100 * n + 5, 30) for n in range(10)]
        return lost(tmp_path, line("python", *sorted([*stages, *runs], key=lambda each: each.start_us)))

    assert found(0, name) == found(3, name) == [], "the capture may start in three stages that are in each other"
    (flaw,) = found(4, name)
    assert (flaw.code, flaw.level, flaw.text[:7]) == ("unasked_functions", "doubtful", "4 of 10")
    assert found(4, name, "Iterator::Root::Batch") == [flaw]
    assert found(4, name, "Iterator::Root::FlatMap") == []
    assert found(4, "RunAsync") == [], "a parallel map runs them on other threads"


def test_a_silence_of_all_threads(tmp_path: Path) -> None:
    def found(*, pause_us: float, calls: int = 4, others_us: float = 20, **stats: int) -> list[Flaw]:
        each_us = 100 + others_us
        before = [event("FunctionRun", each_us * n, 100, id=n, **stats) for n in range(4)]
        after = [
            event("FunctionRun", 4 * each_us + pause_us + each_us * n, 100, id=9 + n, **stats) for n in range(calls)
        ]
        return lost(tmp_path, line("python", *before, *after))

    text = "all threads are silent for 0.3 ms, much longer than at any other time: events may be missing"
    assert found(pause_us=300) == [Flaw("silence", text, "doubtful")]
    assert not found(pause_us=50), "the others are more than a quarter of it"
    assert not found(pause_us=300, others_us=120), "nor is it many times as long"
    assert not found(pause_us=300, calls=2), "the program does something else afterwards"
    assert not found(pause_us=300, step_num=1), "numbers of steps tell more"
    calls = [event("FunctionRun", 120 * n + 600 * (n > 3), 100, id=n) for n in range(8)]
    assert lost(tmp_path, line("python", *calls))
    assert not lost(tmp_path, line("python", *calls), line("other", event("work", 400, 700), id=2)), "something runs"


# --- hosts that cannot be of one capture: copies, other times, other profilers, other programs ---


S = 1_000_000_000
START = 1_700_000_000 * S
CODES = {"copied_host", "other_capture", "other_profiler", "other_program"}


def identity(
    start_s: float | None = 0.0, stop_s: float = 1.0, digest: bytes = b"", functions: tuple[str, ...] = ()
) -> CaptureIdentity:
    span_ns = None if start_s is None else (START + round(start_s * S), START + round(stop_s * S))
    start_ns = None if span_ns is None else span_ns[0]
    return CaptureIdentity(start_ns=start_ns, span_ns=span_ns, digest=digest, functions=frozenset(functions))


def found(*captures: CaptureIdentity) -> dict[int, str]:
    names = [f"w-{number}" for number in range(len(captures))]
    return {place: flaw.code for place, flaw in foreign_hosts(names, captures).items()}


def test_equal_events_at_one_time_are_a_copy() -> None:
    first, other = identity(digest=b"a"), identity(digest=b"b")
    assert found(first, other, first) == {2: "copied_host"}
    (flaw,) = foreign_hosts(["one", "two"], [first, first]).values()
    assert (flaw.level, "a copy of the file of host one" in flaw.text) == ("unsound", True)
    assert found(identity(0.0, 1.0, b"a"), identity(0.001, 1.0, b"a")) == {}, "at other times"


def test_captures_apart_are_of_different_runs() -> None:
    """Of three hosts, two overlap; a gap is said in seconds."""
    captures = [identity(7.0, 8.0), identity(0.0, 1.0), identity(0.9, 2.0)]
    assert found(*captures) == {0: "other_capture"}
    assert "the capture is 5.0 s after those of other hosts" in foreign_hosts(["a", "b", "c"], captures)[0].text
    assert found(*(identity(n * 0.9, n * 0.9 + 1.0) for n in range(4))) == {}, "each overlaps with the next"
    assert found(identity(0.0, 1.0), identity(None)) == {}, "an unknown clock is of any time"


def test_a_file_without_a_time_is_of_another_profiler() -> None:
    assert found(identity(digest=b"a"), identity(0.1, 1.0, b"b"), identity(None, digest=b"c")) == {2: "other_profiler"}
    assert found(identity(None, digest=b"a"), identity(None, digest=b"b")) == {}


def test_programs_without_a_common_function_are_different() -> None:
    one, two, three = (identity(functions=names) for names in (("f", "g"), ("g", "h"), ("h", "i")))
    assert found(one, three) == {1: "other_program"}
    assert found(one, three, two) == {}, "the third calls functions of both"
    assert found(one, identity()) == {}, "a host without steps calls what it likes"


def dated(start_ns: int, *, functions: tuple[str, ...] = ()) -> tuple[Plane, ...]:
    calls = [event(name, 100 * place + 1, 1) for place, name in enumerate(functions)]
    stats = {"profile_start_time": start_ns, "profile_stop_time": start_ns + S}
    return host(*marks(5, 90), *calls), plane("Task Environment", stats=stats)


def test_what_tells_captures_apart(tmp_path: Path) -> None:
    planes = dated(START, functions=("EagerExecute: __inference_train_step_12", "PjitFunction(f)"))
    capture = capture_identity(trace_of(tmp_path, *planes), has_steps=True)
    assert (capture.start_ns, capture.span_ns) == (START, (START, START + S))
    assert capture.functions == {"__inference_train_step", "f"}
    assert capture.digest


def test_few_events_without_a_time_are_no_evidence(tmp_path: Path) -> None:
    """Of 5 events, nothing shows by chance or not; 200 with equal times are a copy."""
    for count, is_evidence in ((5, False), (200, True)):
        trace = trace_of(tmp_path, host(*marks(count, 90)))
        assert bool(capture_identity(trace, has_steps=True).digest) == is_evidence


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (dated(START), "the file is a copy of the file of host w-0"),
        (dated(START + 60 * S), "the capture is 59.0 s after those of other hosts"),
    ],
)
def test_check_passes_nothing_over_hosts_of_different_captures(
    tmp_path: Path, other: tuple[Plane, ...], words: str
) -> None:
    path = logdir_of(tmp_path, **{"w-0": space(*dated(START)), "w-1": space(*other)})
    outcome = check_profile(path, limits=["step_time <= 1s"])
    assert outcome.exit_code == 1
    assert words in outcome.judged[0].why
    assert check_profile(tfperf.load(path, hosts=["w-1"]), limits=["step_time <= 1s"]).exit_code == 0


def test_check_passes_nothing_where_the_foreign_host_serves_others(tmp_path: Path) -> None:
    """It might be in the place of a host that breaches the limit."""
    helper = plane("/host:CPU", line("tf_data_service_worker/1", event("work", 0, 5)))
    idle = helper, plane("Task Environment", stats={"profile_start_time": START + 60 * S})
    path = logdir_of(tmp_path, **{"w-0": space(*dated(START)), "w-1": space(*idle)})
    (judged,) = check_profile(path, limits=["step_time <= 1s"]).judged
    assert (judged.status, judged.why[:20]) == ("unknown", "host w-1: the captur")


def test_check_passes_hosts_of_one_capture(tmp_path: Path) -> None:
    path = logdir_of(tmp_path, **{f"w-{n}": space(*dated(START + 1000 * n)) for n in range(3)})
    assert check_profile(path, limits=["step_time <= 1s"]).exit_code == 0


@pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")
def test_real_runs_are_of_one_capture_and_their_copies_and_mixtures_are_not() -> None:
    folders = {path.parent for path in (TRACES / "multi_host").rglob("*.xplane.pb")}
    runs = [run for folder in sorted(folders) if len((run := analysis_of(folder)).hosts) > 1]
    captures = [[known(results.capture) for results in run.hosts] for run in runs]
    largest = [
        of_run[max(range(len(of_run)), key=lambda place: run.run.files[place].size_bytes or 0)]
        for run, of_run in zip(runs, captures, strict=True)
    ]
    for place, run in enumerate(runs):
        assert not CODES & {flaw.code for _, flaw in run.flaws}, run.run.folder
        added = len(captures[place])
        assert found(*captures[place], largest[place])[added] == "copied_host", run.run.folder
        assert found(*captures[place], largest[place - 1])[added] == "other_capture", run.run.folder
