"""Limits and settings in a file, and which file counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfperf.base.errors import TfperfError
from tfperf.judge.config import CheckConfig, find_config, read_config
from tfperf.judge.grammar import read_limit
from tfperf.judge.limits import ConfigError, named_limit

ALL_KEYS = """
[tool.tfperf.check]
max-input-bound = "10%"
max_step_time = "50ms"
max-retraces = 0
max-all-others = 15
fail-on = ["compilation", "warm_up"]
max_cost = "input_wait=10%"
limits = ["sum(kernels.total_us[name~nccl]) < 500us", "memory < 4GiB"]
stat = "p95"
skip-first = 2
min_steps = 10
by_kind = "eval"
allow-doubt = true
baseline = "ci/baseline.json"
max-regression = "5%"
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_every_key_of_a_pyproject_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "pyproject.toml", ALL_KEYS)
    table = f"{path}, tool.tfperf.check"
    assert read_config(path) == CheckConfig(
        file=path,
        limits=(
            named_limit("max-input-bound", "10%", f"{table}.max-input-bound"),
            named_limit("max-step-time", "50ms", f"{table}.max_step_time"),
            named_limit("max-retraces", "0", f"{table}.max-retraces"),
            named_limit("max-all-others", "15", f"{table}.max-all-others"),
            named_limit("fail-on", "compilation", f"{table}.fail-on"),
            named_limit("fail-on", "warm_up", f"{table}.fail-on"),
            named_limit("max-cost", "input_wait=10%", f"{table}.max_cost"),
            read_limit("sum(kernels.total_us[name~nccl]) < 500us", f"{table}.limits"),
            read_limit("memory < 4GiB", f"{table}.limits"),
        ),
        stat="p95",
        skip_first=2,
        min_steps=10,
        by_kind="eval",
        allow_doubt=True,
        baseline=(tmp_path / "ci" / "baseline.json",),
        max_regression=0.05,
    )


def test_tfperf_toml_has_the_table_check(tmp_path: Path) -> None:
    path = write(tmp_path / "tfperf.toml", '[check]\nmax-skew = "5%"\n')
    config = read_config(path)
    assert config == CheckConfig(limits=(named_limit("max-skew", "5%", f"{path}, check.max-skew"),), file=path)
    assert (config.stat, config.skip_first, config.min_steps) == (None, None, None)
    assert (config.baseline, config.max_regression) == (None, None)


