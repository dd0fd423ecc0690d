"""Options made step by step; `test_profiler.py` compares them with those of TensorFlow's builder."""

from __future__ import annotations

import pytest

from tfperf.models.tfprof.options import PRESETS, ProfileOptionBuilder, options_from


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
