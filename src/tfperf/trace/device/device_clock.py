"""Clocks of TPU chips, and their conversion to the clock of the host.

A profiler writes two times for an event of a chip: by the counter of the chip (stats `device_offset_ps` and
`device_duration_ps`), and, as the event's own fields, the same times converted to the clock of the host. The conversion
can jump by hundreds of milliseconds and recover over seconds, which distorts the events in between. So durations, order
and gaps are taken from the counter, and a straight line through the conversion where it does not jump leads to the
clock of the host. Events without a counter time (in some files all but ops) move with the ops around them.

A converted clock may still differ from the host's by up to the duration of a run, because no run begins before the host
enqueues it, or ends after the host is notified. The smallest shift that satisfies both for all runs is applied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import NO_NUMBERS, Bools, Float64s, Int64s, lookup
from tfperf.formats.wire.event_columns import MODULE_LINE, NO_STAT, OP_LINES, EventColumns, Line

LONGEST_PS = 1 << 60
"""13 days: no capture is longer, and sums and differences of a few times still fit into an int64."""
_JUMP_PS = 1_000_000_000
"""A larger change of the clock difference between two events is a jump, not the drift of a quartz."""
_NEAR_PS = 100_000_000
"""Maximum distance of true differences from their line: a converted clock varies by hundredths of a millisecond."""
_FASTEST = 1e-3
"""Upper limit of the drift of a clock, as a fraction of the time."""
_LEAST_DRIFT_PS = 1_000_000
"""A drift that adds up to less over the trace is rounding."""
_PIECES = 32
"""Number of pieces whose pairs define candidate lines."""
_ROUNDS = 5
"""Maximum number of times that the line is refitted to the events near it."""
_CONTRADICTION_PS = 1_000_000_000
"""Shift bounds that contradict each other by less do so because clocks vary."""
_LONGEST_SHIFT_PS = 10_000_000_000_000
"""10 s: clocks of one machine that are set at the start of a profile are not further apart."""
_OF_RUNS = ("DoEnqueueProgram", "CompleteCallbacks")
"""Host events that enqueue a run on a chip, and that first report its completion."""


class DeviceClock(Struct, frozen=True, kw_only=True):
    """The clock of a chip in relation to that of the host; times are picoseconds.

    The clocks agree at `agrees_ps`; a second of the chip is `1 + drift` seconds of the host. `jumps` counts how often
    the conversion in the file jumped by more than a millisecond, and `largest_jump_ps` is the maximum error of a
    converted time. `shift_ps` was added to the converted times so that no run begins before it is enqueued or ends
    after its completion, and `shift_bounds_ps` are the smallest and largest shifts that achieve this; None if no run
    limits them.
    """

    agrees_ps: int
    drift: float = 0.0
    jumps: int = 0
    largest_jump_ps: int = 0
    shift_ps: int = 0
    shift_bounds_ps: tuple[int | None, int | None] = (None, None)

    @property
    def drift_ppm(self) -> float:
        """Return how much faster the clock of the host is, in parts per million."""
        return self.drift * 1e6

    def to_host(self, ps: Int64s) -> Int64s:
        """Return times of the chip on the clock of the host."""
        return np.asarray(ps + np.rint(self.drift * (ps - self.agrees_ps)).astype(np.int64), np.int64)

    def to_device(self, ps: Int64s) -> Int64s:
        """Return times of the host on the clock of the chip."""
        return np.asarray(
            ps - np.rint(self.drift / (1 + self.drift) * (ps - self.agrees_ps)).astype(np.int64), np.int64
        )

    def later(self, shift_ps: int) -> DeviceClock:
        """Return the clock of a trace whose times are all later by `shift_ps`."""
        return replace(self, agrees_ps=self.agrees_ps + shift_ps)


def put_on_device_clocks(
    events: EventColumns, chips: Mapping[int, str], names: Sequence[str]
) -> dict[int, DeviceClock]:
    """Convert the events of chips to their own clocks, in place; return the clock of each plane that has one.

    `chips` maps the position of planes to their names; `names` are those of events. Events must be on the clock of the
    file; planes without counter times stay on it. Lines may be out of order afterwards.
    """
    timed = _timed(events)
    planes = {plane: found for plane in chips if len((found := _PlaneEvents.of(events, plane, timed)).measured.rows)}
    if not planes:
        return {}
    # All clocks are set at one moment, so that chips whose clocks run alike stay comparable independently of the host.
    origin = min(int(each.measured.start.min()) for each in planes.values())
    clocks = {plane: _on_own_clock(events, each, origin) for plane, each in planes.items()}
    handled = [_handled(events, [place for place, each in enumerate(names) if each == name]) for name in _OF_RUNS]
    bounds = {plane: _bounds(events, handled, plane, chips[plane], clock) for plane, clock in clocks.items()}
    # No shift is valid for all chips if their bounds exclude each other.
    least = max((each for each, _ in bounds.values() if each is not None), default=None)
    most = min((each for _, each in bounds.values() if each is not None), default=None)
    shared = None if least is not None and most is not None and least > most else (least, most)
    for plane, clock in clocks.items():
        least, most = bounds[plane] if shared is None else shared
        # The smallest shift within the bounds; their middle if they contradict each other slightly, else 0.
        if least is not None and most is not None and least > most:
            shift = (least + most) // 2 if least - most < _CONTRADICTION_PS else 0
        else:
            shift = max(0, least or 0)
            shift = shift if most is None else min(shift, most)
        shift = shift if abs(shift) <= _LONGEST_SHIFT_PS else 0
        for line in planes[plane].lines:
            events.start_ps[line.start : line.stop] += shift
        clocks[plane] = replace(clock.later(shift), shift_ps=shift, shift_bounds_ps=(least, most))
    return clocks


def _on_own_clock(events: EventColumns, chip: _PlaneEvents, origin: int) -> DeviceClock:
    """Convert a chip's events in place to its clock, which agrees with the conversion at `origin`; return the clock."""
    (rows, device, lasts), others = chip.measured, chip.others
    converted, converted_lasts = events.start_ps[rows], events.duration_ps[rows]
    fit = _fit(device, converted)
    zero = fit.at(origin)
    clock = _clock(fit, device, converted, origin + zero, zero)
    start = device + zero
    points = _Points.of(*(column[chip.is_point] for column in (converted, converted_lasts, start, lasts)))
    events.start_ps[others], events.duration_ps[others] = points.moved(
        clock, events.start_ps[others], events.duration_ps[others]
    )
    events.start_ps[rows], events.duration_ps[rows] = start, lasts
    return clock


