"""How far the reading of several files is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate

from tfperf.trace.logdir import HostFile

Progress = Callable[[int, int], None]
"""Called with bytes read so far and bytes in all."""


def progress_by_file(files: Sequence[HostFile], progress: Progress | None) -> list[Progress | None]:
    """Return for each file what to call while it is read, so that `progress` counts the bytes of all files."""
    if progress is None:
        return [None] * len(files)
    sizes = [file.size_bytes or 0 for file in files]
    return [partial(_report, progress, before, sum(sizes)) for before in [*accumulate(sizes, initial=0)][:-1]]


def _report(progress: Progress, before: int, total: int, done: int, _: int) -> None:
    progress(before + done, total)
