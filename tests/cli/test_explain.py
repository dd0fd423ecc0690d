"""`tfperf explain`, and every word that it knows."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from places import ROOT
from printed import Run

from tfperf.analysis.registry import OURS
from tfperf.cli import main
from tfperf.cli.explain import KINDS, WITHOUT_PAGE, _known, entries, find, names_of, page_of, plain_text
from tfperf.sections.diagnosis import host_causes
from tfperf.sections.diagnosis.catalogue import ADVICE, CAUSE_MEANINGS, CAUSE_TITLES
from tfperf.sections.diagnosis.diagnose import NEEDS
from tfperf.sections.tfdata.advice import CHANGES
from tfperf.trace.steps import steps
from tfperf.trace.steps.categories import STEP_SOURCES


def test_a_word_with_one_meaning(run_tfperf: Run) -> None:
    result = run_tfperf("explain", "output_copy")
    assert (result.exit_code, result.stdout) == (
        0,
        "output_copy (cause)\n"
        "  results are copied to the host, not overlapped with compute\n"
        "  source of the number: category Output\n"
        "  limit: tfperf check --fail-on output_copy\n"
        "  see docs/diagnosis.md#the-causes\n",
    )


def test_words_need_no_quotes_and_options_no_dashes(run_tfperf: Run) -> None:
    assert run_tfperf("explain", "slow", "first", "step").stdout == run_tfperf("explain", "slow first step").stdout
    assert "--max-step-time (option)\n" in run_tfperf("explain", "max-step-time").stdout
    assert run_tfperf("explain", "--max-step-time").stdout == run_tfperf("explain", "max-step-time").stdout
    assert "  -s, --section" not in run_tfperf("explain", "-s").stderr


def test_what_reports_say_in_their_own_words_is_found(run_tfperf: Run) -> None:
    of_input = run_tfperf("explain", "input-bound").stdout
    for words in ("HIGHLY input-bound", "possibly input-bound"):
        assert run_tfperf("explain", words).stdout == of_input
    assert "in front of a finding: a problem" in run_tfperf("explain", "!!").stdout
    assert "only in the run before" in run_tfperf("explain", "gone").stdout
    assert run_tfperf("explain", "input qqqqqq").exit_code == 2


def test_every_option_and_command_is_explained(run_tfperf: Run) -> None:
    context = click.Context(main)
    known = {(entry.kind, name) for entry in _known(context) for name in entry.names}
    for name in main.list_commands(context):
        assert ("command", name) in known
        command = main.get_command(context, name)
        assert command is not None
        options = [option for option in command.params if isinstance(option, click.Option)]
        assert {("option", max(option.opts, key=len)) for option in options} <= known


def test_help_is_one_option_of_all_commands(run_tfperf: Run) -> None:
    shown = run_tfperf("explain", "help").stdout
    assert shown.count("(option)") == 1
    assert "--help, -h" in shown
    assert run_tfperf("doctor", "-h").exit_code == 0


def test_without_a_word_the_kinds_are_listed(run_tfperf: Run) -> None:
    result = run_tfperf("explain")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    rows = lines[2 : lines.index("")]
    assert len(rows) == len(KINDS)
    assert [row.split("  ")[0] for row in rows[:3]] == ["terms", "categories", "causes"]
    assert all(int(row.split("  ", 1)[1].split()[0]) > 4 for row in rows)


@pytest.mark.parametrize("word", ["cause", "causes", "Causes"])
def test_the_name_of_a_kind_lists_its_words(word: str, run_tfperf: Run) -> None:
    result = run_tfperf("explain", word)
    assert f"All {len(CAUSE_MEANINGS)} causes\n" in result.stdout
    assert CAUSE_MEANINGS.keys() <= set(re.findall(r"\w+", result.stdout))


@pytest.mark.parametrize("word", ["\x1b[31m", ""])
def test_an_unknown_word_is_wrong_usage(word: str, run_tfperf: Run) -> None:
    result = run_tfperf("explain", word)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: unknown term {word!r}" in result.stderr


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_it_keeps_to_the_width(width: int) -> None:
    for words in ([], ["input"], ["columns"], ["causes"]):
        result = CliRunner().invoke(main, ["explain", *words], env={"COLUMNS": str(width)})
        assert max(map(len, result.stdout.splitlines())) <= min(width, 100)


DOCS = ROOT / "docs"


def found(word: str) -> list[tuple[str, str]]:
    return [(entry.kind, entry.names[0]) for entry in find(word, entries())]


@pytest.mark.parametrize(
    ("word", "kind", "name"),
    [
        ("input-bound", "term", "input-bound"),
        ("Input Bound", "figure", "input_bound"),
        ("all others", "category", "All others"),
        ("input_wait", "cause", "input_wait"),
        ("keep_signature", "action", "keep_signature"),
        ("synchronise", "cause of idle time", "Synchronizing"),
        ("tf.data fetches", "detection method", "tf.data fetches"),
        ("slow-first-step", "flag", "slow first step"),
        ("self_ms", "column", "self_ms"),
        ("p95", "term", "percentile (p95)"),
        ("duration", "term", "start, end, duration"),
        ("kernels", "term", "kernel"),
        ("Self (ms)", "column", "self_ms"),
        ("categories", "term", "category"),
    ],
)
def test_a_word_is_found_however_it_is_written(word: str, kind: str, name: str) -> None:
    assert (kind, name) in found(word)


def test_kinds_come_in_their_order() -> None:
    kinds = [kind for kind, _ in found("input")]
    assert kinds == sorted(kinds, key=KINDS.index)
    assert {"category", "section", "column"} <= set(kinds)


def test_every_kind_but_those_of_the_command_line_has_words() -> None:
    assert {entry.kind for entry in entries()} == set(KINDS) - {"command", "option"}
    assert names_of("section", entries()) == OURS


def test_nothing_is_said_twice() -> None:
    said = Counter((entry.kind, entry.names[0], entry.text, entry.details) for entry in entries())
    assert [words for words, times in said.items() if times > 1] == []


def test_every_cause_rule_and_flag_is_explained() -> None:
    assert CAUSE_MEANINGS.keys() == NEEDS.keys()
    flags = {steps.PARTIAL, steps.RETRACE, steps.SLOW_FIRST, steps.END_ESTIMATED, steps.COLLECTION, steps.OMITTED}
    assert set(steps.FLAGS) == flags
    assert set(names_of("detection method", entries())) == set(STEP_SOURCES)


def test_sections_without_a_page_are_those_that_have_none() -> None:
    assert all((DOCS / page_of(name)).is_file() for name in OURS if name not in WITHOUT_PAGE)
    assert not [name for name in WITHOUT_PAGE if (DOCS / f"{name}.md").exists()]


@pytest.mark.parametrize("page", sorted({entry.page for entry in entries()}))
def test_the_page_of_a_word_is_there(page: str) -> None:
    file, _, anchor = page.removeprefix("docs/").partition("#")
    titles = re.findall(r"^#+ (.*)$", (DOCS / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert not anchor or anchor in {title.lower().replace(" ", "-") for title in titles}


def test_meanings_are_plain_text() -> None:
    for entry in entries():
        assert entry.text
        for text in (entry.text, *entry.details):
            assert text == text.strip()
            assert not re.search(r"`|\]\(", text), text


def test_markdown_becomes_plain_text() -> None:
    assert plain_text("see `-s ops`, [the page](ops.md#x) and [1]") == "see -s ops, the page and [1]"


def words_of(document: dict[str, Any]) -> Iterator[str]:
    """Yield the labels of a report: sections, facts, tables, columns, causes, parts of bars, stages, categories."""
    for bar in document["diagnosis"]["bars"]:
        for segment in bar["segments"]:
            yield from (segment["title"], segment["role"])
    for cause in document["diagnosis"]["causes"]:
        yield from (cause["code"], cause["title"])
        yield from (action["code"] for action in cause["actions"])
    for name, section in document["sections"].items():
        yield name
        yield from (fact["title"].strip() for fact in section["facts"].values())
        for table_name, table in section["tables"].items():
            yield table_name
            for column in table["columns"]:
                yield from (column["title"], column["key"])
            if name in ("overview", "tfdata"):
                yield from (row[key] for row in table["rows"] for key in ("category", "stage") if row.get(key))


@cache
def all_known() -> tuple[Any, ...]:
    return tuple(_known(click.Context(main)))


@cache
def is_explained(word: str) -> bool:
    return bool(find(word, all_known()))


@pytest.mark.parametrize("file", sorted((ROOT / "tests" / "gold").glob("*.json")), ids=lambda file: file.stem)
def test_every_label_on_a_screen_is_explained(file: Path) -> None:
    words = set(words_of(json.loads(file.read_text(encoding="utf-8"))))
    devices = re.compile(r"(GPU|TPU):\d+")
    assert len(words) > 200
    unknown = sorted(word for word in words if not devices.fullmatch(word) and not is_explained(word))
    assert not unknown, "give these the title of a column, or a meaning in src/tfperf/cli/glossary.toml"


def titles_in_code() -> Iterator[str]:
    """Yield every constant title of a cause in the modules that look for causes."""
    for file in sorted(Path(host_causes.__file__).parent.glob("*_causes.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            values: list[ast.expr] = []
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                places = {"cause": 1, "_of_ops": 2, "_idle_for": 2}
                values = node.args[places[name] : places[name] + 1] if name in places else []
            elif isinstance(node, ast.Assign) and "title" in ast.unparse(node.targets[0]):
                values = [node.value]
            for value in values:
                in_formats = {
                    part for each in ast.walk(value) if isinstance(each, ast.JoinedStr) for part in ast.walk(each)
                }
                constants = (each for each in ast.walk(value) if isinstance(each, ast.Constant))
                texts = [str(each.value) for each in constants if each not in in_formats]
                yield from (text for text in texts if re.match("[A-Z].*[a-z] [a-z]", text))
    yield from (title for title, _, _ in host_causes._FETCHED.values())


def test_every_title_of_a_cause_and_every_action_is_explained() -> None:
    assert CAUSE_TITLES.keys() == CAUSE_MEANINGS.keys()
    titles = {*titles_in_code()}
    assert len(titles) > 30
    texts = (*titles, *(title for of_cause in CAUSE_TITLES.values() for title in of_cause), *ADVICE, *CHANGES)
    assert [text for text in texts if not {kind for kind, _ in found(text)} & {"cause", "action"}] == []


@pytest.mark.parametrize(
    ("title", "code"),
    [
        ("6 of 8 devices are unused", "idle_devices"),
        ("1 of 1 device is unused", "idle_devices"),
        ("The layer dense_1", "dominant_layer"),
        ("Waiting for worker-1 during the first steps", "straggler"),
        ("Python between calls, which computes,", "python_between_steps"),
        ("Waiting inside calls, without recorded events,", "waiting_in_calls"),
        ("Tracing in the first calls of the program", "warm_up"),
    ],
)
def test_a_title_is_found_with_the_values_of_a_screen(title: str, code: str) -> None:
    assert ("cause", code) in found(title)
