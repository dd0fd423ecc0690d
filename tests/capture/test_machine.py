"""The job and its machine: the task of a cluster, software, limits."""

from __future__ import annotations

import json
import os
import platform
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from builders import known
from capture.made import Made

import tfperf
from tfperf.capture.machine import Machine, host_name, job_facts, this_task

CLUSTER = {"worker": ["a:1", "b:1"], "ps": ["c:1"]}


def tf_config(job: object = "worker", index: object = 0, cluster: object = CLUSTER) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})}


SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}
MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "prterun-vm-1@1"}
RANK = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "vm", "MASTER_PORT": "29500"}


def jax(**state: Any) -> dict[str, Any]:
    defaults = {"client": object(), "process_id": 1, "num_processes": 2, "coordinator_address": "a:1"}
    return {"jax._src.distributed": SimpleNamespace(global_state=SimpleNamespace(**{**defaults, **state}))}


@pytest.mark.parametrize(
    ("environment", "modules", "suffix", "size"),
    [
        (tf_config(), {}, "_worker-0", 3),
        (tf_config("ps", "0"), {}, "_ps-0", 3),
        (tf_config("evaluator", 0, None), {}, "_evaluator-0", None),
        ({}, jax(), "_process-1", 2),
        (SLURM, {}, "_rank-3", 8),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "4"}, {}, "_rank-3", 4),
        (MPI, {}, "_rank-1", 4),
        (RANK, {}, "_rank-0", 2),
        ({"RANK": "1"}, {}, "_rank-1", None),
        # The first that says anything.
        ({**tf_config(), **SLURM, **MPI, **RANK}, jax(), "_worker-0", 3),
        ({**SLURM, **MPI, **RANK}, jax(), "_process-1", 2),
        ({**SLURM, **MPI, **RANK}, {}, "_rank-3", 8),
        ({**MPI, **RANK}, {}, "_rank-1", 4),
        # What says nothing is passed over.
        ({"TF_CONFIG": "{", **RANK}, {}, "_rank-0", 2),
        ({**tf_config(index=-1), **RANK}, {}, "_rank-0", 2),
        ({**tf_config(job=7), **RANK}, {}, "_rank-0", 2),
        ({"TF_CONFIG": "[1]", "SLURM_PROCID": "x", **RANK}, jax(client=None), "_rank-0", 2),
    ],
)
def test_the_task(environment: dict[str, str], modules: dict[str, Any], suffix: str, size: int | None) -> None:
    task = known(this_task(environment, modules))
    assert (task.suffix, task.cluster_size) == (suffix, size)
    assert host_name(environment, modules) == socket.gethostname() + suffix


@pytest.mark.parametrize("environment", [{}, {"TF_CONFIG": "{}"}, {"RANK": ""}, {"RANK": "-1"}, {"SLURM_JOB_ID": "1"}])
def test_a_process_on_its_own(environment: dict[str, str]) -> None:
    assert this_task(environment, {}) is None
    assert host_name(environment, {}) == socket.gethostname()


def test_a_name_that_is_given_comes_first() -> None:
    assert host_name({"TFPERF_HOST": "trainer", **SLURM}, jax()) == "trainer"


def test_tasks_of_one_cluster_have_one_id() -> None:
    def cluster_id(environment: dict[str, str], modules: dict[str, Any] | None = None) -> str:
        return known(this_task(environment, modules or {})).cluster_id

    ids = [cluster_id(tf_config()), cluster_id(SLURM), cluster_id(MPI), cluster_id(RANK), cluster_id({}, jax())]
    assert len({*ids, ""}) == 6
    assert cluster_id(tf_config("ps", 0)) == ids[0]
    assert cluster_id({**SLURM, "SLURM_PROCID": "4"}) == ids[1]
    assert cluster_id({}, jax(process_id=0)) == ids[4]
    assert cluster_id({**SLURM, "SLURM_STEP_ID": "1"}) not in ids
    assert cluster_id(tf_config(cluster={"worker": ["a:1"]})) not in ids
    assert "a:1" not in "".join(ids), "it names no machine"
    assert cluster_id({"RANK": "0"}) == cluster_id(tf_config(cluster=None)) == "", "nothing tells the cluster"


