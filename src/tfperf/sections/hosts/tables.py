"""The tables of hosts: one row for each host, and one for each step of which it is known who is last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.analysis.registry import TableSpec
from tfperf.base.units import PS_PER_MS
from tfperf.report.model import Column, Data, Ranked

if TYPE_CHECKING:
    from tfperf.analysis.results import Results
    from tfperf.sections.hosts.analysis import Hosts

_HOST_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column(
        "role", "Role", str, "", "worker, chief, evaluator, parameter server, coordinator, tf.data worker, dispatcher"
    ),
    Column("task", "Task", str, "", "name of the task in its cluster", level="data"),
    Column("step_time_ms", "Step time", float, "ms", "average step time"),
    Column("own_work_ms", "Own work", float, "ms", "step time without waiting for other hosts"),
    Column("waits_for_others_ms", "Waits", float, "ms", "waiting in collectives for the last host, per step"),
    Column(
        "others_wait_for_it_ms",
        "Makes wait",
        float,
        "ms",
        "time that others lose in steps in which it is last, per step",
    ),
    Column("last_percent", "Last", float, "%", "share of the steps in which it is the last host"),
    Column("cause", "Slow in", str, "", "in what it is slower in the steps in which it is late: input, compute, ..."),
    Column(
        "clock_ahead_ms", "Clock", float, "ms", "how far its clock is ahead of that of the first host", level="data"
    ),
    Column(
        "clock_spread_ms", "Clock spread", float, "ms", "median distance of single collectives from that", level="data"
    ),
)
_STRAGGLER_COLUMNS = (
    Column("step", "Step", int, "", "number of the step"),
    Column("averaged", "Averaged", bool, "", "whether the step counts in averages on all hosts", level="data"),
    Column("host", "Last host", str, "", "the host that waits least in the step: the others wait for it"),
    Column("lost_ms", "Lost", float, "ms", "how much longer another host waits than the last one, at most"),
    Column("host_lost_ms", "Lost in all", float, "ms", "the same, summed over all hosts", level="data"),
    Column("cause", "Slow in", str, "", "in what the last host is slower than the median of the others"),
    Column("excess_ms", "Longer by", float, "ms", "how much longer that takes on the last host"),
    Column("step_time_ms", "Step time", float, "ms", "longest step time of any host"),
)


def _hosts(results: Results) -> Data | None:
    hosts: Hosts = results["hosts"]
    rows = hosts.hosts
    if len(rows) < 2:
        return None
    return {
        "host": [row.host for row in rows],
        "role": [row.task.role or None for row in rows],
        "task": [row.task.name or None for row in rows],
        "step_time_ms": [_ms(row.step_ps) for row in rows],
        "own_work_ms": [_ms(row.own_work_ps) for row in rows],
        "waits_for_others_ms": [_ms(row.waits_ps) for row in rows],
        "others_wait_for_it_ms": [_ms(row.waited_for_ps) for row in rows],
        "last_percent": [row.last_percent for row in rows],
        "cause": [row.cause or None for row in rows],
        "clock_ahead_ms": [None if row.clock is None else row.clock.ahead_ns / 1e6 for row in rows],
        "clock_spread_ms": [None if row.clock is None else row.clock.spread_ns / 1e6 for row in rows],
    }


def _stragglers(results: Results) -> Data | None:
    hosts: Hosts = results["hosts"]
    late = hosts.late
    if late is None or not len(late.numbers):
        return None
    return {
        "step": late.numbers.tolist(),
        "averaged": late.counted.tolist(),
        "host": [hosts.sharing[place] for place in late.last.tolist()],
        "lost_ms": (late.lost_ps / PS_PER_MS).tolist(),
        "host_lost_ms": (late.host_lost_ps / PS_PER_MS).tolist(),
        "cause": list(late.causes),
        "excess_ms": (late.excess_ps / PS_PER_MS).tolist(),
        "step_time_ms": (late.step_ps / PS_PER_MS).tolist(),
    }


def _ms(ps: float | None) -> float | None:
    return None if ps is None else ps / PS_PER_MS


HOSTS = TableSpec(
    name="hosts",
    title="Hosts",
    row="hosts of a run of several, and who waits for whom",
    details=(
        "Only with several hosts: one row for each. A host waits in collectives until the last one takes part, and the "
        "last host of a step is the one that waits least. Waiting is unknown where hosts share no collective, and for "
        "hosts without steps of their own, such as parameter servers."
    ),
    columns=_HOST_COLUMNS,
    data=_hosts,
    name_key="host",
    ranked=Ranked("others_wait_for_it_ms", each="hosts"),
    about_steps=True,
    over_hosts=True,
)
STRAGGLERS = TableSpec(
    name="stragglers",
    title="Last host of each step",
    row="steps of a run of several hosts: which host is last, and what that costs",
    details=(
        "Only if several hosts share collectives: one row for each step in which they do. `lost_ms` is how much "
        "longer another host waits in the step than the last one, at most; healthy hosts lose up to 3 ms."
    ),
    columns=_STRAGGLER_COLUMNS,
    data=_stragglers,
    name_key="host",
    ranked=Ranked("lost_ms"),
    about_steps=True,
    over_hosts=True,
)
TABLES = (HOSTS, STRAGGLERS)
