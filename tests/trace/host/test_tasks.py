"""Which task of a cluster a host is, by what it records."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Plane, event, host, line, plane, trace_of

from tfperf.trace.host.tasks import Task, task_of

FETCH = "IteratorGetNextOp::DoCompute"


def of_task(job: str, index: int) -> str:
    return f"/job:{job}/replica:0/task:{index}/device:CPU:0"


def send(source: str, target: str) -> Event:
    return event("mul_1/_5:_Send", 0, 5, key=f"{source};3a32;{target};edge_25_mul_1;0:0")


@pytest.mark.parametrize(
    ("planes", "task"),
    [
        ((host(event("RemoteCallOp", 0, 5, device=of_task("worker", 1))),), Task("worker", "worker:1")),
        ((host(send(of_task("ps", 0), of_task("worker", 3))),), Task("parameter server", "ps:0")),
        ((host(send(of_task("worker", 3), of_task("ps", 0))),), Task("worker", "worker:3")),
        ((host(event("RemoteCallOp", 0, 5, device=of_task("localhost", 0))),), Task()),
        ((host(event("MatMul:MatMul", 0, 5)),), Task()),
        ((host(event("Iterator::Root", 0, 5), name="tf_data_service_fcfs_prefetch_thread/7"),), Task("tf.data worker")),
        ((host(event(FETCH, 0, 5), name="tf_data_standalone/7"),), Task()),
        ((host(event("EagerExecute", 0, 5), event("CopyInputToExpectedDevice", 1, 1)),), Task("coordinator")),
        (
            (
                host(
                    event("EagerExecute", 0, 5),
                    event("CopyInputToExpectedDevice", 1, 1),
                    event("KernelAndDeviceFunc::Run", 2, 1),
                ),
            ),
            Task(),
        ),
        ((plane("/host:CPU"),), Task()),
        # Several tasks in one process: none of them is the whole of it.
        ((host(send(of_task("ps", 0), of_task("worker", 0)), send(of_task("worker", 0), of_task("ps", 0))),), Task()),
    ],
)
def test_what_a_host_records_tells_its_task(tmp_path: Path, planes: tuple[Plane, ...], task: Task) -> None:
    assert task_of(trace_of(tmp_path, *planes)) == task


def test_the_capture_of_tfperf_says_it(tmp_path: Path) -> None:
    facts = plane("/tfperf:capture", stats={"format": 1, "task_type": "chief", "task_index": 0})
    assert task_of(trace_of(tmp_path, host(event("MatMul:MatMul", 0, 5)), facts)) == Task("chief", "chief:0")
    calls = host(event("EagerExecute", 0, 5), event("CopyInputToExpectedDevice", 1, 1))
    assert task_of(trace_of(tmp_path, calls, facts)) == Task("coordinator", "chief:0")


def test_a_rank_alone_is_no_role(tmp_path: Path) -> None:
    facts = plane("/tfperf:capture", line("x"), stats={"format": 1, "task_index": 2})
    assert task_of(trace_of(tmp_path, host(event("MatMul:MatMul", 0, 5)), facts)) == Task()
