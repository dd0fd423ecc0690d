"""Collectives by type, size and group: waiting and transfer apart, bandwidth, and the part that compute overlaps.

No rank can end an all-reduce, all-gather, reduce-scatter or all-to-all before the last rank begins, and all end at
about the same time. So the rank with the shortest duration began last: its duration is the transfer, and the rest of
the duration of another rank is waiting. Only durations are compared, so clocks need not agree. A rank of a permute or
broadcast does not need all others, so its waiting is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host, Results, Tabular
from tfperf.base.arrays import (
    MOST,
    Bools,
    Float64s,
    Int32s,
    Int64s,
    Intervals,
    difference,
    distinct,
    group_equal,
    lookup,
    overlap,
    text_index,
    union,
)
from tfperf.base.units import counted, percent
from tfperf.trace.device.collectives import MOST_COLLECTIVES, Participants, find_participants
from tfperf.trace.device.device_work import device_label
from tfperf.trace.event_names import collective_type, kernel_dtype

if TYPE_CHECKING:
    from tfperf.formats.hlo.model import Computation, Instruction, Module
    from tfperf.trace.host_trace import HostTrace

_MOST_PARTICIPANTS = 4 * MOST_COLLECTIVES
"""Maximum number of participants per host; the first ones are kept (7 MB)."""
_NEEDS_ALL = frozenset({"all-reduce", "all-gather", "reduce-scatter", "all-to-all"})
"""Types in which every rank needs data of every other rank of its group."""
_REDUCES = frozenset({"", "all-reduce", "reduce-scatter", "reduce"})
"""Types whose kernels have the element type in their names; others move bytes."""
BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all-reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all-gather": lambda ranks: (ranks - 1) / ranks,
    "reduce-scatter": lambda ranks: (ranks - 1) / ranks,
    "all-to-all": lambda ranks: (ranks - 1) / ranks,
}
"""Bus bandwidth / algorithm bandwidth, as in https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md; 1 for
other types."""


class Exchange(Struct, frozen=True, kw_only=True):
    """A kind of collective: its type, data and group. Unknown texts are empty, unknown numbers None."""

    type: str
    dtype: str = ""
    """Element types in XLA's notation."""
    size_bytes: int | None = None
    """Size in the definition of nccl-tests: the input of a rank, for an all-gather the output."""
    ranks: int | None = None
    """Number of ranks in a group."""
    groups: int | None = None
    """Number of groups that exchange data, each for itself."""
    group_key: int | None = None
    """TensorFlow's number of the group."""
    are_known: bool = False
    """Whether the program shows which devices form each of several groups."""

    @property
    def may_show_waiting(self) -> bool:
        """Return whether equal keys mean the same exchange, which no rank ends before the last one begins."""
        return self.type in _NEEDS_ALL and (self.groups in (None, 1) or self.are_known)

    def bus_factor(self) -> float | None:
        """Return bus bandwidth / algorithm bandwidth; None if the number of ranks or the type is unknown."""
        factor = BUS_FACTORS.get(self.type)
        if factor is None:
            return 1.0 if self.type else None
        return None if self.ranks is None else factor(self.ranks)


class HostCollectives(Struct, frozen=True, eq=False, kw_only=True):
    """Collectives of one host: columns of participants, of runs, and of devices; times are picoseconds.

    A run is one execution of a collective in a group; its key is `labels[label]`, `instance`, `occurrence` and `group`.
    """

    host: str
    exchanges: tuple[Exchange, ...]
    devices: tuple[str, ...]
    exchange: Int32s
    """Per participant, as the next four: an index into `exchanges`."""
    device: Int32s
    duration_ps: Int64s
    exposed_ps: Int64s
    """Time that compute of the same device does not overlap; -1 if unknown."""
    run: Int32s
    """An index into the runs; -1 if it has no key."""
    labels: tuple[str, ...]
    label: Int32s
    """Per run, as the next three."""
    instance: Int64s
    occurrence: Int64s
    group: Int32s
    """0 if the groups are unknown, or if there is one."""
    busy_ps: tuple[int, ...]
    """Per device: wall time with any collective."""
    alone_ps: tuple[int | None, ...]
    """Per device: the part of `busy_ps` that compute does not overlap; None if unknown."""
    are_shared: bool
    """Whether keys are the same on other hosts."""
    cut: int = 0
    """Participants left out, because there are too many."""


