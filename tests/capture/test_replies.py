"""Many servers at once: replies as they come, late ones, what Ctrl-C ends; and which servers this machine has."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from builders import event, host, known, space
from capture.conftest import Capture, ended, free_port
from capture.double import Answer, _Methods, refuse, replies, response, serving
from capture.handmade import IS_GRPC, REQUEST, answering, frame, headers, listening
from click.testing import Result
from live.fake_jobs import fake_job, gives, steps_trace, wait_until

from tfperf.base.errors import CaptureError
from tfperf.capture import remote
from tfperf.capture.address import Address, parse_address
from tfperf.capture.client import PendingReply, ProfilerClient
from tfperf.capture.machine import Listener, Machine
from tfperf.capture.outcomes import Captured
from tfperf.capture.remote import (
    RECEIVERS,
    CaptureRequest,
    Replies,
    ServerHere,
    TimeLimits,
    find_servers,
    on_each,
    on_each_within,
    profile_workers,
    stop_on_signal,
)
from tfperf.formats.wire.schema import SERVICE

Run = Callable[..., Result]
TRACE = response(space(host(event("train", 0, 10, step_num=1))))
give: Answer = lambda request, context: TRACE  # noqa: E731


@contextmanager
def many(count: int, answer: Answer = give) -> Iterator[list[str]]:
    server = grpc.server(ThreadPoolExecutor(count))
    server.add_generic_rpc_handlers((_Methods({"Profile": answer}, SERVICE),))
    ports = [server.add_insecure_port("127.0.0.1:0") for _ in range(count)]
    server.start()
    try:
        yield [f"127.0.0.1:{port}" for port in ports]
    finally:
        server.stop(None).wait(10)


def profile(addresses: list[str], logdir: Path, **options: Any) -> list[Captured]:
    workers = [parse_address(address) for address in addresses]
    return profile_workers(CaptureRequest(workers=workers, duration_s=0.05, **options), logdir)[1]


def test_the_most_workers_start_at_one_moment_and_make_one_run(tmp_path: Path) -> None:
    starts: list[int] = []

    def answer(request: Any, context: grpc.ServicerContext) -> bytes:
        starts.append(request.opts.start_timestamp_ns)
        return TRACE

    with many(256, answer) as addresses:
        captured = profile(addresses, tmp_path)
    assert [result.worker for result in captured] == addresses
    assert not any(result.reason for result in captured)
    assert len(set(starts)) == 1
    (run,) = (tmp_path / "plugins" / "profile").iterdir()
    assert {result.path for result in captured} == set(run.iterdir())
    assert len(list(run.iterdir())) == 256


@pytest.fixture
def mixed() -> Iterator[list[str]]:
    """A worker that gives a trace, and four that do not: refusing, sending garbage, dying, not there."""
    with ExitStack() as stack:
        good, refusing, broken = (
            stack.enter_context(serving({"Profile": each}))
            for each in (give, refuse(grpc.StatusCode.PERMISSION_DENIED, "no"), replies(b"not a trace"))
        )
        dying = stack.enter_context(listening(answering(headers(IS_GRPC), close=True)))
        yield [f"127.0.0.1:{port}" for port in (good, refusing, broken, dying, free_port())]


_REASONS = ["", "refused", "bad_reply", "died", "not_listening"]


def test_what_came_is_kept_and_the_missing_are_named(mixed: list[str], tmp_path: Path, run_tfperf: Run) -> None:
    options = ("--duration", "50ms", "--logdir", tmp_path, "--run", "job-7")
    done = run_tfperf("capture", "--workers", ",".join(mixed), *options)
    assert done.exit_code == 0, done.stderr
    assert [path.parent.name for path in tmp_path.rglob("*.pb")] == ["job-7"]
    assert "Received traces from 1 of 5 workers." in " ".join(done.stdout.split())
    missing = ", ".join(f"{worker} ({reason})" for worker, reason in zip(mixed[1:], _REASONS[1:], strict=True))
    assert f"Warning: received traces from 1 of 5 workers; missing: {missing}\n" in done.stderr


def test_all_or_nothing_leaves_no_run(mixed: list[str], tmp_path: Path, run_tfperf: Run) -> None:
    options = ("--duration", "50ms", "--logdir", tmp_path / "logs", "--all-or-nothing")
    done = run_tfperf("capture", "--workers", ",".join(mixed), *options)
    assert done.exit_code == 1
    assert list(tmp_path.iterdir()) == []
    assert all(worker in done.stderr for worker in mixed[1:])


def test_all_or_nothing_keeps_what_others_wrote_into_the_run(mixed: list[str], tmp_path: Path) -> None:
    with many(1) as addresses:
        (first,) = profile(addresses, tmp_path, run="shared")
    captured = profile(mixed, tmp_path, run="shared", all_or_nothing=True)
    assert [result.reason for result in captured] == ["dropped", *_REASONS[1:]]
    assert list(known(first.path).parent.iterdir()) == [first.path]


def test_a_slow_worker_holds_up_none_of_the_others(tmp_path: Path) -> None:
    release = threading.Event()

    def slow(request: Any, context: grpc.ServicerContext) -> bytes:
        release.wait(60)
        return TRACE

    with ExitStack() as stack:
        stack.callback(release.set)
        slow_ones = [f"127.0.0.1:{stack.enter_context(serving({'Profile': slow}))}" for _ in range(RECEIVERS + 1)]
        addresses = stack.enter_context(many(6))
        captured = profile([*slow_ones, *addresses], tmp_path, timeout_s=2.0)
    assert [result.reason for result in captured] == ["timeout"] * len(slow_ones) + [""] * 6


def test_a_worker_that_stops_sending_is_given_up(tmp_path: Path) -> None:
    with listening(answering(headers(IS_GRPC))) as port, many(1) as addresses:
        captured = profile([f"127.0.0.1:{port}", *addresses], tmp_path, timeout_s=1.0)
    assert [result.reason for result in captured] == ["timeout", ""]


def test_so_many_replies_are_received_at_a_time_and_no_more(tmp_path: Path) -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def receive(client: ProfilerClient, call: PendingReply) -> Captured:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.01)
        call.result()
        with lock:
            now[0] -= 1
        return Captured(worker=str(client.address))

    with ExitStack() as stack:
        addresses = stack.enter_context(many(24))
        clients = [stack.enter_context(ProfilerClient(parse_address(each))) for each in addresses]
        pending = {client: client.profile(REQUEST, 60) for client in clients}
        replies = Replies(pending, receive, TimeLimits(30.0, 30.0))
        got = dict(replies.as_they_come(lambda: None))
    assert {client: result.worker for client, result in got.items()} == {each: str(each.address) for each in clients}
    assert most[0] <= RECEIVERS


def test_a_signal_handler_that_takes_longer_than_a_look_does_not_end_the_looking() -> None:
    """`queue.SimpleQueue` then waits without a limit; here the call is canceled at the first look after the signal."""
    handled, is_over = threading.Event(), threading.Event()

    def answer_late(*_: object) -> bytes:
        is_over.wait(20)
        return TRACE

    def receive(client: ProfilerClient, call: PendingReply) -> Captured:
        try:
            call.result()
        except CaptureError as error:
            return Captured(worker=str(client.address), reason=error.reason)
        return Captured(worker=str(client.address))

    def handle(*_: object) -> None:
        time.sleep(0.1)
        handled.set()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        with many(1, answer_late) as (address,), ProfilerClient(parse_address(address)) as client:
            call = client.profile(REQUEST, 60)
            replies = Replies({client: call}, receive, TimeLimits(60.0, 60.0))
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            [(_, result)] = replies.as_they_come(lambda: call.cancel() if handled.is_set() else None)
            is_over.set()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert result.reason == "interrupted"


def test_the_file_of_a_task_has_its_name(tmp_path: Path) -> None:
    with many(2) as addresses:
        ports = [parse_address(each).port for each in addresses]
        workers = [Address("127.0.0.1", port, task=f"worker-{number}") for number, port in enumerate(ports)]
        _, captured = profile_workers(CaptureRequest(workers=workers, duration_s=0.05), tmp_path)
    names = [result.path.name for result in captured if result.path]
    assert names == ["127.0.0.1_worker-0.xplane.pb", "127.0.0.1_worker-1.xplane.pb"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "a:1,b"], "'b' is not the address"),
        (["--workers", "a:1,a:1"], "listed twice"),
        (["--workers", ","], "has no workers"),
        (["--workers", "a:1", "--worker", "b:1"], "--worker cannot be used with --workers"),
        (["--workers-file", "none"], "cannot read none: No such file"),
        (["--cluster-spec", "none"], "cannot read none"),
        (["--workers", "a:1", "--run", "a/b"], "is not a valid folder name"),
        (["--workers", "a:1", "--run", "x", "--continuous"], "--run cannot be used with --continuous"),
        (["--workers", "a:1", "--all-or-nothing", "--continuous"], "--all-or-nothing cannot be used with --continuous"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, run_tfperf: Run) -> None:
    done = run_tfperf("capture", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())


@pytest.mark.timing
@pytest.mark.parametrize("options", [(), ("--continuous",)])
def test_ctrl_c_waits_for_none_of_several_servers_that_are_stuck(capture: Capture, options: tuple[str, ...]) -> None:
    """They greet, take the request, and answer neither that nor the end of the session."""
    asked, most_s = threading.Semaphore(0), 8.0

    def handle(connection: socket.socket) -> None:
        connection.sendall(frame(4, 0, 0, b""))
        received = b""
        while data := connection.recv(1 << 16):
            received += data
            if b"plugins" in received:  # The request names the folder.
                received = b""
                asked.release()

    with ExitStack() as stack:
        ports = [stack.enter_context(listening(handle)) for _ in range(6)]
        workers = [word for port in ports for word in ("--worker", f"127.0.0.1:{port}")]
        process = capture.start(*workers, *options)
        for _ in ports:
            assert asked.acquire(timeout=60)
        begin_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        done = ended(process)
        elapsed_s = time.monotonic() - begin_s
    assert (done.code, done.out) == (130, "")
    assert elapsed_s < most_s, "one such server took 10 to 30 s"
    assert "interrupted" in done.err.splitlines()[-1]


def test_on_each_returns_what_was_done_and_the_errors_and_leaves_the_rest_at_the_stop() -> None:
    clients = [ProfilerClient(Address("localhost", port)) for port in (1, 2, 3)]
    stop, release = threading.Event(), threading.Event()

    def work(client: ProfilerClient) -> None:
        if client is clients[0]:
            raise CaptureError("busy", "busy")
        if client is clients[1]:
            stop.set()
            release.wait(60)

    done, errors = on_each(clients, work, stop)
    release.set()
    assert clients[1] not in done
    assert errors[clients[1]].reason == "interrupted"
    assert set(done) | set(errors) == set(clients)
    done, errors = on_each(clients[:1], work, threading.Event())
    assert (done, errors[clients[0]].reason) == ([], "busy")
    done, errors = on_each(clients[2:], work, threading.Event())
    assert (done, errors) == (clients[2:], {})
    on_each_within(60, clients[:1], work)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_the_first_signal_stops_whichever_it_is_and_a_later_one_interrupts(name: str) -> None:
    number = getattr(signal, name, None)
    if number is None:
        pytest.skip("this system has no such signal")
    before = signal.getsignal(number)
    with stop_on_signal() as stop:
        signal.raise_signal(number)
        assert stop.wait(60)
        time.sleep(0.6)  # Signals within half a second count as one.
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(number) is before


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no such signal")
def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_before_anybody_is_asked_leaves_nothing(
    run_tfperf: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def stopped() -> Iterator[threading.Event]:
        stop = threading.Event()
        stop.set()
        yield stop

    monkeypatch.setattr(remote, "stop_on_signal", stopped)
    workers = ("--worker", "127.0.0.1:1", "--worker", "127.0.0.1:2")
    done = run_tfperf("capture", *workers, "--logdir", tmp_path / "logs")
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted; received traces from 0 of 2 workers\n")
    assert not (tmp_path / "logs").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_capture_that_waits_for_its_job_ends_and_leaves_nothing(
    name: str, capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(capture.folder))
    with fake_job(gives(steps_trace(2000), after_s=1.0)) as job:
        process = capture.start("--port", job.port, "--duration", "60s", "--all-or-nothing")
        wait_until(lambda: job.asked, 120)
        process.send_signal(getattr(signal, name))
        assert "Traceback" not in ended(process).err
    left = [path for path in capture.folder.rglob("*") if not path.name.endswith(".xplane.pb") and path.is_file()]
    assert left == [], "no temporary files"
    for folder in capture.folder.rglob("plugins/profile/*"):
        assert [*folder.iterdir()], "no empty run folder"


def test_another_thread_cannot_catch_signals_and_is_left_alone() -> None:
    def stops() -> bool:
        with stop_on_signal() as stop:
            return stop.is_set()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(stops).result(60) is False


_OTHER_PROGRAM = """
import socket
import subprocess
import sys
with socket.socket() as plain:
    plain.bind(("127.0.0.1", 0))
    plain.listen()
    print(plain.getsockname()[1], flush=True)
    input()
    plain.settimeout(0.01)
    try:
        asked, _ = plain.accept()
        asked.close()
        print("asked")
    except TimeoutError:
        print("left alone")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
