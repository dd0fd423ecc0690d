"""`tfperf lint`, as a user calls it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from lint_builders import fed, graph, op
from printed import Run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "graph.pb"
    nodes = [fed("x", -1, 56, 56, 20), fed("k", 3, 3, 20, 60), op("c", "Conv2D", "x", "k", out=(-1, 56, 56, 60))]
    path.write_bytes(graph(*nodes, op("r", "Multinomial", out=(4, 3))))
    return path


def test_the_answer_comes_first(model: Path, run_tfperf: Run) -> None:
    result = run_tfperf("lint", model, "--batch", "30")
    assert result.exit_code == 0
    first, *_ = result.stdout.splitlines()
    assert first.startswith("!! 2 findings in 2 ops evaluated (1 high, 1 medium), 2 not evaluable")
    assert "30x56x56x20  32x56x56x128" in result.stdout
    assert "The graph does not specify a device" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_open_dimensions_are_listed(model: Path, run_tfperf: Run) -> None:
    report = json.loads(run_tfperf("lint", model, "--format", "json").stdout)
    assert report["summary"] == {
        "findings": 1, "high": 0, "medium": 1, "low": 0, "info": 0, "evaluated_ops": 1, "not_evaluable_ops": 3
    }  # fmt: skip
    tables = report["sections"]["lint"]["tables"]
    assert [row["ops"] for row in tables["lint_not_evaluable"]["rows"]] == ["c", "x, k"]


def test_findings_as_important_as_the_limit_are_exit_code_3(model: Path, run_tfperf: Run) -> None:
    for limit in ("high", "info"):
        assert run_tfperf("lint", model, "--batch", "30", "--fail-on", limit).exit_code == 3
    assert run_tfperf("lint", model, "--rule", "TPU-RN-1", "--fail-on", "high").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("--rule", "TPU-XX-1"), 2, "'TPU-XX-1' is not a rule"),
        (("--batch", "0"), 2, "Invalid value for '--batch'"),
        (("--device", "npu"), 2, "Invalid value for '--device'"),
        (("--supported-ops", "none.txt"), 1, "cannot open none.txt"),
        (("-o", "report.xyz"), 2, "unknown suffix .xyz"),
    ],
)
def test_wrong_usage_is_one_line(model: Path, run_tfperf: Run, arguments: tuple[str, ...], code: int, why: str) -> None:
    result = run_tfperf("lint", model, *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert why in result.stderr


def test_what_is_no_graph_is_exit_code_1(tmp_path: Path, run_tfperf: Run) -> None:
    (tmp_path / "odd.pb").write_bytes(b"\x0a\xff\xff")
    for path in (tmp_path / "odd.pb", tmp_path, tmp_path / "none"):
        result = run_tfperf("lint", path)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.stderr


def test_nothing_that_can_be_judged_is_exit_code_1(tmp_path: Path, run_tfperf: Run) -> None:
    path = tmp_path / "graph.pb"
    path.write_bytes(graph(fed("x", -1, 3), op("s", "Softmax", "x", out=(-1, 3))))
    result = run_tfperf("lint", path)
    assert result.exit_code == 1
    assert "0 findings in 0 ops evaluated, 1 not evaluable because" in result.stdout


def test_formats_of_ci_systems(model: Path, tmp_path: Path, run_tfperf: Run) -> None:
    junit = tmp_path / "lint.xml"
    assert run_tfperf("lint", model, "--batch", "30", "--format", "junit", "-o", junit).exit_code == 0
    assert 'failures="2"' in junit.read_text()
    again = run_tfperf("lint", model, "--format", "junit", "-o", junit)
    assert (again.exit_code, "exists" in again.stderr) == (1, True)
    lines = run_tfperf("lint", model, "--batch", "30", "--format", "github", "--fail-on", "high").stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning"]


def test_tables_in_files(model: Path, tmp_path: Path, run_tfperf: Run) -> None:
    path = tmp_path / "lint.csv"
    assert run_tfperf("lint", model, "--batch", "30", "-o", path).exit_code == 0
    assert "TPU-CV-1" in path.read_text()
    assert any("32x56x56x128" in cell for row in csv.reader(path.read_text().splitlines()) for cell in row)


def test_ops_that_are_not_in_a_list(model: Path, tmp_path: Path, run_tfperf: Run) -> None:
    path = tmp_path / "ops.txt"
    path.write_text("Conv2D\n")
    result = run_tfperf("lint", model, "--supported-ops", path, "--fail-on", "high")
    assert result.exit_code == 3
    assert "Multinomial is not in the list of supported ops" in " ".join(result.stdout.split())
