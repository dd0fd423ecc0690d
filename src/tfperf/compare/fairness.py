"""What differs between two runs besides their speed: is it the same job, on the same machine?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfperf.compare.snapshot import Snapshot
from tfperf.units import format_percent

_FEW_STEPS = 10
_FACTOR = 2
_PRECISION_POINTS = 5.0
_HOSTS_LISTED = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs; `before` and `after` as text for people, empty where one run does not know it."""

    what: str
    before: str
    after: str
    unfair: bool
    """The ratio of the step times would not be about the change of the program alone."""
    text: str
    """One sentence: what follows from it."""


def differences(before: Snapshot, after: Snapshot) -> tuple[Difference, ...]:
    """Return what differs between two runs, the unfair things first.

    What a run does not know is no difference: a profile holds neither the version of TensorFlow nor the batch size of a
    job without tf.data.
    """
    found = [*_devices(before, after), *_steps(before, after), *_others(before, after)]
    return tuple(sorted(found, key=lambda own: not own.unfair))


def _devices(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    types, models = (
        [_told({getattr(host, key) for host in run.hosts}) for run in (before, after)]
        for key in ("device_type", "device_model")
    )
    if types[0] != types[1] and all(types):
        yield _unfair("Device type", types, "another kind of device is another machine, whatever the code does")
    elif models[0] != models[1] and all(models):
        yield _unfair("Device model", models, "the devices differ, so the ratio is also that of their speeds")
    counts = [sum(host.device_count for host in run.hosts) for run in (before, after)]
    hosts = [run.host_count for run in (before, after)]
    if hosts[0] != hosts[1]:
        yield _unfair("Hosts", hosts, "with another number of hosts, a step does another share of the work")
    complete = all(len(run.hosts) == run.host_count for run in (before, after))
    if counts[0] != counts[1] and complete:
        text = "with another number of devices, a step does another share of the work"
        yield _unfair("Devices", counts, text)


def _told(values: set[str]) -> str:
    """Return the distinct values that are known, as one text."""
    known = sorted(values - {""})
    more = len(known) - _HOSTS_LISTED
    return ", ".join(known[:_HOSTS_LISTED]) + (f" and {more} more" if more > 0 else "")


def _steps(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    if before.attribution != after.attribution:
        text = "attributions find other steps and other categories; analyse both runs with the same"
        yield _unfair("Attribution", (before.attribution, after.attribution), text)
    if not (_has_steps(before) and _has_steps(after)):
        return
    kinds, sources = (before.step_kind, after.step_kind), (before.step_source, after.step_source)
    if kinds[0] != kinds[1]:
        # "step" is what a step is called of which nothing tells the kind.
        unfair = "step" not in kinds
        text = "steps of other kinds do other work" if unfair else "one run does not tell what kind its steps are"
        yield Difference("Kind of step", kinds[0], kinds[1], unfair, f"{text}.")
    if sources[0] != sources[1]:
        text = "what counts as one step was found in another way; name the same event in both with --step-marker"
        yield _unfair("Steps found by", sources, text)
    if before.skip_first != after.skip_first:
        text = "warm-up may be in one of them only; save the baseline with the same --skip-first"
        yield _unfair("First steps skipped", (before.skip_first, after.skip_first), text)
    yield from _sizes(before, after)


def _has_steps(run: Snapshot) -> bool:
    return any(host.step_ms for host in run.hosts)


def _sizes(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    """Tell what makes a step more or less work."""
    for key, title in (("batches_per_step", "Batches per step"), ("batch_size", "Batch size")):
        one, other = getattr(before, key), getattr(after, key)
        if one is not None and other is not None and one != other:
            yield _unfair(title, (one, other), "a step is another amount of work; compare time per example")


def _others(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    precise = [_half_precision(run) for run in (before, after)]
    if precise[0] is not None and precise[1] is not None and abs(precise[0] - precise[1]) >= _PRECISION_POINTS:
        texts = [f"{format_percent(value)}%" for value in precise]
        yield Difference("16-bit compute", texts[0], texts[1], False, "the precision of the device's work changed.")
    counts = [min((len(host.step_ms) for host in run.hosts), default=0) for run in (before, after)]
    if counts[0] != counts[1] and (max(counts) >= _FACTOR * min(counts) or min(counts) < _FEW_STEPS):
        text = "the captures differ in length; the shorter one makes the interval wide."
        yield Difference("Whole steps", f"{counts[0]:,}", f"{counts[1]:,}", False, text)
    confidences = (before.step_confidence, after.step_confidence)
    if confidences[0] != confidences[1] and _has_steps(before) and _has_steps(after):
        text = "steps were found less surely in one run."
        yield Difference("Confidence in steps", confidences[0], confidences[1], False, text)
    versions = (before.tfperf_version, after.tfperf_version)
    if versions[0] != versions[1]:
        text = "the runs were read by other versions of tfperf; save the baseline anew if figures look odd."
        yield Difference("tfperf", versions[0], versions[1], False, text)


def _half_precision(run: Snapshot) -> float | None:
    known = [host.half_precision_percent for host in run.hosts if host.half_precision_percent is not None]
    return sum(known) / len(known) if known else None


def _unfair(what: str, values: Sequence[str | int], text: str) -> Difference:
    before, after = (f"{value:,}" if isinstance(value, int) else value for value in values)
    return Difference(what, before, after, True, f"{text}.")
