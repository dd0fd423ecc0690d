"""Profiles of real jobs, analyzed once for all tests that only read the results.

`SHARE_ANALYSES` in `tests/conftest.py` names the test files that use it, so that one worker runs them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import tfperf
from tfperf.trace.host.activities import Attribution

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "traces"
"""Traces of other people's jobs, which are no part of the project."""


def analysis_of(path: Path, attribution: Attribution = "corrected") -> tfperf.Analysis:
    """Return the analysis of a run, all sections; a run is read once, whatever path leads to it."""
    traces = list(path.rglob("*.xplane.pb")) if path.is_dir() else []
    folders = {trace.parent for trace in traces}
    return _analysis_of(folders.pop() if len(folders) == 1 else path, attribution)


@cache
def _analysis_of(path: Path, attribution: Attribution) -> tfperf.Analysis:
    return tfperf.load(path, attribution=attribution)