def test_a_file_without_limits_sets_nothing(tmp_path: Path) -> None:
    for name, text in (("tfperf.toml", ""), ("pyproject.toml", "[tool.tfperf]"), ("pyproject.toml", "[project]")):
        path = write(tmp_path / name, text)
        assert read_config(path) == CheckConfig(file=path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('max-input-bond = "10%"', "unknown key 'max-input-bond' in check: did you mean max-input-bound"),
        ('max-input-bound = "0.1"', "check.max-input-bound: '0.1' may mean 10% or 0.1%"),
        ("max-input-bound = 0.1", "'0.1' may mean 10% or 0.1%"),
        ("max-input-bound = true", 'check.max-input-bound: must be text, for example "10%"'),
        ("max-input-bound = []", "must be text"),
        ('max-retraces = ["1"]', 'check.max-retraces: must be text, for example "3"'),
        ('fail-on = ["compilation", "warmup"]', "check.fail-on: unknown cause 'warmup': did you mean warm_up?"),
        ("fail-on = 3", 'check.fail-on: must be text, for example "compilation", or a list of texts'),
        ("fail-on = [3]", "or a list of texts"),
        ('max-cost = {compilation = "10%"}', 'must be text, for example "compilation=10%", or a list'),
        ("limits = [3]", "must be a list of strings"),
        ("skip-first = 99999999999999999999", "an integer from 0 to 1000000000"),
        ('by-kind = ""', "must be a kind of step"),
        ('limits = "input_bound < 3%"', "check.limits: must be a list of strings"),
        ('limits = ["memory < 3GiB", "input_bond < 3%"]', "check.limits: limit 'input_bond < 3%', character 1"),
        ("skip-first = -1", "check.skip-first: must be an integer from 0 to 1000000000"),
        ("skip-first = true", "an integer from 0 to 1000000000"),
        ("min-steps = 0", "check.min-steps: must be an integer from 1 to"),
        ('stat = "average"', "check.stat: must be one of mean, median, p95"),
        ("stat = []", "one of mean"),
        ("by-kind = 3", 'check.by-kind: must be a kind of step, for example "train" or "eval"'),
        ('allow-doubt = "yes"', "check.allow-doubt: must be true or false"),
        ("baseline = 3", "check.baseline: must be the path of a file"),
        ('baseline = "a\\u0000b"', "the path of a file"),
        ('max-regression = "0.05"', "check.max-regression: '0.05' may mean 5% or 0.05%"),
        ('stat = "p95"\nmin-steps = 3\nmin_steps = 4', "check.min_steps: set twice"),
        ("limits = [", "is not valid TOML"),
        ('"bad\\nkey" = 3', "unknown key 'bad\\nkey' in check"),
    ],
)
def test_a_mistake_is_reported_with_file_and_key(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "tfperf.toml", f"[check]\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        read_config(path)
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tfperf.toml", "max-skew = '5%'", "unknown key 'max-skew': limits are in [check]"),
        ("tfperf.toml", "check = 3", "check: must be a table: [check]"),
        ("pyproject.toml", "[tool.tfperf]\nmax-skew = '5%'", "limits are in [tool.tfperf.check]"),
        ("pyproject.toml", "[tool]\ntfperf = 3", "tool.tfperf: must be a table"),
        ("pyproject.toml", "[[tool.tfperf.check]]", "tool.tfperf.check: must be a table"),
    ],
)
def test_limits_in_the_wrong_table_are_an_error(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=name) as raised:
        read_config(write(tmp_path / name, text))
    assert message in str(raised.value)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml does not exist"):
        read_config(tmp_path / "no.toml")
    with pytest.raises(TfperfError, match=r"cannot read .*: Is a directory; check its permissions") as raised:
        read_config(tmp_path)
    assert not isinstance(raised.value, ConfigError), "it is not the usage that is wrong"
    (tmp_path / "tfperf.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        read_config(tmp_path / "tfperf.toml")


def test_the_nearest_file_upwards_counts(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    far = write(tmp_path / "tfperf.toml", "")
    assert find_config(deep) == far
    write(tmp_path / "a" / "b" / "pyproject.toml", "[tool.ruff]")
    assert find_config(deep) == far
    near = write(tmp_path / "a" / "pyproject.toml", "[tool.tfperf.check]")
    assert find_config(deep) == near
    first = write(tmp_path / "a" / "tfperf.toml", "[check]")
    assert find_config(deep) == first
    assert find_config(tmp_path / "a") == first


@pytest.mark.parametrize("root", [".git", ".hg", "pyproject.toml"])
def test_nothing_above_the_root_of_the_project_counts(tmp_path: Path, root: str) -> None:
    deep = tmp_path / "project" / "a" / "b"
    deep.mkdir(parents=True)
    write(tmp_path / "tfperf.toml", "")
    assert find_config(deep) is None, "without a project, only the folder itself counts"
    (tmp_path / "project" / root).touch()
    assert find_config(deep) is None
    own = write(tmp_path / "project" / "tfperf.toml", "")
    assert find_config(deep) == own


def test_the_project_of_a_part_of_a_repository_does_not_end_the_search(tmp_path: Path) -> None:
    (tmp_path / ".git").touch()  # as in a worktree
    write(tmp_path / "part" / "pyproject.toml", "[project]")
    assert find_config(tmp_path / "part") is None
    whole = write(tmp_path / "pyproject.toml", "[tool.tfperf.check]")
    assert find_config(tmp_path / "part") == whole


@pytest.mark.skipif(os.name != "posix", reason="files have no owners")
def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process says that it is another user, because only root can give files away."""
    path = write(tmp_path / "tfperf.toml", "")
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        assert find_config(tmp_path) == path
        os.chown(path, 54321, -1)
    with pytest.raises(
        TfperfError, match=r"tfperf.toml belongs to another user \(\d+\), who could .* pass --config"
    ) as raised:
        find_config(tmp_path)
    assert not isinstance(raised.value, ConfigError), "it is not the usage that is wrong"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", str(path.stat().st_uid))
    assert find_config(tmp_path) == path
    assert read_config(path).file == path, "a file that is named may be anybody's"


def test_an_address_in_a_file_that_nobody_named_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "tfperf.toml", '[check]\nbaseline = ["a.json", "http://127.0.0.1:9/b.json"]\n')
    with pytest.raises(ConfigError, match=r"check.baseline: http://127.0.0.1:9/b.json is an address, .* --config"):
        read_config(path, is_named=False)
    assert len(read_config(path).baseline or ()) == 2


def test_an_invalid_file_on_the_way_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.tfperf.check\n")
    with pytest.raises(ConfigError, match=r"pyproject\.toml is not valid TOML"):
        find_config(tmp_path)
