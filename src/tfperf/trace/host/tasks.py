"""The task of a host in its job: its role, and its name in the cluster."""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

from msgspec import Struct

from tfperf.trace.event_names import is_fetch, mask
from tfperf.trace.host_trace import HostTrace

Role = Literal["worker", "chief", "evaluator", "coordinator", "parameter server", "tf.data worker", "dispatcher", ""]
"""coordinator: sends steps to workers; tf.data worker, dispatcher: of the tf.data service; empty: unknown, or only
task.
"""

_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)")
_ROLES: dict[str, Role] = {"worker": "worker", "chief": "chief", "evaluator": "evaluator", "ps": "parameter server"}
_OF_DATA_SERVICE = ("tf_data_service_", "tf_data_standalone")
_REMOTE = ("EagerExecute", "CopyInputToExpectedDevice")
_LOCAL = ("EagerLocalExecute", "EagerKernelExecute", "KernelAndDevice", "ExecutorState::Process")
"""Events of a call that TensorFlow sends to another process (`_REMOTE`), and of one that it runs itself (`_LOCAL`)."""
_ITS_OWN = 0.1
"""A second task is in the same process if its name occurs this often, relative to the first."""
_HELPERS: frozenset[Role] = frozenset({"coordinator", "parameter server", "tf.data worker", "dispatcher"})


class Task(Struct, frozen=True):
    """The role of a host, and its name in the cluster (`worker:1`; empty: unknown)."""

    role: Role = ""
    name: str = ""

    @property
    def is_helper(self) -> bool:
        """Return whether it has no steps: its work belongs to the steps of other tasks."""
        return self.role in _HELPERS

    @property
    def described(self) -> str:
        """Return the role with its article."""
        return f"a {self.role}"


def task_of(trace: HostTrace) -> Task:
    """Return the cluster task of a host, based on its events.

    Its capture may contain it (TF_CONFIG); calls on a device and sends of tensors contain the name of their task;
    threads of the tf.data service, and calls that all run elsewhere, determine the role.
    """
    facts = trace.capture_facts
    if facts.task_type in _ROLES and facts.task_index is not None:
        return _of_cluster(trace, Task(_ROLES[facts.task_type], f"{facts.task_type}:{facts.task_index}"))
    if any(line.name.startswith(_OF_DATA_SERVICE) for line in trace.host_lines):
        fetches = mask(trace.names, is_fetch)
        return Task("" if len(trace.host_events(fetches)) else "tf.data worker")
    known = _tasks(trace).most_common(2)
    if not known or (len(known) > 1 and known[1][1] >= _ITS_OWN * known[0][1]):
        return _of_cluster(trace, Task())
    job, index = known[0][0]
    return _of_cluster(trace, Task(_ROLES[job], f"{job}:{index}"))


def _of_cluster(trace: HostTrace, named: Task) -> Task:
    """Return a task of this name; a chief all of whose calls run elsewhere is a coordinator."""
    if named.role not in ("", "chief"):
        return named
    runs = any(name.startswith(_LOCAL) for name in trace.names)
    sends = all(any(name.startswith(prefix) for name in trace.names) for prefix in _REMOTE)
    return Task("coordinator", named.name) if sends and not runs else named


def runs_several_tasks(trace: HostTrace) -> bool:
    """Return whether events of one process state several tasks as their own."""
    known = _tasks(trace).most_common(2)
    return len(known) > 1 and known[1][1] >= _ITS_OWN * known[0][1]


def _tasks(trace: HostTrace) -> Counter[tuple[str, str]]:
    """Return the number of calls and sends by the task that they state as their own."""
    counts: Counter[tuple[str, str]] = Counter()
    for stat in (trace.stat("device"), trace.stat("key")):
        for text in stat.texts:
            # The key of a send starts with the sender.
            task = _TASK.search(text.partition(";")[0])
            if task is not None:
                counts[task[1], task[2]] += 1
    return Counter({task: count for task, count in counts.items() if task[0] in _ROLES})
