"""What devices wait for, in words, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.report.model import Finding
from tfperf.sections.idle.tables import Cause, Use
from tfperf.trace.device_time import device_label
from tfperf.units import format_percent

if TYPE_CHECKING:
    from tfperf.sections.idle.analysis import Idle

ADVICE_PERCENT = 5.0
"""There is advice about a cause from this share of the step time."""
PROBLEM_PERCENT = 15.0
_TEXTS: dict[Cause, str] = {
    "input": "waits for input",
    "compile": "waits while functions are traced or compiled",
    "synchronise": "waits while the program waits for results",
    "copy": "waits while the host hands tensors over",
    "launch": "waits for launches",
    "python": "waits for Python between calls",
    "host_compute": "waits for ops on host threads",
    "unknown": "waits for something that the trace does not show",
}
_ACTIONS: dict[Cause, str] = {
    "input": "make the tf.data pipeline faster: -s tfdata tells which stage to change",
    "compile": (
        "keep shapes and Python arguments of tf.functions constant (input_signature, reduce_retracing=True); profile "
        "after warm-up"
    ),
    "synchronise": "read losses and metrics only every so many steps (.numpy(), float(), print, callbacks)",
    "copy": (
        "hand batches over while the step before still runs (tf.data.experimental.prefetch_to_device, or a distributed "
        "dataset); send smaller types, and fewer, larger tensors"
    ),
    "launch": (
        "give the device more work per launch: larger batches, tf.function(jit_compile=True), or "
        "compile(steps_per_execution=10) in Keras; CUDA graphs where XLA uses them"
    ),
    "python": (
        "put the whole step into one tf.function; do less in callbacks and logging; raise steps_per_execution in "
        "Keras compile()"
    ),
    "host_compute": (
        "move these ops to the device (dtype, tf.device), or into the tf.data pipeline, which works ahead of the step"
    ),
    "unknown": "profile with the host tracer at level 2, which records what the program calls",
}


def idle_advice(idle: Idle | None) -> tuple[Finding, ...]:
    """Return the causes with a share of the step from `ADVICE_PERCENT` on, the largest first; else that there is none.

    Without a device there is nothing to say.
    """
    if idle is None or not idle.devices:
        return ()
    large = [cause for cause in idle.ranked if idle.percent(cause) >= ADVICE_PERCENT]
    if large:
        return tuple(_finding(idle, cause) for cause in large)
    percent = format_percent(idle.idle_percent)
    text = (
        f"{_subject(idle)} is idle for {percent}% of {whole_of(idle)}{averaged_over(idle)}; no cause takes "
        f"{ADVICE_PERCENT:.0f}% of it."
    )
    return (Finding("idle_none", "info", text),)


def _finding(idle: Idle, cause: Cause) -> Finding:
    percent = idle.percent(cause)
    text = (
        f"{_subject(idle)} {_TEXTS[cause]}: {format_percent(percent)}% of {whole_of(idle)}{averaged_over(idle)} "
        f"(threshold {ADVICE_PERCENT:.0f}%)."
    )
    # One gap alone may be the start or the end of the capture, which no change of the program shortens.
    is_grave = percent >= PROBLEM_PERCENT and not idle.without_steps and cause != "unknown"
    return Finding(f"idle_{cause}", "problem" if is_grave else "hint", text, _ACTIONS[cause])


def _subject(idle: Idle) -> str:
    """Return which device a sentence is about: its name where it is the only one of several that counts."""
    if len(idle.listed) == 1 or len(idle.averaged) > 1:
        return "The device"
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
