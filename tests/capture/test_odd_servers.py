"""Servers that TensorFlow 2.21 cannot be made to be: old ones, refusing ones, encrypted ones, with large traces."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from builders import event, host, space
from capture.conftest import Capture, ended
from capture.double import Answer, refuse, response, serving
from capture.handmade import CERTIFICATE, KEY, answering, frame, listening, silent
from protobytes import field

from tfperf.capture.address import parse_address
from tfperf.capture.outcomes import Captured, TracerOptions
from tfperf.capture.remote import CaptureRequest, profile_workers

TRACE = space(host(event("a/b:MatMul", 0, 5), event("a/b:MatMul", 9, 5)))

NO_PERMISSION = field(2, b"Failed to start the GPU tracer: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")


def give(xspace: bytes | None = TRACE, *, empty: bool = False) -> Answer:
    return lambda request, context: response(xspace, empty=empty)


def ask(answers: Mapping[str, Answer], logdir: Path, **options: Any) -> Captured:
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

    captured = ask({"Profile": answer}, tmp_path, duration_s=1.5, options=TracerOptions(3, 0, 1))
    (request,) = seen
    assert captured.path is not None
    assert (request.duration_ms, request.emit_xspace) == (1500, True)
    assert request.repository_root == str(captured.path.parents[1])
    assert request.session_id == request.opts.session_id == captured.path.parent.name
    assert f"{request.host_name}.xplane.pb" == captured.path.name
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
    def answer(request: Any, context: grpc.ServicerContext) -> bytes:
        folder = Path(request.repository_root) / request.session_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{request.host_name}.xplane.pb").write_bytes(TRACE)
        return response()

    captured = ask({"Profile": answer}, tmp_path / "logs")
    assert (captured.reason, captured.event_count) == ("", 2)
    assert captured.path is not None
    assert captured.path.read_bytes() == TRACE
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [captured.path]


def test_an_old_server_that_wrote_on_its_own_disk(tmp_path: Path) -> None:
    captured = ask({"Profile": give(None)}, tmp_path / "logs")
    assert (captured.reason, captured.path) == ("written_remotely", None)
    assert str(tmp_path / "logs/plugins/profile/2") in captured.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("xspace", [None, b"", space(host())])
def test_an_empty_trace_is_an_idle_job(xspace: bytes | None, tmp_path: Path) -> None:
    captured = ask({"Profile": give(xspace, empty=True)}, tmp_path / "logs")
    assert (captured.reason, captured.path) == ("idle", None)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_is_cut_off_is_not_kept(tmp_path: Path) -> None:
    captured = ask({"Profile": give(TRACE[:-3])}, tmp_path / "logs")
    assert (captured.reason, captured.path) == ("bad_reply", None)
    assert list(tmp_path.iterdir()) == []


def test_a_reply_that_is_no_reply(tmp_path: Path) -> None:
    captured = ask({"Profile": lambda request, context: b"\x42\xff\xff"}, tmp_path)
    assert captured.reason == "bad_reply"


def test_a_trace_larger_than_allowed(tmp_path: Path) -> None:
    large = space(host(*[event(f"a/op{n}:MatMul", n, 1) for n in range(500)]))
    captured = ask({"Profile": give(large)}, tmp_path, max_reply_bytes=1000)
    assert (captured.reason, captured.path) == ("too_large", None)
    assert "--max-size" in captured.message


def test_a_trace_larger_than_grpc_allows_by_default(tmp_path: Path) -> None:
    padded = space(host(event("a/b:MatMul", 0, 5, note="x" * 5_000_000)))
    assert len(padded) > 4 << 20
    captured = ask({"Profile": give(padded)}, tmp_path)
    assert (captured.reason, captured.size_bytes) == ("", len(padded))


@pytest.mark.parametrize(
    ("code", "words", "reason"),
    [
        (grpc.StatusCode.ALREADY_EXISTS, "profiler running", "busy"),
        (grpc.StatusCode.INTERNAL, "Another profiling session active.", "busy"),
        (grpc.StatusCode.UNAVAILABLE, "Another profiler session is active", "busy"),
        (grpc.StatusCode.INVALID_ARGUMENT, "unknown device type", "refused"),
        (grpc.StatusCode.PERMISSION_DENIED, "", "refused"),
        (grpc.StatusCode.UNIMPLEMENTED, "", "not_a_profiler"),
    ],
)
def test_refusals(code: grpc.StatusCode, words: str, reason: str, tmp_path: Path) -> None:
    captured = ask({"Profile": refuse(code, words)}, tmp_path / "logs")
    assert (captured.reason, captured.path) == (reason, None)
    assert "127.0.0.1" in captured.message
    assert reason != "refused" or words in captured.message
    assert list(tmp_path.iterdir()) == []


def test_a_grpc_server_without_the_service(tmp_path: Path) -> None:
    with serving({"Profile": give()}, service="tensorflow.WorkerService") as port:
        captured = ask_at(f"127.0.0.1:{port}", tmp_path)
    assert captured.reason == "not_a_profiler"


def test_a_server_that_takes_the_request_and_never_answers(tmp_path: Path) -> None:
    release = threading.Event()

    def answer(request: Any, context: grpc.ServicerContext) -> bytes:
        release.wait(10)
        return response(TRACE)

    with serving({"Profile": answer}) as port:
        captured = ask_at(f"127.0.0.1:{port}", tmp_path, timeout_s=0.5)
        release.set()
    assert captured.reason == "timeout"
    assert "--timeout" in captured.message


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
        done = capture("--port", port)
    (line,) = done.err.splitlines()
    assert line.startswith(f"Error: the connection to localhost:{port} broke during profiling")


def test_an_interrupted_trace_says_how_long_was_recorded(tmp_path: Path) -> None:
    """That is less than until the trace came, since the server takes a second to send it."""
    asked, ended_early = threading.Event(), threading.Event()

    def profile(request: Any, context: grpc.ServicerContext) -> bytes:
        asked.set()
        ended_early.wait(20)
        time.sleep(1)
        return response(TRACE)

    def terminate(request: Any, context: grpc.ServicerContext) -> bytes:
        ended_early.set()
        return b""

    def interrupt() -> None:
        asked.wait(20)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt).start()
    begin_s = time.monotonic()
    captured = ask({"Profile": profile, "Terminate": terminate}, tmp_path, duration_s=60.0)
    elapsed_s = time.monotonic() - begin_s
    said = re.fullmatch(r"interrupted after ([\d.]+) s; what was recorded is kept", captured.message)
    assert said
    assert float(said[1]) < elapsed_s - 0.9


def test_what_the_profiler_reported_about_the_gpu(tmp_path: Path) -> None:
    captured = ask({"Profile": give(TRACE + NO_PERMISSION)}, tmp_path)
    assert captured.reason == "gpu_missing"
    assert captured.path is not None, "the host part is worth keeping"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in captured.message


def test_without_the_device_tracer_no_gpu_part_is_missed(tmp_path: Path) -> None:
    captured = ask({"Profile": give(TRACE + NO_PERMISSION)}, tmp_path, options=TracerOptions(2, 0, 0))
    assert captured.reason == ""


def test_the_overhead_that_a_server_measured(tmp_path: Path) -> None:
    def answer(value: str) -> Answer:
        def respond(request: Any, context: grpc.ServicerContext) -> bytes:
            context.set_trailing_metadata((("tfperf-overhead-percent", value),))
            return response(TRACE)

        return respond

    assert ask({"Profile": answer("12.5")}, tmp_path).overhead_percent == 12.5
    for odd in ("nan", "inf", "much"):
        assert ask({"Profile": answer(odd)}, tmp_path).overhead_percent is None


def test_a_unix_socket(tmp_path: Path) -> None:
    with serving({"Profile": give()}, f"unix:{tmp_path}/s"):
        captured = ask_at(f"unix://{tmp_path}/s", tmp_path)
    assert (captured.reason, captured.event_count) == ("", 2)


def test_ipv6(tmp_path: Path) -> None:
    with serving({"Profile": give()}, "[::1]:0") as port:
        captured = ask_at(f"grpc://[::1]:{port}", tmp_path)
    assert (captured.reason, captured.worker) == ("", f"[::1]:{port}")


def test_tls(tmp_path: Path, capture: Capture) -> None:
    credentials = grpc.ssl_server_credentials([(KEY.read_bytes(), CERTIFICATE.read_bytes())])
    with serving({"Profile": give()}, credentials=credentials) as port:
        done = capture("--port", port, "--tls-ca", CERTIFICATE, "--format", "json")
        plain = ask_at(f"localhost:{port}", tmp_path / "plain")
        wrong = ask_at(f"localhost:{port}", tmp_path / "wrong", tls_ca=Path(__file__))
    assert done.code == 0, done.err
    assert (plain.path, plain.reason in ("tls", "not_a_profiler")) == (None, True)
    assert (wrong.path, wrong.reason) == (None, "tls")


def test_continuous_profiling_of_a_server_that_cannot(capture: Capture) -> None:
    with serving({"Profile": give()}) as port:
        done = capture("--port", port, "--continuous", "--format", "json")
    assert (done.code, done.json["summary"]["reason"]) == (1, "unsupported")
    assert "cannot profile continuously" in done.err


def test_a_full_disk_or_no_permission_is_said_before_anything_is_asked(capture: Capture) -> None:
    (capture.folder / "file").touch()
    done = capture("--port", 1, "--logdir", "file/logs")
    assert (done.code, done.out) == (1, "")
    assert "name a folder" in done.err
