"""What can be wrong with a trace: one flaw, and how bad it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from msgspec import Struct

Level = Literal["sound", "doubtful", "incomplete", "unsound"]


class Flaw(Struct, frozen=True):
    """What is wrong with a trace. `text` is a clause that follows "the profile is damaged:".

    `incomplete`: events are missing that the profiler should have recorded, and `fix` says how to get them.
    """

    code: str
    text: str
    level: Level = "unsound"
    about_steps: bool = False
    """Whether only figures over steps are wrong."""
    fix: str = ""
    hides: frozenset[str] = frozenset()
    """Categories of the step, and parts of input, that are unknown because of it."""


def level_of(flaws: Iterable[Flaw]) -> Level:
    """Return the gravest level."""
    return max((flaw.level for flaw in flaws), key=get_args(Level).index, default="sound")
