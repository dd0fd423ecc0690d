from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import logdir_of
from judge.example_runs import STEADY, gpu_job, host_of, job, ranking_of, run_of, summarized
from msgspec import structs
from places import SHARED

import tfperf
from tfperf.judge.diff_report import diff, diff_report, run_summaries
from tfperf.judge.run_summary import AllocatorPeak, CauseTime, RankedEntry, Rankings, RunSummary, baseline_text
from tfperf.judge.summarize import summarize_run
from tfperf.report.model import Report, Table
from tfperf.report.render import RenderOptions, render
from tfperf.report.shown import Detail, shown

WHOLE = RenderOptions(view="whole")
TRACES = SHARED / "traces"
UNITS = {"ms": "_ms", "us": "_us", "%": "_percent", "bytes": "_bytes"}


def slower(factor: float = 1.2, label: str = "after", **changes: Any) -> RunSummary:
    return run_of(tuple(factor * ms for ms in STEADY), label, **changes)


def gemm(ms: float) -> dict[str, Any]:
    """Rankings of a run with one kernel."""
    return {"kernels": ranking_of(("gemm", ms))}


COPIES = {"copies": ranking_of(("H2D", 1.0))}
BOTH = {**COPIES, **gemm(1.0)}


def texts(report: Report, code: str) -> list[str]:
    return [finding.text for section in report.sections for finding in section.findings if finding.code == code]


def notes(report: Report) -> list[str]:
    return [note for section in report.sections for note in section.notes]


def table(report: Report, name: str) -> Table:
    return next(table for table in report.tables() if table.name == name)


def rows(report: Report, name: str) -> list[dict[str, Any]]:
    keys = [column.key for column in table(report, name).columns]
    return [dict(zip(keys, row, strict=True)) for row in table(report, name).rows()]


@pytest.mark.parametrize(
    ("factor", "code", "start"),
    [
        (1.2, "diff_slower", "after is 20.0% slower per step: mean step time 10.0 -> 12.0 ms, ratio 1.200 (90% "),
        (3.0, "diff_slower", "after takes 3 times as long per step: mean step time 10.0 -> 30.0 ms, ratio 3.000 "),
        (0.75, "diff_faster", "after takes 25.0% less time per step: mean step time 10.0 -> 7.50 ms, ratio 0.750 "),
        (1.001, "diff_none", "No clear change: mean step time 10.00 -> 10.01 ms, ratio 1.001 "),
    ],
)
def test_the_verdict_in_one_sentence(factor: float, code: str, start: str) -> None:
    report = diff_report([run_of(), slower(factor)])
    (text,) = texts(report, code)
    assert text.startswith(start)
    assert text.removesuffix(" No other change reaches 1% of a step.").endswith("from 50 and 50 steps.")
    assert text.startswith(report.summary["verdict"])


def test_too_few_steps_are_said_and_nothing_is_explained() -> None:
    report = diff_report([run_of(), run_of(STEADY[:3])])
    (text,) = texts(report, "diff_unknown")
    assert text.startswith("The step times cannot be compared: the runs have 50 and 3 whole steps")
    assert texts(report, "diff_explained") == []
    assert (report.summary["change"], report.summary["ratio"]) == ("unknown", None)


def test_steps_are_counted_before_a_long_list_is_cut() -> None:
    report = diff_report([run_of(), run_of(hosts=[host_of(step_count=70)])])
    assert (report.summary["before"]["step_count"], report.summary["after"]["step_count"]) == (50, 70)
    assert [row["steps"] for row in rows(report, "runs")] == [50, 70]
    assert [fact.value for section in report.sections for fact in section.facts] == [50, 70]


def test_whether_a_run_is_input_bound_may_be_unknown() -> None:
    unseen = host_of(input_percent=None, input_class="unknown")
    assert texts(diff_report([run_of(), run_of(hosts=[unseen])]), "diff_input") == [
        "Before: highly input-bound (50.0% of the step time). After: input-bound unknown."
    ]


