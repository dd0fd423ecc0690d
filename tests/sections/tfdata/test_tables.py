from __future__ import annotations

from pathlib import Path

from builders import event, host, line, plane, results_of, trace_of
from builders import iterator_call as call
from sections.tfdata.made_pipelines import inline_map, repeat

from tfperf.analysis.registry import Results
from tfperf.sections.tfdata import CODE, FUNCTIONS, PIPELINES, STAGES, TABLES, WHAT_IF

AUTOTUNE = "num_parallel_calls=tf.data.AUTOTUNE"


def results(tmp_path: Path, hosts: int = 1) -> Results:
    trace = trace_of(tmp_path, plane("/host:CPU", *inline_map(60)))
    return results_of(*[trace] * hosts, sections=["tfdata"])


def test_stages_are_marked(tmp_path: Path) -> None:
    data = STAGES.data(results(tmp_path))
    assert data is not None
    assert list(data["name"]) == ["Root", "Map"]
    assert list(data["stage"]) == ["Root", "Map !*"]
    assert list(data["element_ms"]) == [0, 0.06]
    assert list(data["busy_percent"]) == [0, 60], "of the capture of five steps; Root only asks Map"
    assert list(data["waited_percent"]) == [0, 100]


def test_a_stage_that_was_not_called_has_no_times_of_calls(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(call("Root::Map::Range", 0, 10, 2, 1)))
    data = STAGES.data(results_of(trace, sections=["tfdata"]))
    assert data is not None
    assert (list(data["calls"]), list(data["mean_ms"])) == ([0, 0, 1], [None, None, 0.01])
    assert (list(data["total_ms"]), list(data["busy_percent"])) == ([None, None, 0.01], [None, None, 100])


def test_functions_name_their_ops(tmp_path: Path) -> None:
    data = FUNCTIONS.data(results(tmp_path))
    assert data is not None
    assert (list(data["stage"]), list(data["runs"]), list(data["run_ms"])) == (["Map"], [5], [0.06])
    assert list(data["ops"]) == ["DecodeJpeg 100.0%"]


def test_several_pipelines_are_told_apart(tmp_path: Path) -> None:
    assert PIPELINES.data(results(tmp_path)) is None, "there is one"
    events = [*repeat(3, call("Root", 0, 60, 1)), *repeat(3, call("Root", 60, 10, 9))]
    both = results_of(trace_of(tmp_path, plane("/host:CPU", line("python", *events))), sections=["tfdata"])
    pipelines, stages = PIPELINES.data(both), STAGES.data(both)
    assert pipelines is not None
    assert stages is not None
    assert list(pipelines["pipeline"]) == ["Host:0", "Host:1"]
    assert list(stages["stage"]) == ["Host:0 Root !*", "Host:1 Root *"], "that of Host:1 is not slow"


def test_pipelines_of_several_hosts_bear_their_names(tmp_path: Path) -> None:
    data = PIPELINES.data(results(tmp_path, hosts=2))
    assert data is not None
    assert list(data["pipeline"]) == ["host Host:0"] * 2


def test_what_if_holds_what_promises_a_gain(tmp_path: Path) -> None:
    data = WHAT_IF.data(results(tmp_path))
    assert data is not None
    assert list(data["what"]) == [
        "input for free (the floor)",
        "cache() after map()",
        "parallel calls in map()",
        "prefetch() at the end",
    ]
    assert list(data["stage"]) == [None, "Map", "Map", None]
    titles = [column.title for column in WHAT_IF.columns if column.key in ("low_ms", "high_ms")]
    assert titles == ["Step at best", "Step at worst"], "not before and after"


def test_what_a_profile_does_not_show_has_no_table(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("train", 0, 10)))
    nothing = results_of(trace, sections=["tfdata"])
    assert [table.data(nothing) for table in TABLES] == [None] * len(TABLES)


def test_the_program_is_told_as_it_is_and_with_each_change(tmp_path: Path) -> None:
    data = CODE.data(results(tmp_path))
    assert data is not None
    assert list(zip(*data.values(), strict=True)) == [
        ("as it is", "ds.map(f)", None),
        ("cache", "ds.map(f).cache()", ".cache()"),
        ("parallel_map", f"ds.map(f, {AUTOTUNE})", f".map(f, {AUTOTUNE})"),
        ("prefetch", "ds.map(f).prefetch(tf.data.AUTOTUNE)", ".prefetch(tf.data.AUTOTUNE)"),
    ]
