"""What a view returns: rows with fields, below each other, and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfprof_builders import CPU, model, node, op_log, ran, run_metadata

from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import options_from
from tfperf.models.tfprof.profiler import profile_model

ALL = options_from({"max_depth": 100})


def loop(folder: Path) -> Model:
    """A variable and a product that ran twice in its step, of which the second came from another line."""
    nodes = [
        node("layer/kernel", "VariableV2", variable=[8, 2]),
        node("layer/MatMul", "MatMul", "layer/kernel"),
        node("layer/more", "MatMul", "layer/MatMul"),
    ]
    recorded = [ran("layer/MatMul", 10, 4, memory=500), ran("layer/MatMul", 20, 6), ran("layer/more", 30, 1)]
    stack = [("main.py", 3, "<module>")]
    log: dict[str, dict[str, Any]] = {"layer/MatMul": {"float_ops": 10, "stack": stack}, "layer/more": {"stack": stack}}
    return model(folder, nodes, {0: run_metadata({CPU: recorded})}, op_log(log))


def test_rows_of_scopes_are_below_each_other(tmp_path: Path) -> None:
    root = profile_model(loop(tmp_path), "scope", ALL)
    assert [(row.depth, row.name) for row in root.rows()] == [
        (0, "_TFProfRoot"),
        (1, "layer"),
        (2, "layer/MatMul"),
        (2, "layer/kernel"),
        (2, "layer/more"),
    ]
    product, kernel, _ = root.children[0].children
    assert (product.exec_micros, product.run_count, product.float_ops, product.requested_bytes) == (10, 2, 20, 500)
    assert product.devices == (CPU.lower(),)
    assert (kernel.parameters, kernel.shape, kernel.devices) == (16, (8, 2), ())
    assert (root.total_run_count, root.children[0].total_definition_count) == (3, 4)


def test_ops_follow_each_other_and_name_their_nodes(tmp_path: Path) -> None:
    root = profile_model(loop(tmp_path), "op", options_from({"order_by": "micros"}))
    first = root.children[0]
    assert [row.name for row in root.rows()] == ["_TFProfRoot", "MatMul", "VariableV2"]
    assert [each.name for each in first.graph_nodes] == ["layer/MatMul", "layer/more"]
    assert (first.exec_micros, first.total_exec_micros, root.total_exec_micros) == (11, 11, 11)
    assert [each.name for each in first.children] == ["VariableV2"]


def test_lines_of_code_name_the_nodes_that_they_built(tmp_path: Path) -> None:
    (line,) = profile_model(loop(tmp_path), "code", ALL).children
    assert (line.name, line.total_exec_micros) == ("main.py:3:<module>", 11)
    assert [each.name for each in line.graph_nodes] == ["layer/MatMul", "layer/more"]


def test_a_result_is_a_table_and_has_one_line(tmp_path: Path) -> None:
    root = profile_model(loop(tmp_path), "scope", ALL)
    table = root.table
    assert table["name"].tolist()[:2] == ["_TFProfRoot", "layer"]
    assert table["total_parameters"].tolist() == [16, 16, 0, 16, 0]
    assert repr(root) == "ProfileNode('_TFProfRoot', 4 rows below)"
