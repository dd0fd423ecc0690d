"""The section about host threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfperf.analysis.registry import present
from tfperf.report.model import Fact, Level, Section, at_levels
from tfperf.sections.host_threads import HOST_THREADS

if TYPE_CHECKING:
    from tfperf.analysis.registry import Results
    from tfperf.sections.host_threads.analysis import ThreadTime


def build(results: Results) -> Section:
    """Build the section: how many threads there are, and a table of them."""
    threads = results["host_threads"]
    host: Level = "brief" if results.has_several_hosts else "data"
    return Section(
        "host_threads",
        "Host threads",
        level="full",
        facts=(Fact("thread_count", "Threads with events", sum(not each.same_as for each in threads), "count"),),
        tables=present(HOST_THREADS.build(results, columns=at_levels(HOST_THREADS.columns, {"host": host}))),
        notes=_notes(threads),
    )


def _notes(threads: Sequence[ThreadTime]) -> tuple[str, ...]:
    if not threads:
        return ("No host thread has an event in this trace.",)
    twice = (f"{each.same_as} and {each.thread}" for each in threads if each.same_as)
    return tuple(f"{both} are one thread, recorded by JAX and by libtpu: their times do not add up." for both in twice)
