"""The table of ops of one side, and how such tables come about and are added up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tfperf.arrays import Int64s
from tfperf.trace.host_ops import EAGER, FUNCTION, UNKNOWN, Flags
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

Side = Literal["device", "host"]
_MOST = int(np.iinfo(np.int64).max)
_EXECUTION = {EAGER: "eager", FUNCTION: "function", UNKNOWN: None}


class OpKey(NamedTuple):
    """What makes a row: the framework's op, and the HLO op where XLA compiled it (else empty)."""

    name: str
    type: str
    hlo_op: str = ""
    hlo_module: str = ""


@dataclass
class Tally:
    """What the events of one op add up to; times in picoseconds."""

    occurrences: int = 0
    total_ps: int = 0
    self_ps: int = 0
    kernel_ps: int = 0
    tensor_core_ps: int = 0
    unclear_ps: int = 0
    eager: int | None = None
    """None: nothing was added yet."""

    def add(self, other: Tally) -> None:
        """Add up; eager once is eager, and a function is only what always is one."""
        self.occurrences += other.occurrences
        self.total_ps += other.total_ps
        self.self_ps += other.self_ps
        self.kernel_ps += other.kernel_ps
        self.tensor_core_ps += other.tensor_core_ps
        self.unclear_ps += other.unclear_ps
        flags = [flag for flag in (self.eager, other.eager) if flag is not None]
        self.eager = EAGER if EAGER in flags else min(flags, default=UNKNOWN)


@dataclass
class Tallies:
    """Ops by key while they are added up."""

    rows: dict[OpKey, Tally] = field(default_factory=dict)

    def add(self, key: OpKey, tally: Tally) -> Tally:
        """Add to the row of the op, and return the row."""
        row = self.rows.setdefault(key, Tally())
        row.add(tally)
        return row

    def table(self, side: Side, idle_ps: int | None, time_ps: int | None, places: int) -> OpTable:
        """Return the rows in order: the largest self time first, then by name."""
        ordered = sorted(self.rows.items(), key=lambda row: (-row[1].self_ps, *row[0]))
        numbers = np.array([[min(value, _MOST) for value in _numbers(row)] for _, row in ordered], np.int64)
        count, total, own, kernels, cores, unclear = numbers.reshape(-1, 6).T
        eager = np.array([UNKNOWN if row.eager is None else row.eager for _, row in ordered], np.int8)
        return OpTable(
            side, tuple(key for key, _ in ordered), count, total, own, kernels, cores, unclear, eager, idle_ps, time_ps,
            places,
        )  # fmt: skip


def _numbers(row: Tally) -> tuple[int, ...]:
    return row.occurrences, row.total_ps, row.self_ps, row.kernel_ps, row.tensor_core_ps, row.unclear_ps


@dataclass(frozen=True)
class OpTable:
    """Ops of one side, the one with the largest self time first; times are int64 picoseconds.

    `kernel_ps` is the time of kernels, `tensor_core_ps` of those on tensor cores, `unclear_ps` of those whose names do
    not tell. `eager` holds flags as `trace/host_ops.py` defines them. `idle_ps` is the time in which no op ran,
    `time_ps` what shares with idle are of, and `places` on how many devices (threads) that is summed; None: not known.
    """

    side: Side
    keys: tuple[OpKey, ...]
    occurrences: Int64s
    total_ps: Int64s
    self_ps: Int64s
    kernel_ps: Int64s
    tensor_core_ps: Int64s
    unclear_ps: Int64s
    eager: Flags
    idle_ps: int | None
    time_ps: int | None
    places: int

    def __len__(self) -> int:
        """Return the number of ops."""
        return len(self.keys)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the ops, as the framework has them."""
        return tuple(key.name for key in self.keys)

    @property
    def types(self) -> tuple[str, ...]:
        """Return the types of the ops."""
        return tuple(key.type for key in self.keys)

    @property
    def share(self) -> npt.NDArray[np.float64]:
        """Return self time as a share of the self time of all ops of this side."""
        return self.self_ps / max(float(self.self_ps.sum(dtype=np.float64)), 1.0)

    @property
    def idle_share(self) -> float | None:
        """Return the share of `time_ps` in which no op ran."""
        return self.idle_ps / self.time_ps if self.idle_ps is not None and self.time_ps else None

    @property
    def tensor_core_share(self) -> list[float | None]:
        """Return for each op the share of its kernels' time on tensor cores; None: no kernels, or names do not tell."""
        rows = zip(self.tensor_core_ps.tolist(), self.kernel_ps.tolist(), self.unclear_ps.tolist(), strict=True)
        return [used / kernels if kernels and not unclear else None for used, kernels, unclear in rows]

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per op, times in milliseconds."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, list[object]]:
        """Return the columns of `table` without pandas; None stands for what is not known."""
        share, count = 100 * self.share, np.maximum(self.occurrences, 1)
        cores = self.tensor_core_share
        return {
            "rank": list(range(1, len(self) + 1)),
            "op_name": list(self.names),
            "op_type": list(self.types),
            "occurrences": self.occurrences.tolist(),
            "total_ms": (self.total_ps / PS_PER_MS).tolist(),
            "average_ms": (self.total_ps / count / PS_PER_MS).tolist(),
            "self_ms": (self.self_ps / PS_PER_MS).tolist(),
            "average_self_ms": (self.self_ps / count / PS_PER_MS).tolist(),
            "self_percent": share.tolist(),
            "cumulative_self_percent": np.cumsum(share).tolist(),
            "self_with_idle_percent": self.share_with_idle(self.self_ps),
            "execution": [_EXECUTION[flag] for flag in self.eager.tolist()],
            "tensor_core_percent": [None if used is None else 100 * used for used in cores],
            "hlo_op": [key.hlo_op or None for key in self.keys],
            "hlo_module": [key.hlo_module or None for key in self.keys],
        }

    def share_with_idle(self, own_ps: Int64s) -> list[object]:
        """Return times as percentages of `time_ps`; None where that is not known."""
        return (100.0 * own_ps / float(self.time_ps)).tolist() if self.time_ps else [None] * len(own_ps)


def merge(tables: list[OpTable]) -> OpTable:
    """Add up the tables of several hosts, all of one side: equal ops, idle time, and the time that shares are of."""
    if len(tables) == 1:
        return tables[0]
    sums = Tallies()
    for table in tables:
        columns = (table.occurrences, table.total_ps, table.self_ps, table.kernel_ps, table.tensor_core_ps)
        numbers = (column.tolist() for column in (*columns, table.unclear_ps, table.eager))
        for key, *row in zip(table.keys, *numbers, strict=True):
            sums.add(key, Tally(*row))
    idle, time = (_sum(values) for values in ((t.idle_ps for t in tables), (t.time_ps for t in tables)))
    return sums.table(tables[0].side, idle, time, sum(table.places for table in tables))


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum, not known if any part is not."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None
