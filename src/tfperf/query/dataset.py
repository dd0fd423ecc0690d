"""Datasets of Parquet files that `tfperf export-parquet` writes: where their files are, and how they are read.

    DIR/tfperf_dataset.json
    DIR/events/run=RUN/host=HOST/part-N.parquet     (also stats)
    DIR/TABLE/run=RUN/part-0.parquet                (every other table)

Values in folder names are percent-encoded. DuckDB never opens a file: it is given Arrow datasets, and asks them for the
columns and rows that a query needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct, field

from tfperf.errors import TraceFormatError
from tfperf.query.sql_tables import SqlColumn, SqlTable, Type

MARKER = "tfperf_dataset.json"
"""The file that tells a dataset from other folders."""
FORMAT = 1
BY_HOST = ("events", "stats")
"""Tables with a folder for each host."""
_LONGEST = 240


def is_dataset(path: Path) -> bool:
    """Tell whether a folder is a dataset."""
    return (path / MARKER).is_file()


def partition(key: str, value: str) -> str:
    """Return the name of a folder that holds the rows with this value; one that would be too long ends in a hash."""
    encoded = quote(value, safe="", errors="replace")
    if len(encoded) > _LONGEST:
        digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        while len(encoded) > _LONGEST - len(digest) - 1:
            value = value[:-1]
            encoded = quote(value, safe="", errors="replace")
        encoded += f"~{digest}"
    return f"{key}={encoded}"


class Dataset(Struct, frozen=True):
    """The tables of a dataset, which a query can name."""

    folder: Path
    omitted: dict[str, str] = field(default_factory=dict)

    @property
    def views(self) -> Mapping[str, str]:
        """Return no views: SQL sees the files as they are."""
        return {}

    @property
    def described(self) -> dict[str, Any]:
        """Return what is queried, as reports say it."""
        return {"folder": str(self.folder)}

    @property
    def declared(self) -> dict[str, SqlTable]:
        """Return the tables that there are, with the columns of their files."""
        return {name: SqlTable(name, "", _columns(self._open(name))) for name in self.names}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the tables."""
        folders = (path for path in self.folder.iterdir() if path.is_dir() and path.name.isidentifier())
        return tuple(sorted(path.name for path in folders if any(path.rglob("*.parquet"))))

    def tables(self, names: Collection[str]) -> dict[str, Any]:
        """Return tables as Arrow datasets, of which a query reads what it needs."""
        return {name: self._open(name) for name in self.names if name in names}

    def _open(self, name: str) -> Any:
        import pyarrow as pa
        import pyarrow.dataset as ds

        keys = ["run", "host"] if name in BY_HOST else ["run"]
        scheme = ds.partitioning(pa.schema([(key, pa.string()) for key in keys]), flavor="hive")
        try:
            return ds.dataset(self.folder / name, format="parquet", partitioning=scheme)
        except (OSError, pa.ArrowInvalid) as error:
            text = " ".join(str(error).split())
            raise TraceFormatError(f"the table {name} of the dataset {self.folder} cannot be read: {text}") from error


def _columns(opened: Any) -> tuple[SqlColumn, ...]:
    return tuple(SqlColumn(column.name, _type(str(column.type)), "", "") for column in opened.schema)


def _type(arrow: str) -> Type:
    if "string" in arrow:
        return "VARCHAR"
    types: dict[str, Type] = {"bool": "BOOLEAN", "double": "DOUBLE", "float": "DOUBLE", "uint64": "HUGEINT"}
    return types.get(arrow, "INTEGER" if arrow in ("int16", "int32") else "BIGINT")
