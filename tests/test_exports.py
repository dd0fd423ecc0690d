"""The public API is `tfperf.__all__`: each name is there, says what it is, and stands on a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tfperf

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def test_public_names_are_sorted() -> None:
    assert tfperf.__all__ == sorted(tfperf.__all__)


@pytest.mark.parametrize("name", tfperf.__all__)
def test_each_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(tfperf, name)
    assert isinstance(value, str) or value.__doc__


@pytest.mark.parametrize("name", [name for name in tfperf.__all__ if name.islower() and not name.startswith("_")])
def test_each_function_is_on_a_page(name: str) -> None:
    assert re.search(rf"\btfperf\.{name}\b", TEXT)


def test_pages_call_only_public_names() -> None:
    called = set(re.findall(r"(?<![\w.\[])tfperf\.(\w+)\(", TEXT))
    assert {"load", "profile", "check"} <= called <= {*tfperf.__all__}


def test_errors_share_one_base() -> None:
    errors = [getattr(tfperf, name) for name in tfperf.__all__ if name.endswith("Error")]
    assert len(errors) > 1
    assert all(issubclass(error, tfperf.TfperfError) for error in errors)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'anything_else'"):
        tfperf.anything_else  # noqa: B018
