"""`tfperf.diff` takes runs in any form, and tells them apart by their labels."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import logdir_of
from compare.example_runs import job, run_of

import tfperf
from tfperf.compare.baseline_file import baseline_text
from tfperf.compare.diff import diff, run_summaries


def test_a_run_is_a_profile_a_path_or_a_baseline(tmp_path: Path) -> None:
    """One and the same run, six times."""
    logdir = logdir_of(tmp_path / "night", a=job())
    loaded = tfperf.load(logdir)
    file = next(logdir.rglob("*.xplane.pb"))
    (summary,) = run_summaries([loaded])
    baseline = tmp_path / "base.JSON"
    baseline.write_text(baseline_text(summary))
    runs = run_summaries([loaded, logdir, str(logdir), file, summary, baseline])
    assert [run.label for run in runs] == [
        "1: 2026_01_01_00_00_00",
        "2: logs",
        "3: logs",
        "4: 2026_01_01_00_00_00",
        "5: 2026_01_01_00_00_00",
        "6: base.JSON",
    ]
    assert all(run.hosts == summary.hosts for run in runs)


def test_labels_that_differ_stay() -> None:
    assert [run.label for run in run_summaries([run_of(label="before"), run_of(label="after")])] == ["before", "after"]


def test_first_steps_of_profiles_can_be_omitted(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=job(steps=10))
    assert [len(run.hosts[0].step_ms) for run in run_summaries([logdir, run_of()], skip_first=4)] == [6, 50]


def test_the_report_holds_the_ratio(tmp_path: Path) -> None:
    report = diff(logdir_of(tmp_path / "1", a=job(step=100)), logdir_of(tmp_path / "2", a=job(step=150)), stat="median")
    assert (report.summary["stat"], report.summary["ratio"]) == ("median", pytest.approx(1.5))


def test_one_run_is_nothing_to_compare() -> None:
    with pytest.raises(tfperf.TfperfError, match="a comparison needs two or more runs"):
        diff(run_of())
