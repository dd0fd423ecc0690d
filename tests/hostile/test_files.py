"""Small files that once stalled a command, filled the memory, or ended in a traceback; as real processes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, line, plane, ref, space
from click.testing import Result
from forks import Ended, Forks
from places import SAMPLES
from protobytes import varint

from tfperf.formats.wire import schema

pytestmark = pytest.mark.stress

MOST_BYTES = 2_000_000_000
SECONDS = 4
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
    calls = [event(f"Iterator::A{n}::Map::Range", n, 1, id=n + 1, parent_id=9_000_000 + n) for n in range(1500)]
    return space(host(*calls))


def sample() -> bytes:
    """The profile of a job that waits for its input: 19.4 ms a step, 64 % of it input."""
    (path,) = (SAMPLES / "input_bound").rglob("*.xplane.pb")
    return path.read_bytes()


def changed(change: Callable[[Any, set[int]], None]) -> bytes:
    """The sample after a change of each thread, which is given the thread and the ids of tf.data's events."""
    space = schema.message_class("XSpace").FromString(sample())
    for each in space.planes:
        of_data = {entry.key for entry in each.event_metadata if entry.value.name.startswith(b"Iterator")}
        for thread in each.lines:
            change(thread, of_data)
    if change is negative:
        space.errors.append(b"events dropped")
    data: bytes = space.SerializeToString()
    return data


def negative(thread: Any, of_data: set[int]) -> None:
    """Half of the events of tf.data end before they start, and the profiler says that it lost some."""
    for call in list(thread.events)[1::2]:
        if call.metadata_id in of_data:
            call.duration_ps = -1 - call.duration_ps


def clock(thread: Any, of_data: set[int]) -> None:
    """The thread of tf.data is 5 s off."""
    if any(call.metadata_id in of_data for call in thread.events):
        thread.timestamp_ns += 5 * 10**9


def command_of_a_runner() -> bytes:
    name = "::set-output name=deploy::true"
    return space(host(event(name, 0, 1000, tf_function_call="traced-nonXla", tracing_count=2)))


FILES = {
    "concat": lambda: sample() * 2,
    "negative": lambda: changed(negative),
    "clock": lambda: changed(clock),
    "fn": command_of_a_runner,
    "gpuzero": lambda: space(plane("/device:GPU:0", line("s", event("k", 0, 0)))),
    "iterator": lambda: space(host(event("Iterator" + "::Map" * 20_000, 0, 9, id=1))),
    "planes": lambda: space(*(plane("/device:GPU:0", line("s", event("k", 0, 9))) for _ in range(500))),
    "tpus": lambda: space(*(plane(f"/device:TPU:{n}", line("XLA Ops", event("k", n, 9))) for n in range(750))),
    "choose": lambda: space(host(event("Iterator::" + "Choose" * 33_000 + "::Map", 0, 9, id=1))),
    "digits": lambda: space(host(event("TraceContext", 0, 9, group_id=1, step_name=ref("1" * 200_000 + "x")))),
    "orphans": orphans,
    "lines": many_lines,
}


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    process = Forks(tmp_path_factory.mktemp("printed"))
    yield process
    process.end()


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
        ("planes", ("flamegraph", "-o", "{out}.html")),
        ("iterator", ("flamegraph", "-o", "{out}.svg")),
        ("clock", ("flamegraph", "--per", "step", "--format", "folded")),
        ("choose", ("flamegraph", "--by", "function", "--format", "speedscope")),
        ("iterator", ("check", "--max-input-bound", "10%")),
        ("clock", ("export-csv", "-o", "{out}")),
        ("fn", ("check", "--max-retraces", "9", "--github")),
    ],
)
def test_no_file_stalls_a_command(name: str, command: tuple[str, ...], tmp_path: Path, forks: Forks) -> None:
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(FILES[name]())
    words = [word.format(out=tmp_path / "out") for word in command[1:]]
    assert_ended_well(forks.run(command[0], path, *words, seconds=SECONDS))


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("concat", ("--max-step-time", "15ms")),
        ("negative", ("--max-input-bound", "45%")),
        ("clock", ("--max-input-bound", "45%")),
    ],
)
def test_damage_makes_no_limit_pass(
    name: str, limit: tuple[str, str], tmp_path: Path, run_tfperf: Callable[..., Result], forks: Forks
) -> None:
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(sample())
    assert run_tfperf("check", path, "--no-config", *limit).exit_code == 3
    path.write_bytes(FILES[name]())
    done = forks.run("check", path, "--no-config", *limit, seconds=SECONDS)
    assert_ended_well(done)
    assert done.returncode == 1
    assert "the profile is damaged" in " ".join(done.stdout.split())
    assert "damaged: " in run_tfperf("analyze", path).stdout


