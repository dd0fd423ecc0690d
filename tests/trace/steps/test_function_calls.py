"""Which function an op runs for: by what is around it, on its thread or through the id of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import Line, event, line, plane, trace_of

from tfperf.trace.host.host_ops import EAGERLY, OF_INPUT, function_calls


def functions(folder: Path, *lines: Line) -> dict[str, str]:
    """Return the function of each event by its name, of those that have one."""
    trace = trace_of(folder, plane("/host:CPU", *lines))
    calls = function_calls(trace)
    found = calls.of(np.arange(len(trace.name)))
    names = [trace.names[name] for name in trace.name.tolist()]
    return {name: calls.names[index] for name, index in zip(names, found.tolist(), strict=True) if index >= 0}


def test_executors_work_for_the_function_whose_run_has_their_id(tmp_path: Path) -> None:
    python = line(
        "python",
        event("EagerLocalExecute: __inference_train_step_12", 0, 100),
        event("FunctionRun", 10, 80, id=7),
        event("EagerLocalExecute: MatMul", 200, 10),
        event("eager:MatMul", 201, 5),
        event("none:Add", 300, 5),
    )
    worker = line(
        "worker",
        event("ExecutorState::Process", 20, 50, id=7),
        event("a/MatMul:MatMul", 30, 10),
        event("ExecutorState::Process", 80, 10, id=99),
        event("unknown:Relu", 81, 5),
    )
    found = functions(tmp_path, python, worker)
    assert found["a/MatMul:MatMul"] == found["FunctionRun"] == "train_step"
    assert found["eager:MatMul"] == EAGERLY
    assert "none:Add" not in found
    assert "unknown:Relu" not in found


def test_functions_of_tf_data_have_no_name_of_their_own(tmp_path: Path) -> None:
    data = line("tf_data", event("InstantiatedCapturedFunction::Run", 0, 50, id=3))
    worker = line("worker", event("ExecutorState::Process", 5, 30, id=3), event("DecodeJpeg:DecodeJpeg", 6, 20))
    assert functions(tmp_path, data, worker)["DecodeJpeg:DecodeJpeg"] == OF_INPUT


def test_the_innermost_call_counts(tmp_path: Path) -> None:
    python = line(
        "python",
        event("PjitFunction(outer)", 0, 100),
        event("PjitFunction(inner)", 10, 50),
        event("dot:", 20, 10),
        event("add:", 70, 10),
    )
    found = functions(tmp_path, python)
    assert (found["dot:"], found["add:"]) == ("inner", "outer")


def test_rows_may_be_asked_for_in_any_order_and_none(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, plane("/host:CPU", line("python", event("PjitFunction(f)", 0, 9), event("dot:", 1, 2))))
    calls = function_calls(trace)
    assert calls.of(np.array([1, -1, 0, 1])).tolist() == [0, -1, 0, 0]
    assert calls.of(np.array([], np.int64)).tolist() == []
