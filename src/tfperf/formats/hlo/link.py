"""From what a reader found to a module: names and ids become positions, and the structure is checked."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tfperf.formats.hlo.model import Computation, Instruction, Module, ProgramError

MOST_INSTRUCTIONS = 2_000_000
MOST_CALL_LEVELS = 1_000
"""How deep computations may call each other; compilers nest some tens."""


class FoundInstruction(Struct, gc=False):
    """An instruction whose operands and called computations are still ids or names."""

    key: Hashable
    fields: dict[str, Any]
    """Those of `Instruction`, but for operands and calls."""
    operands: Sequence[Hashable]
    calls: Sequence[Hashable]


class FoundComputation(Struct):
    """A computation as it was read."""

    key: Hashable
    name: str
    instructions: Sequence[FoundInstruction]
    root: Hashable


def link(name: str, found: Sequence[FoundComputation], entry: Hashable, **facts: Any) -> Module:
    """Return the module; `facts` are further fields of it.

    Raises ProgramError if something refers to what is not there, or to itself, if a computation has no root, or if
    there is more than fits.
    """
    if not found:
        raise ProgramError(f"module {name[:200]!r} holds no computations")
    count = sum(len(each.instructions) for each in found)
    if count > MOST_INSTRUCTIONS:
        raise ProgramError(f"the program has {count:,} instructions, more than the {MOST_INSTRUCTIONS:,} that are read")
    places = _places((each.key for each in found), "computations")
    if entry not in places:
        raise ProgramError(f"there is no computation {entry!r} for a run to start with")
    computations = tuple(_computation(each, places) for each in found)
    calls = [[call for each in computation.instructions for call in each.calls] for computation in computations]
    order, level = _sources_first(calls, "computations call each other in a circle")
    if max(level) > MOST_CALL_LEVELS:
        raise ProgramError(f"computations call each other {max(level):,} levels deep; {MOST_CALL_LEVELS:,} are read")
    return Module(name=name, computations=computations, entry_at=places[entry], callees_first=tuple(order), **facts)


def _computation(found: FoundComputation, computations: Mapping[Hashable, int]) -> Computation:
    where = f"computation {found.name[:200]!r}"
    places = _places((each.key for each in found.instructions), f"instructions in {where}")
    if found.root not in places:
        raise ProgramError(f"{where} has no root: its result is instruction {found.root!r}, which it does not hold")
    linked = []
    for each in found.instructions:
        try:
            operands = tuple([places[key] for key in each.operands]) if each.operands else ()
            calls = tuple([computations[key] for key in each.calls]) if each.calls else ()
        except KeyError as error:
            lost = f"instruction {str(each.fields.get('name', ''))[:200]!r} in {where}"
            raise ProgramError(f"{lost} refers to {error.args[0]!r}, which is not there") from error
        linked.append(Instruction(operands=operands, calls=calls, **each.fields))
    if any(operands and max(operands) >= at for at, operands in enumerate(each.operands for each in linked)):
        _sources_first([each.operands for each in linked], f"instructions in {where} need each other in a circle")
    return Computation(found.name, tuple(linked), places[found.root])


def _places(keys: Iterable[Hashable], what: str) -> dict[Hashable, int]:
    """Return the position of each key; raises ProgramError for one that occurs twice."""
    places: dict[Hashable, int] = {}
    for at, key in enumerate(keys):
        if places.setdefault(key, at) != at:
            raise ProgramError(f"two {what} have the name or id {key!r}")
    return places


def _sources_first(sources: Sequence[Sequence[int]], circle: str) -> tuple[list[int], list[int]]:
    """Return all positions, each after its sources, and how many levels of sources each has.

    Raises ProgramError with the text `circle` if that is impossible.
    """
    waits_for = [len(each) for each in sources]
    users: list[list[int]] = [[] for _ in sources]
    for at, each in enumerate(sources):
        for source in each:
            users[source].append(at)
    level = [0] * len(sources)
    order = [at for at, count in enumerate(waits_for) if not count]
    for at in order:  # grows while it is gone through
        for user in users[at]:
            level[user] = max(level[user], level[at] + 1)
            waits_for[user] -= 1
            if not waits_for[user]:
                order.append(user)
    if len(order) < len(sources):
        raise ProgramError(circle)
    return order, level
