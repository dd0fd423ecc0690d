"""Which role each thread has."""

from __future__ import annotations

from pathlib import Path

from builders import event, iterator_call, line, plane
from sections.timeline.pictures import gpu_host, pictures_of


def test_roles_of_threads(tmp_path: Path) -> None:
    steps = [event("train", 1000 * n, 1000, step_num=n) for n in range(4)]
    calls = [event("EagerExecute: __inference_f_1", 1000 * n + 10, 900) for n in range(4)]
    threads = (
        line("main", *steps, *calls, id=1),
        line("tf_data_private_threadpool/7", iterator_call("Root::Map", 2100, 500, 1), id=2),
        line("tf_data_iterator_get_next/8", event("unknown", 2100, 500), id=3),
        line("tf_Compute/9", event("a:MatMul", 2100, 500), id=4),
        line("silent", event("a:MatMul", 100, 500), id=5),
    )
    (picture,) = pictures_of(tmp_path, plane("/host:CPU", *threads), step=2)
    assert {group.title: sorted(lane.title for lane in group.lanes) for group in picture.groups} == {
        "Program": ["main"],
        "tf.data": ["Map (tf_data_private_threadpool/7)", "tf_data_iterator_get_next/8"],
        "Other threads": ["tf_Compute/9"],
    }


def test_threads_that_launch_work_and_streams(tmp_path: Path) -> None:
    picture = gpu_host(tmp_path)["timeline"].pictures[0]
    lanes = {group.title: {lane.title for lane in group.lanes} for group in picture.groups}
    assert lanes["Program"] == {"python3"}
    assert lanes["tf.data"] == {"Map (tf_data_iterator_get_next/1)"}
    assert lanes["Launching threads"] == {"tf_gpu_private_0/3", "tf_gpu_private_1/4"}
    assert lanes["Other threads"] == {"tf_Compute/2"}
    assert lanes["GPU:1"] == {"Idle, by cause", "Stream #13(Compute)", "Stream #14(MemcpyH2D)"}
