from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from compare.made import STEADY, gpu_job, host_of, job, part_of, run_of, taken

import tfperf
from tfperf.compare.model import AllocatorPeak, Entry, Snapshot
from tfperf.compare.report import diff_report
from tfperf.compare.snapshot import take
from tfperf.render import render
from tfperf.report.model import Report, Table

UNITS = {"ms": "_ms", "us": "_us", "%": "_percent", "bytes": "_bytes"}


def slower(factor: float = 1.2, **changes: Any) -> Snapshot:
    return run_of(tuple(factor * own for own in STEADY), "after", **changes)


def texts(report: Report, code: str) -> list[str]:
    return [own.text for section in report.sections for own in section.findings if own.code == code]


def table(report: Report, name: str) -> list[dict[str, Any]]:
    found: Table = next(own for own in report.tables() if own.name == name)
    return [dict(zip([column.key for column in found.columns], row, strict=True)) for row in found.rows()]


def names(report: Report) -> list[str]:
    return [section.name for section in report.sections]


# --- the verdict ---


@pytest.mark.parametrize(
    ("factor", "code", "start"),
    [
        (1.2, "diff_slower", "after is 20.0% slower per step: mean step time 10.0 -> 12.0 ms, ratio 1.200 (90% "),
        (3.0, "diff_slower", "after takes 3 times as long per step: mean step time 10.0 -> 30.0 ms, ratio 3.000 "),
        (0.75, "diff_faster", "after takes 25.0% less time per step: mean step time 10.0 -> 7.50 ms, ratio 0.750 "),
        (1.001, "diff_none", "No change can be told: mean step time 10.00 -> 10.01 ms, ratio 1.001 "),
    ],
)  # fmt: skip
def test_the_verdict_in_one_sentence(factor: float, code: str, start: str) -> None:
    report = diff_report([run_of(), slower(factor)])
    (text,) = texts(report, code)
    assert text.startswith(start)
    assert text.endswith("from 50 and 50 steps.")
    assert report.summary["verdict"] == text


def test_too_few_steps_are_said_and_nothing_is_explained() -> None:
    report = diff_report([run_of(), run_of(STEADY[:3])])
    assert texts(report, "diff_unknown")[0].startswith("No change can be told: there are 50 and 3 whole steps")
    assert texts(report, "diff_explained") == []
    assert (report.summary["change"], report.summary["ratio"]) == ("unknown", None)


def test_the_summary_has_fixed_keys() -> None:
    summary = diff_report([run_of(label="before"), slower()]).summary
    assert list(summary) == [
        "stat", "change", "ratio", "ratio_low", "ratio_high", "confidence", "verdict", "comparable", "before", "after",
        "run_count",
    ]  # fmt: skip
    assert (summary["change"], summary["comparable"], summary["run_count"]) == ("slower", True, 2)
    assert summary["ratio"] == pytest.approx(1.2)
    assert summary["before"] == {
        "label": "before", "run": "2026", "host": "a", "step_count": 50, "step_ms": pytest.approx(10.0),
        "input_percent": 50.0, "input_class": "high",
    }  # fmt: skip


def test_one_run_is_nothing_to_compare() -> None:
    with pytest.raises(tfperf.TfperfError, match="give two or more"):
        diff_report([run_of()])


# --- what explains it ---


def test_the_category_that_changed_most_and_its_stage_are_named(tmp_path: Path) -> None:
    """Waiting goes from 100 to 400 us, of which Map is two thirds; the rest of the step stays 500 us."""
    before = taken(tmp_path, "before", a=job(wait=100, step=600))
    after = taken(tmp_path, "after", a=job(wait=400, step=900))
    report = diff_report([before, after])
    assert texts(report, "diff_explained") == [
        "Input changed most: 0.100 -> 0.400 ms per step (100.0% of the change); of the stages of tf.data, Map is "
        "waited for 0.067 -> 0.267 ms."
    ]
    rows = {row["category"]: row for row in table(report, "category_changes")}
    assert rows["Input"]["change_percent"] == pytest.approx(100.0)
    assert rows["Host compute"]["change_percent"] == pytest.approx(0.0)
    assert rows["Input"]["before_percent"] == pytest.approx(100 / 6, rel=1e-4)
    (stage, *_) = table(report, "stages_changes")
    assert (stage["stage"], stage["state"]) == ("Map", "")
    assert stage["change_ms"] == pytest.approx(0.2, rel=1e-4)


