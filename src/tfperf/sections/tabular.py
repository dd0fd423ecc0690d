"""Results that are one table, as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import pandas as pd


class Tabular(Struct, frozen=True):
    """A result with columns."""

    def columns(self) -> dict[str, list[object]]:
        """Return the columns of `table` without pandas."""
        raise NotImplementedError

    @property
    def table(self) -> pd.DataFrame:
        """Return the columns as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.columns())
