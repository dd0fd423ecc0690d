"""The columns of the table of limits.

What people read is text in digits that agree with the result; the numbers behind it are for programs.
"""

from __future__ import annotations

from dataclasses import replace

from tfperf.report.model import Column

_LIMITS = (
    Column("limit", "Limit", str, "", "the limit as it was written"),
    Column("metric", "What", str, "", "what was measured, in words", level="data"),
    Column("measured_text", "Measured", str, "", "what was measured, in digits that agree with the result"),
    Column("margin_text", "Margin", str, "", "how far that is from the bound; for percentages in percentage points"),
    Column("result", "Result", str, "", "pass, breach, or unknown if it could not be judged"),
    Column("host", "Host", str, "", "the host that is worst for this limit; empty where it is of no one host"),
    Column(
        "measured",
        "Measured",
        str,
        "",
        "what was measured, in `unit`; not known if it could not be measured",
        level="data",
    ),
    Column("relation", "Relation", str, "", "how it must stand to the bound: <, <=, > or >=", level="data"),
    Column("bound", "Bound", str, "", "the bound, in `unit`", level="data"),
    Column(
        "margin", "Margin", str, "", "distance to the bound in `unit`; negative if the limit is breached", level="data"
    ),
    Column("unit", "Unit", str, "", "unit of measured, bound and margin: ms, us, %, bytes or count", level="data"),
    Column("origin", "From", str, "", "where the limit was written: the command line, or a file", level="data"),
    Column(
        "why", "Why", str, "", "what the result rests on; for unknown what is missing, and what to try", level="data"
    ),
    Column("evidence", "Evidence", str, "", "what the report says about a breach, with its first advice", level="data"),
)

BASELINE = (
    Column("stat", "Of steps", str, "", "what stands for the step times of a run: mean, median or p95"),
    Column("before_ms", "Baseline", float, "ms", "step time in the baseline"),
    Column("after_ms", "Now", float, "ms", "step time in the profile that is checked"),
    Column("change_percent", "Change", float, "%", "how much longer steps take now"),
    Column(
        "interval", "Interval", str, "", "interval of the change by bootstrap, in digits that agree with the result"
    ),
    Column("allowed", "Allowed", str, "", "change from which it is a regression"),
    Column("result", "Result", str, "", "pass, breach, or unknown if it could not be judged"),
    Column("change", "Said", str, "", "what the interval says: slower, holds, or cannot tell", level="data"),
    Column("before_steps", "Steps before", int, "count", "whole steps in the baseline", level="data"),
    Column("after_steps", "Steps now", int, "count", "whole steps in the profile that is checked", level="data"),
    Column("steps_needed", "Steps needed", int, "count", "steps in each run that would tell", level="data"),
    Column("before_host", "Host before", str, "", "host of the baseline that is compared: its slowest", level="data"),
    Column("after_host", "Host now", str, "", "host of the profile that is compared: its slowest", level="data"),
    Column("ratio", "Ratio", str, "", "step time now / step time in the baseline", level="data"),
    Column("ratio_low", "Ratio from", str, "", "lower end of its interval", level="data"),
    Column("ratio_high", "Ratio to", str, "", "upper end of its interval", level="data"),
    Column("confidence", "Confidence", str, "", "of the interval: 0.9 is 90 %", level="data"),
    Column("tolerance_percent", "Tolerance", float, "%", "change from which it is a regression", level="data"),
)


def limits(*, several_hosts: bool) -> tuple[Column, ...]:
    """Return the columns; with a single host, people need not be told which."""
    hidden = () if several_hosts else ("host",)
    return tuple(replace(column, compact=column.compact and column.key not in hidden) for column in _LIMITS)
