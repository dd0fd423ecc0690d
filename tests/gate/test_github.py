"""What GitHub Actions is told: annotations as workflow commands, and the summary of the job."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfperf.gate.github import SUMMARY_BYTES, SUMMARY_FILE, annotation_text, summary_text, write_summary
from tfperf.gate.model import Judged, Limit, Metric, Outcome
from tfperf.gate.report import not_judged

from tfperf.errors import OutputError
from tfperf.report.model import Finding

INPUT = Limit("max-input-bound 10%", Metric("input_bound"), "<=", 10.0)
STEP = Limit("max-step-time 50ms", Metric("step_time"), "<=", 50.0)
ADVICE = Finding("wait", "problem", "Steps wait 60% of their time for tf.data, in Map.", "use AUTOTUNE: it is free")
BREACH = Judged(INPUT, "breach", "Input-bound", 63.4, "%", "", evidence=(ADVICE,))
PASS = Judged(STEP, "pass", "Step time", 42.0, "ms", "")
UNKNOWN = Judged(STEP, "unknown", "Step time", None, "ms", "", why="no steps; profile longer")


def outcome(*judged: Judged) -> Outcome:
    return Outcome(judged, "run", "/logs", ("a",), 12)


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


def test_nothing_is_annotated_where_all_limits_hold() -> None:
    assert annotation_text(outcome(PASS)) == ""


def test_a_breach_is_an_error_with_both_numbers_and_advice() -> None:
    assert annotation_text(outcome(PASS, BREACH)) == (
        "::error title=max-input-bound 10%25 is breached::"
        "Input-bound is 63.4%25; at most 10.0%25 is allowed.%0A"
        "Steps wait 60%25 of their time for tf.data, in Map.%0ATry: use AUTOTUNE: it is free"
    )


def test_the_unknown_is_an_error_only_where_it_decides() -> None:
    alone, beside = annotation_text(outcome(UNKNOWN)), annotation_text(outcome(UNKNOWN, BREACH)).splitlines()[1]
    assert parsed(alone) == ("error", "max-step-time 50ms could not be judged", "no steps; profile longer")
    assert parsed(beside)[0] == "warning"


def test_one_reason_is_told_once() -> None:
    lines = annotation_text(not_judged([INPUT, STEP], "logs/ does not exist")).splitlines()
    assert [parsed(line) for line in lines] == [
        ("error", "max-input-bound 10%, max-step-time 50ms could not be judged", "logs/ does not exist")
    ]


def test_hostile_names_stay_inside_their_command() -> None:
    name = "x,y::z\r\n::stop-commands::t\n%0A%\x1b[0m" + "é" * 100_000
    limit = Limit(name, Metric(name), "<=", 1.0)
    text = annotation_text(
        outcome(Judged(limit, "breach", name, 2.0, "count", name, name, (Finding("c", "info", name),)))
    )
    assert len(text.splitlines()) == 1
    assert len(text) < 8000
    kind, title, message = parsed(text)
    assert (kind, title[:34]) == ("error", r"x,y::z\r\n::stop-commands::t\n%0A%\x1b[0m"[:34])
    assert message.startswith(r"x,y::z\r\n::stop-commands::t\n%0A%\x1b[0m")


def test_the_summary_begins_with_the_verdict() -> None:
    assert summary_text(outcome(PASS)).startswith("# tfperf check: all limits hold\n\n")
    assert summary_text(outcome(UNKNOWN)).startswith("# tfperf check: could not be judged\n\n")
    text = summary_text(outcome(BREACH, PASS))
    assert text.startswith("# tfperf check: a limit is breached\n\n")
    assert "| max-input-bound 10%" in text
    assert "in Map." in text


def test_a_large_summary_is_cut_at_a_line_and_says_so() -> None:
    text = summary_text(outcome(*[BREACH] * 100), 4000)
    assert len(text.encode()) <= 4000
    kept, _, note = text.rpartition("\n\nNote: ")
    assert note.startswith("cut")
    assert summary_text(outcome(*[BREACH] * 100)).startswith(kept)


def test_the_summary_is_appended(tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    assert write_summary(outcome(PASS), {SUMMARY_FILE: str(file)}) == ""
    assert file.read_text() == f"before\n{summary_text(outcome(PASS))}"


def test_no_summary_where_none_is_wanted_or_fits(tmp_path: Path) -> None:
    assert "GITHUB_STEP_SUMMARY is not set" in write_summary(outcome(PASS), {})
    full = tmp_path / "summary.md"
    full.write_bytes(b" " * SUMMARY_BYTES)
    assert "1 MiB" in write_summary(outcome(PASS), {SUMMARY_FILE: str(full)})
    assert full.stat().st_size == SUMMARY_BYTES
    with pytest.raises(OutputError, match="cannot write the job summary"):
        write_summary(outcome(PASS), {SUMMARY_FILE: str(tmp_path)})
