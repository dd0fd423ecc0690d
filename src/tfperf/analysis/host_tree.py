"""Results of many hosts, combined in a tree: those of a few hosts at a time, then what came of these.

The tree has one shape, by the order of the hosts, wherever its parts are combined: in this process when a section is
asked for, or before that on the workers that analyzed the hosts. So the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct

from tfperf.analysis.many_hosts import Packed, PackedResults, packed_if_large, unpacked
from tfperf.analysis.registry import Function, call, find_section, is_ours

FEW = 16
"""So many parts become one."""
_T = TypeVar("_T")
Part = Mapping[str, Any]
"""What some hosts found out, by section: packed where that is large."""


def combined_in_tree(combine: Function, results: Iterable[Any]) -> Any:
    """Combine results, of which only a few are unpacked at any time; None counts as no result, and is that of none."""
    parts = [_combined(combine, few) for few in _by_few(results)]
    while len(parts) > 1:
        parts = [_combined(combine, few) for few in _by_few(parts)]
    return parts[0] if parts else None


class FewParts(Struct, frozen=True):
    """Parts of the tree that become one: work for a worker."""

    parts: tuple[Part, ...]
    path: str
    """Which they are, for messages."""

    @property
    def size_bytes(self) -> int:
        """Return how large they are."""
        return sum(len(each.data) for part in self.parts for each in part.values() if isinstance(each, Packed))


def combine_few(few: FewParts) -> Part:
    """Combine parts, section by section."""
    sections = dict.fromkeys(section for part in few.parts for section in part)
    combined = {
        section: _combined(_combine_of(section), (unpacked(part.get(section)) for part in few.parts))
        for section in sections
    }
    return {section: packed_if_large(result) for section, result in combined.items()}


def combined_parts(
    hosts: Sequence[PackedResults], combine_all: Callable[[list[FewParts]], list[Part]]
) -> dict[str, list[Any]]:
    """Combine what is large until a few parts are left; return these, as they are kept, by section.

    `combine_all` returns `combine_few` of each. Sections of other packages are left out: an error of theirs is told
    where they are shown.
    """
    large = {section for host in hosts for section, each in host.kept.items() if isinstance(each, Packed)}
    sections = [
        name for name in hosts[0].kept if name in large and is_ours(name) and find_section(name).combines_in_tree
    ]
    if not sections:
        return {}
    parts: list[Part] = [{section: host.kept[section] for section in sections} for host in hosts]
    while len(parts) > FEW:
        groups = _by_few(parts)
        parts = combine_all([FewParts(tuple(few), f"part {number} of the hosts") for number, few in enumerate(groups)])
    return {section: [part[section] for part in parts] for section in sections}


def _combine_of(section: str) -> Function:
    combine = find_section(section).combine
    assert combine is not None
    return combine


def _combined(combine: Function, results: Iterable[Any]) -> Any:
    known = [result for result in results if result is not None]
    return call(combine, known) if known else None


def _by_few(parts: Iterable[_T]) -> Iterator[list[_T]]:
    iterator = iter(parts)
    while few := list(islice(iterator, FEW)):
        yield few
