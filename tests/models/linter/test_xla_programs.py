"""Programs of XLA in files and profiles: which are judged, and in which order their findings are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders import event, host, line, logdir_of, plane, programs, ref, space
from hlo_builders import F32, computation, instruction, program, shape
from lint_builders import fed, graph
from places import SHARED
from protobytes import field, written

from tfperf.formats.hlo.model import ProgramError
from tfperf.formats.models.input_file import TfprofInputError
from tfperf.models.linter.engine import LintError, LintOptions, lint_path
from tfperf.models.linter.sources import is_profile, program_of

CAPTURES = SHARED / "traces"


def of_images() -> bytes:
    """A program of two inputs that are mostly padding, and a result."""
    small, large = shape(F32, 32, 32, 32, 3), shape(F32, 64, 64, 64, 3)
    inputs = instruction(1, "small", "parameter", small), instruction(2, "large", "parameter", large, extra=field(9, 1))
    return program(computation("main", *inputs, instruction(3, "sum", "add", shape(F32, 8), [1, 2]), root=3))


def profile_of(folder: Path, serialized: bytes, **durations: float) -> Path:
    """A profile in which instructions of a program took so long."""
    ran = enumerate(durations.items())
    events = [event(name, at, took, hlo_op=ref(name), program_id=7) for at, (name, took) in ran]
    return logdir_of(folder, a=space(host(*events), programs(id_7=serialized)))


def test_a_program_in_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, of_images(), name="module.pb")
    result = lint_path(path)
    found = [(each.rule, each.ops, each.share) for each in result.violations]
    assert found == [("TPU-RS-2", ("large",), None), ("TPU-RS-2", ("small",), None)]
    assert any("Compiled programs" in note for note in result.notes)


def test_what_takes_most_time_comes_first(tmp_path: Path) -> None:
    result = lint_path(profile_of(tmp_path / "logs", of_images(), small=1000, large=1))
    assert [each.ops for each in result.violations] == [("small",), ("large",)]
    assert sum(each.share or 0 for each in result.violations) == pytest.approx(1.0)
    assert any("upper bounds" in note for note in result.notes)


def test_programs_that_did_not_run_are_not_judged(tmp_path: Path) -> None:
    logs = logdir_of(tmp_path / "logs", a=space(host(event("work", 0, 5)), programs(id_7=of_images())))
    with pytest.raises(TfprofInputError, match="has no XLA programs that ran"):
        lint_path(logs)


def test_what_needs_a_graph_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, of_images(), name="module.pb")
    with pytest.raises(LintError, match="requires a graph"):
        lint_path(path, LintOptions(supported_ops=Path("ops.txt")))
    with pytest.raises(LintError, match="fixed shapes"):
        lint_path(path, LintOptions(batch=8))


def test_only_rules_that_read_compiled_programs_are_applied_to_one(tmp_path: Path) -> None:
    """What was not looked at has not passed."""
    path = written(tmp_path, of_images(), name="module.pb")
    rules = lint_path(path).rules
    assert {"TPU-CV-1", "TPU-RD-1"} < set(rules)
    assert not {"TPU-MM-1", "TPU-BS-1", "TPU-BN-2", "TPU-OP-1"} & set(rules)
    logs = profile_of(tmp_path / "logs", of_images(), small=1000, large=1)
    assert set(lint_path(logs).rules) == {*rules, "TPU-BN-2"}
    with pytest.raises(LintError, match="TPU-MM-1 reads a graph, not a compiled program: pass a graph"):
        lint_path(path, LintOptions(rules=("TPU-MM-1",)))


def test_whose_rules_count(tmp_path: Path) -> None:
    """A program in a file names no device; a profile says where the programs ran."""
    path = written(tmp_path, of_images(), name="module.pb")
    result = lint_path(path)
    assert result.device == "tpu"
    assert any("The program does not specify a device" in note for note in result.notes)
    assert lint_path(path, LintOptions(device="gpu")).device == "gpu"
    assert lint_path(path, LintOptions(rules=("GPU-MM-1",))).device == "gpu"
    kernels = [event("k", 0, 10, hlo_op=ref("small"), program_id=7)]
    device = plane("/device:GPU:0", line("Stream #1(Compute)", *kernels))
    logs = logdir_of(tmp_path / "logs", a=space(device, programs(id_7=of_images())))
    assert lint_path(logs).device == "gpu"
    assert lint_path(logs, LintOptions(device="tpu")).device == "tpu"


def test_what_a_path_is(tmp_path: Path) -> None:
    with pytest.raises(TfprofInputError, match=r"no saved_model.pb or graph.pb, and no \*.xplane.pb file"):
        is_profile(tmp_path)
    (tmp_path / "graph.pb").write_bytes(graph(fed("x", 2)))
    assert not is_profile(tmp_path)
    assert program_of(tmp_path / "graph.pb") is None


def test_a_program_in_text(tmp_path: Path) -> None:
    path = tmp_path / "module.txt"
    lines = ["x = f32[32,32,32,3] parameter(0)", 'ROOT n = f32[8] custom-call(x), custom_call_target="f"']
    path.write_text("HloModule m\n\nENTRY main {\n  " + "\n  ".join(lines) + "\n}\n")
    assert [(each.rule, each.ops) for each in lint_path(path).violations] == [("TPU-RS-2", ("x",))]
    path.write_text("HloModule m\n\nENTRY main {\n  x = what\n}\n")
    with pytest.raises(ProgramError, match=r"module\.txt"):
        lint_path(path)


@pytest.mark.skipif(not CAPTURES.exists(), reason="the traces of the references are not here")
def test_real_programs_have_few_findings_and_no_known_false_alarm() -> None:
    """Naive rules find 348 in the programs that ran, the sheet's refined ones 48, of which three kinds are wrong."""
    files = [*CAPTURES.glob("xla_reference/captures/*/*.xplane.pb"), *CAPTURES.glob("jax_mi300x/*/*.xplane.pb")]
    assert len(files) >= 15
    violations = [each for file in files for each in lint_path(file, LintOptions(device="tpu")).violations]
    assert 0 < len(violations) <= 48
    rules = {each.rule for each in violations}
    # Copies of the compiler, weights of inference as inputs, and the variance of a batch norm as a chain.
    assert not rules & {"TPU-TR-1", "TPU-RD-1", "TPU-RD-2", "TPU-RD-3", "TPU-CS-1"}
    inputs = {each.ops[0] for each in violations if each.rule == "TPU-RS-2"}
    assert all(re.fullmatch(r"x|XLA_Args", name) for name in inputs), inputs


@pytest.mark.skipif(not CAPTURES.exists(), reason="the traces of the references are not here")
def test_the_conversion_that_takes_half_of_a_real_gpu_comes_first() -> None:
    result = lint_path(CAPTURES / "jax_mi300x" / "jax_conv_minimal_08")
    assert result.device == "gpu"
    first = result.violations[0]
    assert (first.rule, first.runs_in) == ("GPU-LY-2", "input_transpose_fusion")
    assert first.moved_bytes == 2 * 55862 * 5120 * 2
    assert first.share == pytest.approx(0.51, abs=0.005)
    assert lint_path(CAPTURES / "jax_mi300x" / "jax08_gemm").violations == ()
