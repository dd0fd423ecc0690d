"""Runs below a path, the trace files of their hosts, and the selection of runs and hosts; no trace is opened."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.errors import TfperfWarning, TraceNotFoundError
from tfperf.base.files import TRACE_SUFFIX, TRACE_SUFFIXES, WORK, elsewhere, text_wanted
from tfperf.base.storage.remote_path import Location, RemotePath
from tfperf.base.units import counted, listed, natural

if TYPE_CHECKING:
    from datetime import datetime

_NAMED_RUNS = 5
_TENSORBOARD = ".tfevents."
"""Part of the names of TensorBoard's event files."""
_RUNS = ("plugins", "profile")
"""The folders of a logdir that contain runs."""
_TIMESTAMP = re.compile(r"(?=(20\d\d(?:[-_]?\d\d){2}[-_T]?(?:\d\d[-_]?){2}\d\d))")
"""A lookahead, so that matches may overlap: digits before the time may look like the start of one."""
_UNFINISHED = re.compile(
    r"\.(?P<hidden>.+)\.xplane\.pb(?:\.gz)?\..+"
    r"|(?P<host>.+)\.xplane\.pb(?:\.gz)?(?:\.[0-9a-f]{8}|_?\.gstmp"
    r"|\.(?:tmp|temp|part|partial|filepart|download|crdownload|incomplete|zst|bz2|xz|zip)\b.*)",
    re.IGNORECASE,
)
"""Names of traces that are being written or copied (by rsync, curl, browsers, aws, gsutil), or that are packed."""
_OTHER_FORMATS = {
    ".pt.trace.json": "a PyTorch profile",
    ".pt.trace.json.gz": "a PyTorch profile",
    ".trace.json.gz": "a trace viewer export",
    ".trace.json": "a trace viewer export",
    ".overview_page.pb": "a result computed by TensorFlow",
}
_EVENT_FILE = (
    "a TensorBoard event file, which has scalars, not a profile. To record one, profile the job with tfperf run, or "
    "with tf.keras.callbacks.TensorBoard(profile_batch=(10, 30))"
)


class HostFile(Struct, frozen=True):
    """The trace file of one host."""

    host: str
    path: Location

    @property
    def size_bytes(self) -> int | None:
        """Return the size of the file; None if unknown (broken link, no permission, a web server)."""
        if isinstance(self.path, RemotePath):
            return self.path.listed.size_bytes if self.path.listed else None
        try:
            return self.path.stat().st_size
        except OSError:
            return None

    @property
    def modified(self) -> float:
        """Return the modification time in seconds since 1970; raises OSError if unknown."""
        if isinstance(self.path, Path):
            return self.path.stat().st_mtime
        if self.path.listed is None or self.path.listed.modified is None:
            raise FileNotFoundError(f"the time of {self.path} is unknown")
        return self.path.listed.modified


class Run(Struct, frozen=True):
    """One profiling session: the files in one folder."""

    name: str
    folder: Location
    files: tuple[HostFile, ...]
    unfinished: tuple[HostFile, ...] = ()
    """Hosts whose only trace file is incomplete, or in a format that tfperf does not unpack."""
    newer: tuple[str, ...] = ()
    """Newer runs of the logdir without a trace, with the reason, if the run was not selected by name."""

    @property
    def time(self) -> datetime | None:
        """Return the first valid time in the name, else the modification time of the files (or the empty folder); None
        if unknown.
        """
        from datetime import datetime  # importing `strptime` is slower than this function

        for timestamp in _TIMESTAMP.findall(self.name):
            digits = "".join(filter(str.isdigit, timestamp))
            month, day, hour, minute, second = (int(digits[at : at + 2]) for at in range(4, 14, 2))
            with suppress(ValueError):
                return datetime(int(digits[:4]), month, day, hour, minute, second)
        try:
            times = [file.modified for file in self.files]
            if not times and isinstance(self.folder, Path):
                times = [self.folder.stat().st_mtime]
            return datetime.fromtimestamp(max(times))
        except (ValueError, OverflowError, OSError):
            return None

    @property
    def newer_text(self) -> str:
        """Return a sentence on newer runs without a trace; empty if there are none."""
        newer = listed(self.newer, _NAMED_RUNS)
        return f"the newest run has no profile: {newer}; run {self.name} is older" if newer else ""