def test_the_category_that_changed_most_and_its_stage_are_named(tmp_path: Path) -> None:
    """Waiting goes from 100 to 400 us, of which Map is two thirds; the rest of the step stays 500 us."""
    before = summarized(tmp_path, "before", a=job(wait=100, step=600))
    after = summarized(tmp_path, "after", a=job(wait=400, step=900))
    report = diff_report([before, after])
    assert texts(report, "diff_explained") == [
        "Largest change: Input, 0.100 -> 0.400 ms per step (100.0% of the change). Largest tf.data change: waiting for "
        "Map, 0.067 -> 0.267 ms."
    ]
    changes = {row["category"]: row for row in rows(report, "category_changes")}
    assert changes["Input"]["change_percent"] == pytest.approx(100.0)
    assert changes["Host compute"]["change_percent"] == pytest.approx(0.0)
    assert changes["Input"]["before_percent"] == pytest.approx(100 / 6, rel=1e-4)
    (stage, *_) = rows(report, "stages_changes")
    assert (stage["stage"], stage["state"]) == ("Map", "")
    assert stage["change_ms"] == pytest.approx(0.2, rel=1e-4)


def test_shares_of_a_change_that_is_not_clear_are_omitted() -> None:
    report = diff_report([run_of(), slower(1.001)])
    assert {row["change_percent"] for row in rows(report, "category_changes")} == {None}
    assert texts(report, "diff_explained") == []


def test_nothing_is_ever_minus_zero(tmp_path: Path) -> None:
    before, after = (summarized(tmp_path, name, a=job(wait=w, step=w + 500)) for name, w in (("b", 400), ("a", 100)))
    shares = [row["change_percent"] for row in rows(diff_report([before, after]), "category_changes")]
    assert "-0.0" not in [str(share) for share in shares]


def test_ops_kernels_and_the_rest_have_tables() -> None:
    rankings = {
        "device_ops": ranking_of(RankedEntry("d/MatMul", "MatMul", 2.0, 1.0)),
        "host_ops": ranking_of(RankedEntry("Cast", "Cast", 1.0, 2.0)),
        "kernels": ranking_of(("gemm", 2.0)),
        "copies": ranking_of(("H2D", 1.0)),
        "stages": ranking_of(RankedEntry("Root::Map", "Map", 1.0, 1.0, 0.5)),
        "functions": ranking_of(RankedEntry("step", "", 5.0, 3.0)),
        "idle": ranking_of(("input", 1.0)),
    }
    memory = (AllocatorPeak("GPU_0_bfc", 100),)
    report = diff_report([run_of(rankings=rankings, allocators=memory), slower(rankings=rankings, allocators=memory)])
    assert {section.name: [table.name for table in section.tables] for section in report.sections} == {
        "change": ["cause_changes"],
        "overview": ["runs"],
        "categories": ["category_changes", "idle_changes"],
        "steps": ["step_times"],
        "ops": ["device_ops_changes", "host_ops_changes"],
        "kernels": ["kernels_changes", "copies_changes"],
        "tfdata": ["stages_changes"],
        "functions": ["functions_changes"],
        "memory": ["memory_changes"],
        "environment": [],
    }
    assert rows(report, "functions_changes")[0]["before_tracings"] == 3.0
    assert rows(report, "stages_changes")[0]["after_element_ms"] == 0.5


def test_step_times_by_hand() -> None:
    report = diff_report([run_of((1.0, 2.0, 3.0, 4.0, 5.0)), run_of((2.0, 4.0, 6.0, 8.0, 10.0))])
    times = {row["statistic"]: (row["before_ms"], row["after_ms"], row["ratio"]) for row in rows(report, "step_times")}
    assert times["Mean"] == (3.0, 6.0, 2.0)
    assert times["95th percentile"] == (4.8, 9.6, 2.0)
    assert times["Standard deviation"] == (pytest.approx(2.5**0.5), pytest.approx(10**0.5), 2.0)
    assert times["Maximum"] == (5.0, 10.0, 2.0)


