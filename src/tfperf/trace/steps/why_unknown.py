"""Why a trace cannot show a category of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.trace.steps.categories import DEVICE_CATEGORIES, HOST_CATEGORIES

if TYPE_CHECKING:
    from tfperf.trace.steps.breakdown import Breakdown

NO_DEVICE = "no device recorded anything in this profile, so nothing is known about devices"
_NO_HOST = (
    "no host thread recorded anything in this profile, so nothing is known about what the host does: profile with host "
    "tracer level 2"
)
_NO_INPUT = (
    "the trace does not show where input comes from (no fetch from tf.data, no copy to a device), so its share is "
    "unknown, not 0: profile with host tracer level 2"
)

_NO_CATEGORIES = (
    "the TPU cores recorded no ops that say what they do (line XLA Ops, stat hlo_category): profile with device tracer "
    "level 1, or with another version of the runtime"
)
_NOT_OF_THE_HOST = "the steps are those of a TPU core, whose ops say nothing about the host"


def why_unknown(breakdown: Breakdown, category: str) -> str:
    """Say why a host's trace cannot show a category, or a part of input, and what to try."""
    hiding = next((flaw for flaw in breakdown.missing if category in flaw.hides), None)
    if hiding is not None:
        return f"{hiding.text}: {hiding.fix}"
    if not breakdown.has_device and category in (*DEVICE_CATEGORIES, "host_to_device"):
        return NO_DEVICE
    if breakdown.on_tpu and "device_compute" in breakdown.unknown and category not in HOST_CATEGORIES:
        return _NO_CATEGORIES
    if breakdown.host_visible and category in ("input", "input_wait", "host_to_device"):
        return _NO_INPUT
    return _NOT_OF_THE_HOST if category in breakdown.unknown_somewhere else _NO_HOST


def why_devices_unknown(breakdown: Breakdown) -> str:
    """Say why what devices did is unknown although the job uses one; empty if it is known, or there is no device."""
    return why_unknown(breakdown, "device_compute") if lacks_devices(breakdown) else ""


def lacks_devices(breakdown: Breakdown) -> bool:
    """Tell whether events of devices that the job uses are missing."""
    return any("device_compute" in flaw.hides for flaw in breakdown.missing)
