"""What was written to a timeline file and what was not: the figures, and the sentences about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from tfperf.timeline.host_timeline import HostTimeline


class ExportResult(Struct, kw_only=True):
    """What is in a timeline file. `omitted` counts by reason the `events` of the profile that are not in it.

    `cut_arrows` are not there because one of their ends is not; `backward_arrows` are drawn from target to source,
    because the target starts before the source.
    """

    path: Path
    size_bytes: int = 0
    events: int = 0
    shown: int = 0
    steps: int = 0
    tracks: int = 0
    counters: int = 0
    arrows: int = 0
    cut_arrows: int = 0
    backward_arrows: int = 0
    omitted: Counter[str] = field(default_factory=Counter)
    warnings: tuple[str, ...] = ()

    def add(self, timeline: HostTimeline, *, steps: int, warnings: tuple[str, ...]) -> None:
        """Add what is shown of a host, with how many steps and what its profiler warned of."""
        self.events += timeline.events
        self.steps += steps
        self.shown += sum(len(group.start_ps) for group in timeline.groups) - steps
        self.tracks += sum(len(group.tracks) for group in timeline.groups)
        self.counters += sum(len(group.counters) for group in timeline.groups)
        self.arrows += timeline.arrows
        self.cut_arrows += timeline.cut_arrows
        self.backward_arrows += timeline.backward_arrows
        self.omitted.update(timeline.omitted)
        self.warnings += warnings

    def sentences(self) -> Iterator[str]:
        """Iterate over what to tell the user about the file."""
        parts = [_counted(self.tracks, "track"), _counted(self.shown, "event")]
        parts += [_counted(self.steps, "step"), _counted(self.arrows, "arrow")]
        if self.counters:
            parts.append(_counted(self.counters, "counter"))
        yield f"wrote {self.path} ({self.size_bytes / 1e6:,.1f} MB): {', '.join(parts)}"
        for reason, count in self.omitted.items():
            yield f"omitted {count:,} of {self.events:,} events: {reason}"
        if self.cut_arrows:
            yield f"omitted {_counted(self.cut_arrows, 'arrow')}: an event at one end is omitted"
        if self.backward_arrows:
            yield f"reversed {_counted(self.backward_arrows, 'arrow')}: the target starts before the source"
        if not self.events:
            yield "the profile contains no events"
        for warning in dict.fromkeys(self.warnings):
            yield f"warning of the profiler: {warning}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