def test_a_cut_list_is_said() -> None:
    cut, whole = ranking_of(("a", 1.0), cut=4), ranking_of(("b", 1.0))
    report = diff_report([run_of(rankings={"kernels": cut}), slower(rankings={"kernels": whole})])
    assert table(report, "kernels_changes").note == "run has only the largest 1 of 5 rows."


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        (run_of(), slower(1.001), "Shares of the change are omitted, because the step time has no clear change."),
        (run_of(), slower(rankings=gemm(1.0)), "Kernels: not compared, because the profile of run has none."),
        (run_of(rankings=BOTH), slower(rankings=COPIES), "Kernels: not compared, because the profile of after "),
        (run_of(batch_size=None), slower(), "Batch sizes are not compared, because not every run shows its batch "),
    ],
    ids=["shares", "kernels", "kernels beside copies", "batch sizes"],
)
def test_what_is_not_compared_is_said(before: RunSummary, after: RunSummary, note: str) -> None:
    assert [said for said in notes(diff_report([before, after])) if said.startswith(note)]


def test_what_makes_it_unfair_is_a_problem() -> None:
    report = diff_report([run_of(), slower(batch_size=16)])
    (text,) = texts(report, "diff_unfair")
    assert text.startswith("Not comparable: batch size 8 -> 16; ")
    assert report.summary["comparable"] is False
    assert rows(report, "differences")[0]["unfair"] is True
    assert [row["comparable"] for row in rows(report, "runs")] == [None, False]


def sized(factor: float, size: int, label: str = "after") -> RunSummary:
    """A run whose steps take so many times 10 ms, for so many examples."""
    return slower(factor, label, batch_size=size, examples_per_step=size)


def test_runs_of_other_batch_sizes_are_compared_per_example() -> None:
    """10 ms for 100 examples, then 13 ms for 200: 30 % more per step, 35 % less per example."""
    report = diff_report([sized(1.0, 100, "before"), sized(1.3, 200)])
    (text,) = texts(report, "diff_faster")
    assert text.startswith("after takes 35.0% less time per example: mean time per example 100 -> 65.0 us, ratio 0.65")
    assert text.endswith("A step takes 100 -> 200 examples, and 10.0 -> 13.0 ms.")
    assert report.sections[1].findings[0].text == text, "it comes first"
    assert (report.summary["per"], report.summary["comparable"]) == ("example", True)
    assert report.summary["ratio"] == pytest.approx(0.65)
    assert report.summary["before"]["step_ms"] == pytest.approx(10.0)
    assert report.summary["after"]["example_us"] == pytest.approx(65.0)
    assert texts(report, "diff_unfair") == []


def test_all_times_below_are_of_a_thousand_examples() -> None:
    rankings = {
        "kernels": ranking_of(RankedEntry("gemm", "", 2.0, 3.0)),
        "functions": ranking_of(RankedEntry("f", "", 5.0, 3.0)),
    }
    before = structs.replace(sized(1.0, 100, "before"), rankings=Rankings(**rankings))
    after = structs.replace(sized(1.3, 200), rankings=Rankings(**rankings))
    report = diff_report([before, after])
    (kernel,) = rows(report, "kernels_changes")
    assert (kernel["before_ms"], kernel["after_ms"]) == (pytest.approx(20.0), pytest.approx(10.0))
    assert (kernel["before_count"], kernel["after_count"]) == (pytest.approx(30.0), pytest.approx(15.0))
    (function,) = rows(report, "functions_changes")
    assert (function["before_ms"], function["before_tracings"]) == (pytest.approx(50.0), 3.0), "tracings are all"
    after_ms = {row["category"]: row["after_ms"] for row in rows(report, "category_changes")}
    assert after_ms["Input"] == pytest.approx(32.5)
    assert table(report, "kernels_changes").title == "Kernels by change, per 1,000 examples"
    assert texts(report, "diff_explained")[0].startswith("Largest change: Host compute, 50.0 -> 32.5 us per example")
    assert [row["step_ms"] for row in rows(report, "runs")] == [pytest.approx(10.0), pytest.approx(13.0)]
    assert [row["example_us"] for row in rows(report, "runs")] == [pytest.approx(100.0), pytest.approx(65.0)]


