"""What `--list` shows: the runs of a logdir and their hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfperf.report.model import Column, Report, Section, table_of
from tfperf.trace.logdir import Run

_COLUMNS = (
    Column("run", "Run", str, "", "name for --run"),
    Column("host", "Host", str, "", "name for --host"),
    Column("size_bytes", "Bytes", int, "count", "size of the trace file"),
    Column("path", "File", str, "", "the trace file", level="data"),
)


def runs_report(path: Path, runs: Sequence[Run]) -> Report:
    """List the runs, the newest last."""
    files = [(run, file) for run in runs for file in run.files]
    data: dict[str, Sequence[Any]] = {
        "run": [run.name for run, _ in files],
        "host": [file.host for _, file in files],
        "size_bytes": [file.size_bytes for _, file in files],
        "path": [str(file.path) for _, file in files],
    }
    table = table_of("runs", "Runs, the newest last", _COLUMNS, data)
    return Report({"folder": str(path)}, {"run_count": len(runs)}, (Section("runs", "Runs", tables=(table,)),))