class _Found(Struct):
    """The results of a search below a logdir."""

    folders: list[tuple[Location, list[Location], list[Location]]] = []
    """Folders with traces, their traces, and files next to them that may become some."""
    unfinished: list[tuple[Location, list[Location]]] = []
    """Run folders without a trace, and their files, as far as they can be listed."""
    denied: list[Location] = []
    others: list[str] = []


def refuse_broad(path: Location) -> None:
    """Raise TraceNotFoundError for the root of a file system: searching it takes hours and matches unrelated files."""
    if isinstance(path, Path) and path.is_dir() and path.resolve() == Path(path.resolve().anchor):
        raise TraceNotFoundError(f"{path} is a file system root, too large to search; pass a logdir or a run folder")


def find_runs(path: Location) -> list[Run]:
    """Return the runs below a logdir, in a run folder, or of a file; the newest last.

    Raises TraceNotFoundError, which lists the files found instead.
    """
    if isinstance(path, RemotePath):
        return _ordered_runs(path, _search_remote(path))
    try:
        refuse_broad(path)
        if path.is_file():
            return [_run(path.parent, [path], path.parent)]
        if path.exists() and not path.is_dir():
            raise TraceNotFoundError(
                f"{path} is neither a file nor a folder; save its content to a *{TRACE_SUFFIX} file"
            )
        if not path.is_dir():
            missing = f"{path} does not exist; pass a logdir, a run folder or a *{TRACE_SUFFIX} file"
            raise TraceNotFoundError(text_wanted(path) or elsewhere(path) or missing)
        found = _search(path)
    except OSError as error:
        raise TraceNotFoundError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    return _ordered_runs(path, found)


def _ordered_runs(path: Location, found: _Found) -> list[Run]:
    """Return the runs of a search, the newest last; that one lists the newer ones without a trace."""
    if not found.folders:
        hint = f"; profiles are in LOGDIR/plugins/profile/RUN/HOST{TRACE_SUFFIX}"
        if found.denied:
            hint = f", but {found.denied[0]} could not be read; check its permissions"
        elif found.others:
            other = found.others[0]
            what = next((text for ending, text in _OTHER_FORMATS.items() if other.endswith(ending)), "")
            advice = f"{what}. Pass the folder with the {TRACE_SUFFIX} file" if what else _EVENT_FILE
            hint = f"; {other} is {advice}"
        raise TraceNotFoundError(f"no *{TRACE_SUFFIX} file below {path}{hint}")
    runs = [_run(folder, files, path, parts) for folder, files, parts in found.folders]
    runs = sorted(runs, key=_age) if len(runs) > 1 else runs
    unfinished = [(_age(run), run) for run in (_run(folder, files, path) for folder, files in found.unfinished)]
    time, _ = _age(runs[-1]) if unfinished else (0.0, "")
    if newer := [(age, run) for age, run in unfinished if age[0] > time]:
        above = {run.folder.parts[:-1] for run in runs}
        around = {parts[:depth] for parts in above for depth in range(len(parts) + 1)}
        newer = [(age, run) for age, run in newer if run.folder.parts not in around]
        texts = []
        for _, run in sorted(newer, key=itemgetter(0)):
            reason = f"has {run.files[0].path.name}, but no *{TRACE_SUFFIX} file" if run.files else "empty"
            texts.append(f"{run.name} ({'not readable' if run.folder in found.denied else reason})")
        runs[-1] = replace(runs[-1], newer=tuple(texts))
    return runs


