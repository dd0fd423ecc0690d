"""Traces and files for the tests of timelines."""

from __future__ import annotations

from pathlib import Path

from builders import Plane, space
from export.timeline.perfetto_reader import Read, read_perfetto

from tfperf.export.timeline.export import ExportResult, export
from tfperf.export.timeline.selection import Selection
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.logdir import HostFile
from tfperf.trace.read import read_host


def host_file(folder: Path, *planes: Plane, host: str = "h0") -> HostFile:
    path = folder / f"{host}.xplane.pb"
    path.write_bytes(space(*planes))
    return HostFile(host, path)


def exported(
    folder: Path, *planes: Plane, selection: Selection | None = None, name: str = "made.pftrace"
) -> tuple[ExportResult, Path]:
    output = folder / name
    return export([host_file(folder, *planes)], output, selection or Selection()), output


def shown(folder: Path, *planes: Plane, selection: Selection | None = None) -> Read:
    """Write planes as a profile, export it for Perfetto, and read that back."""
    return read_perfetto(exported(folder, *planes, selection=selection)[1])


def whole_trace(path: Path) -> HostTrace:
    return read_host(path, everything=True)
