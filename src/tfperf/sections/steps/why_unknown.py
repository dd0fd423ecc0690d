"""Why a trace cannot show a category of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.sections.steps.section import DEVICE_CATEGORIES

if TYPE_CHECKING:
    from tfperf.sections.steps.breakdown import Breakdown

NO_DEVICE = "no device recorded anything in this profile, so nothing is known about devices"
_NO_HOST = (
    "no host thread recorded anything in this profile, so nothing is known about what the host does: profile with host "
    "tracer level 2"
)
_NO_INPUT = (
    "the trace does not show where input comes from (no fetch from tf.data, no copy to a device), so its share is "
    "unknown, not 0: profile with host tracer level 2"
)


def why_unknown(breakdown: Breakdown, category: str) -> str:
    """Say why a host's trace cannot show a category, or a part of input, and what to try."""
    if not breakdown.has_device and category in (*DEVICE_CATEGORIES, "host_to_device"):
        return NO_DEVICE
    if breakdown.host_visible and category in ("input", "input_wait", "host_to_device"):
        return _NO_INPUT
    if breakdown.steps.source == "device steps":
        return "the steps are those of a TPU core, whose ops say nothing about the host"
    return _NO_HOST
