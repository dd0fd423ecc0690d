"""A cluster of dask, in processes of its own: the same document, workers that die, a scheduler that is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, logdir_of, space

import tfperf
from tfperf.analysis.parallel import cluster
from tfperf.analysis.parallel.outcomes import Told
from tfperf.analysis.parallel.over_hosts import over_hosts
from tfperf.base.errors import TfperfError
from tfperf.report.render import RenderOptions, render
from tfperf.trace.logdir import HostFile

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


ENDLESS = """
from pathlib import Path
import os, time

def endless(file):
    worker = os.getppid()
    file.path.with_suffix(".begun").touch()
    try:
        while os.getppid() == worker:
            time.sleep(0.01)
    finally:
        file.path.with_suffix(".ended").touch()
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with modules that workers can import."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "endless.py").write_text(ENDLESS)
    return folder


@pytest.fixture(scope="module")
def dask(modules: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a cluster of one worker, and the processes of its scheduler and of the worker."""
    address, module = f"tcp://127.0.0.1:{free_port()}", [sys.executable, "-m", "distributed.cli"]
    alone = ["--no-dashboard", "--host", "127.0.0.1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(modules), *filter(None, sys.path)])}
    commands = (
        [f"{module[2]}.dask_scheduler", *alone, "--port", address.rpartition(":")[2]],
        [f"{module[2]}.dask_worker", address, *alone, "--nthreads", "1", "--no-nanny"],
    )
    processes = [
        subprocess.Popen(
            [*module[:2], *command],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        for command in commands
    ]
    try:
        yield address, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def document(analysis: tfperf.Analysis) -> str | bytes:
    return render(analysis.report(), "json", RenderOptions())


def awaited(path: Path) -> None:
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.1)
    pytest.fail(f"{path} is not there")


def test_ctrl_c_stops_what_a_worker_is_at(
    dask: tuple[str, list[subprocess.Popen[bytes]]], modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(modules)
    from endless import endless  # type: ignore[import-not-found]

    with pytest.raises(KeyboardInterrupt), cluster.connected(dask[0]) as workers:  # noqa: PT012
        workers.executor.submit(workers.run, endless, [HostFile("a", tmp_path / "a.xplane.pb")])
        awaited(tmp_path / "a.xplane.begun")
        raise KeyboardInterrupt
    awaited(tmp_path / "a.xplane.ended")


def fail_while_busy(
    address: str, folder: Path, said: str, fault: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let a worker work for ever; once it has begun, let `fault` happen, and expect an error that says so."""
    monkeypatch.setattr(cluster, "_ASK_S", 0.5)
    from endless import endless

    def wait_and_fail() -> None:
        awaited(folder / "a.xplane.begun")
        fault()

    thread = threading.Thread(target=wait_and_fail)
    thread.start()
    try:
        with pytest.raises(TfperfError, match=said), cluster.connected(address) as workers:
            over_hosts(endless, [HostFile("a", folder / "a.xplane.pb")], workers, Told())
    finally:
        thread.join()


def test_a_scheduler_that_hangs_is_named(
    dask: tuple[str, list[subprocess.Popen[bytes]]], modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(modules)
    monkeypatch.setattr(cluster, "ANSWER_S", 3)
    address, (scheduler, _) = dask
    said = f"the dask scheduler at {address} has not responded for 3 s"
    try:
        fail_while_busy(address, tmp_path, said, lambda: scheduler.send_signal(signal.SIGSTOP), monkeypatch)
    finally:
        scheduler.send_signal(signal.SIGCONT)
    awaited(tmp_path / "a.xplane.ended")


def test_a_cluster_says_the_same(dask: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path) -> None:
    steps = space(host(*(event("train", 100 * number, 100, step_num=number) for number in range(4))))
    logdir = logdir_of(tmp_path, a=steps, b=b"", c=steps)
    assert document(tfperf.load(logdir, cluster=dask[0])) == document(tfperf.load(logdir, jobs=1))


def test_an_error_of_closing_hides_no_other(
    dask: tuple[str, list[subprocess.Popen[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask fails to close a connection whose scheduler died while it connects again, which cannot be had on demand."""
    import distributed

    close = distributed.Client.close

    def fail(client: Any, timeout: float) -> None:
        close(client, timeout=timeout)
        raise RuntimeError("Cannot change state of expiring Timeout")

    monkeypatch.setattr(distributed.Client, "close", fail)
    with pytest.raises(tfperf.TfperfError, match="the reason"), cluster.connected(dask[0]):
        raise tfperf.TfperfError("the reason")


def test_the_deaths_of_the_only_worker_and_of_the_scheduler_are_named(
    dask: tuple[str, list[subprocess.Popen[bytes]]], modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test of the cluster, which is not there any more."""
    monkeypatch.syspath_prepend(modules)
    address, (scheduler, worker) = dask

    def kill() -> None:
        monkeypatch.setattr(cluster, "WORKERS_S", 2)
        worker.kill()

    lost = pytest.raises(tfperf.TfperfError, match="the connection to the cluster")
    with lost, cluster.connected(address) as workers:
        said = f"the cluster at {address} has had no workers for 2 s"
        fail_while_busy(address, tmp_path, said, kill, monkeypatch)
        scheduler.send_signal(signal.SIGKILL)
        scheduler.wait()
        while workers.check:
            workers.check()


def test_no_scheduler_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_S", 0.5)
    with pytest.raises(tfperf.TfperfError, match=r"no dask scheduler responds at tcp://127.0.0.1:\d+: "):
        tfperf.load(logdir_of(tmp_path, a=b"", b=b""), cluster=f"tcp://127.0.0.1:{free_port()}")
    with pytest.raises(tfperf.TfperfError, match="no dask scheduler responds at nonsense"):
        tfperf.load(logdir_of(tmp_path / "2", a=b"", b=b""), cluster="nonsense")
