"""How much memory this process has and may still take, as far as the system tells, and what it keeps."""

from __future__ import annotations

import ctypes
import math
import re
from contextlib import suppress
from pathlib import Path

_CGROUP_LIMITS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
)

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Settings of glibc (`mallopt`)."""
_KEPT_BLOCK, _KEPT_MEMORY = 1 << 25, 1 << 28
"""Bytes of a block, and in all."""


def available_bytes(root: Path = Path("/")) -> float:
    """Return the least of what the machine has free, its cgroup allows and `ulimit -v` allows; infinity if unknown."""
    free = [_kilobytes(root / "proc/meminfo", "MemAvailable")]
    free += [_number(root / most) - _number(root / used) for most, used in _CGROUP_LIMITS if (root / used).exists()]
    free.append(_address_space() - _kilobytes(root / "proc/self/status", "VmSize", missing=0.0))
    return max(min(free), 0.0)


def resident_bytes(process: int | str = "self", root: Path = Path("/")) -> float:
    """Return how much memory a process has in use, by default this one; 0 if unknown."""
    return _kilobytes(root / f"proc/{process}/status", "VmRSS", missing=0.0)


def keep_freed_memory() -> None:
    """Keep the memory of one batch of events for the next: the C library would give it back, and fetch it page by page.

    That takes a fifteenth of the time of a large profile, and half of it in processes that dask starts: it sets glibc
    to give back each block at once. C libraries other than glibc have no such setting.
    """
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _KEPT_BLOCK)
        mallopt(_TRIM_THRESHOLD, _KEPT_MEMORY)


def _address_space() -> float:
    try:
        import resource
    except ImportError:
        return math.inf
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return math.inf if soft == resource.RLIM_INFINITY else float(soft)


def _kilobytes(path: Path, key: str, *, missing: float = math.inf) -> float:
    found = re.search(rf"^{key}:\s+(\d+) kB$", _text(path), re.MULTILINE)
    return 1024.0 * int(found[1]) if found else missing


def _number(path: Path) -> float:
    text = _text(path).strip()
    return float(text) if text.isdecimal() else math.inf


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
