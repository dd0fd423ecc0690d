"""Causes in what the host computes: each on five steps of 100 us whose ops can be added up by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import Event, Line, event, line, plane, results_of, trace_of

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.sections.diagnosis.cause import Cause, Diagnosis, Range
from tfperf.sections.diagnosis.diagnose import sentence_of

STEPS = 5


def in_each_step(*ops: tuple[str, float, float], count: int = STEPS) -> list[Event]:
    """Events of these names, from when to when in each step of 100 us."""
    return [event(name, 100 * n + start, end - start) for n in range(count) for name, start, end in ops]


def allocation(op: str, shape: str, size: int, data_type: int = 1) -> Event:
    stats = {"bytes_allocated": size, "requested_bytes": size, "data_type": data_type}
    return event("MemoryAllocation", 1, 0, tf_op=op, shape=shape, allocator_name="cpu", **stats)


def diagnosis(
    tmp_path: Path, *threads: list[Event], names: tuple[str, ...] = (), cores: int = 2, kind: str = "train"
) -> Diagnosis:
    """Diagnose marked steps and what the threads of a pool run in them."""
    marks = [event(kind, 100 * n, 100, step_num=n) for n in range(STEPS)]
    pool = [line(f"tf_Compute/{number}", *events, id=number + 2) for number, events in enumerate(threads)]
    others: list[Line] = [line(name, id=100 + number) for number, name in enumerate(names)]
    host = plane("/host:CPU", line("python", *marks, id=1), *pool, *others)
    found: Diagnosis = results_of(
        trace_of(tmp_path, host, plane(CAPTURE_PLANE, stats={"cpu_affinity": cores}), instants=True)
    )["diagnosis"]
    return found


def cause_of(found: Diagnosis, code: str) -> Cause:
    return next(cause for cause in found.causes if cause.code == code)


def codes_of(found: Diagnosis) -> list[str]:
    return [cause.code for cause in found.causes]


def test_what_computes_is_said_by_layer(tmp_path: Path) -> None:
    first = in_each_step(("m/neck/MatMul:_MklMatMul", 0, 50), ("m/stem/Relu:Relu", 50, 80))
    second = in_each_step(("gradient_tape/m/neck/MatMul/MatMul_1:MatMul", 60, 100))
    found = diagnosis(tmp_path, first, second)
    # From 60 to 80 two ops run, each of which has half of that time.
    assert [(each.name, each.percent) for each in found.computed] == [("neck", 80.0), ("stem", 20.0)]
    assert found.headline.endswith("host compute 100.0%; largest: neck 80.0%, stem 20.0%.")


def test_ops_that_take_little_of_the_host_are_not_named(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, in_each_step(("ExecutorState::Process", 0, 100), ("m/neck/MatMul:MatMul", 0, 40)))
    assert found.computed == ()


def test_what_only_waits_does_not_compute(tmp_path: Path) -> None:
    found = diagnosis(
        tmp_path, in_each_step(("StatefulPartitionedCall:StatefulPartitionedCall", 0, 90), ("a:Add", 0, 30))
    )
    assert [each.name for each in found.computed] == ["a"]


@pytest.mark.parametrize(
    ("op", "code", "text"),
    [
        ("m/norm/PyFunc:PyFunc", "python_in_graph", "m/norm/PyFunc runs Python, one call at a time"),
        ("EagerPyFunc:EagerPyFunc", "python_in_graph", "EagerPyFunc runs Python, one call at a time"),
        ("debug_1/StringFormat:StringFormat", "print_in_graph", "in debug_1/StringFormat"),
        ("split/StringSplitV2:StringSplitV2", "input_in_step", "(most time: split/StringSplitV2)"),
        ("DecodeJpeg:DecodeJpeg", "input_in_step", "(most time: DecodeJpeg)"),
        ("ParseExample/ParseExampleV2:ParseExampleV2", "input_in_step", "(most time: ParseExample/ParseExampleV2)"),
    ],
)
def test_ops_that_a_step_can_do_without(tmp_path: Path, op: str, code: str, text: str) -> None:
    found = diagnosis(tmp_path, in_each_step((op, 0, 60), ("m/dense/MatMul:MatMul", 60, 100)))
    cause = found.causes[0]
    assert (cause.code, cause.cost_percent) == (code, Range(60.0, 60.0))
    assert text in cause.detail
    assert found.headline == sentence_of(cause)
    assert len(cause.actions) == 1


def test_frames_tell_which_function_the_graph_calls(tmp_path: Path) -> None:
    frames = (("$callback.py:74 pure_callback", 0, 60), ("$loss.py:5 host_sort", 10, 50), ("$loss.py:9 step", 70, 100))
    found = diagnosis(tmp_path, in_each_step(("m/norm/PyFunc:PyFunc", 0, 60), *frames))
    detail = cause_of(found, "python_in_graph").detail
    assert detail == "m/norm/PyFunc runs loss.py:5 host_sort, one call at a time, and the graph waits for it"


def test_python_of_the_input_pipeline_is_not_in_the_graph(tmp_path: Path) -> None:
    reader = line("tf_data_1", *in_each_step(("PyFunc:PyFunc", 0, 90)), id=9)
    marks = [event("train", 100 * n, 100, step_num=n) for n in range(STEPS)]
    compute = line("tf_Compute/1", *in_each_step(("a:MatMul", 0, 100)), id=2)
    found = results_of(trace_of(tmp_path, plane("/host:CPU", line("python", *marks), compute, reader)))["diagnosis"]
    assert "python_in_graph" not in codes_of(found)


def test_a_sparse_batch_that_is_made_dense(tmp_path: Path) -> None:
    ops = in_each_step(
        ("SparseToDense:SparseToDense", 0, 10),
        ("matmul:MatMul", 10, 40),
        ("other:MatMul", 40, 50),
        ("gradient_tape/matmul/MatMul_1:MatMul", 50, 90),
    )
    found = diagnosis(tmp_path, [*ops, allocation("SparseToDense", "[128,40000]", 20_480_000)])
    cause = found.causes[0]
    assert (cause.code, cause.cost_percent) == ("densified_sparse", Range(80.0, 80.0))
    assert "an array [128,40000] of 20.5 MB" in cause.detail


@pytest.mark.parametrize(("gradient", "is_cause"), [("[30000,64]", True), ("[64,10]", False)])
def test_products_with_one_hot_vectors(tmp_path: Path, gradient: str, *, is_cause: bool) -> None:
    ops = in_each_step(
        ("one_hot:OneHot", 0, 10), ("matmul:MatMul", 10, 40), ("gradient_tape/matmul/MatMul_1:MatMul", 40, 80)
    )
    arrays = [allocation("one_hot", "[64,30000]", 7_680_000), allocation("gradient_tape/matmul/MatMul_1", gradient, 9)]
    found = diagnosis(tmp_path, [*ops, *arrays])
    assert ("one_hot_product" in codes_of(found)) == is_cause, "labels are followed by some product too"
    if is_cause:
        cause = cause_of(found, "one_hot_product")
        assert cause.cost_percent == Range(80.0, 80.0)
        assert "an array [64,30000] of 7.68 MB" in cause.detail
        assert [action.code for action in cause.actions] == ["gather_rows"]


def test_a_dense_update_is_fused(tmp_path: Path) -> None:
    ops = in_each_step(("m/dense/MatMul:MatMul", 0, 40), ("adam/Sqrt_1:Sqrt", 40, 100))
    cause = diagnosis(tmp_path, [*ops, allocation("adam/Sqrt_1", "[1024,1024]", 4_194_304)]).causes[0]
    assert (cause.code, cause.cost_percent) == ("optimizer_update", Range(60.0, 60.0))
    assert [action.code for action in cause.actions] == ["fuse_update", "fewer_updates"]


LOOP = (
    ("ExecutorState::Process", 0, 100),
    ("map/TensorArrayUnstack/TensorListFromTensor:TensorListFromTensor", 10, 11),
    *(("map/while/body/_1/map/while/MatMul:MatMul", 12 + 8 * n, 13 + 8 * n) for n in range(8)),
    ("map/TensorArrayV2Stack/TensorListStack:TensorListStack", 79, 80),
)


def test_a_loop_over_examples_is_vectorized_and_not_given_a_larger_batch(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, in_each_step(LOOP[0], ("a:MatMul", 0, 10), *LOOP[1:]))
    cause = found.causes[0]
    assert (cause.code, cause.cost_percent) == ("loop_in_graph", Range(70.0, 90.0))
    assert cause.detail == "the loop in map runs at least 8 iterations per step, each with its own small ops"
    assert [action.code for action in cause.actions] == ["vectorize_loop"]
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
    assert "loop_in_graph" not in codes_of(found)


def test_a_loop_whose_iterations_leave_no_op_is_told_by_the_executor(tmp_path: Path) -> None:
    ends = [LOOP[1], LOOP[-1]]
    iterations = [("ExecutorState::Process", 12 + 4 * n, 14 + 4 * n) for n in range(16)]
    found = diagnosis(tmp_path, in_each_step(LOOP[0], ("a:MatMul", 0, 10), *ends, *iterations))
    cause = found.causes[0]
    assert (cause.code, cause.cost_percent) == ("loop_in_graph", Range(70.0, 90.0))
    assert cause.detail == "the loop in map runs many iterations per step, each with its own small ops"
    once = diagnosis(tmp_path, in_each_step(LOOP[0], ("a:MatMul", 0, 10), *ends))
    assert "loop_in_graph" not in codes_of(once)


def test_the_loop_of_a_recurrent_layer_is_named(tmp_path: Path) -> None:
    ops = [(name.replace("map/", "m/lstm_1/"), start, end) for name, start, end in LOOP]
    found = diagnosis(tmp_path, in_each_step(ops[0], ("a:MatMul", 0, 10), *ops[1:]))
    cause = found.causes[0]
    assert cause.code == "small_work_per_step"
    assert cause.detail.endswith("; the loop of lstm_1, over its time steps, takes 70.0%")
    assert "larger_batch" in [action.code for action in cause.actions]


def test_a_few_iterations_are_no_loop_over_examples(tmp_path: Path) -> None:
    assert "loop_in_graph" not in codes_of(diagnosis(tmp_path, in_each_step(*LOOP[:5], LOOP[-1])))


def test_float64(tmp_path: Path) -> None:
    ops = in_each_step(("matmul:MatMul", 0, 80), ("add:Add", 80, 100))
    found = diagnosis(tmp_path, [*ops, allocation("matmul", "[512,512]", 2_097_152, data_type=2)])
    cause = found.causes[0]
    # All that is allocated is float64, so that ops which allocate nothing are too.
    assert (cause.code, cause.cost_percent) == ("double_precision", Range(40.0, 80.0))
    assert cause.detail.startswith("matmul, add compute in 64 bit for 100.0% of it")
    (action,) = cause.actions
    assert action.step_ms is not None
    assert action.step_ms.low == pytest.approx(0.02)
    assert action.step_ms.high == pytest.approx(0.06)


def test_float32_is_not_float64(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, [*in_each_step(("matmul:MatMul", 0, 80)), allocation("matmul", "[512,512]", 1_048_576)])
    assert "double_precision" not in codes_of(found)
    assert "double_precision" not in found.unjudged
    assert "double_precision" in diagnosis(tmp_path, in_each_step(("matmul:MatMul", 0, 80))).unjudged


def update(*shapes: tuple[str, str, int]) -> list[Event]:
    ops = in_each_step(
        ("m/embedding/GatherV2:GatherV2", 0, 20),
        ("adam/UnsortedSegmentSum:UnsortedSegmentSum", 20, 50),
        ("adam/Sqrt_1:Sqrt", 50, 100),
    )
    return [*ops, *(allocation(*shape) for shape in shapes)]


def test_an_embedding_that_is_updated_in_all_rows(tmp_path: Path) -> None:
    cause = diagnosis(tmp_path, update(("adam/Sqrt_1", "[400000,64]", 102_400_000))).causes[0]
    assert (cause.code, cause.cost_percent) == ("optimizer_update", Range(80.0, 80.0))
    assert "[400000,64] (102 MB) is updated in all of its rows" in cause.detail
    assert [action.code for action in cause.actions] == ["sparse_update"]


def test_updates_of_small_variables_are_no_cause(tmp_path: Path) -> None:
    assert "optimizer_update" not in codes_of(diagnosis(tmp_path, update(("adam/Sqrt_1", "[400,64]", 102_400))))


@pytest.mark.parametrize(("shape", "is_cause"), [("[9216,512]", True), ("[512,9216]", False), ("[3,3,64,64]", False)])
def test_a_dense_layer_with_a_very_wide_input(tmp_path: Path, shape: str, *, is_cause: bool) -> None:
    ops = in_each_step(
        ("m/neck/MatMul:MatMul", 0, 30),
        ("gradient_tape/m/neck/MatMul/MatMul_1:MatMul", 30, 60),
        ("sgd/AssignSubVariableOp:AssignSubVariableOp", 60, 80),
        ("m/head/MatMul:MatMul", 80, 100),
    )
    found = diagnosis(tmp_path, [*ops, allocation("gradient_tape/m/neck/MatMul/MatMul_1", shape, 18_874_368)])
    assert ("dominant_layer" in codes_of(found)) == is_cause
    if is_cause:
        cause = cause_of(found, "dominant_layer")
        assert sentence_of(cause).startswith(
            "The layer neck takes 80.0% of the step: its weights are [9216,512] (18.9 MB)"
        )
        assert [(action.code, action.step_ms) for action in cause.actions] == [("smaller_layer", None)]


def test_one_slow_replica_is_not_communication(tmp_path: Path) -> None:
    first = in_each_step(("matmul:MatMul", 0, 10), ("CollectiveReduceV2:CollectiveReduceV2", 10, 100))
    second = in_each_step(("replica_1/matmul:MatMul", 0, 10), ("replica_1/EagerPyFunc:EagerPyFunc", 10, 90))
    found = diagnosis(tmp_path, first, second)
    cause = found.causes[0]
    assert (cause.code, cause.cost_percent) == ("slow_replica", Range(80.0, 80.0))
    assert cause.detail == (
        "the others wait for replica_1 in 5 of 5 steps; what it runs longer than they do is EagerPyFunc"
    )
    assert cause_of(found, "collectives").cost_percent == Range(10.0, 10.0)


def test_replicas_that_take_turns_are_not_slow(tmp_path: Path) -> None:
    first = in_each_step(("matmul:MatMul", 0, 40), ("CollectiveReduceV2:CollectiveReduceV2", 20, 80))
    second = in_each_step(("replica_1/matmul:MatMul", 40, 80))
    assert "slow_replica" not in codes_of(diagnosis(tmp_path, first, second))


@pytest.mark.parametrize(("cores", "is_cause"), [(2, True), (4, False)])
def test_far_more_threads_than_cores(tmp_path: Path, cores: int, *, is_cause: bool) -> None:
    names = tuple(f"tf_numa_-1_Eigen/{number}" for number in range(8))
    found = diagnosis(tmp_path, in_each_step(("matmul:MatMul", 0, 100)), names=names, cores=cores)
    assert ("too_many_threads" in codes_of(found)) == is_cause
    if is_cause:
        cause = found.causes[0]
        assert cause.detail == "pools of 1 threads that run ops and 8 inside ops share 2 cores"
        assert [(action.code, action.step_ms) for action in cause.actions] == [("set_threads", None)]


def test_evaluation_has_its_own_ops(tmp_path: Path) -> None:
    marks = [event(kind, 100 * n, 100, step_num=n) for n, kind in enumerate(["train"] * 5 + ["eval"] * 5)]
    ops = in_each_step(("matmul:MatMul", 0, 100))
    ops += [event("PyFunc:PyFunc", 500 + 100 * n, 50) for n in range(5)]
    host = plane("/host:CPU", line("python", *marks), line("tf_Compute/1", *ops, id=2))
    found: Diagnosis = results_of(trace_of(tmp_path, host))["diagnosis"]
    cause = cause_of(found, "python_in_graph")
    assert (cause.kind, cause.cost_percent) == ("eval", Range(50.0, 50.0))
    assert [each.name for each in found.computed] == ["matmul"]
