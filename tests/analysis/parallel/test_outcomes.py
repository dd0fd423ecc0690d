"""What comes of a host: a value, or an error about its file. What is a bug stays an exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfperf.analysis.parallel.outcomes import FORKED_BYTES, Told, attempt, in_sequence, jobs_for, may_fork
from tfperf.base.errors import TfperfError, TraceFormatError, TraceNotFoundError
from tfperf.trace.logdir import HostFile

FILES = [HostFile(name, Path(f"{name}.xplane.pb")) for name in ("a", "b", "c")]


def failing(file: HostFile, progress: object = None) -> str:
    errors: dict[str, Exception] = {
        "a": TraceFormatError("a is damaged"),
        "b": PermissionError(13, "Permission denied"),
        "c": MemoryError(),
    }
    raise errors[file.host]


def test_an_error_about_a_file_is_an_outcome() -> None:
    errors = [outcome.error for outcome in attempt(failing, FILES)]
    assert [str(error).partition(": tfperf requires")[0] for error in errors] == [
        "a is damaged",
        "cannot read b.xplane.pb: Permission denied",
        "not enough memory for c.xplane.pb",
    ]
    assert [type(error) for error in errors] == [TraceFormatError, TraceNotFoundError, TfperfError]


def test_a_bug_is_an_exception() -> None:
    with pytest.raises(ZeroDivisionError):
        attempt(lambda file: 1 // 0, FILES)


def test_in_sequence_tells_how_many_hosts_are_done() -> None:
    told: list[tuple[int, int]] = []
    outcomes = in_sequence(failing, FILES, Told(hosts_done=lambda done, total: told.append((done, total))))
    assert len(outcomes) == 3
    assert told == [(1, 3), (2, 3), (3, 3)]


# --- how many processes pay ---


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
    small = files(tmp_path, 10, 10, 10)
    assert [jobs_for(small, wanted) for wanted in (1, 2, 9)] == [1, 2, 3], "as the user says"


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