class _Timed(NamedTuple):
    rows: Int64s
    start: Int64s
    lasts: Int64s

    def only(self, which: Bools | slice) -> _Timed:
        return _Timed(self.rows[which], self.start[which], self.lasts[which])


def _timed(events: EventColumns) -> _Timed:
    """Return the events with a valid start and duration by a counter."""
    offset, duration = (events.stats.get(name, NO_STAT) for name in ("device_offset_ps", "device_duration_ps"))
    place = lookup(duration.event, offset.event)
    both = place >= 0
    timed = _Timed(offset.event[both].astype(np.int64), offset.value[both], duration.value[place[both]])
    possible = (timed.start >= 0) & (timed.start < LONGEST_PS) & (timed.lasts >= 0) & (timed.lasts < LONGEST_PS)
    return timed.only(possible)


class _PlaneEvents(NamedTuple):
    """The lines of a chip, its events with counter times, and others; `is_point` marks those that others move with."""

    lines: list[Line]
    measured: _Timed
    is_point: Bools
    others: Int64s

    @classmethod
    def of(cls, events: EventColumns, plane: int, timed: _Timed) -> _PlaneEvents:
        lines = [line for line in events.lines if line.plane == plane]
        found, is_op, others = [timed.only(slice(0))], [np.empty(0, np.bool_)], [NO_NUMBERS]
        for line in lines:
            first, last = np.searchsorted(timed.rows, (line.start, line.stop)).tolist()
            found.append(timed.only(slice(first, last)))
            is_op.append(np.full(last - first, line.name in OP_LINES))
            is_other = np.ones(line.stop - line.start, np.bool_)
            is_other[found[-1].rows - line.start] = False
            others.append(np.flatnonzero(is_other) + line.start)
        measured = _Timed(*(np.concatenate(columns) for columns in zip(*found, strict=True)))
        is_point = np.concatenate(is_op)
        return cls(lines, measured, is_point if is_point.any() else ~is_point, np.concatenate(others))


