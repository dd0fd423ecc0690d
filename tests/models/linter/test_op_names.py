"""The rule about names of ops: what it finds, and what it must not."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, logdir_of, plane, programs, ref, space
from builders import line as thread
from hlo_builders import F32, computation, instruction, program, shape
from lint_builders import fed, graph
from protobytes import field, message

from tfperf.base.errors import TraceNotFoundError
from tfperf.formats.models.input_file import TfprofInputError
from tfperf.models.linter.engine import LintError, LintOptions, lint_path
from tfperf.models.linter.rule import Ledger, Violation
from tfperf.models.linter.rules import RULES
from tfperf.models.linter.rules.reductions import NamedOp, check_op_names

RSQRT = "model/BatchNorm_1/batchnorm/Rsqrt"


def found(*ops: tuple[str, str]) -> list[Violation]:
    ledger = Ledger(RULES)
    check_op_names((NamedOp(name, type) for name, type in ops), ledger)
    return ledger.violations


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        (RSQRT, "model/BatchNorm_1"),
        ("model/batch_normalization/Rsqrt", "model/batch_normalization"),
        ("batchnorm/Rsqrt", "batchnorm"),
        ("old/batch_norm/moments/Rsqrt", "old/batch_norm"),
    ],
)
def test_a_batch_norm_of_many_ops_by_its_name(name: str, scope: str) -> None:
    (violation,) = found((name, "Rsqrt"), ("model/dense/MatMul", "MatMul"))
    assert (violation.rule, violation.ops, violation.certainty) == ("TPU-BN-2", (scope,), "weak")


@pytest.mark.parametrize(
    "ops",
    [
        [("model/batch_norm/FusedBatchNormV3", "FusedBatchNormV3"), ("model/batch_norm/Rsqrt", "Rsqrt")],
        [("model/batch_norm/Fused", "_FusedBatchNormEx"), ("model/batch_norm/Rsqrt", "Rsqrt")],
        [("model/layer_normalization/batch_mean/Rsqrt", "Rsqrt")],
        [("model/batch_norm/Mul", "Mul")],
        [("model/Rsqrt_batch_norm", "Rsqrt")],
        [("jit(step)/BatchNorm_0/rsqrt", "rsqrt")],
    ],
    ids=["fused", "fused by the optimizer", "another norm", "no Rsqrt", "no scope", "JAX has no fused one"],
)
def test_what_is_no_batch_norm_of_many_ops(ops: list[tuple[str, str]]) -> None:
    assert found(*ops) == []


def test_a_profile_without_programs_is_judged_by_names(tmp_path: Path) -> None:
    ops = event(f"{RSQRT}:Rsqrt", 0, 5), event("dense/MatMul:MatMul", 5, 5)
    logs = logdir_of(tmp_path / "logs", a=space(host(*ops)))
    result = lint_path(logs)
    assert [(each.rule, each.share) for each in result.violations] == [("TPU-BN-2", None)]
    assert result.evaluated == 1
    assert any("only by name" in note for note in result.notes)
    with pytest.raises(TfprofInputError, match="no XLA programs"):
        lint_path(logs, LintOptions(ignore=("TPU-BN-2",)))


def test_one_of_several_runs(tmp_path: Path) -> None:
    logs = {name: logdir_of(tmp_path / name, a=space(host(event(f"{name}/{RSQRT}:Rsqrt", 0, 5)))) for name in "ab"}
    with pytest.raises(TraceNotFoundError, match="select one with --run: a/logs/plugins"):
        lint_path(tmp_path)
    (run,) = (logs["b"] / "plugins" / "profile").iterdir()
    (violation,) = lint_path(tmp_path, LintOptions(run=str(run.relative_to(tmp_path)))).violations
    assert violation.ops == ("b/model/BatchNorm_1",)
    (tmp_path / "model.pb").write_bytes(graph(fed("x", 2)))
    with pytest.raises(LintError, match="--run selects a run of a logdir"):
        lint_path(tmp_path / "model.pb", LintOptions(run="a"))


def test_names_are_checked_for_tpus_only(tmp_path: Path) -> None:
    """Rules for GPUs need a program, so a profile of a GPU without one has nothing that they could check."""
    kernel = event("rsqrt_kernel", 0, 5, tf_op=f"{RSQRT}:Rsqrt")
    gpu = space(host(event("train", 0, 9, step_num=0)), plane("/device:GPU:0", thread("Stream #1(Compute)", kernel)))
    cpu = space(host(event(f"{RSQRT}:Rsqrt", 0, 5)))
    logs = {name: logdir_of(tmp_path / name, a=data) for name, data in {"gpu": gpu, "cpu": cpu}.items()}
    for path, options in ((logs["gpu"], LintOptions()), (logs["cpu"], LintOptions(device="gpu"))):
        with pytest.raises(TfprofInputError, match="has no XLA programs that ran"):
            lint_path(path, options)
    assert [each.rule for each in lint_path(logs["gpu"], LintOptions(device="tpu")).violations] == ["TPU-BN-2"]
    # Ops outside of a program, too.
    module = program(computation("main", instruction(1, "x", "parameter", shape(F32, 8)), root=1))
    ran = event("k", 5, 5, hlo_op=ref("x"), program_id=7)
    device = plane("/device:GPU:0", thread("Stream #1(Compute)", kernel, ran))
    mixed = lint_path(logdir_of(tmp_path / "mixed", a=space(device, programs(id_7=module))))
    assert (mixed.device, mixed.evaluated, mixed.violations) == ("gpu", 0, ())


def test_the_time_of_a_batch_norm_on_a_device_is_that_of_its_ops(tmp_path: Path) -> None:
    ops = [("fusion.1", RSQRT, "Rsqrt"), ("fusion.2", "model/BatchNorm_1/mul", "Mul"), ("dot.3", "d/MatMul", "MatMul")]
    facts = {hlo: {"hlo_category": "loop fusion", "tf_op": f"{name}:{type}"} for hlo, name, type in ops}
    events = [event(hlo, 10 * place, 5) for place, (hlo, _, _) in enumerate(ops)]
    core = plane("/device:TPU:0", thread("XLA Ops", *events), name_stats=facts)
    (violation,) = lint_path(logdir_of(tmp_path / "logs", a=space(core))).violations
    assert violation.share == pytest.approx(2 / 3)


def test_ops_of_a_program_are_judged_there(tmp_path: Path) -> None:
    """By TPU-BN-1, which knows what is computed: this one has no variance."""
    name = field(7, message(field(2, RSQRT.encode())))
    parameter = instruction(1, "x", "parameter", shape(F32, 8))
    rsqrt = instruction(2, "rsqrt.2", "rsqrt", shape(F32, 8), [1], extra=name)
    compiled = program(computation("main", parameter, rsqrt, root=2))
    ran = event("rsqrt.2", 0, 5, hlo_op=ref("rsqrt.2"), program_id=7)
    made = space(host(ran, event(f"{RSQRT}:Rsqrt", 5, 5)), programs(id_7=compiled))
    assert lint_path(logdir_of(tmp_path / "logs", a=made)).violations == ()
