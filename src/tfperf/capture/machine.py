"""Facts about the machine and the job from files and variables: GPUs, listeners, cluster task, software, limits."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import platform
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.base import __version__

if TYPE_CHECKING:
    from tfperf.formats.wire.capture_plane import CaptureFacts

_MODEL = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)
_RESTRICTED = re.compile(r"^(?:RmProfilingAdminOnly|NVreg_RestrictProfilingToAdminUsers):\s*(\d+)", re.MULTILINE)
"""Older drivers use one of these names for the option, newer ones the other."""
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-fA-F]+)", re.MULTILINE)
_PROFILING_CAPABILITIES = (1 << 21) | (1 << 38)
"""CAP_SYS_ADMIN and CAP_PERFMON."""
_WHEEL_FOLDERS = ("nvidia/cuda_cupti/lib", "nvidia/cu*/lib")
_TOOLKIT_FOLDERS = (
    "usr/local/cuda*/extras/CUPTI/lib64",
    "usr/local/cuda*/lib64",
    "usr/local/cuda*/targets/*/lib",
    "opt/cuda/extras/CUPTI/lib64",
    "usr/lib/*",
    "usr/lib64",
)
_GOOGLE = "0x1ae0"
_TPUS = ("0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076")
"""PCI numbers of the vendor and of TPU chips, v2 to TPU7x, as in `jax/_src/hardware_utils.py`."""
_SOCKET_TABLES = ("proc/net/tcp", "proc/net/tcp6")
_LISTENING = "0A"
_PROFILER_LIBRARY = re.compile(r"/(?:_pywrap_tensorflow\w*|libtensorflow\w*|xla_extension|libjax\w*)[\w.-]*\.so\b")
USUAL_PORT = 6009
"""Port of profiler servers in the examples of TensorFlow."""
UNKNOWN = "unknown"  # Instead of the id of an invisible process: /proc has no folder of this name.


class Listener(Struct, frozen=True):
    """A process that listens on a port; `process` is its id, or UNKNOWN."""

    process: int | str
    command: str

    def __str__(self) -> str:
        return self.command if self.process == UNKNOWN else f"{self.command} (pid {self.process})"


class Machine(Struct, frozen=True):
    """A machine, described by its files and the environment of a program."""

    root: Path = Path("/")
    """Folder that contains /proc, /dev, /etc and /usr."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    system: str = sys.platform
    python_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    @property
    def is_linux(self) -> bool:
        """Return whether there is a /proc to read."""
        return self.system == "linux"

    def text(self, path: str) -> str:
        """Return the text of a file; empty if it cannot be read."""
        return self.data(path).decode(errors="replace")

    def data(self, path: str) -> bytes:
        """Return the bytes of a file; empty if it cannot be read."""
        try:
            return (self.root / path).read_bytes()
        except OSError:
            return b""

    def matching(self, pattern: str) -> list[Path]:
        """Return the sorted files and folders that match a pattern; empty if they cannot be listed."""
        try:
            return sorted(self.root.glob(pattern))
        except OSError:
            return []

    def nvidia_devices(self) -> list[str]:
        """Return the names of the NVIDIA GPUs that programs can open here: `nvidia0`, ..."""
        return [path.name for path in self.matching("dev/nvidia*") if path.name.removeprefix("nvidia").isdigit()]

    def nvidia_models(self) -> list[str]:
        """Return the models of the driver's GPUs, including those that a container does not see."""
        files = self.matching("proc/driver/nvidia/gpus/*/information")
        texts = [self.text(f"{path.relative_to(self.root)}") for path in files]
        return [model[1] if (model := _MODEL.search(text)) else "NVIDIA GPU" for text in texts]

    def has_rocm(self) -> bool:
        """Return whether programs can open an AMD GPU for computing."""
        return (self.root / "dev/kfd").exists()

    def tpu_chips(self) -> int:
        """Return the number of TPU chips on the PCI bus."""
        chips = [path.parent for path in self.matching("sys/bus/pci/devices/*/vendor") if _is(path, _GOOGLE)]
        return sum(_is(chip / "device", *_TPUS) for chip in chips)

    def profiling_is_restricted(self) -> bool | None:
        """Return whether the NVIDIA driver allows profiling only for administrators; None if unknown."""
        option = _RESTRICTED.search(self.text("proc/driver/nvidia/params"))
        return option[1] != "0" if option else None

    def may_profile(self, process: int | str = "self") -> bool:
        """Return whether the driver treats a process as an administrator."""
        effective = _CAPABILITIES.search(self.text(f"proc/{process}/status"))
        return bool(effective and int(effective[1], 16) & _PROFILING_CAPABILITIES)

    def uses_gpu(self, process: int | str = "self") -> bool:
        """Return whether a process has a GPU open; False if unknown."""
        return any(re.search(r"/dev/(?:nvidia\d+|kfd)$", target) for target in self.open_files(process))

    def open_files(self, process: int | str) -> Iterator[str]:
        """Yield the open files of a process: paths, and names like `socket:[123]`."""
        with contextlib.suppress(OSError):
            for path in (self.root / f"proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    yield str(path.readlink())

    def shows_listeners(self) -> bool:
        """Return whether this system shows the processes that listen on a port."""
        return any((self.root / table).exists() for table in _SOCKET_TABLES)

    def find_listener(self, port: int) -> Listener | None:
        """Return the process that listens on a TCP port, or None."""
        sockets = {socket for socket, place in self._listening().items() if place == port}
        if not sockets:
            return None
        for folder in self.matching("proc/[0-9]*"):
            if any(file in sockets for file in self.open_files(folder.name)):
                return Listener(int(folder.name), self._command(folder.name))
        return Listener(UNKNOWN, "a process of another user or container")

    def listeners(self) -> Iterator[tuple[int, Listener]]:
        """Yield the TCP ports with their listeners, for processes that this user may inspect."""
        sockets = self._listening()
        for folder in self.matching("proc/[0-9]*") if sockets else ():
            for port in sorted({sockets[file] for file in self.open_files(folder.name) if file in sockets}):
                yield port, Listener(int(folder.name), self._command(folder.name))

    def has_profiler(self, process: int | str) -> bool:
        """Return whether a process has loaded a library with the profiler of TensorFlow or JAX; False if unknown."""
        return _PROFILER_LIBRARY.search(self.text(f"proc/{process}/maps")) is not None

    def _listening(self) -> dict[str, int]:
        """Return the port of each listening socket, by its name in a process's open files."""
        rows = [line.split() for table in _SOCKET_TABLES for line in self.text(table).splitlines()[1:]]
        listening = [row for row in rows if len(row) > 9 and row[3] == _LISTENING]
        return {f"socket:[{row[9]}]": int(row[1].rpartition(":")[2], 16) for row in listening}

    def _command(self, process: str) -> str:
        """Return the program with its script or module, `python train.py`; other arguments may be secret."""
        words = [word for word in self.text(f"proc/{process}/cmdline").split("\0") if word]
        if not words:
            return self.text(f"proc/{process}/comm").strip() or "a process"
        shown = words[:1] + (words[1:3] if words[1:2] == ["-m"] else [word for word in words[1:2] if word[0] != "-"])
        return " ".join(PurePath(word).name for word in shown)

    def loaded_cupti(self, name: str) -> str:
        """Return the path of the library `name` (and a version) that programs here load; empty if there is none."""
        folders = [Path(folder) for folder in self.environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
        if prefix := self.environment.get("CONDA_PREFIX"):
            folders.append(Path(prefix) / "lib")
        wheels = [Path(folder) for folder in self.python_path if folder]
        patterns = [*((folder, "") for folder in folders), *itertools.product(wheels, _WHEEL_FOLDERS)]
        cached = re.search(rb"/[^\0]*/%s[^\0/]*" % re.escape(name.encode()), self.data("etc/ld.so.cache"))
        return _first_library(name, patterns) or (cached[0].decode(errors="replace") if cached else "")

    def unused_cupti(self, name: str) -> str:
        """Return the path of such a library in a folder that programs do not search; empty if there is none."""
        return _first_library(name, [(self.root, folder) for folder in _TOOLKIT_FOLDERS])


def _is(file: Path, *values: str) -> bool:
    with contextlib.suppress(OSError):
        return file.read_text().strip() in values
    return False


def _first_library(name: str, patterns: list[tuple[Path, str]]) -> str:
    for folder, pattern in patterns:
        with contextlib.suppress(OSError, IndexError):
            return str(sorted(folder.glob(f"{pattern}/{name}*".lstrip("/")))[0])
    return ""


HOST_VARIABLE = "TFPERF_HOST"
_LAUNCHERS = (
    # The rank, the number of processes, and the variables that identify a launch.
    ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_JOB_ID", "SLURM_STEP_ID")),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    ("RANK", ("WORLD_SIZE",), ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")),
)


