from __future__ import annotations

from pathlib import Path

import pytest
from builders import Line, event, host, known, line, plane, repeat, results_of, trace_of
from builders import iterator_call as call
from msgspec.structs import replace
from sections.tfdata.made_pipelines import behind_a_prefetch, inline_map, training_and_evaluation, waiting_job
from sections.views import WHOLE_REPORT, codes, names, seen

from tfperf.analysis.registry import Results
from tfperf.report.model import Report, Section
from tfperf.report.render import RenderOptions, render
from tfperf.report.shown import shown
from tfperf.sections.tfdata import CODE, FUNCTIONS, PIPELINES, STAGES, TABLES, WHAT_IF
from tfperf.sections.tfdata.section import build


def section_of(tmp_path: Path, *lines: Line) -> Section:
    return build(results_of(trace_of(tmp_path, plane("/host:CPU", *lines)), sections=["tfdata"]))


def test_a_slow_pipeline_is_a_problem_and_its_stages_are_named(tmp_path: Path) -> None:
    verdict = section_of(tmp_path, *waiting_job("Map", op="DecodeJpeg")).findings[0]
    assert (verdict.code, verdict.severity) == ("tfdata_slow", "problem")
    assert verdict.text == (
        "The pipeline is too slow: steps wait 0.060 ms of 0.100 ms (60.0%) for it. "
        "Map is both the blocking and the limiting stage."
    )
    assert section_of(tmp_path, *waiting_job("Map", busy_us=12)).findings[0].severity == "hint"


def test_waiting_is_that_of_the_step_table(tmp_path: Path) -> None:
    """A fetch takes 2 us longer than the call of the pipeline inside it."""
    threads = waiting_job("Map", op="DecodeJpeg")
    fetches = [event("IteratorGetNextOp::DoCompute", 100 * n, 62) for n in range(5)]
    trace = trace_of(tmp_path, plane("/host:CPU", *threads, line("python2", *fetches)))
    results = results_of(trace, sections=["tfdata"])
    assert "steps wait 0.062 ms of 0.100 ms (62.0%) for it" in build(results).findings[0].text
    assert results["overview"].percent["input_wait"] == pytest.approx(62.0)


def test_evaluation_has_a_verdict_and_changes_of_its_own(tmp_path: Path) -> None:
    section = section_of(tmp_path, training_and_evaluation(eval_stage="Filter", eval_root=11))
    verdict, *changes = [finding for finding in section.findings if finding.text.startswith("Evaluation steps: ")]
    assert verdict.text.startswith(
        "Evaluation steps: The pipeline is too slow: steps wait 0.060 ms of 0.100 ms (60.0%)"
    )
    assert [(each.code, each.level) for each in changes][:1] == [("cache", "full")]


def test_a_stage_that_only_waits_is_named_with_what_it_waits_for(tmp_path: Path) -> None:
    verdict = section_of(tmp_path, *waiting_job("DataServiceV4")).findings[0]
    assert verdict.text.endswith(
        "The blocking stage is DataServiceV4, which waits for the workers of the data service."
    )


def test_of_several_hosts_people_see_the_stages_of_the_one_that_waits_longest(tmp_path: Path) -> None:
    idle = replace(trace_of(tmp_path, plane("/host:CPU", *waiting_job("Map", busy_us=12))), host="idle")
    slow = replace(trace_of(tmp_path, plane("/host:CPU", *waiting_job("Map", op="DecodeJpeg"))), host="slow")
    section = build(results_of(idle, slow, sections=["tfdata"]))
    stages = seen(section).tables[0]
    assert set(stages.data["host"]) == {"slow"}
    assert stages.note == (
        "! blocking stage (waited for most), * limiting stage (caps the throughput). "
        "Text and Markdown show only slow, one of 2 hosts; JSON, CSV and HTML show all hosts."
    )
    assert set(section.tables[0].data["host"]) == {"idle", "slow"}


def test_the_checklist_answers_four_questions(tmp_path: Path) -> None:
    facts = section_of(tmp_path, *waiting_job("Map", op="DecodeJpeg")).facts
    assert [(fact.title, fact.value, fact.note) for fact in facts] == [
        ("1 Fast enough", False, "5 of 5 calls take longer than 50 us; mean 0.060, p95 0.060 ms"),
        ("2 Prefetch at the end", False, "the step and the pipeline take turns"),
        (
            "3 Host CPU busy",
            pytest.approx(100 * 300 / (2 * 460)),
            "by the pipeline: 0.7 threads work at the same time on 2 cores; its thread pool has 2 threads",
        ),
        ("4 Limiting stage", "Map", "an element takes 0.060 ms in the step's own thread"),
        ("  Blocking stage", "Map", "100.0% of the time spent waiting for the pipeline"),
    ]


