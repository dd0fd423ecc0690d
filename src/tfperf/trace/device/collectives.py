"""The collectives of one host: in which events it exchanges data with others, or waits for them to take part.

Two hosts know the same collective by its keys: `group_key` and `instance_key` of TensorFlow's collective ops, `hlo_op`
and `run_id` of programs that XLA compiled for the host. Kernels of NCCL and RCCL carry no key; they are known by their
name and their place in the order within a step that the program numbered. Such an event lasts from the moment when the
host is ready until the exchange is done, so it holds the time in which the host waits for the last one to arrive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int32s, Int64s, distinct_index, group_equal, median, text_index
from tfperf.trace.event_names import is_collective_kernel, is_hlo_collective, mask
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.steps import Steps

MOST_COLLECTIVES = 1 << 16
"""Of more collectives in a capture only the first ones are kept: 2 MB for each host."""


class Collectives(Struct, frozen=True, eq=False, kw_only=True):
    """Collectives of one host, each with the times of its last local participant: the one that waits least.

    The key of a row is `labels[label]`, `instance` and `occurrence`; no two rows have the same. Times are int64
    picoseconds on the clock of the trace, of which 0 is `clock_start_ns` (nanoseconds since 1970, None: unknown).
    """

    labels: tuple[str, ...]
    label: Int32s
    instance: Int64s
    occurrence: Int64s
    start_ps: Int64s
    duration_ps: Int64s
    clock_start_ns: int | None = None
    without_key: int = 0
    """Collectives that no other host can know, since neither a key nor a numbered step tells which one it is."""
    cut: int = 0
    """Collectives beyond `MOST_COLLECTIVES`."""

    def __len__(self) -> int:
        """Return the number of collectives."""
        return len(self.start_ps)

    @property
    def end_ps(self) -> Int64s:
        """Return where each collective ends."""
        return self.start_ps + self.duration_ps


class _Found(Struct, frozen=True, eq=False, kw_only=True):
    """Events that are collectives, with their keys; `without_key` more have none."""

    rows: Int64s
    labels: Sequence[str]
    label: Int64s
    instance: Int64s
    occurrence: Int64s
    without_key: int = 0


def find_collectives(trace: HostTrace, steps: Steps) -> Collectives | None:
    """Return the collectives of a host: kernels of a device if there are any, else events of host threads."""
    found = _kernels(trace, steps) or _keyed_by_tensorflow(trace) or _keyed_by_xla(trace)
    if found is None:
        return None
    order, firsts = group_equal([found.label, found.instance, found.occurrence])
    # Of the participants on this host, the shortest is the one that came last.
    by_duration = np.lexsort((trace.duration_ps[found.rows[order]], _groups(firsts, len(order))))
    chosen = np.sort(order[by_duration[firsts]]) if len(firsts) else order
    chosen = chosen[np.argsort(trace.start_ps[found.rows[chosen]], kind="stable")]
    kept = chosen[:MOST_COLLECTIVES]
    rows = found.rows[kept]
    return Collectives(
        labels=tuple(found.labels),
        label=found.label[kept].astype(np.int32),
        instance=found.instance[kept],
        occurrence=found.occurrence[kept],
        start_ps=trace.start_ps[rows],
        duration_ps=trace.duration_ps[rows],
        clock_start_ns=trace.clock_start_ns,
        without_key=found.without_key,
        cut=len(chosen) - len(kept),
    )


def _groups(firsts: Int64s, count: int) -> Int64s:
    """Return the group of each of `count` ordered rows."""
    return np.repeat(np.arange(len(firsts)), np.diff(firsts, append=count))


def _keyed_by_tensorflow(trace: HostTrace) -> _Found | None:
    stat = trace.stat("instance_key")
    rows = stat.event[trace.on_host[stat.event]].astype(np.int64)
    if not len(rows):
        return None
    groups, label = np.unique(trace.number_at("group_key", rows), return_inverse=True)
    labels = [f"group {key}" for key in groups.tolist()]
    found = _numbered(trace, rows, labels, label.astype(np.int64), trace.number_at("instance_key", rows))
    # An op of TensorFlow 1 has one key for all its runs, of which a capture does not show the first.
    repeated = found.occurrence > 0
    again = repeated | np.isin(found.instance, found.instance[repeated])
    kept = np.flatnonzero(~again)
    return _Found(
        rows=found.rows[kept],
        labels=labels,
        label=found.label[kept],
        instance=found.instance[kept],
        occurrence=found.occurrence[kept],
        without_key=int(again.sum()),
    )


def _keyed_by_xla(trace: HostTrace) -> _Found | None:
    ops = trace.stat("hlo_op")
    wanted = mask(ops.texts, is_hlo_collective)
    if not wanted.any():
        return None
    is_wanted = wanted[ops.value] & trace.on_host[ops.event]
    rows, label = ops.event[is_wanted].astype(np.int64), ops.value[is_wanted].astype(np.int64)
    return _numbered(trace, rows, ops.texts, label, trace.number_at("run_id", rows)) if len(rows) else None


def _numbered(trace: HostTrace, rows: Int64s, labels: Sequence[str], label: Int64s, instance: Int64s) -> _Found:
    """Number the runs of one key: events that overlap are participants of one run, on several devices of the host."""
    order = np.lexsort((trace.start_ps[rows], instance, label))
    rows, label, instance = rows[order], label[order], instance[order]
    is_new_key = np.ones(len(rows), np.bool_)
    is_new_key[1:] = (label[1:] != label[:-1]) | (instance[1:] != instance[:-1])
    is_new_run = is_new_key.copy()
    is_new_run[1:] |= trace.start_ps[rows[1:]] >= trace.end_ps[rows[:-1]]
    runs = np.cumsum(is_new_run)
    occurrence: Int64s = runs - np.maximum.accumulate(np.where(is_new_key, runs, 0))
    return _Found(rows=rows, labels=labels, label=label, instance=instance, occurrence=occurrence)


def _kernels(trace: HostTrace, steps: Steps) -> _Found | None:
    """Return kernels of collectives: the n-th of a name in a step of a device is the same one on all hosts."""
    is_wanted = mask(trace.names, is_collective_kernel)
    if trace.device_kind != "gpu" or not is_wanted.any():
        return None
    rows = trace.device_rows
    rows = rows[is_wanted[trace.name[rows]]]
    if not len(rows):
        return None
    step = steps.at(trace.start_ps[rows]) if steps.source == "markers" else np.full(len(rows), -1, np.int64)
    every, rows, step = len(rows), rows[step >= 0], step[step >= 0]
    used, index = distinct_index(trace.name[rows])
    labels, of_used = text_index([trace.names[name] for name in used.tolist()])  # each plane has names of its own
    label = of_used[index]
    device = trace.plane_of(rows)
    order = np.lexsort((trace.start_ps[rows], step, device, label))
    rows, label, device, step = rows[order], label[order], device[order], step[order]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (label[1:] != label[:-1]) | (device[1:] != device[:-1]) | (step[1:] != step[:-1])
    place = np.arange(len(rows), dtype=np.int64)
    return _Found(
        rows=rows,
        labels=labels,
        label=label,
        instance=steps.numbers[step],
        occurrence=place - np.maximum.accumulate(np.where(is_first, place, 0)),
        without_key=every - len(rows),
    )


# --- waits ---
#
# A collective lasts on each host from when the host is ready until the exchange is done, and it is done on all hosts at
# about the same time. So the host on which it is shortest came last; that long the exchange itself takes, and what it
# lasts longer elsewhere is waiting. This compares durations only, so clocks need not agree. It holds to about 1 ms for
# a collective, because ends differ by that much.


class Waits(Struct, frozen=True, eq=False, kw_only=True):
    """The collectives of one host beside those of the others: one row for each, in the order of `Collectives`.

    `run` numbers the collectives of the whole run: two rows of it on different hosts are the same one. Where a
    collective is not in the traces of all its participants, `matched` is False and `wait_ps` is 0.
    """

    run: Int64s
    matched: Bools
    wait_ps: Int64s
    """How long the host waits until the last one takes part. The rest of the duration is the exchange."""


class ClockOffset(Struct, frozen=True):
    """How far the clock of a host is ahead of that of the reference host: ends of shared collectives tell.

    The times are nanoseconds. `spread_ns` is the median distance of single collectives from `ahead_ns`.
    """

    ahead_ns: int
    spread_ns: int
    collectives: int


def match_collectives(hosts: Sequence[Collectives]) -> tuple[Waits, ...]:
    """Return how long each host waits in each of its collectives.

    The participants of a collective are all hosts that have any of the same label. One that a capture of any of them
    does not hold is not matched.
    """
    sizes = [len(host) for host in hosts]
    labels, places = text_index([label for host in hosts for label in host.labels])
    ends = np.cumsum([len(host.labels) for host in hosts]).tolist()
    of_label = [places[end - len(host.labels) : end][host.label] for host, end in zip(hosts, ends, strict=True)]
    label = np.concatenate([np.zeros(0, np.int64), *of_label])
    instance, occurrence, duration_ps = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(host, key) for host in hosts)])
        for key in ("instance", "occurrence", "duration_ps")
    )
    members = np.zeros(len(labels), np.int64)
    for each in of_label:
        members[np.unique(each)] += 1
    order, firsts = group_equal([label, instance, occurrence])
    group = _groups(firsts, len(order))
    run, shortest_ps, matched = np.empty_like(order), np.empty_like(order), np.empty(len(order), np.bool_)
    if len(order):
        counts = np.diff(firsts, append=len(order))
        is_whole = (counts == members[label[order[firsts]]]) & (counts > 1)
        run[order] = group
        shortest_ps[order] = np.minimum.reduceat(duration_ps[order], firsts)[group]
        matched[order] = is_whole[group]
    wait_ps = np.where(matched, duration_ps - shortest_ps, 0)
    stops = np.cumsum([0, *sizes])
    spans = [slice(start, stop) for start, stop in zip(stops[:-1].tolist(), stops[1:].tolist(), strict=True)]
    return tuple(Waits(run=run[span], matched=matched[span], wait_ps=wait_ps[span]) for span in spans)


def clock_offsets(hosts: Sequence[Collectives], waits: Sequence[Waits]) -> tuple[ClockOffset | None, ...]:
    """Return how far the clock of each host is ahead of that of the first host that shares collectives with it.

    A collective ends on all hosts at about the same time. None for a host that shares none, or whose clock is unknown.
    """
    ends: dict[int, int] = {}
    offsets: list[ClockOffset | None] = []
    for host, wait in zip(hosts, waits, strict=True):
        if host.clock_start_ns is None:
            offsets.append(None)
            continue
        rows = np.flatnonzero(wait.matched)
        end_ns = (host.end_ps[rows] // 1000 + host.clock_start_ns).tolist()
        shared = [(end, ends[run]) for run, end in zip(wait.run[rows].tolist(), end_ns, strict=True) if run in ends]
        if not ends or shared:
            ahead_ns = np.array([end - reference for end, reference in shared], np.int64)
            middle = round(median(ahead_ns))
            offsets.append(ClockOffset(middle, round(median(np.abs(ahead_ns - middle))), len(shared)))
            new = zip(wait.run[rows].tolist(), end_ns, strict=True)
            ends.update({run: end - middle for run, end in new if run not in ends})
        else:
            offsets.append(None)
    return tuple(offsets)
