"""The named figures that limits are on: what each is called, its unit, and what sets a bound apart from a slip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tfperf.units import Unit


class Figure(NamedTuple):
    """A figure that a limit can name without a table."""

    title: str
    unit: Unit
    meaning: str
    needs_steps: bool = True
    """Whether it rests on averaged steps."""
    is_share: bool = False
    """Whether it is at most 100 %."""
    functions: tuple[str, ...] = ()
    """What can be taken of it, as in `p95(step_time)`."""


FIGURES: Mapping[str, Figure] = {
    "input_bound": Figure(
        "Input-bound", "%", "share of the step time that goes to input: waiting for tf.data, and copying batches in",
        is_share=True,
    ),
    "step_time": Figure("Step time", "ms", "step time: the mean unless --stat or a function says otherwise",
                        functions=("mean", "median", "p95", "max", "min")),
    "kernel_launch": Figure("Kernel launch", "%", "share of the step time that goes to launching kernels",
                            is_share=True),
    "all_others": Figure("All others", "%", "share of the step time that is in no category: Python, I/O, idle",
                         is_share=True),
    "device_busy": Figure("Device busy", "%", "share of the step time in which the least busy device works",
                          is_share=True),
    "memory": Figure("Peak memory", "bytes", "most in use in the fullest allocator (of devices, if there are any)",
                     needs_steps=False),
    "retraces": Figure("Retraces", "count", "calls in the capture that traced a tf.function again, beyond its first "
                       "tracing", needs_steps=False),
    "skew": Figure("Skew", "%", "step time of the slowest host / median of the hosts - 1"),
}  # fmt: skip
REGRESSION = "regression"
"""The name of the metric that compares with a baseline; it is no figure of one profile."""
REGRESSION_TITLE = "Regression"
