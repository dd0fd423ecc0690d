"""Check results for CI systems: JUnit XML, and GitHub Actions.

In JUnit, each limit is a test: a breach is a failure, an unknown limit an error. Tests have no times, because nothing
was run. GitHub reads workflow commands, lines such as `::error title=...::message`, from stdout and stderr, shows ten
of a kind, and cuts messages at 4,096 characters; it rejects summaries over 1 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from tfperf.base.errors import OutputError
from tfperf.formats.wire.trace_file import open_regular
from tfperf.judge.outcome import VERDICTS, Judged, Outcome, check_report, headline, open_questions, sentence
from tfperf.report.model import Finding
from tfperf.report.render import render
from tfperf.report.render.values import brief, safe, without_commands

SUMMARY_FILE = "GITHUB_STEP_SUMMARY"
"""Environment variable with the path of the summary."""
SUMMARY_BYTES = 1 << 20
"""GitHub's limit on the summary of a step."""

_LEAST_BYTES = 512
_LONGEST_TITLE = 120
_LONGEST_LINE = 1300
_CUT = "\n\nNote: truncated, because GitHub does not show summaries over 1 MiB. The log of the step is complete.\n"
_TITLES = {"pass": "all limits passed", "breach": "a limit was breached", "unknown": "could not be checked"}
_LONGEST_NAME = 300
_LONGEST_TEXT = 20_000
_SUITE = "tfperf check"
_JUNIT_START = f'<testsuites>\n  <testsuite name="{_SUITE}"'
_HEAD_BYTES = 200


def annotation_text(outcome: Outcome) -> str:
    """Return a workflow command per breached, unknown or doubtful limit; an error if it decides the exit code."""
    commands = [
        workflow_command(
            "error", f"{judged.limit.text} was breached", [sentence(judged), *_advice(judged.evidence[:1], "Try")]
        )
        for judged in outcome.breached
    ]
    kind = "warning" if outcome.breached else "error"
    commands += [workflow_command(kind, what, [reason]) for what, reason in open_questions(outcome)]
    commands += [
        workflow_command("warning", f"{judged.limit.text} was checked despite doubt", [judged.doubt])
        for judged in outcome.despite_doubt
    ]
    return "\n".join(commands)


def summary_text(outcome: Outcome, room_bytes: int = SUMMARY_BYTES) -> str:
    """Return the report as Markdown with a headline, in at most `room_bytes` bytes of UTF-8 (but at least 512)."""
    text = f"# tfperf check: {_TITLES[VERDICTS[outcome.exit_code]]}\n\n{render(check_report(outcome), 'markdown')}\n"
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > room_bytes:
        kept = data[: max(room_bytes, _LEAST_BYTES) - len(_CUT.encode())].decode("utf-8", "ignore")
        return kept.rpartition("\n")[0] + _CUT
    return data.decode()


def write_summary(outcome: Outcome, environ: Mapping[str, str]) -> str:
    """Append the summary to the file in the environment; return why not, or empty. Raise OutputError."""
    name = environ.get(SUMMARY_FILE)
    if not name:
        return f"no job summary was written: {SUMMARY_FILE} is not set"
    path = Path(name)
    try:
        room = SUMMARY_BYTES - (path.stat().st_size if path.exists() else 0)
        if room < _LEAST_BYTES:
            return "no job summary was written: other commands of this step already used its 1 MiB"
        text = summary_text(outcome, room)
        with path.open("ab") as file:
            file.write(text.encode())
    except OSError as error:
        raise OutputError(f"cannot write the job summary {safe(name)}: {error.strerror or error}") from error
    return ""


def workflow_command(kind: str, title: str, lines: Sequence[str]) -> str:
    """Return a GitHub annotation; `kind` is error, warning or notice."""
    message = without_commands("\n".join(brief(line, _LONGEST_LINE) for line in lines))
    escaped_title = _escaped(without_commands(brief(title, _LONGEST_TITLE))).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={escaped_title}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _advice(evidence: Sequence[Finding], label: str) -> list[str]:
    texts = ((finding.text, finding.action and f"{label}: {finding.action}") for finding in evidence)
    return [text for pair in texts for text in pair if text]


def is_own_junit(path: Path) -> bool:
    """Return whether `junit_text` wrote this file."""
    try:
        with open_regular(path) as file:
            return _JUNIT_START.encode() in file.read(_HEAD_BYTES)
    except OSError:
        return False


def junit_text(outcome: Outcome) -> str:
    """Return JUnit XML. Unprintable characters are escaped, which includes all that XML does not allow."""
    values = {
        "run": outcome.run,
        "folder": outcome.folder,
        "hosts": ", ".join(outcome.hosts),
        "limits from": outcome.config_file,
        "verdict": headline(outcome),
    }
    properties = {name: brief(value, _LONGEST_NAME) for name, value in values.items() if value}
    return junit_document(_SUITE, properties, list(map(_test_case, outcome.judged)))


def junit_document(name: str, properties: Mapping[str, str], cases: Sequence[ElementTree.Element]) -> str:
    """Return the XML document of a test suite."""
    root = ElementTree.Element("testsuites")
    failures, errors = (str(sum(case.find(kind) is not None for case in cases)) for kind in ("failure", "error"))
    suite = ElementTree.SubElement(
        root, "testsuite", name=name, tests=str(len(cases)), failures=failures, errors=errors, skipped="0"
    )
    within = ElementTree.SubElement(suite, "properties")
    for key, value in properties.items():
        ElementTree.SubElement(within, "property", name=key, value=value)
    suite.extend(cases)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _test_case(judged: Judged) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname="tfperf.check", name=brief(judged.limit.text, _LONGEST_NAME))
    if judged.status != "pass":
        kind = "failure" if judged.status == "breach" else "error"
        message = brief(sentence(judged), _LONGEST_TEXT)
        problem = ElementTree.SubElement(case, kind, message=message, type=judged.status)
        lines = [f"limit: {judged.limit.text} ({judged.limit.origin})"]
        lines += [judged.why] if judged.why and judged.status == "breach" else []
        lines += _advice(judged.evidence, "try")
        problem.text = "\n".join(brief(line, _LONGEST_TEXT) for line in lines)
    if judged.doubt:
        output = ElementTree.SubElement(case, "system-out")
        output.text = brief(f"checked despite doubt: {judged.doubt}", _LONGEST_TEXT)
    return case
