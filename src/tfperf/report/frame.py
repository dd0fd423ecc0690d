"""Declared columns as a DataFrame of pandas."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from tfperf.report.model import Column, Data

_LEVELS = ("brief", "full", "data")
_DTYPES = {int: "Int64", float: "Float64", bool: "boolean"}


def frame(columns: Iterable[Column], data: Data) -> pd.DataFrame:
    """Return the columns as a DataFrame, those that people see first; what is unknown is NA, in every type."""
    import pandas as pd

    ordered = sorted(columns, key=lambda column: _LEVELS.index(column.level))
    # Names in a profile may hold what is no text, which the strings of Arrow refuse.
    dtypes: dict[type, Any] = {**_DTYPES, str: pd.StringDtype("python")}
    return pd.DataFrame(
        {
            each.key: pd.array([*map(_known, data[each.key])], dtype="UInt64" if each.is_id else dtypes[each.dtype])
            for each in ordered
        }
    )


def _known(value: Any) -> Any:
    """Return a value; None for a number that is none."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
