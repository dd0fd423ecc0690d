"""How values are displayed: as one line, as HTML in a notebook, and as a plot.

Displayed values must not import their renderers, which depend on them. The functions of `notebook` are therefore named
as text and imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_LINE = 160
_LONGEST_TEXT = 60
_HTML = "tfperf.notebook.values:html_of"
_PLOT = "tfperf.notebook.values:plot"


class Shown:
    """A value with a one-line `repr` of at most 160 characters, and HTML for notebooks."""

    __slots__ = ()

    def __repr__(self) -> str:
        fields = ((name, getattr(self, name)) for name in getattr(self, "__struct_fields__", ()))
        texts = (
            f"{name}={_short(value)}"
            for name, value in fields
            if value is not None and (not isinstance(value, Sized) or isinstance(value, Shown) or len(value))
        )
        return cut(f"{type(self).__name__}({', '.join(texts)})")

    def _repr_html_(self) -> str:
        html: str = resolve_name(_HTML)(self)
        return html


class Plotted:
    """A value that can be plotted."""

    __slots__ = ()

    def plot(self, ax: Axes | None = None, *, top: int | None = None) -> Axes:
        """Draw the value into `ax`, or into a new figure, and return the axes.

        `top` is the maximum number of bars, points or allocators. Raise TfperfError without matplotlib (pip install
        "tfperf[plot]"), or if there is nothing to draw.
        """
        axes: Axes = resolve_name(_PLOT)(self, ax, top=top)
        return axes


def cut(line: str) -> str:
    """Return a line of at most 160 characters, with unprintable characters escaped."""
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line[: 2 * _LONGEST_LINE])
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 4]}...{line[-1]}"


def _short(value: Any) -> str:
    """Return a short text or number unchanged, and a summary of any other value."""
    if isinstance(value, (str, Path)):
        text = str(value)
        return repr(text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}...")
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, (Sized, Mapping)) and not isinstance(value, Shown):
        return f"<{len(value):,}>"
    return f"<{type(value).__name__}>"
