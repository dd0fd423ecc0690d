"""How steps are found: one tiny trace per rule and per trap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from builders import Event, Plane, event, host, line, plane, ref, trace_of
from msgspec.structs import replace

from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.steps import END_ESTIMATED, PARTIAL, RETRACE, SLOW_FIRST, Pause, Steps, plain_steps

US = 1_000_000


def call(name: str, start: float, duration: float, mode: str = "notTraced-nonXla") -> Event:
    return event(name, start, duration, tf_function_call=ref(mode), tracing_count=1)


def fetch(start: float, duration: float) -> Event:
    return event("IteratorGetNextOp::DoCompute", start, duration)


def starts(steps: Steps) -> list[float]:
    return [float(start) / US for start in steps.start_ps]


def durations(steps: Steps) -> list[float]:
    return [float(duration) / US for duration in steps.duration_ps]


def test_markers_become_windows_from_start_to_start(tmp_path: Path) -> None:
    marks = [event("train", 100 * n, 80, step_num=n + 7, _r=1) for n in range(4)]
    steps = find_steps(trace_of(tmp_path, host(*marks)))
    assert (steps.source, steps.confidence) == ("markers", "high")
    assert steps.numbers.tolist() == [7, 8, 9, 10]
    assert steps.names == ("train 7", "train 8", "train 9", "train 10")
    assert durations(steps) == [100, 100, 100, 80]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([event("train", 0, 80, step_num=7)], "the program marked 1 training step"),
        ([event("f", 0, 9, group_id=3, step_name="3")], "the profiler stored 1 step in the file"),
        ([call("f", 0, 9)], "calls do not repeat regularly, without visible tf.data fetches: 1 step of f"),
        ([call("f", 0, 9), fetch(1, 1), fetch(3, 1)], "1 call of f, 2 batches"),
        ([call("f", 0, 99), *(fetch(9 * n, 1) for n in range(9))], "9 fetches inside 1 call of f"),
    ],
)
def test_one_step_is_said_in_the_singular(tmp_path: Path, events: list[Event], said: str) -> None:
    assert find_steps(trace_of(tmp_path, host(*events))).explanation == said


def test_a_marker_inside_another_is_no_step_and_none_needs_the_root_flag(tmp_path: Path) -> None:
    """The Keras 3 callback marks steps as `Profiled batch`, without `_r`."""
    events = [
        e
        for n in range(3)
        for e in (event("Profiled batch", 100 * n, 90, step_num=n), event("inner", 100 * n + 5, 9, step_num=n))
    ]
    assert find_steps(trace_of(tmp_path, host(*events))).names == tuple(f"Profiled batch {n}" for n in range(3))


def test_calls_outside_the_markers_are_partial_steps(tmp_path: Path) -> None:
    """The capture cuts off the marker of the first and of the last step."""
    calls = [call("train_function", 100 * n + 10, 80) for n in range(5)]
    marks = [event("train", 100 * n + 5, 90, step_num=n) for n in range(1, 4)]
    steps = find_steps(trace_of(tmp_path, host(*sorted(calls + marks, key=lambda e: e.start_us))))
    assert steps.flags == (PARTIAL, "", "", "", PARTIAL)
    assert steps.explanation == "the program marked 3 training steps, and 2 more cut off by the capture"
    assert steps.numbers.tolist() == [0, 1, 2, 3, 4]
    assert steps.averaged.tolist() == [False, True, True, True, False]


def test_calls_that_fetch_their_batch_are_steps(tmp_path: Path) -> None:
    """Keras 3: `multi_step_on_iterator` waits on another thread for the fetch."""
    calls = line("python", *(call("multi_step_on_iterator", 100 * n, 90) for n in range(5)))
    fetches = line("tf_data", *(fetch(100 * n + 10, 20) for n in range(5)))
    steps = find_steps(trace_of(tmp_path, plane("/host:CPU", calls, fetches)))
    assert (len(steps), steps.source, steps.confidence) == (5, "tf.function calls", "high")
    assert durations(steps) == [100, 100, 100, 100, 90]
    assert steps.flags == ("", "", "", "", END_ESTIMATED)


def test_several_fetches_in_a_call_are_batches_of_one_step(tmp_path: Path) -> None:
    """steps_per_execution=4."""
    events = [
        e for n in range(4) for e in (call("f", 100 * n, 90), *(fetch(100 * n + 20 * k + 1, 5) for k in range(4)))
    ]
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert steps.batches.tolist() == [4, 4, 4, 4]


def test_one_call_that_loops_over_the_data_has_a_step_per_fetch(tmp_path: Path) -> None:
    events = [call("train_epoch", 0, 100), *(fetch(20 * k, 5) for k in range(5))]
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert (steps.source, steps.confidence) == ("tf.data fetches inside a call", "medium")
    assert durations(steps) == [20, 20, 20, 20, 20]


def test_replicas_fetch_from_pipelines_of_their_own(tmp_path: Path) -> None:
    """Two fetches per call with different iterator ids are two replicas, not two batches; ids go to 2^64-1."""

    def replica(ident: int) -> list[Event]:
        return [
            e for n in range(4) for e in (fetch(100 * n + 10, 30), event("Iterator::Root", 100 * n + 11, 28, id=ident))
        ]

    made = threads([call("f", 100 * n, 90) for n in range(4)], replica(2**64 - 1), replica(2**64 - 2))
    assert find_steps(trace_of(tmp_path, made)).batches.tolist() == [1, 1, 1, 1]


def test_a_fetch_before_its_call_belongs_to_the_step(tmp_path: Path) -> None:
    """Custom loop: the window starts where the eager op around the fetch starts."""
    events = [
        e
        for n in range(5)
        for e in (event("TFE_Py_FastPathExecute_C", 100 * n, 40), fetch(100 * n + 5, 30), call("f", 100 * n + 50, 40))
    ]
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert starts(steps) == [0, 100, 200, 300, 400]
    assert durations(steps)[:4] == [100, 100, 100, 100]


def test_nested_calls_are_not_counted_twice(tmp_path: Path) -> None:
    events = [
        e
        for n in range(4)
        for e in (call("outer", 100 * n, 90), call("inner", 100 * n + 10, 30), fetch(100 * n + 20, 5))
    ]
    assert len(find_steps(trace_of(tmp_path, host(*events)))) == 4


@pytest.mark.parametrize(
    ("fetched", "batches"),
    [
        # `steps_per_execution` with a callback that marks executions; one fetch lies on the other side of a border.
        pytest.param([100 * n + 20 * k + 1 for n in range(4) for k in range(3)][:-1], [3, 3, 3, 2], id="several"),
        pytest.param([1, 95, 201, 301, 401], [1, 1, 1, 1, 1], id="one too much at a border"),
    ],
)
def test_fetches_in_a_marked_step_are_its_batches(tmp_path: Path, fetched: list[float], batches: list[int]) -> None:
    marks = [event("train", 100 * n, 90, step_num=n) for n in range(len(batches))]
    events = [*marks, *(fetch(at, 5) for at in fetched)]
    steps = find_steps(trace_of(tmp_path, host(*sorted(events, key=lambda each: each.start_us))))
    assert steps.batches.tolist() == batches


def test_micro_batches_belong_to_the_step_that_applies_them(tmp_path: Path) -> None:
    events: list[Event] = []
    for n in range(4):
        for k in range(4):
            events += [fetch(100 * n + 20 * k, 5), call("grad_fn", 100 * n + 20 * k + 6, 12)]
        events.append(call("apply_fn", 100 * n + 85, 10))
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert starts(steps) == [0, 100, 200, 300]
    assert steps.batches.tolist() == [4, 4, 4, 4]


@pytest.mark.parametrize(
    ("step", "source", "said"),
    [
        (lambda at: call("one_step_on_data", at, 60), "tf.function calls", "without visible tf.data fetches"),
        (lambda at: fetch(at, 30), "tf.data fetches", "fetch"),
    ],
    ids=["calls without fetches", "an eager loop"],
)
def test_calls_or_fetches_alone_are_steps(
    tmp_path: Path, step: Callable[[float], Event], source: str, said: str
) -> None:
    steps = find_steps(trace_of(tmp_path, host(*(step(100 * n) for n in range(5)))))
    assert (len(steps), steps.source, steps.confidence) == (5, source, "medium")
    assert said in steps.explanation


def test_function_runs_of_tf_data_are_no_steps(tmp_path: Path) -> None:
    runs = [event("FunctionRun", 100 * n, 50, id=n) for n in range(3)]
    mapped = [
        e
        for n in range(9)
        for e in (
            event("InstantiatedCapturedFunction::Run", 10 * n, 8, id=50 + n),
            event("FunctionRun", 10 * n + 1, 5, id=50 + n),
        )
    ]
    made = plane("/host:CPU", line("main", *runs), line("tf_data", *mapped))
    steps = find_steps(trace_of(tmp_path, made))
    assert (len(steps), steps.source, steps.confidence) == (3, "executor runs", "low")
    asked = plane("/host:CPU", line("main", *runs, *(event("EagerService:Enqueue", 100 * n - 1, 52) for n in range(3))))
    assert find_steps(trace_of(tmp_path, asked)).confidence == "medium"


def test_a_retraced_step_is_shown_and_left_out(tmp_path: Path) -> None:
    events = [call("f", 0, 900, "traced-nonXla"), fetch(800, 5)]
    events += [e for n in range(1, 5) for e in (call("f", 1000 + 100 * n, 90), fetch(1000 + 100 * n + 5, 5))]
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert steps.flags[0] == RETRACE
    assert steps.averaged.tolist() == [False, True, True, True, False]


def test_a_slow_first_step_is_shown_and_left_out(tmp_path: Path) -> None:
    later = (event("train", 500 + 100 * n, 100, step_num=n + 1) for n in range(4))
    steps = find_steps(trace_of(tmp_path, host(event("train", 0, 500, step_num=0), *later)))
    assert (steps.flags[0], steps.averaged.tolist()) == (SLOW_FIRST, [False, True, True, True, True])


def test_flags_do_not_empty_the_average(tmp_path: Path) -> None:
    """With fewer than three plain steps all count."""
    events = [e for n in range(2) for e in (call("f", 100 * n, 90), fetch(100 * n + 5, 5))]
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert steps.averaged.tolist() == [True, True]
    assert steps.confidence == "medium"


def test_a_pause_is_outside_the_steps(tmp_path: Path) -> None:
    """A checkpoint of 5 ms after the third step."""
    at = [0, 100, 200, 5300, 5400, 5500]
    steps = find_steps(trace_of(tmp_path, host(*(event("train", start, 90, step_num=n) for n, start in enumerate(at)))))
    assert durations(steps) == [100, 100, 90, 100, 100, 90]
    (pause,) = steps.pauses
    assert (pause.start_ps / US, pause.end_ps / US, pause.after_step) == (290, 5300, "train 2")


def test_training_and_evaluation_are_told_apart_by_gradient_ops(tmp_path: Path) -> None:
    """Keras 3 calls both `multi_step_on_iterator`; only the concrete function and its ops differ."""
    calls, ops = [], []
    for n in range(10):
        function, op = (11, GRADIENT) if n % 5 < 3 else (22, FORWARD)
        calls += [call("multi_step_on_iterator", 100 * n, 80), fetch(100 * n + 10, 5)]
        calls.insert(-1, event(f"EagerLocalExecute: __inference_f_{function}", 100 * n + 5, 70))
        ops.append(event(op, 100 * n + 30, 20))
    steps = find_steps(trace_of(tmp_path, plane("/host:CPU", line("python", *calls), line("tf_Compute", *ops))))
    assert steps.kinds == ("train", "train", "train", "eval", "eval") * 2
    assert steps.headline_kind == "train"
    assert durations(steps)[2] == 80  # a change of kind ends the step with its work


def test_a_name_given_by_the_user_overrides_the_rules(tmp_path: Path) -> None:
    events = [
        e for n in range(4) for e in (event("train", 100 * n, 90, step_num=n), event(f"my_step_{n}", 100 * n + 10, 50))
    ]
    trace = trace_of(tmp_path, host(*events))
    assert starts(find_steps(trace, "my_step_*")) == [10, 110, 210, 310]
    assert find_steps(trace, "no such name").source == "none"


@pytest.mark.parametrize(
    ("name", "made", "source", "numbers"),
    [
        (
            "/host:CPU",
            [event("EagerKernelExecute", 100 * n, 60, group_id=n, step_name=f"train {n}") for n in range(4, 7)],
            ("stored groups", "high"),
            [4, 5, 6],
        ),
        ("/device:TPU:0", [event(str(n + 4), 100 * n, 95) for n in range(3)], ("device steps", "high"), [4, 5, 6]),
        ("/device:TPU:0", [event(str(n - 2), 100 * n, 95) for n in range(3)], ("device steps", "high"), [-2, -1, 0]),
        (
            "/device:TPU:0",
            [event(str((1 << 63) - 2 + n), 100 * n, 95) for n in range(3)],
            ("device steps", "high"),
            [(1 << 63) - 2, (1 << 63) - 1, 2],
        ),
        ("/device:GPU:0", [event("jit_step", 100 * n, 80) for n in range(4)], ("device modules", "low"), [0, 1, 2, 3]),
    ],
    ids=[
        "stored groups with a step name",
        "steps of a TPU",
        "below 0",
        "one too large",
        "modules of a GPU, the last resort",
    ],
)
def test_what_the_profiler_or_a_device_tells(
    tmp_path: Path, name: str, made: list[Event], source: tuple[str, str], numbers: list[int]
) -> None:
    lines = {"/device:TPU:0": "Steps", "/device:GPU:0": "XLA Modules"}
    steps = find_steps(trace_of(tmp_path, plane(name, line(lines.get(name, "python"), *made, id=1))))
    assert ((steps.source, steps.confidence), steps.numbers.tolist()) == (source, numbers)


def test_device_work_of_the_last_step_counts(tmp_path: Path) -> None:
    """Kernels run on after the last call returns."""
    events = [e for n in range(4) for e in (call("f", 100 * n, 50), fetch(100 * n + 5, 5))]
    gpu = plane("/device:GPU:0", line("Stream #1(Compute)", event("kernel", 340, 45), id=1))
    steps = find_steps(trace_of(tmp_path, host(*events), gpu))
    assert durations(steps)[-1] == 85


@pytest.mark.parametrize("events", [(), (event("something", 0, 5),)])
def test_no_steps_is_an_answer_with_a_reason(tmp_path: Path, events: tuple[Event, ...]) -> None:
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert (len(steps), steps.confidence, steps.averaged.tolist()) == (0, "none", [])
    assert "no step marker" in steps.explanation


FORWARD, GRADIENT, UPDATE = "d/MatMul:MatMul", "gradient_tape/d/MatMul:MatMul", "sgd/Sub:AssignSubVariableOp"


def job(calls: str, ops: dict[str, tuple[str, ...]], fetches: str = "") -> list[Event]:
    """A call of 80 us every 100 us for each letter, with its ops inside, and a fetch before those in `fetches`."""
    made = []
    for n, letter in enumerate(calls):
        if letter in fetches:
            made.append(fetch(100 * n, 5))
        made.append(call(f"f_{letter}", 100 * n + 10, 80))
        made += [event(op, 100 * n + 20 + k, 1) for k, op in enumerate(ops.get(letter, ()))]
    return made


TRAIN, EVAL = (FORWARD, GRADIENT, UPDATE), (FORWARD,)


@pytest.mark.parametrize(
    ("calls", "ops", "fetches", "kinds", "confidence"),
    [
        (("T" * 5 + "E" * 3) * 4, {"T": TRAIN, "E": EVAL}, "", {"train": 20, "eval": 12}, "medium"),  # periodic_eval
        (("T" * 5 + "E" * 3) * 4, {"T": TRAIN, "E": EVAL}, "TE", {"train": 20, "eval": 12}, "high"),
        (("T" * 5 + "E" * 3) * 4, {}, "", {"f_T": 20, "f_E": 12}, "low"),  # compiled by XLA: only the order tells
        (("T" * 3 + "E") * 4, {"T": TRAIN, "E": EVAL}, "", {"train": 12, "eval": 4}, "medium"),
        ("TTTEETTTTE", {"T": TRAIN, "E": EVAL}, "", {"train": 7, "eval": 3}, "medium"),  # no period
        ("DDG" * 4, {"D": TRAIN, "G": TRAIN}, "", {"train": 4}, "medium"),  # GAN
        ("DDGG" * 4, {"D": TRAIN, "G": TRAIN}, "", {"train": 4}, "medium"),
        ("DG" * 4, {}, "", {"step": 4}, "medium"),
        (("DDG" * 4 + "E" * 3) * 3, {"D": TRAIN, "G": TRAIN, "E": EVAL}, "D", {"train": 12, "eval": 9}, "high"),
        ("ET" * 5, {"T": TRAIN, "E": EVAL}, "", {"train": 5}, "medium"),  # a teacher
        (("A" * 4 + "T") * 5, {"T": TRAIN, "A": EVAL}, "", {"train": 5}, "medium"),  # a policy acts four times
        ("AAAAT" * 9 + "AAAATU" + "AAAAT" * 9, {"T": TRAIN, "A": EVAL}, "", {"train": 19}, "medium"),
        ("TTTTU" * 4, {"T": TRAIN}, "T", {"train": 16}, "high"),  # a moving average now and then
        ("MMMMU" * 4, {"M": (FORWARD, GRADIENT), "U": (UPDATE,)}, "M", {"train": 4}, "high"),  # micro-batches
        ("MMMMU" * 4, {"M": (FORWARD, GRADIENT)}, "M", {"train": 4}, "high"),
    ],
)
def test_a_step_is_a_training_call_with_what_belongs_to_it(
    tmp_path: Path, calls: str, ops: dict[str, tuple[str, ...]], fetches: str, kinds: dict[str, int], confidence: str
) -> None:
    steps = find_steps(trace_of(tmp_path, host(*job(calls, ops, fetches))))
    assert ({kind: steps.kinds.count(kind) for kind in kinds}, len(steps)) == (kinds, sum(kinds.values()))
    assert steps.confidence == confidence


def test_an_evaluation_step_begins_with_its_fetch_and_ends_no_later_than_its_work(tmp_path: Path) -> None:
    steps = find_steps(trace_of(tmp_path, host(*job("TTEETTEE", {"T": TRAIN, "E": EVAL}, "TE"))))
    assert starts(steps) == [100 * n for n in range(8)]
    assert durations(steps) == [100, 90, 100, 90, 100, 90, 100, 90]
    assert "4 steps of f_T; 4 evaluation calls of f_E" in steps.explanation


def test_calls_that_only_the_order_tells_apart_are_said_to_be_so(tmp_path: Path) -> None:
    steps = find_steps(trace_of(tmp_path, host(*job("TTEE" * 3, {}))))
    assert "steps are from the order of calls" in steps.explanation


def execution(at: float, batches: int, *, ends: bool, id: int) -> list[Event]:
    """A call that fetches batches as optionals, and at the end of the data one without a value."""
    asked = [at + 10 * k + 1 for k in range(batches + ends)]
    events = [call("f", at, 10 * len(asked) + 5)]
    for k, start in enumerate(asked):
        events += [event("IteratorGetNextAsOptionalOp::DoCompute", start, 4)]
        events += [event("Iterator::Root", start + 1, 2, id=id)]
        events += [event("while/OptionalGetValue:OptionalGetValue", start + 5, 1)] if k < batches else []
    return events


def test_a_fetch_that_finds_the_end_of_the_data_is_no_batch(tmp_path: Path) -> None:
    """steps_per_execution=8 over 20 batches; memory of an iterator is used again for that of the next epoch."""
    events = [
        made
        for epoch in range(2)
        for at, batches in ((0, 8), (100, 8), (200, 4))
        for made in execution(500 * epoch + at, batches, ends=batches < 8, id=7)
    ]
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert steps.batches.tolist() == [8, 8, 4, 8, 8, 4]
    events = [e for n in range(4) for e in execution(100 * n, 4, ends=False, id=7)]
    assert len(find_steps(trace_of(tmp_path, host(*events, *execution(400, 0, ends=True, id=7))))) == 4, "only the end"


def test_a_prefetch_that_hands_nothing_over_is_at_its_end(tmp_path: Path) -> None:
    """An eager loop over three epochs of four batches, each with an iterator of its own."""
    events = []
    for n in range(15):
        events += [fetch(100 * n, 30), event("Iterator::Root", 100 * n + 1, 28, id=n // 5)]
        events += [event("PrefetchConsume", 100 * n + 2, 1)] if n % 5 < 4 else []
    assert len(find_steps(trace_of(tmp_path, host(*events)))) == 12


def test_a_fetch_that_no_call_follows_starts_no_step(tmp_path: Path) -> None:
    """Two epochs of a custom loop; between them the program writes a checkpoint."""
    events = []
    for epoch in range(2):
        for n in range(5):
            at = 2000 * epoch + 100 * n
            events += [fetch(at, 5), event("Iterator::Root", at + 1, 3, id=epoch)]
            events += [call("f", at + 10, 80)] if n < 4 else []
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert starts(steps) == [0, 100, 200, 300, 2000, 2100, 2200, 2300]
    assert (steps.confidence, durations(steps)[3], len(steps.pauses)) == ("high", 90, 1)


def threads(*of_threads: list[Event]) -> Plane:
    return plane("/host:CPU", *(line("python", *events, id=n + 1) for n, events in enumerate(of_threads)))


def test_loops_of_two_threads_are_not_one_series(tmp_path: Path) -> None:
    second = [call("train_b", 70 * n + 13, 60) for n in range(11)]
    trace = trace_of(tmp_path, threads([call("train_a", 100 * n, 90) for n in range(8)], second))
    steps = find_steps(trace)
    assert durations(steps)[:-1] == [100] * 7
    (loop,) = steps.other_loops
    assert "(train_b: 11 times, median 0.06 ms)" in loop
    assert loop.endswith("; use --step-marker 'train_b' to analyze it instead.")
    assert durations(find_steps(trace, "train_b"))[:-1] == [70] * 10


def test_a_thread_that_evaluates_is_not_the_main_loop(tmp_path: Path) -> None:
    """It takes more time, and gradients of the other thread are computed meanwhile."""
    training = []
    for n in range(8):
        training += [call("train", 100 * n, 50), event("EagerLocalExecute: __inference_train_7", 100 * n + 1, 48)]
        training += [event(GRADIENT, 100 * n + 20, 5)]
    evaluating = [e for n in range(4) for e in (call("test", 190 * n, 180), event(FORWARD, 190 * n + 5, 100))]
    steps = find_steps(trace_of(tmp_path, threads(training, evaluating)))
    assert (len(steps), set(steps.kinds), len(steps.other_loops)) == (8, {"train"}, 1)


def test_marks_of_two_threads_are_two_loops(tmp_path: Path) -> None:
    first = [event("train", 100 * n, 90, step_num=n) for n in range(8)]
    second = [event("train", 70 * n + 13, 40, step_num=n) for n in range(11)]
    steps = find_steps(trace_of(tmp_path, threads(first, second)))
    assert (steps.numbers.tolist(), durations(steps)[:-1]) == (list(range(8)), [100] * 7)
    assert steps.other_loops[0].endswith("Steps and rates exclude it.")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([call("f", 100 * n, 90) for n in range(6)], [call("f", 100 * n + 45, 90) for n in range(6)]),  # replicas
        ([call("f", 100 * n, 40) for n in range(6)], [call("g", 100 * n + 50, 40) for n in range(6)]),  # taking turns
    ],
)
def test_threads_that_work_together_are_one_loop(tmp_path: Path, first: list[Event], second: list[Event]) -> None:
    assert find_steps(trace_of(tmp_path, threads(first, second))).other_loops == ()


def eager_loop(*turns: str) -> list[Event]:
    """Python runs an op of 8 us every 10 us for each letter; turns begin every 100 us."""
    return [
        made
        for n, turn in enumerate(turns)
        for k, letter in enumerate(turn)
        for made in (
            event("TFE_Py_FastPathExecute_C", 100 * n + 10 * k, 9),
            event("EagerExecute", 100 * n + 10 * k + 1, 8, is_func=0, eager_op=ref(letter)),
        )
    ]


def test_a_loop_of_eager_ops_has_an_iteration_per_turn(tmp_path: Path) -> None:
    """A job without any tf.function; in one turn the program computes the energy as well."""
    steps = find_steps(trace_of(tmp_path, host(*eager_loop("abcde", "abcde", "abcdex", "abcde"))))
    assert (steps.source, steps.confidence, set(steps.kinds)) == ("eager ops", "low", {"iteration"})
    assert (starts(steps), durations(steps)) == ([0, 100, 200, 300], [100, 100, 100, 49])
    assert steps.explanation.startswith("4 iterations of a sequence of 5 eager ops (a, b, c, ...)")


def test_an_eager_loop_that_updates_weights_trains(tmp_path: Path) -> None:
    events = eager_loop("abcdef", "abcdef", "abcdef", "abcde")
    for made in events:
        if made.stats.get("eager_op") == "b":
            made.stats["eager_op"] = ref("ResourceApplyAdam")
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert (steps.kinds, steps.flags) == (("train",) * 4, ("", "", "", PARTIAL))


def test_one_call_of_a_function_beside_a_loop_of_ops_is_not_the_only_step(tmp_path: Path) -> None:
    events = eager_loop("abcde", "abcde", "abcde", "abcde")
    assert len(find_steps(trace_of(tmp_path, host(*events, call("f", 500, 50))))) == 4
    assert len(find_steps(trace_of(tmp_path, host(*events, call("f", 500, 5000))))) == 1


def test_ops_of_a_python_function_of_the_pipeline_are_no_loop(tmp_path: Path) -> None:
    worker = [event("map/EagerPyFunc:EagerPyFunc", 0, 1000), *eager_loop("abcde", "abcde", "abcde", "abcde")]
    assert find_steps(trace_of(tmp_path, host(*worker))).source == "none"


def test_keras_marks_training_only_and_evaluation_is_found_between(tmp_path: Path) -> None:
    """Three marked steps run one concrete function with a gradient, two calls after them another one without."""
    function, executed = "multi_step_on_iterator", "EagerLocalExecute: __inference_multi_step_on_iterator"
    events: list[Event] = []
    for n in range(3):
        events += [event("train", 100 * n, 90, step_num=n, graph_type="train"), call(function, 100 * n + 1, 80)]
        events += [event(f"{executed}_7", 100 * n + 2, 70), event(GRADIENT, 100 * n + 10, 20)]
    for n in range(2):
        events += [call(function, 400 + 50 * n, 40), event(f"{executed}_9", 401 + 50 * n, 30)]
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert steps.kinds == ("train",) * 3 + ("eval",) * 2
    assert steps.headline_kind == "train"
    assert "2 calls of another function" in steps.explanation


def test_evaluation_on_arrays_is_a_step_beside_training_that_fetches_its_batches(tmp_path: Path) -> None:
    events = []
    for n in range(16):
        trains = n % 8 < 5
        events += [call("train" if trains else "test", 100 * n, 80)]
        events += [fetch(100 * n + 5, 5)] if trains else []
        events += [event(op, 100 * n + 20 + k, 1) for k, op in enumerate(TRAIN if trains else EVAL)]
    steps = find_steps(trace_of(tmp_path, host(*events)))
    assert steps.kinds == (("train",) * 5 + ("eval",) * 3) * 2


# --- steps as such; how they are found is in test_find_steps.py ---


def steps(kinds: str, seconds: list[int], flags: str = "") -> Steps:
    """Steps one after the other; `kinds` and `flags` have a letter for each, a dot for no flag."""
    end, count = np.cumsum(np.array(seconds, np.int64)), len(seconds)
    start = end - np.array(seconds, np.int64)
    names = tuple("abcdef"[:count])
    made = plain_steps(("markers", "high", "marked"), (start, end), np.arange(count), names, tuple(kinds))
    return replace(made, flags=tuple(flag.strip(".") for flag in flags or "." * count))


def test_flagged_steps_do_not_count_where_three_others_of_their_kind_do() -> None:
    assert steps("ttttt", [1] * 5, "x...x").averaged.tolist() == [False, True, True, True, False]
    assert steps("tteee", [1] * 5, "x.x..").averaged.tolist() == [True, True, True, True, True]


def test_headlines_are_about_training_if_there_is_any() -> None:
    training = replace(steps("ab", [1, 9]), kinds=("train", "eval"))
    assert (training.headline_kind, steps("ab", [1, 9]).headline_kind) == ("train", "b")


def test_some_of_the_steps_have_no_pauses_between_them() -> None:
    some = replace(steps("ttt", [1, 2, 3]), pauses=(Pause(0, 1, "a"),)).only(np.array([0, 2]))
    assert (some.names, some.duration_ps.tolist(), some.pauses) == (("a", "c"), [1, 3], ())
