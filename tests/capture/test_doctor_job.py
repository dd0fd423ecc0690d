"""What `tfperf doctor --port` says about jobs: real ones, and a double of a server for what TensorFlow does not do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from builders import event, host, line, plane, space
from capture.conftest import Job, free_port
from capture.double import Answer, refuse, response, serving
from capture.made import Made, by_name

from tfperf.capture.address import Address
from tfperf.capture.doctor import job_checks
from tfperf.capture.machine import Machine
from tfperf.capture.outcomes import Check

BUSY_SERVER: Answer = refuse(grpc.StatusCode.INTERNAL, "Another profiling session active.")


def ask(port: int) -> dict[str, Check]:
    return by_name(job_checks(Address("localhost", port), Machine()))


def test_a_job_at_work(jobs: dict[str, Job]) -> None:
    job = jobs["busy"]
    checks = ask(job.port)
    assert {check.status for check in checks.values()} == {"ok"}
    assert f"job.py (pid {job.process.pid}) listens" in checks["port"].found
    assert " events in " in checks["trace of the job"].found
    assert checks["job's GPU"].found == "no GPU in the trace, and no evidence that the job uses one"


def test_an_idle_job(jobs: dict[str, Job]) -> None:
    checks = ask(jobs["idle"].port)
    assert checks["profiler"].status == "ok"
    assert checks["trace of the job"].status == "warn"
    assert "--wait-for-activity" in checks["trace of the job"].fix


def test_nobody_listens() -> None:
    check = ask(free_port())["profiler"]
    assert (check.status, "no server listens" in check.found) == ("fail", True)
    assert "tfperf.serve()" in check.fix


def test_something_else_listens(http_port: int) -> None:
    check = ask(http_port)["profiler"]
    assert (check.status, "not a profiler server" in check.found) == ("fail", True)


def test_a_job_that_is_profiled_already() -> None:
    with serving({"Profile": BUSY_SERVER}) as port:
        check = ask(port)["profiler"]
    assert (check.status, "already being profiled" in check.found) == ("warn", True)


def test_an_old_server_whose_disk_is_this_one() -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> bytes:
        place = Path(request.repository_root) / request.session_id
        place.mkdir(parents=True)
        (place / f"{request.host_name}.xplane.pb").write_bytes(space(host(event("train", 0, 5))))
        return response()

    with serving({"Profile": answer}) as port:
        assert "1 event" in ask(port)["trace of the job"].found


def test_an_old_server_whose_disk_is_another() -> None:
    with serving({"Profile": lambda request, context: response()}) as port:
        check = ask(port)["profiler"]
    assert (check.status, "its own disk" in check.found) == ("warn", True)


def test_a_server_that_sends_no_trace() -> None:
    with serving({"Profile": lambda request, context: response(b"<html>")}) as port:
        assert ask(port)["profiler"].status == "fail"


def test_a_job_with_a_gpu() -> None:
    trace = space(host(event("train", 0, 5)), plane("/device:GPU:0", line("Stream #7(Compute)", event("gemm", 0, 5))))
    with serving({"Profile": lambda request, context: response(trace)}) as port:
        assert ask(port)["job's GPU"] == Check("job's GPU", "ok", "1 event")


def test_a_job_whose_gpu_is_not_traced() -> None:
    trace = space(host(event("train", 0, 5)), errors=("Failed to load libcupti (is it installed and accessible?)",))
    with serving({"Profile": lambda request, context: response(trace)}) as port:
        check = ask(port)["job's GPU"]
    assert (check.status, "libcupti" in check.found, "LD_LIBRARY_PATH" in check.fix) == ("fail", True, True)


def test_a_job_that_cannot_be_seen_has_not_the_rights_of_this_process(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.gpu()
    made.restrict(restricted=True, capabilities=1 << 21)
    trace = space(host(event("cuLaunchKernel", 0, 5)))
    with serving({"Profile": lambda request, context: response(trace)}) as port:
        check = by_name(job_checks(Address("localhost", port), made.machine))["job's GPU"]
    assert check.fix.startswith("the driver of this machine allows only administrators to profile")
