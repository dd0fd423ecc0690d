"""Flame graphs of a run: what is asked for, its stacks, what another run has, and the file that shows it."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from tfperf.base.errors import TfperfError

On = Literal["all", "host", "device"]
StackedBy = Literal["scope", "layer", "python", "function"]
Value = Literal["self-time", "calls", "bytes", "flops"]
Per = Literal["capture", "step"]
ON, STACKED_BY, VALUES, PERS = (get_args(each) for each in (On, StackedBy, Value, Per))


class QuestionError(TfperfError, ValueError):
    """What is asked for means nothing, whatever the profile holds."""


class Question(Struct, frozen=True, kw_only=True):
    """Which time is drawn, by which names, and what it is over.

    `per` None is the capture, and of a comparison the average step where both runs have steps.
    """

    on: On = "all"
    by: StackedBy = "scope"
    value: Value = "self-time"
    per: Per | None = None
    merge_layers: bool = False

    def check(self) -> None:
        """Raise QuestionError if what is asked for means nothing."""
        if self.by == "python" and self.on == "device":
            raise QuestionError("--by python is about host threads: omit --on device")
        if self.by == "python" and self.value not in ("self-time", "calls"):
            raise QuestionError(f"functions of Python have no {self.value}: use --value self-time or --value calls")
        if self.by == "python" and self.merge_layers:
            raise QuestionError("--merge-layers is about ops: omit it, or use --by scope, layer or function")

    @property
    def sections(self) -> tuple[str, ...]:
        """Return the sections that know the answer."""
        if self.by == "python":
            return ("python_stacks",)
        return ("op_sums", "xla", "roofline") if self.value in ("bytes", "flops") else ("op_sums",)
