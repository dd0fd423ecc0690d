"""`tfperf tfprof`: options, inputs, and what goes wrong with them."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest
from places import SAMPLES
from printed import Run
from tfprof_builders import CPU, graph, node, op_log, ran, run_metadata

SHOWN = dict.fromkeys(("table", "markdown", "tfprof", "html"), "4.00") | dict.fromkeys(("json", "csv"), "4.0")
"""The mean time of the only op that ran, as each format writes it."""
VIEWS = ("scope", "graph", "op", "code")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a graph, records of two steps, and a log, which is the current one."""
    nodes = [
        node("x", "Placeholder", outputs=[[4, 8]], variable=[4, 8]),
        node("layer/kernel", "VariableV2", outputs=[[8, 2]], variable=[8, 2]),
        node("layer/MatMul", "MatMul", "x", "layer/kernel", outputs=[[4, 2]]),
    ]
    stack = [("project/main.py", 3, "<module>"), ("venv/site-packages/nn.py", 7, "dense")]
    (tmp_path / "graph.pb").write_bytes(graph(*nodes))
    (tmp_path / "log").write_bytes(op_log({"layer/MatMul": {"float_ops": 128, "stack": stack}}))
    for step, micros in ((10, 3000), (20, 5000)):
        recorded = run_metadata({CPU: [ran("layer/MatMul", 10, micros, memory=1000)]})
        (tmp_path / f"run_metadata_{step}.pb").write_bytes(recorded)
    monkeypatch.chdir(tmp_path)
    return tmp_path


FILES = ("--graph", "graph.pb", "--run-meta", "run_metadata_*.pb", "--op-log", "log")
MODEL = (*FILES, "--skip-first", "0")


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_in_each_format(files: Path, run_tfperf: Run, view: str) -> None:
    for name in ("table", "json", "csv", "markdown", "html", "tfprof"):
        result = run_tfperf("tfprof", view, *MODEL, "--format", name)
        assert result.exit_code == 0, result.output
        assert SHOWN[name] in result.stdout, name


def test_steps_are_chosen_by_number_and_averaged(files: Path, run_tfperf: Run) -> None:
    def time_ms(*more: str) -> float:
        shown = json.loads(run_tfperf("tfprof", "op", *MODEL, "--format", "json", *more).stdout)
        return float(shown["summary"]["time_ms"])

    assert (time_ms("--step", "10"), time_ms("--step", "20"), time_ms()) == (3.0, 5.0, 4.0)
    assert time_ms("--skip-first", "1") == 5.0
    result = run_tfperf("tfprof", "op", *MODEL, "--step", "11")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: step 11 was not recorded: use one of 10, 20, or -1 for their mean\n",
    )


def test_a_mean_omits_the_first_recorded_step_and_says_so(files: Path, run_tfperf: Run) -> None:
    def of_report(*more: str) -> tuple[float, str]:
        shown = json.loads(run_tfperf("tfprof", "op", *FILES, "--format", "json", *more).stdout)
        return shown["summary"]["time_ms"], shown["source"]["step"]

    assert of_report() == (5.0, "20; --skip-first 0 includes the first")
    assert of_report("--skip-first", "0") == (4.0, "mean of 2 recorded steps (10 to 20)")
    assert of_report("--step", "10") == (3.0, "10")
    assert "4.00ms" in run_tfperf("tfprof", "scope", *FILES, "--format", "tfprof").stdout
    drawn = run_tfperf("tfprof", "scope", *FILES, "-o", "flame=a.html")
    assert "the mean excludes the first recorded step; --skip-first 0 includes it" in drawn.stderr
    Path("run_metadata_10.pb").unlink()
    assert of_report() == (5.0, "20")


def test_the_code_view_shows_the_lines_of_users(files: Path, run_tfperf: Run) -> None:
    shown = run_tfperf("tfprof", "code", *MODEL).stdout
    assert "main.py:3:<module>" in shown
    assert "nn.py" not in shown
    assert "nn.py:7:dense" in run_tfperf("tfprof", "code", *MODEL, "--all-frames").stdout


