"""Limits with a name of their own: options of `tfperf check`, and keys of a file.

The command line needs them for its help, so this imports next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tfperf.gate.figures import FIGURES

if TYPE_CHECKING:
    from tfperf.gate.model import Relation
    from tfperf.units import Unit


class NamedLimit(NamedTuple):
    """A limit with a name of its own, which is an option and a key of a file."""

    figure: str
    relation: Relation
    help: str

    @property
    def title(self) -> str:
        """Return what is measured, in words."""
        return FIGURES[self.figure].title

    @property
    def unit(self) -> Unit:
        """Return the unit of the bound."""
        return FIGURES[self.figure].unit

    @property
    def example(self) -> str:
        """Return a bound as one may write it."""
        from tfperf.gate.bounds import EXAMPLES

        return EXAMPLES[self.unit]


NAMED: Mapping[str, NamedLimit] = {
    "max-input-bound": NamedLimit("input_bound", "<=", "Most of the step time that may go to input: 10%."),
    "max-step-time": NamedLimit("step_time", "<=", "Longest step time, of --stat: 50ms."),
    "max-kernel-launch": NamedLimit("kernel_launch", "<=", "Most of the step time that may go to launching kernels."),
    "max-all-others": NamedLimit("all_others", "<=", "Most of the step time that may be in no category: Python, I/O."),
    "min-device-busy": NamedLimit("device_busy", ">=", "Least of the step time that the least busy device must work."),
    "max-memory": NamedLimit("memory", "<=", "Most bytes in use in the fullest allocator: 10GiB."),
    "max-retraces": NamedLimit("retraces", "<=", "Most calls that may trace a tf.function again: 0."),
    "max-skew": NamedLimit("skew", "<=", "How much slower than the median of hosts the slowest may be: 5%."),
}
"""Option without its dashes -> what it limits."""
