"""`tfperf capture` against real TensorFlow jobs: every way it goes well, and every way it does not."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest
from capture.conftest import Capture, Job, ended, free_port, read_until, wait_until_profiled, wait_until_worked
from capture.made import by_name
from job_environment import run_python

import tfperf
from tfperf.capture.address import Address
from tfperf.capture.doctor import job_checks
from tfperf.capture.machine import Machine
from tfperf.capture.outcomes import Check
from tfperf.capture.remote import find_servers
from tfperf.formats.wire.contents import look_into
from tfperf.formats.wire.planes import WantedStats, read_header
from tfperf.formats.wire.trace_file import TraceFile, walk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only")


def test_a_busy_job_gives_a_trace_with_steps(jobs: dict[str, Job], capture: Capture) -> None:
    port = jobs["busy"].port
    wait_until_worked(jobs["busy"].process)
    done = capture("--port", port, "--duration", "2s", "--analyze", "--format", "json")
    assert done.code == 0, done.err
    (row,), (trace,) = done.rows, capture.traces
    assert trace.match(f"logs/plugins/profile/2*/localhost_{port}.xplane.pb")
    assert row["path"] == str(trace)
    assert row["size_bytes"] == trace.stat().st_size
    analysis = tfperf.load(trace)
    assert row["event_count"] == analysis.hosts[0]["environment"].event_count > 0
    assert row["step_count"] == len(analysis["steps"].steps) > 0
    assert (row["reason"], done.json["summary"]["reason"]) == ("", "")
    assert {path.name for path in trace.parent.iterdir()} == {trace.name}, "nothing half done is left"


def test_capture_and_analyze_where_tensorflow_is_not_installed(jobs: dict[str, Job], tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "sys.modules.update(tensorflow=None, keras=None)  # importing them fails, as where they are not installed\n"
        "from tfperf.cli import run\nsys.argv[0] = 'tfperf'\nrun()"
    )
    arguments = ["capture", "--port", str(jobs["busy"].port), "--duration", "1s", "--analyze"]
    done = run_python("-c", script, *arguments, cwd=tmp_path)
    assert done.stderr == ""
    (run,) = tmp_path.glob("logs/plugins/profile/*")
    command = f"tfperf analyze {run} --full"
    lines = done.stdout.splitlines()
    assert command in lines, "whole on a line, to be copied"
    assert max(len(line) for line in lines if line != command) <= 80
    for part in ("Step time", "Input"):
        assert part in done.stdout
    assert "Workers" not in done.stdout, "nothing is wrong with the only one"


def test_two_workers_are_profiled_at_the_same_moment(jobs: dict[str, Job], capture: Capture) -> None:
    workers = [f"127.0.0.1:{jobs[name].port}" for name in ("busy", "other")]
    done = capture("--worker", workers[0], "--worker", f"grpc://{workers[1]}", "--duration", "2s", "--format", "json")
    assert done.code == 0, done.err
    assert [row["worker"] for row in done.rows] == workers
    assert len(capture.traces) == 2
    assert len({trace.parent for trace in capture.traces}) == 1, "one run"
    loaded = tfperf.load(capture.folder)
    assert [len(host["steps"].steps) > 0 for host in loaded.hosts] == [True, True]
    starts = [profile_start_ns(trace) for trace in capture.traces]
    assert done.json["summary"]["start_spread_ms"] == pytest.approx(abs(starts[0] - starts[1]) / 1e6, abs=0.002)
    assert abs(starts[0] - starts[1]) < 2e9, "not one after the other, two seconds each"


def profile_start_ns(trace: Path) -> int:
    nothing = WantedStats({})
    with TraceFile(trace) as source:
        headers = [read_header(source, span, nothing)[0] for span in walk(source).planes]
    (stats,) = [header.stats for header in headers if header.name == "Task Environment"]
    return int(stats["profile_start_time"])


def test_an_idle_job_is_called_idle_and_leaves_no_files(jobs: dict[str, Job], capture: Capture) -> None:
    done = capture("--port", jobs["idle"].port, "--duration", "300ms")
    assert (done.code, done.out) == (1, "")
    assert "idle" in done.err
    assert "--wait-for-activity" in done.err
    assert list(capture.folder.iterdir()) == []


def test_waiting_for_activity_ends_when_the_job_starts_to_work(jobs: dict[str, Job], capture: Capture) -> None:
    job = jobs["idle"]
    works = Path(job.arguments[0])
    waiting = capture.start(
        "--port", job.port, "--duration", "1s", "--wait-for-activity", "60s", "--format", "json", "--logdir", "l"
    )
    read_until(waiting, "is idle; waiting up to 60 s")
    assert waiting.poll() is None
    works.touch()
    done = ended(waiting)
    works.unlink()
    assert done.code == 0, done.err
    assert len(capture.traces) == 1, done.out


def test_a_job_that_someone_else_profiles_is_busy_and_can_be_tried_again(
    jobs: dict[str, Job], capture: Capture
) -> None:
    port = jobs["busy"].port
    other = capture.start("--port", port, "--duration", "100s", "--retries", "9", "--logdir", "other")
    wait_until_profiled(port)
    refused = capture("--port", port, "--duration", "200ms", "--format", "json")
    assert (refused.code, refused.json["summary"]["reason"]) == (1, "busy")
    again = capture.start("--port", port, "--duration", "200ms", "--retries", "99")
    read_until(again, "trying again")
    other.send_signal(signal.SIGINT)
    assert [ended(process).code for process in (other, again)] == [0, 0]
    assert len(capture.traces) == 2


def test_nothing_is_tried_again_that_went_well(jobs: dict[str, Job], capture: Capture) -> None:
    done = capture("--port", jobs["other"].port, "--duration", "200ms", "--retries", "10")
    assert (done.code, "trying again" in done.err) == (0, False)


def test_a_job_that_hangs_runs_into_the_time_out(jobs: dict[str, Job], capture: Capture) -> None:
    jobs["idle"].process.send_signal(signal.SIGSTOP)
    try:
        done = capture("--port", jobs["idle"].port, "--duration", "200ms", "--timeout", "2s", "--format", "json")
    finally:
        jobs["idle"].process.send_signal(signal.SIGCONT)
    assert (done.code, done.json["summary"]["reason"]) == (1, "timeout")
    assert "does not respond" in done.err


def test_a_closed_port(capture: Capture) -> None:
    done = capture("--port", free_port(), "--format", "json")
    assert (done.code, done.json["summary"]["reason"]) == (1, "not_listening")
    assert "no server listens" in done.err
    assert list(capture.folder.iterdir()) == []


def test_ctrl_c_ends_the_session_and_keeps_what_came(jobs: dict[str, Job], capture: Capture) -> None:
    process = capture.start("--port", jobs["busy"].port, "--duration", "1000s", "--retries", "9")
    wait_until_profiled(jobs["busy"].port)
    wait_until_worked(jobs["busy"].process)
    process.send_signal(signal.SIGINT)
    done = ended(process)
    assert done.code == 0, done.err
    assert "interrupted after" in done.out
    assert len(tfperf.load(capture.traces[0])["steps"].steps) > 0
    after = capture("--port", jobs["busy"].port, "--duration", "200ms")
    assert after.code == 0, "the server is free again"


def test_a_second_ctrl_c_gives_up_at_once(jobs: dict[str, Job], capture: Capture) -> None:
    job = jobs["other"]
    process = capture.start("--port", job.port, "--duration", "1000s", "--retries", "9")
    wait_until_profiled(job.port)
    job.process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    read_until(process, "Ctrl-C again to abort")
    time.sleep(0.6)  # Signals within half a second count as one.
    process.send_signal(signal.SIGINT)
    assert ended(process).code not in (0, None)
    assert capture.traces == []
    job.process.send_signal(signal.SIGCONT)
    assert capture("--port", job.port, "--duration", "200ms", "--retries", "99").code == 0, "the server is free again"


def test_levels_reach_the_tracer(jobs: dict[str, Job], capture: Capture) -> None:
    for name, options in {"default": [], "quiet": ["--host-tracer-level", "1"], "python": ["--python-trace"]}.items():
        done = capture("--port", jobs["busy"].port, "--duration", "500ms", "--logdir", name, *options)
        assert done.code == 0, done.err
    default, python, quiet = map(look_into, capture.traces)
    ops = [any(name.endswith(":StridedSlice") for name in held.event_names) for held in (default, quiet)]
    assert ops == [True, False], "level 1 is what programs mark, level 2 also ops"
    assert not default.has_python_frames
    assert python.has_python_frames


def test_a_trace_that_starts_later(jobs: dict[str, Job], capture: Capture) -> None:
    begin = time.time_ns()
    done = capture("--port", jobs["busy"].port, "--duration", "300ms", "--delay", "2s")
    assert done.code == 0, done.err
    assert profile_start_ns(capture.traces[0]) - begin > 1.8e9


def test_finds_the_servers_of_jobs_and_their_processes(jobs: dict[str, Job]) -> None:
    found = {server.address.port: server for server in find_servers()}
    for job in jobs.values():
        server = found[job.port]
        assert server.listener.process == job.process.pid
        assert str(server) == f"--port {job.port} ({server.listener.command} (pid {job.process.pid}))"


def test_continuous_profiling_keeps_the_newest(jobs: dict[str, Job], capture: Capture) -> None:
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


def test_continuous_profiling_without_slow_steps(jobs: dict[str, Job], capture: Capture) -> None:
    process = capture.start(
        *("--port", jobs["busy"].port, "--continuous", "--duration", "100ms", "--on-slow-step", "1000s")
    )
    read_until(process, "recording")
    process.send_signal(2)
    done = ended(process)
    assert (done.code, done.out) == (0, "")
    assert "so none was kept" in done.err
    assert list(capture.folder.iterdir()) == []


def doctor(port: int) -> dict[str, Check]:
    return by_name(job_checks(Address("localhost", port), Machine()))


def test_the_doctor_of_a_job_at_work(jobs: dict[str, Job]) -> None:
    job = jobs["busy"]
    checks = doctor(job.port)
    assert {check.status for check in checks.values()} == {"ok"}
    assert f"job.py (pid {job.process.pid}) listens" in checks["port"].found
    assert " events in " in checks["trace of the job"].found
    assert checks["job's GPU"].found == "no GPU in the trace, and no evidence that the job uses one"


def test_the_doctor_of_an_idle_job(jobs: dict[str, Job]) -> None:
    checks = doctor(jobs["idle"].port)
    assert checks["profiler"].status == "ok"
    assert checks["trace of the job"].status == "warn"
    assert "--wait-for-activity" in checks["trace of the job"].fix


def test_a_job_that_dies_meanwhile_is_named(jobs: dict[str, Job], capture: Capture) -> None:
    """The last test with this job. Looking whether it is profiled may cost the capture a retry or two."""
    job = jobs["other"]
    process = capture.start("--port", job.port, "--duration", "100s", "--retries", "3", "--format", "json")
    wait_until_profiled(job.port)
    job.process.kill()
    done = ended(process)
    assert done.code == 1
    assert "whether the job ended or crashed" in done.err
    assert done.json["summary"]["reason"] == "not_listening", "the last time, the job is gone"
    assert capture.traces == []
