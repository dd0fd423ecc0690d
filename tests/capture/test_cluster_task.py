"""Which task of a cluster a process is, by the variables of its launcher and by JAX."""

from __future__ import annotations

import json
import socket
from types import SimpleNamespace
from typing import Any

import pytest

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
    task = this_task(environment, modules)
    assert task is not None
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
        task = this_task(environment, modules or {})
        assert task is not None
        return task.cluster_id

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
