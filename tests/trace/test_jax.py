from __future__ import annotations

import csv
from pathlib import Path

import hlo_builders
import pytest
from builders import Event, event, gpu, known, line, plane, trace_of
from jax_builders import FORWARD, GRADIENT, OTHER, Instructions, call, jax_trace, program, programs, run
from msgspec.structs import replace
from places import SHARED

from tfperf.formats.hlo.messages import read_names
from tfperf.trace.event_names import canonical
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.jax import CLASSES, JaxCalls, find_jax_calls, find_runs, loop_notes, program_class
from tfperf.trace.read import read_host
from tfperf.trace.soundness import find_flaws
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.steps import PARTIAL, RETRACE, Steps

US = 1_000_000


def classes(calls: JaxCalls) -> list[str]:
    return [CLASSES[kind] for kind in calls.kind.tolist()]


def test_a_call_is_counted_once_though_it_is_noted_twice(tmp_path: Path) -> None:
    inner = call("add", 12, 3)
    trace = jax_trace(tmp_path, {}, [*call("step", 0, 5), *call("step", 10, 8, *inner), *call("add", 20, 2)], [])
    calls = known(find_jax_calls(trace))
    assert [calls.names[name] for name in calls.name.tolist()] == ["step", "step", "add"]
    assert (calls.start / US).tolist() == [0, 10, 20]
    assert classes(calls) == ["unknown"] * 3


def test_calls_without_what_they_run_are_left_alone(tmp_path: Path) -> None:
    trace = jax_trace(tmp_path, {}, call("step", 0, 5), [])
    assert find_jax_calls(replace(trace, hlo_protos=None)) is None
    assert find_jax_calls(replace(trace, read_stats=trace.read_stats - {"run_id"})) is None


def test_a_trace_without_calls_has_none_and_decodes_no_program(tmp_path: Path) -> None:
    made = plane("/host:CPU", line("python", event("train", 0, 10, run_id=4)))
    trace = trace_of(tmp_path, programs({1: ("jit_f", (GRADIENT,))}), made)
    assert find_jax_calls(trace) is None
    bare = read_host(trace.path, stats=frozenset())
    assert bare.hlo_protos is None
    assert "run_id" not in bare.read_stats


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ((OTHER, GRADIENT), "gradient"),
        ((OTHER, ("fusion", "gradient_tape/dense/MatMul")), "gradient"),
        ((OTHER, FORWARD), "forward"),
        ((("custom-call", "jit(f)/dot_general"),), "forward"),
        ((("custom-call", "jit(f)/conv_general_dilated"),), "forward"),
        ((("custom-call", "jit(f)/top_k"),), "other"),
        ((("custom-call", "jit(f)/pallas_call"),), "unknown"),
        ((FORWARD, ("custom-call", "jit(f)/pallas_call")), "forward"),
        ((("transpose", "jit(f)/transpose"),), "other"),
    ],
)
def test_the_class_of_a_program(instructions: tuple[tuple[str, str], ...], expected: str) -> None:
    assert program_class(known(read_names(program("jit_f", *instructions)))) == expected


@pytest.mark.parametrize(
    ("function", "module"), [("<lambda>", "jit__lambda"), ("<lambda>", "jit__lambda_"), ("f.g", "jit_f_g"), ("f", "f")]
)
def test_a_function_and_its_program_have_one_canonical_name(function: str, module: str) -> None:
    assert canonical(function) == canonical(module)


def test_runs_belong_to_calls_in_order_and_those_called_before_the_capture_to_none(tmp_path: Path) -> None:
    trace = jax_trace(
        tmp_path,
        {7: ("jit_step", (GRADIENT,))},
        [*call("step", 10, 2), *call("step", 20, 2), *call("step", 90, 2)],
        [*run(-5, 7, 4, 10), *run(-6, 7, 14, 16), *run(-7, 7, 30, 20)],
    )
    calls = known(find_jax_calls(trace))
    assert len(find_runs(trace).start) == 3
    assert (calls.work.start.tolist(), calls.work.end.tolist()) == ([14 * US, 30 * US, -1], [30 * US, 50 * US, -1])


def test_a_run_on_several_devices_may_begin_with_an_event_that_only_waits(tmp_path: Path) -> None:
    waits = event("ThunkExecutor::Execute (wait for completion)", 11, 2, run_id=4)
    trace = jax_trace(tmp_path, {7: ("jit_f", (GRADIENT,))}, call("f", 10, 20), [waits, *run(4, 7, 14, 6)])
    assert find_runs(trace).program.tolist() == [7]
    calls = known(find_jax_calls(trace))
    assert (calls.work.start[0] / US, calls.work.end[0] / US) == (11, 20)


