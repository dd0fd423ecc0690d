"""What devices wait for, in words; times in microseconds, one step of 100 us."""

from __future__ import annotations

from pathlib import Path

from builders import Event, Plane, event, host, host_of, line, plane, trace_of

from tfperf.report.model import Finding
from tfperf.sections.idle import idle_findings
from tfperf.sections.overview.summary import summarize


def found(tmp_path: Path, *planes: Plane) -> tuple[Finding, ...]:
    found = host_of(trace_of(tmp_path, *planes), "idle")
    return idle_findings(found["idle"], summarize(found["steps"]))


def job(*calls: Event, kernels: tuple[tuple[float, float], ...]) -> tuple[Plane, ...]:
    """One marked step of 100 us, and the kernels of a GPU."""
    work = [event("gemm", start, duration) for start, duration in kernels]
    return (host(event("train", 0, 100, step_num=0), *calls), plane("/device:GPU:0", line("Stream #1", *work)))


def call(start: float = 0, duration: float = 100) -> Event:
    return event("EagerKernelExecute", start, duration)


def test_the_largest_cause_comes_first_with_its_share(tmp_path: Path) -> None:
    """40 us of input, 10 us of launching, 4 us of Python: the last is too little to be named."""
    fetch = event("IteratorGetNextOp::DoCompute", 0, 40)
    first, second = found(tmp_path, *job(fetch, call(40, 56), kernels=((50, 46),)))
    assert (first.code, first.severity) == ("idle_input", "problem")
    assert first.text == "While the step waits for tf.data, the device is idle for 40.0% of the step time."
    assert (second.code, second.severity) == ("idle_launch", "hint")
    assert {first.action, second.action} == {""}, "the diagnosis says what to do"
    assert [(quantity.key, quantity.value, quantity.of) for quantity in first.quantities] == [
        ("idle: input", 40.0, "the step time")
    ]
    assert "input_wait" in first.causes
    assert "launch_bound" in second.causes


def test_several_devices_are_said_to_be_averaged(tmp_path: Path) -> None:
    other = plane("/device:GPU:1", line("Stream #1", event("gemm", 50, 50)))
    (finding,) = found(tmp_path, *job(call(), kernels=((50, 50),)), other)
    assert finding.text == (
        "While work is prepared and launched, the device is idle for 50.0% of the step time, average over 2 devices "
        "(the category Kernel launch has 0.0%, by other rules)."
    )


def test_the_only_device_at_work_is_named_beside_idle_ones(tmp_path: Path) -> None:
    """Two of four record no work; one works after the step only."""
    silent = (plane(f"/device:GPU:{number}") for number in (1, 2))
    after = plane("/device:GPU:3", line("Stream #1", event("gemm", 150, 5)))
    (finding,) = found(tmp_path, *job(call(), kernels=((50, 50),)), *silent, after)
    assert finding.text == (
        "While work is prepared and launched, GPU:0 (1 of 4 devices) is idle for 50.0% of the step time "
        "(the category Kernel launch has 0.0%, by other rules)."
    )


def test_averages_say_over_how_many_of_the_listed_devices(tmp_path: Path) -> None:
    other = plane("/device:GPU:1", line("Stream #1", event("gemm", 50, 50)))
    (finding,) = found(tmp_path, *job(call(), kernels=((50, 50),)), other, plane("/device:GPU:2"))
    assert ", average over 2 of 3 devices (" in finding.text


def test_little_of_each_is_not_named(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, *job(call(), kernels=((0, 97),)))
    assert (finding.code, finding.severity) == ("idle_none", "info")
    assert "idle for 3.0% of the step time" in finding.text


def test_without_steps_it_is_of_the_capture_and_no_problem(tmp_path: Path) -> None:
    """The start of a capture is nobody's fault."""
    device = plane("/device:GPU:0", line("Stream #1", event("gemm", 40, 60)))
    finding = found(tmp_path, host(call(0, 50)), device)[0]
    assert finding.text.startswith("While work is prepared and launched, the device is idle for 40.0% of the capture")
    assert finding.severity == "hint"


def test_unknown_time_is_no_problem_of_the_program(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, *job(kernels=((50, 50),)))
    assert (finding.code, finding.severity) == ("idle_unknown", "hint")
    assert "level 2" in finding.text


def test_without_device_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert found(tmp_path, host(event("train", 0, 100, step_num=0), call())) == ()
