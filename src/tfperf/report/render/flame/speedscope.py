"""Flame graphs as a file for speedscope: a profile for each, of samples with weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tfperf.base import __version__
from tfperf.base.units import Unit
from tfperf.report.flame_tree import FlameTree
from tfperf.report.render.flame.stacks import Flame, stack_rows, whole_numbers
from tfperf.report.render.values import COMMAND_MARK, encodable

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS: Mapping[Unit, str] = {"ms": "nanoseconds", "bytes": "bytes"}
_NANOSECONDS = 1_000_000
"""In a millisecond."""


def speedscope_text(flames: Sequence[Flame], title: str, other_title: str = "") -> str:
    """Return the file; of a comparison, the profile of the other run follows each."""
    frames: dict[str, int] = {}
    profiles = []
    for flame in flames:
        profiles.append(_profile(flame, flame.tree, flame.title, frames))
        if flame.other is not None:
            profiles.append(_profile(flame, flame.other, f"{flame.title} ({other_title})", frames))
    document = {
        "$schema": SCHEMA,
        "name": encodable(title),
        "exporter": f"tfperf@{__version__}",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
    }
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return COMMAND_MARK.sub("\\\\u0023#", text) + "\n"


def _profile(flame: Flame, tree: FlameTree, name: str, frames: dict[str, int]) -> dict[str, Any]:
    rows = stack_rows(flame.name, tree)
    divisor = max(flame.scale.divisor // _NANOSECONDS, 1) if flame.scale.unit == "ms" else flame.scale.divisor
    weights = whole_numbers([row.own for row in rows], divisor)
    return {
        "type": "sampled",
        "name": encodable(name),
        "unit": _UNITS.get(flame.scale.unit, "none"),
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [[frames.setdefault(frame, len(frames)) for frame in row.frames] for row in rows],
        "weights": weights,
    }
