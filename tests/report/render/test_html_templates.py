"""What templates show is inert and short, whatever it is."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from tfperf.report.render.html_templates import engine


def shown(source: str, **values: object) -> str:
    environment = engine("tfperf.report.render.page", longest_text=20, longest_cell=8)
    return environment.from_string(source).render(values)


def test_texts_are_escaped_and_markup_is_not() -> None:
    assert shown("{{ name }}", name="<b>&") == "&lt;b&gt;&amp;"
    assert shown("{{ name }}", name=Markup("<b>&amp;")) == "<b>&amp;"


def test_texts_and_cells_are_cut() -> None:
    assert len(shown("{{ name }}", name="x" * 1000)) == 20
    assert len(shown("{{ name | cell }}", name="x" * 1000)) == 8


def test_a_word_that_nothing_stands_for_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        shown("{{ nothing }}")


def test_numbers_have_groups() -> None:
    assert shown("{{ number | grouped }}", number=1234567) == "1,234,567"
