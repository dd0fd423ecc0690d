"""The columns of the table of limits.

What people read is text in digits that agree with the result; the numbers behind it are for programs.
"""

from __future__ import annotations

from dataclasses import replace

from tfperf.report.model import Column

_LIMITS = (
    Column("limit", "Limit", "", "the limit as it was written"),
    Column("metric", "What", "", "what was measured, in words", compact=False),
    Column("measured_text", "Measured", "", "what was measured, in digits that agree with the result"),
    Column("margin_text", "Margin", "", "how far that is from the bound; for percentages in percentage points"),
    Column("result", "Result", "", "pass, breach, or unknown if it could not be judged"),
    Column("host", "Host", "", "the host that is worst for this limit; empty where it is of no one host"),
    Column("measured", "Measured", "", "what was measured, in `unit`; not known if it could not be measured", False),
    Column("relation", "Relation", "", "how it must stand to the bound: <, <=, > or >=", compact=False),
    Column("bound", "Bound", "", "the bound, in `unit`", compact=False),
    Column("margin", "Margin", "", "distance to the bound in `unit`; negative if the limit is breached", compact=False),
    Column("unit", "Unit", "", "unit of measured, bound and margin: ms, us, %, bytes or count", compact=False),
    Column("origin", "From", "", "where the limit was written: the command line, or a file", compact=False),
    Column("why", "Why", "", "what the result rests on; for unknown what is missing, and what to try", compact=False),
    Column("evidence", "Evidence", "", "what the report says about a breach, with its first advice", compact=False),
)

BASELINE = (
    Column("stat", "Of steps", "", "what stands for the step times of a run: mean, median or p95"),
    Column("before_ms", "Baseline", "ms", "step time in the baseline"),
    Column("after_ms", "Now", "ms", "step time in the profile that is checked"),
    Column("change_percent", "Change", "%", "how much longer steps take now"),
    Column("interval", "Interval", "", "interval of the change by bootstrap, in digits that agree with the result"),
    Column("allowed", "Allowed", "", "change from which it is a regression"),
    Column("result", "Result", "", "pass, breach, or unknown if it could not be judged"),
    Column("verdict", "Verdict", "", "what the interval shows: slower, not slower, or inconclusive", compact=False),
    Column("before_steps", "Steps before", "count", "whole steps in the baseline", compact=False),
    Column("after_steps", "Steps now", "count", "whole steps in the profile that is checked", compact=False),
    Column("steps_needed", "Steps needed", "count", "steps in each run that would tell", compact=False),
    Column("before_host", "Host before", "", "host of the baseline that is compared: its slowest", compact=False),
    Column("after_host", "Host now", "", "host of the profile that is compared: its slowest", compact=False),
    Column("ratio", "Ratio", "", "step time now / step time in the baseline", compact=False),
    Column("ratio_low", "Ratio from", "", "lower end of its interval", compact=False),
    Column("ratio_high", "Ratio to", "", "upper end of its interval", compact=False),
    Column("confidence", "Confidence", "", "of the interval: 0.9 is 90 %", compact=False),
    Column("tolerance_percent", "Tolerance", "%", "change from which it is a regression", compact=False),
)


def limits(*, several_hosts: bool) -> tuple[Column, ...]:
    """Return the columns; with a single host, people need not be told which."""
    hidden = () if several_hosts else ("host",)
    return tuple(replace(column, compact=column.compact and column.key not in hidden) for column in _LIMITS)
