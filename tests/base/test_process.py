"""A copy of the process does a part of the work, and its arrays come back as they were."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from places import SAMPLES

from tfperf.base.process import forked

SAMPLE = SAMPLES / "input_bound"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux makes copies that share memory")


def printed(script: str) -> str:
    """What a process with a single thread prints, which this one may not be."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_copy_returns_comes_back() -> None:
    script = """
import os
import numpy as np
from tfperf.base.process import allowing_forks, forked

def work():
    yield os.getpid(), "text"
    yield {"column": np.arange(1000), "empty": np.zeros(0), "flags": np.ones(7, np.bool_)}

with allowing_forks(True), forked(work) as results:
    (process, text), columns = results()
print(process != os.getpid(), text, columns["column"].sum(), len(columns["empty"]), columns["flags"].all())
print(columns["column"].flags.writeable, columns["column"].ctypes.data % 64)
"""
    assert printed(script).split() == ["True", "text", "499500", "0", "True", "False", "0"]


def test_a_copy_that_fails_is_none() -> None:
    """Neither its exception nor its death is told: the process that asked does the work itself."""
    script = """
import os, signal, threading
from tfperf.base.process import allowing_forks, forked

def fails():
    yield 1
    raise ValueError

def dies():
    os.kill(os.getpid(), signal.SIGKILL)

with allowing_forks(True):
    for work in (fails, dies, lambda: [lambda: 1]):
        with forked(work) as results:
            print(results())
    with forked(lambda: [1]) as results:
        print(results())
    thread = threading.Event()
    threading.Thread(target=thread.wait).start()
    with forked(lambda: [1]) as results:
        print(results())
    thread.set()
"""
    assert printed(script).split() == ["None", "None", "None", "[1]", "None"]


def test_a_copy_that_nobody_waits_for_ends() -> None:
    script = """
import os, time
from contextlib import suppress
from tfperf.base.process import allowing_forks, forked

with allowing_forks(True), suppress(KeyError), forked(lambda: time.sleep(1000)) as results:
    raise KeyError
with suppress(ChildProcessError):
    os.waitpid(-1, 0)
    print("a copy is left")
"""
    assert printed(script) == ""


def test_no_copy_is_made_unless_that_is_allowed() -> None:
    with forked(lambda: [1]) as results:
        assert results() is None


def test_a_plane_that_a_copy_reads_too_is_the_same() -> None:
    script = f"""
import tfperf.formats.wire.planes as planes
from contextlib import contextmanager
from pathlib import Path
from tfperf.base.process import allowing_forks
from tfperf.trace.read import read_host

made, forked = [], planes.forked

@contextmanager
def noted(work):
    with forked(work) as results:
        yield lambda: (made.append(results()), made[-1])[1]

planes.forked, planes._FORKED_BYTES = noted, 1000
(path,) = Path({str(SAMPLE)!r}).rglob("*.xplane.pb")
for planes.BATCH_BYTES in (3000, 20_000, 1 << 22):
    texts = []
    for allowed in (False, True):
        with allowing_forks(allowed):
            trace = read_host(path, everything=True)
        stats = {{name: (stat.event.tolist(), stat.value.tolist(), stat.texts) for name, stat in trace.stats.items()}}
        columns = [column.tolist() for column in (trace.name, trace.start_ps, trace.duration_ps)]
        texts.append(str((trace.lines, columns, stats, trace.planes, trace.oddities)))
    print(texts[0] == texts[1], made[-2] is None, made[-1] is not None)
"""
    assert printed(script).split() == ["True"] * 9
