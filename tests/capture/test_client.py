"""One server: calls, connections, why they fail, and the threads that never keep a program from ending."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from builders import event, host, known, space
from capture.conftest import Capture, ended, free_port
from capture.double import Answer, replies, response, serving, writes_on_its_disk
from capture.handmade import (
    CERTIFICATE,
    IS_GRPC,
    IS_OK,
    KEY,
    REQUEST,
    SECONDS,
    WHOLE,
    Handler,
    Headers,
    answer,
    answering,
    ask,
    data,
    frame,
    greet,
    headers,
    here,
    listening,
    message,
    profile_at,
    refusal,
    saying,
    silent,
    trailers,
)
from protobytes import field

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address, parse_address
from tfperf.capture.client import DaemonThreads, PendingReply, ProfilerClient, check_greeting
from tfperf.capture.outcomes import Captured, TracerOptions
from tfperf.capture.remote import CaptureRequest, profile_workers
from tfperf.formats.wire.schema import LARGEST_MESSAGE

# --- what goes well ---


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert ask(answer(WHOLE)) == b"trace"


def test_a_unix_socket_with_an_odd_name(tmp_path: Path) -> None:
    path = f"{tmp_path}/a b%41#?"
    with serving({"Profile": replies(b"trace")}, f"unix:{quote(path)}"):
        assert profile_at(Address("", 0, path)) == b"trace"


def test_a_large_reply() -> None:
    large = bytes(range(256)) * 80_000
    with serving({"Profile": replies(large)}) as port:
        assert profile_at(here(port)) == large


# --- answers that are not replies ---


def status(code: int, words: str = "") -> Headers:
    return [("grpc-status", str(code)), *([("grpc-message", words)] if words else [])]


@pytest.mark.parametrize(
    ("tail", "reason", "words"),
    [
        (status(7, "not%20for%20you%2C %E2%82%AC"), "refused", "PERMISSION_DENIED (not for you, €)"),
        (status(3, "a" * 300), "refused", "INVALID_ARGUMENT (aaa"),
        (status(13, "Another profiling session active."), "busy", "already being profiled"),
        (status(14, "Another profiler session is active"), "busy", "already being profiled"),
        (status(6), "busy", "already being profiled"),
        (status(12), "not_a_profiler", "is not a profiler server"),
        (status(8, "5 GB"), "too_large", "(5 GB)"),
        (status(4), "timeout", "--timeout"),
        (status(1), "interrupted", "interrupted"),
        (status(14, "stopping"), "died", "(stopping)"),
        (status(2, "a bug"), "refused", "UNKNOWN (a bug)"),
        (status(17), "refused", "UNKNOWN"),
        ([("other", "1")], "bad_reply", "an invalid reply"),
        (status(0), "bad_reply", "incomplete"),
    ],
)
@pytest.mark.parametrize("alone", [False, True], ids=["trailers", "trailers only"])
def test_a_status_instead_of_a_reply(tail: Headers, reason: str, words: str, alone: bool) -> None:
    frames = [trailers([*IS_GRPC, *tail])] if alone else [headers(IS_GRPC), trailers(tail)]
    error = refusal(answering(*frames))
    assert (error.reason, words in str(error)) == (reason, True), error
    assert len(str(error)) < 350


def page(code: str, kind: str) -> Handler:
    return answer(b"<html>", head=[(":status", code), ("content-type", kind)], tail=[("x", "y")])


INVALID = ("bad_reply", "sent an invalid reply")
NO_GRPC = ("not_a_profiler", "is not a profiler server")
BROKEN = ("died", "whether the job ended or crashed")


@pytest.mark.parametrize(
    ("handle", "expected"),
    [
        pytest.param(answer(message(b"", flag=1)), INVALID, id="compressed"),
        pytest.param(answer(WHOLE[:-1]), INVALID, id="cut short"),
        pytest.param(answer(WHOLE[:4]), INVALID, id="cut in the head"),
        pytest.param(answer(message(b"0123456789", length=LARGEST_MESSAGE)), INVALID, id="announced only"),
        pytest.param(answer(message(b"no protobuf")), INVALID, id="no protobuf"),
        pytest.param(answer(message(field(8, b"trace")[:-2])), INVALID, id="cut in a field"),
        pytest.param(
            answering(headers(IS_GRPC), data(WHOLE), trailers([*IS_OK, ("Upper", "x")])), INVALID, id="upper case"
        ),
        pytest.param(answering(frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff")), INVALID, id="no HPACK"),
        pytest.param(answering(b"\xff\xff\xff" + bytes(6)), INVALID, id="large frame"),
        pytest.param(answering(frame(7, 0, 0)), INVALID, id="empty GOAWAY"),
        pytest.param(answering(frame(3, 0, 1, b"\0\0\0\2")), INVALID, id="RST_STREAM"),
        pytest.param(
            answering(headers([(":status", "200"), ("content-type", "text/html")]), frame(0, 1, 1, b"<p>")),
            INVALID,
            id="HTML",
        ),
        pytest.param(page("404", "text/html"), NO_GRPC, id="not found"),
        pytest.param(page("302", "text/html"), NO_GRPC, id="moved"),
        pytest.param(page("500", "text/plain"), NO_GRPC, id="failing"),
        pytest.param(answering(close=True), BROKEN, id="ends at once"),
        pytest.param(answering(headers(IS_GRPC), data(WHOLE[:-1]), close=True), BROKEN, id="ends within the message"),
        pytest.param(answering(headers(IS_GRPC), data(WHOLE), close=True), BROKEN, id="ends before the status"),
        pytest.param(answering(frame(7, 0, 0, bytes(8)), close=True), BROKEN, id="GOAWAY"),
    ],
)
def test_what_is_not_a_reply(handle: Handler, expected: tuple[str, str]) -> None:
    error = refusal(handle)
    assert (error.reason, expected[1] in str(error)) == (expected[0], True), error


def test_a_reply_over_the_limit_names_the_limit_and_what_to_try() -> None:
    error = refusal(answering(headers(IS_GRPC), data(message(b"", length=5_000_001))), max_reply_bytes=5_000_000)
    assert (error.reason, "limit of 5.00 MB" in str(error)) == ("too_large", True)
    assert "shorter --duration, or increase --max-size" in str(error)
    assert refusal(answering(headers(IS_GRPC), data(message(b"", length=2**32 - 1)))).reason == "too_large"


def test_a_server_that_greets_and_never_answers() -> None:
    begin = time.monotonic()
    error = refusal(greet, seconds=0.5)
    assert (error.reason, "--timeout" in str(error)) == ("timeout", True)
    assert time.monotonic() - begin > 0.45


def test_a_job_that_ends_between_greeting_and_call() -> None:
    with ProfilerClient(here(free_port())) as client, pytest.raises(CaptureError) as caught:
        client.profile(REQUEST, SECONDS).result()
    assert caught.value.reason == "died"


def test_a_certificate_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="pass a PEM file") as caught:
        ProfilerClient(Address("localhost", 1), tls_ca=tmp_path / "none.pem")
    assert caught.value.reason == "tls"


# --- the end of a call ---


def answered(client: ProfilerClient) -> PendingReply:
    """Ask for a trace; return the call once its reply begins to come."""
    done = threading.Event()
    pending = client.profile(REQUEST, SECONDS)
    pending.when_answered(done.set)
    assert done.wait(SECONDS)
    assert pending.is_answered
    return pending


@pytest.mark.parametrize("handle", [silent, greet, answering(headers(IS_GRPC))])
def test_a_call_is_cancelled_from_another_thread(handle: Handler) -> None:
    with listening(handle) as port, ProfilerClient(here(port)) as client:
        pending = client.profile(REQUEST, 600)
        threading.Timer(0.1, pending.cancel).start()
        with pytest.raises(CaptureError) as caught:
            pending.result()
    assert caught.value.reason == "interrupted"


def test_closing_the_client_ends_the_calls_in_progress() -> None:
    with listening(silent) as port:
        with ProfilerClient(here(port)) as client:
            pending = [client.profile(REQUEST, 600), client.snapshot(600)]
        for call in pending:
            with pytest.raises(CaptureError, match="interrupted"):
                call.result()


def test_a_reply_is_given_up_before_it_is_received() -> None:
    with listening(answering(headers(IS_GRPC), data(WHOLE))) as port, ProfilerClient(here(port)) as client:
        pending = answered(client)
        pending.cancel()
        with pytest.raises(CaptureError) as caught:
            pending.result()
    assert caught.value.reason == "interrupted"


def test_a_call_that_takes_too_long_for_its_caller() -> None:
    with listening(greet) as port, ProfilerClient(here(port)) as client:
        pending = client.profile(REQUEST, SECONDS)
        pending.expire()
        with pytest.raises(CaptureError, match="did not reply in time") as caught:
            pending.result()
    assert caught.value.reason == "timeout"


def test_a_process_does_not_wait_for_its_calls() -> None:
    script = (
        "import sys\n"
        "from capture.handmade import REQUEST, ProfilerClient, here\n"
        "client = ProfilerClient(here(int(sys.argv[1])))\n"
        "client.profile(REQUEST, 600)\n"
    )
    with listening(silent) as port:
        command = [sys.executable, "-c", script, str(port)]
        subprocess.run(command, check=True, timeout=60, cwd=Path(__file__).parents[1])


def failure(address: Address, seconds: float = 20.0, *, tls_ca: Path | None = None) -> CaptureError:
    with pytest.raises(CaptureError) as caught:
        check_greeting(address, seconds, tls_ca=tls_ca)
    return caught.value


def resolve(monkeypatch: pytest.MonkeyPatch, *places: tuple[str, int]) -> None:
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: entries)


def encrypted(handle: Handler) -> Handler:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    context.set_alpn_protocols(["h2"])

    def shake(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secret:
            handle(secret)

    return shake


HTTP_1 = saying(b"HTTP/1.1 400 Bad Request\r\n\r\n")


# --- a gRPC server ---


def test_a_server_that_greets() -> None:
    with listening(greet) as port:
        check_greeting(here(port))
    with listening(encrypted(greet)) as port:
        check_greeting(here(port), tls_ca=CERTIFICATE)


def test_a_greeting_that_comes_byte_by_byte() -> None:
    def hesitate(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(4, 0, 0, bytes(6)):
            connection.sendall(bytes([byte]))
        silent(connection)

    with listening(hesitate) as port:
        check_greeting(here(port))


def test_the_second_address_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(greet) as port:
        resolve(monkeypatch, ("127.0.0.1", free_port()), ("127.0.0.1", port))
        check_greeting(Address("two.example", port))


# --- nobody, or somebody else ---


@pytest.mark.parametrize(
    ("address", "reason", "words"),
    [
        (Address("localhost", 1), "not_listening", "no server listens on"),
        (Address("", 0, "/no/such/socket"), "not_listening", "no server listens on"),
        (Address("", 0, "/"), "not_listening", "no server listens on"),
        (Address("no-such-host.invalid", 1), "unknown_host", "check the spelling"),
        (Address("a..b", 1), "unknown_host", "check the spelling"),
        (Address("a" * 70 + ".example", 1), "unknown_host", "check the spelling"),
        (Address("", 0, "/" + "a" * 200), "unreachable", "too long"),
    ],
    ids=str,
)
def test_nobody_listens(address: Address, reason: str, words: str) -> None:
    error = failure(address)
    assert (error.reason, words in str(error)) == (reason, True)


@pytest.fixture
def full_queue() -> Iterator[Address]:
    """A listener with a full queue: Linux drops what wants to connect, as a firewall does."""
    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())
        yield Address(*full.getsockname())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux does that")
def test_a_machine_that_does_not_answer(full_queue: Address) -> None:
    error = failure(full_queue, 0.3)
    assert (error.reason, "does not respond" in str(error)) == ("unreachable", True)


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(20) and [])
    try:
        assert failure(Address("slow.example", 1), 0.1).reason == "unreachable"
    finally:
        release.set()


@pytest.mark.parametrize(
    ("handle", "tls_ca", "reason", "words"),
    [
        pytest.param(HTTP_1, None, "not_a_profiler", "does not speak gRPC", id="HTTP/1"),
        pytest.param(saying(b"SSH-2.0-OpenSSH_9.6\r\n"), None, "not_a_profiler", "does not speak gRPC", id="SSH"),
        pytest.param(saying(b""), None, "not_a_profiler", "does not speak gRPC", id="closes"),
        pytest.param(saying(b"abc"), None, "not_a_profiler", "does not speak gRPC", id="short"),
        pytest.param(saying(frame(6, 0, 0, bytes(8))), None, "not_a_profiler", "does not speak gRPC", id="PING first"),
        pytest.param(saying(frame(4, 0, 0, b"odd")), None, "not_a_profiler", "does not speak gRPC", id="odd settings"),
        pytest.param(silent, None, "timeout", "accepts connections but does not respond", id="silent"),
        pytest.param(silent, CERTIFICATE, "timeout", "check that it uses TLS", id="silent, asked for TLS"),
        pytest.param(saying(b"\x15\x03\x01\0\2\2\x46"), None, "tls", "--tls-ca", id="TLS"),
        pytest.param(encrypted(silent), None, "not_a_profiler", "", id="TLS, OpenSSL closes without a word"),
        pytest.param(HTTP_1, CERTIFICATE, "tls", "", id="HTTP/1, asked for TLS"),
        pytest.param(saying(b""), CERTIFICATE, "tls", "", id="closes, asked for TLS"),
        pytest.param(greet, CERTIFICATE, "tls", "", id="gRPC, asked for TLS"),
    ],
)
def test_something_else_listens(handle: Handler, tls_ca: Path | None, reason: str, words: str) -> None:
    with listening(handle) as port:
        error = failure(here(port), 0.3 if handle is silent else 20.0, tls_ca=tls_ca)
    assert (error.reason, words in str(error)) == (reason, True)


def test_a_certificate_for_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(encrypted(greet)) as port:
        resolve(monkeypatch, ("127.0.0.1", port))
        error = failure(Address("other.example", port), tls_ca=CERTIFICATE)
    assert (error.reason, "Hostname mismatch" in str(error)) == ("tls", True)


TRACE = space(host(event("a/b:MatMul", 0, 5), event("a/b:MatMul", 9, 5)))

NO_PERMISSION = field(2, b"Failed to start the GPU tracer: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")


def ask_odd(answers: Mapping[str, Answer], logdir: Path, **options: Any) -> Captured:
    with serving(answers) as port:
        return ask_at(f"127.0.0.1:{port}", logdir, **options)


def ask_at(address: str, logdir: Path, **options: Any) -> Captured:
    request = CaptureRequest(workers=[parse_address(address)], **{"duration_s": 0.05, "timeout_s": 5.0, **options})
    _, (captured,) = profile_workers(request, logdir)
    return captured


def test_the_request_says_all_that_was_asked_for(tmp_path: Path) -> None:
    seen: list[Any] = []

    def answer(request: Any, context: grpc.ServicerContext) -> bytes:
        seen.append(request)
        return response(TRACE)

    captured = ask_odd({"Profile": answer}, tmp_path, duration_s=1.5, options=TracerOptions(3, 0, 1))
    (request,) = seen
    path = known(captured.path)
    assert (request.duration_ms, request.emit_xspace) == (1500, True)
    assert request.repository_root == str(path.parents[1])
    assert request.session_id == request.opts.session_id == path.parent.name
    assert f"{request.host_name}.xplane.pb" == path.name
    levels = request.opts
    assert (levels.host_tracer_level, levels.device_tracer_level, levels.python_tracer_level) == (3, 0, 1)
    assert (levels.version, levels.duration_ms, levels.start_timestamp_ns) == (1, 1500, 0)
    assert captured.reason == "no_python_frames", "the double recorded none"


def test_several_workers_get_one_start_a_moment_ahead(tmp_path: Path) -> None:
    starts_ns: list[int] = []

    def respond(request: Any, context: grpc.ServicerContext) -> bytes:
        starts_ns.append(request.opts.start_timestamp_ns)
        return response(TRACE)

    asked_ns = time.time_ns()
    with serving({"Profile": respond}) as first, serving({"Profile": respond}) as second:
        workers = [parse_address(f"127.0.0.1:{port}") for port in (first, second)]
        _, captured = profile_workers(CaptureRequest(workers=workers, duration_s=0.01), tmp_path)
    assert [result.reason for result in captured] == ["", ""]
    assert starts_ns[0] == starts_ns[1] > asked_ns + 0.3e9


def test_an_old_server_that_wrote_where_we_can_read(tmp_path: Path) -> None:
    captured = ask_odd({"Profile": writes_on_its_disk(TRACE)}, tmp_path / "logs")
    assert (captured.reason, captured.event_count) == ("", 2)
    assert known(captured.path).read_bytes() == TRACE
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [captured.path]


def test_an_old_server_that_wrote_on_its_own_disk(tmp_path: Path) -> None:
    captured = ask_odd({"Profile": replies(None)}, tmp_path / "logs")
    assert (captured.reason, captured.path) == ("written_remotely", None)
    assert str(tmp_path / "logs/plugins/profile/2") in captured.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(replies(None, empty=True), "idle", id="no trace"),
        pytest.param(replies(b"", empty=True), "idle", id="empty trace"),
        pytest.param(replies(space(host()), empty=True), "idle", id="no events"),
        pytest.param(replies(TRACE[:-3]), "bad_reply", id="cut off"),
    ],
)
def test_what_is_no_trace_is_not_kept(answer: Answer, reason: str, tmp_path: Path) -> None:
    captured = ask_odd({"Profile": answer}, tmp_path / "logs")
    assert (captured.reason, captured.path) == (reason, None)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_waits_for_no_server_that_is_silent(capture: Capture) -> None:
    """It is interrupted before the greeting times out, which would be another reason."""
    accepted = threading.Event()

    def handle(connection: socket.socket) -> None:
        accepted.set()
        silent(connection)

    with listening(handle) as port:
        process = capture.start("--port", port, "--format", "json")
        assert accepted.wait(60)
        process.send_signal(signal.SIGINT)
        done = ended(process)
    assert (done.code, done.json["summary"]["reason"]) == (130, "interrupted")


def test_stderr_has_our_line_alone(capture: Capture) -> None:
    """Of a server that goes away with an error, gRPC would write a line, too."""
    going_away = frame(7, 0, 0, b"\0\0\0\0" + b"\0\0\0\2" + b"stopping")
    with listening(answering(going_away, close=True)) as port:
        done = ended(capture.start("--port", port))
    (line,) = done.err.splitlines()
    assert line.startswith(f"Error: lost the connection to localhost:{port} during profiling")


def test_an_interrupted_trace_says_how_long_was_recorded(tmp_path: Path) -> None:
    """That is less than until the trace came, since the server takes three seconds to send it."""
    asked, ended_early = threading.Event(), threading.Event()

    def profile(request: Any, context: grpc.ServicerContext) -> bytes:
        asked.set()
        ended_early.wait(20)
        time.sleep(3)
        return response(TRACE)

    def terminate(request: Any, context: grpc.ServicerContext) -> bytes:
        ended_early.set()
        return b""

    def interrupt() -> None:
        asked.wait(20)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt).start()
    begin_s = time.monotonic()
    captured = ask_odd({"Profile": profile, "Terminate": terminate}, tmp_path, duration_s=60.0)
    elapsed_s = time.monotonic() - begin_s
    said = re.fullmatch(r"interrupted after ([\d.]+) s; the recorded events are kept", captured.message)
    assert said
    assert float(said[1]) < elapsed_s - 2.9


def test_what_the_profiler_reported_about_the_gpu(tmp_path: Path) -> None:
    captured = ask_odd({"Profile": replies(TRACE + NO_PERMISSION)}, tmp_path)
    assert captured.reason == "gpu_missing"
    assert captured.path is not None, "the host part is worth keeping"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in captured.message
    unasked = ask_odd({"Profile": replies(TRACE + NO_PERMISSION)}, tmp_path, options=TracerOptions(2, 0, 0))
    assert unasked.reason == "", "without the device tracer"


@pytest.mark.parametrize(("value", "percent"), [("12.5", 12.5), ("nan", None), ("inf", None), ("much", None)])
def test_the_overhead_that_a_server_measured(value: str, percent: float | None, tmp_path: Path) -> None:
    def respond(request: Any, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata((("tfperf-overhead-percent", value),))
        return response(TRACE)

    assert ask_odd({"Profile": respond}, tmp_path).overhead_percent == percent


def test_ipv6(tmp_path: Path) -> None:
    with serving({"Profile": replies(TRACE)}, "[::1]:0") as port:
        captured = ask_at(f"grpc://[::1]:{port}", tmp_path)
    assert (captured.reason, captured.worker) == ("", f"[::1]:{port}")


def test_tls(tmp_path: Path, capture: Capture) -> None:
    credentials = grpc.ssl_server_credentials([(KEY.read_bytes(), CERTIFICATE.read_bytes())])
    with serving({"Profile": replies(TRACE)}, credentials=credentials) as port:
        done = capture("--port", port, "--tls-ca", CERTIFICATE, "--format", "json")
        plain = ask_at(f"localhost:{port}", tmp_path / "plain")
        wrong = ask_at(f"localhost:{port}", tmp_path / "wrong", tls_ca=Path(__file__))
    assert done.code == 0, done.err
    assert (plain.path, plain.reason in ("tls", "not_a_profiler")) == (None, True)
    assert (wrong.path, wrong.reason) == (None, "tls")


def test_continuous_profiling_of_a_server_that_cannot(capture: Capture) -> None:
    with serving({"Profile": replies(TRACE)}) as port:
        done = capture("--port", port, "--continuous", "--format", "json")
    assert (done.code, done.json["summary"]["reason"]) == (1, "unsupported")
    assert "cannot profile continuously" in done.err


def test_a_full_disk_or_no_permission_is_said_before_anything_is_asked(capture: Capture) -> None:
    (capture.folder / "file").touch()
    done = capture("--port", 1, "--logdir", "file/logs")
    assert (done.code, done.out) == (1, "")
    assert "is a file; pass a folder" in done.err


def test_calls_run_side_by_side() -> None:
    barrier = threading.Barrier(3)
    with DaemonThreads(3, "test") as threads:
        futures = [threads.submit(barrier.wait, 20) for _ in range(3)]
    assert sorted(future.result(20) for future in futures) == [0, 1, 2]


def test_the_end_of_the_program_waits_for_none() -> None:
    script = (
        "import time; from tfperf.capture.client import DaemonThreads\n"
        "with DaemonThreads(1, 'test') as threads: threads.submit(time.sleep, 600)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
