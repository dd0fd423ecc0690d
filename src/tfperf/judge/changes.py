"""Explain a change of the step time: the changes per step between two runs, largest first.

Categories are disjoint parts of a step, so their changes add up to the change of the mean step time. Ops, kernels and
copies are sums over overlapping threads and streams: their changes are hints and have no meaningful sum.

`differences` lists everything else that differs, to show whether the job and the machine are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import median
from tfperf.base.units import format_ms, format_percent, listed
from tfperf.judge.regression import StepComparison, StepStatistic, compare_steps, slowest_host, statistic
from tfperf.judge.run_summary import HostSummary, Per, RankedEntry, RankingName, RunSummary, as_compared, choose_per
from tfperf.report.model import ChangedPart
from tfperf.report.palette import Role
from tfperf.sections.diagnosis.catalogue import CAUSE_MEANINGS
from tfperf.sections.diagnosis.section import REST
from tfperf.trace.steps.categories import CATEGORIES, CATEGORY_TITLES, WITH_COPIES

Direction = Literal["slower", "faster", "no clear change", "unknown"]
NOTABLE_SHARE = 0.01
"""Minimum share of the step time of a change in reports for people."""
_NEARLY_ALL = 0.9
_NUMBER = re.compile(r"_\d+(?=[/:]|$)")


class EntryChange(Struct, frozen=True):
    """One entry in two runs, in milliseconds per step; None is unknown.

    A new entry took 0 ms before, and a removed one takes 0 ms after. `may_be_cut`: a list was cut, and the entry may be
    among its omitted ones, so its time there is unknown.
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
        """Return `new`, `gone`, or an empty string if it is in both runs or unknown."""
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
        """Return the absolute change; if it is unknown, the known time as an upper bound."""
        ms = self.change_ms if self.change_ms is not None else self.before_ms or self.after_ms
        return abs(ms or 0.0)


def category_changes(before: HostSummary, after: HostSummary) -> tuple[EntryChange, ...]:
    """Return the change of each category known on either host, largest first; `detail` is its key."""
    changes = []
    for category in CATEGORIES if _copies_are_input(before) and _copies_are_input(after) else WITH_COPIES:
        before_ms, after_ms = before.category_ms.get(category), after.category_ms.get(category)
        if before_ms is not None or after_ms is not None:
            entry = RankedEntry(CATEGORY_TITLES[category], category, before_ms)
            changes.append(EntryChange(entry, replace(entry, ms=after_ms)))
    return _largest_first(changes)


def _copies_are_input(host: HostSummary) -> bool:
    """Return whether input includes copies to the device; it then takes at least as long (see `Breakdown`)."""
    copies_ms, input_ms = host.category_ms.get("host_to_device"), host.category_ms.get("input")
    return not copies_ms or input_ms is None or copies_ms <= input_ms


def part_changes(comparison: RunComparison) -> tuple[ChangedPart, ...]:
    """Return the mean step by cause in the first and the last run; other time by category.

    A cause in only one of the runs is a part of its categories in both, because the other run has such time, too. Empty
    if a category with time is unknown in one run.
    """
    before, after = comparison.hosts
    if before is None or after is None:
        return ()
    rests = [_time_by_category(host) for host in (before, after)]
    for category in {*rests[0], *rests[1]}:
        known = [rest.get(category) for rest in rests]
        if None in known and any(known):
            return ()
    in_both = {cause.code for cause in before.causes} & {cause.code for cause in after.causes} & {*CAUSE_MEANINGS}
    parts: dict[tuple[Role, str], list[float]] = {}
    for side, (host, rest) in enumerate(zip((before, after), rests, strict=True)):
        for cause in (cause for cause in host.causes if cause.code in in_both):
            taken = {name: min(ms, max(rest.get(name) or 0.0, 0.0)) for name, ms in cause.category_ms.items()}
            rest.update({name: (rest.get(name) or 0.0) - ms for name, ms in taken.items()})
            title = next(other.title for other in after.causes if other.code == cause.code)
            parts.setdefault((CAUSE_MEANINGS[cause.code].role, title), [0.0, 0.0])[side] += sum(taken.values())
    names = {**REST, **_names_of_new(before, rests[1]), **_names_of_new(after, rests[0])}
    for side, rest in enumerate(rests):
        for category, left in rest.items():
            if left:
                parts.setdefault(names[category], [0.0, 0.0])[side] += left
    return tuple(
        ChangedPart(role=role, title=title, before=sides[0], after=sides[1]) for (role, title), sides in parts.items()
    )


