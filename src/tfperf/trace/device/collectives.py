"""Collectives of one host: events in which it exchanges data with other devices or hosts, or waits for them.

The same collective has the same keys on all hosts: `group_key` and `instance_key` for TensorFlow's collective ops,
`hlo_op` and `run_id` for programs that XLA compiled for the host. Kernels carry no key and are identified by their HLO
op or name, and their position within a step that the program numbered. An event lasts from the moment a participant is
ready until the exchange is complete, so it includes waiting for the last one to arrive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Bools, Int32s, Int64s, distinct_index, group_equal, median, text_index
from tfperf.formats.wire.event_columns import OP_LINES
from tfperf.trace.device.tpu_copies import name_of_op
from tfperf.trace.event_names import is_collective_kernel, is_hlo_collective, mask
from tfperf.trace.host.activities import Activity, tpu_codes
from tfperf.trace.host_trace import HostTrace, rows_of
from tfperf.trace.steps.steps import Steps

MOST_COLLECTIVES = 1 << 16
"""Maximum number of collectives per capture; the first ones are kept (2 MB per host)."""


class Collectives(Struct, frozen=True, eq=False, kw_only=True):
    """Collectives of one host, each with the times of its last local participant, which waits least.

    The key of a row is `labels[label]`, `instance` and `occurrence`, unique among the rows. Times are int64 picoseconds
    on the clock of the trace, which starts at `clock_start_ns` (nanoseconds since 1970, None: unknown).
    """

    labels: tuple[str, ...]
    label: Int32s
    instance: Int64s
    occurrence: Int64s
    start_ps: Int64s
    duration_ps: Int64s
    clock_start_ns: int | None = None
    without_key: int = 0
    """Collectives that cannot be matched with other hosts, because they have neither a key nor a numbered step."""
    cut: int = 0
    """Number of collectives beyond `MOST_COLLECTIVES`."""

    def __len__(self) -> int:
        """Return the number of collectives."""
        return len(self.start_ps)

    @property
    def end_ps(self) -> Int64s:
        """Return the end of each collective."""
        return self.start_ps + self.duration_ps


class Participants(Struct, frozen=True, eq=False, kw_only=True):
    """Collective events with their keys, one row per participant; those of one collective have the same key.

    `rows` are rows of the trace; the key is as in `Collectives`.
    """

    rows: Int64s
    labels: Sequence[str]
    label: Int64s
    instance: Int64s
    occurrence: Int64s
    others: Int64s = NO_NUMBERS
    """Rows of the trace with collective events that have no key."""
    are_shared: bool = True
    """Whether other hosts have the same keys; if not, keys are valid for the devices of the host."""


def find_participants(trace: HostTrace, steps: Steps) -> Participants | None:
    """Return the collective events of the devices of a host, else of its threads; None if there are none."""
    return _kernels(trace, steps) or _on_cores(trace) or _on_threads(trace)


def _on_threads(trace: HostTrace) -> Participants | None:
    return _keyed_by_tensorflow(trace) or _keyed_by_xla(trace)


def find_collectives(trace: HostTrace, steps: Steps) -> Collectives | None:
    """Return the collectives of a host: kernels of a device if there are any, else events of host threads."""
    found = _kernels(trace, steps) or _on_threads(trace)
    if found is None:
        return None
    if not found.are_shared:
        unkeyed = np.concatenate((found.rows, found.others))
        found = Participants(
            rows=NO_NUMBERS, labels=(), label=NO_NUMBERS, instance=NO_NUMBERS, occurrence=NO_NUMBERS, others=unkeyed
        )
    order, firsts = group_equal([found.label, found.instance, found.occurrence])
    # The shortest of the participants on this host arrived last.
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
        without_key=len(found.others),
        cut=len(chosen) - len(kept),
    )


def _groups(firsts: Int64s, count: int) -> Int64s:
    return np.repeat(np.arange(len(firsts)), np.diff(firsts, append=count))


def _keyed_by_tensorflow(trace: HostTrace) -> Participants | None:
    stat = trace.stat("instance_key")
    rows = stat.event[trace.on_host[stat.event]].astype(np.int64)
    if not len(rows):
        return None
    groups, label = np.unique(trace.number_at("group_key", rows), return_inverse=True)
    labels = [f"group {key}" for key in groups.tolist()]
    found = _numbered(trace, rows, labels, label.astype(np.int64), trace.number_at("instance_key", rows))
    # An op of TensorFlow 1 has one key for all its runs, and a capture may not contain the first.
    repeated = found.occurrence > 0
    again = repeated | np.isin(found.instance, found.instance[repeated])
    kept = np.flatnonzero(~again)
    return Participants(
        rows=found.rows[kept],
        labels=labels,
        label=found.label[kept],
        instance=found.instance[kept],
        occurrence=found.occurrence[kept],
        others=found.rows[again],
    )


def _keyed_by_xla(trace: HostTrace) -> Participants | None:
    ops = trace.stat("hlo_op")
    wanted = mask(ops.texts, is_hlo_collective)
    if not wanted.any():
        return None
    is_wanted = wanted[ops.value] & trace.on_host[ops.event]
    rows, label = ops.event[is_wanted].astype(np.int64), ops.value[is_wanted].astype(np.int64)
    return _numbered(trace, rows, ops.texts, label, trace.number_at("run_id", rows)) if len(rows) else None


def _numbered(trace: HostTrace, rows: Int64s, labels: Sequence[str], label: Int64s, instance: Int64s) -> Participants:
    """Number the runs of each key: overlapping events are participants of one run, on several devices of the host."""
    order = np.lexsort((trace.start_ps[rows], instance, label))
    rows, label, instance = rows[order], label[order], instance[order]
    is_new_key = np.ones(len(rows), np.bool_)
    is_new_key[1:] = (label[1:] != label[:-1]) | (instance[1:] != instance[:-1])
    is_new_run = is_new_key.copy()
    is_new_run[1:] |= trace.start_ps[rows[1:]] >= trace.end_ps[rows[:-1]]
    runs = np.cumsum(is_new_run)
    occurrence: Int64s = runs - np.maximum.accumulate(np.where(is_new_key, runs, 0))
    return Participants(rows=rows, labels=labels, label=label, instance=instance, occurrence=occurrence)


def _kernels(trace: HostTrace, steps: Steps) -> Participants | None:
    """Return the kernels of collectives, matched by HLO op or name, and by position in a step of a device.

    If the program does not number its steps, the position is that in the capture, which other hosts do not share.
    """
    is_wanted = mask(trace.names, is_collective_kernel)
    ops = trace.stat("hlo_op")
    of_op = mask(ops.texts, lambda text: is_hlo_collective(text.split("::")[-1].replace("-start", "")))
    if trace.device_kind != "gpu" or not (is_wanted.any() or of_op.any()):
        return None
    rows = trace.device_rows
    op = trace.number_at("hlo_op", rows, -1)
    rows = rows[is_wanted[trace.name[rows]] | np.append(of_op, False)[op]]
    if not len(rows):
        return None
    are_numbered = steps.source == "markers"
    step = steps.at(trace.start_ps[rows]) if are_numbered else np.zeros(len(rows), np.int64)
    others, rows, step = rows[step < 0], rows[step >= 0], step[step >= 0]
    used, index = distinct_index(trace.name[rows])
    op = trace.number_at("hlo_op", rows, -1)
    # Each plane has its own names.
    names = [trace.names[name] for name in used.tolist()]
    labels, of_text = text_index([*names, *ops.texts])
    label = of_text[np.where(op >= 0, len(names) + op, index)]
    order, occurrence = _in_order(trace, rows, label, step)
    step = step[order]
    return Participants(
        rows=rows[order],
        labels=labels,
        label=label[order],
        instance=steps.numbers[step] if are_numbered else step,
        occurrence=occurrence,
        others=others,
        are_shared=are_numbered,
    )


def _in_order(trace: HostTrace, rows: Int64s, label: Int64s, part: Int64s) -> tuple[Int64s, Int64s]:
    """Return an order of the rows, and in this order the position of each among equal labels of a device and part."""
    device = trace.plane_of(rows)
    order = np.lexsort((trace.start_ps[rows], part, device, label))
    label, device, part = label[order], device[order], part[order]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (label[1:] != label[:-1]) | (device[1:] != device[:-1]) | (part[1:] != part[:-1])
    place = np.arange(len(rows), dtype=np.int64)
    return order, place - np.maximum.accumulate(np.where(is_first, place, 0))


def _on_cores(trace: HostTrace) -> Participants | None:
    """Return the ops of TPU cores in which they exchange data or await it, by program, op and position in the capture.

    The numbers of runs differ between the chips of a host.
    """
    if trace.device_kind != "tpu":
        return None
    lines = (line for core in trace.devices for line in trace.device_lines(core) if line.name in OP_LINES)
    rows = rows_of(lines)
    rows = rows[tpu_codes(trace)[rows] == Activity.COLLECTIVES]
    used, index = distinct_index(trace.name[rows])
    names = used.tolist()
    ops = [name_of_op(trace, name) for name in names]
    awaits = np.array([op is None or op.part == "done" for op in ops], np.bool_)[index]
    rows, index = rows[awaits], index[awaits]
    if not len(rows):
        return None
    programs = trace.name_stat("program_id")
    texts = (trace.display_names[name] or trace.names[name].partition(" = ")[0].lstrip("%") for name in names)
    labels, of_name = text_index([*texts])
    label, program = of_name[index], np.array([programs.get(name, 0) for name in names], np.int64)[index]
    order, occurrence = _in_order(trace, rows, label, program)
    return Participants(
        rows=rows[order],
        labels=labels,
        label=label[order],
        instance=program[order],
        occurrence=occurrence,
        are_shared=False,
    )


# --- waits ---
# On each host, a collective lasts from the moment the host is ready until the exchange is complete, which is at about
# the same time on all hosts. So the host with the shortest duration arrived last, and that duration is the cost of the
# exchange; the additional time on other hosts is waiting. Only durations are compared, so clocks need not agree. The
# error is about 1 ms per collective, because ends differ by that much.


class Waits(Struct, frozen=True, eq=False, kw_only=True):
    """The collectives of one host matched with those of others, one row each, in the order of `Collectives`.

    `run` numbers the collectives of the whole run: rows on different hosts with the same number are the same
    collective. If a collective is missing in the trace of a participant, `matched` is False and `wait_ps` is 0.
    """

    run: Int64s
    matched: Bools
    wait_ps: Int64s
    """Time until the last host takes part. The rest of the duration is the exchange."""


class ClockOffset(Struct, frozen=True):
    """Clock offset of a host from the reference host; `spread_ns` is the median distance of collectives from
    `ahead_ns`.
    """

    ahead_ns: int
    spread_ns: int
    collectives: int


def match_collectives(hosts: Sequence[Collectives]) -> tuple[Waits, ...]:
    """Return how long each host waits per collective; one that is missing on any host with its label is not matched."""
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
    """Return the clock offset of each host from the first host that shares collectives with it; None if unknown."""
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
