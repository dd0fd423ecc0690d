"""Time with at least one event, per host thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from tfperf.analysis.registry import HasTable, Host
from tfperf.base.arrays import union
from tfperf.trace.device.tpu_runs import recorded_twice


class ThreadTime(Struct, frozen=True, kw_only=True):
    """One thread: `event_time_ps` is the union of its events, including waits; `capture_ps` spans all threads."""

    host: str
    thread: str
    event_count: int
    event_time_ps: int
    capture_ps: int
    longest_event: str
    longest_ps: int
    same_as: str = ""
    """Another line of the same thread, recorded by a second library; empty if there is only one."""


def analyze(host: Host) -> tuple[ThreadTime, ...]:
    """Measure the threads of a host; threads without events are omitted."""
    trace, on_host = host.trace, host.trace.on_host
    if not on_host.any():
        return ()
    capture_ps = int(trace.end_ps[on_host].max() - trace.start_ps[on_host].min())
    threads = []
    same = recorded_twice(trace) if trace.device_kind == "tpu" else {}
    for line in trace.host_lines:
        rows = slice(line.start, line.stop)
        if line.stop > line.start:
            longest = line.start + int(trace.duration_ps[rows].argmax())
            thread = ThreadTime(
                host=trace.host,
                thread=line.name,
                event_count=line.stop - line.start,
                event_time_ps=union(trace.start_ps[rows], trace.end_ps[rows]).total(),
                capture_ps=capture_ps,
                longest_event=trace.names[trace.name[longest]],
                longest_ps=int(trace.duration_ps[longest]),
                same_as=same[line].name if line in same else "",
            )
            threads.append(thread)
    return tuple(threads)


def shorten(threads: tuple[ThreadTime, ...], most: int) -> tuple[ThreadTime, ...]:
    """Return the `most` threads with the largest event time."""
    return threads if len(threads) <= most else tuple(_ordered(threads)[:most])


class HostThreads(HasTable, tuple[ThreadTime, ...]):
    """The threads of all hosts, the largest event time first."""

    __slots__ = ()
    home = ("host_threads", "host_threads")


def combine(hosts: Sequence[tuple[ThreadTime, ...]]) -> HostThreads:
    """Merge and sort the threads of all hosts."""
    return HostThreads(_ordered(thread for threads in hosts for thread in threads))


def _ordered(threads: Iterable[ThreadTime]) -> list[ThreadTime]:
    return sorted(threads, key=lambda thread: -thread.event_time_ps)