def _names_of_new(host: HostSummary, other: dict[str, float | None]) -> dict[str, tuple[Role, str]]:
    """Return the names of causes that are nearly all of a category, which nearly no time has in the other run."""
    names = {}
    for cause in host.causes:
        for category, ms in cause.category_ms.items():
            wholes = (sum(cause.category_ms.values()), host.category_ms.get(category) or 0.0)
            is_other_small = (other.get(category) or 0.0) <= (1.0 - _NEARLY_ALL) * ms
            if is_other_small and ms >= _NEARLY_ALL * max(wholes) and cause.code in CAUSE_MEANINGS:
                names[category] = (CAUSE_MEANINGS[cause.code].role, cause.title)
    return names


def _time_by_category(host: HostSummary) -> dict[str, float | None]:
    """Return the time of the host by category, without overlaps; input is the time without copies."""
    times = {**host.category_ms}
    copies_ms, input_ms = times.get("host_to_device"), times.pop("input", None)
    is_whole = input_ms is not None and _copies_are_input(host)
    times["input_wait"] = input_ms - (copies_ms or 0.0) if is_whole and input_ms is not None else input_ms
    return times


def ranking_changes(before: RunSummary, after: RunSummary, name: RankingName) -> tuple[EntryChange, ...]:
    """Return the changes in one ranking of two runs, largest first.

    Empty if a run has no entry: its profile does not show them, so none is new or gone. Entries are matched by name and
    type; the rest by name without numbers (`dense_1`), or stages by kind, if each run has only one.
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
    """Pair entries by a key that is unique in each run; return the pairs, and the rest of both."""
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
    """Runs compared with the first by `step_comparisons` and `differences`; the last one in full.

    `runs` are unscaled; all other times are per step, or per 1,000 examples if `per` is "example".
    """

    runs: tuple[RunSummary, ...]
    per: Per
    before: RunSummary
    after: RunSummary
    step_comparisons: tuple[StepComparison, ...]
    differences: tuple[tuple[Difference, ...], ...]
    hosts: tuple[HostSummary | None, HostSummary | None]
    """The slowest host of the first and of the last run."""
    steps: StepComparison
    """Steps of the last run compared with the first."""
    direction: Direction
    """Direction in which the ratio's interval excludes 1; unknown without an interval."""
    categories: tuple[EntryChange, ...]
    mean_change_ms: float | None
    """Change of the mean step time; None unless the step time clearly changed."""

    @property
    def notable_ms(self) -> float:
        """Return the smallest change shown to people: 1% of the longer mean step time; 0 if unknown."""
        means = [statistic(host.step_ms, "mean") or 0.0 for host in self.hosts if host is not None]
        return NOTABLE_SHARE * max(means, default=0.0)


def compare_runs(runs: Sequence[RunSummary], stat: StepStatistic) -> RunComparison:
    """Compare each run with the first, per example if their steps have different numbers of examples."""
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


_FEW_STEPS = 10
_PRECISION_POINTS = 5.0
_VALUES_LISTED = 3
_OTHER_JOB = 1000
SOUNDNESS = "Soundness"
"""The difference for doubtful step times."""


class Difference(Struct, frozen=True):
    """One difference; `before` and `after` are text for people, empty if the run does not have the value."""

    what: str
    before: str
    after: str
    unfair: bool
    """Whether the ratio of step times reflects more than the change of the program."""
    text: str
    """One sentence with the consequence."""


def differences(before: RunSummary, after: RunSummary, per: Per = "step") -> tuple[Difference, ...]:
    """Return the differences of two runs, unfair ones first; their times are per `per`.

    Unknown values are not differences: some profiles lack the batch size, and only tfperf's captures record versions.
    """
    runs = (before, after)
    has_steps = all(any(host.step_ms for host in run.hosts) for run in runs)
    unordered = [
        *_times(runs),
        *_machines(runs),
        *(_steps(before, after) if has_steps else ()),
        *(_work(before, after, per) if has_steps else ()),
        *_remarks(runs, has_steps=has_steps),
    ]
    return tuple(sorted(unordered, key=lambda difference: not difference.unfair))


def _differ(
    what: str, values: Sequence[str | int], text: str, *, unfair: bool = True, known: bool = True
) -> Iterator[Difference]:
    """Yield a difference if the values differ and (`known`) neither is empty."""
    if values[0] != values[1] and (all(values) or not known):
        shown = [f"{value:,}" if isinstance(value, int) else value for value in values]
        yield Difference(what, shown[0], shown[1], unfair, f"{text}.")


def _times(runs: Sequence[RunSummary]) -> Iterator[Difference]:
    doubts = [run.doubt or "sound" for run in runs]
    if doubts != ["sound", "sound"]:
        # Missing events are not a change of the program.
        text = "a profile that may be incomplete or wrong can have wrong step times: capture that run again."
        yield Difference(SOUNDNESS, doubts[0], doubts[1], True, text)
    times = [[ms for host in run.hosts for ms in host.step_ms] for run in runs]
    medians = [median(np.array(of_run)) for of_run in times] if all(times) else [0.0, 0.0]
    if max(medians) > _OTHER_JOB * min(medians):
        text = f"a change does not make a job {_OTHER_JOB} times as fast: this is another job or a damaged file"
        yield from _differ("Step time", [f"{format_ms(ms)} ms" for ms in medians], text)


