from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, Line, event, line, logdir_of, plane, space
from builders import iterator_call as call

import tfperf
from tfperf.render import RenderOptions, render
from tfperf.render.tree import ASCII, DOTS, LINES, tree_texts
from tfperf.report.model import Section

COUNT = 6


def section_of(tmp_path: Path, *lines: Line, top: int | None = None) -> Section:
    logdir = logdir_of(tmp_path, a=space(plane("/host:CPU", *lines)))
    (section,) = tfperf.load(logdir).report(("tfdata",), top).sections
    return section


def job(*path: str, busy_us: float = 60, op: str = "", **stats: Any) -> tuple[Line, Line]:
    """Steps of 100 us that first wait for the innermost of these stages, which works all the while."""
    events: list[Event] = []
    pool: list[Event] = []
    for turn in range(COUNT):
        at = 100 * turn
        events += [event("train", at, 100, step_num=turn), event("IteratorGetNextOp::DoCompute", at, busy_us)]
        for depth in range(len(path) + 1):
            name = "::".join(("Root", *path[:depth]))
            inner = stats if depth == len(path) else {}
            events.append(call(name, at, busy_us, depth + 1, depth or None, cpu_budget=2, threadpool_size=2, **inner))
        if op:
            events.append(event("InstantiatedCapturedFunction::Run", at, busy_us, id=70 + turn))
            pool += [event("ExecutorState::Process", at, busy_us, id=70 + turn), event(f"{op}:{op}", at, busy_us)]
    return line("python", *events), line("pool", *pool)


def codes(section: Section) -> list[str]:
    return [finding.code for finding in section.findings]


@pytest.mark.parametrize(
    ("path", "op", "code", "words"),
    [
        (("BatchV2", "Map"), "DecodeJpeg", "sequential_map", "num_parallel_calls=tf.data.AUTOTUNE"),
        (("BatchV2", "Map"), "EagerPyFunc", "python_function", "TensorFlow ops"),
        (("BatchV2", "Generator"), "PyFunc", "generator", "yield file names"),
        (("BatchV2", "TFRecord"), "", "slow_source", "interleave(TFRecordDataset"),
        (("BatchV2",), "", "serial_transformation", "batch(n, num_parallel_calls"),
        (("BatchV2", "Filter"), "Less", "serial_transformation", "copies of the pipeline"),
        (("BatchV2", "FlatMap"), "", "sequential_interleave", "instead of flat_map()"),
        (("ShuffleAndRepeat",), "", "shuffle", "file names"),
        (("MemoryCacheImpl",), "", "cache_cold", "after the first epoch"),
        (("DataServiceV4",), "", "data_service", "workers"),
        (("TensorSlice",), "", "memory_source", "batch before anything else"),
    ],
)
def test_each_kind_of_stage_has_its_advice(
    path: tuple[str, ...], op: str, code: str, words: str, tmp_path: Path
) -> None:
    section = section_of(tmp_path, *job(*path, op=op))
    assert codes(section)[0] == "tfdata_slow"
    assert "60.0%" in section.findings[0].text
    (found,) = [finding for finding in section.findings if finding.code == code]
    assert found.severity == "problem"
    assert words in found.action
    assert "no_prefetch" in codes(section) or path == ("DataServiceV4",)


def test_the_gain_stands_beside_the_advice(tmp_path: Path) -> None:
    section = section_of(tmp_path, *job("Map", op="DecodeJpeg"))
    (found,) = [finding for finding in section.findings if finding.code == "sequential_map"]
    assert "Estimated step time then: 0." in found.text


def test_on_a_busy_host_more_threads_buy_nothing(tmp_path: Path) -> None:
    events = [call("Root", 0, 600, 1, cpu_budget=1), call("Root::Map", 0, 600, 2, 1)]
    marks = [event("train", 100 * n, 100, step_num=n) for n in range(COUNT)]
    section = section_of(tmp_path, line("python", *marks, *events))
    (found,) = [finding for finding in section.findings if finding.code == "host_cpu_full"]
    assert "data.experimental.service" in found.action
    assert "max_intra_op_parallelism = 1" in found.action


def test_a_pipeline_that_is_fast_enough_needs_no_advice(tmp_path: Path) -> None:
    section = section_of(tmp_path, *job("Map", busy_us=2, op="DecodeJpeg"))
    assert codes(section) == ["tfdata_fast_enough"]
    assert section.facts[0].value is True
    assert "what_if" not in [table.name for table in section.tables]
    assert any("hardly" in note for note in section.notes)


def test_without_steps_nobody_can_say_whether_it_is_too_slow(tmp_path: Path) -> None:
    section = section_of(tmp_path, line("a", call("Root", 0, 60, 1), call("Root::Map", 0, 60, 2, 1)))
    assert codes(section)[0] == "tfdata_no_steps"
    assert section.facts[0].value is None


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((line("python", event("train", 0, 10)),), "holds no event of tf.data"),
        (
            (line("a", call("Prefetch", 0, 10, 1)), line("b", call("Prefetch::Generator", 0, 10, 2, 1))),
            "only the part of the pipeline that hands batches to devices",
        ),
        ((line("a", call("Root::Map::Range", 0, 10, 2, 1)),), "No call of the outermost stage"),
    ],
)
def test_what_is_missing_is_said(lines: tuple[Line, ...], words: str, tmp_path: Path) -> None:
    section = section_of(tmp_path, *lines)
    assert (section.findings, section.facts) == ((), ())
    assert words in section.notes[0]
    brief = tfperf.load(tmp_path / "logs").report(top=10)
    (again,) = [own for own in brief.sections if own.name == "tfdata"]
    assert words in again.notes[0] or again.tables, "a tree says what is there"


def test_the_tree_of_a_terminal(tmp_path: Path) -> None:
    section = section_of(tmp_path, *job("Zip", "Map", op="Cast"))
    report = tfperf.load(tmp_path / "logs").report(("tfdata",))
    piped = render(report, "table", RenderOptions(width=80))
    assert "`-Zip" in piped
    assert "  `-Map !*" in piped
    assert all(len(text) <= 80 for text in piped.splitlines())
    assert "└ Zip" in render(report, "table", RenderOptions(width=80, interactive=True))
    assert "· · Map !\\*" in render(report, "markdown")
    (stages,) = [table for table in section.tables if table.name == "tfdata_stages"]
    assert stages.data["name"] == ["Root", "Zip", "Map"]
    assert stages.data["depth"] == [0, 1, 2]
    assert (stages.data["is_blocking"], stages.data["is_limiting"]) == ([False, False, True],) * 2


def test_a_whole_report_for_people_is_brief(tmp_path: Path) -> None:
    section_of(tmp_path, *job("Map", op="Cast"))
    trace = tfperf.load(tmp_path / "logs")
    (brief,) = [own for own in trace.report(top=10).sections if own.name == "tfdata"]
    assert codes(brief) == ["tfdata_slow"]
    assert [table.name for table in brief.tables] == ["tfdata_stages", "what_if"]
    (advice,) = [own for own in trace.report(("recommendations",)).sections[0].findings if own.code == "wait_for_input"]
    assert "More: -s tfdata" in advice.text


@pytest.mark.parametrize(
    ("branches", "expected"),
    [
        (LINES, ["a", "├ b", "│ └ c", "└ d", "  └ e"]),
        (ASCII, ["a", "|-b", "| `-c", "`-d", "  `-e"]),
        (DOTS, ["a", "· b", "· · c", "· d", "· · e"]),
    ],
)
def test_branches(branches: Any, expected: list[str]) -> None:
    assert tree_texts(list("abcde"), [0, 1, 2, 1, 2], branches) == expected
