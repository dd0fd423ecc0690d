"""What each device waits for in a step: its gaps, each by the cause that takes most of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from tfperf.analysis.results import Host
from tfperf.base.arrays import Int64s
from tfperf.base.units import format_ms
from tfperf.sections.idle.analysis import CAUSE_TEXTS, CAUSES, Windows, gaps_of
from tfperf.sections.timeline.window import Window
from tfperf.trace.device.device_time import device_label

_SPLITS = 2_000
"""Gaps of which the split is told, the longest."""


class IdleGaps(Struct, frozen=True, kw_only=True):
    """The gaps of one device; `cause` is an index into `causes`, and `splits` say how several share a gap."""

    device: str
    start_ps: Int64s
    end_ps: Int64s
    cause: Int64s
    causes: tuple[str, ...]
    splits: tuple[str, ...]


def idle_gaps(host: Host, window: Window) -> Iterator[IdleGaps]:
    """Yield the gaps of each device that recorded work."""
    edges = np.array([window.start_ps], np.int64), np.array([window.end_ps], np.int64)
    windows = Windows(*edges, np.ones(1, np.bool_))
    for device in host.device_times:
        if not len(device.busy.start):
            continue
        gaps = gaps_of(host.trace, device, windows, host.launch_links, host.host_states)
        order = np.argsort(gaps.start_ps, kind="stable")
        gaps = gaps.only(order)
        told = set(np.argsort(-gaps.duration_ps, kind="stable")[:_SPLITS].tolist())
        shared = (gaps.time_ps > 0).sum(axis=0) > 1
        yield IdleGaps(
            device=device_label(device.name),
            start_ps=gaps.start_ps,
            end_ps=gaps.end_ps,
            cause=gaps.time_ps.argmax(axis=0),
            causes=tuple(CAUSE_TEXTS[cause].title for cause in CAUSES),
            splits=tuple(
                _split(gaps.time_ps[:, gap]) if is_shared and gap in told else ""
                for gap, is_shared in enumerate(shared.tolist())
            ),
        )


def _split(time_ps: Int64s) -> str:
    """Return how the causes share a gap, the largest first."""
    order = np.argsort(-time_ps, kind="stable")
    parts = (f"{CAUSE_TEXTS[CAUSES[i]].title} {format_ms(int(time_ps[i]) / 1e9)} ms" for i in order if time_ps[i])
    return ", ".join(parts)
