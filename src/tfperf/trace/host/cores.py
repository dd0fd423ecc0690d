"""How many cores a job can use."""

from __future__ import annotations

from tfperf.trace.host_trace import HostTrace

CORES = frozenset({"cpu_budget"})
"""The stats that `usable_cores` reads."""


def usable_cores(trace: HostTrace) -> float | None:
    """Return how many cores the job can use: as its capture states, else as tf.data counts them; None if neither does.

    tf.data counts the CPUs that the process may run on, whatever quota its cgroups have.
    """
    budget = trace.stat("cpu_budget").value
    return trace.capture_facts.cores or (float(budget.max()) if budget.max(initial=0) > 0 else None)


def whole_cores(cores: float) -> int:
    """Return a number of cores, which may be a quota such as 1.5, as one to count threads by."""
    return max(round(cores), 1)