def test_on_a_tpu_the_work_is_that_of_the_runs_on_all_chips(tmp_path: Path) -> None:
    """Each chip works for 10 us, one 2 us later than the other; the second call ran on one chip only."""
    runs = (("jit_f(1)", 20, 10), ("jit_f(1)", 50, 10))
    chips = [
        plane(f"/device:TPU:{late}", line("XLA Modules", *(event(name, at + late, us) for name, at, us in runs[late:])))
        for late in (0, 1)
    ]
    python = [*call("f", 12, 5), *call("f", 42, 5)]
    trace = trace_of(tmp_path, *chips, plane("/host:CPU", line("python", *python)), programs({1: ("jit_f", (OTHER,))}))
    calls = known(find_jax_calls(trace))
    assert (calls.work.start / US).tolist() == [20, 50]
    assert (calls.work.end / US).tolist() == [30, 61]
    assert (calls.work.each_ps / US).tolist() == [10, 10]
    assert calls.work.program.tolist() == [1, 1]
    assert calls.work.known.all()


def test_a_call_on_a_tpu_compiles_until_xla_is_done(tmp_path: Path) -> None:
    python = line("python", *call("f", 10, 90, event("backend_compile", 15, 20)), *call("f", 110, 5))
    made = plane("/device:TPU:0", line("XLA Modules", event("jit_f(1)", 95, 10)))
    calls = known(find_jax_calls(trace_of(tmp_path, made, plane("/host:CPU", python), programs({}))))
    assert (calls.compile_ps / US).tolist() == [25, 0]


def test_functions_of_one_name_are_told_apart_by_the_program_that_ran(tmp_path: Path) -> None:
    trace = jax_trace(
        tmp_path,
        {1: ("jit_loss", (GRADIENT,)), 2: ("jit_loss", (FORWARD,))},
        [*call("loss", 0, 2), *call("loss", 20, 2)],
        [*run(1, 1, 3, 10), *run(2, 2, 23, 10)],
    )
    calls = known(find_jax_calls(trace))
    assert classes(calls) == ["gradient", "forward"]
    assert len(set(calls.token.tolist())) == 2


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ((("parameter", ""), ("multiply", "jit(multiply)/mul"), ("fusion", "jit(multiply)/mul")), True),
        ((("multiply", "jit(f)/mul"), ("add", "jit(f)/add")), False),
        ((("add", "jit(f)/add"), ("add", "jit(f)/add")), False),  # a tree of arrays
        ((("add", ""),), False),  # nothing says what it comes from
    ],
)
def test_a_program_of_one_op(tmp_path: Path, instructions: tuple[tuple[str, str], ...], expected: bool) -> None:
    calls = known(find_jax_calls(jax_trace(tmp_path, {1: ("jit_f", instructions)}, call("f", 0, 5), [])))
    assert calls.is_op.tolist() == [expected]


