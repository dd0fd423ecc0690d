"""All rules. Help, `tfperf explain`, docs/lint.md and reports read this."""

from __future__ import annotations

from collections.abc import Mapping

from tfperf.models.linter.gpu_catalogue import GPU_RULES
from tfperf.models.linter.rule import Device, Rule
from tfperf.models.linter.tpu_catalogue import TPU_RULES

RULES: Mapping[str, Rule] = {rule.id: rule for rule in (*TPU_RULES, *GPU_RULES)}
"""By their ids, in the order of the documentation."""


def rules_of(device: Device) -> list[str]:
    """Return the ids of the rules of a device."""
    return [id for id, rule in RULES.items() if rule.device == device]
