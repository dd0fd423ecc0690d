"""How many examples a step takes on a host, and on all hosts together."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.analysis.results import Host
from tfperf.analysis.tabular import Tabular
from tfperf.base.arrays import distinct
from tfperf.sections.batch.conclusion import Conclusion, Replicas, Weighing
from tfperf.sections.batch.evidence import (
    Evidence,
    StepWindows,
    element_evidence,
    marker_evidence,
    op_outputs,
    stage_evidence,
    stated_evidence,
    usual,
)
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.find_steps import find_steps
from tfperf.trace.steps.step_calls import Fetches, find_fetches
from tfperf.trace.steps.steps import Confidence

_SURER: tuple[Confidence, ...] = ("none", "low", "medium", "high")
_REPLICA = re.compile(r"(?:^|/)replica_(\d+)/")
_TO_DEVICE = re.compile(r"Iterator(::(Root|Model|Options|MaxIntraOpParallelism|Prefetch))*::Generator$")
"""A pipeline that only moves to a device what another one makes; each replica has one."""
_MOST_LISTED = 4


class HostBatch(Struct, frozen=True, kw_only=True):
    """The batch of one host.

    `batches_per_step` is how many batches a replica takes in a step; it and `replicas` are None where they are unknown.
    """

    host: str
    has_steps: bool
    batch: Conclusion
    replicas: int | None = None
    batches_per_step: int | None = None
    evidence: tuple[Evidence, ...] = ()


class Batch(Tabular, frozen=True, kw_only=True):
    """The batch of all hosts together, which is the sum over those with steps.

    `size` counts the examples of all replicas, `per_replica` those of each. What is unknown is None; `reason` says why
    `size` is.
    """

    home = ("batch", "batch_evidence")

    size: int | None
    per_replica: int | None
    replicas: int | None
    batches_per_step: int | None
    confidence: Confidence
    reason: str
    hosts: tuple[HostBatch, ...]

    @property
    def examples_per_step(self) -> int | None:
        """Return how many examples the hosts take in a step."""
        return self.size * self.batches_per_step if self.size and self.batches_per_step else None


def analyze(host: Host) -> HostBatch:
    """Collect what shows the batch size of a host, and conclude."""
    trace = host.trace
    # In attribution tensorflow, steps are no windows in time.
    steps = find_steps(trace) if host.as_tensorflow else host["steps"].steps
    windows = StepWindows.of(steps)
    if not len(windows.start):
        reason = "without steps, nothing tells what a step takes"
        return HostBatch(host=trace.host, has_steps=False, batch=Conclusion(reason=reason))
    fetches, ops = find_fetches(trace), op_outputs(trace, windows)
    pipelines, batches = _fetched_per_step(fetches, windows)
    replicas = _replicas(trace, pipelines)
    evidence = (
        *stated_evidence(trace),
        *element_evidence(trace, fetches, windows),
        *stage_evidence(trace, windows),
        *ops.evidence(),
        *marker_evidence(trace, windows),
    )
    if batches == 0:  # The input comes from elsewhere.
        batches = trace.capture_facts.steps_per_execution or (1 if ops.runs_per_step == 1 else None)
    return HostBatch(
        host=trace.host,
        has_steps=True,
        batch=Weighing(evidence, ops, replicas).conclusion(),
        replicas=replicas.count,
        batches_per_step=batches,
        evidence=evidence,
    )


def _fetched_per_step(fetches: Fetches, windows: StepWindows) -> tuple[int | None, int | None]:
    """Return how many pipelines are asked in a step, and how often the one that is asked most; None: it varies."""
    step, count = windows.step_of(fetches.start), len(windows.start)
    pipelines, most = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for iterator in distinct(fetches.iterator).tolist():
        asked = np.bincount(step[(fetches.iterator == iterator) & (step >= 0)], minlength=count)
        pipelines, most = pipelines + (asked > 0), np.maximum(most, asked)
    return usual(pipelines), usual(most)


def _replicas(trace: HostTrace, pipelines: int | None) -> Replicas:
    """Count the replicas of a host: Keras said so, ops are named after them, or each asks a pipeline of its own.

    TensorFlow puts the ops of replica 1 and up into scopes `replica_1`, ...; replica 0 has none.
    """
    facts, busy = trace.capture_facts, len(trace.devices)
    if facts.local_replicas and facts.replicas:
        return Replicas(facts.local_replicas, facts.replicas)
    named = {int(number) for name in trace.names for number in _REPLICA.findall(name)}
    listed = ", ".join(f"replica_{number}" for number in sorted(named)[:_MOST_LISTED]) or "no replica"
    if named - set(range(1, len(named) + 1)):
        return Replicas(None, None, f"some left no events (names of ops tell of {listed})")
    to_device = any(_TO_DEVICE.match(name) for name in trace.names)
    count = len(named) + 1 if named else (pipelines or 1) if to_device else 1
    if trace.device_kind == "tpu" or busy not in (0, 1, count):
        return Replicas(None, None, f"{busy} devices took part, while names of ops tell of {listed}")
    if to_device and pipelines not in (None, 0, count):
        return Replicas(None, None, f"{pipelines} pipelines feed devices, while names of ops tell of {listed}")
    return Replicas(count, count)


def combine(hosts: Sequence[HostBatch]) -> Batch:
    """Add up the batches of the hosts that have steps; one that is unknown makes the sum unknown."""
    counted = [host for host in hosts if host.has_steps] or list(hosts)
    unknown = next((host for host in counted if host.batch.size is None), None)
    sizes = [host.batch.size for host in counted if host.batch.size is not None]
    replicas = [host.replicas for host in counted if host.replicas is not None]
    shares, batches = {host.batch.per_replica for host in counted}, {host.batches_per_step for host in counted}
    named = f"host {unknown.host}: " if unknown and len(hosts) > 1 else ""
    return Batch(
        size=sum(sizes) if unknown is None else None,
        per_replica=shares.pop() if len(shares) == 1 else None,
        replicas=sum(replicas) if len(replicas) == len(counted) else None,
        batches_per_step=batches.pop() if len(batches) == 1 else None,
        confidence=min((host.batch.confidence for host in counted), key=_SURER.index),
        reason=f"{named}{unknown.batch.reason}" if unknown else "",
        hosts=tuple(hosts),
    )
