"""Calls from Python into TensorFlow, with the functions that made them."""

from __future__ import annotations

from pathlib import Path

from builders import PS_PER_US, Event, event, line, plane, trace_of

from tfperf.models.tfprof.from_trace import PythonCalls, python_calls


def calls_of(folder: Path, *threads: tuple[Event, ...]) -> PythonCalls | None:
    lines = [line(f"thread {number}", *events) for number, events in enumerate(threads)]
    return python_calls(trace_of(folder, plane("/host:CPU", *lines)))


def found(calls: PythonCalls | None) -> list[tuple[str, str, list[str], float, float]]:
    """Return of each call its node, type, stack, start and own time (us)."""
    assert calls is not None
    stacks = calls.stacks
    rows = []
    for node, start, time in zip(calls.node.tolist(), calls.start.tolist(), calls.self_ps.tolist(), strict=True):
        frames = stacks.frame[stacks.ends[node] : stacks.ends[node + 1]].tolist()
        stack = [f"{stacks.files[frame]}:{stacks.lines[frame]} {stacks.functions[frame]}" for frame in frames]
        rows.append((*calls.nodes[node], stack, start / PS_PER_US, time / PS_PER_US))
    return rows


MAIN = (
    event("$train.py:1 main", 0, 200),
    event("$train.py:9 step", 10, 100),
    event("$tensorflow.python._pywrap_tfe TFE_Py_Execute", 20, 60),
    event("TFE_Py_ExecuteCancelable", 22, 56),
    event("EagerLocalExecute: __inference_train_step_175", 24, 50),
    event("EagerExecute", 26, 40, eager_op="__inference_train_step_175", is_func=1),
    event("$train.py:30 callback", 30, 10),
    event("EagerExecute: Add", 32, 3),
    event("TFE_DeleteTensorHandle", 90, 5),
    event("EagerLocalExecute: MatMul", 150, 20),
)


def test_a_call_is_the_outermost_event_of_it_without_python_inside(tmp_path: Path) -> None:
    execute = "/site-packages/tensorflow/tensorflow.python._pywrap_tfe:0 TFE_Py_Execute"
    step = ["train.py:1 main", "train.py:9 step", execute]
    assert found(calls_of(tmp_path, MAIN)) == [
        ("train_step in tensorflow.python._pywrap_tfe.TFE_Py_Execute", "tf.function", step, 22, 46),
        ("Add in train.py:30 callback", "Add", [*step, "train.py:30 callback"], 32, 3),
        ("MatMul in train.py:1 main", "MatMul", ["train.py:1 main"], 150, 20),
    ]


def test_calls_of_one_place_are_one_node(tmp_path: Path) -> None:
    again = tuple(event(each.name, each.start_us + 300, each.duration_us, **each.stats) for each in MAIN)
    calls = calls_of(tmp_path, (*MAIN, *again), MAIN)
    assert calls is not None
    assert len(calls.node) == 9
    assert len(calls.nodes) == 3


def test_the_same_call_from_two_stacks_is_two_nodes(tmp_path: Path) -> None:
    def read(at: int, caller: str) -> tuple[Event, ...]:
        return (event(caller, at, 20), event("$data.py:5 read", at, 20), event("EagerExecute: Cast", at + 5, 10))

    calls = calls_of(tmp_path, (*read(0, "$train.py:1 main"), *read(50, "$eval.py:1 main")))
    assert calls is not None
    assert [name for name, _ in calls.nodes] == ["Cast in data.py:5 read", "Cast in data.py:5 read #2"]
    assert [row[2][0] for row in found(calls)] == ["train.py:1 main", "eval.py:1 main"]


def test_calls_without_a_frame_are_counted(tmp_path: Path) -> None:
    calls = calls_of(tmp_path, (event("EagerExecute: Add", 0, 5), event("$train.py:1 main", 10, 5)))
    assert calls is not None
    assert (len(calls.node), calls.outside) == (0, 1)


def test_what_is_called_may_be_unknown(tmp_path: Path) -> None:
    rows = found(calls_of(tmp_path, (event("$train.py:1 main", 0, 9), event("TFE_Py_Execute", 1, 5))))
    assert [row[:2] for row in rows] == [("TensorFlow in train.py:1 main", "TensorFlow")]


def test_a_profile_without_frames(tmp_path: Path) -> None:
    assert calls_of(tmp_path, (event("EagerExecute: Add", 0, 5),)) is None


def test_python_may_nest_as_deep_as_it_likes(tmp_path: Path) -> None:
    deep = [event("$a.py:1 f", number, 4000 - 2 * number) for number in range(1500)]
    rows = found(calls_of(tmp_path, (*deep, event("EagerExecute: Add", 1600, 5))))
    assert [len(row[2]) for row in rows] == [1500]
