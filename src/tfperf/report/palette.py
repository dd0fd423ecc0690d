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


class CategoryStyle(Struct, frozen=True):
    """Appearance of a category of step time: a shade of its role's color.

    `lighter` is the share of white in it or, if negative, of black; `variable` is its name in style sheets.
    """

    role: Role
    letter: str
    variable: str
    lighter: float = 0.0

    @property
    def colour(self) -> str:
        """Return the color as #rrggbb."""
        colour, other = ROLES[self.role].colour, 255 if self.lighter > 0 else 0
        channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        return "#" + "".join(f"{round(each + (other - each) * abs(self.lighter)):02x}" for each in channels)

    @property
    def look(self) -> str:
        """Return the color as a rich style."""
        return f"{'#000000' if self.lighter > 0 else ROLES[self.role].ink} on {self.colour}"


CATEGORY_STYLES: Mapping[str, CategoryStyle] = {
    "input": CategoryStyle("input", "I", "input"),
    "input wait": CategoryStyle("input", "I", "input"),
    "input pipeline": CategoryStyle("input", "i", "pipeline", 0.5),
    "host to device": CategoryStyle("copy", "P", "to-device"),
    "device to device": CategoryStyle("copy", "d", "between", 0.5),
    "output": CategoryStyle("copy", "p", "output", -0.3),
    "kernel launch": CategoryStyle("launch", "L", "launch"),
    "compilation": CategoryStyle("compile", "M", "compilation"),
    "device collectives": CategoryStyle("others", "O", "collectives"),
    "python": CategoryStyle("python", "Y", "python"),
    "device compute": CategoryStyle("compute", "C", "device"),
    "host compute": CategoryStyle("compute", "c", "host", 0.5),
    "all others": CategoryStyle("unexplained", ".", "others"),
    "rest of the step": CategoryStyle("unexplained", ".", "others"),
}
"""By title in lower case: categories, and other kinds of events in pictures of steps."""
