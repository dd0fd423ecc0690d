"""Plugin of mypy: it changes no type. Mypy takes half a gigabyte more, and a fifth less time."""

from __future__ import annotations

import gc

from mypy.plugin import Plugin


def plugin(version: str) -> type[Plugin]:
    """Stop the search for unused objects in cycles: mypy makes many for NumPy's overloads, and ends soon."""
    gc.set_threshold(0)
    return Plugin
