"""Which profiles are read ahead, and that nothing goes on when nobody waits for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, logdir_of, space

from tfperf.parquet.event_table import NestedTrace, with_nesting
from tfperf.parquet.read_ahead import reading_ahead
from tfperf.storage.remote_path import RemotePath
from tfperf.trace.logdir import HostFile
from tfperf.trace.read import read_host

STEPS = space(host(*(event("train", 100 * n, 100, step_num=n) for n in range(3))))


class Reader:
    """Reads, and notes in which thread."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def __call__(self, file: HostFile, **more: Any) -> NestedTrace:
        self.threads.append(threading.current_thread().name)
        return with_nesting(read_host(file.path, file.host, **more))


def host_file(logdir: Path, name: str = "a") -> HostFile:
    (path,) = logdir.rglob(f"{name}.xplane.pb")
    return HostFile(name, path)


def test_a_single_host_is_read_in_a_thread_and_once(tmp_path: Path) -> None:
    logdir, read = logdir_of(tmp_path, a=STEPS), Reader()
    with reading_ahead(logdir, read, {}) as ahead:
        assert len(ahead.of(host_file(logdir)).trace.name) == 3
    assert len(read.threads) == 1
    assert read.threads[0].startswith("tfperf-read-ahead")


def test_several_hosts_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    logdir, read = logdir_of(tmp_path, a=STEPS, b=STEPS), Reader()
    with reading_ahead(logdir, read, {}) as ahead:
        assert read.threads == []
        ahead.of(host_file(logdir, "b"))
    with reading_ahead(str(logdir), read, {"hosts": ["b"], "host_patterns": ()}) as ahead:
        assert len(ahead.of(host_file(logdir, "b")).trace.name) == 3
    assert [name.startswith("tfperf-read-ahead") for name in read.threads] == [False, True]


@pytest.mark.parametrize("path", ["nothing/here", RemotePath("memory://nothing")], ids=str)
def test_what_cannot_be_found_is_left_to_others(path: Any) -> None:
    with reading_ahead(path, Reader(), {}) as ahead:
        assert ahead.events is None


def test_another_file_than_was_read_ahead_is_read(tmp_path: Path) -> None:
    logdir, other, read = logdir_of(tmp_path, a=STEPS), logdir_of(tmp_path / "other", a=STEPS), Reader()
    with reading_ahead(logdir, read, {}) as ahead:
        ahead.of(host_file(other))
    assert len(read.threads) == 2


def test_the_thread_ends_when_nobody_waits(tmp_path: Path) -> None:
    """The reader tells how far it is until it is stopped."""
    logdir, begun = logdir_of(tmp_path, a=STEPS), threading.Event()

    def read_for_ever(file: HostFile, progress: Any) -> NestedTrace:
        while True:
            begun.set()
            progress(1, 2)

    def interrupted() -> None:
        with reading_ahead(logdir, read_for_ever, {}):
            assert begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not any(thread.name.startswith("tfperf-read-ahead") for thread in threading.enumerate())


def test_an_error_of_the_reader_comes_where_the_events_are_asked_for(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=STEPS)

    def read(file: HostFile, progress: Any) -> NestedTrace:
        raise MemoryError

    with reading_ahead(logdir, read, {}) as ahead, pytest.raises(MemoryError):
        ahead.of(host_file(logdir))
