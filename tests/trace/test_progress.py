"""One progress over several files."""

from __future__ import annotations

from pathlib import Path

from tfperf.trace.logdir import HostFile
from tfperf.trace.read import progress_by_file


def test_bytes_are_counted_over_all_files(tmp_path: Path) -> None:
    files = []
    for name, size in (("a", 3), ("b", 5)):
        (tmp_path / name).write_bytes(bytes(size))
        files.append(HostFile(name, tmp_path / name))
    seen: list[tuple[int, int]] = []
    for each in progress_by_file(files, lambda done, total: seen.append((done, total))):
        assert each is not None
        each(2, 99)
    assert seen == [(2, 8), (5, 8)]


def test_nobody_is_told_if_nobody_asks(tmp_path: Path) -> None:
    assert progress_by_file([HostFile("a", tmp_path)], None) == [None]
    assert progress_by_file([], lambda done, total: None) == []