def analyze(host: Host) -> HostCollectives | None:
    """Return the collectives of a host; None if it has none."""
    trace = host.trace
    found = find_participants(trace, host["steps"].steps)
    if found is None or not len(found.rows) + len(found.others):
        return None
    rows = np.concatenate((found.rows, found.others))
    exchanges, exchange, group = _exchanges(trace, rows)
    run, key = _runs(trace, found, group[: len(found.rows)])
    cut = len(rows) - _MOST_PARTICIPANTS
    rows, run, exchange = rows[:_MOST_PARTICIPANTS], run[:_MOST_PARTICIPANTS], exchange[:_MOST_PARTICIPANTS]
    plane = trace.plane_of(rows) if trace.devices else np.full(len(rows), -1, np.int64)
    plane = np.where(np.isin(plane, trace.devices), plane, -1)
    planes, device = np.unique(plane, return_inverse=True)
    begun_ps, exposed_ps = trace.start_ps[rows].copy(), np.full(len(rows), -1, np.int64)
    totals: list[tuple[int, int | None]] = []
    for at, number in enumerate(planes.tolist()):
        here = np.flatnonzero(device == at)
        begun, blocked = _times_on_device(host, number, rows[here])
        begun_ps[here] = begun
        end = trace.end_ps[rows[here]]
        busy = union(begun, end)
        if blocked is None:
            totals.append((busy.total(), None))
        else:
            exposed_ps[here] = overlap(blocked, begun, end)
            totals.append((busy.total(), busy.total() - difference(busy, blocked).total()))
    return HostCollectives(
        host=trace.host,
        exchanges=exchanges,
        devices=tuple("CPU" if number < 0 else device_label(trace.planes[number].name) for number in planes.tolist()),
        exchange=exchange.astype(np.int32),
        device=device.reshape(-1).astype(np.int32),
        duration_ps=trace.end_ps[rows] - begun_ps,
        exposed_ps=exposed_ps,
        run=run.astype(np.int32),
        labels=tuple(found.labels),
        label=key[0].astype(np.int32),
        instance=key[1],
        occurrence=key[2],
        group=key[3].astype(np.int32),
        busy_ps=tuple(busy for busy, _ in totals),
        alone_ps=tuple(alone for _, alone in totals),
        are_shared=found.are_shared,
        cut=max(cut, 0),
    )


def _runs(trace: HostTrace, found: Participants, group: Int64s) -> tuple[Int64s, list[Int64s]]:
    """Return the run of each participant, then of each other event (-1: unknown), and the key of each run.

    Participants on one clock that do not all overlap are not of one run: an event is missing in the profile.
    """
    columns = [found.label, found.instance, found.occurrence, group]
    order, firsts = group_equal(columns)
    run = np.empty(len(order), np.int64)
    run[order] = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(order)))
    key = [column[order[firsts]] for column in columns]
    if len(firsts) and trace.device_kind != "tpu":
        last_start = np.maximum.reduceat(trace.start_ps[found.rows[order]], firsts)
        first_end = np.minimum.reduceat(trace.end_ps[found.rows[order]], firsts)
        run = np.where((last_start <= first_end)[run], run, -1)
    return np.append(run, np.full(len(found.others), -1)), key


def _times_on_device(host: Host, plane: int, rows: Int64s) -> tuple[Int64s, Intervals | None]:
    """Return the starts of the collectives of a device, and the parts of them in which it does not compute."""
    trace = host.trace
    start = trace.start_ps[rows]
    if plane < 0:
        return start, None
    if trace.device_kind == "tpu":
        from tfperf.trace.device.tpu_copies import async_runs

        awaited = async_runs(trace, plane)
        at = lookup(awaited.rows, rows)
        begun = np.where(at >= 0, np.append(awaited.begun_ps, 0)[at], start)
        return begun, union(start, trace.end_ps[rows])  # a core that awaits an exchange runs no other op
    work = host.device_work
    computes = work.rows[(work.plane == plane) & ~work.moves]
    computes = computes[~np.isin(computes, rows)]
    compute = union(trace.start_ps[computes], trace.end_ps[computes])
    return start, difference(union(start, trace.end_ps[rows]), compute)


# --- what is exchanged ---

_INSTRUCTION = re.compile(r"%?\S+ = (.*?) ([a-z][a-z0-9-]*)\((.*)", re.DOTALL)
_GROUPS = re.compile(r"replica_groups=(\{\}|\{\{[\d,{} ]*\}\}|\[\d+,\d+\]<=)")
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[[\d,]*\]")


