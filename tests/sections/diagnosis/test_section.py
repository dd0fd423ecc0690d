"""The first screen: what stands on it for every trace, and that its figures are those of the whole report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from real_runs import analysis_of, every_trace

from tfperf.base.units import format_percent
from tfperf.report.model import Fact, Finding, Quantity, Report, SegmentBar
from tfperf.report.render import RenderOptions, render
from tfperf.report.render.text_table import cells
from tfperf.report.render.values import measure_text
from tfperf.sections.diagnosis.cause import Action, Cause, Range
from tfperf.sections.diagnosis.section import finding_of
from tfperf.sections.idle.analysis import CAUSE_TEXTS
from tfperf.sections.overview.summary import of_steps
from tfperf.trace.steps.categories import CATEGORY_TITLES

PARTS = {
    "Input": ("input_wait", "input_copy"),
    "Compilation": ("compilation",),
    "Kernel launch": ("launch_bound",),
    "Output": ("output_copy",),
}
"""Categories, and the causes that are parts of them."""
CATEGORY_KEYS = {title: key for key, title in CATEGORY_TITLES.items()}
IDLE_KEYS = {texts.title: cause for cause, texts in CAUSE_TEXTS.items()}


@pytest.fixture(scope="module")
def reports() -> list[tuple[Path, Report]]:
    """The report of every trace."""
    return [(path, analysis_of(path).report()) for path in every_trace()]


def test_the_first_screen_of_every_trace_fits(reports: list[tuple[Path, Report]]) -> None:
    for path, report in reports:
        lines = render(report, "table", RenderOptions(target="sample_traces/input_bound")).splitlines()
        assert len(lines) <= 24, path
        assert max(map(cells, lines)) <= 80, path
        assert "tfperf analyze sample_traces/input_bound --full" in lines[-1], path


Key = tuple[str, str, str]
"""What a number is, whose, and its unit."""
_SHARE = re.compile(r"[<>]?\d[\d,]*\.\d+%")


def stated(report: Report) -> Iterator[tuple[Key, str, str]]:
    """Yield every quantity that a report states: its key, how it is shown, and where."""
    for section in report.sections:
        for finding in section.findings:
            for quantity in finding.quantities:
                yield (quantity.key, quantity.of, quantity.unit), str(quantity), f"{section.name}: {finding.text}"
        for fact in section.facts:
            where = f"{section.name}: {fact.title}"
            yield (f"fact {fact.key}", "", fact.unit), measure_text(fact.value, fact.unit), where
            for quantity in fact.quantities:
                yield (quantity.key, quantity.of, quantity.unit), str(quantity), where
    for key, value, where in (*table_cells(report), *bars(report), *keys_of_json(report)):
        yield key, str(Quantity(key[0], value, cast("Any", key[2]), key[1])), where


def table_cells(report: Report) -> Iterator[tuple[Key, float | None, str]]:
    """Yield the cells of tables that hold quantities."""
    tables = {table.name: table for table in report.tables()}
    kind, judged = report.summary["step_kind"], judged_of(report)

    def owner(cause: dict[str, Any]) -> str:
        return "wall time" if cause["of"] != "step" else judged if cause["kind"] == kind else ""

    waiting = next((each.quantities[0].of for each in findings(report, "tfdata") if each.code == "tfdata_slow"), "")
    of_columns: list[tuple[str, Callable[[dict[str, Any]], dict[str, Key]]]] = [
        (
            "categories",
            lambda row: {
                column: (CATEGORY_KEYS[row["category"]], of_steps(kind), unit)
                for column, unit in (("percent", "%"), ("average_ms", "ms"))
            },
        ),
        ("kinds", lambda row: times_and_input(of_steps(row["kind"]))),
        ("steps_by_host", lambda row: times_and_input(of_steps(kind, row["host"]))),
        ("causes", lambda row: {"cost_high_percent": (row["code"], owner(row), "%")}),
        ("idle_causes", lambda row: {"idle_percent": (f"idle: {IDLE_KEYS[row['cause']]}", "idle time", "%")}),
        (
            "what_if",
            lambda row: {
                column: (f"input_wait: {row['change']}, {name}", waiting, "ms")
                for column, name in (("low_ms", "at best"), ("high_ms", "at worst"))
            },
        ),
    ]
    for name, keys in of_columns:
        for values in tables[name].rows() if name in tables else ():
            row = dict(zip((column.key for column in tables[name].columns), values, strict=True))
            yield from ((key, row[column], f"table {name}: {column}") for column, key in keys(row).items())


def times_and_input(of: str) -> dict[str, Key]:
    return {"average_ms": ("step_time", of, "ms"), "input_percent": ("input", of, "%")}


def bars(report: Report) -> Iterator[tuple[Key, float | None, str]]:
    """Yield the bars of the first screen."""
    for section in report.sections:
        for chart in section.charts if section.is_lead else ():
            assert isinstance(chart, SegmentBar)
            assert sum(each.value for each in chart.segments) <= chart.total * 1.000001
            for each in chart.segments if chart.title.startswith("Step") else ():
                if each.code:
                    yield (each.code, judged_of(report), "%"), 100.0 * each.value / chart.total, chart.title


def keys_of_json(report: Report) -> Iterator[tuple[Key, float | None, str]]:
    summary = report.summary
    of = of_steps(summary["step_kind"] or "")
    worst = of_steps(summary["step_kind"] or "", summary["worst_host"] or "")
    yield ("step_time", of, "ms"), summary["step_time_ms"]["average"], "JSON"
    yield ("input", worst, "%"), summary["input_percent"], "JSON"
    for part in ("input_wait", "host_to_device"):
        yield (part, of, "%"), summary[f"{part}_percent"], "JSON"
    for part, value in summary["category_percent"].items():
        yield (part, of, "%"), value, "JSON"


def judged_of(report: Report) -> str:
    """Whose steps the first screen is about: the average step, or that of one host."""
    of_fact = {fact.key: fact.quantities for fact in facts(report, "diagnosis")}
    return of_fact["step_time"][0].of if "step_time" in of_fact else ""


def facts(report: Report, name: str) -> tuple[Fact, ...]:
    return next((section.facts for section in report.sections if section.name == name), ())


def findings(report: Report, name: str) -> tuple[Finding, ...]:
    return next((section.findings for section in report.sections if section.name == name), ())


def test_every_quantity_has_one_value(reports: list[tuple[Path, Report]]) -> None:
    """In sentences, facts, cells, bars and JSON: what has the same key and owner is shown as the same number."""
    for path, report in reports:
        shown: dict[Key, dict[str, str]] = {}
        for key, text, where in stated(report):
            shown.setdefault(key, {}).setdefault(text, where)
        assert {key: texts for key, texts in shown.items() if len(texts) > 1} == {}, path


def test_every_share_in_a_sentence_is_a_quantity_with_a_key(reports: list[tuple[Path, Report]]) -> None:
    for path, report in reports:
        every = {text for _, text, _ in stated(report)}
        for section in report.sections:
            for finding in section.findings:
                of_finding = {str(each) for each in finding.quantities}
                assert {*_SHARE.findall(finding.text)} <= of_finding, (path, finding.text)
            for fact in section.facts:
                of_fact = {str(each) for each in fact.quantities}
                assert {*_SHARE.findall(fact.note)} <= of_fact, (path, fact)
                if fact.unit in ("%", "ms") and of_fact:
                    assert measure_text(fact.value, fact.unit) in of_fact, (path, fact)
            for note in (*section.notes, *section.detail_notes, *(table.note for table in section.tables)):
                of_step = re.findall(rf"({_SHARE.pattern}) of (?:the step|a step|it\b)", note)
                assert {*of_step} <= every, (path, note)


def test_there_is_one_list_of_problems(reports: list[tuple[Path, Report]]) -> None:
    """A finding of another section is evidence for a cause, which has the severity."""
    for path, report in reports:
        titles = {cause["code"]: cause["title"] for cause in report.documents["diagnosis"]["causes"]}
        for section in report.sections:
            for finding in () if section.is_lead else section.findings:
                assert finding.cause_titles == tuple(titles[code] for code in finding.causes), path
                assert not finding.causes or finding.severity == "info", (path, finding)
                # Without a step time, there is no diagnosis of the step.
                assert finding.severity != "problem" or finding.code == "input_unknown", (path, finding)


def test_no_fix_saves_more_than_its_cause_costs(reports: list[tuple[Path, Report]]) -> None:
    """Nor does a change of the pipeline get below the step without its work, and one that costs nothing has no row."""
    for path, report in reports:
        causes = report.documents["diagnosis"]["causes"]
        for cause in causes:
            most = cause["cost_percent"]["high"]
            assert most is None or (cause["gain_percent"] or 0.0) <= most, (path, cause["code"])
            for action in cause["actions"]:
                # An estimate below the step without the cause says what else gets faster.
                low, step_ms = action["step_ms"]["low"], most and 100.0 * cause["cost_ms"]["high"] / most
                if most and low is not None and low < step_ms - cause["cost_ms"]["high"] - 1e-4 * step_ms:
                    is_said = "gets faster" in action["assumption"] or "same number of examples" in action["assumption"]
                    assert is_said or action["step_ms"]["high"] > step_ms, (path, cause["code"], action)
        table = next((table for table in report.tables() if table.name == "what_if"), None)
        if table is not None:
            assert min(table.data["low_ms"]) == table.data["low_ms"][0], path
            assert "tf.data" in table.data["what"][0], "other input, such as copies, stays"
            assert {"input_wait", "input_contention"} & {cause["code"] for cause in causes}, path


def test_what_tf_data_advises_is_what_the_diagnosis_advises(reports: list[tuple[Path, Report]]) -> None:
    for path, report in reports:
        changes = [finding for finding in findings(report, "tfdata") if finding.action]
        for cause in report.documents["diagnosis"]["causes"]:
            mark = "" if cause["kind"] == report.summary["step_kind"] else f"{cause['kind']} steps: "
            of_kind = [each for each in changes if each.text.startswith("Evaluation steps: ") == bool(mark)]
            # Changes of the pipeline are actions of waiting, or of its threads if these cost more.
            if cause["code"] in ("input_wait", "input_contention") and cause["actions"] and of_kind:
                of_cause = [(action["code"], action["text"]) for action in cause["actions"]]
                assert sorted(of_cause) == sorted((each.code, each.action) for each in of_kind), path


def test_one_thing_has_one_number(reports: list[tuple[Path, Report]]) -> None:
    """Shares of causes, bars of categories, the line of input and the JSON document say the same."""
    for path, report in reports:
        screen = render(report, "table")
        with_costs = [
            cause
            for cause in report.documents["diagnosis"]["causes"]
            if cause["kind"] == report.summary["step_kind"] and cause["cost_percent"]["high"] is not None
        ]
        costs = {cause["code"]: cause["cost_percent"]["high"] for cause in with_costs if cause["of"] == "step"}
        assert sum(costs.values()) <= 100.0 + 1e-6, path
        of_wall = [
            cause["cost_percent"]["high"] * (cause["wall_share"] if cause["of"] == "step" else 1.0)
            for cause in with_costs
        ]
        assert sum(of_wall) <= 100.0 + 1e-6, path
        bars = dict(re.findall(r"^ *([A-Z][a-z ]+?) #+ +([<>]?[\d.]+%)$", screen, re.MULTILINE))
        for category, codes in PARTS.items():
            parts = [costs[code] for code in codes if code in costs]
            if category in bars and len(parts) == len(codes) == 1:
                assert bars[category] == f"{format_percent(parts[0])}%", path
        if report.summary["input_percent"] is not None:
            assert f"Input {format_percent(report.summary['input_percent'])}%" in " ".join(screen.split()), path


def test_what_a_cause_rests_on_is_there(reports: list[tuple[Path, Report]]) -> None:
    """Each cause names rows of tables, by which its number can be looked up."""
    for path, report in reports:
        tables = {(section.name, table.name): table for section in report.sections for table in section.tables}
        for cause in report.documents["diagnosis"]["causes"]:
            for evidence in cause["rests_on"]:
                table = tables[evidence["section"], evidence["table"]]
                assert any(evidence["row"] in values for values in table.data.values()), (path, cause["code"], evidence)


@pytest.mark.parametrize(
    ("high_ms", "cost_ms", "expected"),
    [
        (9.0, 6.0, "use more calls (step 10.0 -> 4.00 to 9.00 ms)"),
        (9.0, 5.5, "use more calls (step 10.0 -> 4.00 to 9.00 ms)"),  # less than the noise
        (9.0, 5.0, "use more calls (step 10.0 -> 4.00 to 9.00 ms, below 5.00 only if the rest gets faster)"),
        (12.0, 5.0, "use more calls (step 10.0 -> 4.00 to 12.0 ms, if the function waits; else nothing is gained)"),
    ],
)
def test_a_range_that_is_above_today_s_step_or_below_the_rest_says_why(
    high_ms: float, cost_ms: float, expected: str
) -> None:
    action = Action(
        code="parallel_map", text="use more calls; where order does not matter", step_ms=Range(4.0, high_ms),
        assumption="the function waits; else nothing is gained", url="",
    )  # fmt: skip
    cause = Cause(
        code="input_wait", title="Waiting for input", kind="train", detail="the blocking tf.data stage is Map",
        cost_ms=Range(cost_ms, cost_ms), cost_percent=Range(10.0 * cost_ms, 10.0 * cost_ms), confidence="high",
        rests_on=(), actions=(action,), gain_ms=2.0, step_ms=10.0,
    )  # fmt: skip
    assert finding_of(cause).action == expected
