"""The first Ctrl-C stops, a later one interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from live.fake_jobs import fake_job, gives, steps_trace

from tfperf.capture import remote
from tfperf.capture.remote import stop_on_signal


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_the_first_signal_stops_whichever_it_is(name: str) -> None:
    number = getattr(signal, name, None)
    if number is None:
        pytest.skip("this system has no such signal")
    before = signal.getsignal(number)
    with stop_on_signal() as stop:
        signal.raise_signal(number)
        assert stop.wait(60)
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
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted; 0 of 2 workers gave a trace\n")
    assert not (tmp_path / "logs").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_capture_that_waits_for_its_job_ends_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    with fake_job(gives(steps_trace(2000), after_s=3.0)) as job:
        command = [
            sys.executable,
            "-m",
            "tfperf",
            "capture",
            "--port",
            str(job.port),
            "--duration",
            "60s",
            "--all-or-nothing",
        ]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        asking = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, env=environment, text=True)
        until_s = time.monotonic() + 120
        while not job.asked:
            assert time.monotonic() < until_s
            time.sleep(0.05)
        asking.send_signal(getattr(signal, name))
        _, said = asking.communicate(timeout=120)
    assert "Traceback" not in said
    left = [path for path in tmp_path.rglob("*") if not path.name.endswith(".xplane.pb") and path.is_file()]
    assert left == [], "no temporary files"
    for folder in tmp_path.rglob("plugins/profile/*"):
        assert [*folder.iterdir()], "no empty run folder"


def test_the_first_signal_stops_and_a_later_one_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(60)
        time.sleep(0.6)  # Signals within half a second count as one.
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_cannot_catch_signals_and_is_left_alone() -> None:
    stops: list[bool] = []

    def run() -> None:
        with stop_on_signal() as stop:
            stops.append(stop.is_set())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert stops == [False]
