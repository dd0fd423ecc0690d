from __future__ import annotations

from pathlib import Path

import hlo_builders
import pytest
from builders import event, gpu, host, line, plane, ref, result_of, results_of, rows_of, trace_of
from hlo_builders import F32, shape
from jax_builders import FORWARD, GRADIENT, call, jax_trace, programs, run
from protobytes import field

from tfperf.analysis.load import assemble
from tfperf.analysis.registry import Results
from tfperf.report.model import Section
from tfperf.sections.functions.analysis import (
    Functions,
    JittedFunctions,
    changed_arguments,
    combine,
    count_calls,
    shorten_jitted,
)
from tfperf.sections.functions.eager import find_eager_ops
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.steps import no_steps


def functions_of(tmp_path: Path) -> Functions:
    """A function that is traced and then called, and one op that Python runs itself."""
    thread = host(
        event("train", 0, 100, tf_function_call=ref("traced-nonXla"), tracing_count=1),
        event("train", 200, 300, tf_function_call=ref("notTraced-xla"), tracing_count=1),
        event("EagerExecute", 600, 20, is_func=0, eager_op=ref("Sin")),
    )
    functions: Functions = result_of(tmp_path, "functions", thread)
    return functions


def test_functions_and_eager_ops_are_one_result(tmp_path: Path) -> None:
    functions = functions_of(tmp_path)
    keys = ("function", "calls", "traced_calls", "not_traced_calls", "eager_calls", "concrete_calls", "tracing_count")
    assert rows_of(functions.columns(), *keys) == [("train", 2, 1, 1, 0, 0, 1)]
    others = ("compiler", "compiling_calls", "self_ms", "expensive_call_percent")
    assert rows_of(functions.columns(), *others) == [("XLA", 0, 0.4, 25.0)]
    assert list(functions.table["function"]) == ["train"]
    assert functions.eager.op_types == ("Sin",)


def test_hosts_are_added_up(tmp_path: Path) -> None:
    functions = functions_of(tmp_path)
    both = combine([functions, functions])
    (train,) = both.functions
    assert (train.name, train.call_count, train.total_self_ps, train.tracing_count) == ("train", 4, 800_000_000, 1)
    assert both.eager.columns()["calls"] == [2]


def test_calls_are_counted_by_mode_with_self_time(tmp_path: Path) -> None:
    """train: traced 100 us with a helper of 40 inside, then 20 us not traced."""
    thread = host(
        event("train", 0, 100, tf_function_call=ref("traced-nonXla"), tracing_count=2),
        event("helper", 10, 40, tf_function_call=ref("traced-nonXla"), tracing_count=1),
        event("train", 200, 20, tf_function_call=ref("notTraced-nonXla"), tracing_count=2),
    )
    train, helper = count_calls(trace_of(tmp_path, thread))
    assert (train.name, train.calls) == ("train", {"notTraced": 1, "traced": 1})
    assert (train.tracing_count, train.is_compiled) == (2, False)
    assert train.total_self_ps == 80_000_000
    assert train.expensive_percent == pytest.approx(75.0)
    assert (helper.name, helper.expensive_percent) == ("helper", 100.0)


def test_compiled_and_eager_calls(tmp_path: Path) -> None:
    thread = host(
        event("f", 0, 10, tf_function_call="notTraced-xla"),
        event("g", 20, 30, tf_function_call="eager"),
        event("g", 60, 10, tf_function_call="concrete"),
    )
    trace = trace_of(tmp_path, thread)
    g, f = count_calls(trace)
    assert f.is_compiled
    assert g.expensive_percent == pytest.approx(75.0)
    assert Functions((g, f), find_eager_ops(trace, no_steps(""))).columns()["tracing_count"] == [None, None]


def test_a_function_without_duration_is_not_expensive(tmp_path: Path) -> None:
    (f,) = count_calls(trace_of(tmp_path, host(event("f", 0, 0, tf_function_call="traced-nonXla")), instants=True))
    assert (f.call_count, f.expensive_percent) == (1, 0.0)


def compiled(*shapes: bytes) -> bytes:
    """A program with parameters of these shapes."""
    made = [
        hlo_builders.instruction(1 + at, f"p{at}", "parameter", each, extra=field(9, at))
        for at, each in enumerate(shapes)
    ]
    return hlo_builders.program(hlo_builders.computation("main", *made))