def test_on_a_gpu_the_work_is_what_was_launched_during_the_call_on_any_thread(tmp_path: Path) -> None:
    python = line("python", *call("step", 0, 10), *call("step", 20, 10), id=1)
    launches = [event("hipModuleLaunchKernel", at, 1, correlation_id=n) for n, at in enumerate((3, 5, 22, 40), 1)]
    kernels = [
        event("k.kd", at, 4, correlation_id=n, hlo_op="k", program_id=6) for n, at in enumerate((8, 13, 30, 50), 1)
    ]
    threads = plane("/host:CPU", python, line("Host Threads/9", *launches, id=9))
    trace = trace_of(tmp_path, programs({6: ("jit_step", (FORWARD,))}), gpu(*kernels), threads)
    calls = known(find_jax_calls(trace))
    assert (calls.work.start // US).tolist() == [8, 30]
    assert (calls.work.end // US).tolist() == [17, 34]
    assert calls.work.program.tolist() == [6, 6]


def test_a_call_that_compiles_says_so(tmp_path: Path) -> None:
    compiling = event("backend_compile_and_load", 21, 5)
    trace = jax_trace(tmp_path, {}, [*call("step", 0, 10), *call("step", 20, 10, compiling)], [])
    calls = known(find_jax_calls(trace))
    assert calls.compiles.tolist() == [False, True]


# --- jax_loops ---


def looped(folder: Path, *times: int, op: str = "dot_general") -> HostTrace:
    """A call for each number: a program with one op before its loop, and one inside that runs so often."""
    python, worker = [], []
    for number, count in enumerate(times):
        at = 100.0 * number
        python += call("scan_steps", at, 90)
        ids = {"program_id": 3, "run_id": number}
        worker.append(event("copy.1", at + 1, 4, hlo_op="copy.1", **ids))
        worker += [event("dot.2", at + 10 + 10 * i, 5, hlo_op="dot.2", **ids) for i in range(count)]
    made = (GRADIENT, ("copy", ""), ("dot", f"jit(scan_steps)/while/body/{op}"))
    return jax_trace(folder, {3: ("jit_scan_steps", made)}, python, worker)


@pytest.mark.parametrize(
    ("runs", "op", "is_said"),
    [
        ((4, 4), "dot_general", True),
        ((2, 4, 4, 4), "dot_general", True),  # the capture cuts one off
        ((4, 3), "dot_general", False),
        ((4, 4), "threefry2x32", False),  # it makes random numbers
    ],
)
def test_a_loop_is_counted_by_its_ops(runs: tuple[int, ...], op: str, is_said: bool, tmp_path: Path) -> None:
    trace = looped(tmp_path, *runs, op=op)
    said = ("Each call of scan_steps runs its loop 4 times.",) if is_said else ()
    assert loop_notes(trace, known(find_jax_calls(trace))) == said


# --- sequences of calls: which of them make a step? Gradients are G, forward programs F, all others small letters ---

TRACES = SHARED / "traces"


def called(folder: Path, text: str) -> HostTrace:
    """One call of 5 us every 10 us for each letter, each done when it returns."""
    keys = {letter: number for number, letter in enumerate(dict.fromkeys(text), 1)}
    classes: dict[str, Instructions] = {"G": (GRADIENT,), "F": (FORWARD,)}
    modules = {key: (f"jit_{letter}", classes.get(letter, (OTHER,))) for letter, key in keys.items()}
    python, worker = [], []
    for at, letter in enumerate(text):
        python += call(letter, 10 * at, 5)
        worker += run(at, keys[letter], 10 * at + 1, 3)
    return jax_trace(folder, modules, python, worker)


def summary(steps: Steps) -> tuple[dict[str, int], str]:
    return {kind: steps.kinds.count(kind) for kind in sorted(set(steps.kinds))}, steps.confidence


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("G" * 8, ({"train": 8}, "high")),
        ("abG" * 5, ({"train": 5}, "high")),
        ("GaGbGbz" * 4, ({"train": 4}, "high")),  # micro-batches, then an update
        ("G" * 6 + "F" * 4, ({"eval": 4, "train": 6}, "high")),
        ("GGGGF" * 4, ({"eval": 4, "train": 16}, "high")),
        ("GGGGs" * 4, ({"train": 4}, "high")),  # four micro-batches, then an update
        ("FG" * 6, ({"train": 6}, "high")),  # a teacher, or a policy: part of each step
        ("aFG" * 6, ({"train": 6}, "high")),
        ("GabGGaccG", ({"train": 4}, "medium")),  # nothing repeats: each gradient is a step
        ("F" * 7, ({"iteration": 7}, "medium")),
        ("aFb" * 4, ({"iteration": 4}, "medium")),
        ("FabFF", ({"iteration": 3}, "low")),
    ],
)
def test_calls_make_steps(tmp_path: Path, text: str, expected: tuple[dict[str, int], str]) -> None:
    steps = find_steps(called(tmp_path, text))
    assert steps.source == "jitted calls"
    assert summary(steps) == expected


@pytest.mark.parametrize(("dims", "count"), [((), 16), ((8,), 4)])
def test_a_scalar_that_is_computed_now_and_then_is_a_report_and_no_update(
    tmp_path: Path, dims: tuple[int, ...], count: int
) -> None:
    """Four calls that compute gradients, then one of another function, four times."""
    root = hlo_builders.instruction(1, "add", "add", hlo_builders.shape(hlo_builders.F32, *dims))
    other = hlo_builders.program(hlo_builders.computation("main", root))
    both = {"jit_G(1)": {"program_id": 1, "Hlo Proto": program("jit_G", GRADIENT)}}
    both["jit_step(2)"] = {"program_id": 2, "Hlo Proto": other}
    python, worker = [], []
    for at, letter in enumerate("GGGGs" * 4):
        python += call("G" if letter == "G" else "step", 10 * at, 5)
        worker += run(at, 1 if letter == "G" else 2, 10 * at + 1, 3)
    host = plane("/host:CPU", line("python", *python, id=1), line("worker", *worker, id=2))
    steps = find_steps(trace_of(tmp_path, plane("/host:metadata", name_stats=both), host))
    assert steps.kinds == ("train",) * count


