from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, line, plane, results_of, trace_of
from jax_builders import FORWARD, GRADIENT, call, jax_trace, programs, run

from tfperf.analysis.load import assemble
from tfperf.analysis.registry import Results
from tfperf.report.model import Section
from tfperf.sections.functions.analysis import JittedFunctions, shorten_jitted
from tfperf.trace.host_trace import HostTrace

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
    assert jitted.table.to_dict("records") == [
        {
            "function": "train",
            "computes": "gradients",
            "calls": 6,
            "compiling_calls": 2,
            "total_ms": pytest.approx(0.28),
            "compiling_ms": pytest.approx(0.2),
            "work_ms": pytest.approx(4.8),
        },
        {
            "function": "scale",
            "computes": "neither",
            "calls": 6,
            "compiling_calls": 0,
            "total_ms": pytest.approx(0.03),
            "compiling_ms": 0.0,
            "work_ms": pytest.approx(0.012),
        },
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
    hosts = [tmp_path / "a", tmp_path / "b"]
    for host in hosts:
        host.mkdir()
    results = results_of(*(training(host, 0) for host in hosts), sections=["functions"])
    jitted = results["functions"].jitted
    assert [(row.name, row.calls, row.compiling_calls) for row in jitted.functions] == [
        ("train", 12, 2),
        ("scale", 12, 0),
    ]
    assert jitted.calls_per_step == 2


def test_compiling_in_the_steps_is_a_cause_in_the_words_of_jax(tmp_path: Path) -> None:
    results = results_of(training(tmp_path, *range(6)))
    cause = next(cause for cause in results["diagnosis"].causes if cause.code == "compilation")
    assert cause.detail == "train is compiled in 6 of 6 calls; every run is a first run, which takes longer"
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
    trace = trace_of(
        tmp_path,
        programs(
            {
                2: ("jit_multiply", (("multiply", "jit(multiply)/mul"),)),
                3: ("jit_subtract", (("subtract", "jit(subtract)/sub"),)),
            }
        ),
        plane("/device:GPU:0", line("Stream #1(Kernel)", *kernels)),
        plane("/host:CPU", line("python", *calls, id=1), line("Host Threads/9", *launches, id=9)),
    )
    eager = results_of(trace, sections=["functions"])["functions"].eager
    assert eager.percent == pytest.approx(percent, abs=1)


def test_functions_beyond_the_first_are_one(tmp_path: Path) -> None:
    jitted = results_of(training(tmp_path, 0), sections=["functions"])["functions"].jitted
    short = shorten_jitted(jitted, 0)
    assert [(row.name, row.computes, row.calls, row.compiling_calls) for row in short.functions] == [
        ("(other functions)", "", 12, 1)
    ]
    assert short.functions[0].total_ps == sum(row.total_ps for row in jitted.functions)
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
    trace = trace_of(tmp_path, *chips, plane("/host:CPU", line("python", *python)), kernel)
    jitted: JittedFunctions = results_of(trace, sections=["functions"])["functions"].jitted
    assert jitted.calls_per_step == 1
    (function,) = jitted.functions
    assert function.work_ps == 4 * 75_000_000
    assert function.computes == ""
