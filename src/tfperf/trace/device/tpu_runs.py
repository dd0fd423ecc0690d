"""Runs of programs on TPU chips, and the host call that caused each.

Each chip has an event per run of a program (line `XLA Modules`). The host event that enqueued a run is the producer of
its flow (`_ct` and `_c` of the run equal `_pt` and `_p` of that event), else the enqueueing event with the run's id and
the number of its chip, because ids count per chip. From there the search goes up: from an event that consumes a flow to
its producer, on any thread, else to the event around it, until a call of a jitted JAX function is reached. A program
that several chips run together is one launch, however far apart its runs begin.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from tfperf.base.arrays import (
    NO_NUMBERS,
    Bools,
    Int64s,
    distinct,
    distinct_index,
    extents,
    group_equal,
    lookup,
    median,
    span_at,
    text_index,
)
from tfperf.formats.wire.event_columns import MODULE_LINE, Line, signed
from tfperf.trace.event_names import called_function, canonical, is_jitted_call, mask
from tfperf.trace.host.launches import LaunchLinks, begun_before
from tfperf.trace.host_trace import HostTrace, rows_of
from tfperf.trace.nesting import last_around, nest, outermost

_ENQUEUE = "DoEnqueueProgram"
_MOST_HOPS = 256
"""Paths from a run to its call have about 20 events in real profiles."""


class TpuRuns(Struct, frozen=True, eq=False, kw_only=True):
    """Runs of programs on the chips of one host, by chip and start; columns are int64.

    `plane` indexes the planes of the trace, `row` its events, and `name` the `names` of runs (`jit_f(7)`). `start_ps`
    and `end_ps` are on the clock of the chip. `program` holds the bits of the program's id, where `known`. `run_id`
    counts per chip (0: not in the file). `enqueue` is the row of the host event that enqueued the run, `call` that of
    the outermost call of a jitted function that led to it, -1 if unknown. Runs of one program that one call started on
    several chips share a number in `launch`, in time order.
    """

    names: tuple[str, ...]
    plane: Int64s
    row: Int64s
    name: Int64s
    start_ps: Int64s
    end_ps: Int64s
    program: Int64s
    known: Bools
    run_id: Int64s
    enqueue: Int64s
    call: Int64s
    launch: Int64s

    def __len__(self) -> int:
        """Return the number of runs on all chips."""
        return len(self.row)

    def only(self, wanted: Bools) -> TpuRuns:
        """Return some of the runs."""
        columns = {key: column[wanted] for key, column in asdict(self).items() if key != "names"}
        return replace(self, **columns)

    @property
    def duration_ps(self) -> Int64s:
        """Return the duration of each run."""
        return self.end_ps - self.start_ps

    def on_host(self, trace: HostTrace, times_ps: Int64s) -> Int64s:
        """Return a time of each run on the clock of the host."""
        moved = times_ps.copy()
        for plane in distinct(self.plane).tolist():
            here = self.plane == plane
            moved[here] = trace.on_host_clock(plane, times_ps[here])
        return moved


def find_runs(trace: HostTrace) -> TpuRuns:
    """Return the runs on all TPU chips; if the file lacks links, runs and calls of a program are matched in order."""
    lines = [line for plane in trace.devices for line in trace.device_lines(plane) if line.name == MODULE_LINE]
    rows = rows_of(lines)
    plane = trace.plane_of(rows)
    used, index = distinct_index(trace.name[rows])
    names, of_used = text_index([trace.names[name] for name in used.tolist()])  # each plane has its own names
    name = of_used[index]
    # The ids of programs are in a stat or in the names of events.
    named = [program_in_name(text) for text in names]
    program, known = trace.known_at("program_id", rows)
    program = np.where(known, program, np.array([each or 0 for each in named], np.int64)[name])
    known = known | np.array([each is not None for each in named], np.bool_)[name]
    enqueue = _enqueued_by(trace, rows, plane)
    calls = trace.host_events(mask(trace.names, is_jitted_call))
    call = np.full(len(rows), -1, np.int64)
    call[enqueue >= 0] = _calls_of(trace, enqueue[enqueue >= 0], calls)
    runs = TpuRuns(
        names=tuple(names),
        plane=plane,
        row=rows,
        name=name,
        start_ps=trace.start_ps[rows],
        end_ps=trace.end_ps[rows],
        program=program,
        known=known,
        run_id=trace.number_at("run_id", rows, 0) if "run_id" in trace.read_stats else np.zeros(len(rows), np.int64),
        enqueue=enqueue,
        call=call,
        launch=_launches(trace.start_ps[rows], name, plane, call),
    )
    return runs if not len(calls) or (call >= 0).any() else replace(runs, call=_calls_in_order(trace, runs, calls))


def enqueue_links(trace: HostTrace, ops: Int64s) -> LaunchLinks:
    """Link ops of TPU chips (ascending rows) to the host events that enqueued their runs."""
    runs = find_runs(trace)
    plane_of = trace.plane_of(ops)
    enqueue = np.full(len(ops), -1, np.int64)
    for plane in distinct(runs.plane).tolist():
        of_chip, here = np.flatnonzero(runs.plane == plane), np.flatnonzero(plane_of == plane)
        place = span_at(runs.start_ps[of_chip], runs.end_ps[of_chip] + 1, trace.start_ps[ops[here]])
        enqueue[here[place >= 0]] = runs.enqueue[of_chip[place[place >= 0]]]
    return LaunchLinks(ops[enqueue >= 0], enqueue[enqueue >= 0])


_BARRIER = re.compile("barrier-")
"""Marks in programs where a chip waits for all others."""


def barrier_waits(trace: HostTrace, runs: TpuRuns) -> Int64s:
    """Return how long the chip waits at barriers in each run; 0 if none is marked."""
    waited = np.zeros(len(runs), np.int64)
    is_barrier = mask(trace.names, lambda name: _BARRIER.match(name) is not None)
    for plane in distinct(runs.plane).tolist():
        of_chip = np.flatnonzero(runs.plane == plane)
        for line in trace.device_lines(plane):
            rows = np.flatnonzero(is_barrier[trace.name[line.start : line.stop]]) + line.start
            # Clocks of two lines may differ by nanoseconds, so the middle of the event is compared.
            middle = trace.start_ps[rows] + trace.duration_ps[rows] // 2
            place = span_at(runs.start_ps[of_chip], runs.end_ps[of_chip] + 1, middle)
            np.add.at(waited, of_chip[place[place >= 0]], trace.duration_ps[rows[place >= 0]])
    return waited


_C_API = 14
"""Type of flows from JAX into libtpu through PJRT's C API, on one thread."""


