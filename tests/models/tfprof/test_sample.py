"""The example of the article: its numbers, and nothing of the machine that collected it."""

from __future__ import annotations

import re
from pathlib import Path

from job_environment import needs_tensorflow, run_tensorflow
from places import SAMPLES

from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import PRESETS, options_from
from tfperf.models.tfprof.profiler import profile_model
from tfperf.models.tfprof.sources import read_folder

SAMPLE = SAMPLES / "tfprof_mlp"
COLLECTED = SAMPLE / "collected"
PARAMETERS = {
    "_TFProfRoot": 104_938,
    "hidden1": 100_480,
    "hidden1/kernel": 100_352,
    "hidden1/bias": 128,
    "hidden2": 4_128,
    "hidden2/kernel": 4_096,
    "hidden2/bias": 32,
    "softmax_linear": 330,
    "softmax_linear/kernel": 320,
    "softmax_linear/bias": 10,
}
_OF_A_MACHINE = re.compile(rb"/(?:home|root|usr|opt|tmp|var|mnt|work|Users)/|[A-Z]:\\")


def parameters(model: Model) -> dict[str, int]:
    root = profile_model(model, "scope", options_from({**PRESETS["parameters"], "order_by": "params"}))
    return {row.name: row.total_parameters for row in root.rows()}


def test_the_parameters_are_those_of_the_article() -> None:
    assert [*parameters(read_folder(COLLECTED)).items()] == [*PARAMETERS.items()]


def test_every_tenth_step_has_its_times() -> None:
    model = read_folder(COLLECTED)
    assert [*model.steps] == [*range(0, 100, 10)]
    assert all(each.cpu_micros.sum() > 0 for each in model.steps.values())


def test_forward_steps_have_the_float_operations_of_the_formula() -> None:
    model = read_folder(COLLECTED)
    per_run = dict(zip(model.names, model.float_ops.tolist(), strict=True))
    layers = ("hidden1", "hidden2", "softmax_linear")
    forward = sum(per_run[f"{layer}/{op}"] for layer in layers for op in ("MatMul", "BiasAdd"))
    assert forward == 2 * 100 * (784 * 128 + 128 * 32 + 32 * 10) + 100 * 170


def test_lines_of_the_script_hold_the_parameters() -> None:
    model = read_folder(COLLECTED)
    root = profile_model(model, "code", options_from({**PRESETS["parameters"], "max_depth": 100}))
    assert root.total_parameters == PARAMETERS["_TFProfRoot"]
    assert {row.name.split(":")[0] for row in root.children} == {"collect.py"}


def test_it_is_small_and_has_nothing_of_the_machine() -> None:
    assert sum(path.stat().st_size for path in COLLECTED.iterdir()) < 1_000_000
    files = [path for path in COLLECTED.iterdir() if ".data-" not in path.name]
    assert files
    assert [path.name for path in files if _OF_A_MACHINE.search(path.read_bytes())] == []
    assert all(not Path(file).is_absolute() for file in read_folder(COLLECTED).stacks.files)


@needs_tensorflow
def test_the_script_collects_the_same_again(tmp_path: Path) -> None:
    run_tensorflow(SAMPLE / "collect.py", tmp_path / "again")
    again, sample = read_folder(tmp_path / "again"), read_folder(COLLECTED)
    assert (again.names, again.ops, [*again.steps]) == (sample.names, sample.ops, [*sample.steps])
    assert again.float_ops.tolist() == sample.float_ops.tolist()
    assert parameters(again) == PARAMETERS
