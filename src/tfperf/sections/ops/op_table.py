"""The table of ops of one side, how it comes about, and how the tables of several hosts are added up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.analysis.registry import TableSpec
from tfperf.analysis.tabular import Tabular, declared
from tfperf.base.arrays import MOST, Bools, Int64s, capped_sums, group_equal
from tfperf.base.patterns import Pattern
from tfperf.base.units import PS_PER_MS
from tfperf.report.model import Data
from tfperf.trace.host.host_ops import EAGER, FUNCTION, UNKNOWN, Flags

Side = Literal["device", "host"]
_EXECUTION_NAMES = {EAGER: "eager", FUNCTION: "function", UNKNOWN: None}
_SUMS = ("occurrences", "total_ps", "self_ps", "kernel_ps", "tensor_core_ps", "unclear_ps")
_BY_OP = (*_SUMS, "execution", "counts_kernels")


class OpKey(NamedTuple):
    """What makes a row: the framework's op, and the HLO op if XLA compiled it (else empty)."""

    name: str
    type: str
    hlo_op: str = ""
    hlo_module: str = ""


OTHERS = OpKey("(other ops)", "(other ops)")


class Tally(Struct, kw_only=True):
    """What the events of one op add up to; the fields are those of `OpTable`."""

    occurrences: int = 0
    total_ps: int = 0
    self_ps: int = 0
    kernel_ps: int = 0
    tensor_core_ps: int = 0
    unclear_ps: int = 0
    counts_kernels: bool = False
    execution: int | None = None
    """None: nothing was added yet."""

    def add(self, other: Tally) -> None:
        """Add up; eager once is eager, and a function is only what always is one."""
        self.occurrences += other.occurrences
        self.total_ps += other.total_ps
        self.self_ps += other.self_ps
        self.kernel_ps += other.kernel_ps
        self.tensor_core_ps += other.tensor_core_ps
        self.unclear_ps += other.unclear_ps
        self.counts_kernels |= other.counts_kernels
        flags = [flag for flag in (self.execution, other.execution) if flag is not None]
        self.execution = EAGER if EAGER in flags else min(flags, default=UNKNOWN)


class Tallies(Struct):
    """Ops by key while they are added up."""

    rows: dict[OpKey, Tally] = field(default_factory=dict)

    def add(self, key: OpKey, tally: Tally, *, at_least: int = 0) -> None:
        """Add to the row of an op, which occurs `at_least` so often."""
        row = self.rows.setdefault(key, Tally())
        row.add(tally)
        row.occurrences = max(row.occurrences, at_least)

    def table(self, side: Side, *, idle_ps: int | None, time_ps: int | None, places: int) -> OpTable:
        """Return the rows in order: the largest self time first, then by name."""
        ordered = sorted(self.rows.items(), key=lambda row: (-row[1].self_ps, *row[0]))
        sums: dict[str, Any] = {
            name: np.array([min(getattr(tally, name), MOST) for _, tally in ordered], np.int64) for name in _SUMS
        }
        flags = [UNKNOWN if tally.execution is None else tally.execution for _, tally in ordered]
        return OpTable(
            side=side,
            keys=tuple(key for key, _ in ordered),
            execution=np.array(flags, np.int8),
            counts_kernels=np.array([tally.counts_kernels for _, tally in ordered], np.bool_),
            idle_ps=idle_ps,
            time_ps=time_ps,
            places=places,
            **sums,
        )


