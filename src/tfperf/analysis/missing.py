"""Hosts that a report is not about, though they were asked for."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tfperf.base.units import counted, listed

_NAMED = 3


class MissingHost(Struct, frozen=True):
    """A host of a run that could not be read, and why."""

    host: str
    reason: str


def missing_text(missing: Sequence[MissingHost], read_count: int) -> str:
    """Say which hosts are missing beside those that were read; empty if none is."""
    if not missing:
        return ""
    named = listed([f"{each.host} ({each.reason})" for each in missing], _NAMED)
    return f"only {read_count:,} of {counted(read_count + len(missing), 'host')} can be read, without {named}"