def test_programs_of_one_function_say_which_argument_changes() -> None:
    batch, longer, weights = (shape(F32, *dims) for dims in ((64, 8), (70, 8), (8, 8)))
    first, second = compiled(weights, batch), compiled(weights, longer)
    assert changed_arguments([first, second, first]) == "an argument is f32[64,8] or f32[70,8]"
    assert changed_arguments([first, first]).startswith("its arguments have the same shapes, so a static argument")
    assert changed_arguments([first]) == "", "nothing to compare"
    assert changed_arguments([first, compiled(weights)]) == "", "other arguments"
    assert changed_arguments([first, b"damaged"]) == ""


SCALE = (("multiply", "jit(scale)/mul"), ("add", "jit(scale)/add"))


def training(folder: Path, *compiled: int) -> HostTrace:
    """Six steps of 100 us: a call of `scale`, and one of `train` that takes 80 us longer if it compiles."""
    python, worker = [], []
    for number in range(6):
        at = 1000.0 * number
        compiles = number in compiled
        inside = [event("backend_compile_and_load", at + 30, 60)] if compiles else []
        took = 100 if compiles else 20
        python += [*call("scale", at, 5), *call("train", at + 10, took, *inside)]
        python.append(event("np.asarray(jax.Array)", at + 10 + took, 980 - took))
        worker += [*run(2 * number, 1, at + 1, 2), *run(2 * number + 1, 2, at + 10 + took, 800)]
    modules = {1: ("jit_scale", SCALE), 2: ("jit_train", (GRADIENT,)), 3: ("jit_test", (FORWARD,))}
    return jax_trace(folder, modules, python, worker)


def section(results: Results) -> Section:
    return assemble(results, ["functions"]).sections[0]


def test_calls_compilations_and_work_of_each_function(tmp_path: Path) -> None:
    results = results_of(training(tmp_path, 0, 3), sections=["functions"])
    jitted: JittedFunctions = results["functions"].jitted
    keys = ("function", "computes", "calls", "compiling_calls", "total_ms", "compiling_ms", "work_ms")
    assert rows_of(jitted.table, *keys) == [
        ("train", "gradients", 6, 2, pytest.approx(0.28), pytest.approx(0.2), pytest.approx(4.8)),
        ("scale", "neither", 6, 0, pytest.approx(0.03), 0.0, pytest.approx(0.012)),
    ]
    assert jitted.calls_per_step == 2


def test_the_section_speaks_of_jitted_functions_and_not_of_tensorflow(tmp_path: Path) -> None:
    made = section(results_of(training(tmp_path, 0, 3), sections=["functions"]))
    assert made.title == "Jitted functions"
    assert [(fact.key, fact.value, fact.note) for fact in made.facts] == [
        ("compiling_calls", 2, "of 12 calls"),
        ("jitted_calls_per_step", 2, ""),
    ]
    assert [table.name for table in made.tables] == ["jitted_functions"]
    assert made.notes == ()
    assert [finding.code for finding in made.findings] == ["compiling"]
    assert "train (2 of 6 calls, 71.4% of their time)" in made.findings[0].text


def test_one_compilation_is_no_finding(tmp_path: Path) -> None:
    assert section(results_of(training(tmp_path, 0), sections=["functions"])).findings == ()


def test_hosts_add_up(tmp_path: Path) -> None:
    hosts = [training(tmp_path, 0) for _ in range(2)]
    jitted = results_of(*hosts, sections=["functions"])["functions"].jitted
    found = [(row.name, row.calls, row.compiling_calls) for row in jitted.functions]
    assert found == [("train", 12, 2), ("scale", 12, 0)]
    assert jitted.calls_per_step == 2


def test_one_compilation_on_each_host_is_no_finding(tmp_path: Path) -> None:
    hosts = [training(tmp_path, 0) for _ in range(3)]
    assert section(results_of(*hosts, sections=["functions"])).findings == ()


def test_compiling_in_the_steps_is_a_cause_in_the_words_of_jax(tmp_path: Path) -> None:
    results = results_of(training(tmp_path, *range(6)))
    cause = next(cause for cause in results["diagnosis"].causes if cause.code == "compilation")
    assert cause.detail == "train was compiled in 6 of 6 calls; every run is a first run, and first runs take longer"
    assert cause.cost_percent is not None
    assert cause.cost_percent.low == pytest.approx(10, abs=0.5)
    assert cause.cost_percent.high == pytest.approx(2 * cause.cost_percent.low), "as long as it compiles, at most"
    assert cause.actions[0].text.startswith("keep shapes (pad batches to a few sizes) and static arguments")


