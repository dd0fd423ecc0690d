"""Options made step by step are those that TensorFlow's builder makes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
from job_environment import job_environment

from tfperf.tfprof.option_builder import ProfileOptionBuilder
from tfperf.tfprof.options import PRESETS, options_from

CHAINS = {
    "new": "B().build()",
    "parameters": "B.trainable_variables_parameter()",
    "float operations": "B.float_operation()",
    "time and memory": "B.time_and_memory(min_micros=3, min_cpu_micros=2)",
    "by position": "B.time_and_memory(1, 2, 3, 4, 5, 6, 7)",
    "minima": "B().with_max_depth(4).with_min_execution_time(1, 2, 3).with_min_memory(4, 5, 6, 7)"
    ".with_min_parameters(8).with_min_float_operations(9).with_min_occurrence(10).build()",
    "names": "B().with_accounted_types(['MatMul']).with_node_names(['a'], ['b'], ['c'], ['d'])"
    ".account_displayed_op_only(True).build()",
    "some names": "B(B.float_operation()).with_node_names(show_name_regexes=['.*x']).build()",
    "outputs": "[B().with_empty_output().build(), B().with_stdout_output().build(), B().with_file_output('f').build(),"
    " B().with_timeline_output('t.json').build(), B().with_pprof_output('p.pb.gz').build()]",
    "order": "B().with_step(70).order_by('params').select(['params', 'bytes']).build()",
}


@pytest.mark.tensorflow
@pytest.mark.skipif(not find_spec("tensorflow"), reason="TensorFlow is not installed")
def test_the_builder_makes_what_tensorflows_makes() -> None:
    script = "import sys, json, tensorflow\nB = tensorflow.compat.v1.profiler.ProfileOptionBuilder\n"
    script += f"print(json.dumps([eval(chain) for chain in {[*CHAINS.values()]!r}]))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=job_environment(keras=False), capture_output=True, text=True, check=True
    )
    ours = [eval(chain, {"B": ProfileOptionBuilder}) for chain in CHAINS.values()]
    assert ours == json.loads(done.stdout)


@pytest.mark.parametrize("preset", ["parameters", "float-operations", "time-and-memory"])
def test_presets_are_those_of_the_command_line(preset: str) -> None:
    made = {
        "parameters": ProfileOptionBuilder.trainable_variables_parameter(),
        "float-operations": ProfileOptionBuilder.float_operation(),
        "time-and-memory": ProfileOptionBuilder.time_and_memory(),
    }[preset]
    assert options_from(made) == options_from(PRESETS[preset])


def test_options_that_were_built_do_not_change() -> None:
    builder = ProfileOptionBuilder()
    built = builder.build()
    builder.with_step(3).build()["select"].append("bytes")
    assert (built["step"], builder.build()["select"]) == (-1, ["micros"])
