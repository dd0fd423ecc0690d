"""What may be asked of a view."""

from __future__ import annotations

import pytest
from builders import known

from tfperf.models.tfprof.options import PRESETS, Options, ProfileOptionBuilder, matches, options_from


def test_without_options_everything_is_asked_for() -> None:
    given = options_from({})
    assert (given.max_depth, given.step, given.order_by, given.select) == (10, -1, "name", ("micros",))
    assert given.account_type_regexes == (".*",)


WRONG = [
    ({"max_dept": 3}, "'max_dept' is not a tfprof option"),
    ({"max_depth": "3"}, "max_depth"),
    ({"select": "micros"}, "select"),
    ({"hide_name_regexes": [r"\Qx"]}, r"hide_name_regexes: .* end \\Q with \\E"),
    ({"start_name_regexes": ["x" * 998]}, "fewer than 990 characters"),
    ({"account_type_regexes": ["x" * 5000]}, "too long"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_options_that_mean_nothing(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        options_from(given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("expressions", "texts", "expected", "ignored"),
    [
        pytest.param(("a.*", "b"), ["a", "abc", "b", "bb", "cab", "a\n"], [1, 1, 1, 0, 0, 0], [], id="whole texts"),
        pytest.param(("a|b", "(?i)c"), ["a", "b", "C", "ab", "A"], [1, 1, 1, 0, 0], [], id="flags stay inside"),
        pytest.param((".*CPU:0",), ["/cpu:0", "a/cpu:0", "x"], [1, 0, 0], [0], id="without case where it is said"),
    ],
)
def test_expressions(expressions: tuple[str, ...], texts: list[str], expected: list[int], ignored: list[int]) -> None:
    assert known(matches(expressions, texts, ignore_case=ignored)).tolist() == expected


def test_everything_is_only_what_is_written_so() -> None:
    assert matches((".*",), ["a"]) is None
    assert matches((".*", "x"), ["a"]) is not None
    assert matches((), ["a"]) is not None


def test_wrong_options_are_refused_in_python_too() -> None:
    with pytest.raises(ValueError, match="order_by"):
        Options(order_by="size")


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
