from __future__ import annotations

from pathlib import Path

import pytest
from tfperf.gate.errors import ConfigError

from tfperf.gate.config import CheckConfig, find_config, read_config
from tfperf.gate.limits import named_limit, parse_limit

WHOLE = """
[tool.tfperf.check]
max-input-bound = "10%"
max_step_time = "50ms"
max-retraces = 0
max-all-others = 15
limits = ["sum(kernels.total_us[name~nccl]) < 500us", "memory < 4GiB"]
stat = "p95"
skip-first = 2
min_steps = 10
baseline = "ci/baseline.json"
max-regression = "5%"
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_all_keys_of_a_pyproject(tmp_path: Path) -> None:
    path = write(tmp_path / "pyproject.toml", WHOLE)
    at = f"{path}, tool.tfperf.check."
    assert read_config(path) == CheckConfig(
        path,
        (
            named_limit("max-input-bound", "10%", f"{at}max-input-bound"),
            named_limit("max-step-time", "50ms", f"{at}max_step_time"),
            named_limit("max-retraces", "0", f"{at}max-retraces"),
            named_limit("max-all-others", "15", f"{at}max-all-others"),
            parse_limit("sum(kernels.total_us[name~nccl]) < 500us", f"{at}limits"),
            parse_limit("memory < 4GiB", f"{at}limits"),
        ),
        stat="p95", skip_first=2, min_steps=10, baseline=(tmp_path / "ci" / "baseline.json",), max_regression=0.05,
    )  # fmt: skip


def test_a_file_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "tfperf.toml", '[check]\nmax-skew = "5%"\n')
    found = read_config(path)
    assert found == CheckConfig(path, (named_limit("max-skew", "5%", f"{path}, check.max-skew"),))
    assert (found.stat, found.skip_first, found.baseline, found.max_regression) == (None, None, None, None)


def test_files_without_limits_say_nothing(tmp_path: Path) -> None:
    for name, text in (("tfperf.toml", ""), ("pyproject.toml", "[tool.tfperf]"), ("pyproject.toml", "[project]")):
        path = write(tmp_path / name, text)
        assert read_config(path) == CheckConfig(path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('max-input-bond = "10%"', "check has no key 'max-input-bond': did you mean max-input-bound"),
        ('max-input-bound = "0.1"', "check.max-input-bound: max-input-bound: '0.1' may mean 10% or 0.1%"),
        ("max-input-bound = 0.1", "'0.1' may mean 10% or 0.1%"),
        ("max-input-bound = true", 'check.max-input-bound: it must be text such as "10%"'),
        ("max-input-bound = []", "it must be text"),
        ("max-input-bound = nan", "'nan' is no number"),
        ("max-step-time = 50", "'50' has no unit; write 50ms"),
        ("max-retraces = -1", "is negative"),
        ('limits = "input_bound < 3%"', "check.limits: it must be a list of texts"),
        ("limits = [3]", "must be a list of texts"),
        ('limits = ["memory < 3GiB", "input_bond < 3%"]', "check.limits: limit 'input_bond < 3%', character 1"),
        ("skip-first = -1", "check.skip-first: it must be a whole number from 0 on"),
        ("skip-first = 1.5", "whole number"),
        ("skip-first = true", "whole number"),
        ("skip-first = 99999999999999999999", "whole number"),
        ("min-steps = 0", "check.min-steps: it must be a whole number from 1 on"),
        ('stat = "average"', "check.stat: it must be one of mean, median, p95"),
        ("stat = []", "one of mean"),
        ("baseline = 3", "check.baseline: it must be the path of a file"),
        ('baseline = "a\\u0000b"', "the path of a file"),
        ('max-regression = "0.05"', "check.max-regression: '0.05' may mean 5% or 0.05%"),
        ("max-regression = true", "it must be text"),
        ('stat = "p95"\nmin-steps = 3\nmin_steps = 4', "check.min_steps: this is set twice"),
        ("max-retraces = 0\nmax_retraces = 1", "check.max_retraces: this is set twice"),
        ("limits = [", "it is no valid TOML"),
        ("stat = 'p95'\nstat = 'mean'", "it is no valid TOML"),
        ('"bad\\nkey" = 3', "has no key 'bad\\nkey'"),
    ],
)
def test_what_is_wrong_names_file_and_key(tmp_path: Path, line: str, words: str) -> None:
    path = write(tmp_path / "tfperf.toml", f"[check]\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("tfperf.toml", "max-skew = '5%'", "it has no key 'max-skew': limits are in [check]"),
        ("tfperf.toml", "check = 3", "check: it must be a table: [check]"),
        ("pyproject.toml", "[tool.tfperf]\nmax-skew = '5%'", "limits are in [tool.tfperf.check]"),
        ("pyproject.toml", "[tool]\ntfperf = 3", "tool.tfperf: it must be a table"),
        ("pyproject.toml", "[[tool.tfperf.check]]", "tool.tfperf.check: it must be a table"),
    ],
)
def test_limits_in_the_wrong_place(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        read_config(write(tmp_path / name, text))
    assert words in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml: it cannot be read"):
        read_config(tmp_path / "no.toml")
    (tmp_path / "tfperf.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="it is no valid TOML"):
        read_config(tmp_path / "tfperf.toml")


def test_the_nearest_file_upwards_counts(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    far = write(tmp_path / "tfperf.toml", "")
    assert find_config(deep) == far
    write(tmp_path / "a" / "b" / "pyproject.toml", "[tool.ruff]")
    assert find_config(deep) == far
    near = write(tmp_path / "a" / "pyproject.toml", "[tool.tfperf.check]")
    assert find_config(deep) == near
    own = write(tmp_path / "a" / "tfperf.toml", "[check]")
    assert find_config(deep) == own
    assert find_config(tmp_path / "a") == own


def test_a_broken_file_on_the_way_is_told(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.tfperf.check\n")
    with pytest.raises(ConfigError, match=r"pyproject\.toml: it is no valid TOML"):
        find_config(tmp_path)
