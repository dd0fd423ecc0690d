"""Hosts on an executor: the order of outcomes, workers that die, cancelling."""

from __future__ import annotations

import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from tfperf.analysis.parallel.outcomes import Told
from tfperf.analysis.parallel.over_hosts import Workers, over_hosts
from tfperf.analysis.parallel.worker_pool import WorkerPool
from tfperf.base.errors import TfperfError
from tfperf.trace.logdir import HostFile


def files(count: int) -> list[HostFile]:
    return [HostFile(str(number), Path(f"{number}.xplane.pb")) for number in range(count)]


def slow_first(file: HostFile) -> str:
    time.sleep(0.05 if file.host == "0" else 0)
    return file.host


def test_outcomes_are_in_the_order_of_hosts_and_progress_counts_them() -> None:
    told: list[tuple[int, int]] = []
    with ThreadPoolExecutor(4) as executor:
        outcomes = over_hosts(
            slow_first,
            files(600),
            Workers(executor=executor),
            Told(hosts_done=lambda done, total: told.append((done, total))),
        )
    assert [outcome.value for outcome in outcomes] == [str(number) for number in range(600)]
    assert told == sorted(told)
    assert told[-1] == (600, 600)
    assert len(told) == 300  # small hosts go in groups


def test_a_few_workers_get_larger_groups() -> None:
    told: list[int] = []
    with ThreadPoolExecutor(1) as executor:
        workers = Workers(executor=executor, groups=64)
        over_hosts(slow_first, files(600), workers, Told(hosts_done=lambda done, _: told.append(done)))
    assert len(told) == 600 // (600 // 64) + 1


class Breaking(Executor):
    """An executor whose workers die: of the first host, or from then on."""

    def __init__(self, *, for_good: bool) -> None:
        self.for_good, self.is_broken = for_good, False

    def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if arguments[1][0].host == "0":
            self.is_broken = True
            future.set_exception(BrokenProcessPool("a process died"))
        elif self.is_broken and self.for_good:
            raise BrokenProcessPool("a process died before")
        else:
            future.set_result(function(*arguments))
        return future


@pytest.mark.parametrize("for_good", [False, True])
def test_hosts_of_a_worker_that_died_are_analyzed_again(for_good: bool) -> None:
    with ThreadPoolExecutor(1) as second:
        workers = Workers(executor=Breaking(for_good=for_good), second=second)
        outcomes = over_hosts(slow_first, files(3), workers, Told())
    assert [outcome.value for outcome in outcomes] == ["0", "1", "2"]


_DYING = """
import os, signal
from pathlib import Path
def die(file):
    mark = Path(r"{folder}", file.host)
    if file.host == "1" or (file.host == "2" and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return file.host
"""


def test_a_host_whose_worker_dies_twice_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dying.py").write_text(_DYING.format(folder=tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    from dying import die  # type: ignore[import-not-found]

    with WorkerPool(2) as pool:
        outcomes = over_hosts(die, files(4), Workers(executor=pool), Told())
    assert [outcome.value for outcome in outcomes] == ["0", None, "2", "3"]
    assert str(outcomes[1].error).startswith("1.xplane.pb: its worker process was killed by SIGKILL")
    assert str(outcomes[1].error).endswith(", twice")


def test_work_that_somebody_cancels_is_an_error() -> None:
    class Cancelled(Executor):
        def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    with pytest.raises(TfperfError, match="were cancelled"):
        over_hosts(slow_first, files(2), Workers(executor=Cancelled()), Told())


def test_a_check_ends_waiting_for_what_never_comes() -> None:
    class Silent(Executor):
        def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
            made.append(Future())
            return made[-1]

    def check() -> None:
        raise TfperfError("the connection is lost")

    made: list[Future[Any]] = []
    with pytest.raises(TfperfError, match="connection is lost"):
        over_hosts(slow_first, files(2), Workers(executor=Silent(), check=check), Told())
    assert all(future.cancelled() for future in made)
