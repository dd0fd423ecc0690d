"""Runs of many hosts: the same sums as of few, in less memory, and tables that end somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import event, host, space
from sections.hosts_of_job import job

import tfperf
from tfperf.analysis.load import with_short_tables
from tfperf.analysis.many_hosts import PackedResults
from tfperf.analysis.registry import HostResults, call, find_section
from tfperf.report.model import Column, Ranked, Section, table_of


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Sequence[HostResults]:
    folder = tmp_path_factory.mktemp("hosts")
    for number in range(20):
        (folder / f"w-{number}.xplane.pb").write_bytes(job(number))
    return tfperf.load(folder).hosts


def test_large_results_are_packed_and_come_back() -> None:
    results = {"ops": ["a name"] * 20_000, "steps": list(range(20_000)), "idle": 1}
    packed = PackedResults(results)
    assert dict(packed) == results
    assert (list(packed), len(packed)) == (["ops", "steps", "idle"], 3)
    assert packed["steps"] is results["steps"]
    assert packed["ops"] is not results["ops"]
    with pytest.raises(KeyError):
        packed["none"]


def test_a_run_of_many_hosts_says_what_its_hosts_say(tmp_path: Path) -> None:
    for number in range(65):
        (tmp_path / f"w-{number}.xplane.pb").write_bytes(job(5))
    one = tfperf.load(tmp_path, hosts=["w-0"], sections=["kernels", "ops"])
    many = tfperf.load(tmp_path, sections=["kernels", "ops"])
    assert isinstance(many.hosts[0].results, PackedResults)
    assert many["kernels"].total_ps.tolist() == [65 * time_ps for time_ps in one["kernels"].total_ps.tolist()]
    assert many["ops"].host.occurrences.tolist() == [65 * count for count in one["ops"].host.occurrences.tolist()]


def test_many_hosts_without_a_device(tmp_path: Path) -> None:
    for number in range(65):
        (tmp_path / f"w-{number}.xplane.pb").write_bytes(space(host(event("train", 0, 90 + number, step_num=number))))
    analysis = tfperf.load(tmp_path, jobs=1)
    assert len(analysis["kernels"].total_ps) == 0
    assert analysis.report().sections[0].name == "diagnosis"


def test_ops_beyond_the_first_are_one_row_and_the_error_is_told(hosts: Sequence[HostResults]) -> None:
    """Here all are beyond the first none."""
    spec = find_section("ops")
    assert spec.shorten is not None
    assert spec.combine is not None
    whole = [host.results["ops"] for host in hosts]
    short = [call(spec.shorten, ops, 0) for ops in whole]
    assert {ops.host.names for ops in short} == {("(other ops)",)}
    assert [ops.host.self_ps.tolist() for ops in short] == [[int(ops.host.self_ps.sum())] for ops in whole]
    together = call(spec.combine, short).host
    assert together.lacking_ps == sum(int(ops.host.self_ps[0]) for ops in whole)
    assert call(spec.shorten, whole[0], 99).host is whole[0].host


def test_many_hosts_of_many_steps_keep_the_first(tmp_path: Path) -> None:
    steps = space(host(*(event("train", 100 * number, 90, step_num=number) for number in range(2100))))
    for number in range(65):
        (tmp_path / f"w-{number}.xplane.pb").write_bytes(steps)
    analysis = tfperf.load(tmp_path, sections=["steps"], jobs=2)
    assert len(analysis["steps"].steps) == 2048
    assert [finding.code for finding in analysis.report().sections[0].findings] == ["first_steps"]


def test_long_tables_end_and_say_so() -> None:
    column = Column("time_ms", "Time", float, "ms")
    each = table_of("hosts", "Hosts", [column], {"time_ms": [0.0] * 10_001}, ranked=Ranked("time_ms", each="hosts"))
    long, short = (table_of("ops", "Ops", [column], {"time_ms": [0.0] * count}) for count in (10_001, 10_000))
    kept = with_short_tables(Section("s", "S", tables=(long, short, each))).tables
    assert [(len(table), table.total_rows) for table in kept] == [(10_000, 10_001), (10_000, 10_000), (10_001, 10_001)]
    assert kept[0].note == "Of 10,001 rows, the first 10,000 are kept: --hosts shows those of some hosts."
