"""The list of runs and their files, for `--list`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfperf.base.files import TRACE_SUFFIX
from tfperf.base.storage.remote_path import Location
from tfperf.report.model import Column, Report, Section, table_of
from tfperf.trace.logdir import Run, run_names
from tfperf.trace.same_cluster import runs_of_one_cluster

_RUN_COLUMNS = (
    Column("run", "Run", str, "", "name for --run"),
    Column("time", "Time", str, "", "when it was captured: the time in its name, else when its files were written"),
    Column("hosts", "Hosts", int, "count", "hosts of the run"),
    Column("size_bytes", "Size", int, "bytes", "size of all its files"),
    Column("is_default", "Default", bool, "", "whether it is read where no --run is given"),
    Column("folder", "Folder", str, "", "folder of the run", level="data"),
)
_FILE_COLUMNS = (
    Column("host", "Host", str, "", "name for --host"),
    Column("size_bytes", "Size", int, "bytes", "size of the trace file"),
    Column("file", "File", str, "", "the trace file, below the path that was given"),
    Column("path", "Path", str, "", "the trace file", level="data"),
    Column("run", "Run", str, "", "run of the file", level="data"),
)


def _below(path: Location, file: Location) -> str:
    """Return where a file is, from a folder around it; of a file that is no such, all."""
    above, parts = path.parts, file.parts
    return str(Path(*parts[len(above) :])) if len(above) < len(parts) and parts[: len(above)] == above else str(file)


def runs_report(path: Location, runs: Sequence[Run]) -> Report:
    """List the runs with their files, the newest last."""
    names = run_names(runs)
    files = [(name, file) for name, run in zip(names, runs, strict=True) for file in run.files]
    # Of several runs with the name of the newest, none is read.
    has_default = sum(run.name == runs[-1].name for run in runs) == 1
    sizes = [[file.size_bytes for file in run.files] for run in runs]
    of_runs: dict[str, Sequence[Any]] = {
        "run": names,
        "time": [f"{run.time:%Y-%m-%d %H:%M:%S}" if run.time else None for run in runs],
        "hosts": [len(run.files) for run in runs],
        "size_bytes": [None if None in each else sum(filter(None, each)) for each in sizes],
        "is_default": [has_default and run is runs[-1] for run in runs],
        "folder": [str(run.folder) for run in runs],
    }
    of_files: dict[str, Sequence[Any]] = {
        "host": [file.host for _, file in files],
        "size_bytes": [file.size_bytes for _, file in files],
        "file": [_below(path, file.path) for _, file in files],
        "path": [str(file.path) for _, file in files],
        "run": [name for name, _ in files],
    }
    tables = (
        table_of("runs", "Runs, the newest last", _RUN_COLUMNS, of_runs),
        table_of("files", "Files, in the order of the runs", _FILE_COLUMNS, of_files),
    )
    of_default: tuple[str, ...] = (
        () if has_default else ("Several runs have the name of the newest: choose with --run.",)
    )
    newer = runs[-1].newer_text
    unfinished = [
        f"Run {name} lacks host {file.host}: {file.path.name} is not a complete {TRACE_SUFFIX} file."
        for name, run in zip(names, runs, strict=True)
        for file in run.unfinished
    ]
    notes = (
        *of_default,
        *unfinished,
        *((f"{newer[0].upper()}{newer[1:]}.",) if newer else ()),
        *runs_of_one_cluster(runs),
    )
    section = Section("runs", "Runs", tables=tables, notes=notes)
    return Report({"folder": str(path)}, {"run_count": len(runs)}, (section,))
