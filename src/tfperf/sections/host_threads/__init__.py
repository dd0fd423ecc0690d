"""Host threads: the threads of each host, with their events and event time."""

from __future__ import annotations

from tfperf.analysis.registry import Results, SectionSpec, TableSpec, fields
from tfperf.base.units import PS_PER_MS, percent
from tfperf.report.model import Column, Data, Ranked

_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("thread", "Thread", str, "", "name of the thread"),
    Column(
        "event_time_ms",
        "Event time",
        float,
        "ms",
        "time with at least one event on the thread, including waits inside events",
    ),
    Column("percent", "Share", float, "%", "event time / time from the first to the last event of the host's threads"),
    Column("event_count", "Events", int, "count", "events of the thread"),
    Column("longest_ms", "Longest", float, "ms", "duration of its longest event"),
    Column("longest_event", "Longest event", str, "", "name of the longest event"),
)


def _host_threads(results: Results) -> Data | None:
    threads = results["host_threads"]
    if not threads:
        return None
    return {
        **fields(_COLUMNS, threads),
        "event_time_ms": [thread.event_time_ps / PS_PER_MS for thread in threads],
        "percent": [percent(thread.event_time_ps, thread.capture_ps) for thread in threads],
        "longest_ms": [thread.longest_ps / PS_PER_MS for thread in threads],
    }


HOST_THREADS = TableSpec(
    name="host_threads",
    title="Threads by event time",
    row="host threads",
    details="One row per thread with events. Event time includes waits inside events (see the longest event).",
    columns=_COLUMNS,
    data=_host_threads,
    name_key="thread",
    ranked=Ranked("event_time_ms"),
)
TABLES = (HOST_THREADS,)


SECTION = SectionSpec(
    name="host_threads",
    title="Host threads",
    analyze="tfperf.sections.host_threads.analysis:analyze",
    combine="tfperf.sections.host_threads.analysis:combine",
    shorten="tfperf.sections.host_threads.analysis:shorten",
    build="tfperf.sections.host_threads.section:build",
    tables=TABLES,
)