class OpTable(Tabular, frozen=True, kw_only=True):
    """Ops of one side, the one with the largest self time first; times are int64 picoseconds.

    `kernel_ps` is the time of kernels, `tensor_core_ps` of those on tensor cores, `unclear_ps` of those whose names do
    not tell. `execution` holds flags as `trace/host_ops.py` defines them. `counts_kernels` marks ops whose runs the
    trace does not show, so that `occurrences` is of their kernels and copies. `idle_ps` is the time in which no op ran,
    `time_ps` what shares with idle are of, and `places` the number of devices (threads) that both are summed over;
    None is unknown.
    """

    side: Side
    keys: tuple[OpKey, ...]
    occurrences: Int64s
    total_ps: Int64s
    self_ps: Int64s
    kernel_ps: Int64s
    tensor_core_ps: Int64s
    unclear_ps: Int64s
    execution: Flags
    counts_kernels: Bools
    idle_ps: int | None
    time_ps: int | None
    places: int
    lacking_ps: int = 0
    """What the self time of an op may lack at most, since hosts with many ops added up their last ones in one row."""

    def _spec(self) -> TableSpec:
        return declared("ops", f"{self.side}_ops")

    def _data(self) -> Data:
        return self.columns()

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
    def idle_share(self) -> float | None:
        """Return the share of `time_ps` in which no op ran."""
        return self.idle_ps / self.time_ps if self.idle_ps is not None and self.time_ps else None

    def matching(self, patterns: Sequence[Pattern]) -> Bools:
        """Tell which ops any pattern is found in: in the name, the type or the HLO op; without patterns, all are."""
        if not patterns:
            return np.ones(len(self), np.bool_)
        texts = [text for key in self.keys for text in (key.name, key.type, key.hlo_op)]
        found = np.logical_or.reduce([pattern.found_in(texts) for pattern in patterns])
        return np.asarray(found.reshape(-1, 3).any(axis=1), np.bool_)

    @property
    def all_self_ps(self) -> float:
        """Return the self time of all ops; a float, since it may be beyond int64."""
        return float(self.self_ps.sum(dtype=np.float64))

    def only(self, rows: Int64s) -> OpTable:
        """Return the table with the ops at `rows` alone; what is about all of them stays."""
        columns = {name: getattr(self, name)[rows] for name in _BY_OP}
        return replace(self, keys=tuple(self.keys[row] for row in rows.tolist()), **columns)

    def under(self, keys: Sequence[OpKey]) -> OpTable:
        """Return the table with each op under the key given for it; the ops of one key are added up.

        Eager once is eager, and a function is only what always is one.
        """
        places: dict[OpKey, int] = {}
        place_of = np.array([places.setdefault(key, len(places)) for key in keys], np.int64)
        order, starts = group_equal([place_of])
        if not len(order):
            return self
        ordered = {name: getattr(self, name)[order] for name in _BY_OP}
        flags = ordered["execution"]
        is_eager = np.maximum.reduceat(flags, starts) == EAGER
        columns: dict[str, Any] = {
            **{name: capped_sums(ordered[name], starts) for name in _SUMS},
            "execution": np.where(is_eager, np.int8(EAGER), np.minimum.reduceat(flags, starts)),
            "counts_kernels": np.logical_or.reduceat(ordered["counts_kernels"], starts),
        }
        return replace(self, keys=tuple(places), **columns).only(_in_order(tuple(places), columns["self_ps"]))

    def columns(self, keep: Bools | None = None, *, whole_ps: float | None = None) -> dict[str, list[object]]:
        """Return one row per op, times in milliseconds; None is unknown.

        `keep` (one entry per op) leaves rows out; ranks and shares stay those among all ops. `whole_ps` is what shares
        are of, if it is more than the self time of these ops.
        """
        share = 100 * (self.self_ps / max(self.all_self_ps if whole_ps is None else whole_ps, 1.0))
        count = np.maximum(self.occurrences, 1)
        tensor_cores = zip(self.tensor_core_ps.tolist(), self.kernel_ps.tolist(), self.unclear_ps.tolist(), strict=True)
        columns: dict[str, list[object]] = {
            "rank": list(range(1, len(self) + 1)),
            "op_name": list(self.names),
            "op_type": list(self.types),
            "occurrences": self.occurrences.tolist(),
            "count_of": ["kernels" if kernels else "runs" for kernels in self.counts_kernels.tolist()],
            "total_ms": (self.total_ps / PS_PER_MS).tolist(),
            "average_ms": (self.total_ps / count / PS_PER_MS).tolist(),
            "self_ms": (self.self_ps / PS_PER_MS).tolist(),
            "average_self_ms": (self.self_ps / count / PS_PER_MS).tolist(),
            "device_mean_ms": (self.self_ps / max(self.places, 1) / PS_PER_MS).tolist(),
            "self_percent": share.tolist(),
            "cumulative_self_percent": np.cumsum(share).tolist(),
            "self_with_idle_percent": percent_of(self.self_ps, self.time_ps),
            "execution": [_EXECUTION_NAMES[flag] for flag in self.execution.tolist()],
            # None: no kernels, or their names do not tell.
            "tensor_core_percent": [
                100 * (used / whole) if whole and not unclear else None for used, whole, unclear in tensor_cores
            ],
            "hlo_op": [key.hlo_op or None for key in self.keys],
            "hlo_module": [key.hlo_module or None for key in self.keys],
        }
        if keep is None or keep.all():
            return columns
        rows = np.flatnonzero(keep).tolist()
        return {key: [values[row] for row in rows] for key, values in columns.items()}


def percent_of(self_ps: Int64s, time_ps: int | None) -> list[object]:
    """Return times in percent of a whole; None if that is unknown, or 0."""
    return (100.0 * self_ps / float(time_ps)).tolist() if time_ps else [None] * len(self_ps)


def merge(tables: list[OpTable]) -> OpTable:
    """Add up the tables of several hosts, all of one side: equal ops, idle time, and the time that shares are of."""
    if len(tables) == 1:
        return tables[0]
    together = replace(
        tables[0],
        keys=tuple(chain.from_iterable(table.keys for table in tables)),
        idle_ps=_sum_if_known([table.idle_ps for table in tables]),
        time_ps=_sum_if_known([table.time_ps for table in tables]),
        places=sum(table.places for table in tables),
        lacking_ps=sum(table.lacking_ps for table in tables),
        **{name: np.concatenate([getattr(table, name) for table in tables]) for name in _BY_OP},
    )
    return together.under(together.keys)


def cut(table: OpTable, most: int) -> OpTable:
    """Return the table with its first `most` ops, and one row (`OTHERS`) for all others; as it is if it has no more."""
    if len(table) <= most:
        return table
    keys = (*table.keys[:most], *[OTHERS] * (len(table) - most))
    return replace(table.under(keys), lacking_ps=table.lacking_ps + int(table.self_ps[most]))


def _in_order(keys: Sequence[OpKey], self_ps: Int64s) -> Int64s:
    """Return the rows of ops in their order: the largest self time first, then by name."""
    times = self_ps.tolist()
    return np.array(sorted(range(len(keys)), key=lambda row: (-times[row], *keys[row])), np.int64)


def _sum_if_known(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