class _Fit(NamedTuple):
    """A straight line: host clock minus chip clock is `value` at `middle`, and changes by `drift`."""

    middle: float
    value: float
    drift: float

    def at(self, device: int) -> int:
        return round(self.value + self.drift * (device - self.middle))

    def residual(self, device: Int64s, difference: Int64s) -> Float64s:
        return difference - (self.value + self.drift * (device - self.middle))


def _fit(device: Int64s, converted: Int64s) -> _Fit:
    """Return the line near most clock differences; half of the differences or more may be off by a jump.

    Events are split into pieces between jumps. Candidates are the lines through the middles of two pieces, and those
    without a drift through one. The one near most events is chosen and refined by least squares.
    """
    order = np.argsort(device, kind="stable")
    device, difference = device[order], (converted - device)[order]
    fit = _through_most(*_pieces(device, difference))
    near = np.empty(0, np.bool_)
    for _ in range(_ROUNDS):
        before, near = near, np.abs(fit.residual(device, difference)) <= _NEAR_PS
        if np.array_equal(before, near):
            break
        # Least squares.
        middle, level = float(device[near].mean()), int(difference[near][0])  # small numbers keep their precision
        run, rise = device[near] - middle, (difference[near] - level).astype(np.float64)
        square = float(run @ run)
        fit = _Fit(middle, level + float(rise.mean()), float(run @ rise) / square if square else 0.0)
    length = int(device[-1] - device[0])
    is_drift = abs(fit.drift) * length >= _LEAST_DRIFT_PS and abs(fit.drift) <= _FASTEST
    return fit if is_drift else _Fit(fit.middle, fit.value, 0.0)


def _through_most(x: Float64s, y: Float64s, weight: Float64s) -> _Fit:
    first, second = np.triu_indices(len(x), 1)
    rise, run = y[second] - y[first], x[second] - x[first]
    possible = np.abs(rise) <= _FASTEST * run
    at = np.concatenate((np.arange(len(x)), first[possible]))
    rise, run = rise[possible], np.maximum(run[possible], 1)
    slope = np.concatenate((np.zeros(len(x)), rise / run))
    away = (y - y[at, None]) - slope[:, None] * (x - x[at, None])
    support = (np.abs(away) <= _NEAR_PS) @ weight
    best = np.lexsort((np.abs(slope), -support))[0]
    return _Fit(float(x[at[best]]), float(y[at[best]]), float(slope[best]))