def recorded_twice(trace: HostTrace) -> dict[Line, Line]:
    """Map lines of host threads that libtpu records to the line of the same thread that JAX records.

    All calls on the libtpu line come from the other line, and are nested in the events there that make them.
    """
    producers, consumers = _Flows.of(trace, "_pt", "_p"), _Flows.of(trace, "_ct", "_c")
    is_call = consumers.kind == _C_API
    calls = _Flows(consumers.row[is_call], consumers.kind[is_call], consumers.id[is_call])
    made = _producers(producers, calls)
    start, end = (np.append(times, -1) for times in (trace.start_ps, trace.end_ps))
    inside = (made >= 0) & (start[made] <= start[calls.row]) & (end[calls.row] <= end[made])
    line_of, made_on = trace.line_of[calls.row], np.append(trace.line_of, -1)[made]
    same = {}
    for line in distinct(line_of).tolist():
        here = line_of == line
        origins = distinct(made_on[here]).tolist()
        if inside[here].all() and len(origins) == 1 and origins[0] != line:
            same[trace.lines[line]] = trace.lines[origins[0]]
    return same


def _launches(start: Int64s, name: Int64s, plane: Int64s, call: Int64s) -> Int64s:
    """Number the launches in time order: the n-th run of a program on each chip, among those of one call.

    Runs without a call are grouped by time, because the first one may be missing on a chip.
    """
    count = len(name)
    order, starts = group_equal([name, call, plane])
    nth = np.zeros(count, np.int64)
    nth[order] = np.arange(count) - np.repeat(starts, np.diff([*starts, count]))
    for each in distinct(name[call < 0]).tolist():
        of_chips = [np.flatnonzero((name == each) & (call < 0) & (plane == chip)) for chip in distinct(plane).tolist()]
        most = max(of_chips, key=len)
        for chip in of_chips:
            if 0 < len(chip) < len(most):
                middles = (start[most][1:] + start[most][:-1]) // 2
                later = int(median(np.searchsorted(middles, start[chip]) - np.arange(len(chip))))
                nth[chip] += min(max(later, 0), len(most) - len(chip))
    order, starts = group_equal([name, call, nth])
    launch = np.repeat(np.arange(len(starts)), np.diff([*starts, count]))
    first = np.minimum.reduceat(start[order], starts) if len(starts) else starts
    rank = np.zeros(len(starts), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(starts))
    numbers = np.zeros(count, np.int64)
    numbers[order] = rank[launch]
    return numbers


_CLOCKS_APART_PS = 1_000_000_000
"""Clocks of a TPU and its host were 0.5 ms apart in a real profile without any other shift."""


