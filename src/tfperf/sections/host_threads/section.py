"""The report section on host threads."""

from __future__ import annotations

from tfperf.analysis.registry import Results, present
from tfperf.report.model import Fact, Level, Section, at_levels
from tfperf.sections.host_threads import HOST_THREADS


def build(results: Results) -> Section:
    """Return the section: the number of threads, and a table of them."""
    threads = results["host_threads"]
    twice = (f"{each.same_as} and {each.thread}" for each in threads if each.same_as)
    notes = [f"{both} are one thread, recorded by JAX and by libtpu: do not add their times." for both in twice]
    host: Level = "brief" if results.has_several_hosts else "data"
    return Section(
        "host_threads",
        "Host threads",
        level="full",
        facts=(Fact("thread_count", "Threads with events", sum(not each.same_as for each in threads), "count"),),
        tables=present(HOST_THREADS.build(results, columns=at_levels(HOST_THREADS.columns, {"host": host}))),
        notes=tuple(notes) if threads else ("The profile has no host thread events.",),
    )
