"""Profiles of real jobs, analyzed once for all tests that only read the results: one worker runs all their files."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from places import SAMPLES, TRACES

import tfperf
from tfperf.trace.host.activities import Attribution


def every_trace() -> list[Path]:
    """Return the run folders of the sample traces, and of the test input where it lies beside this checkout."""
    files = [*SAMPLES.rglob("*.xplane.pb"), *TRACES.rglob("*.xplane.pb")]
    return sorted({file.parent for file in files if file.parent.name != "corrupt_tpu"})


def analysis_of(path: Path, attribution: Attribution = "corrected") -> tfperf.Analysis:
    """Return the analysis of a run, all sections; a run is read once, whatever path leads to it."""
    traces = list(path.rglob("*.xplane.pb")) if path.is_dir() else []
    folders = {trace.parent for trace in traces}
    return _analysis_of(folders.pop() if len(folders) == 1 else path, attribution)


@cache
def _analysis_of(path: Path, attribution: Attribution) -> tfperf.Analysis:
    return tfperf.load(path, attribution=attribution)
