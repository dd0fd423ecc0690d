"""A column of names as a tree: each name behind the branch that leads to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Branches(NamedTuple):
    """What is drawn before a name: for the name itself, and for the levels above it."""

    middle: str
    last: str
    passing: str
    nothing: str


LINES = Branches("├ ", "└ ", "│ ", "  ")
ASCII = Branches("|-", "`-", "| ", "  ")
DOTS = Branches("· ", "· ", "· ", "· ")
"""For Markdown, which drops leading spaces and reads bars and backticks as its own."""


def tree_texts(names: Sequence[str], depths: Sequence[int], branches: Branches) -> list[str]:
    """Return the names with their branches; `depths` counts levels from 0, each name below the last of less depth."""
    shown = []
    for index, (name, depth) in enumerate(zip(names, depths, strict=True)):
        levels = range(1, depth + 1)
        shown.append("".join(_branch(depths, index, level, branches, own=level == depth) for level in levels) + name)
    return shown


def _branch(depths: Sequence[int], index: int, level: int, branches: Branches, *, own: bool) -> str:
    goes_on = _goes_on(depths, index, level)
    if own:
        return branches.middle if goes_on else branches.last
    return branches.passing if goes_on else branches.nothing


def _goes_on(depths: Sequence[int], index: int, level: int) -> bool:
    """Tell whether another name of this level follows before one of a lower level."""
    following = next((depth for depth in depths[index + 1 :] if depth <= level), 0)
    return following == level
