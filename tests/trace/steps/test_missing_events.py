"""Events that the profiler should have recorded: which are missing, and what is unknown then."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import (
    Event,
    Line,
    Plane,
    event,
    host,
    host_of,
    iterator_call,
    known,
    line,
    logdir_of,
    plane,
    ref,
    results_of,
    space,
    trace_of,
)
from msgspec.structs import replace

import tfperf
from tfperf.judge.check import check_profile
from tfperf.report.render import render
from tfperf.trace.flaw import Flaw

LIBCUPTI = "vm: Failed to load libcupti (is it installed and accessible?)"
MARKS = [event("train", 100 * n, 100, step_num=n) for n in range(5)]
EVERY_DEVICE_CATEGORY = {"output", "kernel_launch", "device_collectives", "device_to_device", "device_compute"}


def flaws_of(tmp_path: Path, *planes: Plane, errors: tuple[str, ...] = ()) -> tuple[Flaw, ...]:
    trace = replace(trace_of(tmp_path, *planes), errors=errors)
    flaws: tuple[Flaw, ...] = host_of(trace, "steps")["steps"].missing
    return flaws


def codes(flaws: tuple[Flaw, ...]) -> list[str]:
    return [flaw.code for flaw in flaws]


# --- a GPU that was not traced ---


def test_a_tracer_that_failed_leaves_the_device_unknown(tmp_path: Path) -> None:
    (flaw,) = flaws_of(tmp_path, host(*MARKS), plane("/device:GPU:0"), errors=(LIBCUPTI,))
    assert (flaw.code, flaw.level) == ("gpu_not_traced", "incomplete")
    assert flaw.text.startswith(f'the GPU was not traced: the job cannot load libcupti ("{LIBCUPTI}")')
    assert "LD_LIBRARY_PATH" in flaw.fix
    assert {*EVERY_DEVICE_CATEGORY, "host_to_device", "host_compute", "input_wait", "all_others"} < flaw.hides
    assert "compilation" not in flaw.hides


@pytest.mark.parametrize(
    ("planes", "words"),
    [
        ((), "tfperf doctor"),
        ((plane("/device:GPU:0", stats={"device_vendor": "AMD"}),), "roctracer"),
        ((plane("Task Environment", stats={"profile_options": "\x08\x01\x10\x02(\x01"}),), "--device-tracer-level 1"),
    ],
)
def test_the_fix_fits_the_device(tmp_path: Path, planes: tuple[Plane, ...], words: str) -> None:
    (flaw,) = flaws_of(tmp_path, host(*MARKS, event("jit_f:XLA GPU module", 5, 1)), *planes)
    assert words in flaw.fix


@pytest.mark.parametrize("errors", [(), ("vm: No GPU detected.",), ("the disk is full",)])
def test_a_job_without_a_gpu_lacks_nothing(tmp_path: Path, errors: tuple[str, ...]) -> None:
    planes = (host(*MARKS, event("MatMul:MatMul", 0, 50)), plane("/device:GPU:0"))
    assert flaws_of(tmp_path, *planes, errors=errors) == ()
    device = plane("/device:GPU:0", line("Stream #1(Compute)", event("gemm", 10, 5)))
    assert flaws_of(tmp_path, host(*MARKS), device, errors=(LIBCUPTI,)) == (), "it has events"


# --- events of devices that were lost ---


def launch(number: int, start: float) -> Event:
    return event("cuLaunchKernel", start, 1, correlation_id=number)


def launching(count: int, *others: Event) -> Plane:
    return host(*MARKS, *(launch(n, 100 * n) for n in range(1, count + 1)), *others)


def kernels(*numbers: int) -> Line:
    made = (event("fusion", 100 * n + 10, 5, correlation_id=n, hlo_module=ref("jit_f"), program_id=1) for n in numbers)
    return line("Stream #1(Kernel)", *made)


def test_launches_without_events_are_lost(tmp_path: Path) -> None:
    """Of 20 launches every other one has a kernel, the last one too."""
    (flaw,) = flaws_of(tmp_path, launching(20), plane("/device:GPU:0", kernels(*range(2, 21, 2))))
    assert flaw.code == "device_events_lost"
    assert flaw.text.startswith("device events are missing: 10 of 20 launches have no device event")


def test_events_that_end_before_the_capture_are_lost(tmp_path: Path) -> None:
    """Each kernel runs 9 us after its launch, and of 40 launches 3.9 ms long only the first 10 have one."""
    (flaw,) = flaws_of(tmp_path, launching(40), plane("/device:GPU:0", kernels(*range(1, 11))))
    assert "19 of 29 launches have no device event" in flaw.text, "launched in the last millisecond, it may come later"


def test_work_that_the_device_did_not_reach_is_not_lost(tmp_path: Path) -> None:
    """The device needs 1 ms for what is launched every 100 us: the capture ends before it executes most of it."""
    late = [event("k", 1000 * n, 1000, correlation_id=n) for n in range(1, 11)]
    assert flaws_of(tmp_path, launching(100), plane("/device:GPU:0", line("Stream #1(Kernel)", *late))) == ()


def test_waiting_for_the_device_is_no_launch(tmp_path: Path) -> None:
    waits = [event("cuStreamSynchronize", 100 * n + 50, 5, correlation_id=100 + n) for n in range(1, 11)]
    assert flaws_of(tmp_path, launching(10, *waits), plane("/device:GPU:0", kernels(*range(1, 11)))) == ()


def executing(count: int, threads: int) -> Plane:
    """Threads that each run the program `jit_f` `count` times; the first one notes its launches."""
    lines = []
    for thread in range(threads):
        runs = [event("jit_f:XLA GPU module", 100 * n, 20) for n in range(1, count + 1)]
        launches = [launch(n, 100 * n + 1) for n in range(1, count + 1)] if thread == 0 else []
        lines.append(line(f"py_xla_execute/{thread}", *runs, *launches))
    return plane("/host:CPU", line("python", *MARKS, id=99), *lines)


def test_programs_that_ran_more_often_than_the_devices_recorded(tmp_path: Path) -> None:
    """Four threads run a program six times, and the kernels of one device are there."""
    (flaw,) = flaws_of(tmp_path, executing(6, 4), plane("/device:GPU:0", kernels(*range(1, 7))), plane("/device:GPU:1"))
    assert flaw.code == "device_events_lost"
    assert "host threads ran jit_f 24 times, but devices recorded only 6 of these runs" in flaw.text


def test_every_program_of_a_name_counts(tmp_path: Path) -> None:
    """Two programs are called `jit_f`; each runs three times."""
    other = [
        event("other", 100 * n + 10, 5, correlation_id=n, hlo_module=ref("jit_f"), program_id=2) for n in (4, 5, 6)
    ]
    device = plane("/device:GPU:0", kernels(1, 2, 3), line("Stream #2(Kernel)", *other, id=2))
    assert flaws_of(tmp_path, executing(6, 1), device) == ()


def test_kernels_that_name_no_program_decide_nothing(tmp_path: Path) -> None:
    """As where CUDA graphs launch them."""
    graphs = [event("graph", 100 * n + 10, 5, correlation_id=n) for n in range(1, 7)]
    device = plane("/device:GPU:0", line("Stream #1(Kernel)", *graphs))
    assert flaws_of(tmp_path, executing(6, 4), device) == ()


# --- ops that the tracer left out ---


def session(options: str) -> Plane:
    return plane("Task Environment", stats={"profile_options": options})


CALLS = [
    each
    for n in range(5)
    for each in (
        event("train_step", 100 * n, 90, tf_function_call=ref("notTraced-nonXla"), tracing_count=1),
        event("EagerExecute", 100 * n + 1, 80, is_func=1),
    )
]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("\x08\x01\x10\x01\x18\x01(\x01", ["ops_not_recorded"]),
        ("\x08\x01\x10\x02\x18\x01 \x01(\x01", []),
        ("\x08\x01\x18\x01(\x01R\x06loop_0", ["ops_not_recorded"]),
        ("\x10\x03(\x01", []),
        ("", ["ops_not_recorded"]),
        ("what is this", ["ops_not_recorded"]),
    ],
)
def test_the_level_in_the_profile_decides(tmp_path: Path, options: str, found: list[str]) -> None:
    """Calls of functions, and nothing in them: at level 2 they did nothing else."""
    assert codes(flaws_of(tmp_path, host(*CALLS), session(options))) == found


def test_calls_without_ops_leave_the_host_unknown(tmp_path: Path) -> None:
    (flaw,) = flaws_of(tmp_path, host(*CALLS), session("\x08\x01\x10\x01\x18\x01(\x01"))
    assert flaw.text.startswith("the host tracer recorded no ops (host_tracer_level=1)")
    assert "--host-tracer-level 2" in flaw.fix
    assert {"host_compute", "all_others", "input", "compilation"} < flaw.hides
    assert "device_compute" not in flaw.hides
    (flaw,) = flaws_of(tmp_path, host(*CALLS))
    assert "(as with host_tracer_level=1)" in flaw.text, "older profiles show it by what they hold"
    (flaw,) = flaws_of(tmp_path, host(*CALLS, event("tf.function-graph_building", 5, 30)))
    assert "compilation" not in flaw.hides, "it is seen"


def test_markers_alone_are_no_ops_either(tmp_path: Path) -> None:
    assert codes(flaws_of(tmp_path, host(*MARKS), session("\x10\x01(\x01"))) == ["ops_not_recorded"]
    assert flaws_of(tmp_path, host(*MARKS), session("\x10\x02(\x01")) == (), "Python did nothing that is recorded"


@pytest.mark.parametrize("name", ["ExecutorState::Process", "MatMul:MatMul", "FunctionRun", "PjitFunction(step)"])
def test_ops_or_jitted_calls_are_enough(tmp_path: Path, name: str) -> None:
    """JAX records its ops at level 1 too."""
    events = [event(name, 100 * n + 5, 50) for n in range(5)]
    assert flaws_of(tmp_path, host(*CALLS, *events), session("\x08\x01\x10\x01\x18\x01(\x01")) == ()


def test_a_tracer_that_was_off_is_named(tmp_path: Path) -> None:
    (flaw,) = flaws_of(tmp_path, plane("/host:CPU"), session("\x08\x01\x18\x01(\x01"))
    assert "host_tracer_level=0" in flaw.text


# --- what follows ---


def test_hidden_categories_have_no_time(tmp_path: Path) -> None:
    trace = replace(trace_of(tmp_path, host(*MARKS, event("MatMul:MatMul", 0, 50))), errors=(LIBCUPTI,))
    breakdown = host_of(trace, "steps")["steps"]
    assert {"host_compute", "all_others", "device_compute"} < breakdown.unknown
    assert not breakdown.time_ps["host_compute"].any()
    assert results_of(trace)["overview"].input_percent is None


def test_changes_of_the_pipeline_have_no_estimate(tmp_path: Path) -> None:
    parts = []
    for n in range(5):
        parts += [event("IteratorGetNextOp::DoCompute", 100 * n, 62), iterator_call("Root", 100 * n + 1, 59, 10 * n)]
        parts += [iterator_call("Root::Map", 100 * n + 1, 58, 10 * n + 1, 10 * n)]
    trace = trace_of(tmp_path, host(*MARKS, *parts))
    whole, untraced = (results_of(each)["tfdata"].outlook for each in (trace, replace(trace, errors=(LIBCUPTI,))))
    assert known(whole).estimates
    assert known(untraced).estimates == ()


def test_sections_about_devices_say_that_figures_are_partial(tmp_path: Path) -> None:
    data = space(executing(6, 4), plane("/device:GPU:0", kernels(1, 2)))
    analysis = tfperf.load(logdir_of(tmp_path, a=data))
    for name in ("idle", "kernels"):
        section = next(each for each in analysis.report([name]).sections if each.name == name)
        assert section.findings == ()
        assert section.notes[0].startswith("Device events are missing")
    for limit in ("kernels.total_us<1000000", "max(idle_causes.step_percent)<100", "device_time.idle_ms<1000"):
        assert check_profile(analysis, limits=[limit]).exit_code == 1
    assert check_profile(analysis, min_device_busy="0%").exit_code == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (space(host(*MARKS, event("MatMul:MatMul", 0, 5)), errors=(LIBCUPTI,)), "The GPU was not traced"),
        (space(host(*CALLS)), "The host tracer recorded no ops"),
        (space(executing(6, 4), plane("/device:GPU:0", kernels(1, 2)), plane("/device:GPU:1")), "missing"),
    ],
)
def test_the_report_says_it_first_and_concludes_nothing(tmp_path: Path, data: bytes, said: str) -> None:
    analysis = tfperf.load(logdir_of(tmp_path, a=data))
    first, *_ = analysis.report().sections
    assert first.is_lead
    assert said in first.findings[0].text
    assert first.findings[0].severity == "problem"
    assert first.findings[0].action
    text = render(analysis.report(), "table")
    for words in ("No cause worth", "are unused", "locks, other", "larger batch"):
        assert words not in text
    assert analysis["diagnosis"].causes == ()
    assert analysis.report().summary["soundness"]["level"] == "incomplete"
    unjudged = analysis["diagnosis"].unjudged
    assert {"small_work_per_step", "waiting_in_calls", "launch_bound", "idle_devices"} <= unjudged.keys()
    outcome = check_profile(analysis, fail_on=["launch_bound", "idle_devices"], max_cost="eager_ops=10%")
    assert [judged.status for judged in outcome.judged] == ["unknown"] * 3
    assert check_profile(analysis, limits=["sum(causes.cost_high_ms)<5ms"]).exit_code == 1
    assert check_profile(analysis, max_step_time="1s").exit_code == 0


# --- devices that are missing as a whole ---


@pytest.mark.parametrize(
    "launched",
    [event("cuLaunchKernel", 5, 1), event("gemm", 5, 1, correlation_id=7)],  # only tracers of GPUs number launches
    ids=["by its name", "by its number"],
)
def test_launches_without_a_device_show_a_gpu(launched: Event, tmp_path: Path) -> None:
    assert codes(flaws_of(tmp_path, host(*MARKS, launched))) == ["gpu_not_traced"]


@pytest.mark.parametrize("name", ["DoEnqueueProgram", "TfrtTpuLoadedExecutable::Execute", "tpu::System::Execute=>Done"])
def test_a_tpu_without_events_is_missing(tmp_path: Path, name: str) -> None:
    (flaw,) = flaws_of(tmp_path, host(*MARKS, event(name, 5, 1)))
    assert (flaw.code, flaw.level) == ("tpu_not_traced", "incomplete")
    assert flaw.hides >= EVERY_DEVICE_CATEGORY


def test_a_thread_whose_launches_all_lack_events_shows_a_lost_device(tmp_path: Path) -> None:
    """Each of eight threads launches on a device of its own; one eighth of the launches has no event."""
    threads = [line(f"py_xla_execute/{t}", *(launch(100 * t + n, 100 * n) for n in range(1, 11))) for t in range(1, 9)]
    of_host = plane("/host:CPU", line("python", *MARKS, id=99), *threads)
    numbers = range(1, 11)
    works = [[event("k", 100 * n + 10, 5, correlation_id=100 * t + n) for n in numbers] for t in range(1, 9)]
    devices = [plane(f"/device:GPU:{t}", line("Stream #1", *work)) for t, work in enumerate(works)]
    assert flaws_of(tmp_path, of_host, *devices) == ()
    (flaw,) = flaws_of(tmp_path, of_host, *devices[:-1])
    assert flaw.code == "device_events_lost"
    assert "all 10 launches of the thread py_xla_execute/8 have no device event" in flaw.text


def test_calls_that_launch_nothing_show_no_lost_device(tmp_path: Path) -> None:
    registered = line("other", *(event("cuMemHostRegister", 100 * n, 5, correlation_id=500 + n) for n in range(1, 9)))
    launches = line("main", *MARKS, *(launch(n, 100 * n) for n in range(1, 101)), id=9)
    of_host = plane("/host:CPU", launches, registered)
    assert flaws_of(tmp_path, of_host, plane("/device:GPU:0", kernels(*range(1, 101)))) == ()


def test_a_chip_that_got_programs_and_recorded_nothing_is_missing(tmp_path: Path) -> None:
    given = [event("DoEnqueueProgram", 10 * n, 1, run_id=n, device_ordinal=n % 2) for n in range(1, 9)]
    chips = [plane(f"/device:TPU:{chip}", line("XLA Modules", event("jit_f(1)", 20, 5))) for chip in range(2)]
    assert flaws_of(tmp_path, host(*MARKS, *given), *chips) == ()
    (flaw,) = flaws_of(tmp_path, host(*MARKS, *given), chips[1])
    assert "the host submitted programs to 1 TPU chip without events (0)" in flaw.text


def test_the_step_time_of_calls_is_unknown_without_devices(tmp_path: Path) -> None:
    """A call of a jitted function ends when it has handed its work over; a mark of a step ends with the step."""
    calls = [event("PjitFunction(f)", 100 * n, 20) for n in range(5)]
    launches = [launch(n, 100 * n + 5) for n in range(1, 5)]
    called = check_profile(logdir_of(tmp_path / "calls", vm=space(host(*calls, *launches))), limits=["step_time <= 1s"])
    marked = check_profile(logdir_of(tmp_path / "marks", vm=space(host(*MARKS, *launches))), limits=["step_time <= 1s"])
    assert (called.exit_code, marked.exit_code) == (1, 0)
    assert called.judged[0].why.startswith("the GPU was not traced")