@pytest.mark.skipif(not TRACES.is_dir(), reason="real profiles lie beside the repository, not in it")
def test_a_real_job_with_twice_the_batch() -> None:
    folders = ("gpu_bs128-20210202-131252", "gpu_bs256-20210202-131618")
    report = tfperf.diff(*(TRACES / "keras_rtx5000" / folder for folder in folders))
    assert report.summary["ratio"] == pytest.approx(0.657, abs=0.001)
    assert "takes 34.3% less time per example: mean time per example 36.6 -> 24.1 us" in report.summary["verdict"]


def test_a_trend_compares_each_run_with_the_first() -> None:
    report = diff_report([run_of(label="one"), slower(0.9, "two", batch_size=4), run_of((), "three"), slower(1.2)])
    trend = rows(report, "runs")
    assert [row["run"] for row in trend] == ["one", "two", "three", "after"]
    assert [row["ratio"] for row in trend] == [None, 0.9, None, 1.2]
    assert [row["step_ms"] for row in trend] == [pytest.approx(10.0), pytest.approx(9.0), None, pytest.approx(12.0)]
    assert [row["comparable"] for row in trend] == [None, False, True, True]
    assert report.summary["change"] == "slower"
    assert texts(report, "diff_unfair")[0].startswith("two: Not comparable: batch size 8 -> 4")
    assert "All sections below compare one with after." in report.sections[1].notes


def test_reports_fit_a_terminal_and_have_units_in_their_keys(tmp_path: Path, samples: Path) -> None:
    fixed, bound = (summarize_run(tfperf.load(samples / name), name) for name in ("input_fixed", "input_bound"))
    gpu = summarized(tmp_path, "gpu", a=gpu_job())
    for runs in ([fixed, bound], [fixed, fixed], [gpu, gpu], [gpu, bound], [fixed, bound, gpu], [run_of(()), fixed]):
        report = diff_report(runs)
        assert max(map(len, render(report, "table", WHOLE).splitlines())) <= 80
        assert all(render(report, name) for name in ("json", "csv", "markdown"))
        for column in (column for table in report.tables() for column in table.columns):
            suffixes = [suffix for suffix in UNITS.values() if column.key.endswith(suffix)]
            assert suffixes == [suffix for unit, suffix in UNITS.items() if unit == column.unit], column.key


def test_only_programs_see_all_sections() -> None:
    report = diff_report([run_of(), slower()])
    people = shown(report, Detail("brief", "brief"))
    assert [section.name for section in people.sections] == ["change", "overview", "categories", "steps", "environment"]
    assert len(report.sections) == 10


def kernels_of(factor: float) -> dict[str, Any]:
    return {"kernels": ranking_of(*((f"k{n}", factor * (n + 1)) for n in range(30)))}


def test_top_cuts_long_tables_and_keeps_their_length() -> None:
    report = diff_report([run_of(rankings=kernels_of(1)), slower(rankings=kernels_of(2))])
    for top, rows in ((None, 10), (5, 5), (40, 30)):
        kernels = table(shown(report, Detail("brief", "brief", top=top)), "kernels_changes")
        assert (len(kernels), kernels.total_rows) == (rows, 30)


