"""The lanes of a picture: which threads and streams, in which order, and what nests in what."""

from __future__ import annotations

from pathlib import Path

from builders import event, host, line, plane
from sections.timeline.pictures import US, blocks_of_lane, gpu_host, pictures_of

from tfperf.sections.timeline.lanes import MOST_LANES

STEPS = [event("train", 1000 * n, 1000, step_num=n) for n in range(4)]


def test_nested_events_are_below_each_other_and_cut_at_the_step(tmp_path: Path) -> None:
    """An event around all steps begins before the drawn one; what is inside has rows of its own."""
    epoch = event("epoch", 0, 4000)
    ops = [event("a:MatMul", 2100, 300), event("b:Add", 2150, 100), event("c:Add", 2500, 50)]
    (picture,) = pictures_of(tmp_path, host(epoch, *STEPS, *ops), step=2)
    assert blocks_of_lane(picture, "Other threads", "python") == [
        ("epoch", 0, 0, 1000),
        ("train", 1, 0, 1000),
        ("a:MatMul", 2, 100, 300),
        ("c:Add", 2, 500, 50),
        ("b:Add", 3, 150, 100),
    ]
    level = picture.levels[-1]
    self_us = {
        picture.names[name].name: ns // US for name, ns in zip(level.name.tolist(), level.self_ns.tolist(), strict=True)
    }
    assert self_us == {"epoch": 0, "train": 650, "a:MatMul": 200, "c:Add": 50, "b:Add": 100}


def test_lanes_of_a_job_on_two_devices(tmp_path: Path) -> None:
    picture = gpu_host(tmp_path)["timeline"].pictures[0]
    groups = {group.title: [lane.title for lane in group.lanes] for group in picture.groups}
    assert list(groups) == ["Program", "tf.data", "Launching threads", "Other threads", "GPU:0", "GPU:1"]
    assert groups["GPU:0"][0] == "Idle, by cause"
    assert [group.is_open for group in picture.groups] == [True, False, False, False, True, True]
    assert all(0 <= share <= 100 for group in picture.groups for share in group.load)


def test_the_load_of_a_group_says_when_its_lanes_are_busy(tmp_path: Path) -> None:
    """Of two other threads one is busy in the first half of the step: half of the lanes, then none."""
    threads = line("a", event("x:Op", 2000, 500), id=2), line("b", event("y:Op", 2999, 1), id=3)
    planes = plane("/host:CPU", line("python", *STEPS, id=1), *threads)
    (picture,) = pictures_of(tmp_path, planes, step=2)
    load = next(group.load for group in picture.groups if group.title == "Other threads")
    assert load[:249] == (67,) * 249, "the thread of the steps is the third of them"
    assert load[251:498] == (34,) * 247


def test_the_busiest_of_hundreds_of_threads_are_drawn(tmp_path: Path) -> None:
    threads = [line(f"pool/{n}", event("x:Op", 2000, 100 + n), id=2 + n) for n in range(300)]
    planes = plane("/host:CPU", line("python", *STEPS, id=1), *threads)
    (picture,) = pictures_of(tmp_path, planes, step=2)
    (group,) = picture.groups
    assert len(group.lanes) == MOST_LANES
    assert [lane.title for lane in group.lanes[:2]] == ["python", "pool/299"]
    assert group.omitted == 301 - MOST_LANES
    assert picture.remarks == (f"277 lanes are not drawn: the {MOST_LANES} busiest of each group are.",)


def test_what_lies_too_deep_is_counted(tmp_path: Path) -> None:
    deep = [event(f"f{n}", 2000 + n, 900 - 2 * n) for n in range(10)]
    (picture,) = pictures_of(tmp_path, host(*STEPS, *deep), step=2)
    assert picture.remarks == ("5 events not drawn: they lie too deep inside others.",)
