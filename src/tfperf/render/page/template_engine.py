"""The engine that fills the templates of the page (templates/*.html).

Every text that a template shows is made safe and at most `LONGEST_TEXT` long, and then escaped, without the template
asking for it. Only what Python marks as `Markup` is put in as it is: scripts, the style sheet, and coded data.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tfperf.render.safe_text import brief
from tfperf.render.values import measure_text

if TYPE_CHECKING:
    from jinja2 import Environment

LONGEST_TEXT = 2_000
"""Characters of a sentence; a longer one loses its middle."""
LONGEST_NAME = 500
"""Characters of a name in a table or a chart; CSV files have the whole of it."""
_LONGEST_CELL = 120


def fill(template: str, **values: Any) -> str:
    """Return a template with its values."""
    return environment().get_template(template).render(values)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the engine; Jinja2 is imported for pages only."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tfperf.render.page"),
        autoescape=True,
        finalize=_safe_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "name": lambda text: brief(text, LONGEST_NAME),
        "cell": lambda text: brief(text, _LONGEST_CELL),
        "grouped": lambda number: f"{number:,}",
        "measure": measure_text,
    }
    return environment


def _safe_value(value: Any) -> Any:
    """Return a text as it may be shown; numbers, and text that is markup already, stay as they are."""
    return brief(value, LONGEST_TEXT) if type(value) is str else value
