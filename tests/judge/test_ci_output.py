"""What CI systems are told: annotations and a summary for GitHub Actions, and JUnit XML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from tfperf.base.errors import OutputError
from tfperf.judge.ci_output import (
    SUMMARY_BYTES,
    SUMMARY_FILE,
    annotation_text,
    is_own_junit,
    junit_text,
    summary_text,
    write_summary,
)
from tfperf.judge.limits import Limit, Metric
from tfperf.judge.outcome import Judged, Outcome, not_judged
from tfperf.report.model import Finding

INPUT = Limit("max-input-bound 10%", Metric("input_bound"), "<=", 10.0)
STEP = Limit("max-step-time 50ms", Metric("step_time"), "<=", 50.0, "tfperf.toml")
ADVICE = Finding("wait", "problem", "Steps wait 60% of their time for tf.data, in Map.", "use AUTOTUNE: it is free")
BREACH = Judged(limit=INPUT, status="breach", title="Input-bound", measured=63.4, unit="%", host="", evidence=(ADVICE,))
PASS = Judged(limit=STEP, status="pass", title="Step time", measured=42.0, unit="ms", host="")
UNKNOWN = Judged(
    limit=STEP, status="unknown", title="Step time", measured=None, unit="ms", host="", why="no steps: profile longer"
)


def outcome(*judged: Judged, hosts: Sequence[str] = ("a",)) -> Outcome:
    return Outcome(judged=judged, run="run", folder="/logs", hosts=tuple(hosts), step_count=12)


def hostile(name: str) -> Judged:
    """A breach in which every text is this one."""
    return Judged(
        limit=Limit(name, Metric(name), "<=", 1.0, name),
        status="breach",
        title=name,
        measured=2.0,
        unit="count",
        host=name,
        why=name,
        evidence=(Finding("code", "info", name, name),),
    )


def parsed(command: str) -> tuple[str, str, str]:
    """Read a command as the runner does: kind, title, message."""
    _, head, message = command.split("::", 2)
    kind, _, title = head.partition(" title=")
    unescaped = []
    for text in (title, message):
        for token, sign in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            text = text.replace(token, sign)
        unescaped.append(text)
    return kind, unescaped[0], unescaped[1]


def test_a_breach_is_an_error_with_both_numbers_and_advice() -> None:
    assert annotation_text(outcome(PASS)) == ""
    assert annotation_text(outcome(PASS, BREACH)) == (
        "::error title=max-input-bound 10%25 was breached::"
        "Input-bound is 63.4%25; the limit is at most 10.0%25.%0A"
        "Steps wait 60%25 of their time for tf.data, in Map.%0ATry: use AUTOTUNE: it is free"
    )


def test_an_annotation_has_the_first_evidence_only() -> None:
    several = (Finding("first", "problem", "First."), Finding("second", "problem", "Second.", "do more"))
    _, _, message = parsed(annotation_text(outcome(replace(BREACH, evidence=several))))
    assert message == "Input-bound is 63.4%; the limit is at most 10.0%.\nFirst."


def test_an_unknown_limit_is_an_error_unless_another_is_breached() -> None:
    title = "max-step-time 50ms could not be checked"
    assert parsed(annotation_text(outcome(UNKNOWN))) == ("error", title, "no steps: profile longer")
    beside_a_breach = annotation_text(outcome(UNKNOWN, BREACH)).splitlines()[1]
    assert parsed(beside_a_breach)[0] == "warning"


def test_what_was_judged_despite_doubt_is_a_warning() -> None:
    commands = annotation_text(outcome(replace(PASS, doubt="some events are missing"))).splitlines()
    said = "max-step-time 50ms was checked despite doubt"
    assert list(map(parsed, commands)) == [("warning", said, "some events are missing")]


def test_hostile_names_stay_inside_their_command() -> None:
    text = annotation_text(outcome(hostile("x,y::z\r\n::stop-commands::t\n%0A%\x1b[0m" + "é" * 100_000)))
    assert len(text.splitlines()) == 1
    assert len(text) < 8000
    kind, title, message = parsed(text)
    assert (kind, title[:34]) == ("error", r"x,y::z\r\n::stop-commands::t\n%0A%\x1b[0m"[:34])
    assert message.startswith(r"x,y::z\r\n::stop-commands::t\n%0A%\x1b[0m")


def test_the_summary_starts_with_the_verdict() -> None:
    assert summary_text(outcome(PASS)).startswith("# tfperf check: all limits passed\n\n")
    assert summary_text(outcome(UNKNOWN)).startswith("# tfperf check: could not be checked\n\n")
    text = summary_text(outcome(BREACH, PASS))
    assert text.startswith("# tfperf check: a limit was breached\n\n")
    assert "| max-input-bound 10%" in text
    assert "in Map." in text


def test_a_large_summary_is_cut_at_a_line_and_says_so() -> None:
    text = summary_text(outcome(*[BREACH] * 100), 4000)
    assert len(text.encode()) <= 4000
    kept, _, note = text.rpartition("\n\nNote: ")
    assert note.startswith("truncated")
    assert summary_text(outcome(*[BREACH] * 100)).startswith(kept)


def test_the_summary_is_appended(tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    assert write_summary(outcome(PASS), {SUMMARY_FILE: str(file)}) == ""
    assert file.read_text() == f"before\n{summary_text(outcome(PASS))}"


def test_a_summary_that_is_not_written_has_a_reason(tmp_path: Path) -> None:
    assert "GITHUB_STEP_SUMMARY is not set" in write_summary(outcome(PASS), {})
    full = tmp_path / "summary.md"
    full.write_bytes(b" " * SUMMARY_BYTES)
    assert "1 MiB" in write_summary(outcome(PASS), {SUMMARY_FILE: str(full)})
    assert full.stat().st_size == SUMMARY_BYTES
    with pytest.raises(OutputError, match="cannot write the job summary"):
        write_summary(outcome(PASS), {SUMMARY_FILE: str(tmp_path)})


# --- JUnit ---

# The schema that Jenkins' xunit plugin publishes, as far as this document uses it:
# element -> (its children, required attributes, optional attributes).
SCHEMA: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": ({"testsuite"}, set(), {"name", "time", "tests", "failures", "errors"}),
    "testsuite": (
        {"properties", "testcase"},
        {"name", "tests", "failures", "errors"},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
    ),
    "properties": ({"property"}, set(), set()),
    "property": (set(), {"name", "value"}, set()),
    "testcase": ({"failure", "error", "skipped", "system-out"}, {"name"}, {"time", "classname", "group"}),
    "failure": (set(), set(), {"type", "message"}),
    "error": (set(), set(), {"type", "message"}),
    "system-out": (set(), set(), set()),
}


def suite_of(text: str) -> ElementTree.Element:
    """Parse a document and hold it against the schema; return its only suite."""
    root = ElementTree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        children, required, optional = SCHEMA[element.tag]
        assert {child.tag for child in element} <= children
        assert required <= set(element.attrib) <= required | optional
    (suite,) = root
    return suite


def test_each_limit_is_a_test_case() -> None:
    suite = suite_of(junit_text(outcome(PASS, BREACH, UNKNOWN)))
    counts = {key: suite.get(key) for key in ("name", "tests", "failures", "errors", "skipped")}
    assert counts == {"name": "tfperf check", "tests": "3", "failures": "1", "errors": "1", "skipped": "0"}
    cases = suite.findall("testcase")
    assert [case.get("classname") for case in cases] == ["tfperf.check"] * 3
    assert [case.get("name") for case in cases] == ["max-step-time 50ms", "max-input-bound 10%", "max-step-time 50ms"]
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["error"]]


def test_a_failure_has_both_numbers_and_the_evidence() -> None:
    on_host = replace(BREACH, host="b", why="of 12 steps")
    (failure,) = suite_of(junit_text(outcome(on_host))).iter("failure")
    message = "Input-bound is 63.4% on host b; the limit is at most 10.0%."
    assert failure.attrib == {"type": "breach", "message": message}
    assert failure.text == (
        "limit: max-input-bound 10% (command line)\nof 12 steps\n"
        "Steps wait 60% of their time for tf.data, in Map.\ntry: use AUTOTUNE: it is free"
    )


def test_a_test_case_says_that_it_was_judged_despite_doubt() -> None:
    suite = suite_of(junit_text(outcome(replace(PASS, doubt="some events are missing"))))
    assert suite.findtext("testcase/system-out") == "checked despite doubt: some events are missing"
    values = [element.get("value") for element in suite.iter("property")]
    assert values[-1] == "PASS. The limit passed. Checked despite doubt: max-step-time 50ms."


def test_the_profile_and_the_verdict_are_properties() -> None:
    suite = suite_of(junit_text(outcome(PASS, hosts=("a", "b"))))
    properties = {element.get("name"): element.get("value") for element in suite.iter("property")}
    assert properties == {"run": "run", "folder": "/logs", "hosts": "a, b", "verdict": "PASS. The limit passed."}


def test_without_a_trace_every_limit_is_an_error() -> None:
    suite = suite_of(junit_text(not_judged([INPUT, STEP], "logs/ does not exist")))
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("2", "2", "0")
    assert [(error.get("message"), error.text) for error in suite.iter("error")] == [
        ("max-input-bound 10% could not be checked: logs/ does not exist", "limit: max-input-bound 10% (command line)"),
        ("max-step-time 50ms could not be checked: logs/ does not exist", "limit: max-step-time 50ms (tfperf.toml)"),
    ]


def test_hostile_names_do_not_break_the_document() -> None:
    name = "]]></failure><x a=\"'&amp;\x00\x08\x1b\ud800\udfff\ufffe\uffff\u2028\r\n\t\x85" + "é" * 100_000
    breach = hostile(name)
    unknown = replace(breach, status="unknown", measured=None, evidence=())
    text = junit_text(Outcome(judged=(breach, unknown), run=name, folder=name, hosts=(name,), step_count=1))
    assert len(text) < 250_000
    suite = suite_of(text)
    assert str(suite[1].get("name")).startswith(r"""]]></failure><x a="'&amp;\x00\x08\x1b\ud800\udfff\ufffe\uffff""")


def test_a_document_of_its_own_is_known_by_its_start(tmp_path: Path) -> None:
    own, other = tmp_path / "own.xml", tmp_path / "other.xml"
    own.write_text(junit_text(Outcome(judged=())), encoding="utf-8")
    other.write_text(
        '<testsuites>\n  <testsuite name="pytest"><testcase name="tfperf check"/></testsuite></testsuites>'
    )
    assert [is_own_junit(path) for path in (own, other, tmp_path, tmp_path / "missing")] == [True, False, False, False]
