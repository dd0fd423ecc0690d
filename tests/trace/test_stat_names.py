"""Which stats are read: those that were asked for, and on which events."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from builders import event, host, line, plane, ref, space, trace_of
from trace_rows import memory, numbers, read_bytes, texts

from tfperf.trace import read
from tfperf.trace.host_trace import PlaneKind
from tfperf.trace.read import read_host


def test_of_the_stats_those_that_steps_need_are_always_read(tmp_path: Path) -> None:
    path = tmp_path / "made.xplane.pb"
    path.write_bytes(space(host(event("a", 0, 1, step_num=3, hlo_op="x.1", program_id=7), memory(1, addr=5))))
    trace = read_host(path, stats=frozenset({"hlo_op"}))
    assert (numbers(trace, "step_num"), texts(trace, "hlo_op")) == ({0: 3}, {0: "x.1"})
    assert trace.stat("group_id").event.tolist() == []
    assert trace.stats.keys() == {"step_num", "hlo_op"}


def test_stats_that_tfperf_does_not_know_are_read_as_the_file_stores_them(tmp_path: Path) -> None:
    events = event("a", 0, 1, worker=3, pool="x"), event("b", 1, 1, load=0.5, pool=ref("y")), event("c", 2, 1, load=1)
    gpu = plane("/device:GPU:0", line("s", event("k", 3, 1, worker=4, mixed=1), event("l", 4, 1, mixed="one")))
    path = tmp_path / "made.xplane.pb"
    path.write_bytes(space(host(*events), gpu))
    trace = read_host(path, stats=frozenset({"worker", "pool", "load", "mixed", "absent"}))
    assert numbers(trace, "worker") == {0: 3, 3: 4}
    assert texts(trace, "pool") == {0: "x", 1: "y"}
    assert (trace.stat("load").type, trace.stat("load").value.view(np.float64).tolist()) == ("real", [0.5, 1.0])
    assert texts(trace, "mixed") == {3: "1", 4: "one"}
    assert trace.stat("absent").event.tolist() == []


def test_launches_on_the_host_give_no_kernel_details(tmp_path: Path) -> None:
    """Old writers left uninitialised memory there."""
    details = "regs:16 shm:0 grid:1,1,1 block:64,1,1"
    trace = trace_of(
        tmp_path,
        host(event("k", 0, 1, kernel_details="regs:99")),
        plane("/device:GPU:0", line("s", event("k", 2, 1, kernel_details=details))),
    )
    assert trace.stat("kernel_details").event.tolist() == [1]


@pytest.mark.parametrize("name", ["DEFAULT", "BASE", "TFDATA", "MEMORY", "HOST_OPS", "DEVICE_OPS", "EAGER", "LINKS"])
def test_every_set_holds_known_names(name: str) -> None:
    assert getattr(read, name) <= read.KNOWN.keys()


def test_a_stat_is_read_where_it_means_something() -> None:
    asked = frozenset({"shape", "kernel_details", "buffer_limit", "allocator_name", "mine"})
    host, gpu = (read.wanted_stats(kind, asked) for kind in get_args(PlaneKind)[:2])
    assert host.types == {"shape": "text", "buffer_limit": "number", "allocator_name": "text", "mine": "guess"}
    assert gpu.types == {"shape": "text", "kernel_details": "text", "mine": "guess"}
    assert host.only_on["buffer_limit"]("Iterator::Root")
    assert not host.only_on["buffer_limit"]("MatMul")
    assert gpu.only_on == {}


def test_allocations_are_read_only_for_those_who_ask_for_them(tmp_path: Path) -> None:
    made = host(memory(1, allocator_name="GPU_0_bfc", tf_op="x/Add"))
    asked = frozenset({"allocator_name", "tf_op"})
    assert len(read_bytes(tmp_path, space(made), asked).memory) == 1
    assert read_bytes(tmp_path, space(made), frozenset({"tf_op"})).stats == {}


def test_an_id_is_read_on_every_event_for_those_who_follow_links(tmp_path: Path) -> None:
    made = host(event("MatMul", 0, 1, id=5), event("FunctionRun", 1, 1, id=6))
    assert numbers(read_bytes(tmp_path, space(made), frozenset()), "id") == {1: 6}
    assert numbers(read_bytes(tmp_path, space(made), frozenset({"iter_num"})), "id") == {0: 5, 1: 6}
