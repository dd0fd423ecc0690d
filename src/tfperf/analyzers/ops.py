"""Time per op: on the device, and on host threads.

Host ops nest on their thread, so self time excludes the ops inside. Kernels on a GPU stream do not nest: total and
self time are the same. Times are summed over parallel threads, streams and devices; they are shares of op time, not
of wall time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from tfperf.intervals import Int64s
from tfperf.trace.activities import Activity, Attribution, device_codes
from tfperf.trace.groups import stored_groups
from tfperf.trace.host_ops import HostOps, host_ops
from tfperf.trace.model import NO_EVENTS, HostTrace
from tfperf.trace.names import Op, parse_op
from tfperf.trace.nesting import nest, self_time
from tfperf.trace.timeline import OP_LINES
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

Side = Literal["device", "host"]
_MOST = int(np.iinfo(np.int64).max)
_COPY_TYPES = {
    Activity.HOST_TO_DEVICE: "MemcpyH2D", Activity.DEVICE_TO_HOST: "MemcpyD2H", Activity.DEVICE_TO_DEVICE: "MemcpyD2D",
}  # fmt: skip


@dataclass(frozen=True)
class OpTable:
    """Ops of one side, the one with the largest self time first; times are int64 picoseconds."""

    side: Side
    names: tuple[str, ...]
    types: tuple[str, ...]
    occurrences: Int64s
    total_ps: Int64s
    self_ps: Int64s

    def __len__(self) -> int:
        """Return the number of ops."""
        return len(self.names)

    @property
    def share(self) -> npt.NDArray[np.float64]:
        """Return each op's part of all self time (0 to 1)."""
        return self.self_ps / max(float(self.self_ps.sum(dtype=np.float64)), 1.0)

    @property
    def table(self) -> pd.DataFrame:
        """Return one row per op, times in milliseconds."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, object]:
        """Return the columns of `table` without pandas."""
        share = 100 * self.share
        return {
            "rank": list(range(1, len(self) + 1)),
            "op_name": list(self.names),
            "op_type": list(self.types),
            "occurrences": self.occurrences.tolist(),
            "total_ms": (self.total_ps / PS_PER_MS).tolist(),
            "self_ms": (self.self_ps / PS_PER_MS).tolist(),
            "self_percent": share.tolist(),
            "cumulative_self_percent": np.cumsum(share).tolist(),
        }


@dataclass(frozen=True)
class Ops:
    """The op tables of a capture; `device` is None without a device."""

    device: OpTable | None
    host: OpTable


def analyze(trace: HostTrace, attribution: Attribution = "corrected", host: HostOps | None = None) -> Ops:
    """Sum time per op; `host` saves the search for the ops of host threads where that was done before."""
    return Ops(_device_ops(trace, attribution), _host_table(host or host_ops(trace, attribution)))


def combine(parts: list[Ops]) -> Ops:
    """Add up the op tables of several hosts."""
    devices = [part.device for part in parts if part.device is not None]
    return Ops(_merge("device", devices) if devices else None, _merge("host", [part.host for part in parts]))


def _merge(side: Side, tables: list[OpTable]) -> OpTable:
    if len(tables) == 1:
        return tables[0]
    rows: dict[Op, tuple[int, int, int]] = {}
    for table in tables:
        for name, kind, *numbers in zip(
            table.names, table.types, table.occurrences.tolist(), table.total_ps.tolist(), table.self_ps.tolist(),
            strict=True,
        ):  # fmt: skip
            _add(rows, Op("", name, kind), *numbers)
    return _sorted(side, rows)


def _add(rows: dict[Op, tuple[int, int, int]], op: Op, occurrences: int, total: int, own: int) -> None:
    before = rows.get(op, (0, 0, 0))
    rows[op] = before[0] + occurrences, before[1] + total, before[2] + own


def _sorted(side: Side, rows: dict[Op, tuple[int, int, int]]) -> OpTable:
    ordered = sorted(rows.items(), key=lambda row: (-row[1][2], row[0].name))
    numbers = np.array([[min(value, _MOST) for value in values] for _, values in ordered], np.int64).reshape(-1, 3)
    return OpTable(
        side, tuple(op.name for op, _ in ordered), tuple(op.type for op, _ in ordered),
        numbers[:, 0], numbers[:, 1], numbers[:, 2],
    )  # fmt: skip


def _host_table(host: HostOps) -> OpTable:
    merged: dict[Op, tuple[int, int, int]] = {}
    for index in np.flatnonzero(host.count).tolist():
        op = host.ops[index]
        _add(
            merged, Op("", op.name, op.type), int(host.count[index]), int(host.total_ps[index]),
            int(host.self_ps[index]),
        )  # fmt: skip
    return _sorted("host", merged)


def _device_ops(trace: HostTrace, attribution: Attribution) -> OpTable | None:
    if trace.device_kind == "tpu":
        return _tpu_ops(trace)
    if trace.device_kind == "gpu":
        return _gpu_ops(trace, attribution)
    return None


def _gpu_ops(trace: HostTrace, attribution: Attribution) -> OpTable:
    """Sum kernels by the op that launched them; an op occurs as often as the kernel that it launches most often."""
    lines = [line for plane in trace.devices for line in trace.device_lines(plane)]
    rows = np.concatenate([NO_EVENTS, *(np.arange(line.start, line.stop) for line in lines)])
    rows = rows[trace.duration_ps[rows] > 0]
    texts, annotation = _annotations(trace)
    pairs, which = np.unique(np.stack((annotation[rows], trace.name[rows])), axis=1, return_inverse=True)
    which = which.reshape(-1)
    count = np.bincount(which)
    time = np.bincount(which, weights=trace.duration_ps[rows])
    old = attribution == "tensorflow" and stored_groups(trace) is not None
    codes = device_codes(trace, attribution)
    first_row = rows[np.unique(which, return_index=True)[1]]
    merged: dict[Op, tuple[int, int, int]] = {}
    for index, (text, name) in enumerate(pairs.T.tolist()):
        if text >= 0:
            op = parse_op(texts[text], old_names=old)
            op = Op("", op.name, op.type or ("Unknown" if attribution == "tensorflow" else "HLO op"))
        elif attribution == "tensorflow":
            continue
        else:
            copied = _COPY_TYPES.get(Activity(int(codes[first_row[index]])))
            op = Op("", trace.names[name], copied or "kernel without op")
        before = merged.get(op, (0, 0, 0))
        duration = before[1] + int(time[index])
        merged[op] = max(before[0], int(count[index])), duration, duration
    return _sorted("device", merged)


def _annotations(trace: HostTrace) -> tuple[list[str], Int64s]:
    """Return texts, and for each event which of them names its op (-1: none).

    Old files spell the stat `level 0`. XLA names a whole module where it knows no more; then the HLO op says more.
    """
    known: dict[str, int] = {}
    index = np.full(len(trace.name), -1, np.int64)
    for stat_name in ("hlo_op", "level 0", "tf_op"):
        stat = trace.stat(stat_name)
        telling = [bool(text) and not text.startswith("XlaModule:") for text in stat.texts]
        own = np.array(
            [
                known.setdefault(text, len(known)) if tells else -1
                for text, tells in zip(stat.texts, telling, strict=True)
            ],
            np.int64,
        )
        if len(own):
            told = own[stat.value]
            index[stat.event[told >= 0]] = told[told >= 0]
    return list(known), index


def _tpu_ops(trace: HostTrace) -> OpTable:
    """Sum the op line of each core; ops nest (a while loop contains its body)."""
    category = trace.name_stats.get("hlo_category", {})
    merged: dict[Op, tuple[int, int, int]] = {}
    for line in trace.lines:
        if line.plane not in trace.devices or line.name not in OP_LINES or line.stop == line.start:
            continue
        rows = slice(line.start, line.stop)
        own = self_time(trace.duration_ps[rows], nest(trace.begin_ps[rows], trace.end_ps[rows]).parent)
        names, which = np.unique(trace.name[rows], return_inverse=True)
        count, total, self_sum = (
            np.bincount(which, weights=values) for values in (None, trace.duration_ps[rows], own)
        )  # fmt: skip
        for position, name in enumerate(names.tolist()):
            shown = trace.display_names[name] or trace.names[name]
            op = Op("", shown, str(category.get(name, "")))
            _add(merged, op, int(count[position]), int(total[position]), int(self_sum[position]))
    return _sorted("device", merged)