def test_parameters_are_those_of_variables(files: Path, run_tfperf: Run) -> None:
    result = run_tfperf("tfprof", "scope", *MODEL, "--select", "params", "--format", "csv")
    rows = list(csv.DictReader(line for line in result.stdout.splitlines() if not line.startswith("#")))
    assert {row["node"]: row["params"] for row in rows} == {
        "x": "0", "layer": "16", "layer/kernel": "16", "layer/MatMul": "0"
    }  # fmt: skip


def test_without_a_log_all_variables_count_and_that_is_said(files: Path, run_tfperf: Run) -> None:
    note = "No log lists the trained variables"
    assert note in run_tfperf("tfprof", "scope", *MODEL, "--select", "params").stdout
    assert note not in run_tfperf("tfprof", "scope", *MODEL, "--select", "micros").stdout
    (files / "log").write_bytes(op_log({"layer/kernel": {"types": ["_trainable_variables"]}}))
    assert note not in run_tfperf("tfprof", "scope", *MODEL, "--select", "params").stdout


def test_a_saved_model_is_a_folder(files: Path, run_tfperf: Run) -> None:
    (files / "saved").mkdir()
    (files / "graph.pb").rename(files / "saved" / "saved_model.pb")
    assert "kernel" in run_tfperf("tfprof", "scope", "--graph", "saved").stdout


def test_options_from_a_preset_a_file_and_the_command(files: Path, run_tfperf: Run) -> None:
    (files / "options.json").write_text('{"maxDepth": "3", "select": ["params"], "order_by": "name"}')
    preset = ("--preset", "time-and-memory", "-c", "options.json", "--max-depth", "7", "--format", "tfprof")
    lines = run_tfperf("tfprof", "scope", *MODEL, *preset).stdout.splitlines()
    options = {line[:28].strip(): line[28:] for line in lines if line.startswith("-")}
    assert (options["-max_depth"], options["-select"], options["-order_by"]) == ("7", "params", "name")
    assert (options["-min_micros"], options["-account_displayed_op_only"]) == ("1", "true")


WRONG = [
    (("--select", "speed"), "select 'speed' is unknown: use one or more of accelerator_micros, bytes"),
    (("--order-by", "speed"), "order_by 'speed' is unknown: use one of name, bytes"),
    (("--preset", "all"), "--preset 'all' is unknown: use one of parameters, float-operations, time-and-memory"),
    (("--show-name-regexes", "(a"), "show_name_regexes: '(a' is not a regular expression"),
    (("--hide-name-regexes", "(?=a)"), "hide_name_regexes: '(?=a)' is not a regular expression"),
    (("-o", "pprof=x.pb.gz"), "the scope view has no pprof: use code"),
    (("-o", "timeline"), "output 'timeline' has no file: use timeline=FILE"),
    (("-o", "chrome:outfile=x"), "output 'chrome:outfile=x' is unknown: use stdout, none, or file, timeline"),
    (("-c", "graph.pb"), "graph.pb is not JSON"),
    (("-c", "none.json"), "cannot open none.json: No such file or directory"),
    (("--run-meta", "none_*.pb"), "no file matches 'none_*.pb'"),
    (("--run-meta", "30=graph.pb"), "graph.pb is a TensorFlow graph (GraphDef), not a RunMetadata"),
    (("--profile", "graph.pb"), "--profile includes everything: omit --graph"),
    (("--step", "-2"), "step -2 does not exist: use the number of a recorded step, or -1 for their mean"),
]


