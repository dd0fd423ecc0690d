"""Small files that once stalled a command, filled the memory, or ended in a traceback; as real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from builders import event, host, line, plane, ref, space
from protobytes import varint

pytestmark = pytest.mark.timing

MOST_BYTES = 2_000_000_000
SECONDS = 10
"""Bars of one process, of its memory and of processor time; most take a tenth."""


def sparse(path: Path, size: int) -> None:
    """Write a plane whose name has so many bytes, of which the disk holds none."""
    inner = b"\x12" + varint(size)
    with path.open("wb") as file:
        file.write(b"\x0a" + varint(len(inner) + size) + inner)
        file.seek(size - 1, os.SEEK_CUR)
        file.write(b"\0")


def many_lines() -> bytes:
    body = b"\x12\x09/host:CPU" + b"\x1a\x00" * 5_000_000
    return b"\x0a" + varint(len(body)) + body


def orphans() -> bytes:
    """Calls of thousands of stages whose consumers are not in the capture."""
    calls = [event(f"Iterator::A{n}::Map::Range", n, 1, id=n + 1, parent_id=9_000_000 + n) for n in range(6000)]
    return space(host(*calls))


FILES = {
    "gpuzero": lambda: space(plane("/device:GPU:0", line("s", event("k", 0, 0)))),
    "iterator": lambda: space(host(event("Iterator" + "::Map" * 20_000, 0, 9, id=1))),
    "planes": lambda: space(*(plane("/device:GPU:0", line("s", event("k", 0, 9))) for _ in range(2000))),
    "tpus": lambda: space(*(plane(f"/device:TPU:{n}", line("XLA Ops", event("k", n, 9))) for n in range(3000))),
    "choose": lambda: space(host(event("Iterator::" + "Choose" * 33_000 + "::Map", 0, 9, id=1))),
    "digits": lambda: space(host(event("TraceContext", 0, 9, group_id=1, step_name=ref("1" * 200_000 + "x")))),
    "orphans": orphans,
    "lines": many_lines,
}


class Ended(NamedTuple):
    """A process that has ended."""

    returncode: int
    stdout: str
    stderr: str
    peak_bytes: int


def run(path: Path, command: tuple[str, ...], tmp_path: Path, address_space: int | None = None) -> Ended:
    """Run a command as a process, which the system ends if it takes twice the time that it may."""

    arguments = [each.format(out=tmp_path / "out") for each in command]
    limits = f"ulimit -t {SECONDS * 2}" + (f" && ulimit -v {address_space // 1024}" if address_space else "")
    tfperf = [sys.executable, "-m", "tfperf", arguments[0], str(path), *arguments[1:]]
    program = ["sh", "-c", f'{limits} && exec "$@"', "sh", *tfperf]
    stdout, stderr = tmp_path / "stdout", tmp_path / "stderr"
    with stdout.open("w") as out, stderr.open("w") as err:
        process = subprocess.Popen(program, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Ended(process.returncode, stdout.read_text(), stderr.read_text(), usage.ru_maxrss * 1024)


def assert_ended_well(done: Ended) -> None:
    assert done.returncode in (0, 1), (done.returncode, done.stderr[-2000:])
    assert done.peak_bytes < MOST_BYTES
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 1000
    if done.returncode == 1 and not done.stdout:
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "command"),
    [
        *((name, ("analyze", "--full")) for name in FILES),
        ("digits", ("timeline", "-o", "{out}.pftrace")),
        ("planes", ("timeline", "-o", "{out}.pftrace")),
        ("iterator", ("check", "--max-input-bound", "10%")),
    ],
)
def test_no_file_stalls_a_command(name: str, command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(FILES[name]())
    assert_ended_well(run(path, command, tmp_path))


@pytest.mark.parametrize("size", [9 << 30, 1900 << 20])
def test_sizes_are_checked_before_anything_is_read(size: int, tmp_path: Path) -> None:
    path = tmp_path / "vm.xplane.pb"
    sparse(path, size)
    done = run(path, ("analyze",), tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert_ended_well(done)


def test_a_piece_that_the_machine_has_no_memory_for(tmp_path: Path) -> None:
    path = tmp_path / "vm.xplane.pb"
    # Names of events are a part of the plane that is decoded in one go.
    size = 1900 << 20
    inner = b"\x22" + varint(size)
    with path.open("wb") as file:
        file.write(b"\x0a" + varint(len(inner) + size) + inner)
        file.seek(size - 1, os.SEEK_CUR)
        file.write(b"\0")
    done = run(path, ("analyze",), tmp_path, address_space=3 * 10**9)
    assert (done.returncode, done.stdout) == (1, "")
    assert "too large for this machine, or damaged" in done.stderr
    assert_ended_well(done)
