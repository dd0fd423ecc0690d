"""The HTML template engine: it escapes and cuts every text automatically."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tfperf.report.render.values import brief, measure_text

if TYPE_CHECKING:
    from jinja2 import Environment


def policy(style: str, *scripts: str) -> str:
    """Return the content security policy of a page: only this style sheet and these scripts, no other resources."""
    allowed = f"script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


@lru_cache(maxsize=6)
def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def engine(package: str, *, longest_text: int, longest_cell: int, **options: Any) -> Environment:
    """Return an engine for the templates in `package` with Jinja2 `options`; only `Markup` is not escaped.

    Texts have at most `longest_text` characters, with the filter `cell` at most `longest_cell`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        finalize=lambda value: brief(value, longest_text) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    environment.filters |= {
        "cell": lambda text: brief(text, longest_cell),
        "grouped": lambda number: f"{number:,}",
        "measure": measure_text,
    }
    return environment