def _exchanges(trace: HostTrace, rows: Int64s) -> tuple[tuple[Exchange, ...], Int64s, Int64s]:
    """Return the distinct kinds of collectives, and the kind and the group of each row."""
    from tfperf.sections.xla.instructions import read_programs  # a profile without collectives needs no programs

    program, ids = trace.program_at(rows)
    ops = trace.stat("hlo_op").texts
    hlo_op, group = trace.number_at("hlo_op", rows, -1), trace.number_at("group_key", rows, -1)
    order, firsts = group_equal([trace.name[rows], hlo_op, program, group])
    of_name = trace.name_stat("program_id") if trace.device_kind == "tpu" else {}
    keys = []
    for row in order[firsts].tolist():
        name, at = int(trace.name[rows[row]]), int(program[row])
        own = of_name.get(name, ids[at] if at >= 0 else None)
        op = ops[hlo_op[row]].split("::")[-1] if hlo_op[row] >= 0 else ""
        keys.append((name, op, own if isinstance(own, int) else None, int(group[row])))
    modules = read_programs(trace, dict.fromkeys(key[2] for key in keys))
    # The events that set up a group of TensorFlow record its key and its number of ranks.
    size = trace.stat("group_size")
    set_up, are_known = trace.known_at("group_key", size.event.astype(np.int64))
    sizes = dict(zip(set_up[are_known].tolist(), size.value[are_known].tolist(), strict=True))
    found: dict[Exchange, int] = {}
    index, group_of = [], np.zeros(len(rows), np.int64)
    for key, of_key in zip(keys, np.split(order, firsts[1:]), strict=True):
        exchange = _exchange(trace, key, modules, sizes)
        groups = _groups_of_planes(trace, key, modules) if (exchange.groups or 0) > 1 else None
        if groups is not None:
            group_of[of_key] = groups[trace.plane_of(rows[of_key])]
        exchange = replace(exchange, are_known=groups is not None)
        index.append(found.setdefault(exchange, len(found)))
    of_row = np.empty(len(rows), np.int64)
    of_row[order] = np.repeat(np.array(index, np.int64), np.diff(firsts, append=len(rows)))
    return tuple(found), of_row, group_of


def _groups_of_planes(
    trace: HostTrace, key: tuple[int, str, int | None, int], modules: Mapping[int | None, Module]
) -> Int64s | None:
    """Return the group of each plane; None unless the program runs on the GPUs of this process, all of them."""
    _, hlo_op, program_id, _ = key
    program = None if program_id is None else trace.programs.get(program_id)
    module = modules.get(program_id)
    at = None if module is None else module.by_name.get(hlo_op)
    if trace.device_kind != "gpu" or program is None or module is None or at is None:
        return None
    groups = _collective_in(module, *at)[1].groups
    gpus = {device_label(plane.name): place for place, plane in enumerate(trace.planes) if plane.kind == "gpu"}
    of_device = [gpus.get(f"GPU:{device}", -1) for device in program.device_of]
    if sorted(of_device) != sorted(gpus.values()) or sorted(groups.members) != [*range(len(of_device))]:
        return None
    of_plane = np.zeros(len(trace.planes), np.int64)
    of_plane[np.array(of_device)[np.array(groups.members)]] = np.arange(len(of_device)) // groups.size
    return of_plane


def _exchange(
    trace: HostTrace,
    key: tuple[int, str, int | None, int],
    modules: Mapping[int | None, Module],
    sizes: Mapping[int, int],
) -> Exchange:
    """Return what an event with this name, HLO op, program and TensorFlow group exchanges."""
    name, hlo_op, program_id, group = key
    text = trace.names[name]
    if trace.device_kind == "tpu":
        hlo_op = trace.display_names[name] or text.partition(" = ")[0].lstrip("%")
    module = modules.get(program_id)
    at = module.by_name.get(hlo_op) if module is not None else None
    if module is not None and at is not None:
        program = trace.programs.get(program_id) if program_id is not None else None
        return _of_instruction(module, *at, devices=len(program.devices) if program is not None else 0)
    found = _INSTRUCTION.match(text)
    if found is not None:
        return _of_text(*found.groups(), category=str(trace.name_stat("hlo_category").get(name, "")))
    if group >= 0:
        return Exchange(
            type=collective_type(text.rpartition(":")[2]), ranks=sizes.get(group), groups=1, group_key=group
        )
    kind = collective_type(hlo_op) or collective_type(text)
    return Exchange(type=kind, dtype=kernel_dtype(text) if kind in _REDUCES else "")


