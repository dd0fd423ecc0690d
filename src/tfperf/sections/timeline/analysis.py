"""Selection of the steps to draw per host, and their pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host, Results
from tfperf.base.arrays import (
    EMPTY,
    NO_NUMBERS,
    Int64s,
    Intervals,
    difference,
    distinct,
    intersection,
    lookup,
    median,
    overlap,
    union,
    union_all,
)
from tfperf.base.display import Shown, cut
from tfperf.base.units import counted, format_ms
from tfperf.report.model import Links, MemoryCurve, Ribbon, StepPicture
from tfperf.sections.hosts.analysis import Hosts, step_grid
from tfperf.sections.timeline.lanes import (
    MOST_LANES,
    TITLES,
    BlockTexts,
    LaneEvents,
    Window,
    lane_events,
    levels_of,
    no_events,
)
from tfperf.trace.device.collectives import match_collectives
from tfperf.trace.device.device_work import device_label
from tfperf.trace.event_names import is_fetch, mask
from tfperf.trace.host.activities import ActivityTimes, corrected_times, tpu_codes, tpu_times
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import last_around
from tfperf.trace.steps.breakdown import CATEGORY_ACTIVITIES, Breakdown
from tfperf.trace.steps.categories import CATEGORY_TITLES
from tfperf.trace.steps.steps import CoreSteps, Steps, WhichStep, chosen_step, step_word
from tfperf.trace.steps.tpu_steps import core_steps


class DrawnSteps(Shown, Struct, frozen=True):
    """Pictures of steps, grouped by host; `why_none` is empty if there are any."""

    pictures: tuple[StepPicture, ...] = ()
    why_none: str = ""
    lacks_asked_step: bool = False
    """Whether there are none because no host has the requested step."""

    def __repr__(self) -> str:
        return cut(f"<DrawnSteps: {counted(len(self.pictures), 'picture')}>")


def analyze(host: Host) -> DrawnSteps:
    """Draw the requested step, else the median step and the slowest whole step."""
    steps: Steps = host["steps"].steps
    if host.as_tensorflow:
        return DrawnSteps(why_none="--attribution tensorflow has a different time axis for steps; omit --attribution")
    if host.is_one_of_many:
        return DrawnSteps(why_none="the profile has too many hosts; select one with --host NAME")
    if not len(steps):
        return DrawnSteps(why_none=steps.explanation)
    chosen = dict(_chosen(steps, host.drawn_step))
    if not chosen:
        first, last = int(steps.numbers.min()), int(steps.numbers.max())
        known = f"the only step is {first}" if first == last else f"the steps are {first}..{last}"
        return DrawnSteps(why_none=f"step {host.drawn_step} does not exist; {known}", lacks_asked_step=True)
    host = _on_one_clock(host)
    memory = MemoryInUse(host.trace)
    return DrawnSteps(tuple(draw_step(host, row, which, memory) for row, which in chosen.items()))


def _on_one_clock(host: Host) -> Host:
    trace = host.trace
    if not trace.device_clocks:
        return host
    drawn = Host(trace.on_one_clock(), host.attribution, host.step_marker, host.peaks, host.drawn_step)
    steps: Steps = host["steps"].steps  # on the clock of the chips
    windows = (*steps.on_cores, CoreSteps(trace.devices[0], steps.start_ps, steps.end_ps))
    *on_cores, whole = (
        CoreSteps(plane, trace.on_host_clock(plane, start_ps), trace.on_host_clock(plane, end_ps))
        for plane, start_ps, end_ps in windows
    )
    steps = replace(steps, start_ps=whole.start_ps, end_ps=whole.end_ps, on_cores=tuple(on_cores))
    drawn.results = {**host.results, "steps": replace(host["steps"], steps=steps)}
    return drawn


def _chosen(steps: Steps, asked: WhichStep | None) -> Iterator[tuple[int, str]]:
    words = {"median": "the median", "slowest": "the slowest"}
    rows: dict[int, list[str]] = {}
    for which in ("median", "slowest") if asked is None else (asked,):
        row = chosen_step(steps, which)
        if row is not None:
            rows.setdefault(row, []).append(words.get(str(which), "as requested"))
    for row, parts in rows.items():
        yield row, " and ".join(parts)


def combine(hosts: Sequence[DrawnSteps]) -> DrawnSteps:
    """Merge the pictures of several hosts."""
    pictures = tuple(picture for host in hosts for picture in host.pictures)
    if pictures:
        return DrawnSteps(pictures)
    # Helper hosts of a job have no steps at all, which is less informative.
    lacking = [host for host in hosts if host.lacks_asked_step] or [*hosts]
    return DrawnSteps((), lacking[0].why_none, lacking[0].lacks_asked_step)


def draw_step(host: Host, row: int, which: str, memory: MemoryInUse) -> StepPicture:
    """Return the picture of the step at a row of the steps; `which` describes the step."""
    steps: Steps = host["steps"].steps
    window = Window(int(steps.start_ps[row]), int(steps.end_ps[row]))
    texts = BlockTexts(host)
    drawn = lane_events(host, window, texts)
    of_step = ribbons(host, row)
    flag = f" ({steps.flags[row]})" if steps.flags[row] else ""
    what = f"{step_word(steps.kinds[row]).capitalize()} {steps.numbers[row]}{flag}"
    return StepPicture(
        title=f"{what}, {which}: {format_ms(int(steps.duration_ps[row]) / 1e9)} ms",
        host=host.trace.host,
        step=int(steps.numbers[row]),
        duration_ns=window.duration_ns,
        categories=categories_ns(host, row),
        ribbons=of_step,
        groups=drawn.groups,
        levels=levels_of(drawn.events, window.duration_ns),
        names=tuple(texts.names),
        notes=tuple(texts.notes),
        links=links_of(host, drawn),
        memory=memory.curves(window),
        places=longest_places(of_step[0], CATEGORIES_OF_CAUSE) if of_step else {},
        remarks=tuple(_remarks(drawn)),
        is_requested=host.drawn_step is not None,
    )


def _remarks(drawn: LaneEvents) -> Iterator[str]:
    lanes = sum(group.omitted for group in drawn.groups)
    if lanes:
        are = "is" if lanes == 1 else "are"
        yield f"{counted(lanes, 'lane')} {are} not drawn: only the {MOST_LANES} busiest of each group are."
    if drawn.omitted_groups:
        yield f"{counted(drawn.omitted_groups, 'lane group')} not drawn."
    if drawn.deeper:
        yield f"{counted(drawn.deeper, 'event')} not drawn: too deeply nested."


_MOST_HOSTS = 12
_OWN_WORK, _WAITING = "Own work", "Waiting for others"


def hosts_together(results: Results) -> StepPicture | None:
    """Return the step in which hosts wait longest for the last one, all hosts on one clock; None without a straggler.

    A collective ends on all hosts at about the same time, so each host is shifted by the median distance of the ends of
    its collectives from those of the last host. The clocks of the hosts are not needed.
    """
    hosts: Hosts = results["hosts"]
    late = hosts.late
    if late is None or hosts.straggler is None:
        return None
    sharing = [host for host in results.hosts if host.host in hosts.sharing]
    breakdowns: list[Breakdown] = [host["steps"] for host in sharing]
    collectives: list[Any] = [host["hosts"].collectives for host in sharing]
    waits = match_collectives(collectives)
    grid = step_grid(breakdowns, collectives, waits)
    is_meant = late.counted != hosts.straggler.is_outside_averages
    worst = int(np.where(is_meant, late.lost_ps, -1).argmax())
    rows = grid.rows[:, int(np.searchsorted(grid.numbers, late.numbers[worst]))].tolist()
    waited_ps = late.waited_ps[:, worst]
    order = [place for place in np.argsort(-waited_ps, kind="stable").tolist() if waited_ps[place] >= 0]
    order.sort(key=lambda place: place != late.last[worst])
    ends: dict[int, int] = {}
    moved: list[tuple[str, Window, Intervals]] = []
    for place in order[:_MOST_HOSTS]:
        steps, own, wait = breakdowns[place].steps, collectives[place], waits[place]
        window = Window(int(steps.start_ps[rows[place]]), int(steps.end_ps[rows[place]]))
        inside = np.flatnonzero(wait.matched & (own.start_ps >= window.start_ps) & (own.start_ps < window.end_ps))
        of_runs = dict(zip(wait.run[inside].tolist(), own.end_ps[inside].tolist(), strict=True))
        ends = ends or of_runs
        apart = [end - ends[run] for run, end in of_runs.items() if run in ends]
        if apart:
            start_ps, shift = own.start_ps[inside], round(median(np.array(apart, np.int64)))
            waiting = clipped(union(start_ps, start_ps + wait.wait_ps[inside]), window)
            title = f"{sharing[place].host}: waits {format_ms(int(waited_ps[place]) / 1e9)} ms" if moved else ""
            window = Window(window.start_ps - shift, window.end_ps - shift)
            moved.append((title, window, Intervals(waiting.start - shift, waiting.end - shift)))
    if len(moved) < 2:
        return None
    late_host, number = sharing[order[0]].host, int(late.numbers[worst])
    whole = Window(min(each.start_ps for _, each, _ in moved), max(each.end_ps for _, each, _ in moved))
    return StepPicture(
        title=f"Step {number} of {counted(len(moved), 'host')} on one clock: the others wait for {late_host}",
        host=late_host,
        step=number,
        duration_ns=whole.duration_ns,
        categories={},
        ribbons=tuple(
            _ribbon_of_host(title or f"{late_host}: the last host", window, waiting, whole)
            for title, window, waiting in moved
        ),
        groups=(),
        levels=levels_of(no_events(), whole.duration_ns),
        names=(),
        notes=(),
        links=no_links(),
    )


def _ribbon_of_host(title: str, window: Window, waiting: Intervals, whole: Window) -> Ribbon:
    own = difference(Intervals(np.array([window.start_ps]), np.array([window.end_ps])), waiting)
    start, end = np.concatenate([own.start, waiting.start]), np.concatenate([own.end, waiting.end])
    category = np.repeat(np.arange(2), [len(own.start), len(waiting.start)])
    order = np.argsort(start, kind="stable")
    return Ribbon(
        title=title,
        titles=(_OWN_WORK, _WAITING),
        category=category[order],
        start_ns=whole.ns(start[order]),
        end_ns=whole.ns(end[order]),
    )


_FIXED = ("kernel_launch", "host_compute", "all_others")
_DEVICE = ("device_compute",)

CATEGORIES_OF_CAUSE: Mapping[str, tuple[str, ...]] = {
    "input_wait": ("input_wait",),
    "input_copy": ("host_to_device",),
    "host_copies": ("host_to_device", "output"),
    "chip_copies": ("device_to_device",),
    "kernel_waits": _DEVICE,
    "input_contention": ("host_compute", "all_others"),
    "output_copy": ("output",),
    "compilation": ("compilation",),
    "warm_up": ("compilation",),
    "launch_bound": ("kernel_launch",),
    "small_work_per_step": _FIXED,
    "host_ops": ("host_compute",),
    "waiting_for_results": ("host_compute", "all_others"),
    "device_sync": _FIXED,
    "python_between_steps": ("all_others",),
    "waiting_in_calls": ("all_others",),
    "eager_ops": _FIXED,
    "run_eagerly": _FIXED,
    "checkpointing": ("host_compute", "all_others"),
    "fetch_results": ("host_compute", "all_others"),
    "numpy_conversion": ("host_compute", "all_others", "host_to_device"),
    "iterator_per_step": ("compilation", "input_wait", "host_compute", "all_others"),
    "barriers": ("device_collectives",),
    "collectives": ("device_collectives",),
    "unfused_update": _DEVICE,
    "converted_fp8": _DEVICE,
    "skewed_input": ("input_wait",),
    "device_compute_32bit": _DEVICE,
    "layout_conversion": _DEVICE,
    "memory_bound": _DEVICE,
    "unaligned_shapes": _DEVICE,
    "low_utilisation": _DEVICE,
}
"""By code; causes outside steps have no place."""


MOST_STRETCHES = 5_000
_CELLS = 1_000


def ribbons(host: Host, row: int) -> tuple[Ribbon, ...]:
    """Return the ribbon of a step; on a TPU, one per core."""
    breakdown: Breakdown = host["steps"]
    steps, trace = breakdown.steps, host.trace
    if not breakdown.on_tpu:
        window = Window(int(steps.start_ps[row]), int(steps.end_ps[row]))
        times = corrected_times(host.busy_times, steps.start_ps[[row]], steps.end_ps[[row]])
        return (_ribbon("Step by category", times, window, breakdown.unknown),)
    codes, drawn = tpu_codes(trace), []
    for plane, start_ps, end_ps in core_steps(trace, steps):
        if row >= len(start_ps):
            continue
        window = Window(int(start_ps[row]), int(end_ps[row]))
        times = tpu_times(trace, plane, codes, start_ps[[row]], end_ps[[row]])
        label = device_label(trace.planes[plane].name)
        drawn.append(_ribbon(f"Step of {label} by category", times, window, breakdown.unknown))
    return tuple(drawn)


def categories_ns(host: Host, row: int) -> dict[str, int]:
    """Return the nanoseconds of each known category of a step, as in the table of steps."""
    breakdown: Breakdown = host["steps"]
    known = (key for key in breakdown.categories if key not in breakdown.unknown)
    return {CATEGORY_TITLES[key]: round(int(breakdown.time_ps[key][row]) / 1000) for key in known}


def _ribbon(title: str, times: ActivityTimes, window: Window, unknown: frozenset[str]) -> Ribbon:
    keys = tuple(TITLES)
    # Consecutive activities of one category form one stretch.
    by_category: dict[str, list[Intervals]] = {}
    for category, part in _parts(times, window):
        if category not in unknown:
            by_category.setdefault(category, []).append(part)
    parts = [(category, union_all(of_category)) for category, of_category in by_category.items()]
    start = np.concatenate([part.start for _, part in parts]) if parts else np.zeros(0, np.int64)
    end = np.concatenate([part.end for _, part in parts]) if parts else np.zeros(0, np.int64)
    which = np.repeat(
        np.array([keys.index(category) for category, _ in parts], np.int64), [len(part.start) for _, part in parts]
    )
    order = np.argsort(start, kind="stable")
    which, start, end = which[order], start[order], end[order]
    if len(which) > MOST_STRETCHES:
        which, start, end = _in_cells(which, start, end, window)
    return Ribbon(
        title=title, titles=tuple(TITLES.values()), category=which, start_ns=window.ns(start), end_ns=window.ns(end)
    )


def _in_cells(which: Int64s, start: Int64s, end: Int64s, window: Window) -> tuple[Int64s, Int64s, Int64s]:
    """Merge many stretches into one per category and pixel; totals stay, positions shift by at most one pixel."""
    edges = np.linspace(window.start_ps, window.end_ps, _CELLS + 1).astype(np.int64)
    keys = distinct(which)
    time_ps = np.stack(
        [overlap(Intervals(start[which == key], end[which == key]), edges[:-1], edges[1:]) for key in keys]
    )
    until = edges[:-1] + np.cumsum(time_ps, axis=0)
    category = np.tile(keys, _CELLS)
    cell_start, cell_end = (until - time_ps).T.reshape(-1), until.T.reshape(-1)
    some = cell_end > cell_start
    category, cell_start, cell_end = category[some], cell_start[some], cell_end[some]
    # Equal categories in adjacent cells form one stretch.
    is_new = np.ones(len(category), np.bool_)
    is_new[1:] = (category[1:] != category[:-1]) | (cell_start[1:] > cell_end[:-1])
    first = np.flatnonzero(is_new)
    return category[first], cell_start[first], np.maximum.reduceat(cell_end, first)


def _parts(times: ActivityTimes, window: Window) -> Iterator[tuple[str, Intervals]]:
    inside = {activity: clipped(busy, window) for activity, busy in times.busy.items()}
    category_of = {activity: key for key, activities in CATEGORY_ACTIVITIES.items() for activity in activities}
    higher = EMPTY
    for activity, covered in ActivityTimes(times.priority, inside, times.start, times.end, times.origin).covered():
        if activity in category_of:
            yield category_of[activity], difference(covered, higher)
        higher = covered
    whole = Intervals(np.array([window.start_ps]), np.array([window.end_ps]))
    yield "all_others", difference(whole, higher)


def clipped(flat: Intervals, window: Window) -> Intervals:
    """Return the part of a flat set inside the window."""
    first = np.searchsorted(flat.end, window.start_ps, side="right")
    last = np.searchsorted(flat.start, window.end_ps)
    near = Intervals(flat.start[first:last], flat.end[first:last])
    return intersection(near, Intervals(np.array([window.start_ps]), np.array([window.end_ps])))


def longest_places(ribbon: Ribbon, codes: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[int, int, int]]:
    """Return, for each code, the longest stretch of its categories, and their total time."""
    keys = tuple(TITLES)
    duration: Int64s = ribbon.end_ns - ribbon.start_ns
    places = {}
    for code, categories in codes.items():
        rows = np.flatnonzero(np.isin(ribbon.category, [keys.index(category) for category in categories]))
        if len(rows):
            longest = int(rows[np.argmax(duration[rows])])
            places[code] = int(ribbon.start_ns[longest]), int(ribbon.end_ns[longest]), int(duration[rows].sum())
    return places


_MOST_ALLOCATORS = 3
_MOST_POINTS = 400
_IMPOSSIBLE_BYTES = 1 << 53


class MemoryInUse:
    """Memory in use per allocator of a host over time."""

    def __init__(self, trace: HostTrace) -> None:
        memory = trace.memory
        names, allocator = trace.allocators
        used = memory.number("bytes_allocated", -1)
        used = np.where(used >= 0, used + np.maximum(memory.number("bytes_reserved", 0), 0), -1)
        is_sound = (allocator >= 0) & (used >= 0) & (used < _IMPOSSIBLE_BYTES)
        rows = np.flatnonzero(is_sound)
        order = rows[np.lexsort((memory.start_ps[rows], allocator[rows]))]
        bounds = np.searchsorted(allocator[order], np.arange(len(names) + 1)).tolist()
        self._allocators = [
            (name, memory.start_ps[order[start:stop]], used[order[start:stop]])
            for name, start, stop in zip(names, bounds, bounds[1:], strict=False)
            if stop > start
        ]

    def curves(self, window: Window) -> tuple[MemoryCurve, ...]:
        """Return the curves of the allocators with the most memory in use in the window; constant ones come last."""
        found = [self._curve(window, *each) for each in self._allocators]
        curves = sorted((curve for curve in found if curve is not None), key=lambda each: -int(each.used_bytes.max()))
        return tuple(curves[:_MOST_ALLOCATORS])

    @staticmethod
    def _curve(window: Window, name: str, time_ps: Int64s, used: Int64s) -> MemoryCurve | None:
        first = max(int(np.searchsorted(time_ps, window.start_ps, side="right")) - 1, 0)
        last = int(np.searchsorted(time_ps, window.end_ps))
        if last <= first:
            return None
        time_ns, used = window.ns(time_ps[first:last]), used[first:last]
        if len(used) > _MOST_POINTS:
            # Keep the start time and the largest value of each stretch.
            starts = np.linspace(0, len(used), _MOST_POINTS, endpoint=False).astype(np.int64)
            time_ns, used = time_ns[starts], np.maximum.reduceat(used, starts)
        return MemoryCurve(name, time_ns, used)


KINDS = ("launches", "sends to", "receives the element of")
_MOST_LINKS = 4_000
"""Maximum links of a picture; those to the longest events are kept."""

_Pairs = tuple[Int64s, Int64s]
"""Rows of the trace at the start and the end of each link."""


def no_links() -> Links:
    """Return no links."""
    rows = np.zeros(0, np.int32)
    return Links(kinds=(), kind=NO_NUMBERS, from_row=rows, from_ns=NO_NUMBERS, to_row=rows, to_ns=NO_NUMBERS)


def links_of(host: Host, drawn: LaneEvents) -> Links:
    """Return the links whose ends are both drawn."""
    of_trace = np.argsort(drawn.trace_row, kind="stable")
    rows = drawn.trace_row[of_trace]
    in_trace, launches = rows[rows >= 0], host.launch_links
    near = np.flatnonzero(lookup(in_trace, launches.device) >= 0)
    launched = launches.host[near], launches.device[near]
    sources, targets, kinds = [NO_NUMBERS], [NO_NUMBERS], [NO_NUMBERS]
    pairs = launched, _sends(host.trace, in_trace), _fetched(host, in_trace)  # in the order of KINDS
    for number, (from_rows, to_rows) in enumerate(pairs):
        places = lookup(rows, from_rows), lookup(rows, to_rows)
        are_drawn = (places[0] >= 0) & (places[1] >= 0)
        sources.append(of_trace[places[0][are_drawn]])
        targets.append(of_trace[places[1][are_drawn]])
        kinds.append(np.full(int(are_drawn.sum()), number, np.int64))
    source, target, kind = (np.concatenate(parts) for parts in (sources, targets, kinds))
    events = drawn.events
    longest = np.argsort(-(events.end_ns - events.start_ns)[target], kind="stable")[:_MOST_LINKS]
    kept = np.sort(longest)
    return Links(
        kinds=KINDS,
        kind=kind[kept],
        from_row=events.row[source[kept]],
        from_ns=events.start_ns[source[kept]],
        to_row=events.row[target[kept]],
        to_ns=events.start_ns[target[kept]],
        omitted=len(target) - len(kept),
    )


def _sends(trace: HostTrace, drawn: Int64s) -> _Pairs:
    """Pair sends with receives of the same tensor (`x/_5:_Send`, `x/_5:_Recv`) that end after the send starts."""
    ends = (mask(trace.names, methodcaller("endswith", suffix)) for suffix in (":_Send", ":_Recv"))
    sends, receives = (rows[lookup(drawn, rows) >= 0] for rows in map(trace.host_events, ends))
    tensors: dict[str, int] = {}

    def tensor(name: int) -> int:
        # Ops at both ends have consecutive numbers.
        return tensors.setdefault(trace.names[name].rpartition(":")[0].rpartition("/_")[0], len(tensors))

    sent, received = (np.array([*map(tensor, trace.name[rows])], np.int64) for rows in (sends, receives))
    order = np.lexsort((trace.start_ps[sends], sent))
    sends, sent = sends[order], sent[order]
    span = int(trace.end_ps.max(initial=0)) + 1
    if len(tensors) * span >= 1 << 62:
        return NO_NUMBERS, NO_NUMBERS
    # A receive waits for the last send of its tensor that starts before the receive ends.
    at = np.searchsorted(sent * span + trace.start_ps[sends], received * span + trace.end_ps[receives]) - 1
    is_same = (at >= 0) & (np.append(sent, -1)[at] == received)
    return sends[at[is_same]], receives[is_same]


def _fetched(host: Host, drawn: Int64s) -> _Pairs:
    """Link each fetch with the stage that produced its element on another thread, if the trace makes it certain.

    A stage that returns elements in order, and records how many were waiting at the request, returns the oldest of
    them: among the hand-overs that ended before, the one that many positions from the last.
    """
    pipelines, trace = host.pipelines, host.trace
    fetches = trace.host_events(mask(trace.names, is_fetch))
    if pipelines is None or not len(fetches) or not len(pipelines.produced.row):
        return NO_NUMBERS, NO_NUMBERS
    calls, produced = pipelines.calls, pipelines.produced
    around = last_around(trace, fetches, calls.row)
    waiting = trace.number_at("buffered_elements", calls.row, -1)
    sources, targets = [NO_NUMBERS], [NO_NUMBERS]
    for stage in np.flatnonzero(np.bincount(produced.stage[produced.stage >= 0], minlength=1)).tolist():
        if not pipelines.stages[stage].name.startswith("Prefetch"):
            continue
        asked = np.flatnonzero((calls.stage == stage) & (around >= 0) & (waiting >= 0))
        made = np.flatnonzero(produced.stage == stage)
        made = made[np.argsort(produced.end[made], kind="stable")]
        before = np.searchsorted(produced.end[made], calls.start[asked], side="right")
        place = before - waiting[asked]
        is_known = (place >= 0) & (place < len(made))
        sources.append(fetches[around[asked[is_known]]])
        targets.append(produced.row[made[place[is_known]]])
    source, target = np.concatenate(sources), np.concatenate(targets)
    near = (lookup(drawn, source) >= 0) & (lookup(drawn, target) >= 0)
    return source[near], target[near]
