"""Profiles damaged at random: bytes that are lost or changed, and contents that no longer fit each other.

What could as well have been recorded is no damage: a thread whose clock is off by less than a step, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from protobytes import field, varint

from tfperf.formats.wire import schema

INT64 = 1 << 63
ODD_NUMBERS = (0, 1, -1, 2, 1000, 10**6, 10**9, 1 << 31, 1 << 40, (1 << 60) - 1, 1 << 60, INT64 - 1, -INT64)
ODD_TEXTS = (
    b"", b"\xff\xfe", b"\x1b[31m", b"</script>", b"::error::x", b"=1+1", b"x" * 10_000, b"train", b"/host:CPU",
    b"/device:GPU:0", b"/device:TPU:0", b"Steps", b"XLA Ops", b"group_id", b"step_num", b"_r", b"id", b"iter_num",
    b"FunctionRun", b"Iterator::Root", b"IteratorGetNextOp::DoCompute", b"ExecutorState::Process", b"a/b:MatMul",
)  # fmt: skip


class Mutant(NamedTuple):
    """A damaged profile: the sample that it was, what was done to it, and its bytes."""

    sample: int
    operators: tuple[str, ...]
    data: bytes


def make(random: Random, samples: Sequence[bytes]) -> Mutant:
    """Damage one of the samples by one to three operators."""
    sample = random.randrange(len(samples))
    data, names = samples[sample], []
    for _ in range(random.choice((1, 1, 2, 3))):
        name = random.choice(list(ON_BYTES) if random.random() < 0.4 else list(ON_CONTENTS))
        data = ON_BYTES[name](random, data, samples) if name in ON_BYTES else _changed(random, data, ON_CONTENTS[name])
        names.append(name)
    return Mutant(sample, tuple(names), data)


def _range(random: Random, data: bytes, longest: int = 4096) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(start + random.randint(1, random.choice((1, 16, longest))), len(data))


def _flip_bits(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _bit in range(random.choice((1, 2, 8, 64)) if data else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _splice(random: Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    """Put some bytes of a sample in, or in the place of others."""
    start, stop = _range(random, data)
    other = random.choice(samples)
    first, last = _range(random, other)
    return data[:start] + other[first:last] + data[random.choice((start, stop)) :]


def _without(random: Random, data: bytes, *, blank: bool) -> bytes:
    """Drop bytes, or make them zeros, as where a disk lost them."""
    start, stop = _range(random, data)
    return data[:start] + bytes(stop - start if blank else 0) + data[stop:]


def _varint(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + varint(random.choice(ODD_NUMBERS)) + data[start + random.choice((0, 1, 2)) :]


ON_BYTES: dict[str, Callable[[Random, bytes, Sequence[bytes]], bytes]] = {
    "truncate": lambda random, data, _: data[: random.randrange(len(data) + 1)],
    "flip bits": _flip_bits,
    "splice": _splice,
    "drop bytes": lambda random, data, _: _without(random, data, blank=False),
    "blank": lambda random, data, _: _without(random, data, blank=True),
    "odd varint": _varint,
    "as text": lambda _, data, __: data.decode("utf-8", "replace").encode(),
    # Appended to one without steps, another profile would be nothing but that other one.
    "concatenate": lambda _, data, __: data + data,
    "odd field": lambda random, data, _: data + field(random.choice((2, 3, 5, 99)), random.choice(ODD_TEXTS)),
}


def _changed(random: Random, data: bytes, change: Callable[[Random, Any], None]) -> bytes:
    """Change the contents; bytes that cannot be parsed any more stay as they are."""
    space = schema.message_class("XSpace")()
    try:
        space.ParseFromString(data)
    except Exception:
        return data
    if any(line.events for plane in space.planes for line in plane.lines):
        change(random, space)
    changed: bytes = space.SerializeToString()
    return changed


def _plane(random: Random, space: Any) -> Any:
    return random.choice([plane for plane in space.planes if any(line.events for line in plane.lines)])


def _line_in(random: Random, plane: Any) -> Any:
    return random.choice([line for line in plane.lines if line.events])


def _line(random: Random, space: Any) -> Any:
    return _line_in(random, _plane(random, space))


def _events(random: Random, space: Any) -> list[Any]:
    """Some events: a few of a line, many, all of a line, or all of a name."""
    plane = _plane(random, space)
    events = list(_line_in(random, plane).events)
    share = random.choice((0.0, 0.1, 0.5, 1.0, None))
    if share is None:
        wanted = random.choice(events).metadata_id
        return [event for line in plane.lines for event in line.events if event.metadata_id == wanted]
    return random.sample(events, max(1, round(share * len(events))))


def _in_64_bits(number: int) -> int:
    """Return the nearest number that a file can hold: what is changed may be odd already."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))


def _durations(random: Random, space: Any) -> None:
    how = random.choice(("odd", "negative", "scaled"))
    for event in _events(random, space):
        if how == "odd":
            event.duration_ps = random.choice(ODD_NUMBERS)
        elif how == "scaled":
            event.duration_ps = _in_64_bits(int(event.duration_ps * random.choice((0.001, 0.1, 8.0, 1000.0))))
        else:
            event.duration_ps = -1 - event.duration_ps