def choose_run(runs: list[Run], names: str | Sequence[str] | None) -> Run:
    """Return the run of that name (or end of its folder), by default the newest; join several named runs into one.

    Warns (TfperfWarning) of newer runs without a trace, unless a run is named. Raises TraceNotFoundError if there is
    none, or if several runs have that name, or the name of the newest.
    """
    if names is None and runs[-1].newer:
        warnings.warn(f"{runs[-1].newer_text}; select a run with --run", TfperfWarning, stacklevel=2)
    if names is None or isinstance(names, str):
        return _run_named(runs, names)
    return _joined([_run_named(runs, name) for name in names])


def _joined(runs: Sequence[Run]) -> Run:
    """Return a run with the hosts of several; hosts with the same name get the name of their run."""
    runs = list({run.folder: run for run in runs}.values())
    if len(runs) == 1:
        return runs[0]
    counts = Counter(file.host for run in runs for file in run.files)
    files = (
        HostFile(f"{name}/{file.host}" if counts[file.host] > 1 else file.host, file.path)
        for name, run in zip(run_names(runs), runs, strict=True)
        for file in run.files
    )
    folder = runs[0].folder
    while any(run.folder.parts[: len(folder.parts)] != folder.parts for run in runs):
        folder = folder.parent
    unfinished = (file for run in runs for file in run.unfinished)
    return Run(" + ".join(run.name for run in runs), folder, tuple(files), tuple(unfinished))


def _run_named(runs: list[Run], name: str | None) -> Run:
    if name is None:
        matches = [run for run in runs if run.name == runs[-1].name]
    else:
        ending = Path(name).parts
        matches = [
            run
            for run in runs
            if run.name == name or (run.name in ending[-1:] and run.folder.resolve().parts[-len(ending) :] == ending)
        ]
    if not matches:
        newest = ", ".join(run_names(runs)[-_NAMED_RUNS:])
        raise TraceNotFoundError(f"no run is named {name!r}; the newest runs are: {newest} (--list shows all)")
    if len(matches) > 1:
        names = listed(run_names(matches), _NAMED_RUNS)
        raise TraceNotFoundError(
            f"{counted(len(matches), 'run')} are named {matches[0].name}; select one with --run: {names}"
        )
    return matches[0] if name is None or not matches[0].newer else replace(matches[0], newer=())


def run_names(runs: Sequence[Run]) -> list[str]:
    """Return unique names of runs, which `choose_run` accepts, with as many parent folders as necessary."""
    counts = Counter(run.name for run in runs)
    # Unique run names are enough; otherwise, resolving the folders accesses each parent folder.
    paths = [run.folder.resolve().parts if counts[run.name] > 1 else (run.name,) for run in runs]
    endings = Counter(path[-count:] for path in set(paths) for count in range(1, len(path) + 1))
    lengths = (next(n for n in range(1, len(path) + 1) if endings[path[-n:]] == 1 or n == len(path)) for path in paths)
    return [str(Path(*path[-length:])) for path, length in zip(paths, lengths, strict=True)]


def choose_hosts(run: Run, names: tuple[str, ...], patterns: tuple[str, ...] = ()) -> Run:
    """Return the run with only the named or matching (`worker-*`) hosts, by default all; raise TraceNotFoundError for
    misses.
    """
    hosts = [file.host for file in run.files]
    has = f"its hosts are: {listed(sorted(hosts))} (--list shows all)"
    for name in names:
        if name not in hosts:
            raise TraceNotFoundError(f"run {run.name} has no host named {name!r}; {has}")
    kept = {*names}
    for pattern in patterns:
        matching = [host for host in hosts if fnmatchcase(host, pattern)]
        if not matching:
            raise TraceNotFoundError(f"no host of run {run.name} matches {pattern!r}; {has}")
        kept.update(matching)
    if not names and not patterns:
        return run
    unfinished = (file for file in run.unfinished if any(fnmatchcase(file.host, pattern) for pattern in patterns))
    return replace(run, files=tuple(file for file in run.files if file.host in kept), unfinished=tuple(unfinished))


