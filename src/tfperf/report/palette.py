"""Roles of time in a step: order, names, colors and letters, the same in every format.

The colors differ in lightness (CIE L* by 8 or more), so they stay apart in grey, and by at least 20 (CIE76) as seen
with deuteranopia and protanopia (Machado et al., 2009); tests/report/test_palette.py computes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Colours = Literal["16", "256", "truecolor"]
"""Number of colors of a terminal."""
Role = Literal["input", "copy", "launch", "compile", "others", "python", "compute", "unexplained"]


class RoleStyle(Struct, frozen=True):
    """Appearance of a role: `basic` is its color among the 16 of a terminal, `ink` the color of text on it."""

    title: str
    letter: str
    colour: str
    ink: str
    basic: str

    @property
    def look(self) -> str:
        """Return its color as a rich style."""
        return f"{self.ink} on {self.colour}"

    @property
    def basic_look(self) -> str:
        """Return its color among the 16 of a terminal, as a rich style."""
        return f"{'bright_white' if self.basic == 'blue' else 'black'} on {self.basic}"


ROLES: Mapping[Role, RoleStyle] = {
    "compute": RoleStyle("computing", "C", "#064d2c", "#ffffff", "green"),
    "input": RoleStyle("waiting for data", "I", "#dd7c66", "#000000", "red"),
    "copy": RoleStyle("copying", "P", "#f0bf2e", "#000000", "yellow"),
    "launch": RoleStyle("launching", "L", "#a5709c", "#000000", "magenta"),
    "compile": RoleStyle("compiling", "M", "#0241e1", "#ffffff", "blue"),
    "others": RoleStyle("waiting for others", "O", "#47bbe8", "#000000", "cyan"),
    "python": RoleStyle("Python", "Y", "#397b19", "#ffffff", "bright_green"),
    "unexplained": RoleStyle("unexplained", ".", "#dcdce0", "#000000", "white"),
}
"""In the order of the bar."""