def test_a_pipeline_that_is_fast_enough_needs_no_advice(tmp_path: Path) -> None:
    section = section_of(tmp_path, *waiting_job("Map", busy_us=2, op="DecodeJpeg"))
    assert codes(section) == ["tfdata_fast_enough"]
    assert section.facts[0].value is True
    assert "what_if" not in [table.name for table in section.tables], "nothing to gain"
    assert any("hardly" in note for note in section.detail_notes)


def test_without_steps_nobody_can_say_whether_it_is_too_slow(tmp_path: Path) -> None:
    section = section_of(tmp_path, line("a", call("Root", 0, 60, 1), call("Root::Map", 0, 60, 2, 1)))
    assert codes(section)[0] == "tfdata_no_steps"
    assert section.findings[0].text.endswith("Whether steps wait for it is unknown: the profile has no averaged steps.")
    assert section.facts[0].value is None


def test_steps_without_a_call_of_the_pipeline_cannot_tell_either(tmp_path: Path) -> None:
    # One step, as the profiler bounds it by the work of a device: the batch was fetched before.
    asked = call("Root", 0, 60, 1), call("Root::ParallelMapV2", 1, 58, 2, 1)
    section = section_of(tmp_path, line("python", *asked, event("train", 100, 900, step_num=1)))
    (verdict,) = section.findings
    assert (verdict.code, verdict.severity) == ("tfdata_no_calls", "info")
    assert verdict.text == (
        "1 of 1 pipeline calls take longer than 50 us (mean 0.060 ms). Whether other steps wait for it is "
        "unknown: its calls start outside the averaged step (1 before)."
    )


def test_waiting_without_a_stage_is_told(tmp_path: Path) -> None:
    python, reader = behind_a_prefetch(60, 10, 70)
    early = line("python", *python.events, call("Root", 500, 90, 1), call("Root::Prefetch", 500, 90, 2, 1))
    section = section_of(tmp_path, early, reader)
    assert section.detail_notes[-1].startswith("27.3% of the waiting has no stage"), "90 of 330 us"


def handing_on(wait_us: float) -> tuple[Line, Line]:
    """The part of a pipeline that hands batches to a device, which waits for so long."""
    return line("a", call("Prefetch", 0, wait_us, 1)), line("b", call("Prefetch::Generator", 0, wait_us, 2, 1))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (handing_on(10), "only the part of the pipeline that transfers batches to devices"),
        (handing_on(90), "only the part of the pipeline that transfers batches to devices"),
        ((line("a", call("Root::Map::Range", 0, 10, 2, 1)),), "no complete call of the outermost stage"),
    ],
    ids=["hardly waited for", "handed on", "cut off"],
)
def test_what_is_missing_is_said(lines: tuple[Line, ...], words: str, tmp_path: Path) -> None:
    section = section_of(tmp_path, *lines)
    assert (section.findings, section.facts) == ((), ())
    for shown_section in (seen(section), seen(section, WHOLE_REPORT)):
        assert words in shown_section.notes[0]
        assert names(shown_section) == ["tfdata_stages"], "a tree says what is there"


def test_without_tfdata_a_whole_report_leaves_the_section_out(tmp_path: Path) -> None:
    section = section_of(tmp_path, line("python", event("train", 0, 10)))
    assert (section.findings, section.facts, names(seen(section))) == ((), (), [])
    assert "has no tf.data events" in seen(section).notes[0]
    assert shown(Report({}, {}, (section,)), WHOLE_REPORT).sections == ()


def test_of_a_pipeline_that_only_hands_on_the_stage_that_is_waited_for_is_named(tmp_path: Path) -> None:
    _, blame = section_of(tmp_path, *handing_on(90)).notes
    assert blame.startswith(
        "100.0% of the waiting is for Generator, which pulls each batch of the device from the host"
    )


def test_stages_are_shown_as_a_tree(tmp_path: Path) -> None:
    section = section_of(tmp_path, *waiting_job("Zip", "Map", op="Cast"))
    (stages,) = [table for table in section.tables if table.name == "tfdata_stages"]
    assert stages.data["name"] == ["Root", "Zip", "Map"]
    assert stages.data["depth"] == [0, 1, 2]
    assert (stages.data["is_blocking"], stages.data["is_limiting"]) == ([False, False, True],) * 2
    report = Report({}, {}, (seen(section),))
    piped = render(report, "table", RenderOptions(width=80))
    assert "`-Zip" in piped
    assert "  `-Map !*" in piped
    assert all(len(text) <= 80 for text in piped.splitlines())


