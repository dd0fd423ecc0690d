"""Runs of many hosts: the same sums as of few, in less memory, and tables that end somewhere."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, space
from sections.hosts_of_job import job
from trace_rows import plain

import tfperf
from tfperf.analysis.load import with_short_tables
from tfperf.analysis.many_hosts import FEW, Packed, PackedResults, combined_in_tree, unpacked
from tfperf.analysis.parallel.engine import FewParts, combine_few, combined_parts
from tfperf.analysis.registry import OURS, HostResults, call, find_section
from tfperf.report.model import Column, Ranked, Section, table_of
from tfperf.report.render import render


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
    assert packed["steps"] is packed["steps"]
    assert packed["ops"] is not packed["ops"]
    with pytest.raises(KeyError):
        packed["none"]
    arrived = pickle.loads(pickle.dumps(packed))
    assert arrived.kept["idle"] == 1
    assert isinstance(arrived.kept["ops"], Packed)
    assert dict(arrived) == dict(pickle.loads(pickle.dumps(PackedResults(results)))) == results


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
    shorten, combine = spec.shorten or "", spec.combine or ""
    whole = [host.results["ops"] for host in hosts]
    short = [call(shorten, ops, 0) for ops in whole]
    assert {ops.host.names for ops in short} == {("(other ops)",)}
    assert [ops.host.self_ps.tolist() for ops in short] == [[int(ops.host.self_ps.sum())] for ops in whole]
    together = call(combine, short).host
    assert together.lacking_ps == sum(int(ops.host.self_ps[0]) for ops in whole)
    assert call(shorten, whole[0], 99).host is whole[0].host


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Combine four parts at a time, and let two full parts of a tree be the most hosts that are kept whole."""
    for module in ("parallel.engine", "many_hosts"):
        monkeypatch.setattr(f"tfperf.analysis.{module}.FEW", 4)
    for module in ("parallel.engine", "registry", "load"):
        monkeypatch.setattr(f"tfperf.analysis.{module}.MANY_HOSTS", 8)


def test_many_hosts_of_many_steps_keep_the_first(tmp_path: Path, few_are_many: None) -> None:
    steps = space(host(*(event("train", 100 * number, 90, step_num=number) for number in range(2100))))
    for number in range(9):
        (tmp_path / f"w-{number}.xplane.pb").write_bytes(steps)
    analysis = tfperf.load(tmp_path, sections=["steps"], jobs=1)
    assert len(analysis["steps"].steps) == 2048
    assert [finding.code for finding in analysis.report().sections[0].findings] == ["first_steps"]


def test_long_tables_end_and_say_so() -> None:
    column = Column("time_ms", "Time", float, "ms")
    each = table_of("hosts", "Hosts", [column], {"time_ms": [0.0] * 10_001}, ranked=Ranked("time_ms", each="hosts"))
    long, short = (table_of("ops", "Ops", [column], {"time_ms": [0.0] * count}) for count in (10_001, 10_000))
    kept = with_short_tables(Section("s", "S", tables=(long, short, each))).tables
    assert [(len(table), table.total_rows) for table in kept] == [(10_000, 10_001), (10_000, 10_000), (10_001, 10_001)]
    assert kept[0].note == "First 10,000 of 10,001 rows; --hosts shows all of selected hosts."


# --- results of many hosts, combined a few at a time, here or on workers: the same as all at once ---

IN_TREE = [name for name in OURS if find_section(name).combines_in_tree]


@pytest.mark.parametrize("section", IN_TREE)
def test_combined_in_a_tree_is_combined_at_once(section: str, hosts: Sequence[HostResults]) -> None:
    combine = find_section(section).combine or ""
    results = [host.results[section] for host in hosts if host.results[section] is not None]
    assert plain(combined_in_tree(partial(call, combine), results)) == plain(call(combine, results))


def test_nothing_combines_to_nothing() -> None:
    assert combined_in_tree(sum, []) is None
    assert combined_in_tree(sum, range(1000)) == sum(range(1000))


def test_hosts_without_a_result_do_not_move_the_others() -> None:
    """What is combined with what is the same, whoever knows that there is none."""
    groups: list[list[int]] = []

    def combine(results: list[int]) -> int:
        groups.append(results)
        return sum(results)

    assert combined_in_tree(combine, [None] * FEW + [1, None, 2]) == 3
    assert groups == [[1, 2], [3]]
    assert combined_in_tree(combine, [None] * 40) is None


def test_parts_that_workers_combine_are_those_of_the_tree(
    hosts: Sequence[HostResults], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = [PackedResults(host.results) for host in hosts for _ in range(15)]
    monkeypatch.setattr("tfperf.analysis.many_hosts._LARGE_BYTES", 0)
    for number, each in enumerate(packed):
        each.kept.update({name: Packed.of(each[name], name) for name in ("kernels", "functions")})
        each.kept["kernels"] = None if number % 7 == 0 or number < 2 * FEW else each.kept["kernels"]
    sizes: list[int] = []

    def combine_all(few: list[FewParts]) -> list[Any]:
        sizes.extend(len(each.parts) for each in few)
        return [combine_few(each) for each in few]

    parts = combined_parts(packed, combine_all)
    assert sizes == [16] * 18 + [12] + [16, 3]
    assert {section: len(of_section) for section, of_section in parts.items()} == {"kernels": 2, "functions": 2}
    for section, of_section in parts.items():
        combine = partial(call, find_section(section).combine or "")
        expected = combined_in_tree(combine, (each[section] for each in packed))
        assert plain(combined_in_tree(combine, map(unpacked, of_section))) == plain(expected)


def test_small_results_and_those_of_other_packages_are_not_sent(hosts: Sequence[HostResults]) -> None:
    packed = [PackedResults(host.results) for host in hosts]
    for each in packed:
        each.kept["theirs"] = Packed.of(1, "theirs")
    assert combined_parts(packed, lambda _: pytest.fail("nothing is large")) == {}


@pytest.fixture(scope="module")
def large_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More hosts than are kept whole, with large tables of kernels."""
    folder = tmp_path_factory.mktemp("large")
    for number in range(9):
        (folder / f"w-{number}.xplane.pb").write_bytes(job(number, 400))
    return folder


def test_the_document_is_the_same_wherever_results_are_combined(large_run: Path, few_are_many: None) -> None:
    alone = tfperf.load(large_run, jobs=1)
    pooled = tfperf.load(large_run, jobs=2)
    assert (alone.parts, {*pooled.parts}) == ({}, {"kernels", "ops"})
    document = render(alone.report(), "json")
    assert render(pooled.report(), "json") == document
    with ThreadPoolExecutor(2) as executor:
        assert render(tfperf.load(large_run, executor=executor).report(), "json") == document
    # Other hosts, or other steps, have other sums.
    assert pooled.only(pooled.hosts[:-1]).parts == {}


DYING = """
import os, signal

def end_at_once(few):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_if_workers_cannot_combine_this_process_does(
    large_run: Path, few_are_many: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are killed, as by the system when memory is short."""
    (tmp_path / "end_of_worker.py").write_text(DYING)
    monkeypatch.syspath_prepend(str(tmp_path))
    from end_of_worker import end_at_once  # type: ignore[import-not-found]

    monkeypatch.setattr("tfperf.analysis.parallel.engine.combine_few", end_at_once)
    pooled = tfperf.load(large_run, sections=["kernels"], jobs=2)
    assert pooled.parts == {}
    alone = tfperf.load(large_run, sections=["kernels"], jobs=1)
    assert pooled["kernels"].total_ps.sum() == alone["kernels"].total_ps.sum()
