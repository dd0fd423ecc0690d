"""What makes a trace unsound; and that real ones are sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Line, Plane, event, line, logdir_of, plane, space, trace_of
from places import ROOT

import tfperf
from tfperf.formats.wire import schema
from tfperf.trace.flaw import Flaw, level_of
from tfperf.trace.host.tasks import task_of
from tfperf.trace.read import read_host
from tfperf.trace.soundness import find_flaws
from tfperf.trace.steps.find_steps import find_steps

SHARED = ROOT.parent / "shared" / "traces"
FETCH = "IteratorGetNextOp::DoCompute"


def marks(count: int = 5, each_us: float = 100) -> list[Event]:
    return [event("train", 100 * number, each_us, step_num=number) for number in range(count)]


def fetches(at_us: float) -> list[Event]:
    return [event(FETCH, 100 * number + at_us, 20) for number in range(5)]


def flaws(tmp_path: Path, *planes: Plane) -> tuple[Flaw, ...]:
    trace = trace_of(tmp_path, *planes)
    return find_flaws(trace, find_steps(trace))


def codes(tmp_path: Path, *lines: Line) -> list[str]:
    return [flaw.code for flaw in flaws(tmp_path, plane("/host:CPU", *lines))]


def test_an_ordinary_trace_is_sound(tmp_path: Path) -> None:
    assert codes(tmp_path, line("python", *marks(), *fetches(10)), line("other", event("work", 0, 400))) == []
    assert level_of(()) == "sound"


def test_events_with_impossible_times(tmp_path: Path) -> None:
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", *marks(), event("work", 10, -5))))
    assert (flaw.code, flaw.level) == ("impossible_times", "unsound")
    assert flaw.text == "1 event of 6 with impossible times (omitted)"


def test_two_planes_of_one_name(tmp_path: Path) -> None:
    host = plane("/host:CPU", line("python", *marks()))
    (flaw,) = flaws(tmp_path, host, plane("/host:CPU", line("python", event("work", 0, 5), id=7)))
    assert flaw == Flaw("repeated_planes", "2 planes are called /host:CPU: a capture has one of each name")
    assert level_of(flaws(tmp_path, host, plane("/host:CPU"))) == "doubtful", "the other is empty"
    assert level_of(flaws(tmp_path, host, plane("Task Environment"), plane("Task Environment"))) == "doubtful"
    assert not flaws(tmp_path, host, plane("Task Environment"), plane("/device:GPU:0"), plane("/device:GPU:1"))


def test_events_of_threads_on_a_device(tmp_path: Path) -> None:
    for name, is_odd in (("Iterator::Map", True), ("ExecutorState::Process", True), ("volta_sgemm", False)):
        found = flaws(tmp_path, plane("/device:GPU:0", line("stream", event(name, 0, 5), event("volta_sgemm", 5, 5))))
        assert [flaw.code for flaw in found] == ["host_events_on_device"] * is_odd
    text = "1 event of host threads on planes of devices: planes may be exchanged"
    assert flaws(tmp_path, plane("/device:GPU:0", line("stream", event(FETCH, 0, 5)))) == (
        Flaw("host_events_on_device", text),
    )


def test_threads_whose_clocks_disagree(tmp_path: Path) -> None:
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", *marks()), line("late", event("work", 2_000_500, 5))))
    assert flaw == Flaw(
        "clocks_disagree", "some threads end 2.0 s before all others start: their clocks may disagree", "doubtful"
    )
    assert codes(tmp_path, line("python", *marks(), event("end", 2_000_500, 5)), line("late", event("w", 2e6, 5))) == []


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
    lines = line("python", *marks(), *calls), line("executor", *runs, id=2), line("worker", *fetched, id=3)
    assert codes(tmp_path, *lines) == expected
    for flaw in flaws(tmp_path, plane("/host:CPU", *lines)):
        assert flaw.level == "unsound"
        assert flaw.text == "5 of 10 runs and fetches begin before what starts them: clocks disagree"


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
    assert flaw.text == "every run of a function begins 0.6 ms or more after its call: clocks may disagree"


@pytest.mark.parametrize(
    "name", ["Iterator::Map", FETCH, "FunctionRun", "SessionRun", "InstantiatedCapturedFunction::Run"]
)
def test_calls_without_the_id_that_all_have(name: str, tmp_path: Path) -> None:
    other = event("Iterator::Map", 6, 5, id=1)
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", event(name, 0, 5), other)))
    assert flaw == Flaw("missing_ids", "1 of 2 calls of tf.data and of functions without an id", "doubtful")
    assert codes(tmp_path, line("python", event(name, 0, 5))) == [], "of a profiler that writes none"
    process = event("ExecutorState::Process", 0, 5)
    assert codes(tmp_path, line("python", process, other)) == []


def test_calls_of_functions_that_do_not_say_what_they_are(tmp_path: Path) -> None:
    """Python writes both stats, or only the kind of the call."""
    both = event("step", 0, 5, tf_function_call="notTraced-nonXla", tracing_count=1)
    assert codes(tmp_path, line("python", both, event("step", 6, 5, tf_function_call="eager"))) == []
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", both, event("step", 6, 5, tracing_count=1))))
    text = "1 of 2 calls of tf.function without tf_function_call: names may be exchanged"
    assert flaw == Flaw("unsaid_calls", text, "doubtful")


def test_calls_without_a_duration(tmp_path: Path) -> None:
    calls = (event(FETCH, 5, 0), event("Iterator::Map", 5, 0), event("FunctionRun", 5, 0))
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", *marks(), *calls, event("work", 5, 0))))
    assert flaw == Flaw("timeless_calls", "3 calls of tf.data or of functions without a duration", "doubtful")


def test_one_run_of_many_that_begins_early_is_a_doubt(tmp_path: Path) -> None:
    calls, runs, _ = zip(*(run_of_function(n + 1, 100 * n, 100 * n + 10, 0) for n in range(20)), strict=True)
    odd = event("ExecutorState::Process", 805, 1, id=10)
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", *calls), line("executor", *runs, odd, id=2)))
    assert (flaw.code, flaw.level) == ("run_before_call", "doubtful")


def test_events_and_stats_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "made.xplane.pb"
    made = schema.message_class("XSpace").FromString(space(plane("/host:CPU", line("python", *marks()))))
    made.planes[0].lines[0].events[0].metadata_id = 99
    made.planes[0].lines[0].events[1].stats.add(metadata_id=99, int64_value=1)
    path.write_bytes(made.SerializeToString())
    trace = read_host(path)
    assert find_flaws(trace, find_steps(trace)) == (
        Flaw("nameless_events", "1 event of 5 without a name"),
        Flaw("nameless_stats", "1 stat of events without a name"),
    )


def test_names_that_nothing_has(tmp_path: Path) -> None:
    path = tmp_path / "made.xplane.pb"
    made = schema.message_class("XSpace").FromString(space(plane("/host:CPU", line("python", *marks()))))
    made.planes[0].event_metadata.add(key=90).value.name = b"gone"
    made.planes[0].stat_metadata.add(key=91).value.name = b"tf_function_call"
    made.planes[0].stat_metadata.add(key=92).value.name = b"tracing_count"
    path.write_bytes(made.SerializeToString())
    trace = read_host(path)
    listed = "no event has the stats that the file lists (tf_function_call, tracing_count)"
    assert find_flaws(trace, find_steps(trace)) == (
        Flaw("unused_names", "1 name that no event has: events may be missing", "doubtful"),
        Flaw("unused_stats", f"{listed}: stats may be missing, or their names exchanged", "doubtful"),
    )


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
    assert codes(tmp_path, line("python", *marks()), line("other", odd, id=2)) == ["misplaced_stats"] * is_odd
    on_device = flaws(tmp_path, plane("/device:GPU:0", line("stream", odd)))
    assert "misplaced_stats" not in [flaw.code for flaw in on_device], "only threads of the host count"


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
    found = flaws(tmp_path, plane("/host:CPU", line("python", call, event(name, 600, 5, **stats))))
    assert [flaw.text for flaw in found if flaw.code == "unnumbered_markers"] == [
        "1 marker of steps without a step number: stats may be missing"
    ] * is_odd


def test_the_stats_that_stand_elsewhere_are_named(tmp_path: Path) -> None:
    odd = event(FETCH, 0, 5, id=1, step_num=1, graph_type="train")
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", odd)))
    listed = "events of TensorFlow have stats that only Python writes (graph_type, step_num)"
    assert flaw == Flaw("misplaced_stats", f"{listed}: names may be exchanged", "doubtful")


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
    assert flaw == Flaw("uncalled_runs", "9 of 10 runs of functions without a call: events may be missing", "doubtful")
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
    found = flaws(tmp_path, plane("/host:CPU", line("python", *NESTED, odd)))
    assert [flaw.code for flaw in found] == ["crossing_events"] * bool(count)
    assert level_of(found) == ("doubtful" if count else "sound")
    assert not flaws(tmp_path, plane("/host:CPU", line("python", *NESTED), line("other", odd, id=2)))
    on_device = flaws(tmp_path, plane("/device:GPU:0", line("stream", *NESTED, odd)))
    assert "crossing_events" not in [flaw.code for flaw in on_device]


def test_a_thread_hands_over_one_element_after_the_other(tmp_path: Path) -> None:
    def crossing(*spans: tuple[int, int]) -> int:
        made = line("tf_data", *(event("PrefetchProduce", start, length) for start, length in spans))
        return sum(flaw.code == "crossing_events" for flaw in flaws(tmp_path, plane("/host:CPU", made)))

    assert [crossing((0, 10), (10, 10)), crossing((0, 10), (5, 2), (20, 1))] == [0, 1]


@pytest.mark.parametrize(("names", "odd"), [(("cpu", "cpu"), ""), (("cpu", ""), "1 of 2"), (("", None), "2 of 2")])
def test_allocations_without_an_allocator(names: tuple[str | None, ...], odd: str, tmp_path: Path) -> None:
    stats: list[dict[str, Any]] = [{} if name is None else {"allocator_name": name} for name in names]
    made = (event("MemoryAllocation", 10 * n, 0, bytes_allocated=8, **each) for n, each in enumerate(stats))
    found = flaws(tmp_path, plane("/host:CPU", line("python", *made)))
    texts = [flaw.text for flaw in found if flaw.code == "unnamed_allocators"]
    assert texts == [f"{odd} allocations without the name of an allocator"] * bool(odd)


def test_ops_in_nothing(tmp_path: Path) -> None:
    """A few began in a run from before the capture."""
    runs = [event("ExecutorState::Process", 100 * n, 50) for n in range(40)]
    for outside, expected in ((10, []), (11, ["ops_outside"])):
        ops = [event("a:A", 100 * n + (60 if n < outside else 10), 20) for n in range(40)]
        found = flaws(
            tmp_path, plane("/host:CPU", line("tf_Compute", *sorted([*runs, *ops], key=lambda e: e.start_us)))
        )
        assert [flaw.code for flaw in found] == expected
    assert found == (
        Flaw("ops_outside", "11 ops outside of what runs them on their threads: times may be wrong", "doubtful"),
    )
    waited = [event("CollectiveReduceV2:CollectiveReduceV2", 100 * n + 60, 20) for n in range(40)]
    assert not flaws(
        tmp_path, plane("/host:CPU", line("tf_Compute", *sorted([*runs, *waited], key=lambda e: e.start_us)))
    )


def test_fetches_after_their_run(tmp_path: Path) -> None:
    for at_us, expected in ((40, []), (60, ["fetch_after_run"])):
        runs = [event("ExecutorState::Process", 100 * n, 50, id=n + 1) for n in range(5)]
        got = [event(FETCH, 100 * n + at_us, 5, id=n + 1) for n in range(5)]
        found = flaws(tmp_path, plane("/host:CPU", line("executor", *runs), line("fetches", *got, id=2)))
        assert [flaw.code for flaw in found] == expected
    assert found == (Flaw("fetch_after_run", "5 of 5 fetches begin after the run that they are in: clocks disagree"),)


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
        assert codes(tmp_path, line("python", *marks()), line("data", *fetches(at_us)), beside) == expected, at_us
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", *marks()), line("data", *fetches(2e6)), beside))
    assert flaw == Flaw("fetches_apart", "no call of tf.data is within 2.0 s of a step: clocks disagree")
    assert codes(tmp_path, line("python", *marks(2)), line("data", *fetches(2e6)), beside) == [], (
        "too few steps to tell"
    )


def test_calls_of_tf_data_inside_other_ops(tmp_path: Path) -> None:
    call = event("Iterator::Map", 5, 10)
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", event("a/b:MatMul", 0, 20), call)))
    assert flaw == Flaw(
        "misplaced_calls", "1 event directly inside events that contain none: names or times may be wrong", "doubtful"
    )
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


def test_a_shuffle_buffer_that_was_being_filled_is_sound(tmp_path: Path) -> None:
    batches = [event("Iterator::Root::Shuffle", 100 * number, 50, id=1) for number in range(3, 13)]
    elements = [event("Iterator::Root::Shuffle::Map", 100 * number + 10, 20, id=2) for number in range(13)]
    assert codes(tmp_path, line("data", *batches, *elements)) == []


def test_pipelines_inside_of_pipelines_have_one_root_each(tmp_path: Path) -> None:
    outer = [event("Iterator::Root", 100 * number, 50, id=1) for number in range(10)]
    inner = [event("Iterator::Root", 100 * number + 10, 20, id=2) for number in range(5)]
    assert codes(tmp_path, line("data", *outer, *inner)) == []


def test_markers_inside_each_other(tmp_path: Path) -> None:
    def found(second_us: float, name: str = "train") -> list[str]:
        both = event("train", 0, 20, step_num=1), event(name, second_us, 20, step_num=2)
        return codes(tmp_path, line("python", *both))

    assert found(10) == ["overlapping_markers"]
    assert found(20) == []
    assert found(10, "epoch") == []


def test_fetches_that_stop_while_steps_go_on(tmp_path: Path) -> None:
    def found(*numbers: int) -> tuple[Flaw, ...]:
        fetched = [event(FETCH, 100 * number + 10, 20) for number in numbers]
        return flaws(tmp_path, plane("/host:CPU", line("python", *marks(10)), line("data", *fetched, id=2)))

    (flaw,) = found(*range(6))
    assert (flaw.code, flaw.level) == ("fetches_stop", "doubtful")
    assert flaw.text.startswith("no call of tf.data is in the last 4 of 10 steps, and one in each of the others")
    (flaw,) = found(*range(3, 10))
    assert "in the first 3 of 10 steps" in flaw.text
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
    from msgspec.structs import replace

    trace = trace_of(tmp_path, plane("/host:CPU", line("python", *marks())))
    trace = replace(trace, **{"errors" if is_error else "warnings": (message, message)})
    found = find_flaws(trace, find_steps(trace))
    assert [flaw.code for flaw in found] == [code] * bool(code), "each message once"
    assert level_of(found) == level
    assert all(message in flaw.text for flaw in found)


def test_real_profiles_are_sound(root: Path) -> None:
    for file in [*(root / "sample_traces").rglob("*.xplane.pb"), *SHARED.rglob("*.xplane.pb")]:
        if file.parent.name != "corrupt_tpu":
            trace = read_host(file)
            steps = find_steps(trace)
            assert find_flaws(trace, steps) == (), file
            assert steps.confidence != "low" or task_of(trace).is_helper, file


# --- work of GPUs and its launches ---


def gpu_job(*starts_us: float, every_us: float = 100) -> tuple[Plane, Plane]:
    """Launch a kernel at regular times, which starts so long after its launch."""
    launches = [event("cuLaunchKernel", every_us * n, 5, correlation_id=n + 1) for n in range(len(starts_us))]
    kernels = [event("gemm", every_us * n + after, 10, correlation_id=n + 1) for n, after in enumerate(starts_us)]
    of_host = plane("/host:CPU", line("python", *launches), line("marks", *marks(), id=9))
    return of_host, plane("/device:GPU:0", line("Stream #1", *kernels, timestamp_ns=0))


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
    path = logdir_of(tmp_path, vm=space(*gpu_job(*starts_us)))
    found = [flaw for _, flaw in tfperf.load(path, sections=["steps"]).flaws]
    assert level_of(found) == level
    if level == "unsound":
        (flaw,) = found
        assert flaw.text == (
            "18 of 20 kernels and copies start before their launch, by up to 0.6 ms: the clock of the GPU is wrong"
        )


def paused_job(late_us: float, *, scale: float = 1.0, lost: int = 0, count: int = 20) -> tuple[Plane, Plane]:
    """Launch a kernel of 15 us every 50 us; all start later by so much, and launches after the first are lost."""
    launches = [event("cuLaunchKernel", 50 * n, 5, correlation_id=n + 1) for n in (0, *range(1 + lost, count))]
    kernels = [event("gemm", scale * (50 * n + 9) + late_us, 15, correlation_id=n + 1) for n in range(count)]
    of_host = plane("/host:CPU", line("python", *launches), line("marks", *marks(), id=9))
    return of_host, plane("/device:GPU:0", line("Stream #1", *kernels))


def test_kernels_that_start_late_in_long_pauses(tmp_path: Path) -> None:
    for late_us, expected in ((60, []), (150, ["late_work"])):
        assert [code for code, _, _ in flaws_of(tmp_path, *gpu_job(*[late_us] * 20, every_us=1000))] == expected


def flaws_of(tmp_path: Path, *planes: Plane) -> list[tuple[str, str, str]]:
    path = logdir_of(tmp_path, vm=space(*planes))
    return [(flaw.code, flaw.level, flaw.text) for _, flaw in tfperf.load(path, sections=["steps"]).flaws]


@pytest.mark.parametrize(
    ("late_us", "scale", "most_ms"),
    [(0, 1, ""), (12, 1, ""), (40, 1, "0.0"), (500, 1, "0.0"), (0, 3, "0.1"), (0, 1.01, "")],
)
def test_kernels_long_after_their_launch(tmp_path: Path, late_us: float, scale: float, most_ms: str) -> None:
    """Pauses of 35 us end when the next kernel is launched, unless the clock of the GPU is late or fast."""
    found = flaws_of(tmp_path, *paused_job(late_us, scale=scale))
    assert [code for code, _, _ in found] == ["late_work"] * bool(most_ms)
    for _, level, text in found:
        assert level == "doubtful"
        assert text == (
            f"19 of 19 pauses of the GPU go on after the next work is launched, for up to {most_ms} ms: "
            "its clock may be late, or another program uses it"
        )


def test_kernels_whose_launch_is_not_there(tmp_path: Path) -> None:
    assert flaws_of(tmp_path, *paused_job(0, lost=3)) == []
    text = "4 of 20 kernels and copies without a launch: events of host threads may be missing"
    assert flaws_of(tmp_path, *paused_job(0, lost=4)) == [("unlaunched_work", "doubtful", text)]
    of_host, of_device = paused_job(0)
    later = plane("/host:CPU", *(line(each.name, *each.events[5:], id=each.id or 1) for each in of_host.lines))
    assert "unlaunched_work" not in [code for code, *_ in flaws_of(tmp_path, later, of_device)], (
        "begun before the capture"
    )
