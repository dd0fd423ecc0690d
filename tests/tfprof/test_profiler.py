"""The Python API: what code for tf.compat.v1.profiler does, without TensorFlow and of as many graphs as one likes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from tfprof_builders import CPU, graph, node, op_log, ran, run_metadata

import tfperf.tfprof
from tfperf.tfprof import ProfileOptionBuilder, Profiler, profile
from tfperf.tfprof.input_file import InputFile, TfprofInputError
from tfperf.tfprof.profile_proto import read_profile

GRAPH = graph(
    node("x", "Placeholder", outputs=[[4, 8]], variable=[4, 8]),
    node("layer/kernel", "VariableV2", outputs=[[8, 2]], variable=[8, 2]),
    node("layer/MatMul", "MatMul", "x", "layer/kernel", outputs=[[4, 2]]),
)
LOG = op_log(
    {
        "layer/kernel": {"types": ["_trainable_variables"], "stack": [("main.py", 3, "<module>")]},
        "layer/MatMul": {"float_ops": 128, "stack": [("main.py", 3, "<module>"), ("nn.py", 7, "dense")]},
    }
)
QUIET = ProfileOptionBuilder().select(["micros", "bytes", "params", "float_ops"]).with_empty_output().build()


def step(duration: int) -> bytes:
    return run_metadata({CPU: [ran("layer/MatMul", 10, duration, memory=1000)]})


class Message:
    """What has its bytes to give, as all messages of TensorFlow."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def SerializeToString(self) -> bytes:  # noqa: N802
        return self.data


@pytest.fixture
def profiler() -> Profiler:
    made = Profiler(GRAPH, LOG)
    made.add_step(1, step(30))
    made.add_step(7, Message(step(50)))
    return made


def test_each_view_has_its_totals(profiler: Profiler) -> None:
    roots = [
        profiler.profile_name_scope(QUIET),
        profiler.profile_graph(QUIET),
        profiler.profile_operations(QUIET),
        profiler.profile_python(QUIET),
    ]
    assert [root.total_exec_micros for root in roots] == [40] * 4
    assert [root.total_float_ops for root in roots] == [128] * 4
    assert [root.total_requested_bytes for root in roots] == [1000] * 4
    assert [root.children[0].name for root in roots] == ["layer", "layer/MatMul", "MatMul", "main.py:3:<module>"]


def test_steps_of_a_number_are_one_step(profiler: Profiler) -> None:
    profiler.add_step(7, step(5))
    of_step = ProfileOptionBuilder(QUIET).with_step(7).build()
    assert profiler.profile_name_scope(of_step).total_exec_micros == 55


def test_messages_are_taken_as_objects_too() -> None:
    root = profile(Message(GRAPH), Message(step(9)), Message(LOG), "op", QUIET)
    assert (root.total_exec_micros, root.total_parameters) == (9, 48)


def test_two_profilers_know_nothing_of_each_other(profiler: Profiler) -> None:
    other = Profiler(GRAPH)
    other.add_step(1, step(999))
    assert profiler.profile_name_scope(QUIET).total_exec_micros == 40
    del profiler
    assert other.profile_name_scope(QUIET).total_exec_micros == 999


def test_a_view_is_printed_as_tfprof_prints_it(profiler: Profiler, capsys: pytest.CaptureFixture[str]) -> None:
    profiler.profile_name_scope(ProfileOptionBuilder.trainable_variables_parameter())
    printed = capsys.readouterr().out.splitlines()
    assert "==================Model Analysis Report======================" in printed
    start = printed.index("node name | # parameters")
    assert printed[start : start + 4] == [
        "node name | # parameters",
        "_TFProfRoot (--/16 params)",
        "  layer (--/16 params)",
        "    layer/kernel (8x2, 16/16 params)",
    ]


def test_a_view_goes_to_a_file_or_nowhere(
    profiler: Profiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler.profile_operations(ProfileOptionBuilder(QUIET).with_file_output(str(tmp_path / "ops.txt")).build())
    assert "MatMul  " in (tmp_path / "ops.txt").read_text()
    profiler.profile_operations(QUIET)
    assert capsys.readouterr().out == ""


def test_the_code_view_goes_to_pprof(profiler: Profiler, tmp_path: Path) -> None:
    target = tmp_path / "code.pb.gz"
    profiler.profile_python(ProfileOptionBuilder().with_pprof_output(str(target)).build())
    assert b"nn:dense" in gzip.decompress(target.read_bytes()) or b"dense" in gzip.decompress(target.read_bytes())


def test_a_profile_is_stored_and_read(profiler: Profiler, tmp_path: Path) -> None:
    model = read_profile(InputFile(tmp_path, "ProfileProto", profiler.serialize_to_string()))
    assert [*model.steps] == [1, 7]
    assert model.values(-1).tolist() == profiler.model.values(-1).tolist()


def test_without_options_one_call_shows_the_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(GRAPH, op_log=LOG).total_parameters == 16
    assert "layer/kernel (8x2, 16/16 params)" in capsys.readouterr().out


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"step": 3}, "step 3 was not added; steps: 1, 7"),
    ({"order_by": "size"}, "order_by 'size' is unknown"),
    ({"select": ["speed"]}, "select 'speed' is unknown"),
    ({"depth": 3}, "'depth' is not an option of tfprof"),
    ({"show_name_regexes": ["("]}, "show_name_regexes"),
    ({"output": "pprof:outfile=x"}, "the scope view has no pprof"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=lambda value: str(value)[:20])
def test_options_that_mean_nothing_are_errors(profiler: Profiler, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")) as error:
        profiler.profile_name_scope(given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("record", [b"", run_metadata({}), b"\x0a\xff"])
def test_a_record_of_nothing_is_an_ordinary_error(profiler: Profiler, record: bytes) -> None:
    with pytest.raises(TfprofInputError, match="RunMetadata of step 9"):
        profiler.add_step(9, record)
    assert profiler.profile_name_scope(QUIET).total_exec_micros == 40


def test_arguments_of_the_wrong_kind_are_errors(profiler: Profiler) -> None:
    with pytest.raises(ValueError, match="give a message of TensorFlow, or its bytes, not int"):
        profiler.add_step(1, 5)
    with pytest.raises(ValueError, match="step must be 0 or more, not -1"):
        profiler.add_step(-1, step(1))
    with pytest.raises(ValueError, match="cmd 'tree' is unknown: use one of scope, graph, op, code"):
        profile(GRAPH, cmd="tree")
    with pytest.raises(TfprofInputError, match="graph is empty"):
        profile(b"", options=QUIET)


def test_public_names_are_there_and_documented() -> None:
    assert tfperf.tfprof.__all__ == sorted(tfperf.tfprof.__all__)
    assert all(getattr(tfperf.tfprof, name).__doc__ for name in tfperf.tfprof.__all__)
    assert {*tfperf.tfprof.__all__} <= {*dir(tfperf.tfprof)}
    with pytest.raises(AttributeError, match="no attribute 'anything'"):
        getattr(tfperf.tfprof, "anything")  # noqa: B009
