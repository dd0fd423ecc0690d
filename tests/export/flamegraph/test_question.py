"""What can be asked for."""

from __future__ import annotations

import pytest

from tfperf.analysis.registry import is_ours
from tfperf.export.flamegraph import STACKED_BY, VALUES, Question, QuestionError


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (Question(by="python", on="device"), "--by python is about host threads: omit --on device"),
        (Question(by="python", value="flops"), "functions of Python have no flops: use --value self-time or *"),
        (Question(by="python", merge_layers=True), "--merge-layers is about ops: omit it, *"),
    ],
)
def test_what_means_nothing_is_refused(question: Question, message: str) -> None:
    with pytest.raises(QuestionError) as caught:
        question.check()
    assert str(caught.value).startswith(message.removesuffix("*"))


def test_all_else_is_answered_by_sections_that_there_are() -> None:
    for by in STACKED_BY:
        for value in VALUES:
            question = Question(by=by, value=value)
            if by != "python" or value in ("self-time", "calls"):
                question.check()
                assert all(map(is_ours, question.sections))
