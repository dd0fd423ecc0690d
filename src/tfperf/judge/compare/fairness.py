"""What differs between two runs besides their speed: is it the same job, on the same machine?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import median
from tfperf.base.units import format_ms, format_percent, listed
from tfperf.judge.compare.per_example import Per
from tfperf.judge.compare.run_summary import RunSummary

_FEW_STEPS = 10
_PRECISION_POINTS = 5.0
_VALUES_LISTED = 3
_OTHER_JOB = 1000
SOUNDNESS = "Soundness"
"""What differs where the step times of a run are doubtful."""


class Difference(Struct, frozen=True):
    """One thing that differs; `before` and `after` as text for people, empty where one run does not know it."""

    what: str
    before: str
    after: str
    unfair: bool
    """The ratio of the step times is not about the change of the program alone."""
    text: str
    """One sentence: what follows from it."""


def differences(before: RunSummary, after: RunSummary, per: Per = "step") -> tuple[Difference, ...]:
    """Return what differs between two runs, the unfair things first; `per` is what their times are of.

    What a run does not know is not a difference: not every profile shows its batch size, and the version of TensorFlow
    and the host's CPU are only in captures of tfperf.
    """
    unordered = [
        *_doubts(before, after),
        *_speeds(before, after),
        *_machines(before, after),
        *_steps(before, after),
        *_work(before, after, per),
        *_remarks(before, after),
    ]
    return tuple(sorted(unordered, key=lambda difference: not difference.unfair))


def _doubts(before: RunSummary, after: RunSummary) -> Iterator[Difference]:
    """Yield why the step times of a run are doubtful: missing events are not a change of the program."""
    if before.doubt or after.doubt:
        text = "a profile that may be incomplete or wrong can have other step times: capture that run again"
        yield _unfair(SOUNDNESS, before.doubt or "sound", after.doubt or "sound", text)


def _speeds(before: RunSummary, after: RunSummary) -> Iterator[Difference]:
    """Yield step times that are no two states of one job."""
    times = [[ms for host in run.hosts for ms in host.step_ms] for run in (before, after)]
    if not all(times):
        return
    medians = [median(np.array(of_run)) for of_run in times]
    if max(medians) > _OTHER_JOB * min(medians):
        text = f"no change makes a job {_OTHER_JOB} times as fast: another job, or a damaged file"
        before_ms, after_ms = (f"{format_ms(ms)} ms" for ms in medians)
        yield _unfair("Step time", before_ms, after_ms, text)


def _machines(before: RunSummary, after: RunSummary) -> Iterator[Difference]:
    runs = (before, after)
    types = [_distinct({host.device_type for host in run.hosts}) for run in runs]
    models = [_distinct({host.device_model for host in run.hosts}) for run in runs]
    if types[0] != types[1] and all(types):
        text = "a different kind of device is a different machine, whatever the code does"
        yield _unfair("Device type", types[0], types[1], text)
    elif models[0] != models[1] and all(models):
        text = "the devices differ, so the ratio is also that of their speeds"
        yield _unfair("Device model", models[0], models[1], text)
    cpus = [_distinct({host.cpu_model for host in run.hosts}) for run in runs]
    if cpus[0] != cpus[1] and all(cpus):
        yield _unfair("Host CPU", cpus[0], cpus[1], "the CPUs differ, so the ratio is also that of their speeds")
    cores = [_distinct({f"{host.cores:g}" for host in run.hosts if host.cores}) for run in runs]
    if cores[0] != cores[1] and all(cores):
        yield _unfair(
            "Host cores", cores[0], cores[1], "with other cores, the input and the host's ops take other times"
        )
    if before.host_count != after.host_count:
        text = "with a different number of hosts, each does a different share of the work"
        yield _unfair("Hosts", before.host_count, after.host_count, text)
    counts = [sum(host.device_count for host in run.hosts) for run in runs]
    if counts[0] != counts[1] and all(len(run.hosts) == run.host_count for run in runs):
        text = "with a different number of devices, each does a different share of the work"
        yield _unfair("Devices", counts[0], counts[1], text)


def _distinct(values: set[str]) -> str:
    return listed(sorted(values - {""}), _VALUES_LISTED)


def _steps(before: RunSummary, after: RunSummary) -> Iterator[Difference]:
    if before.attribution != after.attribution:
        text = "attributions find different steps and categories; analyze both runs with the same one"
        yield _unfair("Attribution", before.attribution, after.attribution, text)
    if not (_has_steps(before) and _has_steps(after)):
        return
    if before.step_kind != after.step_kind:
        # "step" is what a step is called of which nothing shows the kind.
        unfair = "step" not in (before.step_kind, after.step_kind)
        text = "steps of different kinds do different work" if unfair else "the kind of steps of one run is unknown"
        yield Difference("Kind of step", before.step_kind, after.step_kind, unfair, f"{text}.")
    if before.step_source != after.step_source:
        text = "steps were found in different ways; name the same event in both with --step-marker"
        yield _unfair("Steps found by", before.step_source, after.step_source, text)
    if before.skip_first != after.skip_first:
        text = "only one of them may include the warm-up; save the baseline with the same --skip-first"
        yield _unfair("First steps skipped", before.skip_first, after.skip_first, text)


def _work(before: RunSummary, after: RunSummary, per: Per) -> Iterator[Difference]:
    """Compare how many examples a step takes."""
    if not (_has_steps(before) and _has_steps(after)):
        return
    examples = before.examples_per_step, after.examples_per_step
    unfair, text = True, "a step is other work, and more examples at once take less time each: compare equal batches"
    if None not in examples and examples[0] == examples[1]:
        unfair, text = False, "a step takes as many examples in both runs"
    elif per == "example":
        unfair, text = False, "times are compared per example; more at once take less time each, whatever else changed"
    for title, sizes in (
        ("Batches per step", (before.batches_per_step, after.batches_per_step)),
        ("Batch size", (before.batch_size, after.batch_size)),
    ):
        if sizes[0] is not None and sizes[1] is not None and sizes[0] != sizes[1]:
            yield Difference(title, f"{sizes[0]:,}", f"{sizes[1]:,}", unfair, f"{text}.")


def _has_steps(run: RunSummary) -> bool:
    return any(host.step_ms for host in run.hosts)


def _remarks(before: RunSummary, after: RunSummary) -> Iterator[Difference]:
    precisions = [
        [host.half_precision_percent for host in run.hosts if host.half_precision_percent is not None]
        for run in (before, after)
    ]
    means = [sum(percents) / len(percents) for percents in precisions if percents]
    if len(means) == 2 and abs(means[0] - means[1]) >= _PRECISION_POINTS:
        texts = [f"{format_percent(mean)}%" for mean in means]
        yield Difference("16-bit compute", texts[0], texts[1], False, "the precision of the device's work changed.")
    counts = [min((len(host.step_ms) for host in run.hosts), default=0) for run in (before, after)]
    if counts[0] != counts[1] and (max(counts) >= 2 * min(counts) or min(counts) < _FEW_STEPS):
        text = "the captures differ in length; the shorter one makes the interval wide."
        yield Difference("Whole steps", f"{counts[0]:,}", f"{counts[1]:,}", False, text)
    confidences = (before.step_confidence, after.step_confidence)
    if confidences[0] != confidences[1] and _has_steps(before) and _has_steps(after):
        text = "the steps of one run were found with less confidence."
        yield Difference("Confidence in steps", confidences[0], confidences[1], False, text)
    tensorflows = (before.tensorflow_version, after.tensorflow_version)
    if tensorflows[0] != tensorflows[1] and all(tensorflows):
        yield Difference("TensorFlow", tensorflows[0], tensorflows[1], False, "the change may be that of TensorFlow.")
    versions = (before.tfperf_version, after.tfperf_version)
    if versions[0] != versions[1]:
        text = "different versions of tfperf read the runs; save the baseline again if figures look odd."
        yield Difference("tfperf", versions[0], versions[1], False, text)


def _unfair(what: str, before: str | int, after: str | int, text: str) -> Difference:
    shown = [f"{value:,}" if isinstance(value, int) else value for value in (before, after)]
    return Difference(what, shown[0], shown[1], True, f"{text}.")