def _drop_durations(random: Random, space: Any) -> None:
    for event in _events(random, space):
        event.duration_ps = 0


def _offsets(random: Random, space: Any) -> None:
    how, by = random.choice(("odd", "moved", "scattered")), random.choice((10**6, 10**9, 10**12, -(10**9)))
    events = _events(random, space)
    lines = (line.events for plane in space.planes for line in plane.lines)
    whole = next(line for line in lines if any(event is events[0] for event in line))
    if how == "moved" and len(events) == len(whole):
        by = 10**12  # A whole thread that is moved by less is one whose clock is off by less than a step.
    for event in events:
        if how == "odd":
            event.offset_ps = random.choice(ODD_NUMBERS)
        else:
            moved = event.offset_ps + (by if how == "moved" else random.randint(-(10**9), 10**9))
            event.offset_ps = _in_64_bits(moved)


def _clock(random: Random, space: Any) -> None:
    line, by = _line(random, space), random.choice((10**8, -(10**8), 5 * 10**9, -5 * 10**9, 10**15))
    line.timestamp_ns = _in_64_bits(line.timestamp_ns + by)


def _ids(random: Random, space: Any) -> None:
    plane = _plane(random, space)
    ids = [entry.key for entry in plane.event_metadata] or [1]
    for event in _events(random, space):
        event.metadata_id = random.choice((*ODD_NUMBERS, *ids))


def _stats(random: Random, space: Any) -> None:
    for event in _events(random, space):
        for stat in event.stats:
            if random.random() < 0.5:
                how = random.choice(("int64_value", "uint64_value", "double_value", "str_value", "ref_value", "key"))
                number = random.choice(ODD_NUMBERS)
                if how == "key":
                    stat.metadata_id = random.randrange(1, 40)
                elif how == "str_value":
                    stat.str_value = random.choice(ODD_TEXTS)
                else:
                    setattr(stat, how, number % (1 << 64) if how[0] in "ur" else number)


def _swap_names(random: Random, space: Any) -> None:
    """Exchange the names of two kinds of events or stats, or put an odd one in."""
    plane = _plane(random, space)
    table = random.choice((plane.event_metadata, plane.event_metadata, plane.stat_metadata))
    if len(table) > 1:
        one, other = random.sample(list(table), 2)
        if random.random() < 0.7:
            one.value.name, other.value.name = other.value.name, one.value.name
        else:
            one.value.name = random.choice(ODD_TEXTS)


def _name_places(random: Random, space: Any) -> None:
    target = random.choice((_plane(random, space), _line(random, space)))
    target.name = random.choice(ODD_TEXTS)


def _drop_names(random: Random, space: Any) -> None:
    plane = _plane(random, space)
    table = random.choice((plane.event_metadata, plane.stat_metadata))
    if table:
        first = random.randrange(len(table))
        del table[first : random.choice((first + 1, len(table)))]


def _drop_events(random: Random, space: Any) -> None:
    chosen = _events(random, space)  # which keeps the objects, and so their ids
    gone = {id(event) for event in chosen}
    for plane in space.planes:
        for line in plane.lines:
            for place in reversed([place for place, event in enumerate(line.events) if id(event) in gone]):
                del line.events[place]


def _drop_tail(random: Random, space: Any) -> None:
    """End lines early, as where a buffer was full."""
    line = _line(random, space)
    del line.events[random.randrange(len(line.events)) :]


def _repeat_events(random: Random, space: Any) -> None:
    line = _line(random, space)
    events = random.sample(list(line.events), max(1, round(random.choice((0.01, 0.2, 1.0)) * len(line.events))))
    line.events.extend(events)


def _place(random: Random, space: Any, *, again: bool) -> None:
    """Remove a line or a plane, or write it twice."""
    places = random.choice((space.planes, _plane(random, space).lines))
    if again:
        places.add()
    number = random.randrange(len(places))
    if again:
        places[-1].CopyFrom(places[number])
    else:
        del places[number]


def _shuffle(random: Random, space: Any) -> None:
    """Put the lines of a plane in another order, and the events of a line: both mean the same."""
    for places in (_plane(random, space).lines, _line(random, space).events):
        mixed = random.sample(list(places), len(places))
        copies = [type(place).FromString(place.SerializeToString()) for place in mixed]
        del places[:]
        places.extend(copies)


LOSSES = frozenset({"truncate", "drop bytes", "drop durations", "drop events", "drop tail", "drop a place"})
"""Operators after which less is recorded."""
ON_CONTENTS: dict[str, Callable[[Random, Any], None]] = {
    "durations": _durations,
    "drop durations": _drop_durations,
    "offsets": _offsets,
    "clock": _clock,
    "ids": _ids,
    "stats": _stats,
    "swap names": _swap_names,
    "name of a place": _name_places,
    "drop names": _drop_names,
    "drop events": _drop_events,
    "drop tail": _drop_tail,
    "repeat events": _repeat_events,
    "drop a place": partial(_place, again=False),
    "repeat a place": partial(_place, again=True),
    "shuffle": _shuffle,
}