def test_a_thread_that_evaluates_is_a_loop_of_its_own(tmp_path: Path) -> None:
    modules: dict[int, tuple[str, Instructions]] = {1: ("jit_G", (GRADIENT,)), 2: ("jit_F", (FORWARD,))}
    training = [made for n in range(8) for made in call("G", 100 * n, 60)]
    evaluating = [made for n in range(11) for made in call("F", 70 * n + 13, 60)]
    threads = plane("/host:CPU", line("python", *training, id=1), line("python", *evaluating, id=2))
    steps = find_steps(trace_of(tmp_path, programs(modules), threads))
    assert (steps.kinds, (steps.duration_ps[:-1] / US).tolist()) == (("train",) * 8, [100] * 7)
    assert "(PjitFunction(F): 11 times, median 0.06 ms)" in steps.other_loops[0]


def test_a_program_that_does_not_train_has_iterations(tmp_path: Path) -> None:
    steps = find_steps(called(tmp_path, "aF" * 4))
    assert steps.names == ("iteration 0", "iteration 1", "iteration 2", "iteration 3")
    assert "no program computes gradients, so these are not training steps" in steps.explanation


def test_steps_run_from_call_to_call_where_the_program_waits(tmp_path: Path) -> None:
    steps = find_steps(called(tmp_path, "aG" * 4))
    assert (steps.start_ps / US).tolist() == [0, 20, 40, 60]
    assert (steps.duration_ps / US).tolist() == [20, 20, 20, 15]
    assert "from call to call" in steps.explanation


def asynchronous(*marks: Event) -> tuple[list[Event], list[Event]]:
    """Six calls within 60 us, and runs of 100 us each."""
    python, worker = [*marks], []
    for i in range(6):
        python += call("G", 10 * i, 5)
        worker += run(i, 1, 8 + 100 * i, 100)
    return python, worker


def test_a_step_is_not_only_the_dispatch(tmp_path: Path) -> None:
    steps = find_steps(jax_trace(tmp_path, {1: ("jit_G", (GRADIENT,))}, *asynchronous()))
    assert (steps.duration_ps / US).tolist() == [100.0] * 6
    assert "device times, because calls return before the device work is done" in steps.explanation
    marks = [event("train", 10 * i - 1, 7, step_num=40 + i) for i in range(6)]
    steps = find_steps(jax_trace(tmp_path, {1: ("jit_G", (GRADIENT,))}, *asynchronous(*marks)))
    assert steps.source == "markers"
    assert steps.numbers.tolist() == [40, 41, 42, 43, 44, 45]
    assert (steps.duration_ps / US).tolist() == [100.0] * 6


def test_work_that_the_capture_does_not_show_leaves_a_part_of_a_step(tmp_path: Path) -> None:
    python, worker = asynchronous()
    trace = jax_trace(tmp_path, {1: ("jit_G", (GRADIENT,))}, python, worker[:-2])
    steps = find_steps(trace)
    assert steps.flags == ("",) * 5 + (PARTIAL,)
    assert steps.duration_ps[-1] == 0
    assert "empty_steps" not in [flaw.code for flaw in find_flaws(trace, steps)], "the trace is not damaged"


def test_a_turn_that_is_cut_off_is_partial_and_one_that_compiles_is_flagged(tmp_path: Path) -> None:
    assert find_steps(called(tmp_path, "abG" * 4 + "a")).flags == ("",) * 4 + (PARTIAL,)
    python = [*call("G", 0, 40, event("backend_compile_and_load", 2, 30))]
    for i in range(1, 5):
        python += call("G", 50 * i, 5)
    steps = find_steps(jax_trace(tmp_path, {1: ("jit_G", (GRADIENT,))}, python, []))
    assert steps.flags == (RETRACE, "", "", "", "")


@pytest.mark.skipif(not (TRACES / "xla_reference").is_dir(), reason="the reference traces are not here")
def test_the_steps_of_the_reference_traces() -> None:
    differ = {}
    for row in csv.DictReader((TRACES / "xla_reference" / "steps.csv").read_text().splitlines()):
        if row["trace"].startswith("tf_"):
            continue
        places = (TRACES / "xla_reference" / "captures" / row["trace"], TRACES / "jax_mi300x" / row["trace"])
        path = next(path for place in places for path in place.glob("*.xplane.pb"))
        steps = find_steps(read_host(path, stats=frozenset()))
        evaluations = steps.kinds.count("eval")
        found = (len(steps) - evaluations, evaluations)
        if found != (int(float(row["steps"])), int(row["evaluations"] or 0)):
            differ[row["trace"]] = found
    assert differ == {}
