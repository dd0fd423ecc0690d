"""Memory limits for combining the results of many hosts.

Large results are kept packed and are combined in a tree, a few hosts at a time. The tree has one shape, given by the
order of the hosts, whether this process or the workers that analyzed the hosts combine its parts, so the result is the
same. Tables that grow with the number of hosts are cut.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct

MANY_HOSTS = 64
"""Up to this number of hosts, results are kept unpacked and tables whole."""
_LARGE_BYTES = 16_384
MOST_ROWS, MOST_STEPS = 10_000, 2_048
"""Maximum rows per table of a host and of the run; maximum steps of a host."""
_ASKED_FOR_OFTEN = {"steps", "diagnosis", "batch"}
"""Sections whose results are never large."""


class Packed(Struct, frozen=True):
    """A pickled result; a large one is compressed to about a tenth."""

    data: bytes
    is_large: bool

    @classmethod
    def of(cls, result: Any, section: str) -> Packed:
        """Pack the result of a section."""
        data = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        is_large = len(data) >= _LARGE_BYTES and section not in _ASKED_FOR_OFTEN
        return cls(zlib.compress(data, 1) if is_large else data, is_large)

    def unpacked(self) -> Any:
        """Return the result."""
        return pickle.loads(zlib.decompress(self.data) if self.is_large else self.data)


def unpacked(result: Any) -> Any:
    """Return a result that may be packed."""
    return result.unpacked() if isinstance(result, Packed) else result


def is_large(result: Any) -> bool:
    """Return whether a result is packed and large."""
    return isinstance(result, Packed) and result.is_large


class PackedResults(Mapping[str, Any]):
    """Results by section, packed, as a worker sends them.

    Small results, such as those of steps, are read repeatedly and stay unpacked after the first access. Large ones are
    unpacked at each access: they are tables of ops and kernels, which are read once.
    """

    def __init__(self, results: Mapping[str, Any]) -> None:
        self.kept: dict[str, Any] = {section: Packed.of(result, section) for section, result in results.items()}

    def __setstate__(self, state: dict[str, dict[str, Any]]) -> None:
        """Unpack small results when they arrive, while the workers analyze other hosts."""
        kept = state["kept"].items()
        self.kept = {section: each if is_large(each) else unpacked(each) for section, each in kept}

    def __getitem__(self, section: str) -> Any:
        """Return the result of a section. Raises KeyError."""
        kept = self.kept[section]
        result = unpacked(kept)
        if not is_large(kept):
            self.kept[section] = result
        return result

    def __iter__(self) -> Iterator[str]:
        """Iterate over the sections in the order of their analysis."""
        return iter(self.kept)

    def __len__(self) -> int:
        """Return the number of sections."""
        return len(self.kept)


FEW = 16
"""Number of parts combined into one."""
_T = TypeVar("_T")


def combined_in_tree(combine: Callable[[list[Any]], Any], results: Iterable[Any]) -> Any:
    """Combine results with only a few unpacked at a time; None counts as no result, and is returned if all are None."""
    parts = [combined(combine, few) for few in by_few(results)]
    while len(parts) > 1:
        parts = [combined(combine, few) for few in by_few(parts)]
    return parts[0] if parts else None


def combined(combine: Callable[[list[Any]], Any], results: Iterable[Any]) -> Any:
    """Combine the results that are not None; return None if all are."""
    known = [result for result in results if result is not None]
    return combine(known) if known else None


def by_few(parts: Iterable[_T]) -> Iterator[list[_T]]:
    """Yield lists of `FEW` parts."""
    iterator = iter(parts)
    while few := list(islice(iterator, FEW)):
        yield few
