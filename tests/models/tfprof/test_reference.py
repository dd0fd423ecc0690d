"""The text of tfprof, to the letter: as the reference wrote it for these options, graphs and runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tfprof_builders import CPU, REFERENCE, model, node, op_log, ran, reference_model, run_metadata

from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import Options, options_from
from tfperf.models.tfprof.reference import (
    ModelText,
    bytes_text,
    op_rows,
    reference_report,
    scaled,
    time_text,
    tree_rows,
)
from tfperf.models.tfprof.views import View, show_ops, show_tree

SETS = ("mnist", "mnist_res", "loop", "synth_gpu")


def rows(of: Model, view: View, options: Options, *, quirks: bool = False) -> list[str]:
    text = ModelText(of, quirks=quirks)
    if view == "op":
        return [*op_rows(show_ops(of, options), options, text, of.values(options.step))]
    return [*tree_rows(show_tree(of, view, options), view, options, text)]


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reports of the reference are not beside the project")
@pytest.mark.parametrize("way", ["graph", "profile"])
@pytest.mark.parametrize("name", SETS)
def test_reports_of_the_reference(name: str, way: str) -> None:
    of = reference_model(name, way)
    different = []
    for number, line in enumerate((REFERENCE / "golden" / f"tfprof_{name}.jsonl").read_text().splitlines()):
        record = json.loads(line)
        written = rows(of, record["view"], options_from(record["options"]), quirks=True)
        # The reference sorts lines of code so that equal ones come in any order.
        same = sorted(written) == sorted(record["lines"]) if record["view"] == "code" else written == record["lines"]
        if not same:
            different.append(number)
    assert not different


@pytest.fixture
def small(tmp_path: Path) -> Model:
    """A layer with a variable, of which two steps were recorded."""
    nodes = [
        node("x", "Placeholder", outputs=[[4, 8]], variable=[4, 8]),
        node("layer/kernel", "VariableV2", outputs=[[8, 2]], variable=[8, 2]),
        node("layer/MatMul", "MatMul", "x", "layer/kernel", outputs=[[4, 2]]),
        node("layer/Relu", "Relu", "layer/MatMul", outputs=[[4, 2]]),
    ]
    steps = {
        1: run_metadata({CPU: [ran("layer/MatMul", 10, 30, memory=1000, output=1500), ran("layer/Relu", 40, 5)]}),
        2: run_metadata({CPU: [ran("layer/MatMul", 10, 51, memory=1000, output=1500)]}),
    }
    log = op_log(
        {
            "layer/kernel": {"types": ["_trainable_variables"], "stack": [("a/main.py", 3, "<module>")]},
            "layer/MatMul": {"float_ops": 128, "stack": [("a/main.py", 3, "<module>"), ("b/nn.py", 7, "dense")]},
        }
    )
    return model(tmp_path, nodes, steps, log)


def options(**given: Any) -> Options:
    return options_from({"max_depth": 100, **given})


def test_the_scope_view_of_a_small_model(small: Model) -> None:
    assert rows(small, "scope", options(select=["micros", "bytes", "params"])) == [
        "_TFProfRoot (--/48 params, --/1.00KB, --/45us, --/0us, --/45us)",
        "  layer (0/16 params, 0B/1.00KB, 0us/45us, 0us/0us, 0us/45us)",
        "    layer/MatMul (0/0 params, 1.00KB/1.00KB, 40us/40us, 0us/0us, 40us/40us)",
        "    layer/Relu (0/0 params, 0B/0B, 5us/5us, 0us/0us, 5us/5us)",
        "    layer/kernel (8x2, 16/16 params, 0B/0B, 0us/0us, 0us/0us, 0us/0us)",
        "  x (4x8, 32/32 params, 0B/0B, 0us/0us, 0us/0us, 0us/0us)",
    ]


def test_the_graph_view_of_a_small_model(small: Model) -> None:
    select = ["occurrence", "float_ops", "input_shapes", "op_types"]
    assert rows(small, "graph", options(select=select, step=2)) == [
        "_TFProfRoot (--/128 flops, _TFGraphParent, --/1|--/4, )",
        f"  layer/Relu (0/128 flops, {CPU.lower()}|Relu, 0/1|1/4, 0:4x2)",
        f"    layer/MatMul (128/128 flops, {CPU.lower()}|MatMul, 1/1|1/3, 0:4x8|1:8x2)",
        "      layer/kernel (0/0 flops, VariableV2|_trainable_variables, 0/0|1/1, )",
        "      x (0/0 flops, Placeholder, 0/0|1/1, )",
    ]


def test_the_op_view_of_a_small_model(small: Model) -> None:
    given = options(select=["micros", "occurrence"], order_by="micros", min_micros=1)
    assert rows(small, "op", given) == [
        "MatMul                           40us (100.00%, 88.89%),             0us (0.00%, 0.00%),"
        "         40us (100.00%, 88.89%),        1|1",
        "Relu                               5us (11.11%, 11.11%),             0us (0.00%, 0.00%),"
        "           5us (11.11%, 11.11%),        1|1",
    ]


def test_the_op_view_lists_all_shapes_of_inputs(small: Model) -> None:
    assert rows(small, "op", options(select=["input_shapes"], account_type_regexes=["MatMul|Placeholder"])) == [
        f"{'MatMul':25}",
        "",
        "input_type: 0:4x8,\t1:8x2\t(run*1|defined*1)\texec_time: 40us",
        "",
        f"{'Placeholder':25}",
        "",
        "input_type: \t(run*0|defined*1)\texec_time: 0us",
        "",
    ]


def test_the_code_view_of_a_small_model(small: Model) -> None:
    assert rows(small, "code", options(select=["cpu_micros", "params"])) == [
        "_TFProfRoot (--/40us, --/16 params)",
        "  main.py:3:<module> (0us/40us, 16/16 params)",
        "    nn.py:7:dense (40us/40us, 0/0 params)",
    ]


def test_shapes_of_inputs_are_those_of_their_outputs(tmp_path: Path) -> None:
    """The reference takes the first output whatever is written (D1)."""
    nodes = [node("s", "Split", outputs=[[2], [3, 4]]), node("y", "Relu", "s:1", "s", "s:7")]
    of = model(tmp_path, nodes)
    place = of.names.index("y")
    assert ModelText(of).inputs(place) == "0:3x4|1:2|2:unknown"
    assert ModelText(of, quirks=True).inputs(place) == "0:2|1:2|2:2"


def test_shares_of_times_that_cancel_each_other(tmp_path: Path) -> None:
    of = model(tmp_path, [node("a", "A"), node("b", "B")], {0: run_metadata({CPU: [ran("a", 1, -5), ran("b", 1, 5)]})})
    assert [line.split()[:3] for line in rows(of, "op", options(select=["cpu_micros"]))] == [
        ["A", "-5us", "(0.00%,"],
        ["B", "5us", "(0.00%,"],
    ]


NUMBERS: list[tuple[Callable[[int], str], dict[int, str]]] = [
    (scaled, {0: "0", 999: "999", 1000: "1.00k", 2_345_678: "2.35m", 5 * 10**9: "5.00b"}),
    (time_text, {999: "999us", 1500: "1.50ms", 2_000_000: "2.00sec"}),
    (bytes_text, {999: "999B", 1000: "1.00KB", 5 * 10**9: "5000.00MB"}),
]


@pytest.mark.parametrize(("written", "expected"), NUMBERS)
def test_numbers(written: Callable[[int], str], expected: dict[int, str]) -> None:
    assert {number: written(number) for number in expected} == expected


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reports of the reference are not beside the project")
@pytest.mark.parametrize("name", ["mnist", "mnist_res"])
def test_whole_reports_of_the_reference(name: str) -> None:
    of = reference_model(name, "graph")
    compared = 0
    for path in sorted((REFERENCE / name).glob("*.opts.json")):
        given = json.loads(path.read_text())
        kind = given["output"].partition(":")[0]
        if kind not in ("stdout", "file") or path.name.startswith("op_cpu0"):
            continue  # op_cpu0 asks for the device CPU:0, which matches nothing in the reference (D5)
        run = path.name.removesuffix(".opts.json")
        view = "scope" if run.startswith("ex2") else run.partition("_")[0]
        expected = path.with_name(f"{view}.out.txt" if kind == "file" else f"{run}.stdout.txt").read_text()
        to_file = "file" if kind == "file" else ""
        written = reference_report(of, view, options_from(given), quirks=True, to_file=to_file)  # type: ignore[arg-type]
        # The reference sorts lines of code so that equal ones come in any order.
        same = sorted(written.splitlines()) == sorted(expected.splitlines()) if view == "code" else written == expected
        assert same, run
        compared += 1
    assert compared > 20


def test_a_report_of_a_small_model(tmp_path: Path) -> None:
    of = model(tmp_path, [node("a", "VariableV2", variable=[2, 3])])
    given = options(select=["params"], max_depth=5, order_by="params")
    written = """
Doc:
scope: The nodes in the model graph are organized by their names, which is hierarchical like filesystem.
param: Number of parameters (in the Variable).

Profile:
node name | # parameters
_TFProfRoot (--/6 params)
  a (2x3, 6/6 params)
"""
    assert reference_report(of, "scope", given, quirks=False, to_file="x") == written
    whole = reference_report(of, "scope", given, quirks=False).splitlines()
    assert whole[2:4] == ["-max_depth                  5", "-min_bytes                  0"]
    assert whole[-2:] == ["", "======================End of Report=========================="]
