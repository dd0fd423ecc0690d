"""Whole reports of the reference, to the letter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tfprof_builders import REFERENCE, model, node, reference_model

from tfperf.models.tfprof.options import options_from
from tfperf.models.tfprof.reference import reference_report


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reports of the reference are not beside the project")
@pytest.mark.parametrize("name", ["mnist", "mnist_res"])
def test_reports_of_the_reference(name: str) -> None:
    of = reference_model(name, "graph")
    compared = 0
    for path in sorted((REFERENCE / name).glob("*.opts.json")):
        options = json.loads(path.read_text())
        kind = options["output"].partition(":")[0]
        if kind not in ("stdout", "file") or path.name.startswith("op_cpu0"):
            continue  # op_cpu0 asks for the device CPU:0, which matches nothing in the reference (D5)
        run = path.name.removesuffix(".opts.json")
        view = "scope" if run.startswith("ex2") else run.partition("_")[0]
        expected = path.with_name(f"{view}.out.txt" if kind == "file" else f"{run}.stdout.txt").read_text()
        to_file = "file" if kind == "file" else ""
        written = reference_report(of, view, options_from(options), quirks=True, to_file=to_file)  # type: ignore[arg-type]
        # The reference sorts lines of code so that equal ones come in any order.
        same = sorted(written.splitlines()) == sorted(expected.splitlines()) if view == "code" else written == expected
        assert same, run
        compared += 1
    assert compared > 20


def test_a_report_of_a_small_model(tmp_path: Path) -> None:
    of = model(tmp_path, [node("a", "VariableV2", variable=[2, 3])])
    options = options_from({"select": ["params"], "max_depth": 5, "order_by": "params"})
    assert (
        reference_report(of, "scope", options, quirks=False, to_file="x")
        == """
Doc:
scope: The nodes in the model graph are organized by their names, which is hierarchical like filesystem.
param: Number of parameters (in the Variable).

Profile:
node name | # parameters
_TFProfRoot (--/6 params)
  a (2x3, 6/6 params)
"""
    )
    whole = reference_report(of, "scope", options, quirks=False).splitlines()
    assert whole[2:4] == ["-max_depth                  5", "-min_bytes                  0"]
    assert whole[-2:] == ["", "======================End of Report=========================="]