@pytest.mark.parametrize(
    ("more", "error"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_what_is_wrong_is_said_in_one_line(files: Path, run_tfperf: Run, more: tuple[str, ...], error: str) -> None:
    result = run_tfperf("tfprof", "scope", *MODEL, *more)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"Error: {error}"), result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout


def test_damaged_files_are_named(files: Path, run_tfperf: Run) -> None:
    whole = (files / "run_metadata_10.pb").read_bytes()
    for damaged in (b"", whole[:-7], b"\xff" * 40):
        (files / "run_metadata_10.pb").write_bytes(damaged)
        result = run_tfperf("tfprof", "op", *MODEL)
        assert result.exit_code == 2
        assert result.stderr.startswith("Error: run_metadata_10.pb is ")
        assert result.stderr.count("\n") == 1


def test_reports_are_written_and_nothing_is_replaced(files: Path, run_tfperf: Run) -> None:
    assert run_tfperf("tfprof", "scope", *MODEL, "-o", "view.json").exit_code == 0
    assert json.loads((files / "view.json").read_text())["summary"]["view"] == "scope"
    again = run_tfperf("tfprof", "scope", *MODEL, "-o", "view.json")
    assert (again.exit_code, again.stderr) == (1, "Error: view.json exists; pass --force to replace it\n")
    text = run_tfperf("tfprof", "scope", *MODEL, "--format", "tfprof", "-o", "file=view.txt")
    assert text.stderr == "wrote view.txt: file\n"
    assert (files / "view.txt").read_text().startswith("\nDoc:\nscope: ")
    assert run_tfperf("tfprof", "scope", *MODEL, "-o", "none").stdout == ""


def test_the_lines_of_code_are_written_for_pprof(files: Path, run_tfperf: Run) -> None:
    result = run_tfperf("tfprof", "code", *MODEL, "-o", "pprof=code.pb.gz")
    assert (result.exit_code, result.stderr) == (0, "wrote code.pb.gz: pprof\n")
    assert b"main.py" in gzip.decompress((files / "code.pb.gz").read_bytes())


def test_timelines_and_flame_graphs_are_written(files: Path, run_tfperf: Run) -> None:
    result = run_tfperf("tfprof", "graph", *MODEL, "--step", "10", "-o", "timeline=graph.json")
    assert (result.exit_code, result.stderr) == (0, "wrote graph.json: timeline\n")
    events = json.loads((files / "graph.json").read_text())["traceEvents"]
    assert [event["dur"] for event in events if event["ph"] == "X"] == [3000]
    assert run_tfperf("tfprof", "code", *MODEL, "-o", "flame=code.html").stderr == "wrote code.html: flame\n"
    assert "main.py:3" in (files / "code.html").read_text()
    assert run_tfperf("tfprof", "op", *MODEL, "-o", "flame=op.html").exit_code == 2


def test_a_folder_of_the_collector_needs_no_options(files: Path, run_tfperf: Run) -> None:
    (files / "log").rename(files / "tfprof_log")
    assert "layer" in run_tfperf("tfprof", "scope", ".").stdout
    assert "omit --graph" in run_tfperf("tfprof", "scope", ".", "--graph", "graph.pb").stderr


def test_a_profile_of_tensorflow_2_has_scopes_and_kernels(run_tfperf: Run) -> None:
    trace = SAMPLES / "input_bound"
    shown = run_tfperf("tfprof", "op", trace)
    assert shown.exit_code == 0, shown.stderr
    assert "DecodeJpeg" in shown.stdout
    assert "note: Op types are the types of the kernels that ran" in shown.stdout
    code = run_tfperf("tfprof", "code", trace)
    assert (code.exit_code, code.stdout) == (2, "")
    assert code.stderr.startswith("Error: the profile has no Python frames, so the code view is not available: ")
    assert run_tfperf("tfprof", "scope", trace, "--select", "params").exit_code == 2
    assert "omit --profile" in run_tfperf("tfprof", "op", trace, "--profile", "x").stderr


def test_values_of_variables_come_from_the_checkpoint(run_tfperf: Run) -> None:
    collected = SAMPLES / "tfprof_mlp" / "collected"
    asked = ("tfprof", "scope", collected, "--preset", "parameters", "--select", "params,tensor_value")
    assert "hidden1/kernel" in run_tfperf(*asked).stdout.partition("Values of variables")[2]
    (section,) = json.loads(run_tfperf(*asked, "--format", "json").stdout)["sections"].values()
    values = section["tables"]["tensor_values"]
    assert values["total_rows"] == 6
    assert all(row["min"] <= row["mean"] <= row["max"] for row in values["rows"])
    result = run_tfperf("tfprof", "scope", "--graph", collected / "graph.pb", "--select", "tensor_value")
    assert result.stderr == "Error: tensor_value requires the values of variables: pass --checkpoint\n"


def test_the_first_line_names_the_row_with_the_most_of_what_is_shown(files: Path, run_tfperf: Run) -> None:
    def first(*more: str) -> str:
        return run_tfperf("tfprof", "scope", *MODEL, "--select", "micros", *more).stdout.splitlines()[5]

    assert first() == " i layer/MatMul takes 100.0% of the time: 4.00 ms of 4.00 ms"
    assert first("--max-depth", "2") == " i layer takes 100.0% of the time: 4.00 ms of 4.00 ms"


def test_what_is_not_shown_is_said(files: Path, run_tfperf: Run) -> None:
    records = [ran("layer/MatMul", 10, 3000), ran("x", 10, 1000)]
    (files / "run_metadata_10.pb").write_bytes(run_metadata({CPU: records}))
    asked = ("tfprof", "scope", *MODEL, "--step", "10", "--select", "micros", "--hide-name-regexes", "x")
    assert "Not shown: time  1.00 ms (25.0%)" in run_tfperf(*asked, "--account-displayed-op-only").stdout
    assert "Not shown" not in run_tfperf(*asked).stdout


def test_the_median_of_a_node_that_never_ran_is_unknown(files: Path, run_tfperf: Run) -> None:
    shown = run_tfperf("tfprof", "scope", *MODEL, "--select", "micros", "--format", "json").stdout
    rows = json.loads(shown)["sections"]["scope"]["tables"]["scope"]["rows"]
    assert {row["node"]: row["own_median_ms"] for row in rows} == {
        "x": None, "layer": None, "layer/kernel": None, "layer/MatMul": 4.0
    }  # fmt: skip


def test_advice_has_a_section_for_each_checker(files: Path, run_tfperf: Run) -> None:
    result = run_tfperf("tfprof", "advise", *MODEL)
    assert result.exit_code == 0, result.stderr
    for title in ("Accelerator utilization", "Operations", "Expensive operations", "Job"):
        assert f"\n{title}\n" in result.stdout
    assert "Operations" not in run_tfperf("tfprof", "advise", *MODEL, "--checkers", "Job").stdout
    wrong = run_tfperf("tfprof", "advise", *MODEL, "--checkers", "Speed")
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)