def _calls_in_order(trace: HostTrace, runs: TpuRuns, calls: Int64s) -> Int64s:
    calls = outermost(trace, calls[trace.duration_ps[calls] > 0])
    functions = np.array([canonical(called_function(trace.names[name])) for name in trace.name[calls].tolist()], object)
    modules = np.array([canonical(module_name(name)) for name in runs.names], object)[runs.name]
    start, _ = extents(runs.launch, *(runs.on_host(trace, runs.start_ps),) * 2, int(runs.launch.max(initial=-1)) + 1)
    call_of = np.full(len(start), -1, np.int64)
    for function in set(functions.tolist()):
        launches = distinct(runs.launch[modules == function])
        launches = launches[np.argsort(start[launches], kind="stable")]
        called = calls[functions == function]
        launches = launches[begun_before(start[launches] + _CLOCKS_APART_PS, trace.start_ps[called]) :][: len(called)]
        call_of[launches] = called[: len(launches)]
    return call_of[runs.launch]


def module_name(run: str) -> str:
    """Return the name of a program without its id: `jit_f` for `jit_f(7)`."""
    return re.sub(r"\(\d+\)$", "", run)


def program_in_name(run: str) -> int | None:
    """Return the program id in the name of a run, `jit_f(7)`, as int64 with the same bits; None without one."""
    found = re.search(r"\(([0-9]{1,20})\)$", run)
    return signed(int(found[1])) if found and int(found[1]) < 1 << 64 else None


class _Flows(Struct, frozen=True, eq=False):
    """Ends of flows: rows (ascending), and the type and id of each flow."""

    row: Int64s
    kind: Int64s
    id: Int64s

    @classmethod
    def of(cls, trace: HostTrace, kind: str, id: str) -> _Flows:
        if not {kind, id} <= trace.read_stats:
            return cls(NO_NUMBERS, NO_NUMBERS, NO_NUMBERS)
        stat = trace.stat(id)
        rows = stat.event.astype(np.int64)
        place = lookup(trace.stat(kind).event, rows)
        has_both = place >= 0
        return cls(rows[has_both], trace.stat(kind).value[place[has_both]], stat.value[has_both])


def _producers(producers: _Flows, consumers: _Flows) -> Int64s:
    """Return for each consumer the row of its flow's producer; -1 if none or several match."""
    both = [np.concatenate((producers.kind, consumers.kind)), np.concatenate((producers.id, consumers.id))]
    order, starts = group_equal(both)
    key = np.zeros(len(order), np.int64)
    key[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(order)]))
    of_producers = key[: len(producers.row)]
    row_of = np.full(len(starts), -1, np.int64)
    row_of[of_producers] = producers.row
    row_of[np.bincount(of_producers, minlength=len(starts)) > 1] = -1
    return row_of[key[len(producers.row) :]]


def _enqueued_by(trace: HostTrace, rows: Int64s, plane: Int64s) -> Int64s:
    """Return the host row that enqueued each run: by its flow, else by chip and run id."""
    producers, consumers = _Flows.of(trace, "_pt", "_p"), _Flows.of(trace, "_ct", "_c")
    source = np.append(_producers(producers, consumers), -1)[lookup(consumers.row, rows)]
    source = np.where((source >= 0) & np.append(trace.on_host, False)[source], source, -1)
    if not {"run_id", "device_ordinal"} <= trace.read_stats:
        return source
    ids, chips = trace.stat("run_id"), trace.stat("device_ordinal")
    enqueues = trace.host_events(mask(trace.names, _ENQUEUE.__eq__))
    id_at, chip_at = lookup(ids.event, enqueues), lookup(chips.event, enqueues)
    has_both = (id_at >= 0) & (chip_at >= 0)
    enqueues, id_at, chip_at = enqueues[has_both], id_at[has_both], chip_at[has_both]
    of_run = lookup(ids.event, rows)
    numbers = {
        index: int(found[1])
        for index in distinct(plane).tolist()
        if (found := re.match(r"/device:TPU:(\d{1,9})\b", trace.planes[index].name))
    }
    chip = np.array([numbers.get(index, -1) for index in plane.tolist()], np.int64)
    has_id = np.flatnonzero((of_run >= 0) & (chip >= 0))
    by_id = np.full(len(rows), -1, np.int64)
    by_id[has_id] = _producers(
        _Flows(enqueues, chips.value[chip_at], ids.value[id_at]),
        _Flows(rows[has_id], chip[has_id], ids.value[of_run[has_id]]),
    )
    return np.where(source >= 0, source, by_id)


