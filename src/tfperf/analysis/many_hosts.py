"""What bounds the memory that a run of many hosts takes where its results are put together.

Large results are kept packed and are combined a few at a time, and tables that grow with the hosts end somewhere.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import call, find_section
from tfperf.base.units import counted
from tfperf.report.model import Section, Table

MANY_HOSTS = 64
"""Up to so many hosts, results are kept as they are, and tables whole."""
_LARGE_BYTES = 16_384
MOST_ROWS, MOST_STEPS = 10_000, 2_048
"""Rows of a table, of a host and of the run; steps of a host."""
_ASKED_FOR_OFTEN = {"steps", "diagnosis", "batch"}


class Packed(Struct, frozen=True):
    """A result as bytes, which are about a tenth of it."""

    data: bytes

    @classmethod
    def of(cls, result: Any) -> Packed:
        """Pack a result."""
        return cls(_compressed(pickle.dumps(result, pickle.HIGHEST_PROTOCOL)))

    def unpacked(self) -> Any:
        """Return the result."""
        return pickle.loads(zlib.decompress(self.data))


def packed_if_large(result: Any) -> Any:
    """Return a result packed, or as it is if it is small."""
    data = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    return result if len(data) < _LARGE_BYTES else Packed(_compressed(data))


def _compressed(data: bytes) -> bytes:
    return zlib.compress(data, 1)


def unpacked(result: Any) -> Any:
    """Return a result that may be packed."""
    return result.unpacked() if isinstance(result, Packed) else result


class PackedResults(Mapping[str, Any]):
    """Results by section, of which the large ones are unpacked each time that they are asked for.

    Small ones, such as those about steps, are asked for again and again, and stay as they are. Large ones are tables of
    ops and kernels, which are asked for once, and pack to a tenth.
    """

    def __init__(self, results: Mapping[str, Any]) -> None:
        self.kept: dict[str, Any] = {
            section: result if section in _ASKED_FOR_OFTEN else packed_if_large(result)
            for section, result in results.items()
        }
        """As they are kept."""

    def __getitem__(self, section: str) -> Any:
        """Return the result of a section. Raises KeyError."""
        return unpacked(self.kept[section])

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the sections, in the order of their analysis."""
        return iter(self.kept)

    def __len__(self) -> int:
        """Return the number of sections."""
        return len(self.kept)


def shortened(results: Mapping[str, Any], most: int = MOST_ROWS) -> dict[str, Any]:
    """Return the results of a host; those that have more rows than are kept are other objects than they were."""
    specs = {section: find_section(section) for section, result in results.items() if result is not None}
    short = {section: call(spec.shorten, results[section], most) for section, spec in specs.items() if spec.shorten}
    return {**results, **short}


def lacking_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sections whose tables lack rows since their results were shortened."""
    changed = (section for section, result in before.items() if after[section] is not result)
    return tuple(section for section in changed if find_section(section).tables)


def with_short_tables(section: Section) -> Section:
    """Return a section without what is beyond the first rows of long tables, which say how many rows there were.

    What has a row for each host or device is whole.
    """
    return replace(section, tables=tuple(map(_shortened, section.tables)))


def _shortened(table: Table) -> Table:
    if table.total_rows <= MOST_ROWS or (table.ranked is not None and table.ranked.each):
        return table
    note = (
        f"Of {counted(table.total_rows, 'row')}, the first {MOST_ROWS:,} are kept: --hosts shows those of some hosts."
    )
    return replace(table.head(MOST_ROWS), note=f"{table.note} {note}".strip())