def test_a_graph_alone_has_parameters_and_no_times(files: Path, run_tfperf: Run) -> None:
    shown = run_tfperf("tfprof", "scope", "--graph", "graph.pb").stdout
    assert "kernel" in shown
    assert "16" in shown
    assert "time" not in shown.split("Scopes and nodes")[1]
    result = run_tfperf("tfprof", "scope", "--graph", "graph.pb", "--select", "micros")
    assert "no steps were recorded, so times are unknown" in result.stdout
    assert "no graph given: pass one with --graph" in run_tfperf("tfprof", "scope").stderr


def test_float_operations_of_nodes_that_did_not_run_are_said(files: Path, run_tfperf: Run) -> None:
    asked = ("tfprof", "op", *MODEL, "--select", "float_ops")
    assert "no step recorded" not in run_tfperf(*asked).stdout
    (files / "log").write_bytes(op_log({"layer/MatMul": {"float_ops": 128}, "x": {"float_ops": 3000}}))
    assert "3,000 float ops are from nodes that no step recorded" in run_tfperf(*asked).stdout


def test_op_types_say_what_they_are_given(files: Path, run_tfperf: Run) -> None:
    result = run_tfperf("tfprof", "op", *MODEL, "--select", "micros,input_shapes", "--format", "json")
    table = json.loads(result.stdout)["sections"]["op"]["tables"]["input_shapes"]
    assert {"op_type": "MatMul", "input_shapes": "0:4x8, 1:8x2", "runs": 1, "nodes": 1, "time_ms": 4.0} in table["rows"]
    assert {row["input_shapes"] for row in table["rows"] if row["op_type"] != "MatMul"} == {"none"}


def test_control_characters_of_names_reach_no_terminal(files: Path, run_tfperf: Run) -> None:
    (files / "odd.pb").write_bytes(graph(node("a\x1b[31m\n::error::b", "Op")))
    for name in ("table", "tfprof"):
        shown = run_tfperf("tfprof", "scope", "--graph", "odd.pb", "--format", name, "--select", "op_types").stdout
        assert "\x1b" not in shown
        assert not any(line.lstrip(" |`-\\").startswith("::error") for line in shown.splitlines())