def _pieces(device: Int64s, difference: Int64s) -> tuple[Float64s, Float64s, Float64s]:
    """Return the middles (device time, difference) and sizes of the largest pieces without a jump inside."""
    count = len(device)
    jumps = np.flatnonzero(np.abs(np.diff(difference)) > _JUMP_PS) + 1
    borders = np.unique(np.concatenate(([0], jumps, np.arange(0, count, max(1, 2 * count // _PIECES)))))
    sizes = np.diff(borders, append=count)
    largest = np.sort(np.argsort(-sizes, kind="stable")[:_PIECES])
    middles = borders[largest] + sizes[largest] // 2
    return device[middles].astype(np.float64), difference[middles].astype(np.float64), sizes[largest].astype(np.float64)


def _clock(fit: _Fit, device: Int64s, converted: Int64s, agrees_ps: int, zero: int) -> DeviceClock:
    order = np.argsort(device, kind="stable")
    away = np.abs(fit.residual(device, converted - device))[order]
    jumped = away > _JUMP_PS
    furthest = np.abs(converted - device - zero)[order][jumped]
    return DeviceClock(
        agrees_ps=agrees_ps,
        drift=fit.drift,
        jumps=int((np.diff(away, prepend=0.0) > _JUMP_PS).sum()),
        largest_jump_ps=int(furthest.max(initial=0)),
    )


class _Points(NamedTuple):
    """Converted starts and ends of ops (ascending), and their distances from the counter times."""

    starts: Int64s
    off_at_start: Int64s
    ends: Int64s
    off_at_end: Int64s

    @classmethod
    def of(cls, converted: Int64s, converted_lasts: Int64s, start: Int64s, lasts: Int64s) -> _Points:
        converted_end, end = converted + converted_lasts, start + lasts
        # Where converted times are equal, the order of the counter applies.
        first, last = np.lexsort((start, converted)), np.lexsort((end, converted_end))
        off_at_start, off_at_end = converted - start, converted_end - end
        return cls(converted[first], off_at_start[first], converted_end[last], off_at_end[last])

    def moved(self, clock: DeviceClock, start: Int64s, duration: Int64s) -> tuple[Int64s, Int64s]:
        """Return the start and duration of other events of the chip on its clock.

        The start moves with the first op inside, and the end with the last one. An event without ops moves as a whole
        with the next op if that is near, else by the line.
        """
        end = start + duration
        first, last = np.searchsorted(self.starts, start), np.searchsorted(self.ends, end, side="right") - 1
        count = len(self.starts)
        begins, ends = np.minimum(first, count - 1), np.maximum(last, 0)
        holds = (first < count) & (last >= 0)
        holds &= (self.starts[begins] <= end) & (self.ends[ends] >= start)
        before = np.maximum(np.searchsorted(self.ends, start, side="right") - 1, 0)
        to_next, to_previous = np.abs(self.starts[begins] - end), np.abs(start - self.ends[before])
        beside = np.where(to_next < to_previous, self.off_at_start[begins], self.off_at_end[before])
        alone = np.where(np.minimum(to_next, to_previous) < _JUMP_PS, beside, start - clock.to_device(start))
        moved = start - np.where(holds, self.off_at_start[begins], alone)
        moved_end = end - np.where(holds, self.off_at_end[ends], alone)
        # Where converted times are equal, the last op inside may be the first one of the next run.
        follows = np.append(end[:-1] <= start[1:], np.zeros(min(1, len(end)), np.bool_))
        moved_end = np.where(follows, np.minimum(moved_end, np.append(moved[1:], moved[:1])), moved_end)
        return moved, np.maximum(moved_end - moved, 0)


# --- the shift between a chip and its host ---

Bounds = tuple[int | None, int | None]


class _Handled(NamedTuple):
    ordinal: Int64s
    run: Int64s
    start: Int64s


def _handled(events: EventColumns, names: list[int]) -> _Handled:
    """Return the events with one of the names that identify their run and chip."""
    run_id, ordinal = (events.stats.get(name, NO_STAT) for name in ("run_id", "device_ordinal"))
    which = np.flatnonzero(np.isin(events.name[run_id.event], names))
    place = lookup(ordinal.event, run_id.event[which])
    which, place = which[place >= 0], place[place >= 0]
    return _Handled(ordinal.value[place], run_id.value[which], events.start_ps[run_id.event[which]])


def _bounds(
    events: EventColumns, handled: Sequence[_Handled], plane: int, plane_name: str, clock: DeviceClock
) -> Bounds:
    """Return how much later the events of a chip must be at least and at most, based on its runs; None: unknown."""
    number = re.match(r"/device:TPU:(\d{1,18})", plane_name)
    run_id, rows = events.stats.get("run_id", NO_STAT), [NO_NUMBERS]
    for line in events.lines:
        if line.plane == plane and line.name == MODULE_LINE:
            rows.append(np.arange(*np.searchsorted(run_id.event, (line.start, line.stop))))
    of_chip = np.concatenate(rows)
    if number is None or not len(of_chip):
        return None, None
    runs, which = _once(run_id.value[of_chip])
    row = run_id.event[of_chip[which]]
    start = clock.to_host(events.start_ps[row])
    end = clock.to_host(events.start_ps[row] + events.duration_ps[row])
    found: list[Int64s] = []
    for host, times in zip(handled, (start, end), strict=True):
        here = np.flatnonzero(host.ordinal == int(number[1]))
        numbers, which = _once(host.run[here])
        place = lookup(numbers, runs)
        found.append(host.start[here[which[place[place >= 0]]]] - times[place >= 0])
    enqueued, completed = found
    return int(enqueued.max()) if len(enqueued) else None, int(completed.min()) if len(completed) else None


def _once(values: Int64s) -> tuple[Int64s, Int64s]:
    distinct, first, counts = np.unique(values, return_index=True, return_counts=True)
    return distinct[counts == 1], first[counts == 1]
