"""Which packages are installed, and whether they get along; told by their metadata, so that nothing is imported."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from importlib.metadata import Distribution, distributions

from tfperf.capture.machine import Machine
from tfperf.outcomes import Check

_TENSORFLOWS = (
    "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu",
    "intel-tensorflow", "tensorflow-intel", "tensorflow-macos", "tensorflow-cpu-aws",
)  # fmt: skip
"""Packages that are imported as `tensorflow`."""
_PARTS = {"tensorflow-intel", "tensorflow-macos", "tensorflow-cpu-aws"}
"""What `tensorflow` itself brings along on some systems."""
_WITHOUT_GPU = {"tensorflow-cpu", "tf-nightly-cpu", "tensorflow-cpu-aws", "intel-tensorflow", "tensorflow-intel"}
_OLDEST_TENSORFLOW, _KERAS_3_SINCE = (2, 13), (2, 16)
_OLDEST_GRPCIO = (1, 60)
_REQUIREMENT = re.compile(r"([\w.-]+)\s*\(?([^;()\[\]]*)\)?\s*")
_BOUND = re.compile(r"(>=|<=|==|!=|<|>)\s*(\d+(?:\.\d+)*)")


def software_checks(machine: Machine) -> list[Check]:
    """Look at Python and at the packages that profiling needs."""
    packages = _Packages(machine)
    return [
        Check("Python", "ok", platform.python_version()),
        Check("tfperf", "ok", packages.version("tfperf") or "not installed as a package"),
        _tensorflow(packages),
        _keras(packages, legacy=machine.environment.get("TF_USE_LEGACY_KERAS", "") in ("1", "true", "True")),
        packages.check("protobuf"),
        _grpcio(packages),
    ]


def has_gpu_tensorflow(machine: Machine) -> bool | None:
    """Return whether the installed TensorFlow can use a GPU; None if there is none."""
    installed = _Packages(machine).tensorflows
    return not _WITHOUT_GPU.issuperset(installed) if installed else None


class _Packages:
    """The installed packages; of several of one name the first counts, as with imports."""

    def __init__(self, machine: Machine) -> None:
        self._path = list(machine.python_path)
        self.tensorflows = [name for name in _TENSORFLOWS if self._find(name)]

    def _find(self, name: str) -> Distribution | None:
        return next(iter(distributions(name=name, path=self._path)), None)

    def version(self, name: str) -> str:
        """Return the version; empty if it is not installed."""
        found = self._find(name)
        return str(found.version or "") if found else ""

    def check(self, name: str) -> Check:
        """Look whether a package is there, in a version that TensorFlow takes."""
        version = self.version(name)
        if not version:
            return Check(name, "fail", "not installed", f"pip install {name}")
        for tensorflow in self.tensorflows:
            bounds = self._bounds(tensorflow, name)
            if not _is_within(version, bounds):
                wanted = ",".join(f"{sign}{bound}" for sign, bound in bounds)
                found = f"{version}, but {tensorflow} {self.version(tensorflow)} wants {wanted}"
                return Check(name, "warn", found, f'pip install "{name}{wanted}"')
        return Check(name, "ok", version)

    def _bounds(self, name: str, wanted: str) -> list[tuple[str, str]]:
        """Return what one package asks of another's version; only what it asks without a condition."""
        found = self._find(name)
        for line in (found and found.requires) or ():
            parsed = _REQUIREMENT.fullmatch(line)
            if parsed and parsed[1].lower().replace("_", "-") == wanted:
                return _BOUND.findall(parsed[2])
        return []


def _tensorflow(packages: _Packages) -> Check:
    installed = [f"{name} {packages.version(name)}" for name in packages.tensorflows]
    if not installed:
        return Check(
            "TensorFlow", "warn", "not installed: no profiling from inside a job; all else works",
            "pip install tensorflow, if jobs run in this environment",
        )  # fmt: skip
    rivals = [name for name in packages.tensorflows if name not in _PARTS]
    found = ", ".join(installed)
    if len(rivals) > 1:
        fix = f"pip uninstall -y {' '.join(rivals)}, then install one of them again"
        return Check("TensorFlow", "warn", f"{found}: they overwrite each other's files", fix)
    if _numbers(packages.version(packages.tensorflows[0])) < _OLDEST_TENSORFLOW:
        return Check(
            "TensorFlow", "warn", f"{found}: older than tfperf is tested with", 'pip install "tensorflow>=2.13"'
        )
    return Check("TensorFlow", "ok", found)


def _keras(packages: _Packages, *, legacy: bool) -> Check:
    versions = [(name, packages.version(name)) for name in ("keras", "tf_keras")]
    found = ", ".join(f"{name} {version}" for name, version in versions if version)
    keras, tf_keras = (version for _, version in versions)
    if not packages.tensorflows:
        return Check("Keras", "ok", found or "not installed")
    if legacy and not tf_keras:
        return Check(
            "Keras", "warn", f"{found or 'none'}; TF_USE_LEGACY_KERAS asks for tf_keras", "pip install tf_keras"
        )
    if not found:
        return Check("Keras", "warn", "not installed: tf.keras does not work", "pip install keras")
    tensorflow = _numbers(packages.version(packages.tensorflows[0]))
    if keras and not legacy and (tensorflow >= _KERAS_3_SINCE) != (_numbers(keras) >= (3,)):
        wanted = "keras>=3" if tensorflow >= _KERAS_3_SINCE else "keras<3"
        return Check("Keras", "warn", f"{found}: not the one for this TensorFlow", f'pip install "{wanted}"')
    return Check("Keras", "ok", found)


def _grpcio(packages: _Packages) -> Check:
    check = packages.check("grpcio")
    if check.status == "ok" and _numbers(check.found) < _OLDEST_GRPCIO:
        return Check("grpcio", "warn", f"{check.found}: too old for tfperf.serve()", 'pip install "grpcio>=1.60"')
    return check


def _is_within(version: str, bounds: Sequence[tuple[str, str]]) -> bool:
    return all(_holds(_numbers(version), sign, _numbers(bound)) for sign, bound in bounds)


def _holds(version: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> bool:
    if sign == "==":
        return version == bound
    if sign == "!=":
        return version != bound
    above = version > bound or (version == bound and "=" in sign)
    below = version < bound or (version == bound and "=" in sign)
    return above if sign[0] == ">" else below


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release of a version, `2.21.0rc1` as (2, 21)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    parts = [int(part) for part in found[0].split(".")] if found else []
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)
