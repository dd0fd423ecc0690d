"""The glossary: one file, which the page docs/glossary.md is made of too."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILE = Path(__file__).with_name("glossary.toml")


@cache
def glossary_terms() -> dict[str, dict[str, str]]:
    """Return the terms of each part of the glossary with their meanings, which are Markdown."""
    with _FILE.open("rb") as file:
        terms: dict[str, dict[str, str]] = tomllib.load(file)
    return terms
