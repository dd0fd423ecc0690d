"""The lanes of a picture: which threads and streams, in which order, and what nests in what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import event, host, host_of, iterator_call, line, marks, plane, trace_of
from hypothesis import given
from hypothesis import strategies as st
from sections.timeline.pictures import US, blocks_of_lane, gpu_host, gpu_window, pictures_of

from tfperf.base.arrays import Int64s
from tfperf.report.model import BlockName, Blocks
from tfperf.sections.timeline.lanes import MOST_BLOCKS, MOST_LANES, BlockTexts, DrawnEvents, idle_gaps, levels_of

STEPS = marks(4, 1000)


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
    assert {title: sorted(lanes) for title, lanes in groups.items() if title != "GPU:0"} == {
        "Program": ["python3"],
        "tf.data": ["Map (tf_data_iterator_get_next)"],
        "Launching threads": ["tf_gpu_private_0", "tf_gpu_private_1"],
        "Other threads": ["tf_Compute"],
        "GPU:1": ["Idle, by cause", "Stream #13(Compute)", "Stream #14(MemcpyH2D)"],
    }
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
    assert [lane.title for lane in group.lanes[:2]] == ["python", "pool 300"]
    assert group.omitted == 301 - MOST_LANES
    assert picture.remarks == (f"277 lanes are not drawn: only the {MOST_LANES} busiest of each group are.",)


def test_what_lies_too_deep_is_counted(tmp_path: Path) -> None:
    deep = [event(f"f{n}", 2000 + n, 900 - 2 * n) for n in range(10)]
    (picture,) = pictures_of(tmp_path, host(*STEPS, *deep), step=2)
    assert picture.remarks == ("5 events not drawn: too deeply nested.",)


# --- which role each thread has ---


def test_roles_of_threads(tmp_path: Path) -> None:
    calls = [event("EagerExecute: __inference_f_1", 1000 * n + 10, 900) for n in range(4)]
    threads = (
        line("main", *STEPS, *calls, id=1),
        line("tf_data_private_threadpool/7", iterator_call("Root::Map", 2100, 500, 1), id=2),
        line("tf_data_iterator_get_next/8", event("x:DecodeJpeg", 2100, 500), id=3),
        line("tf_Compute/9", event("a:MatMul", 2100, 500), id=4),
        line("silent", event("a:MatMul", 100, 500), id=5),
    )
    (picture,) = pictures_of(tmp_path, plane("/host:CPU", *threads), step=2)
    assert {group.title: sorted(lane.title for lane in group.lanes) for group in picture.groups} == {
        "Program": ["main"],
        "tf.data": ["Map (tf_data_private_threadpool)", "tf_data_iterator_get_next"],
        "Other threads": ["tf_Compute"],
    }
    kinds = {each.name: each.kind for each in picture.names}
    assert (kinds["x:DecodeJpeg"], kinds["a:MatMul"]) == ("Input pipeline", "Host compute")


def test_threads_of_one_name_are_numbered(tmp_path: Path) -> None:
    threads = (line(f"tf_Compute/-{number}", event("a:MatMul", 2100, 500), id=number) for number in (7, 8))
    (picture,) = pictures_of(tmp_path, plane("/host:CPU", line("main", *STEPS, id=1), *threads), step=2)
    titles = {group.title: [lane.title for lane in group.lanes] for group in picture.groups}
    assert titles["Other threads"][-2:] == ["tf_Compute 1", "tf_Compute 2"]


# --- what devices wait for, as blocks ---


def test_gaps_of_a_step_by_cause(tmp_path: Path) -> None:
    """As `synthetic_gpu.py` has it: 220 until the copy ends its gap, then gaps at 800 and from 850 on."""
    analyzed = gpu_host(tmp_path, "idle")
    first, second = idle_gaps(analyzed, gpu_window(analyzed, 1))
    assert (first.device, second.device) == ("GPU:0", "GPU:1")
    start_us = [(start - 1_000_000_000) // 1_000_000 for start in first.start_ps.tolist()]
    assert start_us == [0, 800, 850]
    assert [first.causes[cause] for cause in first.cause.tolist()] == [
        "Waiting for input", "Synchronizing", "Python between calls"
    ]  # fmt: skip
    assert first.splits[0] == "Waiting for input 0.200 ms, Copying 0.010 ms, Launching 0.010 ms"
    assert first.splits[1] == ""


def test_they_are_the_first_lane_of_a_device(tmp_path: Path) -> None:
    picture = gpu_host(tmp_path)["timeline"].pictures[0]
    assert blocks_of_lane(picture, "GPU:0", "Idle, by cause")[0] == ("Waiting for input", 0, 0, 220)
    kinds = {name.name: name.kind for name in picture.names}
    assert kinds["Waiting for input"] == "Idle: Waiting for input"


# --- what blocks say ---


def test_kinds_and_ops_of_host_events(tmp_path: Path) -> None:
    others = "Iterator::Map", "$train.py:1 f", "IteratorGetNextOp::DoCompute", "FunctionRun"
    names = ["model/dense/MatMul:MatMul", *others]
    trace = trace_of(tmp_path, host(*(event(name, 100 * n, 10) for n, name in enumerate(names))))
    texts = BlockTexts(host_of(trace, "steps"))
    name, note = texts.of(np.arange(5))
    assert [[*texts.names][number] for number in name.tolist()] == [
        BlockName(names[0], "Host compute", "MatMul", "model/dense/MatMul"),
        BlockName(names[1], "Input pipeline"),
        BlockName("train.py:1 f", "Python"),
        BlockName(names[3], "Input wait"),
        BlockName(names[4], "Call"),
    ]
    assert note.tolist() == [-1] * 5


def test_work_of_a_device_notes_its_op_and_how_it_was_launched(tmp_path: Path) -> None:
    analyzed = gpu_host(tmp_path, "steps")
    texts = BlockTexts(analyzed)
    names, notes = texts.of(analyzed.device_work.rows[:3])
    of_gemm = [*texts.notes][int(notes[0])]
    assert of_gemm.startswith("op model/dense/MatMul (MatMul); ")
    assert "grid" in of_gemm
    assert [[*texts.names][number].kind for number in names.tolist()] == [
        "Device compute", "Device compute", "Device collectives"
    ]  # fmt: skip
    again, _ = texts.of(analyzed.device_work.rows[:1])
    assert again[0] == names[0]


def test_long_names_are_cut_and_notes_have_an_end(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("x" * 5_000, 0, 10)))
    texts = BlockTexts(host_of(trace, "steps"))
    texts.of(np.arange(1))
    assert [len(name.name) for name in texts.names] == [200]
    assert texts.note("") == -1
    assert texts.note("a") == texts.note("a") == 0


# --- events that are too short to be seen become blocks; nothing is lost from their sums ---


def events(*rows: tuple[int, int, int, int]) -> DrawnEvents:
    """Return events of (row, start, end, name), in the order that pictures have."""
    ordered = sorted(rows, key=lambda each: (each[0], each[1], -each[2]))
    row, start, end, name = (np.array(column, np.int64) for column in zip(*ordered, strict=True))
    numbers = np.arange(len(ordered), dtype=np.int32)
    row_32, name_32 = row.astype(np.int32), name.astype(np.int32)
    return DrawnEvents(row=row_32, start_ns=start, end_ns=end, name=name_32, self_ns=end - start, note=numbers)


def of(level: Blocks) -> list[tuple[int, ...]]:
    columns = (level.row, level.start_ns, level.duration_ns, level.name, level.count, level.self_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_few_events_are_one_level_with_each_of_them() -> None:
    (level,) = levels_of(events((0, 0, 500, 1), (0, 600, 900, 2), (1, 0, 400, 3)), 1_000)
    assert of(level) == [(0, 0, 500, 1, 1, 500), (0, 600, 300, 2, 1, 300), (1, 0, 400, 3, 1, 400)]
    assert level.finest_ns == 0


def test_a_block_of_several_says_how_many_and_has_the_name_that_takes_most() -> None:
    """A step of 1 ms has pixels of 1 us: of three short events in a row, name 7 takes 500 of 900 ns in all."""
    coarse, fine = levels_of(
        events((0, 0, 300, 5), (0, 400, 650, 7), (0, 700, 950, 7), (0, 2_000, 700_000, 8), (0, 700_100, 700_200, 5)),
        1_000_000,
    )
    assert of(coarse) == [(0, 0, 950, 7, 3, 800), (0, 2_000, 698_000, 8, 1, 698_000), (0, 700_100, 100, 5, 1, 100)]
    assert coarse.note.tolist() == [-1, 3, 4]
    assert len(fine.row) == 5


def test_what_is_long_stays_apart_from_what_is_short_around_it() -> None:
    coarse, _ = levels_of(
        events((0, 0, 100, 1), (0, 100, 200, 1), (0, 200, 1_900, 2), (0, 1_900, 1_950, 3), (0, 1_960, 1_990, 3)),
        1_000_000,
    )
    assert [(name, count) for _, _, _, name, count, _ in of(coarse)] == [(1, 2), (2, 1), (3, 2)]


def test_a_million_events_have_three_levels_of_bounded_size() -> None:
    count, duration_ns = 1_000_000, 100_000_000
    start: Int64s = np.arange(count) * 100
    many = DrawnEvents(
        row=np.zeros(count, np.int32),
        start_ns=start,
        end_ns=start + 60,
        name=(np.arange(count) % 5).astype(np.int32),
        self_ns=np.full(count, 60),
        note=np.full(count, -1, np.int32),
    )
    levels = levels_of(many, duration_ns)
    assert len(levels) == 3
    assert len(levels[2].row) > 8 * len(levels[1].row) / 3 > 8 * len(levels[0].row) / 3
    for level, most in zip(levels, MOST_BLOCKS, strict=True):
        assert 250 <= len(level.row) <= most
        assert int(level.count.sum()) == count
        assert int(level.self_ns.sum()) == 60 * count


def test_no_events_are_an_empty_level() -> None:
    empty = events((0, 0, 1, 0))
    nothing = DrawnEvents(**{key: getattr(empty, key)[:0] for key in empty.__struct_fields__})
    assert [len(level.row) for level in levels_of(nothing, 1_000)] == [0]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**6), st.integers(0, 3_000), st.integers(0, 4)), min_size=1)
)
def test_all_levels_add_up_to_the_same(rows: list[tuple[int, int, int, int]]) -> None:
    """Rows of a picture hold events one after the other; whatever they are, no level loses time or events."""
    placed: dict[int, int] = {}
    made = []
    for row, gap, duration, name in rows:
        start = placed.get(row, 0) + gap
        placed[row] = start + duration
        made.append((row, start, start + duration, name))
    whole = max(placed.values())
    levels = levels_of(events(*made), max(whole, 1))
    assert [level.finest_ns for level in levels] == sorted({level.finest_ns for level in levels}, reverse=True)
    for level in levels:
        assert int(level.count.sum()) == len(made)
        assert int(level.self_ns.sum()) == sum(end - start for _, start, end, _ in made)
        assert bool((level.start_ns + level.duration_ns <= whole).all())
        for row in set(level.row.tolist()):
            of_row = level.row == row
            assert bool((np.diff(level.start_ns[of_row]) >= 0).all())
