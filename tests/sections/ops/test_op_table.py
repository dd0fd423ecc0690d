from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import Plane, event, host, host_of, line, plane, trace_of
from hypothesis import given
from hypothesis import strategies as st

from tfperf.base.patterns import Pattern
from tfperf.sections.ops.analysis import OpKey, Ops, Tallies, Tally, combine
from tfperf.trace.host_trace import HostTrace

US = 1_000_000


def ops_of(trace: HostTrace) -> Ops:
    ops: Ops = host_of(trace, "ops")["ops"]
    return ops


def two_streams() -> Plane:
    """Kernels that overlap for 10 us: busy from 10 to 40 and from 60 to 80."""
    return plane(
        "/device:GPU:0",
        line("Stream #1", event("a", 10, 20, tf_op="m/A:A"), event("a", 60, 20, tf_op="m/A:A"), id=1),
        line("Stream #2", event("b", 20, 20, tf_op="m/B:B"), id=2),
    )


def test_columns(tmp_path: Path) -> None:
    """A runs twice, 10 us each, around B once for 5 us; 5 us between the runs of A are idle."""
    thread = host(event("m/A:A", 0, 10), event("m/B:B", 2, 5), event("m/A:A", 15, 10))
    table = ops_of(trace_of(tmp_path, thread)).host
    assert table.columns() == {
        "rank": [1, 2],
        "op_name": ["m/A", "m/B"],
        "op_type": ["A", "B"],
        "occurrences": [2, 1],
        "count_of": ["runs", "runs"],
        "total_ms": [0.02, 0.005],
        "average_ms": [0.01, 0.005],
        "self_ms": [0.015, 0.005],
        "device_mean_ms": [0.015, 0.005],
        "average_self_ms": [0.0075, 0.005],
        "self_percent": [75, 25],
        "cumulative_self_percent": [75, 100],
        "self_with_idle_percent": [60, 20],
        "execution": [None, None],
        "tensor_core_percent": [None, None],
        "hlo_op": [None, None],
        "hlo_module": [None, None],
    }
    assert list(table.table["self_ms"]) == [0.015, 0.005]


def test_rows_that_are_left_out_leave_ranks_and_shares(tmp_path: Path) -> None:
    table = ops_of(trace_of(tmp_path, host(event("a/A:A", 0, 15), event("b/B:B", 20, 5)))).host
    kept = table.columns(np.array([False, True]))
    assert (kept["rank"], kept["op_name"], kept["self_percent"]) == ([2], ["b/B"], [25])
    assert table.columns(np.array([False, False]))["rank"] == []


@pytest.mark.parametrize(("pattern", "matches"), [("m/a", True), ("MatM", True), ("dot", True), ("other", False)])
def test_patterns_are_looked_for_in_name_type_and_hlo_op(tmp_path: Path, pattern: str, matches: bool) -> None:
    gpu = plane("/device:GPU:0", line("Stream #1", event("k", 0, 5, hlo_op="dot.1", tf_op="m/a/Mat:MatMul"), id=1))
    table = ops_of(trace_of(tmp_path, gpu)).device
    assert table is not None
    assert table.matching([Pattern(pattern)]).tolist() == [matches]


def test_any_of_several_patterns_is_enough_and_none_matches_all(tmp_path: Path) -> None:
    table = ops_of(trace_of(tmp_path, host(event("a/A:A", 0, 15), event("b/B:B", 20, 5)))).host
    assert table.matching([Pattern("^b/"), Pattern("nothing")]).tolist() == [False, True]
    assert table.matching([]).all()


def test_eager_once_is_eager_and_a_function_only_what_always_is_one() -> None:
    sums = Tallies()
    for name, flags in {"eager": (0, 1, -1), "function": (0, 0), "unknown": (0, -1)}.items():
        for flag in flags:
            sums.add(OpKey(name, ""), Tally(execution=flag))
    table = sums.table("host", idle_ps=None, time_ps=None, places=1)
    assert dict(zip(table.names, table.columns()["execution"], strict=True)) == {
        "eager": "eager",
        "function": "function",
        "unknown": None,
    }
    assert table.columns()["self_with_idle_percent"] == [None] * 3
    assert table.idle_share is None