@pytest.mark.parametrize("size", [9 << 30, 1900 << 20])
def test_sizes_are_checked_before_anything_is_read(size: int, tmp_path: Path, forks: Forks) -> None:
    path = tmp_path / "vm.xplane.pb"
    sparse(path, size)
    done = forks.run("analyze", path, seconds=SECONDS)
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
    done = under_limit(3000, "-m", "tfperf", "analyze", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "too large for this machine, or damaged" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


# --- commands under `ulimit -v` ---


JOB, GRAPH = SAMPLES / "input_bound", SAMPLES / "tfprof_mlp" / "collected"


def under_limit(megabytes: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that may take so much address space."""
    size = megabytes * 1_000_000
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)),
        check=False,
    )


@pytest.mark.parametrize(
    ("megabytes", "command"),
    [
        (120, ("analyze", JOB)),
        (220, ("check", JOB, "--no-config", "--max-input-bound", "10%")),
        (220, ("lint", GRAPH)),
        (220, ("tfprof", "scope", GRAPH)),
        (250, ("query", JOB, "select 1")),
        (400, ("query", JOB, "select 1")),
        (350, ("export-parquet", JOB, "-o", "{out}")),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else value[0],
)
def test_commands(megabytes: int, command: Sequence[str | Path], tmp_path: Path) -> None:
    """Where exactly they fail differs from version to version of the libraries; what they say must not."""
    arguments = [str(each).format(out=tmp_path / "out") for each in command]
    done = under_limit(megabytes, "-m", "tfperf", *arguments)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 3), done.stderr
    if done.returncode == 1:
        assert "not enough memory" in done.stderr
        assert f"`ulimit -v` limits a process to {megabytes} MB" in done.stderr
    assert "pip install" not in done.stderr
    assert "damaged" not in done.stderr


def test_it_is_said_at_all() -> None:
    done = under_limit(60, "-m", "tfperf", "explain", "input-bound")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: not enough memory: tfperf requires 300 MB ")
    assert done.stderr.count("\n") == 1


WATCHED = """
import os, sys, time
from pathlib import Path
import tfperf.cli
from tfperf.__main__ import run

def ends():
    while Path("/proc", str(os.getppid()), "stat").read_text().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.01)  # until the other one waits for this one
    {ends}

sys.argv = ["tfperf", "{command}"]
tfperf.cli.run = ends
run()
"""


@pytest.mark.parametrize(
    ("command", "ends", "code", "said"),
    [
        ("analyze", "os.abort()", 1, "not enough memory (the process ended with SIGABRT)"),
        ("analyze", "os._exit(1)", 1, "not enough memory: "),
        ("analyze", "sys.exit(3)", 3, ""),
        ("analyze", "os.kill(os.getppid(), 15); time.sleep(60)", 128 + signal.SIGTERM, ""),
        ("run", "os._exit(127)", 127, ""),
    ],
)
def test_how_a_process_ended_is_said_by_another(command: str, ends: str, code: int, said: str) -> None:
    done = under_limit(2000, "-c", WATCHED.format(command=command, ends=ends))
    assert done.returncode == code
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)
