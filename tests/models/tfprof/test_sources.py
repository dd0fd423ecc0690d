"""Which files hold which step."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfprof_builders import CPU, graph, node, op_log, profile, ran, run_metadata

from tfperf.formats.models.input_file import TfprofInputError
from tfperf.models.tfprof.sources import Sources, read_model, steps_of


def test_the_step_is_the_last_number_of_the_name() -> None:
    assert steps_of(["v2/run_metadata_7.pb", "0.step12", "5=other_9"]) == {
        7: [Path("v2/run_metadata_7.pb")],
        12: [Path("0.step12")],
        5: [Path("other_9")],
    }


def test_one_file_needs_no_number() -> None:
    assert steps_of(["run.pb"]) == {0: [Path("run.pb")]}


def test_of_several_files_each_needs_a_number() -> None:
    with pytest.raises(ValueError, match="say which step it is, for example 10="):
        steps_of(["run.pb", "run_2.pb"])


def test_files_of_one_step_are_together() -> None:
    assert steps_of(["3=a", "3=b"]) == {3: [Path("a"), Path("b")]}


def test_patterns(tmp_path: Path) -> None:
    for step in (10, 2):
        (tmp_path / f"run_{step}.pb").write_bytes(b"")
    assert steps_of([str(tmp_path / "run_*.pb")]) == {10: [tmp_path / "run_10.pb"], 2: [tmp_path / "run_2.pb"]}
    assert steps_of([f"4={tmp_path}/run_?.pb"]) == {4: [tmp_path / "run_2.pb"]}
    with pytest.raises(ValueError, match="no file matches"):
        steps_of([str(tmp_path / "none_*")])


def test_a_file_whose_name_is_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "run[1].pb").write_bytes(b"")
    assert steps_of([str(tmp_path / "run[1].pb")]) == {1: [tmp_path / "run[1].pb"]}


def test_a_number_that_no_step_has() -> None:
    with pytest.raises(ValueError, match="no step of this number"):
        steps_of([f"run_{10**30}.pb"])


def test_a_model_needs_a_graph_or_a_profile() -> None:
    with pytest.raises(TfprofInputError, match="give one with --graph"):
        read_model(Sources())


def test_both_ways_know_the_same(tmp_path: Path) -> None:
    for name, data in {
        "graph": graph(node("x", "Relu")),
        "run": run_metadata({CPU: [ran("x", 10, 5)]}),
        "log": op_log({"x": {"float_ops": 3}}),
    }.items():
        (tmp_path / name).write_bytes(data)
    times = {"key": CPU.lower().encode(), "value": {"times": [{"int64_values": [10, 5]}]}}
    execs = [{"key": 4, "value": {"run_count": 1, "cpu_execs": [times]}}]
    whole = {"name": b"x", "op": b"Relu", "op_types": [b"Relu"], "float_ops": 3, "execs": execs}
    (tmp_path / "profile").write_bytes(profile([whole]))
    one = read_model(Sources(graph=tmp_path / "graph", run_metadata={4: [tmp_path / "run"]}, op_log=tmp_path / "log"))
    other = read_model(Sources(profile=tmp_path / "profile"))
    assert one.values(4).tolist() == other.values(4).tolist()