def test_shares_of_a_change_that_cannot_be_told_are_not_given() -> None:
    report = diff_report([run_of(), slower(1.001)])
    assert {row["change_percent"] for row in table(report, "category_changes")} == {None}
    assert texts(report, "diff_explained") == []


def test_nothing_is_ever_minus_zero(tmp_path: Path) -> None:
    before, after = (taken(tmp_path, name, a=job(wait=w, step=w + 500)) for name, w in (("b", 400), ("a", 100)))
    shares = [row["change_percent"] for row in table(diff_report([before, after]), "category_changes")]
    assert "-0.0" not in [str(share) for share in shares]


def test_ops_kernels_and_the_rest_have_tables() -> None:
    found = {
        "device_ops": part_of(Entry("d/MatMul", "MatMul", 2.0, 1.0)), "kernels": part_of(("gemm", 2.0)),
        "copies": part_of(("H2D", 1.0)), "functions": part_of(Entry("step", "", 5.0, 3.0)),
        "idle": part_of(("input", 1.0)), "stages": part_of(Entry("Root::Map", "Map", 1.0, 1.0, 0.5)),
        "host_ops": part_of(Entry("Cast", "Cast", 1.0, 2.0)),
    }  # fmt: skip
    memory = (AllocatorPeak("GPU_0_bfc", 100),)
    report = diff_report([run_of(parts=found, allocators=memory), slower(parts=found, allocators=memory)])
    assert names(report) == [
        "overview", "categories", "steps", "ops", "kernels", "tfdata", "functions", "memory", "environment",
    ]  # fmt: skip
    assert [own.name for own in report.tables()] == [
        "runs", "category_changes", "idle_changes", "step_times", "device_ops_changes", "host_ops_changes",
        "kernels_changes", "copies_changes", "stages_changes", "functions_changes", "memory_changes",
    ]  # fmt: skip
    assert table(report, "functions_changes")[0]["before_tracings"] == 3.0
    assert table(report, "stages_changes")[0]["after_element_ms"] == 0.5


def test_step_times_by_hand() -> None:
    report = diff_report([run_of((1.0, 2.0, 3.0, 4.0, 5.0)), run_of((2.0, 4.0, 6.0, 8.0, 10.0))])
    rows = {row["statistic"]: (row["before_ms"], row["after_ms"], row["ratio"]) for row in table(report, "step_times")}
    assert rows["Mean"] == (3.0, 6.0, 2.0)
    assert rows["95th percentile"] == (4.8, 9.6, 2.0)
    assert rows["Standard deviation"] == (pytest.approx(2.5**0.5), pytest.approx(10**0.5), 2.0)
    assert rows["Maximum"] == (5.0, 10.0, 2.0)


def test_a_cut_list_is_said() -> None:
    cut, whole = part_of(("a", 1.0), cut=4), part_of(("b", 1.0))
    report = diff_report([run_of(parts={"kernels": cut}), slower(parts={"kernels": whole})])
    found = next(own for own in report.tables() if own.name == "kernels_changes")
    assert found.note == "Of run the 1 largest of 5 are known."


def test_what_one_run_does_not_show_is_said() -> None:
    report = diff_report([run_of(), slower(parts={"kernels": part_of(("gemm", 1.0))})])
    notes = [note for section in report.sections for note in section.notes]
    assert "Kernels: not shown by run, so nothing is compared." in notes


# --- is it fair ---


