"""What takes most of the mean step."""

from __future__ import annotations

from pathlib import Path

from tfprof_builders import CPU, GPU, STREAMS, model, node, op_log, ran, run_metadata

from tfperf.models.tfprof.advise import costly_lines, costly_ops, costly_scopes
from tfperf.models.tfprof.model import Model


def network(folder: Path) -> Model:
    """Four types of ops; `net` takes 6 ms, `head` 3 ms, the rest little."""
    times = {"net/a": 4000, "net/b": 2000, "head/c": 3000, "tail/d": 50, "e": 0}
    ops = {"net/a": "Conv2D", "net/b": "Conv2D", "head/c": "MatMul", "tail/d": "Relu", "e": "NoOp"}
    main, users = ("main.py", 1, "<module>"), {"net/a": 5, "net/b": 6, "head/c": 9, "tail/d": 12, "e": 12}
    stacks = {
        name: {"stack": [main, ("model.py", 2 if name.startswith("net") else 3, "build"), ("layer.py", line, "call")]}
        for name, line in users.items()
    }
    records = [ran(name, 10, time, timeline_label=b"net/a = _FusedConv2D(x)") for name, time in times.items() if time]
    return model(
        folder, [node(name, op) for name, op in ops.items()], {0: run_metadata({CPU: records})}, op_log(stacks)
    )


def test_op_types(tmp_path: Path) -> None:
    rows = costly_ops(network(tmp_path))
    assert [(row.name, row.time_ms, row.cpu_ms, row.accelerator_ms) for row in rows] == [
        ("Conv2D", 6.0, 6.0, 0.0),
        ("MatMul", 3.0, 3.0, 0.0),
        ("Relu", 0.05, 0.05, 0.0),
    ]
    assert (rows[0].kernels, round(rows[0].time_percent, 1)) == ("_FusedConv2D", 66.3)


def test_scopes_have_the_time_of_all_in_them(tmp_path: Path) -> None:
    rows = costly_scopes(network(tmp_path))
    assert [(row.name, row.time_ms) for row in rows] == [("net", 6.0), ("head", 3.0)]


def test_lines_begin_below_what_calls_all(tmp_path: Path) -> None:
    rows = costly_lines(network(tmp_path))
    assert [(row.depth, row.name, row.time_ms) for row in rows] == [
        (0, "model.py:2:build", 6.0),
        (1, "layer.py:5:call", 4.0),
        (1, "layer.py:6:call", 2.0),
        (0, "model.py:3:build", 3.05),
        (1, "layer.py:9:call", 3.0),
    ]


def test_kernels_and_launches_are_told_apart(tmp_path: Path) -> None:
    records = {GPU: [ran("a", 1, 20)], STREAMS: [ran("a", 5, 300)]}
    (row,) = costly_ops(model(tmp_path, [node("a", "Conv2D")], {0: run_metadata(records)}))
    assert (row.time_ms, row.accelerator_ms, row.cpu_ms, row.time_percent, row.kernels) == (0.32, 0.3, 0.02, 100.0, "")


def test_nothing_was_recorded(tmp_path: Path) -> None:
    of = model(tmp_path, [node("a", "A")])
    assert (costly_ops(of), costly_scopes(of), costly_lines(of)) == ([], [], [])


def test_frames_of_packages_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    stack = [("main.py", 1, "f"), ("/x/site-packages/keras/layer.py", 2, "call")]
    log = op_log(
        {name: {"stack": [(file, line + place, f) for file, line, f in stack]} for place, name in enumerate("ab")}
    )
    steps = {0: run_metadata({CPU: [ran("a", 1, 2000), ran("b", 1, 3000)]})}
    of = model(tmp_path, [node("a", "A"), node("b", "B")], steps, log)
    assert [row.name for row in costly_lines(of)] == ["main.py:2:f", "main.py:1:f"]
    assert len(costly_lines(of, every_frame=True)) == 2


def test_one_line_that_costs_everything_is_named(tmp_path: Path) -> None:
    log = op_log({"a": {"stack": [("main.py", 1, "<module>"), ("model.py", 7, "build")]}})
    (row,) = costly_lines(model(tmp_path, [node("a", "A")], {0: run_metadata({CPU: [ran("a", 1, 2000)]})}, log))
    assert (row.name, row.time_ms, row.depth) == ("model.py:7:build", 2.0, 0)
