"""The words that can be explained: all that are declared, each with a page that is there."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from places import ROOT

from tfperf.analysis.registry import OURS
from tfperf.cli.explain import KINDS, WITHOUT_PAGE, entries, find, names_of, page_of, plain_text
from tfperf.sections.diagnosis.catalogue import CAUSE_MEANINGS
from tfperf.sections.diagnosis.diagnose import NEEDS
from tfperf.trace.steps import steps
from tfperf.trace.steps.categories import STEP_SOURCES

DOCS = ROOT / "docs"


def found(word: str) -> list[tuple[str, str]]:
    return [(entry.kind, entry.names[0]) for entry in find(word, entries())]


@pytest.mark.parametrize(
    ("word", "kind", "name"),
    [
        ("input-bound", "term", "input-bound"),
        ("Input Bound", "figure", "input_bound"),
        ("all others", "category", "All others"),
        ("all_others", "category", "All others"),
        ("input_wait", "cause", "input_wait"),
        ("keep_signature", "action", "keep_signature"),
        ("synchronise", "cause of idle time", "Synchronising"),
        ("tf.data fetches", "step source", "tf.data fetches"),
        ("slow-first-step", "flag", "slow first step"),
        ("tfdata", "section", "tfdata"),
        ("host_ops", "table", "host_ops"),
        ("self_ms", "column", "self_ms"),
        ("p95", "term", "percentile (p95)"),
        ("duration", "term", "start, end, duration"),
        ("own work", "term", "own work (of a stage)"),
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


def test_another_word_is_not_found() -> None:
    assert found("no such word") == found("") == found("---") == []


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
    assert set(names_of("step source", entries())) == set(STEP_SOURCES)


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
