"""The steps that a comparison or a limit counts: whole ones, after those that the user skips."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tfperf.trace.steps import END_ESTIMATED, PARTIAL

if TYPE_CHECKING:
    from tfperf.sections.steps.breakdown import Breakdown
    from tfperf.session import Trace

_NOT_WHOLE = (PARTIAL, END_ESTIMATED)


def whole_steps(trace: Trace, skip_first: int = 0) -> Trace:
    """Return the trace without the first `skip_first` steps of each host, and without steps that were cut off.

    A report may fall back on such steps where there are no better ones and say so; a verdict may not.
    """
    hosts = tuple(replace(host, breakdown=_whole(host.breakdown, skip_first)) for host in trace.hosts)
    return replace(trace, hosts=hosts)


def _whole(breakdown: Breakdown, skip_first: int) -> Breakdown:
    flags = breakdown.steps.flags[skip_first:]
    rows = [skip_first + row for row, flag in enumerate(flags) if flag not in _NOT_WHOLE]
    return breakdown.only(np.array(rows, np.int64))
