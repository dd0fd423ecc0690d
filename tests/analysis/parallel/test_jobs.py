"""How many processes pay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfperf.analysis.parallel.outcomes import FORKED_BYTES, jobs_for, may_fork
from tfperf.trace.logdir import HostFile


def files(folder: Path, *sizes: int) -> list[HostFile]:
    """Files of so many bytes, which take no space on disk."""
    made = []
    for number, size in enumerate(sizes):
        path = folder / f"{number}.xplane.pb"
        with path.open("wb") as file:
            file.truncate(size)
        made.append(HostFile(str(number), path))
    return made


@pytest.mark.parametrize("sizes", [(), (10**9,), (1000, 1000), (10**6,) * 20])
def test_one_host_and_little_work_need_no_pool(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    assert jobs_for(files(tmp_path, *sizes)) <= 1


def test_a_pool_has_no_more_processes_than_hosts_and_memory(tmp_path: Path) -> None:
    assert jobs_for(files(tmp_path, 10**8, 10**8)) <= 2
    assert jobs_for(files(tmp_path, 10**12, 10**12)) == 1


def test_a_copy_helps_with_a_large_host_unless_the_user_wants_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfperf.analysis.parallel.outcomes._cores", lambda: 2)
    small, large, beyond_memory = files(tmp_path, FORKED_BYTES - 1, FORKED_BYTES, 10**13)
    assert [may_fork(file, None) for file in (small, large, beyond_memory)] == [False, True, False]
    assert may_fork(large, 2)
    assert not may_fork(large, 1)
    monkeypatch.setattr("tfperf.analysis.parallel.outcomes._cores", lambda: 1)
    assert not may_fork(large, None)


def test_the_user_may_say_how_many(tmp_path: Path) -> None:
    small = files(tmp_path, 10, 10, 10)
    assert [jobs_for(small, wanted) for wanted in (1, 2, 9)] == [1, 2, 3]