def _machines(runs: Sequence[RunSummary]) -> Iterator[Difference]:
    def listed_of(value: Callable[[HostSummary], str]) -> list[str]:
        return [listed(sorted({*map(value, run.hosts)} - {""}), _VALUES_LISTED) for run in runs]

    text = "a different kind of device is a different machine, regardless of the code"
    types = [*_differ("Device type", listed_of(lambda host: host.device_type), text)]
    text = "the devices differ, so the ratio includes their difference in speed"
    yield from types or _differ("Device model", listed_of(lambda host: host.device_model), text)
    text = "the CPUs differ, so the ratio includes their difference in speed"
    yield from _differ("Host CPU", listed_of(lambda host: host.cpu_model), text)
    text = "with a different number of cores, input and host ops take different times"
    yield from _differ("Host cores", listed_of(lambda host: f"{host.cores:g}" if host.cores else ""), text)
    text = "with a different number of hosts, each host does a different share of the work"
    yield from _differ("Hosts", [run.host_count for run in runs], text, known=False)
    if all(len(run.hosts) == run.host_count for run in runs):
        text = "with a different number of devices, each device does a different share of the work"
        counts = [sum(host.device_count for host in run.hosts) for run in runs]
        yield from _differ("Devices", counts, text, known=False)
    text = "attributions have different steps and categories; analyze both runs with the same attribution"
    yield from _differ("Attribution", [run.attribution for run in runs], text, known=False)


def _steps(before: RunSummary, after: RunSummary) -> Iterator[Difference]:
    # "step" is the kind of a step that cannot be classified.
    unfair = "step" not in (before.step_kind, after.step_kind)
    text = "steps of different kinds do different work" if unfair else "the kind of the steps is unknown in one run"
    yield from _differ("Kind of step", (before.step_kind, after.step_kind), text, unfair=unfair, known=False)
    text = "the runs use different step detection; use the same step event in both with --step-marker"
    yield from _differ("Step detection", (before.step_source, after.step_source), text, known=False)
    ranges = [run.steps or "all" for run in (before, after)]
    text = "other steps of a job can do different work; select the same ones in both runs with --steps"
    yield from _differ("Selected steps", ranges, text)
    text = "only one run may include warm-up; save the baseline with the same --skip-first"
    yield from _differ("First steps skipped", (before.skip_first, after.skip_first), text, known=False)


def _work(before: RunSummary, after: RunSummary, per: Per) -> Iterator[Difference]:
    examples = before.examples_per_step, after.examples_per_step
    unfair, text = (
        True,
        "a step is a different amount of work, and larger batches take less time per example: compare equal sizes",
    )
    if None not in examples and examples[0] == examples[1]:
        unfair, text = False, "a step takes the same number of examples in both runs"
    elif per == "example":
        unfair, text = False, "times are compared per example, but larger batches alone take less time per example"
    for title, sizes in (
        ("Batches per step", (before.batches_per_step, after.batches_per_step)),
        ("Batch size", (before.batch_size, after.batch_size)),
    ):
        if sizes[0] is not None and sizes[1] is not None:
            yield from _differ(title, (sizes[0], sizes[1]), text, unfair=unfair, known=False)


def _remarks(runs: Sequence[RunSummary], *, has_steps: bool) -> Iterator[Difference]:
    precisions = [
        [host.half_precision_percent for host in run.hosts if host.half_precision_percent is not None] for run in runs
    ]
    means = [sum(percents) / len(percents) for percents in precisions if percents]
    if len(means) == 2 and abs(means[0] - means[1]) >= _PRECISION_POINTS:
        texts = [f"{format_percent(mean)}%" for mean in means]
        yield Difference("16-bit compute", texts[0], texts[1], False, "the precision of device compute changed.")
    counts = [min((len(host.step_ms) for host in run.hosts), default=0) for run in runs]
    if max(counts) >= 2 * min(counts) or min(counts) < _FEW_STEPS:
        text = "the captures differ in length; the shorter one widens the interval"
        yield from _differ("Whole steps", counts, text, unfair=False, known=False)
    if has_steps:
        text = "the step detection of one run has lower confidence"
        confidences = [run.step_confidence for run in runs]
        yield from _differ("Confidence of step detection", confidences, text, unfair=False, known=False)
    versions = [run.tensorflow_version for run in runs]
    yield from _differ("TensorFlow", versions, "TensorFlow may be the cause of the change", unfair=False)
    text = "different versions of tfperf read the runs; save the baseline again if figures look wrong"
    yield from _differ("tfperf", [run.tfperf_version for run in runs], text, unfair=False, known=False)