def _of_instruction(module: Module, computation_at: int, place: int, *, devices: int) -> Exchange:
    computation, instruction = _collective_in(module, computation_at, place)
    arrays = [array for operand in computation.operands_of(instruction) for array in operand.shape.leaves()]
    groups = instruction.groups
    return _sized(
        collective_type(instruction.opcode),
        dtypes=[array.type for array in arrays],
        sent_bytes=sum(array.bytes for array in arrays) if all(array.is_known for array in arrays) else None,
        ranks=(groups.size if groups.count else devices) or None,
        groups=groups.count or 1,
    )


def _collective_in(module: Module, computation_at: int, place: int) -> tuple[Computation, Instruction]:
    """Return the collective that an instruction runs, begins or awaits, itself or inside, with its computation."""
    computation = module.computations[computation_at]
    instruction = computation.instructions[place]
    while instruction.opcode.endswith("-done") and instruction.operands:
        instruction = computation.operands_of(instruction)[0]
    if not collective_type(instruction.opcode):  # an asynchronous wrapper, or a fusion
        for inner in (module.computations[at] for at in instruction.calls):
            wrapped = next((each for each in inner.instructions if collective_type(each.opcode)), None)
            if wrapped is not None and wrapped.opcode != "reduce":
                return inner, wrapped
    return computation, instruction


def _of_text(shape: str, opcode: str, rest: str, *, category: str) -> Exchange:
    """Return the exchange of an instruction in XLA's notation, from its parts."""
    from tfperf.formats.hlo.hlo_text import replica_groups
    from tfperf.trace.device.tpu_copies import bytes_of

    kind = collective_type(opcode) or collective_type(category)
    is_plain = bool(collective_type(opcode)) and not opcode.endswith("-done")
    operands = rest.partition("), ")[0]
    # The result of an all-reduce is as large as its input; operands without types, and awaited tuples, do not show it.
    data = operands if is_plain and _ARRAY.search(operands) else shape if kind == "all-reduce" else ""
    listed = _GROUPS.search(rest)
    groups = replica_groups(listed[1]) if listed is not None else None
    return _sized(
        kind,
        dtypes=[array[1] for array in _ARRAY.finditer(data)],
        sent_bytes=bytes_of(data),
        ranks=(groups.size if groups is not None else 0) or None,
        groups=(groups.count if groups is not None else 0) or None,
    )


def _sized(kind: str, *, dtypes: list[str], sent_bytes: int | None, ranks: int | None, groups: int | None) -> Exchange:
    size = sent_bytes
    if kind == "all-gather":
        size = None if sent_bytes is None or ranks is None else sent_bytes * ranks
    return Exchange(
        type=kind, dtype=", ".join(dict.fromkeys(dtypes)), size_bytes=size or None, ranks=ranks, groups=groups
    )


# --- over hosts ---


class Sums(Struct, frozen=True, eq=False, kw_only=True):
    """Sums over participants by row, times in picoseconds; `known` counts the ones whose waiting is known."""

    count: Int64s
    total_ps: Float64s
    known: Int64s
    known_ps: Float64s
    """Time of the participants whose waiting is known."""
    waited_ps: Float64s
    last: Int64s
    """Participants that the others waited for."""
    shown: Int64s
    """Participants whose exposed time is known."""
    shown_ps: Float64s
    exposed_ps: Float64s

    @property
    def transfer_ps(self) -> Float64s:
        """Return the transfer time of the participants whose waiting is known."""
        return self.known_ps - self.waited_ps


class DeviceRow(Struct, frozen=True):
    """A device with collectives of one type."""

    host: str
    device: str
    type: str


class Collectives(Tabular, frozen=True, kw_only=True, eq=False):
    """The collectives of a run by kind, most time first, and by device and type."""

    home = ("collectives", "collectives")

    exchanges: tuple[Exchange, ...] = ()
    sums: Sums | None = None
    """By kind; None without collectives."""
    why_unknown: tuple[str, ...] = ()
    """Per kind: why waiting is unknown; empty if it is known."""
    device_rows: tuple[DeviceRow, ...] = ()
    device_sums: Sums | None = None
    busy_ps: float = 0.0
    """Wall time with any collective, summed over devices."""
    exposed_percent: float | None = None
    """Share of that time that compute of the same device does not overlap; None if unknown, as on host threads."""
    device_count: int = 0
    cut: int = 0

    @property
    def waited_percent(self) -> float | None:
        """Return the share of waiting for the last rank in the time of collectives; None if unknown for most of it."""
        sums = self.sums
        if sums is None or not sums.known.sum() or sums.known_ps.sum() < _MOSTLY * sums.total_ps.sum():
            return None
        return float(100.0 * sums.waited_ps.sum() / max(sums.known_ps.sum(), 1.0))


