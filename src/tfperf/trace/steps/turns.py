"""The turns of a loop in the sequence of a program's calls, and loops that run at the same time.

A sequence is an array of tokens, one number for each kind of call.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools, Int64s, distinct, distinct_index, lookup, median, touches, union
from tfperf.base.units import PS_PER_MS, counted, format_number
from tfperf.trace.host_trace import HostTrace

AGREEMENT = 0.95
"""Minimum share of a sequence that must equal the sequence one period later."""
_LONGEST = 4096
_SAMPLE = 1 << 15
"""A period is searched in at most this many tokens, which limits the cost of long sequences."""


class Cycle(Struct, frozen=True):
    """Positions where steps start.

    `period` is the length of the repeated part, 0 if nothing repeats; `whole` that of a complete step, 0 if it varies.
    `has_phases`: only the order shows that a period holds several steps, first of one function, then of another.
    """

    starts: Int64s
    period: int
    whole: int
    has_phases: bool = False


def cycle_starts(token: Int64s, *, fetch_kinds: int, has_phases: bool = True) -> Cycle:
    """Return where the steps of a program start; tokens below `fetch_kinds` are fetches, all others calls.

    A step is one repetition, and starts at a fetch. Special cases: if every call has its own fetch and one (fetch,
    call) pair follows itself (a training phase, then an evaluation phase), each pair is a step. If nothing is fetched
    and two calls follow themselves (`has_phases`: unless known to be parts of one step), each call is a step. If a call
    has no fetch of its own (gradients applied after several micro-batches), it ends the repetition.
    """
    fetch = token < fetch_kinds
    if not fetch.any():
        period = smallest_period(token)
        following = token[:period][token[:period] == np.roll(token[:period], 1)]
        if has_phases and len(distinct(following)) > 1:
            return Cycle(np.arange(len(token)), period, 1, has_phases=True)
        return Cycle(np.arange(0, len(token), period or 1), period, period or 1)
    runs = run_starts(fetch)
    period = smallest_period(token[runs[0] :])
    if not period:
        return Cycle(runs, 0, 0)
    pattern = token[runs[0] : runs[0] + period]
    paired = (pattern < fetch_kinds) | np.roll(pattern < fetch_kinds, 1)  # a fetch, or a call right after one
    groups = [tuple(part.tolist()) for part in np.split(pattern, run_starts(pattern < fetch_kinds)[1:])]
    if paired.all() and any(a == b for a, b in zip(groups, groups[1:] + groups[:1], strict=True)):
        return Cycle(runs, period, 0, has_phases=len(distinct(pattern[pattern >= fetch_kinds])) > 1)
    closing = np.flatnonzero(~paired & np.roll(paired, -1))
    shift = int((closing[0] + 1) % period) if len(closing) else 0  # so that a call without its own fetch ends one
    return Cycle(aligned_turns(token, int(runs[0]), pattern, shift), period, period)


def smallest_period(token: Int64s) -> int:
    """Return the smallest period with which the sequence agrees with itself by 95%, or 0."""
    token = token[:_SAMPLE]
    for period in range(1, min(len(token) // 3, _LONGEST) + 1):
        if float((token[period:] == token[:-period]).mean()) >= AGREEMENT:
            return period
    return 0


_CONTEXT = 4
"""Number of consecutive tokens that determine the position in a period."""
_ROUGHLY = 0.4


def nearly_periodic_turns(token: Int64s) -> Cycle | None:
    """Return the turns of a loop that fills at least half of the sequence, even if some differ by a few tokens.

    An insertion (a check in every tenth turn) shifts all later tokens, so a period is tested by whether short pieces of
    the sequence are pieces of the pattern, at any position. The smallest period counts.
    """
    count = len(token)
    sample = token[:_SAMPLE].astype(np.int32)
    for period in range(2, min(len(sample) // 3, _LONGEST) + 1):
        same = sample[period:] == sample[:-period]
        if float(same.mean()) < _ROUGHLY:
            continue
        differ = np.flatnonzero(np.concatenate(([True], ~same, [True])))
        longest = int(np.diff(differ).argmax())
        place = int(differ[longest])
        if differ[longest + 1] - place <= period:  # no two whole turns follow each other
            continue
        pieces, pattern = _pieces(token, token[place : place + period])
        starts = _regular_starts(pieces, pattern)
        if len(starts) < 3 or 2 * (last := min(int(starts[-1]) + period, count)) - 2 * int(starts[0]) < count:
            continue
        fits = np.convolve(np.isin(pieces, pattern), np.ones(_CONTEXT))[:count] > 0
        if len(distinct(pattern)) > 1 and float(fits[starts[0] : last].mean()) >= AGREEMENT:
            return Cycle(starts, period, period)
    return None


def _pieces(token: Int64s, pattern: Int64s) -> tuple[Int64s, Int64s]:
    """Return a number for the piece of the sequence that starts at each token, and for those of the pattern's turns."""
    base = int(token.max()) + 1
    turns = np.concatenate((pattern, np.resize(pattern, _CONTEXT - 1)))
    both = []
    for tokens in (np.append(token, np.zeros(_CONTEXT - 1, np.int64)), turns):
        windows = np.lib.stride_tricks.sliding_window_view(tokens, _CONTEXT)
        both.append(windows @ base ** np.arange(_CONTEXT))
    return both[0], both[1]


