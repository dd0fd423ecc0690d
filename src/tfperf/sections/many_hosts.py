"""What bounds the memory that a run of many hosts takes where its results are put together.

Large results are kept packed and are combined a few at a time, and tables that grow with the hosts end somewhere.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec.structs import replace

from tfperf.report.model import Section, Table
from tfperf.sections.registry import Function, call, find_section
from tfperf.units import counted

MANY_HOSTS = 64
"""Up to so many hosts, results are kept as they are, and tables whole."""
_LARGE_BYTES = 16_384
_FEW = 16
MOST_ROWS, MOST_STEPS = 10_000, 2_048
"""Rows of a table, of a host and of the run; steps of a host."""
_ASKED_FOR_OFTEN = {"steps", "diagnosis", "batch"}


class PackedResults(Mapping[str, Any]):
    """Results by section, of which the large ones are unpacked each time that they are asked for.

    Small ones, such as those about steps, are asked for again and again, and stay as they are. Large ones are tables of
    ops and kernels, which are asked for once, and pack to a tenth.
    """

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._kept: dict[str, Any] = {}
        self._packed: dict[str, bytes] = {}
        self._sections = tuple(results)
        for section, result in results.items():
            data = b"" if section in _ASKED_FOR_OFTEN else pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
            if len(data) < _LARGE_BYTES:
                self._kept[section] = result
            else:
                self._packed[section] = zlib.compress(data, 1)

    def __getitem__(self, section: str) -> Any:
        """Return the result of a section. Raises KeyError."""
        if section in self._packed:
            return pickle.loads(zlib.decompress(self._packed[section]))
        return self._kept[section]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the sections, in the order of their analysis."""
        return iter(self._sections)

    def __len__(self) -> int:
        """Return the number of sections."""
        return len(self._sections)


def shortened(results: Mapping[str, Any], most: int = MOST_ROWS) -> dict[str, Any]:
    """Return the results of a host; those that have more rows than are kept are other objects than they were."""
    specs = {section: find_section(section) for section, result in results.items() if result is not None}
    short = {section: call(spec.shorten, results[section], most) for section, spec in specs.items() if spec.shorten}
    return {**results, **short}


def lacking_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sections whose tables lack rows since their results were shortened."""
    changed = (section for section, result in before.items() if after[section] is not result)
    return tuple(section for section in changed if find_section(section).tables)


def combined_in_tree(combine: Function, results: Iterable[Any]) -> Any:
    """Combine the results of a few hosts at a time, then those: only a few are unpacked at any time; None of none."""
    parts = [call(combine, few) for few in _by_few(results)]
    while len(parts) > 1:
        parts = [call(combine, few) for few in _by_few(parts)]
    return parts[0] if parts else None


def _by_few(results: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(results)
    while few := list(islice(iterator, _FEW)):
        yield few


def with_short_tables(section: Section) -> Section:
    """Return a section without what is beyond the first rows of long tables, which say how many rows there were.

    What has a row for each host or device is whole.
    """
    return replace(section, tables=tuple(map(_shortened, section.tables)))


def _shortened(table: Table) -> Table:
    if len(table) <= MOST_ROWS or (table.ranked is not None and table.ranked.each):
        return table
    note = f"Of {counted(len(table), 'row')}, the first {MOST_ROWS:,} are kept: --hosts shows those of some hosts."
    return replace(table.head(MOST_ROWS), note=f"{table.note} {note}".strip())
