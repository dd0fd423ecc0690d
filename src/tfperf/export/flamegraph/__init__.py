"""Flame graphs of a run: the question, its stacks, comparison with another run, and output files."""

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
    """An invalid question, independent of the profile."""


class Question(Struct, frozen=True, kw_only=True):
    """The values, names and scope of a flame graph.

    `per` None is the capture; in a comparison it is the average step if both runs have steps.
    """

    on: On = "all"
    by: StackedBy = "scope"
    value: Value = "self-time"
    per: Per | None = None
    merge_layers: bool = False

    def check(self) -> None:
        """Raise QuestionError for an invalid combination."""
        if self.by == "python" and self.on == "device":
            raise QuestionError("--by python applies only to host threads: omit --on device")
        if self.by == "python" and self.value not in ("self-time", "calls"):
            raise QuestionError(f"Python functions have no {self.value}: use --value self-time or --value calls")
        if self.by == "python" and self.merge_layers:
            raise QuestionError("--merge-layers applies only to ops: omit it, or use --by scope, layer or function")

    @property
    def sections(self) -> tuple[str, ...]:
        """Return the sections that provide the values."""
        if self.by == "python":
            return ("python_stacks",)
        return ("op_sums", "xla", "roofline") if self.value in ("bytes", "flops") else ("op_sums",)