def test_what_makes_it_unfair_is_a_problem() -> None:
    report = diff_report([run_of(), slower(batch_size=16)])
    assert texts(report, "diff_unfair") == [
        "Not a fair comparison: batch size 8 -> 16; a step is another amount of work; compare time per example."
    ]
    assert report.summary["comparable"] is False
    assert table(report, "differences")[0]["unfair"] is True
    assert [row["comparable"] for row in table(report, "runs")] == [None, False]


def test_unknown_batch_sizes_are_said() -> None:
    notes = [note for section in diff_report([run_of(batch_size=None), slower()]).sections for note in section.notes]
    assert any(note.startswith("Batch sizes are not compared") for note in notes)


# --- more than two runs ---


def test_a_trend_compares_each_run_with_the_first() -> None:
    report = diff_report([run_of(label="one"), slower(0.9, batch_size=4), run_of((), "none"), slower(1.2)])
    rows = table(report, "runs")
    assert [row["run"] for row in rows] == ["one", "after", "none", "after"]
    assert [row["ratio"] for row in rows] == [None, 0.9, None, 1.2]
    assert [row["step_ms"] for row in rows] == [pytest.approx(10.0), pytest.approx(9.0), None, pytest.approx(12.0)]
    assert [row["comparable"] for row in rows] == [None, False, True, True]
    assert report.summary["change"] == "slower"
    assert texts(report, "diff_unfair")[0].startswith("after: Not a fair comparison: batch size 8 -> 4")
    assert "Everything below compares one with after." in report.sections[0].notes


# --- as people and programs see it ---


def every_report(tmp_path: Path, samples: Path, top: int | None) -> list[Report]:
    one, other = (take(tfperf.load(samples / story), story) for story in ("input_fixed", "input_bound"))
    gpu = taken(tmp_path, "gpu", a=gpu_job())
    pairs = [[one, other], [one, one], [gpu, gpu], [gpu, other], [one, other, gpu], [run_of(()), one]]
    return [diff_report(runs, top=top) for runs in pairs]


def test_the_terminal_has_80_columns(tmp_path: Path, samples: Path) -> None:
    for report in every_report(tmp_path, samples, 10):
        assert max(map(len, render(report, "table").splitlines())) <= 80


def test_units_are_in_the_keys(tmp_path: Path, samples: Path) -> None:
    for report in every_report(tmp_path, samples, None):
        for own in (column for found in report.tables() for column in found.columns):
            assert [suffix for suffix in UNITS.values() if own.key.endswith(suffix)] == [
                suffix for unit, suffix in UNITS.items() if unit == own.unit
            ]


@pytest.mark.parametrize("name", ["table", "json", "csv", "markdown"])
def test_every_format_shows_it(tmp_path: Path, samples: Path, name: str) -> None:
    for report in every_report(tmp_path, samples, 10):
        assert render(report, name)


def test_all_sections_are_there_for_programs_only(tmp_path: Path) -> None:
    runs = [run_of(), slower()]
    assert names(diff_report(runs, top=10)) == ["overview", "categories", "steps", "environment"]
    assert len(names(diff_report(runs))) == 9


def test_top_cuts_long_tables_and_says_so() -> None:
    part = {"kernels": part_of(*((f"k{n}", float(n)) for n in range(30)))}
    report = diff_report([run_of(parts=part), slower(parts=part)], top=5)
    found = next(own for own in report.tables() if own.name == "kernels_changes")
    assert (len(found), found.total_rows) == (5, 30)


def test_hostile_names_are_inert() -> None:
    evil = "\x1b[2J</script>\n|" * 10
    part = {"kernels": part_of((evil, 1.0)), "stages": part_of(Entry(evil, evil, 1.0))}
    runs = [run_of(label=evil, hosts=[host_of(name=evil, device_model=evil)], parts=part), slower(parts=part)]
    report = diff_report(runs, top=10)
    assert "\x1b" not in render(report, "table")
    assert "\x1b" not in render(report, "markdown")
    assert json.loads(render(report, "json"))["summary"]["before"]["label"] == evil
    assert not re.search("\x1b|</script", render(report, "json"))
