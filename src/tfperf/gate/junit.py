"""What a gate came to as JUnit XML, which CI systems show as tests: one test case for each limit.

A breach is a failure, a limit that could not be judged an error. There are no times: nothing was run.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from tfperf.gate.model import Judged, Outcome
from tfperf.gate.report import headline, sentence
from tfperf.render.output import write
from tfperf.render.safe_text import brief

_SUITE = "tfperf check"
_CLASS = "tfperf.check"
_KINDS = {"breach": "failure", "unknown": "error"}
_LONGEST_NAME = 300
_LONGEST_TEXT = 20_000


def junit_text(outcome: Outcome) -> str:
    """Return the XML document. What XML cannot hold is among the unprintable characters, which are escaped."""
    suite = ElementTree.Element(
        "testsuite", name=_SUITE, tests=str(len(outcome.judged)), failures=str(len(outcome.breached)),
        errors=str(len(outcome.unknown)), skipped="0",
    )  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(outcome).items():
        ElementTree.SubElement(properties, "property", name=name, value=brief(value, _LONGEST_NAME))
    for one in outcome.judged:
        suite.append(_case(one))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def write_junit(outcome: Outcome, path: Path, *, force: bool) -> None:
    """Write the document to a file, which is replaced only with `force`; raises OutputError."""
    write(junit_text(outcome), path, force=force)


def _properties(outcome: Outcome) -> dict[str, str]:
    found = {"run": outcome.run, "folder": outcome.folder, "hosts": ", ".join(outcome.hosts)}
    return {**{name: value for name, value in found.items() if value}, "verdict": headline(outcome)}


def _case(one: Judged) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=_CLASS, name=brief(one.limit.text, _LONGEST_NAME))
    if one.status in _KINDS:
        said = ElementTree.SubElement(
            case, _KINDS[one.status], message=brief(sentence(one), _LONGEST_TEXT), type=one.status
        )
        said.text = "\n".join(brief(line, _LONGEST_TEXT) for line in _body(one))
    return case


def _body(one: Judged) -> list[str]:
    """Return what there is to say below the message: where the limit is from, and the evidence with advice."""
    lines = [f"limit: {one.limit.text} ({one.limit.origin})"]
    lines += [one.why] if one.why and one.status == "breach" else []
    for finding in one.evidence:
        lines += [finding.text] + ([f"try: {finding.action}"] if finding.action else [])
    return lines
