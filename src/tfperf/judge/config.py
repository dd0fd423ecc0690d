"""Limits in a file: `[tool.tfperf.check]` of a pyproject.toml, or `[check]` of a tfperf.toml.

[tool.tfperf.check]
max-input-bound = "10%"
max-retraces = 0
fail-on = ["compilation"]
limits = ["sum(kernels.total_us[name~nccl]) < 500us"]
skip-first = 2
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from tfperf.base.errors import TfperfError
from tfperf.base.storage.remote_path import Location, RemotePath, located
from tfperf.base.units import did_you_mean
from tfperf.judge.grammar import read_limit
from tfperf.judge.limits import NAMED, ConfigError, Limit, LimitError, named_limits, regression_tolerance
from tfperf.judge.regression import STATISTICS, StepStatistic

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SHARED_FILE = "pyproject.toml"
_REPOSITORY = (".git", ".hg", ".svn")
_MOST = 10**9
_LARGEST, _MOST_DOTS, _MOST_LIMITS = 1 << 20, 1 << 13, 1000
_Result = TypeVar("_Result")


class CheckConfig(Struct, frozen=True, kw_only=True):
    """Limits and settings of a check; None is unset."""

    limits: tuple[Limit, ...] = ()
    stat: StepStatistic | None = None
    skip_first: int | None = None
    min_steps: int | None = None
    by_kind: str | None = None
    """Kind of steps to check; None: the main one."""
    allow_doubt: bool | None = None
    """Whether figures are checked even if their data is doubtful."""
    baseline: tuple[Location, ...] | None = None
    max_regression: float | None = None
    """A share: 0.05 is 5%."""
    file: Path | None = None
    """The file with some of the settings."""


def find_config(start: Path) -> Path | None:
    """Return the nearest configuration file between a folder and the root of its project; None if there is none.

    tfperf.toml precedes pyproject.toml. Raise ConfigError for invalid TOML, so that its limits are not silently lost;
    TfperfError for a file of another user.
    """
    for folder in _project_folders(start.absolute()):
        own_file, shared_file = folder / "tfperf.toml", folder / _SHARED_FILE
        if own_file.is_file() or (shared_file.is_file() and "tfperf" in _tool_tables(_read_toml(shared_file))):
            file = own_file if own_file.is_file() else shared_file
            _refuse_of_others(file)
            return file
    return None


def _project_folders(start: Path) -> Sequence[Path]:
    """Return the folders up to the repository or a pyproject.toml; any user may write to those above (/tmp)."""
    folders = (start, *start.parents)
    for names in (_REPOSITORY, (_SHARED_FILE,)):
        for number, folder in enumerate(folders, start=1):
            if any((folder / name).exists() for name in names):
                return folders[:number]
    return folders[:1]


def _refuse_of_others(file: Path) -> None:
    """Raise TfperfError for another user's file, which that user could change, like git; root's files are trusted."""
    if os.name != "posix":
        return
    trusted = {0, os.geteuid()}
    if os.geteuid() == 0:
        trusted.add(int(os.environ.get("SUDO_UID") or 0))
    for owner in (file.lstat().st_uid, file.stat().st_uid):
        if owner not in trusted:
            raise TfperfError(
                f"{file} belongs to another user ({owner}), who could change the limits; "
                f"pass --config {file} to use it, or --no-config"
            )


def read_config(path: Path, *, is_named: bool = True) -> CheckConfig:
    """Return the limits and settings of a file with paths relative to it; raise ConfigError with file and key.

    A file that was found automatically (not `is_named`) must not cause remote access.
    """
    table, name = _check_table(path)
    settings: dict[str, Any] = {}
    limits: list[Limit] = []
    keys: set[str] = set()
    for written, value in table.items():
        key, origin = written.replace("_", "-"), f"{path}, {name}.{written[:80]}"
        if key in keys:
            raise ConfigError(f"{origin}: set twice, with - and with _")
        keys.add(key)
        if key in NAMED:
            limits += _named(key, value, origin)
        elif key == "limits":
            if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
                raise ConfigError(f'{origin}: must be a list of strings, for example ["input_bound <= 10%"]')
            if len(value) > _MOST_LIMITS:
                raise ConfigError(f"{origin}: has {len(value):,} limits, more than the maximum of {_MOST_LIMITS:,}")
            limits += [_in_file(read_limit, text, origin) for text in value]
        elif key in _KEYS:
            settings[key.replace("-", "_")] = _setting(key, value, origin, path)
        else:
            close = did_you_mean(key, _KEYS)
            raise ConfigError(f"{path}: unknown key {written[:80]!r} in {name}: {close}")
    addresses = [place for place in settings.get("baseline", ()) if isinstance(place, RemotePath)]
    if addresses and not is_named:
        why = "is an address, which tfperf fetches only if you pass the file"
        raise ConfigError(f"{path}, {name}.baseline: {addresses[0]} {why}: --config {path}")
    return CheckConfig(limits=tuple(limits), file=path, **settings)


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        # The parser's time grows with the square of the dots in a key.
        if len(text) > _LARGEST or any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
            raise ValueError(
                f"the file has more than {_LARGEST:,} characters, or a line with more than {_MOST_DOTS:,} dots"
            )
        return tomllib.loads(text)
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist") from error
    except OSError as error:
        raise TfperfError(f"cannot read {path}: {error.strerror or error}; check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {' '.join(str(error).split())}") from error


def _tool_tables(document: Mapping[str, Any]) -> Mapping[str, Any]:
    tool = document.get("tool")
    return tool if isinstance(tool, dict) else {}


def _check_table(path: Path) -> tuple[Mapping[str, Any], str]:
    document, prefix = _read_toml(path), ""
    if path.name == _SHARED_FILE:
        document, prefix = _table(_tool_tables(document).get("tfperf", {}), path, "tool.tfperf"), "tool.tfperf."
    for key in document:
        if key != "check":
            raise ConfigError(f"{path}: unknown key {key[:80]!r}: limits are in [{prefix}check]")
    return _table(document.get("check", {}), path, f"{prefix}check"), f"{prefix}check"


def _table(value: Any, path: Path, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}, {name}: must be a table: [{name}]")
    return value


def _text(value: Any, example: str, origin: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ConfigError(f'{origin}: must be text, for example "{example}"')
    return str(value)


def _named(key: str, value: Any, origin: str) -> Sequence[Limit]:
    values: Any = [value] if isinstance(value, str) else value
    if not NAMED[key].of_cause:
        values = _text(value, NAMED[key].example, origin)
    elif not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise ConfigError(f'{origin}: must be text, for example "{NAMED[key].example}", or a list of texts')
    return _in_file(partial(named_limits, place=origin), key, values, origin)


def _in_file(read: Callable[..., _Result], *arguments: Any) -> _Result:
    try:
        return read(*arguments)
    except LimitError as error:
        raise ConfigError(str(error)) from None


def _setting(key: str, value: Any, origin: str, file: Path) -> Any:
    if key == "baseline":
        return _paths(value, origin, file)
    if key == "max-regression":
        return _in_file(regression_tolerance, _text(value, "5%", origin), origin)
    if not _SETTINGS[key].holds(value):
        raise ConfigError(f"{origin}: must be {_SETTINGS[key].must}")
    return value


class _Setting(NamedTuple):
    """A setting's validator, and the expected value for its error message."""

    holds: Callable[[Any], bool]
    must: str


def _integer_from(least: int) -> _Setting:
    return _Setting(lambda value: type(value) is int and least <= value <= _MOST, f"an integer from {least} to {_MOST}")


def _paths(value: Any, origin: str, file: Path) -> tuple[Location, ...]:
    paths = value if isinstance(value, list) else [value]
    if not paths or not all(isinstance(path, str) and path and "\0" not in path for path in paths):
        raise ConfigError(f"{origin}: must be the path of a file, or a list of paths")
    try:
        places = [located(path) for path in paths]
    except TfperfError as error:
        raise ConfigError(f"{origin}: {error}") from error
    return tuple(file.parent / place if isinstance(place, Path) else place for place in places)


_SETTINGS: Mapping[str, _Setting] = {
    "skip-first": _integer_from(0),
    "min-steps": _integer_from(1),
    "stat": _Setting(lambda value: value in STATISTICS, f"one of {', '.join(STATISTICS)}"),
    "by-kind": _Setting(
        lambda value: isinstance(value, str) and bool(value), 'a kind of step, for example "train" or "eval"'
    ),
    "allow-doubt": _Setting(lambda value: isinstance(value, bool), "true or false"),
}
_KEYS = (*NAMED, "limits", *_SETTINGS, "baseline", "max-regression")
