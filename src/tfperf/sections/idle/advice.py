"""What devices wait for, in words, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.report.model import Finding
from tfperf.sections.idle.tables import Cause
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
    text = f"The device is idle for {percent}% of {whole_of(idle)}; no cause takes {ADVICE_PERCENT:.0f}% of it."
    return (Finding("idle_none", "info", text),)


def _finding(idle: Idle, cause: Cause) -> Finding:
    percent = idle.percent(cause)
    average = ", averaged over devices" if len(idle.averaged) > 1 else ""
    text = (
        f"The device {_TEXTS[cause]}: {format_percent(percent)}% of {whole_of(idle)}{average} (threshold "
        f"{ADVICE_PERCENT:.0f}%)."
    )
    # One gap alone may be the start or the end of the capture, which no change of the program shortens.
    is_grave = percent >= PROBLEM_PERCENT and not idle.without_steps and cause != "unknown"
    return Finding(f"idle_{cause}", "problem" if is_grave else "hint", text, _ACTIONS[cause])


def whole_of(idle: Idle) -> str:
    """Return what shares of idle time are of, in words."""
    return "the capture" if idle.without_steps else "the step time"