def test_asks_no_port_of_other_programs() -> None:
    # A process of its own: this one has TensorFlow if an earlier test needed it.
    command = [sys.executable, "-c", _OTHER_PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        port = int(program.stdout.readline())
        assert (port, program.pid) in {(port, each.process) for port, each in Machine().listeners()}
        assert port not in {server.address.port for server in find_servers()}
        assert program.communicate("\n")[0] == "left alone\n"


def test_without_a_profiler_library_there_is_no_server(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    machine = Machine(root=tmp_path)
    for line, expected in [
        ("7f-7f r-xp 0 0 0 /usr/lib/libc.so.6", False),
        ("7f-7f r-xp 0 0 0 /site/tensorflow/libtensorflow_cc.so.2", True),
        ("7f-7f r-xp 0 0 0 /site/tensorflow/python/_pywrap_tensorflow_internal.so", True),
        ("7f-7f r-xp 0 0 0 /site/jaxlib/xla_extension.so", True),
    ]:
        (tmp_path / "proc/7/maps").write_text(line)
        assert machine.has_profiler(7) is expected, line
    assert not machine.has_profiler(8)


def server(port: int) -> ServerHere:
    return ServerHere(Address("localhost", port), Listener(12, "python train.py"))


@pytest.mark.parametrize(
    ("ports", "code", "words"),
    [
        ((), 1, "found no profiler server of yours on this machine; start one in the job: tfperf.serve()"),
        ((1, 2), 2, "select one with --port 1 (python train.py (pid 12)), or --port 2 (python train.py (pid 12))"),
        ((1,), 1, "found python train.py (pid 12) on port 1\nError: no server listens on localhost:1"),
    ],
)
def test_capture_takes_the_only_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_tfperf: Run, ports: tuple[int, ...], code: int, words: str
) -> None:
    monkeypatch.setattr(remote, "find_servers", lambda: [server(port) for port in ports])
    done = run_tfperf("capture", "--logdir", tmp_path)
    assert (done.exit_code, done.stdout) == (code, "")
    assert words in done.stderr