def test_people_see_what_changed_by_a_hundredth_of_a_step() -> None:
    before = {"kernels": ranking_of(("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 0.01))}
    after = {"kernels": ranking_of(("a", 1.11), ("b", 1.0), ("c", 3.12), ("e", 0.02))}
    report = diff_report([run_of(rankings=before), slower(1.2, rankings=after)])
    seen = table(shown(report, Detail("brief", "brief")), "kernels_changes")
    assert seen.data["kernel"] == ["b", "c"], "steps take 12 ms at most, of which 0.12 ms is a hundredth"
    assert [row["kernel_name"] for row in rows(report, "kernels_changes")] == ["b", "c", "a", "e", "d"]
    page = table(shown(report, Detail("brief", "data", for_people=False)), "kernels_changes")
    assert len(page) == 5


def test_a_table_of_which_nothing_changed_is_for_programs() -> None:
    report = diff_report([run_of(rankings=BOTH), slower(rankings={**COPIES, **gemm(2.0)})])
    text = render(report, "table", WHOLE)
    assert "Kernels by change" in text
    assert "Copies by change" not in text
    assert rows(report, "copies_changes")[0]["change_ms"] == 0.0


def test_a_function_that_is_traced_more_often_changed() -> None:
    before, after = ({"functions": ranking_of(RankedEntry("step", "", 5.0, count))} for count in (0, 3))
    report = diff_report([run_of(rankings=before), slower(rankings=after)])
    assert len(table(shown(report, Detail("brief", "brief")), "functions_changes")) == 1


def test_runs_that_do_not_differ_take_few_lines(samples: Path) -> None:
    path = samples / "input_bound"
    lines = render(diff(path, path), "table").splitlines()
    assert lines[0] == "No difference beyond noise, 19.4 -> 19.4 ms per step (ratio 0.957 to 1.046)"
    assert len(lines) == 6
    assert len(rows(diff(path, path), "host_ops_changes")) > 9


def test_what_changed_is_shown_though_the_steps_take_as_long() -> None:
    report = diff_report([run_of(rankings=kernels_of(1)), run_of(label="after", rankings=kernels_of(2))])
    text = render(report, "table", WHOLE)
    assert "No clear change" in text
    assert "No other change" not in text
    assert "Kernels by change" in text


def test_causes_of_idle_time_have_their_titles() -> None:
    before, after = ({"idle": ranking_of(("host_compute", ms), ("python", 2 * ms))} for ms in (1.0, 3.0))
    report = diff_report([run_of(rankings=before), slower(rankings=after)])
    assert [row["cause"] for row in rows(report, "idle_changes")] == ["Python between calls", "Other host compute"]


def test_kernels_have_the_names_of_their_functions_and_the_whole_beside_them() -> None:
    names = [f"void cudnn::cnn::wgrad_alg0_engine<float, {n}, 6, 5, 3>(int, float*)" for n in (128, 512)]
    before, after = ({"kernels": ranking_of((names[0], ms), (names[1], 2 * ms), ("gemm", ms))} for ms in (1.0, 3.0))
    report = diff_report([run_of(rankings=before), slower(rankings=after)])
    assert [(row["kernel"], row["kernel_name"]) for row in rows(report, "kernels_changes")] == [
        ("wgrad_alg0_engine (1)", names[1]),
        ("gemm", "gemm"),
        ("wgrad_alg0_engine (2)", names[0]),
    ]
    text = render(report, "table", WHOLE)
    assert "wgrad_alg0_engine (1)" in text
    assert "cudnn::cnn" not in text
    assert "--format csv has full names in kernel_name" in " ".join(text.split())


def test_a_stage_is_named_only_if_it_explains_the_change() -> None:
    before, after = ({"stages": ranking_of(RankedEntry("Root::Map", "Map", ms, 1.0))} for ms in (0.01, 0.02))
    waiting = host_of([12.0] * 50, category_ms={"input": 7.0, "host_compute": 5.0})
    (text,) = texts(diff_report([run_of(rankings=before), run_of(hosts=[waiting], rankings=after)]), "diff_explained")
    assert text.startswith("Largest change: Input, 5.00 -> 7.00 ms")
    assert "tf.data" not in text


def test_hostile_names_are_inert() -> None:
    evil = "\x1b[2J</script>\n|" * 10
    rankings = {"kernels": ranking_of((evil, 1.0)), "stages": ranking_of(RankedEntry(evil, evil, 1.0))}
    hosts = [host_of(name=evil, device_model=evil)]
    report = diff_report([run_of(label=evil, hosts=hosts, rankings=rankings), slower(rankings=rankings)])
    assert "\x1b" not in render(report, "table") + render(report, "markdown")
    assert json.loads(render(report, "json"))["summary"]["before"]["label"] == evil
    assert not re.search("\x1b|</script", render(report, "json"))


def test_a_run_is_a_profile_a_path_or_a_baseline(tmp_path: Path) -> None:
    """One and the same run, six times."""
    logdir = logdir_of(tmp_path / "night", a=job())
    loaded = tfperf.load(logdir)
    file = next(logdir.rglob("*.xplane.pb"))
    (summary,) = run_summaries([loaded])
    baseline = tmp_path / "base.JSON"
    baseline.write_text(baseline_text(summary))
    runs = run_summaries([loaded, logdir, str(logdir), file, summary, baseline])
    name = "2026_01_01_00_00_00"
    assert [run.label for run in runs] == [
        f"1: {name}",
        "2: logs",
        "3: logs",
        f"4: {name}",
        f"5: {name}",
        "6: base.JSON",
    ]
    assert all(run.hosts == summary.hosts for run in runs)
    assert [run.label for run in run_summaries([run_of(label="b"), run_of(label="a")])] == ["b", "a"], "they differ"


RUN = "2026_01_01_00_00_00"


@pytest.mark.parametrize(
    ("places", "labels"),
    [
        (("before/logs", "after/logs"), ["before/logs", "after/logs"]),
        (("x/before/logs", "y/before/logs"), ["x/before/logs", "y/before/logs"]),
        (("a/logs", "b/logs", "c/x.json"), ["a/logs", "b/logs", "x.json"]),
        ((f"a/logs/plugins/profile/{RUN}", f"b/logs/plugins/profile/{RUN}"), [f"a/logs/{RUN}", f"b/logs/{RUN}"]),
        ((f"a/logs/plugins/profile/{RUN}/h.xplane.pb", "a/logs"), [RUN, "logs"]),
        (("a/b.json", "c/b.json"), ["a/b.json", "c/b.json"]),
        (("a/logs", "a/logs"), ["1: logs", "2: logs"]),
    ],
)
def test_runs_of_one_name_are_told_apart_by_folders(places: Sequence[str], labels: list[str], tmp_path: Path) -> None:
    for place in {*places}:
        if place.endswith(".json"):
            (tmp_path / place).parent.mkdir()
            (tmp_path / place).write_text(baseline_text(run_of()))
        else:
            logdir_of(tmp_path / place.split("/logs")[0], h=job())
    assert [run.label for run in run_summaries([tmp_path / place for place in places])] == labels


def test_first_steps_of_profiles_can_be_omitted(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=job(steps=10))
    assert [len(run.hosts[0].step_ms) for run in run_summaries([logdir, run_of()], skip_first=4)] == [6, 50]


def test_the_report_holds_the_ratio(tmp_path: Path) -> None:
    report = diff(logdir_of(tmp_path / "1", a=job(step=100)), logdir_of(tmp_path / "2", a=job(step=150)), stat="median")
    assert (report.summary["stat"], report.summary["ratio"]) == ("median", pytest.approx(1.5))


def test_one_run_is_nothing_to_compare() -> None:
    with pytest.raises(tfperf.TfperfError, match="a comparison requires at least two runs"):
        diff(run_of())


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "severity"),
    [
        (80.7, 10.5, "hint"),  # recompiles before, and no longer after
        (80.7, 82.0, "info"),
        (10.5, 10.6, None),  # what averages omit is next to nothing
        (None, 80.7, None),  # a baseline of an earlier version
    ],
)
def test_wall_time_is_stated_where_it_is_not_the_step_time(
    before_ms: float | None, after_ms: float | None, severity: str | None
) -> None:
    """Steps of 10 ms in both runs."""
    report = diff_report([run_of(label="a", wall_step_ms=before_ms), run_of(label="b", wall_step_ms=after_ms)])
    found = [finding for finding in report.sections[1].findings if finding.code == "diff_wall"]
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    assert all(f"{before_ms:.1f} -> {after_ms:.1f} ms" in finding.text for finding in found)
    assert report.summary["after"]["wall_step_ms"] == after_ms
    is_one_line = "No other change" in report.sections[1].findings[0].text
    assert is_one_line == (severity != "hint")


def first_screen(report: Report) -> list[str]:
    return render(report, "table").splitlines()


@pytest.mark.parametrize(
    ("factor", "first"),
    [
        (1.2, "1.20x slower (1.20 to 1.20), 10.0 -> 12.0 ms per step"),
        (0.5, "2.00x faster (2.00 to 2.00), 10.0 -> 5.00 ms per step"),
        (1.001, "No difference beyond noise, 10.00 -> 10.01 ms per step (ratio 0.999 to 1.003)"),
    ],
)
def test_the_first_line_is_the_ratio_with_its_interval(factor: float, first: str) -> None:
    assert first_screen(diff_report([run_of(), slower(factor)]))[0] == first


def test_too_few_steps_come_first_too() -> None:
    screen = first_screen(diff_report([run_of(), run_of(STEADY[:3])]))
    assert screen[0].startswith("The step times cannot be compared: the runs have 50 and 3 whole steps")
    assert len(screen) <= 12


def caused(label: str, wait_ms: float, host_ms: float, **causes: dict[str, float]) -> RunSummary:
    """A run whose steps wait and then compute; `causes` have milliseconds by category."""
    times = tuple(wait_ms + host_ms + noise for noise in (-0.1, 0.0, 0.1)) * 10
    found = tuple(CauseTime(code=code, title=code.upper(), category_ms=ms) for code, ms in causes.items())
    categories: dict[str, float | None] = {"input": wait_ms, "input_wait": wait_ms, "host_compute": host_ms}
    return run_of(label=label, hosts=[host_of(times, category_ms=categories, causes=found)])


def parts_of(report: Report) -> dict[str, tuple[float, float]]:
    return {row["cause"]: (row["before_ms"], row["after_ms"]) for row in rows(report, "cause_changes")}


def test_causes_of_both_runs_are_compared_and_others_by_category() -> None:
    """Eager ops go from 3 to 1 ms of host compute; fixed overhead is a cause only after, so it is host compute."""
    before = caused("before", 4.0, 6.0, eager_ops={"host_compute": 3.0})
    after = caused("after", 1.0, 4.0, eager_ops={"host_compute": 1.0}, small_work_per_step={"host_compute": 2.0})
    report = diff_report([before, after])
    assert parts_of(report) == {"Waiting for input": (4.0, 1.0), "EAGER_OPS": (3.0, 1.0), "Host compute": (3.0, 3.0)}
    assert sum(each["after_ms"] for each in report.documents["comparison"]["causes"]) == pytest.approx(5.0)


def test_a_new_cause_that_is_a_whole_category_has_its_name() -> None:
    before, after = caused("before", 0.0, 6.0), caused("after", 4.0, 6.0, input_wait={"input_wait": 4.0})
    assert parts_of(diff_report([before, after])) == {"INPUT_WAIT": (0.0, 4.0), "Host compute": (6.0, 6.0)}


def test_baselines_without_causes_are_compared_by_category() -> None:
    old, new = caused("old", 4.0, 6.0), caused("new", 1.0, 6.0, eager_ops={"host_compute": 3.0})
    assert parts_of(diff_report([old, new])) == {"Waiting for input": (4.0, 1.0), "Host compute": (6.0, 6.0)}


def test_a_category_that_one_run_does_not_show_is_not_compared() -> None:
    unseen = host_of(category_ms={"input": None, "host_compute": 10.0})
    report = diff_report([run_of(), run_of(hosts=[unseen])])
    assert report.documents["comparison"]["causes"] == []


def test_the_first_screen_has_at_most_twelve_lines_of_80_columns(samples: Path) -> None:
    names = ("input_bound", "input_fixed", "custom_loop", "retracing")
    runs = [summarize_run(tfperf.load(samples / name), name) for name in names]
    many = [structs.replace(runs[number % 4], label=f"run {number} {'x' * 60}") for number in range(20)]
    pairs = [[one, other] for one in runs for other in runs]
    for compared in (*pairs, runs, many, [run_of(batch_size=4), slower(3.0, batch_size=16, step_source="x" * 90)]):
        screen = first_screen(diff_report(compared))
        assert len(screen) <= 12, screen
        assert max(map(len, screen)) <= 80, screen


def test_more_than_two_runs_have_a_line_each() -> None:
    screen = first_screen(diff_report([run_of(label="one"), slower(0.5, "two"), slower(1.2, "three")]))
    assert screen[0].startswith("1.20x slower")
    assert [line.split()[0] for line in screen[2:5]] == ["one", "two", "three"]
    assert "2.00x faster (2.00 to 2.00)" in screen[3]


def test_other_differences_are_on_the_first_screen() -> None:
    screen = first_screen(diff_report([run_of(), slower(batch_size=16)]))
    assert "NOT COMPARABLE: batch size 8 -> 16 (-s environment)." in screen
