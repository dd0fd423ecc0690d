"""What a file cannot tell is said, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import STEPS_LINE, event, gpu, host, iterator_call, line, marks, plane, results_of, trace_of
from msgspec.structs import replace

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.sections.gaps import build
from tfperf.trace.host_trace import HostTrace

HOST = host(event("A:A", 0, 5))


def notes(*traces: HostTrace) -> str:
    return " ".join(build(results_of(*traces, sections=["gaps"])).notes)


def test_a_cpu_job_says_what_it_cannot_tell(tmp_path: Path) -> None:
    text = notes(trace_of(tmp_path, host(event("A:A", 0, 5), event("bad", 7, -1))))
    for words in ("no step marker", "the profile has no devices", "Omitted: 1 event with impossible times."):
        assert words in text


def test_empty_planes_and_files_are_named(tmp_path: Path) -> None:
    text = notes(trace_of(tmp_path, plane("/host:CPU"), plane("/device:GPU:0")))
    assert "the file has no events" in text
    assert "/device:GPU:0" in text


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "Device time of 1 device (/device:GPU:0): listed in the profile, but without"),
        (2, "Device time of 2 devices (/device:GPU:0, /device:GPU:1): listed"),
        (4, "4 devices (/device:GPU:0, /device:GPU:1, /device:GPU:2, /device:GPU:3): listed"),
        (6, "6 devices (/device:GPU:0, /device:GPU:1, /device:GPU:2, /device:GPU:3, /device:GPU:4 and 1 more): listed"),
    ],
)
def test_silent_devices_are_listed_or_counted(tmp_path: Path, count: int, said: str) -> None:
    assert said in notes(trace_of(tmp_path, HOST, *(plane(f"/device:GPU:{n}") for n in range(count))))


def test_a_device_without_its_host_leaves_the_host_unknown(tmp_path: Path) -> None:
    """The copies are there, so the sentence that none is in the trace would be wrong."""
    copy = line("Stream #1(MemcpyH2D)", event("MemcpyH2D", 0, 5), id=1)
    modules = line("XLA Modules", *(event("jit_f", 100 * n, 90) for n in range(5)), id=STEPS_LINE + 2)
    text = notes(trace_of(tmp_path, plane("/device:GPU:0", modules, copy)))
    assert "so input, compilation, launches and host compute are unknown" in text
    assert "nor copies to a device" not in text


def test_a_gap_of_all_hosts_is_said_once(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, HOST)
    text = notes(trace, trace)
    assert text.count("Device time: the profile has no devices") == text.count("not traced). Hosts: all.") == 1


def test_a_gap_of_some_hosts_names_five_of_them(tmp_path: Path) -> None:
    silent = trace_of(tmp_path, HOST, plane("/device:GPU:0"))
    chief = replace(trace_of(tmp_path, HOST), host="chief")
    text = notes(chief, *(replace(silent, host=f"worker-{n}") for n in range(7)))
    assert "Device time: the profile has no devices (a CPU job, or the device was not traced). Hosts: chief." in text
    of_workers = text.partition("Device time of 1 device")[2].partition(" Hosts: ")[2]
    assert of_workers.startswith("worker-0, worker-1, worker-2, worker-3, worker-4 and 2 more.")


def test_input_that_nothing_shows_is_unknown(tmp_path: Path) -> None:
    assert "input time is unknown, not 0" in notes(trace_of(tmp_path, host(*marks(5))))


def test_of_many_errors_of_the_profiler_the_rest_is_counted(tmp_path: Path) -> None:
    trace = replace(trace_of(tmp_path, HOST), errors=("lost",) * 9, warnings=("full",) * 3)
    text = notes(trace)
    assert text.count("The profiler reported an error: lost") == 9
    assert text.count("The profiler warned: full") == 1
    assert "Omitted: 2 more messages of the profiler." in text


def test_what_only_captures_of_tfperf_record_is_said_once(tmp_path: Path) -> None:
    text = notes(trace_of(tmp_path, HOST))
    assert "(host CPU cores, host memory and framework and Python versions): recorded only by tfperf captures" in text
    added = {"cpu_affinity": 2, "memory_bytes": 1 << 30, "tensorflow_version": "2.21.0"}
    assert "recorded only by" not in notes(trace_of(tmp_path, HOST, plane(CAPTURE_PLANE, stats=added)))


def test_cores_that_tf_data_counts_are_no_gap(tmp_path: Path) -> None:
    text = notes(trace_of(tmp_path, host(iterator_call("Root", 0, 10, 1, cpu_budget=2))))
    assert "cores" not in text
    assert "(host memory and framework and Python versions): recorded only by tfperf captures" in text


def test_unknown_ops_in_graphs_have_a_share(tmp_path: Path) -> None:
    stats = {"hlo_op": "command_buffer_1", "program_id": 7, "correlation_id": 3}
    text = notes(trace_of(tmp_path, gpu(event("k", 0, 5, **stats), event("l", 10, 5, **stats))))
    assert "HLO ops of 100.0% of the time in CUDA graphs: the program is missing" in text