_MOSTLY = 0.5


def compare(results: Results) -> Collectives:
    """Match the collectives of the hosts of a run, and add them up; linear in their number."""
    kinds: dict[Exchange, int] = {}
    runs = [_HostRuns.of(part, kinds) for part in _parts(results)]
    if not runs:
        return Collectives()
    # A capture may begin after the event with the size of a group, so other hosts know it.
    sizes = {each.group_key: each.ranks for each in kinds if each.ranks is not None}
    completed = (
        replace(each, ranks=sizes.get(each.group_key)) if each.ranks is None and each.group_key is not None else each
        for each in kinds
    )
    kind_of = np.array([kinds.get(each, at) for at, each in enumerate(completed)], np.int64)
    transfer_ps, most = _transfers(runs, tuple(kinds), kind_of)
    by_kind, by_device, device_rows = [], [], []
    seen = np.zeros(len(kinds), np.int64)
    busy_ps: list[int] = []
    alone_ps: list[int] = []
    shown_busy_ps: list[int] = []
    first = cut = 0
    for part in _parts(results):
        own = np.append(transfer_ps[first : first + len(part.label)], -1)[part.run]
        first += len(part.label)
        kind = kind_of[np.array([kinds[each] for each in part.exchanges], np.int64)[part.exchange]]
        by_kind.append(_sums(kind, len(kinds), part, own))
        np.add.at(seen, distinct(kind * len(part.devices) + part.device) // len(part.devices), 1)
        types, of_kind = text_index([each.type for each in part.exchanges])
        pairs, row = np.unique(part.device.astype(np.int64) * len(types) + of_kind[part.exchange], return_inverse=True)
        by_device.append(_sums(row.reshape(-1), len(pairs), part, own))
        places = (divmod(pair, len(types)) for pair in pairs.tolist())
        device_rows += [DeviceRow(part.host, part.devices[device], types[at]) for device, at in places]
        busy_ps += part.busy_ps
        shown_busy_ps += [busy for busy, alone in zip(part.busy_ps, part.alone_ps, strict=True) if alone is not None]
        alone_ps += [alone for alone in part.alone_ps if alone is not None]
        cut += part.cut
    sums = _joined(by_kind, np.add.reduce)
    used = np.flatnonzero(sums.count)
    exchanges, order = [*kinds], used[np.argsort(-sums.total_ps[used], kind="stable")].tolist()
    return Collectives(
        exchanges=tuple(exchanges[at] for at in order),
        sums=_joined([sums], lambda columns: columns[0][order]),
        why_unknown=tuple(
            "" if sums.known[at] else _why_unknown(exchanges[at], int(most[at]), int(seen[at])) for at in order
        ),
        device_rows=tuple(device_rows),
        device_sums=_joined(by_device, np.concatenate),
        busy_ps=float(sum(busy_ps)),
        exposed_percent=percent(sum(alone_ps), sum(shown_busy_ps)) if alone_ps else None,
        device_count=len(busy_ps),
        cut=cut,
    )


def _parts(results: Results) -> Iterator[HostCollectives]:
    """Yield the collectives of each host that has any; with many hosts, each is unpacked alone."""
    for host in results.hosts:
        part = host["collectives"]
        if part is not None:
            yield part


class _HostRuns(Struct, frozen=True, eq=False):
    """Runs of one host: keys as in `HostCollectives`, the kind over all hosts, and the recorded ranks."""

    labels: tuple[str, ...]
    label: Int32s
    instance: Int64s
    occurrence: Int64s
    group: Int32s
    are_shared: bool
    kind: Int64s
    count: Int64s
    shortest_ps: Int64s

    @classmethod
    def of(cls, part: HostCollectives, kinds: dict[Exchange, int]) -> _HostRuns:
        """Return the runs of a host, and number its kinds."""
        index = np.array([kinds.setdefault(each, len(kinds)) for each in part.exchanges], np.int64)
        keyed = np.flatnonzero(part.run >= 0)
        run = part.run[keyed]
        kind, shortest = np.zeros(len(part.label), np.int64), np.full(len(part.label), MOST, np.int64)
        kind[run] = index[part.exchange[keyed]]
        np.minimum.at(shortest, run, part.duration_ps[keyed])
        count = np.bincount(run, minlength=len(part.label))
        key = (part.labels, part.label, part.instance, part.occurrence, part.group)
        return cls(*key, part.are_shared, kind, count, shortest)


def _transfers(hosts: Sequence[_HostRuns], exchanges: Sequence[Exchange], kind_of: Int64s) -> tuple[Int64s, Int64s]:
    """Return the transfer time of each run (-1: unknown), host by host, and the most participants by kind.

    All ranks of a group must be recorded. If their number is unknown, every host with the label must have the run.
    """
    labels, places = text_index([label for host in hosts for label in host.labels])
    stops = np.cumsum([len(host.labels) for host in hosts]).tolist()
    of_host = [places[stop - len(host.labels) : stop][host.label] for host, stop in zip(hosts, stops, strict=True)]
    label = np.concatenate(of_host)
    members = np.zeros(len(labels), np.int64)
    for each in of_host:
        members[distinct(each)] += 1
    place = np.concatenate([np.full(len(h.label), -1 if h.are_shared else n) for n, h in enumerate(hosts)])
    instance, occurrence, in_group, kind, count, shortest_ps = (
        np.concatenate([getattr(host, name) for host in hosts])
        for name in ("instance", "occurrence", "group", "kind", "count", "shortest_ps")
    )
    kind = kind_of[kind]
    order, firsts = group_equal([label, instance, occurrence, in_group, place])
    transfer_ps, most = np.full(len(order), -1, np.int64), np.zeros(len(exchanges), np.int64)
    if not len(order):
        return transfer_ps, most
    group = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(order)))
    ranks = np.add.reduceat(count[order], firsts)
    sharing = np.where(place[order[firsts]] < 0, members[label[order[firsts]]], 1)
    is_on_all = np.diff(firsts, append=len(order)) == sharing
    np.maximum.at(most, kind[order], ranks[group])
    of_group = kind[order[firsts]]
    may_show = np.array([each.may_show_waiting for each in exchanges], np.bool_)[of_group]
    expected = np.array([each.ranks or 0 for each in exchanges], np.int64)[of_group]
    is_whole = may_show & np.where(expected > 0, ranks == expected, is_on_all & (ranks > 1))
    transfer_ps[order] = np.where(is_whole, np.minimum.reduceat(shortest_ps[order], firsts), -1)[group]
    return transfer_ps, most