class ClusterTask(Struct, frozen=True, kw_only=True):
    """A process of a cluster: its job in TF_CONFIG (else empty), and its number in that job."""

    job: str = ""
    index: int
    cluster_size: int | None = None
    cluster_id: str = ""
    """Equal for tasks of the same cluster only; empty: unknown."""
    word: str = "rank"
    """Name of the number if there is no job."""

    @property
    def suffix(self) -> str:
        """Return the suffix for the machine name."""
        return f"_{self.job or self.word}-{self.index}"


def this_task(
    environment: Mapping[str, str] = os.environ, modules: Mapping[str, Any] = sys.modules
) -> ClusterTask | None:
    """Return the task of this process; None if it is not known to be one of several.

    The sources are TF_CONFIG, then JAX if it is distributed, then the launcher: Slurm, Open MPI, RANK. Nothing is
    imported, and JAX does not look for its devices.
    """
    return _of_tensorflow(environment.get("TF_CONFIG", "")) or _of_jax(modules) or _of_launcher(environment)


def host_name(environment: Mapping[str, str] = os.environ, modules: Mapping[str, Any] = sys.modules) -> str:
    """Return the host name for this process's trace: TFPERF_HOST, or the machine name with the task."""
    task = this_task(environment, modules)
    return environment.get(HOST_VARIABLE) or socket.gethostname() + (task.suffix if task else "")


