"""The section about the batch size, the facts of the overview, and the JSON keys."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import logdir_of, results_of, space, trace_of
from sections.batch.jobs import fetches, job, steps

import tfperf
from tfperf.report.model import Section
from tfperf.report.render import render
from tfperf.report.shown import Detail, shown


def sections(tmp_path: Path, *events: Any) -> dict[str, Section]:
    logdir = logdir_of(tmp_path, host=space(job(*events)))
    return {section.name: section for section in tfperf.load(logdir).report().sections}


def facts(section: Section) -> dict[str, Any]:
    return {fact.key: (fact.value, fact.unit) for fact in section.facts}


KNOWN = fetches("[32,64] [32]", per_step=4)


def test_the_section_says_what_shows_it(tmp_path: Path) -> None:
    batch = sections(tmp_path, steps(), KNOWN)["batch"]
    assert facts(batch) == {
        "batch_size": (32, "count"),
        "per_replica_batch_size": (32, "count"),
        "replicas": (1, "count"),
        "batches_per_step": (4, "count"),
    }
    (table,) = batch.tables
    rows = [row[1:] for row in table.rows()]
    assert rows == [("elements", 32, "one replica", "elements of shape [32,64] [32]")]
    assert batch.notes == ()


def test_of_hosts_that_show_the_same_people_see_one(tmp_path: Path) -> None:
    hosts = {f"w{number}": space(job(steps(), KNOWN)) for number in range(7)}
    hosts["w7"] = space(job(steps(), fetches("[16,64] [16]", per_step=4)))
    report = tfperf.load(logdir_of(tmp_path, **hosts)).report(["batch"])
    (table,) = shown(report, Detail("full", "full")).sections[0].tables
    seen = list(zip(table.data["host"], table.data["examples"], strict=True))
    assert seen == [("w0", 32), ("w7", 16)]
    assert table.note == "6 more rows in JSON and CSV, mostly for hosts with the same values."
    assert len(report.sections[0].tables[0]) == 8


def test_the_overview_has_the_rate(tmp_path: Path) -> None:
    """128 examples in a step of 100 us: 1.28 million per second, 0.78 us each."""
    overview = facts(sections(tmp_path, steps(), KNOWN)["overview"])
    assert overview["batch_size"] == (32, "count")
    assert overview["examples_per_second"] == (pytest.approx(1_280_000), "count")
    assert overview["time_per_example"] == (pytest.approx(100 / 128), "us")


def test_the_rate_in_the_overview_says_how_much_is_lost_between_steps(tmp_path: Path) -> None:
    """The last five of ten steps come 500 us later: 1,500 us of wall time for 1,000 us of steps of 128 examples."""
    apart = [replace(each, start_us=each.start_us + 500 * (each.start_us >= 500)) for each in (*steps(), *KNOWN)]
    marks, rest = apart[: len(steps())], apart[len(steps()) :]
    (rate,) = [fact for fact in sections(tmp_path, marks, rest)["overview"].facts if fact.key == "examples_per_second"]
    assert rate.value == pytest.approx(1280 / 1500e-6)
    assert rate.note == "of wall time; 1,280,000 within steps"


def test_long_times_per_example_are_milliseconds(tmp_path: Path) -> None:
    slower = [
        [replace(each, start_us=each.start_us * 10_000, duration_us=each.duration_us * 10_000) for each in events]
        for events in (steps(), fetches("[32,64] [32]"))
    ]
    overview = facts(sections(tmp_path, *slower)["overview"])
    assert overview["time_per_example"] == (pytest.approx(1000 / 32), "ms")


def test_what_is_unknown_is_said_once_and_why(tmp_path: Path) -> None:
    shown = sections(tmp_path, steps())
    assert "batch_size" not in facts(shown["overview"])
    assert facts(shown["batch"])["batch_size"] == (None, "count")
    assert shown["batch"].notes == ("Batch size is unknown: the profile has no shape of the step's input.",)
    assert "Batch size: the profile has no shape of the step's input." in shown["gaps"].notes


@pytest.mark.parametrize(
    ("events", "size", "confidence", "rate"),
    [((steps(), KNOWN), 32, "medium", 1_280_000), ((steps(),), None, "none", None)],
)
def test_the_summary_of_every_report(tmp_path: Path, events: Any, size: Any, confidence: str, rate: Any) -> None:
    analysis = tfperf.load(logdir_of(tmp_path, host=space(job(*events))), sections=["steps", "batch"])
    summary = json.loads(render(analysis.report(["steps"]), "json"))["summary"]
    assert (summary["batch_size"], summary["batch_size_confidence"]) == (size, confidence)
    assert summary["examples_per_second"] == (rate and pytest.approx(rate))


def test_without_steps_there_is_no_rate(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, job([])), sections=["batch"])
    assert results["batch"].examples_per_step is None
