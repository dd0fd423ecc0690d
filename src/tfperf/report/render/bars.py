"""A bar of letters."""

from __future__ import annotations

BAR_BLOCKS, BAR_ASCII = "▏▎▍▌▋▊▉█", "#"


def bar_text(share: float, room: int, *, interactive: bool) -> str:
    """Return a bar; what is more than nothing shows at least the smallest mark."""
    if not interactive:
        return BAR_ASCII * max(round(share * room), 1)
    eighths = max(round(share * room * 8), 1)
    return BAR_BLOCKS[-1] * (eighths // 8) + (BAR_BLOCKS[eighths % 8 - 1] if eighths % 8 else "")