def op_by_op(folder: Path) -> HostTrace:
    """Five steps of a gradient of 40 us and of two ops of 20 us each, whose calls take 5 us."""
    python, worker = [], []
    for number in range(5):
        at = 100.0 * number
        python += [*call("loss", at, 40), *call("multiply", at + 45, 5), *call("subtract", at + 70, 5)]
        worker += run(3 * number, 1, at + 1, 38)
        worker += [*run(3 * number + 1, 2, at + 48, 17), *run(3 * number + 2, 3, at + 73, 17)]
    gradient = (GRADIENT, ("multiply", "jit(loss)/jvp(f)/mul"))
    modules = {
        1: ("jit_loss", gradient),
        2: ("jit_multiply", (("multiply", "jit(multiply)/mul"), ("parameter", ""))),
        3: ("jit_subtract", (("subtract", "jit(subtract)/sub"),)),
    }
    return jax_trace(folder, modules, python, worker)


def test_programs_of_one_op_are_ops_that_python_runs_one_by_one(tmp_path: Path) -> None:
    results = results_of(op_by_op(tmp_path))
    eager = results["functions"].eager
    assert (eager.op_types, eager.calls.tolist()) == (("multiply", "subtract"), [5, 5])
    assert eager.percent == pytest.approx(40, abs=1)
    assert eager.calls_per_step == 2
    cause = results["diagnosis"].causes[0]
    assert cause.code == "eager_ops"
    assert cause.actions[0].text == "put the whole step into one jax.jit"


@pytest.mark.parametrize(("name", "percent"), [("subtract", 15), ("", 0)])
def test_on_a_device_only_the_calls_of_such_ops_count(tmp_path: Path, name: str, percent: int) -> None:
    """A step that is one call of one op, and nothing else, is a program of one op, and no op beside it."""
    calls = [each for number in range(5) for each in call("multiply", 100 * number, 10)]
    calls += [each for number in range(5 * bool(name)) for each in call(name, 100 * number + 20, 5)]
    launches = [event("hipModuleLaunchKernel", 100 * n + 5, 1, correlation_id=n + 1) for n in range(5)]
    kernels = [event("mul.kd", 100 * n + 15, 60, correlation_id=n + 1, program_id=2) for n in range(5)]
    ops = {2: ("multiply", "jit(multiply)/mul"), 3: ("subtract", "jit(subtract)/sub")}
    made = programs({number: (f"jit_{op}", ((op, path),)) for number, (op, path) in ops.items()})
    threads = plane("/host:CPU", line("python", *calls, id=1), line("Host Threads/9", *launches, id=9))
    eager = result_of(tmp_path, "functions", made, gpu(*kernels), threads).eager
    assert eager.percent == pytest.approx(percent, abs=1)


def test_functions_beyond_the_first_are_one(tmp_path: Path) -> None:
    jitted = results_of(training(tmp_path, 0), sections=["functions"])["functions"].jitted
    short = shorten_jitted(jitted, 0)
    (others,) = short.functions
    assert (others.name, others.computes, others.calls, others.compiling_calls) == ("(other functions)", "", 12, 1)
    assert others.total_ps == sum(row.total_ps for row in jitted.functions)
    assert short.calls_per_step == jitted.calls_per_step
    assert shorten_jitted(jitted, 2) is jitted


def test_a_call_far_ahead_is_in_the_step_in_which_a_tpu_runs_it(tmp_path: Path) -> None:
    """All calls are made before the first run; each works for 90 us on one chip, and for 60 on the other."""
    python, chips = [], []
    for nth in range(4):
        flows = [
            event("DoEnqueueProgram", 10 * nth + 1 + number, 0.5, _p=10 * nth + number, _pt=12) for number in (0, 1)
        ]
        python += call("f", 10 * nth, 8, *flows)
    for number, us in ((0, 90), (1, 60)):
        runs = (event("jit_f(3)", 100 + 100 * nth, us, _c=10 * nth + number, _ct=12) for nth in range(4))
        chips.append(plane(f"/device:TPU:{number}", line("XLA Modules", *runs)))
    kernel = programs({3: ("jit_f", (("custom-call", "jit(f)/pallas_call"),))})
    jitted: JittedFunctions = result_of(tmp_path, "functions", *chips, host(*python), kernel).jitted
    assert jitted.calls_per_step == 1
    (function,) = jitted.functions
    assert function.work_ps == 4 * 75_000_000
    assert function.computes == ""
