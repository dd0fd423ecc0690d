"""The values that a node has, by tfprof's names, and their order in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from tfperf.base.errors import TfperfError

Attribute = Literal[
    "bytes",
    "peak_bytes",
    "residual_bytes",
    "output_bytes",
    "micros",
    "accelerator_micros",
    "cpu_micros",
    "params",
    "float_ops",
    "runs",
    "definitions",
]
ATTRIBUTES: tuple[Attribute, ...] = get_args(Attribute)
PLACE: Mapping[str, int] = {attribute: place for place, attribute in enumerate(ATTRIBUTES)}
MEASURES = ATTRIBUTES[: PLACE["runs"]]
"""Those that can be selected and sorted by, and have a least value (`min_bytes`)."""
TRAINABLE = "_trainable_variables"
"""The type that the log gives to variables that are trained."""


class OptionError(TfperfError, ValueError):
    """What is asked of tfprof means nothing, or its model does not have it: an option, a step, an output of a view."""
