"""What Python calls: tf.functions, and ops that it runs eagerly beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from tfperf.sections.functions.calls import FunctionStats, count_calls, sum_calls
from tfperf.sections.functions.eager import EagerOps, find_eager_ops, sum_eager_ops
from tfperf.sections.host import Host
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

_MODES = {"traced": "traced", "not_traced": "notTraced", "eager": "eager", "concrete": "concrete"}
"""Modes of calls: as columns name them, and as traces do."""


class Functions(Struct, frozen=True):
    """The tf.functions that were called, the one with the largest self time first, and the ops run eagerly."""

    functions: tuple[FunctionStats, ...]
    eager: EagerOps

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per function, times in milliseconds; that of eager ops is `eager.table`."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, list[object]]:
        """Return the columns of `table` without pandas."""
        rows = self.functions
        return {
            "function": [row.name for row in rows],
            "calls": [row.call_count for row in rows],
            **{f"{key}_calls": [row.calls.get(mode, 0) for row in rows] for key, mode in _MODES.items()},
            "tracing_count": [row.tracing_count for row in rows],
            "compiler": ["XLA" if row.is_compiled else "" for row in rows],
            "self_ms": [row.total_self_ps / PS_PER_MS for row in rows],
            "expensive_call_percent": [row.expensive_percent for row in rows],
        }


def analyze(host: Host) -> Functions:
    """Sum the calls of tf.functions and the ops that Python ran eagerly."""
    return Functions(count_calls(host.trace), find_eager_ops(host.trace, host["steps"].steps))


def combine(parts: list[Functions]) -> Functions:
    """Add up what several hosts called."""
    calls = sum_calls(function for part in parts for function in part.functions)
    return Functions(calls, sum_eager_ops([part.eager for part in parts]))
