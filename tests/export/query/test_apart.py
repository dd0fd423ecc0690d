"""A query in a process of its own: nothing that DuckDB does outlives its limits, a signal, or the other process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import host, logdir_of, marks, space
from forks import Forks

import tfperf
from tfperf.export.query.apart import ask
from tfperf.export.query.engine import QueryError

PLANNED = ("select list_sum(range(200000000))", "select repeat('x', 1500000000)", "select md5(repeat('x', 1500000000))")
"""Constants, which DuckDB computes while it plans, without a look at its own limits."""
ENDLESS = "select levenshtein(repeat('x', 900000), repeat('y', 900000))"
"""One more, which takes hours and little memory."""
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how much memory a process has")


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return logdir_of(tmp_path, a=space(host(*marks(3))))


def test_the_answer_and_what_was_asked(logdir: Path) -> None:
    answer, described = ask(logdir, "select name from events limit 1")
    assert (answer.names, answer.columns) == (("name",), (("train",),))
    assert described["run"] == "2026_01_01_00_00_00"
    assert ask(tfperf.load(logdir), "select count(*) from host_steps")[0].columns == ((3,),)


def test_errors_and_warnings_come_from_the_other_process(logdir: Path) -> None:
    with pytest.raises(QueryError, match=r"--schema lists"):
        ask(logdir, "select nme from events")
    (logdir / "plugins" / "profile" / "2027_01_01_00_00_00").mkdir()
    with pytest.warns(tfperf.TfperfWarning, match=r"the newest run has no profile"):
        ask(logdir, "select 1")


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    process = Forks(tmp_path_factory.mktemp("printed"))
    yield process
    process.end()


@linux_only
@pytest.mark.parametrize("sql", PLANNED)
def test_constants_of_a_query_keep_to_the_memory(sql: str, logdir: Path, forks: Forks) -> None:
    done = forks.run("query", logdir, sql, "--memory-limit", "100MB")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"Error: the query exceeds its memory limit: .* --memory-limit.*\n", done.stderr)


@linux_only
def test_a_plan_ends_when_the_time_of_the_query_is_over(logdir: Path, forks: Forks) -> None:
    done = forks.run("query", logdir, ENDLESS, "--memory-limit", "900GB", "--timeout", "300ms")
    assert (done.returncode, done.stdout) == (1, "")
    said = "the query was stopped after 0.3 s: select less data, or allow more time with --timeout"
    assert done.stderr == f"Error: {said}\n"


def children(process: int) -> list[int]:
    """Return the processes that this one started and that run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@linux_only
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_signal_ends_both_processes(number: int, code: int, logdir: Path) -> None:
    command = [sys.executable, "-m", "tfperf", "query", str(logdir), ENDLESS, "--memory-limit", "900GB"]
    asking = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ}, start_new_session=True)
    try:
        until_s = time.monotonic() + 120
        while not (started := children(asking.pid)) or not _is_busy(started[0]):
            assert time.monotonic() < until_s
            time.sleep(0.1)
        asking.send_signal(number)
        assert asking.wait(60) == code
        until_s = time.monotonic() + 60
        while not is_gone(started[0]):
            assert time.monotonic() < until_s, "the other process is still there"
            time.sleep(0.1)
    finally:
        asking.kill()
        asking.wait()


def _is_busy(process: int) -> bool:
    """Tell whether DuckDB has started its threads and the process has worked for longer than it takes to get there."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    worked_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return int(fields[17]) > 1 and worked_s > 0.8
