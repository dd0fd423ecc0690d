"""The profiler server inside a job, and its methods: a real TensorFlow process that a plain gRPC client asks."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from capture.serving_job import ServingJob, contents, refusal, request, start_call

from tfperf.capture import server
from tfperf.capture.client import profile_request
from tfperf.capture.outcomes import TracerOptions
from tfperf.formats.wire.capture_plane import CaptureFacts
from tfperf.formats.wire.schema import read_message
from tfperf.trace.read import read_host

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only")


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("job") / "stderr"


@pytest.fixture(scope="module")
def shared_job(errors: Path) -> Iterator[ServingJob]:
    with errors.open("w") as stderr:
        job = ServingJob(stderr)
        yield job
        job.close()


@pytest.fixture
def job(shared_job: ServingJob) -> ServingJob:
    shared_job.work()
    return shared_job


BUSY = ("INTERNAL", "Another profiling session active.")


# A trace


def test_the_trace_comes_in_the_reply(job: ServingJob, tmp_path: Path) -> None:
    start_s = time.monotonic()
    reply = job.profile(0.5).result()
    assert time.monotonic() - start_s >= 0.5
    trace = contents(reply, tmp_path)
    assert not read_message("ProfileResponse", reply).empty_trace
    assert "train" in trace.event_names
    assert not trace.has_python_frames


def test_levels_reach_the_tracers(job: ServingJob, tmp_path: Path) -> None:
    marked_only = contents(job.profile(host_tracer_level=1).result(), tmp_path)
    python = contents(job.profile(python_tracer_level=1).result(), tmp_path)
    assert "train" in marked_only.event_names
    assert not any("MatMul" in name for name in marked_only.event_names)
    assert any("MatMul" in name for name in python.event_names)
    assert python.has_python_frames


def test_levels_without_a_version_are_the_usual_ones(job: ServingJob, tmp_path: Path) -> None:
    """As in TensorFlow: zeros then mean that the client named none."""
    trace = contents(job.profile(version=0, host_tracer_level=0).result(), tmp_path)
    assert any("MatMul" in name for name in trace.event_names)


def test_the_start_is_waited_for(job: ServingJob) -> None:
    start_s = time.monotonic()
    job.profile(0.1, start_timestamp_ns=time.time_ns() + 10**9).result()
    assert time.monotonic() - start_s >= 1.1


def test_an_idle_job_gives_an_empty_trace(job: ServingJob, tmp_path: Path) -> None:
    job.work(on=False)
    time.sleep(0.5)  # The step that runs ends.
    reply = job.profile(0.1).result()
    assert read_message("ProfileResponse", reply).empty_trace
    assert contents(reply, tmp_path).event_count == 0


def facts_of(reply: bytes, tmp_path: Path) -> CaptureFacts:
    path = tmp_path / f"{time.monotonic_ns()}.xplane.pb"
    path.write_bytes(read_message("ProfileResponse", reply).xspace)
    return read_host(path).capture_facts


def test_the_overhead_is_measured_where_steps_are_marked(job: ServingJob, tmp_path: Path) -> None:
    """Five whole steps before and five during the session are enough."""
    job.wait_for_steps(10)
    call = job.start_profiling(20, python_tracer_level=1)
    job.wait_for_steps(10)
    job.terminate("test")
    reply = call.result()
    overhead = [float(value) for key, value in call.trailing_metadata() if key == "tfperf-overhead-percent"]
    stated = facts_of(reply, tmp_path)
    assert stated.usual_step_ms is not None
    # On a busy machine, steps vary more than profiling could explain: then the overhead is unknown in both places.
    assert overhead == ([] if stated.overhead_percent is None else [pytest.approx(stated.overhead_percent, abs=0.01)])
    assert all(percent >= 0 for percent in overhead)


# The end of a session


def test_terminate_ends_ones_own_session_and_the_trace_still_comes(job: ServingJob, tmp_path: Path) -> None:
    start_s = time.monotonic()
    call = job.start_profiling(20, session_id="mine")
    for other in ("another", ""):
        job.terminate(other)
    time.sleep(0.2)
    assert not call.done()
    job.terminate("mine")
    assert contents(call.result(), tmp_path).event_count > 0
    assert time.monotonic() - start_s < 20


def test_a_session_that_has_not_started_can_be_ended(job: ServingJob) -> None:
    call = job.profile(20, start_timestamp_ns=time.time_ns() + 20 * 10**9)
    job.wait_until("profiles(server)")
    job.terminate("test")
    assert refusal(call) == ("CANCELLED", "the session was stopped before it started")


def test_a_client_that_goes_away_frees_the_session(job: ServingJob) -> None:
    call = job.start_profiling(20)
    call.cancel()
    again, until = job.profile(0.1), time.monotonic() + 19
    while again.exception() and time.monotonic() < until:
        again = job.profile(0.1)
    assert again.result()


# What is refused


def test_one_session_at_a_time(job: ServingJob, tmp_path: Path) -> None:
    call = job.start_profiling(20)
    assert refusal(job.profile()) == BUSY
    assert job.do(f"reason(local.start, {str(tmp_path)!r})")[0] == "busy"
    job.terminate("test")
    call.result()


def test_a_forked_child_ends_neither_server_nor_session(job: ServingJob, tmp_path: Path) -> None:
    call = job.start_profiling(20)
    assert job.do("fork()") == 0
    assert not call.done()
    job.terminate("test")
    assert contents(call.result(), tmp_path).event_count > 0


def test_the_job_may_profile_itself(job: ServingJob, tmp_path: Path) -> None:
    job.do(f"local.start({str(tmp_path)!r})")
    assert refusal(job.profile()) == BUSY
    job.do("str(local.stop())")
    job.do(f"tf.profiler.experimental.start({str(tmp_path)!r})")
    assert refusal(job.profile()) == BUSY
    job.do("tf.profiler.experimental.stop()")
    assert job.profile().result()


@pytest.mark.parametrize(
    ("method", "asked", "code", "words"),
    [
        ("Profile", request(0.3, emit_xspace=False), "FAILED_PRECONDITION", "does not write files"),
        ("Profile", request(0.3, host_tracer_level=4), "INVALID_ARGUMENT", "host_tracer_level is 4"),
        ("Profile", request(0.3, python_tracer_level=2), "INVALID_ARGUMENT", "python_tracer_level is 2"),
        ("Profile", request(0.3, start_timestamp_ns=1 << 63), "INVALID_ARGUMENT", "check that the clocks agree"),
        ("Profile", request(0.3, duration_ms=1 << 62), "INVALID_ARGUMENT", "the limit is 300 s"),
        ("Profile", b"\xff\xff\xff", "INVALID_ARGUMENT", "the request is not a ProfileRequest"),
        ("Terminate", b"\xff\xff\xff", "INVALID_ARGUMENT", "the request is not a TerminateRequest"),
        ("Monitor", b"", "UNIMPLEMENTED", ""),
    ],
)
def test_what_cannot_be(job: ServingJob, method: str, asked: bytes, code: str, words: str) -> None:
    refused, details = refusal(job.call(method, asked))
    assert (refused, words in details) == (code, True), details


def test_continuous_profiling(job: ServingJob, tmp_path: Path) -> None:
    nothing = ("NOT_FOUND", "No continuous profiling session found.")
    assert refusal(job.call("GetSnapshot", b"")) == nothing
    assert refusal(job.call("StopContinuousProfiling", b"")) == nothing
    job.call("StartContinuousProfiling", request(0.1)).result()
    assert refusal(job.profile()) == refusal(job.call("StartContinuousProfiling", request(0.1))) == BUSY
    for _ in range(2):
        job.wait_until_recorded()
        reply = job.call("GetSnapshot", b"").result()
        assert contents(reply, tmp_path).event_count > 0
        assert facts_of(reply, tmp_path).tensorflow_version
    job.call("StopContinuousProfiling", b"").result()
    assert refusal(job.call("GetSnapshot", b"")) == nothing
    assert job.profile().result(), "the job is free again"


# Where it listens


def test_it_listens_on_loopback_alone(job: ServingJob) -> None:
    mapped = "0" * 16 + "FFFF0000"  # gRPC listens on ::ffff:127.0.0.1 where there is IPv6: the same address.
    (address,) = job.do(f"listening({job.port})")
    assert address.removeprefix(mapped) == "0100007F"
    assert job.do("server.address") == f"127.0.0.1:{job.port}"


def test_it_prints_the_command_once_and_to_stderr(job: ServingJob, errors: Path) -> None:
    lines = [line for line in errors.read_text().splitlines() if f"tfperf capture --port {job.port}" in line]
    assert lines == [f"To profile this job: tfperf capture --port {job.port}"]


def test_another_address_has_a_warning(job: ServingJob, errors: Path) -> None:
    job.do("globals().update(other=serve(0, host='0.0.0.0'))")
    port = job.do("other.port")
    lines = errors.read_text().splitlines()
    job.do("other.stop()")
    assert f"To profile this job: tfperf capture --worker {socket.gethostname()}:{port}" in lines
    warning = f"Warning: the profiler server listens on 0.0.0.0:{port}; anyone who can connect to it can read this job."
    assert warning in lines


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_ipv6(job: ServingJob, errors: Path) -> None:
    job.do("globals().update(other=serve(0, host='::1'))")
    port = job.do("other.port")
    with grpc.insecure_channel(f"[::1]:{port}") as channel:
        code, _ = refusal(start_call(channel, "Profile", request(0.1, emit_xspace=False)))
    assert code == "FAILED_PRECONDITION"
    assert job.do(f"listening({port})") == ["0" * 24 + "01000000"]
    job.do("other.stop()")
    assert job.do(f"listening({port})") == []
    assert f"tfperf capture --worker '[::1]:{port}'" in errors.read_text()


def test_a_port_that_is_taken(job: ServingJob) -> None:
    taken = job.do(f"reason(serve, {job.port})")
    assert taken[0] == "port_taken"
    assert f"(pid {job.process.pid}) is using 127.0.0.1:{job.port}; use another port" in taken[1]
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert job.do(f"reason(serve, {other.getsockname()[1]})")[0] == "port_taken"


def test_the_usual_port_is_the_one_that_capture_is_told(job: ServingJob) -> None:
    """Where another program of this machine has it, the error names it."""
    assert "127.0.0.1:6009" in str(job.do("reason(lambda: globals().update(usual=serve()) or usual.address)"))
    job.do("usual.stop() if 'usual' in globals() else None")


@pytest.mark.parametrize("arguments", ["70000", "-1", "host=''", "host='no.such.name.invalid'", "host='192.0.2.1'"])
def test_an_address_that_cannot_be(job: ServingJob, arguments: str) -> None:
    assert job.do(f"reason(serve, {arguments})")[0] == "bad_address"


# The end of the job


def test_stop_ends_the_session_and_listens_no_more(job: ServingJob, tmp_path: Path) -> None:
    job.do("globals().update(other=serve(0))")
    port = job.do("other.port")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = start_call(channel, "Profile", request(20))
        job.wait_until_recorded()
        job.do("other.stop()")
        assert contents(call.result(), tmp_path).event_count > 0
        assert refusal(start_call(channel, "Profile", request(20)))[0] == "UNAVAILABLE"
    assert job.do(f"listening({port})") == []
    job.do("other.stop()")  # Twice does no harm.


def test_a_server_that_is_being_stopped_starts_nothing(job: ServingJob) -> None:
    job.do("globals().update(other=serve(0))")
    job.do("other._methods.finish(0, 0)")
    with grpc.insecure_channel(f"127.0.0.1:{job.do('other.port')}") as channel:
        for method in ("Profile", "StartContinuousProfiling"):
            assert refusal(start_call(channel, method, request(20))) == ("UNAVAILABLE", "the server is being stopped")
    job.do("other.stop()")


def test_advanced_options_arrive() -> None:
    advanced: dict[str, bool | int | str] = {"on": True, "size": 4_000_000, "mode": "TRACE_COMPUTE"}
    asked = profile_request(TracerOptions(3, 1, 0, advanced), 50, Path("logs/run/host.xplane.pb"))
    assert server._RequestedSession.parse(asked.SerializeToString()).options == TracerOptions(3, 1, 0, advanced)


def test_idle_connections_are_few_and_end() -> None:
    """Connections that say nothing take few file descriptors of the job that serves, and not for long."""
    count = 120
    with ExitStack() as stack:
        running = stack.enter_context(server.serve(0))
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        idle = [stack.enter_context(socket.create_connection((running.host, running.port), 60)) for _ in range(count)]
        taken = len(os.listdir("/proc/self/fd")) - before - count  # noqa: PTH208
        assert taken <= server._MAX_CONNECTIONS + 8, "a few of gRPC itself"
        for connection in idle:
            connection.settimeout(120)
            try:
                while connection.recv(1024):  # what gRPC says first
                    pass
            except ConnectionResetError:
                pass


def test_the_job_ends_while_it_serves_and_what_was_recorded_is_sent(
    job: ServingJob, errors: Path, tmp_path: Path
) -> None:
    """The last test with this job."""
    call = job.start_profiling(25)
    start_s = time.monotonic()
    assert job.end() == 0
    assert time.monotonic() - start_s < 20
    assert contents(call.result(), tmp_path).event_count > 0
    assert "Traceback" not in errors.read_text()
