"""Samples of hosts: some of each role, always the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfperf.trace.logdir import HostFile, Run
from tfperf.trace.logdir import sampled as sample_hosts


def run_of(*names: str) -> Run:
    return Run("run", Path(), tuple(HostFile(name, Path(name)) for name in names))


def sampled(run: Run, count: int) -> tuple[list[str], str]:
    drawn, text = sample_hosts(run, count)
    return [file.host for file in drawn.files], text


def test_hosts_are_evenly_spread_over_their_names() -> None:
    run = run_of(*(f"worker-{number}" for number in range(12)))
    assert sampled(run, 3) == (
        ["worker-2", "worker-6", "worker-10"],
        "A sample of 3 of 12 hosts, evenly spread over their names.",
    )


def test_each_role_has_its_share_and_at_least_one_host() -> None:
    run = run_of("chief-0", *(f"ps-{number}" for number in range(3)), *(f"worker-{number}" for number in range(20)))
    hosts, text = sampled(run, 6)
    assert [host.split("-")[0] for host in hosts] == ["chief", "ps", "worker", "worker", "worker", "worker"]
    assert text.endswith("evenly spread over their names: 1 of 1 chief-*, 1 of 3 ps-*, 4 of 20 worker-*.")


@pytest.mark.parametrize("count", range(1, 9))
def test_there_are_as_many_hosts_as_asked_for(count: int) -> None:
    run = run_of("a", "b", "worker-0", "worker-1", "worker-2", "worker-3", "ps-0", "ps-1")
    assert len(sampled(run, count)[0]) == count


def test_a_sample_of_all_is_none() -> None:
    run = run_of("a", "b")
    assert sample_hosts(run, 2) == (run, "")
