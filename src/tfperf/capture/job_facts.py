"""What a capture adds to its trace: the software and the machine of the job, read from modules and files."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import PurePosixPath

from msgspec.structs import replace

from tfperf.capture.cluster_task import this_task
from tfperf.capture.machine import Machine
from tfperf.formats.wire.capture_plane import CaptureFacts

_CPU_MODEL = re.compile(r"^(?:model name|Model|cpu model)\s*:\s*(.+?)\s*$", re.MULTILINE)
_MEMORY_KB = re.compile(r"^MemTotal:\s*(\d+) kB", re.MULTILINE)
_DRIVER = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_UNLIMITED_BYTES = 1 << 60
"""cgroups of version 1 write a number near 2^63 where there is no limit."""


def job_facts(machine: Machine | None = None) -> CaptureFacts:
    """Return what is known about this process and its machine; never raises."""
    from tfperf.base.version import __version__

    machine = machine or Machine()
    facts = CaptureFacts(tfperf_version=__version__, python_version=platform.python_version())
    for collect in (_software, _machine, _limits, _task):
        with contextlib.suppress(Exception):  # A trace without a fact is better than none.
            facts = replace(facts, **collect(machine))
    return facts


def _software(machine: Machine) -> dict[str, str | None]:
    """Return versions of what the job has imported: nothing is imported for this."""
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
        # Not that of this thread, which may be one of a server.
        facts["cpu_affinity"] = len(os.sched_getaffinity(os.getpid()))
    return facts


def _limits(machine: Machine) -> dict[str, float | int | None]:
    """Return the limits of the cgroups of this process: the tightest of its own and of those around it."""
    quotas = [quota for folder in _cgroups(machine, "cpu") if (quota := _quota(machine, folder))]
    files = (f"{folder}/{name}" for folder in _cgroups(machine, "memory") for name in _MEMORY_LIMITS)
    limits = [int(text) for file in files if (text := machine.text(file).strip()).isdigit()]
    limited = [limit for limit in limits if 0 < limit < _UNLIMITED_BYTES]
    return {"cpu_quota": min(quotas, default=None), "memory_limit_bytes": min(limited, default=None)}


def _task(machine: Machine) -> dict[str, str | int | None]:
    """Return which task of a cluster this process is."""
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
"""Of version 2 and 1."""


def _quota(machine: Machine, folder: str) -> float | None:
    """Return how many CPUs' time a cgroup grants; None without a limit."""
    texts = machine.text(f"{folder}/cpu.max").split() or [
        machine.text(f"{folder}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")
    ]
    if len(texts) != 2 or not all(text.isdigit() for text in texts) or not int(texts[1]):
        return None  # "max", or -1 in version 1.
    return int(texts[0]) / int(texts[1]) or None


def _cgroups(machine: Machine, controller: str) -> Iterator[str]:
    """Iterate over the folders of the cgroup of this process and of those around it.

    A container may see its own cgroup as the root, under which the path that the kernel names does not exist: files
    that are not there are no limits.
    """
    for line in machine.text("proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = controllers.split(",")
        if not (number == "0" and not controllers) and controller not in names:
            continue
        mounts = ("sys/fs/cgroup", "sys/fs/cgroup/unified") if not controllers else _mounts(controllers, controller)
        own = PurePosixPath(path.lstrip("/"))
        for mount in mounts:
            for folder in (own, *own.parents):
                if ".." not in folder.parts:
                    yield f"{mount}/{folder}"


def _mounts(controllers: str, controller: str) -> tuple[str, ...]:
    return tuple(f"sys/fs/cgroup/{name}" for name in dict.fromkeys((controllers, controller)))
