"""What was written, and what was not, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from tfperf.timeline.export import Exported


def sentences(exported: Exported) -> Iterator[str]:
    """Iterate over what to tell about a file that was written."""
    parts = [
        _counted(exported.tracks, "track"), _counted(exported.shown, "event"), _counted(exported.steps, "step"),
        _counted(exported.arrows, "arrow"),
    ]  # fmt: skip
    if exported.counters:
        parts.append(_counted(exported.counters, "counter"))
    yield f"wrote {exported.path} ({exported.size_bytes / 1e6:,.1f} MB): {', '.join(parts)}"
    for reason, count in exported.left_out.items():
        yield f"left out {count:,} of {exported.events:,} events: {reason}"
    if exported.cut_arrows:
        yield f"left out {_counted(exported.cut_arrows, 'arrow')}: an end of each is left out"
    if exported.backwards:
        yield f"{_counted(exported.backwards, 'arrow')} drawn backwards: the target begins before its source"
    if not exported.events:
        yield "the profile holds no events"
    for warning in dict.fromkeys(exported.warnings):
        yield f"the profiler warned: {warning}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
