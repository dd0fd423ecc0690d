"""What devices wait for, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.report.model import Finding, Quantity, Severity
from tfperf.sections.idle.tables import Cause, Use
from tfperf.sections.overview.quantities import share_of_step
from tfperf.trace.device.device_time import device_label
from tfperf.trace.steps.categories import CATEGORY_TITLES

if TYPE_CHECKING:
    from tfperf.sections.idle.analysis import Idle
    from tfperf.sections.overview.summary import Summary

NAMED_PERCENT = 5.0
"""A cause is named from this share of the step time on."""
PROBLEM_PERCENT = 15.0
_TEXTS: dict[Cause, str] = {
    "input": "the step waits for tf.data",
    "compile": "functions are traced or compiled",
    "synchronise": "the program waits for results",
    "copy": "the host hands tensors to it, apart from the copies themselves",
    "launch": "work is prepared and launched",
    "python": "the program is in Python, between calls",
    "host_compute": "ops run on host threads",
    "unknown": "nothing is recorded that explains it (host tracer level 2 records what the program calls)",
}
"""What goes on while a device is idle."""
_CAUSES: dict[Cause, tuple[str, ...]] = {
    "input": ("input_wait", "input_contention"),
    "compile": ("compilation", "warm_up"),
    "synchronise": ("waiting_for_results", "output_copy"),
    "copy": ("input_copy",),
    "launch": ("launch_bound", "small_work_per_step", "eager_ops", "run_eagerly"),
    "python": ("python_between_steps", "small_work_per_step"),
    "host_compute": ("host_ops", "small_work_per_step", "eager_ops", "run_eagerly"),
    "unknown": ("waiting_in_calls",),
}
"""Causes of the diagnosis that idle time is evidence for."""
_CATEGORIES: dict[Cause, tuple[str, str]] = {
    "input": ("input_wait", "Input, without copies"),
    "compile": ("compilation", CATEGORY_TITLES["compilation"]),
    "launch": ("kernel_launch", CATEGORY_TITLES["kernel_launch"]),
    "python": ("all_others", CATEGORY_TITLES["all_others"]),
    "host_compute": ("host_compute", CATEGORY_TITLES["host_compute"]),
}
"""The part of the step that is about the same, and its name; docs/idle.md says how they differ."""


def idle_findings(idle: Idle, summary: Summary) -> tuple[Finding, ...]:
    """Return the causes with a share of the step from `NAMED_PERCENT` on, the largest first; else that there is none.

    Without a device there is nothing to say.
    """
    if not idle.devices:
        return ()
    large = [cause for cause in idle.ranked if idle.percents[cause] >= NAMED_PERCENT]
    if large:
        return tuple(_finding(idle, cause, summary) for cause in large)
    share = idle_share(idle)
    text = (
        f"{_subject(idle)} is idle for {share} of {whole_of(idle)}{averaged_over(idle)}; no cause takes "
        f"{NAMED_PERCENT:.0f}% of it."
    )
    return (Finding("idle_none", "info", text[0].upper() + text[1:], quantities=(share,)),)


def idle_share(idle: Idle, cause: Cause | None = None) -> Quantity:
    """Return the share of the step in which devices are idle, for any cause or this one."""
    key, percent = ("idle", idle.idle_percent) if cause is None else (f"idle: {cause}", idle.percents[cause])
    return Quantity(key, percent, of=whole_of(idle))


def _finding(idle: Idle, cause: Cause, summary: Summary) -> Finding:
    share = idle_share(idle, cause)
    text = f"While {_TEXTS[cause]}, {_subject(idle)} is idle for {share} of {whole_of(idle)}{averaged_over(idle)}"
    quantities = [share]
    if cause in _CATEGORIES and not idle.without_steps:
        category, title = _CATEGORIES[cause]
        of_category = share_of_step(summary, category)
        if of_category.value is not None and str(of_category) != str(share):
            text += f" (the category {title} has {of_category}, by other rules)"
            quantities.append(of_category)
    # One gap alone may be the start or the end of the capture, which no change of the program shortens.
    is_grave = idle.percents[cause] >= PROBLEM_PERCENT and not idle.without_steps and cause != "unknown"
    severity: Severity = "problem" if is_grave else "hint"
    return Finding(f"idle_{cause}", severity, f"{text}.", causes=_CAUSES[cause], quantities=tuple(quantities))


def _subject(idle: Idle) -> str:
    """Return which device a sentence is about: its name where it is the only one of several that counts."""
    if len(idle.listed) == 1 or len(idle.averaged) > 1:
        return "the device"
    (device,) = idle.averaged
    return f"{label_of(idle, device.host, device.device)} (1 of {len(idle.listed)} devices)"


_DISTINCTIONS: dict[Use, str] = {
    "works": "that works in the steps",
    "copies": "that does anything in the steps",
    "outside": "that recorded work",
    "no kernel": "that recorded work",
}


def only_device(idle: Idle) -> str:
    """Name the only one of several devices that averages are of, and say what tells it from the others."""
    (device,) = idle.averaged
    distinction = "that recorded work" if idle.without_steps else _DISTINCTIONS[device.use]
    return f"{label_of(idle, device.host, device.device)}, the only one of {len(idle.listed)} devices {distinction}"


def averaged_over(idle: Idle) -> str:
    """Return how many devices a share is averaged over, in words; nothing for one."""
    listed, averaged = len(idle.listed), len(idle.averaged)
    if averaged == 1:
        return ""
    return f", average over {averaged} {f'of {listed} ' if averaged < listed else ''}devices"


def label_of(idle: Idle, host: str, device: str) -> str:
    """Return the short name of a device, with its host if there are several."""
    has_several_hosts = len({name for name, _ in idle.listed}) > 1
    return f"{host} {device_label(device)}" if has_several_hosts else device_label(device)


def whole_of(idle: Idle) -> str:
    """Return what shares of idle time are of, in words."""
    return "the capture" if idle.without_steps else "the step time"
