"""A pool of real processes: what it returns and raises, and that nothing of it stays."""

from __future__ import annotations

import math
import operator
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator

import pytest

from tfperf.analysis.parallel.worker_main import answer, packed
from tfperf.analysis.parallel.worker_pool import WorkerDiedError, WorkerPool
from tfperf.base.errors import TfperfWarning


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1) as pool:
        yield pool


def exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_calls_are_answered_by_another_process(pool: WorkerPool) -> None:
    assert [pool.submit(math.sqrt, number).result() for number in (4, 9)] == [2.0, 3.0]
    assert pool.submit(os.getpid).result() != os.getpid()


def test_an_exception_has_the_traceback_of_the_worker(pool: WorkerPool) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        pool.submit(operator.floordiv, 1, 0).result()
    assert "in a worker process:\nTraceback (most recent call last):" in str(raised.value.__cause__)


def test_what_is_printed_does_not_disturb_answers(pool: WorkerPool) -> None:
    assert pool.submit(os.write, 1, b"").result() == 0
    assert pool.submit(eval, "print('\\n', flush=True) or 5").result() == 5


def test_warnings_come_from_the_worker_once(pool: WorkerPool) -> None:
    text = "__import__('warnings').warn('slow', __import__('tfperf').TfperfWarning)"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            pool.submit(eval, text).result()
    assert [(each.category, str(each.message)) for each in caught] == [(TfperfWarning, "slow")]


def test_what_cannot_be_pickled_is_an_error() -> None:
    import pickle

    value, failure, text, _ = pickle.loads(packed((lambda: 1, None, "", ())))
    assert value is None
    assert isinstance(failure, RuntimeError)
    assert "pickle" in text
    assert answer(b"no pickle")[1] is not None


@pytest.mark.parametrize(
    ("call", "death"), [((os._exit, 3), "ended with exit code 3"), ((os.abort,), "was killed by SIGABRT")]
)
def test_a_worker_that_dies_fails_its_call_only(pool: WorkerPool, call: tuple[object, ...], death: str) -> None:
    with pytest.raises(WorkerDiedError, match=death):
        pool.submit(*call).result()  # type: ignore[arg-type]
    assert pool.submit(math.sqrt, 4).result() == 2.0


def test_an_exception_ends_workers_in_their_work() -> None:
    with pytest.raises(KeyboardInterrupt), WorkerPool(1) as pool:  # noqa: PT012
        worker = pool.submit(os.getpid).result()
        busy, *_, waiting = pool.submit(time.sleep, 600), pool.submit(math.sqrt, 4), pool.submit(math.sqrt, 4)
        while not busy.running():
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert not exists(worker)
    assert isinstance(busy.exception(), WorkerDiedError)
    assert waiting.cancelled()


_PARENT = """
from tfperf.analysis.parallel.worker_pool import WorkerPool
import os
# A script without a guard: a worker must not run it again.
pool = WorkerPool(1)
print(pool.submit(os.getpid).result(), flush=True)
os.kill(os.getpid(), 9)
"""


def test_workers_do_not_outlive_a_parent_that_is_killed() -> None:
    parent = subprocess.run([sys.executable, "-c", _PARENT], check=False, capture_output=True, text=True, timeout=60)
    worker = int(parent.stdout)
    for _ in range(600):
        if not exists(worker):
            return
        time.sleep(0.1)
    pytest.fail(f"worker {worker} still runs")
