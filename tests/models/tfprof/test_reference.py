"""The text of tfprof, to the letter: as the reference wrote it for these options, graphs and runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tfprof_builders import CPU, REFERENCE, model, node, ran, reference_model, run_metadata, text_rows

from tfperf.models.tfprof.options import Options, options_from
from tfperf.models.tfprof.reference import ModelText, bytes_text, reference_report, scaled, time_text

SETS = ("mnist", "mnist_res", "loop", "synth_gpu")


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reports of the reference are not beside the project")
@pytest.mark.parametrize("way", ["graph", "profile"])
@pytest.mark.parametrize("name", SETS)
def test_reports_of_the_reference(name: str, way: str) -> None:
    of = reference_model(name, way)
    different = []
    for number, line in enumerate((REFERENCE / "golden" / f"tfprof_{name}.jsonl").read_text().splitlines()):
        record = json.loads(line)
        written = text_rows(of, record["view"], options_from(record["options"]))
        # The reference sorts lines of code so that equal ones come in any order.
        same = sorted(written) == sorted(record["lines"]) if record["view"] == "code" else written == record["lines"]
        if not same:
            different.append(number)
    assert not different


def options(**given: Any) -> Options:
    return options_from({"max_depth": 100, **given})


def test_shapes_of_inputs_are_those_of_their_outputs(tmp_path: Path) -> None:
    """The reference takes the first output whatever is written (D1)."""
    nodes = [node("s", "Split", outputs=[[2], [3, 4]]), node("y", "Relu", "s:1", "s", "s:7")]
    of = model(tmp_path, nodes)
    place = of.names.index("y")
    assert ModelText(of).inputs(place) == "0:3x4|1:2|2:unknown"
    assert ModelText(of, quirks=True).inputs(place) == "0:2|1:2|2:2"


def test_shares_of_times_that_cancel_each_other(tmp_path: Path) -> None:
    of = model(tmp_path, [node("a", "A"), node("b", "B")], {0: run_metadata({CPU: [ran("a", 1, -5), ran("b", 1, 5)]})})
    assert [line.split()[:3] for line in text_rows(of, "op", options(select=["cpu_micros"]))] == [
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
