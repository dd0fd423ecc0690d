"""The linter's report: the answer, the change for each rule, all findings, and the ops that were not checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfperf.base.units import counted
from tfperf.models.linter.engine import LintResult
from tfperf.models.linter.padding import LEVELS, Level, PaddedTensor
from tfperf.models.linter.rule import Violation, worst
from tfperf.models.linter.rules import RULES
from tfperf.report.model import Column, Fact, Finding, Ranked, Report, Section, Severity, Table, at_levels, table_of

_SEVERITIES: Mapping[Level, Severity] = {"high": "problem", "medium": "hint", "low": "hint", "info": "info"}
VIOLATION_COLUMNS = (
    Column("rule", "Rule", str, "", "id of the rule (see tfperf explain)"),
    Column("level", "Level", str, "", "severity: high, medium, low or info"),
    Column("op", "Op", str, "", "the op, or the first one of several"),
    Column("dims", "Shape", str, "", "shape of the op's tensor that wastes most, in the program"),
    Column("padded_dims", "Padded", str, "", "its padded shape, in the layout that wastes least"),
    Column("ratio", "Times", float, "", "padded size / size"),
    Column("wasted_bytes", "Waste", int, "bytes", "padding of all tensors of the op, and bytes moved unnecessarily"),
    Column("ratio_most", "Times, at most", float, "", "padded size / size, in the layout that wastes most", "data"),
    Column("tensor", "Tensor", str, "", "role of the tensor in the op", "data"),
    Column("op_type", "Type", str, "", "type of the op", "data"),
    Column("ops", "Ops", str, "", "all ops of the finding", "data"),
    Column("what", "What", str, "", "text of the finding", "data"),
    Column("advice", "Advice", str, "", "suggested change", "data"),
    Column("unless", "Unless", str, "", "when the change does not apply", "data"),
    Column("certainty", "Certainty", str, "", "exact, estimated (from the usual layout of the device) or weak", "data"),
    Column("runs_in", "Runs in", str, "", "HLO op of a compiled program that it runs in", "data"),
    Column("source_line", "Source", str, "", "file and line of the program, if recorded", "data"),
    Column("share_percent", "Of device time", float, "%", "share of device time, if the source is a profile", "data"),
)
UNKNOWN_COLUMNS = (
    Column("why", "Why", str, "", "missing data"),
    Column("op_count", "Ops", int, "count", "number of ops that could not be checked for this reason"),
    Column("op", "First", str, "", "the first of these ops"),
    Column("ops", "All", str, "", "all of them", "data"),
)


def lint_report(result: LintResult) -> Report:
    """Return the report; `summary` counts findings by level, checked ops and unchecked ops."""
    counts = {level: sum(each.level == level for each in result.violations) for level in LEVELS}
    summary: dict[str, Any] = {
        "findings": len(result.violations),
        **{f"{level}": count for level, count in counts.items()},
        "evaluated_ops": result.evaluated,
        "not_evaluable_ops": len(result.unknown),
    }
    severity: Severity = "problem" if result.is_empty else "info"
    if result.violations:
        severity = _SEVERITIES[worst([violation.level for violation in result.violations])]
    section = Section(
        "lint",
        "Shapes and ops",
        findings=(Finding("lint", severity, f"{result.headline}."), *_by_rule(result)),
        facts=(Fact("device", "Rules for", result.device.upper()),),
        tables=tuple(_tables(result)),
        notes=result.notes,
        is_lead=True,
    )
    return Report({"path": result.source, "device": result.device}, summary, (section,))


def _by_rule(result: LintResult) -> Iterator[Finding]:
    """Yield a finding for each rule, with its worst place and the change."""
    found: dict[str, list[Violation]] = {}
    for violation in result.violations:
        found.setdefault(violation.rule, []).append(violation)
    for rule, violations in found.items():
        first = violations[0]
        places = f"{counted(len(violations), 'place')}, first " if len(violations) > 1 else ""
        text = f"{rule} ({first.level}) {RULES[rule].title}: {places}{first.ops[0]}: {first.what}."
        yield Finding(rule, _SEVERITIES[first.level], text, f"{first.advice}. Unless: {first.unless}.")


def _tables(result: LintResult) -> Iterator[Table]:
    if result.violations:
        rows = [_row(violation) for violation in result.violations]
        data = {column.key: [row[column.key] for row in rows] for column in VIOLATION_COLUMNS}
        ranked = Ranked("wasted_bytes")
        columns: tuple[Column, ...] = VIOLATION_COLUMNS
        if any(violation.share is not None for violation in result.violations):
            columns = at_levels(columns, {"share_percent": "brief"})
        yield table_of("lint_findings", "Findings, most severe first", columns, data, ranked=ranked)
    if result.unknown:
        by_reason: dict[str, list[str]] = {}
        for op, why in result.unknown.items():
            by_reason.setdefault(why, []).append(op)
        unknown: dict[str, list[Any]] = {
            "why": [*by_reason],
            "op_count": [len(ops) for ops in by_reason.values()],
            "op": [ops[0] for ops in by_reason.values()],
            "ops": [", ".join(ops) for ops in by_reason.values()],
        }
        yield table_of("lint_not_evaluable", "Ops that could not be checked", UNKNOWN_COLUMNS, unknown)


def _row(violation: Violation) -> dict[str, Any]:
    tensor = max(violation.tensors, key=lambda each: each.wasted_bytes, default=None)
    return {
        "rule": violation.rule,
        "level": violation.level,
        "op": violation.ops[0],
        "wasted_bytes": violation.wasted_bytes or None,
        "op_type": violation.op_type,
        "ops": ", ".join(violation.ops),
        "what": violation.what,
        "advice": violation.advice,
        "unless": violation.unless,
        "certainty": violation.certainty,
        "runs_in": violation.runs_in or None,
        "source_line": violation.source_line or None,
        "share_percent": None if violation.share is None else 100.0 * violation.share,
        **_of_tensor(tensor),
    }


def _of_tensor(tensor: PaddedTensor | None) -> dict[str, Any]:
    if tensor is None:
        return dict.fromkeys(("dims", "padded_dims", "ratio", "ratio_most", "tensor"))
    return {
        "dims": "x".join(map(str, tensor.least.dims)),
        "padded_dims": "x".join(map(str, tensor.least.padded)),
        "ratio": round(tensor.least.ratio, 2),
        "ratio_most": round(tensor.most.ratio, 2),
        "tensor": tensor.role,
    }