def test_the_trace_gets_it() -> None:
    facts = job_facts(Machine(environment=tf_config("worker", 1)))
    assert (facts.task_type, facts.task_index, facts.cluster_size) == ("worker", 1, 3)
    assert facts.cluster_id
    facts = job_facts(Machine(environment=SLURM))
    assert (facts.task_type, facts.task_index, facts.cluster_size) == (None, 3, 8)
    facts = job_facts(Machine(environment={}))
    assert (facts.task_type, facts.task_index, facts.cluster_size, facts.cluster_id) == (None, None, None, None)


CPU = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\nmodel name\t: AMD EPYC 7V13  \ncache size\t: 512 KB\n"
DRIVER = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc 11\n"
)
OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n"


def test_the_machine_and_the_software(made: Made) -> None:
    made.file("proc/cpuinfo", CPU)
    made.file("proc/meminfo", "MemTotal:       24684084 kB\nMemFree:        100 kB\n")
    made.file("proc/driver/nvidia/version", DRIVER)
    facts = job_facts(made.machine)
    assert (facts.cpu_model, facts.memory_bytes) == ("AMD EPYC 7V13", 24684084 * 1024)
    assert (facts.tfperf_version, facts.python_version) == (tfperf.__version__, platform.python_version())
    assert facts.gpu_driver_version == "535.104.05"
    assert (facts.cpu_count, facts.cpu_affinity) == (os.cpu_count(), len(os.sched_getaffinity(0)))
    assert (facts.cpu_quota, facts.memory_limit_bytes) == (None, None)
    made.file("proc/driver/nvidia/version", OPEN_DRIVER)
    assert job_facts(made.machine).gpu_driver_version == "550.54.15"


def limits(made: Made, cgroup: str, files: dict[str, str]) -> tuple[float | None, int | None]:
    made.file("proc/self/cgroup", cgroup)
    for name, text in files.items():
        made.file(f"sys/fs/cgroup/{name}", text)
    facts = job_facts(made.machine)
    return facts.cpu_quota, facts.memory_limit_bytes


def test_limits_of_cgroups_of_version_2(made: Made) -> None:
    """The tightest of the cgroup and of those around it."""
    files = {
        "kubepods/pod7/job/cpu.max": "max 100000\n",
        "kubepods/pod7/job/memory.max": f"{8 << 30}\n",
        "kubepods/pod7/cpu.max": "150000 100000\n",
        "kubepods/cpu.max": "400000 100000\n",
        "kubepods/memory.max": "max\n",
    }
    assert limits(made, "0::/kubepods/pod7/job\n", files) == (1.5, 8 << 30)


def test_a_container_sees_its_cgroup_as_the_root(made: Made) -> None:
    assert limits(made, "0::/../../docker/abc\n", {"cpu.max": "200000 100000\n"}) == (2.0, None)


@pytest.mark.parametrize(
    ("quota", "memory", "expected"),
    [("250000", str(2 << 30), (2.5, 2 << 30)), ("-1", "9223372036854771712", (None, None))],
    ids=["limited", "no limit is no number"],
)
def test_limits_of_cgroups_of_version_1(made: Made, quota: str, memory: str, expected: Any) -> None:
    cgroup = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n2:cpuset:/\n1:name=systemd:/\n"
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": f"{quota}\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "memory/docker/abc/memory.limit_in_bytes": f"{memory}\n",
    }
    assert limits(made, cgroup, files) == expected


@pytest.mark.parametrize("text", ["", "nonsense", "0::", "3:cpu", "150000 0", "a b c"])
def test_odd_files_are_no_limits(made: Made, text: str) -> None:
    made.file("proc/self/cgroup", text if ":" in text else "0::/\n")
    made.file("sys/fs/cgroup/cpu.max", text)
    made.file("proc/cpuinfo", text)
    made.file("proc/meminfo", text)
    facts = job_facts(made.machine)
    assert (facts.cpu_quota, facts.memory_limit_bytes, facts.memory_bytes) == (None, None, None)
