"""Causes in what the host computes: each on five steps of 100 us whose ops can be added up by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import pytest
from builders import Event, Plane, event, line, plane, trace_of
from sections.diagnosis.made import (
    EXCHANGE,
    LAUNCH,
    Case,
    actions_of,
    bounds,
    cause_of,
    codes_of,
    found_in,
    in_each_step,
    marks,
)
from sections.diagnosis.made import diagnosis as diagnosis_of

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.sections.diagnosis.cause import Diagnosis, Range
from tfperf.sections.diagnosis.diagnose import sentence_of

DENSE_GRADIENT = "gradient_tape/matmul/MatMul_1"


def allocation(op: str, shape: str, size: int, data_type: int = 1) -> Event:
    stats = {"bytes_allocated": size, "requested_bytes": size, "data_type": data_type}
    return event("MemoryAllocation", 1, 0, tf_op=op, shape=shape, allocator_name="cpu", **stats)


def job(*threads: list[Event], names: tuple[str, ...] = (), cores: int = 2) -> tuple[Plane, Plane]:
    """Marked steps, what the threads of a pool run in them, and threads of these names."""
    pool = [line(f"tf_Compute/{number}", *events, id=number + 2) for number, events in enumerate(threads)]
    others = [line(name, id=100 + number) for number, name in enumerate(names)]
    host = plane("/host:CPU", line("python", *marks(), id=1), *pool, *others)
    return host, plane(CAPTURE_PLANE, stats={"cpu_affinity": cores})


def diagnosis(tmp_path: Path, *threads: list[Event]) -> Diagnosis:
    return found_in(trace_of(tmp_path, *job(*threads), instants=True))


def update(shape: str, size: int) -> list[Event]:
    """Ops of an embedding and of its optimizer, which allocates this."""
    parts = (("m/embedding/GatherV2:GatherV2", 0, 20), ("adam/UnsortedSegmentSum:UnsortedSegmentSum", 20, 50))
    return [*in_each_step(*parts, ("adam/Sqrt_1:Sqrt", 50, 100)), allocation("adam/Sqrt_1", shape, size)]


def one_hot(gradient: str) -> list[Event]:
    parts = (("one_hot:OneHot", 0, 10), ("matmul:MatMul", 10, 40), (f"{DENSE_GRADIENT}:MatMul", 40, 80))
    arrays = [allocation("one_hot", "[64,30000]", 7_680_000), allocation(DENSE_GRADIENT, gradient, 9)]
    return [*in_each_step(*parts), *arrays]


def wide(shape: str) -> list[Event]:
    """A layer whose gradient has this shape, beside another."""
    gradient = "gradient_tape/m/neck/MatMul/MatMul_1"
    parts = (("m/neck/MatMul:MatMul", 0, 30), (f"{gradient}:MatMul", 30, 60))
    others = (("sgd/AssignSubVariableOp:AssignSubVariableOp", 60, 80), ("m/head/MatMul:MatMul", 80, 100))
    return [*in_each_step(*parts, *others), allocation(gradient, shape, 18_874_368)]


def beside(op: str) -> tuple[Plane, Plane]:
    """An op that takes 60 % of the step, beside a product."""
    return job(in_each_step((op, 0, 60), ("m/dense/MatMul:MatMul", 60, 100)))


LOOP = (
    (LAUNCH, 0, 100),
    ("map/TensorArrayUnstack/TensorListFromTensor:TensorListFromTensor", 10, 11),
    *(("map/while/body/_1/map/while/MatMul:MatMul", 12 + 8 * n, 13 + 8 * n) for n in range(8)),
    ("map/TensorArrayV2Stack/TensorListStack:TensorListStack", 79, 80),
)
SPARSE = (("SparseToDense:SparseToDense", 0, 10), ("matmul:MatMul", 10, 40), ("other:MatMul", 40, 50))
EIGEN = tuple(f"tf_numa_-1_Eigen/{number}" for number in range(8))
FIRST: dict[str, Case] = {
    "Python": Case(
        beside("m/norm/PyFunc:PyFunc"), "python_in_graph", 60, "use_graph_ops call_less_often",
        "m/norm/PyFunc runs Python one call at a time",
    ),
    "eager Python": Case(
        beside("EagerPyFunc:EagerPyFunc"), "python_in_graph", 60, "use_graph_ops call_less_often",
        "EagerPyFunc runs Python one call at a time",
    ),
    "printing": Case(
        beside("debug_1/StringFormat:StringFormat"), "print_in_graph", 60, "no_print", "StringFormat formats text"
    ),
    "splitting texts": Case(
        beside("split/StringSplitV2:StringSplitV2"), "input_in_step", 60, "prepare_ahead", "(top: split/StringSplitV2)",
    ),
    "images": Case(beside("DecodeJpeg:DecodeJpeg"), "input_in_step", 60, "prepare_ahead", "(top: DecodeJpeg)"),
    "examples": Case(
        beside("ParseExample/ParseExampleV2:ParseExampleV2"), "input_in_step", 60, "prepare_ahead",
        "(top: ParseExample/ParseExampleV2)",
    ),
    "a sparse batch that is made dense": Case(
        job([
            *in_each_step(*SPARSE, (f"{DENSE_GRADIENT}:MatMul", 50, 90)),
            allocation("SparseToDense", "[128,40000]", 20_480_000),
        ]), "densified_sparse", 80, "sparse_product", "an array [128,40000] of 20.5 MB",
    ),
    "products with one-hot vectors": Case(
        job(one_hot("[30000,64]")), "one_hot_product", 80, "gather_rows", "an array [64,30000] of 7.68 MB"
    ),
    "a dense update is fused": Case(
        job([
            *in_each_step(("m/dense/MatMul:MatMul", 0, 40), ("adam/Sqrt_1:Sqrt", 40, 100)),
            allocation("adam/Sqrt_1", "[1024,1024]", 4_194_304),
        ]), "optimizer_update", 60, "fuse_update fewer_updates",
    ),
    "an embedding that is updated in all rows": Case(
        job(update("[400000,64]", 102_400_000)), "optimizer_update", 80, "sparse_update",
        "[400000,64] (102 MB) is updated in all rows",
    ),
    "a dense layer with a very wide input": Case(
        job(wide("[9216,512]")), "dominant_layer", 80, "smaller_layer",
        "The layer neck takes 80.0% of the step: its weights are [9216,512] (18.9 MB)",
    ),
    "far more threads than cores": Case(
        job(in_each_step(("matmul:MatMul", 0, 100)), names=EIGEN), "too_many_threads", ANY, "set_threads",
        "1 inter-op thread and 8 intra-op threads share 2 cores",
    ),
}  # fmt: skip
NONE = {
    "labels are followed by some product too": (job(one_hot("[64,10]")), "one_hot_product"),
    "a few iterations are no loop over examples": (job(in_each_step(*LOOP[:5], LOOP[-1])), "loop_in_graph"),
    "updates of small variables": (job(update("[400,64]", 102_400)), "optimizer_update"),
    "a narrow input": (job(wide("[512,9216]")), "dominant_layer"),
    "a convolution": (job(wide("[3,3,64,64]")), "dominant_layer"),
    "as many threads as cores": (
        job(in_each_step(("matmul:MatMul", 0, 100)), names=EIGEN, cores=4), "too_many_threads"
    ),
    "replicas that take turns": (
        job(
            in_each_step(("matmul:MatMul", 0, 40), (EXCHANGE, 20, 80)),
            in_each_step(("replica_1/matmul:MatMul", 40, 80)),
        ), "slow_replica",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST)
def test_the_first_cause(tmp_path: Path, name: str) -> None:
    found = found_in(trace_of(tmp_path, *FIRST[name].planes, instants=True))
    FIRST[name].check(found)
    if FIRST[name].code in ("python_in_graph", "print_in_graph", "input_in_step"):
        assert found.headline == sentence_of(found.causes[0])


@pytest.mark.parametrize(("planes", "code"), NONE.values(), ids=NONE)
def test_what_is_no_cause(tmp_path: Path, planes: tuple[Plane, Plane], code: str) -> None:
    assert code not in codes_of(found_in(trace_of(tmp_path, *planes, instants=True)).causes)


def test_what_computes_is_said_by_layer(tmp_path: Path) -> None:
    first = in_each_step(("m/neck/MatMul:_MklMatMul", 0, 50), ("m/stem/Relu:Relu", 50, 80))
    second = in_each_step(("gradient_tape/m/neck/MatMul/MatMul_1:MatMul", 60, 100))
    found = diagnosis(tmp_path, first, second)
    # From 60 to 80 two ops run, each of which has half of that time.
    assert [(each.name, each.percent) for each in found.computed] == [("neck", 80.0), ("stem", 20.0)]
    assert found.headline.endswith("host compute 100.0%; largest: neck 80.0%, stem 20.0%.")


def test_ops_that_only_wait_or_take_little_of_the_host_are_not_named(tmp_path: Path) -> None:
    little = diagnosis(tmp_path, in_each_step((LAUNCH, 0, 100), ("m/neck/MatMul:MatMul", 0, 40)))
    assert little.computed == ()
    waiting = ("StatefulPartitionedCall:StatefulPartitionedCall", 0, 90)
    assert [each.name for each in diagnosis(tmp_path, in_each_step(waiting, ("a:Add", 0, 30))).computed] == ["a"]


def test_frames_tell_which_function_the_graph_calls(tmp_path: Path) -> None:
    frames = (("$callback.py:74 pure_callback", 0, 60), ("$loss.py:5 host_sort", 10, 50), ("$loss.py:9 step", 70, 100))
    found = diagnosis(tmp_path, in_each_step(("m/norm/PyFunc:PyFunc", 0, 60), *frames))
    detail = cause_of(found, "python_in_graph").detail
    assert detail == "m/norm/PyFunc runs loss.py:5 host_sort one call at a time, while the graph waits"


def test_python_of_the_input_pipeline_is_not_in_the_graph(tmp_path: Path) -> None:
    reader = line("tf_data_1", *in_each_step(("PyFunc:PyFunc", 0, 90)), id=9)
    compute = line("tf_Compute/1", *in_each_step(("a:MatMul", 0, 100)), id=2)
    found = diagnosis_of(tmp_path, plane("/host:CPU", line("python", *marks()), compute, reader))
    assert "python_in_graph" not in codes_of(found.causes)


def test_a_loop_over_examples_is_vectorized_and_not_given_a_larger_batch(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, in_each_step(LOOP[0], ("a:MatMul", 0, 10), *LOOP[1:]))
    cause = found.causes[0]
    assert (cause.code, cause.cost_percent) == ("loop_in_graph", Range(70.0, 90.0))
    assert cause.detail == "the loop in map runs at least 8 iterations per step, each with its own small ops"
    assert actions_of(cause) == ["vectorize_loop"]
    assert "larger_batch" not in [action.code for each in found.causes for action in each.actions]


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: name.replace("map/", "lstm_1/"),
        lambda name: name.replace("map/while/MatMul", "map/while/gradient_tape/MatMul"),
    ],
    ids=["each iteration needs the one before", "a loop over training steps"],
)
def test_loops_that_cannot_be_vectorized(tmp_path: Path, rename: Callable[[str], str]) -> None:
    ops = [(rename(name), start, end) for name, start, end in LOOP]
    found = diagnosis(tmp_path, in_each_step(("a:MatMul", 0, 10), *ops))
    assert "loop_in_graph" not in codes_of(found.causes)


def test_a_loop_whose_iterations_leave_no_op_is_told_by_the_executor(tmp_path: Path) -> None:
    ends = [LOOP[1], LOOP[-1]]
    iterations = [(LAUNCH, 12 + 4 * n, 14 + 4 * n) for n in range(16)]
    found = diagnosis(tmp_path, in_each_step(LOOP[0], ("a:MatMul", 0, 10), *ends, *iterations))
    cause = found.causes[0]
    assert (cause.code, cause.cost_percent) == ("loop_in_graph", Range(70.0, 90.0))
    assert cause.detail == "the loop in map runs many iterations per step, each with its own small ops"
    once = diagnosis(tmp_path, in_each_step(LOOP[0], ("a:MatMul", 0, 10), *ends))
    assert "loop_in_graph" not in codes_of(once.causes)


def test_the_loop_of_a_recurrent_layer_is_named(tmp_path: Path) -> None:
    ops = [(name.replace("map/", "m/lstm_1/"), start, end) for name, start, end in LOOP]
    found = diagnosis(tmp_path, in_each_step(ops[0], ("a:MatMul", 0, 10), *ops[1:]))
    cause = found.causes[0]
    assert cause.code == "small_work_per_step"
    assert cause.detail.endswith("; the loop over the time steps of lstm_1 takes 70.0%")
    assert "larger_batch" in actions_of(cause)


def test_float64(tmp_path: Path) -> None:
    ops = in_each_step(("matmul:MatMul", 0, 80), ("add:Add", 80, 100))
    found = diagnosis(tmp_path, [*ops, allocation("matmul", "[512,512]", 2_097_152, data_type=2)])
    cause = found.causes[0]
    # All that is allocated is float64, so that ops which allocate nothing are too.
    assert (cause.code, cause.cost_percent) == ("double_precision", Range(40.0, 80.0))
    assert cause.detail.startswith("matmul, add compute in 64-bit precision for 100.0% of it")
    (action,) = cause.actions
    assert bounds(action.step_ms) == pytest.approx((0.02, 0.06))


def test_float32_is_not_float64(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, [*in_each_step(("matmul:MatMul", 0, 80)), allocation("matmul", "[512,512]", 1_048_576)])
    assert "double_precision" not in codes_of(found.causes)
    assert "double_precision" not in found.unjudged
    assert "double_precision" in diagnosis(tmp_path, in_each_step(("matmul:MatMul", 0, 80))).unjudged


def test_one_slow_replica_is_not_communication(tmp_path: Path) -> None:
    first = in_each_step(("matmul:MatMul", 0, 10), (EXCHANGE, 10, 100))
    second = in_each_step(("replica_1/matmul:MatMul", 0, 10), ("replica_1/EagerPyFunc:EagerPyFunc", 10, 90))
    found = diagnosis(tmp_path, first, second)
    cause = found.causes[0]
    assert (cause.code, cause.cost_percent) == ("slow_replica", Range(80.0, 80.0))
    assert cause.detail == (
        "the others wait for replica_1 in 5 of 5 steps; the op that takes longer on it is EagerPyFunc"
    )
    assert cause_of(found, "collectives").cost_percent == Range(10.0, 10.0)


def test_evaluation_has_its_own_ops(tmp_path: Path) -> None:
    ops = in_each_step(("matmul:MatMul", 0, 100))
    ops += [event("PyFunc:PyFunc", 500 + 100 * n, 50) for n in range(5)]
    both = [*marks(), *marks("eval", start=500)]
    found = diagnosis_of(tmp_path, plane("/host:CPU", line("python", *both), line("tf_Compute/1", *ops, id=2)))
    cause = cause_of(found, "python_in_graph")
    assert (cause.kind, cause.cost_percent) == ("eval", Range(50.0, 50.0))
    assert [each.name for each in found.computed] == ["matmul"]
