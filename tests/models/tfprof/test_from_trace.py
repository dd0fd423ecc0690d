"""The model of a profile: what tfprof's views show of a job of TensorFlow 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import PS_PER_US, Event, event, host, known, line, logdir_of, plane, space, trace_of
from hypothesis import given
from hypothesis import strategies as st
from places import SHARED
from synthetic_tpu import offload_tpu
from tfprof_builders import graph, node, op_log

import tfperf
from tfperf.base.arrays import Int64s
from tfperf.formats.models.input_file import TfprofInputError
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.from_trace import (
    NO_FRAMES,
    Costs,
    PythonCalls,
    TracedModel,
    by_step,
    python_calls,
    trace_model,
)
from tfperf.models.tfprof.model import AVERAGE
from tfperf.models.tfprof.options import ATTRIBUTES, PLACE, Options
from tfperf.models.tfprof.report import ReportDetail, view_report
from tfperf.models.tfprof.step_times import nano_values
from tfperf.models.tfprof.views import Shown, View, show_ops, show_tree

PYTRACER = SHARED / "tfprof" / "tf2_pytracer"
OFFLOAD = PYTRACER.parents[1] / "traces" / "tpu_v6e" / "offload"
US = 1_000_000
ONCE = {"runs": 1, "definitions": 1}
PRODUCTS = "_FusedMatMul|_MklMatMul|MatMul|_MklNativeFusedMatMul|BiasAddGrad"
"""Types whose ops have no op inside, so that their own time is their duration."""


def step(number: int, *, frames: bool = False) -> list[Event]:
    """A step of 1000 us: MatMul takes 300 (in step 2, 360) with a Cast of 60 inside, Sum 100, Assign 40."""
    at = 1000 * number
    longer = 60 if number == 2 else 0
    events = [
        event("train", at, 1000, step_num=number + 7, _r=1),
        event("net/dense/MatMul:_FusedMatMul", at + 100, 300 + longer),
        event("net/dense/Cast:Cast", at + 110, 60),
        event("net/Sum:Sum", at + 500, 100),
        event("sgd/Assign:AssignVariableOp", at + 700, 40),
    ]
    of_python = [
        event("$train.py:9 step", at + 50, 900),
        event("EagerExecute", at + 60, 800, eager_op="__inference_train_step_3", is_func=1),
        event("$train.py:20 load", at + 960, 30),
        event("EagerLocalExecute: Cast", at + 965, 20),
    ]
    return [*events, *(of_python if frames else ())]


def logs(folder: Path, *others: Any, frames: bool = False, before: tuple[Event, ...] = ()) -> Path:
    main = [event("$train.py:1 main", 0, 3000)] if frames else []
    events = [each for number in range(3) for each in step(number, frames=frames)]
    return logdir_of(folder, a=space(plane("/host:CPU", line("python", *main, *before, *events)), *others))


def of_events(folder: Path, *events: Event) -> Path:
    """Write a profile of one thread."""
    return logdir_of(folder, a=space(host(*events)))


def values(traced: TracedModel, step_number: int = AVERAGE) -> dict[str, dict[str, int]]:
    """Return the own values of each node that are not 0."""
    model = traced.model
    of_all = model.values(step_number)
    return {
        name: {attribute: int(value) for attribute, value in zip(ATTRIBUTES, of_all[:, place], strict=True) if value}
        for place, name in enumerate(model.names)
    }


def shown(traced: TracedModel, view: View, **options: Any) -> dict[str, tuple[int, int]]:
    """Return own and total microseconds of the rows of a view."""
    rows: Shown = show_tree(traced.model, view, Options(order_by="micros", **options))
    micros = PLACE["micros"]
    return {
        name: (int(own), int(total))
        for name, own, total in zip(rows.tree.names, rows.tree.own[micros], rows.total[micros], strict=True)
    }


def test_scopes_of_a_step_and_of_the_mean(tmp_path: Path) -> None:
    traced = trace_model(logs(tmp_path))
    assert [*traced.model.steps] == [7, 8, 9]
    assert values(traced, 9) == {
        "net/Sum": {"micros": 100, "cpu_micros": 100, **ONCE},
        "net/dense/Cast": {"micros": 60, "cpu_micros": 60, **ONCE},
        "net/dense/MatMul": {"micros": 300, "cpu_micros": 300, **ONCE},
        "sgd/Assign": {"micros": 40, "cpu_micros": 40, **ONCE},
    }
    # 240 of MatMul itself in two steps, 300 in the third: 260 on average.
    assert shown(traced, "scope") == {
        "_TFProfRoot": (0, 460),
        "net": (0, 420),
        "net/dense": (0, 320),
        "net/dense/MatMul": (260, 260),
        "net/dense/Cast": (60, 60),
        "net/Sum": (100, 100),
        "sgd": (0, 40),
        "sgd/Assign": (40, 40),
    }
    assert traced.notes == (
        "Op types are the types of the kernels that ran (_FusedMatMul). A fused op has the name of its last part.",
        "The mean is over 3 training steps, even if an op did not run in all of them. An op belongs to the step in "
        "which the host started it.",
    )


def test_types_are_those_of_kernels(tmp_path: Path) -> None:
    ops = show_ops(trace_model(logs(tmp_path), "op").model, Options(order_by="micros"))
    micros = dict(zip(ops.names, ops.own[PLACE["micros"]].tolist(), strict=True))
    assert micros == {"_FusedMatMul": 260, "Sum": 100, "Cast": 60, "AssignVariableOp": 40}


def test_an_op_that_ran_in_one_step_is_divided_by_all(tmp_path: Path) -> None:
    traced = trace_model(logs(tmp_path, before=(event("summary/Write:WriteSummary", 1800, 90),)))
    assert values(traced)["summary/Write"]["micros"] == 30
    assert values(traced, 8)["summary/Write"]["micros"] == 90
    assert "micros" not in values(traced, 7)["summary/Write"]
    assert nano_values(traced.model, AVERAGE)[PLACE["micros"], traced.model.names.index("summary/Write")] == 30_000
    (section,) = view_report(traced.model, "op", Options(select=("micros",)), ReportDetail()).sections
    rows = section.tables[0].data
    assert dict(zip(rows["name"], rows["time_ms"], strict=True))["WriteSummary"] == 0.03


def test_a_mean_without_the_first_steps_is_that_of_the_others(tmp_path: Path) -> None:
    path = logs(tmp_path, before=(event("summary/Write:WriteSummary", 1800, 90),))
    traced = trace_model(path, skip_first=1)
    assert [*traced.model.steps] == [8, 9]
    found = values(traced)
    assert found["summary/Write"]["micros"] == 45
    assert found["net/dense/MatMul"]["micros"] == 270
    assert nano_values(traced.model, AVERAGE)[PLACE["micros"], traced.model.names.index("summary/Write")] == 45_000
    assert "The mean is over 2 training steps" in traced.notes[1]
    assert "; 1 first step skipped." in traced.notes[1]
    with pytest.raises(OptionError, match="cannot skip the first 3 of 3 steps"):
        trace_model(path, skip_first=3)


def test_steps_that_are_not_whole_do_not_count(tmp_path: Path) -> None:
    calls = [event("net/MatMul:MatMul", 1000 * number + 10, 30) for number in range(5)]
    marks = [event("train", 1000 * number, 1000, step_num=number) for number in range(1, 5)]
    slow = [event("train", -9000, 10000, step_num=0), event("net/MatMul:MatMul", -5000, 900)]
    traced = trace_model(of_events(tmp_path, *slow, *marks, *calls))
    assert [*traced.model.steps] == [1, 2, 3, 4]
    assert values(traced)["net/MatMul"]["micros"] == 30
    assert "1 other step (cut off, slow, or of another kind) excluded" in traced.notes[1]


def test_without_steps_the_capture_is_one(tmp_path: Path) -> None:
    traced = trace_model(of_events(tmp_path, event("net/MatMul:MatMul", 10, 30), event("net/MatMul:MatMul", 50, 5)))
    assert values(traced, 0) == values(traced)
    assert values(traced)["net/MatMul"] == {"micros": 35, "cpu_micros": 35, "runs": 2, "definitions": 1}
    assert "step 0 is the whole capture" in traced.notes[1]


def test_kernels_are_the_time_of_the_accelerator(tmp_path: Path) -> None:
    launches = tuple(event("cuLaunchKernel", 1000 * n + 150, 5, correlation_id=n + 1) for n in range(3))
    # The kernel of the last step runs after it: it counts where it was launched.
    op = "net/dense/MatMul:_FusedMatMul"
    kernels = [event("gemm", 1000 * n + 900, 80, correlation_id=n + 1, tf_op=op) for n in range(3)]
    relu = event("gemm", 2990, 7, correlation_id=99, tf_op="net/only/Relu:Relu")
    gpu = plane("/device:GPU:0", line("Stream #1", *kernels, relu))
    traced = trace_model(logs(tmp_path, gpu, before=launches))
    found = values(traced)
    assert found["net/dense/MatMul"] == {"micros": 340, "accelerator_micros": 80, "cpu_micros": 260, **ONCE}
    assert found["net/only/Relu"]["accelerator_micros"] in (2, 3)
    devices = dict(zip(traced.model.names, traced.model.device, strict=True))
    assert (devices["net/dense/MatMul"], devices["net/Sum"]) == ("/device:gpu:0", "/device:cpu:0")
    assert shown(traced, "scope", account_type_regexes=(".*gpu.*",))["_TFProfRoot"][1] in (342, 343)
    # Nothing tells how often Relu ran.
    with pytest.raises(ValueError, match="occurrence is unknown: some ops are visible only through"):
        traced.check(Options(select=("micros", "occurrence")))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"select": ("micros", "bytes")}, "bytes is unknown: a profile does not record memory per op"),
        ({"order_by": "params"}, "params is unknown: a profile has no variable sizes; pass the graph"),
        ({"min_float_ops": 1}, "float_ops is unknown"),
    ],
)
def test_what_a_profile_does_not_tell_is_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    traced = trace_model(logs(tmp_path))
    traced.check(Options(select=("micros", "cpu_micros", "occurrence", "device", "op_types"), order_by="micros"))
    with pytest.raises(ValueError, match=words):
        traced.check(Options(**options))


def with_graph(folder: Path) -> tuple[Path, Path]:
    nodes = [
        node("x", "Placeholder", outputs=[[4, 8]]),
        node("net/dense/kernel", "VariableV2", outputs=[[8, 2]], variable=[8, 2]),
        node("net/dense/MatMul", "MatMul", "x", "net/dense/kernel", outputs=[[4, 2]]),
        node("net/Sum", "Sum", "net/dense/MatMul", outputs=[[]]),
    ]
    (folder / "graph.pb").write_bytes(graph(*nodes))
    entries: dict[str, dict[str, Any]] = {
        "net/dense/MatMul": {"float_ops": 128, "stack": [("project/model.py", 12, "dense")]},
        "net/dense/kernel": {"types": ["_trainable_variables"]},
    }
    (folder / "log").write_bytes(op_log(entries))
    return folder / "graph.pb", folder / "log"


def test_a_graph_is_joined_by_name(tmp_path: Path) -> None:
    graph_file, log = with_graph(tmp_path)
    traced = trace_model(logs(tmp_path), "graph", graph=graph_file, op_log=log)
    assert traced.notes[0].startswith("2 of the 4 ops that ran are in the graph by name")
    model = traced.model
    types = dict(zip(model.names, model.ops, strict=True))
    assert (types["net/dense/MatMul"], types["net/dense/Cast"]) == ("MatMul", "Cast")
    assert values(traced)["net/dense/MatMul"]["float_ops"] == 128
    assert values(traced)["net/dense/kernel"] == {"params": 16, "definitions": 1}
    traced.check(Options(select=("micros", "params", "float_ops")))
    # Sum is fed by MatMul: 100 and 260.
    assert shown(traced, "graph")["net/Sum"] == (100, 360)
    # The type of the kernel counts beside that of the graph.
    assert shown(traced, "scope", account_type_regexes=("_FusedMatMul",))["_TFProfRoot"][1] == 260
    assert shown(trace_model(logs(tmp_path), "code", graph=graph_file, op_log=log), "code") == {
        "_TFProfRoot": (0, 260),
        "model.py:12:dense": (260, 260),
    }


def test_an_inlined_function_is_joined_by_the_names_of_its_body(tmp_path: Path) -> None:
    graph_file, _ = with_graph(tmp_path)
    ops = [event("StatefulPartitionedCall/net/Sum:Sum", 10, 9), event("StatefulPartitionedCall/new/Sum:Sum", 30, 9)]
    path = of_events(tmp_path, *ops)
    assert values(trace_model(path, graph=graph_file))["net/Sum"]["micros"] == 9
    assert "StatefulPartitionedCall/new/Sum" in trace_model(path, graph=graph_file).model.names
    assert "StatefulPartitionedCall/net/Sum" in trace_model(path).model.names


@pytest.mark.parametrize(
    ("events", "view", "why"),
    [
        (step(0), "graph", "a profile has no graph, so the graph view is not available"),
        ([event("$train.py:1 main", 0, 9)], "code", "they contain no calls into TensorFlow"),
        ([event("train", 0, 9)], "scope", "has no TensorFlow ops: profile with --host-tracer-level 2"),
    ],
)
def test_views_that_a_profile_does_not_have(tmp_path: Path, events: list[Event], view: View, why: str) -> None:
    with pytest.raises(TfprofInputError, match=why):
        trace_model(of_events(tmp_path, *events), view)


def test_code_is_by_functions_of_python(tmp_path: Path) -> None:
    traced = trace_model(logs(tmp_path, frames=True), "code")
    assert shown(traced, "code") == {
        "_TFProfRoot": (0, 820),
        "train.py:1:main": (0, 820),
        "train.py:9:step": (800, 800),
        "train.py:20:load": (20, 20),
    }
    assert traced.model.values(AVERAGE)[PLACE["runs"]].tolist() == [1, 1]
    assert {*traced.model.ops} == {"tf.function", "Cast"}
    with pytest.raises(ValueError, match="accelerator_micros is unknown: kernels are launched by threads without"):
        traced.check(Options(select=("accelerator_micros",)))


def test_without_frames_the_code_view_says_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(TfprofInputError) as raised:
        trace_model(logs(tmp_path), "code")
    assert str(raised.value) == NO_FRAMES
    assert "\n" not in NO_FRAMES
    assert "tfperf run --python-trace" in NO_FRAMES


def test_one_of_several_hosts(tmp_path: Path) -> None:
    path = logdir_of(tmp_path, a=space(host(event("net/MatMul:M", 10, 30))), b=space(host(event("net/Sum:Sum", 10, 4))))
    assert trace_model(path).notes[-1] == "Costs are for a, one of 2 hosts."
    assert trace_model(path, host="b").model.names == ["net/Sum"]


@pytest.mark.parametrize("name", ["input_bound", "input_fixed", "custom_loop", "retracing"])
def test_sums_over_samples_are_those_of_queries(name: str, samples: Path, asked_here: None) -> None:
    traced = trace_model(samples / name)
    analysis = tfperf.load(samples / name)
    steps = analysis["steps"].steps
    counted = steps.numbers[steps.headline].tolist()
    assert [*traced.model.steps] == counted
    recorded = tfperf.sql(
        analysis,
        f"""
        select s.step, sum(e.duration_ps) as ps, count(*) as runs from events e join host_steps s
        on e.start_ps >= s.start_ps and e.start_ps < s.end_ps
        where regexp_matches(e.name, '^[^:$]+:({PRODUCTS})$')
        group by s.step order by s.step
        """,
    )
    micros = dict(zip(recorded["step"].tolist(), (recorded["ps"] / US).tolist(), strict=True))
    assert sum(micros[number] for number in counted) > 0
    for number in counted:
        shown_ops = show_ops(traced.model, Options(step=number, account_type_regexes=(PRODUCTS,)))
        nodes = sum(len(nodes) for nodes in shown_ops.nodes)
        assert int(shown_ops.root_total[PLACE["cpu_micros"]]) == pytest.approx(micros[number], abs=nodes)


@pytest.mark.skipif(not PYTRACER.is_dir(), reason="the profile with Python frames is not beside the project")
def test_a_real_profile_has_a_tree_of_the_users_functions() -> None:
    traced = trace_model(PYTRACER / "remote_py1.xplane.pb", "code")
    rows = shown(traced, "code", max_depth=1000)
    assert rows["a7srv.py:13:one"][1] > rows["a7srv.py:11:load_batch"][1] > 0
    frames = tfperf.load(PYTRACER / "remote_py1.xplane.pb", sections=["python"])["python"]
    one = next(each for each in frames.functions if each.function == "a7srv.py:13 one")
    assert rows["a7srv.py:13:one"][1] * 1e6 * 118 < one.total_ps
    with pytest.raises(TfprofInputError, match="no Python frames"):
        trace_model(PYTRACER / "py0.xplane.pb", "code")


def test_copies_of_a_tpu_stay_and_sums_over_cores_are_told(tmp_path: Path) -> None:
    """On each of two chips a step waits 720 ms for copies and computes for 80."""
    traced = trace_model(logdir_of(tmp_path, a=offload_tpu()), view="scope")
    of_scope = {name: own.get("accelerator_micros", 0) for name, own in values(traced).items()}
    copies = sum(micros for name, micros in of_scope.items() if name.startswith("(no framework op)/"))
    assert copies == pytest.approx(2 * 720_000, abs=2)
    assert of_scope["jit(f)/jit(main)/add"] == pytest.approx(2 * 80_000, abs=2)
    assert traced.notes[0].startswith("Times are sums over 2 TPU cores: 800 ms per core and step")
    assert traced.notes[-1].endswith("An op belongs to the step in which it started.")


@pytest.mark.skipif(not OFFLOAD.is_dir(), reason="the real TPU profile is not here")
def test_a_step_of_the_real_tpu_profile_is_as_long_as_its_ops() -> None:
    """Each core has steps of its own; 24.05 ms of each are computing, the rest is waiting for copies."""
    traced = trace_model(OFFLOAD, view="op")
    of_op = {name: own.get("accelerator_micros", 0) / 4000 for name, own in values(traced).items()}
    assert sum(of_op.values()) == pytest.approx(784.13, abs=0.01)
    assert of_op["jit(f)/jit(main)/add"] == pytest.approx(24.05, abs=0.01)


def costs(*executions: tuple[int, int, int, int]) -> Costs:
    """Return executions: node, start, own time on the host, and on a device (ps)."""
    node, start, cpu, accelerator = np.array(executions, np.int64).reshape(-1, 4).T
    return Costs(
        node=node,
        device=np.zeros(len(node), np.int64),
        start=start,
        begin=start,
        end=start + cpu + accelerator,
        cpu_ps=cpu,
        accelerator_ps=accelerator,
        runs=(cpu > 0).astype(np.int64),
    )


def numbers(*values: int) -> Int64s:
    return np.array(values, np.int64)


def test_steps_and_their_mean() -> None:
    made = costs(
        (1, 0, 3_000_000, 0), (1, 5, 2_000_000, 0), (0, 9, 0, 7_000_000), (1, 10, 1_000_000, 0), (2, 25, 9_000_000, 0)
    )
    steps, mean = by_step(made, numbers(0, 10), numbers(10, 20), numbers(0, 1, 2))
    assert [each.node.tolist() for each in steps] == [[0, 1], [1]]
    assert [each.cpu_micros.tolist() for each in steps] == [[0, 5], [1]]
    assert [each.accelerator_micros.tolist() for each in steps] == [[7, 0], [0]]
    assert [each.runs.tolist() for each in steps] == [[0, 2], [1]]
    assert [each.cpu_nanos.tolist() for each in steps] == [[0, 5000], [1000]]
    assert steps[0].intervals.duration.tolist() == [3, 2, 7]
    assert (mean.cpu_nanos.tolist(), mean.accelerator_nanos.tolist()) == ([0, 3000], [3500, 0])
    # The mean is over both steps, also where a node ran in one; the last execution lies in none.
    assert (mean.node.tolist(), mean.cpu_micros.tolist(), mean.accelerator_micros.tolist()) == ([0, 1], [0, 3], [4, 0])
    assert mean.runs.tolist() == [0, 2]


def test_nothing_ran() -> None:
    steps, mean = by_step(costs(), numbers(0), numbers(10), numbers())
    assert [len(each.node) for each in steps] == [0]
    assert len(mean.node) == 0
    assert by_step(costs((0, 0, 1, 0)), numbers(), numbers(), numbers(0))[0] == []


@given(st.lists(st.integers(0, 5_000_000), min_size=1, max_size=40), st.integers(1, 5))
def test_small_times_are_not_lost(times: list[int], count: int) -> None:
    made = costs(*((node, 0, time, 0) for node, time in enumerate(times)))
    start = np.arange(count)
    steps, mean = by_step(made, start, start + 1, np.arange(len(times)))
    for until in range(1, len(times) + 1):
        assert abs(int(steps[0].cpu_micros[:until].sum()) - sum(times[:until]) / 1e6) <= 0.5
        assert abs(int(mean.cpu_micros[:until].sum()) - sum(times[:until]) / count / 1e6) <= 1
    assert all(0 <= micros <= time / 1e6 + 1 for micros, time in zip(steps[0].cpu_micros.tolist(), times, strict=True))


def calls_of(folder: Path, *threads: tuple[Event, ...]) -> PythonCalls | None:
    lines = [line(f"thread {number}", *events) for number, events in enumerate(threads)]
    return python_calls(trace_of(folder, plane("/host:CPU", *lines)))


def found(calls: PythonCalls | None) -> list[tuple[str, str, list[str], float, float]]:
    """Return of each call its node, type, stack, start and own time (us)."""
    calls = known(calls)
    stacks, rows = calls.stacks, []
    for at, start, time in zip(calls.node.tolist(), calls.start.tolist(), calls.self_ps.tolist(), strict=True):
        frames = stacks.frame[stacks.ends[at] : stacks.ends[at + 1]].tolist()
        stack = [f"{stacks.files[frame]}:{stacks.lines[frame]} {stacks.functions[frame]}" for frame in frames]
        rows.append((*calls.nodes[at], stack, start / PS_PER_US, time / PS_PER_US))
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
    calls = known(calls_of(tmp_path, (*MAIN, *again), MAIN))
    assert (len(calls.node), len(calls.nodes)) == (9, 3)


def test_the_same_call_from_two_stacks_is_two_nodes(tmp_path: Path) -> None:
    def read(at: int, caller: str) -> tuple[Event, ...]:
        return (event(caller, at, 20), event("$data.py:5 read", at, 20), event("EagerExecute: Cast", at + 5, 10))

    calls = known(calls_of(tmp_path, (*read(0, "$train.py:1 main"), *read(50, "$eval.py:1 main"))))
    assert [name for name, _ in calls.nodes] == ["Cast in data.py:5 read", "Cast in data.py:5 read #2"]
    assert [row[2][0] for row in found(calls)] == ["train.py:1 main", "eval.py:1 main"]


def test_calls_without_a_frame_are_counted(tmp_path: Path) -> None:
    calls = known(calls_of(tmp_path, (event("EagerExecute: Add", 0, 5), event("$train.py:1 main", 10, 5))))
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
