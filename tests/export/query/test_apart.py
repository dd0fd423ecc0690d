"""A query in a process of its own: nothing that DuckDB does outlives its limits, a signal, or the other process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import host, logdir_of, marks, space

import tfperf
from tfperf.base.errors import TfperfError
from tfperf.export.query.apart import ask
from tfperf.export.query.engine import QueryError, QueryLimits

BUSY = "select count(*) from range(20000000000) t(i) where i % 7 = 3"
PLANNED = ("select list_sum(range(200000000))", "select repeat('x', 1500000000)", "select md5(repeat('x', 1500000000))")
"""Constants, which DuckDB computes while it plans, without a look at its own limits."""
ENDLESS = "select levenshtein(repeat('x', 900000), repeat('y', 900000))"
"""One, too, that takes hours and little memory."""
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how much memory a process has")


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return logdir_of(tmp_path, a=space(host(*marks(3))))


def test_the_answer_and_what_was_asked(logdir: Path) -> None:
    answer, described = ask(logdir, "select name from events limit 1")
    assert (answer.names, answer.columns) == (("name",), (("train",),))
    assert described["run"] == "2026_01_01_00_00_00"
    assert ask(tfperf.load(logdir), "select count(*) from host_steps")[0].columns == ((3,),)
    assert "events" in ask(logdir, "show tables")[0].columns[0]


def test_errors_and_warnings_come_from_the_other_process(logdir: Path) -> None:
    with pytest.raises(QueryError, match=r"--schema lists"):
        ask(logdir, "select nme from events")
    (logdir / "plugins" / "profile" / "2027_01_01_00_00_00").mkdir()
    with pytest.warns(tfperf.TfperfWarning, match=r"the newest run has no profile"):
        ask(logdir, "select 1")


@linux_only
@pytest.mark.parametrize("sql", PLANNED)
def test_constants_of_a_query_keep_to_the_memory(sql: str, logdir: Path) -> None:
    with pytest.raises(TfperfError, match=r"exceeds its memory limit: .* --memory-limit"):
        ask(logdir, sql, QueryLimits(memory_bytes=100e6))


@pytest.mark.parametrize("sql", [BUSY, ENDLESS])
def test_a_query_ends_when_its_time_is_over(sql: str, logdir: Path) -> None:
    with pytest.raises(TfperfError, match=r"the query was stopped after 1.5 s: select less data, or allow more time"):
        ask(logdir, sql, QueryLimits(memory_bytes=1e12, timeout_s=1.5))


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
    """Tell whether a process has worked for longer than its imports take."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") > 1.5