def test_in_a_whole_report_the_section_is_brief(tmp_path: Path) -> None:
    brief = seen(section_of(tmp_path, *waiting_job("Map", op="Cast")), WHOLE_REPORT)
    assert codes(brief) == ["tfdata_slow"]
    assert brief.facts == ()
    assert names(brief) == ["tfdata_stages", "what_if"]
    assert brief.notes == ("More: -s tfdata.",)


def test_by_name_people_see_advice_checklist_and_functions(tmp_path: Path) -> None:
    section = section_of(tmp_path, *waiting_job("Map", op="Cast"))
    full = seen(section)
    assert codes(full) == ["tfdata_slow", "cache", "parallel_map", "prefetch"]
    assert len(full.facts) == 5
    assert names(full) == ["tfdata_stages", "tfdata_functions", "what_if", "tfdata_code"]
    assert [note[:7] for note in full.notes] == ["Self is"]
    for of, has_path in ((full, False), (section, True)):
        assert ("path" in [column.key for column in of.tables[0].columns]) == has_path, "programs get all columns"


AUTOTUNE = "num_parallel_calls=tf.data.AUTOTUNE"


def results(tmp_path: Path, hosts: int = 1) -> Results:
    trace = trace_of(tmp_path, plane("/host:CPU", *inline_map(60)))
    return results_of(*[trace] * hosts, sections=["tfdata"])


def test_stages_are_marked(tmp_path: Path) -> None:
    data = known(STAGES.data(results(tmp_path)))
    assert list(data["name"]) == ["Root", "Map"]
    assert list(data["stage"]) == ["Root", "Map !*"]
    assert list(data["element_ms"]) == [0, 0.06]
    assert list(data["busy_percent"]) == [0, 60], "of the capture of five steps; Root only asks Map"
    assert list(data["waited_percent"]) == [0, 100]


def test_a_stage_that_was_not_called_has_no_times_of_calls(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(call("Root::Map::Range", 0, 10, 2, 1)))
    data = known(STAGES.data(results_of(trace, sections=["tfdata"])))
    assert (list(data["calls"]), list(data["mean_ms"])) == ([0, 0, 1], [None, None, 0.01])
    assert (list(data["total_ms"]), list(data["busy_percent"])) == ([None, None, 0.01], [None, None, 100])


def test_functions_name_their_ops(tmp_path: Path) -> None:
    data = known(FUNCTIONS.data(results(tmp_path)))
    assert (list(data["stage"]), list(data["runs"]), list(data["run_ms"])) == (["Map"], [5], [0.06])
    assert list(data["ops"]) == ["DecodeJpeg 100.0%"]


def test_several_pipelines_are_told_apart(tmp_path: Path) -> None:
    assert PIPELINES.data(results(tmp_path)) is None, "there is one"
    events = [*repeat(3, call("Root", 0, 60, 1)), *repeat(3, call("Root", 60, 10, 9))]
    both = results_of(trace_of(tmp_path, plane("/host:CPU", line("python", *events))), sections=["tfdata"])
    pipelines, stages = known(PIPELINES.data(both)), known(STAGES.data(both))
    assert list(pipelines["pipeline"]) == ["Host:0", "Host:1"]
    assert list(stages["stage"]) == ["Host:0 Root !*", "Host:1 Root *"], "that of Host:1 is not slow"
    assert list(known(PIPELINES.data(results(tmp_path, hosts=2)))["pipeline"]) == ["host Host:0"] * 2


def test_what_if_holds_what_promises_a_gain(tmp_path: Path) -> None:
    data = known(WHAT_IF.data(results(tmp_path)))
    # The cache is better by less than 5% of the step, so it is not first.
    changes = ["parallel calls in map()", "cache() after map()", "prefetch() at the end"]
    assert list(data["what"]) == ["no tf.data work (lower bound)", *changes]
    assert list(data["stage"]) == [None, "Map", "Map", None]
    titles = [column.title for column in WHAT_IF.columns if column.key in ("low_ms", "high_ms")]
    assert titles == ["Step at best", "Step at worst"], "not before and after"


def test_what_a_profile_does_not_show_has_no_table(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("train", 0, 10)))
    nothing = results_of(trace, sections=["tfdata"])
    assert [table.data(nothing) for table in TABLES] == [None] * len(TABLES)


def test_the_program_is_told_as_it_is_and_with_each_change(tmp_path: Path) -> None:
    data = known(CODE.data(results(tmp_path)))
    assert list(zip(*data.values(), strict=True)) == [
        ("as it is", "ds.map(f)", None),
        ("parallel_map", f"ds.map(f, {AUTOTUNE})", f".map(f, {AUTOTUNE})"),
        ("cache", "ds.map(f).cache()", ".cache()"),
        ("prefetch", "ds.map(f).prefetch(tf.data.AUTOTUNE)", ".prefetch(tf.data.AUTOTUNE)"),
    ]
