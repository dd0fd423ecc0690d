"""Copies of GPUs by kind: how many bytes, how fast, from which memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfperf.arrays import MOST, Column, group_sums
from tfperf.trace.activities import Activity
from tfperf.trace.device_time import device_label
from tfperf.trace.device_work import DeviceWork, trace_texts
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.kernel_details import NO_COPY, CopyDetails, parse_copy


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of one kind on one device; bytes are of the `sized` copies, those whose size the trace tells."""

    host: str
    device: str
    kind: str
    """H2D, D2H, D2D, P2P, H2H, Memset, or Unknown."""
    count: int
    total_ps: int
    sized: int
    sized_bytes: int
    sized_ps: int
    pageable_ps: int
    """Time of copies from or to pageable memory of the host, as far as the trace tells."""
    pinned_ps: int

    @property
    def total_bytes(self) -> int | None:
        """Return the bytes of all copies; None if the size of any is not known."""
        return self.sized_bytes if self.sized == self.count else None

    @property
    def mean_bytes(self) -> float | None:
        """Return the mean size of those copies whose size is known."""
        return self.sized_bytes / self.sized if self.sized else None

    @property
    def gb_per_second(self) -> float | None:
        """Return the rate of those copies whose size is known, in 10^9 bytes per second of copying."""
        return 1000.0 * self.sized_bytes / self.sized_ps if self.sized_ps else None

    @property
    def memory(self) -> str | None:
        """Return which memory of the host took part, where the trace tells."""
        told = [kind for kind, time in (("pageable", self.pageable_ps), ("pinned", self.pinned_ps)) if time]
        return " and ".join(told) or None


_KINDS = {Activity.HOST_TO_DEVICE: "H2D", Activity.DEVICE_TO_HOST: "D2H", Activity.DEVICE_TO_DEVICE: "D2D"}
_COPY_ORDER = ("H2D", "D2H", "D2D", "P2P", "H2H", "Memset", "Unknown")


def copies_of(trace: HostTrace, work: DeviceWork) -> tuple[Copies, ...]:
    """Sum copies and fills per device and kind."""
    at = np.flatnonzero(work.moves)
    rows = work.rows[at]
    stats = ("memcpy_details", "memset_details")
    columns: list[Column] = [
        work.plane[at], trace.name[rows], work.activity[at].astype(np.int64),
        *(trace.number_at(stat, rows, -1) for stat in stats),
    ]  # fmt: skip
    texts = [trace_texts(trace, stat) for stat in stats]
    sums: dict[tuple[int, str], list[int]] = {}
    for (plane, name, code, copied, filled), numbers in group_sums(trace.duration_ps[rows], columns):
        text = texts[0][copied] or texts[1][filled]
        details = parse_copy(text) if text else NO_COPY
        own = sums.setdefault((plane, _copy_kind(trace.names[name], Activity(code), text)), [0] * 7)
        for place, value in enumerate(_copy_numbers(details, *numbers[:2])):
            own[place] = min(own[place] + value, MOST)
    ordered = sorted(sums.items(), key=lambda item: (item[0][0], _COPY_ORDER.index(item[0][1])))
    return tuple(
        Copies(trace.host, device_label(trace.planes[plane].name), kind, *numbers) for (plane, kind), numbers in ordered
    )


def _copy_numbers(details: CopyDetails, count: int, total: int) -> tuple[int, int, int, int, int, int, int]:
    """Return count, time, sized count, bytes and time, and the time with pageable and with pinned memory."""
    size, memory = details.size_bytes, (details.source, details.destination)
    sized = (count, count * size, total) if size is not None else (0, 0, 0)
    pageable = "pageable" in memory
    return count, total, *sized, total * pageable, total * ("pinned" in memory and not pageable)


def _copy_kind(name: str, activity: Activity, details: str) -> str:
    lowered = name.lower()
    if "memset" in lowered[:10]:
        return "Memset"
    if activity == Activity.DEVICE_TO_DEVICE and any(
        part in f"{lowered} {details.lower()}" for part in ("p2p", "ptop")
    ):
        return "P2P"
    return _KINDS.get(activity, "H2H" if "htoh" in lowered or "h2h" in lowered else "Unknown")
