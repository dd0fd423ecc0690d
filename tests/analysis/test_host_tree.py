"""Results of many hosts, combined a few at a time, here or on workers: the same as all at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sections.hosts_of_job import job

import tfperf
from tfperf.analysis.many_hosts import FEW, MANY_HOSTS, Packed, PackedResults, combined_in_tree, unpacked
from tfperf.analysis.parallel.engine import FewParts, combine_few, combined_parts
from tfperf.analysis.registry import OURS, HostResults, call, find_section
from tfperf.report.render import render

IN_TREE = [name for name in OURS if find_section(name).combines_in_tree]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Sequence[HostResults]:
    folder = tmp_path_factory.mktemp("hosts")
    for number in range(20):
        (folder / f"w-{number}.xplane.pb").write_bytes(job(number))
    return tfperf.load(folder).hosts


def plain(value: Any) -> Any:
    """A value of lists and tuples, which can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if hasattr(value, "__struct_fields__"):
        return [(name, plain(getattr(value, name))) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return [(key, plain(item)) for key, item in value.items()]
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("section", IN_TREE)
def test_combined_in_a_tree_is_combined_at_once(section: str, hosts: Sequence[HostResults]) -> None:
    spec = find_section(section)
    assert spec.combine is not None
    results = [host.results[section] for host in hosts if host.results[section] is not None]
    assert plain(combined_in_tree(partial(call, spec.combine), results)) == plain(call(spec.combine, results))


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


def test_parts_that_workers_combine_are_those_of_the_tree(hosts: Sequence[HostResults]) -> None:
    """Large here is whatever says so."""
    packed = [PackedResults(host.results) for host in hosts for _ in range(15)]
    for number, each in enumerate(packed):
        each.kept.update({name: Packed.of(each.kept[name]) for name in ("kernels", "functions")})
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
        each.kept["theirs"] = Packed.of(1)
    assert combined_parts(packed, lambda _: pytest.fail("nothing is large")) == {}


@pytest.fixture(scope="module")
def large_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More hosts than are kept whole, with large tables of kernels."""
    folder = tmp_path_factory.mktemp("large")
    for number in range(MANY_HOSTS + 1):
        (folder / f"w-{number}.xplane.pb").write_bytes(job(number, 400))
    return folder


def test_the_document_is_the_same_wherever_results_are_combined(large_run: Path) -> None:
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
    large_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are killed, as by the system when memory is short."""
    (tmp_path / "end_of_worker.py").write_text(DYING)
    monkeypatch.syspath_prepend(str(tmp_path))
    from end_of_worker import end_at_once  # type: ignore[import-not-found]

    monkeypatch.setattr("tfperf.analysis.parallel.engine.combine_few", end_at_once)
    pooled = tfperf.load(large_run, sections=["kernels"], jobs=2)
    assert pooled.parts == {}
    assert (
        pooled["kernels"].total_ps.sum()
        == tfperf.load(large_run, sections=["kernels"], jobs=1)["kernels"].total_ps.sum()
    )
