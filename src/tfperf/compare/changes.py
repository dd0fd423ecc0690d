"""What explains that steps became slower or faster: what changed per step, the largest change first.

Categories are disjoint pieces of a step, so their changes add up to that of the mean step time. Ops, kernels and
copies are sums over threads and streams, which overlap: their changes say where to look, and add up to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tfperf.sections.steps.breakdown import CATEGORIES
from tfperf.compare.fairness import Difference, differences
from tfperf.compare.model import Comparison, Entry, HostSnapshot, Snapshot, Stat
from tfperf.compare.regression import compare_steps, slowest
from tfperf.compare.resample import statistic
from tfperf.reports.columns import CATEGORY_TITLES

Direction = Literal["slower", "faster", "no change told", "unknown"]

NEW, GONE = "new", "gone"
_NUMBER = re.compile(r"_\d+(?=[/:]|$)")


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One entry in both runs, in milliseconds per step; None is not known.

    What is new took 0 ms before, and what is gone takes 0 ms after. Where a list was cut, a missing entry may be among
    the cut ones: then it is neither, and its time and its change are not known.
    """

    name: str
    after_name: str
    """Empty if it is the same."""
    detail: str
    state: str
    before_ms: float | None
    after_ms: float | None
    change_ms: float | None
    before: Entry | None = None
    after: Entry | None = None


def category_changes(before: HostSnapshot, after: HostSnapshot) -> tuple[EntryChange, ...]:
    """Return the change of each category that one of the hosts knows, the largest first."""
    found = []
    for key in CATEGORIES:
        one, other = before.category_ms.get(key), after.category_ms.get(key)
        if one is not None or other is not None:
            found.append(EntryChange(CATEGORY_TITLES[key], "", key, "", one, other, _less(other, one)))
    return _ordered(found)


def part_changes(before: Snapshot, after: Snapshot, part: str) -> tuple[EntryChange, ...]:
    """Return what changed in one of the parts of two runs, the largest change first.

    Nothing if one run has no entry at all: then the trace does not show such things, and none of them is new or gone.
    Entries are the same by name (and type); what remains is the same by its name without numbers (`dense_1`), or a
    stage by its kind, if only one in each run has it.
    """
    one, other = before.part(part), after.part(part)
    if not one.rows or not other.rows:
        return ()
    matched, left, right = _matched(one.rows, other.rows)
    loose = _without_numbers if part != "stages" else _kind
    more, left, right = _alike(left, right, loose)
    found = [_both(*pair) for pair in (*matched, *more)]
    found += [_one_sided(own, GONE, is_cut=other.is_cut) for own in left]
    found += [_one_sided(own, NEW, is_cut=one.is_cut) for own in right]
    return _ordered(found)


def _ordered(found: list[EntryChange]) -> tuple[EntryChange, ...]:
    """Put the largest change first; where a change is not known, it is at most the time that is."""

    def size(own: EntryChange) -> float:
        known = own.change_ms if own.change_ms is not None else own.before_ms or own.after_ms
        return abs(known or 0.0)

    return tuple(sorted(found, key=lambda own: (-size(own), own.name, own.detail)))


def _less(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _both(before: Entry, after: Entry) -> EntryChange:
    renamed = after.name if after.name != before.name else ""
    change = _less(after.ms, before.ms)
    return EntryChange(before.name, renamed, before.detail, "", before.ms, after.ms, change, before, after)


def _one_sided(own: Entry, state: str, *, is_cut: bool) -> EntryChange:
    missing = None if is_cut else 0.0
    known = "" if is_cut else state
    if state == NEW:
        return EntryChange(own.name, "", own.detail, known, missing, own.ms, _less(own.ms, missing), None, own)
    return EntryChange(own.name, "", own.detail, known, own.ms, missing, _less(missing, own.ms), own, None)


# --- which entry is which ---

Pairs = list[tuple[Entry, Entry]]


def _matched(before: Iterable[Entry], after: Iterable[Entry]) -> tuple[Pairs, list[Entry], list[Entry]]:
    """Pair what has the same name and type; return the pairs, and what is left of both."""
    others = {(own.name, own.detail): own for own in after}
    pairs, left = [], []
    for own in before:
        other = others.pop((own.name, own.detail), None)
        if other is None:
            left.append(own)
        else:
            pairs.append((own, other))
    return pairs, left, list(others.values())


def _alike(
    before: list[Entry], after: list[Entry], key: Callable[[Entry], object]
) -> tuple[Pairs, list[Entry], list[Entry]]:
    """Pair what is alike by a key that only one entry in each run has."""
    ones, others = _single(before, key), _single(after, key)
    shared = [name for name in ones if name in others]
    pairs = [(ones[name], others[name]) for name in shared]
    used = {id(own) for pair in pairs for own in pair}
    return pairs, [own for own in before if id(own) not in used], [own for own in after if id(own) not in used]


def _single(entries: list[Entry], key: Callable[[Entry], object]) -> dict[object, Entry]:
    groups: dict[object, list[Entry]] = {}
    for own in entries:
        groups.setdefault(key(own), []).append(own)
    return {name: group[0] for name, group in groups.items() if len(group) == 1}


def _without_numbers(own: Entry) -> object:
    return _NUMBER.sub("", own.name), own.detail


def _kind(own: Entry) -> object:
    return own.detail


# --- two runs as a whole ---


@dataclass(frozen=True)
class RunPair:
    """Runs, of which the first and the last are compared in full.

    `to_first` and `unlike` hold, for each run but the first, how its steps compare with those of the first, and what
    else differs.
    """

    runs: tuple[Snapshot, ...]
    stat: Stat
    to_first: tuple[Comparison, ...]
    unlike: tuple[tuple[Difference, ...], ...]

    @property
    def before(self) -> Snapshot:
        """Return the first run."""
        return self.runs[0]

    @property
    def after(self) -> Snapshot:
        """Return the last run."""
        return self.runs[-1]

    @property
    def hosts(self) -> tuple[HostSnapshot | None, HostSnapshot | None]:
        """Return the slowest host of the first run and of the last."""
        return slowest(self.before, self.stat), slowest(self.after, self.stat)

    @property
    def found(self) -> Comparison:
        """Return how the steps of the last run compare with those of the first."""
        return self.to_first[-1]

    @property
    def direction(self) -> Direction:
        """Return in which direction the interval of the ratio excludes 1; unknown without an interval."""
        ratio = self.found.ratio
        if ratio is None:
            return "unknown"
        return "slower" if ratio.low > 1 else "faster" if ratio.high < 1 else "no change told"

    @property
    def categories(self) -> tuple[EntryChange, ...]:
        """Return the changes of the categories of the two hosts compared."""
        one, other = self.hosts
        return category_changes(one, other) if one and other else ()

    @property
    def mean_change_ms(self) -> float | None:
        """Return by how much the mean step time changed; None unless a change of the step time can be told."""
        one, other = self.hosts
        if self.direction not in ("slower", "faster") or one is None or other is None:
            return None
        return _less(statistic(other.step_ms, "mean"), statistic(one.step_ms, "mean")) or None


def compare_runs(runs: Sequence[Snapshot], stat: Stat) -> RunPair:
    """Compare each run with the first."""
    steps = tuple(compare_steps(runs[0], run, tolerance=0.0, stat=stat) for run in runs[1:])
    return RunPair(tuple(runs), stat, steps, tuple(differences(runs[0], run) for run in runs[1:]))
