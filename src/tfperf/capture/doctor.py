"""The checks of `tfperf doctor`: this machine, its packages, the logdir and a running job. They change nothing."""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tfperf.base.errors import CaptureError, TraceFormatError
from tfperf.base.units import counted, format_bytes
from tfperf.capture.address import Address
from tfperf.capture.machine import UNKNOWN, USUAL_PORT, Listener, Machine
from tfperf.capture.outcomes import Check, Status, TracerOptions, gpu_event_count, has_gpu_plane, missing_gpu
from tfperf.capture.run_folder import local_folder
from tfperf.formats.wire.untraced_gpu import LIBRARY_FIX, PERMISSION_FIX

if TYPE_CHECKING:
    from tfperf.capture.client import ProfilerClient
    from tfperf.formats.wire.contents import Contents

_PERMISSION = "driver's permission"
NOT_CHECKED = "not checked on this system"
_NVIDIA_SMI_SECONDS = 5.0
_SCARCE_BYTES, _TOO_FEW_BYTES = 10**9, 10**8
_DURATIONS_MS = (50, 500)
"""Durations of profiles; the second is used only if the first trace is empty."""
_ANSWER_SECONDS = 30.0
_HIDING_VARIABLES = {"NVIDIA": ("CUDA_VISIBLE_DEVICES",), "AMD": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")}


def run_checks(
    logdir: Path, job: Address | None = None, *, tls_ca: Path | None = None, machine: Machine | None = None
) -> list[Check]:
    """Check the machine, the logdir and, with an address, the job whose profiler server listens there."""
    machine = machine or Machine()
    checks = [*software_checks(machine), *gpu_checks(machine)]
    checks += job_checks(job, machine, tls_ca=tls_ca) if job else [port_check(machine, USUAL_PORT)]
    return [*checks, *logdir_checks(logdir)]


def gpu_checks(machine: Machine) -> list[Check]:
    """Check for GPUs and the requirements of their tracer."""
    maker, models = _gpus(machine)
    gpu = _gpu_check(machine, maker, models)
    if maker == "NVIDIA":
        restricted = machine.profiling_is_restricted()
        if not restricted:
            permission = Check(_PERMISSION, "ok", NOT_CHECKED if restricted is None else "all users can profile")
        elif machine.may_profile():
            permission = Check(_PERMISSION, "ok", "only administrators can profile, and you are one")
        else:
            # Since CUDA 10.2, this restriction mostly affects counters, which TensorFlow's tracer does not use.
            found = "only administrators can profile: GPU events may be missing"
            permission = Check(_PERMISSION, "warn", found, PERMISSION_FIX)
        return [gpu, _cupti_check(machine), permission]
    return [gpu, *(Check(name, "ok", "not needed without an NVIDIA GPU") for name in ("libcupti", _PERMISSION))]


def _gpus(machine: Machine) -> tuple[str, list[str]]:
    devices, models = machine.nvidia_devices(), machine.nvidia_models()
    if devices:
        return "NVIDIA", models if len(models) == len(devices) else ["NVIDIA GPU"] * len(devices)
    if machine.has_rocm():
        return "AMD", ["AMD GPU (ROCm)"]
    # Other systems, and Linux inside Windows, lack these devices, but may have the driver's own tool.
    models = [] if models else _ask_nvidia_smi(machine)
    return ("NVIDIA", models) if models else ("", [])


def _ask_nvidia_smi(machine: Machine) -> list[str]:
    program = shutil.which("nvidia-smi", path=machine.environment.get("PATH", ""))
    if program is None:
        return []
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def _gpu_check(machine: Machine, maker: str, models: list[str]) -> Check:
    if not models and (hidden := machine.nvidia_models()):
        in_container = "start the container with --gpus all (Kubernetes: limits: nvidia.com/gpu: 1)"
        fix = f"{in_container}; outside a container, run `nvidia-smi` once as root"
        return Check("GPU", "warn", f"{_listed_models(hidden)} installed, but not accessible here", fix)
    if not models:
        return Check("GPU", "ok", "none on this machine" if machine.is_linux else f"none found; {NOT_CHECKED} in full")
    names = _listed_models(models)
    for variable in _HIDING_VARIABLES[maker]:
        value = machine.environment.get(variable)
        if value is not None and value.strip() in ("", "-1", "NoDevFiles"):
            fix = f"unset {variable} in the environment of the job"
            return Check("GPU", "warn", f"{names}, hidden by {variable}={value}", fix)
    packages = _Packages(machine)
    if maker == "NVIDIA" and not (packages.has_gpu_tensorflow or packages.cuda_plugins):
        if packages.version("jax"):
            fix = 'pip install -U "jax[cuda13]" (CUDA 13 needs driver 580 or later; for an older one: jax[cuda12])'
            return Check("GPU", "warn", f"{names}; this JAX has no CUDA plugin", fix)
        if packages.tensorflows:
            fix = 'pip uninstall -y tensorflow-cpu; pip install "tensorflow[and-cuda]"'
            return Check("GPU", "warn", f"{names}; this TensorFlow is built without GPU support", fix)
    return Check("GPU", "ok", names)


def _listed_models(models: list[str]) -> str:
    return ", ".join(f"{models.count(model)} x {model}" for model in dict.fromkeys(models))


def _cupti_check(machine: Machine) -> Check:
    if not machine.is_linux:
        return Check("libcupti", "ok", NOT_CHECKED)
    packages = _Packages(machine)
    # Each plugin of JAX loads the library of its CUDA version.
    plugins = {plugin: f"libcupti.so.{plugin.removeprefix('jax-cuda')[:2]}" for plugin in packages.cuda_plugins}
    names = [*plugins.values()] if plugins and not packages.has_gpu_tensorflow else [*plugins.values(), "libcupti.so"]
    missing = next((name for name in names if not machine.loaded_cupti(name)), None)
    if missing is None:
        return Check("libcupti", "ok", ", ".join(dict.fromkeys(map(machine.loaded_cupti, names))))
    if unused := machine.unused_cupti(missing):
        fix = f"export LD_LIBRARY_PATH={Path(unused).parent}:$LD_LIBRARY_PATH"
        return Check("libcupti", "warn", f"{unused}, outside the library search path", fix)
    for plugin, name in plugins.items():
        if name == missing:
            found = f"{name}, which {plugin} loads, not found: traces may have no GPU events"
            return Check("libcupti", "fail", found, f'pip install "{plugin}[with-cuda]=={packages.version(plugin)}"')
    # Without a GPU build of TensorFlow here, jobs may run in another environment.
    status: Status = "fail" if packages.has_gpu_tensorflow else "warn"
    return Check("libcupti", status, "not found: traces may have no GPU events", LIBRARY_FIX)


def port_check(machine: Machine, port: int) -> Check:
    """Check whether a port is free."""
    if not machine.shows_listeners():
        return Check("port", "ok", NOT_CHECKED)
    listener = machine.find_listener(port)
    if listener is None:
        return Check("port", "ok", f"{port} is free")
    return Check("port", "ok", f"{listener} listens on {port}", f"if this is the job, run tfperf doctor --port {port}")


def logdir_checks(logdir: Path) -> Iterator[Check]:
    """Check whether a trace can be written, and the free space for it; leave no files."""
    try:
        folder = local_folder(logdir)
        existing = next(path for path in (folder, *folder.parents) if path.is_dir())
        with tempfile.TemporaryFile(dir=existing):
            pass
        free_bytes = shutil.disk_usage(existing).free
    except CaptureError as error:
        yield Check.of_error("log folder", error)
        return
    except OSError as error:
        yield Check("log folder", "fail", f"cannot write to {existing}: {error.strerror}", "choose another --logdir")
        return
    yield Check("log folder", "ok", f"{folder} {'is writable' if existing == folder else 'can be created'}")
    yield space_check(free_bytes)


def space_check(free_bytes: int) -> Check:
    """Check whether the free space is enough for traces."""
    if free_bytes >= _SCARCE_BYTES:
        return Check("disk space", "ok", f"{format_bytes(free_bytes)} free")
    status: Status = "fail" if free_bytes < _TOO_FEW_BYTES else "warn"
    fix = "free some space, or choose another --logdir; a trace takes 1 to 500 MB"
    return Check("disk space", status, f"{format_bytes(free_bytes)} free", fix)


def job_checks(address: Address, machine: Machine, *, tls_ca: Path | None = None) -> list[Check]:
    """Find the process that listens at the address, and request a very short trace from its profiler."""
    from tfperf.capture.client import ProfilerClient

    listener = machine.find_listener(address.port) if address.is_here else None
    checks = [Check("port", "ok", f"{listener} listens on {address.port}")] if listener else []
    try:
        with ProfilerClient(address, tls_ca=tls_ca) as client, tempfile.TemporaryDirectory() as folder:
            client.connect()
            for duration_ms in _DURATIONS_MS:
                contents = _take_trace(client, Path(folder) / str(duration_ms), duration_ms)
                if contents is None or contents.event_count:
                    break
    except CaptureError as error:
        return [*checks, Check.of_error("profiler", error)]
    except TraceFormatError as error:
        fix = "check that this is the profiler of TensorFlow or JAX, or tfperf.serve()"
        return [*checks, Check("profiler", "fail", f"the trace of {address} is damaged: {error}", fix)]
    except OSError as error:
        problem = f"no space for temporary files: {error.strerror}"
        return [*checks, Check("profiler", "fail", problem, "free some space in /tmp, or set TMPDIR")]
    checks.append(Check("profiler", "ok", f"{address} responds"))
    if not contents or not contents.event_count:
        idle = f"no events in {duration_ms} ms: the job is idle or waiting outside TensorFlow and JAX"
        fix = "check while it is running steps; tfperf capture --wait-for-activity waits for them"
        return [*checks, Check("trace of the job", "warn", idle, fix)]
    checks.append(Check("trace of the job", "ok", f"{counted(contents.event_count, 'event')} in {duration_ms} ms"))
    return [*checks, _job_gpu_check(contents, machine if address.is_here else None, listener)]


def _take_trace(client: ProfilerClient, folder: Path, duration_ms: int) -> Contents | None:
    """Profile the job; return the contents of the trace, or None if it is empty."""
    from tfperf.capture.client import profile_request
    from tfperf.formats.wire.contents import look_into

    # An older server writes the trace there, and creates the folders, here or on its own machine.
    place = folder / "doctor" / "job.xplane.pb"
    request = profile_request(TracerOptions(), duration_ms, place)
    reply = client.profile(request, duration_ms / 1000 + _ANSWER_SECONDS).result()
    if reply.xspace:
        place.parent.mkdir(parents=True)
        place.write_bytes(reply.xspace)
    elif reply.empty_trace:
        return None
    elif not place.is_file():
        problem = f"{client.address} responds, but writes traces to its own disk (this one: {place})"
        raise CaptureError("written_remotely", f"{problem}; update TensorFlow in the job, or copy traces from there")
    return look_into(place)


def _job_gpu_check(contents: Contents, machine: Machine | None, listener: Listener | None) -> Check:
    name = "job's GPU"
    if missing := missing_gpu(contents, machine, listener.process if listener else UNKNOWN):
        return Check(name, "fail", missing.cause, missing.fix)
    if count := gpu_event_count(contents):
        return Check(name, "ok", counted(count, "event"))
    if has_gpu_plane(contents):
        return Check(name, "ok", "no events: the GPU was idle, or the job does not use it")
    return Check(name, "ok", "no GPU in the trace, and no evidence that the job uses one")


_WITHOUT_GPU = {"tensorflow-cpu", "tf-nightly-cpu", "tensorflow-cpu-aws", "intel-tensorflow", "tensorflow-intel"}
_TENSORFLOWS = (
    *("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu"),
    *("intel-tensorflow", "tensorflow-intel", "tensorflow-macos", "tensorflow-cpu-aws"),
)
"""Packages that are imported as `tensorflow`."""
_JAX_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin", "jax-rocm7-plugin", "jax-rocm60-plugin", "libtpu")
_PARTS = {"tensorflow-intel", "tensorflow-macos", "tensorflow-cpu-aws"}
"""Packages that `tensorflow` installs on some systems."""
_MIN_TENSORFLOW, _KERAS_3_SINCE = (2, 13), (2, 16)
_MIN_GRPCIO = (1, 60)


def software_checks(machine: Machine) -> list[Check]:
    """Check Python and the packages that profiling needs."""
    packages = _Packages(machine)
    grpcio = packages.check("grpcio")
    if grpcio.status == "ok" and packages.release("grpcio") < _MIN_GRPCIO:
        old = f"{grpcio.found}: too old for tfperf capture and tfperf.serve()"
        grpcio = Check("grpcio", "warn", old, 'pip install "grpcio>=1.60"')
    return [
        Check("Python", "ok", platform.python_version()),
        Check("tfperf", "ok", packages.version("tfperf") or "not installed as a package"),
        _tensorflow_check(packages),
        _jax_check(packages, machine.tpu_chips()),
        _keras_check(packages, legacy=machine.environment.get("TF_USE_LEGACY_KERAS", "") in ("1", "true", "True")),
        packages.check("protobuf"),
        grpcio,
    ]


class _Packages:
    """Installed packages. The first of several with one name counts, as in imports."""

    def __init__(self, machine: Machine) -> None:
        self._path = list(machine.python_path)
        self.tensorflows = [name for name in _TENSORFLOWS if self._distribution(name)]
        self.has_gpu_tensorflow = not _WITHOUT_GPU.issuperset(self.tensorflows)
        self.jax_plugins = [name for name in _JAX_PLUGINS if self._distribution(name)]
        self.cuda_plugins = [name for name in self.jax_plugins if name.startswith("jax-cuda")]

    def _distribution(self, name: str) -> Distribution | None:
        return next(iter(distributions(name=name, path=self._path)), None)

    def version(self, name: str) -> str:
        distribution = self._distribution(name)
        return str(distribution.version or "") if distribution else ""

    def release(self, name: str) -> tuple[int, ...]:
        """Return the numbers of the version: (2, 21, 0) for `2.21.0rc1`; empty if the package is not installed."""
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
            accepted = self.accepted_versions(tensorflow, name)
            if self.release(name) and not accepted.contains(version, prereleases=True):
                conflict = f"{version}, but {tensorflow} {self.version(tensorflow)} requires {accepted}"
                return Check(name, "warn", conflict, f'pip install "{name}{accepted}"')
        return Check(name, "ok", version)

    def accepted_versions(self, name: str, required: str) -> SpecifierSet:
        """Return the versions of `required` that another installed package accepts."""
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
    if not installed and packages.version("jax"):
        return Check("TensorFlow", "ok", "not installed")
    if not installed:
        without = "not installed, nor is JAX: one is required for profiling from inside a job"
        return Check("TensorFlow", "warn", without, "pip install tensorflow, or jax, if jobs use this environment")
    rivals = [name for name in packages.tensorflows if name not in _PARTS]
    if len(rivals) > 1:
        fix = f"pip uninstall -y {' '.join(rivals)}, then install one of them again"
        return Check("TensorFlow", "warn", f"{installed}: they overwrite each other's files", fix)
    if packages.release(packages.tensorflows[0]) < _MIN_TENSORFLOW:
        untested = f"{installed}: older than the versions tested with tfperf"
        return Check("TensorFlow", "warn", untested, 'pip install "tensorflow>=2.13"')
    return Check("TensorFlow", "ok", installed)


def _jax_check(packages: _Packages, tpu_chips: int) -> Check:
    version, jaxlib = packages.version("jax"), packages.version("jaxlib")
    if not version:
        return Check("JAX", "ok", "not installed")
    chips = [counted(tpu_chips, "TPU chip")] * bool(tpu_chips)
    installed = ", ".join([version, *(f"{name} {packages.version(name)}" for name in packages.jax_plugins), *chips])
    if not jaxlib:
        return Check("JAX", "fail", f"{installed}; jaxlib is not installed", f"pip install jax=={version}")
    accepted = packages.accepted_versions("jax", "jaxlib")
    if packages.release("jaxlib") and not accepted.contains(jaxlib, prereleases=True):
        return Check(
            "JAX", "warn", f"{installed} requires jaxlib {accepted}, not {jaxlib}", f"pip install jax=={version}"
        )
    for plugin in packages.cuda_plugins:
        if packages.release(plugin) != packages.release("jaxlib"):
            fix = f'pip install "{plugin}[with-cuda]=={jaxlib}"'
            return Check("JAX", "warn", f"{installed}: jaxlib {jaxlib} ignores a plugin of another version", fix)
    if tpu_chips and "libtpu" not in packages.jax_plugins:
        return Check("JAX", "warn", f"{installed}, but libtpu is not installed", f'pip install "jax[tpu]=={version}"')
    return Check("JAX", "ok", installed)


def _keras_check(packages: _Packages, *, legacy: bool) -> Check:
    keras, tf_keras = packages.version("keras"), packages.version("tf_keras")
    versions = {"keras": keras, "tf_keras": tf_keras}
    installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if not packages.tensorflows:
        return Check("Keras", "ok", installed or "not installed")
    if legacy and not tf_keras:
        missing = f"{installed or 'none'}; TF_USE_LEGACY_KERAS requires tf_keras"
        return Check("Keras", "warn", missing, "pip install tf_keras")
    if not installed:
        return Check("Keras", "warn", "not installed: tf.keras does not work", "pip install keras")
    needs_keras_3 = packages.release(packages.tensorflows[0]) >= _KERAS_3_SINCE
    if keras and not legacy and needs_keras_3 != (packages.release("keras") >= (3,)):
        fix = f'pip install "{"keras>=3" if needs_keras_3 else "keras<3"}"'
        return Check("Keras", "warn", f"{installed}: wrong version for this TensorFlow", fix)
    return Check("Keras", "ok", installed)
