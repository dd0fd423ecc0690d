"""One sample of a worker: what its trace says, what taking it cost, or why there is none."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tfperf.base.errors import CaptureError, Reason, TfperfError
from tfperf.capture.address import Address
from tfperf.live.top.measured import Measured

GONE: frozenset[str] = frozenset({"died", "not_listening", "unreachable", "unknown_host"})
"""Reasons that say that there is no server any more, or not yet."""


class Sample(Struct, frozen=True, kw_only=True):
    """What came of asking one worker once. `measured` is None if nothing came; `reason` and `message` say why."""

    number: int
    """Counts the answers of the worker, from 1."""
    time_s: float
    """When it was asked, in seconds since 1970."""
    duration_s: float
    """How long it was to record."""
    answer_s: float
    """From the request until the reply began to come; 0 if none did."""
    size_bytes: int = 0
    measured: Measured | None = None
    reason: Reason | Literal[""] = ""
    message: str = ""
    slowdown_percent: float | None = None
    """By how much profiling makes steps longer, by the latest samples; None: nothing tells."""
    profiled_percent: float = 0.0
    """Share of the time in which the worker was asked to record, since the first sample."""

    @property
    def is_gone(self) -> bool:
        """Tell whether no server answers there."""
        return self.reason in GONE

    @property
    def is_known(self) -> bool:
        """Tell whether there is a step time."""
        return self.measured is not None and self.measured.step_ms is not None


_WHAT_TO_DO = {
    "bad_reply": "it is asked again",
    "busy": "it is asked again",
    "died": "it is asked again: did the job end or crash?",
    "too_large": "use a shorter --duration",
    "timeout": "it is asked again",
    "refused": "",
}
"""What follows in the live view, where a capture would name options of its own."""


def described(error: TfperfError | None, address: Address) -> tuple[Reason | Literal[""], str]:
    """Return the reason and the message of an error, in the words of the live view; both are empty without one."""
    if error is None:
        return "", ""
    if not isinstance(error, CaptureError):  # The trace in the reply cannot be read.
        return "bad_reply", f"{address} sent a damaged trace: {str(error).partition('; ')[0]}"
    found, _, hint = str(error).partition("; ")
    advice = _WHAT_TO_DO.get(error.reason, hint)
    return error.reason, f"{found}; {advice}" if advice else found