def _why_unknown(exchange: Exchange, most: int, devices: int) -> str:
    """Return why waiting and transfer cannot be separated: at most `most` ranks were recorded together."""
    if not exchange.type:
        return "the type is unknown"
    if exchange.type not in _NEEDS_ALL:
        return f"a rank of a {exchange.type} does not need all others"
    if not exchange.may_show_waiting:
        return "the profile does not show which devices form a group"
    if exchange.ranks is not None and 0 < max(most, devices) < exchange.ranks:
        return f"the profile has {max(most, devices)} of {counted(exchange.ranks, 'rank')}"
    return "the profile has one rank" if max(most, devices) == 1 else "the ranks cannot be matched"


def _sums(index: Int64s, size: int, part: HostCollectives, transfer_ps: Int64s) -> Sums:
    """Add up the participants of a host by `index`; a transfer of -1 is unknown."""

    def total(values: Int64s | Bools, rows: Bools | None = None) -> Float64s:
        chosen = (index, values) if rows is None else (index[rows], values[rows])
        return np.bincount(chosen[0], weights=chosen[1], minlength=size).astype(np.float64)

    known, shown = transfer_ps >= 0, part.exposed_ps >= 0
    waited_ps = part.duration_ps - transfer_ps
    return Sums(
        count=np.bincount(index, minlength=size),
        total_ps=total(part.duration_ps),
        known=np.bincount(index[known], minlength=size),
        known_ps=total(part.duration_ps, known),
        waited_ps=total(waited_ps, known),
        last=np.bincount(index[known & (waited_ps == 0)], minlength=size),
        shown=np.bincount(index[shown], minlength=size),
        shown_ps=total(part.duration_ps, shown),
        exposed_ps=total(part.exposed_ps, shown),
    )


def _joined(parts: Sequence[Sums], join: Callable[[list[Any]], Any]) -> Sums:
    return Sums(**{name: join([getattr(part, name) for part in parts]) for name in Sums.__struct_fields__})
