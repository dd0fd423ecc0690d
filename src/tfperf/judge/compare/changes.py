"""What explains that steps became slower or faster: what changed per step, the largest change first.

Categories are disjoint parts of a step, so their changes add up to that of the mean step time. Ops, kernels and
copies are sums over threads and streams, which overlap: their changes say where to look, and add up to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tfperf.judge.compare.bootstrap import StepStatistic, statistic
from tfperf.judge.compare.fairness import Difference, differences
from tfperf.judge.compare.per_example import Per, as_compared, choose_per
from tfperf.judge.compare.regression import StepComparison, compare_steps, slowest_host
from tfperf.judge.compare.run_summary import HostSummary, RankedEntry, RankingName, RunSummary
from tfperf.trace.steps.categories import CATEGORIES, CATEGORY_TITLES, WITH_COPIES

Direction = Literal["slower", "faster", "no clear change", "unknown"]

NOTABLE_SHARE = 0.01
"""Share of the step time from which a change is shown to people."""
_NUMBER = re.compile(r"_\d+(?=[/:]|$)")


class EntryChange(Struct, frozen=True):
    """One entry in two runs, in milliseconds per step; None is unknown.

    What is new took 0 ms before, and what is gone takes 0 ms after. `may_be_cut`: the entry is missing in a list that
    was cut, so it may be among the omitted ones; then it is neither, and its time there is unknown.
    """

    before: RankedEntry | None
    after: RankedEntry | None
    may_be_cut: bool = False

    @property
    def entry(self) -> RankedEntry:
        """Return the entry of the first run that has it."""
        entry = self.before or self.after
        assert entry is not None
        return entry

    @property
    def state(self) -> str:
        """Return `new`, `gone`, or nothing: in both runs, or unknown."""
        if self.may_be_cut or (self.before and self.after):
            return ""
        return "gone" if self.before else "new"

    @property
    def after_name(self) -> str:
        """Return the name in the last run, empty if it is the same."""
        return self.after.name if self.before and self.after and self.after.name != self.before.name else ""

    @property
    def before_ms(self) -> float | None:
        """Return the time per step in the first run."""
        return self.before.ms if self.before else None if self.may_be_cut else 0.0

    @property
    def after_ms(self) -> float | None:
        """Return the time per step in the last run."""
        return self.after.ms if self.after else None if self.may_be_cut else 0.0

    @property
    def change_ms(self) -> float | None:
        """Return after - before."""
        before_ms, after_ms = self.before_ms, self.after_ms
        return None if before_ms is None or after_ms is None else after_ms - before_ms

    @property
    def size_ms(self) -> float:
        """Return how much changed, in either direction; where that is unknown, at most the time that is known."""
        ms = self.change_ms if self.change_ms is not None else self.before_ms or self.after_ms
        return abs(ms or 0.0)


def category_changes(before: HostSummary, after: HostSummary) -> tuple[EntryChange, ...]:
    """Return the change of each category that one of the hosts knows, the largest first; `detail` is its key."""
    changes = []
    for category in CATEGORIES if _copies_are_input(before) and _copies_are_input(after) else WITH_COPIES:
        before_ms, after_ms = before.category_ms.get(category), after.category_ms.get(category)
        if before_ms is not None or after_ms is not None:
            entry = RankedEntry(CATEGORY_TITLES[category], category, before_ms)
            changes.append(EntryChange(entry, replace(entry, ms=after_ms)))
    return _largest_first(changes)


def _copies_are_input(host: HostSummary) -> bool:
    """Tell whether copies to the device are a part of input, which then takes at least as long (see `Breakdown`)."""
    copies_ms, input_ms = host.category_ms.get("host_to_device"), host.category_ms.get("input")
    return not copies_ms or input_ms is None or copies_ms <= input_ms


def ranking_changes(before: RunSummary, after: RunSummary, name: RankingName) -> tuple[EntryChange, ...]:
    """Return what changed in one of the rankings of two runs, the largest change first.

    Nothing if one run has no entry at all: then its profile does not show such things, and none of them is new or gone.
    Entries are the same by name and type; what remains is the same by its name without numbers (`dense_1`), or a
    stage by its kind, if only one in each run has it.
    """
    rankings = before.ranking(name), after.ranking(name)
    if not rankings[0].rows or not rankings[1].rows:
        return ()
    exact, left, right = _pairs(rankings[0].rows, rankings[1].rows, lambda entry: (entry.name, entry.detail))
    similar, left, right = _pairs(
        left, right, lambda entry: ("" if name == "stages" else _NUMBER.sub("", entry.name), entry.detail)
    )
    changes = [EntryChange(*pair) for pair in (*exact, *similar)]
    changes += [EntryChange(entry, None, rankings[1].is_cut) for entry in left]
    changes += [EntryChange(None, entry, rankings[0].is_cut) for entry in right]
    return _largest_first(changes)


def _largest_first(changes: list[EntryChange]) -> tuple[EntryChange, ...]:
    return tuple(sorted(changes, key=lambda change: (-change.size_ms, change.entry.name, change.entry.detail)))


def _pairs(
    before: Iterable[RankedEntry], after: Iterable[RankedEntry], key: Callable[[RankedEntry], Hashable]
) -> tuple[list[tuple[RankedEntry, RankedEntry]], list[RankedEntry], list[RankedEntry]]:
    """Pair entries by a key that only one entry in each run has; return the pairs, and what is left of both."""
    groups: dict[Hashable, tuple[list[RankedEntry], list[RankedEntry]]] = {}
    for side, entries in enumerate((before, after)):
        for entry in entries:
            groups.setdefault(key(entry), ([], []))[side].append(entry)
    pairs, left, right = [], [], []
    for ones, others in groups.values():
        if len(ones) == len(others) == 1:
            pairs.append((ones[0], others[0]))
        else:
            left += ones
            right += others
    return pairs, left, right


class RunComparison(Struct, frozen=True, kw_only=True):
    """Runs, of which the first and the last are compared in full.

    `step_comparisons` and `differences` hold, for each run but the first, how its steps compare with those of the
    first, and what else differs. `runs` are as they were read; times of all else are of a step, or where `per` says
    so, of 1,000 examples.
    """

    runs: tuple[RunSummary, ...]
    per: Per
    before: RunSummary
    after: RunSummary
    step_comparisons: tuple[StepComparison, ...]
    differences: tuple[tuple[Difference, ...], ...]
    hosts: tuple[HostSummary | None, HostSummary | None]
    """The slowest host of the first run and of the last."""
    steps: StepComparison
    """How the steps of the last run compare with those of the first."""
    direction: Direction
    """In which direction the interval of the ratio excludes 1; unknown without an interval."""
    categories: tuple[EntryChange, ...]
    """The changes of the categories of the two hosts compared."""
    mean_change_ms: float | None
    """By how much the mean step time changed; None unless a change of the step time is clear."""

    @property
    def notable_ms(self) -> float:
        """Return the least change that people are shown: 1 % of the longer mean step time; 0 if that is unknown."""
        means = [statistic(host.step_ms, "mean") or 0.0 for host in self.hosts if host is not None]
        return NOTABLE_SHARE * max(means, default=0.0)


def compare_runs(runs: Sequence[RunSummary], stat: StepStatistic) -> RunComparison:
    """Compare each run with the first, per example if their steps take different numbers of these."""
    per = choose_per(runs)
    first, *others = (as_compared(run, per) for run in runs)
    steps = tuple(compare_steps(first, run, tolerance=0.0, stat=stat, per=per) for run in others)
    before, after = (slowest_host(run, stat) for run in (first, others[-1]))
    direction: Direction = "unknown"
    mean_change_ms = None
    ratio = steps[-1].ratio
    if ratio is not None:
        direction = "slower" if ratio.low > 1 else "faster" if ratio.high < 1 else "no clear change"
    if direction in ("slower", "faster") and before and after:
        means = [statistic(host.step_ms, "mean") or 0.0 for host in (before, after)]
        mean_change_ms = means[1] - means[0] or None
    return RunComparison(
        runs=tuple(runs),
        per=per,
        before=first,
        after=others[-1],
        step_comparisons=steps,
        differences=tuple(differences(runs[0], run, per) for run in runs[1:]),
        hosts=(before, after),
        steps=steps[-1],
        direction=direction,
        categories=category_changes(before, after) if before and after else (),
        mean_change_ms=mean_change_ms,
    )
