"""A timeline for Python programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfperf.timeline.export import Exported, export
from tfperf.timeline.model import Selection
from tfperf.trace.logdir import choose_hosts, choose_run, find_runs
from tfperf.trace.progress import Progress


def write_timeline(
    path: str | Path,
    output: str | Path,
    *,
    run: str | None = None,
    hosts: Sequence[str] = (),
    steps: tuple[int, int] | None = None,
    threads: Sequence[str] = (),
    min_duration_us: float = 0.0,
    step_marker: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write the events of a profile as a file for a trace viewer, and return what is in it.

    `path`, `run`, `hosts` and `step_marker` are those of `tfperf.load`. The suffix of `output` says the format:
    `.pftrace` for Perfetto, `.json` or `.json.gz` for chrome://tracing and others. `steps` are the first and the last
    number, `threads` patterns of the names of lines or planes, `min_duration_us` is the length that an event must
    have. A file that exists is replaced only with `force`. Raises TfperfError.
    """
    chosen = choose_hosts(choose_run(find_runs(Path(path)), run), tuple(hosts))
    selection = Selection(steps, tuple(threads), round(min_duration_us * 1e6))
    return export(chosen.files, Path(output), selection, step_marker=step_marker, force=force, progress=progress)
