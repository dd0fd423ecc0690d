"""The diagnosis of a worker over its last samples: one sample of half a second would change the advice too often."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from msgspec import Struct

from tfperf.live.sample import FirstCause, Sample

POOLED = 6
"""Number of samples in a diagnosis: half a minute at the usual interval."""
WORTH_FIXING, PROBLEM = 3.0, 15.0
"""Minimum gain of the first cause, in percent of the step, for yellow and for red, as in the diagnosis."""
_MARGIN = 1.25
"""Factor by which the gain of another cause must be higher before it replaces the first one."""


class Verdict(Struct, frozen=True, kw_only=True):
    """The first cause over the last samples with one kind of step; without `cause`, none is worth fixing."""

    cause: FirstCause | None
    """From the latest of the samples that have it."""
    gains: tuple[float, ...]
    """Likely saving in each of the samples, in percent of the step: 0 in a sample without the cause."""
    since_s: float
    """Time of the sample since which it is the first cause, in seconds since 1970."""

    @property
    def code(self) -> str:
        """Return the code of the cause; empty without one."""
        return self.cause.code if self.cause is not None else ""

    @property
    def gain_percent(self) -> float:
        """Return the mean of the likely savings, in percent of the step."""
        return fmean(self.gains)


class Mark(Struct, frozen=True):
    """A baseline: the median step time over the last samples at `time_s`."""

    time_s: float
    kind: str
    step_ms: float


def judged(before: Verdict | None, samples: Sequence[Sample]) -> Verdict:
    """Return the diagnosis over the last samples, oldest first, all with known steps of one kind.

    The cause of `before` stays the first one until another one saves a quarter more.
    """
    pool = [sample.measured.causes for sample in samples[-POOLED:] if sample.measured is not None]
    latest = {cause.code: cause for causes in pool for cause in reversed(causes)}
    gains = {
        code: tuple(next((each.gain_percent for each in causes if each.code == code), 0.0) for causes in pool)
        for code in latest
    }
    means = {"": WORTH_FIXING, **{code: fmean(values) for code, values in gains.items()}}
    code = max(means, key=means.__getitem__)
    if before is not None and means[code] <= _MARGIN * means.get(before.code, 0.0):
        code = before.code
    return Verdict(
        cause=latest.get(code),
        gains=gains.get(code, (0.0,) * len(pool)),
        since_s=before.since_s if before is not None and before.code == code else samples[-1].time_s,
    )


def pooled_ms(samples: Sequence[Sample], kind: str, since_s: float = 0.0) -> float | None:
    """Return the median step time of the last samples with this kind of step that begin after `since_s`."""
    found = [
        each.measured.step_ms
        for each in samples
        if each.measured is not None and each.measured.step_kind == kind and each.time_s > since_s
    ]
    values = [value for value in found if value is not None]
    return median(values[-POOLED:]) if values else None