def _search_remote(path: RemotePath) -> _Found:
    """Do the work of `_search` for an address; a service lists all of it at once, or nothing."""
    from tfperf.base.storage.reading import list_files  # imports modules for remote files only

    files = list_files(path, TRACE_SUFFIXES)
    found = _Found(others=[str(file) for file in files if _is_of_other_format(file.name)])
    folders: dict[RemotePath, list[RemotePath]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(file)
    for folder, of_folder in folders.items():
        # A file given by name is read, whatever its name.
        if traces := [file for file in of_folder if file.name.endswith(TRACE_SUFFIXES) or file.url == path.url]:
            parts = [file for file in of_folder if _UNFINISHED.fullmatch(file.name)]
            found.folders.append((folder, [*traces], [*parts]))
        elif folder.parts[-3:-1] == _RUNS:
            found.unfinished.append((folder, [*of_folder]))
    return found


def _search(top: Path) -> _Found:
    """Search the tree without following links to folders: list each folder once, and access few files."""
    found, start, real_start = _Found(), os.fspath(top), os.path.realpath(top)
    pending = [start]
    while pending:
        folder, folders = pending.pop(), list[os.DirEntry[str]]()
        traces, files = list[Location](), list[str]()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=attrgetter("name"))
        except OSError:
            found.denied.append(Path(folder))
            entries = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry)
            elif not (entry.is_symlink() and Path(entry).is_dir()):
                files.append(entry.name)
                # Opening a named pipe or similar file blocks; a broken link does not.
                is_file = entry.is_file(follow_symlinks=False) or Path(entry).is_file() or not Path(entry).exists()
                if entry.name.endswith(TRACE_SUFFIXES) and is_file:
                    traces.append(Path(entry.path))
                elif _is_of_other_format(entry.name):
                    found.others.append(str(Path(entry.path)))
        if traces:
            parts = [Path(folder, file) for file in files if _UNFINISHED.fullmatch(file)]
            found.folders.append((Path(folder), traces, [*parts]))
        elif (real := Path(real_start + folder[len(start) :])).parts[-3:-1] == _RUNS and not real.name.startswith("."):
            found.unfinished.append((Path(folder), [Path(folder, file) for file in files]))
        pending += [each.path for each in reversed(folders) if each.name != WORK]  # copies there are incomplete
    return found


def _is_of_other_format(name: str) -> bool:
    return name.endswith(tuple(_OTHER_FORMATS)) or _TENSORBOARD in name


def _run(folder: Location, files: Sequence[Location], top: Location, parts: Sequence[Location] = ()) -> Run:
    """Return the run of a folder below `top`; of a host with both, the trace that is not compressed."""
    hosts: dict[str, HostFile] = {}
    for file in files:
        host = file.name.removesuffix(TRACE_SUFFIXES[1]).removesuffix(TRACE_SUFFIX)
        hosts.setdefault(host, HostFile(host, file))
    unfinished: dict[str, HostFile] = {}
    for part in parts:
        named = _UNFINISHED.fullmatch(part.name)
        host = (named["hidden"] or named["host"]) if named else ""
        if host and host not in hosts:
            unfinished.setdefault(host, HostFile(host, part))
    # Links are not followed below the top, so the folder's name there is its real name.
    name = folder.resolve().name if folder == top else folder.name
    return Run(name, folder, tuple(hosts.values()), tuple(unfinished.values()))


def _age(run: Run) -> tuple[float, str]:
    time = run.time
    try:
        return (time.timestamp() if time else 0.0), run.name
    except (ValueError, OverflowError, OSError):
        return 0.0, run.name


# --- a sample of hosts ---

_NUMBER = re.compile(r"\d+")


