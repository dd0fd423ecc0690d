from __future__ import annotations

from itertools import product

import pytest
from tfperf.gate.errors import LimitError
from tfperf.gate.figures import FIGURES
from tfperf.gate.model import Limit, Metric

from tfperf.gate.limits import NAMED, merged, named_limit, parse_limit, regression_tolerance

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("max-input-bound", "10%", 10.0),
        ("max-input-bound", "10", 10.0),
        ("max_input_bound", " 7.5 % ", 7.5),
        ("max-input-bound", "0%", 0.0),
        ("max-input-bound", "0", 0.0),
        ("max-input-bound", "0.1%", 0.1),
        ("max-input-bound", "1", 1.0),
        ("max-input-bound", "100%", 100.0),
        ("max-step-time", "50ms", 50.0),
        ("max-step-time", "29ms", 29.0),
        ("max-step-time", "0.05s", 50.0),
        ("max-step-time", "250us", 0.25),
        ("max-step-time", "1.5 min", 90_000.0),
        ("max-kernel-launch", "3%", 3.0),
        ("max-all-others", "3%", 3.0),
        ("min-device-busy", "70%", 70.0),
        ("max-memory", "10GiB", 10.0 * GIB),
        ("max-memory", "500MB", 5e8),
        ("max-memory", "4096B", 4096.0),
        ("max-retraces", "0", 0.0),
        ("max-skew", "150%", 150.0),
    ],
)
def test_values(name: str, value: str, bound: float) -> None:
    limit = named_limit(name, value)
    assert limit.bound == bound
    assert limit.relation == (">=" if name.startswith("min") else "<=")
    assert limit.text == f"{name.replace('_', '-')} {value.strip()}"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max-input-bound", "0.1", "'0.1' may mean 10% or 0.1%: write which"),
        ("max-input-bound", "0.999", "may mean 99.9% or 0.999%"),
        ("max-input-bound", "101%", "at most 100%, so 101% could never be broken"),
        ("min-device-busy", "101%", "could never hold"),
        ("max-input-bound", "10ms", "'10ms' is given where the value is a percentage; write 10%"),
        ("max-input-bound", "-1%", "is negative"),
        ("max-input-bound", "nan", "'nan' is no number; write 10%"),
        ("max-input-bound", "inf%", "is no number"),
        ("max-input-bound", "", "'' is no number"),
        ("max-input-bound", "1e3%", "is no number"),
        ("max-input-bound", "10 apples", "'apples' in '10 apples' is no unit"),
        ("max-step-time", "50", "'50' has no unit; write 50ms"),
        ("max-step-time", "0ms", "a bound of 0 says nothing"),
        ("max-step-time", "5GiB", "is given where the value is in ms"),
        ("max-memory", "10", "has no unit; write 10GiB"),
        ("max-memory", "0GiB", "a bound of 0"),
        ("max-retraces", "5%", "is given where the value is a count"),
        ("max-retraces", "-1", "is negative"),
        ("max-retrace", "0", "there is no limit 'max-retrace': did you mean max-retraces"),
        ("max-step-time", "9" * 200 + "ms", "is no number"),
    ],
)
def test_values_that_say_nothing_certain(name: str, value: str, words: str) -> None:
    with pytest.raises(LimitError, match=r"^a file: ") as caught:
        named_limit(name, value, "a file")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_named_limit_is_on_a_figure_and_has_an_example_that_works() -> None:
    for name, named in NAMED.items():
        assert named.figure in FIGURES
        assert named.help.endswith(".")
        assert named_limit(name, named.example.split(" or ")[0]).metric == Metric(named.figure)
    assert {named.figure for named in NAMED.values()} == set(FIGURES)


def test_a_regression_is_a_share() -> None:
    assert regression_tolerance("5%") == 0.05
    assert regression_tolerance("7%") == 0.07  # 7 / 100 in floats too, and not 0.07000000000000001
    assert regression_tolerance("0") == 0.0
    with pytest.raises(LimitError, match=r"max-regression: '0\.05' may mean 5% or 0\.05%"):
        regression_tolerance("0.05")


def limits(*texts: str, origin: str = "file") -> list[Limit]:
    return [parse_limit(text, origin) for text in texts]


def test_the_command_line_replaces_what_the_file_says_about_the_same() -> None:
    of_file = [
        named_limit("max-input-bound", "10%", "file"),
        named_limit("max-retraces", "0", "file"),
        *limits("kernels.total_us < 5", "input_bound >= 1%"),
    ]
    own = [named_limit("max-input-bound", "20%"), *limits("kernels.total_us <= 9", origin="command line")]
    found = [(limit.text, limit.origin) for limit in merged(of_file, own)]
    assert found == [
        ("max-retraces 0", "file"),
        ("input_bound >= 1%", "file"),
        ("max-input-bound 20%", "command line"),
        ("kernels.total_us <= 9", "command line"),
    ]


def test_all_limits_of_the_command_line_stay() -> None:
    own = limits("memory < 5GiB", "memory <= 4GiB")
    assert merged((), own) == tuple(own)


def test_a_step_time_of_another_kind_is_another_limit() -> None:
    for one, other in product(limits("step_time < 5ms", "p95(step_time) < 9ms"), repeat=2):
        assert len(merged([one], [other])) == (1 if one == other else 2)
