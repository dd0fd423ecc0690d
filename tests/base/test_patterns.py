"""Regular expressions of users: those of RE2, in linear time."""

from __future__ import annotations

import re

import pytest

from tfperf.base import patterns
from tfperf.base.errors import TfperfError
from tfperf.base.patterns import pattern


@pytest.mark.parametrize(
    "text", ["^b/", "relu$", "^(H2D|D2H)$", r"dense_\d+", "a.c", "(?i)MATMUL", "x*", "ä|ß", "", r"\bop\b"]
)
def test_finds_what_python_finds(text: str) -> None:
    texts = ["b/relu", "dense_12/matmul", "H2D", "abc", "[", "Straße", "", "an op", "top", "a\udc80c"]
    expected = [bool(re.search(text, each.encode(errors="replace").decode())) for each in texts]
    assert pattern(text).found_in(texts).tolist() == expected
    assert pattern("ABC", ignore_case=True).found_in(["xabc", "ab"]).tolist() == [True, False]
    assert pattern(text).found_in([]).tolist() == []


def test_an_expression_that_would_backtrack_for_ever_ends() -> None:
    """Python's `re` needs 2 to the power of 4,000 steps for the first two."""
    for text in ("(a+)+$", "(a|aa)+$", "(.*)*x"):
        assert not pattern(text).found_in(["a" * 4000 + "b"] * 100).any()


def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "_MOST_SECONDS", -1.0)
    with pytest.raises(TfperfError, match="the search for 'a' takes too long; use a simpler expression"):
        pattern("a").found_in(["a"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(", "'(' is not a regular expression: missing )"),
        ("*", "is not a regular expression: no argument for repetition operator"),
        ("a{2000}", "is not a regular expression: invalid repetition size"),
        ("a(?=b)", "invalid perl operator: (?=; RE2 syntax has no look-ahead, look-behind or backreferences"),
        (r"(a)\1", "RE2 syntax has no look-ahead, look-behind or backreferences"),
        ("a" * 1001, "is too long for a regular expression: use at most 1,000 characters"),
    ],
)
def test_an_invalid_expression_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="regular expression") as raised:
        pattern(text)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 250
