"""Which task of a cluster this process is, and the name of its trace: a machine may run several."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

HOST_VARIABLE = "TFPERF_HOST"
_LAUNCHERS = (
    # The rank, the number of processes, and what tells one launch from another.
    ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_JOB_ID", "SLURM_STEP_ID")),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    ("RANK", ("WORLD_SIZE",), ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")),
)


class ClusterTask(Struct, frozen=True, kw_only=True):
    """One process of a cluster: the job that TF_CONFIG calls it by (else empty), and its number in that job."""

    job: str = ""
    index: int
    cluster_size: int | None = None
    """Processes of the cluster, of all its jobs."""
    cluster_id: str = ""
    """Equal for the tasks of one cluster, and for no others; empty: unknown."""
    word: str = "rank"
    """What the number is called where there is no job."""

    @property
    def suffix(self) -> str:
        """Return what is put behind the name of the machine."""
        return f"_{self.job or self.word}-{self.index}"


def this_task(
    environment: Mapping[str, str] = os.environ, modules: Mapping[str, Any] = sys.modules
) -> ClusterTask | None:
    """Return the task that this process is; None if nothing says that it is one of several.

    TF_CONFIG is asked first, then JAX if it is distributed, then the launcher: Slurm, Open MPI, RANK. Nothing is
    imported, and JAX is not made to look for its devices.
    """
    return _of_tensorflow(environment.get("TF_CONFIG", "")) or _of_jax(modules) or _of_launcher(environment)


def host_name(environment: Mapping[str, str] = os.environ, modules: Mapping[str, Any] = sys.modules) -> str:
    """Return the name of this process's trace: TFPERF_HOST, else that of the machine with the task."""
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
    """Read what `jax.distributed.initialize` keeps; `jax.process_index()` would start the backend."""
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
    """Return a short text that tells clusters apart and names none of their machines."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]