def test_hosts_with_devices_are_added_up(tmp_path: Path) -> None:
    first = ops_of(trace_of(tmp_path, host(event("x", 0, 100)), two_streams()))
    gpu = plane("/device:GPU:0", line("Stream #1", event("b", 10, 30, tf_op="m/B:B"), id=1))
    second = ops_of(trace_of(tmp_path, host(event("x", 0, 50), event("B:B", 0, 10)), gpu))
    table = combine([first, second]).device
    assert table is not None
    assert table.columns()["op_name"] == ["m/B", "m/A"]
    assert table.columns()["occurrences"] == [2, 2]
    assert table.columns()["self_ms"] == [0.05, 0.04]
    assert (table.idle_ps, table.time_ps, table.places) == ((50 + 20) * US, 150 * US, 2)
    assert table.columns()["rank"] == [1, 2]
    assert table.columns()["self_percent"] == pytest.approx([100 * 50 / 90, 100 * 40 / 90])


def test_an_op_is_a_function_s_only_if_it_is_on_every_host(tmp_path: Path) -> None:
    def ran(**stats: int) -> Ops:
        return ops_of(trace_of(tmp_path, host(event("A:A", 0, 10, **stats))))

    function, eager, unknown = ran(is_eager=0), ran(is_eager=1), ran()
    tables = [combine([function, other]).host for other in (eager, function, unknown)]
    assert [table.columns()["execution"] for table in tables] == [["eager"], ["function"], [None]]


def test_idle_of_many_threads_may_exceed_an_int64(tmp_path: Path) -> None:
    far = 13 * 86_400e6
    threads = (line(f"t{n}", event("A:A", 0, 1), event("A:A", far - 1, 1), id=n + 1) for n in range(10))
    table = ops_of(trace_of(tmp_path, plane("/host:CPU", *threads))).host
    assert table.idle_ps is not None
    assert table.idle_ps > 1 << 63
    assert table.columns()["self_with_idle_percent"] == [pytest.approx(100 * 2 / far)]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from((0, 1, -1)), st.booleans(), st.integers(0, 1 << 61)),
        min_size=1,
    )
)
def test_ops_under_one_key_are_added_up_as_their_events_would_be(rows: list[tuple[str, int, bool, int]]) -> None:
    """The largest sum is 2^62, as everywhere."""
    ops, sums = Tallies(), Tallies()
    for number, (key, flag, counts_kernels, time_ps) in enumerate(rows):
        tally = Tally(occurrences=1, self_ps=time_ps, execution=flag, counts_kernels=counts_kernels)
        ops.add(OpKey(f"{key}{number}", ""), tally)
        sums.add(OpKey(key, ""), tally)
    single, expected = (each.table("host", idle_ps=7, time_ps=9, places=2) for each in (ops, sums))
    found = single.under([key._replace(name=key.name[0]) for key in single.keys])
    assert found.occurrences.sum() == len(rows)
    largest = {key.name: self_ps for key, self_ps in zip(found.keys, found.self_ps.tolist(), strict=True)}
    assert largest == {key.name: self_ps for key, self_ps in zip(expected.keys, expected.self_ps.tolist(), strict=True)}
    by_name = {key.name: row for row, key in enumerate(found.keys)}
    order = [by_name[key.name] for key in expected.keys]
    assert found.execution[order].tolist() == expected.execution.tolist()
    assert found.counts_kernels[order].tolist() == expected.counts_kernels.tolist()
    assert (found.idle_ps, found.time_ps, found.places) == (7, 9, 2)
    assert found.self_ps.tolist() == sorted(found.self_ps.tolist(), reverse=True)
