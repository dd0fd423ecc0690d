"""Which profiles a path holds: runs, and the trace file of each host. Paths only; no trace is opened."""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

from tfperf.errors import TraceNotFoundError
from tfperf.units import listed
from tfperf.wire.trace_file import SUFFIX

_TIMESTAMP = r"\d{4}(?:[-_]?\d\d){2}[-_T]?(?:\d\d[-_]?){2}\d\d"
_OTHER_FORMATS = {
    ".pt.trace.json": "a PyTorch profile",
    ".pt.trace.json.gz": "a PyTorch profile",
    ".trace.json.gz": "an export for the trace viewer",
    ".trace.json": "an export for the trace viewer",
    ".xplane.pb.gz": "a compressed trace (decompress it first)",
    ".overview_page.pb": "a result that TensorFlow computed",
}


class HostFile(Struct, frozen=True):
    """The trace file of one host."""

    host: str
    path: Path

    @property
    def size_bytes(self) -> int | None:
        """Return the size of the file; None if it is unknown (a link to nowhere, no permission)."""
        try:
            return self.path.stat().st_size
        except OSError:
            return None


class Run(Struct, frozen=True):
    """One profiling session: the files that lie in one folder."""

    name: str
    folder: Path
    files: tuple[HostFile, ...]


def find_runs(path: Path) -> list[Run]:
    """Return the runs below a logdir, in a run folder, or the one of a single file; the newest last.

    Raises TraceNotFoundError if there is none, with what was found instead.
    """
    try:
        if path.is_file():
            return [_run(path.parent, [path])]
        if path.exists() and not path.is_dir():
            raise TraceNotFoundError(f"{path} is neither a file nor a folder; save its content to a *{SUFFIX} file")
        if not path.is_dir():
            raise TraceNotFoundError(f"{path} does not exist; give a logdir, a run folder or a *{SUFFIX} file")
        folders, denied, others = _search(path)
    except OSError as error:
        raise TraceNotFoundError(f"cannot read the folder {path}: {error.strerror}; check its permissions") from error
    if not folders:
        hint = f"; profiles are in LOGDIR/plugins/profile/RUN/HOST{SUFFIX}"
        if denied:
            hint = f", but {denied[0]} could not be read; check its permissions"
        elif others:
            what = next(text for ending, text in _OTHER_FORMATS.items() if others[0].endswith(ending))
            hint = f"; {others[0]} is {what}. Give the folder that holds the {SUFFIX} file"
        raise TraceNotFoundError(f"no *{SUFFIX} file below {path}{hint}")
    runs = [_run(folder, files) for folder, files in folders.items()]
    return sorted(runs, key=_age) if len(runs) > 1 else runs


def choose_run(runs: list[Run], name: str | None) -> Run:
    """Return the run of that name (or folder ending), by default the newest."""
    if name is None:
        return runs[-1]
    matches = [run for run in runs if name in (run.name, str(run.folder)) or str(run.folder).endswith(os.sep + name)]
    if not matches:
        newest = ", ".join(run.name for run in runs[-5:])
        raise TraceNotFoundError(f"there is no run named {name!r}; the newest are: {newest} (--list shows all)")
    return matches[-1]


def choose_hosts(run: Run, names: tuple[str, ...]) -> Run:
    """Return the run with only the hosts of those names; no names mean all hosts."""
    hosts = {file.host for file in run.files}
    for name in names:
        if name not in hosts:
            has = f"it has: {listed(sorted(hosts))} (--list shows all)"
            raise TraceNotFoundError(f"run {run.name} has no host named {name!r}; {has}")
    return Run(run.name, run.folder, tuple(f for f in run.files if not names or f.host in names))


def _search(top: Path) -> tuple[dict[Path, list[Path]], list[str], list[str]]:
    """Walk the tree; return trace files by folder, folders that could not be read, and files of other formats."""
    folders: dict[Path, list[Path]] = {}
    denied: list[str] = []
    others: list[str] = []
    for folder, _, files in os.walk(top, onerror=lambda error: denied.append(str(error.filename))):
        for file in sorted(files):
            if file.endswith(SUFFIX) and not _is_special(Path(folder) / file):
                folders.setdefault(Path(folder), []).append(Path(folder) / file)
            elif file.endswith(tuple(_OTHER_FORMATS)):
                others.append(str(Path(folder) / file))
    return folders, denied, others


def _is_special(path: Path) -> bool:
    """Tell whether this is a named pipe or the like, which would block whoever opens it; not a link to nowhere."""
    return path.exists() and not path.is_file()


def _run(folder: Path, files: list[Path]) -> Run:
    hosts = (HostFile(file.name.removesuffix(SUFFIX), file) for file in files)
    return Run(folder.resolve().name, folder, tuple(hosts))


def _age(run: Run) -> tuple[float, str]:
    """Order runs by the time in their name, where it has one, else by when their files were written."""
    from datetime import datetime  # `strptime` imports more than all of this takes

    timestamp = re.search(_TIMESTAMP, run.name)
    try:
        if timestamp:
            digits = "".join(filter(str.isdigit, timestamp.group()))
            month, day, hour, minute, second = (int(digits[at : at + 2]) for at in range(4, 14, 2))
            return datetime(int(digits[:4]), month, day, hour, minute, second).timestamp(), run.name
        return max(file.path.stat().st_mtime for file in run.files), run.name
    except (ValueError, OverflowError, OSError):
        return 0.0, run.name
