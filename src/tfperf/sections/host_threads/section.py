"""The section about host threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.report.model import Fact, Level, Section, at_levels
from tfperf.sections.host_threads.tables import HOST_THREADS
from tfperf.sections.registry import present

if TYPE_CHECKING:
    from tfperf.sections.results import Results


def build(results: Results) -> Section:
    """Build the section: how many threads there are, and a table of them."""
    threads = results["host_threads"]
    host: Level = "brief" if results.has_several_hosts else "data"
    return Section(
        "host_threads",
        "Host threads",
        level="full",
        facts=(Fact("thread_count", "Threads with events", len(threads), "count"),),
        tables=present(HOST_THREADS.build(results, columns=at_levels(HOST_THREADS.columns, {"host": host}))),
        notes=() if threads else ("No host thread has an event in this trace.",),
    )
