"""How much memory this process has and may still take, as far as the system tells, and what it keeps."""

from __future__ import annotations

import ctypes
import errno
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tfperf.base.errors import TfperfError
from tfperf.base.units import format_bytes

_CGROUP_LIMITS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
)

_NO_MEMORY = re.compile(
    r"cannot allocate memory|can't start new thread|unable to allocate|failed to allocate|out of memory|bad_alloc|"
    r"alloc(ation)? failed|failed to map segment",
    re.IGNORECASE,
)
"""What the system and libraries say of memory, of address space and of stacks of threads."""
_NEEDS = "tfperf takes 300 MB (query and export-parquet 600 MB), and about 7 times the size of a profile"
"""Of address space, measured: profiles whose events have no stats take most."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Settings of glibc (`mallopt`)."""
_KEPT_BLOCK, _KEPT_MEMORY = 1 << 25, 1 << 28
"""Bytes of a block, and in all."""


class _Limit(NamedTuple):
    """What bounds the memory of this process: the bytes that are left of it, how people know it, and what to do."""

    left: float
    described: str


def available_bytes(root: Path = Path("/")) -> float:
    """Return the least of what the machine has free, its cgroup allows and `ulimit -v` allows; infinity if unknown."""
    return min(_limits(root)).left


def shortage(where: str = "", root: Path = Path("/")) -> str:
    """Say that there is not enough memory, how much tfperf takes, how much it may take, and what to do."""
    return f"not enough memory{where}: {_NEEDS}; {min(_limits(root)).described}"


def lacks_memory(error: BaseException) -> bool:
    """Tell whether an error, or one that it came from, is that the system gives no more memory.

    Libraries have many words for it, some of which look like a damaged file or a package that is not installed.
    """
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        is_text = not isinstance(each, TfperfError) and _NO_MEMORY.search(str(each)) is not None
        # Extensions in C that forget to say why they failed.
        is_wordless = isinstance(each, SystemError) and address_space() < math.inf
        is_number = getattr(each, "errno", None) == errno.ENOMEM
        if isinstance(each, MemoryError) or is_number or is_text or is_wordless:
            return True
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return False


def _limits(root: Path) -> list[_Limit]:
    machine = _kilobytes(root / "proc/meminfo", "MemAvailable")
    free = f"{format_bytes(machine)} of this machine is free: " if machine < math.inf else ""
    found = [_Limit(machine, f"{free}use one with more memory, or a smaller file")]
    for most, used in _CGROUP_LIMITS:
        if (root / used).exists() and (limit := _number(root / most)) < math.inf:
            described = f"the container may take {format_bytes(limit)}: raise that limit, or use a smaller file"
            found.append(_Limit(max(limit - _number(root / used), 0.0), described))
    space = address_space()
    if space < math.inf:
        left = max(space - _kilobytes(root / "proc/self/status", "VmSize", missing=0.0), 0.0)
        described = f"`ulimit -v` lets a process take {format_bytes(space)}: raise that limit, or use a smaller file"
        found.append(_Limit(left, described))
    return found


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


def address_space() -> float:
    """Return how many bytes of address space a process may take (`ulimit -v`); infinity without a limit."""
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