def _calls_of(trace: HostTrace, rows: Int64s, calls: Int64s) -> Int64s:
    """Return for each host row the outermost of the calls (ascending rows) that led to it, -1 if none did."""
    found = np.full(len(rows), -1, np.int64)
    if not len(calls):
        return found
    producers, consumers = _Flows.of(trace, "_pt", "_p"), _Flows.of(trace, "_ct", "_c")
    produced_by = np.append(_producers(producers, consumers), -1)
    parents: dict[int, Int64s] = {}
    at, climbing = rows.copy(), np.arange(len(rows))
    for _ in range(_MOST_HOPS):
        is_call = lookup(calls, at[climbing]) >= 0
        found[climbing[is_call]] = at[climbing[is_call]]
        climbing = climbing[~is_call]
        if not len(climbing):
            break
        source = produced_by[lookup(consumers.row, at[climbing])]
        at[climbing] = np.where(source >= 0, source, _parents(trace, at[climbing], parents))
        climbing = climbing[at[climbing] >= 0]
    outer = np.sort(outermost(trace, calls))
    inside = np.flatnonzero((found >= 0) & (lookup(outer, found) < 0))
    found[inside] = outer[last_around(trace, outer, found[inside])]
    return found


def _parents(trace: HostTrace, rows: Int64s, known: dict[int, Int64s]) -> Int64s:
    """Return the event around each row on its line, -1 for none; `known` caches the parents of whole lines."""
    above = np.full(len(rows), -1, np.int64)
    line_of = trace.line_of[rows]
    for index in distinct(line_of).tolist():
        line, here = trace.lines[index], line_of == index
        if index not in known:
            parent = nest(trace.start_ps[line.start : line.stop], trace.end_ps[line.start : line.stop]).parent
            known[index] = np.where(parent >= 0, parent + line.start, -1)
        above[here] = known[index][rows[here] - line.start]
    return above


# --- chips ---

_NUMBERS = ("global_core_id", "global_chip_id")


class TpuChips(Struct, frozen=True):
    """TPU devices in the traces of some hosts, and those of the program with most of their time.

    A device is as in JAX: a chip, or one of the two cores of an old chip. Numbers count over all hosts of the job;
    without numbers, only the number of devices is known.
    """

    recorded: int
    numbers: tuple[int, ...]
    are_chips: bool
    """Whether each device is a separate chip, as far as the profile shows."""
    program: str
    """Name of the program; empty: unknown."""
    program_devices: tuple[int, ...]
    """Numbers of the devices that run it; empty: unknown."""

    @property
    def missing(self) -> int:
        """Return how many devices of the program are not in the traces."""
        return max(len(self.program_devices) - self.recorded, 0)

    @property
    def noun(self) -> str:
        """Return the noun for a device."""
        return "chip" if self.are_chips else "core"

    @property
    def sentence(self) -> str:
        """Return a sentence on the missing devices of the program; empty if none is missing."""
        if not self.missing:
            return ""
        of_all = f"{self.recorded} of the {len(self.program_devices)} {self.noun}s of {self.program}"
        others = sorted({*self.program_devices} - {*self.numbers})
        named = f" ({ranges_of(others)})" if len(others) == self.missing else ""
        return f"the profile has only {of_all}; the others{named} are on another host or were not recorded"


def ranges_of(numbers: Sequence[int]) -> str:
    """Return ascending numbers in words: `0 to 3, 8`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def find_chips(trace: HostTrace) -> TpuChips | None:
    """Return the chips of a trace; None without a TPU."""
    if trace.device_kind != "tpu":
        return None
    planes = [trace.planes[index] for index in trace.devices]
    numbers, chips = ({int(each.stats[key]) for each in planes if key in each.stats} for key in _NUMBERS)
    is_numbered = len(numbers) == len(planes)
    program, devices = _main_program(trace)
    return TpuChips(
        recorded=len(planes),
        numbers=tuple(sorted(numbers)) if is_numbered else (),
        are_chips=not is_numbered or len(chips) == len(planes),
        program=program,
        program_devices=devices,
    )


def join_chips(parts: Iterable[TpuChips | None]) -> TpuChips | None:
    """Return the chips of several hosts; the program is that of most hosts."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    numbers = {number for part in known for number in part.numbers}
    recorded = sum(part.recorded for part in known)
    program, devices = Counter((part.program, part.program_devices) for part in known).most_common(1)[0][0]
    return TpuChips(
        recorded=recorded,
        numbers=tuple(sorted(numbers)) if len(numbers) == recorded else (),
        are_chips=all(part.are_chips for part in known),
        program=program,
        program_devices=devices,
    )


def _main_program(trace: HostTrace) -> tuple[str, tuple[int, ...]]:
    """Return the program with the longest total time on the devices, and the numbers of its devices."""
    rows = rows_of(line for line in trace.lines if line.plane in trace.devices and line.name == MODULE_LINE)
    if not len(rows):
        return "", ()
    took = np.bincount(trace.name[rows], weights=trace.duration_ps[rows], minlength=len(trace.names))
    name, _, number = trace.names[int(took.argmax())].removesuffix(")").partition("(")
    programs = trace.programs if trace.hlo_protos is not None else {}
    return name, next((each.devices for key, each in programs.items() if number == str(key % (1 << 64))), ())