def sampled(run: Run, count: int) -> tuple[Run, str]:
    """Return the run with at most `count` of its hosts, and a sentence about them (empty if the run has no more).

    Hosts whose names differ in numbers only, such as `worker-3` and `worker-12`, have the same role. Each role has the
    same share of the sample as of the run, but at least one host. If there are more roles than `count`, all hosts are
    treated as one role.
    """
    if count >= len(run.files):
        return run, ""
    roles: dict[str, list[int]] = {}
    for position in sorted(range(len(run.files)), key=lambda position: natural(run.files[position].host)):
        roles.setdefault(_NUMBER.sub("*", run.files[position].host), []).append(position)
    if len(roles) > count:
        roles = {"": [position for positions in roles.values() for position in positions]}
    shares = dict(zip(roles, _shares([len(positions) for positions in roles.values()], count), strict=True))
    kept = {
        positions[(2 * place + 1) * len(positions) // (2 * shares[role])]
        for role, positions in roles.items()
        for place in range(shares[role])
    }
    drawn = f"Sample of {count:,} of {counted(len(run.files), 'host')}, evenly spread over host names"
    of_roles = ", ".join(f"{share:,} of {len(roles[role]):,} {role}" for role, share in shares.items())
    files = tuple(file for position, file in enumerate(run.files) if position in kept)
    return replace(run, files=files), f"{drawn}: {of_roles}." if len(roles) > 1 else f"{drawn}."


def _shares(sizes: Sequence[int], count: int) -> list[int]:
    """Divide a sample in proportion to the sizes, with at least one for each: by the largest remainders."""
    whole, rest = sum(sizes) - len(sizes), count - len(sizes)
    shares = [divmod(rest * (size - 1), whole) for size in sizes]
    left = rest - sum(share for share, _ in shares)
    largest = sorted(range(len(sizes)), key=lambda role: (-shares[role][1], role))[:left]
    return [1 + share + (role in largest) for role, (share, _) in enumerate(shares)]


# --- runs of one cluster ---

_TASK = re.compile(r"_([A-Za-z][A-Za-z0-9]*-\d+)$", re.ASCII)
"""End of the name of a host that is one of several in captures of tfperf: `vm_worker-0`."""
_MOST_SECONDS = 60.0
_MOST_NAMED = 4


def runs_of_one_cluster(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return sentences on runs that are seconds apart and have different tasks, which can be read as one run."""
    names = {id(run): name for run, name in zip(runs, run_names(runs), strict=True)}
    lines = []
    for group in _groups(runs):
        options = " ".join(f"--run {names[id(run)]}" for run in group)
        if len(group) > _MOST_NAMED:
            options = f"--run {names[id(group[0])]} --run ... (each of them)"
        first, last = group[0].time, group[-1].time
        seconds = (last - first).total_seconds() if first and last else 0.0
        tasks = [task for run in group for task in sorted(_tasks(run))]
        named = ", ".join(tasks[:_MOST_NAMED]) + ", ..." * (len(tasks) > _MOST_NAMED)
        what = f"{counted(len(group), 'run')} within {seconds:.0f} s have different tasks ({named})"
        lines.append(f"{what}, possibly of one cluster. To read them as one run: {options}.")
    return tuple(lines)


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Return groups of several consecutive runs in which no task occurs twice."""
    groups: list[list[Run]] = []
    taken: set[str] = set()
    for run in runs:
        tasks = _tasks(run)
        start = groups[-1][0].time if groups else None
        is_near = bool(start and run.time and abs((run.time - start).total_seconds()) <= _MOST_SECONDS)
        if tasks and taken and is_near and not taken & tasks:
            groups[-1].append(run)
            taken |= tasks
        else:
            groups.append([run])
            taken = tasks
    return [group for group in groups if len(group) > 1]


def _tasks(run: Run) -> set[str]:
    """Return the tasks of a run's hosts; empty unless each host name contains one."""
    found = [_TASK.search(file.host) for file in run.files]
    return {task[1] for task in found if task} if all(found) else set()