def _regular_starts(pieces: Int64s, pattern: Int64s) -> Int64s:
    """Return where the first piece that the pattern holds once, and the sequence about once per turn, occurs."""
    values, index = distinct_index(pattern)
    once = values[np.bincount(index) == 1]
    where = lookup(values, pieces)
    counts = np.bincount(where[where >= 0], minlength=len(values))
    usual = median(counts[lookup(values, once)])
    regular = once[np.abs(counts[lookup(values, once)] - usual) <= (1 - AGREEMENT) * usual + 1]
    at = np.flatnonzero(np.isin(pieces, regular))
    if not len(at):
        return at
    starts = np.flatnonzero(pieces == pieces[at[0]])
    # The turn begins as early as the tokens before it match.
    place = int(np.flatnonzero(pattern == pieces[at[0]])[0])
    before = np.roll(pattern, -place)[::-1]
    before = before[: min(len(pattern) - 1, int(starts[0]))]
    fits = pieces[starts[0] - len(before) : starts[0]][::-1] == before
    return np.asarray(starts - int(np.append(fits, False).argmin()), np.int64)


def run_starts(wanted: Bools) -> Int64s:
    """Return where runs of wanted tokens start."""
    return np.flatnonzero(wanted & np.concatenate(([True], ~wanted[:-1])))


def aligned_turns(token: Int64s, first: int, pattern: Int64s, shift: int = 0) -> Int64s:
    """Return the starts of turns of the pattern from `first`; one begins with the token at `shift` in the pattern."""
    head, tail = pattern[shift], pattern[shift - 1]
    pairs = (pattern == head) & (np.roll(pattern, 1) == tail)
    if pairs.sum() == 1 and len(pattern) > 1:
        at = np.flatnonzero((token[1:] == head) & (token[:-1] == tail)) + 1
        return np.concatenate(([first], at)) if first not in at else at
    regular = np.arange(first + shift, len(token), len(pattern))
    return np.concatenate(([first], regular)) if shift else regular


def in_most_turns(turn: Int64s, count: int) -> bool:
    """Return whether the event in these of `count` turns is in nearly every one of them."""
    return len(distinct(turn)) >= AGREEMENT * count


# --- loops ---

_AT_ONCE = 0.02
"""Minimum share of a loop's calls that overlap another loop's, if the two do not alternate."""


class OtherLoop(Struct, frozen=True):
    """A loop whose steps are not in the report, because it runs at the same time on another thread."""

    event: str
    count: int
    median_ps: int

    def described(self, main: str) -> str:
        """Return a sentence about it, for a report whose steps are events called `main`."""
        each = format_number(self.median_ps / PS_PER_MS)
        text = (
            f"Another thread runs a separate loop at the same time ({self.event}: {counted(self.count, 'time')}, "
            f"median {each} ms). Steps and rates exclude it"
        )
        return f"{text}; use --step-marker '{self.event}' to analyze it instead." if self.event != main else f"{text}."


def loop_of(trace: HostTrace, rows: Int64s, function: Int64s, name: Int64s) -> Int64s:
    """Return for each call (`rows`, in time order) which loop it belongs to; loop 0 has the longest total time.

    A loop is the calls of one thread, or of several threads that call the same functions (to pass work to workers).
    Threads that alternate are one loop, unless each repeats by itself and both together do not, and so are threads that
    call functions of the same names in lockstep, because they run the replicas of one step.
    """
    loop = _threads_of_functions(trace.line_of[rows].astype(np.int64), function)
    time = np.bincount(loop, weights=trace.duration_ps[rows])
    start, end = trace.start_ps[rows], trace.end_ps[rows]
    kept: list[int] = []
    for number in np.argsort(-time, kind="stable").tolist():
        mine = loop == number
        for earlier in kept:
            other = loop == earlier
            at_once = touches(union(start[other], end[other]), start[mine], end[mine])
            take_turns = float(at_once.mean()) <= _AT_ONCE and not (
                smallest_period(name[mine]) and smallest_period(name[other]) and not smallest_period(name[mine | other])
            )
            if take_turns or _in_lockstep(loop, number, earlier, name):
                loop[mine] = earlier
                break
        else:
            kept.append(number)
    number_of = np.zeros(max(kept, default=0) + 1, np.int64)
    number_of[kept] = np.arange(len(kept))
    return np.asarray(number_of[loop], np.int64)


def _threads_of_functions(line: Int64s, function: Int64s) -> Int64s:
    """Return a thread number per call; threads that share a function have one number."""
    threads = distinct(line)
    loop = np.searchsorted(threads, line)
    if len(threads) > 1:
        for one in distinct(function).tolist():
            shared = distinct(loop[function == one])
            loop[np.isin(loop, shared)] = shared[0]
    return np.asarray(loop, np.int64)


def _in_lockstep(loop: Int64s, one: int, other: int, name: Int64s) -> bool:
    """Return whether two loops call functions of the same names in alternation."""
    of_both = (loop == one) | (loop == other)
    if distinct(name[loop == one]).tolist() != distinct(name[loop == other]).tolist():
        return False
    turns = loop[of_both]
    pairs = turns[: len(turns) // 2 * 2].reshape(-1, 2)
    return float((pairs[:, 0] != pairs[:, 1]).mean()) >= AGREEMENT


def with_first(loop: Int64s, first: int) -> Int64s:
    """Return the loops renumbered so that `first` is loop 0."""
    return np.asarray(np.where(loop == first, 0, loop + (loop < first)), np.int64)


def other_loops(trace: HostTrace, rows: Int64s, loop: Int64s) -> tuple[str, ...]:
    """Return a sentence for each loop except the first; two calls alone are not a repetition."""
    found = []
    for number in range(int(loop.max(initial=0)) + 1):
        mine = rows[loop == number]
        longest = trace.names[trace.name[mine[trace.duration_ps[mine].argmax()]]]
        found.append(OtherLoop(longest, len(mine), int(median(trace.duration_ps[mine]))))
    return tuple(other.described(found[0].event) for other in found[1:] if other.count >= 3)
