"""Limits in a file: `[tool.tfperf.check]` of a pyproject.toml, or `[check]` of a tfperf.toml.

[tool.tfperf.check]
max-input-bound = "10%"
max-retraces = 0
fail-on = ["compilation"]
limits = ["sum(kernels.total_us[name~nccl]) < 500us"]
skip-first = 2
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec import Struct

from tfperf.compare.bootstrap import STATISTICS, StepStatistic
from tfperf.errors import TfperfError
from tfperf.gate.grammar import read_limit
from tfperf.gate.limits import NAMED, ConfigError, Limit, LimitError, named_limits, regression_tolerance
from tfperf.storage.remote_path import Location, located
from tfperf.units import did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SHARED_FILE = "pyproject.toml"
_MOST = 10**9
_Result = TypeVar("_Result")


class CheckConfig(Struct, frozen=True, kw_only=True):
    """What a gate is to judge: limits, and settings; None is not set."""

    limits: tuple[Limit, ...] = ()
    stat: StepStatistic | None = None
    skip_first: int | None = None
    min_steps: int | None = None
    by_kind: str | None = None
    """The kind of steps that are judged; None: the main one."""
    baseline: tuple[Location, ...] | None = None
    max_regression: float | None = None
    """A share: 0.05 is 5 %."""
    file: Path | None = None
    """Where some of it comes from."""


def find_config(start: Path) -> Path | None:
    """Return the nearest file about tfperf, from a folder upwards; None if there is none.

    In one folder, tfperf.toml comes before pyproject.toml. Raises ConfigError for a file that is not TOML: its limits
    must not get lost unnoticed.
    """
    start = start.absolute()
    for folder in (start, *start.parents):
        own_file, shared_file = folder / "tfperf.toml", folder / _SHARED_FILE
        if own_file.is_file():
            return own_file
        if shared_file.is_file() and "tfperf" in _tool_tables(_read_toml(shared_file)):
            return shared_file
    return None


def read_config(path: Path) -> CheckConfig:
    """Return the limits and settings of a file; paths in it are relative to its folder.

    Raises ConfigError, which names the file and the key.
    """
    table, name = _check_table(path)
    settings: dict[str, Any] = {}
    limits: list[Limit] = []
    keys: set[str] = set()
    for written, value in table.items():
        key, origin = written.replace("_", "-"), f"{path}, {name}.{written[:80]}"
        if key in keys:
            raise ConfigError(f"{origin}: this is set twice, with - and with _")
        keys.add(key)
        if key in NAMED:
            of_key = _texts if NAMED[key].of_cause else _text
            values = of_key(value, NAMED[key].example, origin)
            limits += _in_file(partial(named_limits, place=origin), key, values, origin)
        elif key == "limits":
            if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
                raise ConfigError(f'{origin}: it must be a list of strings such as ["input_bound <= 10%"]')
            limits += [_in_file(read_limit, text, origin) for text in value]
        elif key in _SETTINGS:
            settings[key.replace("-", "_")] = _SETTINGS[key](value, origin, path)
        else:
            close = did_you_mean(key, (*NAMED, "limits", *_SETTINGS))
            raise ConfigError(f"{path}: {name} has no key {written[:80]!r}: {close}")
    return CheckConfig(limits=tuple(limits), file=path, **settings)


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file") from error
    except OSError as error:
        raise TfperfError(f"{path}: it cannot be read: {error.strerror or error}; check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: it is not valid TOML: {' '.join(str(error).split())}") from error


def _tool_tables(document: Mapping[str, Any]) -> Mapping[str, Any]:
    tool = document.get("tool")
    return tool if isinstance(tool, dict) else {}


def _check_table(path: Path) -> tuple[Mapping[str, Any], str]:
    document, prefix = _read_toml(path), ""
    if path.name == _SHARED_FILE:
        document, prefix = _table(_tool_tables(document).get("tfperf", {}), path, "tool.tfperf"), "tool.tfperf."
    for key in document:
        if key != "check":
            where = prefix.rstrip(".") or "it"
            raise ConfigError(f"{path}: {where} has no key {key[:80]!r}: limits are in [{prefix}check]")
    return _table(document.get("check", {}), path, f"{prefix}check"), f"{prefix}check"


def _table(value: Any, path: Path, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}, {name}: it must be a table: [{name}]")
    return value


def _text(value: Any, example: str, origin: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ConfigError(f'{origin}: it must be text such as "{example}"')
    return str(value)


def _texts(value: Any, example: str, origin: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f'{origin}: it must be text such as "{example}", or a list of such texts')
    return texts


def _in_file(read: Callable[..., _Result], *arguments: Any) -> _Result:
    try:
        return read(*arguments)
    except LimitError as error:
        raise ConfigError(str(error)) from None


def _integer_from(least: int) -> Callable[[Any, str, Path], int]:
    def read(value: Any, origin: str, _: Path) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            raise ConfigError(f"{origin}: it must be an integer from {least} to {_MOST}")
        return value

    return read


def _stat(value: Any, origin: str, _: Path) -> StepStatistic:
    if value not in STATISTICS:
        raise ConfigError(f"{origin}: it must be one of {', '.join(STATISTICS)}")
    return cast("StepStatistic", value)


def _kind(value: Any, origin: str, _: Path) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f'{origin}: it must be a kind of steps, such as "train" or "eval"')
    return value


def _paths(value: Any, origin: str, file: Path) -> tuple[Location, ...]:
    paths = value if isinstance(value, list) else [value]
    if not paths or not all(isinstance(path, str) and path and "\0" not in path for path in paths):
        raise ConfigError(f"{origin}: it must be the path of a file, or a list of paths")
    try:
        places = [located(path) for path in paths]
    except TfperfError as error:
        raise ConfigError(f"{origin}: {error}") from error
    return tuple(file.parent / place if isinstance(place, Path) else place for place in places)


def _tolerance(value: Any, origin: str, _: Path) -> float:
    return _in_file(regression_tolerance, _text(value, "5%", origin), origin)


_SETTINGS: Mapping[str, Callable[[Any, str, Path], Any]] = {
    "skip-first": _integer_from(0),
    "min-steps": _integer_from(1),
    "stat": _stat,
    "by-kind": _kind,
    "baseline": _paths,
    "max-regression": _tolerance,
}
