"""Which packages are installed, and whether they are compatible; read from their metadata, so that none is imported."""

from __future__ import annotations

import platform
from importlib.metadata import Distribution, distributions

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tfperf.capture.machine import Machine
from tfperf.capture.outcomes import Check

_WITHOUT_GPU = {"tensorflow-cpu", "tf-nightly-cpu", "tensorflow-cpu-aws", "intel-tensorflow", "tensorflow-intel"}
_TENSORFLOWS = (
    *("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu"),
    *("intel-tensorflow", "tensorflow-intel", "tensorflow-macos", "tensorflow-cpu-aws"),
)
"""Packages that are imported as `tensorflow`."""
_PARTS = {"tensorflow-intel", "tensorflow-macos", "tensorflow-cpu-aws"}
"""Packages that `tensorflow` itself installs on some systems."""
_MIN_TENSORFLOW, _KERAS_3_SINCE = (2, 13), (2, 16)
_MIN_GRPCIO = (1, 60)


def software_checks(machine: Machine) -> list[Check]:
    """Check Python and the packages that profiling needs."""
    packages = _Packages(machine)
    return [
        Check("Python", "ok", platform.python_version()),
        Check("tfperf", "ok", packages.version("tfperf") or "not installed as a package"),
        _tensorflow_check(packages),
        _keras_check(packages, legacy=machine.environment.get("TF_USE_LEGACY_KERAS", "") in ("1", "true", "True")),
        packages.check("protobuf"),
        _grpcio_check(packages),
    ]


def has_gpu_tensorflow(machine: Machine) -> bool | None:
    """Return whether the installed TensorFlow can use a GPU; None if none is installed."""
    installed = _Packages(machine).tensorflows
    return not _WITHOUT_GPU.issuperset(installed) if installed else None


class _Packages:
    """The installed packages; of several with one name the first counts, as for imports."""

    def __init__(self, machine: Machine) -> None:
        self._path = list(machine.python_path)
        self.tensorflows = [name for name in _TENSORFLOWS if self._distribution(name)]

    def _distribution(self, name: str) -> Distribution | None:
        return next(iter(distributions(name=name, path=self._path)), None)

    def version(self, name: str) -> str:
        """Return the version; empty if it is not installed."""
        distribution = self._distribution(name)
        return str(distribution.version or "") if distribution else ""

    def release(self, name: str) -> tuple[int, ...]:
        """Return the numbers of the version, `2.21.0rc1` as (2, 21, 0); empty if it is not installed."""
        try:
            return Version(self.version(name)).release
        except InvalidVersion:
            return ()

    def check(self, name: str) -> Check:
        """Check that a package is installed in a version that TensorFlow accepts."""
        version = self.version(name)
        if not version:
            return Check(name, "fail", "not installed", f"pip install {name}")
        for tensorflow in self.tensorflows:
            accepted = self._accepted_versions(tensorflow, name)
            if self.release(name) and not accepted.contains(version, prereleases=True):
                conflict = f"{version}, but {tensorflow} {self.version(tensorflow)} needs {accepted}"
                return Check(name, "warn", conflict, f'pip install "{name}{accepted}"')
        return Check(name, "ok", version)

    def _accepted_versions(self, name: str, required: str) -> SpecifierSet:
        """Return the versions of `required` that another package accepts here."""
        distribution = self._distribution(name)
        for line in (distribution and distribution.requires) or ():
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue
            if canonicalize_name(requirement.name) == required and (
                requirement.marker is None or requirement.marker.evaluate()
            ):
                return requirement.specifier
        return SpecifierSet()


def _tensorflow_check(packages: _Packages) -> Check:
    installed = ", ".join(f"{name} {packages.version(name)}" for name in packages.tensorflows)
    if not installed:
        without = "not installed: profiling from inside a job needs it, nothing else does"
        return Check("TensorFlow", "warn", without, "pip install tensorflow, if jobs run in this environment")
    rivals = [name for name in packages.tensorflows if name not in _PARTS]
    if len(rivals) > 1:
        fix = f"pip uninstall -y {' '.join(rivals)}, then install one of them again"
        return Check("TensorFlow", "warn", f"{installed}: they overwrite each other's files", fix)
    if packages.release(packages.tensorflows[0]) < _MIN_TENSORFLOW:
        untested = f"{installed}: older than the versions that tfperf is tested with"
        return Check("TensorFlow", "warn", untested, 'pip install "tensorflow>=2.13"')
    return Check("TensorFlow", "ok", installed)


def _keras_check(packages: _Packages, *, legacy: bool) -> Check:
    keras, tf_keras = packages.version("keras"), packages.version("tf_keras")
    versions = {"keras": keras, "tf_keras": tf_keras}
    installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if not packages.tensorflows:
        return Check("Keras", "ok", installed or "not installed")
    if legacy and not tf_keras:
        missing = f"{installed or 'none'}; TF_USE_LEGACY_KERAS needs tf_keras"
        return Check("Keras", "warn", missing, "pip install tf_keras")
    if not installed:
        return Check("Keras", "warn", "not installed: tf.keras does not work", "pip install keras")
    needs_keras_3 = packages.release(packages.tensorflows[0]) >= _KERAS_3_SINCE
    if keras and not legacy and needs_keras_3 != (packages.release("keras") >= (3,)):
        fix = f'pip install "{"keras>=3" if needs_keras_3 else "keras<3"}"'
        return Check("Keras", "warn", f"{installed}: not the version for this TensorFlow", fix)
    return Check("Keras", "ok", installed)


def _grpcio_check(packages: _Packages) -> Check:
    check = packages.check("grpcio")
    if check.status == "ok" and packages.release("grpcio") < _MIN_GRPCIO:
        old = f"{check.found}: too old for tfperf capture and tfperf.serve()"
        return Check("grpcio", "warn", old, 'pip install "grpcio>=1.60"')
    return check
