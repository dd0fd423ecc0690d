"""What a file cannot tell is said, with the reason."""

from __future__ import annotations

from pathlib import Path

from builders import event, host, plane, results_of, trace_of
from msgspec.structs import replace

from tfperf.sections.gaps.analysis import build
from tfperf.trace.host_trace import HostTrace


def notes(*traces: HostTrace) -> str:
    return " ".join(build(results_of(*traces, sections=["gaps"])).notes)


def test_a_cpu_job_says_what_it_cannot_tell(tmp_path: Path) -> None:
    text = notes(trace_of(tmp_path, host(event("A:A", 0, 5), event("bad", 7, -1))))
    for words in ("no step marker", "no device is in the trace", "1 event(s) with impossible times"):
        assert words in text


def test_empty_planes_and_files_are_named(tmp_path: Path) -> None:
    text = notes(trace_of(tmp_path, plane("/host:CPU"), plane("/device:GPU:0")))
    assert "the file holds no events" in text
    assert "/device:GPU:0" in text


def test_of_several_hosts_each_gap_names_its_host(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("A:A", 0, 5)))
    assert notes(trace, trace).count("host: Device time: no device is in the trace") == 2


def test_input_that_nothing_shows_is_unknown(tmp_path: Path) -> None:
    steps = host(*(event("train", 100 * n, 100, step_num=n) for n in range(5)))
    assert "input time is unknown, not 0" in notes(trace_of(tmp_path, steps))


def test_of_many_errors_of_the_profiler_the_rest_is_counted(tmp_path: Path) -> None:
    trace = replace(trace_of(tmp_path, host(event("A:A", 0, 5))), errors=("lost",) * 9, warnings=("full",) * 3)
    text = notes(trace)
    assert text.count("The profiler reported an error: lost") == 9
    assert text.count("The profiler warned: full") == 1
    assert "2 more errors and warnings of the profiler are omitted." in text
