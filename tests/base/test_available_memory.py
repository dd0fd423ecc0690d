from __future__ import annotations

import math
import resource
from pathlib import Path

import pytest

from tfperf.base.errors import TfperfError
from tfperf.base.process import available_bytes, lacks_memory, resident_bytes, shortage


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_least_of_what_limits_counts(tmp_path: Path) -> None:
    write(tmp_path / "proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    5000 kB\n")
    assert available_bytes(tmp_path) == 5000 * 1024
    write(tmp_path / "sys/fs/cgroup/memory.max", "max\n")
    write(tmp_path / "sys/fs/cgroup/memory.current", "700000\n")
    assert available_bytes(tmp_path) == 5000 * 1024
    write(tmp_path / "sys/fs/cgroup/memory.max", "1000000\n")
    assert available_bytes(tmp_path) == 300_000
    write(tmp_path / "sys/fs/cgroup/memory.max", "500000\n")
    assert available_bytes(tmp_path) == 0


def test_where_no_file_tells_only_ulimit_counts(tmp_path: Path) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    assert available_bytes(tmp_path) == (math.inf if soft == resource.RLIM_INFINITY else soft)
    assert available_bytes() > 0


def test_what_this_process_has(tmp_path: Path) -> None:
    assert resident_bytes(root=tmp_path) == 0
    write(tmp_path / "proc/self/status", "VmSize:\t  9000 kB\nVmRSS:\t    70 kB\n")
    assert resident_bytes(root=tmp_path) == 70 * 1024


def test_the_limit_that_counts_is_said(tmp_path: Path) -> None:
    assert shortage(root=tmp_path).startswith("not enough memory: tfperf takes 300 MB ")
    write(tmp_path / "proc/meminfo", "MemAvailable:    5000 kB\n")
    assert "5.12 MB of this machine is free: use one with more memory" in shortage(" for a.pb", tmp_path)
    write(tmp_path / "sys/fs/cgroup/memory.max", "2000000\n")
    write(tmp_path / "sys/fs/cgroup/memory.current", "700000\n")
    assert "the container may take 2.00 MB: raise that limit" in shortage(root=tmp_path)


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
