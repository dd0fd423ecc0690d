"""How processes that cannot talk to each other put their traces into one run: by a file beside their runs.

Whoever comes first creates the file, makes a folder for the run, and writes its name into the file. The others find the
file, and read the name. Files can be created exclusively on the file systems that clusters share.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import BinaryIO

from msgspec import DecodeError, Struct, ValidationError, json

from tfperf.base.errors import TfperfError

_PREFIX = ".tfperf-"
_MOST_APART_S = 300.0
"""How long after the first process the last one may come."""
_NAMING_S = 5.0
"""How long the first may take to make a folder and write its name."""
_POLL_S = 0.02
_KEPT_S = 3600.0
"""How long a marker is of use to anybody, with much to spare."""
_LONGEST_NAME = 200
_NOT_IN_NAMES = ("/", "\\", ":", "\0", "\n")


class _Marker(Struct, frozen=True):
    """What the file says: the name of the run, and when it was made, in seconds since 1970."""

    run: str
    time_s: float


def agreed_run(runs: Path, key: str, make: Callable[[], Path]) -> Path:
    """Return the run folder that the processes with this key share; the first of them makes it, by `make`.

    A marker of an earlier execution of the job is passed over: one that is older than this process, or than five
    minutes. Raises OSError.
    """
    for number in count(_newest(runs, key)):
        marker = runs / f"{_PREFIX}{key}.{number}"
        try:
            file = marker.open("xb")
        except FileExistsError:
            named = _read(marker)
            if named is not None and _is_of_this_job(named):
                return runs / named.run
        else:
            _remove_old(runs)
            return _named_in(file, make)
    raise AssertionError("the numbers never end")


def check_run_name(name: str, origin: str = "run") -> str:
    """Return the name if a folder of runs can have one of that name; raises TfperfError."""
    is_plain = name.isprintable() and not any(letter in name for letter in _NOT_IN_NAMES)
    if not is_plain or not name.strip() or name.startswith(".") or len(name.encode()) > _LONGEST_NAME:
        problem = f"{origin} {name[:_LONGEST_NAME]!r} cannot be the name of a folder"
        raise TfperfError(f"{problem}; use letters, digits, - and _, at most {_LONGEST_NAME}")
    return name


def _named_in(marker: BinaryIO, make: Callable[[], Path]) -> Path:
    """Make the folder and write its name into the marker, which is removed if that fails: the next process makes it."""
    try:
        with marker:
            folder = make()
            marker.write(json.encode(_Marker(folder.name, time.time())) + b"\n")
    except BaseException:
        with contextlib.suppress(OSError):
            Path(marker.name).unlink()
        raise
    return folder


def _newest(runs: Path, key: str) -> int:
    numbers = (file.name.rpartition(".")[2] for file in runs.glob(f"{_PREFIX}{key}.*"))
    return max((int(number) for number in numbers if number.isascii() and number.isdigit()), default=0)


def _read(marker: Path) -> _Marker | None:
    """Return what a marker says; None if whoever created it did not get so far."""
    until_s = time.monotonic() + _NAMING_S
    while True:
        with contextlib.suppress(FileNotFoundError):
            data = marker.read_bytes()
            if data.endswith(b"\n"):
                try:
                    named = json.decode(data, type=_Marker)
                    check_run_name(named.run)
                except (DecodeError, ValidationError, TfperfError):
                    return None
                return named
            if time.time() - marker.stat().st_mtime > _NAMING_S:
                return None
        if time.monotonic() > until_s:
            return None
        time.sleep(_POLL_S)


def _is_of_this_job(marker: _Marker) -> bool:
    started_s = process_start_s()
    is_near = abs(time.time() - marker.time_s) < _MOST_APART_S
    return is_near and (started_s is None or marker.time_s >= started_s)


def process_start_s() -> float | None:
    """Return when this process was started, in seconds since 1970; None where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return time.time() - age_s if age_s >= 0 else None


def _remove_old(runs: Path) -> None:
    """Remove markers that nobody can need."""
    with contextlib.suppress(OSError):
        for file in runs.glob(f"{_PREFIX}*.*"):
            with contextlib.suppress(OSError):
                if file.is_file() and time.time() - file.stat().st_mtime > _KEPT_S:
                    file.unlink()
