from __future__ import annotations

import math
import resource
from pathlib import Path

from tfperf.available_memory import available_bytes, resident_bytes


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
