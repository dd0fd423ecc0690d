"""Jobs to profile: real ones with TensorFlow, and a double of the profiler server for what it cannot be made to do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from capture.made import Made
from click.testing import Result
from job_environment import PROFILER_ALONE, WITHOUT_PANDAS, job_environment

from tfperf.base.errors import CaptureError
from tfperf.capture.address import Address
from tfperf.capture.client import ProfilerClient, profile_request
from tfperf.capture.outcomes import TracerOptions

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as plain:
        plain.bind(("127.0.0.1", 0))
        return int(plain.getsockname()[1])


@dataclass
class Job:
    port: int
    process: subprocess.Popen[str]
    arguments: tuple[str | Path, ...] = ()

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.strip() == "ready", (line, self.process.poll())

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(30)
        if self.process.stdout:
            self.process.stdout.close()


def start_job(mode: str, *arguments: str | Path) -> Job:
    port = free_port()
    command = [sys.executable, str(HERE / "job.py"), str(port), mode, *map(str, arguments)]
    more = {"busy": (WITHOUT_PANDAS,), "slower": (), "plain": (PROFILER_ALONE,)}[mode]
    environment = job_environment(*more, keras=mode == "busy")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    return Job(port, process, arguments)


@pytest.fixture(scope="session")
def shared_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Job]]:
    """Jobs that many tests share, started together: `busy` with Keras, `other` marks steps alone, and `idle`."""
    works = tmp_path_factory.mktemp("jobs")
    (works / "other").touch()
    started = {"busy": start_job("busy"), **{name: start_job("plain", works / name) for name in ("other", "idle")}}
    try:
        for job in started.values():
            job.wait_until_ready()
        yield started
    finally:
        for job in started.values():
            job.end()


@pytest.fixture
def jobs(shared_jobs: dict[str, Job]) -> Iterator[dict[str, Job]]:
    """The jobs that many tests share; between the tests that use them they take no time from others."""
    for job in shared_jobs.values():
        job.process.send_signal(signal.SIGCONT)
    yield shared_jobs
    for job in shared_jobs.values():
        job.process.send_signal(signal.SIGSTOP)


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.json["sections"]["capture"]["tables"]["captured"]["rows"]
        return rows


def ended(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate(timeout=120)
    return Done(process.returncode, out, err)


def read_until(process: subprocess.Popen[str], words: str, times: int = 1) -> str:
    """Read what a command says on stderr until some words came that often; return it."""
    assert process.stderr is not None
    output = ""
    while output.count(words) < times:
        line = process.stderr.readline()
        assert line, output
        output += line
    return output


def wait_until_profiled(port: int) -> None:
    """Wait until somebody profiles the job, which refuses others then. Who does needs --retries: this asks it, too."""
    request = profile_request(TracerOptions(), 1, Path("logs/look/host.xplane.pb"))
    until = time.monotonic() + 60
    with ProfilerClient(Address("localhost", port)) as client:
        while time.monotonic() < until:
            try:
                client.profile(request, 20).result()
            except CaptureError as error:
                if error.reason != "busy":
                    raise
                return
            time.sleep(0.2)
    raise AssertionError("nobody profiles the job")


def wait_until_worked(job: subprocess.Popen[str], cpu_s: float = 0.2) -> None:
    """Wait until the job has computed for a while: on a loaded machine it may do nothing for long."""

    def clock_ticks() -> int:
        fields = Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    until, enough = time.monotonic() + 60, clock_ticks() + cpu_s * os.sysconf("SC_CLK_TCK")
    while clock_ticks() < enough:
        assert time.monotonic() < until, "the job does nothing"
        time.sleep(0.05)


def start_tfperf(folder: Path, *words: object, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tfperf", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, text=True, start_new_session=True, **{**pipes, **options})


class Capture:
    """`tfperf capture` in a folder of its own, which is the current one: in this process, or started in its own."""

    def __init__(self, folder: Path, run_tfperf: Callable[..., Result]) -> None:
        self.folder, self._run_tfperf = folder, run_tfperf

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return start_tfperf(self.folder, "capture", *arguments)

    def __call__(self, *arguments: object) -> Done:
        done = self._run_tfperf("capture", *arguments)
        return Done(done.exit_code, done.stdout, done.stderr)

    @property
    def traces(self) -> list[Path]:
        return sorted(self.folder.rglob("*.xplane.pb"))


@pytest.fixture
def capture(tmp_path: Path, run_tfperf: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> Capture:
    monkeypatch.chdir(tmp_path)
    return Capture(tmp_path, run_tfperf)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)
