"""A copy of the process does a part of the work, and its arrays come back as they were."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from places import SAMPLES

from tfperf.base.errors import TfperfError
from tfperf.base.process import available_bytes, forked, lacks_memory, resident_bytes, shortage

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


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_least_of_what_limits_counts(tmp_path: Path) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    assert available_bytes(tmp_path) == (math.inf if soft == resource.RLIM_INFINITY else soft), "only ulimit"
    write(tmp_path / "proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    5000 kB\n")
    assert available_bytes(tmp_path) == 5000 * 1024
    write(tmp_path / "sys/fs/cgroup/memory.max", "max\n")
    write(tmp_path / "sys/fs/cgroup/memory.current", "700000\n")
    assert available_bytes(tmp_path) == 5000 * 1024
    write(tmp_path / "sys/fs/cgroup/memory.max", "1000000\n")
    assert available_bytes(tmp_path) == 300_000
    write(tmp_path / "sys/fs/cgroup/memory.max", "500000\n")
    assert available_bytes(tmp_path) == 0


def test_what_this_process_has(tmp_path: Path) -> None:
    assert resident_bytes(root=tmp_path) == 0
    write(tmp_path / "proc/self/status", "VmSize:\t  9000 kB\nVmRSS:\t    70 kB\n")
    assert resident_bytes(root=tmp_path) == 70 * 1024


def test_the_limit_that_counts_is_said(tmp_path: Path) -> None:
    assert shortage(root=tmp_path).startswith("not enough memory: tfperf requires 300 MB ")
    write(tmp_path / "proc/meminfo", "MemAvailable:    5000 kB\n")
    assert "5.12 MB of this machine is free: " in shortage(" for a.pb", tmp_path)
    write(tmp_path / "sys/fs/cgroup/memory.max", "2000000\n")
    write(tmp_path / "sys/fs/cgroup/memory.current", "700000\n")
    assert "the container is limited to 2.00 MB: increase the limit" in shortage(root=tmp_path)


def raised(error: Exception, *, cause: Exception) -> Exception:
    """Return an error as it is when it is caught."""
    try:
        raise error from cause
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OSError(12, "Cannot allocate memory"), True),
        (ImportError("libx.so: failed to map segment from shared object"), True),
        (RuntimeError("can't start new thread"), True),
        (raised(TfperfError("a.pb is damaged: copy it again"), cause=ValueError("Arena alloc failed")), True),
        (raised(TfperfError("to read it, pip install h5py"), cause=ImportError("Cannot allocate memory")), True),
        (TfperfError("the file 'out of memory' is damaged"), False),
        (raised(TfperfError("a.pb is damaged"), cause=ValueError("truncated")), False),
        (OSError(2, "No such file or directory"), False),
        (SystemError("error return without exception set"), False),
    ],
)
def test_the_words_of_libraries(error: Exception, expected: bool) -> None:
    assert lacks_memory(error) is expected
