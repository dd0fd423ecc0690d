"""The flight recorder: what it keeps, and that nothing stays of what it does not, in memory or on disk."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from builders import event, host, space
from capture.conftest import Capture, Job, ended, read_until
from capture.double import Answer, response, serving

from tfperf.capture.address import Address
from tfperf.capture.remote import CaptureRequest
from tfperf.live.sampling import Sampled, sample_continuously


def steps(*durations_ms: float) -> bytes:
    """Return a trace with steps of these durations."""
    starts = [sum(durations_ms[:number]) for number in range(len(durations_ms))]
    return space(
        host(
            *(
                event("train", 1000 * start, 1000 * duration, step_num=number, _r=1)
                for number, (start, duration) in enumerate(zip(starts, durations_ms, strict=True))
            )
        )
    )


def record(logdir: Path, snapshot: Callable[[int], bytes | None], **options: Any) -> tuple[Sampled, list[str]]:
    """Record from a server that gives these traces, and is gone after them; return the result and what was said."""
    numbers, lines = count(), list[str]()

    def give(request: Any, context: grpc.ServicerContext) -> bytes:
        trace = snapshot(next(numbers))
        if trace is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no more")
        return response(trace)

    nothing: Answer = lambda request, context: b""  # noqa: E731
    answers = {"StartContinuousProfiling": nothing, "GetSnapshot": give, "StopContinuousProfiling": nothing}
    with serving(answers) as port:
        request = CaptureRequest(workers=[Address("127.0.0.1", port)], duration_s=0.0)
        return sample_continuously(request, logdir, lines.append, **options), lines


def of(traces: list[bytes]) -> Callable[[int], bytes | None]:
    return lambda number: traces[number] if number < len(traces) else None


def test_the_last_recordings_are_kept(tmp_path: Path) -> None:
    sampled, lines = record(tmp_path, of([steps(1, 1), steps(2, 2), steps(3, 3), steps(4, 4)]), keep=2)
    paths = [result.path for result in sampled.kept]
    assert [path.read_bytes() for path in paths if path] == [steps(3, 3), steps(4, 4)]
    assert sorted(tmp_path.rglob("*.xplane.pb")) == sorted(path for path in paths if path)
    assert len(list((tmp_path / "plugins/profile").iterdir())) == 2, "no empty folders of those that went"
    assert len([line for line in lines if line.startswith("kept ")]) == 4
    assert sampled.captured[-1].reason == "refused", "the end of the server"


def test_an_idle_job_gives_nothing_to_keep_and_is_no_failure(tmp_path: Path) -> None:
    sampled, _ = record(tmp_path, of([steps(), steps(5), steps()]))
    assert [result.event_count for result in sampled.kept] == [1]


def test_only_recordings_with_a_slow_step_are_kept(tmp_path: Path) -> None:
    fast, slow = steps(10, 10, 10, 10), steps(10, 10, 60, 10)
    sampled, _ = record(tmp_path, of([fast, slow, fast, slow, fast]), slow_step_s=0.05)
    assert [result.path.read_bytes() for result in sampled.kept if result.path] == [slow, slow]
    assert len(list((tmp_path / "plugins/profile").iterdir())) == 2


def test_without_a_slow_step_nothing_is_left(tmp_path: Path) -> None:
    sampled, _ = record(tmp_path / "logs", of([steps(10, 10, 10)] * 3), slow_step_s=0.05)
    assert sampled.kept == ()
    assert list(tmp_path.iterdir()) == []


def test_the_newest_recording_is_analyzed_and_the_steps_of_all_are_counted(tmp_path: Path) -> None:
    sampled, _ = record(tmp_path, of([steps(5, 5, 5), steps(5, 5)]))
    analyzed = sampled.analyzed()
    assert analyzed.analysis is not None
    assert len(analyzed.analysis["steps"].steps) == 2
    assert analyzed.report().summary["captured_steps"] == 5


@pytest.mark.stress
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
@pytest.mark.parametrize("slow_step_s", [None, 0.05], ids=["all", "slow"])
def test_hundreds_of_recordings_take_no_memory_and_no_disk(tmp_path: Path, slow_step_s: float | None) -> None:
    """Of all recordings, 3 are on disk at any time; after the 500th, memory grows by little more."""
    last = 1_000
    resident_bytes, most_files, trace = dict[int, int](), 0, steps(10, 60, 10)

    def snapshot(number: int) -> bytes | None:
        nonlocal most_files
        if number in (500, last):
            gc.collect()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            resident_bytes[number] = pages * os.sysconf("SC_PAGE_SIZE")
            most_files = max(most_files, len(list(tmp_path.rglob("*"))))
        return trace if number < last else None

    sampled, _ = record(tmp_path, snapshot, keep=3, slow_step_s=slow_step_s)
    assert len(sampled.kept) == 3
    assert most_files <= 2 + 2 * 4, "plugins, profile; a folder and a file each"
    assert resident_bytes[last] - resident_bytes[500] < (last - 500) * 4_000, "an analysis of this trace takes 8 kB"


@pytest.mark.tensorflow
def test_a_real_job(jobs: dict[str, Job], capture: Capture) -> None:
    process = capture.start(
        *("--port", jobs["busy"].port, "--continuous", "--duration", "500ms", "--keep", "2"),
        *("--analyze", "--format", "json"),
    )
    read_until(process, "kept ", times=3)
    process.send_signal(2)
    done = ended(process)
    assert done.code == 0, done.err
    assert [Path(row["path"]) for row in done.rows] == capture.traces
    assert len(capture.traces) == 2
    # Each is analyzed. How many steps the job gets done meanwhile depends on the machine.
    assert {type(row["step_count"]) for row in done.rows} == {int}


@pytest.mark.tensorflow
def test_a_real_job_without_slow_steps(jobs: dict[str, Job], capture: Capture) -> None:
    process = capture.start(
        *("--port", jobs["busy"].port, "--continuous", "--duration", "100ms", "--on-slow-step", "1000s")
    )
    read_until(process, "recording")
    process.send_signal(2)
    done = ended(process)
    assert (done.code, done.out) == (0, "")
    assert "so none was kept" in done.err
    assert list(capture.folder.iterdir()) == []
