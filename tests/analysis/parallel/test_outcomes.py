"""What comes of a host: a value, or an error about its file. What is a bug stays an exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfperf.analysis.parallel.outcomes import Told, attempt, in_sequence
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
    assert [str(error).partition(": tfperf takes")[0] for error in errors] == [
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
