"""What a gate came to, as a report: the verdict, a table of limits, the baseline, and why limits do not hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfperf.compare.model import Comparison
from tfperf.gate import columns
from tfperf.gate.digits import shown, side_of
from tfperf.gate.model import Judged, Limit, Outcome
from tfperf.report.model import Fact, Finding, Report, Section, Severity, Table
from tfperf.units import Unit, format_bytes, format_ms, format_percent

VERDICTS = {0: "pass", 1: "unknown", 3: "breach"}
"""The verdict of each exit code."""

_SEVERITIES: dict[str, Severity] = {"pass": "info", "unknown": "problem", "breach": "problem"}
_DEMANDS = {"<": "less than", "<=": "at most", ">": "more than", ">=": "at least"}
_NAMED = 5


def check_report(outcome: Outcome) -> Report:
    """Return the report of a gate; `summary` has the verdict (pass, breach or unknown), exit code and counts."""
    source = {"run": outcome.run, "folder": outcome.folder, "hosts": list(outcome.hosts)}
    sections = (_check_section(outcome), *_baseline_sections(outcome), *_why_sections(outcome))
    return Report({key: value for key, value in source.items() if value}, _summary(outcome), sections)


def not_judged(limits: Sequence[Limit], reason: str) -> Outcome:
    """Return the outcome of a gate that got no trace to judge: every limit is unknown."""
    judged = tuple(Judged(limit, "unknown", limit.metric.name, None, "", "", reason) for limit in limits)
    return Outcome(judged, "", "", (), 0)


def headline(outcome: Outcome) -> str:
    """Say in one line which limits do not hold, and how many do."""
    count, passed = len(outcome.judged), sum(one.status == "pass" for one in outcome.judged)
    if not count:
        return "Nothing was checked: no limit was given."
    if passed == count:
        return "The limit holds." if count == 1 else f"All {count} limits hold."
    parts = [f"BREACHED: {_names(outcome.breached)}."] if outcome.breached else []
    parts += [f"COULD NOT BE JUDGED: {_names(outcome.unknown)}."] if outcome.unknown else []
    return " ".join([*parts, f"{passed} of {count} hold."])


def sentence(one: Judged) -> str:
    """Say what became of a limit, with both numbers: `Input-bound is 63.4% on host a; at most 10.0% is allowed.`"""
    if one.status == "unknown":
        return f"{one.limit.text} could not be judged: {why(one)}"
    if one.comparison is not None and one.comparison.ratio is not None:
        interval = f"{_interval(one.comparison)} with {100.0 * one.comparison.ratio.confidence:.3g}% confidence"
        change = f"{one.measured or 0.0:.1f}% longer than in the baseline ({interval})"
        return f"Steps take {change}; at most {_allowed(one.comparison)} is allowed."
    measured, bound = _texts(one)
    where = f" on host {one.host}" if one.host else ""
    return f"{one.title} is {measured}{where}; {_DEMANDS[one.limit.relation]} {bound} is allowed."


def why(one: Judged) -> str:
    """Return what the result of a limit rests on, or what is missing; may be empty."""
    return one.why or (one.comparison.why if one.comparison else "")


def open_questions(outcome: Outcome) -> list[tuple[str, str]]:
    """Return what could not be judged and why: a reason that several limits share stands once, with all of them."""
    limits: dict[str, list[str]] = {}
    for one in outcome.unknown:
        limits.setdefault(why(one), []).append(one.limit.text)
    return [(f"{', '.join(texts)} could not be judged", reason) for reason, texts in limits.items()]


def _summary(outcome: Outcome) -> dict[str, Any]:
    return {
        "verdict": VERDICTS[outcome.exit_code],
        "exit_code": outcome.exit_code,
        "limits": len(outcome.judged),
        "passed": sum(one.status == "pass" for one in outcome.judged),
        "breached": len(outcome.breached),
        "unknown": len(outcome.unknown),
        "step_count": outcome.step_count,
    }


# --- the table of limits ---


def _check_section(outcome: Outcome) -> Section:
    verdict = VERDICTS[outcome.exit_code]
    note = "on the host that has fewest" if len(outcome.hosts) > 1 else ""
    facts = (Fact("step_count", "Steps judged", outcome.step_count, "count", note),)
    return Section(
        "check", "Limits", (Finding(verdict, _SEVERITIES[verdict], headline(outcome)),), facts if outcome.hosts else (),
        tables=(_table(outcome),) if outcome.judged else (), notes=outcome.notes,
    )  # fmt: skip


def _table(outcome: Outcome) -> Table:
    declared = columns.limits(several_hosts=len(outcome.hosts) > 1)
    rows = [_row(one) for one in outcome.judged]
    data = {column.key: [row[column.key] for row in rows] for column in declared}
    return Table("limits", "Every limit, and what was measured", declared, data, len(rows))


def _row(one: Judged) -> dict[str, Any]:
    margin = _margin(one)
    return {
        "limit": one.limit.text, "metric": one.title, "measured_text": _measured(one),
        "margin_text": None if margin is None else _margin_text(one, margin),
        "result": one.status, "host": one.host, "measured": one.measured, "relation": one.limit.relation,
        "bound": one.limit.bound, "margin": margin, "unit": one.unit, "origin": one.limit.origin,
        "why": why(one), "evidence": " ".join(f"{own.text} {own.action}".strip() for own in one.evidence),
    }  # fmt: skip


def _measured(one: Judged) -> str | None:
    """Return what was measured as text; of a comparison with its interval, which is what decides."""
    if one.measured is None or not math.isfinite(one.measured):
        return None
    if one.comparison is None or one.comparison.ratio is None:
        return _texts(one)[0]
    return f"{one.measured:.1f}% ({_interval(one.comparison)})"


def _margin(one: Judged) -> float | None:
    """Return the distance to the bound, negative where it is breached.

    None without a number, and for a comparison: there the interval decides, not the distance.
    """
    if one.status == "unknown" or one.measured is None or one.comparison is not None:
        return None
    distance = one.measured - one.limit.bound
    return distance if one.limit.relation.startswith(">") else -distance


def _margin_text(one: Judged, margin: float) -> str:
    if not margin:
        return "at the bound"
    side = "left" if margin > 0 else "short" if one.limit.relation.startswith(">") else "over"
    return f"{_quantity(abs(margin), one.unit)} {side}"


def _quantity(value: float, unit: Unit) -> str:
    """Return a distance with its unit; between percentages it is in points."""
    if unit in ("ms", "us"):
        return f"{format_ms(value)} {unit}"
    if unit == "%":
        return f"{format_percent(value)} points"
    return format_bytes(value) if unit == "bytes" else f"{value:.6g}"


def _texts(one: Judged) -> tuple[str, str]:
    """Return measured and bound with units, in digits that stand to each other as the numbers do."""
    measured, bound = shown(one.measured or 0.0, one.limit.bound, one.unit)
    mark = {"%": "%", "ms": " ms", "us": " us"}.get(one.unit, "")
    return measured + mark, bound + mark


def _names(some: Sequence[Judged]) -> str:
    more = len(some) - _NAMED
    return ", ".join(one.limit.text for one in some[:_NAMED]) + (f" and {more} more" if more > 0 else "")


# --- the baseline ---


def _baseline_sections(outcome: Outcome) -> list[Section]:
    found = [_baseline_table(one, one.comparison) for one in outcome.judged if one.comparison is not None]
    return [Section("baseline", "Against the baseline", tables=tuple(found[:1]))] if found else []


def _baseline_table(one: Judged, found: Comparison) -> Table:
    if one.status == "unknown" and found.change != "cannot tell":
        # The times may be right and still not be comparable: then their ratio says nothing.
        found = replace(found, change="cannot tell", ratio=None)
    row: dict[str, Any] = {column.key: getattr(found, column.key, None) for column in columns.BASELINE}
    row |= {"result": one.status, "interval": _interval(found), "allowed": _allowed(found)}
    row["tolerance_percent"] = _percent(found)
    if found.ratio is not None:
        row |= {"change_percent": 100.0 * (found.ratio.value - 1.0), "ratio": found.ratio.value,
                "ratio_low": found.ratio.low, "ratio_high": found.ratio.high,
                "confidence": found.ratio.confidence}  # fmt: skip
    data = {column.key: [row[column.key]] for column in columns.BASELINE}
    return Table("baseline", "Step time before and now", columns.BASELINE, data, 1, why(one))


def _allowed(found: Comparison) -> str:
    return f"{_percent(found):.10g}%"


def _percent(found: Comparison) -> float:
    return 100.0 * found.tolerance


def _interval(found: Comparison) -> str | None:
    """Return the interval of the change in percent, in digits that stand to the allowed change as the numbers do."""
    if found.ratio is None:
        return None
    low, high = (_end(found, end) for end in (found.ratio.low, found.ratio.high))
    return f"{low}% to {high}%"


def _end(found: Comparison, ratio: float) -> str:
    side = side_of(ratio, 1.0 + found.tolerance)
    texts = (f"{100.0 * (ratio - 1.0):.{digits}f}" for digits in range(1, 17))
    return next((text for text in texts if side_of(float(text), _percent(found)) == side), f"{_percent(found):.10g}")


# --- why limits do not hold ---


def _why_sections(outcome: Outcome) -> list[Section]:
    breached = [finding for one in outcome.breached for finding in (_breach(one), *one.evidence)]
    # What could not be judged is what the exit code says, unless a breach says more.
    severity: Severity = "hint" if outcome.breached else "problem"
    unknown = [Finding("unknown", severity, f"{what}: {reason}") for what, reason in open_questions(outcome)]
    findings = [*_once(breached), *unknown]
    return [Section("why", "Why", tuple(findings))] if findings else []


def _breach(one: Judged) -> Finding:
    text = sentence(one)
    if one.why and one.comparison is None:
        text = f"{text[:-1]} ({one.why.removesuffix('.')})."
    return Finding("breach", "problem", text)


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """Drop advice that was given before: several limits may break for the same reason."""
    found: dict[tuple[str, str], Finding] = {}
    for own in findings:
        # What is no advice is about one limit, whatever another says.
        found.setdefault((own.code, own.action or own.text), own)
    return list(found.values())
