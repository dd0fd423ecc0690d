"""Findings of `tfperf lint` for CI systems and for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal
from xml.etree import ElementTree

from tfperf.base.errors import TfperfError
from tfperf.judge.ci_output import junit_document, workflow_command
from tfperf.models.linter.engine import LintOptions, LintResult, lint_model
from tfperf.models.linter.padding import Level
from tfperf.models.linter.rule import Violation, at_least
from tfperf.models.linter.rules import RULES
from tfperf.report.render.values import brief

_SUITE = "tfperf lint"
_LONGEST_TEXT = 20_000
_MOST_SHOWN = 10


class LintFindingsError(AssertionError, TfperfError):
    """A model has findings that a test does not allow; `result` contains all of them."""

    def __init__(self, message: str, result: LintResult) -> None:
        super().__init__(message)
        self.result = result


def lint(
    model: Any,
    *,
    device: Literal["tpu", "gpu", "auto"] = "auto",
    batch: int | None = None,
    rules: Sequence[str] = (),
    ignore: Sequence[str] = (),
    fail_on: Level | None = "high",
) -> LintResult:
    """Check the shapes and ops of a model; raise LintFindingsError for findings at or above the level `fail_on`.

    `model` is the path of a SavedModel or graph, a Keras model, a concrete function of TensorFlow, or a serialized
    GraphDef. `batch` replaces unknown batch sizes. With `fail_on=None`, all findings are returned without an error.
    Raise TfperfError if nothing could be checked.
    """
    result = lint_model(model, LintOptions(device=device, batch=batch, rules=(*rules,), ignore=(*ignore,)))
    if fail_on is None:
        return result
    if result.is_empty:
        raise TfperfError(f"no op could be checked: {result.headline}")
    found = result.at_least(fail_on)
    if found:
        lines = [sentence(violation) for violation in found[:_MOST_SHOWN]]
        more = len(found) - len(lines)
        lines += [f"and {more} more"] if more else []
        raise LintFindingsError("\n".join((result.headline, *lines)), result)
    return result


def exit_code(result: LintResult, fail_on: Level | None) -> int:
    """Return 3 if a finding is at or above `fail_on`, 1 if no op could be checked, else 0."""
    if fail_on is not None and result.at_least(fail_on):
        return 3
    return int(result.is_empty)


def sentence(violation: Violation) -> str:
    """Return a finding on one line."""
    return f"{violation.rule} ({violation.level}) {violation.ops[0]}: {violation.what}; {violation.advice}"


def github_text(result: LintResult, fail_on: Level | None) -> str:
    """Return a workflow command per finding: an error if it breaches the limit, else a warning or a notice."""
    commands = []
    for violation in result.violations:
        kind = "notice" if violation.level == "info" else "warning"
        if fail_on is not None and at_least(violation.level, fail_on):
            kind = "error"
        lines = [f"{violation.ops[0]}: {violation.what}", f"Try: {violation.advice}", f"Unless: {violation.unless}"]
        commands.append(workflow_command(kind, f"{violation.rule} {RULES[violation.rule].title}", lines))
    if result.is_empty:
        commands.append(workflow_command("error", "no op could be checked", [result.headline]))
    return "".join(f"{command}\n" for command in commands) or f"{result.headline}\n"


def junit_text(result: LintResult, fail_on: Level | None) -> str:
    """Return JUnit XML. Each applied rule is a test; it fails if a finding breaches the limit (or `low`)."""
    limit: Level = fail_on or "low"
    values = {"source": result.source, "device": result.device, "verdict": result.headline}
    properties = {name: brief(value, _LONGEST_TEXT) for name, value in values.items()}
    return junit_document(_SUITE, properties, list(_cases(result, limit)))


def _cases(result: LintResult, limit: Level) -> Iterator[ElementTree.Element]:
    for rule in result.rules:
        case = ElementTree.Element("testcase", classname="tfperf.lint", name=f"{rule} {RULES[rule].title}")
        found = [each for each in result.violations if each.rule == rule and at_least(each.level, limit)]
        if found:
            message = brief(sentence(found[0]), _LONGEST_TEXT)
            problem = ElementTree.SubElement(case, "failure", message=message, type=found[0].level)
            problem.text = "\n".join(brief(sentence(each), _LONGEST_TEXT) for each in found)
        elif result.is_empty:
            ElementTree.SubElement(case, "error", message=brief(result.headline, _LONGEST_TEXT), type="not evaluable")
        yield case
