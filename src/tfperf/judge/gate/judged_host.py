"""A host as a gate judges it: whole steps only, after those that the user skips, each host by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import call, find_section
from tfperf.base.units import counted
from tfperf.judge.compare.summarize import whole_steps
from tfperf.judge.gate.limits import Metric
from tfperf.judge.gate.rests_on import parts_of
from tfperf.report.model import Finding
from tfperf.sections.overview.summary import Summary, summarize
from tfperf.trace.flaw import Flaw
from tfperf.trace.steps.steps import (
    COLLECTION,
    END_ESTIMATED,
    OMITTED,
    PARTIAL,
    RETRACE,
    SLOW_FIRST,
    UNLABELLED,
    step_word,
)

if TYPE_CHECKING:
    from tfperf.analysis.registry import HostResults, Results
    from tfperf.judge.compare.bootstrap import StepStatistic
    from tfperf.trace.flaw import Parts
    from tfperf.trace.steps.breakdown import Breakdown

_MOST_DOUBTS = 5
_AGAIN = "capture it again, and copy the whole file"
_MARK_STEPS = "mark the steps with tfperf.step, or name their event with --step-marker"

_OMITTED = {
    PARTIAL: "cut off",
    RETRACE: "compiling",
    SLOW_FIRST: "slow first",
    END_ESTIMATED: "with an estimated end",
    COLLECTION: "with a rare garbage collection",
    OMITTED: "left out by TensorFlow",
}
"""Steps with each flag, in a list of steps that are not averaged."""


class JudgedHost(Struct, frozen=True, kw_only=True, dict=True):
    """One host, over the steps that count; or all hosts together, for tables over hosts."""

    results: Results
    """Of this host alone, over the steps that count."""
    name: str
    """How messages name the host: empty where there is only one."""
    stat: StepStatistic
    min_steps: int
    recorded_steps: int
    """Steps in the profile, also those that do not count."""
    other_kinds: Mapping[str, int]
    """How many whole steps of each other kind there are; these are not judged."""
    omitted: Mapping[str, int]
    """How many steps of the judged kind are not averaged, by their flag."""
    allow_doubt: bool = False
    """Whether a figure is judged although something that it rests on is doubtful."""

    @property
    def host(self) -> HostResults:
        """Return the results of the host."""
        return self.results.hosts[0]

    @property
    def breakdown(self) -> Breakdown:
        """Return the breakdown of the steps that count."""
        breakdown: Breakdown = self.host["steps"]
        return breakdown

    @cached_property
    def summary(self) -> Summary:
        """Return the averages over the headline steps."""
        return summarize(self.breakdown)

    @property
    def too_few_steps(self) -> str:
        """Say that the host has too few averaged steps, and what to try; empty if it has enough."""
        count, steps = self.summary.averaged_count, self.breakdown.steps
        if count >= self.min_steps:
            return ""
        kind = _label(self.summary) if self.other_kinds else ""
        whole = f"{counted(count, f'whole {kind}step')} {'counts' if count == 1 else 'count'}"
        why = steps.explanation if steps.source == "none" else f"of {self.recorded_steps:,} recorded"
        advice = ", or choose the hosts that count with --host" if self.name else ""
        return f"{whole} ({why}), but --min-steps asks for {self.min_steps}: profile longer{advice}"

    def damage(self, metric: Metric) -> str:
        """Say what is wrong with the profile that matters to a figure; empty if nothing is."""
        parts = self._parts_of(metric)
        texts = [flaw.text for _, flaw in self.results.flaws if flaw.level == "unsound" and flaw.touches(parts)]
        return f"the profile is damaged: {texts[0]}" if texts else ""

    def why_doubtful(self, metric: Metric) -> str:
        """Say why a figure is too doubtful to be judged, and what to try; empty if it is not, or doubt is allowed."""
        doubts = self.doubts(metric)
        if self.allow_doubt or not doubts:
            return ""
        fix = next(filter(None, (flaw.fix for _, flaw in doubts)), _AGAIN)
        doubt = f"the profile may be incomplete or wrong: {self.doubt_text(doubts)}"
        return f"{doubt}; {fix}, or judge it all the same with --allow-doubt"

    def doubts(self, metric: Metric | None = None) -> Sequence[tuple[str, Flaw]]:
        """Return what makes a figure doubtful, or anything, each with its host: flaws, and steps that are a guess."""
        found = [(host, flaw) for host, flaw in self.results.flaws if flaw.level == "doubtful"]
        for host in self.results.hosts:
            steps = host["steps"].steps
            if steps.confidence == "low" and steps.headline.any():
                text = f"steps were found with low confidence: {steps.explanation}"
                found.append((host.host, Flaw("unsure_steps", text, "doubtful", fix=_MARK_STEPS)))
        parts = None if metric is None else self._parts_of(metric)
        return [(host, flaw) for host, flaw in found if parts is None or flaw.touches(parts)]

    def doubt_text(self, doubts: Sequence[tuple[str, Flaw]]) -> str:
        """Return the first doubts as text, with their host where the figure is over several."""
        is_of_several = self.results.has_several_hosts
        texts = [f"host {host}: {flaw.text}" if is_of_several else flaw.text for host, flaw in doubts]
        more = len(texts) - _MOST_DOUBTS
        return "; ".join([*texts[:_MOST_DOUBTS], *([f"and {more:,} more"] if more > 0 else [])])

    def _parts_of(self, metric: Metric) -> Parts:
        return parts_of(metric, (host["steps"].steps for host in self.results.hosts))

    def over(self, summary: Summary) -> str:
        """Say over which steps a figure is, and which are not judged."""
        others = f"; {unjudged_steps(self.other_kinds)}" if self.other_kinds else ""
        return f"over {self._steps(summary)}{others}"

    def statistic_of(self, statistic: str) -> str:
        """Say which steps a statistic of the step times is of, and why some are not among them."""
        total = self.summary.averaged_count + sum(self.omitted.values())
        reasons = ", ".join(f"{count:,} {_OMITTED[flag]}" for flag, count in self.omitted.items())
        omitted = f"; omitted: {reasons}" if reasons else ""
        return f"{statistic} of {self.summary.averaged_count:,} of {self._steps(self.summary, total)}{omitted}"

    def _steps(self, summary: Summary, count: int | None = None) -> str:
        return counted(summary.averaged_count if count is None else count, step_word(summary.kind))

    def named(self, reason: str) -> str:
        """Return a reason with the name of the host before it, if there are several."""
        return f"host {self.name}: {reason}" if self.name else reason

    def findings(self, section: str) -> tuple[Finding, ...]:
        """Return the findings of a section; none of a section about devices where no device recorded anything."""
        spec = find_section(section)
        if spec.without_device and not self.results.has_device:
            return ()
        findings: tuple[Finding, ...] = call(spec.build, self.results).findings
        return findings


def judged_hosts(
    results: Results, *, stat: StepStatistic, skip_first: int, min_steps: int, kind: str = "", allow_doubt: bool = False
) -> tuple[JudgedHost, ...]:
    """Return each host alone, then, if there are several, all of them together.

    With a `kind`, only steps of that kind count; without, figures are over those of the main kind.
    """
    judged, whole = whole_steps(results, skip_first, kind), whole_steps(results)
    several = results.has_several_hosts
    pairs = list(zip(results.hosts, judged.hosts, strict=True))
    others = [_other_kinds(of_all, of_host) for of_all, of_host in zip(whole.hosts, judged.hosts, strict=True)]
    together = JudgedHost(
        results=judged,
        name="",
        stat=stat,
        min_steps=max(min_steps, 1),
        recorded_steps=len(results["steps"].steps),
        other_kinds={kind: max(kinds.get(kind, 0) for kinds in others) for kinds in others for kind in kinds},
        omitted={},
        allow_doubt=allow_doubt,
    )
    alone = [
        replace(
            together,
            results=judged.only([after]),
            name=after.host if several else "",
            recorded_steps=len(before["steps"].steps),
            other_kinds=kinds,
            omitted=_omitted(before, after, skip_first),
        )
        for (before, after), kinds in zip(pairs, others, strict=True)
    ]
    return (*alone, together) if several else tuple(alone)


def _label(summary: Summary) -> str:
    return "" if summary.kind == UNLABELLED else f"{summary.kind} "


def _other_kinds(whole: HostResults, judged: HostResults) -> dict[str, int]:
    """Return how many whole steps of a host are of other kinds than the one that is judged."""
    counts = Counter(whole["steps"].steps.kinds)
    counts.pop(judged["steps"].steps.headline_kind, None)
    return dict(counts)


def _omitted(recorded: HostResults, judged: HostResults, skip_first: int) -> dict[str, int]:
    """Return how many recorded steps of the judged kind, after the skipped ones, are not averaged, by their flag."""
    steps, counting = recorded["steps"].steps, judged["steps"].steps
    flags = [flag for flag, kind in zip(steps.flags, steps.kinds, strict=True) if kind == counting.headline_kind]
    averaged = Counter(flag for flag, counts in zip(counting.flags, counting.headline.tolist(), strict=True) if counts)
    return dict(Counter(filter(None, flags[skip_first:])) - averaged)


def unjudged_steps(kinds: Mapping[str, int]) -> str:
    """Say how many steps of other kinds are not judged, and how they are."""
    steps = " and ".join(counted(count, step_word(kind)) for kind, count in kinds.items())
    options = " or ".join(f"--by-kind {kind}" for kind in kinds)
    return f"{steps} {'is' if [*kinds.values()] == [1] else 'are'} not judged: {options}"