def _of_tensorflow(text: str) -> ClusterTask | None:
    try:
        config = json.loads(text)
        job, index = config["task"]["type"], int(config["task"]["index"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(job, str) or not job or index < 0:
        return None
    cluster = config.get("cluster")
    jobs = [each for each in cluster.values() if isinstance(each, list | dict)] if isinstance(cluster, dict) else []
    size = sum(map(len, jobs))
    return ClusterTask(
        job=job, index=index, cluster_size=size or None, cluster_id=_digest("TF_CONFIG", cluster) if size else ""
    )


def _of_jax(modules: Mapping[str, Any]) -> ClusterTask | None:
    """Read the state of `jax.distributed.initialize`, because `jax.process_index()` would start the backend."""
    state = getattr(modules.get("jax._src.distributed"), "global_state", None)
    index, size = getattr(state, "process_id", None), getattr(state, "num_processes", None)
    if getattr(state, "client", None) is None or not isinstance(index, int) or not isinstance(size, int):
        return None
    place = getattr(state, "coordinator_address", None)
    return ClusterTask(
        index=index, cluster_size=size, cluster_id=_digest("jax", place, size) if place else "", word="process"
    )


def _of_launcher(environment: Mapping[str, str]) -> ClusterTask | None:
    for rank, sizes, launch in _LAUNCHERS:
        index = _number(environment.get(rank, ""))
        if index is None:
            continue
        size = next((number for name in sizes if (number := _number(environment.get(name, "")))), None)
        parts = [environment.get(name, "") for name in launch]
        return ClusterTask(
            index=index, cluster_size=size, cluster_id=_digest(rank, *parts, size) if any(parts) and size else ""
        )
    return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _digest(*parts: object) -> str:
    """Return a short text that identifies a cluster without naming its machines."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


_CPU_MODEL = re.compile(r"^(?:model name|Model|cpu model)\s*:\s*(.+?)\s*$", re.MULTILINE)
_MEMORY_KB = re.compile(r"^MemTotal:\s*(\d+) kB", re.MULTILINE)
_DRIVER = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_UNLIMITED_BYTES = 1 << 60
"""cgroups of version 1 use a number near 2^63 for no limit."""


def job_facts(machine: Machine | None = None) -> CaptureFacts:
    """Return the known facts about this process and its machine; never raises."""
    from tfperf.formats.wire.capture_plane import CaptureFacts

    machine = machine or Machine()
    facts = CaptureFacts(tfperf_version=__version__, python_version=platform.python_version())
    for collect in (_software, _machine, _limits, _task):
        with contextlib.suppress(Exception):  # A trace without a fact is better than no trace.
            facts = replace(facts, **collect(machine))
    return facts


def _software(machine: Machine) -> dict[str, str | None]:
    """Return the versions of libraries that the job has imported; import none."""
    keras = sys.modules.get("keras") or sys.modules.get("tf_keras")
    tensorflow = sys.modules.get("tensorflow")
    driver = _DRIVER.search(machine.text("proc/driver/nvidia/version"))
    facts = {
        "tensorflow_version": getattr(tensorflow, "__version__", None),
        "keras_version": getattr(keras, "__version__", None),
        "gpu_driver_version": driver[1] if driver else None,
    }
    sysconfig = getattr(tensorflow, "sysconfig", None)
    if driver and sysconfig is not None:
        facts["cuda_version"] = sysconfig.get_build_info().get("cuda_version")
    return facts


def _machine(machine: Machine) -> dict[str, str | int | None]:
    model = _CPU_MODEL.search(machine.text("proc/cpuinfo"))
    memory = _MEMORY_KB.search(machine.text("proc/meminfo"))
    facts: dict[str, str | int | None] = {
        "cpu_model": model[1] if model else platform.processor() or platform.machine() or None,
        "cpu_count": os.cpu_count(),
        "memory_bytes": 1024 * int(memory[1]) if memory else None,
    }
    if hasattr(os, "sched_getaffinity"):
        # Of the process, because this thread may be one of a server.
        facts["cpu_affinity"] = len(os.sched_getaffinity(os.getpid()))
    return facts


def _limits(machine: Machine) -> dict[str, float | int | None]:
    """Return the tightest limits of the cgroups of this process and their parents."""
    quotas = []
    for folder in _cgroups(machine, "cpu"):
        texts = machine.text(f"{folder}/cpu.max").split() or [
            machine.text(f"{folder}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")
        ]
        # Without a limit, the quota is "max", or -1 in version 1.
        if len(texts) == 2 and all(text.isdigit() for text in texts) and int(texts[0]) and int(texts[1]):
            quotas.append(int(texts[0]) / int(texts[1]))
    files = (f"{folder}/{name}" for folder in _cgroups(machine, "memory") for name in _MEMORY_LIMITS)
    limits = [int(text) for file in files if (text := machine.text(file).strip()).isdigit()]
    limited = [limit for limit in limits if 0 < limit < _UNLIMITED_BYTES]
    return {"cpu_quota": min(quotas, default=None), "memory_limit_bytes": min(limited, default=None)}


def _task(machine: Machine) -> dict[str, str | int | None]:
    task = this_task(machine.environment)
    if task is None:
        return {}
    return {
        "task_type": task.job or None,
        "task_index": task.index,
        "cluster_size": task.cluster_size,
        "cluster_id": task.cluster_id or None,
    }


_MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")
"""In cgroups of version 2 and version 1."""


def _cgroups(machine: Machine, controller: str) -> Iterator[str]:
    """Yield the cgroup folders of this process and its parents; missing ones (in containers) mean no limit."""
    for line in machine.text("proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = controllers.split(",")
        if number == "0" and not controllers:
            mounts = ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        elif controller in names:
            mounts = [f"sys/fs/cgroup/{name}" for name in dict.fromkeys((controllers, controller))]
        else:
            continue
        own = PurePosixPath(path.lstrip("/"))
        for mount in mounts:
            for folder in (own, *own.parents):
                if ".." not in folder.parts:
                    yield f"{mount}/{folder}"
