"""Templates: every text is escaped, made safe and cut, without the template asking for it."""

from __future__ import annotations

import re
from importlib.resources import files

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from tfperf.render.page import template_engine
from tfperf.report.model import Fact, Finding


def filled(source: str, **values: object) -> str:
    """Return a template's text with values, as the templates of the page are filled."""
    return template_engine.environment().from_string(source).render(values)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("\"' onclick='x", "&#34;&#39; onclick=&#39;x"),
        ("a\x1b[31m\n", "a\\x1b[31m\\n"),
        ("x" * 3_000, "x" * 666 + "…" + "x" * 1333),
        ("{{ 1 + 1 }}", "{{ 1 + 1 }}"),
    ],
)
def test_a_text_is_shown_as_it_is_and_never_as_markup(text: str, shown: str) -> None:
    assert filled('<p title="{{ text }}">{{ text }}</p>', text=text) == f'<p title="{shown}">{shown}</p>'


@given(st.text(st.characters()))
def test_no_text_adds_a_tag(text: str) -> None:
    assert filled("{{ text }}|{{ text | name }}|{{ text | cell }}", text=text).isprintable()
    assert not re.search("[<>\"']", filled("{{ text }}", text=text))


def test_names_and_cells_are_cut_earlier() -> None:
    assert len(filled("{{ text | name }}", text="x" * 3_000)) == 500
    assert len(filled("{{ text | cell }}", text="x" * 3_000)) == 120


def test_markup_and_numbers_stay() -> None:
    assert filled("{{ data }} {{ 12 }} {{ 1234 | grouped }}", data=Markup("<b>" * 1_000)) == "<b>" * 1_000 + " 12 1,234"


def test_a_value_that_nobody_gave_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        filled("{{ missing }}")


def test_no_template_switches_escaping_off() -> None:
    sources = [file.read_text("utf-8") for file in (files("tfperf.render.page") / "templates").iterdir()]
    assert len(sources) == 3
    assert not [source for source in sources if re.search(r"\|\s*safe|autoescape|Markup", source)]


def test_facts_and_findings_that_are_too_many_are_counted() -> None:
    imports = '{% from "section.html" import facts_list, findings_list %}'
    source = imports + '{{ facts_list(facts, "facts") }}{{ findings_list(findings) }}'
    text = filled(source, facts=[Fact("a", "A", 1)] * 1_450, findings=[Finding("a", "hint", "x")] * 201)
    assert text.count("<dt>A</dt>") == text.count("<p>x</p>") == 200
    assert "1,250 more are omitted; JSON has them." in text
    assert ">1 more are omitted" in text
