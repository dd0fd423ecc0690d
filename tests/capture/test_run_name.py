"""How a profile of a job names its run: by what is given, by what its processes share, or by the time."""

from __future__ import annotations

import json

import pytest

from tfperf.base.errors import TfperfError
from tfperf.capture.machine import this_task
from tfperf.capture.run_folder import ProfileCount, RunName


def task(index: int, **cluster: list[str]) -> dict[str, str]:
    """The environment of a worker."""
    config = {"cluster": cluster or {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": index}}
    return {"TF_CONFIG": json.dumps(config)}


def names(environment: dict[str, str], *moments: str, run: str | None = None) -> list[RunName]:
    """Return the names of the profiles that one process takes."""
    count, of_process = ProfileCount(), this_task(environment, {})
    return [count.next_name(run, moment, environment, of_process) for moment in moments]


def test_a_name_that_is_given_comes_first() -> None:
    environment = {**task(0), "TFPERF_RUN": "of-the-launcher"}
    assert names(environment, "", "step 10", run="mine") == [RunName(given="mine")] * 2


def test_the_name_of_the_launcher_counts_the_profiles_of_a_process() -> None:
    environment = {**task(0), "TFPERF_RUN": "4711"}
    assert [name.given for name in names(environment, "", "step 10", "")] == ["4711", "4711_2", "4711_3"]
    assert names({**task(0), "TFPERF_RUN": ""}, "")[0].given == "", "as an unset variable"


def test_workers_of_a_cluster_agree_by_the_count_or_the_step() -> None:
    moments = ("", "", "step 10", "step 20", "step 10")
    first, second = names(task(0), *moments), names(task(1), *moments)
    assert first == second
    assert len({name.key for name in first}) == 5
    assert all(len(name.key) == 16 and not name.given for name in first)
    assert names(task(1), "step 20")[0] == first[3], "whatever else was profiled before"
    assert names(task(0, worker=["a:1", "c:1"]), "step 20")[0] != first[3]


@pytest.mark.parametrize("environment", [{}, {"RANK": "0"}, task(0, worker=["a:1"]), {"TF_CONFIG": "{}"}])
def test_a_process_without_fellows_has_a_run_of_its_own(environment: dict[str, str]) -> None:
    assert names(environment, "step 10") == [RunName()]


def test_a_name_that_no_folder_can_have() -> None:
    with pytest.raises(TfperfError, match="run 'a/b' cannot be"):
        names({}, "", run="a/b")
    with pytest.raises(TfperfError, match=r"TFPERF_RUN '\.\./x' cannot be"):
        names({"TFPERF_RUN": "../x"}, "")
