"""Diagnosis: causes of step time, ranked by gain; no time is counted twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfperf.analysis.registry import Results, SectionSpec, TableSpec
from tfperf.report.model import Column, Data
from tfperf.trace.known_stats import CORES, HLO_OPS, MEMORY

if TYPE_CHECKING:
    from tfperf.sections.diagnosis.cause import Diagnosis as Diagnosis
    from tfperf.sections.diagnosis.cause import Range


def _bounds(key: str, unit: str, ranges: list[Range | None]) -> dict[str, list[float | None]]:
    return {
        f"{key}_low_{unit}": [None if each is None else each.low for each in ranges],
        f"{key}_high_{unit}": [None if each is None else each.high for each in ranges],
    }


def _causes(results: Results) -> Data | None:
    diagnosis = results["diagnosis"]
    causes = diagnosis.causes
    if not causes:
        return None
    rests_on = [[f"{each.table}[{each.row}]" for each in cause.rests_on] for cause in causes]
    return {
        "rank": list(range(1, len(causes) + 1)),
        **{
            key: [getattr(cause, key) for cause in causes]
            for key in ("code", "kind", "of", "title", "detail", "confidence")
        },
        **_bounds("cost", "ms", [cause.cost_ms for cause in causes]),
        **_bounds("cost", "percent", [cause.cost_percent for cause in causes]),
        "gain_percent": [cause.gain_percent for cause in causes],
        "rests_on": ["; ".join(texts) for texts in rests_on],
    }


def _actions(results: Results) -> Data | None:
    diagnosis = results["diagnosis"]
    pairs: list[tuple[Any, Any]] = [(cause, action) for cause in diagnosis.causes for action in cause.actions]
    if not pairs:
        return None
    return {
        "cause": [cause.code for cause, _ in pairs],
        "title": [cause.title for cause, _ in pairs],
        "kind": [cause.kind for cause, _ in pairs],
        **{key: [getattr(action, key) for _, action in pairs] for key in ("code", "text", "assumption", "url")},
        **_bounds("step", "ms", [action.step_ms for _, action in pairs]),
    }


CAUSES = TableSpec(
    name="causes",
    title="Causes, largest likely gain first",
    row="causes of lost step time, with their cost",
    details=(
        "One row per cause and kind of step. No time is counted twice: the costs of the causes of one kind of step "
        "never add up to more than the step."
    ),
    columns=(
        Column("rank", "#", int, "", "rank by likely gain"),
        Column("code", "Code", str, "", "code of the cause", level="data"),
        Column("kind", "Steps", str, "", "kind of step"),
        Column("of", "Of", str, "", "basis of the costs: step, the average step; wall, the wall time per step"),
        Column("title", "Cause", str, "", "name of the cause"),
        Column("cost_low_ms", "Cost at least", float, "ms", "lower bound of the cost per step"),
        Column("cost_high_ms", "Cost at most", float, "ms", "upper bound of the cost per step"),
        Column("cost_low_percent", "At least", float, "%", "lower bound of the share of the step or wall time"),
        Column("cost_high_percent", "At most", float, "%", "upper bound of the share of the step or wall time"),
        Column("gain_percent", "Gain", float, "%", "share of the step that the first action likely saves of the cost"),
        Column("confidence", "Sure", str, "", "high, medium or low"),
        Column("detail", "Because", str, "", "evidence", level="data"),
        Column("rests_on", "Rests on", str, "", "tables and rows with the numbers", level="data"),
    ),
    data=_causes,
    name_key="code",
    about_steps=True,
    empty_means_none=True,
)
ACTIONS = TableSpec(
    name="actions",
    title="Suggested changes",
    row="changes, with the estimated step time",
    details="One row per action. The actions of a cause are ordered by likely gain, the largest first.",
    columns=(
        Column("cause", "Cause code", str, "", "code of the cause", level="data"),
        Column("title", "Cause", str, "", "name of the cause"),
        Column("kind", "Kind", str, "", "kind of step", level="data"),
        Column("code", "Code", str, "", "code of the action", level="data"),
        Column("text", "Change", str, "", "suggested change"),
        Column("step_low_ms", "Step at best", float, "ms", "lowest estimated step time after the change"),
        Column("step_high_ms", "Step at worst", float, "ms", "highest estimated step time after the change"),
        Column("assumption", "If", str, "", "assumption of the estimate"),
        Column("url", "Page", str, "", "a page that explains the change", level="data"),
    ),
    data=_actions,
    name_key="code",
    about_steps=True,
    empty_means_none=True,
)
TABLES = (CAUSES, ACTIONS)


SECTION = SectionSpec(
    name="diagnosis",
    title="Diagnosis",
    rests_on=(
        *("steps", "overview", "wall", "hosts", "idle", "tfdata", "kernels", "roofline", "functions", "memory"),
        *("collectives", "environment", "gaps", "python", "batch", "requests"),
    ),
    stats=HLO_OPS | MEMORY | CORES | {"eager_op", "batch_size", "is_func"},
    analyze="tfperf.sections.diagnosis.program:analyze",
    derive="tfperf.sections.diagnosis.diagnose:diagnose",
    narrow="tfperf.sections.diagnosis.program:narrow",
    build="tfperf.sections.diagnosis.section:build",
    document="tfperf.sections.diagnosis.section:document",
    tables=TABLES,
)
