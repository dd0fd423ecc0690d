"""What is measured of each host thread, on traces small enough to check by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, known, line, plane, read_back, results_of, trace_of
from synthetic_tpu import offload_tpu
from tpu_twin import tpu_twin

from tfperf.sections.host_threads import HOST_THREADS
from tfperf.sections.host_threads.section import build


def test_time_with_any_event_counts_once(tmp_path: Path) -> None:
    # The events of "python" cover 0 to 50 us and 80 to 100 us; the threads of the host span 0 to 200 us.
    python = line("python", event("step", 0, 50), event("inner", 10, 20), event("step", 80, 20))
    worker = line("worker", event("work", 100, 100))
    trace = trace_of(tmp_path, plane("/host:CPU", python, worker, line("quiet")))
    first, second = results_of(trace, sections=["host_threads"])["host_threads"]
    assert (first.thread, first.event_count, first.event_time_ps) == ("worker", 1, 100_000_000)
    assert (second.thread, second.event_count, second.event_time_ps) == ("python", 3, 70_000_000)
    assert (second.longest_event, second.longest_ps) == ("step", 50_000_000)


def test_table_and_section(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, plane("/host:CPU", line("python", event("a", 0, 30)), line("worker", event("b", 0, 40))))
    results = results_of(trace, sections=["host_threads"])
    data = known(HOST_THREADS.data(results))
    assert list(data["thread"]) == ["worker", "python"]
    assert list(data["percent"]) == pytest.approx([100, 75])
    assert list(data["event_time_ms"]) == pytest.approx([0.04, 0.03])
    section = build(results)
    assert section.facts[0].value == 2
    assert [column.level for column in section.tables[0].columns if column.key == "host"] == ["data"]


def test_a_trace_without_host_events_says_so(tmp_path: Path) -> None:
    section = build(results_of(trace_of(tmp_path, plane("/host:CPU")), sections=["host_threads"]))
    assert section.tables == ()
    assert "no host thread" in section.notes[0]


def test_a_thread_that_two_libraries_record_counts_once(tmp_path: Path) -> None:
    """JAX and libtpu each have a line for the thread that calls: one is in the calls of the other."""
    section = build(results_of(read_back(tmp_path, tpu_twin()), sections=["host_threads"]))
    assert section.facts[0].value == 2
    (note,) = section.notes
    assert note == "python and main/4711 are one thread, recorded by JAX and by libtpu: do not add their times."
    assert build(results_of(read_back(tmp_path, offload_tpu()), sections=["host_threads"])).notes == ()
