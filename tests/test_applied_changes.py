"""Each kind of change that is offered for a tf.data pipeline, applied to real pipelines: what comes out then.

`changed_pipelines_job.py` profiles each pipeline, evaluates the code that is offered for it, and takes three epochs.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from job_environment import run_tensorflow, without_tensorflow

# What is offered depends on what steps wait for, and the job is run once for all tests.
pytestmark = [pytest.mark.tensorflow, pytest.mark.timing, without_tensorflow]
JOB = Path(__file__).parent / "changed_pipelines_job.py"
COUNT = 60
"""Elements of an epoch, of all pipelines but that of tiny ones."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    printed = run_tensorflow(JOB, tmp_path_factory.mktemp("changed")).stdout
    found: dict[str, dict[str, Any]] = json.loads(printed.splitlines()[-1])
    return found


def numbers(outcome: dict[str, Any]) -> list[list[int]]:
    return [epoch["numbers"] for epoch in outcome["epochs"]]


def seconds(outcome: dict[str, Any]) -> list[float]:
    return [epoch["seconds"] for epoch in outcome["epochs"]]


def test_each_kind_of_change_is_offered(outcomes: dict[str, dict[str, Any]]) -> None:
    offered = {change for of_pipeline in outcomes.values() for change in of_pipeline}
    assert {"cache", "parallel_map", "parallel_read", "prefetch", "split_to_cache", "vectorize"} <= offered
    assert "cache" not in outcomes["random"], "its results would be those of the first epoch"


def test_the_same_elements_come_out(outcomes: dict[str, dict[str, Any]]) -> None:
    for name, of_pipeline in outcomes.items():
        before = numbers(of_pipeline["as it is"])
        for change, outcome in of_pipeline.items():
            for epoch in numbers(outcome):
                assert Counter(epoch) == Counter(before[0]), (name, change, outcome["code"])


def test_the_order_is_as_random_as_before(outcomes: dict[str, dict[str, Any]]) -> None:
    """What was shuffled is shuffled anew in each epoch, over all elements, and what was in order still is."""
    for name, of_pipeline in outcomes.items():
        for change, outcome in of_pipeline.items():
            first, *others = numbers(outcome)
            if name in ("shuffled", "random"):
                assert all(epoch != first for epoch in others), (name, change)
                for epoch in (first, *others):
                    # On average, a third of all elements lie between the place of an element and its number.
                    moved = sum(abs(place - number) for place, number in enumerate(epoch)) / COUNT
                    assert COUNT / 5 < moved < COUNT / 2, (name, change)
            elif change != "parallel_read":
                assert [first, *others] == [sorted(first)] * 3, (name, change)


def test_random_work_is_random_in_each_epoch(outcomes: dict[str, dict[str, Any]]) -> None:
    for change, outcome in outcomes["random"].items():
        made = [dict(zip(epoch["numbers"], epoch["values"], strict=True)) for epoch in outcome["epochs"]]
        assert all(len({each[number] for each in made}) == 3 for number in range(COUNT)), change
        assert any(abs(made[0][number] - made[1][number]) > 1.0 for number in range(COUNT)), f"{change}: no flip"


def test_what_a_function_makes_of_an_element_stays_the_same(outcomes: dict[str, dict[str, Any]]) -> None:
    for outcome in outcomes["tiny"].values():
        for epoch in outcome["epochs"]:
            assert epoch["values"] == [2.0 * number + 1.0 for number in epoch["numbers"]]


def test_a_cache_keeps_each_element_once_and_spares_its_function(outcomes: dict[str, dict[str, Any]]) -> None:
    """A cache after repeat() would keep all elements of all epochs, and spare nothing."""
    repeated = outcomes["repeated"]
    assert repeated["as it is"]["runs"] >= 3 * COUNT
    if "cache" in repeated:
        assert repeated["cache"]["runs"] == COUNT
    for of_pipeline in outcomes.values():
        for change in ("cache", "split_to_cache"):
            code = of_pipeline.get(change, {}).get("code", "")
            assert code.count(".cache()") == bool(code)
            before = code.partition(".cache()")[0]
            assert not any(call in before for call in (".repeat(", ".shuffle(", ".batch(", ".prefetch(")), code
            assert not code or "from the second epoch on" in of_pipeline[change]["text"]
    condition = ", from the second epoch on, if f gives the same result each time"
    assert all(repeated[change]["text"].partition(";")[0].endswith(condition) for change in {"cache"} & {*repeated})


def test_a_full_cache_makes_epochs_shorter(outcomes: dict[str, dict[str, Any]]) -> None:
    # On a busy machine, steps may hardly wait for one of the pipelines; then nothing is offered for it.
    offered = [name for name in ("shuffled", "repeated", "tiny") if "cache" in outcomes[name]]
    assert offered
    for name in offered:
        assert min(seconds(outcomes[name]["cache"])[1:]) < 0.5 * min(seconds(outcomes[name]["as it is"])), name
    if "split_to_cache" in outcomes["random"]:
        assert min(seconds(outcomes["random"]["split_to_cache"])[1:]) < min(seconds(outcomes["random"]["as it is"]))


def test_batches_and_parallel_calls_make_epochs_shorter(outcomes: dict[str, dict[str, Any]]) -> None:
    assert min(seconds(outcomes["tiny"]["vectorize"])) < 0.5 * min(seconds(outcomes["tiny"]["as it is"]))
    # A Python function that sleeps.
    assert min(seconds(outcomes["repeated"]["parallel_map"])) < 0.8 * min(seconds(outcomes["repeated"]["as it is"]))
