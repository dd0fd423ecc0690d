"""The outcome of a check: the result of each limit, the exit code, and the report.

The report has the verdict, a table of limits, the baseline, and explanations of breaches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.display import Shown, cut
from tfperf.base.units import BYTE_UNITS, Unit, listed
from tfperf.judge.limits import CAUSE, Limit
from tfperf.report.model import (
    RESULTS,
    Column,
    Fact,
    Finding,
    Gauge,
    GaugeChart,
    Report,
    Section,
    Severity,
    Status,
    Table,
    at_levels,
    table_of,
)
from tfperf.report.render.values import cell_text, unit_mark
from tfperf.trace.steps.steps import step_word

if TYPE_CHECKING:
    from tfperf.judge.regression import StepComparison
else:  # help(Judged) looks up the name
    StepComparison = Any


class Judged(Shown, Struct, frozen=True, kw_only=True):
    """The result of one limit on its worst host."""

    limit: Limit
    status: Status
    title: str
    """The measured metric: `Input-bound`, `Step time (p95)`, `sum of kernels.total_us[name~nccl]`."""
    measured: float | None
    """In the unit of the limit; None if it could not be measured."""
    unit: Unit
    host: str
    """The worst host; empty for a single host, or if none was measured."""
    why: str = ""
    """If unknown: the missing data and a fix. Else: the basis of the number; may be empty."""
    evidence: tuple[Finding, ...] = ()
    """For a breach: the findings that explain it, with the first action."""
    comparison: StepComparison | None = None
    """For a regression limit."""
    doubt: str = ""
    """Why the figure is doubtful, if it was checked because doubt is allowed."""


class Outcome(Shown, Struct, frozen=True, kw_only=True):
    """The outcome of a check: the profile and the result of each limit.

    `exit_code` is 3 if a limit is breached, else 1 if one is unknown (or there is none), else 0.
    """

    judged: tuple[Judged, ...]
    run: str = ""
    folder: str = ""
    config_file: str = ""
    """The file with limits and settings, besides the command line; may be empty."""
    hosts: tuple[str, ...] = ()
    step_count: int = 0
    """Whole steps on the host with the fewest."""
    step_kind: str = ""
    """Their kind; empty if nothing was checked."""
    other_kinds: Mapping[str, int] = {}
    """Omitted whole steps by other kind, each on the host with the most."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return cut(super().__repr__().replace("(", f"(exit_code={self.exit_code}, ", 1))

    @property
    def breached(self) -> tuple[Judged, ...]:
        """Return the breached limits."""
        return tuple(judged for judged in self.judged if judged.status == "breach")

    @property
    def unknown(self) -> tuple[Judged, ...]:
        """Return the unknown limits."""
        return tuple(judged for judged in self.judged if judged.status == "unknown")

    @property
    def despite_doubt(self) -> tuple[Judged, ...]:
        """Return the limits that were checked although their figures are doubtful."""
        return tuple(judged for judged in self.judged if judged.doubt)

    @property
    def exit_code(self) -> int:
        """Return 0 if every limit passes, 3 if one is breached, else 1."""
        if self.breached:
            return 3
        return 1 if self.unknown or not self.judged else 0


def not_judged(limits: Sequence[Limit], reason: str) -> Outcome:
    """Return the outcome without a profile: every limit is unknown."""
    return Outcome(
        judged=tuple(
            Judged(limit=limit, status="unknown", title=limit.metric.name, measured=None, unit="", host="", why=reason)
            for limit in limits
        )
    )


VERDICTS: Mapping[int, Status] = {0: "pass", 1: "unknown", 3: "breach"}
_SEVERITIES: dict[str, Severity] = {"pass": "info", "unknown": "problem", "breach": "problem"}
_DEMANDS = {"<": "less than", "<=": "at most", ">": "more than", ">=": "at least"}
_NAMED_LIMITS = 5
_AXIS = 1.5
"""End of a gauge, as a multiple of the bound."""
_MOST_DIGITS = 17
_CLOSE = Decimal("1e-9")
_BYTES: Mapping[str, int] = {unit: 1000**power for power, unit in enumerate(BYTE_UNITS)}
LIMIT_COLUMNS = (
    Column("limit", "Limit", str, "", "the limit as written"),
    Column("metric", "What", str, "", "metric of the limit", "data"),
    Column("measured_text", "Measured", str, "", "measured value, with enough digits to show the result"),
    Column("margin_text", "Margin", str, "", "distance to the bound; for percentages, in percentage points"),
    Column("result", "Result", str, "", "pass, breach, or unknown if it could not be checked"),
    Column(
        "host", "Host", str, "", "the worst host for this limit; empty for a single host or if no value was measured"
    ),
    Column("measured", "Measured", float, "", "measured value, in `unit`", "data"),
    Column("relation", "Relation", str, "", "required relation of measured to bound: <, <=, > or >=", "data"),
    Column("bound", "Bound", float, "", "the bound, in `unit`", "data"),
    Column("margin", "Margin", float, "", "distance to the bound, in `unit`; negative if breached", "data"),
    Column("unit", "Unit", str, "", "unit of measured, bound and margin: ms, us, ps, %, bytes or count", "data"),
    Column("origin", "From", str, "", "source of the limit: the command line or a file", "data"),
    Column("why", "Why", str, "", "basis of the result; if unknown, the missing data", "data"),
    Column("evidence", "Evidence", str, "", "findings of the report that explain a breach, with actions", "data"),
    Column("doubt", "Doubt", str, "", "why the figure may be wrong, if it was checked despite doubt", "data"),
)
BASELINE_COLUMNS = (
    Column("stat", "Statistic", str, "", "statistic of the step times: mean, median or p95"),
    Column("before_ms", "Baseline", float, "ms", "step time in the baseline"),
    Column("after_ms", "Now", float, "ms", "step time in the checked profile"),
    Column("change_percent", "Change", float, "%", "increase of the step time"),
    Column(
        "interval", "Interval", str, "", "interval of the change (bootstrap), with enough digits to show the result"
    ),
    Column("allowed", "Allowed", str, "", "tolerance: largest change that is not a regression"),
    Column("result", "Result", str, "", "pass, breach, or unknown if it could not be checked"),
    Column("verdict", "Verdict", str, "", "conclusion from the interval: slower, not slower, or inconclusive", "data"),
    Column("before_steps", "Steps before", int, "count", "whole steps in the baseline", "data"),
    Column("after_steps", "Steps now", int, "count", "whole steps in the checked profile", "data"),
    Column("steps_needed", "Steps needed", int, "count", "sufficient number of steps in each run for a result", "data"),
    Column("before_host", "Host before", str, "", "the compared host: the slowest one of the baseline", "data"),
    Column("after_host", "Host now", str, "", "the compared host: the slowest one of the profile", "data"),
    Column("ratio", "Ratio", float, "", "step time now / step time in the baseline", "data"),
    Column("ratio_low", "Ratio from", float, "", "lower end of the interval of the ratio", "data"),
    Column("ratio_high", "Ratio to", float, "", "upper end of the interval of the ratio", "data"),
    Column("confidence", "Confidence", float, "", "confidence of the interval: 0.9 is 90%", "data"),
    Column("tolerance_percent", "Tolerance", float, "%", "tolerance: largest change that is not a regression", "data"),
)


def check_report(outcome: Outcome) -> Report:
    """Return the report; its `summary` has the verdict (pass, breach or unknown), exit code and counts."""
    source = {
        "run": outcome.run,
        "folder": outcome.folder,
        "hosts": list(outcome.hosts),
        "limits_from": outcome.config_file,
    }
    summary = {
        "verdict": VERDICTS[outcome.exit_code],
        "exit_code": outcome.exit_code,
        "limits": len(outcome.judged),
        "passed": sum(judged.status == "pass" for judged in outcome.judged),
        "breached": len(outcome.breached),
        "unknown": len(outcome.unknown),
        "despite_doubt": len(outcome.despite_doubt),
        "step_count": outcome.step_count,
        "step_kind": outcome.step_kind or None,
        "other_step_kinds": dict(outcome.other_kinds),
    }
    sections = [_limits_section(outcome)]
    for judged in outcome.judged:
        if judged.comparison is not None:
            table = _baseline_table(judged, judged.comparison)
            sections.append(Section("baseline", "Comparison with the baseline", tables=(table,)))
    sections += _why_sections(outcome)
    return Report({key: value for key, value in source.items() if value}, summary, tuple(sections))


def headline(outcome: Outcome) -> str:
    """Return one line with the result, the breached and the unknown limits, and the number of passing ones."""
    count, passed = len(outcome.judged), sum(judged.status == "pass" for judged in outcome.judged)
    if not count:
        return f"{RESULTS['unknown']}. No limits were given, so nothing was checked."
    parts = [f"{RESULTS['breach']}: {_names(outcome.breached)}."] if outcome.breached else []
    parts += [f"{RESULTS['unknown']}: {_names(outcome.unknown)}."] if outcome.unknown else []
    if passed == count:
        parts.append(f"{RESULTS['pass']}. {'The limit passed' if count == 1 else f'All {count} limits passed'}.")
    else:
        parts.append(f"{passed} of {count} limits passed.")
    parts += [f"Checked despite doubt: {_names(outcome.despite_doubt)}."] if outcome.despite_doubt else []
    return " ".join(parts)


def sentence(judged: Judged) -> str:
    """Return the result of a limit with both numbers: `Input-bound is 63.4% on host a; the limit is at most 10.0%.`"""
    if judged.status == "unknown":
        return f"{judged.limit.text} could not be checked: {why(judged)}"
    comparison = judged.comparison
    if comparison is not None and comparison.ratio is not None:
        interval = f"{100.0 * comparison.ratio.confidence:.3g}% confidence interval: {_interval(comparison)}"
        change = f"{judged.measured or 0.0:.1f}% longer than in the baseline ({interval})"
        return f"Steps take {change}; the tolerance is {_allowed(comparison)}."
    where = f" on host {judged.host}" if judged.host else ""
    if judged.limit.metric.name == CAUSE:
        names = "reports" if judged.measured else "does not report"
        return f"The diagnosis {names} the cause {judged.limit.metric.cause}{where}."
    measured, bound = _texts(judged)
    return f"{judged.title} is {measured}{where}; the limit is {_DEMANDS[judged.limit.relation]} {bound}."


def why(judged: Judged) -> str:
    """Return the basis of a result, or the missing data; may be empty."""
    return judged.why or (judged.comparison.why if judged.comparison else "")


def open_questions(outcome: Outcome) -> list[tuple[str, str]]:
    """Return the unknown limits with their reasons; limits with the same reason are joined."""
    limits: dict[str, list[str]] = {}
    for judged in outcome.unknown:
        limits.setdefault(why(judged), []).append(judged.limit.text)
    return [(f"{', '.join(texts)} could not be checked", reason) for reason, texts in limits.items()]


def _limits_section(outcome: Outcome) -> Section:
    verdict = VERDICTS[outcome.exit_code]
    several_hosts = len(outcome.hosts) > 1
    notes = [f"{step_word(outcome.step_kind)}s"] if outcome.other_kinds and outcome.step_kind else []
    notes += ["on the host with the fewest"] if several_hosts else []
    facts = (Fact("step_count", "Steps checked", outcome.step_count, "count", ", ".join(notes)),)
    columns = LIMIT_COLUMNS if several_hosts else at_levels(LIMIT_COLUMNS, {"host": "data"})
    rows = [_row(judged) for judged in outcome.judged]
    data = {column.key: [row[column.key] for row in rows] for column in columns}
    return Section(
        "check",
        "Limits",
        findings=(Finding(verdict, _SEVERITIES[verdict], headline(outcome)),),
        facts=facts if outcome.hosts else (),
        charts=(_gauges(outcome),),
        tables=(table_of("limits", "Limits and measured values", columns, data),) if rows else (),
        notes=outcome.notes,
    )


def _gauges(outcome: Outcome) -> GaugeChart:
    """Return the verdict, and each limit with its measured value; their axes go beyond the bound."""
    gauges = []
    for judged in outcome.judged:
        on_host = f" on {judged.host}" if judged.host and len(outcome.hosts) > 1 else ""
        gauge = Gauge(
            limit=judged.limit.text, measured=f"{_measured_text(judged) or '-'}{on_host}", status=judged.status
        )
        bound, measured = judged.limit.bound, judged.measured
        has_numbers = judged.status != "unknown" and judged.limit.metric.name != CAUSE
        if measured is not None and has_numbers and math.isfinite(measured) and bound >= 0:
            end = max(measured, _AXIS * bound) or 1.0
            gauge = replace(gauge, share=max(measured, 0.0) / end, bound_share=bound / end)
        gauges.append(gauge)
    return GaugeChart(
        title="Measured values and limits",
        status=VERDICTS[outcome.exit_code],
        headline=headline(outcome),
        gauges=tuple(gauges),
    )


def _row(judged: Judged) -> dict[str, Any]:
    margin, margin_text = _margin(judged), None
    if margin is not None:
        side = "left" if margin > 0 else "short" if judged.limit.relation.startswith(">") else "over"
        mark = " points" if judged.unit == "%" else unit_mark(judged.unit)
        margin_text = f"{cell_text(abs(margin), judged.unit)}{mark} {side}" if margin else "at the bound"
    return {
        "limit": judged.limit.text,
        "metric": judged.title,
        "measured_text": _measured_text(judged),
        "margin_text": margin_text,
        "result": judged.status,
        "host": judged.host,
        "measured": judged.measured,
        "relation": judged.limit.relation,
        "bound": judged.limit.bound,
        "margin": margin,
        "unit": judged.unit,
        "origin": judged.limit.origin,
        "why": why(judged),
        "evidence": " ".join(f"{finding.text} {finding.action}".strip() for finding in judged.evidence),
        "doubt": judged.doubt,
    }


def _measured_text(judged: Judged) -> str | None:
    if judged.measured is None and judged.status == "pass":
        return "none"
    if judged.measured is None or not math.isfinite(judged.measured):
        return None
    if judged.limit.metric.name == CAUSE:
        return "reported" if judged.measured else "not reported"
    if judged.comparison is None or judged.comparison.ratio is None:
        return _texts(judged)[0]
    return f"{_fixed(judged.measured, 1)}% ({_interval(judged.comparison)})"


def _margin(judged: Judged) -> float | None:
    """Return the distance to the bound, negative for a breach; None if the result is not numeric."""
    if judged.status == "unknown" or judged.measured is None:
        return None
    if judged.comparison is not None or judged.limit.metric.name == CAUSE:
        return None
    distance = judged.measured - judged.limit.bound
    return distance if judged.limit.relation.startswith(">") else -distance


def _texts(judged: Judged) -> tuple[str, str]:
    measured, bound = shown_together(judged.measured or 0.0, judged.limit.bound, judged.unit)
    mark = unit_mark(judged.unit)
    return measured + mark, bound + mark


def _names(several: Sequence[Judged]) -> str:
    return listed([judged.limit.text for judged in several], _NAMED_LIMITS)


def _baseline_table(judged: Judged, comparison: StepComparison) -> Table:
    if judged.status == "unknown" and comparison.verdict != "inconclusive":
        # The times of incomparable runs are correct, but their ratio has no meaning.
        comparison = replace(comparison, verdict="inconclusive", ratio=None)
    row: dict[str, Any] = {column.key: getattr(comparison, column.key, None) for column in BASELINE_COLUMNS}
    row |= {
        "result": judged.status,
        "interval": _interval(comparison),
        "allowed": _allowed(comparison),
        "tolerance_percent": 100.0 * comparison.tolerance,
    }
    if comparison.ratio is not None:
        row |= {
            "change_percent": 100.0 * (comparison.ratio.value - 1.0),
            "ratio": comparison.ratio.value,
            "ratio_low": comparison.ratio.low,
            "ratio_high": comparison.ratio.high,
            "confidence": comparison.ratio.confidence,
        }
    data = {key: [value] for key, value in row.items()}
    return table_of("baseline", "Step time, baseline and now", BASELINE_COLUMNS, data, note=why(judged))


def _allowed(comparison: StepComparison) -> str:
    return f"{100.0 * comparison.tolerance:.10g}%"


def _interval(comparison: StepComparison) -> str | None:
    """Return the interval of the change in percent, with digits that agree with the verdict."""
    if comparison.ratio is None:
        return None
    allowed, ends = 100.0 * comparison.tolerance, []
    for ratio in (comparison.ratio.low, comparison.ratio.high):
        side = _side_of(ratio, 1.0 + comparison.tolerance)
        texts = (_fixed(100.0 * (ratio - 1.0), digits) for digits in range(1, 17))
        ends.append(next((text for text in texts if _side_of(float(text), allowed) == side), f"{allowed:.10g}"))
    return f"{ends[0]}% to {ends[1]}%"


def _fixed(value: float, digits: int) -> str:
    # + 0.0 avoids -0.0.
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _why_sections(outcome: Outcome) -> list[Section]:
    # Unknown limits decide the exit code only if none is breached.
    severity: Severity = "hint" if outcome.breached else "problem"
    findings: dict[tuple[str, str], Finding] = {}
    for judged in outcome.breached:
        text = sentence(judged)
        if judged.why and judged.comparison is None:
            text = f"{text[:-1]} ({judged.why.removesuffix('.')})."
        for finding in (Finding("breach", "problem", text), *judged.evidence):
            # Limits breached for the same reason share one action.
            findings.setdefault((finding.code, finding.action or finding.text), finding)
    unjudged = [Finding("unknown", severity, f"{what}: {reason}") for what, reason in open_questions(outcome)]
    every = (*findings.values(), *unjudged)
    return [Section("why", "Why", findings=every)] if every else []


# --- digits that agree with the result ---


def shown_together(measured: float, bound: float, unit: Unit) -> tuple[str, str]:
    """Format both with the usual digits, or with more if they would compare incorrectly.

    Sizes include their unit; the caller adds others. A bound keeps its original form, except for sizes.
    """
    if not (math.isfinite(measured) and math.isfinite(bound)):
        return cell_text(measured, unit), cell_text(bound, unit)
    exact_bound = Decimal(bound)
    side = _side_of(Decimal(measured), exact_bound)
    for texts in _with_more_digits(measured, bound, unit):
        numbers = _number_seen(texts[0]), _number_seen(texts[1])
        is_bound_kept = unit == "bytes" or abs(numbers[1] - exact_bound) <= _CLOSE * abs(exact_bound)
        if _side_of(*numbers) == side and is_bound_kept:
            break
    return texts


def _with_more_digits(measured: float, bound: float, unit: Unit) -> Iterator[tuple[str, str]]:
    """Yield both as text with more and more digits; the last pair is exact."""
    yield cell_text(measured, unit), cell_text(bound, unit)
    prefix, mark, exact_mark = "B", "", ""
    if unit == "bytes":
        largest = max(abs(measured), abs(bound))
        prefix = next((name for name in reversed(BYTE_UNITS) if largest >= _BYTES[name]), "B")
        mark, exact_mark = f" {prefix}", " B"
    for digits in range(1, _MOST_DIGITS + 1):
        left, right = (f"{value / _BYTES[prefix]:,.{digits}f}{mark}" for value in (measured, bound))
        yield left, right
    yield f"{Decimal(measured):f}{exact_mark}", f"{Decimal(bound):f}{exact_mark}"


def _number_seen(text: str) -> Decimal:
    """Return the displayed number; `<` and `>` shift it slightly."""
    digits, _, mark = text.replace(",", "").partition(" ")
    number = Decimal(digits.lstrip("<>")) * _BYTES.get(mark, 1)
    return number + {"<": -_CLOSE, ">": _CLOSE}.get(text[0], Decimal(0))


def _side_of(left: float | Decimal, right: float | Decimal) -> int:
    return (left > right) - (left < right)
